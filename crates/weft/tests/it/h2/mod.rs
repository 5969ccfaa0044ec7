//! HTTP/2 (RFC 9113) over real sockets, frame by frame.

mod requests;
mod responses;
mod uploads;
mod downloads;
mod failures;
mod closing;
mod tunnels;

use std::future::pending;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::common::frames::*;
use crate::common::{
    Client, SHORT_TIMEOUT, ServerSocket, TEST_TIMEOUT, boxed_server, reset_on_close,
    short_timeouts, stop, until,
};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use weft::hooks::Record;
use weft::message::Upgraded;
use weft::net::Peer;
use weft::server::{Disconnect, ServerHandle};
use weft::{
    Application, Body, Error, ErrorKind, File, Hooks, Method, Request, Response, Settings,
    StatusCode, header,
};

fn start<A: Application + Clone + Send + 'static>(app: A) -> ServerHandle {
    start_with(Settings::default(), app)
}

fn start_with<A: Application + Clone + Send + 'static>(settings: Settings, app: A) -> ServerHandle {
    start_with_event_log(settings, app).0
}

fn start_with_event_log<A>(settings: Settings, app: A) -> (ServerHandle, EventLog)
where
    A: Application + Clone + Send + 'static,
{
    let events = EventLog::default();
    let hooks = events.clone();
    let server = boxed_server(app).settings(settings).workers(1).hooks(move || hooks.clone());
    (server.listen("127.0.0.1:0").unwrap().start().unwrap(), events)
}

/// Hooks that record every call.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn contains(&self, event: &str) -> bool {
        self.0.lock().unwrap().iter().any(|recorded| recorded == event)
    }
}

impl Hooks for EventLog {
    fn on_error(&self, _: &Peer, error: &Error) {
        let event = format!("{:?} {:?}", error.kind().fault(), error.kind());
        self.0.lock().unwrap().push(event);
    }

    fn on_response(&self, record: &Record<'_>) {
        let target = record.head.map_or("-", |head| head.target());
        let event = format!("{target} {} {}", record.status.as_u16(), record.body_bytes);
        self.0.lock().unwrap().push(event);
    }
}

/// Collects the body and echoes it.
async fn echo(request: Request) -> weft::Result<Response> {
    match *request.method() {
        Method::GET => Ok(Response::text("ok")),
        _ => Ok(Response::from_body(request.into_body().collect(1 << 24).await?)),
    }
}

/// Counts its live clones.
#[derive(Clone)]
struct CloneCounter(Arc<()>);

impl CloneCounter {
    fn new() -> CloneCounter {
        CloneCounter(Arc::new(()))
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// A stream of chunks produced by a function.
struct Chunks<F>(F);

impl<F> futures_core::Stream for Chunks<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> + Unpin,
{
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        (self.0)(cx)
    }
}

/// A streamed body of these parts; the last one may be an error.
fn parts(parts: impl IntoIterator<Item = Result<&'static str, ErrorKind>>) -> Body {
    let mut parts = parts.into_iter().collect::<Vec<_>>().into_iter();
    Body::stream(Chunks(move |_: &mut Context<'_>| {
        Poll::Ready(parts.next().map(|part| match part {
            Ok(part) => Ok(Bytes::from_static(part.as_bytes())),
            Err(kind) => Err(Error::new(kind, "on purpose")),
        }))
    }))
}

// -- shared by the modules

/// A response whose body is the number of request bytes read, and never ends.
fn endless(read: usize) -> Response {
    let mut first = Some(Bytes::from(read.to_string()));
    Response::from_body(Body::stream(futures_util::stream::poll_fn(move |_| match first.take() {
        Some(first) => Poll::Ready(Some(Ok::<_, Error>(first))),
        None => Poll::Pending,
    })))
}

/// Echoes its input in upper case, until a full stop.
async fn shout(mut connection: Upgraded) {
    let mut byte = [0];
    while let Ok(1) = connection.read(&mut byte).await {
        let upper = byte.map(|b| b.to_ascii_uppercase());
        if byte == *b"." || connection.write_all(&upper).await.is_err() {
            break;
        }
    }
}
