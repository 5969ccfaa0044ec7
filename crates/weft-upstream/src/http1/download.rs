//! The body of a response, streamed from an upstream to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use weft::{Error, ErrorKind};
use weft_proto::http1::client::{BodyPiece, ResponseHead};

use super::response_reader::BodyReader;
use crate::attempt_hooks::AttemptHooks;
use crate::connect::upstream_connection::INPUT_BYTES;
use crate::exchange::upload::{Upload, WaitingFor};
use crate::exchange::{BodyOptions, MAX_UNRESERVED_BYTES, UpstreamBody};
use crate::head::forwarded_response as response;
use crate::pool::lease::ConnectionLease;
use crate::spool::MemoryReservation;
use crate::spool::pump::BodySource;

/// Size of a read, in bytes. It starts at the minimum and rises to the maximum while reads fill the
/// buffer.
const MIN_READ_BYTES: usize = 8 << 10;
const MAX_READ_BYTES: usize = 64 << 10;

/// A response body that owns its connection: at its end the connection returns to the pool; if the
/// body is dropped earlier, the connection closes.
pub(crate) struct Download {
    body: BodyReader,
    /// `None` after the end of the body.
    lease: Option<ConnectionLease>,
    /// The connection is persistent (RFC 9112 §9.3): it can serve another request.
    keep_alive: bool,
    /// Remaining body of the request.
    upload: Option<Box<Upload>>,
    idle_timeout: Duration,
    read_bytes: usize,
    /// Maximum size of the next read, in bytes.
    max_read_bytes: usize,
    /// Hooks that are called at the end of the body.
    hooks: Option<Arc<dyn AttemptHooks>>,
}

impl Download {
    /// Creates the body that follows `head`.
    pub(crate) fn new(
        head: &ResponseHead,
        body: BodyReader,
        mut lease: ConnectionLease,
        upload: Option<Box<Upload>>,
        options: BodyOptions,
    ) -> Download {
        lease.connection.idle_limit = response::idle_limit(head);
        // The read of a head that filled its buffer left more in the socket.
        let input = &lease.connection.input;
        let is_filled = !input.is_empty() && input.len() == input.capacity();
        Download {
            body,
            lease: Some(lease),
            keep_alive: head.keep_alive,
            upload,
            idle_timeout: options.idle_timeout,
            read_bytes: if is_filled { MAX_READ_BYTES } else { MIN_READ_BYTES },
            max_read_bytes: MAX_READ_BYTES,
            hooks: options.hooks,
        }
    }

    /// Returns the size of the next read. One more byte than the rest of the body is read, because
    /// a read that does not fill its buffer shows that the socket is empty.
    fn next_read_bytes(&self) -> usize {
        let rest = self.body.remaining().map_or(u64::MAX, |rest| rest.saturating_add(1));
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        rest.max(MIN_READ_BYTES).min(self.read_bytes).min(self.max_read_bytes)
    }

    /// Reads the next frame of the body; `None` at the end.
    fn poll_next_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, String>> {
        let max_bytes = self.next_read_bytes();
        let Some(lease) = &mut self.lease else { return Poll::Ready(Ok(None)) };
        let connection = &mut lease.connection;
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(Err(_)) = upload.poll(cx, connection)
        {
            // The response may still be complete, but the connection is not used again.
            upload.stop();
        }
        loop {
            let frame = match self.body.read(&mut connection.input) {
                Ok(BodyPiece::Data(data)) => Some(Frame::data(data)),
                Ok(BodyPiece::Trailers(fields)) => {
                    Some(Frame::trailers(response::trailers(&fields)))
                }
                Ok(BodyPiece::End) => None,
                Ok(BodyPiece::Wait) => match connection.poll_fill(cx, max_bytes, max_bytes) {
                    Poll::Ready(Ok(0)) if self.body.may_end_at_eof() => None,
                    Poll::Ready(Ok(0)) => {
                        return Poll::Ready(Err(truncated(&"the connection closed")));
                    }
                    Poll::Ready(Ok(bytes)) => {
                        self.read_bytes =
                            if bytes < max_bytes { MIN_READ_BYTES } else { MAX_READ_BYTES };
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(truncated(&error))),
                    Poll::Pending => {
                        connection.free_buffers();
                        // The upstream may be waiting for more of the request.
                        let upload = self.upload.as_ref();
                        let waiting_for = upload.map(|upload| upload.waiting_for());
                        if waiting_for == Some(WaitingFor::Client) {
                            connection.timer.stop();
                            return Poll::Pending;
                        }
                        if connection.take_progress() {
                            connection.timer.stop();
                        }
                        let elapsed = connection.timer.poll_elapsed(self.idle_timeout, cx);
                        return elapsed
                            .map(|()| Err("timed out waiting for response body data".into()));
                    }
                },
                Err(error) => return Poll::Ready(Err(truncated(&error))),
            };
            connection.timer.stop();
            return Poll::Ready(Ok(frame));
        }
    }

    /// Returns the connection to the pool if it can be used again, which requires that the request
    /// is complete, too. Otherwise closes it, and the rest of the request is not sent.
    fn finish(&mut self) {
        let Some(mut lease) = self.lease.take() else { return };
        if let Some(hooks) = self.hooks.take() {
            hooks.end_attempt();
        }
        let is_sent = self.upload.as_ref().is_none_or(|upload| upload.is_complete());
        if self.keep_alive && is_sent && self.body.has_ended(&mut lease.connection.input) {
            lease.return_to_pool();
        }
    }
}

fn truncated(reason: &dyn std::fmt::Display) -> String {
    format!("response body truncated: {reason}")
}

impl Body for Download {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match ready!(self.poll_next_frame(cx)) {
            Ok(frame) => {
                if frame.is_none() || self.body.remaining() == Some(0) {
                    self.finish();
                }
                Poll::Ready(frame.map(Ok))
            }
            Err(reason) => {
                let failure = self.lease.take().map(|lease| {
                    lease.upstream().record_failure(&reason);
                    let reason = format!("the upstream {}: {reason}", lease.upstream());
                    Err(Error::new(ErrorKind::ServiceFailed, reason).after_data())
                });
                Poll::Ready(failure)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.lease.is_none() || self.body.remaining() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl UpstreamBody for Download {
    /// Nothing remains in `self`, and the connection returns to the pool. A small body is copied: a
    /// client that takes it slowly holds no more than its size, and not the buffer of the read.
    fn take_received_body(
        &mut self,
        reserve: impl FnOnce(usize, usize) -> Option<MemoryReservation>,
    ) -> Option<Bytes> {
        let (rest, received) = (self.body.remaining(), self.buffered_bytes());
        let reservation = match rest {
            Some(rest) if rest > received as u64 => return None,
            Some(0) => None,
            _ if received <= MAX_UNRESERVED_BYTES => None,
            _ => Some(reserve(received, received.max(INPUT_BYTES))?),
        };
        let input = &mut self.lease.as_mut()?.connection.input;
        let body = self.body.take_received_body(input)?;
        let body = match reservation {
            Some(reservation) => reservation.hold(body),
            None => Bytes::copy_from_slice(&body),
        };
        self.finish();
        Some(body)
    }
}

impl BodySource for Download {
    fn limit_read(&mut self, bytes: usize) {
        self.max_read_bytes = bytes;
    }

    fn buffered_bytes(&self) -> usize {
        let input = self.lease.as_ref().map_or(0, |lease| lease.connection.input.len());
        input + self.body.held_bytes()
    }

    fn free_memory(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.connection.free_buffers();
        }
    }
}
