//! Listening sockets.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use http::HeaderValue;

use crate::error::{Error, ErrorKind, Result};
use crate::net::address::{Address, LocalAddress};
use crate::net::http3_descriptor::{Http3Descriptor, Http3Role};
use crate::net::quic::QuicSocket;
use crate::net::secure::SecureAcceptor;
use crate::settings::Settings;
use crate::sys::{self, AsFd, BorrowedFd, Errno, OwnedFd};

/// A listening socket, for [`Server::listener`](crate::Server::listener) or
/// [`ServerHandle::listen`](crate::server::ServerHandle::listen).
///
/// [`Server::listen`](crate::Server::listen) binds its own. Bind one by hand if that must happen
/// early, such as before the process drops its privileges, or if the socket comes from another
/// process.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) bound: LocalAddress,
    /// TLS configuration of its connections, if they use TLS.
    pub(super) tls: Option<Arc<dyn SecureAcceptor>>,
    pub(super) file: Option<Arc<SocketFile>>,
    /// Sockets for HTTP/3, one for each worker.
    quic: Vec<QuicSocket>,
    /// Sockets for HTTP/3, and channels to processes, that come from another process.
    inherited_http3: Vec<Http3Descriptor>,
    /// The value of `Alt-Svc` in responses on its connections.
    pub(super) alt_svc: Option<Arc<HeaderValue>>,
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
    sys::link_stat(path).map(|stat| (stat.device, stat.inode))
}

