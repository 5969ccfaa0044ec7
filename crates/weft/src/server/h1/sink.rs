//! The sending side of an HTTP/1 connection: serializes, buffers and sends responses.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode, Version};

use crate::app::Application;
use crate::clock::deadline::{Deadline, Pace};
use crate::disk::File;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::request_line;
use crate::message::connection::RequestContext;
use crate::message::fields::Fields;
use crate::message::payload::Payload;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::net::writer::Writer;
use crate::server::exchange::{Remaining, ResponseSink, Trailers};
use crate::server::h1::input::Input;
use crate::server::upgraded::PendingUpgrade;
use crate::server::worker_context::WorkerContext;
use crate::settings::Disconnect;
use weft_proto::http1::framing::{self, ResponseFraming};
use weft_proto::http1::{chunk_encoder, compose};
use weft_proto::write_buffer::Mark;

/// The sending side of a connection, with the state of the current response, or of the last one.
pub(super) struct Sink<'a, A> {
    pub(super) worker: &'a WorkerContext<A>,
    /// While a response is sent, the sink detects a disconnect and serves the body that has the
    /// reader.
    pub(super) input: Input<'a>,
    pub(super) writer: &'a mut Writer,
    pub(super) deadline: &'a Deadline,
    /// Minimum rate at which the peer must receive.
    pub(super) pace: Pace,
    pub(super) shared: &'a Arc<RequestContext>,
    /// Head of the current request, if it is valid.
    pub(super) head: &'a mut RequestHead,
    /// Handler that takes over the connection after the response, if any.
    pub(super) upgrade: &'a mut Option<PendingUpgrade>,
    pub(super) request: CurrentRequest,
    /// Set if the client supports interim responses.
    pub(super) accepts_interim: bool,
    pub(super) persistence: Persistence,
    pub(super) progress: ResponseProgress,
    pub(super) framing: ResponseFraming,
    /// Number of content bytes buffered or sent.
    pub(super) body_bytes: u64,
}

pub(super) enum CurrentRequest {
    /// A valid request, whose head is in the head buffers.
    Valid,
    /// An invalid request, which is still in the input buffer.
    Invalid { is_head: bool },
}

/// Persistence of the connection after the response (RFC 9112 §9.3).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Persistence {
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

/// The progress of the current response.
#[derive(Clone, Copy)]
pub(super) enum ResponseProgress {
    NotStarted,
    /// Starts at this mark of the output. Nothing was sent since, so the response can
    /// still be replaced.
    Buffered {
        start: Mark,
    },
    Started,
}

