//! The replacement for `axum::serve`.

use std::fmt;
use std::future::{Future, IntoFuture, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::axum::listeners::IntoListeners;
use crate::axum::make_service::MakeService;
use crate::error::Result;
use crate::hooks::Hooks;
use crate::net::listen::Listener;
use crate::server::Server;
use crate::server::handle::ServerHandle;
use crate::server::handle::shutdown_signal::DEFAULT_GRACE;
use crate::settings::Settings;
#[cfg(feature = "signal")]
use crate::sys::TerminationSignals;

/// Serves a router like `axum::serve`, with the engine of Weft: its own threads do the input, the
/// output and the protocol, and the handlers run on the runtime of the caller. So everything in
/// that runtime works as before: pools, `tokio::spawn`, `block_in_place`. A handler starts on the
/// thread of its connection, in the context of that runtime, and becomes a task of it when it has
/// to wait ([`tower::on_runtime`](crate::tower::on_runtime)).
///
/// The listener may be a socket of tokio or of the standard library, or an address. The server
/// starts when the future is first polled, and stops when it is dropped.
///
/// ```
/// # #[tokio::main]
/// # async fn main() {
/// use axum::{Router, routing::get};
///
/// let router = Router::new().route("/", get(async || "Hello, world!\n"));
/// let server = weft::axum::serve("127.0.0.1:0", router);
/// println!("listening on {}", server.local_addr().unwrap());
/// # let shutdown_signal = async {};
/// server.with_graceful_shutdown(shutdown_signal).await.unwrap();
/// # }
/// ```
///
/// [`handlers_as_tasks`](Serve::handlers_as_tasks) starts them on the threads of the runtime, and
/// [`handlers_on_workers`](Serve::handlers_on_workers) does without that runtime.
/// For TLS and all other options of a server, use [`app`](super::app) with
/// [`Server`](crate::Server), or a [`Listener`](crate::net::Listener) with TLS.
pub fn serve<M: MakeService>(listeners: impl IntoListeners, make_service: M) -> Serve<M> {
    Serve {
        listeners: listeners.into_listeners(),
        make_service,
        settings: Settings::for_frameworks(),
        workers: None,
        handlers: Handlers::OnRuntime,
        signal: Box::pin(pending()),
        grace: DEFAULT_GRACE,
        hooks: None,
        #[cfg(feature = "signal")]
        is_graceful: false,
    }
}

/// A server that starts when it is awaited; returned by [`serve`].
#[must_use = "a server starts when it is awaited"]
pub struct Serve<M> {
    listeners: Result<Vec<Listener>>,
    make_service: M,
    settings: Settings,
    workers: Option<usize>,
    handlers: Handlers,
    signal: Pin<Box<dyn Future<Output = ()> + Send>>,
    grace: Duration,
    hooks: Option<Arc<MakeHooks>>,
    #[cfg(feature = "signal")]
    is_graceful: bool,
}

/// Makes the hooks of a worker.
type MakeHooks = dyn Fn() -> Rc<dyn Hooks> + Send + Sync;

/// The threads on which the handlers run.
#[derive(Clone, Copy, Debug)]
enum Handlers {
    OnRuntime,
    AsTasks,
    OnWorkers,
}

impl<M: MakeService> Serve<M> {
    /// Stops the server when `signal` is ready: idle connections close, and connections in use have
    /// the [`grace_period`](Serve::grace_period).
    pub fn with_graceful_shutdown<F>(self, signal: F) -> Serve<M>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Serve { signal: Box::pin(signal), ..self }
    }

    /// Stops the server in order at Ctrl-C (SIGINT) and SIGTERM, as
    /// [`with_graceful_shutdown`](Serve::with_graceful_shutdown) does.
    #[cfg(feature = "signal")]
    pub fn graceful(self) -> Serve<M> {
        Serve { is_graceful: true, ..self }
    }

    /// Sets the [`Hooks`]. `make` is called once in each worker.
    ///
    /// ```
    /// use weft::hooks::Record;
    /// use weft::Hooks;
    ///
    /// struct Log;
    ///
    /// impl Hooks for Log {
    ///     fn on_response(&self, record: &Record<'_>) {
    ///         println!("{}", record.status);
    ///     }
    /// }
    ///
    /// let server = weft::axum::serve("127.0.0.1:0", axum::Router::new()).hooks(|| Log);
    /// # drop(server);
    /// ```
    pub fn hooks<H: Hooks + 'static>(
        self,
        make: impl Fn() -> H + Send + Sync + 'static,
    ) -> Serve<M> {
        let hooks: Arc<MakeHooks> = Arc::new(move || Rc::new(make()));
        Serve { hooks: Some(hooks), ..self }
    }

    /// Sets the maximum time for requests in progress and for WebSockets after the shutdown signal.
    ///
    /// Default 30 s. `axum::serve` waits for requests without a limit, and for no WebSocket.
    pub fn grace_period(self, grace: Duration) -> Serve<M> {
        Serve { grace, ..self }
    }

    /// Sets the limits and timeouts. The settings of listening sockets are not used.
    ///
    /// Default [`Settings::for_frameworks`].
    pub fn settings(self, settings: Settings) -> Serve<M> {
        Serve { settings, ..self }
    }

    /// Sets the number of workers.
    ///
    /// Default one for each CPU.
    pub fn workers(self, workers: usize) -> Serve<M> {
        Serve { workers: Some(workers), ..self }
    }

    /// Runs each handler as a task of the caller's runtime from its start, for handlers that
    /// compute for a long time or need the threads of that runtime. Each request then wakes a
    /// thread of the runtime, and each response the worker.
    pub fn handlers_as_tasks(self) -> Serve<M> {
        Serve { handlers: Handlers::AsTasks, ..self }
    }

    /// Runs the handlers on the workers, which costs the least CPU time. Each worker is a
    /// single-threaded runtime: tasks that a handler spawns stay there, and `block_in_place`
    /// panics.
    pub fn handlers_on_workers(self) -> Serve<M> {
        Serve { handlers: Handlers::OnWorkers, ..self }
    }

    /// Returns the address of the first socket.
    ///
    /// # Errors
    /// If an address could not be bound, or if the socket is a Unix socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.listeners {
            Ok(listeners) => {
                let first = listeners.first().and_then(|it| it.local_address().address());
                first.ok_or_else(|| io::ErrorKind::Unsupported.into())
            }
            Err(error) => Err(io::Error::new(io::ErrorKind::AddrNotAvailable, error.to_string())),
        }
    }

    async fn run(self) -> Result<()> {
        #[cfg(feature = "signal")]
        let signal = match self.is_graceful {
            true => {
                let mut signals = TerminationSignals::register()?;
                let asked = self.signal;
                Box::pin(async move {
                    futures_util::future::select(asked, std::pin::pin!(signals.next())).await;
                })
            }
            false => self.signal,
        };
        #[cfg(not(feature = "signal"))]
        let signal = self.signal;
        let Serve { listeners, make_service, settings, workers, handlers, grace, hooks, .. } = self;
        let app = super::app(make_service);
        let app = match handlers {
            Handlers::OnRuntime => app.handlers_on(Handle::current()),
            Handlers::AsTasks => app.handlers_as_tasks(Handle::current()),
            Handlers::OnWorkers => app,
        };
        let mut server = Server::new(app).settings(settings);
        if let Some(workers) = workers {
            server = server.workers(workers);
        }
        if let Some(hooks) = hooks {
            server = server.shared_hooks(hooks);
        }
        for listener in listeners? {
            server = server.listener(listener);
        }
        let mut running = RunningServer { handle: Some(server.start()?), grace };
        signal.await;
        if let Some(handle) = running.handle.take() {
            handle.shutdown_async(grace).await;
        }
        Ok(())
    }
}

/// Stops the server if its future is dropped.
struct RunningServer {
    handle: Option<ServerHandle>,
    grace: Duration,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // The shutdown continues without its future.
            drop(handle.shutdown_async(self.grace));
        }
    }
}

impl<M: MakeService> IntoFuture for Serve<M> {
    type Output = io::Result<()>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        ServeFuture(Box::pin(async move { self.run().await.map_err(io::Error::other) }))
    }
}

impl<M: fmt::Debug> fmt::Debug for Serve<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Serve { listeners, make_service, handlers, grace, .. } = self;
        f.debug_struct("Serve")
            .field("listeners", listeners)
            .field("make_service", make_service)
            .field("handlers", handlers)
            .field("grace", grace)
            .finish_non_exhaustive()
    }
}

/// Future of [`Serve`].
pub struct ServeFuture(Pin<Box<dyn Future<Output = io::Result<()>> + Send>>);

impl Future for ServeFuture {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ServeFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServeFuture")
    }
}
