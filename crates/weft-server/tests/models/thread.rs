//! Threads of shuttle, with the part of the interface of `std::thread` that shuttle lacks.

use std::io;
use std::time::Duration;

/// Lets other threads run. `shuttle::thread::sleep` may continue at once for ever.
pub fn sleep(_: Duration) {
    shuttle::thread::yield_now();
}

/// In place of `std::thread::Builder`.
pub struct Builder;

/// In place of `std::thread::JoinHandle`. The thread is a task that never waits.
pub struct JoinHandle<T>(shuttle::future::JoinHandle<T>);

impl Builder {
    pub fn new() -> Builder {
        Builder
    }

    pub fn name(self, _: String) -> Builder {
        self
    }

    pub fn spawn<T: Send + 'static>(
        self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        Ok(JoinHandle(shuttle::future::spawn(async { run() })))
    }
}

impl<T> JoinHandle<T> {
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}
