//! Handles to a running server: listeners and limits, connections, shutdown.

pub(crate) mod shutdown_signal; // the end of a server at a signal

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::error::Result;
use crate::message::shutdown::Drain;
use crate::net::address::LocalAddress;
use crate::net::http3_descriptor::Http3Descriptor;
use crate::net::listen::Listener;
use crate::peer::Peer;
use crate::server::acceptors::Acceptors;
use crate::server::threads::Threads;
use crate::settings::Settings;
use crate::stream::Io;
use crate::sys::OwnedFd;

/// Handle to a running server. Dropping it does not stop the server.
///
/// Listeners and limits can be changed while the server runs:
///
/// ```
/// use weft::net::Listener;
/// use weft::{Request, Response, Server, Settings};
///
/// # fn main() -> weft::Result<()> {
/// let server = Server::new(async |_: Request| Response::text("Hello\n"));
/// let mut handle = server.workers(1).listen("127.0.0.1:0")?.start()?;
/// let first = handle.addresses()[0].clone();
/// for listener in Listener::bind(&"127.0.0.1:0".parse()?, &Settings::default())? {
///     handle.listen(listener)?;
/// }
/// handle.stop_listening(&first);
/// handle.update_settings(Settings { max_connections: 1_000, ..Settings::default() });
/// assert_eq!(handle.addresses().len(), 1);
/// handle.shutdown(std::time::Duration::from_secs(5));
/// # Ok(())
/// # }
/// ```
pub struct ServerHandle {
    acceptors: Acceptors,
    shutdown_handle: ShutdownHandle,
    pub(super) threads: Threads,
}

impl ServerHandle {
    pub(super) fn new(acceptors: Acceptors, shutdown_handle: ShutdownHandle) -> ServerHandle {
        ServerHandle { acceptors, shutdown_handle, threads: Threads::new() }
    }

    /// Addresses that the server listens on, with the ports assigned by the system.
    pub fn addresses(&self) -> &[LocalAddress] {
        &self.acceptors.addresses
    }

    /// Number of workers.
    pub fn worker_count(&self) -> usize {
        self.acceptors.worker_count()
    }

    /// Adds a listening socket. With [`reuse_port`](Settings::reuse_port), and if `listener` was
    /// bound with that setting, each worker gets a socket of its own for the address.
    ///
    /// # Errors
    /// [`Listen`](crate::ErrorKind::Listen) if a socket for one of the workers cannot be bound.
    pub fn listen(&mut self, listener: Listener) -> Result<()> {
        self.acceptors.add(listener)?;
        self.acceptors.add_reuse_port_listeners()
    }

    /// Accepts the connections that the kernel has completed on an address, then closes its
    /// sockets. Established connections stay open. Returns false if the server does not listen on
    /// the address.
    pub fn stop_listening(&mut self, address: &LocalAddress) -> bool {
        self.acceptors.close(address)
    }

    /// Sets the limits and timeouts of new connections; established connections keep theirs. The
    /// number of workers, `backlog` and `reuse_port` do not change.
    pub fn update_settings(&self, settings: Settings) {
        self.acceptors.update_settings(&settings);
    }

    /// Returns duplicates of the listening sockets, for a process that takes over from this one.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if the process has no file descriptors left.
    pub fn sockets(&self) -> Result<Vec<(LocalAddress, OwnedFd)>> {
        self.acceptors.sockets()
    }

    /// Returns duplicates of the UDP sockets of HTTP/3, and channels to the processes whose
    /// connections have not ended, for a process that takes over from this one. Call it once for each
    /// such process. After [`drain_after_handover`](ServerHandle::drain_after_handover), this server
    /// receives only datagrams that the other process forwards, until that process ends.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if the process has no file descriptors left, or if the system has
    /// no channels between processes.
    pub fn http3_descriptors(&self) -> Result<Vec<Http3Descriptor>> {
        self.acceptors.http3_descriptors()
    }

    /// Makes the server remove the files of [inherited](crate::net::Listener::with_socket_file)
    /// Unix sockets when these sockets close. Call it after the last step that can fail, before the
    /// previous process [drains](ServerHandle::drain_after_handover).
    pub fn claim_socket_files(&self) {
        self.acceptors.set_remove_socket_files(true);
    }

