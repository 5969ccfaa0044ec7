//! Accepting connections from a listening socket.

use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::{self, Either};
use http::HeaderValue;

use crate::error::{Error, ErrorKind, Result};
use crate::net::accepted::{Accepted, accept_now};
use crate::net::address::LocalAddress;
use crate::net::connection_limiter::{ConnectionLimiter, ConnectionPermit, RETRY_DELAY};
use crate::net::exhaustion::{Exhaustion, ReserveOutcome};
use crate::net::listen::Listener;
use crate::net::reject::{LingeringConnections, Rejection};
use crate::net::secure::SecureAcceptor;
use crate::peer::Peer;
use crate::sys::{ListenerQueue, NewConnection, OwnedFd, poll_client};

/// Accepts from one socket until `stopped` is ready, then accepts the connections that the kernel
/// has already completed.
pub(crate) async fn accept(
    listener: Listener,
    limiter: Arc<ConnectionLimiter>,
    workers: impl Workers,
    stopped: impl Future<Output = ()>,
) {
    let Listener { socket, bound, tls, file: _file, alt_svc, .. } = listener;
    let socket = ListenerQueue::register(socket).expect("an event loop accepts a listening socket");
    let (limiter, bound, workers) = (&limiter, &bound, &workers);
    let exhaustion = Exhaustion::new(socket.socket().clone());
    let rejected = LingeringConnections::default();
    let local_path = bound.path().map(Arc::from);
    let mut acceptor = ListenerAcceptor {
        limiter,
        bound,
        local_path,
        tls,
        alt_svc,
        workers,
        exhaustion,
        rejected,
    };
    let mut stopped = pin!(stopped);
    loop {
        let next = pin!(accept_next(&socket, limiter, workers));
        // Polled first, so that a constant stream of connections does not delay it.
        let next = future::select(stopped.as_mut(), next);
        match acceptor.while_lingering(next).await {
            Either::Left(_) => break,
            Either::Right((Ok(accepted), _)) => acceptor.admit(accepted),
            Either::Right((Err(error), _)) if is_transient(&error) => {}
            Either::Right((Err(error), _)) => {
                workers.report(cannot_accept(bound, error));
                acceptor.relieve_exhaustion().await;
            }
        }
    }
    while limiter.has_capacity() {
        match accept_now(socket.socket()) {
            Ok(accepted) => acceptor.admit(accepted),
            Err(error) if is_transient(&error) => {}
            Err(_) => break,
        }
    }
}

/// The workers that serve the accepted connections.
pub(crate) trait Workers {
    /// Gives a connection to a worker.
    fn deliver(&self, accepted: Accepted);

    /// Closes the connection that has waited longest for a request. Returns false if no
    /// connection waits.
    fn close_idle(&self) -> impl Future<Output = bool>;

    /// Reports that a connection could not be accepted.
    fn report(&self, error: Error);
}

/// Accepts the next connection that the limit permits. While a client waits at the limit,
/// connections without a request are closed.
async fn accept_next(
    socket: &ListenerQueue,
    limiter: &ConnectionLimiter,
    workers: &impl Workers,
) -> io::Result<NewConnection> {
    loop {
        let accept = |socket: &OwnedFd| match limiter.has_capacity() {
            true => accept_now(socket).map(Some).or_else(|error| match error.kind() {
                io::ErrorKind::WouldBlock => Err(error),
                // Without a descriptor, accept4(2) fails even if no client waits.
                _ => poll_client(socket).and(Err(error)),
            }),
            // Without a client that waits, no connection is closed.
            false => poll_client(socket).map(|()| None),
        };
        if let Some(accepted) = socket.when_ready(accept).await? {
            return Ok(accepted);
        }
        limiter.wait_for_capacity(async || workers.close_idle().await).await;
    }
}

fn cannot_accept(bound: &LocalAddress, error: io::Error) -> Error {
    Error::new(ErrorKind::Accept, format!("cannot accept connections on {bound}"))
        .with_source(error)
}

/// Returns true if the next connection can be accepted at once: the peer closed the connection
/// before it was accepted, or a signal interrupted the call.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Returns a permit for a connection that was not accepted from a socket.
pub(crate) fn admit_stream(
    limiter: &Arc<ConnectionLimiter>,
    peer: &Peer,
) -> Result<ConnectionPermit> {
    let rejected = |reason| Error::new(ErrorKind::Accept, reason);
    if !limiter.has_capacity() {
        return Err(rejected("the server has the maximum number of connections"));
    }
    let permit = limiter.try_acquire(peer.address().map(|address| address.ip()));
    permit.ok_or_else(|| rejected("the peer has the maximum number of connections"))
}

/// The state of a listener: connections that were rejected, and the exhaustion of resources for
/// further ones.
struct ListenerAcceptor<'a, W> {
    limiter: &'a Arc<ConnectionLimiter>,
    bound: &'a LocalAddress,
    /// Path of a Unix socket.
    local_path: Option<Arc<Path>>,
    tls: Option<Arc<dyn SecureAcceptor>>,
    alt_svc: Option<Arc<HeaderValue>>,
    workers: &'a W,
    exhaustion: Exhaustion,
    rejected: LingeringConnections,
}

impl<W: Workers> ListenerAcceptor<'_, W> {
    /// Delivers a connection to a worker, or rejects it if its peer has too many.
    fn admit(&mut self, (socket, address): NewConnection) {
        self.exhaustion.end();
        let (local_address, local_path) = (self.bound.address(), self.local_path.clone());
        let alt_svc = self.alt_svc.clone();
        let peer = Peer { address, local_address, local_path, tls: None, alt_svc };
        match self.limiter.try_acquire(address.map(|address| address.ip())) {
            Some(permit) => {
                self.workers.deliver(Accepted { socket, peer, permit, tls: self.tls.clone() });
            }
            None if self.tls.is_none() => {
                self.rejected.extend(Rejection::TooManyOfPeer.send(socket));
            }
            // A response would need a TLS handshake, which costs too much for a rejected
            // connection.
            None => {}
        }
    }

    /// Accepts one connection in spite of a long exhaustion, or waits before the next attempt.
    async fn relieve_exhaustion(&mut self) {
        if self.exhaustion.is_long() {
            match self.exhaustion.use_reserve(self.tls.is_some()) {
                ReserveOutcome::Accepted(accepted) => return self.admit(accepted),
                ReserveOutcome::Rejected => return,
                ReserveOutcome::Unavailable => {}
            }
        }
        let workers = self.workers;
        let mut pause = pin!(async {
            // A closed connection frees a descriptor. Only the sleep ends the pause: other users
            // may take the freed resources.
            workers.close_idle().await;
            tokio::time::sleep(RETRY_DELAY).await;
        });
        poll_fn(|cx| {
            self.rejected.poll(cx);
            // The next client gets the reserve as soon as it is free.
            match self.exhaustion.poll_freed(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => pause.as_mut().poll(cx),
            }
        })
        .await;
    }

    /// Runs a future while rejected connections linger.
    async fn while_lingering<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            self.rejected.poll(cx);
            let _: Poll<()> = self.exhaustion.poll_freed(cx);
            future.as_mut().poll(cx)
        })
        .await
    }
}
