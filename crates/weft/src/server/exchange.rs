//! One request and its response, the same for all HTTP versions.
//!
//! # The life of a request
//!
//! 1. A protocol version parses a head and creates a [`Request`].
//! 2. [`serve`] calls the application. While the application is pending, the sink drives the
//!    connection: it sends interim responses and earlier output, and detects a disconnect.
//! 3. Preconditions and ranges are applied (RFC 9110 §13, §14). An error response that the
//!    library has made gets the form that the client prefers.
//! 4. [`ResponseSink::begin`] writes the head and buffers content that is in memory. Other content
//!    is sent piece by piece, as fast as the client receives it.
//! 5. A response that fails before any of it was sent is replaced by an error response. A response
//!    that fails later is abandoned, so that the client can detect that it is incomplete. If the
//!    failure of a body [follows data](Error::after_data), the data is sent first, and the response
//!    is abandoned in any case.
//! 6. The hooks get a [`Record`], whichever way the exchange ends.

#![allow(clippy::manual_async_fn, reason = "the future of an `async fn` has its arguments twice")]

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::ALT_SVC;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body as _;

use crate::app::Application;
use crate::clock::deadline::Stopwatch;
use crate::disk::File;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::{Record, client_closed_request};
use crate::message::body::{Body, wrong_length};
use crate::message::connection::{Interim, RecordParts, Replacement, RequestContext};
use crate::message::error_page;
use crate::message::fields::Fields;
use crate::message::limited_body;
use crate::message::payload::{Part, Parts, Payload};
use crate::message::representation::{self, ResponseContext};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::message::upgrade;
use crate::panic::catch_panic_sync;
use crate::random::random_boundary;
use crate::server::error_response::error_response;
use crate::server::upgraded::{PendingUpgrade, TunnelRecord};
use crate::server::worker_context::WorkerContext;

/// The sending side of one exchange, implemented by each HTTP version.
pub(super) trait ResponseSink {
    /// Head of the request; `None` if the request is invalid.
    fn head(&self) -> Option<&RequestHead>;

    /// Start of the request line if the request is invalid, otherwise empty.
    fn request_line(&self) -> &[u8];

    fn shared(&self) -> &Arc<RequestContext>;

    /// Returns true if a successful response would turn the stream into a tunnel.
    fn is_tunnel(&self) -> bool;

    /// Returns true if no response can be sent any more.
    fn is_closed(&self) -> bool;

    /// Drives the connection while the application or its body is pending. Ready with an error when
    /// the exchange must end.
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Error>;

    /// Sends an interim response, unless the final response has started.
    fn send_interim(&mut self, status: StatusCode, fields: &Fields);

    /// Makes the next response the last one of its connection, in HTTP versions in which an error
    /// closes the connection.
    fn close_after_response(&mut self);

    /// Writes the head of a response, with the length of its content if known, and buffers content
    /// that is in memory.
    fn begin(&mut self, response: &mut Response, length: Option<u64>) -> Result<Remaining>;

    /// Writes the head after which the connection or stream belongs to the upgrade's handler.
    fn begin_upgrade(&mut self, response: &mut Response) -> Result<Remaining>;

    /// Returns the upgrade whose handler gets the connection or stream after the response.
    fn pending_upgrade(&mut self) -> Option<&mut PendingUpgrade>;

    /// Sends all buffered output.
    fn flush(&mut self) -> impl Future<Output = Result<()>>;

    /// Ready when the next frame of a streamed body may be obtained: earlier content is sent, and
    /// the client is able to receive more. Ready with an error when the exchange must end.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>>;

    /// Sends a piece of content. Completes when there is space for the next piece.
    fn send_data(&mut self, data: Bytes, is_last: bool) -> impl Future<Output = Result<()>>;

    /// Sends a file, or a part of one, as a piece of content.
    fn send_file(&mut self, file: &File, is_last: bool) -> impl Future<Output = Result<()>>;

    /// Ends content whose last piece was not marked with `is_last`.
    fn finish(&mut self, trailers: Trailers) -> impl Future<Output = Result<()>>;

    /// Discards a failed response. Returns false if a part of it may have been sent.
    fn roll_back(&mut self, error: &Error) -> bool;

    /// Aborts a response that cannot be completed.
    fn abandon(&mut self, error: &Error);

    /// Number of content bytes sent or buffered.
    fn body_bytes(&self) -> u64;
}

/// The trailer fields of a response. Boxed, because few responses have any.
pub(super) type Trailers = Option<Box<HeaderMap>>;

