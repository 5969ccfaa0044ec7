//! A WebSocket that returns each message: tungstenite on hyper.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

async fn respond(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY).map(|key| key.as_bytes().to_vec());
    let mut response = Response::new(Empty::new());
    let Some(key) = key else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(CONNECTION, "upgrade".parse().expect("a field value"));
    fields.insert(UPGRADE, "websocket".parse().expect("a field value"));
    let accept = derive_accept_key(&key).parse().expect("a field value");
    fields.insert(SEC_WEBSOCKET_ACCEPT, accept);
    tokio::spawn(async move {
        if let Ok(connection) = hyper::upgrade::on(&mut request).await {
            echo(connection).await;
        }
    });
    Ok(response)
}

async fn echo(connection: Upgraded) {
    let io = TokioIo::new(connection);
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

async fn serve(listener: TcpListener) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        tokio::spawn(async {
            let connection = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service_fn(respond))
                .with_upgrades();
            // Errors are disconnected clients.
            let _ = connection.await;
        });
    }
}

fn main() {
    peer::on_each_worker(serve);
}
