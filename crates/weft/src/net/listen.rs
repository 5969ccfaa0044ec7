//! Listening sockets, accepting connections from them, and connection limits.

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
use std::pin::pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{self, Either};
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};
use crate::net::accepted::{Accepted, AcceptedSocket};
use crate::net::secure::SecureAcceptor;
use crate::peer::Peer;
use crate::settings::Settings;
use weft_proto::proxy_protocol::Network;

/// Address to listen on: `host:port`, `:port` (all addresses of the machine), `[v6]:port` or
/// `unix:PATH`. With port 0 the system chooses a free port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// All addresses of the machine, IPv4 and IPv6.
    Any(u16),
    /// A host name or IP address, and a port.
    Host(String),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        let invalid = || {
            let reason = format!(
                "`{text}` is no address to listen on; expected host:port, :port, [v6]:port or unix:PATH"
            );
            Error::new(ErrorKind::Listen, reason)
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(invalid()) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let port: u16 = port.parse().map_err(|_| invalid())?;
        match host {
            "" => Ok(Address::Any(port)),
            host if host.contains(':') && !host.starts_with('[') => Err(invalid()),
            _ => Ok(Address::Host(text.to_owned())),
        }
    }
}

/// Address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAddress {
    /// A TCP socket.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP socket whose connections use TLS.
    Tls(SocketAddr),
    /// A Unix socket whose connections use TLS.
    UnixTls(PathBuf),
}

impl LocalAddress {
    /// Returns the address of a TCP socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            LocalAddress::Tcp(address) | LocalAddress::Tls(address) => Some(*address),
            LocalAddress::Unix(_) | LocalAddress::UnixTls(_) => None,
        }
    }

    /// Returns `true` if the socket's connections use TLS.
    pub fn is_secure(&self) -> bool {
        matches!(self, LocalAddress::Tls(_) | LocalAddress::UnixTls(_))
    }

    /// Returns the same address with TLS.
    fn with_tls(self) -> LocalAddress {
        match self {
            LocalAddress::Tcp(address) => LocalAddress::Tls(address),
            LocalAddress::Unix(path) => LocalAddress::UnixTls(path),
            with_tls => with_tls,
        }
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalAddress::Tcp(address) => write!(f, "http://{address}"),
            LocalAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            LocalAddress::Tls(address) => write!(f, "https://{address}"),
            LocalAddress::UnixTls(path) => write!(f, "https+unix:{}", path.display()),
        }
    }
}

/// A listening socket, for [`Server::listener`](crate::Server::listener) or
/// [`ServerHandle::listen`](crate::ServerHandle::listen).
///
/// [`Server::listen`](crate::Server::listen) binds its own. Bind one by hand if that must happen
/// early, such as before the process drops its privileges, or if the socket comes from another
/// process.
#[derive(Debug)]
pub struct Listener {
    socket: Arc<OwnedFd>,
    bound: LocalAddress,
    /// TLS configuration of its connections, if they use TLS.
    tls: Option<Arc<dyn SecureAcceptor>>,
    file: Option<Arc<SocketFile>>,
}

