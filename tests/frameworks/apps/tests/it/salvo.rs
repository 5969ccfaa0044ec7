//! salvo: its service is called as hyper's would be.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::service::Service as _;
use salvo::conn::SocketAddr;
use salvo::http::ReqBody;
use salvo::http::uri::Scheme;
use salvo::websocket::WebSocketUpgrade;
use salvo::{ConnCtrl, Request, Response, Router, Service, handler};
use weft::{Application, Body};

use crate::client::{HttpClient, WebSocket};
use crate::{address, serve};

/// Converts a router to an application.
fn salvo_app(router: Router) -> impl Application + Clone + Send + 'static {
    let service = Arc::new(Service::new(router));
    weft::tower::app(tower::service_fn(move |request: http::Request<Body>| {
        let (local, remote) = (SocketAddr::Unknown, SocketAddr::Unknown);
        let handler =
            service.hyper_handler(local, remote, Scheme::HTTP, None, ConnCtrl::new(), None);
        let boxed = |body: Body| ReqBody::Boxed {
            inner: Box::pin(body.map_frame(Into::into).map_err(Into::into)),
            fuse_config: None,
        };
        handler.call(request.map(boxed))
    }))
}

#[handler]
async fn hello(request: &mut Request) -> String {
    format!("Hello, {}!", request.param::<String>("name").unwrap())
}

#[handler]
async fn length(request: &mut Request) -> String {
    request.payload().await.unwrap().len().to_string()
}

#[handler]
async fn echo(request: &mut Request, response: &mut Response) {
    let upgrade = WebSocketUpgrade::new();
    let upgraded = upgrade.upgrade(request, response, async |mut socket| {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                break;
            }
        }
    });
    upgraded.await.unwrap();
}

#[tokio::test]
async fn routes_bodies_and_websockets() {
    let router = Router::new()
        .push(Router::with_path("hello/{name}").get(hello))
        .push(Router::with_path("length").post(length))
        .push(Router::with_path("echo").goal(echo));
    // was: salvo::Server::new(acceptor).serve(router)
    let server = serve(salvo_app(router));
    for client in HttpClient::each(address(&server)) {
        assert_eq!(client.get("/hello/Ada").await.text, "Hello, Ada!");
        let body = "a".repeat(50_000);
        assert_eq!(client.fetch("POST /length", &[], &body).await.text, "50000");
        assert_eq!(client.get("/none").await.status, 404);
    }
    let mut socket = WebSocket::connect(address(&server), "/echo", "").await;
    socket.send("hi").await;
    assert_eq!(socket.receive().await, "hi");
}
