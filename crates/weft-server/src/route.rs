//! The router: host and path → application. The table is built once and shared by the workers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, FutureExt, ready};
use serde::Serialize;
use weft::path::decode;
use weft::{Method, Request, Response, StatusCode};

use crate::apps::{App, escape};
use crate::status::{RouteCounts, RouteMetrics};

/// The route table and the applications, from which the router of each worker is built.
pub(crate) struct Routing {
    table: Arc<RouteTable>,
    apps: Vec<Arc<App>>,
    /// Names of the routes, in the order of `apps`.
    names: Vec<RouteName>,
}

/// The router of a worker. It has its own applications, and shares the table with other workers.
///
/// Request paths must be normalized: without doubled slashes and without dot segments.
pub(crate) struct Router {
    table: Arc<RouteTable>,
    apps: Vec<WorkerApp>,
    /// Metrics of each application, followed by those of requests without a route. `None` if
    /// metrics are disabled.
    counts: Option<Vec<Arc<RouteCounts>>>,
}

/// Name of a route in the metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct RouteName {
    /// Names of its hosts, separated by spaces.
    pub(crate) host: String,
    /// With its trailing slash.
    pub(crate) prefix: String,
}

/// The application of a route in one worker.
#[derive(Clone)]
struct WorkerApp {
    /// The application of the route table, from which `own` is created.
    origin: Arc<App>,
    own: Rc<App>,
}

#[derive(Default)]
pub(crate) struct RoutingBuilder {
    table: RouteTable,
    apps: Vec<Arc<App>>,
    names: Vec<RouteName>,
}

/// Routes by host name. The lists of names are sorted.
#[derive(Default)]
struct RouteTable {
    exact: Vec<(String, HostRoutes)>,
    /// The keys begin with the dot, without the `*`.
    wildcards: Vec<(String, HostRoutes)>,
    fallback: Option<HostRoutes>,
}

/// The routes of a host.
#[derive(Clone, Default)]
struct HostRoutes {
    /// Sorted by prefix.
    list: Arc<[Route]>,
    /// Maximum number of segments of a prefix.
    max_segments: usize,
}

struct Route {
    /// Percent-decoded, without a trailing slash.
    prefix: Box<[u8]>,
    /// Index of the application.
    app: usize,
    /// For a directory: `Location` of the redirect for the prefix without its trailing slash.
    directory: Option<Box<str>>,
}

impl Router {
    /// Handles a request with the application of its route.
    pub(crate) fn handle(&self, mut request: Request) -> impl Future<Output = Response> + use<> {
        let found = self.table.find(|| request.host(), request.path());
        let index = found.map_or(self.apps.len(), |(route, _)| route.app);
        let timer = self.counts.as_ref().map(|counts| counts[index].begin());
        let entered = match found {
            Some((route, bytes)) => route.enter(&mut request, bytes),
            None => Err(Response::not_found()),
        };
        let measured = |response: Response| {
            if let Some(timer) = timer {
                timer.finish(response.status());
            }
            response
        };
        match entered {
            Ok(app) => Either::Left(self.apps[app].own.call(request).map(measured)),
            Err(response) => Either::Right(ready(measured(response))),
        }
    }
}

impl Route {
    /// Strips the prefix, of `bytes` bytes, from the request and returns the index of the
    /// application. Returns a redirect for the path of a directory without its trailing slash.
    fn enter(&self, request: &mut Request, bytes: usize) -> Result<usize, Response> {
        if bytes > 0 {
            if bytes == request.path().len()
                && let Some(directory) = &self.directory
                && matches!(*request.method(), Method::GET | Method::HEAD)
            {
                return Err(redirect_to_directory(directory, request.query()));
            }
            request.take_prefix(bytes);
        }
        Ok(self.app)
    }
}

fn redirect_to_directory(directory: &str, query: Option<&str>) -> Response {
    let mut location = directory.to_owned();
    if let Some(query) = query {
        location.push('?');
        escape(&mut location, query);
    }
    Response::redirect(StatusCode::MOVED_PERMANENTLY, &location)
}