/// File of a Unix socket, removed when the socket closes. The inode identifies it, because another
/// process may have bound the same path since.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
    remove_on_close: AtomicBool,
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Listener {
    /// Binds an address and listens on it. A host name may resolve to several addresses, each
    /// of which gets a listener. Only the settings `backlog` and `reuse_port` are used.
    ///
    /// ```
    /// use weft::{Listener, Request, Response, Server, Settings};
    ///
    /// # fn main() -> weft::Result<()> {
    /// let listeners = Listener::bind(&"127.0.0.1:0".parse()?, &Settings::default())?;
    /// // The sockets are bound: privileges can be dropped here.
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
    /// [`Listen`](ErrorKind::Listen) if the address cannot be bound; the message gives the reason.
    pub fn bind(address: &Address, settings: &Settings) -> Result<Vec<Listener>> {
        let failed = |bound: &dyn fmt::Display, error: io::Error| {
            Error::new(ErrorKind::Listen, format!("cannot listen on {bound}")).with_source(error)
        };
        match address {
            Address::Any(port) => {
                let ipv6 = SocketAddr::from(([0u16; 8], *port));
                let ipv4 = SocketAddr::from(([0u8; 4], *port));
                let listener = match tcp(ipv6, settings) {
                    // Some machines have no IPv6.
                    Err(error) if error == rustix::io::Errno::AFNOSUPPORT => tcp(ipv4, settings),
                    other => other,
                };
                Ok(vec![listener.map_err(|error| failed(&format!(":{port}"), error.into()))?])
            }
            Address::Host(host) => {
                use rustix::io::Errno;
                let addresses = host.to_socket_addrs().map_err(|error| failed(host, error))?;
                let (mut listeners, mut unavailable) = (Vec::new(), None);
                for address in addresses {
                    match tcp(address, settings) {
                        Ok(listener) => listeners.push(listener),
                        // A name may resolve to an IPv6 address on a machine without IPv6.
                        Err(error @ (Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)) => {
                            unavailable = Some(failed(&address, error.into()));
                        }
                        Err(error) => return Err(failed(&address, error.into())),
                    }
                }
                match unavailable {
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
    /// Takes over a listening socket from a service manager, or from the process that this one
    /// replaces. The file of a Unix socket is not removed when the socket closes.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if it is not a listening stream socket on an Internet address
    /// or a path.
    pub fn inherited(socket: impl Into<OwnedFd>) -> Result<Listener> {
        let socket = socket.into();
        let bound = listening_address(&socket).ok_or_else(|| {
            let reason = "a descriptor that was handed over is no socket that listens for streams";
            Error::new(ErrorKind::Listen, reason)
        })?;
        let prepare = || {
            rustix::io::ioctl_fionbio(&socket, true)?;
            rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
            match bound {
                LocalAddress::Tcp(_) => sockopt::set_tcp_nodelay(&socket, true),
                _ => Ok(()),
            }
        };
        prepare().map_err(|error| Error::from(io::Error::from(error)))?;
        Ok(Listener { socket: Arc::new(socket), bound, tls: None, file: None })
    }

    /// Removes the file of a Unix socket when the socket closes, once
    /// [`ServerHandle::claim_socket_files`](crate::ServerHandle::claim_socket_files) has been called. Until then the file
    /// belongs to the process that the socket comes from, which continues to serve if this one
    /// fails to start.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if the file does not exist.
    pub fn with_socket_file(mut self) -> Result<Listener> {
        if let LocalAddress::Unix(path) | LocalAddress::UnixTls(path) = &self.bound
            && self.file.is_none()
        {
            let file = SocketFile::new(path)?;
            file.set_remove_on_close(false);
            self.file = Some(file);
        }
        Ok(self)
    }

    /// Returns `true` if the socket has a file that is removed when the socket closes, or will be
    /// once the socket files are claimed.
    pub fn has_socket_file(&self) -> bool {
        self.file.is_some()
    }

    /// Address that the socket listens on.
    pub fn local_address(&self) -> &LocalAddress {
        &self.bound
    }

    /// Returns the same listener with this TLS configuration, or without TLS.
    pub(crate) fn with_optional_tls(self, tls: Option<Arc<dyn SecureAcceptor>>) -> Listener {
        let bound = if tls.is_some() { self.bound.with_tls() } else { self.bound };
        Listener { bound, tls, ..self }
    }

    pub(crate) fn tls(&self) -> Option<&Arc<dyn SecureAcceptor>> {
        self.tls.as_ref()
    }

    pub(crate) fn socket(&self) -> Weak<OwnedFd> {
        Arc::downgrade(&self.socket)
    }

    pub(crate) fn file(&self) -> Option<Arc<SocketFile>> {
        self.file.clone()
    }

    /// Returns `true` if further sockets can be bound to the same address (`SO_REUSEPORT`).
    pub(crate) fn is_shareable(&self) -> bool {
        self.bound.address().is_some() && sockopt::socket_reuseport(&self.socket).unwrap_or(false)
    }

    /// Binds another `SO_REUSEPORT` socket to an address.
    pub(crate) fn bind_another(
        bound: &LocalAddress,
        tls: Option<Arc<dyn SecureAcceptor>>,
        settings: &Settings,
    ) -> Result<Listener> {
        let address = bound.address().expect("only TCP addresses can be shared");
        let listener = tcp(address, settings).map(|listener| listener.with_optional_tls(tls));
        listener.map_err(|error| {
            let reason = format!("cannot bind another SO_REUSEPORT socket to {address}");
            Error::new(ErrorKind::Listen, reason).with_source(io::Error::from(error))
        })
    }
}

/// Returns the address of a listening stream socket, or `None` if it is another kind of socket.
fn listening_address(socket: &OwnedFd) -> Option<LocalAddress> {
    let is_stream = sockopt::socket_type(socket).ok()? == SocketType::STREAM;
    if !is_stream || !sockopt::socket_acceptconn(socket).ok()? {
        return None;
    }
    let address = rustix::net::getsockname(socket).ok()?;
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return Some(LocalAddress::Tcp(address));
    }
    let path = SocketAddrUnix::try_from(address).ok()?;
    let path = path.path()?.to_bytes().to_vec();
    Some(LocalAddress::Unix(OsString::from_vec(path).into()))
}

fn tcp(address: SocketAddr, settings: &Settings) -> rustix::io::Result<Listener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if settings.reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Accepted sockets inherit TCP_NODELAY: small responses must not wait for the peer's ACK.
    sockopt::set_tcp_nodelay(&socket, true)?;
    if address.ip().is_unspecified() && address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, settings.backlog.into())?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?).unwrap_or(address);
    Ok(Listener {
        socket: Arc::new(socket),
        bound: LocalAddress::Tcp(bound),
        tls: None,
        file: None,
    })
}

