//! hyper, without a timer, which makes it faster but disables its timeouts.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
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
    let mut response = Response::new(Full::new(Bytes::from_static(peer::PAGE.as_bytes())));
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    fields.insert(SERVER, HeaderValue::from_static("hyper"));
    Ok(response)
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
