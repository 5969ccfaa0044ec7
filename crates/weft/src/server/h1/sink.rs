//! The sending side of an HTTP/1 connection: serializes, buffers and sends responses.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode, Version};

use crate::app::Application;
use crate::disk::File;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::request_line;
use crate::message::connection::RequestContext;
use crate::message::fields::Fields;
use crate::message::request_head::RequestHead;
use crate::message::response::{Payload, Response};
use crate::server::exchange::{Remaining, ResponseSink, Trailers};
use crate::server::h1::loan::BodyEvent;
use crate::server::h1::{ActiveConnection, CurrentRequest, Input, Persistence, ResponseProgress};
use crate::settings::Disconnect;
use weft_proto::http1::framing::{self, ResponseFraming};
use weft_proto::http1::{chunk_encoder, compose};

impl<A: Application> ResponseSink for ActiveConnection<'_, A> {
    fn head(&self) -> Option<&RequestHead> {
        match self.exchange.request {
            CurrentRequest::Valid => Some(&self.heads.head),
            CurrentRequest::Invalid { .. } => None,
        }
    }

    fn request_line(&self) -> &[u8] {
        match (&self.exchange.request, &self.conn.reader) {
            (CurrentRequest::Invalid { .. }, Some(reader)) => request_line(&reader.buffer),
            _ => &[],
        }
    }

    fn shared(&self) -> &Arc<RequestContext> {
        &self.conn.shared
    }

    fn is_tunnel(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.conn.writer.is_closed()
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        while let Input::Lent(loan) = &self.input {
            match loan.poll_event(cx) {
                Poll::Ready(BodyEvent::WantsContinue) => self.send_continue(),
                Poll::Ready(BodyEvent::ReaderReturned(returned)) => self.restore_reader(returned),
                Poll::Pending => break,
            }
        }
        let is_not_started = matches!(self.exchange.progress, ResponseProgress::NotStarted);
        match (self.poll_flush(cx), &self.worker.settings.disconnect) {
            // A write error ends a response that has started in any case.
            (Poll::Ready(Err(error)), _) if !is_not_started => Poll::Ready(error),
            (_, Disconnect::Detach) => {
                self.close_if_broken(cx);
                Poll::Pending
            }
            (Poll::Ready(Err(error)), Disconnect::Cancel) => Poll::Ready(error),
            (_, Disconnect::Cancel) => self.poll_disconnected(cx),
        }
    }

    fn send_interim(&mut self, status: StatusCode, fields: &Fields) {
        if self.exchange.accepts_interim {
            let mut interim = Vec::new();
            compose::interim_head(&mut interim, status, &fields.sources());
            self.insert_interim(&interim);
        }
    }

    fn close_after_response(&mut self) {
        self.exchange.persistence.close();
    }

    fn begin(&mut self, response: &mut Response, length: Option<u64>) -> Result<Remaining> {
        self.restore_returned_reader();
        let (version, head_only) = match self.exchange.request {
            CurrentRequest::Valid => {
                let head = &self.heads.head;
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
            || !self.input_is_bounded()
            || response.wants_close()
            || self.worker.is_last_response(&self.conn.shared.peer)
        {
            self.exchange.persistence.close();
        }
        self.exchange.framing = framing;
        self.write_head(&compose::ResponseHead {
            version,
            status: response.status,
            fields: response.headers.sources(),
            framing,
            keep_alive: self.exchange.persistence == Persistence::KeepAlive,
            head_prefix: &self.worker.date.head_prefix(),
        });
        if head_only || framing == ResponseFraming::Bodiless {
            return Ok(self.buffered());
        }
        let buffer = &mut self.conn.writer.buffer;
        // Most content is small, and copied from where it is.
        let in_memory = match &response.payload {
            Payload::Body(body) => body.as_bytes().map(|bytes| &**bytes),
            Payload::File(file) => file.as_slice(),
            _ => None,
        };
        if let Some(bytes) = in_memory
            && buffer.push_copy(bytes)
        {
            self.exchange.body_bytes = bytes.len() as u64;
            return Ok(self.buffered());
        }
        match response.take_payload().into_bytes() {
            Ok(bytes) => {
                self.exchange.body_bytes = bytes.len() as u64;
                buffer.push(bytes);
                Ok(self.buffered())
            }
            Err(payload) => Ok(Remaining::Content(payload, length)),
        }
    }

    fn begin_upgrade(&mut self, response: &mut Response) -> Result<Remaining> {
        self.restore_returned_reader();
        if !matches!(self.input, Input::Clear) {
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
            self.conn.upgrade = Some(upgrade);
        }
        Ok(Remaining::Buffered)
    }

    async fn flush(&mut self) -> Result<()> {
        self.flush_output().await
    }

    /// Always ready: `send_data` completes when there is space for the next piece.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    async fn send_data(&mut self, data: Bytes, is_last: bool) -> Result<()> {
        self.exchange.body_bytes += data.len() as u64;
        let buffer = &mut self.conn.writer.buffer;
        match self.exchange.framing {
            ResponseFraming::Chunked => {
                chunk_encoder::chunk(buffer, data);
                if is_last {
                    chunk_encoder::last_chunk(buffer, None);
                }
            }
            _ => buffer.push(data),
        }
        match self.conn.writer.must_flush() {
            true => self.flush_output().await,
            false => Ok(()),
        }
    }

    async fn send_file(&mut self, file: &File, is_last: bool) -> Result<()> {
        if let Some(bytes) = file.in_memory() {
            return self.send_data(bytes, is_last).await;
        }
        self.exchange.progress = ResponseProgress::Started;
        let mut rest = file.unsent();
        let conn = &mut *self.conn;
        let sent = conn.writer.send_file(file, &mut rest, &conn.deadline, &mut self.pace).await;
        self.exchange.body_bytes += file.length - rest.length;
        sent
    }

    async fn finish(&mut self, trailers: Trailers) -> Result<()> {
        if self.exchange.framing == ResponseFraming::Chunked {
            let trailers = trailers.unwrap_or_default();
            chunk_encoder::last_chunk(&mut self.conn.writer.buffer, &*trailers);
        }
        Ok(())
    }

    fn roll_back(&mut self, _: &Error) -> bool {
        match self.exchange.progress {
            ResponseProgress::NotStarted => {}
            ResponseProgress::Buffered { start } => self.conn.writer.buffer.truncate(start),
            ResponseProgress::Started => return false,
        }
        self.exchange.persistence.close();
        true
    }

    fn abandon(&mut self, _: &Error) {
        self.conn.writer.abandon();
    }

    fn body_bytes(&self) -> u64 {
        self.exchange.body_bytes
    }
}

