//! HTTP/2 (RFC 9113), onto the same application.
//!
//! Frames, header compression and the windows of flow control are the crate h2's. This adds
//! what makes a server of it: the clocks, the limits, and the way from a stream to a
//! [`Request`](crate::Request) and back.
//!
//! # The life of a connection
//!
//! 1. [`serve`] takes over a connection that has chosen HTTP/2, by its preface or by ALPN.
//!    Its two halves become a [`Wire`], through which the crate h2 reads and writes.
//! 2. `Session::poll` accepts all requests that have come before it lets any be answered, so
//!    that the answers leave in one write.
//! 3. Each request is a future of its own (`exchange`), beside the others in the connection's
//!    task. Most are done at once. None of them touches the socket: they leave what they have
//!    with the crate h2, and are woken when it has something for them.
//! 4. With no request at hand the connection rests, under a deadline. When that is over, or
//!    the server is to stop, the client is told (GOAWAY), and what it has begun is finished.

mod exchange;
mod flood;
mod incoming;
mod request;
mod response;
mod tunnel;
mod wire;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::h2::server::{Builder, Connection as Frames, SendResponse};
use ::h2::{Reason, RecvStream};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use self::exchange::{Origin, exchange};
use self::wire::Wire;
use crate::app::Application;
use crate::conn::Connection;
use crate::error::{Error, ErrorKind, Result};
use crate::worker::Worker;

pub(crate) use self::incoming::Incoming;
pub(crate) use self::response::LastLength;

/// Serves a connection that speaks HTTP/2, to its end.
pub(crate) async fn serve<A: Application>(conn: &mut Connection, worker: &Worker<A>) {
    let Some(wire) = Wire::new(conn, worker) else { return };
    let origin = Origin::new(&conn.shared.peer);
    let mut session = Session {
        worker,
        conn,
        wire: &wire,
        exchange: |accepted| exchange(worker, &origin, accepted),
        exchanges: FuturesUnordered::new(),
        spare: None,
        accepted: Vec::new(),
        phase: Phase::Opening,
    };
    if let Err(error) = session.run().await {
        worker.report(&conn.shared.peer, &error);
    }
    wire.linger(&conn.deadline, worker.settings.linger_timeout).await;
}

/// A connection while it is open.
struct Session<'a, A, E, F> {
    worker: &'a Worker<A>,
    conn: &'a Connection,
    wire: &'a Wire,
    /// How a request is answered.
    exchange: E,
    /// Those that are being answered.
    exchanges: FuturesUnordered<Pin<Box<F>>>,
    /// The room of one that was done at once, for the next.
    spare: Option<Pin<Box<F>>>,
    /// Those that have just come.
    accepted: Vec<Accepted>,
    phase: Phase,
}

type Accepted = (http::Request<RecvStream>, SendResponse<Bytes>);

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its first request has not come yet.
    Opening,
    /// There are requests to be answered.
    Busy,
    /// There are none.
    Resting,
    /// The client was told that there will be no further ones. Those that it has sent before
    /// are answered.
    Leaving,
    /// It was told, and nothing is left to be answered.
    Left,
}

