//! Acceptors: the assignment of listening sockets to the tasks that accept from them, and of
//! accepted connections to workers.
//!
//! Either one acceptor on its own thread serves all workers, or each worker runs an acceptor in its
//! event loop. Sockets can be added and closed while the acceptors run.

use std::cell::Cell;
use std::cmp::Reverse;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_util::future;
use http::HeaderValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::message::shutdown::ShutdownSignal;
use crate::net::accept::{self, Workers};
use crate::net::accepted::Accepted;
use crate::net::address::LocalAddress;
use crate::net::connection_limiter::ConnectionLimiter;
use crate::net::http3_descriptor::Http3Descriptor;
use crate::net::listen::{Listener, SocketFile};
use crate::net::secure::SecureAcceptor;
use crate::peer::Peer;
use crate::server::h3::Http3Endpoints;
use crate::server::worker::WorkerCommand;
use crate::settings::Settings;
use crate::stream::Io;
use crate::sys::OwnedFd;

/// Handle to all acceptors, owned by the server's handle.
pub(crate) struct Acceptors {
    /// Addresses of the listeners, without duplicates.
    pub(crate) addresses: Vec<LocalAddress>,
    /// Channel to each acceptor: the only one, or one per worker.
    acceptors: Vec<mpsc::UnboundedSender<AddListener>>,
    workers: Vec<WorkerHandle>,
    limiter: Arc<ConnectionLimiter>,
    settings: Settings,
    listeners: Vec<ListenerEntry>,
    http3: Http3Endpoints,
}

/// A listening socket that an acceptor owns, as seen by [`Acceptors`].
struct ListenerEntry {
    address: LocalAddress,
    /// Weak, so that the socket closes when its acceptor drops it.
    socket: Weak<OwnedFd>,
    is_shareable: bool,
    file: Option<Arc<SocketFile>>,
    tls: Option<Arc<dyn SecureAcceptor>>,
    alt_svc: Option<Arc<HeaderValue>>,
    close: oneshot::Sender<()>,
}

/// Command that gives a listening socket to an acceptor.
struct AddListener {
    listener: Listener,
    /// Workers that the connections are distributed to.
    workers: Vec<WorkerHandle>,
    closed: oneshot::Receiver<()>,
}

/// Handle to a worker: the sender of its commands and its number of open connections.
#[derive(Clone)]
pub(crate) struct WorkerHandle {
    commands: mpsc::UnboundedSender<WorkerCommand>,
    load: Arc<AtomicUsize>,
}

/// One acceptor; [`run`](Acceptor::run) is its task.
pub(crate) struct Acceptor {
    new_listeners: mpsc::UnboundedReceiver<AddListener>,
    limiter: Arc<ConnectionLimiter>,
    /// All workers, because the limit counts the connections of all.
    workers: Arc<[WorkerHandle]>,
    shutdown: ShutdownSignal,
}

/// Creates a worker's handle and the receiver of its commands. The connection limit bounds the
/// channel.
pub(crate) fn worker_channel() -> (WorkerHandle, mpsc::UnboundedReceiver<WorkerCommand>) {
    let (commands, receiver) = mpsc::unbounded_channel();
    (WorkerHandle { commands, load: Arc::default() }, receiver)
}

