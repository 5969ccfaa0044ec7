//! Server: bind, start, run, shut down.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc, watch};

use crate::app::Application;
use crate::conn::{Stream, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Hooks;
use crate::listen::{self, Address, Bound, Gate, Listener};
use crate::request::{Peer, Stop};
use crate::settings::Settings;
use crate::tls::Tls;
use crate::worker::{Accepted, Worker};

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

type MakeHooks = dyn Fn() -> Box<dyn Hooks> + Send + Sync;

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

    /// Sets who is told what happens; the function is called once in each worker.
    pub fn hooks<H: Hooks + 'static>(
        mut self,
        make: impl Fn() -> H + Send + Sync + 'static,
    ) -> Server<A> {
        self.hooks = Some(Arc::new(move || Box::new(make())));
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
    pub fn start(self) -> Result<Running> {
        let addresses = self.listeners.iter().map(|listener| listener.bound.clone()).collect();
        let (stop, stopped) = watch::channel(None);
        let mut running = Running { addresses, stop, threads: Vec::new() };
        match self.start_threads(&mut running.threads, stopped) {
            Ok(()) => Ok(running),
            Err(error) => {
                running.shutdown(Duration::ZERO);
                Err(error)
            }
        }
    }

    fn start_threads(mut self, threads: &mut Vec<JoinHandle<()>>, stopped: Stop) -> Result<()> {
        if self.listeners.is_empty() {
            return Err(Error::new(ErrorKind::Listen, "no address was given to listen on"));
        }
        let mut watched = self.watched();
        let (desks, queues): (Vec<Desk>, Vec<_>) = (0..self.workers).map(|_| desk()).unzip();
        let mut acceptors = self.acceptors(&desks, &stopped)?;
        drop(desks);
        if acceptors.len() < self.workers {
            // One acceptor for several workers has a thread of its own.
            let acceptors = std::mem::take(&mut acceptors);
            threads.push(spawn(
                "weft-accept".to_owned(),
                |_| Ok(()),
                move |runtime, ()| {
                    runtime.block_on(async {
                        let tasks: Vec<_> =
                            acceptors.into_iter().flat_map(Acceptor::spawn).collect();
                        for task in tasks {
                            // A task that panicked has nothing more to accept.
                            let _ = task.await;
                        }
                    });
                },
            )?);
        }
        let mut acceptors = acceptors.into_iter();
        for (number, queue) in queues.into_iter().enumerate() {
            let acceptor = acceptors.next();
            let (make_app, settings) = (self.make_app.clone(), self.settings.clone());
            let (hooks, stopped) = (self.hooks.clone(), stopped.clone());
            // The first worker does so for all.
            let watched = std::mem::take(&mut watched);
            let prepare = move |runtime: &LocalRuntime| runtime.block_on(make_app());
            threads.push(spawn(format!("weft-{number}"), prepare, move |runtime, app| {
                let hooks = hooks.map(|make| make());
                let worker = Rc::new(Worker::new(app, settings, hooks, stopped));
                runtime.block_on(async move {
                    acceptor.map(Acceptor::spawn);
                    watched.into_iter().for_each(|tls| worker.clone().keep_current(tls));
                    worker.run(queue).await;
                });
            })?);
        }
        Ok(())
    }

    /// What is served with TLS, each once: their files may change.
    fn watched(&self) -> Vec<Tls> {
        let all: Vec<&Tls> = self.listeners.iter().filter_map(|l| l.tls.as_ref()).collect();
        let is_first = |at: &usize| !all[..*at].iter().any(|known| known.is(all[*at]));
        (0..all.len()).filter(is_first).map(|at| all[at].clone()).collect()
    }

    /// One acceptor for all workers, or one for each.
    fn acceptors(&mut self, desks: &[Desk], stopped: &Stop) -> Result<Vec<Acceptor>> {
        let gate = Gate::new(&self.settings);
        let acceptor = |sockets| Acceptor { sockets, gate: gate.clone(), stopped: stopped.clone() };
        let listeners = std::mem::take(&mut self.listeners);
        if !self.settings.reuse_port {
            let sockets = listeners.into_iter().map(|listener| (listener, desks.to_vec()));
            return Ok(vec![acceptor(sockets.collect())]);
        }
        let mut others = Vec::new();
        for desk in &desks[1..] {
            let again = listeners.iter().filter_map(|listener| listener.again(&self.settings));
            let sockets = again.map(|listener| Ok((listener?, vec![desk.clone()])));
            others.push(acceptor(sockets.collect::<Result<_>>()?));
        }
        let sockets = listeners.into_iter().map(|listener| match listener.bound {
            Bound::Tcp(_) | Bound::Tls(_) => (listener, desks[..1].to_vec()),
            Bound::Unix(_) | Bound::UnixTls(_) => (listener, desks.to_vec()),
        });
        others.insert(0, acceptor(sockets.collect()));
        Ok(others)
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
        let worker = Worker::new(app, self.settings.clone(), hooks, never);
        let transport = Transport::Other(Box::new(stream));
        let mut conn = worker.connection(transport, Peer::default());
        worker.count_in();
        worker.with_clock(worker.serve(&mut conn)).await;
        Ok(())
    }
}

