//! The body of a request, streamed from the client to an upstream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use tokio::time::{Sleep, sleep};
use weft::Body;
use weft::header::{HeaderMap, HeaderName};
use weft_proto::fastcgi;
use weft_proto::http1::chunk_encoder;

use crate::connect::upstream_connection::UpstreamConnection;
use crate::gateway_error::GatewayError;

/// Longest wait for a 100 (Continue). Many upstreams ignore `Expect: 100-continue` and wait for the
/// body (RFC 9110 §10.1.1).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Upload {
    body: Body,
    framing: Framing,
    stage: Stage,
    waiting_for: WaitingFor,
    /// Names of the trailers to forward.
    trailers: Arc<[HeaderName]>,
    /// The beginning of the body, for another attempt.
    sent: Sent,
    /// The part of the beginning that is sent again.
    again: VecDeque<Bytes>,
    /// All of the body was read.
    has_ended: bool,
}

/// Maximum size of the beginning of a body that is kept for another attempt, in bytes.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// The part of a body that was sent.
enum Sent {
    /// A part that is not recorded, or too large.
    Unknown,
    Kept {
        pieces: Vec<Bytes>,
        bytes: usize,
    },
}

/// A part of a body, for a stream of HTTP/2.
pub(crate) enum Piece {
    Data(Bytes),
    /// The last part: the trailers to forward.
    Trailers(HeaderMap),
    End,
}

/// Framing of the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The head has the length.
    Sized,
    /// Chunked transfer coding.
    Chunked,
    /// Records of FastCGI; the head has the length.
    FastCgi,
}

enum Stage {
    /// The body is held back until the upstream sends a 100 (RFC 9110 §10.1.1), or the timer
    /// elapses.
    AwaitingContinue(Pin<Box<Sleep>>),
    Sending,
    /// All of the body is buffered or sent, or the rest is not needed.
    Done {
        is_complete: bool,
    },
}

/// The peer that has to act next while the response is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitingFor {
    Client,
    Upstream,
}

impl Upload {
    /// Creates an upload that starts at once, or after a 100 (Continue). Only trailers with the
    /// names in `trailers` are forwarded.
    pub(crate) fn new(
        body: Body,
        framing: Framing,
        expect_continue: bool,
        trailers: Arc<[HeaderName]>,
    ) -> Upload {
        let stage = if expect_continue {
            Stage::AwaitingContinue(Box::pin(sleep(CONTINUE_TIMEOUT)))
        } else {
            Stage::Sending
        };
        let (waiting_for, sent, again) = (WaitingFor::Upstream, Sent::Unknown, VecDeque::new());
        Upload { body, framing, stage, waiting_for, trailers, sent, again, has_ended: false }
    }

    /// Keeps the sent bytes for another attempt, as long as they are few.
    pub(crate) fn record_for_retry(&mut self) {
        self.sent = Sent::Kept { pieces: Vec::new(), bytes: 0 };
    }

    /// Prepares the body to be sent again. Returns false if it is not kept.
    pub(crate) fn rewind(&mut self) -> bool {
        let Sent::Kept { pieces, .. } = std::mem::replace(&mut self.sent, Sent::Unknown) else {
            return false;
        };
        self.again = pieces.into_iter().chain(self.again.drain(..)).collect();
        self.stage = Stage::Sending;
        true
    }

    /// Reads the next part of the body.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, GatewayError>> {
        if let Some(data) = self.again.pop_front() {
            return Poll::Ready(Ok(self.piece(data)));
        }
        if self.has_ended {
            self.stage = Stage::Done { is_complete: true };
            return Poll::Ready(Ok(Piece::End));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let frame = frame.transpose().map_err(|error| {
            self.stop();
            GatewayError::Client(error)
        })?;
        self.has_ended = frame.as_ref().is_none_or(Frame::is_trailers) || self.body.is_end_stream();
        Poll::Ready(Ok(match frame.map(Frame::into_data) {
            Some(Ok(data)) => self.piece(data),
            Some(Err(frame)) => {
                self.stage = Stage::Done { is_complete: true };
                Piece::Trailers(self.forwarded_trailers(frame.into_trailers().unwrap_or_default()))
            }
            None => {
                self.stage = Stage::Done { is_complete: true };
                Piece::End
            }
        }))
    }

