//! One request and its response.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, StatusCode};
use tokio::sync::oneshot;

use crate::app::Application;
use crate::clock::deadline::{Pace, Stopwatch};
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Record;
use crate::message::body::{Body, Inbound};
use crate::message::fields::Fields;
use crate::message::payload;
use crate::message::representation::{self, Moment};
use crate::message::request::{Head, Interim, Request, Shared};
use crate::message::response::{Payload, Response};
use crate::message::upgrade::{self, Upgrade, Upgraded};
use crate::panic::{guard, guarded};
use crate::peer::Peer;
use crate::proto::http1::framing::is_bodiless;
use crate::proto::semantics::range::random_boundary;
use crate::server::h2::connection::{Connection, Request as Came};
use crate::server::h2::incoming::{Incoming, Terms};
use crate::server::h2::pipe::Pipe;
use crate::server::h2::request::Asked;
use crate::server::h2::response::{self, Outgoing};
use crate::server::h2::tunnel::Tunnel;
use crate::server::worker::Worker;
use crate::settings::Disconnect;

/// Answers a request.
pub(super) async fn exchange<A: Application>(
    worker: &Worker<A>,
    connection: &RefCell<Connection>,
    peer: &Peer,
    came: Came,
) {
    let Came { stream, asked, pipe } = came;
    let shared = connection.borrow_mut().spare.take();
    let mut exchange = Exchange {
        worker,
        connection,
        stream,
        shared: shared.unwrap_or_else(|| Shared::new(peer.clone(), worker.stop.clone())),
        is_read: None,
        watch: worker.stopwatch(),
        body_bytes: 0,
        is_tunnel: asked.as_ref().is_ok_and(|asked| asked.is_tunnel),
    };
    match asked {
        Ok(asked) => exchange.answer(asked, pipe).await,
        Err(error) => Box::pin(exchange.refuse(error)).await,
    }
    let mut connection = connection.borrow_mut();
    connection.release(stream);
    if exchange.shared.renew() {
        connection.spare = Some(exchange.shared);
    }
}

struct Exchange<'a, A> {
    worker: &'a Worker<A>,
    connection: &'a RefCell<Connection>,
    stream: u32,
    /// What the request knows of its connection.
    shared: Arc<Shared>,
    /// Tells when the client, which waits for a 100, is to send its body.
    is_read: Option<oneshot::Receiver<()>>,
    /// For the hooks, if there are any.
    watch: Option<Stopwatch>,
    /// How much of the response's body was sent.
    body_bytes: u64,
    /// A success would make a tunnel of the stream.
    is_tunnel: bool,
}

/// What is left of a response when its head is out.
enum Rest {
    Nothing,
    Body(Body, Option<u64>),
    Upgrade(Upgrade),
}

