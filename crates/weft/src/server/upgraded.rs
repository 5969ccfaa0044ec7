//! The two directions of a connection as one stream, for the handler of an upgrade.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::buffers;
use crate::net::reader::Reader;
use crate::net::writer::Writer;

/// A connection that no longer uses HTTP. Bytes received after the request are read first.
pub(super) struct RawConnection {
    reader: Reader,
    writer: Writer,
}

impl RawConnection {
    pub(super) fn new(reader: Reader, writer: Writer) -> RawConnection {
        RawConnection { reader, writer }
    }
}

impl AsyncRead for RawConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read_ahead = &mut self.reader.buffer;
        if read_ahead.is_empty() {
            return self.reader.poll_read(cx, buf);
        }
        buffers::move_bytes(read_ahead, buf);
        if read_ahead.is_empty() {
            // An idle connection owns no buffer.
            *read_ahead = Default::default();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RawConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writer.half.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writer.half.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.writer.half.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.half.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.poll_shutdown(cx)
    }
}

/// The end of the handler closes the connection. Over TLS, it sends `close_notify`, so that the
/// close is not taken for a truncation.
impl Drop for RawConnection {
    fn drop(&mut self) {
        self.writer.send_close_notify();
    }
}