impl Routing {
    /// Returns the names of the routes, each with its application.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (&RouteName, &App)> {
        self.names.iter().zip(self.apps.iter().map(|app| &**app))
    }

    /// Builds the router of a worker. Applications that the worker's `former` router has are kept
    /// with their state, and metrics of routes with equal names continue.
    pub(crate) fn router(
        &self,
        former: Option<&Router>,
        route_metrics: Option<&RouteMetrics>,
    ) -> Router {
        let former = former.iter().flat_map(|former| &former.apps);
        let mut existing: HashMap<*const App, WorkerApp> =
            former.map(|app| (Arc::as_ptr(&app.origin), app.clone())).collect();
        // Routes with the same application share it in the worker, too.
        let of_worker = |app: &Arc<App>| {
            let own = || Rc::new(app.for_worker(route_metrics.is_some()));
            let new = || WorkerApp { origin: app.clone(), own: own() };
            existing.entry(Arc::as_ptr(app)).or_insert_with(new).clone()
        };
        let apps = self.apps.iter().map(of_worker).collect();
        let counts = route_metrics.map(|metrics| metrics.for_routes(&self.names));
        Router { table: self.table.clone(), apps, counts }
    }
}

impl RoutingBuilder {
    /// Adds a host section: its names, which must be new, and its applications by prefix.
    pub(crate) fn add(&mut self, names: &[String], apps: Vec<(&str, Arc<App>)>) {
        let first = self.apps.len();
        let (prefixes, apps): (Vec<&str>, Vec<_>) = apps.into_iter().unzip();
        let host = names.join(" ");
        let name = |prefix| RouteName { host: host.clone(), prefix: format!("{prefix}/") };
        self.names.extend(prefixes.iter().map(name));
        let mut list = Vec::new();
        for (i, (prefix, app)) in prefixes.iter().zip(&apps).enumerate() {
            let directory = matches!(**app, App::Files(_)).then(|| directory_reference(prefix));
            list.push(Route { prefix: prefix.as_bytes().into(), app: first + i, directory });
        }
        list.sort_by(|a, b| a.prefix.cmp(&b.prefix));
        let max_segments = prefixes.iter().map(|prefix| prefix.matches('/').count()).max();
        let routes = HostRoutes { list: list.into(), max_segments: max_segments.unwrap_or(0) };
        self.apps.extend(apps);
        for name in names {
            match (&**name, name.strip_prefix('*')) {
                ("*", _) => self.table.fallback = Some(routes.clone()),
                (_, Some(suffix)) => self.table.wildcards.push((suffix.to_owned(), routes.clone())),
                (name, None) => self.table.exact.push((name.to_owned(), routes.clone())),
            }
        }
    }

    pub(crate) fn build(mut self) -> Routing {
        self.table.exact.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.table.wildcards.sort_by(|(a, _), (b, _)| a.cmp(b));
        Routing { table: Arc::new(self.table), apps: self.apps, names: self.names }
    }
}

/// Returns the path of a directory as a URI reference.
fn directory_reference(prefix: &str) -> Box<str> {
    let mut reference = String::new();
    escape(&mut reference, prefix);
    reference.push('/');
    reference.into()
}

impl RouteTable {
    /// Returns the route of a request, and the length of the prefix in the path as it was sent.
    fn find<'h>(
        &self,
        host: impl FnOnce() -> Option<&'h str>,
        path: &str,
    ) -> Option<(&Route, usize)> {
        let routes = match self.exact.is_empty() && self.wildcards.is_empty() {
            true => self.fallback.as_ref(),
            false => host().and_then(|host| self.find_host(host)).or(self.fallback.as_ref()),
        };
        routes?.find(path)
    }

    fn find_host(&self, host: &str) -> Option<&HostRoutes> {
        find_name(&self.exact, host).or_else(|| {
            // The `*` matches at least one byte. The first dot gives the longest suffix.
            let mut dots = host.match_indices('.').filter(|&(dot, _)| dot > 0);
            dots.find_map(|(dot, _)| find_name(&self.wildcards, &host[dot..]))
        })
    }
}

