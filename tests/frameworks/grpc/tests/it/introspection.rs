//! Health and reflection of the example, with the clients of tonic and with grpcurl, which knows a service only
//! by reflection.

use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use weft::server::ServerHandle;
use weft::Settings;

use crate::common::{address, channel, example, has_tool, in_time, run};

#[tokio::test]
async fn health_and_reflection() {
    let server = example(Settings::default()).await;
    let channel = channel(&server).await;
    let mut health = HealthClient::new(channel.clone());
    let request = HealthCheckRequest { service: "example.v1.Chat".to_owned() };
    assert_eq!(health.check(request.clone()).await.unwrap().into_inner().status, 1);
    let mut watched = health.watch(request).await.unwrap().into_inner();
    assert_eq!(in_time(watched.message()).await.unwrap().unwrap().status, 1);
    let unknown = health.check(HealthCheckRequest { service: "none".to_owned() }).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);

    let mut reflection = ServerReflectionClient::new(channel);
    let request = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let requests = tokio_stream::iter([request]);
    let mut responses = reflection.server_reflection_info(requests).await.unwrap().into_inner();
    let response = in_time(responses.message()).await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = response.message_response else {
        panic!("{response:?}");
    };
    let mut names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    names.sort();
    let expected =
        ["example.v1.Chat", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];
    assert_eq!(names, expected);
}

/// Runs grpcurl without TLS. Returns its output without white space, or its errors.
async fn grpcurl(server: &ServerHandle, data: Option<&str>, arguments: &[&str]) -> String {
    let address = address(server).to_string();
    let data = data.into_iter().flat_map(|data| ["-d", data]);
    let all: Vec<&str> = ["-plaintext"]
        .into_iter()
        .chain(data)
        .chain([&*address])
        .chain(arguments.iter().copied())
        .collect();
    let output = run("grpcurl", &all).await;
    let text = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8(text).unwrap().split_whitespace().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_calls_services_by_their_reflection() {
    if !has_tool("grpcurl") {
        return;
    }
    let server = example(Settings::default()).await;
    let services = grpcurl(&server, None, &["list"]).await;
    let expected = "example.v1.Chatgrpc.health.v1.Healthgrpc.reflection.v1.ServerReflection";
    assert_eq!(services, expected);
    let method = grpcurl(&server, None, &["describe", "example.v1.Chat.Talk"]).await;
    assert!(
        method.contains("rpcTalk(stream.example.v1.Message)returns(stream.example.v1.Message);")
    );
    let health = "grpc.health.v1.Health/Check";
    for (data, method, expected) in [
        (r#"{"text":"Ada"}"#, "example.v1.Chat/Greet", r#"{"text":"Hello,Ada!"}"#),
        (r#"{"text":"a"}{"text":"b"}"#, "example.v1.Chat/Join", r#"{"text":"ab"}"#),
        (r#"{"text":"a"}{"text":"b"}"#, "example.v1.Chat/Talk", r#"{"text":"a"}{"text":"b"}"#),
        (r#"{"text":"a","count":2}"#, "example.v1.Chat/Repeat", r#"{"text":"a"}{"text":"a"}"#),
        (r#"{"service":"example.v1.Chat"}"#, health, r#"{"status":"SERVING"}"#),
        (
            r#"{"text":""}"#,
            "example.v1.Chat/Greet",
            "ERROR:Code:InvalidArgumentMessage:aguesthasaname",
        ),
        (r#"{"service":"none"}"#, health, "ERROR:Code:NotFoundMessage:servicenotregistered"),
    ] {
        assert_eq!(grpcurl(&server, Some(data), &[method]).await, expected, "{method} {data}");
    }
}
