//! The interoperability tests of gRPC: the client of grpc-go, with a service of tonic on Weft.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status, Streaming};
use tower_service::Service;
use weft::middleware::Grpc;
use weft::{Application, Body, Settings};

use crate::common::{address, has_tool, run, serve};
use crate::testing::test_service_server::{TestService, TestServiceServer};
use crate::testing::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse,
};

/// The cases that need no credentials of a cloud.
const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

/// Metadata that the service returns, before the response and after it.
const INITIAL: HeaderName = HeaderName::from_static("x-grpc-test-echo-initial");
const TRAILING: HeaderName = HeaderName::from_static("x-grpc-test-echo-trailing-bin");

type Pieces = Pin<Box<dyn Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send>>;

struct Tested;

fn payload(bytes: i32) -> Option<Payload> {
    Some(Payload { body: vec![0; usize::try_from(bytes).unwrap_or_default()] })
}

/// Fails with the status that the client asks for, if any.
fn requested(status: Option<EchoStatus>) -> Result<(), Status> {
    match status {
        Some(EchoStatus { code, message }) if code != 0 => {
            Err(Status::new(Code::from(code), message))
        }
        _ => Ok(()),
    }
}

/// Sends the pieces that a message asks for, each after its interval.
fn pieces(
    parameters: Vec<ResponseParameters>,
) -> impl Stream<Item = Result<StreamingOutputCallResponse, Status>> {
    tokio_stream::iter(parameters).then(async |parameters| {
        let interval = u64::try_from(parameters.interval_us).unwrap_or_default();
        tokio::time::sleep(Duration::from_micros(interval)).await;
        Ok(StreamingOutputCallResponse { payload: payload(parameters.size) })
    })
}

#[tonic::async_trait]
impl TestService for Tested {
    type StreamingOutputCallStream = Pieces;
    type FullDuplexCallStream = Pieces;

    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let request = request.into_inner();
        requested(request.response_status)?;
        Ok(Response::new(SimpleResponse { payload: payload(request.response_size) }))
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Pieces>, Status> {
        Ok(Response::new(Box::pin(pieces(request.into_inner().response_parameters))))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut messages = request.into_inner();
        let mut total = 0;
        while let Some(message) = messages.message().await? {
            total += message.payload.map_or(0, |payload| payload.body.len());
        }
        let aggregated_payload_size = i32::try_from(total).unwrap_or(i32::MAX);
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size }))
    }

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Pieces>, Status> {
        let mut messages = request.into_inner();
        let (sender, responses) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let failed = async {
                while let Some(message) = messages.message().await? {
                    requested(message.response_status)?;
                    let mut pieces = Box::pin(pieces(message.response_parameters));
                    while let Some(piece) = pieces.next().await {
                        // The client has left if this fails, and then it sends no message either.
                        let _ = sender.send(piece).await;
                    }
                }
                Ok(())
            };
            if let Err(status) = failed.await {
                let _ = sender.send(Err(status)).await;
            }
        });
        let responses = tokio_stream::wrappers::ReceiverStream::new(responses);
        Ok(Response::new(Box::pin(responses)))
    }
}

/// Returns the two fields of a request with its response, the second among the trailers.
async fn echo(
    mut routes: Routes,
    request: http::Request<Body>,
) -> Result<http::Response<impl http_body::Body<Data = bytes::Bytes, Error = Status>>, Infallible> {
    let fields = request.headers().clone();
    let Ok(mut response) = routes.call(request).await;
    if let Some(value) = fields.get(INITIAL) {
        response.headers_mut().insert(INITIAL, value.clone());
    }
    let trailing = fields.get(TRAILING).cloned();
    let add = move |trailers: &mut HeaderMap| {
        trailers.extend(trailing.clone().map(|value| (TRAILING, value)));
    };
    Ok(response.map(|body| {
        body.map_frame(move |mut frame: Frame<bytes::Bytes>| {
            frame.trailers_mut().into_iter().for_each(&add);
            frame
        })
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn cases_of_interoperability_pass() {
    if !has_tool("grpc-interop-client") {
        return;
    }
    let routes = Routes::new(TestServiceServer::new(Tested)).prepare();
    let service = tower::service_fn(move |request| echo(routes.clone(), request));
    let server = serve(weft::tower::app(service).wrap(Grpc::new()), Settings::default());
    let port = format!("--server_port={}", address(&server).port());
    for case in CASES {
        let case_argument = format!("--test_case={case}");
        let arguments = ["--server_host=127.0.0.1", &port, &case_argument];
        let output = run("grpc-interop-client", &arguments).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case}: {errors}");
    }
}
