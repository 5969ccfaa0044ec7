//! Byte streams that are not sockets of the kernel.

use tokio::io::{AsyncRead, AsyncWrite};

/// Any bidirectional stream of bytes, for
/// [`serve_connection`](crate::Server::serve_connection).
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}
