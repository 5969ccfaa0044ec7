//! A gRPC service of tonic on Weft, with a method of each kind, health checks, reflection and gRPC-Web.
//!
//! `chat.rs` and `proto/chat.bin` are what `tonic-prost-build` makes of `proto/chat.proto`. They are stored here
//! so that the example needs no compiler for Protocol Buffers.

#[rustfmt::skip]
pub mod chat;

use std::pin::Pin;
use std::time::Duration;

use tokio_stream::{Stream, StreamExt};
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use weft::Application;
use weft::header::{CONTENT_TYPE, HeaderName};
use weft::middleware::{Cors, Grpc, GrpcWeb};

use crate::chat::chat_server::{Chat, ChatServer};
use crate::chat::{Message, RepeatRequest};

/// The descriptor of the service, for reflection.
pub const DESCRIPTOR: &[u8] = include_bytes!("../proto/chat.bin");

/// Longest time of a call that has no earlier deadline.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

/// The service `example.v1.Chat`.
pub struct ChatService;

type Messages = Pin<Box<dyn Stream<Item = Result<Message, Status>> + Send>>;

#[tonic::async_trait]
impl Chat for ChatService {
    type RepeatStream = Messages;
    type TalkStream = Messages;

    async fn greet(&self, guest: Request<Message>) -> Result<Response<Message>, Status> {
        let name = guest.into_inner().text;
        if name.is_empty() {
            return Err(Status::invalid_argument("a guest has a name"));
        }
        Ok(Response::new(Message { text: format!("Hello, {name}!") }))
    }

    async fn repeat(&self, request: Request<RepeatRequest>) -> Result<Response<Messages>, Status> {
        let RepeatRequest { text, count, interval_ms } = request.into_inner();
        let interval = Duration::from_millis(interval_ms.into());
        let messages =
            tokio_stream::iter((0..count).map(move |_| Ok(Message { text: text.clone() })));
        let messages = messages.then(move |message| async move {
            tokio::time::sleep(interval).await;
            message
        });
        Ok(Response::new(Box::pin(messages)))
    }

    async fn join(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<Message>, Status> {
        let mut messages = request.into_inner();
        let mut texts = Vec::new();
        while let Some(message) = messages.message().await? {
            texts.push(message.text);
        }
        Ok(Response::new(Message { text: texts.join(" ") }))
    }

    async fn talk(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<Messages>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

/// The services: the chat, health checks and reflection.
pub async fn routes() -> Routes {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ChatServer<ChatService>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTOR)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors are valid");
    Routes::new(ChatServer::new(ChatService)).add_service(health_service).add_service(reflection)
}

/// The services as an application, also for scripts of the pages of an origin.
pub fn app(routes: Routes, origin: &str) -> impl Application + Clone + Send + use<> {
    let web_fields = ["x-grpc-web", "x-user-agent", "grpc-timeout"].map(HeaderName::from_static);
    let cors = Cors::new()
        .allow_origin(origin)
        .allow_headers([CONTENT_TYPE].into_iter().chain(web_fields));
    weft::stack(weft::tower::app(routes.prepare()))
        .with(cors)
        .with(GrpcWeb::new())
        .with(Grpc::new().timeout(MAX_TIME))
}
