//! HTTP/1 connections: read a head, serve the request, repeat. Start reading here.
//!
//! # The life of a request
//!
//! 1. An idle connection waits in `connection_life.rs` until it is readable; it owns no buffer. Then
//!    [`serve`] takes over.
//! 2. `next_head` reads until the head is complete, and `parse` parses it.
//! 3. `take_head` determines the framing of the content after the head, and `request` creates the
//!    request. A body that was not received completely borrows the reader of the connection (`loan`).
//! 4. `exchange::serve` calls the application and sends the response through `sink`.
//! 5. Unread content is discarded (`discard`), and the next head is read. Buffered responses are
//!    written when the input contains no further complete request.

mod close;
mod discard;
mod lent_reader;
mod loan;
mod sink;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Version};

use self::lent_reader::{LentReader, ReturnedReader};
use self::loan::Loan;
use crate::app::Application;
use crate::clock::deadline::{Awaited, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::request::Request;
use crate::net::buffers::INPUT_BYTES;
use crate::net::reader::Reader;
use crate::server::connection::ServerConnection;
use crate::server::exchange::{self, Outcome, ResponseSink};
use crate::server::head_buffers::HeadBuffers;
use crate::server::inbound::{InboundBody, ReceiveClock};
use crate::server::worker_context::WorkerContext;
use weft_proto::http1::chunked::BodyDecoder;
use weft_proto::http1::framing::{self, Length, ResponseFraming};
use weft_proto::write_buffer::Mark;

/// The state of a connection after all received requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextState {
    /// Waits for the next request.
    Idle,
    Close,
    /// Passes the connection to the handler of an upgrade.
    HandOver,
    /// Continues with HTTP/2: the input starts with its preface (RFC 9113 §3.4).
    Http2,
    /// Closes the sending direction, then discards input for a limited time: the peer may still be
    /// sending, and a reset would destroy the last response (RFC 9112 §9.6).
    Linger,
}

/// Work for one connection after which the task yields: the bytes of the heads, and for each request
/// [`REQUEST_BYTES`]. 64 requests with small heads, and fewer with large ones, because the time to
/// parse and to evaluate a head grows with its length.
const BUDGET_WORK: usize = 64 << 10;

/// Work for a request regardless of its length, in bytes of a head.
const REQUEST_BYTES: usize = 900;

/// Minimum buffer space for a read of a head.
const MIN_READ_BYTES: usize = 1 << 10;

/// Serves a readable connection until all input is processed.
pub(crate) async fn serve<A: Application>(
    conn: &mut ServerConnection,
    worker: &WorkerContext<A>,
) -> NextState {
    let mut heads = worker.head_buffers.take();
    let mut active = ActiveConnection {
        pace: Pace::new(&worker.settings),
        heads: &mut heads,
        input: Input::Clear,
        exchange: ExchangeState::default(),
        conn,
        worker,
    };
    active.take_buffers();
    let mut next = active.serve_pipelined().await;
    if matches!(next, NextState::Close | NextState::Linger) && !active.conn.writer.is_closed() {
        active.conn.writer.hold_end();
        if let Err(error) = active.flush_output().await {
            worker.report(&active.conn.shared.peer, &error);
            next = NextState::Close;
        }
    }
    if next == NextState::Linger {
        active.linger().await;
    }
    if next != NextState::Idle && active.conn.reader.is_none() {
        active.conn.writer.shut_down_socket();
    }
    active.return_buffers(next);
    drop(active);
    if next != NextState::Idle {
        heads.clear();
    }
    worker.head_buffers.put(heads);
    next
}

/// A connection that is serving requests.
struct ActiveConnection<'a, A> {
    conn: &'a mut ServerConnection,
    worker: &'a WorkerContext<A>,
    /// Minimum rate at which the peer must receive.
    pace: Pace,
    heads: &'a mut HeadBuffers,
    input: Input,
    exchange: ExchangeState,
}

