//! Error page for panics of the application.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::StatusCode;

use crate::app::{Application, Middleware};
use crate::error::Error;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::panic::catch_panic_sync;

/// Catches a panic of the application and responds with status 500.
///
/// ```
/// use weft::middleware::CatchPanic;
/// use weft::{Application, Request, Response, StatusCode, testing};
///
/// async fn buggy(_: Request) -> Response { panic!("no such thing") }
///
/// let catch = CatchPanic::new().page(|head, error| {
///     eprintln!("{} {}: {error}", head.method(), head.target());
///     Response::html("<h1>Sorry!</h1>").with_status(StatusCode::INTERNAL_SERVER_ERROR)
/// });
/// let reply = testing::get(buggy.wrap(catch), "/");
/// assert_eq!(reply.status, 500);
/// reply.assert_text("<h1>Sorry!</h1>");
/// ```
///
/// Without this, the engine responds to a panic with a line of text and closes the connection,
/// and the middleware before the application gets no response. With this, middleware in front of
/// it, such as a [`Log`](crate::middleware::Log), gets the response, and the connection stays open.
/// [`Hooks::on_error`](crate::Hooks::on_error) is called in both cases.
///
/// Only panics before the response are caught, not panics of a streamed body. State that the
/// application shares between requests has to be unwind safe (see
/// [`UnwindSafe`](std::panic::UnwindSafe)), because a request may stop at any point. In a program
/// built with `panic = "abort"` nothing is caught.
#[derive(Clone)]
pub struct CatchPanic {
    page: Arc<Page>,
}

type Page = dyn Fn(&RequestHead, &Error) -> Response + Send + Sync;

impl CatchPanic {
    /// Responds with the line `500 Internal Server Error`.
    pub fn new() -> CatchPanic {
        CatchPanic { page: Arc::new(|_, _| StatusCode::INTERNAL_SERVER_ERROR.into()) }
    }

    /// Responds with the result of `page`, which receives the request's head and the error: its
    /// kind is [`ErrorKind::Panicked`](crate::ErrorKind::Panicked), its text the panic message.
    pub fn page(
        self,
        page: impl Fn(&RequestHead, &Error) -> Response + Send + Sync + 'static,
    ) -> CatchPanic {
        CatchPanic { page: Arc::new(page) }
    }
}

impl Default for CatchPanic {
    fn default() -> CatchPanic {
        CatchPanic::new()
    }
}

impl Middleware for CatchPanic {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let head = request.head().clone();
        // The call is inside the block, so that a panic before the future exists is caught too.
        let mut response = pin!(async move { next.call(request).await });
        let result = poll_fn(|cx| match catch_panic_sync(|| response.as_mut().poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(error) => Poll::Ready(Err(error)),
        });
        match result.await {
            Ok(response) => response,
            Err(error) => (self.page)(&head, &error).with_error(error),
        }
    }
}

impl fmt::Debug for CatchPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatchPanic").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[derive(Clone)]
    struct Buggy;

    impl Application for Buggy {
        fn call(&self, request: Request) -> impl Future<Output = Response> {
            assert_ne!(request.path(), "/early", "there is no future yet");
            async move {
                assert_ne!(request.path(), "/first");
                tokio::task::yield_now().await;
                assert_ne!(request.path(), "/later");
                Response::text("ok")
            }
        }
    }

    #[test]
    fn catches_panics_before_and_during_the_future() {
        let app = Buggy.wrap(CatchPanic::new());
        for (path, status) in [("/early", 500), ("/first", 500), ("/later", 500), ("/", 200)] {
            assert_eq!(testing::get(app.clone(), path).status, status, "{path}");
        }
    }

    #[test]
    fn page_gets_head_and_panic_message() {
        let page =
            |head: &RequestHead, error: &Error| Response::text(format!("{} {error}", head.path()));
        let app = async |_: Request| -> Response { panic!("it was {}", 7) };
        let reply = testing::get(app.wrap(CatchPanic::new().page(page)), "/a");
        reply.assert_text("/a the application panicked: it was 7");
    }
}
