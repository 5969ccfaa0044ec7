//! axum, served by its own `axum::serve`.

mod router;

use tokio::net::TcpListener;

async fn serve(listener: TcpListener) {
    axum::serve(listener, router::router()).await.expect("axum::serve failed");
}

fn main() {
    peer::on_each_worker(serve);
}
