//! hyper, without a timer, which makes it faster but disables its timeouts.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/slow" {
        tokio::time::sleep(peer::SLOW).await;
    }
    let (content_type, body) = match request.uri().path() {
        "/json" => (peer::JSON_TYPE, peer::json().into()),
        "/upload" => ("text/plain", upload(request.into_body()).await),
        _ => ("text/html", Bytes::from_static(peer::PAGE.as_bytes())),
    };
    let mut response = Response::new(Full::new(body));
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    fields.insert(SERVER, HeaderValue::from_static("hyper"));
    Ok(response)
}

/// Receives a body of any size.
async fn upload(mut body: Incoming) -> Bytes {
    let mut received = 0;
    while let Some(Ok(frame)) = body.frame().await {
        received += frame.data_ref().map_or(0, Bytes::len);
    }
    received.to_string().into()
}

async fn serve(listener: TcpListener) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        tokio::spawn(async {
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().pipeline_flush(true);
            // Errors are disconnected clients.
            let _ = builder.serve_connection(TokioIo::new(socket), service_fn(respond)).await;
        });
    }
}

fn main() {
    peer::on_each_worker(serve);
}
