//! The connection attempts of a worker's socket.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind};
use crate::net::accept;
use crate::net::connection_limiter::{ConnectionLimiter, ConnectionPermit, RETRY_DELAY};
use crate::net::quic::{Attempt, Connection, Endpoint, QuicConfig, Unregistered, limits};
use crate::net::secure::{QuicKeys, QuicSecurity, SecureAcceptor};
use crate::peer::Peer;
use crate::settings::Settings;

/// A worker's socket of an address, and what its connections need.
pub(crate) struct QuicListener {
    pub(crate) endpoint: Unregistered,
    pub(crate) tls: Arc<dyn SecureAcceptor>,
    pub(crate) limiter: Arc<ConnectionLimiter>,
    /// Ready when no more connections are to be accepted.
    pub(crate) closed: oneshot::Receiver<()>,
}

/// The worker that serves the connections.
pub(crate) trait QuicWorker {
    fn settings(&self) -> &Settings;

    /// Returns true if the server shuts down.
    fn is_draining(&self) -> bool;

    /// Reports an error that belongs to no connection.
    fn report(&self, error: &Error);

    /// Serves a connection in its own task.
    fn serve(
        &self,
        connection: Connection,
        peer: Peer,
        tls: Arc<dyn QuicSecurity>,
        permit: ConnectionPermit,
    );
}

/// Serves the connections of a socket until it is closed and the last connection has ended. New
/// connections belong to the current value of `worker`.
pub(crate) async fn serve_endpoint(listener: QuicListener, worker: Rc<RefCell<impl QuicWorker>>) {
    let QuicListener { endpoint, tls, limiter, mut closed } = listener;
    let keys = endpoint.keys().clone();
    let endpoint = match Endpoint::register(endpoint) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            let error = Error::new(ErrorKind::Listen, "cannot use a UDP socket").with_source(error);
            return worker.borrow().report(&error);
        }
    };
    let mut acceptor = Acceptor { endpoint, tls, limiter, keys, current: None };
    acceptor.refresh(&*worker.borrow());
    let (mut attempts, mut is_closed) = (Vec::new(), false);
    loop {
        let received = poll_fn(|cx| {
            // An error means that the sender was dropped with the acceptors: the server shuts down.
            if !is_closed && Pin::new(&mut closed).poll(cx).is_ready() {
                // Further attempts are refused, so that their clients need not wait.
                is_closed = true;
                return Poll::Ready(Ok(()));
            }
            let is_accepting = !is_closed && !worker.borrow().is_draining();
            acceptor.endpoint.poll_receive(cx, &mut attempts, is_accepting)
        });
        if let Err(error) = received.await {
            let reason = format!("cannot receive from UDP {}", acceptor.endpoint.address());
            let error = Error::new(ErrorKind::Accept, reason).with_source(error);
            worker.borrow().report(&error);
            tokio::time::sleep(RETRY_DELAY).await;
        }
        for attempt in attempts.drain(..) {
            match is_closed {
                true => acceptor.reject(attempt),
                false => acceptor.admit(attempt, &*worker.borrow()),
            }
        }
        if is_closed && !acceptor.endpoint.has_connections() {
            return;
        }
        // Connections run between the batches of a flood.
        tokio::task::yield_now().await;
    }
}

/// A configuration, with what it was made from.
type Current = (Arc<dyn QuicSecurity>, Settings, QuicConfig);

/// Accepts the connections of a socket.
struct Acceptor {
    endpoint: Rc<Endpoint>,
    tls: Arc<dyn SecureAcceptor>,
    limiter: Arc<ConnectionLimiter>,
    keys: QuicKeys,
    /// The configuration in use.
    current: Option<Current>,
}

impl Acceptor {
    /// Uses certificates and settings that have changed for new connections.
    fn refresh(&mut self, worker: &impl QuicWorker) {
        let (tls, settings) = (self.tls.quic(), worker.settings());
        let is_same =
            |(current, of, _): &Current| current.version() == tls.version() && of == settings;
        if self.current.as_ref().is_some_and(is_same) {
            return;
        }
        match QuicConfig::new(tls.server_config(limits(settings)), &self.keys, settings) {
            Ok(config) => {
                self.endpoint.set_config(&config);
                self.current = Some((tls, settings.clone(), config));
            }
            Err(error) => worker.report(&error),
        }
    }

    /// Refuses a connection. If another process receives from the same socket, the connection is
    /// left to it: the client repeats its first packet. After a Retry, the packet has an identifier
    /// of this process, so that the other process would forward it again.
    fn reject(&self, attempt: Attempt) {
        match self.endpoint.has_successor() && !attempt.follows_retry() {
            true => self.endpoint.ignore(attempt),
            false => self.endpoint.refuse(attempt),
        }
    }

    /// Accepts a connection, unless there are too many.
    fn admit(&mut self, attempt: Attempt, worker: &impl QuicWorker) {
        if self.endpoint.requires_proof(&attempt) {
            return self.endpoint.retry(attempt);
        }
        let client = attempt.client();
        let local_ip = attempt.local_ip().unwrap_or(self.endpoint.address().ip());
        let local_address = SocketAddr::new(local_ip, self.endpoint.address().port());
        let peer = Peer { local_address: Some(local_address), ..Peer::from(client) };
        let permit = match worker.is_draining() {
            true => None,
            false => accept::admit_stream(&self.limiter, &peer).ok(),
        };
        self.refresh(worker);
        let (Some(permit), Some((tls, _, config))) = (permit, &self.current) else {
            return self.reject(attempt);
        };
        if let Some(connection) = Connection::accept(&self.endpoint, attempt, config) {
            worker.serve(connection, peer, tls.clone(), permit);
        }
    }
}
