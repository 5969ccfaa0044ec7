//! The sink of a stream: the exchange of one request, and the sending side of its response.

#![allow(clippy::manual_async_fn, reason = "the future of an `async fn` has its arguments twice")]

use std::cell::RefCell;
use std::fs;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::app::Application;
use crate::clock::deadline::{Deadline, Pace};
use crate::disk::{self, File, Source, Unsent};
use crate::error::{Error, ErrorKind, Result};
use crate::message::connection::RequestContext;
use crate::message::fields::Fields;
use crate::message::payload::Payload;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::peer::Peer;
use crate::server::exchange::{self, Remaining, ResponseSink, Trailers};
use crate::server::h3::connection::{Http3Connection, MAX_SMALL_CONTENT_BYTES, StreamRequest};
use crate::server::h3::outgoing::Outgoing;
use crate::server::multiplex::disk_read;
use crate::server::multiplex::received_request::ReceivedRequest;
use crate::server::multiplex::response_head;
use crate::server::multiplex::tunnel::Tunnel;
use crate::server::upgraded::PendingUpgrade;
use crate::server::worker_context::WorkerContext;
use crate::settings::Disconnect;
use weft_proto::http1::framing::is_bodiless;
use weft_proto::http3::ErrorCode;

/// Serves the request of a stream. Without `async`, the future contains each argument once.
pub(super) fn serve<'a, A: Application>(
    worker: &'a WorkerContext<A>,
    connection: &'a RefCell<Http3Connection>,
    peer: &Arc<Peer>,
    received: StreamRequest,
) -> impl Future<Output = ()> {
    let StreamRequest { stream, request, pipe } = received;
    let shared = connection.borrow_mut().take_spare_shared();
    let length = request.as_ref().ok().and_then(|request| request.length);
    let mut sink = StreamSink {
        worker,
        connection,
        stream,
        received: ReceivedRequest::new(worker, peer, shared, request, pipe),
        length,
        upgrade: None,
        piece: Outgoing::default(),
        pace: None,
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
        let connection = &mut *sink.connection.borrow_mut();
        connection.release(sink.piece.content_bytes());
        connection.end_exchange(sink.stream, sink.received.shared);
    }
}

/// The sending side of a stream.
struct StreamSink<'a, A> {
    worker: &'a WorkerContext<A>,
    connection: &'a RefCell<Http3Connection>,
    stream: u64,
    received: ReceivedRequest,
    /// Length of the content, if the client declared it. Some of it may be in the pipe already.
    length: Option<u64>,
    upgrade: Option<PendingUpgrade>,
    /// The piece of content that is being sent.
    piece: Outgoing,
    /// The minimum rate; set at the first wait for the client.
    pace: Option<Box<SendingPace>>,
}

