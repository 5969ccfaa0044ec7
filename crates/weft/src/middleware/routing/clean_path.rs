//! Normalization of paths.

use futures_util::future::{Either, ready};
use http::StatusCode;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use weft_proto::semantics::path::decode;

/// Redirects requests to the normalized path: without doubled slashes, without the segments `.`
/// and `..` (RFC 3986 §5.2.4), percent-encoded or not, and with or without a trailing slash, as
/// [configured](CleanPath::trailing_slash).
///
/// ```
/// use weft::middleware::{CleanPath, TrailingSlash};
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(request: Request) -> Response { Response::text(request.path().to_owned()) }
///
/// let app = app.wrap(CleanPath::new().trailing_slash(TrailingSlash::Remove));
/// let reply = testing::get(app.clone(), "/a//b/%2e%2e/c/?page=2");
/// assert_eq!(reply.status, 308);
/// assert_eq!(reply.header("location"), Some("/a/c?page=2"));
/// testing::get(app, "/a/c").assert_text("/a/c");
/// ```
///
/// The redirect is 308, so that a POST stays a POST, and leads to a path on the same host: it
/// begins with exactly one slash, not followed by a backslash, which browsers treat as a slash.
/// It is derived from the path that the client sent, regardless of changes by other middleware.
/// A segment with percent-encoded slashes (`..%2F`) is an ordinary name.
#[derive(Clone, Copy, Debug, Default)]
pub struct CleanPath {
    trailing_slash: TrailingSlash,
    rewrites: bool,
}

/// Policy for a slash at the end of a path. The path `/` is exempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrailingSlash {
    /// Keeps the slash as sent: `/a` and `/a/` are two paths.
    #[default]
    Keep,
    /// Adds a slash, unless the last segment looks like a file name: it contains a dot.
    Add,
    /// Removes the slash.
    Remove,
}

impl CleanPath {
    /// Redirects to normalized paths; trailing slashes are kept.
    pub fn new() -> CleanPath {
        CleanPath::default()
    }

    /// Sets the policy for trailing slashes. Default: [`TrailingSlash::Keep`].
    pub fn trailing_slash(self, trailing_slash: TrailingSlash) -> CleanPath {
        CleanPath { trailing_slash, ..self }
    }

    /// Passes the normalized path to the application instead of a redirect. Caches and search
    /// engines then see one page under several URLs.
    pub fn rewrite(self) -> CleanPath {
        CleanPath { rewrites: true, ..self }
    }
}

impl Middleware for CleanPath {
    fn call(
        &self,
        mut request: Request,
        next: &impl Application,
    ) -> impl Future<Output = Response> {
        match self.apply(&mut request) {
            Some(redirect) => Either::Left(ready(redirect)),
            None => Either::Right(next.call(request)),
        }
    }
}

impl CleanPath {
    /// Applies this to a request, for an application that does so itself. Returns the redirect to
    /// the normalized path; `None` if the path is already normalized, or has been rewritten in
    /// `request`.
    ///
    /// ```
    /// use weft::middleware::CleanPath;
    ///
    /// let mut request = weft::testing::request("GET //a/../b HTTP/1.1\r\nHost: a\r\n\r\n");
    /// assert!(CleanPath::new().rewrite().apply(&mut request).is_none());
    /// assert_eq!(request.path(), "/b");
    /// ```
    pub fn apply(&self, request: &mut Request) -> Option<Response> {
        if self.rewrites {
            let path = clean_with(request.path(), self.trailing_slash)?;
            request.set_path_and_query(with_query(path, request.query()));
            return None;
        }
        let (path, query) = match request.original_path_and_query().split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (request.original_path_and_query(), None),
        };
        let location = with_query(clean_with(path, self.trailing_slash)?, query);
        Some(Response::redirect(StatusCode::PERMANENT_REDIRECT, &location))
    }
}

fn with_query(mut path: String, query: Option<&str>) -> String {
    if let Some(query) = query {
        path.push('?');
        path.push_str(query);
    }
    path
}

/// Normalizes a path: removes doubled slashes and the segments `.` and `..`, percent-encoded or
/// not. Returns `None` if the path is already normalized, or is no path (`*`).
///
/// ```
/// use weft::path::clean;
///
/// assert_eq!(clean("/a//b/%2e%2e/c"), Some("/a/c".to_owned()));
/// assert_eq!(clean("/a/c"), None);
/// ```
pub fn clean(path: &str) -> Option<String> {
    clean_with(path, TrailingSlash::Keep)
}

