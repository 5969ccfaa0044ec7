//! An HTTP/2 connection to an upstream, and the task that sends and receives its frames.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use ::h2::client::{Builder, SendRequest};
use ::h2::{Ping, PingPong};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::frame_budget::FrameBudget;
use super::joined_input::JoinedInput;
use crate::connect::upstream::Upstream;
use crate::connect::upstream_connection::UpstreamConnection;
use crate::settings::proxy_settings::ProxySettings;

/// Window of a stream, in bytes.
const STREAM_WINDOW: u32 = 64 << 10;

/// Memory for the bookkeeping of small DATA frames that no client has taken yet, per connection, in
/// bytes. A connection beyond it closes.
const SMALL_FRAMES_BUDGET: usize = 32 << 20;

/// Maximum amount of data that waits in a stream for a write to the socket, in bytes.
const MAX_SEND_BUFFER: usize = 64 << 10;

/// The owner of connections, which leases their streams to requests.
pub(crate) trait ConnectionOwner: Send + Sync {
    /// Called when a stream may be free.
    fn on_free_stream(&self);

    /// Leases no further streams of a connection.
    fn remove(&self, connection: &SharedConnection);

    /// Records that the upstream does not respond.
    fn record_failure(&self, reason: &str);
}

/// A connection whose streams are leased to requests. It closes once it is dropped and all streams
/// have ended.
pub(crate) struct SharedConnection {
    send_request: SendRequest<Bytes>,
    address: Option<SocketAddr>,
    /// Number of changes of the upstream's addresses when the address of the connection was
    /// compared with them.
    compared_at: AtomicU64,
    settings: Arc<ProxySettings>,
    /// Returns the number of leased streams.
    streams: AtomicUsize,
    activity: Arc<Activity>,
    /// More than one stream was leased: an error of the connection may be due to any of them.
    is_shared: AtomicBool,
    /// A stream was leased after a pause: the upstream has to show that it is still there.
    needs_ping: AtomicBool,
}

/// Times of a connection, in milliseconds since it was opened.
struct Activity {
    opened_at: Instant,
    /// Notified by the first read, or by the end of the connection.
    has_begun: Notify,
    last_read: AtomicU64,
    last_lease: AtomicU64,
}

/// A stream of a connection, leased to one request.
pub(crate) struct SharedStream {
    pub(crate) send_request: SendRequest<Bytes>,
    connection: Arc<SharedConnection>,
    owner: Arc<dyn ConnectionOwner>,
    /// The connection has served a request before: the upstream may have closed it since, which
    /// does not count as a failure.
    pub(crate) is_reused: bool,
    /// Milliseconds since the connection was opened.
    leased_at: u64,
}

impl SharedConnection {
    /// Sends the preface, starts the task of the connection, and waits for the SETTINGS of the
    /// upstream, which are the first that it sends (RFC 9113 §3.4): the number of streams that it
    /// permits is known then, and a server that does not use HTTP/2 has got no request.
    pub(crate) async fn start(
        connection: UpstreamConnection,
        owner: Weak<dyn ConnectionOwner>,
        settings: &Arc<ProxySettings>,
    ) -> io::Result<Arc<SharedConnection>> {
        let (stream, address) = connection.into_stream();
        let activity = Arc::new(Activity {
            opened_at: Instant::now(),
            has_begun: Notify::new(),
            last_read: 0.into(),
            last_lease: 0.into(),
        });
        let (input, budget) = (JoinedInput::default(), FrameBudget::new());
        let stream = Monitored { stream, input, budget, activity: activity.clone() };
        let handshake = builder(settings).handshake(stream);
        let done = timeout(settings.connect_timeout, handshake).await;
        let done = done.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        let (send_request, frames) = done.map_err(io::Error::other)?;
        let connection = Arc::new(SharedConnection {
            send_request,
            address,
            compared_at: AtomicU64::new(0),
            settings: settings.clone(),
            streams: AtomicUsize::new(0),
            activity: activity.clone(),
            is_shared: AtomicBool::new(false),
            needs_ping: AtomicBool::new(false),
        });
        tokio::spawn(drive(frames, Arc::downgrade(&connection), owner, settings.clone()));
        let has_begun = timeout(settings.connect_timeout, activity.has_begun.notified()).await;
        has_begun.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no SETTINGS in time"))?;
        match connection.closing_reason() {
            None => Ok(connection),
            Some(reason) => {
                let reason = format!("no connection of HTTP/2: {reason}");
                Err(io::Error::new(io::ErrorKind::InvalidData, reason))
            }
        }
    }

