//! The listening sockets of all streams, and the threads that serve their connections.

mod datagrams; // sessions of UDP

use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until, timeout};
use weft::net::{Listener, LocalAddress};
use weft_upstream::ThrottledWarning;

use self::datagrams::Receiving;
use crate::base::sys::{AsFd, OwnedFd};
use crate::open::active_plan::PlanReceiver;
use crate::sections::tls::{CHECK_INTERVAL, OpenedTls, log_reload_failure};
use crate::sockets::{BoundSocket, ListenSpec, SocketSource};
use crate::stream::record::{ConnectionRecord, StreamProtocol};
use crate::stream::{End, connection};

/// Delay after a failure to accept a connection, such as one for lack of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum time to drop the connections that remain at a stop, and to end lookups of names.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The server of all streams. Its threads start with the first socket.
pub(crate) struct StreamServer {
    plans: PlanReceiver,
    threads: usize,
    runtime: Option<Runtime>,
    sockets: Vec<Socket>,
    datagrams: Vec<DatagramSocket>,
    /// Closes when each accepting task and each connection has ended.
    active: (mpsc::Sender<Infallible>, mpsc::Receiver<Infallible>),
    deadline: watch::Sender<Option<Instant>>,
}

struct Socket {
    listener: Listener,
    /// Ends the accepting task when it is dropped.
    _close: oneshot::Sender<Infallible>,
}

struct DatagramSocket {
    socket: Arc<UdpSocket>,
    spec: ListenSpec,
    /// Ends the receiving task when it is dropped.
    _close: oneshot::Sender<Infallible>,
}

/// Limits the time for which a stopping server waits for its connections.
#[derive(Clone)]
pub(crate) struct StreamDeadline(watch::Sender<Option<Instant>>);

impl StreamServer {
    /// Creates a server without sockets. The active plan has the settings of streams.
    pub(crate) fn new(plans: PlanReceiver, threads: usize) -> StreamServer {
        let (runtime, sockets, datagrams) = (None, Vec::new(), Vec::new());
        let (active, deadline) = (mpsc::channel(1), watch::Sender::new(None));
        StreamServer { plans, threads, runtime, sockets, datagrams, active, deadline }
    }

    /// Accepts connections or datagrams of a socket, for the stream with its address in the
    /// configuration.
    ///
    /// # Errors
    /// If the process has no descriptors left, or if no thread can be started.
    pub(crate) fn listen(&mut self, socket: BoundSocket, spec: &ListenSpec) -> Result<(), String> {
        let SocketSource::Config(address) = &spec.source else { return Ok(()) };
        let accepting = match socket {
            BoundSocket::Listener(listener) => self.accept_from(listener, address.clone()),
            BoundSocket::Datagram(socket) => self.receive_from(socket, spec, address.clone()),
        };
        accepting.map_err(|error| format!("cannot accept connections of {address}: {error}"))
    }

    /// Starts the threads, unless they run.
    fn runtime(&mut self) -> io::Result<&Runtime> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => {
                let threads = Builder::new_multi_thread()
                    .worker_threads(self.threads)
                    .thread_name("stream")
                    .enable_all()
                    .build()?;
                threads.spawn(maintain(self.plans.clone()));
                threads
            }
        };
        Ok(self.runtime.insert(runtime))
    }

    fn receive_from(
        &mut self,
        socket: std::net::UdpSocket,
        spec: &ListenSpec,
        address: String,
    ) -> io::Result<()> {
        let (plans, active) = (self.plans.clone(), self.active.0.clone());
        let runtime = self.runtime()?;
        let _context = runtime.enter();
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let (close, closed) = oneshot::channel();
        let task = Receiving { socket: socket.clone(), address, plans, active };
        runtime.spawn(task.run(closed));
        self.datagrams.push(DatagramSocket { socket, spec: spec.clone(), _close: close });
        Ok(())
    }

    fn accept_from(&mut self, listener: Listener, address: String) -> io::Result<()> {
        let socket = listener.as_fd().try_clone_to_owned()?;
        let (plans, active) = (self.plans.clone(), self.active.0.clone());
        let runtime = self.runtime()?;
        let _context = runtime.enter();
        let socket = TcpListener::from_std(std::net::TcpListener::from(socket))?;
        let (close, closed) = oneshot::channel();
        let task = Accepting { socket, address, plans, active };
        runtime.spawn(task.run(closed));
        self.sockets.push(Socket { listener, _close: close });
        Ok(())
    }

    /// Addresses that the server listens on, with the scheme `tcp` or `udp`.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = String> {
        let tcp = |socket: &Socket| {
            socket.listener.local_address().address().map(|address| format!("tcp://{address}"))
        };
        let udp = |it: &DatagramSocket| {
            it.socket.local_addr().ok().map(|address| format!("udp://{address}"))
        };
        self.sockets.iter().filter_map(tcp).chain(self.datagrams.iter().filter_map(udp))
    }

    /// Accepts the connections that the kernel has completed on an address, then closes its socket.
    pub(crate) fn stop_listening(&mut self, address: &LocalAddress) {
        self.sockets.retain(|socket| socket.listener.local_address() != address);
    }

    /// Stops receiving datagrams for an address. Its sessions get the responses of upstreams that
    /// are on their way.
    pub(crate) fn stop_receiving(&mut self, spec: &ListenSpec) {
        self.datagrams.retain(|socket| socket.spec != *spec);
    }

    /// Returns duplicates of the sockets for datagrams, for a process that takes over from this
    /// one.
    pub(crate) fn datagram_sockets(&self) -> io::Result<Vec<(ListenSpec, OwnedFd)>> {
        let duplicate =
            |it: &DatagramSocket| Ok((it.spec.clone(), it.socket.as_fd().try_clone_to_owned()?));
        self.datagrams.iter().map(duplicate).collect()
    }

    /// Returns duplicates of the sockets, for a process that takes over from this one.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(LocalAddress, OwnedFd)>> {
        let duplicate = |Socket { listener, .. }: &Socket| {
            let socket = listener.as_fd().try_clone_to_owned()?;
            Ok((listener.local_address().clone(), socket))
        };
        self.sockets.iter().map(duplicate).collect()
    }

    /// Stops accepting connections.
    pub(crate) fn close(&mut self) {
        self.sockets.clear();
        self.datagrams.clear();
    }

    /// Returns the means to limit [`finish`](StreamServer::finish).
    pub(crate) fn deadline(&self) -> StreamDeadline {
        StreamDeadline(self.deadline.clone())
    }

    /// Waits until all connections have ended, or until the deadline, and then closes them.
    pub(crate) fn finish(mut self) {
        self.close();
        let Some(runtime) = self.runtime else { return };
        let mut deadlines = self.deadline.subscribe();
        let (sender, mut active) = self.active;
        drop(sender);
        runtime.block_on(async {
            loop {
                let deadline = *deadlines.borrow_and_update();
                let passed = async {
                    match deadline {
                        Some(at) => sleep_until(at.into()).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    _ = active.recv() => return,
                    () = passed => return,
                    _ = deadlines.changed() => {}
                }
            }
        });
        // The records of the connections are dropped before the logs are closed.
        runtime.shutdown_timeout(CLOSE_TIMEOUT);
    }
}

