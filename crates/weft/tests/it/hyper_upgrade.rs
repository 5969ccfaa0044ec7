//! Upgrades by `hyper::upgrade::on` in tower services: axum's `WebSocketUpgrade` and tunnels.
#![cfg(all(feature = "tls", feature = "tower", feature = "websocket"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::clients::{Client, ClientRequest, UpgradedIo, on_every_transport, wait_until};
use axum::Router;
use axum::extract::ws::{Message as AxumMessage, WebSocket, WebSocketUpgrade};
use axum::http::{Method, StatusCode, Version};
use axum::response::Response;
use axum::routing::{any, get};
use futures_util::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use weft::tower;

/// Counts dropped sockets.
#[derive(Clone, Default)]
struct Ended(Arc<AtomicUsize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, AxumMessage::Text(_) | AxumMessage::Binary(_))
            && socket.send(message).await.is_err()
        {
            break;
        }
    }
}

fn router() -> Router {
    Router::new()
        .route("/get", get(async |upgrade: WebSocketUpgrade| upgrade.on_upgrade(echo)))
        .route(
            "/any",
            any(async |method: Method, version: Version, upgrade: WebSocketUpgrade| {
                assert_eq!((method, version), (Method::GET, Version::HTTP_11));
                upgrade.protocols(["b", "a"]).on_upgrade(echo)
            }),
        )
}

async fn connect(client: &mut Client, path: &str) -> WebSocketStream<UpgradedIo> {
    let request = ClientRequest::get(path)
        .field("sec-websocket-version", "13")
        .field("sec-websocket-protocol", "a, c");
    let io = client.upgrade(request, "websocket").await.expect("a WebSocket");
    WebSocketStream::from_raw_socket(io, Role::Client, None).await
}

#[test]
fn axum_accepts_websockets() {
    on_every_transport(async |transport| {
        let server = transport.serve(tower::app(router()));
        for path in ["/get", "/any"] {
            let mut client = server.client().await;
            let mut socket = connect(&mut client, path).await;
            for length in [0, 5, 70_000, 3_000_000] {
                let message = Message::binary(vec![b'x'; length]);
                socket.send(message.clone()).await.unwrap();
                assert_eq!(socket.next().await.unwrap().unwrap(), message);
            }
            socket.close(None).await.unwrap();
            assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
            assert!(socket.next().await.is_none());
        }
        server.stop().await;
    });
}

#[test]
fn axum_rejects_requests_that_are_no_handshake() {
    on_every_transport(async |transport| {
        let server = transport.serve(tower::app(router()));
        let mut client = server.client().await;
        let status = client.get("/get").await.status;
        assert_eq!(status, if transport.is_multiplexed() { 405 } else { 400 });
        let without_version = ClientRequest::get("/any");
        assert_eq!(client.upgrade(without_version, "websocket").await.err(), Some(400));
        // The service responds to the request for an upgrade in the usual way.
        let mut client = server.client().await;
        let request = ClientRequest::get("/none").field("sec-websocket-version", "13");
        assert_eq!(client.upgrade(request, "websocket").await.err(), Some(404));
        server.stop().await;
    });
}

/// The failure is reported as on hyper.
#[test]
fn upgrade_fails_if_another_response_is_sent() {
    on_every_transport(async |transport| {
        let failures = Arc::new(AtomicUsize::new(0));
        let count = failures.clone();
        let handler = async move |upgrade: WebSocketUpgrade| {
            let count = count.clone();
            let upgrade = upgrade.on_failed_upgrade(move |error: axum::Error| {
                assert_eq!(error.to_string(), "operation was canceled");
                count.fetch_add(1, SeqCst);
            });
            let _: Response = upgrade.on_upgrade(async |_| panic!("no upgrade was sent"));
            StatusCode::IM_A_TEAPOT
        };
        let server = transport.serve(tower::app(Router::new().route("/", any(handler))));
        let mut client = server.client().await;
        let request = ClientRequest::get("/").field("sec-websocket-version", "13");
        assert_eq!(client.upgrade(request, "websocket").await.err(), Some(418));
        wait_until("the failure is reported", || failures.load(SeqCst) == 1).await;
        server.stop().await;
    });
}

/// The end of either side ends the other one, and the connection no longer counts as open.
#[test]
fn connection_ends_with_its_handler() {
    on_every_transport(async |transport| {
        let ended = Ended::default();
        let guard = ended.clone();
        let handler = async move |upgrade: WebSocketUpgrade| {
            let guard = Ended(guard.0.clone());
            upgrade.on_upgrade(async move |mut socket| {
                let _guard = guard;
                socket.recv().await;
            })
        };
        let server = transport.serve(tower::app(Router::new().route("/", any(handler))));
        let before = ended.0.load(SeqCst);
        let mut client = server.client().await;
        let mut socket = connect(&mut client, "/").await;
        socket.send(Message::text("end")).await.unwrap();
        assert!(!matches!(socket.next().await, Some(Ok(_))));
        wait_until("the handler ends", || ended.0.load(SeqCst) > before).await;
        let before = ended.0.load(SeqCst);
        let mut client = server.client().await;
        let socket = connect(&mut client, "/").await;
        drop(socket);
        client.abort();
        wait_until("the handler ends", || ended.0.load(SeqCst) > before).await;
        // No connection is left: this shutdown would wait for an hour.
        server.shutdown(Duration::from_secs(3_600)).await.unwrap();
    });
}

/// The proxy of axum's example `http-proxy`, without its upstream.
async fn tunnel(mut request: axum::extract::Request) -> Response {
    if request.method() != Method::CONNECT {
        return Response::new("no tunnel".into());
    }
    assert_eq!(request.uri().to_string(), "a:1");
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(&mut request).await.expect("a tunnel");
        let mut io = TokioIo::new(upgraded);
        let mut bytes = [0; 5];
        io.read_exact(&mut bytes).await.unwrap();
        io.write_all(&bytes.map(|b| b.to_ascii_uppercase())).await.unwrap();
        io.shutdown().await.unwrap();
    });
    Response::default()
}

#[test]
fn axum_opens_tunnels() {
    on_every_transport(async |transport| {
        let server = transport.serve(tower::app(Router::new().fallback(tunnel)));
        let mut client = server.client().await;
        let mut io = client.tunnel().await.expect("a tunnel");
        io.write_all(b"hello").await.unwrap();
        let mut received = String::new();
        io.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "HELLO");
        server.stop().await;
    });
}
