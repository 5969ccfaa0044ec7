//! Calls of a service on another runtime than that of the worker.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use http_body::{Frame, SizeHint};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;
use tower_service::Service;

use crate::error::{Error, ErrorKind};
use crate::runtime::{OutsideCall, queue_call};
use crate::tower::BoxError;

/// Runs the calls of a service on a runtime, which must continue to run: for services that use its
/// pools and tasks, `block_in_place`, a paused clock or thread-local contexts.
///
/// A call for a multi-threaded runtime starts on the thread of the worker, in the context of the
/// runtime, and becomes a task of the runtime when it has to wait. Most calls are complete before. A
/// task wakes a thread of the runtime, and its response wakes the worker.
///
/// A call that computes or blocks for a long time delays the other connections of its worker. After
/// a call that has taken more than a millisecond, the worker starts none for a hundred times as
/// long: calls are tasks from their start then. Those for a current-thread runtime always are.
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
    /// Makes each call a task of the runtime from its start, for services that need the threads of the
    /// runtime themselves, such as values that `Builder::on_thread_start` has set.
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
        let stage = match self.starts_on_worker {
            true => CallStage::New(Box::pin(future)),
            false => CallStage::Task(self.runtime.spawn(future)),
        };
        RuntimeCall { stage, runtime: self.runtime.clone() }
    }
}

impl<S> fmt::Debug for OnRuntime<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnRuntime").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

/// Future of [`OnRuntime`]. Dropping it cancels the call.
pub struct RuntimeCall<B, E> {
    stage: CallStage<Result<http::Response<B>, E>>,
    runtime: Handle,
}

/// The stages of a call.
enum CallStage<T> {
    New(CallFuture<T>),
    /// Shared with the thread of the worker, which starts it.
    Starting(Arc<StartingCall<T>>),
    Task(JoinHandle<T>),
    /// The result was returned.
    Complete,
}

type CallFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<B, E> Future for RuntimeCall<B, E>
where
    B: Send + 'static,
    E: Into<BoxError> + Send + 'static,
{
    type Output = Result<http::Response<RuntimeBody<B>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let RuntimeCall { stage, runtime } = self.get_mut();
        let response = ready!(stage.poll(cx, runtime))?.map_err(Into::into)?;
        let runtime = runtime.clone();
        Poll::Ready(Ok(response.map(|body| RuntimeBody { body, runtime })))
    }
}

impl<T: Send + 'static> CallStage<T> {
    /// Makes progress. A panic of the call continues here; an error means that the runtime was shut
    /// down.
    fn poll(&mut self, cx: &mut Context<'_>, runtime: &Handle) -> Poll<Result<T, Error>> {
        if let CallStage::New(_) = self
            && let CallStage::New(future) = std::mem::replace(self, CallStage::Complete)
        {
            *self = CallStage::start(future, runtime);
        }
        if let CallStage::Starting(call) = self {
            *self = match ready!(call.poll_started(cx)) {
                Started::Complete(result) => {
                    *self = CallStage::Complete;
                    return Poll::Ready(Ok(result.unwrap_or_else(|panic| resume_unwind(panic))));
                }
                Started::Task(task) => CallStage::Task(task),
            };
        }
        let CallStage::Task(task) = self else { panic!("polled after completion") };
        Poll::Ready(match ready!(Pin::new(task).poll(cx)) {
            Ok(result) => Ok(result),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => {
                    let reason = "the runtime of the service was shut down";
                    Err(Error::new(ErrorKind::ServiceFailed, reason))
                }
            },
        })
    }

    /// Lets the thread of the worker start a call, or makes it a task.
    fn start(future: CallFuture<T>, runtime: &Handle) -> CallStage<T> {
        let call = StartingCall::new(future, runtime.clone());
        if !queue_call(&call) {
            call.delegate();
        }
        CallStage::Starting(call)
    }
}

impl<B, E> Drop for RuntimeCall<B, E> {
    fn drop(&mut self) {
        match &self.stage {
            CallStage::Starting(call) => call.cancel(),
            CallStage::Task(task) => task.abort(),
            CallStage::New(_) | CallStage::Complete => {}
        }
    }
}

impl<B, E> fmt::Debug for RuntimeCall<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeCall").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

/// A call that the thread of the worker starts.
struct StartingCall<T> {
    progress: Mutex<Progress<T>>,
    runtime: Handle,
}

struct Progress<T> {
    state: StartState<T>,
    /// The task that waits for the start.
    waiting: Option<Waker>,
}

/// The states of the start of a call.
enum StartState<T> {
    Queued(CallFuture<T>),
    /// Being polled, without the lock.
    Polling,
    Started(Started<T>),
    /// The result was returned, or nobody needs it.
    Closed,
}

/// The state of a call after its first poll.
enum Started<T> {
    /// The result, or the panic of the call.
    Complete(std::thread::Result<T>),
    /// The rest of the call.
    Task(JoinHandle<T>),
}

impl<T> StartingCall<T> {
    fn new(future: CallFuture<T>, runtime: Handle) -> Arc<StartingCall<T>> {
        let progress = Progress { state: StartState::Queued(future), waiting: None };
        Arc::new(StartingCall { progress: Mutex::new(progress), runtime })
    }

    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll_started(&self, cx: &mut Context<'_>) -> Poll<Started<T>> {
        let mut progress = self.lock();
        match std::mem::replace(&mut progress.state, StartState::Closed) {
            StartState::Started(started) => Poll::Ready(started),
            waiting => {
                progress.state = waiting;
                progress.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Starts the call by `start`, unless it was cancelled.
    fn start(&self, start: impl FnOnce(CallFuture<T>) -> Started<T>) {
        let queued = std::mem::replace(&mut self.lock().state, StartState::Polling);
        let state = match queued {
            StartState::Queued(future) => StartState::Started(start(future)),
            other => other,
        };
        let mut progress = self.lock();
        match progress.state {
            StartState::Polling => progress.state = state,
            _ => {
                drop(progress);
                state.cancel();
            }
        }
    }

    fn cancel(&self) {
        let state = std::mem::replace(&mut self.lock().state, StartState::Closed);
        state.cancel();
    }
}

impl<T> StartState<T> {
    fn cancel(self) {
        if let StartState::Started(Started::Task(task)) = self {
            task.abort();
        }
    }
}

impl<T: Send + 'static> OutsideCall for StartingCall<T> {
    fn call(&self) {
        self.start(|mut future| {
            // A task polls the future again if it is pending.
            let mut cx = Context::from_waker(Waker::noop());
            let poll = poll_fn(|_| Poll::Ready(future.as_mut().poll(&mut cx)));
            match catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(poll))) {
                Ok(Poll::Ready(result)) => Started::Complete(Ok(result)),
                Ok(Poll::Pending) => Started::Task(self.runtime.spawn(future)),
                Err(panic) => Started::Complete(Err(panic)),
            }
        });
    }

    fn delegate(&self) {
        self.start(|future| Started::Task(self.runtime.spawn(future)));
    }

    fn wake(&self) {
        let waiting = self.lock().waiting.take();
        waiting.into_iter().for_each(Waker::wake);
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
