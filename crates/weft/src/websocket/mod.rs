//! WebSockets (RFC 6455): the opening handshake, and messages over the connection after it.
//!
//! The protocol is implemented by tungstenite. This module adds the protections that a server on
//! the open Internet needs: clients of other origins are rejected, the message size is limited,
//! unresponsive clients are detected, and a shutdown sends a Close frame.
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
//! axum handlers use [`WebSocketSettings::accept_http`]. Message compression (RFC 7692) is not
//! available, because tungstenite does not support it.

#[cfg(feature = "tower")]
mod accept_http;
mod halves; // the two directions, over one stream

use std::fmt;
use std::time::Duration;

use http::header::{
    ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, StatusCode, Version};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::message::upgrade::Upgraded;
use crate::peer::Peer;
use weft_proto::list::list_members;

/// A message: `Text` or `Binary`. Ping and Close frames are handled automatically.
pub use tokio_tungstenite::tungstenite::Message;

pub use self::halves::{WebSocketReceiver, WebSocketSender};

/// Settings of WebSockets.
#[derive(Clone, Debug)]
pub struct WebSocketSettings {
    /// Origins of the pages that may connect. Browsers let any page connect to any server, with
    /// the visitor's cookies.
    ///
    /// Default [`Origins::Same`].
    pub origins: Origins,

    /// Supported subprotocols in order of preference; the first one offered by the client is
    /// selected. If the client offers none of them, the connection has none.
    ///
    /// Default none.
    pub protocols: Vec<String>,

    /// Maximum size of a received message in bytes; a larger one ends the connection.
    ///
    /// Default 1 MiB.
    pub max_message_bytes: usize,

    /// Time without received data until a Ping is sent. If no data is received for this time again,
    /// the client is considered unresponsive.
    ///
    /// Default 30 s.
    pub ping_after: Duration,

    /// Maximum time for sending a message, and for the client's part of the closing handshake.
    ///
    /// Default 20 s.
    pub send_timeout: Duration,
}

/// Origins of the pages that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origins {
    /// The origin of the request: its scheme, host and port (RFC 6454). A page loaded by `http`
    /// can be a forgery of the network, and may not connect by `wss`. Clients without `Origin`,
    /// which are not browsers, may connect.
    ///
    /// If the connection does not use TLS, the scheme may also be `https`, because TLS may end at
    /// a proxy in front. Set the scheme of the client, as
    /// [`RealAddress::scheme`](crate::middleware::RealAddress::scheme) does, to accept only that
    /// one.
    Same,
    /// In addition to `Same`, a list of origins such as `https://example.org`.
    SameOr(Vec<String>),
    /// Any origin.
    Any,
}

impl Default for WebSocketSettings {
    fn default() -> WebSocketSettings {
        WebSocketSettings {
            origins: Origins::Same,
            protocols: Vec::new(),
            max_message_bytes: 1 << 20,
            ping_after: Duration::from_secs(30),
            send_timeout: Duration::from_secs(20),
        }
    }
}

/// Accepts a WebSocket with the default [`WebSocketSettings`], or rejects a request that is not a
/// valid handshake; see [`WebSocketSettings::accept`].
pub fn accept<F: Future<Output = ()> + 'static>(
    request: &Request,
    handler: impl FnOnce(WebSocket) -> F + Send + 'static,
) -> Response {
    WebSocketSettings::default().accept(request, handler)
}

impl WebSocketSettings {
    /// Completes the opening handshake (RFC 6455 §4.2) and passes the WebSocket to `handler`.
    /// Requests that are not a valid handshake get 426 or 400, pages of other origins 403.
    pub fn accept<F: Future<Output = ()> + 'static>(
        self,
        request: &Request,
        handler: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Response {
        let fields =
            |name: &str| request.headers().get_all(name).collect::<Vec<_>>().join(&b","[..]);
        let opening = OpeningHandshake {
            method: request.received_method(),
            version: request.version(),
            authority: request.authority(),
            is_secure: request.is_secure(),
            fields: &fields,
        };
        self.respond(&opening, handler)
    }

    fn respond<F: Future<Output = ()> + 'static>(
        self,
        opening: &OpeningHandshake<'_>,
        handler: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Response {
        let accept_key = match opening.accept_key() {
            Ok(accept_key) => accept_key,
            Err(rejection) => return *rejection,
        };
        if !self.allows(opening) {
            let text = "WebSocket connections from other origins are not allowed.\n";
            return Response::text(text).with_status(StatusCode::FORBIDDEN);
        }
        let protocol = opening.select_protocol(&self.protocols);
        let selected = protocol.clone();
        let response = Response::upgrade("websocket", async move |connection| {
            handler(WebSocket::new(connection, selected, self).await).await;
        })
        .with_header(SEC_WEBSOCKET_ACCEPT, accept_key);
        match protocol {
            Some(protocol) => response.with_header(SEC_WEBSOCKET_PROTOCOL, protocol),
            None => response,
        }
    }

