//! Host and path → application: a table that is built once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, ready};
use serde::Serialize;
use weft::path::decode;
use weft::{Method, Request, Response, StatusCode};

use crate::apps::{App, escape};
use crate::status::{RouteCounts, Tally};

/// The applications of all hosts, from which each worker gets its own.
pub(crate) struct Routing {
    table: Arc<Table>,
    apps: Vec<(AppKey, App)>,
    /// What the routes of the applications are called.
    names: Vec<RouteName>,
}

/// The applications of a worker. Workers share the table.
///
/// Paths are clean when they come here: without doubled slashes and segments of dots.
pub(crate) struct Router {
    table: Arc<Table>,
    apps: Vec<(AppKey, Rc<App>)>,
    /// One for each application and one more, if anybody counts.
    counts: Option<Vec<Arc<RouteCounts>>>,
}

/// What a route is called where it is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct RouteName {
    /// The names of its hosts, with spaces between them.
    pub(crate) host: String,
    /// With a slash at its end.
    pub(crate) prefix: String,
}

/// Says all of an application, so that those with one key are the same.
pub(crate) type AppKey = Arc<str>;

#[derive(Default)]
pub(crate) struct RoutingBuilder {
    table: Table,
    apps: Vec<(AppKey, App)>,
    names: Vec<RouteName>,
}

/// Which routes are whose. The lists of names are sorted.
#[derive(Default)]
struct Table {
    names: Vec<(String, Routes)>,
    /// With the dot, without the star.
    wildcards: Vec<(String, Routes)>,
    others: Option<Routes>,
}

/// The routes of a host.
#[derive(Clone, Default)]
struct Routes {
    /// Sorted by prefix.
    list: Arc<[Route]>,
    /// How many segments the longest prefix has.
    deepest: usize,
}

struct Route {
    /// As a path has it once it is decoded; without a slash at its end.
    prefix: Box<[u8]>,
    /// Which application it is.
    app: usize,
    /// For a folder: where a path leads that is the prefix and lacks the slash behind it.
    folder: Option<Box<str>>,
}

impl Router {
    /// Answers by the application whose route it is. The routes stay until that is done.
    pub(crate) fn answer(self: Rc<Router>, mut request: Request) -> impl Future<Output = Response> {
        let found = self.table.find(|| request.host(), request.path());
        let counted = found.map_or(self.apps.len(), |(route, _)| route.app);
        let measure = self.counts.as_ref().map(|counts| counts[counted].begin());
        let turn = match found {
            Some((route, bytes)) => route.enter(&mut request, bytes),
            None => Err(Response::not_found()),
        };
        let (app, at_hand) = match turn {
            Ok(app) => (app, self.apps[app].1.at_hand(&request)),
            Err(response) => (0, Some(response)),
        };
        let measured = |response: Response| {
            if let Some(measure) = measure {
                measure.answered(response.status());
            }
            response
        };
        match at_hand {
            Some(response) => Either::Left(ready(measured(response))),
            None => {
                Either::Right(async move { measured(self.apps[app].1.wait_for(request).await) })
            }
        }
    }
}

impl Route {
    /// Takes its prefix, of so many bytes, off a request, and says whose it is; or redirects
    /// a folder's name to its path.
    fn enter(&self, request: &mut Request, bytes: usize) -> Result<usize, Response> {
        if bytes > 0 {
            if bytes == request.path().len()
                && let Some(folder) = &self.folder
                && matches!(*request.method(), Method::GET | Method::HEAD)
            {
                return Err(redirect_to_folder(folder, request.query()));
            }
            request.take_prefix(bytes);
        }
        Ok(self.app)
    }
}

fn redirect_to_folder(folder: &str, query: Option<&str>) -> Response {
    let mut location = folder.to_owned();
    if let Some(query) = query {
        location.push('?');
        escape(&mut location, query);
    }
    Response::redirect(StatusCode::MOVED_PERMANENTLY, &location)
}

impl Routing {
    /// All applications by their keys.
    pub(crate) fn apps(&self) -> HashMap<&str, &App> {
        self.apps.iter().map(|(key, app)| (&**key, app)).collect()
    }

    /// What the routes are called, each with its application.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (&RouteName, &App)> {
        self.names.iter().zip(self.apps.iter().map(|(_, app)| app))
    }

    /// The routes for a worker. Applications that it has go on, with what they keep, and so
    /// does what it counts.
    pub(crate) fn router<'a>(
        &'a self,
        former: Option<&'a Router>,
        tally: Option<&Tally>,
    ) -> Router {
        let former = former.iter().flat_map(|former| &former.apps);
        let mut known: HashMap<&str, Rc<App>> =
            former.map(|(key, app)| (&**key, app.clone())).collect();
        let new = |app: &App| match (app.clone(), tally) {
            (App::Proxy(proxy), Some(_)) => App::Proxy(proxy.counted()),
            (app, _) => app,
        };
        // Those with one key are one.
        let own = |(key, app): &'a (AppKey, App)| {
            let own = known.entry(key).or_insert_with(|| Rc::new(new(app)));
            (key.clone(), own.clone())
        };
        let apps = self.apps.iter().map(own).collect();
        let counts = tally.map(|tally| tally.of(&self.names));
        Router { table: self.table.clone(), apps, counts }
    }
}

