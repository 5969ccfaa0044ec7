//! hyper. It has no timer here, which makes it faster, and leaves it without timeouts.

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

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
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
            // An error is a client that has gone.
            let _ = builder.serve_connection(TokioIo::new(socket), service_fn(answer)).await;
        });
    }
}

fn main() {
    peer::on_each_worker(serve);
}
