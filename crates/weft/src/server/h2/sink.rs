//! The sink of a stream: the exchange of one request, and the sending side of its response.

#![allow(clippy::manual_async_fn, reason = "the future of an `async fn` has its arguments twice")]

use std::cell::RefCell;
use std::fs;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::app::Application;
use crate::disk::{self, File, Source, Unsent};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Inbound;
use crate::message::connection::RequestContext;
use crate::message::fields::Fields;
use crate::message::payload::Payload;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::peer::Peer;
use crate::server::exchange::{self, Remaining, ResponseSink, Trailers};
use crate::server::h2::connection::{Http2Connection, StreamRequest};
use crate::server::h2::demand::Demand;
use crate::server::h2::outbound::{MAX_SMALL_CONTENT_BYTES, OutboundContent};
use crate::server::inbound::{InboundBody, ReceiveClock};
use crate::server::multiplex::disk_read;
use crate::server::multiplex::incoming::StreamContent;
use crate::server::multiplex::pipe::Pipe;
use crate::server::multiplex::received_request::ReceivedRequest;
use crate::server::multiplex::response_head;
use crate::server::multiplex::tunnel::Tunnel;
use crate::server::upgraded::PendingUpgrade;
use crate::server::worker_context::WorkerContext;
use crate::settings::Disconnect;
use weft_proto::http1::framing::is_bodiless;
use weft_proto::http2::frame::ErrorCode;

/// Serves the request of a stream. Without `async`, the future contains each argument once.
pub(super) fn serve<'a, A: Application>(
    worker: &'a WorkerContext<A>,
    connection: &'a RefCell<Http2Connection>,
    peer: &Arc<Peer>,
    received: StreamRequest,
) -> impl Future<Output = ()> {
    let StreamRequest { stream, request, pipe } = received;
    let shared = connection.borrow_mut().take_spare_shared();
    let mut sink = StreamSink {
        worker,
        connection,
        received: ReceivedRequest::new(worker, peer, shared, request, pipe),
        upgrade: None,
        content: OutboundContent::new(stream),
    };
    async move {
        if sink.received.head().is_none() {
            Box::pin(sink.reject()).await;
        } else {
            let watch = worker.stopwatch();
            exchange::serve(worker, &mut sink, StreamSink::request, watch).await;
            if sink.received.pipe.is_some() {
                sink.end_pipe().await;
            }
        }
        sink.connection.borrow_mut().end_exchange(sink.content.stream(), sink.received.shared);
    }
}

/// The sending side of a stream.
struct StreamSink<'a, A> {
    worker: &'a WorkerContext<A>,
    connection: &'a RefCell<Http2Connection>,
    received: ReceivedRequest,
    upgrade: Option<PendingUpgrade>,
    content: OutboundContent,
}