/// A server that runs. Dropping it does not stop it.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<Bound>,
    stop: watch::Sender<Option<Duration>>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// The addresses that it listens on, with the ports that the system chose.
    pub fn addresses(&self) -> &[Bound] {
        &self.addresses
    }

    /// Stops the server and waits until it has: no connection is accepted any more, those
    /// at rest are closed, those that are busy get their response with `Connection: close`,
    /// and what is not done after `grace` is cut.
    pub fn shutdown(self, grace: Duration) {
        self.stop.send_replace(Some(grace));
        self.wait();
    }

    /// Waits for the server's end, which is never if nobody stops it.
    pub fn wait(self) {
        for thread in self.threads {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

/// Where acceptors leave connections for a worker, and how many that one has.
#[derive(Clone)]
struct Desk {
    sender: mpsc::UnboundedSender<Accepted>,
    load: Arc<AtomicUsize>,
}

/// A desk, and the worker's side of it. The queue is bounded by the connection limit.
fn desk() -> (Desk, mpsc::UnboundedReceiver<Accepted>) {
    let (sender, accepted) = mpsc::unbounded_channel();
    (Desk { sender, load: Arc::default() }, accepted)
}

/// Accepts from some sockets, each for some workers.
struct Acceptor {
    sockets: Vec<(Listener, Vec<Desk>)>,
    gate: Arc<Gate>,
    stopped: Stop,
}

impl Acceptor {
    /// Accepts from each socket in a task, for the worker that has least to do.
    fn spawn(self) -> Vec<tokio::task::JoinHandle<()>> {
        let Acceptor { sockets, gate, stopped } = self;
        let accept = |(listener, desks): (Listener, Vec<Desk>)| {
            let (gate, mut stopped) = (gate.clone(), stopped.clone());
            tokio::task::spawn_local(async move {
                let deliver = |mut accepted: Accepted| {
                    // A worker that is gone has panicked. With none left, connections close.
                    let alive = desks.iter().filter(|desk| !desk.sender.is_closed());
                    let Some(desk) = alive.min_by_key(|desk| desk.load.load(Relaxed)) else {
                        return;
                    };
                    accepted.place.count(&desk.load);
                    let _ = desk.sender.send(accepted);
                };
                let stopped = async move {
                    // An error means that nobody can stop us any more.
                    if stopped.wait_for(Option::is_some).await.is_err() {
                        std::future::pending().await
                    }
                };
                listen::accept(listener, gate, deliver, stopped).await;
            })
        };
        sockets.into_iter().map(accept).collect()
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
