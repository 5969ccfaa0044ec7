//! A worker: one event loop with its connections, clock, buffers and clone of the application.
//!
//! Workers share no state while they serve requests.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::{self, Either};
use http::HeaderValue;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::app::Application;
use crate::clock::deadline::{Awaited, Deadlines, Stopwatch};
use crate::clock::ticker::Ticker;
use crate::error::{Error, Result};
use crate::hooks::Hooks;
use crate::message::connection::RequestContext;
use crate::message::shutdown::{Drain, ShutdownSignal};
use crate::net::accepted::Accepted;
use crate::net::buffers::Buffers;
use crate::net::connection_limiter::ConnectionPermit;
use crate::net::reader::Transport;
use crate::net::secure::SecureAcceptor;
use crate::net::socket::Socket;
use crate::panic::catch_panic;
use crate::peer::{AuthPolicy, Peer};
use crate::server::connection::ServerConnection;
use crate::server::date::CachedDate;
use crate::server::h1::{self, NextState};
use crate::server::h2;
use crate::server::head_buffers::HeadBufferPool;
use crate::server::tls_handshake::{self, HandshakeSemaphore};
use crate::settings::Settings;
use crate::stream::Stream;
use weft_proto::http1::parse::Limits;

/// The state that connections of a worker thread share, for one version of the settings. After an
/// update of the settings, the thread has another one for new connections.
pub(crate) struct Worker<A> {
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
    /// Policies of its TLS connections that were in effect as of the last sweep.
    policies: RefCell<Vec<Arc<AuthPolicy>>>,
    /// Set when a worker with newer settings has replaced this one for new connections.
    is_superseded: Cell<bool>,
    open_connections: Cell<usize>,
    /// Notified when the first connection opens, when the last one closes, and when the worker is
    /// superseded.
    state_changed: Notify,
}

/// A command to a worker.
pub(crate) enum WorkerCommand {
    /// Serves a connection.
    Serve(Accepted),
    /// Serves a connection over a stream that a caller has passed, until it closes or the caller
    /// drops its receiver.
    ServeStream {
        stream: Box<dyn Stream>,
        peer: Peer,
        permit: ConnectionPermit,
        caller: oneshot::Sender<Infallible>,
    },
    /// Sets the limits and timeouts of new connections.
    UpdateSettings(Box<Settings>),
    /// Closes the connection that has waited longest for a request, to make room for another one.
    /// The answer is `false` if no connection waits.
    CloseIdle(oneshot::Sender<bool>),
    /// Reports an error that belongs to no connection.
    Report(Error),
    /// Reloads certificates when their files change.
    WatchCertificates(Arc<dyn SecureAcceptor>),
}

/// Used if all senders were dropped without a shutdown request.
const IMMEDIATE_DRAIN: Drain = Drain { grace: Duration::ZERO, idle_grace: Duration::ZERO };

/// Maximum size of a head: positions in a head are stored in 16 bits.
const MAX_REQUEST_HEAD_BYTES: usize = 65_000;

impl<A: Application> Worker<A> {
    pub(crate) fn new(
        app: Rc<A>,
        settings: Settings,
        hooks: Option<Rc<dyn Hooks>>,
        shutdown: Arc<ShutdownSignal>,
    ) -> Worker<A> {
        let limits = Limits {
            request_line: settings.max_request_line_bytes.min(MAX_REQUEST_HEAD_BYTES),
            head: settings.max_head_bytes.min(MAX_REQUEST_HEAD_BYTES),
            fields: settings.max_fields,
        };
        let trailer_limits =
            Limits { head: settings.max_trailer_bytes.min(MAX_REQUEST_HEAD_BYTES), ..limits };
        let server_name = HeaderValue::from_str(&settings.server_name).ok();
        let server_name = server_name.filter(|name| !name.is_empty());
        Worker {
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
            is_superseded: Cell::new(false),
            open_connections: Cell::new(0),
            state_changed: Notify::new(),
            app,
            settings,
            hooks,
        }
    }

