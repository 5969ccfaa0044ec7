//! poem: its requests are made of those of the crate `http`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use futures_util::StreamExt;
use http_body_util::BodyExt;
use poem::http::uri::Scheme;
use poem::web::websocket::WebSocket as PoemWebSocket;
use poem::web::{LocalAddr, Path, RemoteAddr};
use poem::{Endpoint, IntoResponse, RequestParts, Route, get, handler, post};
use weft::{Application, Body};

use crate::client::{HttpClient, WebSocket};
use crate::{address, serve};

/// Converts an endpoint to an application.
fn poem_app(endpoint: impl Endpoint + 'static) -> impl Application + Clone + Send + 'static {
    let endpoint = Arc::new(endpoint);
    weft::tower::app(tower::service_fn(move |request: http::Request<Body>| {
        let endpoint = endpoint.clone();
        async move {
            let (parts, body) = request.into_parts();
            let addresses = (LocalAddr::default(), RemoteAddr::default());
            let parts = RequestParts::from((parts, addresses.0, addresses.1, Scheme::HTTP));
            let body = body.map_err(io::Error::other).boxed();
            let request = poem::Request::from_parts(parts, body.into());
            let response = endpoint.get_response(request).await;
            Ok::<_, Infallible>(http::Response::from(response))
        }
    }))
}

#[handler]
fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!")
}

#[handler]
async fn length(body: poem::Body) -> String {
    body.into_bytes().await.unwrap().len().to_string()
}

#[handler]
fn echo(ws: PoemWebSocket) -> impl IntoResponse {
    ws.on_upgrade(async |socket| {
        let (sender, receiver) = socket.split();
        let _ = receiver.forward(sender).await;
    })
}

#[tokio::test]
async fn routes_bodies_and_websockets() {
    let routes = Route::new()
        .at("/hello/:name", get(hello))
        .at("/length", post(length))
        .at("/echo", get(echo));
    // was: poem::Server::new(TcpListener::bind(address)).run(routes)
    let server = serve(poem_app(routes));
    for client in HttpClient::each(address(&server)) {
        assert_eq!(client.get("/hello/Ada").await.text, "Hello, Ada!");
        let body = "a".repeat(100_000);
        assert_eq!(client.fetch("POST /length", &[], &body).await.text, "100000");
        assert_eq!(client.get("/none").await.status, 404);
    }
    let mut socket = WebSocket::connect(address(&server), "/echo", "").await;
    socket.send("hi").await;
    assert_eq!(socket.receive().await, "hi");
}
