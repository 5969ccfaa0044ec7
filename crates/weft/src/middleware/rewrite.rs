//! Other paths in place of those that were asked for.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::app::{Application, Middleware};
use crate::message::request::{Head, Request};
use crate::message::response::Response;
use crate::middleware::mount::Prefix;
use crate::proto::semantics::path::decode;

/// Changes the path before the application sees it. The client is told nothing of it.
///
/// ```
/// use weft::middleware::Rewrite;
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(request: Request) -> Response { Response::text(request.path().to_owned()) }
///
/// let rewrite = Rewrite::new()
///     .path("/favicon.ico", "/static/icon.svg")
///     .prefix("/blog", "/articles")
///     .by(|head| head.path().strip_suffix(".php").map(str::to_owned));
/// let app = app.with(rewrite);
/// testing::get(app.clone(), "/favicon.ico").assert_text("/static/icon.svg");
/// testing::get(app.clone(), "/blog/2026").assert_text("/articles/2026");
/// testing::get(app.clone(), "/contact.php").assert_text("/contact");
/// testing::get(app, "/else").assert_text("/else");
/// ```
///
/// The first rule that suits is applied, and no other after it. Paths and prefixes to be
/// replaced are compared segment by segment and percent-decoded, as by [`Mount`](super::Mount).
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    rules: Vec<Rule>,
}

#[derive(Clone)]
enum Rule {
    Path(Box<str>, Box<str>),
    Prefix(Prefix, Box<str>),
    By(Arc<By>),
}

type By = dyn Fn(&Head) -> Option<String> + Send + Sync;

impl Rewrite {
    /// No rule.
    pub fn new() -> Rewrite {
        Rewrite::default()
    }

    /// Puts one path in place of another, which is compared whole. The query stays. What is
    /// looked for is not percent-encoded, what replaces it is.
    ///
    /// # Panics
    /// If one of them does not begin with a slash, or has a query.
    pub fn path(self, from: &str, to: &str) -> Rewrite {
        self.rule(Rule::Path(checked(from).into(), checked(to).into()))
    }

    /// Puts one prefix in place of another, for all paths under it. The rest stays, and so
    /// does the query. What is looked for is not percent-encoded, what replaces it is.
    ///
    /// # Panics
    /// If one of them does not begin with a slash, or the second has a query.
    pub fn prefix(self, from: &str, to: &str) -> Rewrite {
        let to = checked(to);
        self.rule(Rule::Prefix(Prefix::new(from), to.strip_suffix('/').unwrap_or(to).into()))
    }

    /// Sets path and query to what a function makes of the head; `None` leaves them. A path
    /// that does not begin with a slash gets one.
    ///
    /// A path without a query keeps the one that was sent. To take it away, end in `?`.
    pub fn by(self, rule: impl Fn(&Head) -> Option<String> + Send + Sync + 'static) -> Rewrite {
        self.rule(Rule::By(Arc::new(rule)))
    }

    fn rule(mut self, rule: Rule) -> Rewrite {
        self.rules.push(rule);
        self
    }

    /// The new path and query, if there is one.
    fn rewritten(&self, head: &Head) -> Option<String> {
        let mut local = self.rules.iter().find_map(|rule| rule.apply(head))?;
        match head.query() {
            Some(query) if !local.contains('?') => {
                local.push('?');
                local.push_str(query);
            }
            _ => {}
        }
        if let Some(path) = local.strip_suffix('?') {
            local.truncate(path.len());
        }
        if !local.starts_with('/') {
            local.insert(0, '/');
        }
        Some(local)
    }
}

impl Middleware for Rewrite {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        if let Some(local) = self.rewritten(&request) {
            request.set_path_and_query(local);
        }
        next.call(request).await
    }
}

impl Rule {
    fn apply(&self, head: &Head) -> Option<String> {
        let path = head.path();
        match self {
            Rule::Path(from, to) => is_path(path, from).then(|| to.to_string()),
            Rule::Prefix(from, to) => Some([to, &path[from.length(path)?..]].concat()),
            Rule::By(rule) => rule(head),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Path(from, to) => write!(f, "Path({from:?}, {to:?})"),
            Rule::Prefix(from, to) => write!(f, "Prefix({from:?}, {to:?})"),
            Rule::By(_) => f.write_str("By(..)"),
        }
    }
}

/// Whether a path is another one, which is not percent-encoded.
fn is_path(path: &str, decoded: &str) -> bool {
    let segments = path.split('/').map(|segment| decode(segment.as_bytes()));
    segments.eq(decoded.split('/').map(|segment| Cow::Borrowed(segment.as_bytes())))
}

fn checked(path: &str) -> &str {
    assert!(path.starts_with('/'), "a path begins with a slash: {path:?}");
    assert!(!path.contains('?'), "the query stays what it was: {path:?}");
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, get, request};

    async fn show(request: Request) -> Response {
        Response::text(format!("{} {}", request.path(), request.query().unwrap_or("-")))
    }

    #[test]
    fn rules() {
        let app = show.with(
            Rewrite::new()
                .path("/old", "/new%20one")
                .path("/", "/home")
                .path("/slash/", "/with")
                .prefix("/blog", "/articles/")
                .prefix("/up", "/")
                .by(|head| match head.path() {
                    "/loop" => Some("/old".to_owned()),
                    "/bare" => Some("bare".to_owned()),
                    "/empty" => Some(String::new()),
                    "/query" => Some("/x?y=1".to_owned()),
                    "/no-query" => Some("/x?".to_owned()),
                    _ => None,
                }),
        );
        for (target, seen) in [
            ("/old", "/new%20one -"),
            ("/old?q", "/new%20one q"),
            ("/%6fld", "/new%20one -"),
            ("/old/", "/old/ -"),
            ("/slash/", "/with -"),
            ("/slash", "/slash -"),
            ("/o%2Fld", "/o%2Fld -"),
            ("/older", "/older -"),
            ("/", "/home -"),
            ("http://a?q", "/home q"),
            ("/blog", "/articles -"),
            ("/blog/a%20b?q", "/articles/a%20b q"),
            ("/blogs", "/blogs -"),
            ("/up/x", "/x -"),
            ("/up", "/ -"),
            ("/loop", "/old -"),
            ("/bare?q", "/bare q"),
            ("/empty", "/ -"),
            ("/query?q", "/x y=1"),
            ("/no-query?q", "/x -"),
        ] {
            let reply = get(app.clone(), target);
            assert_eq!(String::from_utf8_lossy(&reply.body), seen, "{target}");
        }
    }

    #[test]
    fn a_target_without_a_path_stays_as_it_is() {
        let app = show.with(Rewrite::new().prefix("/", "/x").path("/", "/y"));
        call(app, request("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")).assert_text("* -");
    }

    #[test]
    fn what_is_no_path_is_refused_at_once() {
        for path in ["", "x", "/a?b"] {
            let made = || Rewrite::new().path("/a", path);
            assert!(std::panic::catch_unwind(made).is_err(), "{path:?}");
        }
    }
}
