//! The router of the peer `axum`, on a runtime with a thread for each worker, as with `#[tokio::main]`:
//! served by `weft::axum::serve` with its default, or by `axum::serve`. Its third argument is `weft` or
//! `axum`.

#[path = "../../axum/src/router.rs"]
mod router;

use tokio::net::TcpListener;
use tokio::runtime::Builder;

async fn serve() {
    let (address, workers) = peer::arguments();
    let listener = peer::listener(address);
    match std::env::args().nth(3).as_deref() {
        Some("weft") => {
            let server = weft::axum::serve(listener, router::router()).workers(workers);
            server.await.expect("weft::axum::serve failed");
        }
        Some("axum") => {
            let listener = TcpListener::from_std(listener).expect("a listener");
            axum::serve(listener, router::router()).await.expect("axum::serve failed");
        }
        _ => panic!("usage: peer-axum-runtime ADDRESS WORKERS weft|axum"),
    }
}

fn main() {
    let (_, workers) = peer::arguments();
    let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    runtime.expect("a runtime").block_on(serve());
}
