//! Transport security, as listeners and connections see it. TLS is the implementation; a build
//! without it has no value of these types.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::ReadBuf;

use crate::error::{Error, Result};
use crate::net::reader::ReadHalf;
use crate::net::writer::WriteHalf;
use crate::peer::TlsSession;

/// Callback for the result of each reload.
pub(crate) type ReportReload<'a> = &'a dyn Fn(Result<(), &Error>);

/// Configuration of a listener whose connections are encrypted.
pub(crate) trait SecureAcceptor: Debug + Send + Sync {
    /// Starts the handshake of a connection, for which HTTP/2 may be negotiated if `http2` is set.
    fn start_handshake(&self, http2: bool) -> Box<dyn SecureHandshake>;

    /// Reloads the files of the configuration whenever they change, as long as another reference
    /// to it exists.
    fn reload_on_change<'a>(
        self: Arc<Self>,
        report: ReportReload<'a>,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
}

/// State of a handshake. It does no input or output of its own.
pub(crate) trait SecureHandshake {
    /// Returns `true` until both sides have finished.
    fn is_handshaking(&self) -> bool;

    /// Processes received records.
    ///
    /// # Errors
    /// [`TlsFailed`](crate::ErrorKind::TlsFailed) if the handshake failed. The pending records then
    /// contain the alert.
    fn process(&mut self, ciphertext: &mut BytesMut) -> Result<()>;

    /// Returns `true` if the certificate for the client's server name is being obtained. No input
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

    /// Returns `true` if the client waits for the pending records.
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

/// Receiving half of an encrypted connection.
pub(crate) trait SecureRead: Send {
    /// Ready when plaintext is available or the input has ended. No buffer is held during the wait.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads as [`AsyncRead`](tokio::io::AsyncRead) does.
    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// Reads into the spare capacity of a buffer. 0 is the end of the input.
    fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut)
    -> Poll<io::Result<usize>>;
}

/// Sending half of an encrypted connection.
pub(crate) trait SecureWrite: Send {
    /// Encrypts plaintext, and sends its records as far as the socket accepts them. No more
    /// plaintext is accepted before all of them are sent.
    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Returns `true` if records of accepted plaintext are not sent yet.
    fn has_unsent_records(&self) -> bool;

    /// Sends pending records; 0 when there are none.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Sends all pending records.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Sends pending records to a socket that is not reported as writable; `None` if it accepts
    /// nothing.
    fn write_ignoring_readiness(&mut self) -> Option<usize>;

    /// Lets close_notify follow the next `bytes` of plaintext in the same write. They are the last.
    fn end_after(&mut self, bytes: usize);

    /// Sends close_notify, then shuts down the sending direction of the transport.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Sends close_notify, if the socket accepts it at once.
    fn send_close_notify(&mut self);

    /// Returns the underlying half.
    fn plain(&self) -> &WriteHalf;
}