/// The part of a response that is not buffered together with its head.
pub(super) enum Remaining {
    Nothing,
    /// Output that fills the buffer and has to be sent first.
    Buffered,
    /// Content that is too large to be buffered, or not available yet, and its length if known.
    Content(Payload, Option<u64>),
}

/// The result of an exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A complete response was sent or buffered.
    Completed,
    /// The client disconnected, or the response was abandoned.
    Aborted,
}

/// An exchange in progress. Its drop passes the record to the hooks, so that each request is
/// recorded exactly once, also if the client disconnects or the task of the connection is dropped.
struct Exchange<'a, A: Application, S: ResponseSink> {
    worker: &'a WorkerContext<A>,
    sink: &'a mut S,
    /// `None` if the exchange is not recorded, or was recorded.
    watch: Option<Stopwatch>,
    /// Status of the response, once it is known.
    status: Option<StatusCode>,
    /// Set if the head of a response was buffered.
    has_response: bool,
    /// The error that the response is about.
    cause: Option<Arc<Error>>,
}

/// Serves a request: calls the application and sends its response.
///
/// The future of an exchange is the largest part of the memory that a client occupies by not
/// reading. Therefore this function and the functions that it awaits take references and are not
/// `async` themselves, so that their futures contain each argument once.
pub(super) fn serve<'a, A: Application, S: ResponseSink>(
    worker: &'a WorkerContext<A>,
    sink: &'a mut S,
    request: impl FnOnce(&mut S) -> Request,
    watch: Option<Stopwatch>,
) -> impl Future<Output = Outcome> {
    let mut exchange = Exchange::new(worker, sink, watch);
    async move {
        let result = {
            // Boxed, because few applications panic.
            let mut panicked = None;
            let (request, worker) = (request(exchange.sink), exchange.worker);
            let call = catch_panic_sync(|| worker.app.call(request));
            let mut call = pin!(call.map_err(|error| panicked = Some(Box::new(error))).ok());
            match call.as_mut().as_pin_mut() {
                Some(call) => await_response(worker, exchange.sink, call).await,
                None => Err(panicked.map_or_else(cancelled, |error| *error)),
            }
        };
        let Some(mut remaining) = exchange.begin_response(result) else { return Outcome::Aborted };
        if let Remaining::Nothing = remaining {
            // Most responses are buffered completely.
            return exchange.end(Ok(()));
        }
        let sent = send_remaining(exchange.sink, &mut remaining).await;
        match exchange.finish(sent) {
            Ok(outcome) => outcome,
            Err(error) => Box::pin(exchange.finish_failed(*error)).await,
        }
    }
}

/// Sends an error response to an invalid request.
pub(super) async fn reject<A: Application, S: ResponseSink>(
    worker: &WorkerContext<A>,
    sink: &mut S,
    error: &Error,
    watch: Option<Stopwatch>,
) -> Outcome {
    worker.report(&sink.shared().peer, error);
    let mut exchange = Exchange::new(worker, sink, watch);
    if error.kind().status().is_none() || exchange.sink.is_closed() {
        exchange.end_without_response(error);
        return Outcome::Aborted;
    }
    exchange.sink.close_after_response();
    match exchange.begin_error(error) {
        Some(mut remaining) => {
            let sent = send_remaining(exchange.sink, &mut remaining).await;
            match exchange.finish(sent) {
                Ok(outcome) => outcome,
                Err(error) => exchange.finish_failed(*error).await,
            }
        }
        None => Outcome::Aborted,
    }
}

/// Reports and records an invalid request that gets no response.
pub(super) fn record_invalid<A: Application, S: ResponseSink>(
    worker: &WorkerContext<A>,
    sink: &mut S,
    error: &Error,
) {
    worker.report(&sink.shared().peer, error);
    Exchange::new(worker, sink, worker.stopwatch()).end_without_response(error);
}

