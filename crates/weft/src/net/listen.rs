//! Sockets that listen, and connections accepted from them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};
use crate::net::accepted::{Accepted, AcceptedSocket};
use crate::net::tls::Tls;
use crate::peer::Peer;
use crate::proto::proxy_protocol::Network;
use crate::settings::Settings;

/// Where a server listens: `host:port`, `:port` (every address of the machine),
/// `[v6]:port` or `unix:PATH`. Port 0 lets the system choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Every address of the machine, IPv4 and IPv6.
    Any(u16),
    /// A host, by name or by address, and a port.
    Host(String),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        let wrong = || {
            let reason = format!(
                "`{text}` is no address to listen on; expected host:port, :port, [v6]:port or unix:PATH"
            );
            Error::new(ErrorKind::Listen, reason)
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        match host {
            "" => Ok(Address::Any(port)),
            host if host.contains(':') && !host.starts_with('[') => Err(wrong()),
            _ => Ok(Address::Host(text.to_owned())),
        }
    }
}

/// An address that is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A TCP socket.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP socket whose connections speak TLS.
    Tls(SocketAddr),
    /// A Unix socket whose connections speak TLS.
    UnixTls(PathBuf),
}

impl Bound {
    /// The address of a TCP socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Bound::Tcp(address) | Bound::Tls(address) => Some(*address),
            Bound::Unix(_) | Bound::UnixTls(_) => None,
        }
    }

    /// Whether its connections speak TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, Bound::Tls(_) | Bound::UnixTls(_))
    }

    /// The same with TLS.
    fn secured(self) -> Bound {
        match self {
            Bound::Tcp(address) => Bound::Tls(address),
            Bound::Unix(path) => Bound::UnixTls(path),
            secure => secure,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Tcp(address) => write!(f, "http://{address}"),
            Bound::Unix(path) => write!(f, "unix:{}", path.display()),
            Bound::Tls(address) => write!(f, "https://{address}"),
            Bound::UnixTls(path) => write!(f, "https+unix:{}", path.display()),
        }
    }
}

/// A socket that listens, for [`Server::listener`](crate::Server::listener) or
/// [`Running::listen`](crate::Running::listen).
///
/// [`Server::listen`](crate::Server::listen) makes its own. One is made by hand where that has
/// to come early, such as before a process gives up its privileges, or where
/// the socket is another process's.
#[derive(Debug)]
pub struct Listener {
    socket: Arc<OwnedFd>,
    bound: Bound,
    /// What its connections speak TLS by, if they do.
    tls: Option<Tls>,
    file: Option<Arc<SocketFile>>,
}

/// The file of a Unix socket, which goes with it; by its number, for the path may have
/// become another's.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
    is_ours: AtomicBool,
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Listener {
    /// Listens on an address, which may be a name that stands for several. Of the settings it
    /// takes `backlog` and `reuse_port`.
    ///
    /// ```
    /// use weft::{Listener, Request, Response, Server, Settings};
    ///
    /// # fn main() -> weft::Result<()> {
    /// let listeners = Listener::bind(&"127.0.0.1:0".parse()?, &Settings::default())?;
    /// // What only a privileged process may do is done.
    /// let mut server = Server::new(async |_: Request| Response::text("Hello\n"));
    /// for listener in listeners {
    ///     server = server.listener(listener);
    /// }
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if that cannot be done; the message says why.
    pub fn bind(address: &Address, settings: &Settings) -> Result<Vec<Listener>> {
        let failed = |bound: &dyn fmt::Display, error: io::Error| {
            Error::new(ErrorKind::Listen, format!("cannot listen on {bound}")).because(error)
        };
        match address {
            Address::Any(port) => {
                let six = SocketAddr::from(([0u16; 8], *port));
                let four = SocketAddr::from(([0u8; 4], *port));
                let listener = match tcp(six, settings) {
                    // Some machines have no IPv6 at all.
                    Err(error) if error == rustix::io::Errno::AFNOSUPPORT => tcp(four, settings),
                    other => other,
                };
                Ok(vec![listener.map_err(|error| failed(&format!(":{port}"), error.into()))?])
            }
            Address::Host(host) => {
                use rustix::io::Errno;
                let addresses = host.to_socket_addrs().map_err(|error| failed(host, error))?;
                let (mut listeners, mut missing) = (Vec::new(), None);
                for address in addresses {
                    match tcp(address, settings) {
                        Ok(listener) => listeners.push(listener),
                        // A name may have an IPv6 address on a machine that has none.
                        Err(error @ (Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)) => {
                            missing = Some(failed(&address, error.into()));
                        }
                        Err(error) => return Err(failed(&address, error.into())),
                    }
                }
                match missing {
                    Some(error) if listeners.is_empty() => Err(error),
                    _ => Ok(listeners),
                }
            }
            Address::Unix(path) => {
                let listener = unix(path, settings.backlog);
                Ok(vec![listener.map_err(|error| failed(&path.display(), error))?])
            }
        }
    }
}

