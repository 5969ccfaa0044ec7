//! HEAD, answered as GET.

use http::Method;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;

/// Has the application answer HEAD as it would GET; the engine sends the head alone
/// (RFC 9110 §9.3.2). Bytes and files have their `Content-Length`, and a stream is dropped
/// before it is pulled.
///
/// ```
/// use weft::middleware::HeadAsGet;
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(request: Request) -> Response {
///     match (request.method().as_str(), request.path()) {
///         ("GET", "/") => Response::text("Hello\n"),
///         _ => Response::not_found(),
///     }
/// }
///
/// let head = || testing::request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
/// assert_eq!(testing::call(app, head()).status, 404);
/// assert_eq!(testing::call(app.with(HeadAsGet), head()).status, 200);
/// ```
///
/// An application that need not make its body to know its length does better to look for
/// HEAD itself, as [`Directory`](crate::Directory) does.
#[derive(Clone, Copy, Debug)]
pub struct HeadAsGet;

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
    fn methods() {
        for (method, seen) in [("HEAD", "GET"), ("GET", "GET"), ("POST", "POST")] {
            let app = async |request: Request| Response::text(request.method().to_string());
            let head = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
            call(app.with(HeadAsGet), request(head)).assert_text(seen);
        }
    }
}