    /// Returns a handle by which another thread can shorten the grace period of a shutdown.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown_handle.clone()
    }

    /// Stops the server and waits until it has stopped. No more connections are accepted, idle
    /// connections are closed, busy connections get their response with `Connection: close`, and
    /// connections still open after `grace` are closed.
    pub fn shutdown(self, grace: Duration) {
        self.drain(Drain { grace, idle_grace: Duration::ZERO });
    }

    /// Like [`shutdown`](ServerHandle::shutdown), without blocking the thread. Dropping the future
    /// does not end the shutdown.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use weft::{Request, Response, Server};
    /// # async fn example() -> weft::Result<()> {
    /// let server = Server::new(async |_: Request| Response::text("Hello\n"));
    /// let mut handle = server.listen("127.0.0.1:0")?.start()?;
    /// tokio::select! {
    ///     () = handle.ended() => {}
    ///     _ = tokio::signal::ctrl_c() => handle.shutdown_async(Duration::from_secs(5)).await,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn shutdown_async(self, grace: Duration) -> impl Future<Output = ()> + Send + 'static {
        let mut threads = self.begin_drain(Drain { grace, idle_grace: Duration::ZERO });
        async move { threads.ended().await }
    }

    /// Stops a server after another process has taken over its sockets. No client sees an error.
    /// Works like [`shutdown`](ServerHandle::shutdown), but an idle connection may send one more
    /// request within `idle_grace`, and the files of Unix sockets are not removed.
    pub fn drain_after_handover(self, grace: Duration, idle_grace: Duration) {
        self.acceptors.set_remove_socket_files(false);
        self.drain(Drain { grace, idle_grace });
    }

    fn drain(self, drain: Drain) {
        self.begin_drain(drain).join();
    }

    /// Begins a shutdown. Returns the threads, which end with it.
    fn begin_drain(self, drain: Drain) -> Threads {
        let ServerHandle { acceptors, shutdown_handle, threads } = self;
        shutdown_handle.drain.send_replace(Some(drain));
        // The deadline may have been set before the shutdown began.
        let deadline = *shutdown_handle.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        deadline.into_iter().for_each(|grace| shutdown_handle.shorten(grace));
        // Workers run until the last sender of their commands is dropped.
        drop(acceptors);
        threads
    }

    /// Waits until the server has stopped. A server that is never stopped runs forever.
    pub fn wait(self) {
        self.threads.join();
    }

    /// Like [`wait`](ServerHandle::wait), without blocking the thread.
    pub async fn ended(&mut self) {
        self.threads.ended().await;
    }

    /// Serves a connection over any stream, on the worker with the fewest connections, until it
    /// closes. Dropping the future closes it. It has the limits of accepted connections. If the
    /// stream needs tasks of a runtime, as a socket does, they must continue to run.
    ///
    /// ```
    /// use weft::net::Peer;
    /// use weft::{Request, Response, Server};
    ///
    /// # async fn example() -> weft::Result<()> {
    /// let server = Server::new(async |_: Request| Response::text("Hello\n")).start_workers()?;
    /// let (client, stream) = tokio::io::duplex(4096);
    /// tokio::spawn(server.serve_connection(stream, Peer::default()));
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Accept`](crate::ErrorKind::Accept) at the maximum number of connections, in total or of
    /// the peer.
    pub fn serve_connection(
        &self,
        stream: impl Io,
        peer: Peer,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let served = self.acceptors.serve(Box::new(stream), peer);
        async move {
            // The worker sends nothing; it drops the sender at the end of the connection.
            let _ = served?.await;
            Ok(())
        }
    }
}

/// Shortens the grace period of a shutdown; returned by
/// [`ServerHandle::shutdown_handle`].
///
/// ```
/// # use std::time::Duration;
/// # use weft::{Request, Response, Server};
/// # fn main() -> weft::Result<()> {
/// # let server = Server::new(async |_: Request| Response::text("x")).workers(1);
/// let handle = server.listen("127.0.0.1:0")?.start()?;
/// let shutdown = handle.shutdown_handle();
/// let thread = std::thread::spawn(move || handle.shutdown(Duration::MAX));
/// // The operator asks for a faster shutdown.
/// shutdown.set_deadline(Duration::from_secs(5));
/// # drop(thread);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    drain: watch::Sender<Option<Drain>>,
    /// Grace period set last, also before a shutdown has begun.
    deadline: Arc<Mutex<Option<Duration>>>,
}

impl ShutdownHandle {
    pub(super) fn new(drain: watch::Sender<Option<Drain>>) -> ShutdownHandle {
        ShutdownHandle { drain, deadline: Arc::default() }
    }

    /// Limits the rest of a shutdown: idle connections are closed at once, and connections still
    /// open after `grace` from now are closed. It never extends a shorter grace period. If no
    /// shutdown is in progress, the server continues to run, and a later shutdown gets a grace
    /// period of at most `grace`.
    pub fn set_deadline(&self, grace: Duration) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Some(grace);
        self.shorten(grace);
    }

    fn shorten(&self, grace: Duration) {
        self.drain.send_if_modified(|drain| match drain {
            Some(drain) => {
                *drain = Drain { grace: drain.grace.min(grace), idle_grace: Duration::ZERO };
                true
            }
            None => false,
        });
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}
