//! The router of the peer `axum`, served by Weft.

#[path = "../../axum/src/router.rs"]
mod router;

use weft::Server;

fn main() -> weft::Result<()> {
    let (address, workers) = peer::arguments();
    let app = weft::axum::app(router::router());
    Server::new(app).workers(workers).listen(address)?.run()
}
