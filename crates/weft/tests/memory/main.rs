//! Tests that measure the memory of their process. They are a binary of their own, so that no other
//! test is included in the measurement, and run one at a time for the same reason.

#[path = "../it/common/mod.rs"]
mod common;

mod closed_windows;
#[cfg(feature = "form")]
mod forms;
mod h2_attacks;
mod uploads;

use std::sync::{Mutex, MutexGuard, PoisonError};

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// A measurement of peak memory use. No other measurement begins before it is dropped.
struct PeakMemory {
    before: usize,
    _exclusive: MutexGuard<'static, ()>,
}

impl PeakMemory {
    /// Waits until other measurements have ended. A test calls it before it allocates memory, so
    /// that the measurements of others do not include its setup, and then
    /// [`reset`](PeakMemory::reset) to exclude the setup from its own.
    fn begin() -> PeakMemory {
        static EXCLUSIVE: Mutex<()> = Mutex::new(());
        let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = PeakMemory { before: 0, _exclusive: exclusive };
        memory.reset();
        memory
    }

    /// Begins the measurement again.
    fn reset(&mut self) {
        ALLOCATOR.reset_peak_usage();
        self.before = ALLOCATOR.current_usage();
    }

    /// Peak memory use since the measurement began, in bytes.
    fn peak(&self) -> usize {
        ALLOCATOR.peak_usage().saturating_sub(self.before)
    }
}
