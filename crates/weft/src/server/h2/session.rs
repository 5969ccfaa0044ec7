//! A connection's task: it reads, lets requests be answered, writes, and keeps the clocks.

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
use crate::net::conn::Reader;
use crate::proto::http2::flood::Flood;
use crate::proto::http2::frame::{Code, HEAD_BYTES, Head, MOST_PAYLOAD_BYTES, PREFACE};
use crate::server::connection;
use crate::server::h2::connection::{Connection, Goodbye, Request};
use crate::server::h2::exchange::exchange;
use crate::server::worker::Worker;

/// Serves a connection that speaks HTTP/2, to its end.
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
        exchange: |request| exchange(worker, &connection, peer, request),
        exchanges: FuturesUnordered::new(),
        spare: None,
        phase: Phase::Opening,
        sent_before: 0,
        requests: 0,
        pace: Pace::new(&worker.settings),
        writing: worker.deadlines.deadline(),
        flood: Flood::new(),
        refilled: Stopwatch::start(),
        at_once: 0,
    };
    if let Err(error) = session.run().await {
        worker.report(peer, &error);
    }
    session.linger().await;
}

/// After so many bytes that came without a wait, others get their turn.
const TURN_BYTES: usize = 256 << 10;

struct Session<'a, A, E, F> {
    worker: &'a Worker<A>,
    deadline: &'a Deadline,
    reader: Reader,
    connection: &'a RefCell<Connection>,
    /// How a request is answered.
    exchange: E,
    /// Those that are being answered.
    exchanges: FuturesUnordered<Pin<Box<F>>>,
    /// The room of one that was done at once, for the next.
    spare: Option<Pin<Box<F>>>,
    phase: Phase,
    /// How much was sent when the deadline of the phase was set.
    sent_before: u64,
    requests: u64,
    /// The rate at which the client takes what is sent.
    pace: Pace,
    writing: Deadline,
    flood: Flood,
    /// When the account of frames last grew with time.
    refilled: Stopwatch,
    /// How many bytes came since the last wait.
    at_once: usize,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its preface has not come yet.
    Opening,
    /// Its first request has not come yet.
    Opened,
    /// There are requests to be answered.
    Busy,
    /// There are none.
    Resting,
    /// The client was told that there will be no further ones. Those that it has sent before
    /// are answered.
    Leaving,
    /// It was told, and nothing is left to be answered.
    Left,
}

/// How a connection comes to its end.
enum End {
    /// Either side has gone.
    Gone,
    /// The client has broken a rule, and is told which.
    Broken(Code, Error),
    Failed(Error),
}

