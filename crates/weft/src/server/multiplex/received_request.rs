//! The request of a stream: its head, its content and its 100 (RFC 9110 §10.1.1).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::app::Application;
use crate::error::{Error, Result};
use crate::message::body::Body;
use crate::message::connection::RequestContext;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::upgrade::Upgraded;
use crate::panic::catch_panic;
use crate::peer::Peer;
use crate::server::inbound::{InboundBody, ReceiveClock};
use crate::server::multiplex::field_block::{InvalidRequest, ParsedRequest};
use crate::server::multiplex::incoming::StreamContent;
use crate::server::multiplex::pipe::Pipe;
use crate::server::multiplex::tunnel::Tunnel;
use crate::server::upgraded::{PendingUpgrade, TunnelGuard};
use crate::server::worker_context::WorkerContext;

/// A request on a stream, until its exchange ends.
pub(in crate::server) struct ReceivedRequest {
    pub(in crate::server) shared: Arc<RequestContext>,
    request: Result<RequestHead, Box<InvalidRequest>>,
    /// The channel for the content of the request; `None` if it has none.
    pub(in crate::server) pipe: Option<Pipe>,
    /// The client waits for a 100 before it sends the body.
    expects_continue: bool,
    pub(in crate::server) is_tunnel: bool,
    /// Set when the final response has started: no interim response can follow.
    pub(in crate::server) has_response: bool,
    /// Completes on the first read of the body, if the client waits for a 100.
    on_read: Option<oneshot::Receiver<()>>,
}

impl ReceivedRequest {
    /// Creates the request of a stream, with `shared` of a former one if it can be reused.
    pub(in crate::server) fn new<A: Application>(
        worker: &WorkerContext<A>,
        peer: &Arc<Peer>,
        shared: Option<Arc<RequestContext>>,
        request: Result<ParsedRequest, Box<InvalidRequest>>,
        pipe: Option<Pipe>,
    ) -> ReceivedRequest {
        let (expects_continue, is_tunnel) =
            request.as_ref().map_or((false, false), |it| (it.expects_continue, it.is_tunnel));
        ReceivedRequest {
            shared: shared
                .unwrap_or_else(|| RequestContext::new(peer.clone(), worker.shutdown.clone())),
            request: request.map(|request| request.head),
            pipe,
            expects_continue,
            is_tunnel,
            has_response: false,
            on_read: None,
        }
    }

    /// The head; `None` if the request is invalid.
    pub(in crate::server) fn head(&self) -> Option<&RequestHead> {
        self.request.as_ref().ok()
    }

    /// Start of the request line if the request is invalid, otherwise empty.
    pub(in crate::server) fn request_line(&self) -> &[u8] {
        self.request.as_ref().err().map_or(&[], |invalid| &invalid.line)
    }

    /// Takes the error of an invalid request, and true if its stream was reset.
    pub(in crate::server) fn take_error(&mut self) -> Option<(Error, bool)> {
        let invalid = self.request.as_mut().err()?;
        Some((invalid.error.take()?, invalid.is_reset))
    }

    /// Returns the request for the application, with the length of its content if the client
    /// declared it.
    pub(in crate::server) fn request<A: Application>(
        &mut self,
        worker: &WorkerContext<A>,
        length: Option<u64>,
    ) -> Request {
        let body = match self.pipe.clone() {
            Some(pipe) if !self.is_tunnel => self.body(worker, pipe, length),
            _ => Body::empty(),
        };
        Request::new(self.head().cloned().unwrap_or_default(), body, self.shared.clone())
    }

    fn body<A: Application>(
        &mut self,
        worker: &WorkerContext<A>,
        pipe: Pipe,
        length: Option<u64>,
    ) -> Body {
        let on_read = self.expects_continue.then(|| {
            let (sender, receiver) = oneshot::channel();
            self.on_read = Some(receiver);
            sender
        });
        let source = StreamContent::new(pipe, length, on_read);
        let clock = ReceiveClock::new(worker, &self.shared);
        Body::inbound(InboundBody::new(source, worker.settings.max_body_bytes, clock))
    }

    /// Runs the handler of an upgrade on the stream.
    pub(in crate::server) async fn run_upgrade<A: Application>(
        &self,
        worker: &WorkerContext<A>,
        pending: PendingUpgrade,
        tunnel: Tunnel,
    ) {
        let PendingUpgrade { upgrade, record } = pending;
        let peer = &self.shared.peer;
        let upgraded = Upgraded::new(tunnel, peer.clone(), self.shared.shutdown());
        let _record = TunnelGuard::new(worker.recorder(), peer, record, &upgraded);
        if let Err(error) = catch_panic(async move { upgrade.run(upgraded).await }).await {
            worker.report(peer, &error);
        }
    }

    /// Returns true, once, if the client waits for a 100, and the application has begun to read.
    pub(in crate::server) fn poll_continue(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(on_read) = &mut self.on_read else { return false };
        let Poll::Ready(read) = Pin::new(on_read).poll(cx) else { return false };
        self.on_read = None;
        read.is_ok()
    }

    /// Returns true, once, if the client waits for a 100, and the body is still held: for example,
    /// if the response is produced from it. After the head of the response it could not be sent.
    pub(in crate::server) fn take_continue(&mut self) -> bool {
        let is_held = |mut on_read: oneshot::Receiver<()>| {
            on_read.try_recv() != Err(oneshot::error::TryRecvError::Closed)
        };
        self.on_read.take().is_some_and(is_held)
    }
}