/// Polls the future of the application and, while it is pending, the connection.
fn await_response<A: Application, S: ResponseSink>(
    worker: &WorkerContext<A>,
    sink: &mut S,
    mut call: Pin<&mut impl Future<Output = Response>>,
) -> impl Future<Output = Result<Response>> {
    poll_fn(move |cx| {
        match worker.watch_poll(|| request_of(sink), || catch_panic_sync(|| call.as_mut().poll(cx)))
        {
            Ok(Poll::Ready(response)) => Poll::Ready(Ok(response)),
            Ok(Poll::Pending) => poll_connection(sink, cx).map(Err),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    })
}

/// Returns the request of an exchange, for a report.
#[cold]
fn request_of<S: ResponseSink>(sink: &S) -> (Arc<RequestContext>, Option<RequestHead>) {
    (sink.shared().clone(), sink.head().cloned())
}

fn poll_connection<S: ResponseSink>(sink: &mut S, cx: &mut Context<'_>) -> Poll<Error> {
    send_interim(sink);
    sink.poll_connection(cx)
}

/// Sends the interim responses that the application has queued.
#[inline(always)]
fn send_interim<S: ResponseSink>(sink: &mut S) {
    if let Some(queued) = sink.shared().take_interim() {
        send_queued_interim(sink, queued);
    }
}

#[cold]
fn send_queued_interim<S: ResponseSink>(sink: &mut S, queued: Vec<Interim>) {
    for Interim { status, fields, .. } in queued {
        sink.send_interim(status, &fields);
    }
}

impl<'a, A: Application, S: ResponseSink> Exchange<'a, A, S> {
    fn new(worker: &'a WorkerContext<A>, sink: &'a mut S, watch: Option<Stopwatch>) -> Self {
        Exchange { worker, sink, watch, status: None, has_response: false, cause: None }
    }

    /// Reports an error of the exchange.
    fn report(&self, error: &Error) {
        self.worker.report_of_request(&self.sink.shared().peer, self.sink.head(), error);
    }

    /// Starts the response for the result of a call. Returns `None` if the exchange has ended
    /// without a response.
    fn begin_response(&mut self, result: Result<Response>) -> Option<Remaining> {
        let worker = self.worker;
        if let Ok(response) = &result
            && let Some(error) = response.shared_error()
        {
            if error.kind() == ErrorKind::Unanswered {
                self.status = Some(response.status);
                self.sink.abandon(error);
                self.record(None);
                return None;
            }
            self.report(error);
            self.cause = Some(error.clone());
        }
        match result {
            // With `Disconnect::Detach`, the client may have disconnected during the call.
            Ok(response) if self.sink.is_closed() => {
                self.status = Some(response.status);
                self.record(Some(&Error::disconnected()));
                None
            }
            Ok(mut response) => {
                send_interim(self.sink);
                if let (Some(head), Payload::File(_)) = (self.sink.head(), &response.payload) {
                    response = complete_file_response(worker, head, response);
                }
                limited_body::limit(&mut response);
                self.begin(&mut response)
            }
            Err(error) => {
                self.report(&error);
                if error.kind() == ErrorKind::Disconnected || self.sink.is_closed() {
                    self.record(Some(&error));
                    return None;
                }
                self.sink.close_after_response();
                let begun = self.begin_error(&error);
                self.cause = Some(Arc::new(error));
                begun
            }
        }
    }

    /// Starts to send a response, or an error response if it is invalid. Returns `None` if the
    /// exchange has ended without a response.
    fn begin(&mut self, response: &mut Response) -> Option<Remaining> {
        match self.try_begin(response).or_else(|error| self.replace(error)) {
            Ok(remaining) => Some(remaining),
            Err(error) => {
                self.abort(&error);
                None
            }
        }
    }

    fn try_begin(&mut self, response: &mut Response) -> Result<Remaining> {
        self.status = Some(response.status);
        if let Some(alt_svc) = &self.sink.shared().peer.alt_svc {
            add_alt_svc(response, alt_svc);
        }
        if self.sink.shared().has_record_parts() {
            self.pass_to_record(response);
        }
        let begun = try_begin(self.sink, response);
        self.has_response = begun.is_ok();
        begun
    }

    /// Starts to send an error response.
    fn begin_error(&mut self, error: &Error) -> Option<Remaining> {
        let mut response = error_response(self.sink.head(), error);
        self.begin(&mut response)
    }

    /// Replaces a failed response by an error response, unless a part of it was sent.
    #[cold]
    fn replace(&mut self, error: Error) -> Result<Remaining> {
        if !self.sink.roll_back(&error) {
            return Err(error);
        }
        self.report(&error);
        let mut response = error_response(self.sink.head(), &error);
        self.cause = Some(Arc::new(error));
        let begun = self.try_begin(&mut response)?;
        let (status, body_bytes) = (response.status, self.sink.body_bytes());
        self.sink.shared().set_replacement(Replacement { status, body_bytes });
        Ok(begun)
    }

    /// Ends the exchange after the rest of a response was sent, or returns the error of a failed
    /// one. Boxed, because few responses fail.
    fn finish(&mut self, sent: Result<()>) -> std::result::Result<Outcome, Box<Error>> {
        self.sink.shared().set_responding(false);
        match sent {
            Ok(()) => Ok(self.end(Ok(()))),
            Err(error) => Err(Box::new(error)),
        }
    }

    /// Sends an error response in place of a failed one, unless a part of that was sent.
    async fn finish_failed(&mut self, error: Error) -> Outcome {
        if error.follows_data()
            && let Err(error) = self.sink.flush().await
        {
            return self.end(Err(error));
        }
        let sent = match self.replace(error) {
            Ok(mut replacement) => send_remaining(self.sink, &mut replacement).await,
            Err(error) => Err(error),
        };
        self.end(sent)
    }

    /// Ends the exchange, and abandons a response that was not sent completely.
    #[inline]
    fn end(&mut self, sent: Result<()>) -> Outcome {
        match sent {
            Ok(()) => {
                self.record(None);
                Outcome::Completed
            }
            Err(error) => self.abort(&error),
        }
    }

    /// Passes a response to the data that the application has set for the record.
    #[inline(never)]
    fn pass_to_record(&self, response: &Response) {
        if let Some(data) = self.record_parts().and_then(|parts| parts.data) {
            data.on_response(response);
        }
    }

    /// Returns the values that middleware has set for the record. An invalid request has none,
    /// although the values of the request before it may remain.
    fn record_parts(&self) -> Option<RecordParts> {
        self.sink.head().and_then(|_| self.sink.shared().record_parts())
    }

    #[cold]
    fn abort(&mut self, error: &Error) -> Outcome {
        self.report(error);
        self.sink.abandon(error);
        self.record(Some(error));
        Outcome::Aborted
    }

    /// Ends the exchange of an invalid request that gets no response.
    fn end_without_response(&mut self, error: &Error) {
        self.status = error.kind().status();
        self.record(Some(error));
    }

    /// Passes the record to the hooks, once.
    #[inline]
    fn record(&mut self, error: Option<&Error>) {
        if let Some(watch) = self.watch.take() {
            self.record_duration(watch, error);
        }
    }

    #[inline(never)]
    fn record_duration(&mut self, watch: Stopwatch, error: Option<&Error>) {
        let Some(hooks) = self.worker.recorder() else { return };
        let is_upgrade = error.is_none() && self.keep_for_tunnel(watch);
        let parts = self.record_parts();
        let (client, data) = parts.map_or((None, None), |parts| (parts.client, parts.data));
        hooks.on_response(&Record {
            peer: client.as_ref().unwrap_or(&self.sink.shared().peer),
            head: self.sink.head(),
            request_line: self.sink.request_line(),
            status: self.status.unwrap_or_else(client_closed_request),
            has_response: self.has_response,
            body_bytes: self.sink.body_bytes(),
            tunnel_received: None,
            is_upgrade,
            duration: watch.elapsed(),
            error: error.or(self.cause.as_deref()),
            is_complete: error.is_none(),
            data: data.as_deref(),
        });
    }
}

impl<A: Application, S: ResponseSink> Exchange<'_, A, S> {
    /// Keeps the values of the record for the record of the tunnel, if one follows. Returns true
    /// then.
    fn keep_for_tunnel(&mut self, watch: Stopwatch) -> bool {
        if self.sink.pending_upgrade().is_none() {
            return false;
        }
        let parts = self.record_parts();
        let (Some(head), Some(status)) = (self.sink.head().cloned(), self.status) else {
            return false;
        };
        let (client, data) = parts.map_or((None, None), |parts| (parts.client, parts.data));
        let record = TunnelRecord { watch, status, head, client, data };
        if let Some(upgrade) = self.sink.pending_upgrade() {
            upgrade.record = Some(Box::new(record));
        }
        true
    }
}

