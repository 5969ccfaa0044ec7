//! actix-web.

use actix_web::http::header::{ContentType, SERVER};
use actix_web::{App, HttpResponse, HttpServer, web};

async fn page() -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::html())
        .insert_header((SERVER, "actix"))
        .body(peer::PAGE)
}

async fn json() -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::json()).body(peer::json())
}

async fn slow() -> HttpResponse {
    tokio::time::sleep(peer::SLOW).await;
    page().await
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let (address, workers) = peer::arguments();
    let app = || {
        App::new()
            .route("/memory", web::get().to(page))
            .route("/slow", web::get().to(slow))
            .route("/json", web::get().to(json))
    };
    HttpServer::new(app)
        .backlog(4096)
        .max_connections(40_000)
        .workers(workers)
        .bind(address)?
        .run()
        .await
}