impl<A: Application> StreamSink<'_, A> {
    /// Ends the content of a request, or runs the handler of an upgrade.
    async fn end_pipe(&mut self) {
        let Some(pipe) = &self.received.pipe else { return };
        if let Some(upgrade) = self.upgrade.take() {
            let tunnel = Tunnel::new(pipe.clone());
            return Box::pin(self.hand_over(upgrade, tunnel)).await;
        }
        if self.received.is_tunnel {
            // Without an upgrade, the stream ends in both directions.
            return drop(Tunnel::new(pipe.clone()));
        }
        // A body that the application still holds is not discarded.
        let max_discarded_bytes = self.worker.settings.max_discarded_bytes;
        if pipe.is_reader_closed() && !pipe.is_fully_read() && max_discarded_bytes > 0 {
            Box::pin(self.discard_body(pipe.clone())).await;
        }
    }

    fn request(&mut self) -> Request {
        // No content was received yet.
        let length = self.connection.borrow().unreceived_length(self.content.stream());
        self.received.request(self.worker, length)
    }

    /// Sends an error response to an invalid request, unless its stream was reset.
    async fn reject(&mut self) {
        let Some((error, is_reset)) = self.received.take_error() else { return };
        let worker = self.worker;
        match is_reset {
            true => exchange::record_invalid(worker, self, &error),
            false => {
                exchange::reject(worker, self, &error, worker.stopwatch()).await;
            }
        }
    }

    /// Reads and discards the rest of a request's body, so that the client can send all of it: many
    /// clients treat a RST_STREAM with NO_ERROR as an error, contrary to RFC 9113 §8.1. Limited in
    /// size and time, as over HTTP/1.
    async fn discard_body(&mut self, pipe: Pipe) {
        let discarded = pipe.reopen_reader();
        self.connection.borrow_mut().credit_stream(self.content.stream(), discarded);
        let settings = &self.worker.settings;
        let deadline = self.worker.deadlines.deadline();
        deadline.set(settings.linger_timeout);
        let source = StreamContent::new(pipe, None, None);
        let clock = ReceiveClock::new(self.worker, &self.received.shared);
        let mut rest = InboundBody::new(source, settings.max_discarded_bytes, clock);
        poll_fn(|cx| {
            loop {
                match rest.poll_chunk(cx) {
                    Poll::Ready(Ok(Some(_))) => {}
                    Poll::Ready(Ok(None) | Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return deadline.poll_expired(cx),
                }
            }
        })
        .await;
    }

    /// Runs the handler of an upgrade on the stream.
    async fn hand_over(&mut self, pending: PendingUpgrade, tunnel: Tunnel) {
        self.connection.borrow_mut().make_tunnel(self.content.stream());
        self.received.run_upgrade(self.worker, pending, tunnel).await;
    }

    /// Sends the 100 that the client waits for, if the body is still held.
    fn send_last_continue(&mut self) {
        if self.received.take_continue() {
            self.send_interim(StatusCode::CONTINUE, &Fields::default());
        }
    }

    /// Reads the next piece of an open file, when the client can receive it.
    fn read_piece(
        &mut self,
        open: &Arc<fs::File>,
        rest: Unsent,
    ) -> impl Future<Output = Result<Bytes>> {
        let demand = Demand::File(rest.length);
        async move {
            let turn = poll_fn(|cx| {
                let connection = &mut self.connection.borrow_mut();
                self.content.poll_turn(self.worker, connection, demand, cx)
            });
            let length = turn.await?;
            let read = match disk::try_read(open, rest.start, length as u64)? {
                Ok(piece) => return Ok(piece),
                // Boxed: few reads wait for the disk, and many streams wait for their turn.
                Err(read) => Box::pin(disk_read::run(self, read)),
            };
            read.await
        }
    }

    fn send_head(&mut self, response: &Response, length: Option<u64>, ends: bool) -> Result<()> {
        let mut connection = self.connection.borrow_mut();
        connection.send_fields(self.content.stream(), ends, |encoder, out| {
            response_head::write_head(self.worker, encoder, out, response, length);
        })?;
        self.received.has_response = true;
        Ok(())
    }
}

