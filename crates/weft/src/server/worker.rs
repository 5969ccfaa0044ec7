//! One core: its clock, its buffers, its clone of the application, its connections.
//!
//! A worker shares nothing with the others while it serves requests.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::{self, Either};
use http::HeaderValue;
use tokio::sync::{Notify, mpsc};

use crate::app::Application;
use crate::clock::deadline::{Deadlines, Stopwatch};
use crate::error::{Error, Result};
use crate::hooks::Hooks;
use crate::message::request::{Drain, Shared, Stop};
use crate::net::accepted::Accepted;
use crate::net::buffers::Buffers;
use crate::net::reader::Transport;
use crate::net::secure::SecureAcceptor;
use crate::panic::catch_panic;
use crate::peer::Peer;
use crate::server::connection::Connection;
use crate::server::date::CachedDate;
use crate::server::h1::{self, NextState};
use crate::server::h2;
use crate::server::head_buffers::HeadBufferPool;
use crate::server::tls_handshake::{self, HandshakeSemaphore};
use crate::settings::Settings;
use weft_proto::http1::parse::Limits;

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
    /// Who may take the next step of a TLS handshake.
    pub(super) handshake_semaphore: HandshakeSemaphore,
    pub(crate) stop: Arc<Stop>,
    drain: Cell<Option<Drain>>,
    /// New connections are another's, with newer settings.
    is_retired: Cell<bool>,
    open: Cell<usize>,
    /// The sweeper may start or end, or the last connection has closed.
    changed: Notify,
}

/// What a worker is asked to do.
pub(crate) enum WorkerCommand {
    /// Serve a connection.
    Serve(Accepted),
    /// Serve further connections within these limits.
    Renew(Box<Settings>),
    /// Look after the files of certificates.
    Watch(Arc<dyn SecureAcceptor>),
}

/// If nobody says how.
const AT_ONCE: Drain = Drain { grace: Duration::ZERO, idle_grace: Duration::ZERO };

/// Positions in a head take 16 bits.
const MOST_HEAD_BYTES: usize = 65_000;

