//! Calls of a service on another runtime than that of the worker.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tower_service::Service;

use crate::error::{Error, ErrorKind};
use crate::tower::BoxError;

/// Makes a service run its calls as tasks of a runtime, which must continue to run: for services that
/// need `block_in_place`, a paused clock, or thread-local contexts of that runtime. Each request then
/// wakes a thread of the runtime, and each response the worker.
///
/// ```
/// use axum::{Router, routing::get};
/// use weft::tower;
///
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let handler = async || tokio::task::block_in_place(|| "Hello\n");
/// let router: Router = Router::new().route("/", get(handler));
/// let app = tower::app(tower::on_runtime(router, runtime.handle().clone()));
/// weft::testing::get(app, "/").assert_text("Hello\n");
/// ```
pub fn on_runtime<S>(service: S, runtime: Handle) -> OnRuntime<S> {
    OnRuntime { service, runtime }
}

/// A service that runs on a runtime; returned by [`on_runtime`].
#[derive(Clone)]
pub struct OnRuntime<S> {
    service: S,
    runtime: Handle,
}

impl<S, R, B> Service<R> for OnRuntime<S>
where
    S: Service<R, Response = http::Response<B>, Error: Into<BoxError> + Send, Future: Send>,
    S: Clone + Send + 'static,
    R: Send + 'static,
    B: http_body::Body + Send + Unpin + 'static,
{
    type Response = http::Response<RuntimeBody<B>>;
    type Error = BoxError;
    type Future = RuntimeCall<B, S::Error>;

    /// Always ready: the task waits for the service.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> RuntimeCall<B, S::Error> {
        let mut service = self.service.clone();
        let task = self.runtime.spawn(async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await
        });
        RuntimeCall { task, runtime: self.runtime.clone() }
    }
}

impl<S> fmt::Debug for OnRuntime<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnRuntime").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

/// Future of [`OnRuntime`]. Dropping it cancels the task.
#[derive(Debug)]
pub struct RuntimeCall<B, E> {
    task: JoinHandle<Result<http::Response<B>, E>>,
    runtime: Handle,
}

impl<B, E: Into<BoxError>> Future for RuntimeCall<B, E> {
    type Output = Result<http::Response<RuntimeBody<B>>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match ready!(Pin::new(&mut self.task).poll(cx)) {
            Ok(response) => response.map_err(Into::into)?,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => {
                    let reason = "the runtime of the service was shut down";
                    return Poll::Ready(Err(Error::new(ErrorKind::ServiceFailed, reason).into()));
                }
            },
        };
        let runtime = self.runtime.clone();
        Poll::Ready(Ok(response.map(|body| RuntimeBody { body, runtime })))
    }
}

impl<B, E> Drop for RuntimeCall<B, E> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The body of a response, polled by the worker in the context of the runtime, so that its timers and
/// tasks are those of the runtime.
#[derive(Debug)]
pub struct RuntimeBody<B> {
    body: B,
    runtime: Handle,
}

impl<B: http_body::Body + Unpin> http_body::Body for RuntimeBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let RuntimeBody { body, runtime } = self.get_mut();
        let _context = runtime.enter();
        Pin::new(body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
