//! An axum router on Weft: `cargo run --release -p weft-http --example axum -- [ADDRESS]`.
//!
//! Only the line that starts the server differs from the examples in axum's documentation.
//! Run it in the root of the repository: it serves the folder `site`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::extract::multipart::MultipartError;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Multipart, Path, Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{get, post};
use axum::{Extension, Form, Json, Router};
use futures_core::Stream;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tower_http::services::ServeDir;
use tower_http::timeout::TimeoutLayer;
use weft::files::Directory;
use weft::middleware::Compress;
use weft::tower::Connection;
use weft::{Application, Server, Settings};

#[derive(Deserialize, Serialize)]
struct Person {
    name: String,
    #[serde(default)]
    age: u8,
}

async fn hello(State(visits): State<Arc<AtomicU64>>) -> String {
    format!("Hello, visitor {}!\n", visits.fetch_add(1, Relaxed) + 1)
}

async fn search(Query(query): Query<HashMap<String, String>>) -> String {
    format!("You look for {}.\n", query.get("q").map_or("nothing", String::as_str))
}

/// Counts the bytes of each part while they arrive; nothing is stored.
async fn upload(mut parts: Multipart) -> Result<String, MultipartError> {
    let mut report = String::new();
    while let Some(mut part) = parts.next_field().await? {
        let name = part.name().unwrap_or("a part").to_owned();
        let mut bytes = 0;
        while let Some(chunk) = part.chunk().await? {
            bytes += chunk.len();
        }
        report += &format!("{name}: {bytes} bytes\n");
    }
    Ok(report)
}

/// Sends an event each second, until the client disconnects or the server shuts down.
async fn ticks(
    Extension(connection): Extension<Connection>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = stream::unfold((0, connection.shutdown()), async |(tick, mut shutdown)| {
        tokio::select! {
            () = shutdown.requested() => None,
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                Some((Ok(Event::default().data(format!("tick {tick}"))), (tick + 1, shutdown)))
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

fn people() -> Router<Arc<AtomicU64>> {
    Router::new()
        .route("/json", post(async |Json(person): Json<Person>| Json(person)))
        .route("/form", post(async |Form(person): Form<Person>| format!("{}\n", person.name)))
        .route("/{name}", get(async |Path(name): Path<String>| format!("This is {name}.\n")))
}

fn router() -> weft::Result<Router> {
    let whoami = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| format!("You are {peer}.\n");
    let router = Router::new()
        .route("/", get(hello))
        .route("/whoami", get(whoami))
        .route("/search", get(search))
        .route("/upload", post(upload).layer(DefaultBodyLimit::disable()))
        .route("/ticks", get(ticks))
        .nest("/people", people())
        // The same folder, served by tower-http and by Weft.
        .nest_service("/tower", ServeDir::new("site"))
        .nest_service("/weft", weft::tower::service(Directory::open("site")?))
        .fallback(async |uri: Uri| (StatusCode::NOT_FOUND, format!("There is no {uri}.\n")))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(30)))
        .with_state(Arc::default());
    Ok(router)
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let app = weft::tower::app(router()?).connect_info(ConnectInfo::<SocketAddr>);
    // Uploads of any size are allowed because their bytes are only counted.
    let settings = Settings { max_body_bytes: u64::MAX, ..Settings::default() };
    Server::new(app.wrap(Compress::new())).settings(settings).listen(address)?.run()
}
