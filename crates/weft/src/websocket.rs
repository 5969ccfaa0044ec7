//! WebSockets (RFC 6455): the opening handshake, and messages over the connection after it.
//!
//! The protocol itself is tungstenite's. This adds what a server on the open Internet needs
//! besides: clients of other origins are refused, messages are limited, a client that has
//! gone silent is found out, and a shutdown says goodbye.
//!
//! ```
//! use weft::{Request, Response, websocket};
//!
//! async fn echo(request: Request) -> Response {
//!     websocket::accept(&request, async |mut socket| {
//!         while let Ok(Some(message)) = socket.receive().await {
//!             if socket.send(message).await.is_err() {
//!                 break;
//!             }
//!         }
//!     })
//! }
//! # assert_eq!(weft::testing::get(echo, "/").status, 426);
//! ```
//!
//! A handler of axum's gets there by way of [`Settings::accept_http`]. There is no
//! compression of messages (RFC 7692): the library below has none.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use futures_util::{SinkExt, StreamExt};
use http::header::{
    ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, protocol::frame::coding::CloseCode};

use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::request::{Head, Shutdown};
use crate::message::response::Response;
use crate::message::upgrade::Upgraded;
use crate::peer::Peer;
use crate::proto::headers::members;

/// A message: `Text` or `Binary`. The engine answers pings and closes by itself.
pub use tokio_tungstenite::tungstenite::Message;

/// What WebSockets are accepted with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The pages that may connect, by their `Origin`. Browsers let any page connect to
    /// anywhere, with the visitor's cookies.
    ///
    /// Default [`Origins::Same`].
    pub origins: Origins,

    /// The subprotocols that there are, of which the first that the client offers too is
    /// chosen. If the client offers none of them, the connection has none.
    ///
    /// Default none.
    pub protocols: Vec<String>,

    /// The largest message that may come, in bytes; a larger one ends the connection.
    ///
    /// Default 1 MiB.
    pub max_message_bytes: usize,

    /// How long nothing may come before the client is pinged, and then before it counts as
    /// gone.
    ///
    /// Default 30 s.
    pub ping_after: Duration,

    /// How long a client may take for a message of ours, or for its part of the closing.
    ///
    /// Default 20 s.
    pub send_timeout: Duration,
}

/// Which pages may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Those of the host that is asked, and clients that are no browsers.
    Same,
    /// These besides, such as `https://example.org`.
    These(Vec<String>),
    /// Any.
    Any,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            origins: Origins::Same,
            protocols: Vec::new(),
            max_message_bytes: 1 << 20,
            ping_after: Duration::from_secs(30),
            send_timeout: Duration::from_secs(20),
        }
    }
}

/// Accepts a WebSocket with the default [`Settings`], or refuses what is no handshake for
/// one; see [`Settings::accept`].
pub fn accept<F: Future<Output = ()> + 'static>(
    request: &Head,
    handler: impl FnOnce(WebSocket) -> F + Send + 'static,
) -> Response {
    Settings::default().accept(request, handler)
}

impl Settings {
    /// Answers the opening handshake (RFC 6455 §4.2) and lets the handler have the WebSocket.
    /// What is no such handshake gets 426 or 400, and a page of another origin 403.
    pub fn accept<F: Future<Output = ()> + 'static>(
        self,
        request: &Head,
        handler: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Response {
        let fields =
            |name: &str| request.headers().get_all(name).collect::<Vec<_>>().join(&b","[..]);
        let opening = Opening {
            method: request.method(),
            version: request.version(),
            authority: request.authority(),
            fields: &fields,
        };
        self.answer(&opening, handler)
    }

    /// The same for a framework whose requests and responses are those of the crate `http`,
    /// served through `weft::tower::app`.
    pub fn accept_http<F: Future<Output = ()> + 'static>(
        self,
        method: &Method,
        version: Version,
        headers: &http::HeaderMap,
        handler: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> http::Response<Body> {
        let fields = |name: &str| {
            let values = headers.get_all(name).iter().map(|value| value.as_bytes());
            values.collect::<Vec<_>>().join(&b","[..])
        };
        let authority = headers.get("host").and_then(|host| host.to_str().ok());
        let opening = Opening { method, version, authority, fields: &fields };
        self.answer(&opening, handler).into()
    }

