//! Behavior that is the same over every transport: HTTP/1 and HTTP/2, with and without TLS, and
//! HTTP/3. Each case runs over all of them.
#![cfg(all(
    feature = "brotli",
    feature = "files",
    feature = "gzip",
    feature = "sse",
    feature = "tls",
    feature = "tower",
    feature = "zstd"
))]

mod responses;
mod requests;
mod request_bodies;
mod disconnects;
mod failures;
mod files;
mod features;
mod shutdown;
mod load;

use std::fs;
use std::future::pending;
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::clients::{
    Client, ClientRequest, ClientResponse, IncompleteResponse, Transport, TransportServer,
    on_every_transport, wait_until,
};
use crate::common::tree::{Tree, pattern};
use crate::common::{SHORT_TIMEOUT, TEST_TIMEOUT, boxed_server, short_timeouts};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tower_http::compression::CompressionLayer;
use weft::files::{Directory, DirectorySettings, FallbackPaths};
use weft::header::{self, HeaderName, HeaderValue};
use weft::hooks::Record;
use weft::middleware::{CatchPanic, Compress, Log, Mount, RateLimit, Timeout};
use weft::net::Peer;
use weft::server::Disconnect;
use weft::sse::{self, Event};
use weft::{
    Application, Body, Error, ErrorKind, File, Hooks, Method, Request, Response, Settings,
    StatusCode,
};

// -- building blocks of applications

async fn echo(request: Request) -> Response {
    match *request.method() {
        Method::GET => Response::text("ok"),
        _ => Response::from_body(request.into_body()),
    }
}

/// A streamed body of these pieces, without a length.
fn pieces(pieces: impl IntoIterator<Item = &'static str>) -> Body {
    let pieces: Vec<_> = pieces.into_iter().map(Ok::<_, Error>).collect();
    Body::stream(stream::iter(pieces.into_iter().map(|piece| piece.map(Bytes::from))))
}

/// A body fed through a channel. It ends when the sender is dropped and fails on an error.
fn channel_body() -> (mpsc::Sender<Result<Bytes, Error>>, Body) {
    let (sender, mut receiver) = mpsc::channel(1);
    (sender, Body::stream(stream::poll_fn(move |cx| receiver.poll_recv(cx))))
}

/// A body whose frames are produced by a function.
struct Frames<F>(F);

impl<F> http_body::Body for Frames<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> + Unpin,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        (self.0)(cx)
    }
}

/// A body of one piece followed by trailers.
fn with_trailers(piece: &'static str, trailers: &[(HeaderName, &'static str)]) -> Body {
    let fields = trailers.iter().map(|(n, v)| (n.clone(), HeaderValue::from_static(v)));
    let trailers = Frame::trailers(fields.collect());
    let mut frames = [Frame::data(Bytes::from(piece)), trailers].into_iter();
    Body::from_http_body(Frames(move |_: &mut Context<'_>| Poll::Ready(frames.next().map(Ok))))
}

fn file(contents: &[u8]) -> fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(contents).unwrap();
    file
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

/// A log of events, in order. As `Hooks` it records every call.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn push(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }

    fn count(&self, event: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|recorded| *recorded == event).count()
    }

    fn contains(&self, event: &str) -> bool {
        self.count(event) > 0
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until `event` is recorded.
    async fn wait_for(&self, event: &str) {
        wait_until(event, || self.contains(event)).await;
    }
}

impl Hooks for EventLog {
    fn on_open(&self, peer: &Peer) -> bool {
        self.push(format!("opened {}", peer.address().is_some()));
        true
    }

    fn on_close(&self, _: &Peer) {
        self.push("closed");
    }

    fn on_error(&self, _: &Peer, error: &Error) {
        self.push(format!("{:?} {:?}", error.kind().fault(), error.kind()));
    }

    fn on_response(&self, record: &Record<'_>) {
        let target = record.head.map_or("-", |head| head.target());
        let end = match record.error {
            Some(error) if !record.is_complete => format!(" {:?}", error.kind()),
            _ => String::new(),
        };
        self.push(format!("{target} {} {}{end}", record.status.as_u16(), record.body_bytes));
    }
}

/// Serves an application with hooks that record to the returned log.
fn serve_with_event_log<A>(
    transport: Transport,
    settings: Settings,
    app: A,
) -> (TransportServer, EventLog)
where
    A: Application + Clone + Send + 'static,
{
    let events = EventLog::default();
    let hooks = events.clone();
    let server = boxed_server(app).settings(settings).workers(1).hooks(move || hooks.clone());
    (transport.start(server), events)
}

// -- shared by the modules

/// A way for a client to abort an exchange.
#[derive(Clone, Copy, Debug)]
enum Abort {
    /// Cancels the request: over HTTP/1 by closing the connection, over HTTP/2 and HTTP/3 by a
    /// reset of its stream.
    Request,
    /// Closes the connection.
    Connection,
}

const ABORTS: [Abort; 2] = [Abort::Request, Abort::Connection];

impl Abort {
    /// Aborts the exchange of `response`; returns the client if it is still usable.
    fn apply(self, client: Client, response: impl Sized) -> Option<Client> {
        match self {
            Abort::Request => {
                drop(response);
                Some(client)
            }
            Abort::Connection => {
                client.abort();
                None
            }
        }
    }
}

/// The next step of a scripted response body.
enum BodyStep {
    Piece(&'static str),
    Fail,
    Panic,
    /// Reports the end of the stream.
    End,
}

/// An application whose response bodies follow the steps sent through the channel. The query of
/// the target becomes `Content-Length`. `/panic` panics before there is a response.
fn scripted_body_app() -> (mpsc::Sender<BodyStep>, impl Application + Clone + Send + 'static) {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = Arc::new(Mutex::new(receiver));
    let app = move |request: Request| {
        let receiver = receiver.clone();
        async move {
            let mut ended = false;
            let frames = Frames(move |cx: &mut Context<'_>| {
                if ended {
                    return Poll::Ready(None);
                }
                receiver.lock().unwrap_or_else(|e| e.into_inner()).poll_recv(cx).map(|act| {
                    match act? {
                        BodyStep::Piece(piece) => Some(Ok(Frame::data(Bytes::from(piece)))),
                        BodyStep::Fail => {
                            Some(Err(Error::new(ErrorKind::BodyFailed, "on purpose")))
                        }
                        BodyStep::Panic => panic!("on purpose"),
                        BodyStep::End => {
                            ended = true;
                            None
                        }
                    }
                })
            });
            let response = match request.path() {
                "/act" => Response::from_body(Body::from_http_body(frames)),
                "/panic" => panic!("on purpose"),
                "/bytes" => Response::text("abc"),
                _ => return Response::text("ok"),
            };
            match request.query() {
                Some(length) => response.with_header(header::CONTENT_LENGTH, length),
                None => response,
            }
        }
    };
    (sender, app)
}

/// Request fields, and the status, `Content-Range` and body of the response.
type Case<'a> = (Vec<(&'a str, String)>, u16, Option<&'a str>, &'a str);

const CODINGS: [&str; 3] = ["br", "zstd", "gzip"];

/// Decodes the received part of a body that may be incomplete.
fn decoded_so_far(coding: &str, body: &[u8]) -> String {
    let mut text = Vec::new();
    // An error means that the input is incomplete.
    let _ = match coding {
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut text),
        "zstd" => zstd::Decoder::new(body).unwrap().read_to_end(&mut text),
        _ => flate2::read::GzDecoder::new(body).read_to_end(&mut text),
    };
    String::from_utf8(text).unwrap()
}
