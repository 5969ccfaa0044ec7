//! HTTP/1 exchanges over real sockets: bodies, failures, timeouts, limits and shutdown.

mod requests;
mod responses;
mod failures;
mod limits;
mod shutdown;
mod regressions;

use std::future::pending;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::common::{self, Client, SHORT_TIMEOUT, boxed_server, short_timeouts, stop, until};
use bytes::Bytes;
use weft::error::Fault;
use weft::hooks::Record;
use weft::message::RequestHead;
use weft::net::Peer;
use weft::server::{Disconnect, ServerHandle};
use weft::{
    Application, Body, Error, ErrorKind, Hooks, Method, Request, Response, Settings, StatusCode,
    header,
};

fn start<A: Application + Clone + Send + 'static>(app: A) -> ServerHandle {
    start_with(Settings::default(), app)
}

fn start_with<A: Application + Clone + Send + 'static>(settings: Settings, app: A) -> ServerHandle {
    let server = boxed_server(app).settings(settings).workers(1);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

async fn echo(request: Request) -> Response {
    match *request.method() {
        Method::GET => Response::text("ok"),
        _ => Response::from_body(request.into_body()),
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
    F: FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Unpin,
{
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        (self.0)(cx).map(|chunk| chunk.map(Ok))
    }
}

// -- shared by the modules

/// An application that never responds to `/wait`; each call holds a clone of `alive`.
fn waiting_app(alive: &CloneCounter) -> impl Application + Clone + Send + use<> {
    let alive = alive.clone();
    move |request: Request| {
        // Each call has a counted clone.
        let call_guard = Arc::new(alive.clone());
        async move {
            let _call_guard = call_guard;
            if request.path() == "/wait" {
                pending::<()>().await;
            }
            Response::text("ok")
        }
    }
}
