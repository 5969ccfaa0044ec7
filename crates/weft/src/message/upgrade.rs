//! A connection that is handed over: another protocol (RFC 9110 §7.8) or a tunnel (§9.3.6).

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::message::request::{RequestHead, Shared, Shutdown};
use crate::message::response::Response;
use crate::peer::Peer;
use crate::stream::Stream;

/// What becomes of a connection once the response is out.
pub(crate) struct Upgrade(Box<Handler>);

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

/// Whether a client will understand that its connection goes over to something else: it must
/// have asked for that (RFC 9110 §7.8), in a version that has it. Over HTTP/2 it has asked by
/// an extended `CONNECT`, which comes here in the form of an upgrade.
pub(crate) fn check(head: &RequestHead, response: &Response) -> Result<()> {
    let asked_for = match response.status {
        StatusCode::SWITCHING_PROTOCOLS => {
            let protocol = response.header("upgrade").map_or(&b""[..], |value| value.as_bytes());
            let headers = head.headers();
            matches!(head.version(), Version::HTTP_11 | Version::HTTP_2)
                && headers.list("connection").any(|it| it.eq_ignore_ascii_case(b"upgrade"))
                && headers.list("upgrade").any(|it| it.eq_ignore_ascii_case(protocol))
        }
        status => *head.method() == Method::CONNECT && status.is_success(),
    };
    let reason = "the client has not asked for this protocol or tunnel";
    asked_for.then_some(()).ok_or_else(|| Error::new(ErrorKind::InvalidResponse, reason))
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgrade")
    }
}

/// A connection that HTTP is over on: bytes in and bytes out, those first that came behind
/// the request. See [`Response::upgrade`](crate::Response::upgrade).
///
/// None of the engine's clocks runs for it any more, and nobody but its handler notices that
/// the client has gone or gone silent. It counts as a connection until the handler ends.
/// Dropping it closes it.
pub struct Upgraded {
    stream: Box<dyn Stream>,
    shared: Arc<Shared>,
}

impl Upgraded {
    pub(crate) fn new(stream: impl Stream, shared: Arc<Shared>) -> Upgraded {
        Upgraded { stream: Box::new(stream), shared }
    }

    /// The other end.
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Tells when the server is to stop: then the handler has until the end of the grace
    /// period to say goodbye.
    pub fn shutdown(&self) -> Shutdown {
        self.shared.shutdown()
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, room)
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
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
