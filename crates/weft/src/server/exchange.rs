//! One request and its response, the same for all HTTP versions.
//!
//! # The life of a request
//!
//! 1. A protocol version parses a head and creates a [`Request`].
//! 2. [`serve`] calls the application. While the application is pending, the sink drives the
//!    connection: it sends interim responses and earlier output, and detects a disconnect.
//! 3. Preconditions and ranges are applied (RFC 9110 §13, §14).
//! 4. [`ResponseSink::begin`] writes the head and buffers content that is in memory. Other content
//!    is sent piece by piece, as fast as the client receives it.
//! 5. A response that fails before any of it was sent is replaced by an error response. A response
//!    that fails later is abandoned, so that the client can detect that it is incomplete.
//! 6. The hooks get a [`Record`].

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body as _, Frame};

use crate::app::Application;
use crate::clock::deadline::Stopwatch;
use crate::disk::File;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Record;
use crate::message::body::{Body, wrong_length};
use crate::message::fields::Fields;
use crate::message::representation::{self, ResponseContext};
use crate::message::request::{Interim, Request, RequestHead, Shared};
use crate::message::response::{Part, Parts, Payload, Response};
use crate::message::upgrade;
use crate::panic::catch_panic_sync;
use crate::random::random_boundary;
use crate::server::worker::Worker;

/// The sending side of one exchange, implemented by each HTTP version.
pub(super) trait ResponseSink {
    /// Head of the request; `None` if the request is invalid.
    fn head(&self) -> Option<&RequestHead>;

    fn shared(&self) -> &Arc<Shared>;

    /// Returns `true` if a successful response would turn the stream into a tunnel.
    fn is_tunnel(&self) -> bool;

    /// Returns `true` if no response can be sent any more.
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
    fn begin(&mut self, response: Response, length: Option<u64>) -> Result<Remaining>;

    /// Writes the head after which the connection or stream belongs to the upgrade's handler.
    fn begin_upgrade(&mut self, response: Response) -> Result<Remaining>;

    /// Sends all buffered output.
    fn flush(&mut self) -> impl Future<Output = Result<()>>;

    /// Sends a piece of content. Completes when there is space for the next piece.
    fn send_data(&mut self, data: Bytes, is_last: bool) -> impl Future<Output = Result<()>>;

    /// Sends a file, or a part of one, as a piece of content.
    fn send_file(&mut self, file: File, is_last: bool) -> impl Future<Output = Result<()>>;

    /// Ends content whose last piece was not marked with `is_last`.
    fn finish(&mut self, trailers: HeaderMap) -> impl Future<Output = Result<()>>;

    /// Discards a failed response. Returns `false` if a part of it may have been sent.
    fn roll_back(&mut self, error: &Error) -> bool;

    /// Aborts a response that cannot be completed.
    fn abandon(&mut self, error: &Error);

    /// Number of content bytes sent or buffered.
    fn body_bytes(&self) -> u64;
}

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

/// A response whose head is buffered, or the error that prevented it.
struct Begun {
    status: StatusCode,
    remaining: Result<Remaining>,
}

/// Serves `request`: calls the application and sends its response.
pub(super) async fn serve<A: Application, S: ResponseSink>(
    worker: &Worker<A>,
    sink: &mut S,
    request: Request,
    watch: Option<Stopwatch>,
) -> Outcome {
    let result = match catch_panic_sync(|| worker.app.call(request)) {
        Ok(response) => await_response(sink, pin!(response)).await,
        Err(panicked) => Err(panicked),
    };
    match begin_response(worker, sink, result) {
        // Most responses are buffered completely and are not recorded: no future for these.
        Some(Begun { remaining: Ok(Remaining::Nothing), .. }) if watch.is_none() => {
            Outcome::Completed
        }
        Some(begun) => finish(worker, sink, begun, watch).await,
        None => Outcome::Aborted,
    }
}

/// Sends an error response to an invalid request.
pub(super) async fn reject<A: Application, S: ResponseSink>(
    worker: &Worker<A>,
    sink: &mut S,
    error: &Error,
    watch: Option<Stopwatch>,
) -> Outcome {
    worker.report(&sink.shared().peer, error);
    if error.kind().status().is_none() || sink.is_closed() {
        return Outcome::Aborted;
    }
    sink.close_after_response();
    let begun = begin(sink, error.into());
    finish(worker, sink, begun, watch).await
}