fn unix(path: &Path, backlog: u16) -> io::Result<Listener> {
    // A socket file that refuses connections was left behind by a process that has ended. A
    // file that is not a socket refuses connections, too, and must not be removed.
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
    Ok(Listener {
        socket: Arc::new(socket),
        bound: LocalAddress::Unix(path.to_owned()),
        tls: None,
        file,
    })
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Arc<SocketFile>> {
        let inode = inode(path)?;
        Ok(Arc::new(SocketFile {
            path: path.to_owned(),
            inode,
            remove_on_close: AtomicBool::new(true),
        }))
    }

    /// Sets whether the file is removed when the socket closes.
    pub(crate) fn set_remove_on_close(&self, remove: bool) {
        self.remove_on_close.store(remove, Relaxed);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let remove = self.remove_on_close.load(Relaxed);
        if remove && inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            // Another process may have removed it since, which is fine.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Accepts from one socket until `stopped` is ready, then accepts the connections that the kernel
/// has already completed.
pub(crate) async fn accept(
    listener: Listener,
    limiter: Arc<ConnectionLimiter>,
    mut deliver: impl FnMut(Accepted),
    stopped: impl Future<Output = ()>,
) {
    let Listener { socket, bound, tls, file: _file } = listener;
    #[expect(deprecated, reason = "unsound for types whose descriptor changes; this one's cannot")]
    let socket = AsyncFd::with_interest(socket, Interest::READABLE)
        .expect("an event loop accepts a listening socket");
    let mut stopped = pin!(stopped);
    loop {
        let next = async {
            limiter.wait_for_capacity().await;
            socket.async_io(Interest::READABLE, |socket| accept_one(socket, &bound)).await
        };
        // Polled first, so that a constant stream of connections does not delay it.
        let accepted = match future::select(stopped.as_mut(), pin!(next)).await {
            Either::Left(_) => break,
            Either::Right((accepted, _)) => accepted,
        };
        match accepted {
            Ok(accepted) => admit(&limiter, accepted, &tls, &mut deliver),
            Err(error) if is_transient(&error) => {}
            // Most likely the process is out of file descriptors or memory. Only the sleep ends the
            // pause, not the next closed connection: other users may have taken the freed
            // resources.
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
    while limiter.has_capacity() {
        match accept_one(socket.get_ref(), &bound) {
            Ok(accepted) => admit(&limiter, accepted, &tls, &mut deliver),
            Err(error) if is_transient(&error) => {}
            Err(_) => break,
        }
    }
}

/// Returns `true` if the next connection can be accepted at once: the peer closed the connection
/// before it was accepted, or a signal interrupted the call.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// Delay before the next attempt when `accept4(2)` fails for lack of resources.
const RETRY_DELAY: Duration = Duration::from_millis(50);

fn accept_one(socket: &impl AsFd, bound: &LocalAddress) -> io::Result<(AcceptedSocket, Peer)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (accepted, address) = rustix::net::acceptfrom_with(socket, flags)?;
    let address = address.and_then(|address: SocketAddrAny| SocketAddr::try_from(address).ok());
    let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
    let socket = match bound {
        LocalAddress::Tcp(_) | LocalAddress::Tls(_) => AcceptedSocket::Tcp(accepted.into()),
        LocalAddress::Unix(_) | LocalAddress::UnixTls(_) => AcceptedSocket::Unix(accepted.into()),
    };
    Ok((socket, Peer { address: address.map(canonical), tls: None }))
}

fn admit(
    limiter: &Arc<ConnectionLimiter>,
    (socket, peer): (AcceptedSocket, Peer),
    tls: &Option<Arc<dyn SecureAcceptor>>,
    deliver: &mut impl FnMut(Accepted),
) {
    match limiter.try_acquire(peer.address().map(|address| address.ip())) {
        Some(permit) => deliver(Accepted { socket, peer, permit, tls: tls.clone() }),
        None if tls.is_none() => reject(&socket),
        // A response would need a TLS handshake, which costs too much for a rejected connection.
        None => {}
    }
}

/// Sends a 503 response on a connection that is not served. Does not wait for the request, which
/// may never arrive.
fn reject(socket: &AcceptedSocket) {
    const RESPONSE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
        content-length: 37\r\nretry-after: 10\r\nconnection: close\r\n\r\n\
        Too many connections from one client\n";
    let fd = match socket {
        AcceptedSocket::Tcp(socket) => socket.as_fd(),
        AcceptedSocket::Unix(socket) => socket.as_fd(),
    };
    // Received bytes are read first: closing a socket with unread input resets the connection. If
    // the response cannot be sent, the connection is only closed.
    let mut request = [0; 4096];
    let _ = rustix::net::recv(fd, &mut request, rustix::net::RecvFlags::DONTWAIT);
    let _ = rustix::net::send(fd, RESPONSE, rustix::net::SendFlags::NOSIGNAL);
    let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
}

/// Limits the number of open connections, in total and per peer, over all workers.
pub(crate) struct ConnectionLimiter {
    max: AtomicUsize,
    open: AtomicUsize,
    peers: Mutex<Peers>,
    released: Notify,
}

/// Number of open connections of each peer.
struct Peers {
    open: HashMap<IpAddr, usize>,
    max: usize,
    /// Peers that are not counted.
    proxies: Vec<Network>,
}

/// Permit for one connection; dropping it releases the slot.
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    peer: Option<IpAddr>,
    load: Option<Arc<AtomicUsize>>,
}

impl ConnectionLimiter {
    pub(crate) fn new(settings: &Settings) -> Arc<ConnectionLimiter> {
        let limiter = ConnectionLimiter {
            max: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            peers: Mutex::new(Peers { open: HashMap::new(), max: 0, proxies: Vec::new() }),
            released: Notify::new(),
        };
        limiter.update_settings(settings);
        Arc::new(limiter)
    }

    /// Sets the limits. Open connections are not closed.
    pub(crate) fn update_settings(&self, settings: &Settings) {
        let mut peers = self.peers();
        peers.max = settings.max_connections_per_peer;
        peers.proxies = settings.proxies.clone();
        drop(peers);
        self.max.store(settings.max_connections, Relaxed);
        self.released.notify_one();
    }

    /// Waits until another connection is permitted.
    async fn wait_for_capacity(&self) {
        if self.has_capacity() {
            return;
        }
        while !self.has_capacity() {
            self.released.notified().await;
        }
        // Another acceptor may wait, too, and this one may have no connection to accept.
        self.released.notify_one();
    }

    fn has_capacity(&self) -> bool {
        self.open.load(Relaxed) < self.max.load(Relaxed)
    }

    /// Returns a permit, or `None` if the peer has too many connections.
    fn try_acquire(
        self: &Arc<ConnectionLimiter>,
        peer: Option<IpAddr>,
    ) -> Option<ConnectionPermit> {
        // A proxy's connections belong to many clients.
        let mut peers = self.peers();
        let Peers { open, max, proxies } = &mut *peers;
        let is_proxy = |ip: &IpAddr| proxies.iter().any(|network| network.contains(*ip));
        let peer = peer.filter(|ip| !is_proxy(ip)).map(peer_network);
        if let Some(peer) = peer {
            let open = open.entry(peer).or_default();
            if *open >= *max {
                return None;
            }
            *open += 1;
        }
        drop(peers);
        self.open.fetch_add(1, Relaxed);
        Some(ConnectionPermit { limiter: self.clone(), peer, load: None })
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the address under which a peer is counted: an IPv4 address, or the /64 network of an
/// IPv6 address, because a client usually controls all 2^64 addresses of it.
fn peer_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(ipv6) => IpAddr::from((ipv6.to_bits() >> 64 << 64).to_be_bytes()),
        ipv4 => ipv4,
    }
}

impl ConnectionPermit {
    /// Adds the connection to a worker's number of open connections.
    pub(crate) fn count_for_worker(&mut self, load: &Arc<AtomicUsize>) {
        load.fetch_add(1, Relaxed);
        self.load = Some(load.clone());
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(load) = &self.load {
            load.fetch_sub(1, Relaxed);
        }
        if let Some(peer) = self.peer {
            let peers = &mut self.limiter.peers().open;
            if let Some(open) = peers.get_mut(&peer) {
                *open -= 1;
                if *open == 0 {
                    peers.remove(&peer);
                }
            }
        }
        self.limiter.open.fetch_sub(1, Relaxed);
        self.limiter.released.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_listen_addresses() {
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
    fn limits_connections_in_total_and_per_peer() {
        let settings =
            Settings { max_connections: 3, max_connections_per_peer: 2, ..Settings::default() };
        let limiter = ConnectionLimiter::new(&settings);
        let (a, b) = (Some(IpAddr::from([127, 0, 0, 1])), Some(IpAddr::from([127, 0, 0, 2])));
        let first = limiter.try_acquire(a).expect("first connection of a");
        let _second = limiter.try_acquire(a).expect("second connection of a");
        assert!(limiter.try_acquire(a).is_none(), "third connection of a");
        let _other = limiter.try_acquire(b).expect("first connection of b");
        assert_eq!(limiter.open.load(Relaxed), 3);
        drop(first);
        assert_eq!(limiter.open.load(Relaxed), 2);
        limiter.try_acquire(a).expect("a dropped permit is free again");
    }
}
