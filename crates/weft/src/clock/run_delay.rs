//! Time for which the current thread was ready to run and had no CPU, as Linux counts it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::str;
use std::time::Duration;

/// The run delay of the thread that has created it. It is always zero if the kernel does not count it.
#[derive(Debug)]
pub(crate) struct RunDelay {
    file: Option<File>,
    total: Duration,
}

impl RunDelay {
    pub(crate) fn start() -> RunDelay {
        let file = File::open("/proc/thread-self/schedstat").ok();
        let mut delay = RunDelay { file, total: Duration::ZERO };
        delay.restart();
        delay
    }

    /// Returns the delay since the last call.
    pub(crate) fn restart(&mut self) -> Duration {
        let total = self.file.as_ref().and_then(read_total).unwrap_or_default();
        total.saturating_sub(std::mem::replace(&mut self.total, total))
    }
}

/// Reads the second field, in nanoseconds.
fn read_total(file: &File) -> Option<Duration> {
    let mut buffer = [0; 96];
    let length = file.read_at(&mut buffer, 0).ok()?;
    let mut fields = str::from_utf8(&buffer[..length]).ok()?.split_ascii_whitespace();
    fields.nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::available_parallelism;
    use std::time::Instant;

    #[test]
    fn grows_while_threads_compete() {
        let start = Instant::now();
        let compete = || {
            let mut delay = RunDelay::start();
            let mut total = Duration::ZERO;
            while total.is_zero() && start.elapsed() < Duration::from_secs(60) {
                total += delay.restart();
            }
            !total.is_zero()
        };
        let threads = 2 * available_parallelism().unwrap().get();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(compete)).collect();
            assert!(threads.into_iter().any(|thread| thread.join().unwrap()));
        });
    }

    #[test]
    fn is_zero_while_the_thread_sleeps() {
        let mut delay = RunDelay::start();
        let slept = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        // The wait for a CPU after the sleep counts.
        assert!(delay.restart() <= slept.elapsed() - Duration::from_millis(20));
    }
}
