//! Bytes that are copied between two connections in both directions, until both have ended.

mod splice;

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, split};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use weft::message::Upgraded;

use crate::connect::upstream_connection::UpstreamConnection;
pub use crate::copy::splice::{MAX_PIPES, SplicePipes};
use crate::copy::splice::{Splice, SpliceError, Spliced};

/// Size of the copy buffer of one direction, in bytes. It doubles while the receiving side takes
/// whole buffers, and is small again after a pause, so that an idle or stalled tunnel occupies
/// little.
const MIN_BUFFER_BYTES: usize = 1 << 10;
const MAX_BUFFER_BYTES: usize = 16 << 10;

/// The end of a copy between two connections.
#[derive(Debug)]
pub enum CopyEnd {
    /// Both directions have ended.
    Complete,
    /// No data moved for the idle timeout.
    Idle,
    /// A read from a side, or a write to it, has failed.
    Failed(CopySide, io::Error),
}

/// Longest times without data in any direction.
#[derive(Clone, Copy, Debug)]
pub struct IdleTimeouts {
    /// The time while both directions are open.
    pub open: Duration,
    /// The time after the end of one direction. A peer that has closed its connection, and a peer
    /// that has closed its sending half, look the same until data is sent to them.
    pub half_closed: Duration,
}

impl IdleTimeouts {
    /// The same time before and after the end of a direction.
    pub fn same(timeout: Duration) -> IdleTimeouts {
        IdleTimeouts { open: timeout, half_closed: timeout }
    }
}

/// One of the two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopySide {
    /// The first connection.
    A,
    /// The second connection.
    B,
}

/// Counters of copied bytes.
pub trait CountBytes {
    /// Adds bytes that were read from a side and written to the other one.
    fn add(&self, from: CopySide, bytes: u64);
}

/// Nothing is counted.
impl CountBytes for () {
    fn add(&self, _: CopySide, _: u64) {}
}

/// Copies until both directions have ended, one fails, or no data moves for a time of
/// `timeouts`. A connection that breaks behind the end of its direction is noticed by the next
/// write to it.
pub async fn copy_bidirectional(
    a: impl AsyncRead + AsyncWrite,
    b: impl AsyncRead + AsyncWrite,
    timeouts: IdleTimeouts,
    counts: &impl CountBytes,
) -> CopyEnd {
    let (a, b) =
        (Watched { stream: a, broken: pending() }, Watched { stream: b, broken: pending() });
    copy_watched(a, b, timeouts, counts).await
}

/// Copies between the client and the upstream of a tunnel, as [`copy_bidirectional`]. A reset of
/// the client, or of an upstream without TLS, is noticed at once, also behind the end of the
/// direction.
pub(crate) async fn copy_tunnel(
    client: Upgraded,
    upstream: &mut UpstreamConnection,
    timeouts: IdleTimeouts,
) -> CopyEnd {
    let broken = client.broken();
    let client = Watched { stream: client, broken };
    match upstream.socket() {
        None => {
            let upstream = Watched { stream: upstream, broken: pending() };
            copy_watched(client, upstream, timeouts, &()).await
        }
        Some(socket) => {
            let (mut from_client, mut to_client) = split(client.stream);
            let (mut from_upstream, mut to_upstream) = socket.split();
            let activity = Activity::new();
            let direction = |from| Direction { from, activity: &activity, counts: &() };
            let upload = async {
                let direction = direction(CopySide::A);
                direction.copy(&mut from_client, &mut to_upstream).await?;
                direction.wait_for_other_direction(client.broken).await
            };
            let download = async {
                let direction = direction(CopySide::B);
                direction.copy(&mut from_upstream, &mut to_client).await?;
                direction.wait_for_other_direction(reset(&from_upstream)).await
            };
            end_of(async { tokio::try_join!(upload, download) }, &activity, timeouts).await
        }
    }
}

/// A connection, and the future that completes when it breaks behind the end of its input.
struct Watched<S, F> {
    stream: S,
    broken: F,
}

async fn copy_watched<A: AsyncRead + AsyncWrite, B: AsyncRead + AsyncWrite>(
    a: Watched<A, impl Future<Output = ()>>,
    b: Watched<B, impl Future<Output = ()>>,
    timeouts: IdleTimeouts,
    counts: &impl CountBytes,
) -> CopyEnd {
    let ((mut from_a, mut to_a), (mut from_b, mut to_b)) = (split(a.stream), split(b.stream));
    let activity = Activity::new();
    let direction = |from| Direction { from, activity: &activity, counts };
    let from_a = async {
        let direction = direction(CopySide::A);
        direction.copy(&mut from_a, &mut to_b).await?;
        direction.wait_for_other_direction(a.broken).await
    };
    let from_b = async {
        let direction = direction(CopySide::B);
        direction.copy(&mut from_b, &mut to_a).await?;
        direction.wait_for_other_direction(b.broken).await
    };
    end_of(async { tokio::try_join!(from_a, from_b) }, &activity, timeouts).await
}

