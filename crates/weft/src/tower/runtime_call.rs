//! Calls on another runtime than that of the worker.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind};
use crate::runtime::{OutsideCall, queue_call};
use crate::tower::BoxError;
use crate::tower::on_runtime::RuntimeBody;

/// Future of [`OnRuntime`](crate::tower::OnRuntime). Dropping it cancels the call.
pub struct RuntimeCall<B, E> {
    stage: CallStage<Result<http::Response<B>, E>>,
    runtime: Handle,
}

impl<B, E> RuntimeCall<B, E> {
    /// Creates a call that the thread of a worker starts, if it is polled there.
    pub(super) fn new(
        future: CallFuture<Result<http::Response<B>, E>>,
        runtime: Handle,
    ) -> RuntimeCall<B, E> {
        RuntimeCall { stage: CallStage::New(future), runtime }
    }

    /// Creates a call that is a task of the runtime.
    pub(super) fn task(
        task: JoinHandle<Result<http::Response<B>, E>>,
        runtime: Handle,
    ) -> RuntimeCall<B, E> {
        RuntimeCall { stage: CallStage::Task(task), runtime }
    }
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

pub(super) type CallFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

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
        // For destructors that start tasks of the runtime.
        let _context = self.runtime.enter();
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
        self.start(|future| {
            let poll_once = async move { poll_once(future) };
            match catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(poll_once))) {
                Ok(Ok(result)) => Started::Complete(Ok(result)),
                Ok(Err(future)) => Started::Task(self.runtime.spawn(future)),
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

/// Polls a future, and returns it if it is pending. A complete one is dropped here, in the context of
/// the runtime, for destructors that start tasks of it.
fn poll_once<T>(mut future: CallFuture<T>) -> Result<T, CallFuture<T>> {
    // A pending future is polled again by a task, which registers its own waker.
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Ok(result),
        Poll::Pending => Err(future),
    }
}
