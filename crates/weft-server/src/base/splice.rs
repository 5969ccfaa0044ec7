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

/// Reason for which the copying has ended.
#[derive(Debug)]
pub(crate) enum SpliceEnd {
    /// Both directions have ended.
    Complete,
    /// No data moved for the idle timeout.
    Idle,
    /// A read from a side, or a write to it, has failed.
    #[allow(dead_code, reason = "the tests of the proxy do not use it")]
    Failed(Side, io::Error),
}

/// A connection of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    A,
    B,
}

/// Counters of copied bytes.
pub(crate) trait CountBytes {
    /// Adds bytes that were read from a side and written to the other one.
    fn add(&self, from: Side, bytes: u64);
}

/// Nothing is counted.
impl CountBytes for () {
    fn add(&self, _: Side, _: u64) {}
}

/// Copies until both directions have ended, one fails, or no data moves for `idle_timeout`.
pub(crate) async fn splice(
    a: impl AsyncRead + AsyncWrite,
    b: impl AsyncRead + AsyncWrite,
    idle_timeout: Duration,
    counts: &impl CountBytes,
) -> SpliceEnd {
    let ((mut from_a, mut to_a), (mut from_b, mut to_b)) = (split(a), split(b));
    let activity = Activity::new();
    tokio::select! {
        // After an error both connections are closed, so that both peers notice.
        ended = async {
            tokio::try_join!(
                Direction { from: Side::A, activity: &activity, counts }.copy(&mut from_a, &mut to_b),
                Direction { from: Side::B, activity: &activity, counts }.copy(&mut from_b, &mut to_a),
            )
        } => match ended {
            Ok(_) => SpliceEnd::Complete,
            Err((side, error)) => SpliceEnd::Failed(side, error),
        },
        () = activity.wait_until_idle(idle_timeout) => SpliceEnd::Idle,
    }
}

/// One direction of the two.
struct Direction<'a, C> {
    from: Side,
    activity: &'a Activity,
    counts: &'a C,
}

impl<C: CountBytes> Direction<'_, C> {
    /// Copies until the end, which is forwarded; the other direction stays open.
    async fn copy(
        self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), (Side, io::Error)> {
        let receiver = match self.from {
            Side::A => Side::B,
            Side::B => Side::A,
        };
        let mut buffer = vec![0; MIN_BUFFER_BYTES];
        loop {
            let length = from.read(&mut buffer).await.map_err(|error| (self.from, error))?;
            self.activity.record();
            if length == 0 {
                return to.shutdown().await.map_err(|error| (receiver, error));
            }
            let taken = write(to, &buffer[..length]).await.map_err(|error| (receiver, error))?;
            self.counts.add(self.from, length as u64);
            self.activity.record();
            if taken == buffer.len() && taken < MAX_BUFFER_BYTES {
                buffer = vec![0; 2 * taken];
            } else if length <= MIN_BUFFER_BYTES && buffer.len() > MIN_BUFFER_BYTES {
                buffer = vec![0; MIN_BUFFER_BYTES];
            }
        }
    }
}

/// Writes all bytes. Returns the number of those that the first write took.
async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    let taken = to.write(bytes).await?;
    to.write_all(&bytes[taken..]).await?;
    to.flush().await?;
    Ok(taken)
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