impl<'a, A: Application> Exchange<'a, A> {
    async fn answer(&mut self, asked: Asked, pipe: Option<Pipe>) {
        let body = match &pipe {
            Some(pipe) if !asked.is_tunnel => self.request_body(&asked, pipe.clone()),
            _ => Body::empty(),
        };
        let request = Request::new(asked.head.clone(), body, self.shared.clone());
        let response = match self.call(request).await {
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
        let moment = Moment { now: self.worker.date.now(), boundary: random_boundary };
        let response = representation::answer(&asked.head, response, &moment);
        let Some(pipe) = pipe else {
            return self.respond(Some(&asked.head), response, None).await;
        };
        if asked.is_tunnel {
            let tunnel = Some(Tunnel::new(pipe));
            return self.respond(Some(&asked.head), response, tunnel).await;
        }
        self.respond(Some(&asked.head), response, None).await;
        // If somebody still has the body, it is his.
        if pipe.is_left() && !pipe.is_read() && self.worker.settings.max_drain_bytes > 0 {
            Box::pin(self.drain(pipe)).await;
        }
    }

    /// Answers what is no proper request.
    async fn refuse(&mut self, error: Error) {
        self.report(&error);
        self.respond(None, error.into(), None).await;
    }

    fn request_body(&mut self, asked: &Asked, pipe: Pipe) -> Body {
        let on_read = asked.expects_continue.then(|| {
            let (on_read, is_read) = oneshot::channel();
            self.is_read = Some(is_read);
            on_read
        });
        let settings = &self.worker.settings;
        let terms = Terms {
            length: asked.length,
            max_bytes: settings.max_body_bytes,
            on_read,
            deadline: self.worker.deadlines.deadline(),
            pace: Pace::new(settings),
        };
        Body::inbound(Incoming::new(pipe, terms))
    }

    /// Reads what is left of a request's body away, so that the client can send it to its end:
    /// many take it for an error to be told to stop, though it is none (RFC 9113 §8.1). As on
    /// HTTP/1, only so much of it, and not for long.
    async fn drain(&mut self, pipe: Pipe) {
        let passed_over = pipe.take_up();
        self.connection.borrow_mut().open_again(self.stream, passed_over);
        let settings = &self.worker.settings;
        let deadline = self.worker.deadlines.deadline();
        deadline.set(settings.linger_timeout);
        let terms = Terms {
            length: None,
            max_bytes: settings.max_drain_bytes,
            on_read: None,
            deadline: self.worker.deadlines.deadline(),
            pace: Pace::new(settings),
        };
        let mut rest = Incoming::new(pipe, terms);
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
                self.send_interim(StatusCode::CONTINUE, &Fields::default());
            }
        }
        match self.worker.settings.disconnect {
            Disconnect::Cancel => self.connection.borrow_mut().poll_gone(self.stream, cx),
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
            self.send_interim(StatusCode::CONTINUE, &Fields::default());
        }
    }

    /// Sends the interim responses that the application has left.
    fn send_hints(&mut self) {
        for Interim { status, fields } in self.shared.take_interim().into_iter().flatten() {
            self.send_interim(status, &fields);
        }
    }

    fn send_interim(&mut self, status: StatusCode, fields: &Fields) {
        // It fails if the stream is gone, which the next step finds out.
        let _ = self.connection.borrow_mut().send_fields(self.stream, false, |encoder, out| {
            encoder.status(out, status);
            response::write_fields(encoder, out, fields, |_| true);
        });
    }

    /// Sends a response, or what takes its place.
    async fn respond(&mut self, head: Option<&Head>, response: Response, tunnel: Option<Tunnel>) {
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
        let sent = match begun {
            Ok(Rest::Nothing) => Ok(()),
            Ok(Rest::Body(body, length)) => {
                let mut outgoing = Outgoing::new(self.worker, self.connection, self.stream);
                let sent = outgoing.send_body(body, length).await;
                self.body_bytes = outgoing.sent();
                sent.inspect_err(|error| {
                    self.report(error);
                    outgoing.abandon(error);
                })
            }
            Ok(Rest::Upgrade(upgrade)) => {
                self.record(head, status, None);
                return Box::pin(self.hand_over(upgrade, tunnel)).await;
            }
            Err(error) => Err(error),
        };
        self.record(head, status, sent.as_ref().err());
    }

    /// Sends the head of a response; says what is left to be sent.
    fn begin(&mut self, head: Option<&Head>, response: Response) -> Result<Rest> {
        let method = head.map_or(&Method::GET, Head::method);
        if let (Payload::Upgrade(_), Some(head)) = (&response.payload, head) {
            upgrade::check(head, &response)?;
            self.send_head(&response, None, false)?;
            let Payload::Upgrade(upgrade) = response.payload else { unreachable!("it is one") };
            return Ok(Rest::Upgrade(upgrade));
        }
        if (*method == Method::CONNECT || self.is_tunnel) && response.status.is_success() {
            let reason = "no tunnels are made here";
            return Err(Error::new(ErrorKind::NotImplemented, reason));
        }
        let head_only = *method == Method::HEAD;
        let length = guarded(|| response.sound_length(head_only))??;
        let length = length.filter(|_| !is_bodiless(response.status));
        let ends = head_only || is_bodiless(response.status) || length == Some(0);
        if !ends {
            self.send_last_continue();
        }
        self.send_head(&response, length, ends)?;
        Ok(match ends {
            true => Rest::Nothing,
            false => Rest::Body(payload::to_body(response.payload).0, length),
        })
    }

    fn send_head(&mut self, response: &Response, length: Option<u64>, ends: bool) -> Result<()> {
        let mut connection = self.connection.borrow_mut();
        connection.send_fields(self.stream, ends, |encoder, out| {
            response::write_head(self.worker, encoder, out, response, length);
        })
    }

    /// Lets the application have the stream for itself.
    async fn hand_over(&mut self, upgrade: Upgrade, tunnel: Option<Tunnel>) {
        let Some(tunnel) = tunnel else { return };
        self.connection.borrow_mut().make_tunnel(self.stream);
        let upgraded = Upgraded::new(tunnel, self.shared.clone());
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
