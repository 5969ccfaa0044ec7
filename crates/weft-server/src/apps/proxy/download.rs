//! The body of a response on its way from an upstream to the client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use weft::client::{BodyReader, Head, Piece};
use weft::{Error, ErrorKind};

use super::pool::Lease;
use super::response;
use super::upload::{Turn, Upload};

/// How much is asked for at once: a little, and more as long as all of it comes.
const LEAST_ROOM: usize = 8 << 10;
const MOST_ROOM: usize = 64 << 10;

/// A body that holds the connection which it comes from: at its end the next request may have
/// it, and if it is dropped before, the connection closes.
pub(super) struct Download {
    body: BodyReader,
    /// `None` when it is over.
    lease: Option<Lease>,
    /// Whether another response can come over the connection.
    keep_alive: bool,
    /// What is still to come of the request.
    upload: Option<Box<Upload>>,
    patience: Duration,
    room: usize,
    /// Why no more of it comes.
    failure: Option<Error>,
}

impl Download {
    /// A body that has such a head.
    pub(super) fn new(
        head: &Head,
        lease: Lease,
        upload: Option<Box<Upload>>,
        patience: Duration,
    ) -> Download {
        Download {
            body: BodyReader::new(head.length),
            lease: Some(lease),
            keep_alive: head.keep_alive,
            upload,
            patience,
            room: LEAST_ROOM,
            failure: None,
        }
    }

    /// The same, for events: they come when something happens, which may be seldom.
    pub(super) fn with_patience(self, patience: Duration) -> Download {
        Download { patience, ..self }
    }

    /// All of the body, if that has come already. Nothing of it is left here then, and the
    /// connection is given back.
    pub(super) fn all_at_hand(&mut self) -> Option<Bytes> {
        let length = self.body.length()?;
        let input = &mut self.lease.as_mut()?.wire.input;
        if (input.len() as u64) < length {
            return None;
        }
        let bytes = match self.body.read(input) {
            Ok(Piece::Data(bytes)) => bytes,
            _ => Bytes::new(),
        };
        self.end();
        Some(bytes)
    }

    /// The next piece, as far as it has come; `None` at the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, String>> {
        let Some(lease) = &mut self.lease else { return Poll::Ready(Ok(None)) };
        let wire = &mut lease.wire;
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(Err(_)) = upload.poll(cx, wire)
        {
            // The response may be whole all the same, but it is the last.
            upload.stop();
        }
        loop {
            let piece = match self.body.read(&mut wire.input) {
                Ok(Piece::Data(data)) => Some(Frame::data(data)),
                Ok(Piece::Trailers(fields)) => Some(Frame::trailers(response::trailers(&fields))),
                Ok(Piece::End) => None,
                Ok(Piece::Wait) => match wire.poll_fill(cx, self.room) {
                    Poll::Ready(Ok(0)) if self.body.may_end() => None,
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(cut(&"it ended"))),
                    Poll::Ready(Ok(bytes)) => {
                        self.room = if bytes < self.room { LEAST_ROOM } else { MOST_ROOM };
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(cut(&error))),
                    Poll::Pending => {
                        // It may be silent because it waits for more of the request.
                        let turn = self.upload.as_mut().map(|upload| upload.turn().0);
                        if turn == Some(Turn::Client) {
                            wire.clock.stop();
                            return Poll::Pending;
                        }
                        let silence = wire.clock.poll_over(self.patience, cx);
                        return silence
                            .map(|()| Err("it is silent in the middle of a body".into()));
                    }
                },
                Err(error) => return Poll::Ready(Err(cut(&error))),
            };
            wire.clock.stop();
            return Poll::Ready(Ok(piece));
        }
    }

    /// Gives the connection back if it can be used again: if the request is through, too. What is
    /// still to come of that, nobody wants.
    fn end(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if self.keep_alive && self.upload.as_ref().is_none_or(|upload| upload.is_whole()) {
            lease.give_back();
        }
    }
}

fn cut(why: &dyn std::fmt::Display) -> String {
    format!("the body was cut: {why}")
}

impl Body for Download {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        match ready!(self.poll_piece(cx)) {
            Ok(piece) => {
                if piece.is_none() || self.body.length() == Some(0) {
                    self.end();
                }
                Poll::Ready(piece.map(Ok))
            }
            Err(reason) => {
                self.failure = self.lease.take().map(|lease| {
                    lease.upstream().failed(&reason);
                    let reason = format!("the upstream {}: {reason}", lease.upstream());
                    Error::new(ErrorKind::ServiceFailed, reason)
                });
                // While nothing new is to be had, what has come is sent: of a response that fails
                // before it has begun the engine would make one of its own.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.failure.is_none() && (self.lease.is_none() || self.body.length() == Some(0))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.length().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The body that the head of a response speaks of when there is none: the response to HEAD to
/// which a GET would have had one of unknown length.
pub(super) struct Unsaid;

impl Body for Unsaid {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Poll::Ready(None)
    }
}