impl<A: Application> ResponseSink for StreamSink<'_, A> {
    fn head(&self) -> Option<&RequestHead> {
        self.received.head()
    }

    fn request_line(&self) -> &[u8] {
        self.received.request_line()
    }

    fn shared(&self) -> &Arc<RequestContext> {
        &self.received.shared
    }

    fn is_tunnel(&self) -> bool {
        self.received.is_tunnel
    }

    /// Always false: a reset stream is detected when a frame is sent on it.
    fn is_closed(&self) -> bool {
        false
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if self.received.poll_continue(cx) {
            self.send_interim(StatusCode::CONTINUE, &Fields::default());
        }
        if !self.received.has_response && self.worker.settings.disconnect == Disconnect::Detach {
            return Poll::Pending;
        }
        self.connection.borrow_mut().poll_reset(self.content.stream(), cx)
    }

    fn send_interim(&mut self, status: StatusCode, fields: &Fields) {
        if !self.received.has_response {
            // It fails if the stream was reset, which `poll_connection` detects.
            let _ = self.connection.borrow_mut().send_fields(
                self.content.stream(),
                false,
                |encoder, out| {
                    encoder.status(out, status);
                    response_head::write_fields(encoder, out, fields, |_| true);
                },
            );
        }
    }

    /// Does nothing: an error closes a stream, not the connection.
    fn close_after_response(&mut self) {}

    fn begin(&mut self, response: &mut Response, length: Option<u64>) -> Result<Remaining> {
        let is_head = self.head().is_some_and(|head| *head.method() == Method::HEAD);
        let length = length.filter(|_| !is_bodiless(response.status));
        let ends = is_head || is_bodiless(response.status) || length == Some(0);
        if !ends {
            self.send_last_continue();
        }
        self.send_head(response, length, ends)?;
        if ends {
            return Ok(Remaining::Nothing);
        }
        match response.take_payload().into_bytes() {
            Ok(bytes) if bytes.len() <= MAX_SMALL_CONTENT_BYTES => {
                match self.content.send_small(&mut self.connection.borrow_mut(), bytes)? {
                    None => Ok(Remaining::Nothing),
                    Some(bytes) => Ok(Remaining::Content(Payload::Body(bytes.into()), length)),
                }
            }
            Ok(bytes) => Ok(Remaining::Content(Payload::Body(bytes.into()), length)),
            Err(payload) => Ok(Remaining::Content(payload, length)),
        }
    }

    fn pending_upgrade(&mut self) -> Option<&mut PendingUpgrade> {
        self.upgrade.as_mut()
    }

    fn begin_upgrade(&mut self, response: &mut Response) -> Result<Remaining> {
        self.send_head(response, None, false)?;
        if let Payload::Upgrade(upgrade) = response.take_payload() {
            self.upgrade = Some(upgrade.into());
        }
        Ok(Remaining::Nothing)
    }

    /// Does nothing: the task of the connection writes.
    async fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let connection = &mut self.connection.borrow_mut();
        let demand = self.content.next_frame();
        self.content.poll_turn(self.worker, connection, demand, cx).map_ok(|_| ())
    }

    fn send_data(&mut self, data: Bytes, is_last: bool) -> impl Future<Output = Result<()>> {
        // Without `async`, the future contains each argument once.
        let mut unsent = self.content.begin_piece(data, is_last);
        poll_fn(move |cx| {
            let connection = &mut self.connection.borrow_mut();
            self.content.poll_send(self.worker, connection, (&mut unsent, is_last), cx)
        })
    }

    fn send_file(&mut self, file: &File, is_last: bool) -> impl Future<Output = Result<()>> {
        let mut rest = file.unsent();
        async move {
            while rest.length > 0 {
                // In a block, so that the piece takes no space beside the future that sends it.
                let sent = {
                    let piece = match &file.source {
                        Source::Open(open) => self.read_piece(open, rest).await?,
                        Source::Memory(_) => file.in_memory().unwrap_or_default(),
                    };
                    rest.advance(piece.len())?;
                    self.send_data(piece, is_last && rest.length == 0)
                };
                sent.await?;
            }
            Ok(())
        }
    }

    async fn finish(&mut self, trailers: Trailers) -> Result<()> {
        let mut trailers = trailers.unwrap_or_default();
        response_head::remove_connection_fields(&mut trailers);
        if trailers.is_empty() {
            return self.send_data(Bytes::new(), true).await;
        }
        self.connection.borrow_mut().send_trailers(self.content.stream(), trailers)
    }

    fn roll_back(&mut self, error: &Error) -> bool {
        // A client that has disconnected receives no other response.
        !self.received.has_response && error.kind() != ErrorKind::Disconnected
    }

    fn abandon(&mut self, error: &Error) {
        let code = match error.kind() {
            ErrorKind::TooSlow => ErrorCode::CANCEL,
            _ => ErrorCode::INTERNAL_ERROR,
        };
        self.connection.borrow_mut().abandon(self.content.stream(), code);
    }

    fn body_bytes(&self) -> u64 {
        self.content.body_bytes(&mut self.connection.borrow_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct App;

    impl Application for App {
        fn call(&self, _: Request) -> impl Future<Output = Response> {
            std::future::ready(Response::not_found())
        }
    }

    /// A client may keep the windows of 128 streams closed: the future of each is kept.
    #[test]
    fn future_of_a_stream_is_small() {
        fn size<W, C, P, F>(_: impl FnOnce(W, C, P, StreamRequest) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(serve::<App>);
        assert!(size <= 440, "{size}");
    }
}
