//! Response → stream: the head, and the body as the client takes it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, SEC_WEBSOCKET_ACCEPT, SERVER, SET_COOKIE, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, StatusCode};
use http_body::Body as _;

use crate::clock::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::{Body, wrong_length};
use crate::message::fields::Fields;
use crate::message::response::{Payload, Response};
use crate::panic::guarded;
use crate::proto::http1::compose::ToWrite;
use crate::proto::http2::frame::Code;
use crate::proto::http2::hpack::{Encoder, Keep};
use crate::server::h2::connection::Connection;
use crate::server::worker::Worker;

/// Fields that belong to a connection, or to the engine (RFC 9113 §8.2.2).
static NOT_SENT: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
];

/// A body of this size is left with the connection whatever the client's windows allow: it comes
/// cheaper. Times the number of streams, that is not much.
const SMALL_BYTES: usize = 4 << 10;

/// Writes the head of a response, whose body has this length if it has one and it is known.
pub(super) fn write_head<A>(
    worker: &Worker<A>,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    response: &Response,
    length: Option<u64>,
) {
    let is_upgrade = matches!(response.payload, Payload::Upgrade(_));
    // What is 101 over HTTP/1 is 200 here (RFC 8441 §5).
    match response.status {
        StatusCode::SWITCHING_PROTOCOLS if is_upgrade => encoder.status(out, StatusCode::OK),
        status => encoder.status(out, status),
    }
    let (mut has_date, mut has_server) = (false, worker.server_name.is_none());
    write_fields(encoder, out, &response.headers, |name| {
        has_date |= name == DATE.as_str().as_bytes();
        has_server |= name == SERVER.as_str().as_bytes();
        !(is_upgrade && name == SEC_WEBSOCKET_ACCEPT.as_str().as_bytes())
    });
    if !has_date {
        // On a connection that is asked once in a second or less, each is another one.
        encoder.field(out, (b"date", worker.date.opening().date()), Keep::Again);
    }
    if !has_server && let Some(name) = &worker.server_name {
        encoder.field(out, (b"server", name.as_bytes()), Keep::AtOnce);
    }
    if let Some(length) = length {
        encoder.content_length(out, length);
    }
}

/// Writes the fields that may be sent, and that are wanted.
pub(super) fn write_fields(
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    fields: &Fields,
    mut wants: impl FnMut(&[u8]) -> bool,
) {
    let ToWrite { passed, mut list, lines } = fields.to_write();
    if !lines.is_empty() {
        list = fields;
    }
    for (name, value) in passed.into_iter().flat_map(|passed| passed.iter_bytes()) {
        let name = name.to_ascii_lowercase();
        if may_be_sent(&name) && wants(&name) {
            encoder.field(out, (&name, value.trim_ascii()), keep(&name));
        }
    }
    for (name, value) in list {
        let name = name.as_str().as_bytes();
        if may_be_sent(name) && wants(name) {
            // RFC 9113 §8.2.1: there is no white space around a value.
            encoder.field(out, (name, value.as_bytes().trim_ascii()), keep(name));
        }
    }
}

fn may_be_sent(name: &[u8]) -> bool {
    !NOT_SENT.iter().any(|not_sent| not_sent.as_str().as_bytes() == name)
}

/// Who can choose a part of a response must not learn from its size what else is in it
/// (RFC 7541 §7.1): so what is secret is not compressed.
fn keep(name: &[u8]) -> Keep {
    if name == SET_COOKIE.as_str().as_bytes() { Keep::Never } else { Keep::Again }
}

/// A response whose head is out.
pub(super) struct Outgoing<'a, A> {
    worker: &'a Worker<A>,
    connection: &'a RefCell<Connection>,
    stream: u32,
    /// The rate at which the client takes the body, once it had to be waited for, and how much
    /// it had taken then.
    pace: Option<(Pace, Deadline)>,
    paced: u64,
    /// How much the connection had sent when that rate began to count.
    seen: u64,
    /// What the connection will send by itself.
    left: u64,
}

