//! Middleware that is selected at run time.

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;

/// Middleware that may be absent, for chains that a configuration determines.
///
/// ```
/// use std::time::Duration;
/// use weft::middleware::{Optional, Timeout};
/// use weft::{Application, Request, Response};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// let seconds: Option<u64> = None;
/// let timeout = seconds.map(|seconds| Timeout::new(Duration::from_secs(seconds)));
/// weft::testing::get(hello.wrap(Optional(timeout)), "/").assert_text("Hello\n");
/// ```
///
/// `None` passes requests and responses on unchanged.
#[derive(Clone, Debug, Default)]
pub struct Optional<M>(pub Option<M>);

impl<M: Middleware> Middleware for Optional<M> {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match &self.0 {
            Some(middleware) => middleware.call(request, next).await,
            None => next.call(request).await,
        }
    }
}
