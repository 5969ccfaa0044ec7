//! An upgraded connection: its two directions as one stream for the handler, and its record.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::deadline::Stopwatch;
use crate::hooks::{Hooks, Record};
use crate::message::record_data::RecordData;
use crate::message::request_head::RequestHead;
use crate::message::upgrade::{TunnelBytes, Upgrade, Upgraded, UpgradedStream};
use crate::net::buffers;
use crate::net::reader::Reader;
use crate::net::writer::Writer;
use crate::peer::Peer;

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

impl UpgradedStream for RawConnection {
    fn broken(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.writer.broken())
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

/// An upgrade whose handler gets the connection or stream after the response.
pub(crate) struct PendingUpgrade {
    pub(crate) upgrade: Upgrade,
    /// Values for the record of the tunnel, if it is recorded.
    pub(crate) record: Option<Box<TunnelRecord>>,
}

/// Values of the request of a tunnel, for the [`Record`] at its end.
pub(crate) struct TunnelRecord {
    pub(crate) watch: Stopwatch,
    pub(crate) status: StatusCode,
    pub(crate) head: RequestHead,
    /// The client in place of the peer.
    pub(crate) client: Option<Peer>,
    pub(crate) data: Option<Arc<dyn RecordData>>,
}

impl From<Upgrade> for PendingUpgrade {
    fn from(upgrade: Upgrade) -> PendingUpgrade {
        PendingUpgrade { upgrade, record: None }
    }
}

/// Passes the record of a tunnel to the hooks when it is dropped, also if the task of the
/// connection is dropped at the end of a shutdown.
pub(super) struct TunnelGuard<'a> {
    hooks: &'a dyn Hooks,
    peer: &'a Peer,
    record: Box<TunnelRecord>,
    bytes: Arc<TunnelBytes>,
}

impl<'a> TunnelGuard<'a> {
    /// Returns `None` if the tunnel is not recorded.
    pub(super) fn new(
        hooks: Option<&'a dyn Hooks>,
        peer: &'a Peer,
        record: Option<Box<TunnelRecord>>,
        upgraded: &Upgraded,
    ) -> Option<TunnelGuard<'a>> {
        Some(TunnelGuard { hooks: hooks?, peer, record: record?, bytes: upgraded.bytes() })
    }
}

impl Drop for TunnelGuard<'_> {
    fn drop(&mut self) {
        let TunnelRecord { watch, status, head, client, data } = &*self.record;
        self.hooks.on_tunnel_end(&Record {
            peer: client.as_ref().unwrap_or(self.peer),
            head: Some(head),
            request_line: b"",
            status: *status,
            has_response: true,
            body_bytes: self.bytes.sent.load(Relaxed),
            tunnel_received: Some(self.bytes.received.load(Relaxed)),
            is_upgrade: true,
            duration: watch.elapsed(),
            error: None,
            is_complete: true,
            data: data.as_deref(),
        });
    }
}
