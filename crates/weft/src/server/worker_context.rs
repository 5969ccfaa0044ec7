//! The context of a worker's connections, which is passed down to the drivers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::app::Application;
use crate::clock::cached_date::CachedDate;
use crate::clock::deadline::{Deadlines, Stopwatch};
use crate::error::Error;
use crate::hooks::Hooks;
use crate::message::connection::RequestContext;
use crate::message::request_head::RequestHead;
use crate::message::shutdown::{Drain, ShutdownSignal};
use crate::net::buffers::Buffers;
use crate::net::transport::Transport;
use crate::peer::{AuthPolicy, Peer};
use crate::server::connection::ServerConnection;
use crate::server::handshake_semaphore::HandshakeSemaphore;
use crate::server::head_buffers::HeadBufferPool;
use crate::settings::Settings;
use crate::trace::{self, SlowHandler, default_slow_handler_threshold};
use weft_proto::http1::parse::Limits;

/// The state that the connections of a worker share, for one version of the settings. After an
/// update of the settings, new connections get another context.
pub(crate) struct WorkerContext<A> {
    pub(crate) app: Rc<A>,
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) trailer_limits: Limits,
    pub(crate) server_name: Option<HeaderValue>,
    pub(crate) date: CachedDate,
    pub(crate) buffers: Buffers,
    pub(crate) head_buffers: HeadBufferPool,
    pub(crate) deadlines: Deadlines,
    pub(crate) hooks: Option<Rc<dyn Hooks>>,
    /// Permits one step of a TLS handshake at a time.
    pub(super) handshake_semaphore: HandshakeSemaphore,
    pub(crate) shutdown: Arc<ShutdownSignal>,
    drain: Cell<Option<Drain>>,
    /// Time of a poll of the application that is reported; `None` if it is not measured.
    slow_handler_threshold: Option<Duration>,
    slow_handler_reported: Cell<Option<Stopwatch>>,
    /// Policies of its TLS connections that were in effect as of the last sweep.
    policies: RefCell<Vec<Arc<AuthPolicy>>>,
}

/// Minimum time between two reports of handlers that block the worker.
const MIN_SLOW_HANDLER_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum size of a head: positions in a head are stored in 16 bits.
const MAX_REQUEST_HEAD_BYTES: usize = 65_000;

impl<A: Application> WorkerContext<A> {
    pub(crate) fn new(
        app: Rc<A>,
        settings: Settings,
        hooks: Option<Rc<dyn Hooks>>,
        shutdown: Arc<ShutdownSignal>,
    ) -> WorkerContext<A> {
        let limits = Limits {
            request_line: settings.max_request_line_bytes.min(MAX_REQUEST_HEAD_BYTES),
            head: settings.max_head_bytes.min(MAX_REQUEST_HEAD_BYTES),
            fields: settings.max_fields,
        };
        let trailer_limits =
            Limits { head: settings.max_trailer_bytes.min(MAX_REQUEST_HEAD_BYTES), ..limits };
        let server_name = HeaderValue::from_str(&settings.server_name).ok();
        let server_name = server_name.filter(|name| !name.is_empty());
        let threshold = hooks.as_ref().map(|hooks| hooks.slow_handler_threshold());
        let threshold = threshold.unwrap_or_else(default_slow_handler_threshold);
        WorkerContext {
            slow_handler_threshold: Some(threshold).filter(|it| *it < Duration::MAX),
            slow_handler_reported: Cell::new(None),
            limits,
            trailer_limits,
            date: CachedDate::new(server_name.as_ref()),
            server_name,
            buffers: Buffers::default(),
            head_buffers: HeadBufferPool::default(),
            deadlines: Deadlines::new(&settings),
            handshake_semaphore: HandshakeSemaphore::default(),
            shutdown,
            drain: Cell::new(None),
            policies: RefCell::default(),
            app,
            settings,
            hooks,
        }
    }

    /// Creates a context with other settings, for new connections.
    pub(super) fn with_settings(&self, settings: Settings) -> WorkerContext<A> {
        WorkerContext::new(self.app.clone(), settings, self.hooks.clone(), self.shutdown.clone())
    }

