//! Transport security, as listeners and connections see it. TLS is the implementation; a build
//! without it has no value of these types.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(feature = "http3")]
use bytes::Bytes;
use bytes::BytesMut;
#[cfg(feature = "http3")]
use quinn_proto::crypto::{HandshakeTokenKey, HmacKey};

use crate::error::{Error, Result};
use crate::net::reader::ReadHalf;
use crate::net::secure_half::{SecureRead, SecureWrite};
use crate::net::writer::WriteHalf;
use crate::peer::TlsSession;

/// Callback for the result of each reload.
pub(crate) type ReportReload<'a> = &'a dyn Fn(Result<(), &Error>);

/// Configuration of a listener whose connections are encrypted.
pub(crate) trait SecureAcceptor: Debug + Send + Sync {
    /// Starts the handshake of a connection, for which HTTP/2 may be negotiated if `http2` is set.
    /// `client` is `None` on Unix sockets.
    fn start_handshake(&self, http2: bool, client: Option<IpAddr>) -> Box<dyn SecureHandshake>;

    /// Returns the current configuration for QUIC.
    #[cfg(feature = "http3")]
    fn quic(&self) -> Arc<dyn QuicSecurity>;

    /// Reloads the files of the configuration whenever they change, as long as another reference
    /// to it exists.
    fn reload_on_change<'a>(
        self: Arc<Self>,
        report: ReportReload<'a>,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
}

/// Configuration of QUIC connections, whose handshakes the transport drives, as of a time.
#[cfg(feature = "http3")]
pub(crate) trait QuicSecurity {
    /// A value that differs from the value of each other configuration in use.
    fn version(&self) -> usize;

    /// Returns the configuration for connections with these limits. A client may send early data
    /// only within limits that it knows from a former connection (RFC 9114 §7.2.4.2).
    fn server_config(&self, limits: QuicLimits) -> Arc<rustls::ServerConfig>;

    /// Returns the keys of an address: derived from the first key of session tickets, or generated
    /// without one.
    ///
    /// # Errors
    /// [`Listen`](crate::ErrorKind::Listen) if the system has no random numbers.
    fn keys(&self) -> Result<QuicKeys>;

    /// Returns the parameters of a connection.
    fn session(&self, handshake: QuicHandshake) -> TlsSession;
}

/// The limits that a client stores with its session.
#[cfg(feature = "http3")]
pub(crate) type QuicLimits = [u64; 3];

/// The result of the handshake of a QUIC connection.
#[cfg(feature = "http3")]
#[derive(Debug, Default)]
pub(crate) struct QuicHandshake {
    /// The server name that the client has sent.
    pub(crate) server_name: Option<Box<str>>,
    /// The name of the cipher suite in rustls.
    pub(crate) cipher_suite: &'static str,
    /// The certificates of the client.
    pub(crate) certificates: Box<[Bytes]>,
    pub(crate) is_resumed: bool,
}

/// The keys that all endpoints of an address share: datagrams may reach another worker than the
/// datagrams before them. Servers with one secret share them, too.
#[cfg(feature = "http3")]
#[derive(Clone)]
pub(crate) struct QuicKeys {
    /// Key of stateless resets (RFC 9000 §10.3).
    pub(crate) reset: Arc<dyn HmacKey>,
    /// Key of tokens (RFC 9000 §8.1).
    pub(crate) token: Arc<dyn HandshakeTokenKey>,
    /// Mask of the worker in a connection identifier.
    pub(crate) ids: Arc<dyn MaskConnectionId>,
}

/// Number of random bytes of a connection identifier.
#[cfg(feature = "http3")]
pub(crate) const ID_RANDOM_BYTES: usize = 8;

/// A keyed function of the random bytes of a connection identifier.
#[cfg(feature = "http3")]
pub(crate) trait MaskConnectionId: Send + Sync {
    fn mask(&self, random: &[u8; ID_RANDOM_BYTES]) -> u8;
}

/// State of a handshake. It does no input or output of its own.
pub(crate) trait SecureHandshake {
    /// Returns true if a side has not finished.
    fn is_handshaking(&self) -> bool;

    /// Processes received records.
    ///
    /// # Errors
    /// [`TlsFailed`](crate::ErrorKind::TlsFailed) if the handshake failed. The pending records then
    /// contain the alert.
    fn process(&mut self, ciphertext: &mut BytesMut) -> Result<()>;

    /// Returns true if the certificate for the client's server name is being obtained. No input
    /// is processed meanwhile.
    fn is_obtaining(&self) -> bool;

    /// Ready when the certificate was obtained.
    ///
    /// # Errors
    /// [`NoCertificate`](crate::ErrorKind::NoCertificate) if there will be none.
    fn poll_obtain(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>>;

    /// Continues a handshake whose certificate was obtained.
    ///
    /// # Errors
    /// The errors of [`process`](SecureHandshake::process), and
    /// [`NoCertificate`](crate::ErrorKind::NoCertificate).
    fn continue_with_obtained(&mut self) -> Result<()>;

    /// Returns true if the client waits for the pending records.
    fn must_flush(&self) -> bool;

    /// Sends pending records; 0 when there are none.
    fn poll_send(&mut self, half: &mut WriteHalf, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Returns the negotiated parameters.
    fn session(&self) -> TlsSession;

    /// Encrypts both directions of a transport. `ciphertext` holds the bytes received after the
    /// handshake.
    fn split(
        self: Box<Self>,
        ciphertext: BytesMut,
        read: ReadHalf,
        write: WriteHalf,
    ) -> (Box<dyn SecureRead>, Box<dyn SecureWrite>);
}