impl Acceptors {
    /// Creates one acceptor, or with `reuse_port` one for each worker. None of them has a socket
    /// yet.
    pub(crate) fn new(
        settings: &Settings,
        workers: Vec<WorkerHandle>,
        shutdown: &ShutdownSignal,
    ) -> (Acceptors, Vec<Acceptor>) {
        let limiter = ConnectionLimiter::new(settings);
        let count = if settings.reuse_port { workers.len() } else { 1 };
        let all: Arc<[WorkerHandle]> = workers.clone().into();
        let acceptor = |_| {
            let (sender, new_listeners) = mpsc::unbounded_channel();
            let (limiter, shutdown) = (limiter.clone(), shutdown.clone());
            (sender, Acceptor { new_listeners, limiter, workers: all.clone(), shutdown })
        };
        let (senders, acceptors) = (0..count).map(acceptor).unzip();
        let (settings, limiter) = (settings.clone(), limiter.clone());
        let handle = Acceptors {
            addresses: Vec::new(),
            acceptors: senders,
            workers,
            limiter,
            settings,
            listeners: Vec::new(),
            http3: Http3Endpoints::default(),
        };
        (handle, acceptors)
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Adds a listening socket. Several sockets for one address are distributed over the acceptors.
    pub(crate) fn add(&mut self, mut listener: Listener) -> Result<()> {
        let count = self
            .listeners
            .iter()
            .filter(|entry| entry.address == *listener.local_address())
            .count();
        if count == 0 {
            self.addresses.push(listener.local_address().clone());
            self.serve_http3(&mut listener);
        }
        self.watch_certificates(&listener);
        if !self.settings.reuse_port || !listener.is_shareable() {
            self.assign(0, listener, self.workers.clone());
            return Ok(());
        }
        // The number of inherited sockets may differ from the number of workers.
        let number = count % self.acceptors.len();
        self.assign(number, listener, vec![self.workers[number].clone()]);
        Ok(())
    }

    /// With `reuse_port`, binds a socket for each worker that has none, for every address that
    /// allows it.
    pub(crate) fn add_reuse_port_listeners(&mut self) -> Result<()> {
        if !self.settings.reuse_port {
            return Ok(());
        }
        for address in self.addresses.clone() {
            let mut of_address = self.listeners.iter().filter(|entry| entry.address == address);
            let Some(first) = of_address.next().filter(|first| first.is_shareable) else {
                continue;
            };
            let socket = first.socket.upgrade();
            let secure = (first.tls.clone(), first.alt_svc.clone());
            let count = 1 + of_address.count();
            for number in count..self.acceptors.len() {
                let listener = Listener::bind_another(
                    &address,
                    socket.clone(),
                    secure.clone(),
                    &self.settings,
                )?;
                self.assign(number, listener, vec![self.workers[number].clone()]);
            }
        }
        Ok(())
    }

    /// Serves HTTP/3 on the address of a listener with TLS. If UDP is not available there, the
    /// listener works without.
    #[cfg(feature = "http3")]
    fn serve_http3(&mut self, listener: &mut Listener) {
        let Some(tls) = listener.tls().cloned().filter(|_| self.settings.http3) else { return };
        let bound = listener.bind_http3(self.workers.len());
        if let Some(warning) = listener.http3_warning() {
            self.workers[0].send(WorkerCommand::Report(warning));
        }
        let (workers, limiter) = (self.workers.len(), &self.limiter);
        let served = bound.and_then(|()| self.http3.serve(listener, &tls, limiter, workers));
        match served {
            Ok(listeners) => {
                for (listener, worker) in listeners.into_iter().zip(&self.workers) {
                    worker.send(WorkerCommand::ServeQuic(Box::new(listener)));
                }
            }
            Err(error) => self.workers[0].send(WorkerCommand::Report(error)),
        }
    }

    #[cfg(not(feature = "http3"))]
    fn serve_http3(&mut self, listener: &mut Listener) {
        drop(listener.take_http3());
    }

    /// Gives a socket to the acceptor with this number.
    fn assign(&mut self, number: usize, listener: Listener, workers: Vec<WorkerHandle>) {
        let (close, closed) = oneshot::channel();
        self.listeners.push(ListenerEntry::new(&listener, close));
        // Sending fails only if the acceptor has panicked; then its sockets are closed.
        let _ = self.acceptors[number].send(AddListener { listener, workers, closed });
    }

    /// Makes the first worker reload the certificates of a listener when their files change.
    fn watch_certificates(&self, listener: &Listener) {
        let has = |entry: &ListenerEntry, tls: &Arc<dyn SecureAcceptor>| {
            entry.tls.as_ref().is_some_and(|watched| Arc::ptr_eq(watched, tls))
        };
        let is_new =
            |tls: &&Arc<dyn SecureAcceptor>| !self.listeners.iter().any(|entry| has(entry, tls));
        if let Some(command) =
            listener.tls().filter(is_new).cloned().map(WorkerCommand::WatchCertificates)
        {
            self.workers[0].send(command);
        }
    }

    /// Accepts the connections that the kernel has completed on an address, and closes its sockets.
    /// Returns false if there is no such address.
    pub(crate) fn close(&mut self, address: &LocalAddress) -> bool {
        let matches = |entry: &mut ListenerEntry| entry.address == *address;
        let closed: Vec<ListenerEntry> = self.listeners.extract_if(.., matches).collect();
        self.addresses.retain(|other| other != address);
        let found = !closed.is_empty();
        self.http3.close(address);
        for ListenerEntry { close, .. } in closed {
            // Sending fails only if the acceptor has ended; then its sockets are closed.
            let _ = close.send(());
        }
        found
    }

    /// Returns duplicates of all sockets.
    pub(crate) fn sockets(&self) -> Result<Vec<(LocalAddress, OwnedFd)>> {
        let sockets = self.listeners.iter().filter_map(|entry| {
            let socket = entry.socket.upgrade()?;
            Some(socket.try_clone().map(|socket| (entry.address.clone(), socket)))
        });
        Ok(sockets.collect::<std::io::Result<_>>()?)
    }

    /// Returns the descriptors of HTTP/3 for another process.
    pub(crate) fn http3_descriptors(&self) -> Result<Vec<Http3Descriptor>> {
        self.http3.descriptors()
    }

    /// Sets whether the files of Unix sockets are removed when these close, or stay for another
    /// process that listens on them.
    pub(crate) fn set_remove_socket_files(&self, remove: bool) {
        let files = self.listeners.iter().filter_map(|entry| entry.file.as_ref());
        files.for_each(|file| file.set_remove_on_close(remove));
    }

    /// Passes a stream to a worker. The returned channel closes when the connection is closed;
    /// dropping it closes the connection.
    pub(crate) fn serve(
        &self,
        stream: Box<dyn Io>,
        peer: Peer,
    ) -> Result<oneshot::Receiver<Infallible>> {
        let mut permit = accept::admit_stream(&self.limiter, &peer)?;
        let (caller, served) = oneshot::channel();
        if let Some(worker) = least_busy(self.workers.iter()) {
            permit.count_for_worker(&worker.load);
            worker.send(WorkerCommand::ServeStream { stream, peer, permit, caller });
        }
        Ok(served)
    }

    /// Sets the limits for new connections.
    pub(crate) fn update_settings(&self, settings: &Settings) {
        self.limiter.update_settings(settings);
        for worker in &self.workers {
            worker.send(WorkerCommand::UpdateSettings(Box::new(settings.clone())));
        }
    }
}

impl ListenerEntry {
    fn new(listener: &Listener, close: oneshot::Sender<()>) -> ListenerEntry {
        ListenerEntry {
            address: listener.local_address().clone(),
            socket: listener.socket(),
            is_shareable: listener.is_shareable(),
            file: listener.file(),
            tls: listener.tls().cloned(),
            alt_svc: listener.alt_svc(),
            close,
        }
    }
}

impl WorkerHandle {
    /// Sends a command. Sending fails only if the worker has panicked.
    fn send(&self, command: WorkerCommand) {
        let _ = self.commands.send(command);
    }
}

impl Acceptor {
    /// Accepts from all sockets that it receives, each in its own task, until the server stops.
    pub(crate) async fn run(mut self) {
        let mut accepting = JoinSet::new();
        let mut shutdown = pin!(wait_for_shutdown(self.shutdown.clone()));
        while let Some(added) = poll_fn(|cx| {
            // Finished tasks are removed.
            while let Poll::Ready(Some(_)) = accepting.poll_join_next(cx) {}
            match shutdown.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => self.poll_added(cx).map(Some),
            }
        })
        .await
        {
            self.accept_from(added, &mut accepting);
        }
        // Sockets received just before the shutdown may have connections, too.
        while let Ok(added) = self.new_listeners.try_recv() {
            self.accept_from(added, &mut accepting);
        }
        // A task that panicked accepts no more connections.
        while accepting.join_next().await.is_some() {}
    }

