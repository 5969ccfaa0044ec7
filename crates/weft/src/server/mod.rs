//! Server: bind, start, run, shut down.

mod acceptors;
mod blocking;
pub(crate) mod connection;
mod date;
mod error_response;
mod exchange;
mod h1;
mod h2;
mod head_buffers;
mod inbound;
mod linger;
#[cfg(feature = "tls")]
mod tls;
mod tls_handshake;
mod upgraded;
pub(crate) mod worker;

use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc, watch};

use crate::app::Application;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Hooks;
use crate::message::request::{Drain, ShutdownSignal};
use crate::net::address::{Address, LocalAddress};
use crate::net::listen::Listener;
use crate::net::reader::Transport;
use crate::net::secure::SecureAcceptor;
use crate::peer::Peer;
use crate::server::acceptors::{Acceptor, Acceptors, WorkerHandle, worker_channel};
use crate::server::worker::{Worker, WorkerCommand};
use crate::settings::Settings;
use crate::stream::Stream;

/// Serves an application on an address, with the default [`Settings`] and one worker for each CPU.
/// Returns only if the server cannot be started.
///
/// # Errors
/// [`Listen`](ErrorKind::Listen) if the address cannot be bound, [`WouldBlock`](ErrorKind::WouldBlock)
/// in a future that a current-thread runtime polls.
///
/// ```no_run
/// use weft::{Request, Response};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello, world!\n") }
///
/// fn main() -> weft::Result<()> { weft::serve("127.0.0.1:8080", hello) }
/// ```
pub fn serve<A>(address: impl ToString, app: A) -> Result<()>
where
    A: Application + Clone + Send + 'static,
{
    Server::new(app).listen(address)?.run()
}

/// A server before it is started: the builder for a [`ServerHandle`].
///
/// ```
/// use std::time::Duration;
/// use weft::{Request, Response, Server};
///
/// # fn main() -> weft::Result<()> {
/// let server = Server::new(async |_: Request| Response::text("Hello\n"))
///     .workers(2)
///     .listen("127.0.0.1:0")?
///     .start()?;
/// println!("listening on {}", server.addresses()[0]);
/// server.shutdown(Duration::from_secs(5));
/// # Ok(())
/// # }
/// ```
pub struct Server<A> {
    make_app: Arc<MakeApp<A>>,
    settings: Settings,
    workers: usize,
    listeners: Vec<Listener>,
    hooks: Option<Arc<MakeHooks>>,
}

type MakeApp<A> = dyn Fn() -> Pin<Box<dyn Future<Output = Result<A>>>> + Send + Sync;

type MakeHooks = dyn Fn() -> Rc<dyn Hooks> + Send + Sync;

