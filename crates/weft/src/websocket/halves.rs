//! The two directions of an open WebSocket. Both use one stream, which each locks for a poll, and
//! never while it waits.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::ready;
use std::time::Duration;

use futures_util::future::{self, Either};
use futures_util::{SinkExt, StreamExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message, protocol::frame::coding::CloseCode};

use crate::error::{Error, ErrorKind, Result};
use crate::message::shutdown::Shutdown;
use crate::message::upgrade::Upgraded;
use crate::peer::Peer;

type Tungstenite = WebSocketStream<Upgraded>;

/// The sending half of a WebSocket, from [`WebSocket::split`](super::WebSocket::split). Its clones
/// send over the same connection, one message after the other.
#[derive(Clone)]
pub struct WebSocketSender {
    shared: Arc<Shared>,
}

/// The receiving half of a WebSocket, from [`WebSocket::split`](super::WebSocket::split). It also
/// sends Ping frames, the replies to the client's Ping and Close frames, and the Close frame of a
/// shutdown, so a task must [receive](WebSocketReceiver::receive) as long as the WebSocket is open.
pub struct WebSocketReceiver {
    shared: Arc<Shared>,
    shutdown: Shutdown,
    ping_after: Duration,
    /// Start of the idle period: the last received data, or the Ping sent since.
    idle_since: Instant,
    /// Number of bytes received at the start of the idle period.
    received: u64,
    is_ping_pending: bool,
}

struct Shared {
    stream: Mutex<Tungstenite>,
    /// The permission to send, and true once a Close frame was sent. The stream wakes only one of
    /// several tasks that wait for room in its buffer.
    is_close_sent: tokio::sync::Mutex<bool>,
    send_timeout: Duration,
    peer: Arc<Peer>,
}

/// Creates the halves of a WebSocket.
pub(super) fn split(
    stream: Tungstenite,
    ping_after: Duration,
    send_timeout: Duration,
) -> (WebSocketSender, WebSocketReceiver) {
    let connection = stream.get_ref();
    let (shutdown, peer) = (connection.shutdown(), connection.shared_peer());
    let (stream, is_close_sent) = (Mutex::new(stream), tokio::sync::Mutex::new(false));
    let shared = Arc::new(Shared { stream, is_close_sent, send_timeout, peer });
    let receiver = WebSocketReceiver {
        shared: shared.clone(),
        shutdown,
        ping_after,
        idle_since: Instant::now(),
        received: 0,
        is_ping_pending: false,
    };
    (WebSocketSender { shared }, receiver)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tungstenite> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> Option<Result<Message, tungstenite::Error>> {
        poll_fn(|cx| self.lock().poll_next_unpin(cx)).await
    }

    /// Sends a message, unless it is a second Close frame.
    async fn send(&self, message: Message) -> Result<()> {
        let send = async {
            let mut is_close_sent = self.is_close_sent.lock().await;
            if message.is_close() && *is_close_sent {
                return Ok(());
            }
            let mut message = Some(message);
            poll_fn(|cx| {
                let mut stream = self.lock();
                if message.is_some() {
                    ready!(stream.poll_ready_unpin(cx))?;
                }
                if let Some(message) = message.take() {
                    *is_close_sent |= message.is_close();
                    stream.start_send_unpin(message)?;
                }
                stream.poll_flush_unpin(cx)
            })
            .await
        };
        match timeout(self.send_timeout, send).await {
            Ok(sent) => sent.map_err(convert_error),
            Err(_) => {
                let reason = "the WebSocket client did not read a message in time";
                Err(Error::new(ErrorKind::TooSlow, reason))
            }
        }
    }
}

impl WebSocketSender {
    /// Sends a message, as [`WebSocket::send`](super::WebSocket::send). The time in which other
    /// senders send counts as well.
    ///
    /// # Errors
    /// The errors of [`WebSocket::send`](super::WebSocket::send).
    pub async fn send(&self, message: impl Into<Message>) -> Result<()> {
        self.shared.send(message.into()).await
    }

