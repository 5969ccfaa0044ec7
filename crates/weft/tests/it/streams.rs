//! Streams of messages in both directions, which pause for any time, beside slow bodies, which do
//! not; and the errors of such streams.

use std::time::Duration;

use crate::common::clients::{ClientRequest, TransportServer, on_every_transport};
use crate::common::frames::{RawClient, pseudo_header};
use crate::common::{SHORT_TIMEOUT, boxed_server, short_timeouts, stop, until};
use bytes::Bytes;
use futures_util::stream;
use weft::middleware::BodyRate;
use weft::server::ServerHandle;
use weft::{Application, Body, Error, ErrorKind, IntoResponse, Request, Response, Settings};

async fn chat(request: Request) -> Response {
    Response::from_body(request.into_body())
}

async fn collect(request: Request) -> weft::Result<Response> {
    Ok(Response::from_body(request.into_body().collect(1 << 20).await?))
}

/// `/chat` begins its response before it reads the body, `/collect` after.
async fn app(mut request: Request) -> Response {
    match request.path() {
        "/chat" => chat(request).await,
        "/collect" => collect(request).await.into_response(),
        "/patient" => collect.wrap(BodyRate::new(500, Duration::MAX)).call(request).await,
        "/strict" => {
            request.body().set_min_rate(500, SHORT_TIMEOUT);
            request.body().set_limit(10);
            chat(request).await
        }
        _ => Response::text("ok"),
    }
}

fn start(settings: Settings) -> ServerHandle {
    let server = boxed_server(app).workers(1).settings(settings);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// Waits for longer than the stall timeout of the server: until it gives up a body that starts now
/// and stalls.
async fn outwait(server: &TransportServer) {
    let (request, upload) = ClientRequest::post("/collect").upload();
    let response = server.client().await.send(request).await;
    assert!(upload.send("x").await);
    assert_eq!(response.collect().await.status, 408);
}

#[test]
fn stream_outlives_the_stall_timeout_and_a_slow_body_does_not() {
    on_every_transport(async |transport| {
        let server = transport.serve_with(short_timeouts(), app);
        let mut client = server.client().await;
        let (request, messages) = ClientRequest::post("/chat").upload();
        let mut chat = client.send(request).await.read_head().await.unwrap();
        // A stream whose client is silent before the response, by its application's setting.
        let (request, readings) = ClientRequest::post("/patient").upload();
        let patient = server.client().await.send(request).await;
        for message in ["a", "ab", "abc"] {
            assert!(messages.send("x").await && readings.send("x").await);
            assert_eq!(chat.read(message.len()).await.len(), message.len());
            outwait(&server).await;
        }
        drop((messages, readings));
        assert_eq!(chat.collect().await.text(), "xxx");
        assert_eq!(patient.collect().await.text(), "xxx");
        server.stop().await;
    });
}

#[test]
fn rate_and_limit_of_the_application_apply_to_a_stream() {
    on_every_transport(async |transport| {
        let settings = Settings { max_body_bytes: 5, ..short_timeouts() };
        let server = transport.serve_with(settings, app);
        // The limit of the settings is for bodies, not for streams.
        for (path, pieces, is_complete) in
            [("/chat", 20, true), ("/strict", 10, true), ("/strict", 11, false)]
        {
            let (request, messages) = ClientRequest::post(path).upload();
            let client = server.client().await.send(request).await;
            let response = client.read_head().await.unwrap();
            for _ in 0..pieces {
                messages.send("x").await;
            }
            drop(messages);
            let response = response.try_collect().await;
            assert_eq!(response.is_ok(), is_complete, "{path} {pieces}: {response:?}");
        }
        let (request, messages) = ClientRequest::post("/strict").upload();
        let mut strict = server.client().await.send(request).await.read_head().await.unwrap();
        assert!(messages.send("x").await);
        strict.read(1).await;
        assert!(strict.try_collect().await.is_err(), "a rate of the application is enforced");
        server.stop().await;
    });
}

/// A PING keeps an idle connection as a request would. Without one, it closes after the timeout.
#[test]
fn ping_postpones_the_idle_timeout() {
    let server = start(short_timeouts());
    // Repeated if the machine delayed the client.
    until("a connection with PING outlives two without", || {
        let mut pinging = RawClient::connect(&server);
        pinging.assert_open("/");
        for _ in 0..2 {
            let mut silent = RawClient::connect(&server);
            silent.assert_open("/");
            while !silent.has_input_within(SHORT_TIMEOUT / 50) {
                pinging.sync();
            }
            assert!(!silent.read_goaways().is_empty());
        }
        pinging.sync();
        pinging.goaways.is_empty()
    });
    stop(server);
}

#[test]
fn settings_raise_the_limits_on_fields_and_streams() {
    let settings = Settings { max_fields: 200, max_concurrent_streams: 500, ..Settings::default() };
    let server = start(settings);
    let mut client = RawClient::connect(&server);
    let names: Vec<String> = (0..110).map(|number| format!("x-{number}")).collect();
    let fields = names.iter().map(|name| (&**name, "1"));
    let request: Vec<_> = pseudo_header("POST", "/chat").into_iter().chain(fields).collect();
    let streams: Vec<u32> = (0..500).map(|_| client.request(&request, false)).collect();
    for stream in &streams {
        client.data(*stream, "x", false);
    }
    client.read_until("all streams are echoed", |client| {
        streams.iter().all(|stream| client.body_length(*stream) == 1)
    });
    stop(server);
}

/// A gRPC client would take a page of text for messages. Over HTTP/2 the head is sent before the
/// body is polled, so that a body that fails resets the stream.
#[test]
fn failure_of_a_grpc_call_is_a_status_of_grpc() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/panics" => panic!("on purpose"),
            "/refused" => {
                let error = Error::new(ErrorKind::TooSlow, "100% too slow");
                Response::from_body(Body::stream(stream::iter([Err::<Bytes, _>(error)])))
            }
            _ => Response::from_body(Body::stream(stream::iter([Err::<Bytes, _>("on purpose")]))),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        for (path, media_type, status, grpc_status, message) in [
            ("/fails", "application/grpc", 200, Some("13"), None),
            ("/fails", "application/grpc+proto", 200, Some("13"), None),
            ("/panics", "application/grpc", 200, Some("13"), None),
            ("/refused", "application/grpc", 200, Some("14"), Some("100%25 too slow")),
            ("/fails", "application/grpc-web", 500, None, None),
            ("/fails", "application/json", 500, None, None),
        ] {
            let request = ClientRequest::post(path).field("content-type", media_type);
            let case = format!("{path} {media_type}");
            let response = server.client().await.send(request).await.try_collect().await;
            if transport.is_multiplexed() && path != "/panics" {
                assert!(response.is_err(), "{case}: {response:?}");
                continue;
            }
            let response = response.unwrap();
            let fields = (response.field("grpc-status"), response.field("grpc-message"));
            assert_eq!((response.status, fields), (status, (grpc_status, message)), "{case}");
            if grpc_status.is_some() {
                assert_eq!(response.field("content-type"), Some("application/grpc"), "{case}");
                assert_eq!(response.text(), "", "{case}");
            }
        }
        server.stop().await;
    });
}