/// The state of the input between two requests.
enum Input {
    Clear,
    /// The body has the reader.
    Lent(Arc<Loan<ReturnedReader>>),
    /// Content that the application has not read.
    Unread(BodyDecoder),
    /// Input that cannot be parsed, or content that the client may not send: no request can follow.
    Unusable,
}

/// The state of the current exchange, or of the last one.
struct ExchangeState {
    request: CurrentRequest,
    /// Set if the client supports interim responses.
    accepts_interim: bool,
    /// Set if the client waits for a 100 that was not sent.
    awaits_continue: bool,
    persistence: Persistence,
    progress: ResponseProgress,
    framing: ResponseFraming,
    /// Number of content bytes buffered or sent.
    body_bytes: u64,
}

/// Persistence of the connection after the response (RFC 9112 §9.3).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Persistence {
    KeepAlive,
    ServerCloses,
    /// The client sends no further request.
    ClientCloses,
}

impl Persistence {
    /// Excludes a further request.
    fn close(&mut self) {
        if *self == Persistence::KeepAlive {
            *self = Persistence::ServerCloses;
        }
    }
}

enum CurrentRequest {
    /// A valid request, whose head is in the head buffers.
    Valid,
    /// An invalid request, which is still in the input buffer.
    Invalid { is_head: bool },
}

/// The progress of the current response.
#[derive(Clone, Copy)]
enum ResponseProgress {
    NotStarted,
    /// Starts at this mark of the output. Nothing was sent since, so the response can
    /// still be replaced.
    Buffered {
        start: Mark,
    },
    Started,
}

impl Default for ExchangeState {
    fn default() -> ExchangeState {
        ExchangeState {
            request: CurrentRequest::Invalid { is_head: false },
            accepts_interim: false,
            awaits_continue: false,
            persistence: Persistence::ServerCloses,
            progress: ResponseProgress::NotStarted,
            framing: ResponseFraming::Bodiless,
            body_bytes: 0,
        }
    }
}

