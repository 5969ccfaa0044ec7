//! Handshakes of frameworks with the types of the crate `http`.

use http::{Method, Version};

use crate::message::body::Body;
use crate::message::connection::Connection;
use crate::websocket::{OpeningHandshake, WebSocket, WebSocketSettings};

impl WebSocketSettings {
    /// Like [`accept`](WebSocketSettings::accept), for frameworks with the request and response
    /// types of the crate `http`, served through `weft::tower::app`. `connection` is
    /// an extension of the request, [`tower::Connection`](crate::tower::Connection).
    pub fn accept_http<F: Future<Output = ()> + 'static>(
        self,
        method: &Method,
        version: Version,
        headers: &http::HeaderMap,
        connection: &Connection,
        handler: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> http::Response<Body> {
        let fields = |name: &str| {
            let values = headers.get_all(name).iter().map(|value| value.as_bytes());
            values.collect::<Vec<_>>().join(&b","[..])
        };
        let authority = headers.get("host").and_then(|host| host.to_str().ok());
        let is_secure = connection.is_secure();
        let opening = OpeningHandshake { method, version, authority, is_secure, fields: &fields };
        self.respond(&opening, handler).into()
    }
}