/// Completes when a socket was reset behind the end of its input. The system reports errors of all
/// sockets that are registered with the event loop.
async fn reset(socket: &ReadHalf<'_>) {
    if socket.ready(Interest::ERROR).await.is_err() {
        pending().await
    }
}

/// Copies between two sockets, as [`copy_bidirectional`]. Large amounts of bytes are moved within
/// the kernel by `splice(2)`.
pub async fn copy_sockets(
    a: &mut TcpStream,
    b: &mut TcpStream,
    pipes: &SplicePipes,
    timeouts: IdleTimeouts,
    counts: &impl CountBytes,
) -> CopyEnd {
    let ((mut from_a, mut to_a), (mut from_b, mut to_b)) = (a.split(), b.split());
    let activity = Activity::new();
    let direction = |from| Direction { from, activity: &activity, counts };
    let copied = async {
        tokio::try_join!(
            direction(CopySide::A).copy_or_splice(&mut from_a, &mut to_b, pipes),
            direction(CopySide::B).copy_or_splice(&mut from_b, &mut to_a, pipes),
        )
    };
    end_of(copied, &activity, timeouts).await
}

/// Waits for both directions, or for the idle timeout. After an error both connections are closed,
/// so that both peers notice.
async fn end_of(
    copied: impl Future<Output = Result<((), ()), (CopySide, io::Error)>>,
    activity: &Activity,
    timeouts: IdleTimeouts,
) -> CopyEnd {
    tokio::select! {
        ended = copied => match ended {
            Ok(_) => CopyEnd::Complete,
            Err((side, error)) => CopyEnd::Failed(side, error),
        },
        () = activity.wait_until_idle(timeouts) => CopyEnd::Idle,
    }
}

/// One direction of a copy.
struct Direction<'a, C> {
    from: CopySide,
    activity: &'a Activity,
    counts: &'a C,
}

/// The end of a copy through memory.
enum Copied {
    /// The sender has ended the direction.
    All,
    /// Enough bytes were received, and sent at once.
    Much,
}

impl<C: CountBytes> Direction<'_, C> {
    /// Copies until the end, which is forwarded; the other direction stays open.
    async fn copy(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), (CopySide, io::Error)> {
        self.copy_until(usize::MAX, MIN_BUFFER_BYTES, from, to).await?;
        self.end(to).await
    }

    /// Copies between sockets until the end. While many bytes arrive, they are moved within the
    /// kernel.
    async fn copy_or_splice(
        self,
        from: &mut ReadHalf<'_>,
        to: &mut WriteHalf<'_>,
        pipes: &SplicePipes,
    ) -> Result<(), (CopySide, io::Error)> {
        let mut first_buffer = MIN_BUFFER_BYTES;
        while let Copied::Much = self.copy_until(MAX_BUFFER_BYTES, first_buffer, from, to).await? {
            let splice = Splice { from: from.as_ref(), to: to.as_ref(), pipes };
            let moved = splice.run(|bytes| self.record(bytes)).await;
            let moved = moved.map_err(|error| match error {
                SpliceError::Receive(error) => (self.from, error),
                SpliceError::Send(error) => (self.receiver(), error),
            });
            match moved? {
                Spliced::UntilPause => first_buffer = MIN_BUFFER_BYTES,
                Spliced::NoPipe => first_buffer = MAX_BUFFER_BYTES,
            }
        }
        self.end(to).await?;
        self.wait_for_other_direction(reset(from)).await
    }

    /// Copies through a buffer, which has `first_buffer` bytes at first, until the end, or until
    /// `enough` bytes were received and sent at once.
    async fn copy_until(
        &self,
        enough: usize,
        first_buffer: usize,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<Copied, (CopySide, io::Error)> {
        let mut buffer = vec![0; first_buffer];
        loop {
            let length = from.read(&mut buffer).await.map_err(|error| (self.from, error))?;
            self.activity.record();
            if length == 0 {
                return Ok(Copied::All);
            }
            let taken = write(to, &buffer[..length]).await;
            let taken = taken.map_err(|error| (self.receiver(), error))?;
            self.record(length as u64);
            if taken >= enough {
                return Ok(Copied::Much);
            } else if taken == buffer.len() && taken < MAX_BUFFER_BYTES {
                buffer = vec![0; 2 * taken];
            } else if length <= MIN_BUFFER_BYTES && buffer.len() > MIN_BUFFER_BYTES {
                buffer = vec![0; MIN_BUFFER_BYTES];
            }
        }
    }

    /// Forwards the end of the direction. The time of half-closed connections begins.
    async fn end(&self, to: &mut (impl AsyncWrite + Unpin)) -> Result<(), (CopySide, io::Error)> {
        self.activity.end_direction(self.from);
        to.shutdown().await.map_err(|error| (self.receiver(), error))
    }

    /// Waits for the end of the other direction.
    ///
    /// # Errors
    /// If `broken` completes before: the connection of this direction is broken.
    async fn wait_for_other_direction(
        &self,
        broken: impl Future<Output = ()>,
    ) -> Result<(), (CopySide, io::Error)> {
        tokio::select! {
            biased;
            () = self.activity.ended(self.receiver()) => Ok(()),
            () = broken => Err((self.from, io::ErrorKind::ConnectionReset.into())),
        }
    }

    fn record(&self, bytes: u64) {
        self.counts.add(self.from, bytes);
        self.activity.record();
    }

    fn receiver(&self) -> CopySide {
        match self.from {
            CopySide::A => CopySide::B,
            CopySide::B => CopySide::A,
        }
    }
}

