//! socketioxide as a layer of an axum router: both of its transports.

use axum::Router;
use axum::routing::get;
use serde_json::Value;
use socketioxide::SocketIo;
use socketioxide::extract::{Data, SocketRef};

use crate::client::{HttpClient, WebSocket};
use crate::{address, serve};

async fn on_connect(socket: SocketRef) {
    socket.on("shout", async |socket: SocketRef, Data(text): Data<String>| {
        socket.emit("shouted", &text.to_uppercase()).unwrap();
    });
}

/// Polls for the next message. Pings may be received before it and together with it.
async fn poll(client: &HttpClient, path: &str) -> String {
    loop {
        let packets = client.get(path).await.text;
        let message = packets.split('\x1e').find(|packet| packet.starts_with('4'));
        if let Some(message) = message {
            return message.to_owned();
        }
    }
}

/// Receives the next message that is no ping.
async fn receive(socket: &mut WebSocket) -> String {
    loop {
        let packet = socket.receive().await;
        if packet != "2" {
            return packet;
        }
    }
}

#[tokio::test]
async fn polling_and_websockets() {
    let (layer, io) = SocketIo::new_layer();
    io.ns("/", on_connect);
    let router = Router::new().route("/", get(async || "a page")).layer(layer);
    // was: axum::serve(listener, router)
    let server = serve(weft::axum::app(router));

    for client in HttpClient::each(address(&server)) {
        assert_eq!(client.get("/").await.text, "a page");
        let path = "/socket.io/?EIO=4&transport=polling";
        let opened = client.get(path).await.text;
        let session: Value = serde_json::from_str(opened.strip_prefix('0').unwrap()).unwrap();
        let path = format!("{path}&sid={}", session["sid"].as_str().unwrap());
        assert_eq!(client.fetch(&format!("POST {path}"), &[], "40").await.text, "ok");
        assert!(poll(&client, &path).await.starts_with("40{"));
        let shout = r#"42["shout","hi"]"#;
        assert_eq!(client.fetch(&format!("POST {path}"), &[], shout).await.text, "ok");
        assert_eq!(poll(&client, &path).await, r#"42["shouted","HI"]"#);
    }

    let path = "/socket.io/?EIO=4&transport=websocket";
    let mut socket = WebSocket::connect(address(&server), path, "").await;
    assert!(socket.receive().await.starts_with("0{"));
    socket.send("40").await;
    assert!(receive(&mut socket).await.starts_with("40{"));
    socket.send(r#"42["shout","hi"]"#).await;
    assert_eq!(receive(&mut socket).await, r#"42["shouted","HI"]"#);
}
