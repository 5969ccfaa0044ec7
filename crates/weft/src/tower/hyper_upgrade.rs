//! Upgrades by `hyper::upgrade::on`, as axum's `WebSocketUpgrade` and other frameworks use it.
//!
//! These frameworks take over a connection by the `OnUpgrade` in the extensions of a request, which
//! only hyper can create. So if a request asks for an upgrade, a server of hyper reads a fixed
//! request for an upgrade from a [`ClientStream`] in memory. The service gets the `OnUpgrade` of
//! that request. If the service accepts the upgrade, the server of hyper responds with 101, which
//! the stream discards. From then on the stream is the connection of the client.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::{MaybeUninit, take};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Method, StatusCode, Version};
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use crate::message::payload::Payload;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::message::upgrade::{Upgrade, Upgraded};

/// The request that hyper's server reads.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: weft\r\n\r\n";

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 8 << 10;

/// Returns true if a request asks for an upgrade or a tunnel.
pub(super) fn is_requested(head: &RequestHead) -> bool {
    head.headers().get_bytes(UPGRADE.as_str()).is_some() || *head.method() == Method::CONNECT
}

/// An upgrade that was offered to a service. Dropping it makes its `OnUpgrade` fail.
pub(super) struct PendingUpgrade {
    is_connect: bool,
    server: Pin<Box<dyn Future<Output = ()> + Send>>,
    handshake: Arc<Handshake>,
    /// Notified by the end of the stream.
    stream_closed: oneshot::Receiver<Infallible>,
}

impl PendingUpgrade {
    /// Adds an `OnUpgrade` to the extensions of a request that [asks](is_requested) for an upgrade
    /// or a tunnel.
    ///
    /// Over HTTP/2 and HTTP/3, the engine converts an extended `CONNECT` to the upgrade of a `GET`
    /// request. Only then a request has the field `Upgrade` there, and it gets the version 1.1:
    /// most frameworks know no other form.
    pub(super) fn offer<B>(request: &mut http::Request<B>) -> Option<PendingUpgrade> {
        let is_connect = *request.method() == Method::CONNECT;
        if !is_connect && request.version() >= Version::HTTP_2 {
            *request.version_mut() = Version::HTTP_11;
        }
        let (pending, on_upgrade) = PendingUpgrade::new(is_connect)?;
        request.extensions_mut().insert(on_upgrade);
        Some(pending)
    }

    fn new(is_connect: bool) -> Option<(PendingUpgrade, OnUpgrade)> {
        let handshake = Arc::new(Handshake::default());
        let (closed, stream_closed) = oneshot::channel();
        let stream =
            ClientStream { state: StreamState::Request, handshake: handshake.clone(), closed };
        let service = {
            let handshake = handshake.clone();
            service_fn(move |request| respond(handshake.clone(), request))
        };
        let server = http1::Builder::new().serve_connection(stream, service).with_upgrades();
        let server = Box::pin(async move { drop(server.await) });
        let mut pending = PendingUpgrade { is_connect, server, handshake, stream_closed };
        // The stream has the whole request, so that the first poll calls the service.
        let _ = pending.poll_server();
        let HandshakeState::Requested(on_upgrade) = pending.handshake.take() else { return None };
        Some((pending, on_upgrade))
    }

    /// Makes `response` an upgrade, if it accepts it: by 101, or by success in response to
    /// `CONNECT`.
    pub(super) fn accept(self, response: Response) -> Response {
        let is_accepted = match response.status {
            StatusCode::SWITCHING_PROTOCOLS => true,
            status => self.is_connect && status.is_success(),
        };
        // A handler of Weft in the service may have accepted the upgrade in its own way.
        if !is_accepted || matches!(response.payload, Payload::Upgrade(_)) {
            return response;
        }
        let upgrade = Upgrade::new(|connection| self.complete(connection));
        Response { payload: Payload::Upgrade(upgrade), ..response }
    }