impl<A: Application> ActiveConnection<'_, A> {
    /// Serves requests, including pipelined ones, until all input is processed.
    async fn serve_pipelined(&mut self) -> NextState {
        if self.reader().buffer.is_empty() && !matches!(self.fill().await, Ok(1..)) {
            return NextState::Close;
        }
        let mut work = 0;
        loop {
            let length = match self.next_head().await {
                Ok(Some(length)) => length,
                Ok(None) => return NextState::Idle,
                Err(error) if self.is_http2(&error) => return NextState::Http2,
                Err(error) => return Box::pin(self.reject(&error, false)).await,
            };
            let is_head = self.heads.parsed.method == Method::HEAD;
            let content = match self.take_head(length) {
                Ok(content) => content,
                Err(error) => return Box::pin(self.reject(&error, is_head)).await,
            };
            let (worker, watch) = (self.worker, self.worker.stopwatch());
            // Created only there, because a request is large, and would be moved.
            let request = |active: &mut Self| active.request(content);
            let next = match exchange::serve(worker, self, request, watch).await {
                Outcome::Completed => self.end_exchange().await,
                Outcome::Aborted => NextState::Close,
            };
            if next != NextState::Idle {
                return next;
            }
            work += REQUEST_BYTES + length;
            if work >= BUDGET_WORK {
                work = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads the next head and returns its length, or `None` when all input is processed and all
    /// output is sent.
    async fn next_head(&mut self) -> Result<Option<usize>> {
        self.heads.parsed.clear();
        // The deadline of the first head was set when the connection was accepted.
        let mut timed = self.conn.requests == 0;
        loop {
            let ServerConnection { reader: Some(reader), deadline, .. } = &*self.conn else {
                unreachable!("the reader is not lent between requests")
            };
            let is_empty = reader.buffer.is_empty();
            if !is_empty
                && let Some(length) = self.heads.parsed.read(&reader.buffer, &self.worker.limits)?
            {
                deadline.clear();
                return Ok(Some(length));
            }
            // The text of the last head would prevent the reuse of the input buffer.
            self.heads.clear();
            self.flush_output().await?;
            if is_empty {
                return Ok(None);
            }
            if !std::mem::replace(&mut timed, true) {
                let timeout = self.worker.settings.head_timeout;
                self.conn.deadline.set_awaiting(Awaited::Head, timeout);
            }
            if self.fill().await? == 0 {
                return Err(Error::disconnected());
            }
        }
    }

    /// Returns `true` if the input that caused `error` is the HTTP/2 preface.
    fn is_http2(&mut self, error: &Error) -> bool {
        error.kind() == ErrorKind::VersionUnsupported
            && self.conn.requests == 0
            && self.worker.settings.http2
            && self.reader().buffer.starts_with(b"PRI * HTTP/2.0\r\n")
    }

    /// Takes the parsed head, which has this length, from the input. Returns the length of the content
    /// after it.
    fn take_head(&mut self, length: usize) -> Result<Length> {
        let input = &mut self.conn.reader.as_mut().expect("the reader is not lent").buffer;
        let framed = framing::request(&self.heads.parsed, &input[..length])?;
        let HeadBuffers { parsed, head } = self.heads;
        let text = input.split_to(length).freeze();
        head.set_parsed(parsed, text, (framed.authority, framed.local));
        self.conn.requests += 1;
        let is_last = self.conn.requests == self.worker.settings.max_requests;
        let exchange = &mut self.exchange;
        exchange.request = CurrentRequest::Valid;
        exchange.accepts_interim = head.version() != Version::HTTP_10;
        exchange.awaits_continue = framed.expects_continue;
        exchange.persistence = match framed.keep_alive {
            true if is_last => Persistence::ServerCloses,
            true => Persistence::KeepAlive,
            false => Persistence::ClientCloses,
        };
        self.conn.shared.begin_exchange();
        Ok(framed.length)
    }

    /// Creates a request from the head that was taken, with content of this length.
    fn request(&mut self, content: Length) -> Request {
        let head = self.heads.head.clone();
        let body = self.request_body(content);
        Request::new(head, body, self.conn.shared.clone())
    }

    /// Creates the body of a request: its bytes if they were received, otherwise a loan of the
    /// reader.
    fn request_body(&mut self, length: Length) -> Body {
        let settings = &self.worker.settings;
        let input = &mut self.reader().buffer;
        match length {
            Length::Sized(0) => return Body::empty(),
            Length::Sized(n) if n <= settings.max_body_bytes && n <= input.len() as u64 => {
                return Body::from(input.split_to(n as usize).freeze());
            }
            _ => {}
        }
        let loan = Loan::new();
        self.input = Input::Lent(loan.clone());
        let reader = self.conn.reader.take().expect("the reader is not lent between requests");
        reader.half.register();
        let decoding = (BodyDecoder::new(length), self.worker.trailer_limits);
        let clock = ReceiveClock::new(self.worker, &self.conn.shared);
        let source = LentReader::new(reader, loan, decoding, self.exchange.awaits_continue);
        Body::inbound(InboundBody::new(source, settings.max_body_bytes, clock))
    }

    /// Sends an error response to an invalid request, whose head is still in the input buffer, and
    /// closes the connection.
    async fn reject(&mut self, error: &Error, is_head: bool) -> NextState {
        self.exchange.request = CurrentRequest::Invalid { is_head };
        // A connection that is closed between two requests has no request to record.
        let is_between_requests = self.request_line().is_empty() && error.kind().status().is_none();
        let worker = self.worker;
        let watch = if is_between_requests { None } else { worker.stopwatch() };
        match exchange::reject(worker, self, error, watch).await {
            Outcome::Completed => NextState::Linger,
            Outcome::Aborted => NextState::Close,
        }
    }

    /// Prepares the input for the next request, if one may follow the response.
    async fn end_exchange(&mut self) -> NextState {
        self.exchange.progress = ResponseProgress::NotStarted;
        self.exchange.body_bytes = 0;
        if self.conn.upgrade.is_some() {
            return NextState::HandOver;
        }
        if self.exchange.persistence != Persistence::KeepAlive {
            return self.closing_state();
        }
        match self.input {
            Input::Clear => NextState::Idle,
            _ => Box::pin(self.discard_input()).await,
        }
    }

    /// Ready when the client has disconnected, which can be detected only by reading ahead.
    fn poll_disconnected(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        match ready!(self.poll_read_ahead(cx)) {
            Ok(()) => Poll::Ready(Error::disconnected()),
            Err(error) => Poll::Ready(error.into()),
        }
    }

    /// Reads ahead until the input buffer is full. Ready at the end of the input, or with an error.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(reader) = &mut self.conn.reader else { return Poll::Pending };
        while reader.buffer.len() < INPUT_BYTES {
            ready!(reader.poll_readable(cx))?;
            if ready!(reader.poll_fill(cx, MIN_READ_BYTES))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Closes the socket of a detached call if the connection is broken: the call goes on without it.
    /// A client that has only shut down its sending direction still gets the response.
    fn close_if_broken(&mut self, cx: &mut Context<'_>) {
        if self.conn.writer.is_closed() || self.is_broken(cx) {
            drop(self.conn.writer.take());
            if let Some(reader) = &mut self.conn.reader {
                reader.close();
            }
        }
    }

    /// Returns `true` if a read fails because of the client. It is registered for the next one.
    fn is_broken(&mut self, cx: &mut Context<'_>) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
        match self.poll_read_ahead(cx) {
            Poll::Ready(Err(error)) => {
                matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut)
            }
            Poll::Ready(Ok(())) | Poll::Pending => false,
        }
    }

    /// Restores the reader that a body has returned.
    fn restore_reader(&mut self, returned: ReturnedReader) {
        self.conn.reader = Some(returned.reader);
        self.input = match returned {
            ReturnedReader { failed: true, .. } => Input::Unusable,
            ReturnedReader { decoder: BodyDecoder::Done, .. } => Input::Clear,
            // RFC 9110 §10.1.1: without a 100 the client may or may not send its body.
            _ if self.exchange.awaits_continue => Input::Unusable,
            ReturnedReader { decoder, .. } => Input::Unread(decoder),
        };
    }

    fn reader(&mut self) -> &mut Reader {
        self.conn.reader.as_mut().expect("the reader is not lent between requests")
    }

    /// Reads once. Returns 0 at the end of the stream.
    async fn fill(&mut self) -> Result<usize> {
        let worker = self.worker;
        let scratch = &worker.buffers.scratch;
        poll_fn(|cx| match self.reader().poll_fill_from_scratch(cx, scratch, MIN_READ_BYTES) {
            Poll::Ready(read) => Poll::Ready(read.map_err(Error::from)),
            Poll::Pending => self.conn.deadline.poll_expired(cx).map(|()| Err(too_slow())),
        })
        .await
    }

    async fn flush_output(&mut self) -> Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.conn.writer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if let ResponseProgress::Buffered { .. } = self.exchange.progress {
            self.exchange.progress = ResponseProgress::Started;
        }
        self.conn.writer.poll_flush(cx, &self.conn.deadline, &mut self.pace)
    }

    fn take_buffers(&mut self) {
        let buffers = &self.worker.buffers;
        self.conn.writer.buffer.set_storage(buffers.take_output());
        if self.reader().buffer.is_empty() {
            self.reader().buffer = buffers.take_input();
        }
    }

    fn return_buffers(&mut self, next: NextState) {
        let buffers = &self.worker.buffers;
        buffers.return_output(self.conn.writer.buffer.take_storage());
        if let Some(reader) = &mut self.conn.reader
            && (reader.buffer.is_empty() || !matches!(next, NextState::HandOver | NextState::Http2))
        {
            let mut input = std::mem::take(&mut reader.buffer);
            input.clear();
            buffers.return_input(input);
        }
    }
}

/// Revokes the loan of the reader: a body that outlives its connection must not read.
impl<A> Drop for ActiveConnection<'_, A> {
    fn drop(&mut self) {
        if let Input::Lent(loan) = &self.input {
            loan.revoke();
        }
    }
}

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the request was received too slowly")
}
