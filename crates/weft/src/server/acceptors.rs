//! Who accepts from which socket, and for which workers.
//!
//! One acceptor serves all workers, in a thread of its own, or each worker has one in its event
//! loop. Sockets come and go while they run.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::error::Result;
use crate::message::request::Stop;
use crate::net::accepted::Accepted;
use crate::net::listen::{self, Bound, Gate, Listener, SocketFile};
use crate::net::tls::Tls;
use crate::server::worker::Errand;
use crate::settings::Settings;

/// All acceptors, as the server's owner has them.
pub(crate) struct Acceptors {
    /// Each address once.
    pub(crate) addresses: Vec<Bound>,
    /// How sockets come to the acceptors: to the one, or to that of each worker.
    mailboxes: Vec<mpsc::UnboundedSender<Post>>,
    desks: Vec<Desk>,
    gate: Arc<Gate>,
    settings: Settings,
    posted: Vec<Posted>,
}

/// A socket that is accepted from, as seen from outside.
struct Posted {
    bound: Bound,
    /// It closes when its acceptor has done with it, whoever else knows it.
    socket: Weak<OwnedFd>,
    is_shareable: bool,
    file: Option<Arc<SocketFile>>,
    tls: Option<Tls>,
    close: oneshot::Sender<()>,
}

/// A socket that an acceptor is to accept from.
struct Post {
    listener: Listener,
    /// Whom the connections are for.
    desks: Vec<Desk>,
    closed: oneshot::Receiver<()>,
}

/// Where errands are left for a worker, and how many connections that one has.
#[derive(Clone)]
pub(crate) struct Desk {
    sender: mpsc::UnboundedSender<Errand>,
    load: Arc<AtomicUsize>,
}

/// One of them, for its event loop.
pub(crate) struct Acceptor {
    mailbox: mpsc::UnboundedReceiver<Post>,
    gate: Arc<Gate>,
    stopped: Stop,
}

/// A desk, and the worker's side of it. The queue is bounded by the connection limit.
pub(crate) fn desk() -> (Desk, mpsc::UnboundedReceiver<Errand>) {
    let (sender, errands) = mpsc::unbounded_channel();
    (Desk { sender, load: Arc::default() }, errands)
}

impl Acceptors {
    /// One acceptor, or one for each desk, as the settings want it. None of them has a
    /// socket yet.
    pub(crate) fn new(
        settings: &Settings,
        desks: Vec<Desk>,
        stopped: &Stop,
    ) -> (Acceptors, Vec<Acceptor>) {
        let gate = Gate::new(settings);
        let count = if settings.reuse_port { desks.len() } else { 1 };
        let acceptor = |_| {
            let (sender, mailbox) = mpsc::unbounded_channel();
            (sender, Acceptor { mailbox, gate: gate.clone(), stopped: stopped.clone() })
        };
        let (mailboxes, acceptors) = (0..count).map(acceptor).unzip();
        let (settings, gate) = (settings.clone(), gate.clone());
        let (addresses, posted) = (Vec::new(), Vec::new());
        (Acceptors { addresses, mailboxes, desks, gate, settings, posted }, acceptors)
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.desks.len()
    }

    /// Has another socket accepted from. Several for one address are dealt out.
    pub(crate) fn add(&mut self, listener: Listener) -> Result<()> {
        let count = self.posted.iter().filter(|known| known.bound == *listener.bound()).count();
        if count == 0 {
            self.addresses.push(listener.bound().clone());
        }
        self.watch(&listener);
        if !self.settings.reuse_port || !listener.is_shareable() {
            self.post(0, listener, self.desks.clone());
            return Ok(());
        }
        // Sockets that were inherited may be more or fewer than there are workers.
        let number = count % self.mailboxes.len();
        self.post(number, listener, vec![self.desks[number].clone()]);
        Ok(())
    }

    /// Gives each worker that has none a socket of its own, where that can be.
    pub(crate) fn complete(&mut self) -> Result<()> {
        if !self.settings.reuse_port {
            return Ok(());
        }
        for bound in self.addresses.clone() {
            let mut of_address = self.posted.iter().filter(|known| known.bound == bound);
            let Some(first) = of_address.next().filter(|first| first.is_shareable) else {
                continue;
            };
            let (tls, count) = (first.tls.clone(), 1 + of_address.count());
            for number in count..self.mailboxes.len() {
                let again = Listener::again(&bound, tls.clone(), &self.settings)?;
                self.post(number, again, vec![self.desks[number].clone()]);
            }
        }
        Ok(())
    }

