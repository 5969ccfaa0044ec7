//! Serves requests of tests with the engine, without a socket, and runs test servers on a free
//! port.
//!
//! ```
//! use weft::{Request, Response, testing};
//!
//! async fn hello(_: Request) -> Response { Response::text("Hello\n") }
//!
//! let response = testing::get(hello, "/");
//! assert_eq!(response.status, 200);
//! response.assert_text("Hello\n");
//! ```
//!
//! [`TestRequest`] sets the method, fields, body and client of a request, and has the form for
//! async tests.

mod connection; // one exchange with the engine
mod request; // requests, and the ways to send them
mod response; // complete responses, and responses in pieces
mod server; // servers on a free port

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

pub use self::request::TestRequest;
pub use self::response::{StreamedResponse, TestResponse};
pub use self::server::TestServer;
use crate::app::Application;
use crate::message::body::Body;
use crate::message::connection::RequestContext;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use weft_proto::headers::Headers;
use weft_proto::http1::framing;
use weft_proto::http1::parse::{self, Limits};

/// Parses a request as the engine does. The bytes after the head are the body.
///
/// # Panics
/// If the head is invalid or incomplete.
pub fn request(bytes: impl Into<Bytes>) -> Request {
    let mut text = bytes.into();
    let limits = Limits { request_line: 65_000, head: 65_000, fields: 1_000 };
    let mut parsed = parse::ParsedHead::new();
    let length = parsed.read(&text, &limits).expect("a valid head").expect("a complete head");
    let body = text.split_off(length);
    let framed = framing::request(&parsed, &text).expect("a valid head");
    let names = (framed.authority, framed.local);
    let headers = Headers::new(text, parsed.fields);
    let head = RequestHead::new(parsed.method, parsed.version, parsed.target, names, headers);
    let (_, shutdown) = watch::channel(None);
    Request::new(head, Body::from(body), RequestContext::new(Arc::default(), Arc::new(shutdown)))
}

/// Sends an application a `GET` request for `target`, and reads the response to its end. This
/// blocks the thread; in an async test, use [`TestRequest::send`].
///
/// # Panics
/// If the application panics, or the response is cut short.
#[track_caller]
pub fn get(app: impl Application, target: &str) -> TestResponse {
    TestRequest::get(target).call(app)
}

/// Sends an application a request, and reads the response to its end. This blocks the thread; in an
/// async test, use `TestRequest::from(request).send(app)`.
///
/// # Panics
/// If the application panics, or the response is cut short.
#[track_caller]
pub fn call(app: impl Application, request: Request) -> TestResponse {
    TestRequest::from(request).call(app)
}
