//! Path rewriting.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::middleware::routing::mount::Prefix;
use weft_proto::semantics::path::decode;

/// Changes the path that is passed to the application, without a redirect.
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
///     .custom(|head| head.path().strip_suffix(".php").map(str::to_owned));
/// let app = app.wrap(rewrite);
/// testing::get(app.clone(), "/favicon.ico").assert_text("/static/icon.svg");
/// testing::get(app.clone(), "/blog/2026").assert_text("/articles/2026");
/// testing::get(app.clone(), "/contact.php").assert_text("/contact");
/// testing::get(app, "/else").assert_text("/else");
/// ```
///
/// Only the first matching rule is applied. Paths and prefixes to be replaced are compared segment
/// by segment and percent-decoded, as by [`Mount`](crate::middleware::Mount).
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    rules: Vec<Rule>,
}

#[derive(Clone)]
enum Rule {
    Path(Box<str>, Box<str>),
    Prefix(Prefix, Box<str>),
    Custom(Arc<CustomRule>),
}

type CustomRule = dyn Fn(&RequestHead) -> Option<String> + Send + Sync;

impl Rewrite {
    /// Creates the middleware without rules.
    pub fn new() -> Rewrite {
        Rewrite::default()
    }

    /// Replaces the path `from`, compared as a whole, with `to`. The query is kept. `from` is not
    /// percent-encoded, `to` is.
    ///
    /// # Panics
    /// If one of them does not begin with a slash, or has a query.
    pub fn path(self, from: &str, to: &str) -> Rewrite {
        self.rule(Rule::Path(validated(from).into(), validated(to).into()))
    }

    /// Replaces the prefix `from` of all paths under it with `to`. The rest of the path and the
    /// query are kept. `from` is not percent-encoded, `to` is.
    ///
    /// # Panics
    /// If one of them does not begin with a slash, or `to` has a query.
    pub fn prefix(self, from: &str, to: &str) -> Rewrite {
        let to = validated(to);
        self.rule(Rule::Prefix(Prefix::new(from), to.strip_suffix('/').unwrap_or(to).into()))
    }

    /// Replaces path and query with the result of a function; `None` leaves them unchanged. A
    /// slash is prepended to a path that does not begin with one.
    ///
    /// If the result has no query, the query of the request is kept. To remove it, end in `?`.
    pub fn custom(
        self,
        rule: impl Fn(&RequestHead) -> Option<String> + Send + Sync + 'static,
    ) -> Rewrite {
        self.rule(Rule::Custom(Arc::new(rule)))
    }

    fn rule(mut self, rule: Rule) -> Rewrite {
        self.rules.push(rule);
        self
    }

    /// The new path and query; `None` if no rule matches.
    fn rewrite(&self, head: &RequestHead) -> Option<String> {
        let mut path_and_query = self.rules.iter().find_map(|rule| rule.apply(head))?;
        match head.query() {
            Some(query) if !path_and_query.contains('?') => {
                path_and_query.push('?');
                path_and_query.push_str(query);
            }
            _ => {}
        }
        if let Some(path) = path_and_query.strip_suffix('?') {
            path_and_query.truncate(path.len());
        }
        if !path_and_query.starts_with('/') {
            path_and_query.insert(0, '/');
        }
        Some(path_and_query)
    }
}

impl Middleware for Rewrite {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        if let Some(path_and_query) = self.rewrite(&request) {
            request.set_path_and_query(path_and_query);
        }
        next.call(request).await
    }
}

impl Rule {
    fn apply(&self, head: &RequestHead) -> Option<String> {
        let path = head.path();
        match self {
            Rule::Path(from, to) => path_equals(path, from).then(|| to.to_string()),
            Rule::Prefix(from, to) => Some([to, &path[from.matched_len(path)?..]].concat()),
            Rule::Custom(rule) => rule(head),
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Path(from, to) => write!(f, "Path({from:?}, {to:?})"),
            Rule::Prefix(from, to) => write!(f, "Prefix({from:?}, {to:?})"),
            Rule::Custom(_) => f.write_str("Custom(..)"),
        }
    }
}

/// Returns true if a percent-encoded path equals a decoded one.
fn path_equals(path: &str, decoded: &str) -> bool {
    let segments = path.split('/').map(|segment| decode(segment.as_bytes()));
    segments.eq(decoded.split('/').map(|segment| Cow::Borrowed(segment.as_bytes())))
}

fn validated(path: &str) -> &str {
    assert!(path.starts_with('/'), "a path must begin with a slash: {path:?}");
    assert!(!path.contains('?'), "a path must not contain a query: {path:?}");
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
    fn applies_the_first_matching_rule() {
        let app = show.wrap(
            Rewrite::new()
                .path("/old", "/new%20one")
                .path("/", "/home")
                .path("/slash/", "/with")
                .prefix("/blog", "/articles/")
                .prefix("/up", "/")
                .custom(|head| match head.path() {
                    "/loop" => Some("/old".to_owned()),
                    "/bare" => Some("bare".to_owned()),
                    "/empty" => Some(String::new()),
                    "/query" => Some("/x?y=1".to_owned()),
                    "/no-query" => Some("/x?".to_owned()),
                    _ => None,
                }),
        );
        for (target, expected) in [
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
            assert_eq!(String::from_utf8_lossy(&reply.body), expected, "{target}");
        }
    }

    #[test]
    fn leaves_targets_without_a_path_unchanged() {
        let app = show.wrap(Rewrite::new().prefix("/", "/x").path("/", "/y"));
        call(app, request("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")).assert_text("* -");
    }

    #[test]
    fn panics_on_invalid_paths() {
        for path in ["", "x", "/a?b"] {
            let rewrite = || Rewrite::new().path("/a", path);
            assert!(std::panic::catch_unwind(rewrite).is_err(), "{path:?}");
        }
    }
}
