//! One request and its response.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use ::h2::RecvStream;
use ::h2::server::SendResponse;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::oneshot;

use super::Accepted;
use super::incoming::{Incoming, Terms};
use super::request::{self, Asked, LastAuthority};
use super::response::{self, Outgoing, gone};
use super::tunnel::Tunnel;
use crate::app::Application;
use crate::body::Body;
use crate::deadline::{Pace, Stopwatch};
use crate::error::{Error, ErrorKind, Result};
use crate::h1::framing::is_bodiless;
use crate::hooks::Record;
use crate::panic::{guard, guarded};
use crate::payload;
use crate::range::random_boundary;
use crate::representation::{self, Moment};
use crate::request::{Head, Interim, Peer, Request, Shared};
use crate::response::{Payload, Response};
use crate::settings::Disconnect;
use crate::upgrade::{self, Upgrade, Upgraded};
use crate::worker::Worker;

/// Where the requests of a connection come from.
pub(super) struct Origin<'a> {
    peer: &'a Peer,
    /// What a request knew of its connection, for the next.
    spare: Cell<Option<Arc<Shared>>>,
    last_authority: LastAuthority,
}

impl<'a> Origin<'a> {
    pub(super) fn new(peer: &'a Peer) -> Origin<'a> {
        Origin { peer, spare: Cell::default(), last_authority: LastAuthority::default() }
    }
}

/// Answers a request.
pub(super) async fn exchange<A: Application>(
    worker: &Worker<A>,
    origin: &Origin<'_>,
    (request, respond): Accepted,
) {
    let (mut parts, stream) = request.into_parts();
    let asked = request::read(&parts, &worker.limits, &origin.last_authority);
    parts.headers.clear();
    let shared = origin.spare.take();
    let mut exchange = Exchange {
        worker,
        shared: shared.unwrap_or_else(|| Shared::new(origin.peer.clone(), worker.stop.clone())),
        respond,
        map: &mut parts.headers,
        is_read: None,
        unread: None,
        watch: worker.stopwatch(),
        body_bytes: 0,
    };
    match asked {
        Ok(asked) => exchange.answer(asked, stream).await,
        Err(error) => Box::pin(exchange.refuse(error)).await,
    }
    if exchange.shared.renew() {
        origin.spare.set(Some(exchange.shared));
    }
}

struct Exchange<'a, A> {
    worker: &'a Worker<A>,
    /// What the request knows of its connection.
    shared: Arc<Shared>,
    respond: SendResponse<Bytes>,
    /// The request's fields were in it, and the response's will be: it has room for them.
    map: &'a mut HeaderMap,
    /// Tells when the client, which waits for a 100, is to send its body.
    is_read: Option<oneshot::Receiver<()>>,
    /// Gets what the application leaves unread of the request's body.
    unread: Option<oneshot::Receiver<RecvStream>>,
    /// For the hooks, if there are any.
    watch: Option<Stopwatch>,
    /// How much of the response's body was sent.
    body_bytes: u64,
}

/// What is left of a response when its head is out.
enum Rest {
    Body(Body, Option<u64>),
    Upgrade(Upgrade),
}

/// A response that could not be sent at once.
struct Unsent<'a, A> {
    status: StatusCode,
    outgoing: Outgoing<'a, A>,
    rest: Rest,
}

impl<'a, A: Application> Exchange<'a, A> {
    async fn answer(&mut self, asked: Asked, stream: RecvStream) {
        let (body, tunnel) = match asked.is_tunnel {
            true => (Body::empty(), Some(stream)),
            false => (self.request_body(&asked, stream), None),
        };
        let request = Request::new(asked.head.clone(), body, self.shared.clone());
        let mut response = match self.call(request).await {
            Ok(response) => {
                self.send_hints();
                if let Some(error) = response.error() {
                    self.report(error);
                }
                response
            }
            Err(error) => {
                self.report(&error);
                if error.kind() == ErrorKind::Disconnected {
                    return;
                }
                error.into()
            }
        };
        if let Payload::File(_) = response.payload {
            let moment = Moment { now: self.worker.date.now(), boundary: random_boundary };
            response = representation::answer(&asked.head, response, &moment);
        }
        if let Some(unsent) = self.respond(Some(&asked.head), response) {
            Box::pin(self.finish(Some(&asked.head), unsent, tunnel)).await;
        }
        if let Some(mut unread) = self.unread.take()
            && let Ok(stream) = unread.try_recv()
            && self.worker.settings.max_drain_bytes > 0
        {
            Box::pin(self.drain(stream)).await;
        }
    }

