//! The body of a response, read from a stream as the client takes it.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use ::h2::RecvStream;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;
use weft::{Error, ErrorKind};
use weft_proto::http1::client::{BodyLength, ResponseHead};

use super::exchange::{Deadline, Received, headers};
use super::stream_upload::StreamUpload;
use crate::base::inactivity_timer::InactivityTimer;
use crate::exchange::upload::Upload;
use crate::exchange::{BodyOptions, MAX_UNRESERVED_BYTES, UpstreamBody};
use crate::head::{forwarded_response as response, grpc};
use crate::pool::lease::StreamLease;
use crate::spool::MemoryReservation;
use crate::spool::pump::BodySource;

/// Size in bytes from which a piece is passed on as it is.
const MIN_PIECE_BYTES: usize = 4 << 10;

/// Size in bytes up to which smaller pieces are joined: the size of a frame.
const GATHERED_BYTES: usize = 16 << 10;

/// A response body that owns its stream. Dropped before the end, it cancels the stream (RFC 9113
/// §8.1, CANCEL).
pub(crate) struct ResponseBody {
    stream: RecvStream,
    /// `None` after the end of the body.
    lease: Option<StreamLease>,
    stage: Stage,
    /// Data that was received together with the head.
    received: Option<Bytes>,
    /// Remaining length, if it is known.
    remaining: Option<u64>,
    rest_of_request: Option<RestOfRequest>,
    timer: InactivityTimer,
    /// A failure is a status in the trailers.
    is_grpc: bool,
    deadline: Option<Deadline>,
    options: BodyOptions,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Data,
    Trailers,
    End,
}

/// A task that sends the rest of the body of a request. In a call with streams in both directions,
/// messages of the client are forwarded while the client takes no response.
struct RestOfRequest(JoinHandle<()>);

impl RestOfRequest {
    fn send(mut stream: StreamUpload, mut upload: Box<Upload>) -> RestOfRequest {
        RestOfRequest(tokio::spawn(async move {
            // If the upstream fails, the response has the reason. If the client fails, the drop of
            // the stream resets it, so that the upstream does not take the body for complete.
            let _ = std::future::poll_fn(|cx| stream.poll(cx, &mut upload)).await;
        }))
    }
}

impl Drop for RestOfRequest {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ResponseBody {
    /// Creates the body that follows `head`.
    pub(crate) fn new(
        head: &ResponseHead,
        received: Received,
        lease: StreamLease,
        rest: Option<Box<Upload>>,
        options: BodyOptions,
    ) -> ResponseBody {
        let remaining = match head.length {
            BodyLength::Sized(length) => Some(length),
            _ => None,
        };
        // The rest of a request whose upload was stopped is not sent.
        let rest = received.upload.zip(rest.filter(|rest| !rest.is_stopped()));
        ResponseBody {
            stream: received.body,
            lease: Some(lease),
            stage: Stage::Data,
            received: None,
            remaining,
            rest_of_request: rest.map(|(stream, upload)| RestOfRequest::send(stream, upload)),
            timer: InactivityTimer::default(),
            is_grpc: grpc::is_response(head),
            deadline: received.deadline,
            options,
        }
    }

    fn release(&mut self, bytes: usize) {
        // An error means that the stream has ended.
        let _ = self.stream.flow_control().release_capacity(bytes);
    }