impl Listener {
    /// Takes a socket that listens already: that of a service manager, or of the process that
    /// this one takes over from. The file of a Unix socket stays when it closes.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if it is no stream socket that listens on an address of the
    /// Internet or on a path.
    pub fn inherited(socket: impl Into<OwnedFd>) -> Result<Listener> {
        let socket = socket.into();
        let bound = listening_on(&socket).ok_or_else(|| {
            let reason = "a descriptor that was handed over is no socket that listens for streams";
            Error::new(ErrorKind::Listen, reason)
        })?;
        let prepare = || {
            rustix::io::ioctl_fionbio(&socket, true)?;
            rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
            match bound {
                Bound::Tcp(_) => sockopt::set_tcp_nodelay(&socket, true),
                _ => Ok(()),
            }
        };
        prepare().map_err(|error| Error::from(io::Error::from(error)))?;
        Ok(Listener { socket: Arc::new(socket), bound, tls: None, file: None })
    }

    /// Has the file of a Unix socket removed when the socket closes, from
    /// [`Running::claim_files`](crate::Running::claim_files) on: until then it is the file of the
    /// process that the socket comes from, which serves on if this one fails to start.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if there is no such file.
    pub fn with_file(mut self) -> Result<Listener> {
        if let Bound::Unix(path) | Bound::UnixTls(path) = &self.bound
            && self.file.is_none()
        {
            let file = SocketFile::new(path)?;
            file.set_ours(false);
            self.file = Some(file);
        }
        Ok(self)
    }

    /// Whether the socket has a file that is removed when it closes, or will be once that is
    /// claimed.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Where it listens.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// The same for connections that speak TLS, or for such that do not.
    pub(crate) fn secured(self, tls: Option<Tls>) -> Listener {
        let bound = if tls.is_some() { self.bound.secured() } else { self.bound };
        Listener { bound, tls, ..self }
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(crate) fn socket(&self) -> Weak<OwnedFd> {
        Arc::downgrade(&self.socket)
    }

    pub(crate) fn file(&self) -> Option<Arc<SocketFile>> {
        self.file.clone()
    }

    /// Whether there can be other sockets for the same address.
    pub(crate) fn is_shareable(&self) -> bool {
        self.bound.address().is_some() && sockopt::socket_reuseport(&self.socket).unwrap_or(false)
    }

    /// Another socket on an address for which there can be several.
    pub(crate) fn again(bound: &Bound, tls: Option<Tls>, settings: &Settings) -> Result<Listener> {
        let address = bound.address().expect("only addresses of the Internet are shared");
        let listener = tcp(address, settings).map(|listener| listener.secured(tls));
        listener.map_err(|error| {
            let reason = format!("cannot listen on {address} once more");
            Error::new(ErrorKind::Listen, reason).because(io::Error::from(error))
        })
    }
}

/// Where a socket listens for streams, if it does.
fn listening_on(socket: &OwnedFd) -> Option<Bound> {
    let is_stream = sockopt::socket_type(socket).ok()? == SocketType::STREAM;
    if !is_stream || !sockopt::socket_acceptconn(socket).ok()? {
        return None;
    }
    let address = rustix::net::getsockname(socket).ok()?;
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return Some(Bound::Tcp(address));
    }
    let path = SocketAddrUnix::try_from(address).ok()?;
    let path = path.path()?.to_bytes().to_vec();
    Some(Bound::Unix(OsString::from_vec(path).into()))
}

fn tcp(address: SocketAddr, settings: &Settings) -> rustix::io::Result<Listener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if settings.reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Accepted sockets inherit this; our packets are never to wait for the peer's ACK.
    sockopt::set_tcp_nodelay(&socket, true)?;
    if address.ip().is_unspecified() && address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, settings.backlog.into())?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?).unwrap_or(address);
    Ok(Listener { socket: Arc::new(socket), bound: Bound::Tcp(bound), tls: None, file: None })
}

