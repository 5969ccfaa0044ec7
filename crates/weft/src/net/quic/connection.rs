//! A connection: the state of the transport, its timer and its output.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{ConnectionHandle, EndpointEvent, Event, StreamEvent, Transmit, VarInt};
use tokio::time::Sleep;

use crate::net::quic::config::{INITIAL_SEND_WINDOW_BYTES, QuicConfig};
use crate::net::quic::endpoint::{Attempt, Endpoint, Inbox};
use crate::net::quic::transport_frames::TransportFrames;
use crate::net::secure::QuicHandshake;
use crate::net::tls::quic::{SessionStart, with_session};

/// Maximum number of sends before other connections get their turn. Each has up to 64 KiB.
const MAX_SENDS: usize = 8;

/// Maximum size of the data that is written and not acknowledged.
const MAX_SEND_WINDOW_BYTES: u64 = 16 << 20;

/// Maximum size of one send: the largest UDP payload.
const MAX_TRANSMIT_BYTES: usize = 65_000;

/// A connection of a client.
pub(crate) struct Connection {
    endpoint: Rc<Endpoint>,
    handle: ConnectionHandle,
    transport: Box<quinn_proto::Connection>,
    inbox: Rc<Inbox>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Time at which the timer elapses.
    armed: Option<Instant>,
    /// Output that the socket has not accepted, and the wait for the socket.
    unsent: Option<Box<Unsent>>,
    session_start: SessionStart,
    is_handshaking: bool,
    is_drained: bool,
    send_window: u64,
    /// Number of datagrams since the frames of the transport were counted.
    uncounted: usize,
    counted: TransportFrames,
}

/// Number of datagrams after which the frames of the transport are counted.
const COUNT_INTERVAL: usize = 64;

struct Unsent {
    transmit: Transmit,
    bytes: Vec<u8>,
    writable: Pin<Box<dyn Future<Output = ()>>>,
}

/// An event for the protocol above.
pub(crate) enum ConnectionEvent {
    /// The handshake is complete.
    Connected,
    /// The connection has ended, for this reason.
    Lost(quinn_proto::ConnectionError),
    Stream(StreamEvent),
}

impl Connection {
    /// Accepts the connection of an attempt. Returns `None` if its first packet is invalid.
    pub(crate) fn accept(
        endpoint: &Rc<Endpoint>,
        attempt: Attempt,
        config: &QuicConfig,
    ) -> Option<Connection> {
        let (handle, transport, inbox) = endpoint.accept(attempt, config)?;
        endpoint.handshake_started();
        Some(Connection {
            endpoint: endpoint.clone(),
            handle,
            transport: Box::new(transport),
            inbox,
            timer: None,
            armed: None,
            unsent: None,
            session_start: None,
            is_handshaking: true,
            is_drained: false,
            send_window: INITIAL_SEND_WINDOW_BYTES,
            uncounted: 0,
            counted: TransportFrames::default(),
        })
    }

    /// Processes the received datagrams and the expired timers, and registers for the next ones.
    pub(crate) fn poll_input(&mut self, cx: &mut Context<'_>) {
        {
            let waker = &mut *self.inbox.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        let Connection { endpoint, transport, inbox, uncounted, .. } = self;
        if !inbox.events.borrow().is_empty() {
            let mut events = std::mem::take(&mut *inbox.events.borrow_mut());
            *uncounted += events.len();
            with_session(&mut self.session_start, || {
                events.drain(..).for_each(|event| transport.handle_event(event));
            });
            endpoint.recycle_events(events);
        }
        self.poll_timer(cx);
    }

    /// Processes expired timers. The timer is set anew only for an earlier time: most deadlines
    /// move to a later one with each datagram. Returns true if a timer of the transport has
    /// expired.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_expired = false;
        loop {
            let Some(deadline) = self.transport.poll_timeout() else {
                (self.timer, self.armed) = (None, None);
                return has_expired;
            };
            if self.armed.is_none_or(|armed| deadline < armed) {
                self.arm(deadline);
            }
            let Some(timer) = &mut self.timer else { return has_expired };
            if timer.as_mut().poll(cx).is_pending() {
                return has_expired;
            }
            self.armed = None;
            let now = Instant::now();
            if deadline <= now {
                self.transport.handle_timeout(now);
                has_expired = true;
            }
        }
    }