impl RoutingBuilder {
    /// Adds hosts by their names, which nobody has yet, with applications by prefix.
    pub(crate) fn add(&mut self, names: &[String], apps: Vec<(&str, (AppKey, App))>) {
        let first = self.apps.len();
        let (prefixes, apps): (Vec<&str>, Vec<_>) = apps.into_iter().unzip();
        let host = names.join(" ");
        let name = |prefix| RouteName { host: host.clone(), prefix: format!("{prefix}/") };
        self.names.extend(prefixes.iter().map(name));
        let mut list = Vec::new();
        for (i, (prefix, (_, app))) in prefixes.iter().zip(&apps).enumerate() {
            let folder = matches!(app, App::Files(_)).then(|| folder_reference(prefix));
            list.push(Route { prefix: prefix.as_bytes().into(), app: first + i, folder });
        }
        list.sort_by(|a, b| a.prefix.cmp(&b.prefix));
        let deepest = prefixes.iter().map(|prefix| prefix.matches('/').count()).max();
        let routes = Routes { list: list.into(), deepest: deepest.unwrap_or(0) };
        self.apps.extend(apps);
        for name in names {
            match (&**name, name.strip_prefix('*')) {
                ("*", _) => self.table.others = Some(routes.clone()),
                (_, Some(below)) => self.table.wildcards.push((below.to_owned(), routes.clone())),
                (name, None) => self.table.names.push((name.to_owned(), routes.clone())),
            }
        }
    }

    pub(crate) fn build(mut self) -> Routing {
        self.table.names.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.table.wildcards.sort_by(|(a, _), (b, _)| a.cmp(b));
        Routing { table: Arc::new(self.table), apps: self.apps, names: self.names }
    }
}

/// The path of a folder, as a reference.
fn folder_reference(prefix: &str) -> Box<str> {
    let mut reference = String::new();
    escape(&mut reference, prefix);
    reference.push('/');
    reference.into()
}

impl Table {
    /// The route of a path, and how many bytes of the path are its prefix.
    fn find<'h>(
        &self,
        host: impl FnOnce() -> Option<&'h str>,
        path: &str,
    ) -> Option<(&Route, usize)> {
        let routes = match self.names.is_empty() && self.wildcards.is_empty() {
            true => self.others.as_ref(),
            false => host().and_then(|host| self.of_host(host)).or(self.others.as_ref()),
        };
        routes?.find(path)
    }

    fn of_host(&self, host: &str) -> Option<&Routes> {
        find_in(&self.names, host).or_else(|| {
            // What the star stands for is not empty. The first dot leaves the longest name.
            let mut dots = host.match_indices('.').filter(|&(dot, _)| dot > 0);
            dots.find_map(|(dot, _)| find_in(&self.wildcards, &host[dot..]))
        })
    }
}

/// What a list has for a name, without regard to the name's case.
fn find_in<'a>(list: &'a [(String, Routes)], name: &str) -> Option<&'a Routes> {
    let small = || name.bytes().map(|b| b.to_ascii_lowercase());
    let at = list.binary_search_by(|(known, _)| known.bytes().cmp(small())).ok()?;
    Some(&list[at].1)
}

impl Routes {
    /// The route with the longest prefix that a path has.
    fn find(&self, path: &str) -> Option<(&Route, usize)> {
        let comparable = comparable(path);
        let mut start = &comparable[..end_of_segments(&comparable, self.deepest)];
        // The empty prefix is the first of the list, and is not compared: where the processor
        // compares under a mask, to compare nothing at the address of nothing takes a fault.
        while !start.is_empty() {
            if let Ok(at) = self.list.binary_search_by(|route| (*route.prefix).cmp(start)) {
                let segments = start.iter().filter(|&&b| b == b'/').count();
                return Some((&self.list[at], end_of_segments(path.as_bytes(), segments)));
            }
            start = &start[..start.iter().rposition(|&b| b == b'/')?];
        }
        self.list.first().filter(|route| route.prefix.is_empty()).map(|route| (route, 0))
    }
}

/// Stands for a slash that is part of a segment. No prefix has such a byte, for it is none
/// of UTF-8.
const INNER_SLASH: u8 = 0xff;

/// The segments of a path, decoded, each behind its slash.
fn comparable(path: &str) -> Cow<'_, [u8]> {
    if !path.contains('%') {
        return Cow::Borrowed(path.as_bytes());
    }
    let mut decoded = Vec::with_capacity(path.len());
    for (i, segment) in path.split('/').enumerate() {
        if i > 0 {
            decoded.push(b'/');
        }
        let inner = |&b: &u8| if b == b'/' { INNER_SLASH } else { b };
        decoded.extend(decode(segment.as_bytes()).iter().map(inner));
    }
    Cow::Owned(decoded)
}

