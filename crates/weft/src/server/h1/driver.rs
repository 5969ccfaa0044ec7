//! The driver of an HTTP/1 connection: reads heads, serves requests, and decides if another request
//! can follow.

use http::{Method, Version};

use crate::app::Application;
use crate::clock::deadline::{Awaited, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::message::request::Request;
use crate::server::connection::ServerConnection;
use crate::server::exchange::{self, Outcome, ResponseSink};
use crate::server::h1::input::Input;
use crate::server::h1::sink::{CurrentRequest, Persistence, ResponseProgress, Sink};
use crate::server::head_buffers::{self, HeadBuffers};
use crate::server::linger;
use crate::server::worker_context::WorkerContext;
use weft_proto::http1::framing::{self, Length, ResponseFraming};
use weft_proto::http1::parse::ParsedHead;

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

/// Work for one connection after which the task yields: the bytes of the heads, and for each
/// request [`REQUEST_BYTES`]. 64 requests with small heads, and fewer with large ones, because the
/// time to parse and to evaluate a head grows with its length.
const BUDGET_WORK: usize = 64 << 10;

/// Work for a request regardless of its length, in bytes of a head.
const REQUEST_BYTES: usize = 900;

/// Serves a readable connection until all input is processed.
pub(crate) async fn serve<A: Application>(
    conn: &mut ServerConnection,
    worker: &WorkerContext<A>,
) -> NextState {
    let mut heads = worker.head_buffers.take();
    let HeadBuffers { parsed, head } = &mut *heads;
    let ServerConnection { reader, writer, deadline, shared, requests, upgrade, .. } = conn;
    let sink = Sink {
        worker,
        input: Input::new(reader, deadline),
        writer,
        deadline,
        pace: Pace::new(&worker.settings),
        shared,
        head,
        upgrade,
        request: CurrentRequest::Invalid { is_head: false },
        accepts_interim: false,
        persistence: Persistence::ServerCloses,
        progress: ResponseProgress::NotStarted,
        framing: ResponseFraming::Bodiless,
        body_bytes: 0,
    };
    let mut driver = Driver { worker, sink, parsed, requests };
    driver.take_buffers();
    let next = driver.serve_pipelined().await;
    let next = driver.end(next).await;
    drop(driver);
    if next != NextState::Idle {
        heads.clear();
    }
    worker.head_buffers.put(heads);
    next
}

/// A connection that is serving requests.
struct Driver<'a, A> {
    worker: &'a WorkerContext<A>,
    sink: Sink<'a, A>,
    /// The head that is being parsed.
    parsed: &'a mut ParsedHead,
    /// Number of requests received on the connection.
    requests: &'a mut u64,
}

