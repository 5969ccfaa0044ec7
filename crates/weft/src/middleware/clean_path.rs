//! One path where several would mean the same.

use futures_util::future::{Either, ready};
use http::StatusCode;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::proto::semantics::path::decode;

/// Redirects a request whose path is not clean to the path that is: without doubled slashes,
/// without the segments `.` and `..` (RFC 3986 §5.2.4), percent-encoded or not, and with or
/// without a slash at its end, as it was [chosen](CleanPath::final_slash).
///
/// ```
/// use weft::middleware::{CleanPath, FinalSlash};
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(request: Request) -> Response { Response::text(request.path().to_owned()) }
///
/// let app = app.with(CleanPath::new().final_slash(FinalSlash::Remove));
/// let reply = testing::get(app.clone(), "/a//b/%2e%2e/c/?page=2");
/// assert_eq!(reply.status, 308);
/// assert_eq!(reply.header("location"), Some("/a/c?page=2"));
/// testing::get(app, "/a/c").assert_text("/a/c");
/// ```
///
/// The redirect is 308, so that a POST stays one, and goes to a path on the same host: it
/// begins with exactly one slash, and no backslash, which browsers take for a slash, follows.
/// It is made from the path that the client sent, whatever other middleware has made of that.
/// A segment in which slashes are percent-encoded (`..%2F`) is a name like any other.
#[derive(Clone, Copy, Debug, Default)]
pub struct CleanPath {
    final_slash: FinalSlash,
    rewrites: bool,
}

/// What is to be at the end of a path, but for `/`, which is a path to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinalSlash {
    /// What the client sent: `/a` and `/a/` are two paths.
    #[default]
    Keep,
    /// A slash, unless the last segment looks like the name of a file: it has a dot.
    Add,
    /// No slash.
    Remove,
}

impl CleanPath {
    /// Redirects to clean paths; a slash at their end is kept as it is.
    pub fn new() -> CleanPath {
        CleanPath::default()
    }

    /// Sets what is to be at the end of a path. Default: [`FinalSlash::Keep`].
    pub fn final_slash(self, final_slash: FinalSlash) -> CleanPath {
        CleanPath { final_slash, ..self }
    }

    /// Has the application see the clean path, in place of a redirect. Caches and search
    /// engines then know one page under several addresses.
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
        match self.redirect(&mut request) {
            Some(redirect) => Either::Left(ready(redirect)),
            None => Either::Right(next.call(request)),
        }
    }
}

impl CleanPath {
    /// The redirect to the clean path; none if there is no need, or if the path was changed
    /// here.
    fn redirect(&self, request: &mut Request) -> Option<Response> {
        if self.rewrites {
            let path = clean(request.path(), self.final_slash)?;
            request.set_path_and_query(with_query(path, request.query()));
            return None;
        }
        let (path, query) = match request.sent().split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (request.sent(), None),
        };
        let location = with_query(clean(path, self.final_slash)?, query);
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

/// The clean form of a path; `None` if it is clean as it stands, or no path of ours (`*`).
fn clean(path: &str, final_slash: FinalSlash) -> Option<String> {
    if !path.starts_with('/') || is_clean(path, final_slash) {
        return None;
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut is_folder = false;
    for segment in path.split('/') {
        let dots = dots(segment);
        is_folder = segment.is_empty() || dots.is_some();
        match dots {
            Some(Dots::One) => {}
            Some(Dots::Two) => {
                kept.pop();
            }
            None if segment.is_empty() => {}
            None => kept.push(segment),
        }
    }
    let Some(last) = kept.last() else { return (path != "/").then(|| "/".to_owned()) };
    let ends_in_slash = match final_slash {
        FinalSlash::Keep => is_folder,
        FinalSlash::Add => is_folder || !last.contains('.'),
        FinalSlash::Remove => false,
    };
    let mut clean = String::with_capacity(path.len() + 1);
    for segment in kept {
        clean.push('/');
        // `/\host` would be another host to a browser, as `//host` is.
        clean.push_str(&segment.replace('\\', "%5C"));
    }
    if ends_in_slash {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

/// Whether a path, which begins with a slash, surely needs no change: most do not.
fn is_clean(path: &str, final_slash: FinalSlash) -> bool {
    let end_is_right = match final_slash {
        FinalSlash::Keep => true,
        FinalSlash::Add => {
            path.rsplit('/').next().is_some_and(|it| it.is_empty() || it.contains('.'))
        }
        FinalSlash::Remove => path == "/" || !path.ends_with('/'),
    };
    // Only what stands behind a slash can be wrong.
    end_is_right
        && path.as_bytes().windows(2).enumerate().all(|(at, pair)| match pair {
            b"//" => false,
            b"/." | b"/%" => path[at + 1..].split('/').next().and_then(dots).is_none(),
            _ => true,
        })
}

/// A segment that is no name.
enum Dots {
    One,
    Two,
}

fn dots(segment: &str) -> Option<Dots> {
    if !segment.starts_with(['.', '%']) {
        return None;
    }
    match &*decode(segment.as_bytes()) {
        b"." => Some(Dots::One),
        b".." => Some(Dots::Two),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::Mount;
    use crate::testing::{call, get, request};

    #[test]
    fn paths() {
        // What each policy makes of it; `=` if it stays.
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
            let policies =
                [(FinalSlash::Keep, keep), (FinalSlash::Add, add), (FinalSlash::Remove, remove)];
            for (policy, expected) in policies {
                let cleaned = clean(path, policy);
                assert_eq!(cleaned.as_deref().unwrap_or("="), expected, "{path} {policy:?}");
                let again = cleaned.and_then(|path| clean(&path, policy));
                assert_eq!(again, None, "{path} {policy:?}: once is enough");
            }
        }
    }

    async fn show(request: Request) -> Response {
        Response::text(format!("{} {}", request.path(), request.query().unwrap_or("-")))
    }

    #[test]
    fn redirects() {
        let app = show.with(CleanPath::new());
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
    fn rewrites() {
        let app = show.with(CleanPath::new().rewrite());
        get(app.clone(), "//a/../b/?q//").assert_text("/b/ q//");
        get(app, "/a?q").assert_text("/a q");
    }

    #[test]
    fn a_mount_stays_in_the_redirect() {
        let app = show.with(Mount::new("/m", show.with(CleanPath::new())));
        assert_eq!(get(app.clone(), "/m/a//b").header("location"), Some("/m/a/b"));
        let app = show.with(Mount::new("/m", show.with(CleanPath::new().rewrite())));
        get(app, "/m/a//b?q").assert_text("/a/b q");
    }
}
