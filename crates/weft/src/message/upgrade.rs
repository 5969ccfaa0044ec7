//! Upgraded connections: another protocol (RFC 9110 §7.8) or a tunnel (§9.3.6).

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use http::{HeaderValue, Method, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::message::request_head::RequestHead;
use crate::message::shutdown::Shutdown;
use crate::peer::Peer;
use crate::stream::Io;

/// The handler that takes over a connection after the response is sent.
pub(crate) struct Upgrade(Box<Handler>);

/// Numbers of bytes of a tunnel.
#[derive(Debug, Default)]
pub(crate) struct TunnelBytes {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

type Handler = dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()>>> + Send;

impl Upgrade {
    pub(crate) fn new<F: Future<Output = ()> + 'static>(
        handler: impl FnOnce(Upgraded) -> F + Send + 'static,
    ) -> Upgrade {
        Upgrade(Box::new(|connection| Box::pin(handler(connection))))
    }

    pub(crate) fn run(self, connection: Upgraded) -> Pin<Box<dyn Future<Output = ()>>> {
        (self.0)(connection)
    }
}

/// Checks that the client has requested the protocol of an upgrade (RFC 9110 §7.8) and that the
/// HTTP version supports it. Over HTTP/2, the request is an extended `CONNECT`, which is converted
/// into an upgrade before.
pub(crate) fn check(
    head: &RequestHead,
    status: StatusCode,
    protocol: Option<&HeaderValue>,
) -> Result<()> {
    let is_requested = match status {
        StatusCode::SWITCHING_PROTOCOLS => {
            let protocol = protocol.map_or(&b""[..], |value| value.as_bytes());
            let headers = head.headers();
            head.version() >= Version::HTTP_11
                && headers.bounded_list("connection").any(|it| it.eq_ignore_ascii_case(b"upgrade"))
                && headers.bounded_list("upgrade").any(|it| it.eq_ignore_ascii_case(protocol))
        }
        status => *head.method() == Method::CONNECT && status.is_success(),
    };
    let reason = "the client has not requested this protocol or tunnel";
    is_requested.then_some(()).ok_or_else(|| Error::new(ErrorKind::InvalidResponse, reason))
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgrade")
    }
}

/// The stream of an upgraded connection.
pub(crate) trait UpgradedStream: Io {
    /// Completes when the connection, or its stream, is broken although its input has ended.
    fn broken(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A connection that no longer uses HTTP, as a bidirectional byte stream. Bytes received after the
/// request are read first. See [`Response::upgrade`](crate::Response::upgrade).
///
/// No timeout of the engine applies to it: the handler must detect a client that has disconnected
/// or stopped sending. It counts as an open connection until the handler ends. Dropping it closes
/// the connection.
pub struct Upgraded {
    stream: Box<dyn UpgradedStream>,
    peer: Arc<Peer>,
    shutdown: Shutdown,
    bytes: Arc<TunnelBytes>,
}

impl Upgraded {
    pub(crate) fn new(
        stream: impl UpgradedStream,
        peer: Arc<Peer>,
        shutdown: Shutdown,
    ) -> Upgraded {
        Upgraded { stream: Box::new(stream), peer, shutdown, bytes: Arc::default() }
    }

    /// Numbers of bytes that were read and written.
    pub(crate) fn bytes(&self) -> Arc<TunnelBytes> {
        self.bytes.clone()
    }

    /// Number of bytes that were read.
    #[cfg(feature = "websocket")]
    pub(crate) fn received(&self) -> u64 {
        self.bytes.received.load(Relaxed)
    }

    #[cfg(feature = "websocket")]
    pub(crate) fn shared_peer(&self) -> Arc<Peer> {
        self.peer.clone()
    }

    /// Completes when the connection is broken although its input has ended: a client that has
    /// only shut down its sending direction still receives data, and a client that has left resets
    /// the connection. Await it behind the end of the input only; before, the next read fails.
    ///
    /// Over TCP, probes behind the end of the input find clients that have closed both directions.
    /// Over HTTP/2 and HTTP/3 it completes when the stream is reset, or its connection ends.
    pub fn broken(&self) -> impl Future<Output = ()> + Send + 'static {
        self.stream.broken()
    }

    /// The other end of the connection.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns a handle that is notified of the server's shutdown. The handler must end within the
    /// grace period.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }
}

impl Upgraded {
    fn count_written(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = written {
            self.bytes.sent.fetch_add(*count as u64, Relaxed);
        }
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.bytes.received.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        read
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.count_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upgraded({:?})", self.peer())
    }
}
