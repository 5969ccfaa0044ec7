//! What was agreed on in a handshake.

use bytes::Bytes;
use rustls::{ProtocolVersion, ServerConnection};

use crate::request::Peer;

/// What was agreed on with a client, for as long as its connection lasts.
#[derive(Debug)]
pub struct Session {
    version: &'static str,
    cipher_suite: &'static str,
    alpn: Option<&'static str>,
    server_name: Option<Box<str>>,
    peer_certificates: Box<[Bytes]>,
    is_resumed: bool,
}

impl Session {
    pub(super) fn of(connection: &ServerConnection) -> Session {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLSv1.2",
        };
        let suite = connection.negotiated_cipher_suite();
        let alpn = match connection.alpn_protocol() {
            Some(b"h2") => Some("h2"),
            Some(b"http/1.0") => Some("http/1.0"),
            Some(_) => Some("http/1.1"),
            None => None,
        };
        let certificates = connection.peer_certificates().unwrap_or_default();
        let kind = connection.handshake_kind();
        Session {
            version,
            cipher_suite: suite.and_then(|suite| suite.suite().as_str()).map_or("", registered),
            alpn,
            server_name: connection.server_name().map(Box::from),
            peer_certificates: certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect(),
            is_resumed: kind == Some(rustls::HandshakeKind::Resumed),
        }
    }

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
    /// were verified. Empty if it was [not asked](super::ClientAuth), or has none.
    pub fn peer_certificates(&self) -> &[Bytes] {
        &self.peer_certificates
    }

    /// Whether the client came back with a session ticket. Then its certificate, if it has
    /// one, is that of the first time.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }
}

/// rustls writes `TLS13_` where the registry of IANA has `TLS_`.
fn registered(name: &'static str) -> &'static str {
    match name {
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        name => name,
    }
}

impl Peer {
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
    pub fn tls(&self) -> Option<&Session> {
        self.tls.as_deref()
    }
}