impl StreamDeadline {
    /// Lets the server wait for at most `limit` from now on. An earlier deadline stays.
    pub(crate) fn set(&self, limit: Duration) {
        if let Some(at) = Instant::now().checked_add(limit) {
            self.0.send_modify(|deadline| *deadline = Some(deadline.map_or(at, |it| it.min(at))));
        }
    }
}

/// Starts the checks of upstreams, and reloads certificates when their files change, as long as
/// there are plans.
async fn maintain(mut plans: PlanReceiver) {
    loop {
        let plan = plans.borrow_and_update().clone();
        plan.opened.streams.values().for_each(|stream| stream.start_checks());
        if let Some(OpenedTls { tls, .. }) = &plan.opened.tls {
            let tls = tls.clone();
            if let Ok(Err(error)) = spawn_blocking(move || tls.reload_changed()).await {
                log_reload_failure(&error);
            }
        }
        drop(plan);
        // Without a change of the plan, the files are checked again after the interval.
        if let Ok(Err(_)) = timeout(CHECK_INTERVAL, plans.changed()).await {
            return;
        }
    }
}

/// The task that accepts the connections of a socket.
struct Accepting {
    socket: TcpListener,
    address: String,
    plans: PlanReceiver,
    active: mpsc::Sender<Infallible>,
}

impl Accepting {
    async fn run(self, mut closed: oneshot::Receiver<Infallible>) {
        let warning = ThrottledWarning::default();
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                _ = &mut closed => break,
            };
            match accepted {
                Ok((client, peer)) => self.serve(client, peer),
                Err(error) => {
                    self.warn(&warning, &error);
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
        while let Some(Ok((client, peer))) = self.socket.accept().now_or_never() {
            self.serve(client, peer);
        }
    }

    /// Starts the task of a connection, within the limits of its stream.
    fn serve(&self, client: TcpStream, peer: SocketAddr) {
        let plan = self.plans.borrow().clone();
        // A stream that a reload has removed.
        let Some(stream) = plan.opened.streams.get(&self.address).cloned() else { return };
        let Ok(local) = client.local_addr() else { return };
        let log = stream.settings().access_log.as_ref().and_then(|to| plan.logs.stream(to));
        let mut record =
            ConnectionRecord::new(stream.clone(), log.cloned(), StreamProtocol::Tcp, (peer, local));
        // A proxy's address is compared after its PROXY header has been read.
        if !stream.settings().is_proxy(peer.ip()) && !stream.allows(peer.ip()) {
            record.end = End::Denied;
            log::debug!("a connection from {peer} was closed: its client is not allowed");
            return;
        }
        let Some(permit) = stream.admit(peer.ip()) else {
            record.end = End::Limit;
            let message =
                "a connection was closed: too many connections, in total or of its client";
            return stream.warn_of_limit(&self.address, message);
        };
        let tls = stream.settings().tls.then(|| plan.opened.tls.as_ref()).flatten();
        let tls = tls.map(|opened| opened.tls.server_config());
        let active = self.active.clone();
        tokio::spawn(async move {
            // Ignored: without it, small packets are delayed.
            let _ = client.set_nodelay(true);
            connection::serve(&stream, tls, client, record).await;
            drop((permit, active));
        });
    }

    fn warn(&self, warning: &ThrottledWarning, message: &dyn Display) {
        warning.warn(&format!("the stream {}: {message}", self.address));
    }
}
