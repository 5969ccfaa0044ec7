//! HTTP/2 connections of one worker to one upstream, and the requests that wait for a stream.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::shared_connection::{ConnectionOwner, SharedConnection, SharedStream};
use crate::base::counter::Histogram;
use crate::connect::upstream::Upstream;
use crate::connect::upstream_connection::UpstreamConnection;
use crate::gateway_error::GatewayError;
use crate::settings::proxy_settings::ProxySettings;
use crate::url::http_version::HttpVersion;

/// HTTP/2 connections of one worker to one upstream.
pub(crate) struct SharedConnections {
    upstream: Arc<Upstream>,
    settings: Arc<ProxySettings>,
    connect_times: Arc<Histogram>,
    state: Mutex<OpenConnections>,
    /// Notifies requests that wait: a stream is free, or a connection was opened, or failed to.
    changed: Notify,
    /// The upstream has negotiated HTTP/1.1 last.
    is_http1: AtomicBool,
}

#[derive(Default)]
struct OpenConnections {
    open: Vec<Arc<SharedConnection>>,
    /// A request opens a connection.
    is_opening: bool,
    /// Requests that wait for a stream.
    waiting: usize,
    /// Number of failures to open a connection, and the last of them.
    failures: u64,
    last_failure: Option<(io::ErrorKind, String)>,
}

/// A stream, or a connection of HTTP/1.1 if the upstream has negotiated that version.
pub(crate) enum Acquired {
    Stream(SharedStream),
    Http1(UpstreamConnection),
}

/// The next step of a request without a stream.
enum Next {
    Take(SharedStream),
    Open,
    Wait,
}

impl SharedConnections {
    pub(crate) fn new(
        upstream: Arc<Upstream>,
        settings: Arc<ProxySettings>,
        connect_times: Arc<Histogram>,
    ) -> Arc<SharedConnections> {
        let (state, changed, is_http1) = Default::default();
        Arc::new(SharedConnections { upstream, settings, connect_times, state, changed, is_http1 })
    }

    /// Returns true if the next request tries HTTP/2.
    pub(crate) fn is_expected(&self) -> bool {
        match self.upstream.http_version {
            HttpVersion::Http1 => false,
            HttpVersion::Http2 => true,
            HttpVersion::Negotiated => !self.is_http1.load(Relaxed),
        }
    }