    /// Sends a Close frame with a code (RFC 6455 §7.4) and a reason of up to 123 bytes. The
    /// receiving half still receives the messages that the client has sent before its own Close
    /// frame.
    ///
    /// # Errors
    /// The errors of [`WebSocket::send`](super::WebSocket::send).
    pub async fn close(&self, code: u16, reason: &str) -> Result<()> {
        let end = (0..=reason.len().min(123)).rev().find(|&end| reason.is_char_boundary(end));
        let reason = reason[..end.unwrap_or(0)].into();
        let frame = CloseFrame { code: CloseCode::from(code), reason };
        self.shared.send(Message::Close(Some(frame))).await
    }

    /// The peer of the connection.
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }
}

impl WebSocketReceiver {
    /// Receives the next message, as [`WebSocket::receive`](super::WebSocket::receive).
    ///
    /// # Errors
    /// The errors of [`WebSocket::receive`](super::WebSocket::receive).
    pub async fn receive(&mut self) -> Result<Option<Message>> {
        loop {
            let idle_timeout = self.ping_after.saturating_sub(self.idle_since.elapsed());
            let next = match future::select(
                pin!(self.shutdown.requested()),
                pin!(timeout(idle_timeout, self.shared.next())),
            )
            .await
            {
                Either::Left(_) => None,
                Either::Right((next, _)) => Some(next),
            };
            let Some(next) = next else {
                let sender = WebSocketSender { shared: self.shared.clone() };
                sender.close(1001, "the server stops").await?;
                self.discard().await;
                return Ok(None);
            };
            match next {
                // A part of a message resets the idle period too.
                Err(_) if self.shared.lock().get_ref().received() > self.received => {
                    self.reset_idle();
                }
                Err(_) if self.is_ping_pending => {
                    let reason = "the WebSocket client did not respond to a ping";
                    return Err(Error::new(ErrorKind::TooSlow, reason));
                }
                Err(_) => {
                    (self.idle_since, self.is_ping_pending) = (Instant::now(), true);
                    self.shared.send(Message::Ping(Default::default())).await?;
                }
                Ok(None | Some(Err(tungstenite::Error::ConnectionClosed))) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.close_after_error(error).await),
                Ok(Some(Ok(message))) => {
                    self.reset_idle();
                    if message.is_text() || message.is_binary() {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    /// Discards messages that the client sends before it receives the Close frame.
    pub(super) async fn discard(&mut self) {
        let rest = async { while let Some(Ok(_)) = self.shared.next().await {} };
        let _ = timeout(self.shared.send_timeout, rest).await;
    }

    fn reset_idle(&mut self) {
        (self.idle_since, self.is_ping_pending) = (Instant::now(), false);
        self.received = self.shared.lock().get_ref().received();
    }

    /// Sends a Close frame with the code for a protocol error, and converts the error.
    async fn close_after_error(&mut self, error: tungstenite::Error) -> Error {
        let code = match &error {
            tungstenite::Error::Capacity(_) => CloseCode::Size,
            tungstenite::Error::Utf8(_) => CloseCode::Invalid,
            tungstenite::Error::Protocol(_) => CloseCode::Protocol,
            _ => return convert_error(error),
        };
        let frame = CloseFrame { code, reason: Default::default() };
        let _ = self.shared.send(Message::Close(Some(frame))).await;
        convert_error(error)
    }

    /// The peer of the connection.
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }
}

fn convert_error(error: tungstenite::Error) -> Error {
    use tungstenite::error::ProtocolError;
    match error {
        tungstenite::Error::ConnectionClosed
        | tungstenite::Error::AlreadyClosed
        | tungstenite::Error::Protocol(
            ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
        ) => Error::disconnected(),
        tungstenite::Error::Io(error) => Error::of_connection(error),
        tungstenite::Error::Capacity(_) => {
            Error::new(ErrorKind::BodyTooLarge, "the WebSocket message exceeds the maximum size")
                .with_source(error)
        }
        _ => Error::malformed("the client violated the WebSocket protocol").with_source(error),
    }
}

impl fmt::Debug for WebSocketSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebSocketSender({:?})", self.peer())
    }
}

impl fmt::Debug for WebSocketReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebSocketReceiver({:?})", self.peer())
    }
}
