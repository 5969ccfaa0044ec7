//! HEAD requests handled as GET.

use http::Method;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;

/// Passes HEAD requests to the application as GET; the engine sends only the response head
/// (RFC 9110 §9.3.2). Responses with bytes or a file get `Content-Length`; a stream is dropped
/// without being polled.
///
/// [Functions](crate::Application#head) get HEAD as GET without it. It is for tower services and
/// other types that know only GET.
///
/// ```
/// use weft::middleware::HeadAsGet;
/// use weft::{Application, Request, Response, testing};
///
/// #[derive(Clone)]
/// struct App;
///
/// impl Application for App {
///     async fn call(&self, request: Request) -> Response {
///         match (request.method().as_str(), request.path()) {
///             ("GET", "/") => Response::text("Hello\n"),
///             _ => Response::not_found(),
///         }
///     }
/// }
///
/// let head = || testing::request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
/// assert_eq!(testing::call(App, head()).status, 404);
/// assert_eq!(testing::call(App.wrap(HeadAsGet), head()).status, 200);
/// ```
///
/// An application that can determine the length of a body without producing it should handle
/// HEAD itself, as [`Directory`](crate::files::Directory) does.
#[derive(Clone, Copy, Debug)]
pub struct HeadAsGet;

impl HeadAsGet {
    /// Creates the middleware, as the `new` of the others does.
    #[allow(clippy::new_without_default, reason = "it is a value itself")]
    pub fn new() -> HeadAsGet {
        HeadAsGet
    }
}

impl Middleware for HeadAsGet {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        if *request.method() == Method::HEAD {
            request.set_method(Method::GET);
        }
        next.call(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, request};

    #[test]
    fn changes_only_head_to_get() {
        for (method, seen) in [("HEAD", "GET"), ("GET", "GET"), ("POST", "POST")] {
            let app = async |request: Request| {
                assert_eq!(request.method().as_str(), seen);
                Response::text("seen")
            };
            let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
            let response = call(app.wrap(HeadAsGet), request(head));
            assert_eq!(response.header("content-length"), Some("4"));
        }
    }
}
