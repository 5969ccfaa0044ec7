//! A worker: one event loop with its connections, clock, buffers and clone of the application.
//!
//! Workers share no state while they serve requests.

use std::cell::Cell;
#[cfg(feature = "http3")]
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::{self, Either};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::app::Application;
use crate::clock::ticker::Ticker;
use crate::error::Error;
use crate::hooks::Hooks;
use crate::message::shutdown::{Drain, ShutdownSignal};
use crate::net::accepted::Accepted;
use crate::net::connection_limiter::ConnectionPermit;
#[cfg(feature = "http3")]
use crate::net::quic::Connection;
#[cfg(feature = "http3")]
use crate::net::secure::QuicSecurity;
use crate::net::secure::SecureAcceptor;
use crate::net::socket::Socket;
use crate::net::transport::Transport;
use crate::peer::Peer;
use crate::server::connection::ServerConnection;
use crate::server::connection_life;
#[cfg(feature = "http3")]
use crate::server::h3;
use crate::server::worker_context::WorkerContext;
use crate::settings::Settings;
use crate::stream::Io;

/// The connections of a worker thread with one version of the settings. After an update of the
/// settings, the thread has another one for new connections.
pub(crate) struct Worker<A> {
    context: WorkerContext<A>,
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
        stream: Box<dyn Io>,
        peer: Peer,
        permit: ConnectionPermit,
        caller: oneshot::Sender<Infallible>,
    },
    /// Serves the HTTP/3 connections of a UDP socket.
    #[cfg(feature = "http3")]
    ServeQuic(Box<h3::QuicListener>),
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

impl<A: Application> Worker<A> {
    pub(crate) fn new(
        app: Rc<A>,
        settings: Settings,
        hooks: Option<Rc<dyn Hooks>>,
        shutdown: Arc<ShutdownSignal>,
    ) -> Worker<A> {
        Worker::with_context(WorkerContext::new(app, settings, hooks, shutdown))
    }

    fn with_context(context: WorkerContext<A>) -> Worker<A> {
        Worker {
            context,
            is_superseded: Cell::new(false),
            open_connections: Cell::new(0),
            state_changed: Notify::new(),
        }
    }

    /// Executes commands until all senders are dropped, then waits until all connections are closed
    /// or the grace period has expired.
    pub(crate) async fn run(self: Rc<Self>, mut commands: mpsc::UnboundedReceiver<WorkerCommand>)
    where
        A: 'static,
    {
        let shutdown = ShutdownSignal::clone(&self.context.shutdown);
        let mut current = self.spawn_sweeper();
        #[cfg(feature = "http3")]
        let newest = Rc::new(RefCell::new(current.clone()));
        // Established connections keep their limits.
        let mut generations: Vec<Rc<Worker<A>>> = Vec::new();
        while let Some(command) = commands.recv().await {
            match command {
                WorkerCommand::Serve(accepted) => current.spawn_connection(accepted),
                WorkerCommand::ServeStream { stream, peer, permit, caller } => {
                    let conn = current.context.connection(Transport::Other(stream), peer);
                    current.spawn_stream(conn, permit, caller);
                }
                #[cfg(feature = "http3")]
                WorkerCommand::ServeQuic(listener) => {
                    tokio::task::spawn_local(h3::serve_endpoint(*listener, newest.clone()));
                }
                WorkerCommand::CloseIdle(closed) => {
                    // Connections of superseded workers are older.
                    let mut all = generations.iter().chain([&current]);
                    let is_closed =
                        all.any(|worker| worker.context.deadlines.expire_longest_waiting());
                    // Sending fails only if the acceptor was stopped.
                    let _ = closed.send(is_closed);
                }
                WorkerCommand::Report(error) => current.context.report(&Peer::default(), &error),
                WorkerCommand::WatchCertificates(tls) => current.clone().reload_on_change(tls),
                WorkerCommand::UpdateSettings(settings) => {
                    generations.retain(|worker| worker.open_connections.get() > 0);
                    let context = current.context.with_settings(*settings);
                    let updated = Rc::new(Worker::with_context(context)).spawn_sweeper();
                    let superseded = std::mem::replace(&mut current, updated);
                    #[cfg(feature = "http3")]
                    newest.replace(current.clone());
                    superseded.is_superseded.set(true);
                    superseded.state_changed.notify_waiters();
                    generations.push(superseded);
                }
            }
        }
        generations.push(current);
        drain(&generations, shutdown).await;
    }