    fn poll_next_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, Failure>> {
        if let Some(data) = self.received.take() {
            return Poll::Ready(Ok(Some(self.data(data))));
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.poll(cx).is_ready()
        {
            return Poll::Ready(Err(Failure::Deadline));
        }
        let polled = self.poll_stream(cx);
        if polled.is_ready() {
            self.timer.stop();
            return polled;
        }
        ready!(self.timer.poll_elapsed(self.options.idle_timeout, cx));
        Poll::Ready(Err(Failure::Upstream("timed out waiting for response body data".to_owned())))
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Failure>> {
        if self.stage == Stage::Data {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    let data = self.gather(data, cx);
                    self.release(data.len());
                    return Poll::Ready(Ok(Some(self.data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Err(Failure::from(error))),
                None => self.stage = Stage::Trailers,
            }
        }
        if self.stage == Stage::Trailers {
            let trailers = ready!(self.stream.poll_trailers(cx));
            self.stage = Stage::End;
            if let Some(trailers) = trailers.map_err(Failure::from)? {
                let trailers = headers(&trailers).map_err(|error| error.reason());
                let trailers = trailers.map_err(Failure::Upstream)?;
                return Poll::Ready(Ok(Some(Frame::trailers(response::trailers(&trailers)))));
            }
        }
        Poll::Ready(Ok(None))
    }

    /// Joins a small piece with the pieces that were received behind it. For the small messages of
    /// a stream, a frame for each costs more than a copy.
    fn gather(&mut self, first: Bytes, cx: &mut Context<'_>) -> Bytes {
        if first.len() >= MIN_PIECE_BYTES {
            return first;
        }
        let mut gathered = BytesMut::new();
        // An error or the end is returned again by the next read.
        while let Poll::Ready(Some(Ok(data))) = self.stream.poll_data(cx) {
            if gathered.is_empty() {
                gathered.reserve(GATHERED_BYTES);
                gathered.extend_from_slice(&first);
            }
            gathered.extend_from_slice(&data);
            if gathered.len() >= GATHERED_BYTES {
                break;
            }
        }
        if gathered.is_empty() { first } else { gathered.freeze() }
    }

    fn data(&mut self, data: Bytes) -> Frame<Bytes> {
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(data.len() as u64);
        }
        Frame::data(data)
    }

    /// Ends the stream; the rest of the request is not sent.
    fn finish(&mut self) {
        self.stage = Stage::End;
        self.lease = None;
        self.rest_of_request = None;
        if let Some(hooks) = self.options.hooks.take() {
            hooks.end_attempt();
        }
    }

    /// Ends an incomplete body: a call of gRPC by a status, other bodies by an error.
    fn fail(&mut self, failure: Failure) -> Option<Result<Frame<Bytes>, Error>> {
        let lease = self.lease.take()?;
        if let Failure::Upstream(reason) = &failure {
            lease.upstream().record_failure(reason);
        }
        let (code, reason) = match failure {
            Failure::Deadline => (grpc::Code::DeadlineExceeded, "the deadline is over".to_owned()),
            Failure::Upstream(reason) => (grpc::Code::Unavailable, reason),
        };
        let reason = format!("the upstream {}: {reason}", lease.upstream());
        drop(lease);
        if self.is_grpc {
            log::debug!("{reason}");
            self.finish();
            return Some(Ok(Frame::trailers(grpc::status_fields(code))));
        }
        Some(Err(Error::new(ErrorKind::ServiceFailed, reason).after_data()))
    }
}

/// Reason for an incomplete body.
enum Failure {
    Deadline,
    Upstream(String),
}

impl From<::h2::Error> for Failure {
    fn from(error: ::h2::Error) -> Failure {
        Failure::Upstream(format!("response body truncated: {error}"))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.lease.is_none() {
            return Poll::Ready(None);
        }
        match ready!(self.poll_next_frame(cx)) {
            Ok(frame) => {
                let is_last = frame.as_ref().is_none_or(Frame::is_trailers);
                if is_last || self.received.is_none() && self.stream.is_end_stream() {
                    self.finish();
                }
                Poll::Ready(frame.map(Ok))
            }
            Err(failure) => Poll::Ready(self.fail(failure)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.lease.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl UpstreamBody for ResponseBody {
    /// A body with trailers is not taken.
    fn take_received_body(
        &mut self,
        reserve: impl FnOnce(usize, usize) -> Option<MemoryReservation>,
    ) -> Option<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut pieces = Vec::new();
        while !self.stream.is_end_stream() {
            match self.stream.poll_data(&mut cx) {
                Poll::Ready(Some(Ok(data))) => {
                    self.release(data.len());
                    pieces.push(data);
                }
                _ => break,
            }
        }
        let received = match pieces.len() {
            0 | 1 => pieces.pop(),
            _ => Some(pieces.concat().into()),
        };
        if self.stream.is_end_stream() {
            let body = received.unwrap_or_default();
            let taken = match body.len() {
                ..=MAX_UNRESERVED_BYTES => Some(body.clone()),
                length => reserve(length, length).map(|reservation| reservation.hold(body.clone())),
            };
            match taken {
                Some(_) => self.finish(),
                None => self.received = Some(body),
            }
            return taken;
        }
        self.received = received;
        None
    }
}

/// The window of the stream limits each read.
impl BodySource for ResponseBody {
    fn buffered_bytes(&self) -> usize {
        self.received.as_ref().map_or(0, Bytes::len)
    }
}