impl<A: Application> ActiveConnection<'_, A> {
    /// Buffers the head of a final response.
    fn write_head(&mut self, head: &compose::ResponseHead<'_>) {
        let writer = &mut self.conn.writer;
        self.exchange.progress = ResponseProgress::Buffered { start: writer.buffer.mark() };
        self.exchange.body_bytes = 0;
        compose::head(writer.out(), head);
    }

    /// Returns [`Remaining::Buffered`] if the output must be sent before more is buffered.
    fn buffered(&self) -> Remaining {
        match self.conn.writer.must_flush() {
            true => Remaining::Buffered,
            false => Remaining::Nothing,
        }
    }

    /// Sends 100 (Continue), on which the client sends the body (RFC 9110 §10.1.1).
    fn send_continue(&mut self) {
        self.exchange.awaits_continue &= !self.insert_interim(b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// Inserts an interim response before the final response. Returns `false` if the final response
    /// has started.
    fn insert_interim(&mut self, bytes: &[u8]) -> bool {
        let buffer = &mut self.conn.writer.buffer;
        match &mut self.exchange.progress {
            ResponseProgress::NotStarted => buffer.tail().extend_from_slice(bytes),
            ResponseProgress::Buffered { start } => buffer.insert(start, bytes),
            ResponseProgress::Started => return false,
        }
        true
    }
}
