//! async-graphql with axum: queries, and subscriptions over a WebSocket.

use async_graphql::{EmptyMutation, Object, Schema, Subscription};
use async_graphql_axum::{GraphQL, GraphQLSubscription};
use axum::Router;
use axum::routing::post_service;
use futures_util::{Stream, stream};
use serde_json::{Value, json};

use crate::client::{HttpClient, WebSocket};
use crate::{address, serve};

struct Query;

#[Object]
impl Query {
    async fn greeting(&self, name: String) -> String {
        format!("Hello, {name}!")
    }
}

struct Counter;

#[Subscription]
impl Counter {
    async fn count(&self, to: i32) -> impl Stream<Item = i32> {
        stream::iter(1..=to)
    }
}

#[tokio::test]
async fn queries_and_subscriptions() {
    let schema = Schema::new(Query, EmptyMutation, Counter);
    let router = Router::new()
        .route("/graphql", post_service(GraphQL::new(schema.clone())))
        .route_service("/subscriptions", GraphQLSubscription::new(schema));
    // was: axum::serve(listener, router)
    let server = serve(weft::axum::app(router));
    let query = json!({ "query": "{ greeting(name: \"Ada\") }" }).to_string();
    for client in HttpClient::each(address(&server)) {
        let json = [("content-type", "application/json")];
        let reply = client.fetch("POST /graphql", &json, &query).await;
        let data: Value = serde_json::from_str(&reply.text).unwrap();
        assert_eq!(data, json!({ "data": { "greeting": "Hello, Ada!" } }));
    }

    let protocol = "graphql-transport-ws";
    let mut socket = WebSocket::connect(address(&server), "/subscriptions", protocol).await;
    socket.send(r#"{"type": "connection_init"}"#).await;
    assert_eq!(socket.receive().await, r#"{"type":"connection_ack"}"#);
    let subscription = json!({
        "type": "subscribe", "id": "1", "payload": { "query": "subscription { count(to: 2) }" },
    });
    socket.send(&subscription.to_string()).await;
    for expected in [1, 2] {
        let message: Value = serde_json::from_str(&socket.receive().await).unwrap();
        assert_eq!(message["payload"]["data"]["count"], expected, "{message}");
    }
    let end: Value = serde_json::from_str(&socket.receive().await).unwrap();
    assert_eq!(end["type"], "complete");
}