impl<A: Application + 'static> Server<A> {
    /// Creates a server for this application, with the default settings, one worker for each
    /// CPU that the process may run on, and no address yet.
    pub fn new(app: A) -> Server<A>
    where
        A: Clone + Send,
    {
        let app = Mutex::new(app);
        Server::per_worker(move || {
            let app = app.lock().unwrap_or_else(PoisonError::into_inner).clone();
            async move { Ok(app) }
        })
    }

    /// Creates a server whose workers each construct their own application, on their own event
    /// loop. Use it for an application that holds values that are not `Send`, or that is
    /// constructed asynchronously, such as one with a pool of database connections.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    /// use weft::{Request, Response, Server};
    ///
    /// let server = Server::per_worker(|| async {
    ///     let count = Rc::new(Cell::new(0));
    ///     Ok(move |_: Request| {
    ///         count.set(count.get() + 1);
    ///         let text = format!("This worker has served {} requests.\n", count.get());
    ///         async move { Response::text(text) }
    ///     })
    /// });
    /// # drop(server);
    /// ```
    ///
    /// If `make` returns an error, [`start`](Server::start), [`run`](Server::run) or
    /// [`serve_connection`](Server::serve_connection) returns it.
    pub fn per_worker<F: Future<Output = Result<A>> + 'static>(
        make: impl Fn() -> F + Send + Sync + 'static,
    ) -> Server<A> {
        Server {
            make_app: Arc::new(move || Box::pin(make())),
            settings: Settings::default(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            listeners: Vec::new(),
            hooks: None,
        }
    }

    /// Sets the limits and timeouts. Call it before [`listen`](Server::listen), which uses some of
    /// them.
    pub fn settings(mut self, settings: Settings) -> Server<A> {
        self.settings = settings;
        self
    }

    /// Sets the number of workers. Each worker is a thread with its own event loop.
    pub fn workers(mut self, workers: usize) -> Server<A> {
        self.workers = workers.max(1);
        self
    }

    /// Adds a listener for an address: `host:port`, `:port`, `[v6]:port` or `unix:PATH`.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if the address is invalid or cannot be bound; the message
    /// gives the reason.
    pub fn listen(self, address: impl ToString) -> Result<Server<A>> {
        self.listen_with(&address.to_string(), None)
    }

    /// Adds a listener for an address, with or without TLS.
    pub(crate) fn listen_with(
        mut self,
        address: &str,
        tls: Option<Arc<dyn SecureAcceptor>>,
    ) -> Result<Server<A>> {
        let address: Address = address.parse()?;
        let listeners = Listener::bind(&address, &self.settings)?.into_iter();
        self.listeners.extend(listeners.map(|listener| listener.with_optional_tls(tls.clone())));
        Ok(self)
    }

    /// Adds a listening socket.
    pub fn listener(mut self, listener: Listener) -> Server<A> {
        self.listeners.push(listener);
        self
    }

    /// Sets the [`Hooks`]. `make` is called once in each worker.
    pub fn hooks<H: Hooks + 'static>(
        mut self,
        make: impl Fn() -> H + Send + Sync + 'static,
    ) -> Server<A> {
        self.hooks = Some(Arc::new(move || Rc::new(make())));
        self
    }

    /// Number of workers that the server will have.
    pub fn worker_count(&self) -> usize {
        self.workers
    }

    /// Starts the server on its own threads.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if a thread or an event loop cannot be created,
    /// [`Listen`](ErrorKind::Listen) if there is no listener, and the error of an application that
    /// cannot be constructed.
    pub fn start(mut self) -> Result<ServerHandle> {
        let listeners = std::mem::take(&mut self.listeners);
        if listeners.is_empty() {
            return Err(Error::new(ErrorKind::Listen, "no listen address was given"));
        }
        let (drain, shutdown) = watch::channel(None);
        let (workers, commands): (Vec<WorkerHandle>, Vec<_>) =
            (0..self.workers).map(|_| worker_channel()).unzip();
        let (mut sockets, acceptors) = Acceptors::new(&self.settings, workers, &shutdown);
        for listener in listeners {
            sockets.add(listener)?;
        }
        sockets.add_reuse_port_listeners()?;
        let shutdown_handle = ShutdownHandle { drain, deadline: Arc::default() };
        let mut handle = ServerHandle { acceptors: sockets, shutdown_handle, threads: Vec::new() };
        match self.start_threads(&mut handle.threads, acceptors, commands, &shutdown) {
            Ok(()) => Ok(handle),
            Err(error) => {
                handle.shutdown(Duration::ZERO);
                Err(error)
            }
        }
    }

    fn start_threads(
        &self,
        threads: &mut Vec<JoinHandle<()>>,
        mut acceptors: Vec<Acceptor>,
        commands: Vec<mpsc::UnboundedReceiver<WorkerCommand>>,
        shutdown: &ShutdownSignal,
    ) -> Result<()> {
        if acceptors.len() < self.workers {
            // A single acceptor for several workers runs on its own thread.
            let acceptors = std::mem::take(&mut acceptors);
            let run = move |runtime: &LocalRuntime, ()| {
                runtime.block_on(async {
                    for acceptor in acceptors {
                        acceptor.run().await;
                    }
                });
            };
            threads.push(spawn("weft-accept".to_owned(), |_| Ok(()), run)?);
        }
        let mut acceptors = acceptors.into_iter();
        for (number, commands) in commands.into_iter().enumerate() {
            let acceptor = acceptors.next();
            let (make_app, settings) = (self.make_app.clone(), self.settings.clone());
            let (hooks, shutdown) = (self.hooks.clone(), shutdown.clone());
            let prepare = move |runtime: &LocalRuntime| runtime.block_on(make_app());
            threads.push(spawn(format!("weft-{number}"), prepare, move |runtime, app| {
                let hooks = hooks.map(|make| make());
                let worker = Worker::new(Rc::new(app), settings, hooks, Arc::new(shutdown));
                runtime.block_on(async move {
                    acceptor.map(|acceptor| tokio::task::spawn_local(acceptor.run()));
                    Rc::new(worker).run(commands).await;
                });
            })?);
        }
        Ok(())
    }

    /// Starts the server and waits until it has stopped. This blocks the thread.
    ///
    /// # Errors
    /// The errors of [`start`](Server::start), and [`WouldBlock`](ErrorKind::WouldBlock) in a future
    /// that a current-thread runtime polls.
    pub fn run(self) -> Result<()> {
        blocking::check_may_block()?;
        self.start()?.wait();
        Ok(())
    }

    /// Serves one connection over any stream, on the caller's task. The timers of the caller's
    /// runtime must be enabled.
    ///
    /// # Errors
    /// The error of an application that cannot be constructed.
    pub async fn serve_connection(&self, stream: impl Stream) -> Result<()> {
        let hooks = self.hooks.as_ref().map(|make| make());
        let (_, shutdown) = watch::channel(None);
        let app = (self.make_app)().await?;
        let worker = Worker::new(Rc::new(app), self.settings.clone(), hooks, Arc::new(shutdown));
        let transport = Transport::Other(Box::new(stream));
        let mut conn = worker.connection(transport, Peer::default());
        worker.connection_opened();
        worker.with_sweeper(worker.serve(&mut conn)).await;
        Ok(())
    }
}

