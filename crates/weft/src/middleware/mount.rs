//! Another application for the paths under a prefix.

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::proto::semantics::path::decode;

/// Answers what is under a prefix of the path by another application, which sees the path
/// without it; all else goes on to the application behind this.
///
/// ```
/// use weft::middleware::Mount;
/// use weft::{Application, Request, Response, testing};
///
/// async fn site(request: Request) -> Response { Response::text(format!("site {}", request.path())) }
/// async fn api(request: Request) -> Response { Response::text(format!("API {}", request.path())) }
///
/// let app = site.with(Mount::new("/api", api));
/// testing::get(app.clone(), "/api/users?page=2").assert_text("API /users");
/// testing::get(app.clone(), "/api").assert_text("API /");
/// testing::get(app, "/apiary").assert_text("site /apiary");
/// ```
///
/// Segments are compared whole and percent-decoded, as [`segments`](crate::Head::segments)
/// has them: `/%61pi` is under `/api` too. What remains begins with a slash, and the prefix is
/// the application's [`mount`](crate::Head::mount). Of several mounts the first that suits
/// answers, so `/api/v2` is to stand before `/api`. A path with dots, such as `/api/../x`, is
/// under `/api` as it stands, and `//api` is not: [`CleanPath`](super::CleanPath) in front resolves
/// both. It belongs there where what is mounted is guarded, for to
/// [`Directory`](crate::Directory) a doubled slash is one.
#[derive(Clone, Debug)]
pub struct Mount<A> {
    prefix: Prefix,
    app: A,
}

impl<A: Application> Mount<A> {
    /// The application under this prefix, which is not percent-encoded: `/api`,
    /// `/buenos días`. A slash at its end makes no difference.
    ///
    /// # Panics
    /// If the prefix does not begin with a slash, or has an empty segment.
    pub fn new(prefix: &str, app: A) -> Mount<A> {
        Mount { prefix: Prefix::new(prefix), app }
    }
}

impl<A: Application> Middleware for Mount<A> {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        match self.prefix.length(request.path()) {
            Some(bytes) => {
                request.take_prefix(bytes);
                self.app.call(request).await
            }
            None => next.call(request).await,
        }
    }
}

/// The start of a path, in whole segments, decoded.
#[derive(Clone, Debug)]
pub(super) struct Prefix(Box<str>);

impl Prefix {
    /// # Panics
    /// If it does not begin with a slash, or has an empty segment.
    pub(super) fn new(prefix: &str) -> Prefix {
        assert!(prefix.starts_with('/'), "a prefix begins with a slash: {prefix:?}");
        assert!(!prefix.contains("//"), "a prefix has no empty segments: {prefix:?}");
        Prefix(prefix.strip_suffix('/').unwrap_or(prefix).into())
    }

    /// How many bytes of a path this is, if the path is under it.
    pub(super) fn length(&self, path: &str) -> Option<usize> {
        let mut rest = Some(path).filter(|path| path.starts_with('/'))?;
        for wanted in self.0.split('/').skip(1) {
            let segment = rest.strip_prefix('/')?;
            let end = segment.find('/').unwrap_or(segment.len());
            if *decode(&segment.as_bytes()[..end]) != *wanted.as_bytes() {
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
    fn prefixes() {
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
            assert_eq!(Prefix::new(prefix).length(path), length, "{prefix} {path}");
        }
    }

    #[test]
    fn mounts() {
        async fn show(request: Request) -> Response {
            let query = request.query().unwrap_or("-");
            Response::text(format!("{} | {} | {query}", request.mount(), request.path()))
        }
        async fn site(request: Request) -> Response {
            Response::text(format!("site {}", request.path()))
        }
        let app = site
            .with(Mount::new("/a/b", async |_: Request| Response::text("longer")))
            .with(Mount::new("/a", show.with(Mount::new("/in", show))));
        for (target, answer) in [
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
            get(app.clone(), target).assert_text(answer);
        }
    }

    #[test]
    fn what_is_no_prefix_is_refused_at_once() {
        for prefix in ["", "a", "//", "/a//b"] {
            assert!(std::panic::catch_unwind(|| Prefix::new(prefix)).is_err(), "{prefix:?}");
        }
    }
}
