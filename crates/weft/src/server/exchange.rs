//! One request and its response, the same for all HTTP versions.
//!
//! # The life of a request
//!
//! 1. A protocol version reads a head and makes a [`Request`] of it.
//! 2. [`answer`] calls the application. While the application waits, the sink drives the
//!    connection: it sends interim responses and earlier output, and notices a client that left.
//! 3. Preconditions and ranges are applied (RFC 9110 §13, §14).
//! 4. [`ResponseSink::begin`] writes the head and takes content that is in memory. Other content
//!    is sent piece by piece, at the client's pace.
//! 5. A response that fails before any of it was sent is replaced by an error response. One that
//!    fails later is abandoned, so that the client can tell that it is incomplete.
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

/// The way of one response to its client, implemented by each HTTP version.
pub(super) trait ResponseSink {
    /// The head of the request; `None` for input that is no valid request.
    fn head(&self) -> Option<&RequestHead>;

    fn shared(&self) -> &Arc<Shared>;

    /// Whether a success would turn the stream into a tunnel.
    fn is_tunnel(&self) -> bool;

    /// Whether no response can be sent any more.
    fn is_closed(&self) -> bool;

    /// Drives the connection while the application or its body is pending. Ready when there is
    /// no reason to wait any longer.
    fn poll_attend(&mut self, cx: &mut Context<'_>) -> Poll<Error>;

    /// Sends an interim response, unless the final one has begun.
    fn send_interim(&mut self, status: StatusCode, fields: &Fields);

    /// Makes the next response the last one of its connection, where connections end with an
    /// error of the application.
    fn close_after_response(&mut self);

    /// Writes the head of a response whose content has this length, if it is known, and takes
    /// content that can be buffered.
    fn begin(&mut self, response: Response, length: Option<u64>) -> Result<Remaining>;

    /// Writes the head after which the connection or stream belongs to the upgrade's handler.
    fn begin_upgrade(&mut self, response: Response) -> Result<Remaining>;

    /// Sends all that is buffered.
    fn flush(&mut self) -> impl Future<Output = Result<()>>;

    /// Sends a piece of content. Done when there is room for the next piece.
    fn send_data(&mut self, data: Bytes, is_last: bool) -> impl Future<Output = Result<()>>;

    /// Sends a file, or a part of one, as a piece of content.
    fn send_file(&mut self, file: File, is_last: bool) -> impl Future<Output = Result<()>>;

    /// Ends content whose last piece was not marked as such.
    fn finish(&mut self, trailers: HeaderMap) -> impl Future<Output = Result<()>>;

    /// Takes a response back that failed; `false` if some of it may have been sent.
    fn roll_back(&mut self, error: &Error) -> bool;

    /// Gives up a response that cannot be completed.
    fn abandon(&mut self, error: &Error);

    /// The number of content bytes sent, or accepted for sending.
    fn body_bytes(&self) -> u64;
}

/// The part of a response that is not sent when its head is.
pub(super) enum Remaining {
    Nothing,
    /// Output that fills the buffer and has to be sent first.
    Buffered,
    /// Content that is too large to be buffered, or not there yet.
    Content(Payload, Option<u64>),
}

/// The end of an exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A complete response was sent or buffered.
    Answered,
    /// The client left, or the response was abandoned.
    Lost,
}

/// A response whose head is buffered, or the error that prevented it.
struct Begun {
    status: StatusCode,
    remaining: Result<Remaining>,
}

/// Answers `request` by calling the application.
pub(super) async fn answer<A: Application, S: ResponseSink>(
    worker: &Worker<A>,
    sink: &mut S,
    request: Request,
    watch: Option<Stopwatch>,
) -> Outcome {
    let called = match catch_panic_sync(|| worker.app.call(request)) {
        Ok(response) => attend(sink, pin!(response)).await,
        Err(panicked) => Err(panicked),
    };
    match begin_called(worker, sink, called) {
        // Most responses are buffered completely, and nobody wants a record: no future for these.
        Some(Begun { remaining: Ok(Remaining::Nothing), .. }) if watch.is_none() => {
            Outcome::Answered
        }
        Some(begun) => finish(worker, sink, begun, watch).await,
        None => Outcome::Lost,
    }
}

/// Answers input that is no valid request.
pub(super) async fn refuse<A: Application, S: ResponseSink>(
    worker: &Worker<A>,
    sink: &mut S,
    error: &Error,
    watch: Option<Stopwatch>,
) -> Outcome {
    worker.report(&sink.shared().peer, error);
    if error.kind().status().is_none() || sink.is_closed() {
        return Outcome::Lost;
    }
    sink.close_after_response();
    let begun = begin(sink, error.into());
    finish(worker, sink, begun, watch).await
}

/// Polls the application's future and, while it is pending, the connection.
async fn attend<S: ResponseSink>(
    sink: &mut S,
    mut response: Pin<&mut impl Future<Output = Response>>,
) -> Result<Response> {
    poll_fn(|cx| match catch_panic_sync(|| response.as_mut().poll(cx)) {
        Ok(Poll::Ready(response)) => Poll::Ready(Ok(response)),
        Ok(Poll::Pending) => poll_attend(sink, cx).map(Err),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

fn poll_attend<S: ResponseSink>(sink: &mut S, cx: &mut Context<'_>) -> Poll<Error> {
    send_interim(sink);
    sink.poll_attend(cx)
}

/// Sends the interim responses that the application has queued.
fn send_interim<S: ResponseSink>(sink: &mut S) {
    if let Some(queued) = sink.shared().take_interim() {
        for Interim { status, fields } in queued {
            sink.send_interim(status, &fields);
        }
    }
}

/// Begins the response for the result of a call; `None` if no client is left to get one.
fn begin_called<A: Application, S: ResponseSink>(
    worker: &Worker<A>,
    sink: &mut S,
    called: Result<Response>,
) -> Option<Begun> {
    match called {
        // The client of a detached call may have left meanwhile.
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

/// Begins to send a response.
fn begin<S: ResponseSink>(sink: &mut S, response: Response) -> Begun {
    Begun { status: response.status, remaining: try_begin(sink, response) }
}

/// Checks a response against its request and begins to send it.
fn try_begin<S: ResponseSink>(sink: &mut S, response: Response) -> Result<Remaining> {
    let method = sink.head().map_or(&Method::GET, RequestHead::method);
    if let (Payload::Upgrade(_), Some(head)) = (&response.payload, sink.head()) {
        upgrade::check(head, &response)?;
        return sink.begin_upgrade(response);
    }
    if (*method == Method::CONNECT || sink.is_tunnel()) && response.status.is_success() {
        let reason = "the response to CONNECT is no tunnel";
        return Err(Error::new(ErrorKind::NotImplemented, reason));
    }
    let head_only = *method == Method::HEAD;
    let length = catch_panic_sync(|| response.sound_length(head_only))??;
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
        // Boxed: the state of a response that is not done at once is large, and rare.
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
        Ok(()) => Outcome::Answered,
        Err(error) => {
            worker.report(&sink.shared().peer, &error);
            sink.abandon(&error);
            Outcome::Lost
        }
    }
}

/// Sends the part of a response that [`begin`] has left.
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

/// Sends a body that is produced piece by piece; it must have this length, if one is declared.
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
        Ok(Poll::Pending) => poll_attend(sink, cx).map(Err),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}
