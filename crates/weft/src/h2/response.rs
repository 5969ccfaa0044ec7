//! Response → stream: the head, and the body as the client takes it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::h2::{Reason, SendStream};
use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, SEC_WEBSOCKET_ACCEPT, SERVER, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Body as _;

use crate::body::{Body, wrong_length};
use crate::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::fields::Fields;
use crate::panic::guarded;
use crate::response::Response;
use crate::worker::Worker;

/// Fields that belong to a connection, or to the engine (RFC 9113 §8.2.2). The crate h2 refuses
/// to send most of them, and with them the whole response.
static NOT_SENT: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
];

/// A body of this size is left with the crate h2 whatever the client's windows allow: it comes
/// cheaper. Times the number of streams, that is not much.
const SMALL_BYTES: usize = 4 << 10;

/// The `Content-Length` that was said last: it is often the next one, too.
pub(crate) struct LastLength(RefCell<(u64, HeaderValue)>);

impl Default for LastLength {
    fn default() -> LastLength {
        LastLength(RefCell::new((0, HeaderValue::from_static("0"))))
    }
}

impl LastLength {
    fn value(&self, length: u64) -> HeaderValue {
        let mut last = self.0.borrow_mut();
        if last.0 != length {
            *last = (length, length.into());
        }
        last.1.clone()
    }
}

/// The head of a response, whose body has this length if it has one and it is known. Takes the
/// response's fields, and an empty map for them.
pub(super) fn head<A>(
    worker: &Worker<A>,
    response: &mut Response,
    length: Option<u64>,
    map: &mut HeaderMap,
) -> http::Response<()> {
    let mut head = http::Response::new(());
    *head.status_mut() = response.status;
    std::mem::swap(head.headers_mut(), map);
    let map = head.headers_mut();
    map.reserve(response.headers.len() + 3);
    let (mut has_date, mut has_server) = (false, worker.server_name.is_none());
    let mut add = |name: HeaderName, value| {
        has_date |= name == DATE;
        has_server |= name == SERVER;
        if !NOT_SENT.contains(&name) {
            map.append(name, value);
        }
    };
    match std::mem::take(&mut response.headers) {
        Fields::Own(list) => list.into_iter().for_each(|(name, value)| add(name, value)),
        shared => shared.iter().for_each(|(name, value)| add(name.clone(), value.clone())),
    }
    if !has_date {
        map.append(DATE, worker.date.value());
    }
    if !has_server && let Some(name) = &worker.server_name {
        map.append(SERVER, name.clone());
    }
    if let Some(length) = length {
        map.append(CONTENT_LENGTH, worker.last_length.value(length));
    }
    head
}

/// Adds the fields of an interim response, as far as they can be sent.
pub(super) fn add_sendable(map: &mut HeaderMap, fields: &Fields) {
    let sendable = fields.iter().filter(|(name, _)| !NOT_SENT.contains(name));
    sendable.for_each(|(name, value)| _ = map.append(name, value.clone()));
}

/// The head after which a stream is somebody else's. What is 101 over HTTP/1 is 200 here
/// (RFC 8441 §5).
pub(super) fn upgrade_head<A>(
    worker: &Worker<A>,
    response: &mut Response,
    map: &mut HeaderMap,
) -> http::Response<()> {
    let mut head = head(worker, response, None, map);
    head.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
    if response.status == StatusCode::SWITCHING_PROTOCOLS {
        *head.status_mut() = StatusCode::OK;
    }
    head
}

/// A response whose head is out.
pub(super) struct Outgoing<'a, A> {
    worker: &'a Worker<A>,
    stream: SendStream<Bytes>,
    /// The rate at which the client takes the body, once it had to be waited for.
    pace: Option<Box<(Pace, Deadline)>>,
    pub(super) sent: u64,
}

impl<'a, A> Outgoing<'a, A> {
    pub(super) fn new(worker: &'a Worker<A>, stream: SendStream<Bytes>) -> Outgoing<'a, A> {
        Outgoing { worker, stream, pace: None, sent: 0 }
    }

    /// Sends a body that is small and at hand; gives back any other.
    pub(super) fn send_small(&mut self, body: Body) -> Result<Result<()>, Body> {
        let bytes = body.into_bytes()?;
        if bytes.len() > SMALL_BYTES {
            return Err(bytes.into());
        }
        self.sent += bytes.len() as u64;
        Ok(self.stream.send_data(bytes, true).map_err(gone))
    }

    /// Sends all of a body, of this length if that is known.
    pub(super) async fn send_body(&mut self, body: Body, length: Option<u64>) -> Result<()> {
        match body.into_bytes() {
            Ok(bytes) => self.send(bytes, true).await,
            Err(body) => self.send_stream(body, length).await,
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
                    let is_last = length.is_some() && left == 0 && body.is_end_stream();
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
        self.stream.send_trailers(trailers).map_err(gone)
    }

    /// Sends bytes as the client's windows allow.
    async fn send(&mut self, mut bytes: Bytes, is_last: bool) -> Result<()> {
        while !bytes.is_empty() {
            let room = poll_fn(|cx| self.poll_room(cx, bytes.len())).await?;
            let piece = bytes.split_to(room.min(bytes.len()));
            self.sent += piece.len() as u64;
            let ends = is_last && bytes.is_empty();
            self.stream.send_data(piece, ends).map_err(gone)?;
            if ends {
                return Ok(());
            }
        }
        if is_last { self.stream.send_data(bytes, true).map_err(gone) } else { Ok(()) }
    }

    /// Ready with how many bytes the client takes, of those that are wanted.
    fn poll_room(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<Result<usize>> {
        self.stream.reserve_capacity(wanted);
        loop {
            let room = self.stream.capacity();
            if room > 0 {
                if let Some(waited) = &mut self.pace {
                    let (pace, deadline) = &mut **waited;
                    pace.moved(room.min(wanted), deadline);
                }
                return Poll::Ready(Ok(room));
            }
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(gone(error))),
                Poll::Ready(None) => return Poll::Ready(Err(Error::disconnected())),
                Poll::Pending => break,
            }
        }
        if let Poll::Ready(error) = self.poll_gone(cx) {
            return Poll::Ready(Err(error));
        }
        let worker = self.worker;
        let (pace, deadline) = &mut **self.pace.get_or_insert_with(|| {
            Box::new((Pace::new(&worker.settings), worker.deadlines.deadline()))
        });
        let over = pace.poll_over(deadline, cx);
        let reason = "the peer took the response too slowly";
        over.map(|()| Err(Error::new(ErrorKind::TooSlow, reason)))
    }

    /// Ready when the client does not want the response any more.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.stream.poll_reset(cx).map(|_| Error::disconnected())
    }

    /// Gives up a response that cannot be completed, so that the client can tell.
    pub(super) fn abandon(&mut self, error: &Error) {
        let reason = match error.kind() {
            ErrorKind::TooSlow => Reason::CANCEL,
            _ => Reason::INTERNAL_ERROR,
        };
        self.stream.send_reset(reason);
    }

    pub(super) fn into_stream(self) -> SendStream<Bytes> {
        self.stream
    }
}

/// Nothing can be sent any more: the client has reset the stream, or left.
pub(super) fn gone(error: ::h2::Error) -> Error {
    Error::disconnected().because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_said_anew_when_it_is_another() {
        let last = LastLength::default();
        for length in [0, 14, 14, 0, u64::MAX] {
            assert_eq!(last.value(length), length.to_string());
        }
    }
}