impl<A: Application> ResponseSink for Sink<'_, A> {
    fn head(&self) -> Option<&RequestHead> {
        match self.request {
            CurrentRequest::Valid => Some(self.head),
            CurrentRequest::Invalid { .. } => None,
        }
    }

    fn request_line(&self) -> &[u8] {
        match self.request {
            CurrentRequest::Invalid { .. } => request_line(self.input.received()),
            CurrentRequest::Valid => &[],
        }
    }

    fn shared(&self) -> &Arc<RequestContext> {
        self.shared
    }

    fn is_tunnel(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.writer.is_closed()
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        while self.input.poll_continue_requested(cx).is_ready() {
            self.send_continue();
        }
        let is_not_started = matches!(self.progress, ResponseProgress::NotStarted);
        match (self.poll_flush(cx), &self.worker.settings.disconnect) {
            // A write error ends a response that has started in any case.
            (Poll::Ready(Err(error)), _) if !is_not_started => Poll::Ready(error),
            (_, Disconnect::Detach) => {
                self.close_if_broken(cx);
                Poll::Pending
            }
            (Poll::Ready(Err(error)), _) => Poll::Ready(error),
            (_, Disconnect::Cancel) => self.input.poll_broken(cx, self.writer, self.shared),
            (_, Disconnect::CancelAtEof) => self.input.poll_disconnected(cx),
        }
    }

    fn send_interim(&mut self, status: StatusCode, fields: &Fields) {
        if self.accepts_interim {
            let mut interim = Vec::new();
            compose::interim_head(&mut interim, status, &fields.sources());
            self.insert_interim(&interim);
        }
    }

    fn close_after_response(&mut self) {
        self.persistence.close();
    }

    fn begin(&mut self, response: &mut Response, length: Option<u64>) -> Result<Remaining> {
        self.input.restore_returned_reader();
        let (version, head_only) = match self.request {
            CurrentRequest::Valid => {
                let head = &*self.head;
                (head.version(), *head.method() == Method::HEAD)
            }
            CurrentRequest::Invalid { is_head } => (Version::HTTP_11, is_head),
        };
        let framing = match &response.payload {
            Payload::Body(body) if length.is_none() && body.is_removed() => {
                ResponseFraming::Bodiless
            }
            _ => framing::response(version, response.status, length),
        };
        if framing == ResponseFraming::UntilClose
            || !self.input.is_bounded(self.worker.settings.max_discarded_bytes)
            || response.wants_close()
            || self.worker.is_last_response(&self.shared.peer)
        {
            self.persistence.close();
        }
        self.framing = framing;
        self.write_head(&compose::ResponseHead {
            version,
            status: response.status,
            fields: response.headers.sources(),
            framing,
            keep_alive: self.persistence == Persistence::KeepAlive,
            head_prefix: &self.worker.date.head_prefix(),
        });
        if head_only || framing == ResponseFraming::Bodiless {
            return Ok(self.buffered());
        }
        let buffer = &mut self.writer.buffer;
        // Most content is small, and copied from where it is.
        let in_memory = match &response.payload {
            Payload::Body(body) => body.as_bytes().map(|bytes| &**bytes),
            Payload::File(file) => file.as_slice(),
            _ => None,
        };
        if let Some(bytes) = in_memory
            && buffer.push_copy(bytes)
        {
            self.body_bytes = bytes.len() as u64;
            return Ok(self.buffered());
        }
        match response.take_payload().into_bytes() {
            Ok(bytes) => {
                self.body_bytes = bytes.len() as u64;
                buffer.push(bytes);
                Ok(self.buffered())
            }
            Err(payload) => Ok(Remaining::Content(payload, length)),
        }
    }

    fn pending_upgrade(&mut self) -> Option<&mut PendingUpgrade> {
        self.upgrade.as_mut()
    }

    fn begin_upgrade(&mut self, response: &mut Response) -> Result<Remaining> {
        self.input.restore_returned_reader();
        if !self.input.is_clear() {
            let reason = "an upgrade requires that the body of the request was read";
            return Err(Error::new(ErrorKind::InvalidResponse, reason));
        }
        let mut fields = response.headers.sources();
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            fields.lines = b"connection: upgrade\r\n";
        }
        self.write_head(&compose::ResponseHead {
            version: Version::HTTP_11,
            status: response.status,
            fields,
            framing: ResponseFraming::Bodiless,
            keep_alive: true,
            head_prefix: &self.worker.date.head_prefix(),
        });
        if let Payload::Upgrade(upgrade) = response.take_payload() {
            *self.upgrade = Some(upgrade.into());
        }
        Ok(Remaining::Buffered)
    }

    async fn flush(&mut self) -> Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Always ready: `send_data` completes when there is space for the next piece.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    async fn send_data(&mut self, data: Bytes, is_last: bool) -> Result<()> {
        self.body_bytes += data.len() as u64;
        let buffer = &mut self.writer.buffer;
        match self.framing {
            ResponseFraming::Chunked => {
                chunk_encoder::chunk(buffer, data);
                if is_last {
                    chunk_encoder::last_chunk(buffer, None);
                }
            }
            _ => buffer.push(data),
        }
        match self.writer.must_flush() {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    async fn send_file(&mut self, file: &File, is_last: bool) -> Result<()> {
        if let Some(bytes) = file.in_memory() {
            return self.send_data(bytes, is_last).await;
        }
        self.progress = ResponseProgress::Started;
        let mut rest = file.unsent();
        let sent = self.writer.send_file(file, &mut rest, self.deadline, &mut self.pace).await;
        self.body_bytes += file.length - rest.length;
        sent
    }

    async fn finish(&mut self, trailers: Trailers) -> Result<()> {
        if self.framing == ResponseFraming::Chunked {
            let trailers = trailers.unwrap_or_default();
            chunk_encoder::last_chunk(&mut self.writer.buffer, &*trailers);
        }
        Ok(())
    }

    fn roll_back(&mut self, _: &Error) -> bool {
        match self.progress {
            ResponseProgress::NotStarted => {}
            ResponseProgress::Buffered { start } => self.writer.buffer.truncate(start),
            ResponseProgress::Started => return false,
        }
        self.persistence.close();
        true
    }

    fn abandon(&mut self, _: &Error) {
        self.writer.abandon();
    }

    fn body_bytes(&self) -> u64 {
        self.body_bytes
    }
}

impl<A: Application> Sink<'_, A> {
    /// Sends the buffered output.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.writer.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if let ResponseProgress::Buffered { .. } = self.progress {
            self.progress = ResponseProgress::Started;
        }
        self.writer.poll_flush(cx, self.deadline, &mut self.pace)
    }

    /// Closes the socket of a detached call if the connection is broken: the call goes on without
    /// it. A client that has only shut down its sending direction still gets the response.
    fn close_if_broken(&mut self, cx: &mut Context<'_>) {
        if self.writer.is_closed() || self.input.is_broken(cx) {
            drop(self.writer.take());
            self.input.close();
        }
    }

    /// Buffers the head of a final response.
    fn write_head(&mut self, head: &compose::ResponseHead<'_>) {
        let writer = &mut *self.writer;
        self.progress = ResponseProgress::Buffered { start: writer.buffer.mark() };
        self.body_bytes = 0;
        compose::head(writer.out(), head);
    }

    /// Returns [`Remaining::Buffered`] if the output must be sent before more is buffered.
    fn buffered(&self) -> Remaining {
        match self.writer.must_flush() {
            true => Remaining::Buffered,
            false => Remaining::Nothing,
        }
    }

    /// Sends 100 (Continue), on which the client sends the body (RFC 9110 §10.1.1).
    fn send_continue(&mut self) {
        self.input.awaits_continue &= !self.insert_interim(b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// Inserts an interim response before the final response. Returns false if the final response
    /// has started.
    fn insert_interim(&mut self, bytes: &[u8]) -> bool {
        let buffer = &mut self.writer.buffer;
        match &mut self.progress {
            ResponseProgress::NotStarted => buffer.tail().extend_from_slice(bytes),
            ResponseProgress::Buffered { start } => buffer.insert(start, bytes),
            ResponseProgress::Started => return false,
        }
        true
    }
}
