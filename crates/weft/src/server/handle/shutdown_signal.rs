//! The end of a server at a signal.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::server::handle::ServerHandle;
#[cfg(feature = "signal")]
use crate::sys::TerminationSignals;

/// Maximum time for requests in progress after the signal.
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// Runs a server until it has stopped: by itself, or within the grace period after `signal`.
pub(in crate::server) async fn run_until(
    mut handle: ServerHandle,
    signal: impl Future<Output = ()>,
    grace: Duration,
) {
    if is_first(signal, handle.ended()).await {
        handle.shutdown_async(grace).await;
    }
}

/// Waits for one of two futures. Returns true if it is the first one.
async fn is_first(first: impl Future<Output = ()>, second: impl Future<Output = ()>) -> bool {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => second.as_mut().poll(cx).map(|()| false),
    })
    .await
}

/// Runs a future on a thread with an event loop of its own, and waits for its result.
pub(in crate::server) fn block_on_thread<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("weft-signal".to_owned());
    let thread = thread.spawn(move || runtime.block_on(future))?;
    // The panic hook has already reported the panic.
    let panicked = |_| Error::new(ErrorKind::Panicked, "the future of the signal has panicked");
    thread.join().map_err(panicked)
}

/// Starts a server, and runs it until it has stopped. The first signal ends it in order, the second
/// one at once. A signal that arrives after the start is not lost.
///
/// # Errors
/// [`Io`](ErrorKind::Io) if a signal cannot be registered, and the errors of the start.
#[cfg(feature = "signal")]
pub(in crate::server) async fn run_until_signals(
    start: impl FnOnce() -> Result<ServerHandle>,
    grace: Duration,
) -> Result<()> {
    let mut signals = TerminationSignals::register()?;
    let mut handle = start()?;
    if !is_first(signals.next(), handle.ended()).await {
        return Ok(());
    }
    let deadline = handle.shutdown_handle();
    let mut drained = pin!(handle.shutdown_async(grace));
    if is_first(signals.next(), drained.as_mut()).await {
        deadline.set_deadline(Duration::ZERO);
        drained.await;
    }
    Ok(())
}