    fn piece(&mut self, data: Bytes) -> Piece {
        if self.has_ended && self.again.is_empty() {
            self.stage = Stage::Done { is_complete: true };
        }
        match &mut self.sent {
            Sent::Kept { pieces, bytes } if *bytes + data.len() <= MAX_KEPT_BYTES => {
                *bytes += data.len();
                pieces.push(data.clone());
            }
            _ => self.sent = Sent::Unknown,
        }
        Piece::Data(data)
    }

    /// Returns the trailers to forward. A body with trailers is not sent again.
    fn forwarded_trailers(&mut self, mut trailers: HeaderMap) -> HeaderMap {
        self.sent = Sent::Unknown;
        let names: Vec<HeaderName> = trailers.keys().cloned().collect();
        for name in names.iter().filter(|name| !self.trailers.contains(name)) {
            trailers.remove(name);
        }
        trailers
    }

    /// Starts sending after a 100 (Continue).
    pub(crate) fn on_continue(&mut self) {
        if let Stage::AwaitingContinue(_) = self.stage {
            self.stage = Stage::Sending;
        }
    }

    /// Stops sending: the rest of the body is not needed.
    pub(crate) fn stop(&mut self) {
        if !self.is_complete() {
            self.stage = Stage::Done { is_complete: false };
        }
    }

    /// Returns true if the rest of the body is not needed.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.stage, Stage::Done { is_complete: false })
    }

    /// Returns true if all of the body was read from the client.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Done { is_complete: true })
    }

    /// Returns the peer that has to act next.
    pub(crate) fn waiting_for(&self) -> WaitingFor {
        self.waiting_for
    }

    /// Sends the available data. Ready when nothing more has to be sent.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut UpstreamConnection,
    ) -> Poll<Result<(), GatewayError>> {
        loop {
            self.waiting_for = WaitingFor::Upstream;
            // Available data is sent together, the first of it with the head.
            let mut is_body_pending = false;
            while !is_body_pending && !connection.output.is_full() {
                is_body_pending = self.poll_buffer_frame(cx, connection)?.is_pending();
            }
            ready!(connection.poll_send(cx)).map_err(GatewayError::ConnectionLost)?;
            match self.stage {
                Stage::Done { .. } => return Poll::Ready(Ok(())),
                Stage::AwaitingContinue(_) if is_body_pending => return Poll::Pending,
                Stage::Sending if is_body_pending => {
                    self.waiting_for = WaitingFor::Client;
                    return Poll::Pending;
                }
                _ => {}
            }
        }
    }

    /// Buffers one frame; pending if none is available now, or at the end.
    fn poll_buffer_frame(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut UpstreamConnection,
    ) -> Poll<Result<(), GatewayError>> {
        match &mut self.stage {
            Stage::Done { .. } => return Poll::Pending,
            Stage::AwaitingContinue(timer) => {
                ready!(timer.as_mut().poll(cx));
                self.stage = Stage::Sending;
            }
            Stage::Sending => {}
        }
        let piece = ready!(self.poll_piece(cx))?;
        let output = &mut connection.output;
        let mut trailers = HeaderMap::new();
        match piece {
            Piece::Data(data) => match self.framing {
                Framing::Sized => output.push(data),
                Framing::Chunked => chunk_encoder::chunk(output, data),
                Framing::FastCgi => fastcgi::stdin(output, data),
            },
            Piece::Trailers(forwarded) => trailers = forwarded,
            Piece::End => {}
        }
        match self.framing {
            Framing::Chunked if self.is_complete() => {
                chunk_encoder::last_chunk(output, trailers.iter());
            }
            Framing::FastCgi if self.is_complete() => fastcgi::end_of_stdin(output.tail()),
            _ => {}
        }
        Poll::Ready(Ok(()))
    }
}
