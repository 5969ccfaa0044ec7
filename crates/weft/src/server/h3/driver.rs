//! The task of a connection: handshake, events of the transport, exchanges, output, deadlines.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::app::Application;
use crate::clock::deadline::{Awaited, Deadline, Stopwatch};
use crate::error::{Error, ErrorKind, Result};
use crate::net::quic::{Connection, ConnectionEvent};
use crate::net::secure::QuicSecurity;
use crate::peer::Peer;
use crate::server::connection_life::CloseHook;
use crate::server::h3::connection::{Http3Connection, StreamRequest};
use crate::server::h3::sink;
use crate::server::multiplex::exchanges::Exchanges;
use crate::server::worker_context::WorkerContext;
use weft_proto::http3::ErrorCode;

/// Serves a connection until it closes.
pub(crate) async fn serve<A: Application>(
    mut quic: Connection,
    (mut peer, deadline): (Peer, Deadline),
    tls: &dyn QuicSecurity,
    worker: &WorkerContext<A>,
) {
    deadline.set_awaiting(Awaited::Head, worker.settings.head_timeout);
    if let Err(error) = handshake(&mut quic, &deadline).await {
        worker.report(&peer, &error);
        return close(&mut quic, worker, ErrorCode::NO_ERROR, "").await;
    }
    let session = tls.session(quic.handshake());
    worker.watch_policy(&session.policy);
    peer.tls = Some(Arc::new(session));
    let peer = Arc::new(peer);
    if !worker.hooks.as_ref().is_none_or(|hooks| hooks.on_open(&peer)) {
        return close(&mut quic, worker, ErrorCode::NO_ERROR, "").await;
    }
    let connection = Http3Connection::new(quic, &worker.settings, worker.limits);
    let connection = RefCell::new(connection);
    connection.borrow_mut().begin();
    let mut driver = Driver {
        worker,
        peer: &peer,
        deadline: &deadline,
        connection: &connection,
        exchange: |request| sink::serve(worker, &connection, &peer, request),
        exchanges: Exchanges::default(),
        phase: Phase::AwaitingRequest,
        stream_deadline: worker.deadlines.deadline(),
        handshake: handshake_deadline(&connection, worker),
        keep_alive: worker.deadlines.deadline(),
        requests: 0,
        refilled: Stopwatch::start(),
        drained: Stopwatch::start(),
    };
    let _close_hook = CloseHook::new(worker.hooks.as_deref(), &peer);
    let end = poll_fn(|cx| driver.poll(cx)).await;
    driver.close(end).await;
}

/// Completes the handshake, or returns when the client may send requests as early data.
async fn handshake(quic: &mut Connection, deadline: &Deadline) -> Result<()> {
    poll_fn(|cx| {
        quic.poll_input(cx);
        if quic.accepts_early_data() {
            return Poll::Ready(Ok(()));
        }
        while let Some(event) = quic.next_event() {
            match event {
                ConnectionEvent::Connected => return Poll::Ready(Ok(())),
                ConnectionEvent::Lost(reason) => {
                    let failed = Error::new(ErrorKind::TlsFailed, "the QUIC handshake failed");
                    return Poll::Ready(Err(failed.with_source(reason)));
                }
                // There are no streams without early data.
                ConnectionEvent::Stream(_) => {}
            }
        }
        let _ = quic.poll_send(cx);
        deadline.poll_expired(cx).map(|()| Err(slow_handshake()))
    })
    .await
}

fn slow_handshake() -> Error {
    Error::new(ErrorKind::TooSlow, "the QUIC handshake took too long")
}

/// Returns the deadline of a handshake that is in progress after early data was accepted.
fn handshake_deadline<A>(
    connection: &RefCell<Http3Connection>,
    worker: &WorkerContext<A>,
) -> Option<Deadline> {
    let is_handshaking = connection.borrow_mut().quic().is_handshaking();
    is_handshaking.then(|| {
        let deadline = worker.deadlines.deadline();
        deadline.set(worker.settings.head_timeout);
        deadline
    })
}