impl<A: Application, S: ResponseSink> Drop for Exchange<'_, A, S> {
    #[inline]
    fn drop(&mut self) {
        if self.watch.is_some() {
            self.record(Some(&cancelled()));
        }
    }
}

/// Names the alternative service of a connection's address, unless the response names one itself.
fn add_alt_svc(response: &mut Response, value: &HeaderValue) {
    if response.header(ALT_SVC).is_none() {
        response.append_header(ALT_SVC, value.clone());
    }
}

#[cold]
fn cancelled() -> Error {
    let reason = "the server closed the connection before the end of the response";
    Error::new(ErrorKind::Cancelled, reason)
}

/// Applies the preconditions and ranges of a request to a response with a file.
fn complete_file_response<A: Application>(
    worker: &WorkerContext<A>,
    head: &RequestHead,
    response: Response,
) -> Response {
    let context = ResponseContext { now: worker.date.now(), boundary: random_boundary };
    representation::complete_file_response(head, response, &context)
}

/// Validates a response against its request and starts to send it.
fn try_begin<S: ResponseSink>(sink: &mut S, response: &mut Response) -> Result<Remaining> {
    if response.is_generated_error
        && let Some(head) = sink.head()
    {
        error_page::negotiate(head.headers(), response);
    }
    let method = sink.head().map_or(&Method::GET, RequestHead::method);
    if let (Payload::Upgrade(_), Some(head)) = (&response.payload, sink.head()) {
        upgrade::check(head, response.status, response.header("upgrade"))?;
        return sink.begin_upgrade(response);
    }
    if (*method == Method::CONNECT || sink.is_tunnel()) && response.status.is_success() {
        let reason = "the response to CONNECT is not a tunnel";
        return Err(Error::new(ErrorKind::NotImplemented, reason));
    }
    let head_only = *method == Method::HEAD;
    let length = match &response.payload {
        Payload::Body(body) if !body.is_in_memory() => {
            // Calls code of the application.
            catch_panic_sync(|| response.validated_length(head_only))??
        }
        _ => response.validated_length(head_only)?,
    };
    sink.begin(response, length)
}