/// The normalized path; `None` if it is already normalized or not a path (`*`).
fn clean_with(path: &str, trailing_slash: TrailingSlash) -> Option<String> {
    if !path.starts_with('/') || is_clean(path, trailing_slash) {
        return None;
    }
    let mut segments: Vec<&str> = Vec::new();
    let mut is_directory = false;
    for segment in path.split('/') {
        let dots = dot_segment(segment);
        is_directory = segment.is_empty() || dots.is_some();
        match dots {
            Some(DotSegment::Current) => {}
            Some(DotSegment::Parent) => {
                segments.pop();
            }
            None if segment.is_empty() => {}
            None => segments.push(segment),
        }
    }
    let Some(last) = segments.last() else { return (path != "/").then(|| "/".to_owned()) };
    let ends_in_slash = match trailing_slash {
        TrailingSlash::Keep => is_directory,
        TrailingSlash::Add => is_directory || !last.contains('.'),
        TrailingSlash::Remove => false,
    };
    let mut clean = String::with_capacity(path.len() + 1);
    for segment in segments {
        clean.push('/');
        // Browsers treat `/\host` like `//host`, as another host.
        clean.push_str(&segment.replace('\\', "%5C"));
    }
    if ends_in_slash {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

/// Returns true if a path that begins with a slash certainly needs no change, the common case.
fn is_clean(path: &str, trailing_slash: TrailingSlash) -> bool {
    let has_valid_end = match trailing_slash {
        TrailingSlash::Keep => true,
        TrailingSlash::Add => {
            path.rsplit('/').next().is_some_and(|it| it.is_empty() || it.contains('.'))
        }
        TrailingSlash::Remove => path == "/" || !path.ends_with('/'),
    };
    // Only a segment that begins with a dot, a percent sign or a slash needs a closer look.
    has_valid_end
        && path.as_bytes().windows(2).enumerate().all(|(index, pair)| match pair {
            b"//" => false,
            b"/." | b"/%" => path[index + 1..].split('/').next().and_then(dot_segment).is_none(),
            _ => true,
        })
}

/// A dot segment (RFC 3986 §3.3).
enum DotSegment {
    Current,
    Parent,
}

fn dot_segment(segment: &str) -> Option<DotSegment> {
    if !segment.starts_with(['.', '%']) {
        return None;
    }
    match &*decode(segment.as_bytes()) {
        b"." => Some(DotSegment::Current),
        b".." => Some(DotSegment::Parent),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::Mount;
    use crate::testing::{call, get, request};

    #[test]
    fn normalizes_paths() {
        // The result for each policy; `=` if unchanged.
        for (path, keep, add, remove) in [
            ("/", "=", "=", "="),
            ("//", "/", "/", "/"),
            ("///", "/", "/", "/"),
            ("/a", "=", "/a/", "="),
            ("/a/", "=", "=", "/a"),
            ("/a//", "/a/", "/a/", "/a"),
            ("//a", "/a", "/a/", "/a"),
            ("/a//b", "/a/b", "/a/b/", "/a/b"),
            ("/a.html", "=", "=", "="),
            ("/a.html/", "=", "=", "/a.html"),
            ("/.", "/", "/", "/"),
            ("/..", "/", "/", "/"),
            ("/../../..", "/", "/", "/"),
            ("/a/.", "/a/", "/a/", "/a"),
            ("/a/..", "/", "/", "/"),
            ("/a/b/..", "/a/", "/a/", "/a"),
            ("/a/../b", "/b", "/b/", "/b"),
            ("/a/./b/", "/a/b/", "/a/b/", "/a/b"),
            ("/%2e%2E/a/%2e/.%2e/b", "/b", "/b/", "/b"),
            ("/...", "=", "=", "="),
            ("/.well-known/x.txt", "=", "=", "="),
            ("/a%2F..%2Fb.c", "=", "=", "="),
            ("/%2e%2e%2fa.b", "=", "=", "="),
            ("/%252e%252e/a.b", "=", "=", "="),
            ("//evil.example", "/evil.example", "/evil.example", "/evil.example"),
            ("/..//evil.example/", "/evil.example/", "/evil.example/", "/evil.example"),
            ("/.//\\evil.example", "/%5Cevil.example", "/%5Cevil.example", "/%5Cevil.example"),
            ("//\\/evil.example", "/%5C/evil.example", "/%5C/evil.example", "/%5C/evil.example"),
            ("/\\evil.example/", "=", "=", "/%5Cevil.example"),
            ("*", "=", "=", "="),
            ("", "=", "=", "="),
        ] {
            let policies = [
                (TrailingSlash::Keep, keep),
                (TrailingSlash::Add, add),
                (TrailingSlash::Remove, remove),
            ];
            for (policy, expected) in policies {
                let cleaned = clean_with(path, policy);
                assert_eq!(cleaned.as_deref().unwrap_or("="), expected, "{path} {policy:?}");
                let again = cleaned.and_then(|path| clean_with(&path, policy));
                assert_eq!(again, None, "{path} {policy:?}: not idempotent");
            }
        }
    }

    async fn show(request: Request) -> Response {
        Response::text(format!("{} {}", request.path(), request.query().unwrap_or("-")))
    }

    #[test]
    fn redirects_to_the_path_sent_and_keeps_the_query() {
        let app = show.wrap(CleanPath::new());
        for (target, location) in [
            ("//a?b=//c", "/a?b=//c"),
            ("//evil.example/%2e%2e", "/"),
            ("http://a//b", "/b"),
            ("//a?", "/a?"),
        ] {
            let reply = get(app.clone(), target);
            assert_eq!(reply.status, 308, "{target}");
            assert_eq!(reply.header("location"), Some(location), "{target}");
        }
        get(app.clone(), "/a?b//c").assert_text("/a b//c");
        get(app.clone(), "http://a?b").assert_text("/ b");
        call(app, request("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")).assert_text("* -");
    }

    #[test]
    fn rewrites_without_a_redirect() {
        let app = show.wrap(CleanPath::new().rewrite());
        get(app.clone(), "//a/../b/?q//").assert_text("/b/ q//");
        get(app, "/a?q").assert_text("/a q");
    }

    #[test]
    fn redirect_includes_the_mount() {
        let app = show.wrap(Mount::new("/m", show.wrap(CleanPath::new())));
        assert_eq!(get(app.clone(), "/m/a//b").header("location"), Some("/m/a/b"));
        let app = show.wrap(Mount::new("/m", show.wrap(CleanPath::new().rewrite())));
        get(app, "/m/a//b?q").assert_text("/a/b q");
    }
}