    /// Serves an accepted connection in its own task.
    fn spawn_connection(self: &Rc<Self>, mut accepted: Accepted)
    where
        A: 'static,
    {
        accepted.resolve_local_address();
        let Accepted { socket, peer, permit, tls } = accepted;
        let mut conn = self.context.connection(Transport::Socket(Socket::new(socket)), peer);
        conn.tls = tls;
        // Counted here, not in its task: a shutdown may be requested before the task starts.
        self.connection_opened();
        let guard = OpenConnection(self.clone());
        tokio::task::spawn_local(async move {
            connection_life::serve(&mut conn, &guard.0.context).await;
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
            let served = connection_life::serve(&mut conn, &guard.0.context);
            future::select(pin!(served), pin!(caller.closed())).await;
            drop((permit, guard));
        });
    }

    /// Serves one connection in the task of the caller, in any runtime with timers.
    pub(super) async fn serve_connection(&self, stream: Box<dyn Io>, peer: Peer) {
        let mut conn = self.context.connection(Transport::Other(stream), peer);
        self.connection_opened();
        let mut served = pin!(connection_life::serve(&mut conn, &self.context));
        let mut sweeper = pin!(self.run_sweeper(Ticker::tokio));
        poll_fn(|cx| {
            let _: Poll<()> = sweeper.as_mut().poll(cx);
            served.as_mut().poll(cx)
        })
        .await
    }

    async fn all_closed(&self) {
        while self.open_connections.get() > 0 {
            self.state_changed.notified().await;
        }
    }

    /// Reloads certificates when their files change, in a separate task.
    fn reload_on_change(self: Rc<Self>, tls: Arc<dyn SecureAcceptor>)
    where
        A: 'static,
    {
        tokio::task::spawn_local(async move {
            tls.reload_on_change(&|reloaded| match (reloaded, &self.context.hooks) {
                (Ok(()), Some(hooks)) => hooks.on_certificates_reloaded(),
                (Ok(()), None) => {}
                (Err(error), _) => self.context.report(&Peer::default(), error),
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
            while self.context.deadlines.is_empty() {
                if self.is_superseded.get() {
                    return;
                }
                self.state_changed.notified().await;
            }
            // Dropped while the sweeper pauses, because a timer of the kernel continues to wake.
            let mut ticker = new_ticker(self.context.deadlines.tick());
            while !self.context.deadlines.is_empty() {
                ticker.tick().await;
                self.context.date.refresh();
                self.context.deadlines.sweep();
                self.context.wake_superseded();
            }
        }
    }

    /// Counts an accepted connection.
    pub(crate) fn connection_opened(&self) {
        if self.open_connections.replace(self.open_connections.get() + 1) == 0 {
            // The sweeper may have paused.
            self.context.date.refresh();
            self.context.deadlines.refresh();
            self.state_changed.notify_waiters();
        }
    }
}

/// Waits until all connections of a thread's workers are closed, or the grace period of a shutdown
/// has expired.
async fn drain<A: Application>(generations: &[Rc<Worker<A>>], mut shutdown: ShutdownSignal) {
    let mut all_closed = pin!(async {
        for worker in generations {
            worker.all_closed().await;
        }
    });
    let (mut remaining, mut updated_at) = (Duration::MAX, Instant::now());
    loop {
        let drain = shutdown.borrow_and_update().unwrap_or(IMMEDIATE_DRAIN);
        // The grace period is only ever shortened.
        remaining = remaining.saturating_sub(updated_at.elapsed()).min(drain.grace);
        updated_at = Instant::now();
        generations.iter().for_each(|worker| worker.context.set_drain(drain));
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

#[cfg(feature = "http3")]
impl<A: Application + 'static> h3::QuicWorker for Rc<Worker<A>> {
    fn settings(&self) -> &Settings {
        &self.context.settings
    }

    fn is_draining(&self) -> bool {
        self.context.is_draining()
    }

    fn report(&self, error: &Error) {
        self.context.report(&Peer::default(), error);
    }

    fn serve(
        &self,
        connection: Connection,
        peer: Peer,
        tls: Arc<dyn QuicSecurity>,
        permit: ConnectionPermit,
    ) {
        // Before the sweeper is woken, which pauses again if there is no deadline.
        let deadline = self.context.deadlines.deadline();
        self.connection_opened();
        let guard = OpenConnection(self.clone());
        tokio::task::spawn_local(async move {
            h3::serve(connection, (peer, deadline), &*tls, &guard.0.context).await;
            drop((permit, guard));
        });
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