    /// Answers what is no proper request.
    async fn refuse(&mut self, error: Error) {
        self.report(&error);
        if let Some(unsent) = self.respond(None, error.into()) {
            self.finish(None, unsent, None).await;
        }
    }

    fn request_body(&mut self, asked: &Asked, stream: RecvStream) -> Body {
        if stream.is_end_stream() {
            return Body::empty();
        }
        let on_read = asked.expects_continue.then(|| {
            let (on_read, is_read) = oneshot::channel();
            self.is_read = Some(is_read);
            on_read
        });
        let (on_drop, unread) = oneshot::channel();
        self.unread = Some(unread);
        let settings = &self.worker.settings;
        let terms = Terms {
            length: asked.length,
            max_bytes: settings.max_body_bytes,
            on_read,
            on_drop: Some(on_drop),
            deadline: self.worker.deadlines.deadline(),
            pace: Pace::new(settings),
        };
        Body::http2(Incoming::new(stream, terms))
    }

    /// Reads what is left of a request's body away, so that the client can send it to its end:
    /// many take it for an error to be told to stop, though it is none (RFC 9113 §8.1). As on
    /// HTTP/1, only so much of it, and not for long.
    async fn drain(&mut self, stream: RecvStream) {
        let settings = &self.worker.settings;
        let deadline = self.worker.deadlines.deadline();
        deadline.set(settings.linger_timeout);
        let terms = Terms {
            length: None,
            max_bytes: settings.max_drain_bytes,
            on_read: None,
            on_drop: None,
            deadline: self.worker.deadlines.deadline(),
            pace: Pace::new(settings),
        };
        let mut rest = Incoming::new(stream, terms);
        poll_fn(|cx| {
            loop {
                match rest.poll_chunk(cx) {
                    Poll::Ready(Ok(Some(_))) => {}
                    Poll::Ready(Ok(None) | Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return deadline.poll_over(cx),
                }
            }
        })
        .await;
    }

    /// Calls the application.
    async fn call(&mut self, request: Request) -> Result<Response> {
        let app = &self.worker.app;
        let mut future = pin!(async move { app.call(request).await });
        poll_fn(|cx| match guarded(|| future.as_mut().poll(cx)) {
            Ok(Poll::Ready(response)) => Poll::Ready(Ok(response)),
            Ok(Poll::Pending) => self.poll_attend(cx).map(Err),
            Err(panicked) => Poll::Ready(Err(panicked)),
        })
        .await
    }

    /// What the client is told while the application thinks; ready when it does not want the
    /// response any more.
    fn poll_attend(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.send_hints();
        if let Some(is_read) = &mut self.is_read
            && let Poll::Ready(read) = Pin::new(is_read).poll(cx)
        {
            self.is_read = None;
            if read.is_ok() {
                self.send_interim(StatusCode::CONTINUE, |_| {});
            }
        }
        match self.worker.settings.disconnect {
            Disconnect::Cancel => self.respond.poll_reset(cx).map(|_| Error::disconnected()),
            Disconnect::Detach => Poll::Pending,
        }
    }

    /// If somebody still has the body that the client waits to send, such as the response that
    /// is made of it, lets the client go on: behind the response's head it cannot be told.
    fn send_last_continue(&mut self) {
        let is_kept = |mut is_read: oneshot::Receiver<()>| {
            is_read.try_recv() != Err(oneshot::error::TryRecvError::Closed)
        };
        if self.is_read.take().is_some_and(is_kept) {
            self.send_interim(StatusCode::CONTINUE, |_| {});
        }
    }

    /// Sends the interim responses that the application has left.
    fn send_hints(&mut self) {
        for Interim { status, fields } in self.shared.take_interim() {
            self.send_interim(status, |map| response::add_sendable(map, &fields));
        }
    }

    fn send_interim(&mut self, status: StatusCode, add: impl FnOnce(&mut http::HeaderMap)) {
        let mut interim = http::Response::new(());
        *interim.status_mut() = status;
        add(interim.headers_mut());
        // It fails if the stream is gone, which the next step finds out.
        let _ = self.respond.send_informational(interim);
    }

    /// Sends a response, or what takes its place, as far as nobody has to be waited for.
    fn respond(&mut self, head: Option<&Head>, response: Response) -> Option<Unsent<'a, A>> {
        let mut status = response.status;
        let begun = self.begin(head, response).or_else(|error| {
            self.report(&error);
            // Nobody hears of another status, and it is no fault that a log should show.
            if error.kind() == ErrorKind::Disconnected {
                return Err(error);
            }
            let replacement = Response::from(&error);
            status = replacement.status;
            self.begin(head, replacement)
        });
        match begun {
            Ok((outgoing, None)) => self.end(head, status, outgoing, Ok(())),
            Ok((mut outgoing, Some(Rest::Body(body, length)))) => match outgoing.send_small(body) {
                Ok(sent) => self.end(head, status, outgoing, sent),
                Err(body) => {
                    return Some(Unsent { status, outgoing, rest: Rest::Body(body, length) });
                }
            },
            Ok((outgoing, Some(rest))) => return Some(Unsent { status, outgoing, rest }),
            Err(error) => self.record(head, status, Some(&error)),
        }
        None
    }

