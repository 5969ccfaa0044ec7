//! Server: bind, start, run, shut down.

mod acceptors;
pub(crate) mod connection;
mod date;
mod exchange;
mod h1;
mod h2;
mod head_buffers;
mod inbound;
mod linger;
#[cfg(not(feature = "tls"))]
#[path = "tls_disabled.rs"]
mod tls_handshake;
#[cfg(feature = "tls")]
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
use crate::message::request::{Drain, Stop};
use crate::net::conn::Transport;
use crate::net::listen::{Address, Bound, Listener};
use crate::net::tls::Tls;
use crate::peer::Peer;
use crate::server::acceptors::{Acceptor, Acceptors, Desk, desk};
use crate::server::worker::{Errand, Worker};
use crate::settings::Settings;
use crate::stream::Stream;

/// Serves an application on an address, with the default [`Settings`] and a worker for
/// each CPU. It returns only if that cannot be begun.
///
/// # Errors
/// [`Listen`](ErrorKind::Listen) if the address cannot be listened on.
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

/// A server that is being set up.
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
    /// A server of this application, with the default settings, a worker for each CPU
    /// that the process may run on, and no address yet.
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

    /// A server of an application that each worker makes for itself, on its own event loop:
    /// one that holds what cannot be sent to other threads, or that has to be waited for,
    /// such as connections to a database.
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
    ///         let text = format!("{} requests came to this worker.\n", count.get());
    ///         async move { Response::text(text) }
    ///     })
    /// });
    /// # drop(server);
    /// ```
    ///
    /// An error ends [`start`](Server::start), [`run`](Server::run) or
    /// [`serve_connection`](Server::serve_connection), which return it.
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

    /// Sets the limits and clocks. To be called before [`listen`](Server::listen), which
    /// needs some of them.
    pub fn settings(mut self, settings: Settings) -> Server<A> {
        self.settings = settings;
        self
    }

    /// Sets how many workers there are; each is a thread with its own event loop.
    pub fn workers(mut self, workers: usize) -> Server<A> {
        self.workers = workers.max(1);
        self
    }

    /// Listens on another address: `host:port`, `:port`, `[v6]:port` or `unix:PATH`.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if that cannot be done; the message says why.
    pub fn listen(self, address: impl ToString) -> Result<Server<A>> {
        self.listen_with(&address.to_string(), None)
    }

    /// Listens on another address, with TLS or without.
    pub(crate) fn listen_with(mut self, address: &str, tls: Option<Tls>) -> Result<Server<A>> {
        let address: Address = address.parse()?;
        let listeners = Listener::bind(&address, &self.settings)?.into_iter();
        self.listeners.extend(listeners.map(|listener| listener.secured(tls.clone())));
        Ok(self)
    }

    /// Accepts from a socket that listens already.
    pub fn listener(mut self, listener: Listener) -> Server<A> {
        self.listeners.push(listener);
        self
    }

    /// Sets who is told what happens; the function is called once in each worker.
    pub fn hooks<H: Hooks + 'static>(
        mut self,
        make: impl Fn() -> H + Send + Sync + 'static,
    ) -> Server<A> {
        self.hooks = Some(Arc::new(move || Rc::new(make())));
        self
    }

    /// How many workers there will be.
    pub fn worker_count(&self) -> usize {
        self.workers
    }

    /// Starts the server in threads of its own.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if the system refuses a thread or an event loop; that of an
    /// application that could not be made.
    pub fn start(mut self) -> Result<Running> {
        let listeners = std::mem::take(&mut self.listeners);
        if listeners.is_empty() {
            return Err(Error::new(ErrorKind::Listen, "no address was given to listen on"));
        }
        let (stop, stopped) = watch::channel(None);
        let (desks, queues): (Vec<Desk>, Vec<_>) = (0..self.workers).map(|_| desk()).unzip();
        let (mut sockets, acceptors) = Acceptors::new(&self.settings, desks, &stopped);
        for listener in listeners {
            sockets.add(listener)?;
        }
        sockets.complete()?;
        let hurry = Hurry { stop, most: Arc::default() };
        let mut running = Running { acceptors: sockets, hurry, threads: Vec::new() };
        match self.start_threads(&mut running.threads, acceptors, queues, &stopped) {
            Ok(()) => Ok(running),
            Err(error) => {
                running.shutdown(Duration::ZERO);
                Err(error)
            }
        }
    }

    fn start_threads(
        &self,
        threads: &mut Vec<JoinHandle<()>>,
        mut acceptors: Vec<Acceptor>,
        queues: Vec<mpsc::UnboundedReceiver<Errand>>,
        stopped: &Stop,
    ) -> Result<()> {
        if acceptors.len() < self.workers {
            // One acceptor for several workers has a thread of its own.
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
        for (number, queue) in queues.into_iter().enumerate() {
            let acceptor = acceptors.next();
            let (make_app, settings) = (self.make_app.clone(), self.settings.clone());
            let (hooks, stopped) = (self.hooks.clone(), stopped.clone());
            let prepare = move |runtime: &LocalRuntime| runtime.block_on(make_app());
            threads.push(spawn(format!("weft-{number}"), prepare, move |runtime, app| {
                let hooks = hooks.map(|make| make());
                let worker = Worker::new(Rc::new(app), settings, hooks, Arc::new(stopped));
                runtime.block_on(async move {
                    acceptor.map(|acceptor| tokio::task::spawn_local(acceptor.run()));
                    Rc::new(worker).run(queue).await;
                });
            })?);
        }
        Ok(())
    }

    /// Starts the server and waits for it.
    ///
    /// # Errors
    /// As [`start`](Server::start).
    pub fn run(self) -> Result<()> {
        self.start()?.wait();
        Ok(())
    }

    /// Serves one connection over any stream, on the caller's task. Its runtime must
    /// have its timers enabled.
    ///
    /// # Errors
    /// That of an application that could not be made.
    pub async fn serve_connection(&self, stream: impl Stream) -> Result<()> {
        let hooks = self.hooks.as_ref().map(|make| make());
        let (_, never) = watch::channel(None);
        let app = (self.make_app)().await?;
        let worker = Worker::new(Rc::new(app), self.settings.clone(), hooks, Arc::new(never));
        let transport = Transport::Other(Box::new(stream));
        let mut conn = worker.connection(transport, Peer::default());
        worker.count_in();
        worker.with_clock(worker.serve(&mut conn)).await;
        Ok(())
    }
}

