//! Detection of a caller whose thread must not be blocked.

use std::task::{Context, Poll, Waker};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::coop::poll_proceed;

use crate::error::{Error, ErrorKind, Result};

/// Upper bound of the budget that tokio gives a task before it has to yield. It is 128.
const MAX_BUDGET: usize = 10_000;

/// Returns an error if the caller runs in the only thread of a tokio runtime: its tasks would never
/// be polled again, and requests that depend on them would hang.
pub(super) fn check_may_block() -> Result<()> {
    let is_current_thread =
        Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
    if is_current_thread && is_polled_by_tokio() {
        let reason = "the server would block the only thread of a current-thread runtime: start \
                      it outside of the runtime or in `spawn_blocking`, use the multi-thread \
                      runtime, or use `Server::start`, which does not block";
        return Err(Error::new(ErrorKind::WouldBlock, reason));
    }
    Ok(())
}

/// Returns true if tokio polls the current future. Such a future has a budget, which this call uses
/// up. The threads of `spawn_blocking`, and threads that have only entered the runtime, have none.
pub(crate) fn is_polled_by_tokio() -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    (0..MAX_BUDGET).any(|_| match poll_proceed(&mut cx) {
        Poll::Ready(unit) => {
            unit.made_progress();
            false
        }
        Poll::Pending => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    #[test]
    fn only_tasks_of_a_current_thread_runtime_must_not_block() {
        assert!(check_may_block().is_ok(), "no runtime");
        let runtime = Builder::new_current_thread().build().unwrap();
        let result = runtime.block_on(async { check_may_block() });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
        let task = || tokio::spawn(async { check_may_block() });
        assert!(runtime.block_on(async { task().await }).unwrap().is_err(), "a task");
        let blocking = || tokio::task::spawn_blocking(check_may_block);
        assert!(runtime.block_on(async { blocking().await }).unwrap().is_ok(), "spawn_blocking");
        let _entered = runtime.enter();
        assert!(check_may_block().is_ok(), "entered by a thread that does not run it");
    }
}