/// Where the first so many segments of a path end; there may be fewer.
fn end_of_segments(path: &[u8], segments: usize) -> usize {
    if segments == 0 || !path.starts_with(b"/") {
        return 0;
    }
    let mut slashes = path.iter().enumerate().filter(|&(_, &b)| b == b'/');
    slashes.nth(segments).map_or(path.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::Respond;
    use weft::testing;

    fn router(hosts: &[(&str, &[&'static str])]) -> Rc<Router> {
        let mut builder = RoutingBuilder::default();
        for (names, prefixes) in hosts {
            let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
            let app = |prefix: &&'static str| {
                let text = format!("{} {prefix}", names[0]);
                (*prefix, (text.clone().into(), App::Respond(Respond::new(&text, StatusCode::OK))))
            };
            let apps = prefixes.iter().map(app);
            builder.add(&names, apps.collect());
        }
        Rc::new(builder.build().router(None, None))
    }

    fn answer(router: &Rc<Router>, head: &str) -> String {
        let router = router.clone();
        let app = async move |request: Request| router.clone().answer(request).await;
        let reply = testing::call(app, testing::request(format!("{head}\r\n\r\n")));
        String::from_utf8(reply.body.to_vec()).unwrap()
    }

    const NOTHING: &str = "404 Not Found\n";

    #[test]
    fn the_longest_prefix_answers() {
        let router = router(&[("*", &["", "/app", "/app/in/deep", "/días", "/a/b"])]);
        for (path, expected) in [
            ("/", "* "),
            ("/x", "* "),
            ("*", "* "),
            ("/app", "* /app"),
            ("/app/", "* /app"),
            ("/app/x/y", "* /app"),
            ("/apple", "* "),
            ("/ap", "* "),
            ("/APP", "* "),
            ("/%61pp/x", "* /app"),
            ("/app%2Fin", "* "),
            ("/app/in", "* /app"),
            ("/app/in/deeper", "* /app"),
            ("/app/%69n/deep/x", "* /app/in/deep"),
            ("/app/in/deep", "* /app/in/deep"),
            ("/app/in%2Fdeep", "* /app"),
            ("/d%C3%ADas/x", "* /días"),
            ("/d%c3%adas", "* /días"),
            ("/%64%ff", "* "),
            ("/a", "* "),
            ("/a%2fb", "* "),
            ("/a/b?/app", "* /a/b"),
        ] {
            let method = if path == "*" { "OPTIONS" } else { "GET" };
            let head = format!("{method} {path} HTTP/1.1\r\nHost: a");
            assert_eq!(answer(&router, &head), expected, "{path}");
        }
    }

    #[test]
    fn the_prefix_is_taken_off_as_it_was_sent() {
        let routes = router(&[("*", &["", "/app", "/a b/c"])]).table.clone();
        for (path, bytes) in [
            ("/x", 0),
            ("/app", 4),
            ("/app/x", 4),
            ("/%61%70p/x", 8),
            ("/a%20b/c", 8),
            ("/a%20b/%63/d", 10),
        ] {
            assert_eq!(routes.find(|| None, path).unwrap().1, bytes, "{path}");
        }
    }

    #[test]
    fn hosts_are_told_apart() {
        let router = router(&[
            ("example.org www.example.org", &["", "/only"]),
            ("*.example.org", &[""]),
            ("*.b.example.org [2001:db8::1]", &[""]),
            ("x.b.example.org", &["/deep"]),
            ("192.0.2.1", &[""]),
        ]);
        for (host, expected) in [
            ("example.org", "example.org "),
            ("EXAMPLE.org.:8080", "example.org "),
            ("www.example.org", "example.org "),
            ("a.example.org", "*.example.org "),
            ("a.c.Example.ORG", "*.example.org "),
            ("b.example.org", "*.example.org "),
            ("a.b.example.org", "*.b.example.org "),
            // It has no such path, and nobody else answers for it.
            ("x.b.example.org", NOTHING),
            (".example.org", NOTHING),
            ("aexample.org", NOTHING),
            ("192.0.2.1:80", "192.0.2.1 "),
            ("[2001:DB8::1]:80", "*.b.example.org "),
            ("elsewhere", NOTHING),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: {host}");
            assert_eq!(answer(&router, &head), expected, "{host}");
        }
        assert_eq!(answer(&router, "GET http://192.0.2.1/ HTTP/1.1\r\nHost: a"), "192.0.2.1 ");
        assert_eq!(answer(&router, "GET / HTTP/1.0"), NOTHING);
    }

    #[test]
    fn all_others_have_a_star() {
        let router = router(&[("a", &["/only"]), ("*", &[""])]);
        for (head, expected) in [
            ("GET /only HTTP/1.1\r\nHost: a", "a /only"),
            ("GET / HTTP/1.1\r\nHost: a", NOTHING),
            ("GET /only HTTP/1.1\r\nHost: b", "* "),
            ("GET / HTTP/1.0", "* "),
        ] {
            assert_eq!(answer(&router, head), expected, "{head}");
        }
    }
}