impl Listener {
    /// Binds an address and listens on it. A host name may resolve to several addresses. Each of
    /// them gets a listener. Only the settings `backlog` and `reuse_port` are used.
    ///
    /// ```
    /// use weft::net::Listener;
    /// use weft::{Request, Response, Server, Settings};
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
                let listener = tcp_of_both_families(*port, settings);
                Ok(vec![listener.map_err(|error| failed(&format!(":{port}"), error.into()))?])
            }
            Address::AnyIpv6(port) => match tcp(any_ipv6(*port), Families::Ipv6Only, settings) {
                Ok(listener) => Ok(vec![listener]),
                Err(Errno::AFNOSUPPORT) => Ok(Vec::new()),
                Err(error) => Err(failed(&format!("[::]:{port}"), error.into())),
            },
            Address::Host(host) => {
                let addresses = host.to_socket_addrs().map_err(|error| failed(host, error))?;
                let (mut listeners, mut unavailable) = (Vec::new(), None);
                for address in addresses {
                    let listener = match address == any_ipv6(address.port()) {
                        true => tcp_of_both_families(address.port(), settings),
                        false => tcp(address, Families::OfAddress, settings),
                    };
                    match listener {
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
    /// Takes over a listening socket from a service manager, from the process that this one
    /// replaces, or from other code of this one. The file of a Unix socket is not removed when the
    /// socket closes.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if it is not a listening stream socket on an Internet address
    /// or a path.
    pub fn inherited(socket: impl Into<OwnedFd>) -> Result<Listener> {
        let socket = socket.into();
        let bound = listening_address(&socket).ok_or_else(|| {
            let reason = "the inherited descriptor is not a listening stream socket on an Internet address \
                          or a path";
            Error::new(ErrorKind::Listen, reason)
        })?;
        sys::prepare_listener(&socket, matches!(bound, LocalAddress::Tcp(_)))
            .map_err(|error| Error::from(io::Error::from(error)))?;
        Ok(Listener::new(socket, bound, None))
    }

    fn new(socket: OwnedFd, bound: LocalAddress, file: Option<Arc<SocketFile>>) -> Listener {
        let socket = Arc::new(socket);
        let (quic, inherited_http3) = (Vec::new(), Vec::new());
        Listener { socket, bound, tls: None, file, quic, inherited_http3, alt_svc: None }
    }

    /// Binds the UDP sockets for HTTP/3 beside a TCP socket, one for each of `workers`. A server
    /// binds them itself when it starts. Bind them before if the process drops its privileges in
    /// between. Inherited sockets are used instead of new ones. Without the feature `http3` it has no
    /// effect.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if the port is in use for UDP, or requires privileges.
    pub fn bind_http3(&mut self, workers: usize) -> Result<()> {
        if let Some(address) = self.bound.address()
            && self.quic.is_empty()
        {
            let is_socket = |it: &mut Http3Descriptor| it.role == Http3Role::Socket;
            let sockets = self.inherited_http3.extract_if(.., is_socket);
            let sockets = sockets.map(|it| QuicSocket::inherited(it.descriptor, address));
            self.quic = sockets.collect::<Result<_>>()?;
            if self.quic.is_empty() {
                let is_ipv6_only = sys::is_ipv6_only(&self.socket);
                self.quic = QuicSocket::bind_all(address, is_ipv6_only, workers)?;
            }
        }
        Ok(())
    }

    /// Takes the descriptors for the address of this listener out of `descriptors`. Call it before
    /// [`bind_http3`](Listener::bind_http3).
    pub fn inherit_http3(&mut self, descriptors: &mut Vec<Http3Descriptor>) {
        let address = self.bound.address();
        let is_here = |it: &mut Http3Descriptor| Some(it.address) == address;
        self.inherited_http3.extend(descriptors.extract_if(.., is_here));
    }

    /// Takes the channels to other processes, the newest last.
    #[cfg(feature = "http3")]
    pub(crate) fn take_http3_processes(&mut self) -> Vec<(u16, OwnedFd)> {
        let processes = std::mem::take(&mut self.inherited_http3).into_iter();
        let processes = processes.filter_map(|it| match it.role {
            Http3Role::Process(generation) => Some((generation, it.descriptor)),
            Http3Role::Socket => None,
        });
        processes.collect()
    }

    /// Returns an error if the kernel has given the sockets for HTTP/3 less memory than bursts need.
    #[cfg(feature = "http3")]
    pub(crate) fn http3_warning(&self) -> Option<Error> {
        self.quic.first().and_then(QuicSocket::warning)
    }

    /// Takes the sockets for HTTP/3, and names them in the responses on the other connections.
    pub(crate) fn take_http3(&mut self) -> Vec<QuicSocket> {
        let sockets = std::mem::take(&mut self.quic);
        if let Some(address) = self.bound.address()
            && !sockets.is_empty()
        {
            let value = format!("h3=\":{}\"; ma=86400", address.port());
            self.alt_svc = HeaderValue::try_from(value).ok().map(Arc::new);
        }
        sockets
    }

    /// Returns the value of `Alt-Svc`, for further sockets of the same address.
    pub(crate) fn alt_svc(&self) -> Option<Arc<HeaderValue>> {
        self.alt_svc.clone()
    }

    /// Removes the file of a Unix socket when the socket closes, once
    /// [`ServerHandle::claim_socket_files`](crate::server::ServerHandle::claim_socket_files) has
    /// been called. Until then the file belongs to the process that passed the socket. If the new
    /// process fails to start, the former one continues to serve.
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

    /// Returns true if the socket has a file that is removed when the socket closes, or will be
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

    /// Returns true if further sockets can be bound to the same address (`SO_REUSEPORT`).
    pub(crate) fn is_shareable(&self) -> bool {
        self.bound.address().is_some() && sys::shares_port(&self.socket)
    }

    /// Binds another `SO_REUSEPORT` socket to the address of `first`, a socket at `bound`.
    pub(crate) fn bind_another(
        bound: &LocalAddress,
        first: Option<Arc<OwnedFd>>,
        (tls, alt_svc): (Option<Arc<dyn SecureAcceptor>>, Option<Arc<HeaderValue>>),
        settings: &Settings,
    ) -> Result<Listener> {
        let address = bound.address().expect("only TCP addresses can be shared");
        let is_ipv6_only = first.is_some_and(|first| sys::is_ipv6_only(&first));
        let families = if is_ipv6_only { Families::Ipv6Only } else { Families::OfAddress };
        let listener =
            tcp(address, families, settings).map(|listener| listener.with_optional_tls(tls));
        let listener = listener.map(|listener| Listener { alt_svc, ..listener });
        listener.map_err(|error| {
            let reason = format!("cannot bind another SO_REUSEPORT socket to {address}");
            Error::new(ErrorKind::Listen, reason).with_source(io::Error::from(error))
        })
    }
}

#[cfg(feature = "_tls")]
impl Listener {
    /// Returns the same listener with TLS.
    pub fn with_tls(self, tls: &crate::net::tls::Tls) -> Listener {
        self.with_optional_tls(Some(tls.acceptor()))
    }
}

/// For code that accepts the connections itself. The file of a Unix socket is removed with the
/// listener.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The same as [`Listener::inherited`].
impl TryFrom<std::net::TcpListener> for Listener {
    type Error = Error;

    fn try_from(socket: std::net::TcpListener) -> Result<Listener> {
        Listener::inherited(socket)
    }
}

/// The same as [`Listener::inherited`].
#[cfg(unix)]
impl TryFrom<sys::UnixListener> for Listener {
    type Error = Error;

    fn try_from(socket: sys::UnixListener) -> Result<Listener> {
        Listener::inherited(socket)
    }
}

/// Removes the listener from its runtime, and takes it over as [`Listener::inherited`] does.
impl TryFrom<tokio::net::TcpListener> for Listener {
    type Error = Error;

    fn try_from(socket: tokio::net::TcpListener) -> Result<Listener> {
        Listener::inherited(socket.into_std()?)
    }
}

/// Removes the listener from its runtime, and takes it over as [`Listener::inherited`] does.
#[cfg(unix)]
impl TryFrom<tokio::net::UnixListener> for Listener {
    type Error = Error;

    fn try_from(socket: tokio::net::UnixListener) -> Result<Listener> {
        Listener::inherited(socket.into_std()?)
    }
}

/// Returns the address of a listening stream socket, or `None` if it is another kind of socket.
fn listening_address(socket: &OwnedFd) -> Option<LocalAddress> {
    match sys::listening_address(socket) {
        Some(address) => Some(LocalAddress::Tcp(address)),
        None => sys::unix_listener_path(socket).map(LocalAddress::Unix),
    }
}

/// Address families whose connections a socket of IPv6 accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Families {
    /// The unspecified address of IPv6 accepts connections of IPv4, too.
    OfAddress,
    Ipv6Only,
}

fn any_ipv6(port: u16) -> SocketAddr {
    SocketAddr::from(([0u16; 8], port))
}

/// Listens on all addresses. Some machines have no IPv6.
fn tcp_of_both_families(port: u16, settings: &Settings) -> Result<Listener, Errno> {
    match tcp(any_ipv6(port), Families::OfAddress, settings) {
        Err(Errno::AFNOSUPPORT) => {
            tcp(SocketAddr::from(([0u8; 4], port)), Families::OfAddress, settings)
        }
        other => other,
    }
}

fn tcp(address: SocketAddr, families: Families, settings: &Settings) -> Result<Listener, Errno> {
    let is_any_ipv6 = address.ip().is_unspecified() && address.is_ipv6();
    let is_ipv6_only = is_any_ipv6.then_some(families == Families::Ipv6Only);
    let Settings { reuse_port, backlog, .. } = *settings;
    let (socket, bound) = sys::tcp_listener(address, is_ipv6_only, reuse_port, backlog)?;
    Ok(Listener::new(socket, LocalAddress::Tcp(bound), None))
}

fn unix(path: &Path, backlog: u16) -> io::Result<Listener> {
    let socket = sys::bind_unix_listener(path, backlog)?;
    let file = Some(SocketFile::new(path)?);
    Ok(Listener::new(socket, LocalAddress::Unix(path.to_owned()), file))
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