/// Handle to a running server. Dropping it does not stop the server.
///
/// Listeners and limits can be changed while the server runs:
///
/// ```
/// use weft::{Listener, Request, Response, Server, Settings};
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
    threads: Vec<JoinHandle<()>>,
}

impl ServerHandle {
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
    /// [`Listen`](ErrorKind::Listen) if a socket for one of the workers cannot be bound.
    pub fn listen(&mut self, listener: Listener) -> Result<()> {
        self.acceptors.add(listener)?;
        self.acceptors.add_reuse_port_listeners()
    }

    /// Accepts the connections that the kernel has completed on an address, then closes its
    /// sockets. Established connections stay open. Returns `false` if the server does not listen on
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
    /// [`Io`](ErrorKind::Io) if the process has no file descriptors left.
    pub fn sockets(&self) -> Result<Vec<(LocalAddress, OwnedFd)>> {
        self.acceptors.sockets()
    }

    /// Makes the server remove the files of [inherited](crate::Listener::with_socket_file) Unix
    /// sockets when these sockets close. Call it after the last step that can fail, before the
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

    /// Stops a server whose sockets another process has taken over, without an error that a client
    /// can see. Works like [`shutdown`](ServerHandle::shutdown), but an idle connection may send
    /// one more request within `idle_grace`, and the files of Unix sockets are not removed.
    pub fn drain_after_handover(self, grace: Duration, idle_grace: Duration) {
        self.acceptors.set_remove_socket_files(false);
        self.drain(Drain { grace, idle_grace });
    }

    fn drain(self, drain: Drain) {
        let ServerHandle { acceptors, shutdown_handle, threads } = self;
        shutdown_handle.drain.send_replace(Some(drain));
        // The deadline may have been set before the shutdown began.
        let deadline = *shutdown_handle.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        deadline.into_iter().for_each(|grace| shutdown_handle.shorten(grace));
        // Workers run until the last sender of their commands is dropped.
        drop(acceptors);
        join_all(threads);
    }

    /// Waits until the server has stopped. A server that is never stopped runs forever.
    pub fn wait(self) {
        join_all(self.threads);
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

fn join_all(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // The panic hook has already reported the panic of a thread.
        let _ = thread.join();
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// Starts a thread with its own event loop. Returns when `prepare` has finished on that thread,
/// with its error if it failed.
fn spawn<T>(
    name: String,
    prepare: impl FnOnce(&LocalRuntime) -> Result<T> + Send + 'static,
    run: impl FnOnce(&LocalRuntime, T) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let (ready_tx, ready_rx) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(Error::from);
        // The starting thread waits for this result in every case.
        match runtime.and_then(|runtime| Ok((prepare(&runtime)?, runtime))) {
            Ok((prepared, runtime)) => {
                let _ = ready_tx.send(Ok(()));
                run(&runtime, prepared);
                // Does not wait for blocking tasks of the application.
                runtime.shutdown_background();
            }
            Err(error) => drop(ready_tx.send(Err(error))),
        }
    })?;
    match ready_rx.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(ErrorKind::Panicked, "a worker panicked while it started")),
    }
}