    /// Returns true if the upstream has closed the connection or sent GOAWAY.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing_reason().is_some()
    }

    fn closing_reason(&self) -> Option<::h2::Error> {
        let mut send_request = self.send_request.clone();
        match send_request.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(error)) => Some(error),
            _ => None,
        }
    }

    /// Returns false if its address is no longer one of the upstream's name: streams that are
    /// leased continue.
    pub(crate) fn leads_to(&self, upstream: &Upstream) -> bool {
        let mut compared_at = self.compared_at.load(Relaxed);
        let has_address = upstream.has_address(self.address, &mut compared_at);
        if has_address {
            self.compared_at.store(compared_at, Relaxed);
        }
        has_address
    }

    /// Returns the number of leased streams.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Relaxed)
    }

    /// Leases a stream, unless the limit of the upstream or the limit of the settings is reached.
    pub(crate) fn try_lease(
        self: &Arc<Self>,
        owner: Arc<dyn ConnectionOwner>,
    ) -> Option<SharedStream> {
        let permitted = self.settings.max_streams.min(self.send_request.current_max_send_streams());
        if self.streams() >= permitted {
            return None;
        }
        let now = self.activity.now();
        let idle_since = self.activity.last_read.load(Relaxed);
        let max_idle_time = self.settings.keep_alive_timeout / 2;
        if self.streams() == 0 && now.saturating_sub(idle_since) > millis(max_idle_time) {
            self.needs_ping.store(true, Relaxed);
        }
        self.streams.fetch_add(1, Relaxed);
        let is_reused = self.activity.last_lease.swap(now.max(1), Relaxed) > 0;
        if is_reused {
            self.is_shared.store(true, Relaxed);
        }
        let (send_request, connection) = (self.send_request.clone(), self.clone());
        Some(SharedStream { send_request, connection, owner, is_reused, leased_at: now })
    }
}

impl SharedStream {
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.connection.address
    }

    /// Returns true if the connection has served other requests.
    pub(crate) fn has_served_others(&self) -> bool {
        self.connection.is_shared.load(Relaxed)
    }

    /// Called when a response is late. If nothing was received on the connection since the stream
    /// was leased, further requests use another connection: the upstream may be unreachable without
    /// a reset.
    pub(crate) fn leave_silent_connection(&self) {
        if self.connection.activity.last_read.load(Relaxed) <= self.leased_at {
            self.owner.remove(&self.connection);
        }
    }
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        self.connection.streams.fetch_sub(1, Relaxed);
        let now = self.connection.activity.now();
        self.connection.activity.last_lease.store(now.max(1), Relaxed);
        self.owner.on_free_stream();
    }
}

