//! The server, its handles, and its orderly end.

mod acceptors;
pub(crate) mod blocking;
pub(crate) mod connection;
mod connection_life;
mod error_response;
mod exchange;
mod h1;
mod h2;
#[cfg(feature = "http3")]
mod h3;
#[cfg(not(feature = "http3"))]
#[path = "h3_disabled.rs"]
mod h3;
pub(crate) mod handle;
mod handshake_semaphore;
mod head_buffers;
mod inbound;
mod linger;
mod multiplex;
mod threads;
#[cfg(feature = "_tls")]
mod tls;
mod tls_handshake;
mod upgraded;
mod worker;
mod worker_context;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::LocalRuntime;
use tokio::sync::{mpsc, watch};

use crate::app::Application;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Hooks;
use crate::message::shutdown::ShutdownSignal;
use crate::net::IntoAddress;
use crate::net::address::Address;
use crate::net::listen::Listener;
use crate::net::secure::SecureAcceptor;
use crate::peer::Peer;
use crate::server::acceptors::{Acceptor, Acceptors, WorkerHandle, worker_channel};
use crate::server::handle::shutdown_signal;
use crate::server::threads::Threads;
use crate::server::worker::{Worker, WorkerCommand};
use crate::settings::Settings;
use crate::stream::Io;

pub use crate::message::shutdown::Shutdown;
pub use crate::server::handle::{ServerHandle, ShutdownHandle};
pub use crate::settings::{Congestion, Disconnect};

/// Serves an application on an address, with the default [`Settings`] and one worker for each CPU.
/// Returns only if the server cannot be started.
///
/// The application is `Send`, because each worker, a thread, has a clone of it; its futures need
/// not be. If it has an `Rc` or another value that is not `Send`, use an `Arc`, or
/// [`Server::per_worker`].
///
/// # Errors
/// [`Listen`](ErrorKind::Listen) if the address cannot be bound,
/// [`WouldBlock`](ErrorKind::WouldBlock) in a future that a current-thread runtime polls.
///
/// ```no_run
/// use weft::{Request, Response};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello, world!\n") }
///
/// fn main() -> weft::Result<()> { weft::serve("127.0.0.1:8080", hello) }
/// ```
pub fn serve<A>(address: impl IntoAddress, app: A) -> Result<()>
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
    grace: Duration,
    #[cfg(feature = "signal")]
    is_graceful: bool,
}

type MakeApp<A> = dyn Fn() -> Pin<Box<dyn Future<Output = Result<A>>>> + Send + Sync;

type MakeHooks = dyn Fn() -> Rc<dyn Hooks> + Send + Sync;