/// The rate at which the client receives a response.
struct SendingPace {
    pace: Pace,
    deadline: Deadline,
    /// Number of content bytes for which `pace` was credited.
    credited: u64,
    /// Number of bytes that the connection had written when `pace` was last reset.
    written_at_reset: u64,
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
        // A body that the application still holds stays.
        if pipe.is_reader_closed() {
            self.connection.borrow_mut().stop_content(self.stream);
        }
    }

    fn request(&mut self) -> Request {
        let length = self.length;
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

    /// Runs the handler of an upgrade on the stream.
    async fn hand_over(&mut self, pending: PendingUpgrade, tunnel: Tunnel) {
        self.connection.borrow_mut().make_tunnel(self.stream);
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
        async move {
            let room = poll_fn(|cx| self.poll_turn(true, cx)).await? as u64;
            let read = match disk::try_read(open, rest.start, rest.length.min(room))? {
                Ok(piece) => return Ok(piece),
                // Boxed: few reads wait for the disk, and many streams wait for their turn.
                Err(read) => Box::pin(disk_read::run(self, read)),
            };
            read.await
        }
    }

    fn poll_turn(&mut self, is_file: bool, cx: &Context<'_>) -> Poll<Result<usize>> {
        let polled = self.connection.borrow_mut().poll_turn(self.stream, is_file, cx);
        self.poll_paced(polled, cx)
    }

    fn poll_piece(&mut self, cx: &Context<'_>) -> Poll<Result<()>> {
        let polled = self.connection.borrow_mut().poll_send(self.stream, &mut self.piece, cx);
        self.poll_paced(polled, cx)
    }

    /// Enforces the minimum rate while the result of a poll is pending.
    fn poll_paced<T>(&mut self, polled: Poll<Result<T>>, cx: &Context<'_>) -> Poll<Result<T>> {
        if polled.is_ready() && self.pace.is_none() {
            return polled;
        }
        let connection = &*self.connection.borrow();
        let (sent, written) = (connection.content_sent(self.stream), connection.total_written());
        let worker = self.worker;
        let SendingPace { pace, deadline, credited, written_at_reset } =
            &mut **self.pace.get_or_insert_with(|| {
                Box::new(SendingPace {
                    pace: Pace::new(&worker.settings),
                    deadline: worker.deadlines.deadline(),
                    credited: 0,
                    written_at_reset: 0,
                })
            });
        if polled.is_ready() || sent > *credited {
            pace.record_progress(sent.saturating_sub(*credited) as usize, deadline);
            *credited = sent;
        }
        if polled.is_ready() {
            return polled;
        }
        ready!(pace.poll_expired(deadline, cx));
        if written > *written_at_reset {
            // The client receives other responses of the connection.
            *pace = Pace::new(&worker.settings);
            *written_at_reset = written;
        }
        let expired = pace.poll_expired(deadline, cx);
        let reason = "the peer received the response too slowly";
        expired.map(|()| Err(Error::new(ErrorKind::TooSlow, reason)))
    }

    fn send_head(
        &mut self,
        response: &Response,
        length: Option<u64>,
        content: (&[u8], bool),
    ) -> Result<()> {
        let mut connection = self.connection.borrow_mut();
        connection.send_fields(self.stream, content, |encoder, out| {
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
        self.connection.borrow_mut().poll_reset(self.stream, cx)
    }

    fn send_interim(&mut self, status: StatusCode, fields: &Fields) {
        if !self.received.has_response {
            // It fails if the stream was reset, which `poll_connection` detects.
            let mut connection = self.connection.borrow_mut();
            let _ = connection.send_fields(self.stream, (&[], false), |encoder, out| {
                encoder.status(out, status);
                response_head::write_fields(encoder, out, fields, |_| true);
            });
        }
    }

    /// Does nothing: an error closes a stream, not the connection.
    fn close_after_response(&mut self) {}

    fn begin(&mut self, response: &mut Response, length: Option<u64>) -> Result<Remaining> {
        let is_head = self.head().is_some_and(|head| *head.method() == Method::HEAD);
        let length = length.filter(|_| !is_bodiless(response.status));
        if is_head || is_bodiless(response.status) || length == Some(0) {
            self.send_head(response, length, (&[], true))?;
            return Ok(Remaining::Nothing);
        }
        self.send_last_continue();
        let payload = response.take_payload().into_bytes();
        let may_queue = self.connection.borrow().may_queue();
        match payload {
            Ok(bytes) if bytes.len() <= MAX_SMALL_CONTENT_BYTES && may_queue => {
                self.send_head(response, length, (&bytes, true))?;
                Ok(Remaining::Nothing)
            }
            payload => {
                self.send_head(response, length, (&[], false))?;
                let payload = payload.map_or_else(|it| it, |bytes| Payload::Body(bytes.into()));
                Ok(Remaining::Content(payload, length))
            }
        }
    }

    fn pending_upgrade(&mut self) -> Option<&mut PendingUpgrade> {
        self.upgrade.as_mut()
    }

    fn begin_upgrade(&mut self, response: &mut Response) -> Result<Remaining> {
        self.send_head(response, None, (&[], false))?;
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
        self.poll_turn(false, cx).map_ok(|_| ())
    }

    fn send_data(&mut self, data: Bytes, is_last: bool) -> impl Future<Output = Result<()>> {
        self.connection.borrow_mut().hold(data.len());
        self.piece = Outgoing::data(data, is_last);
        poll_fn(move |cx| self.poll_piece(cx))
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
        self.connection.borrow_mut().send_fields(self.stream, (&[], true), |encoder, out| {
            response_head::write_trailers(encoder, out, &trailers);
        })
    }

    fn roll_back(&mut self, error: &Error) -> bool {
        // A client that has disconnected receives no other response.
        !self.received.has_response && error.kind() != ErrorKind::Disconnected
    }

    fn abandon(&mut self, error: &Error) {
        let code = match error.kind() {
            ErrorKind::TooSlow => ErrorCode::REQUEST_CANCELLED,
            _ => ErrorCode::INTERNAL_ERROR,
        };
        let connection = &mut *self.connection.borrow_mut();
        let may_wait = !matches!(error.kind(), ErrorKind::TooSlow | ErrorKind::Disconnected);
        // A part of a frame can be followed by the rest of it only.
        match may_wait && self.received.has_response && self.piece.is_empty() {
            true => connection.abandon_behind_output(self.stream, code),
            false => connection.abandon(self.stream, code),
        }
    }

    fn body_bytes(&self) -> u64 {
        self.connection.borrow().content_sent(self.stream)
    }
}