/// Looks a name up in a sorted list, ignoring case.
fn find_name<'a>(list: &'a [(String, HostRoutes)], name: &str) -> Option<&'a HostRoutes> {
    let lower_case = || name.bytes().map(|b| b.to_ascii_lowercase());
    let at = list.binary_search_by(|(known, _)| known.bytes().cmp(lower_case())).ok()?;
    Some(&list[at].1)
}

impl HostRoutes {
    /// Returns the route with the longest matching prefix.
    fn find(&self, path: &str) -> Option<(&Route, usize)> {
        let decoded = decode_segments(path);
        let mut start = &decoded[..end_of_segments(&decoded, self.max_segments)];
        // The empty prefix is the first of the list and is not compared: on a processor with masked
        // compares, comparing zero bytes at the dangling address of an empty slice takes a fault.
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

/// Replaces a slash that is percent-encoded in a segment. This byte does not occur in UTF-8, so
/// that no prefix contains it.
const ENCODED_SLASH: u8 = 0xff;

/// Decodes the segments of a path, each after its slash.
fn decode_segments(path: &str) -> Cow<'_, [u8]> {
    if !path.contains('%') {
        return Cow::Borrowed(path.as_bytes());
    }
    let mut decoded = Vec::with_capacity(path.len());
    for (i, segment) in path.split('/').enumerate() {
        if i > 0 {
            decoded.push(b'/');
        }
        let mask = |&b: &u8| if b == b'/' { ENCODED_SLASH } else { b };
        decoded.extend(decode(segment.as_bytes()).iter().map(mask));
    }
    Cow::Owned(decoded)
}

/// Returns the length of the first `segments` segments of a path, which may have fewer.
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

    fn router(hosts: &[(&str, &[&'static str])]) -> Router {
        let mut builder = RoutingBuilder::default();
        for (names, prefixes) in hosts {
            let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
            let app = |prefix: &&'static str| {
                let text = format!("{} {prefix}", names[0]);
                (*prefix, Arc::new(App::Respond(Respond::new(&text, StatusCode::OK))))
            };
            let apps = prefixes.iter().map(app);
            builder.add(&names, apps.collect());
        }
        builder.build().router(None, None)
    }

    fn response_text(router: &Router, head: &str) -> String {
        let app = async |request: Request| router.handle(request).await;
        let response = testing::call(app, testing::request(format!("{head}\r\n\r\n")));
        String::from_utf8(response.body.to_vec()).unwrap()
    }

    const NOT_FOUND: &str = "404 Not Found\n";

    #[test]
    fn longest_prefix_matches() {
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
            assert_eq!(response_text(&router, &head), expected, "{path}");
        }
    }

    #[test]
    fn prefix_length_counts_encoded_bytes() {
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
    fn matches_exact_hosts_before_wildcards() {
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
            // An exact host without a matching prefix does not fall back to the wildcard.
            ("x.b.example.org", NOT_FOUND),
            (".example.org", NOT_FOUND),
            ("aexample.org", NOT_FOUND),
            ("192.0.2.1:80", "192.0.2.1 "),
            ("[2001:DB8::1]:80", "*.b.example.org "),
            ("elsewhere", NOT_FOUND),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: {host}");
            assert_eq!(response_text(&router, &head), expected, "{host}");
        }
        assert_eq!(
            response_text(&router, "GET http://192.0.2.1/ HTTP/1.1\r\nHost: a"),
            "192.0.2.1 "
        );
        assert_eq!(response_text(&router, "GET / HTTP/1.0"), NOT_FOUND);
    }

    #[test]
    fn star_matches_all_other_hosts() {
        let router = router(&[("a", &["/only"]), ("*", &[""])]);
        for (head, expected) in [
            ("GET /only HTTP/1.1\r\nHost: a", "a /only"),
            ("GET / HTTP/1.1\r\nHost: a", NOT_FOUND),
            ("GET /only HTTP/1.1\r\nHost: b", "* "),
            ("GET / HTTP/1.0", "* "),
        ] {
            assert_eq!(response_text(&router, head), expected, "{head}");
        }
    }
}