impl<A: Application + 'static> Server<A> {
    /// Creates a server for this application, with the default settings, one worker for each
    /// CPU that the process may run on, and no address yet.
    ///
    /// The application is `Send`, because each worker, a thread, has a clone of it; its futures
    /// need not be. [`per_worker`](Server::per_worker) is for values that are not `Send`.
    pub fn new(app: A) -> Server<A>
    where
        A: Clone + Send,
    {
        let app = Mutex::new(app);
        Server::per_worker(move || {
            let app = app.lock().unwrap_or_else(PoisonError::into_inner).clone();
            async move { app }
        })
    }

    /// Creates a server whose workers each construct their own application, on their own event
    /// loop. Use it if the application has values that are not `Send`, or if its construction is
    /// asynchronous. [`try_per_worker`](Server::try_per_worker) is for a construction that may
    /// fail.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    /// use weft::{Request, Response, Server};
    ///
    /// let server = Server::per_worker(|| async {
    ///     let count = Rc::new(Cell::new(0));
    ///     move |_: Request| {
    ///         count.set(count.get() + 1);
    ///         let text = format!("This worker has served {} requests.\n", count.get());
    ///         async move { Response::text(text) }
    ///     }
    /// });
    /// # drop(server);
    /// ```
    pub fn per_worker<F>(make: impl Fn() -> F + Send + Sync + 'static) -> Server<A>
    where
        F: Future<Output = A> + 'static,
    {
        Server::try_per_worker(move || {
            let made = make();
            async move { Ok::<_, Error>(made.await) }
        })
    }

    /// Creates a server whose workers each construct their own application, as by
    /// [`per_worker`](Server::per_worker), if the construction may fail: for example if it opens a
    /// pool of database connections.
    ///
    /// ```
    /// use std::rc::Rc;
    /// use weft::{Application, Request, Response, Server};
    ///
    /// async fn make() -> std::io::Result<impl Application> {
    ///     let greeting = Rc::new(std::fs::read_to_string("greeting.txt")?);
    ///     Ok(async move |_: Request| Response::text(greeting.to_string()))
    /// }
    ///
    /// let server = Server::try_per_worker(make);
    /// # drop(server);
    /// ```
    ///
    /// If `make` returns an error, [`start`](Server::start), [`run`](Server::run) or
    /// [`serve_connection`](Server::serve_connection) returns it: an [`Error`] as it is, any other
    /// error, such as `anyhow::Error`, as the source of a
    /// [`ServiceFailed`](ErrorKind::ServiceFailed).
    pub fn try_per_worker<F, E>(make: impl Fn() -> F + Send + Sync + 'static) -> Server<A>
    where
        F: Future<Output = Result<A, E>> + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Server {
            make_app: Arc::new(move || {
                let made = make();
                Box::pin(async move { made.await.map_err(construction_error) })
            }),
            settings: Settings::default(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            listeners: Vec::new(),
            hooks: None,
            grace: shutdown_signal::DEFAULT_GRACE,
            #[cfg(feature = "signal")]
            is_graceful: false,
        }
    }

    /// Wraps the application of each worker, for example in a middleware.
    ///
    /// ```
    /// use weft::middleware::CatchPanic;
    /// use weft::{Application, Request, Response, Server};
    ///
    /// let server = Server::new(async |_: Request| Response::text("Hello\n"));
    /// let server = server.map_application(|app| app.wrap(CatchPanic::new()));
    /// # drop(server);
    /// ```
    pub fn map_application<B: Application + 'static>(
        self,
        wrap: impl Fn(A) -> B + Send + Sync + 'static,
    ) -> Server<B> {
        let make_app = self.make_app;
        let wrap = Arc::new(wrap);
        let make_app = move || {
            let (made, wrap) = (make_app(), wrap.clone());
            async move { made.await.map(|app| wrap(app)) }
        };
        Server {
            settings: self.settings,
            workers: self.workers,
            listeners: self.listeners,
            hooks: self.hooks,
            grace: self.grace,
            #[cfg(feature = "signal")]
            is_graceful: self.is_graceful,
            ..Server::try_per_worker(make_app)
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

    /// Adds a listener for an address: `host:port`, `:port`, `[v6]:port`, `unix:PATH`, or another
    /// value that is [`IntoAddress`].
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if the address is invalid or cannot be bound; the message
    /// gives the reason.
    pub fn listen(self, address: impl IntoAddress) -> Result<Server<A>> {
        self.listen_with(&address.into_address()?, None)
    }

    /// Adds a listener for an address, with or without TLS.
    pub(crate) fn listen_with(
        mut self,
        address: &Address,
        tls: Option<Arc<dyn SecureAcceptor>>,
    ) -> Result<Server<A>> {
        let listeners = Listener::bind(address, &self.settings)?.into_iter();
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

    /// Sets the function that makes the hooks.
    #[cfg(feature = "axum")]
    pub(crate) fn shared_hooks(
        self,
        make: Arc<dyn Fn() -> Rc<dyn Hooks> + Send + Sync>,
    ) -> Server<A> {
        Server { hooks: Some(make), ..self }
    }

    /// Wraps the hooks of each worker.
    pub(crate) fn wrap_hooks<H: Hooks + 'static>(
        mut self,
        wrap: impl Fn(Option<Rc<dyn Hooks>>) -> H + Send + Sync + 'static,
    ) -> Server<A> {
        let make = self.hooks.take();
        self.hooks = Some(Arc::new(move || Rc::new(wrap(make.as_ref().map(|make| make())))));
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
    pub fn start(self) -> Result<ServerHandle> {
        if self.listeners.is_empty() {
            return Err(Error::new(ErrorKind::Listen, "no listen address was given"));
        }
        self.start_workers()
    }

    /// Starts the server even if it has no listener: for connections that are passed to
    /// [`ServerHandle::serve_connection`], or listeners that are
    /// [added](ServerHandle::listen) later.
    ///
    /// # Errors
    /// The errors of [`start`](Server::start), except the error of a missing listener.
    pub fn start_workers(mut self) -> Result<ServerHandle> {
        let listeners = std::mem::take(&mut self.listeners);
        let (drain, shutdown) = watch::channel(None);
        let (workers, commands): (Vec<WorkerHandle>, Vec<_>) =
            (0..self.workers).map(|_| worker_channel()).unzip();
        let (mut sockets, acceptors) = Acceptors::new(&self.settings, workers, &shutdown);
        for listener in listeners {
            sockets.add(listener)?;
        }
        sockets.add_reuse_port_listeners()?;
        let mut handle = ServerHandle::new(sockets, ShutdownHandle::new(drain));
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
        threads: &mut Threads,
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
            threads.spawn("weft-accept".to_owned(), |_| Ok(()), run)?;
        }
        let mut acceptors = acceptors.into_iter();
        for (number, commands) in commands.into_iter().enumerate() {
            let acceptor = acceptors.next();
            let (make_app, settings) = (self.make_app.clone(), self.settings.clone());
            let (hooks, shutdown) = (self.hooks.clone(), shutdown.clone());
            let prepare = move |runtime: &LocalRuntime| runtime.block_on(make_app());
            threads.spawn(format!("weft-{number}"), prepare, move |runtime, app| {
                let hooks = hooks.map(|make| make());
                let worker = Worker::new(Rc::new(app), settings, hooks, Arc::new(shutdown));
                crate::runtime::block_on(runtime, async move {
                    acceptor.map(|acceptor| tokio::task::spawn_local(acceptor.run()));
                    // As a task, it gets an accepted connection without a call of epoll_wait(2)
                    // in between, which would precede the next turn of this future.
                    let running = tokio::task::spawn_local(Rc::new(worker).run(commands));
                    if let Err(error) = running.await
                        && let Ok(panic) = error.try_into_panic()
                    {
                        std::panic::resume_unwind(panic);
                    }
                });
            })?;
        }
        Ok(())
    }

    /// Sets the maximum time for requests in progress at the end of [`run`](Server::run), when it
    /// is [graceful](Server::graceful), and of [`run_until`](Server::run_until).
    ///
    /// Default 30 s.
    pub fn grace_period(self, grace: Duration) -> Server<A> {
        Server { grace, ..self }
    }

    /// Makes [`run`](Server::run) end in order at Ctrl-C (SIGINT) and SIGTERM, on Windows at Ctrl-C
    /// and Ctrl-Break: idle connections close, and requests in progress have the
    /// [`grace_period`](Server::grace_period). A second signal ends it at once.
    ///
    /// ```no_run
    /// use weft::{Request, Response, Server};
    ///
    /// fn main() -> weft::Result<()> {
    ///     let server = Server::new(async |_: Request| Response::text("Hello\n"));
    ///     server.graceful().listen("127.0.0.1:8080")?.run()
    /// }
    /// ```
    #[cfg(feature = "signal")]
    pub fn graceful(self) -> Server<A> {
        Server { is_graceful: true, ..self }
    }

    /// Starts the server and waits until it has stopped. This blocks the thread.
    ///
    /// # Errors
    /// The errors of [`start`](Server::start), and [`WouldBlock`](ErrorKind::WouldBlock) in a
    /// future that a current-thread runtime polls.
    pub fn run(self) -> Result<()> {
        #[cfg(feature = "signal")]
        if self.is_graceful {
            return self.run_until_signals();
        }
        blocking::check_may_block()?;
        self.start()?.wait();
        Ok(())
    }

    /// Starts the server and waits until `signal` is ready, and then until the requests in progress
    /// are answered, or the [`grace_period`](Server::grace_period) is over. This blocks the thread.
    /// The future has an event loop of its own.
    ///
    /// ```
    /// use weft::{Request, Response, Server};
    ///
    /// # fn main() -> weft::Result<()> {
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// # stop.send(()).unwrap();
    /// let server = Server::new(async |_: Request| Response::text("Hello\n"));
    /// server.listen("127.0.0.1:0")?.run_until(async { drop(stopped.await) })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`run`](Server::run).
    pub fn run_until(self, signal: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        blocking::check_may_block()?;
        let grace = self.grace;
        let handle = self.start()?;
        shutdown_signal::block_on_thread(shutdown_signal::run_until(handle, signal, grace))
    }

    #[cfg(feature = "signal")]
    fn run_until_signals(self) -> Result<()> {
        blocking::check_may_block()?;
        let grace = self.grace;
        let start = move || self.start();
        shutdown_signal::block_on_thread(shutdown_signal::run_until_signals(start, grace))?
    }

    /// Serves one connection over any stream, on the caller's task. The timers of the caller's
    /// runtime must be enabled. The future is not `Send`, but the future of
    /// [`ServerHandle::serve_connection`] is.
    ///
    /// # Errors
    /// The error of an application that cannot be constructed.
    pub async fn serve_connection(&self, stream: impl Io) -> Result<()> {
        let hooks = self.hooks.as_ref().map(|make| make());
        let app = Rc::new((self.make_app)().await?);
        let connection = (Box::new(stream) as _, Peer::default());
        serve_stream(app, self.settings.clone(), hooks, connection).await;
        Ok(())
    }
}

/// Converts the error of an application that cannot be constructed.
fn construction_error(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    match error.into().downcast::<Error>() {
        Ok(error) => *error,
        Err(source) => {
            let reason = "the application of a worker cannot be constructed";
            Error::new(ErrorKind::ServiceFailed, reason).with_source(source)
        }
    }
}

/// Serves the connection over a stream, on the task of the caller.
pub(crate) async fn serve_stream<A: Application>(
    app: Rc<A>,
    settings: Settings,
    hooks: Option<Rc<dyn Hooks>>,
    (stream, peer): (Box<dyn Io>, Peer),
) {
    let (_, shutdown) = watch::channel(None);
    Worker::new(app, settings, hooks, Arc::new(shutdown)).serve_connection(stream, peer).await;
}