/// Sends the part of a response that [`Exchange::begin`] has not buffered.
fn send_remaining<S: ResponseSink>(
    sink: &mut S,
    remaining: &mut Remaining,
) -> impl Future<Output = Result<()>> {
    async move {
        let (payload, length) = match remaining {
            Remaining::Nothing => return Ok(()),
            Remaining::Buffered => return sink.flush().await,
            Remaining::Content(payload, length) => (payload, *length),
        };
        match payload {
            Payload::Upgrade(_) => unreachable!("an upgrade has no content"),
            Payload::File(file) => sink.send_file(file, true).await,
            Payload::Parts(parts) => Box::pin(send_parts(sink, parts)).await,
            Payload::Body(body) if body.is_in_memory() => {
                sink.send_data(body.take_bytes(), true).await
            }
            Payload::Body(body) => send_stream(sink, body, length).await,
        }
    }
}

async fn send_parts<S: ResponseSink>(sink: &mut S, parts: &mut Parts) -> Result<()> {
    for Part { head, file } in &mut parts.parts {
        sink.send_data(std::mem::take(head).into(), false).await?;
        sink.send_file(file, false).await?;
    }
    sink.send_data(std::mem::take(&mut parts.end).into(), true).await
}

/// Sends a body frame by frame, up to its trailers or until it reports its end, as hyper does: some
/// bodies must not be polled after that. Returns an error if it does not have the declared length.
fn send_stream<S: ResponseSink>(
    sink: &mut S,
    body: &mut Body,
    length: Option<u64>,
) -> impl Future<Output = Result<()>> {
    let (mut remaining, has_length) = (length.unwrap_or(u64::MAX), length.is_some());
    async move {
        let mut trailers = None;
        while !is_end_stream(body)? {
            // In a block, so that the data takes no space beside the future that sends it.
            let (sent, is_last) = {
                let Some(data) = next_data(sink, body, &mut trailers).await? else { break };
                remaining = remaining.checked_sub(data.len() as u64).ok_or_else(wrong_length)?;
                let is_last = (!has_length || remaining == 0) && is_end_stream(body)?;
                if data.is_empty() && !is_last {
                    continue;
                }
                (sink.send_data(data, is_last), is_last)
            };
            sent.await?;
            if is_last {
                return Ok(());
            }
        }
        match has_length && remaining > 0 {
            true => Err(wrong_length()),
            false => sink.finish(trailers).await,
        }
    }
}

fn is_end_stream(body: &Body) -> Result<bool> {
    catch_panic_sync(|| body.is_end_stream())
}

/// Returns the next data of a body; `None` at its end or at its trailer fields, which are stored.
fn next_data<S: ResponseSink>(
    sink: &mut S,
    body: &mut Body,
    trailers: &mut Trailers,
) -> impl Future<Output = Result<Option<Bytes>>> {
    poll_fn(move |cx| {
        ready!(sink.poll_ready(cx))?;
        let frame = match catch_panic_sync(|| Pin::new(&mut *body).poll_frame(cx))? {
            Poll::Ready(Some(frame)) => frame?,
            Poll::Ready(None) => return Poll::Ready(Ok(None)),
            Poll::Pending => {
                // The head is sent now, and the response can no longer be replaced.
                sink.shared().set_responding(true);
                return poll_connection(sink, cx).map(Err);
            }
        };
        Poll::Ready(match frame.into_data() {
            Ok(data) => Ok(Some(data)),
            Err(frame) => {
                *trailers = frame.into_trailers().ok().map(Box::new);
                Ok(None)
            }
        })
    })
}
