//! Another application for the paths under a prefix.

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use weft_proto::semantics::path::decode;

/// Passes requests under a path prefix to another application, which gets the path without the
/// prefix. All other requests are passed to the inner application.
///
/// ```
/// use weft::middleware::Mount;
/// use weft::{Application, Request, Response, testing};
///
/// async fn site(request: Request) -> Response { Response::text(format!("site {}", request.path())) }
/// async fn api(request: Request) -> Response { Response::text(format!("API {}", request.path())) }
///
/// let app = site.wrap(Mount::new("/api", api));
/// testing::get(app.clone(), "/api/users?page=2").assert_text("API /users");
/// testing::get(app.clone(), "/api").assert_text("API /");
/// testing::get(app, "/apiary").assert_text("site /apiary");
/// ```
///
/// Whole segments are compared, percent-decoded as in
/// [`segments`](crate::message::RequestHead::segments):
/// `/%61pi` is under `/api` too. The remaining path begins with a slash, and the prefix is the
/// application's [`mount`](crate::message::RequestHead::mount). Of several mounts the first match
/// is used, so place `/api/v2` before `/api`. A path with dot segments, such as `/api/../x`, is
/// under
/// `/api`, and `//api` is not: [`CleanPath`](crate::middleware::CleanPath) in front resolves both.
/// It is required if access to the mounted application is restricted, because
/// [`Directory`](crate::files::Directory) treats a doubled slash as one.
#[derive(Clone, Debug)]
pub struct Mount<A> {
    prefix: Prefix,
    app: A,
}

impl<A: Application> Mount<A> {
    /// Mounts `app` under a prefix that is not percent-encoded: `/api`, `/buenos días`. A trailing
    /// slash is ignored.
    ///
    /// # Panics
    /// If the prefix does not begin with a slash, or has an empty segment.
    pub fn new(prefix: &str, app: A) -> Mount<A> {
        Mount { prefix: Prefix::new(prefix), app }
    }
}

impl<A: Application> Middleware for Mount<A> {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        match self.prefix.matched_len(request.path()) {
            Some(bytes) => {
                request.take_prefix(bytes);
                self.app.call(request).await
            }
            None => next.call(request).await,
        }
    }
}

/// Decoded leading segments of a path.
#[derive(Clone, Debug)]
pub(super) struct Prefix(Box<str>);

impl Prefix {
    /// # Panics
    /// If `prefix` does not begin with a slash, or has an empty segment.
    pub(super) fn new(prefix: &str) -> Prefix {
        assert!(prefix.starts_with('/'), "a prefix must begin with a slash: {prefix:?}");
        assert!(!prefix.contains("//"), "a prefix must not have empty segments: {prefix:?}");
        Prefix(prefix.strip_suffix('/').unwrap_or(prefix).into())
    }

    /// Length of the prefix in the encoded path, in bytes; `None` if the path is not under it.
    pub(super) fn matched_len(&self, path: &str) -> Option<usize> {
        let mut rest = Some(path).filter(|path| path.starts_with('/'))?;
        for expected in self.0.split('/').skip(1) {
            let segment = rest.strip_prefix('/')?;
            let end = segment.find('/').unwrap_or(segment.len());
            if *decode(&segment.as_bytes()[..end]) != *expected.as_bytes() {
                return None;
            }
            rest = &segment[end..];
        }
        Some(path.len() - rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::get;

    #[test]
    fn matches_whole_decoded_segments() {
        for (prefix, path, length) in [
            ("/api", "/api", Some(4)),
            ("/api", "/api/", Some(4)),
            ("/api", "/api/x", Some(4)),
            ("/api/", "/api", Some(4)),
            ("/api", "/apix", None),
            ("/api", "/ap", None),
            ("/api", "/API", None),
            ("/api", "/", None),
            ("/api", "//api", None),
            ("/api", "/x/api", None),
            ("/api", "*", None),
            ("/api", "", None),
            ("/api", "/%61pi/x", Some(6)),
            ("/api", "/api%2Fx", None),
            ("/a/b", "/a/b/c", Some(4)),
            ("/a/b", "/a", None),
            ("/a/b", "/a%2Fb", None),
            ("/días", "/d%C3%ADas/x", Some(10)),
            ("/", "/a", Some(0)),
            ("/", "*", None),
        ] {
            assert_eq!(Prefix::new(prefix).matched_len(path), length, "{prefix} {path}");
        }
    }

    #[test]
    fn mounts_applications() {
        async fn show(request: Request) -> Response {
            let query = request.query().unwrap_or("-");
            Response::text(format!("{} | {} | {query}", request.mount(), request.path()))
        }
        async fn site(request: Request) -> Response {
            Response::text(format!("site {}", request.path()))
        }
        let app = crate::stack(site)
            .with(Mount::new("/a/b", async |_: Request| Response::text("longer")))
            .with(Mount::new("/a", show.wrap(Mount::new("/in", show))));
        for (target, expected) in [
            ("/a", "/a | / | -"),
            ("/a/", "/a | / | -"),
            ("/a?q", "/a | / | q"),
            ("/a/x%20y/?q", "/a | /x%20y/ | q"),
            ("/a//x", "/a | //x | -"),
            ("/%61/in/x", "/%61/in | /x | -"),
            ("/a/b", "longer"),
            ("/ab", "site /ab"),
            ("http://a?q", "site /"),
        ] {
            get(app.clone(), target).assert_text(expected);
        }
    }

    #[test]
    fn panics_on_invalid_prefixes() {
        for prefix in ["", "a", "//", "/a//b"] {
            assert!(std::panic::catch_unwind(|| Prefix::new(prefix)).is_err(), "{prefix:?}");
        }
    }
}