/// What there is to be read.
enum Input {
    /// Nothing for now.
    Nothing,
    /// What is to be sent comes first.
    Full,
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
    E: Fn(Request) -> F,
    F: Future<Output = ()>,
{
    async fn run(&mut self) -> Result<()> {
        // What came before the connection was known to speak HTTP/2.
        let end = match self.account(0) {
            Ok(()) => poll_fn(|cx| self.poll(cx)).await,
            Err(end) => end,
        };
        let end = match end {
            End::Gone => Ok(()),
            End::Failed(error) => Err(error),
            End::Broken(code, error) => {
                self.connection.borrow_mut().say_goodbye(code);
                self.deadline.set(self.worker.settings.linger_timeout);
                poll_fn(|cx| match self.poll_flush(cx) {
                    Ok(Poll::Pending) => self.deadline.poll_over(cx),
                    Ok(Poll::Ready(())) | Err(_) => Poll::Ready(()),
                })
                .await;
                Err(error)
            }
        };
        self.connection.borrow_mut().cut_all();
        // Without their client the exchanges come to an end: at once if they are cancelled by
        // that, in their own time if they are detached or have been handed over.
        while self.exchanges.next().await.is_some() {}
        end
    }

    /// Does all that can be done now; ready at the connection's end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match self.poll_work(cx) {
            Ok(true) => return Poll::Ready(End::Gone),
            Ok(false) => {}
            Err(end) => return Poll::Ready(end),
        }
        self.give_buffers_back();
        if self.deadline.poll_over(cx).is_pending() {
            return Poll::Pending;
        }
        match self.phase {
            Phase::Opening | Phase::Opened => Poll::Ready(End::Failed(too_slow())),
            Phase::Busy | Phase::Leaving => Poll::Pending,
            Phase::Resting => {
                self.leave();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            // The client takes its time, but it takes what it was answered.
            Phase::Left if self.is_being_taken() => {
                self.rest_for(self.worker.settings.stall_timeout, Phase::Left);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            // It does not, or it does not confirm that it was told.
            Phase::Left => Poll::Ready(End::Gone),
        }
    }

    /// Reads, lets requests be answered, and writes, until there is nothing left of that;
    /// `true` at the end.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        loop {
            while let Poll::Ready(Some(())) = self.exchanges.poll_next_unpin(cx) {}
            self.connection.borrow_mut().answer_bell(cx);
            let input = self.read(cx)?;
            self.connection.borrow_mut().pump();
            let is_sent = self.poll_flush(cx)?.is_ready();
            let is_stirred = std::mem::take(&mut self.connection.borrow_mut().is_stirred);
            match input {
                Input::Ended => return Ok(true),
                _ if is_stirred => {}
                Input::Full if is_sent => {}
                _ if is_sent && self.connection.borrow_mut().has_more() => {}
                _ if self.turn() => {}
                _ => return Ok(is_sent && self.is_over()),
            }
        }
    }

    /// Whether the client knows that nothing more comes, and nothing does.
    fn is_over(&self) -> bool {
        let connection = self.connection.borrow();
        connection.goodbye == Goodbye::Said
            && self.exchanges.is_empty()
            && connection.streams.len() == 0
    }

    /// Takes in the frames that have come.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Input, End> {
        loop {
            if !self.reader.buffer.is_empty() && self.take_frames(cx)? {
                return Ok(Input::Full);
            }
            if self.at_once >= TURN_BYTES {
                self.at_once = 0;
                cx.waker().wake_by_ref();
                return Ok(Input::Nothing);
            }
            if self.reader.buffer.capacity() == 0 {
                // An idle connection owns no buffer.
                match self.reader.poll_readable(cx) {
                    Poll::Ready(ready) => ready.map_err(Error::from)?,
                    Poll::Pending => return Ok(Input::Nothing),
                }
                self.reader.buffer = self.worker.buffers.take_input();
            }
            let before = self.reader.buffer.len();
            match self.reader.poll_fill(cx, room(before)) {
                Poll::Ready(Ok(0)) => return Ok(Input::Ended),
                Poll::Ready(Ok(bytes)) => {
                    self.at_once += bytes;
                    self.account(before)?;
                }
                Poll::Ready(Err(error)) => return Err(Error::from(error).into()),
                Poll::Pending => {
                    self.at_once = 0;
                    return Ok(Input::Nothing);
                }
            }
        }
    }

    /// Accounts for the frames in what was read behind this place.
    fn account(&mut self, before: usize) -> Result<(), End> {
        let waited = std::mem::replace(&mut self.refilled, Stopwatch::start());
        self.flood.waited(self.refilled.since(waited));
        match self.flood.read(&self.reader.buffer[before..]) {
            true => Ok(()),
            false => Err(broken(Code::ENHANCE_YOUR_CALM)),
        }
    }

    /// Takes in the frames that are whole; `true` if something has to be sent first.
    fn take_frames(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut input = std::mem::take(&mut self.reader.buffer);
        let taken = self.take_frames_of(&mut input, cx);
        self.reader.buffer = input;
        taken
    }

    fn take_frames_of(&mut self, input: &mut BytesMut, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.phase == Phase::Opening && !self.take_preface(input)? {
            return Ok(false);
        }
        let mut used = 0;
        let full = loop {
            let Some((bytes, rest)) = input[used..].split_first_chunk() else { break false };
            let head = Head::read(bytes);
            if head.length > MOST_PAYLOAD_BYTES {
                return Err(broken(Code::FRAME_SIZE_ERROR));
            }
            let Some(payload) = rest.get(..head.length) else { break false };
            let mut connection = self.connection.borrow_mut();
            if connection.writer.must_flush() {
                break true;
            }
            let request = connection.take(head, payload).map_err(broken)?;
            drop(connection);
            used += HEAD_BYTES + head.length;
            if let Some(request) = request {
                self.begin(request, cx);
            }
        };
        input.advance(used);
        Ok(full)
    }

    /// RFC 9113 §3.4; `false` if it has not come yet.
    fn take_preface(&mut self, input: &mut BytesMut) -> Result<bool, End> {
        let length = input.len().min(PREFACE.len());
        if input[..length] != PREFACE[..length] {
            return Err(broken(Code::PROTOCOL_ERROR));
        }
        if length < PREFACE.len() {
            return Ok(false);
        }
        input.advance(length);
        self.phase = Phase::Opened;
        Ok(true)
    }

    /// Begins to answer a request.
    fn begin(&mut self, request: Request, cx: &mut Context<'_>) {
        match self.phase {
            Phase::Opened | Phase::Resting => self.work_in(Phase::Busy),
            // It was on its way when the client was told.
            Phase::Left => self.work_in(Phase::Leaving),
            Phase::Opening | Phase::Busy | Phase::Leaving => {}
        }
        self.requests += 1;
        let future = (self.exchange)(request);
        let mut exchange = match self.spare.take() {
            Some(mut spare) => {
                spare.set(future);
                spare
            }
            None => Box::pin(future),
        };
        match exchange.as_mut().poll(cx) {
            Poll::Ready(()) => self.spare = Some(exchange),
            Poll::Pending => {
                self.exchanges.push(exchange);
                self.connection.borrow_mut().is_stirred = true;
            }
        }
        if self.requests == self.worker.settings.max_requests && self.phase == Phase::Busy {
            self.leave();
        }
    }

    /// Sends what is gathered.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>> {
        let connection = &mut *self.connection.borrow_mut();
        let writer = &mut connection.writer;
        if writer.is_empty() {
            return Ok(Poll::Ready(()));
        }
        let before = writer.waiting();
        let flushed = writer.poll_flush(cx, &self.writing, &mut self.pace);
        let sent = before - writer.waiting();
        self.flood.sent(sent);
        connection.has_sent(sent);
        match flushed {
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    /// Goes over to the phase that it is time for; `true` if there is something to be sent
    /// then.
    fn turn(&mut self) -> bool {
        let settings = &self.worker.settings;
        let mut connection = self.connection.borrow_mut();
        let is_idle = self.exchanges.is_empty() && !connection.is_held_elsewhere();
        let is_empty = connection.streams.len() == 0;
        // While something is on its way, the clock of that runs.
        let is_idle = is_idle && connection.writer.is_empty();
        drop(connection);
        match self.phase {
            // Nothing can be said before the client has said what it speaks.
            Phase::Left | Phase::Opening => {}
            Phase::Leaving if is_idle && is_empty => {
                self.rest_for(settings.linger_timeout, Phase::Left);
            }
            // The client has not taken all of what it was answered.
            Phase::Leaving if is_idle => self.rest_for(settings.stall_timeout, Phase::Left),
            Phase::Leaving => {}
            _ if self.worker.draining() || self.is_announced() => {
                self.leave();
                return true;
            }
            Phase::Busy if is_idle => {
                self.connection.borrow_mut().streams.rest();
                self.rest_for(settings.idle_timeout, Phase::Resting);
            }
            Phase::Opened | Phase::Busy | Phase::Resting => {}
        }
        false
    }

    /// Whether the client has said that it leaves, which it was answered.
    fn is_announced(&self) -> bool {
        self.connection.borrow().goodbye != Goodbye::Unsaid
    }

    fn work_in(&mut self, phase: Phase) {
        self.deadline.clear();
        self.phase = phase;
    }

    fn rest_for(&mut self, time: Duration, phase: Phase) {
        self.deadline.set(time);
        self.phase = phase;
        self.sent_before = self.connection.borrow().sent;
    }

    /// Whether there are answers which the client has not taken whole, and something was sent since
    /// the deadline was set.
    fn is_being_taken(&self) -> bool {
        let connection = self.connection.borrow();
        connection.streams.len() > 0 && connection.sent > self.sent_before
    }

    /// Tells the client that no further request will be answered (RFC 9113 §6.8).
    fn leave(&mut self) {
        self.connection.borrow_mut().announce_goodbye();
        self.work_in(Phase::Leaving);
    }

    /// While nothing moves, a connection owns no buffers.
    fn give_buffers_back(&mut self) {
        let buffer = &mut self.reader.buffer;
        if buffer.is_empty() && buffer.capacity() > 0 {
            self.worker.buffers.give_input(std::mem::take(buffer));
        }
        let connection = &mut *self.connection.borrow_mut();
        if connection.writer.is_empty() && connection.writer.out.capacity() > 0 {
            self.worker.buffers.give_output(std::mem::take(&mut connection.writer.out));
        }
    }

    /// Reads on for a while after the last frame, and throws it away: the peer may still be
    /// sending, and would lose what we sent last to a reset.
    async fn linger(&mut self) {
        let (connection, deadline) = (self.connection, self.deadline);
        deadline.set(self.worker.settings.linger_timeout);
        let told = poll_fn(|cx| match connection.borrow_mut().writer.poll_shutdown(cx) {
            Poll::Ready(told) => Poll::Ready(told.is_ok()),
            Poll::Pending => deadline.poll_over(cx).map(|()| false),
        });
        if !told.await {
            return;
        }
        poll_fn(|cx| {
            for _ in 0..64 {
                self.reader.buffer.clear();
                match self.reader.poll_fill(cx, INPUT_BYTES) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => return deadline.poll_over(cx),
                }
            }
            cx.waker().wake_by_ref();
            deadline.poll_over(cx)
        })
        .await;
    }
}

/// Where more than small heads come, there is room for two of the largest frames.
const MOST_INPUT_BYTES: usize = 2 * (HEAD_BYTES + MOST_PAYLOAD_BYTES);

/// How much room to read into there is to be behind so many bytes.
fn room(buffered: usize) -> usize {
    match buffered {
        0 => INPUT_BYTES,
        _ => MOST_INPUT_BYTES.saturating_sub(buffered).max(1),
    }
}

fn broken(code: Code) -> End {
    let reason = match code {
        Code::ENHANCE_YOUR_CALM => "the client sends far more frames than it has a use for",
        _ => "the client breaks the rules of HTTP/2",
    };
    End::Broken(code, Error::new(ErrorKind::Malformed, reason))
}

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the first request came too slowly")
}
