//! The router of the peer `axum`, served by Weft.

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use weft::Server;

async fn slow() -> Html<&'static str> {
    tokio::time::sleep(peer::SLOW).await;
    Html(peer::PAGE)
}

fn main() -> weft::Result<()> {
    let (address, workers) = peer::arguments();
    let router =
        Router::new().route("/memory", get(async || Html(peer::PAGE))).route("/slow", get(slow));
    Server::new(weft::axum::app(router)).workers(workers).listen(address)?.run()
}
