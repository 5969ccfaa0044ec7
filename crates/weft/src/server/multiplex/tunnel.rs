//! A stream as a bidirectional byte stream: a tunnel (RFC 9113 §8.5), or another protocol after an
//! extended CONNECT (RFC 8441).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::message::upgrade::UpgradedStream;
use crate::net::buffers;
use crate::server::multiplex::pipe::{Pipe, PipeEvent};

/// Both directions of a stream, as bytes.
pub(in crate::server) struct Tunnel {
    pipe: Pipe,
    /// Received data that was not read yet.
    read_ahead: Bytes,
}

impl Tunnel {
    pub(in crate::server) fn new(pipe: Pipe) -> Tunnel {
        Tunnel { pipe, read_ahead: Bytes::new() }
    }
}

impl UpgradedStream for Tunnel {
    fn broken(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let pipe = self.pipe.clone();
        Box::pin(poll_fn(move |cx| pipe.poll_reset(cx)))
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.read_ahead.is_empty() {
            match ready!(self.pipe.poll_next(cx)) {
                PipeEvent::End(_) => return Poll::Ready(Ok(())),
                PipeEvent::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                PipeEvent::Data(data) => self.read_ahead = data,
            }
        }
        buffers::move_bytes(&mut self.read_ahead, buf);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let sent = ready!(self.pipe.poll_send(cx, bytes));
        Poll::Ready(sent.ok_or_else(|| io::ErrorKind::BrokenPipe.into()))
    }

    /// Does nothing: the connection sends the output of its streams as soon as it can.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.pipe.finish() {
            true => Poll::Ready(Ok(())),
            false => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// Ends the stream in both directions. Bytes written before are still sent, as on a closed socket;
/// a reset would discard them.
impl Drop for Tunnel {
    fn drop(&mut self) {
        self.pipe.finish();
        self.pipe.close_reader();
    }
}
