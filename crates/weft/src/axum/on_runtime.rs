//! Calls of a service on another runtime than that of the worker.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tower_service::Service;

use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;

/// Calls a service in tasks of a runtime.
pub(super) struct OnRuntime<S> {
    service: S,
    runtime: Handle,
}

impl<S> OnRuntime<S> {
    pub(super) fn new(service: S, runtime: &Handle) -> OnRuntime<S> {
        OnRuntime { service, runtime: runtime.clone() }
    }
}

impl<S> Service<http::Request<Body>> for OnRuntime<S>
where
    S: Service<::axum::extract::Request, Response = Response, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
{
    type Response = http::Response<RuntimeBody>;
    type Error = Error;
    type Future = RuntimeCall;

    /// Always ready: the task waits for the service.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> RuntimeCall {
        let mut service = self.service.clone();
        let task = self.runtime.spawn(async move {
            let Ok(()) = poll_fn(|cx| service.poll_ready(cx)).await;
            let Ok(response) = service.call(request.map(::axum::body::Body::new)).await;
            response
        });
        RuntimeCall { task, runtime: self.runtime.clone() }
    }
}

/// Future of [`OnRuntime`]. Dropping it cancels the task.
pub(super) struct RuntimeCall {
    task: JoinHandle<Response>,
    runtime: Handle,
}

impl Future for RuntimeCall {
    type Output = Result<http::Response<RuntimeBody>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match ready!(Pin::new(&mut self.task).poll(cx)) {
            Ok(response) => response,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => {
                    let reason = "the runtime of the handlers was shut down";
                    return Poll::Ready(Err(Error::new(ErrorKind::ServiceFailed, reason)));
                }
            },
        };
        let runtime = self.runtime.clone();
        Poll::Ready(Ok(response.map(|body| RuntimeBody { body, runtime })))
    }
}

impl Drop for RuntimeCall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The body of a response, polled by the worker in the context of the runtime, so that its timers and
/// tasks are those of the runtime.
pub(super) struct RuntimeBody {
    body: ::axum::body::Body,
    runtime: Handle,
}

impl http_body::Body for RuntimeBody {
    type Data = Bytes;
    type Error = ::axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, ::axum::Error>>> {
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