    /// Returns the number of connections with streams, and the number of connections without.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        let in_use = state.open.iter().filter(|connection| connection.streams() > 0).count();
        (in_use, state.open.len() - in_use)
    }

    /// Returns the number of requests that wait for a stream.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
    }

    /// Acquires a stream. Opens a connection if none has a free one, one at a time; beyond the
    /// limit on connections, waits for a stream, and adds the time to `queue_time`.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        queue_time: &mut Duration,
    ) -> Result<Acquired, GatewayError> {
        let deadline = Instant::now() + self.settings.queue_timeout;
        let known_failures = self.state().failures;
        // A request opens one connection: an upstream that closes each at once costs no more.
        let mut may_open = true;
        loop {
            let mut changed = pin!(self.changed.notified());
            // A change after the look at the state is not missed.
            changed.as_mut().enable();
            match self.next_step(may_open) {
                Next::Take(stream) => return Ok(Acquired::Stream(stream)),
                Next::Open => {
                    match self.open().await {
                        Ok(Some(acquired)) => return Ok(acquired),
                        Ok(None) => {}
                        // A stream of another connection becomes free.
                        Err(_) if self.has_open_connection() => {}
                        Err(error) => return Err(error),
                    }
                    may_open = false;
                    continue;
                }
                Next::Wait => {}
            }
            let waiting = Waiting::begin(self)?;
            let since = Instant::now();
            let is_notified = timeout_at(deadline, changed).await.is_ok();
            *queue_time += since.elapsed();
            drop(waiting);
            if !is_notified {
                return Err(GatewayError::Overloaded("no stream has become free in time"));
            }
            self.check_failures(known_failures)?;
        }
    }

    /// Uses an open connection that has negotiated HTTP/2 and returns a stream of it.
    pub(crate) async fn adopt(
        self: &Arc<Self>,
        connection: UpstreamConnection,
        queue_time: &mut Duration,
    ) -> Result<Acquired, GatewayError> {
        let started = self.start(connection).await.map_err(GatewayError::from_connect_error)?;
        match started.try_lease(self.clone()) {
            Some(stream) => Ok(Acquired::Stream(stream)),
            None => self.acquire(queue_time).await,
        }
    }

    fn next_step(self: &Arc<Self>, may_open: bool) -> Next {
        self.upstream.refresh_addresses(Instant::now().into_std());
        let mut state = self.state();
        let is_usable = |connection: &Arc<SharedConnection>| {
            !connection.is_closing() && connection.leads_to(&self.upstream)
        };
        state.open.retain(is_usable);
        // The first connection with a free stream: others become idle and are closed.
        let stream = state.open.iter().find_map(|connection| connection.try_lease(self.clone()));
        match stream {
            Some(stream) => Next::Take(stream),
            None if may_open
                && !state.is_opening
                && state.open.len() < self.settings.max_http2_connections =>
            {
                state.is_opening = true;
                Next::Open
            }
            None => Next::Wait,
        }
    }

    /// Opens a connection and returns a stream of it, or the connection if the upstream has
    /// negotiated HTTP/1.1. `None` if it permits no stream.
    async fn open(self: &Arc<Self>) -> Result<Option<Acquired>, GatewayError> {
        let mut opening = Opening { connections: self, failure: None };
        let opened = async {
            let since = Instant::now();
            let connection = self.upstream.connect(self.settings.connect_timeout).await?;
            self.connect_times.observe(since.elapsed());
            let is_http1 = self.upstream.http_version == HttpVersion::Negotiated
                && !connection.has_negotiated_http2;
            self.is_http1.store(is_http1, Relaxed);
            if is_http1 {
                return Ok(Some(Acquired::Http1(connection)));
            }
            let started = self.start(connection).await?;
            Ok(started.try_lease(self.clone()).map(Acquired::Stream))
        };
        opened.await.map_err(|error: io::Error| {
            opening.failure = Some((error.kind(), error.to_string()));
            GatewayError::from_connect_error(error)
        })
    }

    async fn start(
        self: &Arc<Self>,
        connection: UpstreamConnection,
    ) -> io::Result<Arc<SharedConnection>> {
        let owner: Arc<dyn ConnectionOwner> = self.clone();
        let started = SharedConnection::start(connection, Arc::downgrade(&owner), &self.settings);
        let started = started.await?;
        self.state().open.push(started.clone());
        Ok(started)
    }

    fn has_open_connection(&self) -> bool {
        self.state().open.iter().any(|connection| !connection.is_closing())
    }

    /// Fails the requests that have waited for a connection which could not be opened: each would
    /// wait for as long as the one before.
    fn check_failures(&self, known: u64) -> Result<(), GatewayError> {
        let state = self.state();
        match &state.last_failure {
            Some((kind, reason)) if state.failures > known && state.open.is_empty() => {
                let error = io::Error::new(*kind, reason.clone());
                Err(GatewayError::from_connect_error(error))
            }
            _ => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, OpenConnections> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionOwner for SharedConnections {
    fn on_free_stream(&self) {
        if self.waiting() > 0 {
            self.changed.notify_one();
        }
    }

    fn remove(&self, closed: &SharedConnection) {
        self.state().open.retain(|connection| !std::ptr::eq(&**connection, closed));
        self.changed.notify_waiters();
    }

    fn record_failure(&self, reason: &str) {
        self.upstream.record_failure(reason);
    }
}

/// A connection that is being opened. Requests that wait for it are notified on drop, also if the
/// client of the request that opens it has left.
struct Opening<'a> {
    connections: &'a SharedConnections,
    failure: Option<(io::ErrorKind, String)>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        state.is_opening = false;
        if let Some(failure) = self.failure.take() {
            state.failures += 1;
            state.last_failure = Some(failure);
        }
        drop(state);
        self.connections.changed.notify_waiters();
    }
}

/// A place among the requests that wait.
struct Waiting<'a>(&'a SharedConnections);

impl Waiting<'_> {
    fn begin(connections: &SharedConnections) -> Result<Waiting<'_>, GatewayError> {
        let mut state = connections.state();
        if state.waiting >= connections.settings.max_queued {
            return Err(GatewayError::Overloaded("too many requests wait for a stream"));
        }
        state.waiting += 1;
        Ok(Waiting(connections))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}
