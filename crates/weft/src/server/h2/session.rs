//! The task of a connection: it reads, polls exchanges, writes, and keeps the deadlines.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::app::Application;
use crate::clock::deadline::{Deadline, Pace, Stopwatch};
use crate::error::{Error, ErrorKind, Result};
use crate::net::buffers::INPUT_BYTES;
use crate::net::reader::Reader;
use crate::server::connection;
use crate::server::h2::connection::{Connection, StreamRequest};
use crate::server::h2::exchange;
use crate::server::linger;
use crate::server::worker::Worker;
use weft_proto::http2::flood::FloodLimiter;
use weft_proto::http2::frame::{
    ErrorCode, FRAME_HEADER_LEN, FrameHeader, MAX_FRAME_PAYLOAD, PREFACE,
};

/// Serves an HTTP/2 connection to its end.
pub(crate) async fn serve<A: Application>(conn: &mut connection::Connection, worker: &Worker<A>) {
    let Some(reader) = conn.reader.take() else { return };
    let (peer, deadline) = (&conn.shared.peer, &conn.deadline);
    let connection = Connection::new(conn.writer.take(), &worker.settings, worker.limits);
    let connection = RefCell::new(connection);
    let mut session = Session {
        worker,
        deadline,
        reader,
        connection: &connection,
        exchange: |request| exchange::serve(worker, &connection, peer, request),
        exchanges: FuturesUnordered::new(),
        spare: None,
        phase: Phase::AwaitsPreface,
        sent_before: 0,
        requests: 0,
        pace: Pace::new(&worker.settings),
        write_deadline: worker.deadlines.deadline(),
        flood: FloodLimiter::new(),
        refilled: Stopwatch::start(),
        without_wait: 0,
    };
    if let Err(error) = session.run().await {
        worker.report(peer, &error);
    }
    session.linger().await;
}

/// The number of bytes received without a wait after which other tasks get their turn.
const BUDGET_BYTES: usize = 256 << 10;

struct Session<'a, A, E, F> {
    worker: &'a Worker<A>,
    deadline: &'a Deadline,
    reader: Reader,
    connection: &'a RefCell<Connection>,
    /// Answers a request.
    exchange: E,
    /// The exchanges in progress.
    exchanges: FuturesUnordered<Pin<Box<F>>>,
    /// The allocation of an exchange that completed at once, for the next one.
    spare: Option<Pin<Box<F>>>,
    phase: Phase,
    /// The number of bytes sent when the deadline of the phase was set.
    sent_before: u64,
    requests: u64,
    /// The rate at which the client receives.
    pace: Pace,
    write_deadline: Deadline,
    flood: FloodLimiter,
    /// The time at which the flood budget was last refilled.
    refilled: Stopwatch,
    /// The number of bytes received since the last wait.
    without_wait: usize,
}

/// The phases of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client's preface was not received completely.
    AwaitsPreface,
    /// No request was received yet.
    AwaitsRequest,
    /// Requests are in progress.
    Busy,
    Idle,
    /// GOAWAY was sent. Requests sent before are finished.
    Draining,
    /// GOAWAY was sent, and no requests are in progress.
    Drained,
}

/// The end of a connection.
enum End {
    /// Either side has closed it.
    Closed,
    /// A connection error (RFC 9113 §5.4.1), sent to the client by GOAWAY.
    Broken(ErrorCode, Error),
    Failed(Error),
}

/// The state of the input after all complete frames were processed.
#[derive(PartialEq, Eq)]
enum Input {
    Drained,
    /// Output has to be sent before more frames are processed.
    Blocked,
    Ended,
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Failed(error)
    }
}