impl<A: Application> Driver<'_, A> {
    /// Serves requests, including pipelined ones, until all input is processed and all output is
    /// sent.
    async fn serve_pipelined(&mut self) -> NextState {
        let input = &mut self.sink.input;
        if input.buffer().is_empty() && !matches!(input.fill(self.worker).await, Ok(1..)) {
            return NextState::Close;
        }
        let mut work = 0;
        loop {
            let length = match self.next_head().await {
                Ok(Some(length)) => length,
                Ok(None) => match self.send_responses().await {
                    Ok(()) => return NextState::Idle,
                    Err(error) => return Box::pin(self.reject(&error, false)).await,
                },
                Err(error) if self.is_http2(&error) => return NextState::Http2,
                Err(error) => return Box::pin(self.reject(&error, false)).await,
            };
            let is_head = self.parsed.method == Method::HEAD;
            let content = match self.take_head(length) {
                Ok(content) => content,
                Err(error) => return Box::pin(self.reject(&error, is_head)).await,
            };
            // Created only there, because a request is large, and would be moved.
            let request = |sink: &mut Sink<'_, A>| request(sink, content);
            let watch = self.worker.stopwatch();
            let next = match exchange::serve(self.worker, &mut self.sink, request, watch).await {
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

    /// Parses the next head and returns its length, or `None` if the input is empty. If the head is
    /// incomplete, sends the buffered responses and waits for the rest.
    async fn next_head(&mut self) -> Result<Option<usize>> {
        self.parsed.clear();
        // The deadline of the first head was set when the connection was accepted.
        let mut is_timed = *self.requests == 0;
        loop {
            let received = self.sink.input.buffer();
            if received.is_empty() {
                return Ok(None);
            }
            let parsed = self.parsed.read(received, &self.worker.limits);
            if let Some(length) = parsed.map_err(Error::of_head)? {
                self.sink.deadline.clear();
                return Ok(Some(length));
            }
            self.send_responses().await?;
            if !std::mem::replace(&mut is_timed, true) {
                let timeout = self.worker.settings.head_timeout;
                self.sink.deadline.set_awaiting(Awaited::Head, timeout);
            }
            if self.sink.input.fill(self.worker).await? == 0 {
                return Err(Error::disconnected());
            }
        }
    }

    /// Sends the responses to all requests that were received, before the connection waits for more
    /// input.
    async fn send_responses(&mut self) -> Result<()> {
        // The text of the last head would prevent the reuse of the input buffer.
        head_buffers::release(self.sink.head);
        self.sink.flush().await
    }

    /// Returns true if the input that caused `error` is the HTTP/2 preface.
    fn is_http2(&mut self, error: &Error) -> bool {
        error.kind() == ErrorKind::VersionUnsupported
            && *self.requests == 0
            && self.worker.settings.http2
            && self.sink.input.received().starts_with(b"PRI * HTTP/2.0\r\n")
    }

    /// Takes the parsed head, which has this length, from the input. Returns the length of the
    /// content after it.
    fn take_head(&mut self, length: usize) -> Result<Length> {
        let Driver { worker, sink, parsed, requests } = self;
        let input = sink.input.buffer();
        let framed = framing::request(parsed, &input[..length])?;
        let text = input.split_to(length).freeze();
        sink.head.set_parsed(parsed, text, (framed.authority, framed.local));
        **requests += 1;
        let is_last = **requests == worker.settings.max_requests;
        sink.request = CurrentRequest::Valid;
        sink.accepts_interim = sink.head.version() != Version::HTTP_10;
        sink.input.awaits_continue = framed.expects_continue;
        sink.persistence = match framed.keep_alive {
            true if is_last => Persistence::ServerCloses,
            true => Persistence::KeepAlive,
            false => Persistence::ClientCloses,
        };
        sink.shared.begin_exchange();
        Ok(framed.length)
    }

    /// Sends an error response to an invalid request, whose head is still in the input buffer, and
    /// closes the connection.
    async fn reject(&mut self, error: &Error, is_head: bool) -> NextState {
        self.sink.request = CurrentRequest::Invalid { is_head };
        // A connection that is closed between two requests has no request to record.
        let is_between_requests =
            self.sink.request_line().is_empty() && error.kind().status().is_none();
        let watch = if is_between_requests { None } else { self.worker.stopwatch() };
        match exchange::reject(self.worker, &mut self.sink, error, watch).await {
            Outcome::Completed => NextState::Linger,
            Outcome::Aborted => NextState::Close,
        }
    }

    /// Prepares the input for the next request, if one may follow the response.
    async fn end_exchange(&mut self) -> NextState {
        self.sink.progress = ResponseProgress::NotStarted;
        self.sink.body_bytes = 0;
        if self.sink.upgrade.is_some() {
            return NextState::HandOver;
        }
        if self.sink.persistence != Persistence::KeepAlive {
            return self.closing_state();
        }
        match self.sink.input.is_clear() {
            true => NextState::Idle,
            false => Box::pin(self.discard_input()).await,
        }
    }

    /// Discards the rest of the request.
    async fn discard_input(&mut self) -> NextState {
        // The client may wait for the response before it sends the rest.
        if self.sink.flush().await.is_err() {
            return NextState::Close;
        }
        self.sink.deadline.set(self.worker.settings.stall_timeout);
        if !self.sink.input.await_reader().await {
            return NextState::Close;
        }
        self.sink.input.discard_rest(self.worker).await;
        self.sink.deadline.clear();
        if self.sink.input.is_clear() { NextState::Idle } else { NextState::Linger }
    }

    /// Returns the state for closing after a response: immediately, if the peer has nothing in
    /// flight, otherwise with a lingering close.
    fn closing_state(&mut self) -> NextState {
        let Sink { input, persistence, .. } = &mut self.sink;
        input.restore_returned_reader();
        let is_clear = input.is_clear() && input.received().is_empty();
        let client_closes = *persistence == Persistence::ClientCloses;
        if client_closes && is_clear { NextState::Close } else { NextState::Linger }
    }

    /// Ends the service of received requests: sends the last responses of a connection that closes,
    /// and returns the buffers. Returns the state of the connection.
    async fn end(&mut self, mut next: NextState) -> NextState {
        let is_closing = matches!(next, NextState::Close | NextState::Linger);
        if is_closing && !self.sink.writer.is_closed() {
            self.sink.writer.hold_end();
            if let Err(error) = self.sink.flush().await {
                self.worker.report(&self.sink.shared.peer, &error);
                next = NextState::Close;
            }
        }
        if next == NextState::Linger {
            self.linger().await;
        }
        if next != NextState::Idle && self.sink.input.is_lent() {
            self.sink.writer.shut_down_socket();
        }
        self.return_buffers(next);
        next
    }

    /// Shuts down the sending direction and discards input until the peer closes, or until
    /// `linger_timeout` expires.
    async fn linger(&mut self) {
        let Sink { input, writer, deadline, .. } = &mut self.sink;
        deadline.set(self.worker.settings.linger_timeout);
        if linger::shut_down(writer, deadline).await
            && input.await_reader().await
            && let Some(reader) = input.reader_mut()
        {
            linger::discard(reader, deadline).await;
        }
    }

    fn take_buffers(&mut self) {
        let buffers = &self.worker.buffers;
        self.sink.writer.buffer.set_storage(buffers.take_output());
        self.sink.input.take_buffer(buffers);
    }

    fn return_buffers(&mut self, next: NextState) {
        let buffers = &self.worker.buffers;
        buffers.return_output(self.sink.writer.buffer.take_storage());
        let is_handed_over = matches!(next, NextState::HandOver | NextState::Http2);
        self.sink.input.return_buffer(buffers, is_handed_over);
    }
}

/// Creates a request from the head that was taken, with content of this length.
fn request<A>(sink: &mut Sink<'_, A>, content: Length) -> Request {
    let head = sink.head.clone();
    let body = sink.input.request_body(content, sink.worker, sink.shared);
    Request::new(head, body, sink.shared.clone())
}