/// Closes a connection, and sends its last packets.
async fn close<A>(
    quic: &mut Connection,
    worker: &WorkerContext<A>,
    code: ErrorCode,
    reason: &'static str,
) {
    if !quic.is_closed() {
        quic.close(code.0, reason);
    }
    let deadline = worker.deadlines.deadline();
    deadline.set(quic.closing_time());
    poll_fn(|cx| match quic.poll_drained(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => deadline.poll_expired(cx),
    })
    .await
}

struct Driver<'a, A, E, F> {
    worker: &'a WorkerContext<A>,
    peer: &'a Arc<Peer>,
    deadline: &'a Deadline,
    connection: &'a RefCell<Http3Connection>,
    /// Creates the future of an exchange.
    exchange: E,
    exchanges: Exchanges<F>,
    phase: Phase,
    /// Deadline of the oldest request whose head is incomplete, or of output that the client does
    /// not receive.
    stream_deadline: Deadline,
    /// Deadline of the handshake, if requests were accepted before its end.
    handshake: Option<Deadline>,
    /// Deadline of the next PING while requests are in progress.
    keep_alive: Deadline,
    requests: u64,
    /// Time at which the flood budget was last refilled.
    refilled: Stopwatch,
    /// Time at which the last request was completed, in the phase `Drained`.
    drained: Stopwatch,
}

/// The phases of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No request was received yet.
    AwaitingRequest,
    /// Requests are in progress.
    Active,
    Idle,
    /// GOAWAY was sent. Earlier requests are being completed.
    Draining,
    /// GOAWAY was sent, and no requests are in progress. The client may have sent one before it
    /// has received the GOAWAY.
    Drained,
}

/// The reason for the end of a connection.
enum End {
    /// The connection was closed by either side, or has idled.
    Closed,
    /// A connection error (RFC 9114 §8), sent to the client.
    ProtocolError(ErrorCode),
    Failed(Error),
}

/// The reason of a connection error.
const VIOLATION: &str = "the client violates the HTTP/3 protocol";

/// Interval of the PINGs that detect a client that is gone: a third of the shortest idle time-out
/// of the transport.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

