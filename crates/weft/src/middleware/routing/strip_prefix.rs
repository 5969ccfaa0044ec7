//! Removal of a path prefix.

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::routing::mount::Prefix;

/// Removes a prefix from the path; requests for paths not under it get 404. Suitable for
/// the only application of a server, if it is not at the root of its host, for example behind a
/// proxy with complete paths. [`Mount`](crate::middleware::Mount) is for several applications side
/// by side.
///
/// ```
/// use weft::middleware::StripPrefix;
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(request: Request) -> Response { Response::text(request.path().to_owned()) }
///
/// let app = app.wrap(StripPrefix::new("/app"));
/// testing::get(app.clone(), "/app/users").assert_text("/users");
/// testing::get(app.clone(), "/app").assert_text("/");
/// assert_eq!(testing::get(app, "/apple").status, 404);
/// ```
///
/// Prefixes are compared as by [`Mount`](crate::middleware::Mount), and the application finds the
/// prefix in [`mount`](crate::message::RequestHead::mount).
#[derive(Clone, Debug)]
pub struct StripPrefix(Prefix);

impl StripPrefix {
    /// Removes a prefix that is not percent-encoded. A trailing slash is ignored.
    ///
    /// # Panics
    /// If `prefix` does not begin with a slash, or has an empty segment.
    pub fn new(prefix: &str) -> StripPrefix {
        StripPrefix(Prefix::new(prefix))
    }
}

impl Middleware for StripPrefix {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        match self.0.matched_len(request.path()) {
            Some(bytes) => {
                request.take_prefix(bytes);
                next.call(request).await
            }
            None => Response::not_found(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::get;

    #[test]
    fn removes_the_prefix() {
        async fn show(request: Request) -> Response {
            Response::text(format!("{} {}", request.path(), request.query().unwrap_or("-")))
        }
        for (target, status, text) in [
            ("/app", 200, "/ -"),
            ("/app?q", 200, "/ q"),
            ("/app/x/?q", 200, "/x/ q"),
            ("/apps", 404, "404 Not Found\n"),
            ("/", 404, "404 Not Found\n"),
        ] {
            let reply = get(show.wrap(StripPrefix::new("/app")), target);
            assert_eq!(reply.status, status, "{target}");
            reply.assert_text(text);
        }
    }

    #[cfg(feature = "files")]
    #[test]
    fn directory_redirects_include_the_prefix() {
        use crate::files::{Directory, DirectorySettings};

        let files = [("folder/index.html", &b"x"[..])];
        let app = Directory::embedded(files, DirectorySettings::default());
        let reply = get(app.wrap(StripPrefix::new("/docs")), "/docs/folder?q");
        assert_eq!(
            (reply.status.as_u16(), reply.header("location")),
            (301, Some("/docs/folder/?q"))
        );
    }
}
