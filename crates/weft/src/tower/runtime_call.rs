//! Calls on another runtime than the runtime of the worker.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind};
use crate::runtime::{OutsideCall, queue_call};
use crate::tower::BoxError;
use crate::tower::runtime_body::RuntimeBody;

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
        RuntimeCall { stage: CallStage::Task(Task(task)), runtime }
    }
}

/// The stages of a call.
enum CallStage<T> {
    New(CallFuture<T>),
    /// In the queue of the worker's thread, which starts it.
    Starting(oneshot::Receiver<Started<T>>),
    Task(Task<T>),
    /// The result was returned.
    Complete,
}

/// A call after its first poll.
enum Started<T> {
    /// The result, or the panic of the call.
    Complete(std::thread::Result<T>),
    /// The rest of the call.
    Task(Task<T>),
}

/// A task of the runtime, which ends when this is dropped.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
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
        if let CallStage::Starting(started) = self {
            *self = match ready!(Pin::new(started).poll(cx)) {
                Ok(Started::Complete(result)) => {
                    *self = CallStage::Complete;
                    return Poll::Ready(Ok(result.unwrap_or_else(|panic| resume_unwind(panic))));
                }
                Ok(Started::Task(task)) => CallStage::Task(task),
                // The worker ends, and with it the task that polls this.
                Err(_) => return Poll::Pending,
            };
        }
        let CallStage::Task(task) = self else { panic!("polled after completion") };
        Poll::Ready(match ready!(Pin::new(&mut task.0).poll(cx)) {
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
        let (sender, receiver) = oneshot::channel();
        let (future, sender, runtime) = (Some(future), Some(sender), runtime.clone());
        let call = NewCall { future, started: None, sender, runtime };
        if let Err(mut call) = queue_call(call) {
            call.delegate();
            Box::new(call).finish();
        }
        CallStage::Starting(receiver)
    }
}

impl<B, E> Drop for RuntimeCall<B, E> {
    fn drop(&mut self) {
        if !matches!(self.stage, CallStage::Complete) {
            // For destructors that start tasks of the runtime.
            let _context = self.runtime.enter();
            self.stage = CallStage::Complete;
        }
    }
}

impl<B, E> fmt::Debug for RuntimeCall<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeCall").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

/// A call that the thread of the worker starts, unless it was cancelled.
struct NewCall<T> {
    future: Option<CallFuture<T>>,
    started: Option<Started<T>>,
    /// Closed if the call was cancelled.
    sender: Option<oneshot::Sender<Started<T>>>,
    runtime: Handle,
}

impl<T> NewCall<T> {
    fn start(&mut self, start: impl FnOnce(&Handle, CallFuture<T>) -> Started<T>) {
        if self.sender.as_ref().is_some_and(|sender| !sender.is_closed()) {
            let future = self.future.take();
            self.started = future.map(|future| start(&self.runtime, future));
        }
    }
}

impl<T> Drop for NewCall<T> {
    fn drop(&mut self) {
        if self.future.is_some() || self.started.is_some() {
            // For destructors that start tasks of the runtime.
            let _context = self.runtime.enter();
            (self.future, self.started) = (None, None);
        }
    }
}

impl<T: Send + 'static> OutsideCall for NewCall<T> {
    fn call(&mut self) {
        self.start(|runtime, future| {
            let poll_once = async move { poll_once(future) };
            match catch_unwind(AssertUnwindSafe(|| runtime.block_on(poll_once))) {
                Ok(Ok(result)) => Started::Complete(Ok(result)),
                Ok(Err(future)) => Started::Task(Task(runtime.spawn(future))),
                Err(panic) => Started::Complete(Err(panic)),
            }
        });
    }

    fn delegate(&mut self) {
        self.start(|runtime, future| Started::Task(Task(runtime.spawn(future))));
    }

    fn finish(mut self: Box<Self>) {
        if let (Some(sender), Some(started)) = (self.sender.take(), self.started.take()) {
            self.started = sender.send(started).err();
        }
    }
}

/// Polls a future, and returns it if it is pending. A complete one is dropped here, in the context
/// of the runtime, for destructors that start tasks of it.
fn poll_once<T>(mut future: CallFuture<T>) -> Result<T, CallFuture<T>> {
    // A pending future is polled again by a task, which registers its own waker.
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Ok(result),
        Poll::Pending => Err(future),
    }
}