impl<A, E, F> Driver<'_, A, E, F>
where
    A: Application,
    E: Fn(StreamRequest) -> F,
    F: Future<Output = ()>,
{
    /// Makes all possible progress. Ready at the end of the connection.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match self.poll_events(cx) {
            Ok(true) => return Poll::Ready(End::Closed),
            Ok(false) => {}
            Err(end) => return Poll::Ready(end),
        }
        if let Err(end) = self.poll_stream_deadlines(cx) {
            return Poll::Ready(end);
        }
        if self.handshake.as_ref().is_some_and(|handshake| handshake.poll_expired(cx).is_ready()) {
            return Poll::Ready(End::Failed(slow_handshake()));
        }
        while self.update_phase() {}
        let _ = self.connection.borrow_mut().quic().poll_send(cx);
        self.poll_keep_alive(cx);
        if self.deadline.poll_expired(cx).is_pending() {
            return Poll::Pending;
        }
        match self.phase {
            Phase::AwaitingRequest => {
                let reason = "the first request was received too slowly";
                return Poll::Ready(End::Failed(Error::new(ErrorKind::TooSlow, reason)));
            }
            Phase::Active | Phase::Draining => {}
            Phase::Idle => {
                self.begin_drain();
                cx.waker().wake_by_ref();
            }
            Phase::Drained => {
                if self.poll_delivered(cx) {
                    return Poll::Ready(End::Closed);
                }
            }
        }
        Poll::Pending
    }

    /// Processes input and exchanges until none of them makes progress. Returns true at the end of
    /// the connection.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        self.connection.borrow_mut().quic().poll_input(cx);
        self.refill()?;
        loop {
            let mut has_work = self.process_events(cx)?;
            self.connection.borrow_mut().write_streams();
            self.exchanges.poll(cx);
            let connection = &mut *self.connection.borrow_mut();
            connection.poll_ready_streams(cx).map_err(End::ProtocolError)?;
            has_work |= connection.has_requests();
            if !has_work {
                connection.send_feedback().map_err(End::ProtocolError)?;
                return Ok(connection.quic().is_closed());
            }
        }
    }

    /// Resets the streams whose head is incomplete for too long, and the streams whose client does
    /// not receive their output.
    fn poll_stream_deadlines(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let (now, timeout) = (self.deadline.now_millis(), self.worker.settings.head_timeout);
        let connection = &mut *self.connection.borrow_mut();
        let head = connection.expire_incomplete(now, timeout).map_err(End::ProtocolError)?;
        let output = connection.expire_lingering(now, &self.worker.settings);
        if let Some(remaining) = head.into_iter().chain(output).min() {
            self.stream_deadline.set(remaining);
            // The task is woken then, and checks the time again.
            let _ = self.stream_deadline.poll_expired(cx);
        }
        Ok(())
    }

    /// Adds the credit for the elapsed time, and for what was sent in it, to the flood budget.
    fn refill(&mut self) -> Result<(), End> {
        let waited = std::mem::replace(&mut self.refilled, Stopwatch::start());
        let elapsed = self.refilled.since(waited);
        self.connection.borrow_mut().refill_flood(elapsed).map_err(End::ProtocolError)
    }

    /// Processes the events of the transport, and starts the requests that were received. Returns
    /// true if there were any.
    fn process_events(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut has_events = false;
        loop {
            let mut connection = self.connection.borrow_mut();
            match connection.quic().next_event() {
                None => {
                    drop(connection);
                    return Ok(self.start_requests(cx) || has_events);
                }
                Some(ConnectionEvent::Connected) => self.handshake = None,
                Some(ConnectionEvent::Lost(reason)) => return Err(lost(reason)),
                Some(ConnectionEvent::Stream(event)) => {
                    connection.on_stream_event(event).map_err(End::ProtocolError)?;
                    drop(connection);
                    // Before the next event: a response is written once its request is read.
                    self.start_requests(cx);
                }
            }
            has_events = true;
        }
    }

    fn start_requests(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_requests = false;
        loop {
            let request = self.connection.borrow_mut().next_request();
            let Some(request) = request else { return has_requests };
            has_requests = true;
            self.start_exchange(request, cx);
        }
    }

    fn start_exchange(&mut self, request: StreamRequest, cx: &mut Context<'_>) {
        match self.phase {
            Phase::AwaitingRequest | Phase::Idle => self.enter_phase(Phase::Active),
            Phase::Drained => self.enter_phase(Phase::Draining),
            Phase::Active | Phase::Draining => {}
        }
        self.requests += 1;
        self.exchanges.start((self.exchange)(request), cx);
        if self.requests == self.worker.settings.max_requests && self.phase == Phase::Active {
            self.begin_drain();
        }
    }

    /// Returns true if the client has received all responses, or has had the time for it: the end
    /// of the connection discards the rest.
    fn poll_delivered(&mut self, cx: &mut Context<'_>) -> bool {
        let connection = &mut *self.connection.borrow_mut();
        let elapsed = self.drained.elapsed();
        let rest = self.worker.settings.linger_timeout.saturating_sub(elapsed);
        if rest.is_zero() || connection.is_delivered() {
            return true;
        }
        self.deadline.set(connection.quic().closing_time().min(rest));
        self.deadline.poll_expired(cx).is_ready()
    }

    /// Enters the next phase, if its condition is met. Returns true if another one may follow.
    fn update_phase(&mut self) -> bool {
        let connection = self.connection.borrow();
        let is_idle = self.exchanges.is_empty() && !connection.has_streams();
        let is_going_away = connection.is_going_away();
        drop(connection);
        match self.phase {
            Phase::Drained => {}
            Phase::Draining if is_idle => {
                let mut connection = self.connection.borrow_mut();
                let closing_time = connection.quic().closing_time();
                drop(connection);
                self.deadline.set(closing_time.min(self.worker.settings.linger_timeout));
                self.phase = Phase::Drained;
                self.drained = Stopwatch::start();
            }
            Phase::Draining => {}
            _ if self.worker.is_last_response(self.peer) || is_going_away => {
                self.begin_drain();
                return true;
            }
            Phase::Active if is_idle => {
                self.connection.borrow_mut().shrink();
                let timeout = self.worker.settings.idle_timeout;
                self.deadline.set_awaiting(Awaited::NextRequest, timeout);
                self.phase = Phase::Idle;
            }
            Phase::AwaitingRequest | Phase::Active | Phase::Idle => {}
        }
        false
    }

    fn enter_phase(&mut self, phase: Phase) {
        self.deadline.clear();
        self.phase = phase;
        self.keep_alive.set(KEEP_ALIVE_INTERVAL);
    }

    /// Sends a PING from time to time while requests are in progress.
    fn poll_keep_alive(&mut self, cx: &mut Context<'_>) {
        match self.phase {
            Phase::Active | Phase::Draining => {
                if self.keep_alive.poll_expired(cx).is_ready() {
                    self.keep_alive.set(KEEP_ALIVE_INTERVAL);
                    self.connection.borrow_mut().quic().ping();
                    cx.waker().wake_by_ref();
                }
            }
            Phase::AwaitingRequest | Phase::Idle | Phase::Drained => self.keep_alive.clear(),
        }
    }

    /// Announces by GOAWAY that no further requests will be accepted (RFC 9114 §5.2).
    fn begin_drain(&mut self) {
        self.connection.borrow_mut().announce_goaway();
        self.enter_phase(Phase::Draining);
    }

    /// Closes the connection, and waits for the exchanges. They end after a disconnect: immediately
    /// with `Disconnect::Cancel`, and on their own if they are detached or upgraded.
    async fn close(&mut self, end: End) {
        let code = self.begin_close(end);
        // In front of the close: from its identifier the client sees which requests were not
        // processed, and repeats them (RFC 9114 §5.2).
        let send = |cx: &mut Context<'_>| self.connection.borrow_mut().quic().poll_send(cx);
        let _ = poll_fn(|cx| Poll::Ready(send(cx))).await;
        self.close_transport(code);
        poll_fn(|cx| {
            self.exchanges.poll(cx);
            let is_drained = self.connection.borrow_mut().quic().poll_drained(cx).is_ready();
            let is_closed = is_drained || self.deadline.poll_expired(cx).is_ready();
            match is_closed && self.exchanges.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Reports the reason of the end, ends the acceptance of requests and resets all streams.
    /// Returns the code of the close.
    fn begin_close(&mut self, end: End) -> ErrorCode {
        let code = match &end {
            End::ProtocolError(code) => *code,
            End::Closed | End::Failed(_) => ErrorCode::NO_ERROR,
        };
        match end {
            End::Closed => {}
            End::ProtocolError(_) => self.worker.report(self.peer, &Error::malformed(VIOLATION)),
            End::Failed(error) => self.worker.report(self.peer, &error),
        }
        let connection = &mut *self.connection.borrow_mut();
        connection.end_requests();
        connection.reset_all();
        code
    }

    fn close_transport(&mut self, code: ErrorCode) {
        let connection = &mut *self.connection.borrow_mut();
        let quic = connection.quic();
        if !quic.is_closed() {
            quic.close(code.0, if code == ErrorCode::NO_ERROR { "" } else { VIOLATION });
        }
        self.deadline.set(quic.closing_time());
    }
}

/// Returns the end for the reason that the transport gives.
fn lost(reason: quinn_proto::ConnectionError) -> End {
    use quinn_proto::ConnectionError::{
        ApplicationClosed, ConnectionClosed, LocallyClosed, Reset, TimedOut, TransportError,
    };
    match reason {
        ApplicationClosed(_) | ConnectionClosed(_) | LocallyClosed | Reset | TimedOut => {
            End::Closed
        }
        reason @ TransportError(_) => {
            let error = Error::malformed("the client violates the QUIC protocol");
            End::Failed(error.with_source(reason))
        }
        reason => End::Failed(Error::disconnected().with_source(reason)),
    }
}
