//! A stream as a connection of its own: a tunnel (RFC 9113 §8.5), or another protocol after an
//! extended `CONNECT` (RFC 8441).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::h2::{RecvStream, SendStream};
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both directions of a stream, as bytes.
pub(super) struct Tunnel {
    incoming: RecvStream,
    /// What has come and is not read yet.
    read_ahead: Bytes,
    outgoing: SendStream<Bytes>,
}

/// The most that is copied at a time: what fits a frame of the size that every client takes.
const MOST_WRITE_BYTES: usize = 16 << 10;

impl Tunnel {
    pub(super) fn new(incoming: RecvStream, outgoing: SendStream<Bytes>) -> Tunnel {
        Tunnel { incoming, read_ahead: Bytes::new(), outgoing }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.read_ahead.is_empty() {
            match ready!(self.incoming.poll_data(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(failed(error))),
                Some(Ok(data)) => self.read_ahead = data,
            }
        }
        let length = self.read_ahead.len().min(room.remaining());
        room.put_slice(&self.read_ahead[..length]);
        self.read_ahead.advance(length);
        // It fails only if the stream is gone: then nobody wants to send.
        let _ = self.incoming.flow_control().release_capacity(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let wanted = bytes.len().min(MOST_WRITE_BYTES);
        self.outgoing.reserve_capacity(wanted);
        while self.outgoing.capacity() == 0 {
            match ready!(self.outgoing.poll_capacity(cx)) {
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                Some(Err(error)) => return Poll::Ready(Err(failed(error))),
                Some(Ok(_)) => {}
            }
        }
        let length = wanted.min(self.outgoing.capacity());
        let piece = Bytes::copy_from_slice(&bytes[..length]);
        self.outgoing.send_data(piece, false).map_err(failed)?;
        Poll::Ready(Ok(length))
    }

    /// The connection sends what its streams have, as soon as it can.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.outgoing.send_data(Bytes::new(), true).map_err(failed))
    }
}

/// The stream ends for the client, too, when nobody has it any more. What was written before
/// still arrives, as on a socket that is closed; a reset would take it back.
impl Drop for Tunnel {
    fn drop(&mut self) {
        // It fails if this direction has ended already.
        let _ = self.outgoing.send_data(Bytes::new(), true);
    }
}

fn failed(error: ::h2::Error) -> io::Error {
    match error.reason() {
        Some(_) => io::Error::new(io::ErrorKind::ConnectionReset, error),
        None => io::Error::new(io::ErrorKind::BrokenPipe, error),
    }
}