impl<A, E, F> Session<'_, A, E, F>
where
    A: Application,
    E: Fn(StreamRequest) -> F,
    F: Future<Output = ()>,
{
    async fn run(&mut self) -> Result<()> {
        // Input that was received before the protocol was known.
        let end = match self.charge(0) {
            Ok(()) => poll_fn(|cx| self.poll(cx)).await,
            Err(end) => end,
        };
        let end = match end {
            End::Closed => Ok(()),
            End::Failed(error) => Err(error),
            End::Broken(code, error) => {
                self.connection.borrow_mut().send_goaway(code);
                self.deadline.set(self.worker.settings.linger_timeout);
                poll_fn(|cx| match self.poll_flush(cx) {
                    Ok(Poll::Pending) => self.deadline.poll_expired(cx),
                    Ok(Poll::Ready(())) | Err(_) => Poll::Ready(()),
                })
                .await;
                Err(error)
            }
        };
        self.connection.borrow_mut().reset_all();
        // Without their client the exchanges end: at once if they are cancelled by that, in
        // their own time if they are detached or upgraded.
        while self.exchanges.next().await.is_some() {}
        end
    }

    /// Does everything that is possible now; ready at the connection's end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match self.poll_io(cx) {
            Ok(true) => return Poll::Ready(End::Closed),
            Ok(false) => {}
            Err(end) => return Poll::Ready(end),
        }
        self.return_buffers();
        if self.deadline.poll_expired(cx).is_pending() {
            return Poll::Pending;
        }
        match self.phase {
            Phase::AwaitsPreface | Phase::AwaitsRequest => Poll::Ready(End::Failed(too_slow())),
            Phase::Busy | Phase::Draining => Poll::Pending,
            Phase::Idle => {
                self.drain();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            // The client receives slowly, but it receives.
            Phase::Drained if self.is_receiving() => {
                self.rest_in(Phase::Drained, self.worker.settings.stall_timeout);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            // It does not receive, or does not acknowledge the PING.
            Phase::Drained => Poll::Ready(End::Closed),
        }
    }

    /// Reads, polls exchanges and writes until none of these makes progress; `true` at the end.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        loop {
            while let Poll::Ready(Some(())) = self.exchanges.poll_next_unpin(cx) {}
            self.connection.borrow_mut().poll_ready_streams(cx);
            // Exchanges that were added or woken are polled by another turn of this loop.
            let mut has_work = false;
            let input = self.poll_read(cx, &mut has_work)?;
            has_work |= self.connection.borrow_mut().pump();
            let is_sent = self.poll_flush(cx)?.is_ready();
            match input {
                Input::Ended => return Ok(true),
                _ if has_work => {}
                Input::Blocked if is_sent => {}
                _ if is_sent && self.connection.borrow().can_send() => {}
                _ if self.change_phase() => {}
                _ => return Ok(is_sent && self.is_over()),
            }
        }
    }

    /// Whether the client knows that no further responses follow.
    fn is_over(&self) -> bool {
        self.exchanges.is_empty() && self.connection.borrow().is_finished()
    }

    /// Processes the received frames. Sets `has_work` if a request was begun that is not done.
    fn poll_read(&mut self, cx: &mut Context<'_>, has_work: &mut bool) -> Result<Input, End> {
        loop {
            if !self.reader.buffer.is_empty() && self.process_input(cx, has_work)? {
                return Ok(Input::Blocked);
            }
            if self.without_wait >= BUDGET_BYTES {
                self.without_wait = 0;
                cx.waker().wake_by_ref();
                return Ok(Input::Drained);
            }
            if self.reader.buffer.capacity() == 0 {
                // An idle connection owns no buffer.
                match self.reader.poll_readable(cx) {
                    Poll::Ready(ready) => ready.map_err(Error::from)?,
                    Poll::Pending => return Ok(Input::Drained),
                }
                self.reader.buffer = self.worker.buffers.take_input();
            }
            let before = self.reader.buffer.len();
            match self.reader.poll_fill(cx, room(before)) {
                Poll::Ready(Ok(0)) => return Ok(Input::Ended),
                Poll::Ready(Ok(bytes)) => {
                    self.without_wait += bytes;
                    self.charge(before)?;
                }
                Poll::Ready(Err(error)) => return Err(Error::from(error).into()),
                Poll::Pending => {
                    self.without_wait = 0;
                    return Ok(Input::Drained);
                }
            }
        }
    }

    /// Charges the flood budget for the frames in the input from this position on.
    fn charge(&mut self, before: usize) -> Result<(), End> {
        let waited = std::mem::replace(&mut self.refilled, Stopwatch::start());
        self.flood.on_time_elapsed(self.refilled.since(waited));
        match self.flood.on_bytes_received(&self.reader.buffer[before..]) {
            true => Ok(()),
            false => Err(broken(ErrorCode::ENHANCE_YOUR_CALM)),
        }
    }

    /// Processes complete frames; `true` if output has to be sent first.
    fn process_input(&mut self, cx: &mut Context<'_>, has_work: &mut bool) -> Result<bool, End> {
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
    ) -> Result<bool, End> {
        if self.phase == Phase::AwaitsPreface && !self.take_preface(input)? {
            return Ok(false);
        }
        let mut used = 0;
        let is_blocked = loop {
            let Some((bytes, rest)) = input[used..].split_first_chunk() else { break false };
            let head = FrameHeader::read(bytes);
            if head.length > MAX_FRAME_PAYLOAD {
                return Err(broken(ErrorCode::FRAME_SIZE_ERROR));
            }
            let Some(payload) = rest.get(..head.length) else { break false };
            let mut connection = self.connection.borrow_mut();
            if connection.writer().must_flush() {
                break true;
            }
            let request = connection.on_frame(head, payload).map_err(broken)?;
            drop(connection);
            used += FRAME_HEADER_LEN + head.length;
            if let Some(request) = request {
                *has_work |= self.begin(request, cx);
            }
        };
        input.advance(used);
        Ok(is_blocked)
    }

    /// Checks the client's preface (RFC 9113 §3.4); `false` if it is incomplete.
    fn take_preface(&mut self, input: &mut BytesMut) -> Result<bool, End> {
        let length = input.len().min(PREFACE.len());
        if input[..length] != PREFACE[..length] {
            return Err(broken(ErrorCode::PROTOCOL_ERROR));
        }
        if length < PREFACE.len() {
            return Ok(false);
        }
        input.advance(length);
        self.phase = Phase::AwaitsRequest;
        Ok(true)
    }

    /// Begins an exchange; `true` if it is not complete, or has a pipe to be watched.
    fn begin(&mut self, request: StreamRequest, cx: &mut Context<'_>) -> bool {
        match self.phase {
            Phase::AwaitsRequest | Phase::Idle => self.work_in(Phase::Busy),
            // The client sent it before it received the GOAWAY.
            Phase::Drained => self.work_in(Phase::Draining),
            Phase::AwaitsPreface | Phase::Busy | Phase::Draining => {}
        }
        self.requests += 1;
        let has_pipe = request.pipe.is_some();
        let future = (self.exchange)(request);
        let mut exchange = match self.spare.take() {
            Some(mut spare) => {
                spare.set(future);
                spare
            }
            None => Box::pin(future),
        };
        let is_done = exchange.as_mut().poll(cx).is_ready();
        if is_done {
            self.spare = Some(exchange);
        } else {
            self.exchanges.push(exchange);
        }
        if self.requests == self.worker.settings.max_requests && self.phase == Phase::Busy {
            self.drain();
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
        self.flood.on_bytes_sent(sent);
        connection.on_sent(sent);
        match flushed {
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// Enters the phase that is due; `true` if that produced output.
    fn change_phase(&mut self) -> bool {
        let settings = &self.worker.settings;
        let mut connection = self.connection.borrow_mut();
        let is_idle = self.exchanges.is_empty()
            && !connection.is_held_elsewhere()
            // While output is being sent, the write deadline applies.
            && connection.writer().is_empty();
        let has_streams = connection.has_streams();
        let is_going_away = connection.is_going_away();
        drop(connection);
        match self.phase {
            // GOAWAY must not precede the client's preface.
            Phase::Drained | Phase::AwaitsPreface => {}
            Phase::Draining if is_idle && !has_streams => {
                self.rest_in(Phase::Drained, settings.linger_timeout);
            }
            // The client has not received all of the responses.
            Phase::Draining if is_idle => self.rest_in(Phase::Drained, settings.stall_timeout),
            Phase::Draining => {}
            _ if self.worker.draining() || is_going_away => {
                self.drain();
                return true;
            }
            Phase::Busy if is_idle => {
                self.connection.borrow_mut().shrink();
                self.rest_in(Phase::Idle, settings.idle_timeout);
            }
            Phase::AwaitsRequest | Phase::Busy | Phase::Idle => {}
        }
        false
    }

    fn work_in(&mut self, phase: Phase) {
        self.deadline.clear();
        self.phase = phase;
    }

    fn rest_in(&mut self, phase: Phase, time: Duration) {
        self.deadline.set(time);
        self.phase = phase;
        self.sent_before = self.connection.borrow().total_sent();
    }

    /// Whether the client has received a part of the remaining responses since the deadline was
    /// set.
    fn is_receiving(&self) -> bool {
        let connection = self.connection.borrow();
        connection.has_streams() && connection.total_sent() > self.sent_before
    }

    /// Tells the client that no further requests are accepted (RFC 9113 §6.8).
    fn drain(&mut self) {
        self.connection.borrow_mut().announce_goaway();
        self.work_in(Phase::Draining);
    }

    /// Returns empty buffers to the worker: a connection at rest owns none.
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

    /// Reads for a while after the last frame, which a reset would destroy.
    async fn linger(&mut self) {
        self.deadline.set(self.worker.settings.linger_timeout);
        // Taken out, since no borrow may be held across the wait.
        let mut writer = self.connection.borrow_mut().writer().take();
        if linger::shut_down(&mut writer, self.deadline).await {
            linger::discard(&mut self.reader, self.deadline).await;
        }
    }
}

/// Room for two frames of the maximum size, for input that is more than small heads.
const MAX_INPUT_BYTES: usize = 2 * (FRAME_HEADER_LEN + MAX_FRAME_PAYLOAD);

/// The room for the next read, behind this number of buffered bytes.
fn room(buffered: usize) -> usize {
    match buffered {
        0 => INPUT_BYTES,
        _ => MAX_INPUT_BYTES.saturating_sub(buffered).max(1),
    }
}

fn broken(code: ErrorCode) -> End {
    let reason = match code {
        ErrorCode::ENHANCE_YOUR_CALM => "the client sends far more frames than it has a use for",
        _ => "the client breaks the rules of HTTP/2",
    };
    End::Broken(code, Error::new(ErrorKind::Malformed, reason))
}

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the first request came too slowly")
}
