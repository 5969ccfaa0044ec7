//! Types of shuttle in place of types of the standard library and of tokio.
//!
//! The primitives of `tokio::sync` need no runtime and are used as they are: each of their
//! operations is one step of a schedule.

use std::time::Duration;

use shuttle::rand::Rng;

/// In place of `crate::sync` and `tokio::sync`.
pub mod sync {
    pub use real_tokio::sync::*;
    pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
    pub use std::sync::PoisonError;
}

/// In place of `tokio::time`.
pub mod time {
    use super::*;
    use std::cell::Cell;
    use std::pin::pin;

    use futures_util::future::{Either, select};

    /// The future took too long.
    #[derive(Debug)]
    pub struct Elapsed;

    thread_local! {
        /// Models run beside each other; all tasks of one are in one thread.
        static TIMEOUTS_EXPIRE: Cell<bool> = const { Cell::new(true) };
    }

    /// Sets whether timeouts of the model expire. A lost wakeup that a timeout conceals is a
    /// deadlock without timeouts.
    pub fn set_timeouts_expire(expire: bool) {
        TIMEOUTS_EXPIRE.set(expire);
    }

    /// Expires after a random number of steps, if timeouts expire.
    pub async fn timeout<F: Future>(_: Duration, future: F) -> Result<F::Output, Elapsed> {
        let expiry = async {
            if !TIMEOUTS_EXPIRE.get() {
                std::future::pending::<()>().await;
            }
            for _ in 0..shuttle::rand::thread_rng().gen_range(0..20) {
                shuttle::future::yield_now().await;
            }
        };
        match select(pin!(future), pin!(expiry)).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right(_) => Err(Elapsed),
        }
    }
}

/// Returns true in half of all schedules.
pub fn coin() -> bool {
    shuttle::rand::thread_rng().r#gen()
}