    /// Passes the connection of the client to the service, and waits until the service closes it.
    async fn complete(mut self, connection: Upgraded) {
        self.handshake.set(HandshakeState::Accepted(connection));
        if self.poll_server().is_ready() {
            // The sender sends nothing; it is dropped with the stream.
            let _ = self.stream_closed.await;
        }
    }

    /// Polls hyper's server. Nothing wakes it: it progresses when the state of the handshake
    /// changes.
    fn poll_server(&mut self) -> Poll<()> {
        self.server.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}

/// State that the upgrade, the service of hyper's server and its stream share.
#[derive(Default)]
struct Handshake(Mutex<HandshakeState>);

#[derive(Default)]
enum HandshakeState {
    #[default]
    Waiting,
    /// hyper's server has read the request.
    Requested(OnUpgrade),
    /// The service has accepted the upgrade.
    Accepted(Upgraded),
}

impl Handshake {
    fn lock(&self) -> MutexGuard<'_, HandshakeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: HandshakeState) {
        *self.lock() = state;
    }

    fn take(&self) -> HandshakeState {
        take(&mut *self.lock())
    }
}

/// The service of hyper's server: passes the `OnUpgrade` on, and responds when the upgrade is
/// accepted.
async fn respond<B>(
    handshake: Arc<Handshake>,
    mut request: http::Request<B>,
) -> Result<http::Response<String>, Infallible> {
    handshake.set(HandshakeState::Requested(hyper::upgrade::on(&mut request)));
    poll_fn(|_| match *handshake.lock() {
        HandshakeState::Accepted(_) => Poll::Ready(()),
        _ => Poll::Pending,
    })
    .await;
    let mut response = http::Response::new(String::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("weft"));
    Ok(response)
}

/// The stream of hyper's server.
struct ClientStream {
    state: StreamState,
    handshake: Arc<Handshake>,
    /// Dropped with the stream, which ends the handler of the upgrade.
    #[expect(dead_code, reason = "only its drop has an effect")]
    closed: oneshot::Sender<Infallible>,
}

enum StreamState {
    /// hyper's server reads the request.
    Request,
    /// hyper's server writes its response.
    Response,
    /// The connection of the client.
    Upgraded(Upgraded),
}

impl ClientStream {
    /// Returns the connection of the client, or an error if hyper's server still has the stream.
    fn upgraded(&mut self) -> io::Result<Pin<&mut Upgraded>> {
        match &mut self.state {
            StreamState::Upgraded(connection) => Ok(Pin::new(connection)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl hyper::rt::Read for ClientStream {
    /// Reads by way of a buffer, because the memory of hyper's cursor may be uninitialized.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.state {
            StreamState::Request if cursor.remaining() >= REQUEST.len() => {
                cursor.put_slice(REQUEST);
                self.state = StreamState::Response;
                Poll::Ready(Ok(()))
            }
            StreamState::Request | StreamState::Response => Poll::Pending,
            StreamState::Upgraded(connection) => {
                let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
                let length = cursor.remaining().min(READ_BYTES);
                let mut buf = ReadBuf::uninit(&mut bytes[..length]);
                ready!(pin!(connection).poll_read(cx, &mut buf))?;
                cursor.put_slice(buf.filled());
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl hyper::rt::Write for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let StreamState::Upgraded(connection) = &mut self.state {
            return pin!(connection).poll_write(cx, bytes);
        }
        // The head of the response to the fixed request. hyper writes it at once.
        if bytes.ends_with(b"\r\n\r\n")
            && let HandshakeState::Accepted(connection) = self.handshake.take()
        {
            self.state = StreamState::Upgraded(connection);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.upgraded()?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.state {
            StreamState::Upgraded(connection) => connection.is_write_vectored(),
            _ => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            StreamState::Upgraded(connection) => pin!(connection).poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.upgraded()?.poll_shutdown(cx)
    }
}
