//! Clients for HTTP and for WebSockets.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::http::{HeaderMap, Request, Response, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// Longest time for anything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(20);

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// A client of one version of HTTP.
pub struct HttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    version: Version,
    address: SocketAddr,
}

/// A response with its whole body.
pub struct Reply {
    pub status: u16,
    pub fields: HeaderMap,
    pub text: String,
}

impl HttpClient {
    pub fn new(version: Version, address: SocketAddr) -> HttpClient {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.http2_only(version == Version::HTTP_2);
        HttpClient { client: builder.build_http(), version, address }
    }

    /// Clients for both versions.
    pub fn each(address: SocketAddr) -> [HttpClient; 2] {
        [Version::HTTP_11, Version::HTTP_2].map(|version| HttpClient::new(version, address))
    }

    /// Sends a request, as `GET /path`, and returns its response without the body.
    pub async fn send(
        &self,
        line: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .version(self.version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let response = in_time(self.client.request(request)).await.unwrap();
        assert_eq!(response.version(), self.version);
        response
    }

    pub async fn fetch(&self, line: &str, fields: &[(&str, &str)], body: &str) -> Reply {
        let (head, body) = self.send(line, fields, body).await.into_parts();
        let bytes = in_time(body.collect()).await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Reply { status: head.status.as_u16(), fields: head.headers, text }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.fetch(&format!("GET {path}"), &[], "").await
    }
}

/// A client of a WebSocket over HTTP/1.1.
pub struct WebSocket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl WebSocket {
    pub async fn connect(address: SocketAddr, path: &str, protocol: &'static str) -> WebSocket {
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        if !protocol.is_empty() {
            request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
        }
        WebSocket(in_time(tokio_tungstenite::connect_async(request)).await.unwrap().0)
    }

    pub async fn send(&mut self, text: &str) {
        in_time(self.0.send(Message::text(text))).await.unwrap();
    }

    /// Returns the next message.
    pub async fn receive(&mut self) -> String {
        let message = in_time(self.0.next()).await.expect("a message").unwrap();
        message.into_text().unwrap().to_string()
    }
}