impl<A, E, F> Session<'_, A, E, F>
where
    A: Application,
    E: Fn(Accepted) -> F,
    F: Future<Output = ()>,
{
    async fn run(&mut self) -> Result<()> {
        let mut handshake = builder(self.worker).handshake(self.wire.clone());
        let shaken = poll_fn(|cx| {
            self.wire.look_again();
            match Pin::new(&mut handshake).poll(cx) {
                Poll::Ready(frames) => {
                    Poll::Ready(frames.map_err(|error| self.wire.failure(error)))
                }
                Poll::Pending => self.conn.deadline.poll_over(cx).map(|()| Err(too_slow())),
            }
        });
        let mut frames = shaken.await?;
        let end = poll_fn(|cx| self.poll(&mut frames, cx)).await;
        drop(frames);
        // Without their client the exchanges come to an end: at once if they are cancelled by
        // that, in their own time if they are detached or have been handed over.
        while self.exchanges.next().await.is_some() {}
        end
    }

    /// Does all that can be done now; ready at the connection's end.
    fn poll(&mut self, frames: &mut Frames<Wire, Bytes>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.wire.look_again();
        loop {
            while let Poll::Ready(Some(())) = self.exchanges.poll_next_unpin(cx) {}
            if let Poll::Ready(end) = self.poll_accept(frames, cx) {
                return Poll::Ready(end);
            }
            if !self.accepted.is_empty() {
                self.begin(frames, cx);
            } else if !self.turn(frames) {
                break;
            }
        }
        if self.conn.deadline.poll_over(cx).is_pending() {
            return Poll::Pending;
        }
        match self.phase {
            Phase::Opening => Poll::Ready(Err(too_slow())),
            Phase::Busy | Phase::Leaving => Poll::Pending,
            Phase::Resting => {
                self.leave(frames);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            // The client does not confirm that it was told.
            Phase::Left => Poll::Ready(Ok(())),
        }
    }

    /// Takes all requests that have come, and lets what is to be sent leave.
    fn poll_accept(
        &mut self,
        frames: &mut Frames<Wire, Bytes>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        loop {
            match frames.poll_accept(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(accepted))) => self.accepted.push(accepted),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(self.wire.failure(error))),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Begins to answer the requests that were accepted.
    fn begin(&mut self, frames: &mut Frames<Wire, Bytes>, cx: &mut Context<'_>) {
        let most = self.worker.settings.max_requests;
        if matches!(self.phase, Phase::Opening | Phase::Resting) {
            self.conn.deadline.clear();
            self.phase = Phase::Busy;
        }
        let mut is_last = false;
        for accepted in self.accepted.drain(..) {
            is_last |= self.wire.count_request() == most;
            let future = (self.exchange)(accepted);
            let mut exchange = match self.spare.take() {
                Some(mut spare) => {
                    spare.set(future);
                    spare
                }
                None => Box::pin(future),
            };
            match exchange.as_mut().poll(cx) {
                Poll::Ready(()) => self.spare = Some(exchange),
                Poll::Pending => self.exchanges.push(exchange),
            }
        }
        if is_last && self.phase == Phase::Busy {
            self.leave(frames);
        }
    }

    /// Goes over to the phase that it is time for; `true` if there is something to be sent
    /// then.
    fn turn(&mut self, frames: &mut Frames<Wire, Bytes>) -> bool {
        let settings = &self.worker.settings;
        let is_idle = self.exchanges.is_empty();
        match self.phase {
            Phase::Left => {}
            _ if self.wire.is_flooded() => {
                self.worker.report(&self.conn.shared.peer, &flooded());
                frames.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                self.rest_for(settings.linger_timeout, Phase::Left);
                return true;
            }
            Phase::Leaving if is_idle => self.rest_for(settings.linger_timeout, Phase::Left),
            Phase::Leaving => {}
            _ if self.worker.draining() => {
                self.leave(frames);
                return true;
            }
            Phase::Busy if is_idle => self.rest_for(settings.idle_timeout, Phase::Resting),
            Phase::Opening | Phase::Busy | Phase::Resting => {}
        }
        false
    }

    fn rest_for(&mut self, time: Duration, phase: Phase) {
        self.conn.deadline.set(time);
        self.phase = phase;
    }

    /// Tells the client that no further request will be answered (RFC 9113 §6.8).
    fn leave(&mut self, frames: &mut Frames<Wire, Bytes>) {
        frames.graceful_shutdown();
        self.conn.deadline.clear();
        self.phase = Phase::Leaving;
    }
}

/// What the client is told of our limits, and what the crate h2 has to keep to.
fn builder<A>(worker: &Worker<A>) -> Builder {
    let settings = &worker.settings;
    let window = settings.body_window_bytes.clamp(LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES);
    let mut builder = Builder::new();
    builder
        .enable_connect_protocol()
        .max_concurrent_streams(settings.max_concurrent_streams)
        .max_header_list_size(worker.limits.head as u32)
        .initial_connection_window_size(window)
        .initial_window_size((window / 4).max(LEAST_WINDOW_BYTES))
        .max_send_buffer_size(settings.max_gathered_bytes)
        .max_concurrent_reset_streams(MOST_REMEMBERED)
        .max_local_error_reset_streams(Some(MOST_ERRORS))
        .max_pending_accept_reset_streams(MOST_TAKEN_BACK);
    builder
}

/// The window that each connection begins with (RFC 9113 §6.9.2), and the largest.
const LEAST_WINDOW_BYTES: u32 = 65_535;
const MOST_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// So many streams may be reset because of errors of the client, in the whole life of a
/// connection, until it is taken for an attack.
const MOST_ERRORS: usize = 1_000;

/// So many requests of one read may have been taken back already when they are looked at.
const MOST_TAKEN_BACK: usize = 100;

/// So many streams are remembered for a second after they were reset because the application
/// left a body unread. A client that has not heard of it sends on, which is no error then; to
/// a stream that is forgotten it is one.
const MOST_REMEMBERED: usize = 512;

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the first request came too slowly")
}

fn flooded() -> Error {
    Error::new(ErrorKind::Malformed, "the client sends far more frames than it has a use for")
}
