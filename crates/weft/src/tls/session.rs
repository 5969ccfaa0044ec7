//! Parameters negotiated in a TLS handshake.

use bytes::Bytes;
use rustls::{ProtocolVersion, ServerConnection};

use crate::request::Peer;

/// Negotiated TLS parameters of a connection.
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
    pub(super) fn new(connection: &ServerConnection) -> Session {
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
            cipher_suite: suite.and_then(|suite| suite.suite().as_str()).map_or("", iana_name),
            alpn,
            server_name: connection.server_name().map(Box::from),
            peer_certificates: certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect(),
            is_resumed: kind == Some(rustls::HandshakeKind::Resumed),
        }
    }

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
    /// DER. Empty if [none was requested](super::ClientAuth), or the client has none.
    pub fn peer_certificates(&self) -> &[Bytes] {
        &self.peer_certificates
    }

    /// Returns `true` if the client resumed a session with a ticket. Then its certificate, if any,
    /// is that of the original handshake.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }
}

/// rustls uses the prefix `TLS13_` where the IANA registry has `TLS_`.
fn iana_name(name: &'static str) -> &'static str {
    match name {
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        name => name,
    }
}

impl Peer {
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
    pub fn tls(&self) -> Option<&Session> {
        self.tls.as_deref()
    }
}