    fn allows(&self, opening: &OpeningHandshake<'_>) -> bool {
        let origin = (opening.fields)(ORIGIN.as_str());
        let origin = String::from_utf8_lossy(&origin);
        let is_same =
            || opening.authority.is_some_and(|host| opening.is_same_origin(&origin, host));
        origin.is_empty()
            || match &self.origins {
                Origins::Any => true,
                Origins::Same => is_same(),
                Origins::SameOr(others) => {
                    is_same() || others.iter().any(|other| other.eq_ignore_ascii_case(&origin))
                }
            }
    }
}

/// The client's opening handshake (RFC 6455 §4.1).
struct OpeningHandshake<'a> {
    method: &'a Method,
    version: Version,
    authority: Option<&'a str>,
    is_secure: bool,
    /// Returns the joined values of all fields of a name.
    fields: &'a dyn Fn(&str) -> Vec<u8>,
}

impl OpeningHandshake<'_> {
    /// Returns true if a page of `origin` has the origin of this request for `authority`. The
    /// request may be more secure than it appears, because TLS may end at a proxy in front.
    fn is_same_origin(&self, origin: &str, authority: &str) -> bool {
        let Some((scheme, host)) = origin.split_once("://") else { return false };
        let default_port = match &*scheme.to_ascii_lowercase() {
            "https" => ":443",
            "http" if !self.is_secure => ":80",
            _ => return false,
        };
        let without_default =
            |host: &str| host.strip_suffix(default_port).unwrap_or(host).to_ascii_lowercase();
        without_default(host) == without_default(authority)
    }

    /// The value of `Sec-WebSocket-Accept` (RFC 6455 §4.2.2), or the error response.
    fn accept_key(&self) -> Result<String, Box<Response>> {
        let has_token = |field: &str, token: &str| {
            let list = (self.fields)(field);
            list_members(&list).any(|member| member.eq_ignore_ascii_case(token.as_bytes()))
        };
        let reject = |status: StatusCode, text: &'static str| {
            let response = Response::text(text).with_status(status);
            Err(Box::new(response.with_header(UPGRADE, "websocket")))
        };
        let is_upgrade = has_token("connection", "upgrade") && has_token("upgrade", "websocket");
        let is_supported_version = self.version >= Version::HTTP_11;
        if self.method != Method::GET || !is_supported_version || !is_upgrade {
            return reject(StatusCode::UPGRADE_REQUIRED, "A WebSocket handshake is required.\n");
        }
        if (self.fields)("sec-websocket-version") != b"13" {
            let rejection =
                reject(StatusCode::UPGRADE_REQUIRED, "Only WebSocket version 13 is supported.\n");
            return rejection.map_err(|it| Box::new(it.with_header(SEC_WEBSOCKET_VERSION, "13")));
        }
        // A key is 16 bytes in base64.
        match (self.fields)("sec-websocket-key") {
            key if key.len() == 24 && key.ends_with(b"==") => Ok(derive_accept_key(&key)),
            _ => reject(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key is missing or malformed.\n"),
        }
    }

    fn select_protocol(&self, protocols: &[String]) -> Option<String> {
        let offered = (self.fields)("sec-websocket-protocol");
        let is_offered = |name: &&String| list_members(&offered).any(|it| it == name.as_bytes());
        protocols.iter().find(is_offered).cloned()
    }
}

/// An open WebSocket.
///
/// One task can handle both directions: [`receive`](WebSocket::receive) is cancel safe, so it can
/// be used in a `select!` together with sources of messages to send. [`split`](WebSocket::split)
/// returns the directions for two tasks.
pub struct WebSocket {
    sender: WebSocketSender,
    receiver: WebSocketReceiver,
    protocol: Option<String>,
}

/// Size of the read and write buffers. Each idle connection would hold tungstenite's default of
/// 128 KiB.
const BUFFER_BYTES: usize = 4 << 10;