    fn post(&mut self, number: usize, listener: Listener, desks: Vec<Desk>) {
        let (close, closed) = oneshot::channel();
        self.posted.push(Posted::of(&listener, close));
        // An acceptor that is gone has panicked; its sockets close.
        let _ = self.mailboxes[number].send(Post { listener, desks, closed });
    }

    /// Has the first worker look after the files of a socket's certificates.
    fn watch(&self, listener: &Listener) {
        let is = |known: &Posted, tls: &Tls| known.tls.as_ref().is_some_and(|known| known.is(tls));
        let unknown = |tls: &&Tls| !self.posted.iter().any(|known| is(known, tls));
        if let Some(errand) = listener.tls().filter(unknown).cloned().map(Errand::Watch) {
            self.desks[0].leave(errand);
        }
    }

    /// Accepts what the kernel has completed on an address, and closes its sockets. `false` if
    /// there is no such address.
    pub(crate) fn close(&mut self, bound: &Bound) -> bool {
        let is_it = |known: &mut Posted| known.bound == *bound;
        let closed: Vec<Posted> = self.posted.extract_if(.., is_it).collect();
        self.addresses.retain(|known| known != bound);
        let was_there = !closed.is_empty();
        for Posted { close, .. } in closed {
            // An acceptor that is gone has closed its sockets.
            let _ = close.send(());
        }
        was_there
    }

    /// Duplicates of all sockets.
    pub(crate) fn sockets(&self) -> Result<Vec<(Bound, OwnedFd)>> {
        let sockets = self.posted.iter().filter_map(|known| {
            let socket = known.socket.upgrade()?;
            Some(socket.try_clone().map(|socket| (known.bound.clone(), socket)))
        });
        Ok(sockets.collect::<std::io::Result<_>>()?)
    }

    /// Whether the files of Unix sockets go with them, or are left to another who listens there.
    pub(crate) fn set_files_ours(&self, are_ours: bool) {
        let files = self.posted.iter().filter_map(|known| known.file.as_ref());
        files.for_each(|file| file.set_ours(are_ours));
    }

    /// Sets the limits for connections from now on.
    pub(crate) fn renew(&self, settings: &Settings) {
        self.gate.renew(settings);
        for desk in &self.desks {
            desk.leave(Errand::Renew(Box::new(settings.clone())));
        }
    }
}

impl Posted {
    fn of(listener: &Listener, close: oneshot::Sender<()>) -> Posted {
        Posted {
            bound: listener.bound().clone(),
            socket: listener.socket(),
            is_shareable: listener.is_shareable(),
            file: listener.file(),
            tls: listener.tls().cloned(),
            close,
        }
    }
}

impl Desk {
    /// A worker that is gone has panicked.
    fn leave(&self, errand: Errand) {
        let _ = self.sender.send(errand);
    }
}

impl Acceptor {
    /// Accepts from all sockets that it is given, each in a task, until the server stops.
    pub(crate) async fn run(mut self) {
        let mut accepting = JoinSet::new();
        loop {
            tokio::select! {
                Some(post) = self.mailbox.recv() => self.begin(&mut accepting, post),
                Some(_) = accepting.join_next() => {}
                () = stop(self.stopped.clone()) => break,
            }
        }
        // What was given just before the stop has connections, too.
        while let Ok(post) = self.mailbox.try_recv() {
            self.begin(&mut accepting, post);
        }
        // A task that panicked has nothing more to accept.
        while accepting.join_next().await.is_some() {}
    }

    fn begin(&self, accepting: &mut JoinSet<()>, post: Post) {
        let Post { listener, desks, closed } = post;
        let stopped = stop(self.stopped.clone());
        let ended = async {
            tokio::select! {
                () = stopped => {}
                Ok(()) = closed => {}
            }
        };
        let gate = self.gate.clone();
        let deliver = move |accepted| deliver(accepted, &desks);
        accepting.spawn_local(listen::accept(listener, gate, deliver, ended));
    }
}

/// Gives a connection to the worker that has least to do.
fn deliver(mut accepted: Accepted, desks: &[Desk]) {
    // A worker that is gone has panicked. With none left, connections close.
    let alive = desks.iter().filter(|desk| !desk.sender.is_closed());
    if let Some(desk) = alive.min_by_key(|desk| desk.load.load(Relaxed)) {
        accepted.place.count(&desk.load);
        desk.leave(Errand::Serve(accepted));
    }
}

/// Waits until the server is to stop.
async fn stop(mut stopped: Stop) {
    // An error means that nobody can stop us any more.
    if stopped.wait_for(Option::is_some).await.is_err() {
        std::future::pending().await
    }
}