/// A server that runs. Dropping it does not stop it.
///
/// What it listens on and its limits can be changed while it serves:
///
/// ```
/// use weft::{Listener, Request, Response, Server, Settings};
///
/// # fn main() -> weft::Result<()> {
/// let server = Server::new(async |_: Request| Response::text("Hello\n"));
/// let mut running = server.workers(1).listen("127.0.0.1:0")?.start()?;
/// let first = running.addresses()[0].clone();
/// for listener in Listener::bind(&"127.0.0.1:0".parse()?, &Settings::default())? {
///     running.listen(listener)?;
/// }
/// running.unlisten(&first);
/// running.renew(Settings { max_connections: 1_000, ..Settings::default() });
/// assert_eq!(running.addresses().len(), 1);
/// running.shutdown(std::time::Duration::from_secs(5));
/// # Ok(())
/// # }
/// ```
pub struct Running {
    acceptors: Acceptors,
    hurry: Hurry,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// The addresses that it listens on, with the ports that the system chose.
    pub fn addresses(&self) -> &[Bound] {
        &self.acceptors.addresses
    }

    /// How many workers there are.
    pub fn worker_count(&self) -> usize {
        self.acceptors.worker_count()
    }

    /// Accepts from another socket, too. With
    /// [`reuse_port`](Settings::reuse_port) each worker gets a socket of its own, if this one was
    /// made so.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if not all workers can listen there.
    pub fn listen(&mut self, listener: Listener) -> Result<()> {
        self.acceptors.add(listener)?;
        self.acceptors.complete()
    }

    /// Accepts what the kernel has completed on an address, and listens there no more.
    /// Connections stay. `false` if it does not listen there.
    pub fn unlisten(&mut self, address: &Bound) -> bool {
        self.acceptors.close(address)
    }

    /// Sets the limits and clocks of connections from now on; those that are open keep theirs.
    /// The number of workers, `backlog` and `reuse_port` stay as they are.
    pub fn renew(&self, settings: Settings) {
        self.acceptors.renew(&settings);
    }

    /// Duplicates of the sockets that it listens on, for another process that is to take over.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if there are no descriptors left.
    pub fn sockets(&self) -> Result<Vec<(Bound, OwnedFd)>> {
        self.acceptors.sockets()
    }

