//! The task of a connection: reads frames, polls exchanges, writes output and enforces deadlines.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::future;

use crate::app::Application;
use crate::clock::deadline::{Awaited, Deadline, Pace, Stopwatch};
use crate::error::{Error, ErrorKind, Result};
use crate::net::buffers::INPUT_BYTES;
use crate::net::reader::{ReadBudget, Reader};
use crate::peer::Peer;
use crate::server::connection::ServerConnection;
use crate::server::h2::connection::{Http2Connection, StreamRequest};
use crate::server::h2::sink;
use crate::server::linger;
use crate::server::multiplex::exchanges::Exchanges;
use crate::server::worker_context::WorkerContext;
use weft_proto::http2::frame::{
    self, ErrorCode, FRAME_HEADER_LEN, MAX_FRAME_PAYLOAD, PREFACE, kind,
};

/// Serves an HTTP/2 connection until it closes.
pub(crate) async fn serve<A: Application>(conn: &mut ServerConnection, worker: &WorkerContext<A>) {
    let Some(reader) = conn.reader.take() else { return };
    let (peer, deadline) = (&conn.shared.peer, &conn.deadline);
    let connection = Http2Connection::new(conn.writer.take(), &worker.settings, worker.limits);
    let connection = RefCell::new(connection);
    let mut driver = Driver {
        worker,
        peer,
        deadline,
        reader,
        connection: &connection,
        exchange: |request| sink::serve(worker, &connection, peer, request),
        exchanges: Exchanges::default(),
        phase: Phase::AwaitingPreface,
        sent_at_phase_start: 0,
        requests: 0,
        pace: Pace::new(&worker.settings),
        write_deadline: worker.deadlines.deadline(),
        refilled: Stopwatch::start(),
        budget: ReadBudget::default(),
    };
    if let Err(error) = driver.run().await {
        worker.report(peer, &error);
    }
    driver.close().await;
}

struct Driver<'a, A, E, F> {
    worker: &'a WorkerContext<A>,
    peer: &'a Peer,
    deadline: &'a Deadline,
    reader: Reader,
    connection: &'a RefCell<Http2Connection>,
    /// Creates the future of an exchange.
    exchange: E,
    exchanges: Exchanges<F>,
    phase: Phase,
    /// Number of bytes sent when the deadline of the phase was set.
    sent_at_phase_start: u64,
    requests: u64,
    /// Minimum rate at which the client must receive.
    pace: Pace,
    write_deadline: Deadline,
    /// Time at which the flood budget was last refilled.
    refilled: Stopwatch,
    budget: ReadBudget,
}

/// The phases of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client's preface was not received completely.
    AwaitingPreface,
    /// No request was received yet.
    AwaitingRequest,
    /// Requests are in progress.
    Active,
    Idle,
    /// GOAWAY was sent. Earlier requests are being completed.
    Draining,
    /// GOAWAY was sent, and no requests are in progress.
    Drained,
}

/// The reason for the end of a connection.
enum ConnectionEnd {
    /// The connection was closed by either side.
    Closed,
    /// A connection error (RFC 9113 §5.4.1), sent to the client in a GOAWAY.
    ProtocolError(ErrorCode, Error),
    Failed(Error),
}

/// The state of the input after all complete frames were processed.
#[derive(PartialEq, Eq)]
enum Input {
    Processed,
    /// Output has to be sent before more frames are processed.
    Blocked,
    Ended,
}

impl From<Error> for ConnectionEnd {
    fn from(error: Error) -> ConnectionEnd {
        ConnectionEnd::Failed(error)
    }
}

