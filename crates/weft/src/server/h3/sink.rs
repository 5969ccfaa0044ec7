//! The sink of a stream: the exchange of one request, and the sending side of its response.

#![allow(clippy::manual_async_fn, reason = "the future of an `async fn` has its arguments twice")]

use std::cell::RefCell;
use std::fs;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::sync::oneshot;

use crate::app::Application;
use crate::clock::deadline::{Deadline, Pace};
use crate::disk::{self, File, Source, Unsent};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::connection::RequestContext;
use crate::message::fields::Fields;
use crate::message::payload::Payload;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::message::upgrade::Upgraded;
use crate::panic::catch_panic;
use crate::peer::Peer;
use crate::server::exchange::{self, Remaining, ResponseSink, Trailers};
use crate::server::h3::connection::{Http3Connection, MAX_SMALL_CONTENT_BYTES, StreamRequest};
use crate::server::h3::outgoing::Outgoing;
use crate::server::inbound::{InboundBody, ReceiveClock};
use crate::server::multiplex::field_block::InvalidRequest;
use crate::server::multiplex::incoming::StreamContent;
use crate::server::multiplex::pipe::Pipe;
use crate::server::multiplex::response_head;
use crate::server::multiplex::tunnel::Tunnel;
use crate::server::upgraded::{PendingUpgrade, TunnelGuard};
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
    let (expects_continue, is_tunnel, length) = request
        .as_ref()
        .map_or((false, false, None), |it| (it.expects_continue, it.is_tunnel, it.length));
    let mut sink = StreamSink {
        worker,
        connection,
        stream,
        shared: shared
            .unwrap_or_else(|| RequestContext::new(peer.clone(), worker.shutdown.clone())),
        request: request.map(|request| request.head),
        pipe,
        length,
        expects_continue,
        is_tunnel,
        on_read: None,
        has_started: false,
        upgrade: None,
        piece: Outgoing::default(),
        pace: None,
    };
    async move {
        if sink.request.is_err() {
            Box::pin(sink.reject()).await;
        } else {
            let watch = worker.stopwatch();
            exchange::serve(worker, &mut sink, StreamSink::request, watch).await;
            if sink.pipe.is_some() {
                sink.end_pipe().await;
            }
        }
        let connection = &mut *sink.connection.borrow_mut();
        connection.release(sink.piece.content_bytes());
        connection.end_exchange(sink.stream, sink.shared);
    }
}

