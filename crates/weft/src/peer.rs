//! The other end of a connection, and its TLS session.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    pub(crate) address: Option<SocketAddr>,
    /// The TLS session of an encrypted connection.
    pub(crate) tls: Option<Arc<TlsSession>>,
}

/// What was agreed on with a client, for as long as its connection lasts.
#[derive(Debug)]
pub struct TlsSession {
    pub(crate) version: &'static str,
    pub(crate) cipher_suite: &'static str,
    pub(crate) alpn: Option<&'static str>,
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) peer_certificates: Box<[Bytes]>,
    pub(crate) is_resumed: bool,
}

impl TlsSession {
    /// The version: `TLSv1.3` or `TLSv1.2`.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// The cipher suite by its registered name, such as `TLS_AES_128_GCM_SHA256`.
    pub fn cipher_suite(&self) -> &'static str {
        self.cipher_suite
    }

    /// The protocol that was chosen by ALPN (RFC 7301), `h2`, `http/1.1` or `http/1.0`, if the
    /// client offered any.
    pub fn alpn(&self) -> Option<&'static str> {
        self.alpn
    }

    /// The name that the client asked for (SNI), in lower case if it was sent so. Nothing makes
    /// it agree with the `Host` of a request.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The certificate that the client has shown and those between it and a root, in DER. They
    /// were verified. Empty if it was [not asked](crate::tls::ClientAuth), or has none.
    pub fn peer_certificates(&self) -> &[Bytes] {
        &self.peer_certificates
    }

    /// Whether the client came back with a session ticket. Then its certificate, if it has
    /// one, is that of the first time.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }
}

impl Peer {
    /// The address of the peer; a Unix socket has none.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What TLS was agreed on with, if the connection is encrypted. It is that of the connection
    /// itself, also where middleware has said that the peer is
    /// [another](crate::Request::set_peer).
    ///
    /// ```
    /// use weft::{Request, Response};
    ///
    /// async fn who(request: Request) -> Response {
    ///     match request.peer().tls() {
    ///         Some(session) => Response::text(format!("{}\n", session.version())),
    ///         None => Response::text("no TLS\n"),
    ///     }
    /// }
    /// # weft::testing::get(who, "/").assert_text("no TLS\n");
    /// ```
    pub fn tls(&self) -> Option<&TlsSession> {
        self.tls.as_deref()
    }
}