impl Activity {
    fn now(&self) -> u64 {
        millis(self.opened_at.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the settings of a connection. Each limits the upstream.
fn builder(settings: &ProxySettings) -> Builder {
    let streams = u32::try_from(settings.max_streams).unwrap_or(u32::MAX);
    let window = streams.saturating_mul(STREAM_WINDOW).min(MAX_WINDOW);
    let head_bytes = u32::try_from(settings.max_response_head_bytes).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(window)
        .max_header_list_size(head_bytes)
        .max_send_buffer_size(MAX_SEND_BUFFER)
        .data_frame_budget(SMALL_FRAMES_BUDGET);
    builder
}

/// Largest window of a connection (RFC 9113 §6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// Sends and receives frames until the connection closes, or the upstream does not answer a PING in
/// time.
async fn drive(
    mut frames: ::h2::client::Connection<Monitored, Bytes>,
    connection: Weak<SharedConnection>,
    owner: Weak<dyn ConnectionOwner>,
    settings: Arc<ProxySettings>,
) {
    let Some(ping_pong) = frames.ping_pong() else { return };
    let mut liveness = Liveness { ping_pong, sent_at: None, settings };
    let mut tick = interval(liveness.period());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let upgrade = || connection.upgrade().zip(owner.upgrade());
    loop {
        tokio::select! {
            biased;
            // Requests get the reason from their streams.
            _ = &mut frames => break,
            _ = tick.tick() => {
                let Some((connection, owner)) = upgrade() else {
                    // Nobody can open a stream. Open streams continue.
                    let _ = frames.await;
                    return;
                };
                match liveness.check(&connection) {
                    // The upstream may permit more streams than before.
                    LivenessState::Alive => owner.on_free_stream(),
                    // It closes once the last handle is dropped: `connection` is one.
                    LivenessState::Idle => owner.remove(&connection),
                    LivenessState::Unresponsive => {
                        owner.record_failure("it does not answer a PING");
                        break;
                    }
                }
            }
        }
    }
    if let Some((connection, owner)) = upgrade() {
        // A failed write ends a connection that has received nothing.
        connection.activity.has_begun.notify_one();
        owner.remove(&connection);
    }
}

/// Checks of a connection at intervals: idle time, and an answer to PING (RFC 9113 §6.7).
struct Liveness {
    ping_pong: PingPong,
    /// Time of a PING that is not answered, in milliseconds since the connection was opened.
    sent_at: Option<u64>,
    settings: Arc<ProxySettings>,
}

enum LivenessState {
    Alive,
    /// No stream for longer than `keep_alive_timeout`.
    Idle,
    Unresponsive,
}

impl Liveness {
    fn period(&self) -> Duration {
        let ProxySettings { connect_timeout, keep_alive_timeout, tunnel_timeout, .. } =
            &*self.settings;
        let shortest = connect_timeout.min(keep_alive_timeout).min(tunnel_timeout);
        (*shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    fn check(&mut self, connection: &SharedConnection) -> LivenessState {
        let activity = &connection.activity;
        let (now, last_read) = (activity.now(), activity.last_read.load(Relaxed));
        let since = |time: u64| now.saturating_sub(time);
        let is_in_use = connection.streams() > 0;
        if !is_in_use
            && since(activity.last_lease.load(Relaxed)) > millis(self.settings.keep_alive_timeout)
        {
            return LivenessState::Idle;
        }
        if let Some(sent_at) = self.sent_at {
            let mut cx = Context::from_waker(Waker::noop());
            if self.ping_pong.poll_pong(&mut cx).is_ready() {
                self.sent_at = None;
            } else if last_read <= sent_at && since(sent_at) > millis(self.settings.connect_timeout)
            {
                return LivenessState::Unresponsive;
            }
            return LivenessState::Alive;
        }
        // A silent stream is not checked more often than that: servers close connections with many.
        let is_silent = is_in_use && since(last_read) > millis(self.settings.tunnel_timeout / 8);
        let is_requested = connection.needs_ping.swap(false, Relaxed);
        if (is_silent || is_requested) && self.ping_pong.send_ping(Ping::opaque()).is_ok() {
            self.sent_at = Some(now);
        }
        LivenessState::Alive
    }
}

/// A stream that limits and joins received frames, and records the time of the last read.
struct Monitored {
    stream: Box<dyn weft::net::Io>,
    input: JoinedInput,
    budget: FrameBudget,
    activity: Arc<Activity>,
}

impl Monitored {
    /// Reads once. Returns 0 at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = pin!(self.stream.read_buf(&mut self.input.space())).poll(cx);
        if read.is_ready() && self.activity.last_read.swap(self.activity.now().max(1), Relaxed) == 0
        {
            self.activity.has_begun.notify_one();
        }
        read
    }

    /// Makes the received frames available, as long as they are within the limits.
    fn on_received(&mut self) -> io::Result<()> {
        let Monitored { input, budget, activity, .. } = self;
        let now = activity.now();
        let invalid = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
        let count = |header| budget.on_frame(header, now).map_err(invalid);
        input.on_received(count)
    }
}

impl AsyncRead for Monitored {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.input.is_taken() {
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) => {
                    self.input.on_end();
                    break;
                }
                Poll::Ready(Ok(_)) => self.on_received()?,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.input.free_memory();
                    return Poll::Pending;
                }
            }
        }
        self.input.take(buf);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Monitored {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.budget.on_sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        self.budget.on_sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoOwner;

    impl ConnectionOwner for NoOwner {
        fn on_free_stream(&self) {}
        fn remove(&self, _connection: &SharedConnection) {}
        fn record_failure(&self, _reason: &str) {}
    }

    /// A stream that receives nothing, and whose writes after the first fail if it is reset.
    struct SilentStream {
        is_reset: bool,
        writes: usize,
    }

    impl AsyncRead for SilentStream {
        fn poll_read(
            self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            _buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for SilentStream {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.writes += 1;
            match self.is_reset && self.writes > 1 {
                true => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                false => Poll::Ready(Ok(bytes.len())),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_ends_a_connection_before_the_timeout() {
        for (is_reset, expected) in
            [(true, io::ErrorKind::InvalidData), (false, io::ErrorKind::TimedOut)]
        {
            let owner: Arc<dyn ConnectionOwner> = Arc::new(NoOwner);
            let stream = Box::new(SilentStream { is_reset, writes: 0 });
            let connection = UpstreamConnection::new(stream, None);
            let started =
                SharedConnection::start(connection, Arc::downgrade(&owner), &Arc::default()).await;
            assert_eq!(started.err().map(|error| error.kind()), Some(expected));
        }
    }
}
