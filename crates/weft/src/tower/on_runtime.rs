//! Services that run on another runtime than the worker.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, RuntimeFlavor};
use tower_service::Service;

use crate::tower::BoxError;
use crate::tower::runtime_body::RuntimeBody;
use crate::tower::runtime_call::RuntimeCall;

/// Runs the calls of a service on a runtime, which must continue to run: for services that use its
/// pools and tasks, `block_in_place`, a paused clock or thread-local contexts.
///
/// A call for a multi-threaded runtime starts on the thread of the worker, in the context of the
/// runtime, and becomes a task of the runtime when it has to wait. Most calls are complete before.
/// A task wakes a thread of the runtime, and its response wakes the worker.
///
/// A call that computes or blocks for a long time delays the other connections of its worker. Calls
/// that take more than a millisecond may take 20 ms of the worker's time, and one percent of it in
/// the long run. Beyond that, calls are tasks from their start. Calls for a current-thread runtime
/// always are.
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
    let starts_on_worker = runtime.runtime_flavor() != RuntimeFlavor::CurrentThread;
    OnRuntime { service, runtime, starts_on_worker }
}

/// A service that runs on a runtime; returned by [`on_runtime`].
#[derive(Clone)]
pub struct OnRuntime<S> {
    service: S,
    runtime: Handle,
    starts_on_worker: bool,
}

impl<S> OnRuntime<S> {
    /// Makes each call a task of the runtime from its start, for services that need the threads of
    /// the runtime themselves, such as values that `Builder::on_thread_start` has set.
    pub fn as_tasks(self) -> OnRuntime<S> {
        OnRuntime { starts_on_worker: false, ..self }
    }
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

    /// Always ready: the call waits for the service.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> RuntimeCall<B, S::Error> {
        let mut service = self.service.clone();
        let future = async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await
        };
        match self.starts_on_worker {
            true => RuntimeCall::new(Box::pin(future), self.runtime.clone()),
            false => RuntimeCall::task(self.runtime.spawn(future), self.runtime.clone()),
        }
    }
}

impl<S> fmt::Debug for OnRuntime<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnRuntime").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}