fn unix(path: &Path, backlog: u16) -> io::Result<Listener> {
    // A socket that nobody listens on was left by a process that is gone. What is no
    // socket refuses connections too, and is not ours to remove.
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
        && let Err(error) = std::os::unix::net::UnixStream::connect(path)
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        std::fs::remove_file(path)?;
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, backlog.into())?;
    let file = Some(SocketFile::new(path)?);
    Ok(Listener { socket: Arc::new(socket), bound: Bound::Unix(path.to_owned()), tls: None, file })
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Arc<SocketFile>> {
        let inode = inode(path)?;
        Ok(Arc::new(SocketFile { path: path.to_owned(), inode, is_ours: AtomicBool::new(true) }))
    }

    /// Whether to remove it, or to leave it to another.
    pub(crate) fn set_ours(&self, is_ours: bool) {
        self.is_ours.store(is_ours, Relaxed);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = self.is_ours.load(Relaxed);
        if is_ours && inode(&self.path).is_ok_and(|now| now == self.inode) {
            // Somebody may have been faster, which is as well.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Accepts from one socket until `stopped`, and then what the kernel has completed.
pub(crate) async fn accept(
    listener: Listener,
    gate: Arc<Gate>,
    mut deliver: impl FnMut(Accepted),
    stopped: impl Future<Output = ()>,
) {
    let Listener { socket, bound, tls, file: _file } = listener;
    #[expect(deprecated, reason = "unsound for types whose descriptor changes; this one's cannot")]
    let socket = AsyncFd::with_interest(socket, Interest::READABLE)
        .expect("an event loop takes a socket that listens");
    let mut stopped = std::pin::pin!(stopped);
    loop {
        let next = async {
            gate.has_room().await;
            socket.async_io(Interest::READABLE, |socket| accept_one(socket, &bound)).await
        };
        let accepted = tokio::select! {
            accepted = next => accepted,
            () = &mut stopped => break,
        };
        match accepted {
            Ok(accepted) => admit(&gate, accepted, &tls, &mut deliver),
            Err(error) if is_passing(&error) => {}
            // Out of descriptors or of memory, most likely. The sleep, and not the next
            // closed connection, ends the pause: others may have taken what is missing.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    while gate.has_room_now() {
        match accept_one(socket.get_ref(), &bound) {
            Ok(accepted) => admit(&gate, accepted, &tls, &mut deliver),
            Err(error) if is_passing(&error) => {}
            Err(_) => break,
        }
    }
}

/// Whether the next connection may be accepted at once: the peer left between connecting
/// and being accepted, or a signal came.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// How long to wait when the system cannot give us a connection.
const PAUSE: Duration = Duration::from_millis(50);

fn accept_one(socket: &impl AsFd, bound: &Bound) -> io::Result<(AcceptedSocket, Peer)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (accepted, address) = rustix::net::acceptfrom_with(socket, flags)?;
    let address = address.and_then(|address: SocketAddrAny| SocketAddr::try_from(address).ok());
    let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
    let socket = match bound {
        Bound::Tcp(_) | Bound::Tls(_) => AcceptedSocket::Tcp(accepted.into()),
        Bound::Unix(_) | Bound::UnixTls(_) => AcceptedSocket::Unix(accepted.into()),
    };
    Ok((socket, Peer { address: address.map(canonical), tls: None }))
}

fn admit(
    gate: &Arc<Gate>,
    (socket, peer): (AcceptedSocket, Peer),
    tls: &Option<Tls>,
    deliver: &mut impl FnMut(Accepted),
) {
    match gate.enter(peer.address().map(|address| address.ip())) {
        Some(place) => deliver(Accepted { socket, peer, place, tls: tls.clone() }),
        None if tls.is_none() => turn_away(&socket),
        // A handshake would cost what there is too much of already.
        None => {}
    }
}

/// Says why a connection is not served. It does not wait for the request: that may
/// never come.
fn turn_away(socket: &AcceptedSocket) {
    const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
        content-length: 37\r\nretry-after: 10\r\nconnection: close\r\n\r\n\
        Too many connections from one client\n";
    let fd = match socket {
        AcceptedSocket::Tcp(socket) => socket.as_fd(),
        AcceptedSocket::Unix(socket) => socket.as_fd(),
    };
    // What has come is taken first, for to close with input unread would reset the
    // connection. If the answer cannot be sent all the same, the close says enough.
    let mut request = [0; 4096];
    let _ = rustix::net::recv(fd, &mut request, rustix::net::RecvFlags::DONTWAIT);
    let _ = rustix::net::send(fd, ANSWER, rustix::net::SendFlags::NOSIGNAL);
    let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
}

/// Counts connections, over all workers.
pub(crate) struct Gate {
    max: AtomicUsize,
    open: AtomicUsize,
    peers: Mutex<Peers>,
    left: Notify,
}

/// How many connections of each peer are open.
struct Peers {
    open: HashMap<IpAddr, usize>,
    max: usize,
    /// Those that are not counted.
    proxies: Vec<Network>,
}

/// A connection's place among all; it is free again when this value goes.
pub(crate) struct Place {
    gate: Arc<Gate>,
    peer: Option<IpAddr>,
    load: Option<Arc<AtomicUsize>>,
}

impl Gate {
    pub(crate) fn new(settings: &Settings) -> Arc<Gate> {
        let gate = Gate {
            max: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            peers: Mutex::new(Peers { open: HashMap::new(), max: 0, proxies: Vec::new() }),
            left: Notify::new(),
        };
        gate.renew(settings);
        Arc::new(gate)
    }

    /// Sets the limits. Connections that are open stay.
    pub(crate) fn renew(&self, settings: &Settings) {
        let mut peers = self.peers();
        peers.max = settings.max_connections_per_peer;
        peers.proxies = settings.proxies.clone();
        drop(peers);
        self.max.store(settings.max_connections, Relaxed);
        self.left.notify_one();
    }

    /// Waits until there is room for another connection.
    async fn has_room(&self) {
        if self.has_room_now() {
            return;
        }
        while !self.has_room_now() {
            self.left.notified().await;
        }
        // Another acceptor may wait too, while nobody waits to be accepted here.
        self.left.notify_one();
    }

    fn has_room_now(&self) -> bool {
        self.open.load(Relaxed) < self.max.load(Relaxed)
    }

    /// A place, unless the peer has too many already.
    fn enter(self: &Arc<Gate>, peer: Option<IpAddr>) -> Option<Place> {
        // A proxy's connections are those of many clients.
        let mut peers = self.peers();
        let Peers { open, max, proxies } = &mut *peers;
        let is_proxy = |ip: &IpAddr| proxies.iter().any(|network| network.contains(*ip));
        let peer = peer.filter(|ip| !is_proxy(ip)).map(site);
        if let Some(peer) = peer {
            let of_peer = open.entry(peer).or_default();
            if *of_peer >= *max {
                return None;
            }
            *of_peer += 1;
        }
        drop(peers);
        self.open.fetch_add(1, Relaxed);
        Some(Place { gate: self.clone(), peer, load: None })
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom an address counts for: who has one IPv6 address has 2^64 of them.
fn site(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => IpAddr::from((six.to_bits() >> 64 << 64).to_be_bytes()),
        four => four,
    }
}

impl Place {
    /// Counts the connection among those of a worker.
    pub(crate) fn count(&mut self, load: &Arc<AtomicUsize>) {
        load.fetch_add(1, Relaxed);
        self.load = Some(load.clone());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(load) = &self.load {
            load.fetch_sub(1, Relaxed);
        }
        if let Some(peer) = self.peer {
            let peers = &mut self.gate.peers().open;
            if let Some(open) = peers.get_mut(&peer) {
                *open -= 1;
                if *open == 0 {
                    peers.remove(&peer);
                }
            }
        }
        self.gate.open.fetch_sub(1, Relaxed);
        self.gate.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, address) in [
            (":80", Some(Address::Any(80))),
            ("localhost:0", Some(Address::Host("localhost:0".into()))),
            ("127.0.0.1:8080", Some(Address::Host("127.0.0.1:8080".into()))),
            ("[::1]:8080", Some(Address::Host("[::1]:8080".into()))),
            ("unix:/run/weft", Some(Address::Unix("/run/weft".into()))),
            ("unix:", None),
            ("8080", None),
            ("localhost", None),
            ("localhost:http", None),
            ("localhost:65536", None),
            ("::1:8080", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Address>().ok(), address, "{text:?}");
        }
    }

    #[test]
    fn a_gate_counts_in_all_and_by_peer() {
        let settings =
            Settings { max_connections: 3, max_connections_per_peer: 2, ..Settings::default() };
        let gate = Gate::new(&settings);
        let (a, b) = (Some(IpAddr::from([127, 0, 0, 1])), Some(IpAddr::from([127, 0, 0, 2])));
        let first = gate.enter(a).expect("the first of a");
        let _second = gate.enter(a).expect("the second of a");
        assert!(gate.enter(a).is_none(), "the third of a");
        let _other = gate.enter(b).expect("the first of b");
        assert_eq!(gate.open.load(Relaxed), 3);
        drop(first);
        assert_eq!(gate.open.load(Relaxed), 2);
        gate.enter(a).expect("a place of a is free again");
    }
}
