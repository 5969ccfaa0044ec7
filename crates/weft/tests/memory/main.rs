//! Tests that measure the memory of their process. Each one runs in a process of its own, so that
//! no other test is included in the measurement.

#[path = "../it/common/mod.rs"]
mod common;

mod closed_windows;
#[cfg(feature = "form")]
mod forms;
mod h2_attacks;
mod uploads;

use std::process::Command;

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Set in the environment of a process that runs one test.
const IS_ALONE: &str = "WEFT_MEMORY_TEST_IS_ALONE";

/// Runs the calling test in a process of its own, and returns true after that. Returns false if
/// this process runs no other test at the same time, so that the caller can measure its memory.
///
/// # Panics
/// If the test fails in its process.
#[must_use]
fn has_run_alone() -> bool {
    let thread = std::thread::current();
    let name = thread.name().expect("the test harness names the thread after the test");
    // The harness uses the main thread if it runs one test at a time.
    if name == "main" || std::env::var_os(IS_ALONE).is_some() {
        return false;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--test-threads=1", "--nocapture"]).env(IS_ALONE, "1");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    println!("{text}");
    // A name that selects no test would pass.
    let has_passed = output.status.success() && text.contains("1 passed");
    assert!(has_passed, "{name} has failed in its own process");
    true
}

/// A measurement of peak memory use.
struct PeakMemory {
    before: usize,
}

impl PeakMemory {
    /// Begins a measurement. A test calls it in its own process ([`has_run_alone`]), and then
    /// [`reset`](PeakMemory::reset) to exclude its setup.
    fn begin() -> PeakMemory {
        let mut memory = PeakMemory { before: 0 };
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