    fn answer<F: Future<Output = ()> + 'static>(
        self,
        opening: &Opening<'_>,
        handler: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Response {
        let key = match opening.key() {
            Ok(key) => key,
            Err(refusal) => return *refusal,
        };
        if !self.allows(opening) {
            let text = "WebSockets are not for pages of other origins here.\n";
            return Response::text(text).with_status(StatusCode::FORBIDDEN);
        }
        let protocol = opening.choose(&self.protocols);
        let chosen = protocol.clone();
        let response = Response::upgrade("websocket", async move |connection| {
            handler(WebSocket::new(connection, chosen, self).await).await;
        })
        .with_header(SEC_WEBSOCKET_ACCEPT, key);
        match protocol {
            Some(protocol) => response.with_header(SEC_WEBSOCKET_PROTOCOL, protocol),
            None => response,
        }
    }

    fn allows(&self, opening: &Opening<'_>) -> bool {
        let origin = (opening.fields)(ORIGIN.as_str());
        let origin = String::from_utf8_lossy(&origin);
        let is_same = || {
            let host = origin.split_once("://").map(|(_, host)| without_default_port(host));
            let authority = opening.authority.map(without_default_port);
            host.zip(authority).is_some_and(|(host, own)| host.eq_ignore_ascii_case(own))
        };
        origin.is_empty()
            || match &self.origins {
                Origins::Any => true,
                Origins::Same => is_same(),
                Origins::These(others) => {
                    is_same() || others.iter().any(|other| other.eq_ignore_ascii_case(&origin))
                }
            }
    }
}

/// An authority whose port says nothing.
fn without_default_port(authority: &str) -> &str {
    let stripped = authority.strip_suffix(":443").or_else(|| authority.strip_suffix(":80"));
    stripped.unwrap_or(authority)
}

/// The client's part of the opening handshake.
struct Opening<'a> {
    method: &'a Method,
    version: Version,
    authority: Option<&'a str>,
    /// The values of all fields of a name.
    fields: &'a dyn Fn(&str) -> Vec<u8>,
}

impl Opening<'_> {
    /// What answers the client's key (RFC 6455 §4.2.2), or the refusal.
    fn key(&self) -> Result<String, Box<Response>> {
        let names = |field: &str, name: &str| {
            let list = (self.fields)(field);
            members(&list).any(|member| member.eq_ignore_ascii_case(name.as_bytes()))
        };
        let refuse = |status: StatusCode, text: &'static str| {
            let response = Response::text(text).with_status(status);
            Err(Box::new(response.with_header(UPGRADE, "websocket")))
        };
        let upgrades = names("connection", "upgrade") && names("upgrade", "websocket");
        let has_upgrades = matches!(self.version, Version::HTTP_11 | Version::HTTP_2);
        if self.method != Method::GET || !has_upgrades || !upgrades {
            return refuse(StatusCode::UPGRADE_REQUIRED, "This is the place of a WebSocket.\n");
        }
        if (self.fields)("sec-websocket-version") != b"13" {
            let refusal = refuse(StatusCode::UPGRADE_REQUIRED, "WebSockets of version 13 only.\n");
            return refusal.map_err(|it| Box::new(it.with_header(SEC_WEBSOCKET_VERSION, "13")));
        }
        // 16 bytes in base64.
        match (self.fields)("sec-websocket-key") {
            key if key.len() == 24 && key.ends_with(b"==") => Ok(derive_accept_key(&key)),
            _ => refuse(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is missing or malformed.\n"),
        }
    }

    fn choose(&self, protocols: &[String]) -> Option<String> {
        let offered = (self.fields)("sec-websocket-protocol");
        let is_offered = |name: &&String| members(&offered).any(|it| it == name.as_bytes());
        protocols.iter().find(is_offered).cloned()
    }
}

/// A WebSocket, open.
///
/// Both directions are waited for in one task: [`receive`](WebSocket::receive) may be dropped
/// at any time, so it can stand in a `select!` beside what there is to be sent.
pub struct WebSocket {
    stream: WebSocketStream<Counted>,
    settings: Settings,
    protocol: Option<String>,
    shutdown: Shutdown,
    /// Since when the client is waited for: since something came, or since it was pinged. And how
    /// much had come then.
    since: Instant,
    came: u64,
    is_pinged: bool,
    /// Goodbye was said.
    is_closing: bool,
}

/// What is read and written at once; tungstenite's own 128 KiB would be held by each idle
/// connection.
const BUFFER_BYTES: usize = 4 << 10;