    /// Receives the next socket. Once no more can be added, it stays pending.
    fn poll_added(&mut self, cx: &mut Context<'_>) -> Poll<AddListener> {
        match self.new_listeners.poll_recv(cx) {
            Poll::Ready(Some(added)) => Poll::Ready(added),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn accept_from(&self, added: AddListener, accepting: &mut JoinSet<()>) {
        let AddListener { listener, workers, closed } = added;
        let shutdown = wait_for_shutdown(self.shutdown.clone());
        let stopped = async {
            future::select(pin!(shutdown), pin!(wait_for_close(closed))).await;
        };
        let all = self.workers.clone();
        let workers = ListenerWorkers { serving: workers, all, connections: Cell::new(0) };
        accepting.spawn_local(accept::accept(listener, self.limiter.clone(), workers, stopped));
    }
}

/// The workers as a listener sees them.
struct ListenerWorkers {
    /// Workers that the listener's connections are distributed to.
    serving: Vec<WorkerHandle>,
    all: Arc<[WorkerHandle]>,
    /// Number of accepted connections.
    connections: Cell<usize>,
}

impl Workers for ListenerWorkers {
    /// Sends a connection to the worker with the fewest open connections. Workers with equally many
    /// take turns: short connections often find all of them without any.
    fn deliver(&self, mut accepted: Accepted) {
        let turn = self.connections.get();
        self.connections.set(turn.wrapping_add(1));
        let (later, first) = self.serving.split_at(turn % self.serving.len().max(1));
        if let Some(worker) = least_busy(first.iter().chain(later)) {
            accepted.permit.count_for_worker(&worker.load);
            worker.send(WorkerCommand::Serve(accepted));
        }
    }

    /// Asks the workers one after the other, beginning with the worker that has the most
    /// connections.
    async fn close_idle(&self) -> bool {
        let mut workers: Vec<&WorkerHandle> = self.all.iter().collect();
        workers.sort_by_key(|worker| Reverse(worker.load.load(Relaxed)));
        for worker in workers {
            let (closed_tx, closed_rx) = oneshot::channel();
            worker.send(WorkerCommand::CloseIdle(closed_tx));
            if let Ok(true) = closed_rx.await {
                return true;
            }
        }
        false
    }

    fn report(&self, error: Error) {
        self.all[0].send(WorkerCommand::Report(error));
    }
}

/// Returns the first worker with the fewest open connections. A closed channel means that the
/// worker has panicked. If none is left, the connection is closed.
fn least_busy<'a>(workers: impl Iterator<Item = &'a WorkerHandle>) -> Option<&'a WorkerHandle> {
    let alive = workers.filter(|worker| !worker.commands.is_closed());
    alive.min_by_key(|worker| worker.load.load(Relaxed))
}

/// Waits until a listener is closed.
async fn wait_for_close(closed: oneshot::Receiver<()>) {
    // An error means that the sender was dropped: it can only close with the server.
    if closed.await.is_err() {
        std::future::pending().await
    }
}

/// Waits until the server shuts down.
async fn wait_for_shutdown(mut shutdown: ShutdownSignal) {
    // An error means that the sender was dropped: no shutdown can follow.
    if shutdown.wait_for(Option::is_some).await.is_err() {
        std::future::pending().await
    }
}
