//! The body of a request, streamed from the client to an upstream.

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

use super::GatewayError;
use super::connection::UpstreamConnection;

/// Longest wait for a 100 (Continue). Many upstreams ignore `Expect: 100-continue` and wait for the
/// body (RFC 9110 §10.1.1).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Upload {
    body: Body,
    framing: Framing,
    stage: Stage,
    waiting_for: WaitingFor,
    /// Names of the trailers to forward.
    trailers: Arc<[HeaderName]>,
}

/// Framing of the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
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
pub(super) enum WaitingFor {
    Client,
    Upstream,
}

impl Upload {
    /// Creates an upload that starts at once, or after a 100 (Continue). Of the trailers only those
    /// with the given names are forwarded.
    pub(super) fn new(
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
        Upload { body, framing, stage, waiting_for: WaitingFor::Upstream, trailers }
    }

    /// Starts sending after a 100 (Continue).
    pub(super) fn on_continue(&mut self) {
        if let Stage::AwaitingContinue(_) = self.stage {
            self.stage = Stage::Sending;
        }
    }

    /// Stops sending: the rest of the body is not needed.
    pub(super) fn stop(&mut self) {
        if !self.is_complete() {
            self.stage = Stage::Done { is_complete: false };
        }
    }

    /// Returns true if all of the body was read from the client.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Done { is_complete: true })
    }

    /// Returns the peer that has to act next.
    pub(super) fn waiting_for(&self) -> WaitingFor {
        self.waiting_for
    }

    /// Sends the data that is available. Ready when there is no more to send.
    pub(super) fn poll(
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
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let frame = frame.transpose().map_err(|error| {
            self.stop();
            GatewayError::Client(error)
        })?;
        let is_last = |frame: &Frame<Bytes>| frame.is_trailers() || self.body.is_end_stream();
        if frame.as_ref().is_none_or(is_last) {
            self.stage = Stage::Done { is_complete: true };
        }
        let output = &mut connection.output;
        let mut trailers = HeaderMap::new();
        match frame.map(Frame::into_data) {
            Some(Ok(piece)) => match self.framing {
                Framing::Sized => output.push(piece),
                Framing::Chunked => chunk_encoder::chunk(output, piece),
                Framing::FastCgi => fastcgi::stdin(output, piece),
            },
            Some(Err(frame)) => trailers = frame.into_trailers().unwrap_or_default(),
            None => {}
        }
        match self.framing {
            Framing::Chunked if self.is_complete() => {
                let trailers = trailers.iter().filter(|(name, _)| self.trailers.contains(name));
                chunk_encoder::last_chunk(output, trailers);
            }
            Framing::FastCgi if self.is_complete() => fastcgi::end_of_stdin(output.tail()),
            _ => {}
        }
        Poll::Ready(Ok(()))
    }
}
