//! ntex.

use ntex::http::header::SERVER;
use ntex::web::{self, App, HttpResponse, HttpServer};

async fn page() -> HttpResponse {
    HttpResponse::Ok().content_type("text/html").header(SERVER, "ntex").body(peer::PAGE)
}

async fn slow() -> HttpResponse {
    ntex::time::sleep(peer::SLOW).await;
    page().await
}

#[ntex::main]
async fn main() -> std::io::Result<()> {
    let (address, workers) = peer::arguments();
    let app = async || {
        App::new().route("/memory", web::get().to(page)).route("/slow", web::get().to(slow))
    };
    HttpServer::new(app).backlog(4096).maxconn(40_000).workers(workers).bind(address)?.run().await
}
