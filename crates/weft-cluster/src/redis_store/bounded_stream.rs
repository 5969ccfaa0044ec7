//! A connection whose peer can send a bounded number of bytes for each call.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that the peer may still send.
#[derive(Clone, Default)]
pub(super) struct ReadBudget(Arc<AtomicUsize>);

impl ReadBudget {
    pub(super) fn set(&self, bytes: usize) {
        self.0.store(bytes, Relaxed);
    }

    /// Returns true if the peer has sent too much.
    pub(super) fn is_exceeded(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

/// A connection with a [`ReadBudget`]. Reads fail after the budget is used up.
pub(super) struct BoundedStream<S> {
    pub(super) stream: S,
    pub(super) budget: ReadBudget,
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let received = buf.filled().len() - before;
        let rest = self.budget.0.load(Relaxed).saturating_sub(received);
        self.budget.set(rest);
        match polled {
            Poll::Ready(Ok(())) if received > 0 && rest == 0 => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "too many bytes")))
            }
            polled => polled,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
