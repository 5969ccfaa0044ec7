//! The life of a connection: PROXY header, TLS, then the driver of its HTTP version.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use crate::app::Application;
use crate::clock::deadline::Awaited;
use crate::error::Result;
use crate::hooks::Hooks;
use crate::message::connection::RequestContext;
use crate::panic::catch_panic;
use crate::peer::Peer;
use crate::server::connection::ServerConnection;
use crate::server::h1::{self, NextState};
use crate::server::h2;
use crate::server::tls_handshake;
use crate::server::upgraded::{PendingUpgrade, TunnelGuard};
use crate::server::worker_context::WorkerContext;

/// Serves a connection until it closes.
pub(super) async fn serve<A: Application>(conn: &mut ServerConnection, worker: &WorkerContext<A>) {
    conn.deadline.set_awaiting(Awaited::Head, worker.settings.head_timeout);
    if worker.settings.is_proxy(conn.shared.peer.address())
        && let Err(error) = Box::pin(read_proxy_header(conn, worker)).await
    {
        return worker.report(&conn.shared.peer, &error);
    }
    if let Some(tls) = conn.tls.take()
        && !Box::pin(tls_handshake::handshake(&*tls, conn, worker)).await
    {
        return;
    }
    if !worker.hooks.as_ref().is_none_or(|hooks| hooks.on_open(&conn.shared.peer)) {
        return;
    }
    let _close_hook = CloseHook::new(worker.hooks.as_deref(), &conn.shared.peer);
    if conn.http2 {
        return Box::pin(h2::serve(conn, worker)).await;
    }
    while has_input(conn, worker).await {
        // The future of an active connection is large. It is boxed, and constructed in its box,
        // so that an idle connection needs only the memory of this loop.
        let active = Box::new_uninit();
        match Box::into_pin(Box::write(active, h1::serve(conn, worker))).await {
            NextState::Idle => {
                conn.deadline.set_awaiting(Awaited::NextRequest, worker.settings.idle_timeout);
            }
            NextState::Close | NextState::Linger => break,
            // Boxed, so that it takes no space in connections that are never upgraded.
            NextState::HandOver => return Box::pin(hand_over(conn, worker)).await,
            NextState::Http2 => return Box::pin(h2::serve(conn, worker)).await,
        }
    }
    conn.writer.send_close_notify();
}

/// Runs the handler of an upgrade on a connection.
async fn hand_over<A: Application>(conn: &mut ServerConnection, worker: &WorkerContext<A>) {
    let Some((PendingUpgrade { upgrade, record }, connection)) = conn.hand_over() else { return };
    let peer = &conn.shared.peer;
    let _record = TunnelGuard::new(worker.recorder(), peer, record, &connection);
    if let Err(error) = catch_panic(async move { upgrade.run(connection).await }).await {
        worker.report(&conn.shared.peer, &error);
    }
}

/// Sets the client address from the PROXY header of a trusted proxy.
async fn read_proxy_header<A: Application>(
    conn: &mut ServerConnection,
    worker: &WorkerContext<A>,
) -> Result<()> {
    if let Some(address) = conn.read_proxy_header().await?.source {
        let peer = Peer { address: Some(address), ..Peer::clone(&conn.shared.peer) };
        conn.shared = RequestContext::new(Arc::new(peer), worker.shutdown.clone());
    }
    Ok(())
}

/// Waits for input, without a buffer. Returns true if there is input, and false if the connection
/// is to be closed.
async fn has_input<A: Application>(conn: &mut ServerConnection, worker: &WorkerContext<A>) -> bool {
    let mut is_shortened = false;
    poll_fn(|cx| {
        let Some(reader) = &mut conn.reader else { return Poll::Ready(false) };
        if !reader.buffer.is_empty() {
            return Poll::Ready(true); // Received together with the PROXY header.
        }
        if let Poll::Ready(has_input) = reader.poll_first_read(cx, &worker.buffers) {
            return Poll::Ready(has_input.unwrap_or(false));
        }
        if let Some(drain) = worker.drain() {
            // A client that has just connected will probably send a request. It gets at least
            // `linger_timeout` for it.
            let idle_grace = match conn.requests {
                0 => drain.idle_grace.max(worker.settings.linger_timeout),
                _ => drain.idle_grace,
            };
            if idle_grace.is_zero() {
                return Poll::Ready(false);
            }
            if !std::mem::replace(&mut is_shortened, true) {
                conn.deadline.set(idle_grace);
            }
        }
        if conn.shared.peer.is_superseded() {
            return Poll::Ready(false);
        }
        conn.deadline.poll_expired(cx).map(|()| false)
    })
    .await
}

/// Calls `Hooks::on_close` when dropped, also if the task of the connection is cancelled.
pub(super) struct CloseHook<'a> {
    hooks: Option<&'a dyn Hooks>,
    peer: Arc<Peer>,
}

impl<'a> CloseHook<'a> {
    pub(super) fn new(hooks: Option<&'a dyn Hooks>, peer: &Arc<Peer>) -> CloseHook<'a> {
        CloseHook { hooks, peer: peer.clone() }
    }
}

impl Drop for CloseHook<'_> {
    fn drop(&mut self) {
        if let Some(hooks) = self.hooks {
            hooks.on_close(&self.peer);
        }
    }
}
