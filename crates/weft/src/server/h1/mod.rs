//! The HTTP/1 loop: read → application → write. Start reading here.
//!
//! # The life of a request
//!
//! 1. An idle connection waits in `worker.rs` for something to read; it owns no buffer.
//!    When there is something, [`serve`] takes over.
//! 2. `next_head` reads until the head is whole, and `parse` finds its parts.
//! 3. `begin` lets `framing` decide what follows the head. A body that is not all here
//!    yet is put on loan: it takes the connection's reader with it (`incoming`).
//! 4. The application is called. While it thinks, `attend` looks after the connection:
//!    earlier answers are sent, a 100 too, and a client that goes away is noticed.
//! 5. `respond` composes the head and gathers it with the payload; `finish` sends what is large.
//! 6. Only when no further request is at hand is everything sent, in one write.
//!    What the application left of the body is read away, and it begins anew.

pub(crate) mod incoming;
mod respond;
mod drain;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Version};

use self::incoming::{Incoming, Loan, News, Returned, Terms};
use self::respond::Answered;
use crate::app::Application;
use crate::clock::deadline::{Pace, Stopwatch};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::request::{Interim, Request};
use crate::message::response::Response;
use crate::net::buffers::INPUT_BYTES;
use crate::net::conn::Reader;
use crate::panic::guarded;
use crate::proto::http1::chunked::Decoder;
use crate::proto::http1::compose;
use crate::proto::http1::framing::{self, Length};
use crate::server::connection::Connection;
use crate::server::head_buffers::Desk;
use crate::server::worker::Worker;
use crate::settings::Disconnect;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Everything is answered; it rests until there is more to read.
    Rest,
    /// It closes.
    Close,
    /// Somebody else gets it, for another protocol or a tunnel.
    HandOver,
    /// It begins with the preface of HTTP/2 (RFC 9113 §3.4), which stands in the input.
    Http2,
    /// It closes, but reads on for a while: the peer may still be sending, and would lose
    /// our last response to a reset (RFC 9112 §9.6).
    Linger,
}

/// How many requests of one connection are answered before others get their turn.
const TURN: u32 = 64;

/// Serves a connection that has something to read, until it is drained.
pub(crate) async fn serve<A: Application>(conn: &mut Connection, worker: &Worker<A>) -> Fate {
    let mut desk = worker.head_buffers.take();
    let mut busy = Busy {
        pace: Pace::new(&worker.settings),
        desk: &mut desk,
        input: Input::Clear,
        exchange: Exchange::default(),
        conn,
        worker,
    };
    busy.take_buffers();
    let mut next = busy.burst().await;
    if matches!(next, Fate::Close | Fate::Linger)
        && !busy.conn.writer.is_closed()
        && let Err(error) = busy.flush().await
    {
        worker.report(&busy.conn.shared.peer, &error);
        next = Fate::Close;
    }
    if next == Fate::Linger {
        busy.linger().await;
    }
    if next != Fate::Rest && busy.conn.reader.is_none() {
        busy.conn.writer.cut();
    }
    busy.give_buffers(next);
    drop(busy);
    if next != Fate::Rest {
        desk.clear();
    }
    worker.head_buffers.give(desk);
    next
}

/// A connection while it is busy.
struct Busy<'a, A> {
    conn: &'a mut Connection,
    worker: &'a Worker<A>,
    /// The rate at which the peer takes what we send.
    pace: Pace,
    desk: &'a mut Desk,
    input: Input,
    exchange: Exchange,
}

/// How far the current response is.
#[derive(Clone, Copy, Default)]
enum Stage {
    #[default]
    Awaited,
    /// It begins at this place of what is gathered, of which nothing is sent: its mind
    /// can still be changed.
    Gathered(usize),
    Begun,
}

