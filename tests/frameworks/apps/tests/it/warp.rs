//! warp: `warp::service` is a tower service.

use futures_util::{FutureExt, StreamExt};
use warp::Filter;

use crate::client::{HttpClient, WebSocket};
use crate::{address, serve};

#[tokio::test]
async fn filters_bodies_and_websockets() {
    let hello = warp::path!("hello" / String).map(|name| format!("Hello, {name}!"));
    let sum = warp::path("sum").and(warp::post()).and(warp::body::json());
    let sum = sum.map(|numbers: Vec<i32>| numbers.iter().sum::<i32>().to_string());
    let echo = warp::path("echo").and(warp::ws()).map(|ws: warp::ws::Ws| {
        ws.on_upgrade(|socket| {
            let (sender, receiver) = socket.split();
            receiver.forward(sender).map(drop)
        })
    });
    // was: warp::serve(filter).run(address)
    let server = serve(weft::tower::app(warp::service(hello.or(sum).or(echo))));
    for client in HttpClient::each(address(&server)) {
        assert_eq!(client.get("/hello/Ada").await.text, "Hello, Ada!");
        let json = [("content-type", "application/json")];
        assert_eq!(client.fetch("POST /sum", &json, "[1, 2, 3]").await.text, "6");
        assert_eq!(client.fetch("POST /sum", &json, "[1,").await.status, 400);
        assert_eq!(client.get("/none").await.status, 404);
    }
    let mut socket = WebSocket::connect(address(&server), "/echo", "").await;
    socket.send("hi").await;
    assert_eq!(socket.receive().await, "hi");
}