    /// Sends the rest of a response.
    async fn finish(
        &mut self,
        head: Option<&Head>,
        Unsent { status, mut outgoing, rest }: Unsent<'a, A>,
        tunnel: Option<RecvStream>,
    ) {
        match rest {
            Rest::Body(body, length) => {
                let sent = outgoing.send_body(body, length).await;
                self.end(head, status, outgoing, sent);
            }
            Rest::Upgrade(upgrade) => {
                self.record(head, status, None);
                self.hand_over(upgrade, outgoing, tunnel).await;
            }
        }
    }

    /// All of a response was sent, or no more of it can be.
    fn end(
        &mut self,
        head: Option<&Head>,
        status: StatusCode,
        mut outgoing: Outgoing<'_, A>,
        sent: Result<()>,
    ) {
        self.body_bytes = outgoing.sent;
        if let Err(error) = &sent {
            self.report(error);
            outgoing.abandon(error);
        }
        self.record(head, status, sent.as_ref().err());
    }

    /// Sends the head of a response; says what is left to be sent.
    fn begin(
        &mut self,
        head: Option<&Head>,
        mut response: Response,
    ) -> Result<(Outgoing<'a, A>, Option<Rest>)> {
        let method = head.map_or(&Method::GET, Head::method);
        if let (Payload::Upgrade(_), Some(head)) = (&response.payload, head) {
            upgrade::check(head, &response)?;
            let message = response::upgrade_head(self.worker, &mut response, self.map);
            let Payload::Upgrade(upgrade) = response.payload else { unreachable!("it is one") };
            return Ok((self.send_head(message, false)?, Some(Rest::Upgrade(upgrade))));
        }
        if *method == Method::CONNECT && response.status.is_success() {
            let reason = "no tunnels are made here";
            return Err(Error::new(ErrorKind::NotImplemented, reason));
        }
        let head_only = *method == Method::HEAD;
        let length = guarded(|| response.sound_length(head_only))??;
        let length = length.filter(|_| !is_bodiless(response.status));
        let message = response::head(self.worker, &mut response, length, self.map);
        let ends = head_only || is_bodiless(response.status) || length == Some(0);
        if !ends {
            self.send_last_continue();
        }
        let outgoing = self.send_head(message, ends)?;
        let rest = (!ends).then(|| Rest::Body(payload::to_body(response.payload).0, length));
        Ok((outgoing, rest))
    }

    fn send_head(&mut self, head: http::Response<()>, ends: bool) -> Result<Outgoing<'a, A>> {
        let stream = self.respond.send_response(head, ends).map_err(gone)?;
        Ok(Outgoing::new(self.worker, stream))
    }

    /// Lets the application have the stream for itself.
    async fn hand_over(
        &mut self,
        upgrade: Upgrade,
        outgoing: Outgoing<'_, A>,
        tunnel: Option<RecvStream>,
    ) {
        let Some(incoming) = tunnel else { return };
        let tunnel = Tunnel::new(incoming, outgoing.into_stream());
        let upgraded = Upgraded::stream(tunnel, self.shared.clone());
        if let Err(error) = guard(async move { upgrade.run(upgraded).await }).await {
            self.report(&error);
        }
    }

    fn report(&self, error: &Error) {
        self.worker.report(&self.shared.peer, error);
    }

    fn record(&self, head: Option<&Head>, status: StatusCode, error: Option<&Error>) {
        if let (Some(hooks), Some(watch)) = (self.worker.recorder(), self.watch) {
            let (peer, body_bytes) = (&self.shared.peer, self.body_bytes);
            let duration = watch.elapsed();
            hooks.answered(&Record { peer, head, status, body_bytes, duration, error });
        }
    }
}