/// The sending side of a stream.
struct StreamSink<'a, A> {
    worker: &'a WorkerContext<A>,
    connection: &'a RefCell<Http3Connection>,
    stream: u64,
    shared: Arc<RequestContext>,
    request: Result<RequestHead, Box<InvalidRequest>>,
    /// The channel for the content of the request; `None` if it has none.
    pipe: Option<Pipe>,
    /// Length of the content, if the client declared it. Some of it may be in the pipe already.
    length: Option<u64>,
    /// The client waits for a 100 before it sends the body (RFC 9110 §10.1.1).
    expects_continue: bool,
    is_tunnel: bool,
    /// Completes on the first read of the body, if the client waits for a 100.
    on_read: Option<oneshot::Receiver<()>>,
    /// Set when the final response has started.
    has_started: bool,
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
        let Some(pipe) = &self.pipe else { return };
        if let Some(upgrade) = self.upgrade.take() {
            let tunnel = Tunnel::new(pipe.clone());
            return Box::pin(self.hand_over(upgrade, tunnel)).await;
        }
        if self.is_tunnel {
            // Without an upgrade, the stream ends in both directions.
            return drop(Tunnel::new(pipe.clone()));
        }
        // A body that the application still holds stays.
        if pipe.is_reader_closed() {
            self.connection.borrow_mut().stop_content(self.stream);
        }
    }

    /// Sends an error response to an invalid request, unless its stream was reset.
    async fn reject(&mut self) {
        let Err(invalid) = &mut self.request else { return };
        let Some(error) = invalid.error.take() else { return };
        let worker = self.worker;
        match invalid.is_reset {
            true => exchange::record_invalid(worker, self, &error),
            false => {
                exchange::reject(worker, self, &error, worker.stopwatch()).await;
            }
        }
    }

    fn request(&mut self) -> Request {
        let body = match self.pipe.clone() {
            Some(pipe) if !self.is_tunnel => self.request_body(pipe),
            _ => Body::empty(),
        };
        Request::new(self.head().cloned().unwrap_or_default(), body, self.shared.clone())
    }

    fn request_body(&mut self, pipe: Pipe) -> Body {
        let on_read = self.expects_continue.then(|| {
            let (sender, receiver) = oneshot::channel();
            self.on_read = Some(receiver);
            sender
        });
        let source = StreamContent::new(pipe, self.length, on_read);
        let max_bytes = self.worker.settings.max_body_bytes;
        let clock = ReceiveClock::new(self.worker, &self.shared);
        Body::inbound(InboundBody::new(source, max_bytes, clock))
    }

    /// Runs the handler of an upgrade on the stream.
    async fn hand_over(&mut self, pending: PendingUpgrade, tunnel: Tunnel) {
        self.connection.borrow_mut().make_tunnel(self.stream);
        let (peer, shutdown) = (self.shared.peer.clone(), self.shared.shutdown());
        let upgraded = Upgraded::new(tunnel, peer, shutdown);
        let (hooks, peer) = (self.worker.recorder(), &self.shared.peer);
        let PendingUpgrade { upgrade, record } = pending;
        let _record = TunnelGuard::new(hooks, peer, record, &upgraded);
        if let Err(error) = catch_panic(async move { upgrade.run(upgraded).await }).await {
            self.worker.report(&self.shared.peer, &error);
        }
    }

    /// Sends the 100 that the client waits for, if the body is still held: for example, if the
    /// response is produced from it. After the head of the response it could not be sent.
    fn send_last_continue(&mut self) {
        let is_held = |mut on_read: oneshot::Receiver<()>| {
            on_read.try_recv() != Err(oneshot::error::TryRecvError::Closed)
        };
        if self.on_read.take().is_some_and(is_held) {
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
                Err(read) => Box::pin(self.read_from_disk(read)),
            };
            read.await
        }
    }

    async fn read_from_disk(&mut self, read: disk::BlockingRead) -> Result<Bytes> {
        let mut reading = Box::pin(read.run());
        poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Pending => self.poll_connection(cx).map(Err),
            Poll::Ready(piece) => Poll::Ready(piece.map_err(Error::from)),
        })
        .await
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
        self.has_started = true;
        Ok(())
    }
}

impl<A: Application> ResponseSink for StreamSink<'_, A> {
    fn head(&self) -> Option<&RequestHead> {
        self.request.as_ref().ok()
    }

    fn request_line(&self) -> &[u8] {
        self.request.as_ref().err().map_or(&[], |invalid| &invalid.line)
    }

    fn shared(&self) -> &Arc<RequestContext> {
        &self.shared
    }

    fn is_tunnel(&self) -> bool {
        self.is_tunnel
    }

    /// Always false: a reset stream is detected when a frame is sent on it.
    fn is_closed(&self) -> bool {
        false
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if let Some(on_read) = &mut self.on_read
            && let Poll::Ready(read) = Pin::new(on_read).poll(cx)
        {
            self.on_read = None;
            if read.is_ok() {
                self.send_interim(StatusCode::CONTINUE, &Fields::default());
            }
        }
        if !self.has_started && self.worker.settings.disconnect == Disconnect::Detach {
            return Poll::Pending;
        }
        self.connection.borrow_mut().poll_reset(self.stream, cx)
    }

    fn send_interim(&mut self, status: StatusCode, fields: &Fields) {
        if !self.has_started {
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
        !self.has_started && error.kind() != ErrorKind::Disconnected
    }

    fn abandon(&mut self, error: &Error) {
        let code = match error.kind() {
            ErrorKind::TooSlow => ErrorCode::REQUEST_CANCELLED,
            _ => ErrorCode::INTERNAL_ERROR,
        };
        self.connection.borrow_mut().abandon(self.stream, code);
    }

    fn body_bytes(&self) -> u64 {
        self.connection.borrow().content_sent(self.stream)
    }
}
