//! The connection of a request: the state that it shares with the engine.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
#[cfg(feature = "tower")]
use tokio::sync::watch;

use crate::error::{Error, ErrorKind};
use crate::message::fields::Fields;
use crate::message::record_data::RecordData;
use crate::message::shutdown::{Shutdown, ShutdownSignal};
use crate::peer::{Peer, TlsSession};

/// State of an exchange that the engine and the request share. An HTTP/1 connection reuses one for
/// its requests; each HTTP/2 stream has its own.
#[derive(Debug)]
pub(crate) struct RequestContext {
    /// Shared by the streams of an HTTP/2 connection.
    pub(crate) peer: Arc<Peer>,
    shutdown: Arc<ShutdownSignal>,
    /// Number of the current exchange. Only the task of the connection changes it.
    exchange_number: AtomicU32,
    interim: Mutex<Vec<Interim>>,
    /// Set if `interim` may not be empty. It nearly always is empty, and checking a flag is cheaper
    /// than locking.
    has_interim: AtomicBool,
    /// Values that middleware has set for the record of an exchange.
    record_parts: Mutex<Option<Box<RecordParts>>>,
    /// Set once `record_parts` was: most connections never need it.
    has_record_parts: AtomicBool,
    /// Set while the final response is sent, from the first wait for its body.
    is_responding: AtomicBool,
    /// Set once the client was found to have shut down its sending direction.
    is_half_closed: AtomicBool,
}

/// Values that middleware has set for the [`Record`](crate::hooks::Record) of an exchange.
#[derive(Clone, Debug)]
pub(crate) struct RecordParts {
    exchange: u32,
    /// The client in place of the peer.
    pub(crate) client: Option<Peer>,
    pub(crate) data: Option<Arc<dyn RecordData>>,
    /// The error response in place of a failed response.
    replacement: Option<Replacement>,
    body_failure: Option<BodyFailure>,
}

impl RecordParts {
    fn new(exchange: u32) -> RecordParts {
        let (client, data, replacement, body_failure) = Default::default();
        RecordParts { exchange, client, data, replacement, body_failure }
    }
}

/// The failure of a request body that exceeded a limit.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "only services are watched"))]
struct BodyFailure {
    kind: ErrorKind,
    reason: String,
    /// The setting with the limit.
    limit: Option<&'static str>,
}

/// An error response that was sent in place of the response of the application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replacement {
    pub(crate) status: StatusCode,
    pub(crate) body_bytes: u64,
}

/// A queued interim response.
#[derive(Debug)]
pub(crate) struct Interim {
    /// Number of the exchange of its request.
    exchange: u32,
    pub(crate) status: StatusCode,
    pub(crate) fields: Fields,
}

impl RequestContext {
    pub(crate) fn new(peer: Arc<Peer>, shutdown: Arc<ShutdownSignal>) -> Arc<RequestContext> {
        let (exchange_number, interim, has_interim) = Default::default();
        let (record_parts, has_record_parts) = Default::default();
        let (is_responding, is_half_closed) = Default::default();
        Arc::new(RequestContext {
            peer,
            shutdown,
            exchange_number,
            interim,
            has_interim,
            record_parts,
            has_record_parts,
            is_responding,
            is_half_closed,
        })
    }

    /// Creates the shared state of the connection after its TLS handshake.
    pub(crate) fn with_tls(&self, session: TlsSession) -> Arc<RequestContext> {
        let peer = Peer { tls: Some(Arc::new(session)), ..Peer::clone(&self.peer) };
        RequestContext::new(Arc::new(peer), self.shutdown.clone())
    }

    /// Resets the state for the next request. Returns false if the application still holds it
    /// for the previous request.
    #[inline]
    pub(crate) fn try_reset(self: &mut Arc<RequestContext>) -> bool {
        let Some(shared) = Arc::get_mut(self) else { return false };
        shared.interim.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        *shared.has_interim.get_mut() = false;
        *shared.has_record_parts.get_mut() = false;
        true
    }

    pub(crate) fn shutdown(&self) -> Shutdown {
        Shutdown::new(self.shutdown.clone())
    }