impl<A: Application> Worker<A> {
    pub(crate) fn new(
        app: Rc<A>,
        settings: Settings,
        hooks: Option<Rc<dyn Hooks>>,
        stop: Arc<Stop>,
    ) -> Worker<A> {
        let limits = Limits {
            request_line: settings.max_request_line_bytes.min(MOST_HEAD_BYTES),
            head: settings.max_head_bytes.min(MOST_HEAD_BYTES),
            fields: settings.max_fields,
        };
        let trailer_limits =
            Limits { head: settings.max_trailer_bytes.min(MOST_HEAD_BYTES), ..limits };
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
            stop,
            drain: Cell::new(None),
            is_retired: Cell::new(false),
            open: Cell::new(0),
            changed: Notify::new(),
            app,
            settings,
            hooks,
        }
    }

    /// Does what it is asked to, until nobody can ask any more and the time for what is under
    /// way is over.
    pub(crate) async fn run(self: Rc<Self>, mut errands: mpsc::UnboundedReceiver<WorkerCommand>)
    where
        A: 'static,
    {
        let mut stop = Stop::clone(&self.stop);
        let mut current = self.keep_clock();
        // Connections keep the limits that they began with.
        let mut former: Vec<Rc<Worker<A>>> = Vec::new();
        while let Some(errand) = errands.recv().await {
            match errand {
                WorkerCommand::Serve(accepted) => current.begin(accepted),
                WorkerCommand::Watch(tls) => current.clone().reload_on_change(tls),
                WorkerCommand::Renew(settings) => {
                    former.retain(|worker| worker.open.get() > 0);
                    let renewed = Rc::new(current.renewed(*settings)).keep_clock();
                    let retired = std::mem::replace(&mut current, renewed);
                    retired.is_retired.set(true);
                    retired.changed.notify_waiters();
                    former.push(retired);
                }
            }
        }
        former.push(current);
        let mut all_closed = pin!(async {
            for worker in &former {
                worker.all_closed().await;
            }
        });
        let (mut left, mut begun) = (Duration::MAX, Instant::now());
        loop {
            let drain = stop.borrow_and_update().unwrap_or(AT_ONCE);
            // A stop only becomes shorter.
            left = left.saturating_sub(begun.elapsed()).min(drain.grace);
            begun = Instant::now();
            for worker in &former {
                worker.drain.set(Some(drain));
                worker.deadlines.wake_all();
            }
            let ended = tokio::time::timeout(left, &mut all_closed);
            let shortened = async {
                // An error means that the sender was dropped: the deadline stays.
                if stop.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            if let Either::Left(_) = future::select(pin!(ended), pin!(shortened)).await {
                // The runtime drops the connections that are still open.
                return;
            }
        }
    }

    /// Begins with a connection, in a task of its own.
    fn begin(self: &Rc<Self>, accepted: Accepted)
    where
        A: 'static,
    {
        let Accepted { socket, peer, permit, tls } = accepted;
        let mut conn = match socket.register() {
            Ok(transport) => self.connection(transport, peer),
            Err(error) => return self.report(&peer, &error.into()),
        };
        conn.tls = tls;
        // Counted here, and not by its task: a stop may come before that begins.
        self.count_in();
        let open = Open(self.clone());
        tokio::task::spawn_local(async move {
            open.0.serve(&mut conn).await;
            drop((permit, open));
        });
    }

    /// The same worker with other limits, for other connections.
    fn renewed(&self, settings: Settings) -> Worker<A> {
        Worker::new(self.app.clone(), settings, self.hooks.clone(), self.stop.clone())
    }

    async fn all_closed(&self) {
        while self.open.get() > 0 {
            self.changed.notified().await;
        }
    }

    /// A connection that has just been accepted.
    pub(crate) fn connection(&self, transport: Transport, peer: Peer) -> Connection {
        let deadline = self.deadlines.deadline();
        let shared = Shared::new(peer, self.stop.clone());
        Connection::new(transport, shared, deadline, &self.settings)
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve(&self, conn: &mut Connection) {
        conn.deadline.set(self.settings.head_timeout);
        if self.settings.is_proxy(conn.shared.peer.address())
            && let Err(error) = Box::pin(self.meet_client(conn)).await
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
        let _closed = Closed { hooks: self.hooks.as_deref(), shared: conn.shared.clone() };
        if conn.http2 {
            return Box::pin(h2::serve(conn, self)).await;
        }
        while self.has_input(conn).await {
            // A connection at rest is only this loop: the state of a busy one is boxed, and made
            // in its box, for it is large.
            let busy = Box::new_uninit();
            match Box::into_pin(Box::write(busy, h1::serve(conn, self))).await {
                NextState::Idle => conn.deadline.set(self.settings.idle_timeout),
                NextState::Close | NextState::Linger => break,
                // Boxed, so that it takes no room in connections that are never handed over.
                NextState::HandOver => return Box::pin(self.hand_over(conn)).await,
                NextState::Http2 => return Box::pin(h2::serve(conn, self)).await,
            }
        }
        conn.writer.send_close_notify();
    }

    /// Lets an application have a connection for itself.
    async fn hand_over(&self, conn: &mut Connection) {
        let Some((upgrade, connection)) = conn.hand_over() else { return };
        if let Err(error) = catch_panic(async move { upgrade.run(connection).await }).await {
            self.report(&conn.shared.peer, &error);
        }
    }

    /// Lets a proxy say who its client is.
    async fn meet_client(&self, conn: &mut Connection) -> Result<()> {
        if let Some(address) = conn.preface().await?.source {
            conn.shared =
                Shared::new(Peer { address: Some(address), tls: None }, self.stop.clone());
        }
        Ok(())
    }

    /// Waits, without a buffer, for something to read. `false` when the wait is in vain.
    async fn has_input(&self, conn: &mut Connection) -> bool {
        let mut hurried = false;
        poll_fn(|cx| {
            let Some(reader) = &mut conn.reader else { return Poll::Ready(false) };
            if !reader.buffer.is_empty() {
                return Poll::Ready(true); // It came with a proxy's preface.
            }
            if let Poll::Ready(has_input) = reader.poll_first(cx, &self.buffers) {
                return Poll::Ready(has_input.unwrap_or(false));
            }
            if let Some(drain) = self.drain.get() {
                // A client that has just connected is about to ask: it may, but soon.
                let idle_grace = match conn.requests {
                    0 => drain.idle_grace.max(self.settings.linger_timeout),
                    _ => drain.idle_grace,
                };
                if idle_grace.is_zero() {
                    return Poll::Ready(false);
                }
                if !std::mem::replace(&mut hurried, true) {
                    conn.deadline.set(idle_grace);
                }
            }
            conn.deadline.poll_expired(cx).map(|()| false)
        })
        .await
    }

    /// Loads certificates anew whenever their files change, in a task of its own.
    fn reload_on_change(self: Rc<Self>, tls: Arc<dyn SecureAcceptor>)
    where
        A: 'static,
    {
        tokio::task::spawn_local(async move {
            tls.reload_on_change(&|error| self.report(&Peer::default(), error)).await;
        });
    }

    /// Keeps the clock in a task of its own.
    fn keep_clock(self: Rc<Self>) -> Rc<Self>
    where
        A: 'static,
    {
        let worker = self.clone();
        tokio::task::spawn_local(async move { worker.sweep().await });
        self
    }

    /// Keeps the clock: wakes whom it is time for, and dates the second. Rests while
    /// there is no connection, and ends when there can be none any more.
    async fn sweep(&self) {
        let mut tick = tokio::time::interval(self.deadlines.tick());
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.date.refresh();
            self.deadlines.sweep();
            while self.deadlines.is_empty() {
                if self.is_retired.get() {
                    return;
                }
                self.changed.notified().await;
            }
        }
    }

    /// Runs a future of this worker's, and the clock beside it.
    pub(crate) async fn with_clock<F: Future>(&self, future: F) -> F::Output {
        let (mut future, mut clock) = (pin!(future), pin!(self.sweep()));
        poll_fn(|cx| {
            let _: Poll<()> = clock.as_mut().poll(cx);
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Counts a connection that was accepted.
    pub(crate) fn count_in(&self) {
        if self.open.replace(self.open.get() + 1) == 0 {
            // The clock may have rested.
            self.date.refresh();
            self.deadlines.refresh();
            self.changed.notify_waiters();
        }
    }

    /// Whether the server is to stop: then each response is its connection's last.
    pub(crate) fn draining(&self) -> bool {
        self.drain.get().is_some()
    }

    /// The hooks, if they want to be told of every response.
    pub(crate) fn recorder(&self) -> Option<&dyn Hooks> {
        self.hooks.as_deref().filter(|hooks| hooks.needs_records())
    }

    /// Measures an exchange, if anybody wants to know.
    pub(crate) fn stopwatch(&self) -> Option<Stopwatch> {
        self.recorder().map(|_| Stopwatch::start())
    }

    /// Tells the hooks of an error.
    pub(crate) fn report(&self, peer: &Peer, error: &Error) {
        if let Some(hooks) = &self.hooks {
            hooks.on_error(peer, error);
        }
    }
}

/// Tells the hooks of a connection's end, however that comes.
struct Closed<'a> {
    hooks: Option<&'a dyn Hooks>,
    shared: Arc<Shared>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if let Some(hooks) = self.hooks {
            hooks.on_close(&self.shared.peer);
        }
    }
}

/// A connection that was counted in; it is counted out when this goes.
struct Open<A>(Rc<Worker<A>>);

impl<A> Drop for Open<A> {
    fn drop(&mut self) {
        let Worker { open, changed, .. } = &*self.0;
        open.set(open.get() - 1);
        if open.get() == 0 {
            changed.notify_waiters();
        }
    }
}