    /// Creates the state of an accepted connection.
    pub(crate) fn connection(&self, transport: Transport, peer: Peer) -> ServerConnection {
        let deadline = self.deadlines.deadline();
        let shared = RequestContext::new(Arc::new(peer), self.shutdown.clone());
        ServerConnection::new(transport, shared, deadline, &self.settings)
    }

    /// Starts the drain of a shutdown, or shortens it.
    pub(super) fn set_drain(&self, drain: Drain) {
        self.drain.set(Some(drain));
        self.deadlines.wake_all();
    }

    /// Returns the drain of a shutdown in progress.
    pub(super) fn drain(&self) -> Option<Drain> {
        self.drain.get()
    }

    /// Watches a policy of a TLS connection, to close the connection when the policy ends.
    pub(super) fn watch_policy(&self, policy: &Arc<AuthPolicy>) {
        let mut policies = self.policies.borrow_mut();
        if !policies.iter().any(|watched| Arc::ptr_eq(watched, policy)) {
            policies.push(policy.clone());
        }
    }

    /// Wakes all connections if one of their policies has ended, so that they check their own.
    pub(super) fn wake_superseded(&self) {
        let mut policies = self.policies.borrow_mut();
        let before = policies.len();
        policies.retain(|policy| !policy.is_superseded());
        if policies.len() < before {
            self.deadlines.wake_all();
        }
    }

    /// Returns true if each response is the last one of its connection: during a shutdown, or
    /// after a change of the client authentication.
    pub(crate) fn is_last_response(&self, peer: &Peer) -> bool {
        self.is_draining() || peer.is_superseded()
    }

    /// Returns true if the server shuts down.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.get().is_some()
    }

    /// The hooks, if they need a record of every response.
    pub(crate) fn recorder(&self) -> Option<&dyn Hooks> {
        self.hooks.as_deref().filter(|hooks| hooks.needs_records())
    }

    /// Starts a stopwatch for an exchange, if its duration is recorded.
    pub(crate) fn stopwatch(&self) -> Option<Stopwatch> {
        self.recorder().map(|_| Stopwatch::start())
    }

    /// Runs a poll of the application, and reports the poll if it has blocked the worker.
    #[inline]
    pub(super) fn watch_poll<T>(
        &self,
        request: impl FnOnce() -> (Arc<RequestContext>, Option<RequestHead>),
        poll: impl FnOnce() -> T,
    ) -> T {
        let Some(threshold) = self.slow_handler_threshold else { return poll() };
        let watch = Stopwatch::start();
        let polled = poll();
        let duration = watch.elapsed();
        if duration >= threshold {
            self.report_slow_handler(request(), duration);
        }
        polled
    }

    #[cold]
    fn report_slow_handler(
        &self,
        (shared, head): (Arc<RequestContext>, Option<RequestHead>),
        duration: Duration,
    ) {
        let reported = self.slow_handler_reported.get();
        if reported.is_some_and(|reported| reported.elapsed() < MIN_SLOW_HANDLER_INTERVAL) {
            return;
        }
        self.slow_handler_reported.set(Some(Stopwatch::start()));
        let slow = SlowHandler { peer: &shared.peer, head: head.as_ref(), duration };
        trace::report_slow_handler(&slow);
        match &self.hooks {
            Some(hooks) => hooks.on_slow_handler(&slow),
            None => trace::print_slow_handler(&slow),
        }
    }

    /// Reports an error to the hooks.
    pub(crate) fn report(&self, peer: &Peer, error: &Error) {
        self.report_of_request(peer, None, error);
    }

    /// Reports an error of an exchange to the hooks.
    pub(super) fn report_of_request(&self, peer: &Peer, head: Option<&RequestHead>, error: &Error) {
        trace::report_error(peer, head, error);
        match &self.hooks {
            Some(hooks) => hooks.on_error(peer, error),
            None => trace::print_error(error),
        }
    }
}
