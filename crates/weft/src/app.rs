//! Application, and how plain functions become one.

use std::future::Future;

use crate::request::Request;
use crate::response::Response;

/// A function from a request to a response.
///
/// Asynchronous functions and closures are applications. What they return becomes a
/// response: a [`Response`] as it is, a `Result` by its side, so that `?` works on
/// [`Error`](crate::Error).
///
/// Each worker has its own clone of the application, on one thread, so its futures need
/// not be `Send`. [`Request`] and [`Response`] are, and may go elsewhere.
///
/// ```
/// use weft::{Request, Response};
///
/// async fn length(request: Request) -> weft::Result<Response> {
///     let body = request.into_body().collect(1 << 20).await?;
///     Ok(Response::text(format!("{} bytes\n", body.len())))
/// }
/// # let _ = || weft::serve("127.0.0.1:0", length);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an application",
    label = "expected an application here",
    note = "an application is an async function or closure from `weft::Request` to \
            `weft::Response` (or to a `Result` of it whose error is `Into<Response>`), \
            or a type that implements `weft::Application`"
)]
pub trait Application {
    /// Answers one request.
    fn call(&self, request: Request) -> impl Future<Output = Response>;
}

impl<F, T> Application for F
where
    F: Fn(Request) -> T,
    T: Future,
    T::Output: Into<Response>,
{
    async fn call(&self, request: Request) -> Response {
        self(request).await.into()
    }
}