/// Writes all bytes. Returns the number of bytes that the first write took.
async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    let taken = to.write(bytes).await?;
    to.write_all(&bytes[taken..]).await?;
    to.flush().await?;
    Ok(taken)
}

/// The time of the last read or write in any direction, and the end of directions.
struct Activity {
    start: Instant,
    is_half_closed: AtomicBool,
    /// Notified at the end of a direction.
    direction_ended: Notify,
    /// Notified at the end of the direction from A, and of the direction from B.
    ended: [Notify; 2],
    /// Milliseconds since `start`.
    last: AtomicU64,
}

impl Activity {
    fn new() -> Activity {
        Activity {
            start: Instant::now(),
            is_half_closed: AtomicBool::new(false),
            direction_ended: Notify::new(),
            ended: [Notify::new(), Notify::new()],
            last: AtomicU64::new(0),
        }
    }

    fn record(&self) {
        let elapsed = self.start.elapsed().as_millis();
        self.last.store(elapsed.try_into().unwrap_or(u64::MAX), Relaxed);
    }

    fn end_direction(&self, from: CopySide) {
        self.is_half_closed.store(true, Relaxed);
        self.direction_ended.notify_one();
        self.ended[from as usize].notify_one();
    }

    /// Completes when the direction from a side has ended.
    async fn ended(&self, from: CopySide) {
        self.ended[from as usize].notified().await;
    }

    /// Completes when no data has moved for a time of `timeouts`.
    async fn wait_until_idle(&self, timeouts: IdleTimeouts) {
        loop {
            let timeout = match self.is_half_closed.load(Relaxed) {
                true => timeouts.half_closed,
                false => timeouts.open,
            };
            let last = Duration::from_millis(self.last.load(Relaxed));
            let deadline = last.checked_add(timeout).and_then(|it| self.start.checked_add(it));
            let Some(deadline) = deadline else {
                self.direction_ended.notified().await;
                continue;
            };
            if deadline <= Instant::now() {
                return;
            }
            tokio::select! {
                () = sleep_until(deadline) => {}
                () = self.direction_ended.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    const TIMEOUTS: IdleTimeouts =
        IdleTimeouts { open: Duration::from_secs(3600), half_closed: Duration::from_secs(60) };

    /// Rows: true if the client ends its direction after 10 s; pauses in seconds after which the
    /// upstream sends a byte; and the second at which the copy ends.
    #[tokio::test(start_paused = true)]
    async fn half_closed_connections_have_a_shorter_time() {
        for (is_half_closed, pauses, end) in [
            (true, &[][..], 70),
            (false, &[], 3600),
            (true, &[65, 59, 59], 65 + 59 + 59 + 60),
            (true, &[71], 70),
        ] {
            let ((mut client, a), (b, mut upstream)) = (duplex(64), duplex(64));
            let start = Instant::now();
            let peers = async {
                let send = async {
                    for pause in pauses {
                        tokio::time::sleep(Duration::from_secs(*pause)).await;
                        if upstream.write_all(b"x").await.is_err() {
                            break;
                        }
                    }
                };
                let half_close = async {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    if is_half_closed {
                        client.shutdown().await.unwrap();
                    }
                };
                tokio::join!(send, half_close);
                std::future::pending::<()>().await;
            };
            let ended = tokio::select! {
                ended = copy_bidirectional(a, b, TIMEOUTS, &()) => ended,
                () = peers => unreachable!("the peers stay"),
            };
            assert!(matches!(ended, CopyEnd::Idle), "{pauses:?} {ended:?}");
            assert_eq!(start.elapsed().as_secs(), end, "{is_half_closed} {pauses:?}");
        }
    }

    /// The client has closed its connection: the next write to it ends the other side.
    #[tokio::test(start_paused = true)]
    async fn a_failed_write_ends_both_connections() {
        let ((client, a), (b, mut upstream)) = (duplex(64), duplex(64));
        drop(client);
        let start = Instant::now();
        let send = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let _ = upstream.write_all(b"x").await;
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = copy_bidirectional(a, b, TIMEOUTS, &()) => ended,
            () = send => unreachable!("the upstream stays"),
        };
        assert!(matches!(ended, CopyEnd::Failed(CopySide::A, _)), "{ended:?}");
        assert_eq!(start.elapsed().as_secs(), 5);
    }
}
