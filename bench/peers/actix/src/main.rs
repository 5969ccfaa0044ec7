//! actix-web.

use actix_web::http::header::{ContentType, SERVER};
use actix_web::{App, Error, HttpRequest, HttpResponse, HttpServer, rt, web};
use actix_ws::{Message, MessageStream, Session};
use futures_util::StreamExt;

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

async fn websocket(request: HttpRequest, body: web::Payload) -> Result<HttpResponse, Error> {
    let (response, session, messages) = actix_ws::handle(&request, body)?;
    rt::spawn(echo(session, messages));
    Ok(response)
}

async fn echo(mut session: Session, mut messages: MessageStream) {
    while let Some(Ok(message)) = messages.next().await {
        let sent = match message {
            Message::Text(text) => session.text(text).await,
            Message::Binary(bytes) => session.binary(bytes).await,
            Message::Ping(bytes) => session.pong(&bytes).await,
            Message::Close(reason) => return drop(session.close(reason).await),
            _ => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let (address, workers) = peer::arguments();
    let app = || {
        App::new()
            .route("/memory", web::get().to(page))
            .route("/slow", web::get().to(slow))
            .route("/json", web::get().to(json))
            .route("/echo", web::get().to(websocket))
    };
    HttpServer::new(app)
        .backlog(4096)
        .max_connections(40_000)
        .workers(workers)
        .bind(address)?
        .run()
        .await
}