impl<A, E, F> Driver<'_, A, E, F>
where
    A: Application,
    E: Fn(StreamRequest) -> F,
    F: Future<Output = ()>,
{
    async fn run(&mut self) -> Result<()> {
        // Input that was received before the protocol was known.
        self.on_received(self.reader.buffer.len());
        match poll_fn(|cx| self.poll(cx)).await {
            ConnectionEnd::Closed => Ok(()),
            ConnectionEnd::Failed(error) => Err(error),
            ConnectionEnd::ProtocolError(code, error) => {
                self.connection.borrow_mut().send_goaway(code);
                self.deadline.set(self.worker.settings.linger_timeout);
                poll_fn(|cx| match self.poll_flush(cx) {
                    Ok(Poll::Pending) => self.deadline.poll_expired(cx),
                    Ok(Poll::Ready(())) | Err(_) => Poll::Ready(()),
                })
                .await;
                Err(error)
            }
        }
    }

    /// Makes all possible progress. Ready at the end of the connection.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        match self.poll_io(cx) {
            Ok(true) => return Poll::Ready(ConnectionEnd::Closed),
            Ok(false) => {}
            Err(end) => return Poll::Ready(end),
        }
        self.return_buffers();
        if self.deadline.poll_expired(cx).is_pending() {
            return Poll::Pending;
        }
        match self.phase {
            Phase::AwaitingPreface | Phase::AwaitingRequest => {
                Poll::Ready(ConnectionEnd::Failed(too_slow()))
            }
            Phase::Active | Phase::Draining => Poll::Pending,
            Phase::Idle => {
                self.begin_drain();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            // The client has received a part of the output since the deadline was set.
            Phase::Drained if self.is_receiving() => {
                self.enter_phase_with_timeout(Phase::Drained, self.worker.settings.stall_timeout);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            // The client receives nothing, or has not acknowledged the PING.
            Phase::Drained => Poll::Ready(ConnectionEnd::Closed),
        }
    }

    /// Reads, polls exchanges and writes until none of these makes progress. Returns true at the
    /// end of the connection.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Result<bool, ConnectionEnd> {
        loop {
            self.exchanges.poll(cx);
            self.connection.borrow_mut().poll_ready_streams(cx);
            // Exchanges that were added or woken are polled in another iteration.
            let mut has_work = false;
            let input = self.poll_read(cx, &mut has_work)?;
            has_work |= self.connection.borrow_mut().pump();
            let is_sent = self.poll_flush(cx)?.is_ready();
            match input {
                Input::Ended => return Ok(true),
                _ if has_work => {}
                Input::Blocked if is_sent => {}
                _ if is_sent && self.connection.borrow_mut().can_send() => {}
                _ if self.update_phase() => {}
                _ => return Ok(is_sent && self.is_finished()),
            }
        }
    }

    /// Returns true if all exchanges are complete and the final GOAWAY is written.
    fn is_finished(&self) -> bool {
        self.exchanges.is_empty() && self.connection.borrow().is_finished()
    }

    /// Reads and processes frames. Sets `has_work` if a request was started that must be polled
    /// again.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        has_work: &mut bool,
    ) -> Result<Input, ConnectionEnd> {
        loop {
            if !self.reader.buffer.is_empty() && self.process_input(cx, has_work)? {
                return Ok(Input::Blocked);
            }
            if self.reader.buffer.capacity() == 0 {
                // An idle connection owns no buffer.
                match self.reader.poll_readable(cx) {
                    Poll::Ready(ready) => ready.map_err(Error::of_connection)?,
                    Poll::Pending => return Ok(Input::Processed),
                }
                self.reader.buffer = self.worker.buffers.take_input();
            }
            let before = self.reader.buffer.len();
            match self.budget.poll_fill(&mut self.reader, cx, read_size(before)) {
                Poll::Ready(Ok(0)) => return Ok(Input::Ended),
                Poll::Ready(Ok(bytes)) => self.on_received(bytes),
                Poll::Ready(Err(error)) => return Err(Error::of_connection(error).into()),
                Poll::Pending => return Ok(Input::Processed),
            }
        }
    }

    /// Adds the credit for received bytes and elapsed time to the flood budget.
    fn on_received(&mut self, bytes: usize) {
        let waited = std::mem::replace(&mut self.refilled, Stopwatch::start());
        let mut connection = self.connection.borrow_mut();
        let flood = connection.flood();
        flood.on_time_elapsed(self.refilled.since(waited));
        flood.on_bytes_received(bytes);
    }

    /// Processes complete frames. Returns true if output must be sent first.
    fn process_input(
        &mut self,
        cx: &mut Context<'_>,
        has_work: &mut bool,
    ) -> Result<bool, ConnectionEnd> {
        let mut input = std::mem::take(&mut self.reader.buffer);
        let processed = self.process_frames(&mut input, cx, has_work);
        self.reader.buffer = input;
        processed
    }

    fn process_frames(
        &mut self,
        input: &mut BytesMut,
        cx: &mut Context<'_>,
        has_work: &mut bool,
    ) -> Result<bool, ConnectionEnd> {
        if self.phase == Phase::AwaitingPreface && !self.take_preface(input)? {
            return Ok(false);
        }
        let mut used = 0;
        let is_blocked = loop {
            let first = frame::first(&input[used..]).map_err(protocol_error)?;
            let Some((head, payload)) = first else { break false };
            let mut connection = self.connection.borrow_mut();
            if connection.writer().must_flush() {
                break true;
            }
            if !connection.flood().on_frame(head) {
                return Err(protocol_error(ErrorCode::ENHANCE_YOUR_CALM));
            }
            let request = connection.on_frame(head, payload).map_err(protocol_error)?;
            drop(connection);
            // A client that keeps its connection by PING could as well send a request.
            if head.kind == kind::PING && self.phase == Phase::Idle {
                self.deadline.postpone(self.worker.settings.idle_timeout);
            }
            used += FRAME_HEADER_LEN + head.length;
            if let Some(request) = request {
                *has_work |= self.start_exchange(request, cx);
            }
        };
        input.advance(used);
        Ok(is_blocked)
    }

    /// Checks the client's preface (RFC 9113 §3.4). Returns false if it is incomplete.
    fn take_preface(&mut self, input: &mut BytesMut) -> Result<bool, ConnectionEnd> {
        let length = input.len().min(PREFACE.len());
        if input[..length] != PREFACE[..length] {
            return Err(protocol_error(ErrorCode::PROTOCOL_ERROR));
        }
        if length < PREFACE.len() {
            return Ok(false);
        }
        input.advance(length);
        self.phase = Phase::AwaitingRequest;
        Ok(true)
    }

    /// Starts an exchange. Returns true if it is not complete, or has a pipe.
    fn start_exchange(&mut self, request: StreamRequest, cx: &mut Context<'_>) -> bool {
        match self.phase {
            Phase::AwaitingRequest | Phase::Idle => self.enter_phase(Phase::Active),
            // The client sent it before it received the GOAWAY.
            Phase::Drained => self.enter_phase(Phase::Draining),
            Phase::AwaitingPreface | Phase::Active | Phase::Draining => {}
        }
        self.requests += 1;
        let has_pipe = request.pipe.is_some();
        let is_done = self.exchanges.start((self.exchange)(request), cx);
        if self.requests == self.worker.settings.max_requests && self.phase == Phase::Active {
            self.begin_drain();
        }
        has_pipe || !is_done
    }

    /// Writes the buffered output.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>> {
        let mut connection = self.connection.borrow_mut();
        let writer = connection.writer();
        if writer.is_empty() {
            return Ok(Poll::Ready(()));
        }
        let before = writer.waiting();
        let flushed = writer.poll_flush(cx, &self.write_deadline, &mut self.pace);
        let sent = before - writer.waiting();
        connection.on_sent(sent);
        match flushed {
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// Enters the next phase, if its condition is met. Returns true if that produced output.
    fn update_phase(&mut self) -> bool {
        let settings = &self.worker.settings;
        let mut connection = self.connection.borrow_mut();
        let is_idle = self.exchanges.is_empty()
            && !connection.has_open_pipes()
            // While output is being sent, the write deadline applies.
            && connection.writer().is_empty();
        let has_streams = connection.has_streams();
        let is_going_away = connection.is_going_away();
        drop(connection);
        match self.phase {
            // GOAWAY must not precede the client's preface.
            Phase::Drained | Phase::AwaitingPreface => {}
            Phase::Draining if is_idle && !has_streams => {
                self.enter_phase_with_timeout(Phase::Drained, settings.linger_timeout);
            }
            // The client has not received all of the responses.
            Phase::Draining if is_idle => {
                self.enter_phase_with_timeout(Phase::Drained, settings.stall_timeout)
            }
            Phase::Draining => {}
            _ if self.worker.is_last_response(self.peer) || is_going_away => {
                self.begin_drain();
                return true;
            }
            Phase::Active if is_idle => {
                self.connection.borrow_mut().shrink();
                self.enter_idle();
            }
            Phase::AwaitingRequest | Phase::Active | Phase::Idle => {}
        }
        false
    }

    fn enter_phase(&mut self, phase: Phase) {
        self.deadline.clear();
        self.phase = phase;
    }

    /// Waits for another request, until a timeout or another connection needs the room.
    fn enter_idle(&mut self) {
        self.deadline.set_awaiting(Awaited::NextRequest, self.worker.settings.idle_timeout);
        self.phase = Phase::Idle;
    }

    fn enter_phase_with_timeout(&mut self, phase: Phase, timeout: Duration) {
        self.deadline.set(timeout);
        self.phase = phase;
        self.sent_at_phase_start = self.connection.borrow().total_sent();
    }

    /// Returns true if the client has received a part of the remaining responses since the
    /// deadline was set.
    fn is_receiving(&self) -> bool {
        let connection = self.connection.borrow();
        connection.has_streams() && connection.total_sent() > self.sent_at_phase_start
    }

    /// Announces by GOAWAY that no further requests will be accepted (RFC 9113 §6.8).
    fn begin_drain(&mut self) {
        self.connection.borrow_mut().announce_goaway();
        self.enter_phase(Phase::Draining);
    }

    /// Returns empty buffers to the worker: an idle connection owns none.
    fn return_buffers(&mut self) {
        let buffer = &mut self.reader.buffer;
        if buffer.is_empty() && buffer.capacity() > 0 {
            self.worker.buffers.return_input(std::mem::take(buffer));
        }
        let mut connection = self.connection.borrow_mut();
        let writer = connection.writer();
        if writer.is_empty() && writer.out().capacity() > 0 {
            self.worker.buffers.return_output(writer.buffer.take_storage());
        }
    }

    /// Closes the socket, and waits for the exchanges. They end after a disconnect: immediately
    /// with `Disconnect::Cancel`, and on their own, without the socket, if they are detached or
    /// upgraded.
    async fn close(&mut self) {
        self.connection.borrow_mut().reset_all();
        // Moved out, because no borrow may be held across an await point.
        let mut writer = self.connection.borrow_mut().writer().take();
        let Driver { worker, deadline, reader, exchanges, .. } = self;
        let closed = async move {
            // A reset would destroy the last frames.
            linger::close(&mut writer, reader, deadline, worker.settings.linger_timeout).await;
            reader.close();
        };
        future::join(closed, exchanges.ended()).await;
    }
}

/// Buffer space for two frames of the maximum size, for input other than small heads.
const MAX_INPUT_BYTES: usize = 2 * (FRAME_HEADER_LEN + MAX_FRAME_PAYLOAD);

/// Returns the buffer space for the next read, after this number of buffered bytes.
fn read_size(buffered: usize) -> usize {
    match buffered {
        0 => INPUT_BYTES,
        _ => MAX_INPUT_BYTES.saturating_sub(buffered).max(1),
    }
}

fn protocol_error(code: ErrorCode) -> ConnectionEnd {
    let reason = match code {
        ErrorCode::ENHANCE_YOUR_CALM => "the client sends excessively many frames",
        _ => "the client violates the HTTP/2 protocol",
    };
    ConnectionEnd::ProtocolError(code, Error::new(ErrorKind::Malformed, reason))
}

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the first request was received too slowly")
}