    /// Executes commands until all senders are dropped, then waits until all connections are closed
    /// or the grace period has expired.
    pub(crate) async fn run(self: Rc<Self>, mut commands: mpsc::UnboundedReceiver<WorkerCommand>)
    where
        A: 'static,
    {
        let mut shutdown = ShutdownSignal::clone(&self.shutdown);
        let mut current = self.spawn_sweeper();
        // Established connections keep their limits.
        let mut generations: Vec<Rc<Worker<A>>> = Vec::new();
        while let Some(command) = commands.recv().await {
            match command {
                WorkerCommand::Serve(accepted) => current.spawn_connection(accepted),
                WorkerCommand::ServeStream { stream, peer, permit, caller } => {
                    let conn = current.connection(Transport::Other(stream), peer);
                    current.spawn_stream(conn, permit, caller);
                }
                WorkerCommand::CloseIdle(closed) => {
                    // Connections of superseded workers are older.
                    let all = || generations.iter().chain([&current]);
                    let is_closed = all().any(|worker| worker.deadlines.expire_longest_waiting());
                    // Sending fails only if the acceptor was stopped.
                    let _ = closed.send(is_closed);
                }
                WorkerCommand::Report(error) => current.report(&Peer::default(), &error),
                WorkerCommand::WatchCertificates(tls) => current.clone().reload_on_change(tls),
                WorkerCommand::UpdateSettings(settings) => {
                    generations.retain(|worker| worker.open_connections.get() > 0);
                    let updated = Rc::new(current.with_settings(*settings)).spawn_sweeper();
                    let superseded = std::mem::replace(&mut current, updated);
                    superseded.is_superseded.set(true);
                    superseded.state_changed.notify_waiters();
                    generations.push(superseded);
                }
            }
        }
        generations.push(current);
        let mut all_closed = pin!(async {
            for worker in &generations {
                worker.all_closed().await;
            }
        });
        let (mut remaining, mut updated_at) = (Duration::MAX, Instant::now());
        loop {
            let drain = shutdown.borrow_and_update().unwrap_or(IMMEDIATE_DRAIN);
            // The grace period is only ever shortened.
            remaining = remaining.saturating_sub(updated_at.elapsed()).min(drain.grace);
            updated_at = Instant::now();
            for worker in &generations {
                worker.drain.set(Some(drain));
                worker.deadlines.wake_all();
            }
            let ended = tokio::time::timeout(remaining, &mut all_closed);
            let shortened = async {
                // An error means that the sender was dropped: the deadline stays.
                if shutdown.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            if let Either::Left(_) = future::select(pin!(ended), pin!(shortened)).await {
                // The runtime drops the connections that are still open.
                return;
            }
        }
    }

    /// Serves an accepted connection in its own task.
    fn spawn_connection(self: &Rc<Self>, mut accepted: Accepted)
    where
        A: 'static,
    {
        accepted.resolve_local_address();
        let Accepted { socket, peer, permit, tls } = accepted;
        let mut conn = self.connection(Transport::Socket(Socket::new(socket)), peer);
        conn.tls = tls;
        // Counted here, not in its task: a shutdown may be requested before the task starts.
        self.connection_opened();
        let guard = OpenConnection(self.clone());
        tokio::task::spawn_local(async move {
            guard.0.serve(&mut conn).await;
            drop((permit, guard));
        });
    }

    /// Serves the connection over a stream in its own task, while its caller waits.
    fn spawn_stream(
        self: &Rc<Self>,
        mut conn: ServerConnection,
        permit: ConnectionPermit,
        mut caller: oneshot::Sender<Infallible>,
    ) where
        A: 'static,
    {
        self.connection_opened();
        let guard = OpenConnection(self.clone());
        tokio::task::spawn_local(async move {
            future::select(pin!(guard.0.serve(&mut conn)), pin!(caller.closed())).await;
            drop((permit, guard));
        });
    }

    /// Creates a worker with other settings, for new connections.
    fn with_settings(&self, settings: Settings) -> Worker<A> {
        Worker::new(self.app.clone(), settings, self.hooks.clone(), self.shutdown.clone())
    }

    async fn all_closed(&self) {
        while self.open_connections.get() > 0 {
            self.state_changed.notified().await;
        }
    }

    /// Creates the state of an accepted connection.
    pub(crate) fn connection(&self, transport: Transport, peer: Peer) -> ServerConnection {
        let deadline = self.deadlines.deadline();
        let shared = RequestContext::new(Arc::new(peer), self.shutdown.clone());
        ServerConnection::new(transport, shared, deadline, &self.settings)
    }

    /// Serves a connection until it closes.
    pub(crate) async fn serve(&self, conn: &mut ServerConnection) {
        conn.deadline.set_awaiting(Awaited::Head, self.settings.head_timeout);
        if self.settings.is_proxy(conn.shared.peer.address())
            && let Err(error) = Box::pin(self.read_proxy_header(conn)).await
        {
            return self.report(&conn.shared.peer, &error);
        }
        if let Some(tls) = conn.tls.take()
            && !Box::pin(tls_handshake::handshake(&*tls, conn, self)).await
        {
            return;
        }
        if !self.hooks.as_ref().is_none_or(|hooks| hooks.on_open(&conn.shared.peer)) {
            return;
        }
        let _close_hook = CloseHook { hooks: self.hooks.as_deref(), shared: conn.shared.clone() };
        if conn.http2 {
            return Box::pin(h2::serve(conn, self)).await;
        }
        while self.has_input(conn).await {
            // The future of an active connection is large. It is boxed, and constructed in its box,
            // so that an idle connection needs only the memory of this loop.
            let active = Box::new_uninit();
            match Box::into_pin(Box::write(active, h1::serve(conn, self))).await {
                NextState::Idle => {
                    conn.deadline.set_awaiting(Awaited::NextRequest, self.settings.idle_timeout);
                }
                NextState::Close | NextState::Linger => break,
                // Boxed, so that it takes no space in connections that are never upgraded.
                NextState::HandOver => return Box::pin(self.hand_over(conn)).await,
                NextState::Http2 => return Box::pin(h2::serve(conn, self)).await,
            }
        }
        conn.writer.send_close_notify();
    }

    /// Runs the handler of an upgrade on a connection.
    async fn hand_over(&self, conn: &mut ServerConnection) {
        let Some((upgrade, connection)) = conn.hand_over() else { return };
        if let Err(error) = catch_panic(async move { upgrade.run(connection).await }).await {
            self.report(&conn.shared.peer, &error);
        }
    }

    /// Sets the client address from the PROXY header of a trusted proxy.
    async fn read_proxy_header(&self, conn: &mut ServerConnection) -> Result<()> {
        if let Some(address) = conn.read_proxy_header().await?.source {
            let peer = Peer { address: Some(address), ..Peer::clone(&conn.shared.peer) };
            conn.shared = RequestContext::new(Arc::new(peer), self.shutdown.clone());
        }
        Ok(())
    }

    /// Waits for input, without a buffer. Returns `false` if the connection is to be closed.
    async fn has_input(&self, conn: &mut ServerConnection) -> bool {
        let mut is_shortened = false;
        poll_fn(|cx| {
            let Some(reader) = &mut conn.reader else { return Poll::Ready(false) };
            if !reader.buffer.is_empty() {
                return Poll::Ready(true); // Received together with the PROXY header.
            }
            if let Poll::Ready(has_input) = reader.poll_first_read(cx, &self.buffers) {
                return Poll::Ready(has_input.unwrap_or(false));
            }
            if let Some(drain) = self.drain.get() {
                // A client that has just connected will probably send a request, for which it gets
                // at least `linger_timeout`.
                let idle_grace = match conn.requests {
                    0 => drain.idle_grace.max(self.settings.linger_timeout),
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

    /// Reloads certificates when their files change, in a separate task.
    fn reload_on_change(self: Rc<Self>, tls: Arc<dyn SecureAcceptor>)
    where
        A: 'static,
    {
        tokio::task::spawn_local(async move {
            tls.reload_on_change(&|reloaded| match (reloaded, &self.hooks) {
                (Ok(()), Some(hooks)) => hooks.on_certificates_reloaded(),
                (Ok(()), None) => {}
                (Err(error), _) => self.report(&Peer::default(), error),
            })
            .await;
        });
    }

    /// Runs the sweeper in a separate task.
    fn spawn_sweeper(self: Rc<Self>) -> Rc<Self>
    where
        A: 'static,
    {
        let worker = self.clone();
        tokio::task::spawn_local(async move { worker.run_sweeper(Ticker::kernel).await });
        self
    }

    /// Runs the sweeper: wakes the tasks of expired deadlines and refreshes the date. It pauses
    /// while there are no connections, and ends when the worker is superseded and has no
    /// connections.
    async fn run_sweeper(&self, new_ticker: impl Fn(Duration) -> Ticker) {
        loop {
            while self.deadlines.is_empty() {
                if self.is_superseded.get() {
                    return;
                }
                self.state_changed.notified().await;
            }
            // Dropped while the sweeper pauses, because a timer of the kernel continues to wake.
            let mut ticker = new_ticker(self.deadlines.tick());
            while !self.deadlines.is_empty() {
                ticker.tick().await;
                self.date.refresh();
                self.deadlines.sweep();
                self.wake_superseded();
            }
        }
    }

    /// Runs a future of this worker concurrently with the sweeper, in any runtime with timers.
    pub(crate) async fn with_sweeper<F: Future>(&self, future: F) -> F::Output {
        let (mut future, mut sweeper) = (pin!(future), pin!(self.run_sweeper(Ticker::tokio)));
        poll_fn(|cx| {
            let _: Poll<()> = sweeper.as_mut().poll(cx);
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Counts an accepted connection.
    pub(crate) fn connection_opened(&self) {
        if self.open_connections.replace(self.open_connections.get() + 1) == 0 {
            // The sweeper may have paused.
            self.date.refresh();
            self.deadlines.refresh();
            self.state_changed.notify_waiters();
        }
    }

    /// Watches a policy of a TLS connection, to close the connection when the policy ends.
    pub(super) fn watch_policy(&self, policy: &Arc<AuthPolicy>) {
        let mut policies = self.policies.borrow_mut();
        if !policies.iter().any(|watched| Arc::ptr_eq(watched, policy)) {
            policies.push(policy.clone());
        }
    }

    /// Wakes all connections if one of their policies has ended, so that they check their own.
    fn wake_superseded(&self) {
        let mut policies = self.policies.borrow_mut();
        let before = policies.len();
        policies.retain(|policy| !policy.is_superseded());
        if policies.len() < before {
            self.deadlines.wake_all();
        }
    }

    /// Returns `true` if each response is the last one of its connection: during a shutdown, or
    /// after a change of the client authentication.
    pub(crate) fn is_last_response(&self, peer: &Peer) -> bool {
        self.is_draining() || peer.is_superseded()
    }

    /// Returns `true` during a shutdown.
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

    /// Reports an error to the hooks.
    pub(crate) fn report(&self, peer: &Peer, error: &Error) {
        if let Some(hooks) = &self.hooks {
            hooks.on_error(peer, error);
        }
    }
}

/// Calls `Hooks::on_close` when dropped, also if the task of the connection is cancelled.
struct CloseHook<'a> {
    hooks: Option<&'a dyn Hooks>,
    shared: Arc<RequestContext>,
}

impl Drop for CloseHook<'_> {
    fn drop(&mut self) {
        if let Some(hooks) = self.hooks {
            hooks.on_close(&self.shared.peer);
        }
    }
}

/// Guard of a connection counted in `open_connections`; the count decreases when it is dropped.
struct OpenConnection<A>(Rc<Worker<A>>);

impl<A> Drop for OpenConnection<A> {
    fn drop(&mut self) {
        let Worker { open_connections, state_changed, .. } = &*self.0;
        open_connections.set(open_connections.get() - 1);
        if open_connections.get() == 0 {
            state_changed.notify_waiters();
        }
    }
}