impl<'a, A> Outgoing<'a, A> {
    pub(super) fn new(
        worker: &'a Worker<A>,
        connection: &'a RefCell<Connection>,
        stream: u32,
    ) -> Outgoing<'a, A> {
        Outgoing { worker, connection, stream, pace: None, paced: 0, seen: 0, left: 0 }
    }

    /// How much of the body was sent, or will be soon.
    pub(super) fn sent(&self) -> u64 {
        match self.left {
            0 => self.connection.borrow_mut().bytes_sent(self.stream),
            left => left,
        }
    }

    /// Sends all of a body, of this length if that is known.
    pub(super) async fn send_body(&mut self, body: Body, length: Option<u64>) -> Result<()> {
        match body.into_bytes() {
            Ok(bytes) if bytes.len() <= SMALL_BYTES => {
                self.left = bytes.len() as u64;
                self.connection.borrow_mut().send(self.stream, bytes, true)
            }
            // Boxed, for what is not done at once is large and rare.
            Ok(bytes) => Box::pin(self.send(bytes, true)).await,
            Err(body) => Box::pin(self.send_stream(body, length)).await,
        }
    }

    async fn send_stream(&mut self, mut body: Body, length: Option<u64>) -> Result<()> {
        let mut left = length.unwrap_or(u64::MAX);
        let mut trailers = HeaderMap::new();
        loop {
            let next = poll_fn(|cx| match guarded(|| Pin::new(&mut body).poll_frame(cx)) {
                Ok(Poll::Ready(frame)) => Poll::Ready(frame.transpose()),
                Ok(Poll::Pending) => self.poll_gone(cx).map(Err),
                Err(panicked) => Poll::Ready(Err(panicked)),
            });
            let Some(frame) = next.await? else { break };
            match frame.into_data() {
                Ok(data) => {
                    left = left.checked_sub(data.len() as u64).ok_or_else(wrong_length)?;
                    let is_last =
                        length.is_some() && left == 0 && guarded(|| body.is_end_stream())?;
                    self.send(data, is_last).await?;
                    if is_last {
                        return Ok(());
                    }
                }
                Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
            }
        }
        if length.is_some() && left > 0 {
            return Err(wrong_length());
        }
        for name in &NOT_SENT {
            trailers.remove(name);
        }
        if trailers.is_empty() {
            return self.send(Bytes::new(), true).await;
        }
        self.connection.borrow_mut().send_trailers(self.stream, trailers)
    }

    /// Sends bytes as the client takes them.
    async fn send(&mut self, bytes: Bytes, is_last: bool) -> Result<()> {
        if bytes.is_empty() && !is_last {
            return Ok(());
        }
        self.connection.borrow_mut().send(self.stream, bytes, is_last)?;
        poll_fn(|cx| self.poll_sent(cx)).await
    }

    /// Ready when all that was given to the connection is on its way.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut connection = self.connection.borrow_mut();
        if let Poll::Ready(sent) = connection.poll_sent(self.stream, cx) {
            if let Some((pace, deadline)) = &mut self.pace {
                let all = connection.bytes_sent(self.stream);
                pace.moved(all.saturating_sub(self.paced) as usize, deadline);
                self.paced = all;
            }
            return Poll::Ready(sent);
        }
        let worker = self.worker;
        let (pace, deadline) = self
            .pace
            .get_or_insert_with(|| (Pace::new(&worker.settings), worker.deadlines.deadline()));
        let sent = connection.bytes_sent(self.stream);
        if sent > self.paced {
            pace.moved((sent - self.paced) as usize, deadline);
            self.paced = sent;
        }
        ready!(pace.poll_over(deadline, cx));
        if connection.serves_others(self.stream, self.seen) {
            *pace = Pace::new(&worker.settings);
            self.seen = connection.sent;
        }
        let over = pace.poll_over(deadline, cx);
        let reason = "the peer took the response too slowly";
        over.map(|()| Err(Error::new(ErrorKind::TooSlow, reason)))
    }

    /// Ready when the client does not want the response any more.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.connection.borrow_mut().poll_gone(self.stream, cx)
    }

    /// Gives up a response that cannot be completed, so that the client can tell.
    pub(super) fn abandon(&mut self, error: &Error) {
        let code = match error.kind() {
            ErrorKind::TooSlow => Code::CANCEL,
            _ => Code::INTERNAL_ERROR,
        };
        self.connection.borrow_mut().abandon(self.stream, code);
    }
}
