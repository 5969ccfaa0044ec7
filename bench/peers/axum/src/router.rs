//! The router of the peers `axum` and `axum-weft`.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, Sse};
use axum::response::{Html, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{Stream, stream};

#[derive(serde::Deserialize, serde::Serialize)]
struct Document {
    id: u32,
    is_active: bool,
    name: String,
}

async fn slow() -> Html<&'static str> {
    tokio::time::sleep(peer::SLOW).await;
    Html(peer::PAGE)
}

async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |mut socket: WebSocket| {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let interval = tokio::time::interval(Duration::from_millis(100));
    Sse::new(stream::unfold(interval, async |mut interval| {
        interval.tick().await;
        Some((Ok(Event::default().data("an event")), interval))
    }))
}

pub fn router() -> Router {
    let json = async || ([(CONTENT_TYPE, peer::JSON_TYPE)], peer::json());
    Router::new()
        .route("/memory", get(async || Html(peer::PAGE)))
        .route("/slow", get(slow))
        .route("/json", get(json))
        .route("/document", post(async |Json(document): Json<Document>| Json(document)))
        .route("/echo", get(echo))
        .route("/events", get(events))
}
