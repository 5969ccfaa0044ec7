//! axum, served by its own `axum::serve`.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::Html;
use axum::routing::get;
use tokio::net::TcpListener;

async fn slow() -> Html<&'static str> {
    tokio::time::sleep(peer::SLOW).await;
    Html(peer::PAGE)
}

async fn serve(listener: TcpListener) {
    let json = async || ([(CONTENT_TYPE, peer::JSON_TYPE)], peer::json());
    let router = Router::new()
        .route("/memory", get(async || Html(peer::PAGE)))
        .route("/slow", get(slow))
        .route("/json", get(json));
    axum::serve(listener, router).await.expect("axum::serve failed");
}

fn main() {
    peer::on_each_worker(serve);
}