    fn arm(&mut self, deadline: Instant) {
        self.armed = Some(deadline);
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(deadline.into()),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(deadline.into()))),
        }
    }

    /// Returns the next event. All events must be taken after each input.
    pub(crate) fn next_event(&mut self) -> Option<ConnectionEvent> {
        self.exchange_endpoint_events();
        loop {
            return Some(match self.transport.poll()? {
                Event::Connected => {
                    self.end_handshake();
                    ConnectionEvent::Connected
                }
                Event::ConnectionLost { reason } => ConnectionEvent::Lost(reason),
                Event::Stream(event) => ConnectionEvent::Stream(event),
                Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {
                    continue;
                }
            });
        }
    }

    fn exchange_endpoint_events(&mut self) {
        while let Some(event) = self.transport.poll_endpoint_events() {
            self.is_drained |= event.is_drained();
            if let Some(reply) = self.endpoint.on_event(self.handle, event) {
                self.transport.handle_event(reply);
            }
        }
    }

    fn end_handshake(&mut self) {
        if std::mem::take(&mut self.is_handshaking) {
            self.endpoint.handshake_ended();
        }
    }

    /// Sends output. Ready when there is no more, or the path permits no more. Pending while the
    /// socket accepts nothing, and between turns.
    ///
    /// Output sets timers of the transport: for its loss, and for the next datagram at the pace of
    /// the path. Without them, lost output is not repeated until the client sends something.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sent = self.poll_output(cx);
        if self.poll_timer(cx) {
            // The task takes the events of the timer, and sends its output.
            cx.waker().wake_by_ref();
        }
        sent
    }

    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.poll_unsent(cx) {
            return Poll::Pending;
        }
        self.follow_path();
        let now = Instant::now();
        for _ in 0..MAX_SENDS {
            match self.send_once(now) {
                Sent::Nothing => return Poll::Ready(()),
                Sent::All => {}
                Sent::Blocked if self.poll_unsent(cx) => {}
                Sent::Blocked => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Permits as much unacknowledged data as the path transports in two round trips. Without this,
    /// fast and long paths would wait for acknowledgments.
    fn follow_path(&mut self) {
        let window = self.transport.congestion_state().window().saturating_mul(2);
        let window = window.clamp(INITIAL_SEND_WINDOW_BYTES, MAX_SEND_WINDOW_BYTES);
        if window > self.send_window {
            self.send_window = window;
            self.transport.set_send_window(window);
        }
    }

    fn send_once(&mut self, now: Instant) -> Sent {
        let endpoint = self.endpoint.clone();
        let output = &mut *endpoint.output().borrow_mut();
        output.clear();
        let mtu = usize::from(self.transport.current_mtu());
        let max = endpoint.socket().max_datagrams().min(MAX_TRANSMIT_BYTES / mtu.max(1)).max(1);
        let Some(transmit) = self.transport.poll_transmit(now, max, output) else {
            return Sent::Nothing;
        };
        match endpoint.socket().try_send(&transmit, &output[..transmit.size]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                self.unsent = Some(Box::new(Unsent {
                    bytes: output[..transmit.size].to_vec(),
                    transmit,
                    writable: writable(endpoint.clone()),
                }));
                Sent::Blocked
            }
            // Other errors, such as a datagram larger than the path permits, are losses.
            Ok(()) | Err(_) => Sent::All,
        }
    }

    /// Sends the output that the socket has not accepted. Returns false if it still does not.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> bool {
        while let Some(unsent) = &mut self.unsent {
            if unsent.writable.as_mut().poll(cx).is_pending() {
                return false;
            }
            let sent = self.endpoint.socket().try_send(&unsent.transmit, &unsent.bytes);
            match sent {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    unsent.writable = writable(self.endpoint.clone());
                }
                Ok(()) | Err(_) => self.unsent = None,
            }
        }
        true
    }

    /// Returns the frames of the transport that were received since the last count, every few
    /// datagrams.
    pub(crate) fn take_frame_count(&mut self) -> Option<TransportFrames> {
        if self.uncounted < COUNT_INTERVAL {
            return None;
        }
        self.uncounted = 0;
        let counted = TransportFrames::of(&self.transport.stats().frame_rx);
        let before = std::mem::replace(&mut self.counted, counted);
        Some(counted.since(before))
    }

    /// Closes the connection with an error code of the protocol above.
    pub(crate) fn close(&mut self, code: u64, reason: &'static str) {
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        self.transport.close(Instant::now(), code, Bytes::from_static(reason.as_bytes()));
    }

    /// Processes a closed connection, and discards its events. Ready when it needs no more
    /// processing.
    pub(crate) fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_input(cx);
        while self.next_event().is_some() {}
        match self.poll_send(cx).is_ready() && self.is_drained {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Returns true until the client has completed the handshake. Streams then contain early data,
    /// which another party may have repeated (RFC 9001 §9.2).
    pub(crate) fn is_handshaking(&self) -> bool {
        self.is_handshaking
    }

    /// Returns true if the server accepts early data of the client.
    pub(crate) fn accepts_early_data(&self) -> bool {
        self.is_handshaking && self.transport.has_0rtt()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.transport.is_closed()
    }

    /// Requests an acknowledgment, so that a client that is gone is detected.
    pub(crate) fn ping(&mut self) {
        self.transport.ping();
    }

    /// Lends an empty buffer, which keeps its memory between calls.
    pub(crate) fn with_scratch<T>(&self, use_buffer: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let output = &mut *self.endpoint.output().borrow_mut();
        output.clear();
        use_buffer(output)
    }

    /// The streams.
    pub(crate) fn transport(&mut self) -> &mut quinn_proto::Connection {
        &mut self.transport
    }

    /// The parameters of the handshake, when it is complete.
    pub(crate) fn handshake(&self) -> QuicHandshake {
        let data = self.transport.crypto_session().handshake_data();
        let handshake = data.and_then(|data| data.downcast::<QuicHandshake>().ok());
        handshake.map(|handshake| *handshake).unwrap_or_default()
    }

    /// Time for the last packets of a closed connection.
    pub(crate) fn closing_time(&self) -> Duration {
        self.transport.rtt() * 3
    }
}

/// The result of one send.
enum Sent {
    Nothing,
    All,
    Blocked,
}

fn writable(endpoint: Rc<Endpoint>) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move { endpoint.socket().writable().await })
}

/// Removes the connection from its endpoint, also if its task has panicked.
impl Drop for Connection {
    fn drop(&mut self) {
        self.end_handshake();
        if !self.is_drained {
            self.endpoint.on_event(self.handle, EndpointEvent::drained());
        }
    }
}