/// What stands in the input before the next request.
enum Input {
    /// Nothing.
    Clear,
    /// A body that has the reader.
    Lent(Arc<Loan>),
    /// What the application left unread of a body.
    Unread(Decoder),
    /// Bytes that make no sense, or a body that will not come: no request can follow.
    Spoiled,
}

/// The current request and its response, or the last.
#[derive(Default)]
struct Exchange {
    /// Whether the client knows interim responses.
    interim: bool,
    /// Whether the client was to be told to send its body, and was not.
    awaits_continue: bool,
    /// The client sends nothing behind this request.
    client_closes: bool,
    keep_alive: bool,
    response: Stage,
    /// How much of the response's body was gathered.
    body_bytes: u64,
    /// For the hooks, if there are any.
    watch: Option<Stopwatch>,
}

impl<A: Application> Busy<'_, A> {
    /// Answers what the connection brings, until it has nothing more.
    async fn burst(&mut self) -> Fate {
        if self.reader().buffer.is_empty() && !matches!(self.fill().await, Ok(1..)) {
            return Fate::Close;
        }
        for turn in 1.. {
            let mut head_only = false;
            let begun = match self.next_head().await {
                Ok(Some(length)) => {
                    head_only = self.desk.parsed.method == Method::HEAD;
                    self.begin(length)
                }
                Ok(None) => return Fate::Rest,
                Err(error) if self.is_http2(&error) => return Fate::Http2,
                Err(error) => Err(error),
            };
            let next = match begun {
                Ok(request) => {
                    let app = &self.worker.app;
                    let called = match guarded(|| app.call(request)) {
                        Ok(response) => self.attend(pin!(response)).await,
                        Err(panicked) => Err(panicked),
                    };
                    match self.answer(called) {
                        Some(answered) => self.finish(answered).await,
                        None => Fate::Close,
                    }
                }
                Err(error) => self.refuse(&error, head_only),
            };
            if next != Fate::Rest {
                return next;
            }
            if turn % TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Reads the next head, and its length, as far as needed; `None` when the input is drained
    /// and all that was gathered is sent.
    async fn next_head(&mut self) -> Result<Option<usize>> {
        self.desk.parsed.clear();
        // The clock of the first head has run since the connection was accepted.
        let mut timed = self.conn.requests == 0;
        loop {
            let Connection { reader: Some(reader), deadline, .. } = &*self.conn else {
                unreachable!("no body has the reader between requests")
            };
            let drained = reader.buffer.is_empty();
            if !drained
                && let Some(length) = self.desk.parsed.read(&reader.buffer, &self.worker.limits)?
            {
                deadline.clear();
                return Ok(Some(length));
            }
            // It would keep the input from being used again.
            self.desk.clear();
            self.flush().await?;
            if drained {
                return Ok(None);
            }
            if !std::mem::replace(&mut timed, true) {
                self.conn.deadline.set(self.worker.settings.head_timeout);
            }
            if self.fill().await? == 0 {
                return Err(Error::disconnected());
            }
        }
    }

    /// Whether what cannot be understood is where HTTP/2 begins.
    fn is_http2(&mut self, error: &Error) -> bool {
        error.kind() == ErrorKind::VersionUnsupported
            && self.conn.requests == 0
            && self.worker.settings.http2
            && self.reader().buffer.starts_with(b"PRI * HTTP/2.0\r\n")
    }

    /// Makes a request of the head that was read, which has this length, and of what follows it.
    fn begin(&mut self, length: usize) -> Result<Request> {
        let text = self.reader().buffer.split_to(length).freeze();
        let framed = framing::request(&self.desk.parsed, &text)?;
        self.conn.requests += 1;
        let exchange = &mut self.exchange;
        exchange.interim = self.desk.parsed.version != Version::HTTP_10;
        exchange.awaits_continue = framed.expects_continue;
        exchange.client_closes = !framed.keep_alive;
        let is_last = self.conn.requests == self.worker.settings.max_requests;
        exchange.keep_alive = framed.keep_alive && !is_last;
        exchange.watch = self.worker.stopwatch();
        // What the application said of the request before, behind its response, is not for this one.
        let _late = self.conn.shared.take_interim();
        let Desk { parsed, head } = self.desk;
        head.renew(parsed, text, (framed.authority, framed.local));
        let head = head.clone();
        let body = self.request_body(&framed);
        Ok(Request::new(head, body, self.conn.shared.clone()))
    }

    /// Answers one request with what the application has made of it; `None` where nobody is
    /// left to be answered.
    fn answer(&mut self, called: Result<Response>) -> Option<Answered> {
        let response = match called {
            // A detached call has come to its end for nobody.
            Ok(_) if self.conn.writer.is_closed() => return None,
            Ok(response) => {
                self.send_hints();
                if let Some(error) = response.error() {
                    self.worker.report(&self.conn.shared.peer, error);
                }
                response
            }
            Err(error) => {
                self.worker.report(&self.conn.shared.peer, &error);
                if error.kind() == ErrorKind::Disconnected || self.conn.writer.is_closed() {
                    return None;
                }
                self.exchange.keep_alive = false;
                error.into()
            }
        };
        Some(self.respond(response))
    }

    /// The body of a request: its bytes if they are here, otherwise the means to read them.
    fn request_body(&mut self, framed: &framing::Incoming) -> Body {
        let settings = &self.worker.settings;
        let input = &mut self.reader().buffer;
        match framed.length {
            Length::Sized(0) => return Body::empty(),
            Length::Sized(n) if n <= settings.max_body_bytes && n <= input.len() as u64 => {
                return Body::from(input.split_to(n as usize).freeze());
            }
            _ => {}
        }
        let loan = Loan::new();
        self.input = Input::Lent(loan.clone());
        let terms = Terms {
            decoder: Decoder::new(framed.length),
            trailer_limits: self.worker.trailer_limits,
            max_bytes: settings.max_body_bytes,
            expects_continue: framed.expects_continue,
            deadline: self.worker.deadlines.deadline(),
            pace: Pace::new(settings),
        };
        let reader = self.conn.reader.take().expect("the reader is lent once at a time");
        Body::inbound(Incoming::new(reader, loan, terms))
    }

    /// Looks after the connection while the application thinks.
    async fn attend(
        &mut self,
        mut response: Pin<&mut impl Future<Output = Response>>,
    ) -> Result<Response> {
        poll_fn(|cx| match guarded(|| response.as_mut().poll(cx)) {
            Ok(Poll::Ready(response)) => Poll::Ready(Ok(response)),
            Ok(Poll::Pending) => self.poll_attend(cx).map(Err),
            Err(panicked) => Poll::Ready(Err(panicked)),
        })
        .await
    }

    /// What the connection needs while it waits for the application; ready with the
    /// reason why there is no more to wait for.
    fn poll_attend(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.send_hints();
        while let Input::Lent(loan) = &self.input {
            match loan.poll_news(cx) {
                Poll::Ready(News::WantsContinue) => self.send_continue(),
                Poll::Ready(News::Returned(returned)) => self.take_back(returned),
                Poll::Pending => break,
            }
        }
        match (self.poll_flush(cx), &self.worker.settings.disconnect) {
            // A response that cannot be sent ends its stream in any case.
            (Poll::Ready(Err(error)), _) if !matches!(self.exchange.response, Stage::Awaited) => {
                Poll::Ready(error)
            }
            (_, Disconnect::Detach) => Poll::Pending,
            (Poll::Ready(Err(error)), Disconnect::Cancel) => Poll::Ready(error),
            (_, Disconnect::Cancel) => self.poll_gone(cx),
        }
    }

    /// Ready when the client has gone. There is only one way to know: to read ahead.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(reader) = &mut self.conn.reader else { return Poll::Pending };
        while reader.buffer.len() < INPUT_BYTES {
            if let Err(error) = ready!(reader.poll_readable(cx)) {
                return Poll::Ready(error.into());
            }
            match ready!(reader.poll_fill(cx, LEAST_ROOM)) {
                Ok(0) => return Poll::Ready(Error::disconnected()),
                Ok(_) => {}
                Err(error) => return Poll::Ready(error.into()),
            }
        }
        Poll::Pending
    }

    /// Tells the client to go on with its body.
    fn send_continue(&mut self) {
        self.exchange.awaits_continue &= !self.send_interim(b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// Sends the interim responses that the application has left.
    fn send_hints(&mut self) {
        let Some(waiting) = self.conn.shared.take_interim() else { return };
        if self.exchange.interim {
            let mut interim = Vec::new();
            for Interim { status, fields } in &waiting {
                compose::interim_head(&mut interim, *status, &fields.to_write());
            }
            self.send_interim(&interim);
        }
    }

    /// Puts an interim response before the final one, unless that has begun.
    fn send_interim(&mut self, bytes: &[u8]) -> bool {
        let out = &mut self.conn.writer.out;
        match self.exchange.response {
            Stage::Awaited => out.extend_from_slice(bytes),
            Stage::Gathered(head) => {
                out.splice(head..head, bytes.iter().copied());
                self.exchange.response = Stage::Gathered(head + bytes.len());
            }
            Stage::Begun => return false,
        }
        true
    }

    /// The body has given the reader back.
    fn take_back(&mut self, returned: Returned) {
        self.conn.reader = Some(returned.reader);
        self.input = match returned {
            Returned { failed: true, .. } => Input::Spoiled,
            Returned { decoder: Decoder::Done, .. } => Input::Clear,
            // RFC 9110 §10.1.1: without a 100 the client may or may not send its body.
            _ if self.exchange.awaits_continue => Input::Spoiled,
            Returned { decoder, .. } => Input::Unread(decoder),
        };
    }

    fn reader(&mut self) -> &mut Reader {
        self.conn.reader.as_mut().expect("no body has the reader between requests")
    }

    /// Reads once; 0 is the end.
    async fn fill(&mut self) -> Result<usize> {
        let worker = self.worker;
        let scratch = &worker.buffers.scratch;
        poll_fn(|cx| match self.reader().poll_fill_by(cx, scratch, LEAST_ROOM) {
            Poll::Ready(read) => Poll::Ready(read.map_err(Error::from)),
            Poll::Pending => self.conn.deadline.poll_over(cx).map(|()| Err(too_slow())),
        })
        .await
    }

    async fn flush(&mut self) -> Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.conn.writer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if let Stage::Gathered(_) = self.exchange.response {
            self.exchange.response = Stage::Begun;
        }
        self.conn.writer.poll_flush(cx, &self.conn.deadline, &mut self.pace)
    }

    fn take_buffers(&mut self) {
        let buffers = &self.worker.buffers;
        self.conn.writer.out = buffers.take_output();
        if self.reader().buffer.is_empty() {
            self.reader().buffer = buffers.take_input();
        }
    }

    fn give_buffers(&mut self, next: Fate) {
        let buffers = &self.worker.buffers;
        let mut out = std::mem::take(&mut self.conn.writer.out);
        out.clear();
        buffers.give_output(out);
        if let Some(reader) = &mut self.conn.reader
            && (reader.buffer.is_empty() || !matches!(next, Fate::HandOver | Fate::Http2))
        {
            let mut input = std::mem::take(&mut reader.buffer);
            input.clear();
            buffers.give_input(input);
        }
    }
}

/// A body that outlives its connection has nothing to read from.
impl<A> Drop for Busy<'_, A> {
    fn drop(&mut self) {
        if let Input::Lent(loan) = &self.input {
            loan.revoke();
        }
    }
}

/// A read of a head has at least so much room.
const LEAST_ROOM: usize = 1 << 10;

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the request came too slowly")
}