impl WebSocket {
    async fn new(connection: Upgraded, protocol: Option<String>, settings: Settings) -> WebSocket {
        let config = WebSocketConfig::default()
            .max_message_size(Some(settings.max_message_bytes))
            .max_frame_size(Some(settings.max_message_bytes))
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES);
        let shutdown = connection.shutdown();
        let connection = Counted { connection, came: 0 };
        let stream = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
        WebSocket {
            stream,
            settings,
            protocol,
            shutdown,
            since: Instant::now(),
            came: 0,
            is_pinged: false,
            is_closing: false,
        }
    }

    /// The next message, `Text` or `Binary`. `None` when the WebSocket is closed, by the client
    /// or because the server stops.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) for what is no WebSocket's,
    /// [`BodyTooLarge`](ErrorKind::BodyTooLarge) past the limit,
    /// [`TooSlow`](ErrorKind::TooSlow) for a client that has gone silent,
    /// [`Disconnected`](ErrorKind::Disconnected) for one that left without a word. After an
    /// error there is no more to receive.
    pub async fn receive(&mut self) -> Result<Option<Message>> {
        loop {
            let patience = self.settings.ping_after.saturating_sub(self.since.elapsed());
            let next = tokio::select! {
                next = timeout(patience, self.stream.next()) => next,
                () = self.shutdown.requested() => {
                    self.close(1001, "the server stops").await?;
                    return Ok(None);
                }
            };
            match next {
                // A part of a message is something, too.
                Err(_) if self.stream.get_ref().came > self.came => self.was_heard(),
                Err(_) if self.is_pinged => {
                    let reason = "the client of a WebSocket has gone silent";
                    return Err(Error::new(ErrorKind::TooSlow, reason));
                }
                Err(_) => {
                    (self.since, self.is_pinged) = (Instant::now(), true);
                    self.send(Message::Ping(Default::default())).await?;
                }
                Ok(None | Some(Err(tungstenite::Error::ConnectionClosed))) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.fail(error).await),
                Ok(Some(Ok(message))) => {
                    self.was_heard();
                    if message.is_text() || message.is_binary() {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    fn was_heard(&mut self) {
        (self.since, self.is_pinged) = (Instant::now(), false);
        self.came = self.stream.get_ref().came;
    }

    /// Sends a message, and waits until it is out.
    ///
    /// # Errors
    /// [`TooSlow`](ErrorKind::TooSlow) if the client does not take it,
    /// [`Disconnected`](ErrorKind::Disconnected) if it has left.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<()> {
        match timeout(self.settings.send_timeout, self.stream.send(message.into())).await {
            Ok(sent) => sent.map_err(ours),
            Err(_) => {
                let reason = "the client of a WebSocket takes nothing";
                Err(Error::new(ErrorKind::TooSlow, reason))
            }
        }
    }

    /// Closes the WebSocket with a code (RFC 6455 §7.4) and a reason of up to 123 bytes, and
    /// waits for the client to do so too.
    ///
    /// # Errors
    /// As [`send`](WebSocket::send).
    pub async fn close(&mut self, code: u16, reason: &str) -> Result<()> {
        let end = (0..=reason.len().min(123)).rev().find(|&end| reason.is_char_boundary(end));
        let reason = reason[..end.unwrap_or(0)].into();
        let frame = CloseFrame { code: CloseCode::from(code), reason };
        // Whoever was dropped in the middle of this has said it.
        if !std::mem::replace(&mut self.is_closing, true) {
            self.send(Message::Close(Some(frame))).await?;
        }
        // What still comes was sent before the client knew.
        let rest = async { while let Some(Ok(_)) = self.stream.next().await {} };
        let _ = timeout(self.settings.send_timeout, rest).await;
        Ok(())
    }

    /// The subprotocol that was chosen.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// The other end.
    pub fn peer(&self) -> &Peer {
        self.stream.get_ref().connection.peer()
    }

    /// Tells the client what it did wrong, if it can still be told.
    async fn fail(&mut self, error: tungstenite::Error) -> Error {
        let code = match &error {
            tungstenite::Error::Capacity(_) => CloseCode::Size,
            tungstenite::Error::Utf8(_) => CloseCode::Invalid,
            tungstenite::Error::Protocol(_) => CloseCode::Protocol,
            _ => return ours(error),
        };
        let frame = CloseFrame { code, reason: Default::default() };
        let _ = self.send(Message::Close(Some(frame))).await;
        ours(error)
    }
}

/// A connection, and how much has come over it.
struct Counted {
    connection: Upgraded,
    came: u64,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = room.filled().len();
        let read = Pin::new(&mut self.connection).poll_read(cx, room);
        self.came += (room.filled().len() - before) as u64;
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

fn ours(error: tungstenite::Error) -> Error {
    use tungstenite::error::ProtocolError;
    match error {
        tungstenite::Error::ConnectionClosed
        | tungstenite::Error::AlreadyClosed
        | tungstenite::Error::Protocol(
            ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
        ) => Error::disconnected(),
        tungstenite::Error::Io(error) => error.into(),
        tungstenite::Error::Capacity(_) => {
            Error::new(ErrorKind::BodyTooLarge, "a message is larger than allowed").because(error)
        }
        _ => Error::malformed("what came is no WebSocket's").because(error),
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebSocket({:?})", self.peer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, request};

    const OPENING: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

    fn ask(settings: &Settings, line: &str, fields: &str) -> crate::testing::Reply {
        let request = request(format!("{line}\r\nHost: example.org\r\n{fields}\r\n"));
        let response = settings.clone().accept(&request, async |_| {});
        let response = std::sync::Mutex::new(Some(response));
        call(async |_: crate::Request| response.lock().unwrap().take().unwrap(), request)
    }

    /// The example of RFC 6455 §1.3.
    #[test]
    fn a_handshake() {
        let reply = ask(&Settings::default(), "GET / HTTP/1.1", OPENING);
        assert_eq!(reply.status, 101);
        assert_eq!(reply.header("upgrade"), Some("websocket"));
        assert_eq!(reply.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(reply.header("sec-websocket-protocol"), None);
    }

    #[test]
    fn what_is_no_handshake() {
        let without = |line: &str| OPENING.replace(line, "");
        for (line, fields, status) in [
            ("GET / HTTP/1.1", String::new(), 426),
            ("POST / HTTP/1.1", OPENING.to_owned(), 426),
            ("GET / HTTP/1.0", OPENING.to_owned(), 426),
            ("GET / HTTP/1.1", without("Connection: Upgrade\r\n"), 426),
            ("GET / HTTP/1.1", OPENING.replace("websocket\r\n", "h2c\r\n"), 426),
            ("GET / HTTP/1.1", without("Sec-WebSocket-Version: 13\r\n"), 426),
            ("GET / HTTP/1.1", OPENING.replace("13", "8"), 426),
            ("GET / HTTP/1.1", without("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), 400),
            ("GET / HTTP/1.1", OPENING.replace("dGhlI", ""), 400),
        ] {
            let reply = ask(&Settings::default(), line, &fields);
            assert_eq!(reply.status, status, "{line} {fields}");
            assert_eq!(reply.header("upgrade"), Some("websocket"), "{fields}");
        }
    }

    #[test]
    fn origins() {
        let these = Origins::These(vec!["https://other.example".to_owned()]);
        for (origins, origin, status) in [
            (&Origins::Same, "https://example.org", 101),
            (&Origins::Same, "http://EXAMPLE.org:80", 101),
            (&Origins::Same, "https://example.org:8443", 403),
            (&Origins::Same, "https://other.example", 403),
            (&Origins::Same, "https://example.org.other.example", 403),
            (&Origins::Same, "null", 403),
            (&these, "https://other.example", 101),
            (&these, "https://example.org", 101),
            (&these, "http://other.example", 403),
            (&Origins::Any, "null", 101),
        ] {
            let settings = Settings { origins: origins.clone(), ..Settings::default() };
            let fields = format!("{OPENING}Origin: {origin}\r\n");
            assert_eq!(ask(&settings, "GET / HTTP/1.1", &fields).status, status, "{origin}");
        }
    }

    #[test]
    fn subprotocols() {
        let protocols = vec!["b".to_owned(), "a".to_owned()];
        let settings = Settings { protocols, ..Settings::default() };
        for (offered, chosen) in [("a, b", Some("b")), ("c, a", Some("a")), ("c", None)] {
            let fields = format!("{OPENING}Sec-WebSocket-Protocol: {offered}\r\n");
            let reply = ask(&settings, "GET / HTTP/1.1", &fields);
            assert_eq!(reply.header("sec-websocket-protocol"), chosen, "{offered}");
        }
    }
}