    /// Has the files of Unix sockets that were [inherited](crate::Listener::with_file) removed when
    /// the sockets close. To be called when nothing can fail any more, before the process that they
    /// come from is told to [retire](Running::retire).
    pub fn claim_files(&self) {
        self.acceptors.set_files_ours(true);
    }

    /// What shortens the time for which a stop waits, for another thread.
    pub fn hurry(&self) -> Hurry {
        self.hurry.clone()
    }

    /// Stops the server and waits until it has: no connection is accepted any more, those
    /// at rest are closed, those that are busy get their response with `Connection: close`,
    /// and what is not done after `grace` is cut.
    pub fn shutdown(self, grace: Duration) {
        self.stop(Drain { grace, patience: Duration::ZERO });
    }

    /// Stops a server whose sockets another process has taken over, so that no client notices:
    /// as [`shutdown`](Running::shutdown), but a connection at rest may bring one more request
    /// within `patience`, and the files of Unix sockets stay.
    pub fn retire(self, grace: Duration, patience: Duration) {
        self.acceptors.set_files_ours(false);
        self.stop(Drain { grace, patience });
    }

    fn stop(self, drain: Drain) {
        let Running { acceptors, hurry, threads } = self;
        hurry.stop.send_replace(Some(drain));
        // Somebody may have been in a hurry before the stop began.
        let most = *hurry.most.lock().unwrap_or_else(PoisonError::into_inner);
        most.into_iter().for_each(|grace| hurry.hasten(grace));
        // Workers run for as long as somebody may send them something.
        drop(acceptors);
        wait(threads);
    }

    /// Waits for the server's end, which is never if nobody stops it.
    pub fn wait(self) {
        wait(self.threads);
    }
}

/// Shortens the time for which a stop waits; from [`Running::hurry`].
///
/// ```
/// # use std::time::Duration;
/// # use weft::{Request, Response, Server};
/// # fn main() -> weft::Result<()> {
/// # let server = Server::new(async |_: Request| Response::text("x")).workers(1);
/// let running = server.listen("127.0.0.1:0")?.start()?;
/// let hurry = running.hurry();
/// let stop = std::thread::spawn(move || running.shutdown(Duration::MAX));
/// // Somebody has lost patience.
/// hurry.finish_within(Duration::from_secs(5));
/// # drop(stop);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Hurry {
    stop: watch::Sender<Option<Drain>>,
    /// What was said last, also before there was a stop.
    most: Arc<Mutex<Option<Duration>>>,
}

impl Hurry {
    /// Has a stop that is under way close connections at rest at once, and cut what is not done
    /// within `grace` from now, or sooner if it was given less. A server that nobody has stopped
    /// serves on; a stop that comes later waits for no more than `grace` from then on.
    pub fn finish_within(&self, grace: Duration) {
        *self.most.lock().unwrap_or_else(PoisonError::into_inner) = Some(grace);
        self.hasten(grace);
    }

    fn hasten(&self, grace: Duration) {
        self.stop.send_if_modified(|drain| match drain {
            Some(drain) => {
                *drain = Drain { grace: drain.grace.min(grace), patience: Duration::ZERO };
                true
            }
            None => false,
        });
    }
}

fn wait(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // A thread that panicked has said so itself.
        let _ = thread.join();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// Starts a thread with an event loop of its own, once all that it needs is there.
fn spawn<T>(
    name: String,
    prepare: impl FnOnce(&LocalRuntime) -> Result<T> + Send + 'static,
    run: impl FnOnce(&LocalRuntime, T) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(Error::from);
        // The starter waits for a word in any case.
        match runtime.and_then(|runtime| Ok((prepare(&runtime)?, runtime))) {
            Ok((prepared, runtime)) => {
                let _ = ready.send(Ok(()));
                run(&runtime, prepared);
                // What the application does in threads of its own may outlast us.
                runtime.shutdown_background();
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    })?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(ErrorKind::Panicked, "a worker could not be prepared")),
    }
}

#[cfg(feature = "tls")]
impl<A: Application + 'static> Server<A> {
    /// Listens on another address, of the same forms as in [`listen`](Server::listen), for
    /// connections that speak TLS.
    ///
    /// While the server runs it loads certificates anew when their files change. If that
    /// fails, [`Hooks::error`](crate::Hooks::error) is told, and the old ones serve on.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if that cannot be done; the message says why.
    pub fn listen_tls(self, address: impl ToString, tls: &Tls) -> Result<Server<A>> {
        self.listen_with(&address.to_string(), Some(tls.clone()))
    }
}