impl WebSocket {
    async fn new(
        connection: Upgraded,
        protocol: Option<String>,
        settings: WebSocketSettings,
    ) -> WebSocket {
        let config = WebSocketConfig::default()
            .max_message_size(Some(settings.max_message_bytes))
            .max_frame_size(Some(settings.max_message_bytes))
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES);
        let stream = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
        let (sender, receiver) = halves::split(stream, settings.ping_after, settings.send_timeout);
        WebSocket { sender, receiver, protocol }
    }

    /// Receives the next message, `Text` or `Binary`. `None` if the WebSocket is closed, by the
    /// client or because the server shuts down.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) for a protocol error,
    /// [`BodyTooLarge`](ErrorKind::BodyTooLarge) for a message over the size limit,
    /// [`TooSlow`](ErrorKind::TooSlow) if the client does not respond to a Ping,
    /// [`Disconnected`](ErrorKind::Disconnected) if it disconnects without a closing handshake.
    /// After an error no further messages are received.
    pub async fn receive(&mut self) -> Result<Option<Message>> {
        self.receiver.receive().await
    }

    /// Sends a message, and waits until it is written to the connection.
    ///
    /// # Errors
    /// [`TooSlow`](ErrorKind::TooSlow) if that exceeds [`WebSocketSettings::send_timeout`],
    /// [`Disconnected`](ErrorKind::Disconnected) if the client has disconnected.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<()> {
        self.sender.send(message).await
    }

    /// Closes the WebSocket with a code (RFC 6455 §7.4) and a reason of up to 123 bytes, and waits
    /// for the client's Close frame.
    ///
    /// # Errors
    /// Same as [`send`](WebSocket::send).
    pub async fn close(&mut self, code: u16, reason: &str) -> Result<()> {
        self.sender.close(code, reason).await?;
        self.receiver.discard().await;
        Ok(())
    }

    /// Splits the WebSocket into its directions, for two tasks. The connection closes once both
    /// halves are dropped, and at the latest at the end of a shutdown's grace period. It counts as
    /// open until the handler ends, which therefore waits for its tasks, as here:
    ///
    /// ```
    /// use std::time::Duration;
    /// use weft::{Request, Response, websocket};
    ///
    /// async fn clock(request: Request) -> Response {
    ///     websocket::accept(&request, async |socket| {
    ///         let (sender, mut receiver) = socket.split();
    ///         let ticks = tokio::spawn(async move {
    ///             while sender.send("tick").await.is_ok() {
    ///                 tokio::time::sleep(Duration::from_secs(1)).await;
    ///             }
    ///         });
    ///         while let Ok(Some(_)) = receiver.receive().await {}
    ///         ticks.abort();
    ///     })
    /// }
    /// # assert_eq!(weft::testing::get(clock, "/").status, 426);
    /// ```
    pub fn split(self) -> (WebSocketSender, WebSocketReceiver) {
        (self.sender, self.receiver)
    }

    /// The selected subprotocol.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// The peer of the connection.
    pub fn peer(&self) -> &Peer {
        self.sender.peer()
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

    fn send(
        settings: &WebSocketSettings,
        line: &str,
        fields: &str,
    ) -> crate::testing::TestResponse {
        let request = request(format!("{line}\r\nHost: example.org\r\n{fields}\r\n"));
        let response = settings.clone().accept(&request, async |_| {});
        let response = std::sync::Mutex::new(Some(response));
        call(async |_: crate::Request| response.lock().unwrap().take().unwrap(), request)
    }

    /// The example of RFC 6455 §1.3.
    #[test]
    fn accepts_a_valid_handshake() {
        let reply = send(&WebSocketSettings::default(), "GET / HTTP/1.1", OPENING);
        assert_eq!(reply.status, 101);
        assert_eq!(reply.header("upgrade"), Some("websocket"));
        assert_eq!(reply.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(reply.header("sec-websocket-protocol"), None);
    }

    #[test]
    fn rejects_invalid_handshakes() {
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
            let reply = send(&WebSocketSettings::default(), line, &fields);
            assert_eq!(reply.status, status, "{line} {fields}");
            assert_eq!(reply.header("upgrade"), Some("websocket"), "{fields}");
        }
    }

    #[test]
    fn checks_the_origin() {
        let list = Origins::SameOr(vec!["https://other.example".to_owned()]);
        let same = &Origins::Same;
        for (origins, origin, plain, secure) in [
            (same, "https://example.org", 101, 101),
            (same, "HTTPS://EXAMPLE.org:443", 101, 101),
            // RFC 6454 §5: origins of different schemes differ.
            (same, "http://example.org", 101, 403),
            (same, "http://EXAMPLE.org:80", 101, 403),
            (same, "https://example.org:80", 403, 403),
            (same, "http://example.org:443", 403, 403),
            (same, "https://example.org:8443", 403, 403),
            (same, "https://other.example", 403, 403),
            (same, "https://example.org.other.example", 403, 403),
            (same, "ftp://example.org", 403, 403),
            (same, "example.org", 403, 403),
            (same, "null", 403, 403),
            (&list, "https://other.example", 101, 101),
            (&list, "https://example.org", 101, 101),
            (&list, "http://other.example", 403, 403),
            (&Origins::Any, "null", 101, 101),
        ] {
            for (is_secure, status) in [(false, plain), (true, secure)] {
                let fields = format!("{OPENING}Origin: {origin}\r\n");
                let head = "GET / HTTP/1.1\r\nHost: example.org\r\n";
                let mut request = request(format!("{head}{fields}\r\n"));
                request.set_secure(is_secure);
                let settings =
                    WebSocketSettings { origins: origins.clone(), ..WebSocketSettings::default() };
                let response = settings.accept(&request, async |_| {});
                assert_eq!(response.status(), status, "{origin} {is_secure}");
            }
        }
    }

    #[test]
    fn selects_a_subprotocol() {
        let protocols = vec!["b".to_owned(), "a".to_owned()];
        let settings = WebSocketSettings { protocols, ..WebSocketSettings::default() };
        for (offered, selected) in [("a, b", Some("b")), ("c, a", Some("a")), ("c", None)] {
            let fields = format!("{OPENING}Sec-WebSocket-Protocol: {offered}\r\n");
            let reply = send(&settings, "GET / HTTP/1.1", &fields);
            assert_eq!(reply.header("sec-websocket-protocol"), selected, "{offered}");
        }
    }
}
