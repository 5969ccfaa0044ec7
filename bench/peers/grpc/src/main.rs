//! A unary gRPC method of tonic, on Weft or on tonic's own transport: `peer-grpc ADDRESS WORKERS
//! weft|tonic`. The service is what tonic's code generator writes, without streams.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic_prost::ProstCodec;
use tower_service::Service;

#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

/// The service `bench.Echo`, whose method `Unary` returns its argument.
#[derive(Clone)]
struct Echo;

struct Unary;

impl UnaryService<Text> for Unary {
    type Response = Text;
    type Future = Ready<Result<tonic::Response<Text>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Text>) -> Self::Future {
        ready(Ok(tonic::Response::new(request.into_inner())))
    }
}

impl<B> Service<http::Request<B>> for Echo
where
    B: http_body::Body<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Text, Text>::default());
            Ok(grpc.unary(Unary, request).await)
        })
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "bench.Echo";
}

async fn serve(listener: TcpListener) {
    let server = tonic::transport::Server::builder().add_service(Echo);
    server.serve_with_incoming(TcpListenerStream::new(listener)).await.expect("tonic failed");
}

fn main() -> weft::Result<()> {
    if std::env::args().nth(3).as_deref() == Some("tonic") {
        peer::on_each_worker(serve);
        return Ok(());
    }
    let (address, workers) = peer::arguments();
    weft::Server::new(weft::tower::app(Echo)).workers(workers).listen(address)?.run()
}
