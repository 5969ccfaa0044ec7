//! The two halves of an encrypted connection, as readers and writers see them.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::ReadBuf;

use crate::net::socket::Socket;

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

    /// Returns true if records of accepted plaintext are not sent yet.
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

    /// The kernel socket beneath, if there is one.
    fn socket(&self) -> Option<&Arc<Socket>>;
}