/// Polls the future of the application and, while it is pending, the connection.
async fn await_response<S: ResponseSink>(
    sink: &mut S,
    mut response: Pin<&mut impl Future<Output = Response>>,
) -> Result<Response> {
    poll_fn(|cx| match catch_panic_sync(|| response.as_mut().poll(cx)) {
        Ok(Poll::Ready(response)) => Poll::Ready(Ok(response)),
        Ok(Poll::Pending) => poll_connection(sink, cx).map(Err),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

fn poll_connection<S: ResponseSink>(sink: &mut S, cx: &mut Context<'_>) -> Poll<Error> {
    send_interim(sink);
    sink.poll_connection(cx)
}

/// Sends the interim responses that the application has queued.
fn send_interim<S: ResponseSink>(sink: &mut S) {
    if let Some(queued) = sink.shared().take_interim() {
        for Interim { status, fields } in queued {
            sink.send_interim(status, &fields);
        }
    }
}

/// Starts the response for the result of a call. Returns `None` if the client has disconnected.
fn begin_response<A: Application, S: ResponseSink>(
    worker: &Worker<A>,
    sink: &mut S,
    result: Result<Response>,
) -> Option<Begun> {
    match result {
        // With `Disconnect::Detach`, the client may have disconnected during the call.
        Ok(_) if sink.is_closed() => None,
        Ok(response) => {
            send_interim(sink);
            if let Some(error) = response.error() {
                worker.report(&sink.shared().peer, error);
            }
            let Some(head) = sink.head() else { return Some(begin(sink, response)) };
            let context = ResponseContext { now: worker.date.now(), boundary: random_boundary };
            let response = representation::complete_file_response(head, response, &context);
            Some(begin(sink, response))
        }
        Err(error) => {
            worker.report(&sink.shared().peer, &error);
            if error.kind() == ErrorKind::Disconnected || sink.is_closed() {
                return None;
            }
            sink.close_after_response();
            Some(begin(sink, error.into()))
        }
    }
}

/// Starts to send a response.
fn begin<S: ResponseSink>(sink: &mut S, response: Response) -> Begun {
    Begun { status: response.status, remaining: try_begin(sink, response) }
}

/// Validates a response against its request and starts to send it.
fn try_begin<S: ResponseSink>(sink: &mut S, response: Response) -> Result<Remaining> {
    let method = sink.head().map_or(&Method::GET, RequestHead::method);
    if let (Payload::Upgrade(_), Some(head)) = (&response.payload, sink.head()) {
        upgrade::check(head, &response)?;
        return sink.begin_upgrade(response);
    }
    if (*method == Method::CONNECT || sink.is_tunnel()) && response.status.is_success() {
        let reason = "the response to CONNECT is not a tunnel";
        return Err(Error::new(ErrorKind::NotImplemented, reason));
    }
    let head_only = *method == Method::HEAD;
    let length = catch_panic_sync(|| response.validated_length(head_only))??;
    sink.begin(response, length)
}

/// Sends the rest of a response, or an error response in its place, and records it.
async fn finish<A: Application, S: ResponseSink>(
    worker: &Worker<A>,
    sink: &mut S,
    begun: Begun,
    watch: Option<Stopwatch>,
) -> Outcome {
    let Begun { mut status, remaining } = begun;
    let mut sent = match remaining {
        Ok(Remaining::Nothing) => Ok(()),
        // Boxed, because its future is large, and few responses need it.
        Ok(remaining) => Box::pin(send_remaining(sink, remaining)).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &sent
        && sink.roll_back(error)
    {
        worker.report(&sink.shared().peer, error);
        let replacement = begin(sink, error.into());
        status = replacement.status;
        sent = match replacement.remaining {
            Ok(remaining) => Box::pin(send_remaining(sink, remaining)).await,
            Err(error) => Err(error),
        };
    }
    if let (Some(hooks), Some(watch)) = (worker.recorder(), watch) {
        hooks.on_response(&Record {
            peer: &sink.shared().peer,
            head: sink.head(),
            status,
            body_bytes: sink.body_bytes(),
            duration: watch.elapsed(),
            error: sent.as_ref().err(),
        });
    }
    match sent {
        Ok(()) => Outcome::Completed,
        Err(error) => {
            worker.report(&sink.shared().peer, &error);
            sink.abandon(&error);
            Outcome::Aborted
        }
    }
}

/// Sends the part of a response that [`begin`] has not buffered.
async fn send_remaining<S: ResponseSink>(sink: &mut S, remaining: Remaining) -> Result<()> {
    let (payload, length) = match remaining {
        Remaining::Nothing => return Ok(()),
        Remaining::Buffered => return sink.flush().await,
        Remaining::Content(payload, length) => (payload, length),
    };
    match payload {
        Payload::Upgrade(_) => unreachable!("an upgrade has no content"),
        Payload::File(file) => sink.send_file(Arc::unwrap_or_clone(file), true).await,
        Payload::Parts(parts) => {
            let Parts { parts, end, .. } = *parts;
            for Part { head, file } in parts {
                sink.send_data(head.into(), false).await?;
                sink.send_file(file, false).await?;
            }
            sink.send_data(end.into(), true).await
        }
        Payload::Body(body) => match body.into_bytes() {
            Ok(bytes) => sink.send_data(bytes, true).await,
            Err(stream) => send_stream(sink, stream, length).await,
        },
    }
}

/// Sends a body frame by frame. Returns an error if it does not have the declared length.
async fn send_stream<S: ResponseSink>(
    sink: &mut S,
    mut body: Body,
    length: Option<u64>,
) -> Result<()> {
    let mut remaining = length.unwrap_or(u64::MAX);
    let mut trailers = HeaderMap::new();
    while let Some(frame) = next_frame(sink, &mut body).await? {
        match frame.into_data() {
            Ok(data) => {
                remaining = remaining.checked_sub(data.len() as u64).ok_or_else(wrong_length)?;
                let is_last = length.is_some()
                    && remaining == 0
                    && catch_panic_sync(|| body.is_end_stream())?;
                if !data.is_empty() || is_last {
                    sink.send_data(data, is_last).await?;
                }
                if is_last {
                    return Ok(());
                }
            }
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
    }
    if length.is_some() && remaining > 0 {
        return Err(wrong_length());
    }
    sink.finish(trailers).await
}

async fn next_frame<S: ResponseSink>(
    sink: &mut S,
    body: &mut Body,
) -> Result<Option<Frame<Bytes>>> {
    poll_fn(|cx| match catch_panic_sync(|| Pin::new(&mut *body).poll_frame(cx)) {
        Ok(Poll::Ready(frame)) => Poll::Ready(frame.transpose()),
        Ok(Poll::Pending) => poll_connection(sink, cx).map(Err),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}
