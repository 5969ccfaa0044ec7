//! Bytes that are copied between two connections in both directions, until both have ended.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until};

/// Size of the copy buffer of one direction, in bytes. It doubles while the receiving side takes whole
/// buffers, and is small again after a pause, so that an idle or stalled tunnel occupies little.
const MIN_BUFFER_BYTES: usize = 1 << 10;
const MAX_BUFFER_BYTES: usize = 16 << 10;

/// Copies until both directions have ended, one fails, or no data moves for `idle_timeout`. Returns the
/// numbers of bytes that were read from `a` and from `b`.
pub(crate) async fn splice(
    a: impl AsyncRead + AsyncWrite,
    b: impl AsyncRead + AsyncWrite,
    idle_timeout: Duration,
) -> (u64, u64) {
    let ((mut from_a, mut to_a), (mut from_b, mut to_b)) = (split(a), split(b));
    let activity = Activity::new();
    let (forth, back) = (AtomicU64::new(0), AtomicU64::new(0));
    tokio::select! {
        // After an error both connections are closed, so that both peers notice.
        _ = async {
            tokio::try_join!(
                copy(&mut from_a, &mut to_b, &activity, &forth),
                copy(&mut from_b, &mut to_a, &activity, &back),
            )
        } => {}
        () = activity.wait_until_idle(idle_timeout) => {}
    }
    (forth.into_inner(), back.into_inner())
}

/// Copies one direction. Its end is forwarded; the other direction stays open.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
    copied: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; MIN_BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        activity.record();
        if length == 0 {
            return to.shutdown().await;
        }
        let taken = to.write(&buffer[..length]).await?;
        to.write_all(&buffer[taken..length]).await?;
        to.flush().await?;
        copied.fetch_add(length as u64, Relaxed);
        activity.record();
        if taken == buffer.len() && taken < MAX_BUFFER_BYTES {
            buffer = vec![0; 2 * taken];
        } else if length <= MIN_BUFFER_BYTES && buffer.len() > MIN_BUFFER_BYTES {
            buffer = vec![0; MIN_BUFFER_BYTES];
        }
    }
}

/// The time of the last read or write, which both directions record.
struct Activity {
    start: Instant,
    /// In milliseconds since `start`.
    last: AtomicU64,
}

impl Activity {
    fn new() -> Activity {
        Activity { start: Instant::now(), last: AtomicU64::new(0) }
    }

    fn record(&self) {
        let elapsed = self.start.elapsed().as_millis();
        self.last.store(elapsed.try_into().unwrap_or(u64::MAX), Relaxed);
    }

    /// Completes when no data has moved for `idle_timeout`.
    async fn wait_until_idle(&self, idle_timeout: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Relaxed));
            let deadline = last.checked_add(idle_timeout).and_then(|it| self.start.checked_add(it));
            let Some(deadline) = deadline else { return std::future::pending().await };
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}
