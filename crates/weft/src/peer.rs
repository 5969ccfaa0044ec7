//! The other end of a connection, and its TLS session.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use http::HeaderValue;

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    pub(crate) address: Option<SocketAddr>,
    /// This end of the connection.
    pub(crate) local_address: Option<SocketAddr>,
    /// Path of the Unix socket that accepted the connection.
    pub(crate) local_path: Option<Arc<Path>>,
    /// The TLS session of an encrypted connection.
    pub(crate) tls: Option<Arc<TlsSession>>,
    /// The value of `Alt-Svc` in responses: the same address serves HTTP/3.
    pub(crate) alt_svc: Option<Arc<HeaderValue>>,
}

/// Negotiated TLS parameters of a connection.
#[derive(Debug)]
pub struct TlsSession {
    pub(crate) version: &'static str,
    pub(crate) cipher_suite: &'static str,
    pub(crate) alpn: Option<&'static str>,
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) peer_certificates: Box<[Bytes]>,
    pub(crate) is_resumed: bool,
    pub(crate) policy: Arc<AuthPolicy>,
}

/// The client authentication under which connections were accepted.
#[derive(Debug, Default)]
pub(crate) struct AuthPolicy {
    /// Set when clients are authenticated in another way. The connections of the policy then close
    /// after the responses in progress.
    pub(crate) is_superseded: AtomicBool,
}

impl AuthPolicy {
    pub(crate) fn is_superseded(&self) -> bool {
        self.is_superseded.load(Relaxed)
    }
}

impl TlsSession {
    /// Protocol version: `TLSv1.3` or `TLSv1.2`.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// Cipher suite, by its IANA name such as `TLS_AES_128_GCM_SHA256`.
    pub fn cipher_suite(&self) -> &'static str {
        self.cipher_suite
    }

    /// Protocol selected by ALPN (RFC 7301), `h2`, `http/1.1` or `http/1.0`, if the client offered
    /// any.
    pub fn alpn(&self) -> Option<&'static str> {
        self.alpn
    }

    /// Server name sent by the client (SNI), in the client's letter case. It may differ from the
    /// `Host` of a request.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Verified certificate of the client, followed by the intermediate certificates it sent, in
    /// DER. Empty if [none was requested](crate::tls::ClientAuth), or the client has none.
    pub fn peer_certificates(&self) -> &[Bytes] {
        &self.peer_certificates
    }

    /// Returns true if the client resumed a session with a ticket. Sessions with
    /// [client authentication](crate::tls::ClientAuth) are not resumed.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }
}

impl Peer {
    /// Returns true if clients are authenticated in another way since the connection was
    /// accepted.
    pub(crate) fn is_superseded(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.policy.is_superseded())
    }

    /// The address of the peer; a Unix socket has none.
    #[doc(alias = "remote_addr")]
    #[doc(alias = "peer_addr")]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The IP address of the peer; a Unix socket has none.
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }

    /// The address of the server's end of the connection. It is not the address of the listener if
    /// the listener accepts on all addresses of the machine. A Unix socket has none.
    ///
    /// ```
    /// use weft::{Request, Response};
    ///
    /// async fn local(request: Request) -> Response {
    ///     Response::text(format!("{:?}\n", request.peer().local_address()))
    /// }
    /// # weft::testing::get(local, "/").assert_text("None\n");
    /// ```
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.local_address
    }

    /// The path of the Unix socket that the client has connected to. A TCP connection has none.
    ///
    /// ```
    /// use weft::{Request, Response};
    ///
    /// async fn listener(request: Request) -> Response {
    ///     Response::text(format!("{:?}\n", request.peer().local_path()))
    /// }
    /// # weft::testing::get(listener, "/").assert_text("None\n");
    /// ```
    pub fn local_path(&self) -> Option<&Path> {
        self.local_path.as_deref()
    }

    /// Negotiated TLS parameters, if the connection is encrypted. They belong to the connection
    /// itself, even if middleware has [set another peer](crate::Request::set_peer).
    ///
    /// ```
    /// use weft::{Request, Response};
    ///
    /// async fn tls_version(request: Request) -> Response {
    ///     match request.peer().tls() {
    ///         Some(session) => Response::text(format!("{}\n", session.version())),
    ///         None => Response::text("no TLS\n"),
    ///     }
    /// }
    /// # weft::testing::get(tls_version, "/").assert_text("no TLS\n");
    /// ```
    pub fn tls(&self) -> Option<&TlsSession> {
        self.tls.as_deref()
    }
}

/// Writes the address of the peer. For a Unix socket this is `unix:` with the path of the listener,
/// because clients have no path of their own. A peer without both is `unknown`.
///
/// ```
/// use std::net::SocketAddr;
/// use weft::net::Peer;
///
/// let peer = Peer::from(SocketAddr::from(([192, 0, 2, 1], 5_000)));
/// assert_eq!(peer.to_string(), "192.0.2.1:5000");
/// ```
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, &self.local_path) {
            (Some(address), _) => address.fmt(f),
            (None, Some(path)) => write!(f, "unix:{}", path.display()),
            (None, None) => f.write_str("unknown"),
        }
    }
}

/// A peer with this address, for
/// [`ServerHandle::serve_connection`](crate::server::ServerHandle::serve_connection).
impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Peer {
        Peer { address: Some(address), ..Peer::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_address_or_the_listener() {
        let address = "[2001:db8::1]:80".parse::<SocketAddr>().unwrap();
        let unix = Peer { local_path: Some(Path::new("/run/a.sock").into()), ..Peer::default() };
        let forwarded = Peer { address: Some(address), ..unix.clone() };
        for (peer, text, ip) in [
            (Peer::from(address), "[2001:db8::1]:80", Some(address.ip())),
            (unix, "unix:/run/a.sock", None),
            (forwarded, "[2001:db8::1]:80", Some(address.ip())),
            (Peer::default(), "unknown", None),
        ] {
            assert_eq!((&*peer.to_string(), peer.ip()), (text, ip));
        }
    }
}