    /// Begins the next exchange of a connection that shares its state with one request after the
    /// other. Interim responses of the requests before, which tasks may still hold, are not sent.
    #[inline]
    pub(crate) fn begin_exchange(&self) {
        self.exchange_number.store(self.exchange_number.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Returns true if the final response of the current exchange is sent, from the first wait for
    /// its body.
    #[inline]
    pub(crate) fn is_responding(&self) -> bool {
        self.is_responding.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_responding(&self, is_responding: bool) {
        self.is_responding.store(is_responding, Relaxed);
    }

    /// Records that the client has shut down its sending direction.
    #[cold]
    pub(crate) fn set_half_closed(&self) {
        self.is_half_closed.store(true, Relaxed);
    }

    /// Records that the body of the current exchange exceeded a limit.
    #[cold]
    pub(crate) fn set_body_failure(&self, error: &Error) {
        if let ErrorKind::BodyTooLarge | ErrorKind::TooSlow = error.kind() {
            let failure = BodyFailure {
                kind: error.kind(),
                reason: error.reason().to_owned(),
                limit: error.limit(),
            };
            let current = self.exchange_number.load(Relaxed);
            self.update_record_parts(current, |parts| parts.body_failure = Some(failure));
        }
    }

    /// Takes the interim responses of the current exchange.
    #[inline]
    pub(crate) fn take_interim(&self) -> Option<Vec<Interim>> {
        self.has_interim.load(Acquire).then(|| self.take_queued_interim())
    }

    #[cold]
    fn take_queued_interim(&self) -> Vec<Interim> {
        let mut queue = self.lock_interim();
        self.has_interim.store(false, Relaxed);
        let mut interim = std::mem::take(&mut *queue);
        let current = self.exchange_number.load(Relaxed);
        interim.retain(|interim| interim.exchange == current);
        interim
    }

    /// Changes the values for the record of an exchange, unless it has ended.
    fn update_record_parts(&self, exchange: u32, update: impl FnOnce(&mut RecordParts)) {
        if exchange != self.exchange_number.load(Relaxed) {
            return;
        }
        let mut parts = self.lock_record_parts();
        match &mut *parts {
            Some(parts) if parts.exchange == exchange && self.has_record_parts.load(Relaxed) => {
                update(parts);
            }
            former => {
                let mut parts = RecordParts::new(exchange);
                update(&mut parts);
                *former = Some(Box::new(parts));
            }
        }
        self.has_record_parts.store(true, Release);
    }

    /// Records that the response of the current exchange was replaced.
    #[cold]
    pub(crate) fn set_replacement(&self, replacement: Replacement) {
        let current = self.exchange_number.load(Relaxed);
        self.update_record_parts(current, |parts| parts.replacement = Some(replacement));
    }

    /// Returns true if middleware has set values for the record of this or an earlier exchange.
    #[inline]
    pub(crate) fn has_record_parts(&self) -> bool {
        self.has_record_parts.load(Acquire)
    }

    /// Returns the values for the record of the current exchange, if middleware has set any.
    #[inline]
    pub(crate) fn record_parts(&self) -> Option<RecordParts> {
        if !self.has_record_parts() {
            return None;
        }
        let current = self.exchange_number.load(Relaxed);
        self.lock_record_parts().as_deref().filter(|parts| parts.exchange == current).cloned()
    }

    fn lock_record_parts(&self) -> MutexGuard<'_, Option<Box<RecordParts>>> {
        self.record_parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an interim response of the request of an exchange. Another exchange may begin at the
    /// same time, so that [`take_interim`](RequestContext::take_interim) compares the numbers
    /// again.
    fn queue_interim(&self, interim: Interim) {
        if interim.exchange != self.exchange_number.load(Relaxed) {
            return;
        }
        let mut queue = self.lock_interim();
        self.has_interim.store(true, Release);
        match queue.last_mut() {
            Some(last)
                if (last.exchange, last.status, StatusCode::EARLY_HINTS)
                    == (interim.exchange, interim.status, interim.status) =>
            {
                last.fields.to_mut().extend(interim.fields.iter().cloned());
            }
            _ => queue.push(interim),
        }
    }

    fn lock_interim(&self) -> MutexGuard<'_, Vec<Interim>> {
        self.interim.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of a request: its peer, and the server's shutdown. It is an extension of the
/// requests that a [tower service](crate::tower) receives.
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<RequestContext>,
    /// Number of the exchange of the request.
    exchange: u32,
    /// Peer set by middleware, which replaces the peer of the connection.
    peer: Option<Box<Peer>>,
    /// Set by middleware if the client of a proxy uses HTTPS, or does not.
    is_secure: Option<bool>,
}

impl Connection {
    /// The connection of a request of the current exchange.
    pub(super) fn new(shared: Arc<RequestContext>) -> Connection {
        let exchange = shared.exchange_number.load(Relaxed);
        Connection { shared, exchange, peer: None, is_secure: None }
    }

    /// Context without a peer, and without a server that could shut down.
    #[cfg(feature = "tower")]
    pub(super) fn detached() -> Connection {
        Connection::new(RequestContext::new(Arc::default(), Arc::new(watch::channel(None).1)))
    }

    /// The same connection, for a request without an exchange, which has no interim responses and
    /// no record.
    #[inline]
    pub(super) fn without_exchange(&self) -> Connection {
        // Half of all numbers away from the number of the exchange in progress.
        Connection { exchange: self.exchange ^ 1 << 31, ..self.clone() }
    }

    /// This connection, with the client that middleware has set for another request.
    pub(super) fn with_client_of(mut self, other: &Connection) -> Connection {
        if let Some(address) = other.peer.as_deref().and_then(|peer| peer.address) {
            self.set_peer(address);
        }
        Connection { is_secure: other.is_secure, ..self }
    }

    /// The other end of the connection, even if middleware has set another peer.
    pub(super) fn original_peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Returns true if middleware has set another peer than the other end of the connection.
    pub(super) fn is_peer_set(&self) -> bool {
        self.peer.is_some()
    }

    pub(super) fn set_peer(&mut self, address: SocketAddr) {
        let peer = Peer { address: Some(address), ..Peer::clone(&self.shared.peer) };
        let client = peer.clone();
        self.shared.update_record_parts(self.exchange, |parts| parts.client = Some(client));
        self.peer = Some(Box::new(peer));
    }

    pub(super) fn set_secure(&mut self, is_secure: bool) {
        self.is_secure = Some(is_secure);
    }

    pub(super) fn set_record_data(&self, data: Arc<dyn RecordData>) {
        self.shared.update_record_parts(self.exchange, |parts| parts.data = Some(data));
    }

    /// Returns the error response that was sent in place of the response to the request, until the
    /// next exchange begins.
    pub(crate) fn replacement(&self) -> Option<Replacement> {
        self.parts_of_exchange(|parts| parts.replacement)
    }

    fn parts_of_exchange<T>(&self, get: impl FnOnce(&RecordParts) -> Option<T>) -> Option<T> {
        if !self.shared.has_record_parts() {
            return None;
        }
        let parts = self.shared.lock_record_parts();
        parts.as_deref().filter(|parts| parts.exchange == self.exchange).and_then(get)
    }

    pub(super) fn queue_interim(&self, status: StatusCode, fields: Fields) {
        self.shared.queue_interim(Interim { exchange: self.exchange, status, fields });
    }

    /// The same as [`Request::peer`](crate::Request::peer).
    pub fn peer(&self) -> &Peer {
        self.peer.as_deref().unwrap_or(&self.shared.peer)
    }

    /// Returns the error if the body of the request has exceeded a limit.
    #[cfg(feature = "tower")]
    pub(crate) fn body_failure(&self) -> Option<Error> {
        let failure = self.parts_of_exchange(|parts| parts.body_failure.clone())?;
        let error = Error::new(failure.kind, failure.reason);
        Some(match failure.limit {
            Some(limit) => error.with_limit(limit),
            None => error,
        })
    }

    /// The same as [`Request::is_secure`](crate::Request::is_secure).
    pub fn is_secure(&self) -> bool {
        self.is_secure.unwrap_or(self.shared.peer.tls.is_some())
    }

    /// The same as [`Request::half_close`](crate::Request::half_close).
    pub fn half_close(&self) -> HalfClose {
        HalfClose(Some(self.shared.clone()))
    }

    /// The same as [`Request::shutdown`](crate::Request::shutdown).
    pub fn shutdown(&self) -> Shutdown {
        self.shared.shutdown()
    }
}

/// Tells if the client of a request has shut down its sending direction (RFC 9112 §9.6). Such a
/// client still gets its response, unless it has closed its connection, which TCP does not tell
/// apart. Work for it may therefore wait behind the work for other clients.
///
/// Over HTTP/2 and HTTP/3, the end of a request's content does not count: a client that leaves
/// resets its stream.
#[derive(Clone, Default)]
pub struct HalfClose(Option<Arc<RequestContext>>);

impl HalfClose {
    /// Returns true if the client has shut down its sending direction. Always false for the
    /// default value.
    pub fn is_detected(&self) -> bool {
        self.0.as_deref().is_some_and(|connection| connection.is_half_closed.load(Relaxed))
    }
}

impl fmt::Debug for HalfClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HalfClose({})", self.is_detected())
    }
}
