//! gRPC and gRPC-Web as middleware, over every transport.

use std::convert::Infallible;
use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::StreamBody;
use weft::grpc::{Code, Status};
use weft::middleware::{Grpc, GrpcWeb, Timeout};
use weft::net::Peer;
use weft::{Application, Body, Error, ErrorKind, Hooks, Request, Response, StatusCode, header};

use crate::common::clients::{
    ClientRequest, ClientResponse, Transport, on_every_transport, wait_until,
};
use crate::common::{SHORT_TIMEOUT, boxed_server};

const MESSAGE: &str = "\0\0\0\0\u{2}hi";

fn call(path: &str, media_type: &str) -> ClientRequest {
    ClientRequest::post(path).field("content-type", media_type).field("te", "trailers")
}

/// Creates a response of these messages, which then stays open or ends with trailers.
fn messages(messages: &[&'static str], end: Option<&[(&'static str, &'static str)]>) -> Response {
    let data = messages.iter().map(|message| Frame::data(Bytes::from_static(message.as_bytes())));
    let trailers = end.map(|fields| {
        let fields = fields.iter().map(|(name, value)| {
            (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
        });
        Frame::trailers(fields.collect::<HeaderMap>())
    });
    let frames: Vec<_> = data.chain(trailers).map(Ok::<_, Infallible>).collect();
    let is_open = end.is_none();
    let rest = stream::poll_fn(move |_| if is_open { Poll::Pending } else { Poll::Ready(None) });
    let frames = stream::iter(frames).chain(rest);
    Response::from_body(Body::from_http_body(StreamBody::new(frames)))
        .with_header(header::CONTENT_TYPE, "application/grpc+proto")
}

/// The status, with its place.
fn status(response: &ClientResponse) -> String {
    match (response.field("grpc-status"), response.trailer("grpc-status")) {
        (Some(status), None) => format!("head {status}"),
        (None, Some(status)) => format!("trailers {status}"),
        (None, None) => format!("http {}", response.status),
        both => panic!("{both:?}"),
    }
}

// -- deadlines

/// Counts the futures of the application that were dropped before their end.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn deadline_ends_a_call_before_and_during_its_response() {
    on_every_transport(async |transport| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let app = {
            let dropped = dropped.clone();
            move |request: Request| {
                let guard = Dropped(dropped.clone());
                async move {
                    match request.path() {
                        "/silent" => {
                            std::future::pending::<()>().await;
                            drop(guard);
                            unreachable!("the call is dropped")
                        }
                        "/open" => messages(&[MESSAGE], None),
                        _ => messages(&[MESSAGE], Some(&[("grpc-status", "0")])),
                    }
                }
            }
        };
        let server = transport.serve(app.clone().wrap(Grpc::new()));
        let limited = transport.serve(app.wrap(Grpc::new().timeout(Duration::from_millis(20))));
        for (server, path, timeout, expected) in [
            (&server, "/silent", "20m", "head 4"),
            (&server, "/open", "20000u", "trailers 4"),
            (&server, "/complete", "20S", "trailers 0"),
            // More than any clock can represent.
            (&server, "/complete", "99999999H", "trailers 0"),
            (&server, "/complete", "soon", "trailers 0"),
            (&limited, "/silent", "", "head 4"),
            (&limited, "/open", "99999999S", "trailers 4"),
        ] {
            let request = call(path, "application/grpc");
            let request = match timeout {
                "" => request,
                _ => request.field("grpc-timeout", timeout),
            };
            let response = server.client().await.fetch(request).await;
            assert_eq!(status(&response), expected, "{path} {timeout}");
            assert_eq!(response.text(), if path == "/silent" { "" } else { MESSAGE }, "{path}");
            if expected.ends_with('4') {
                let message = response.field("grpc-message").or(response.trailer("grpc-message"));
                assert_eq!(message, Some("the deadline is over"), "{path} {timeout}");
            }
        }
        wait_until("all calls are dropped", || dropped.load(SeqCst) == 7).await;
        server.stop().await;
        limited.stop().await;
    });
}

#[test]
fn deadline_applies_only_to_grpc() {
    on_every_transport(async |transport| {
        let slow = async |_: Request| {
            tokio::time::sleep(SHORT_TIMEOUT / 10).await;
            Response::text("ok")
        };
        let server = transport.serve(slow.wrap(Grpc::new().timeout(Duration::from_millis(1))));
        for media_type in ["application/json", "application/grpc-web"] {
            let request = call("/", media_type).field("grpc-timeout", "1m");
            assert_eq!(server.client().await.fetch(request).await.text(), "ok", "{media_type}");
        }
        server.stop().await;
    });
}

// -- failures

/// The error of a tower layer.
#[derive(Debug)]
struct QuotaExceeded;

impl std::fmt::Display for QuotaExceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("20 calls per day")
    }
}

impl std::error::Error for QuotaExceeded {}

async fn failing(request: Request) -> Response {
    match request.path() {
        "/panic" => panic!("on purpose"),
        "/error" => Error::new(ErrorKind::BodyTooLarge, "100 % too large").into(),
        "/stuck" => std::future::pending().await,
        "/tower" => {
            let fails = ::tower::service_fn(async |_: http::Request<Body>| {
                Err::<http::Response<Body>, _>(QuotaExceeded)
            });
            weft::tower::app(fails).call(request).await
        }
        "/busy" => {
            Response::from(StatusCode::TOO_MANY_REQUESTS).with_header(header::RETRY_AFTER, "5")
        }
        "/login" => StatusCode::UNAUTHORIZED.into(),
        "/page" => Response::text("a page"),
        "/endless" => {
            Response::from_body(Body::stream(stream::pending::<Result<Bytes, Infallible>>()))
                .with_status(StatusCode::BAD_GATEWAY)
        }
        "/late" => Response::from_body(Body::stream(stream::iter([Ok("a"), Err("on purpose")])))
            .with_header(header::CONTENT_TYPE, "application/grpc"),
        _ => Response::not_found(),
    }
}

#[test]
fn failures_have_a_status_of_grpc() {
    on_every_transport(async |transport| {
        let grpc = Grpc::new().status_of(|error| {
            let quota = error.source()?.downcast_ref::<QuotaExceeded>()?;
            Some(Status::new(Code::ResourceExhausted, quota.to_string()))
        });
        let app = weft::stack(failing).with(grpc).with(Timeout::new(SHORT_TIMEOUT / 10));
        let server = transport.serve(app);
        // One connection: none of the failures closes it.
        let mut client = server.client().await;
        for (path, expected, message) in [
            ("/panic", "head 13", None),
            ("/error", "head 8", Some("413 Payload Too Large")),
            ("/stuck", "head 14", Some("503 Service Unavailable")),
            ("/tower", "head 8", Some("20 calls per day")),
            ("/busy", "head 8", Some("429 Too Many Requests")),
            ("/login", "head 16", Some("401 Unauthorized")),
            ("/none", "head 12", Some("404 Not Found")),
            ("/endless", "head 14", Some("502 Bad Gateway")),
            ("/page", "http 200", None),
        ] {
            let response = client.fetch(call(path, "application/grpc")).await;
            assert_eq!(status(&response), expected, "{path}");
            assert_eq!(response.field("grpc-message"), message, "{path}");
            let retry_after = (path == "/busy").then_some("5");
            assert_eq!(response.field("retry-after"), retry_after, "{path}");
            if path != "/page" {
                assert_eq!((response.status, response.text()), (200, ""), "{path}");
                assert_eq!(response.field("content-type"), Some("application/grpc"), "{path}");
            }
        }
        // A response that has begun is aborted by the engine. Over HTTP/1 its head is not sent yet.
        let late = client.send(call("/late", "application/grpc")).await.try_collect().await;
        match transport.is_multiplexed() {
            true => assert_eq!(late.unwrap_err().body, b"a"),
            false => assert_eq!(status(&late.unwrap()), "head 13"),
        }
        // Other requests get statuses of HTTP.
        let mut client = server.client().await;
        assert_eq!(client.fetch(ClientRequest::get("/none")).await.status, 404);
        server.stop().await;
    });
}

/// Records the errors of a server.
struct Errors(Arc<Mutex<Vec<ErrorKind>>>);

impl Hooks for Errors {
    fn on_error(&self, _: &Peer, error: &Error) {
        self.0.lock().unwrap().push(error.kind());
    }
}

#[test]
fn failures_are_reported_once() {
    on_every_transport(async |transport| {
        let errors = Arc::new(Mutex::new(Vec::new()));
        let server = boxed_server(failing.wrap(Grpc::new())).workers(1).hooks({
            let errors = errors.clone();
            move || Errors(errors.clone())
        });
        let server = transport.start(server);
        let mut client = server.client().await;
        for path in ["/panic", "/none", "/tower"] {
            client.fetch(call(path, "application/grpc")).await;
        }
        server.stop().await;
        assert_eq!(*errors.lock().unwrap(), [ErrorKind::Panicked, ErrorKind::ServiceFailed]);
    });
}

// -- gRPC-Web

fn trailers_frame(trailers: &str) -> Vec<u8> {
    [&[0x80, 0, 0, 0, u8::try_from(trailers.len()).unwrap()], trailers.as_bytes()].concat()
}

/// Answers with the request's message, or without one.
async fn echo(mut request: Request) -> Response {
    let fields = request.headers();
    let media_type = fields.get("content-type").unwrap().to_owned();
    assert_eq!((fields.get("te"), fields.get_all("te").count()), (Some("trailers"), 1));
    assert!(media_type.starts_with("application/grpc+") || media_type == "application/grpc");
    if request.path() == "/refused" {
        return Response::new(StatusCode::OK)
            .with_header(header::CONTENT_TYPE, media_type)
            .with_header("grpc-status", "7")
            .with_header("grpc-message", "no");
    }
    let mut received = Vec::new();
    while let Some(piece) = match request.body().chunk().await {
        Ok(piece) => piece,
        Err(error) => return error.into(),
    } {
        received.extend_from_slice(&piece);
    }
    let (first, second) = received.split_at(received.len() / 2);
    let pieces = [first, second].map(|piece| Frame::data(Bytes::copy_from_slice(piece)));
    let trailers = [("grpc-status", "0"), ("x-own", "a")]
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let frames = pieces.into_iter().chain([Frame::trailers(trailers.into_iter().collect())]);
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
    Response::from_body(Body::from_http_body(body)).with_header(header::CONTENT_TYPE, media_type)
}

async fn fetch_web(transport: Transport, request: ClientRequest) -> ClientResponse {
    let server = transport.serve(weft::stack(echo).with(GrpcWeb::new()).with(Grpc::new()));
    let response = server.client().await.fetch(request).await;
    server.stop().await;
    response
}

#[test]
fn grpc_web_has_its_trailers_in_the_body() {
    let status = trailers_frame("grpc-status: 0\r\nx-own: a\r\n");
    let refusal = trailers_frame("grpc-status: 7\r\ngrpc-message: no\r\n");
    let binary = [MESSAGE.as_bytes(), &status].concat();
    let (first, second) = MESSAGE.split_at(MESSAGE.len() / 2);
    // Each piece of the response has its own padding.
    let text = [first.as_bytes(), second.as_bytes(), &status].map(|piece| BASE64.encode(piece));
    let text = text.concat().into_bytes();
    on_every_transport(async |transport| {
        for (path, media_type, accept, response_type, expected) in [
            ("/", "application/grpc-web+proto", "", "application/grpc-web+proto", &binary),
            ("/", "application/grpc-web", "*/*", "application/grpc-web+proto", &binary),
            ("/", "application/grpc-web+json", "", "application/grpc-web+json", &binary),
            ("/", "application/grpc-web-text", "", "application/grpc-web-text+proto", &text),
            (
                "/",
                "application/grpc-web-text+proto",
                "application/grpc-web+proto",
                "application/grpc-web+proto",
                &binary,
            ),
            (
                "/",
                "application/grpc-web+proto",
                "text/html, application/grpc-web-text",
                "application/grpc-web-text+proto",
                &text,
            ),
            ("/refused", "application/grpc-web+proto", "", "application/grpc-web+proto", &refusal),
        ] {
            let request = ClientRequest::post(path).field("content-type", media_type);
            let request = if accept.is_empty() { request } else { request.field("accept", accept) };
            let body = match media_type.contains("text") {
                true => BASE64.encode(MESSAGE),
                false => MESSAGE.to_owned(),
            };
            let response = fetch_web(transport, request.body(body)).await;
            let case = format!("{path} {media_type} {accept}");
            assert_eq!(response.field("content-type"), Some(response_type), "{case}");
            let found = response.body.escape_ascii().to_string();
            assert_eq!(found, expected.escape_ascii().to_string(), "{case}");
            assert!(response.trailers.is_empty(), "{case}");
            assert_eq!(response.field("grpc-status"), None, "{case}");
        }
    });
}

#[test]
fn messages_of_a_web_stream_are_not_delayed() {
    on_every_transport(async |transport| {
        let app = async |_: Request| messages(&[MESSAGE], None);
        let server = transport.serve(weft::stack(app).with(GrpcWeb::new()).with(Grpc::new()));
        let request = ClientRequest::post("/")
            .field("content-type", "application/grpc-web-text")
            .field("grpc-timeout", "30S");
        let mut open = server.client().await.send(request).await.read_head().await.unwrap();
        let expected = BASE64.encode(MESSAGE);
        assert_eq!(open.read(expected.len()).await, expected.as_bytes());
        drop(open);
        // The deadline is a frame of the body, too.
        let request = ClientRequest::post("/")
            .field("content-type", "application/grpc-web+proto")
            .field("grpc-timeout", "10m");
        let ended = server.client().await.fetch(request).await;
        let trailers = "grpc-status: 4\r\ngrpc-message: the deadline is over\r\n";
        assert_eq!(ended.body, [MESSAGE.as_bytes(), &trailers_frame(trailers)].concat());
        server.stop().await;
    });
}

#[test]
fn invalid_base64_fails_the_body() {
    on_every_transport(async |transport| {
        for body in ["AAAA!", "AAA", "A"] {
            let request =
                ClientRequest::post("/").field("content-type", "application/grpc-web-text");
            let response = fetch_web(transport, request.body(body)).await;
            let decoded = BASE64.decode(&response.body).unwrap();
            let text = String::from_utf8_lossy(&decoded).into_owned();
            assert!(text.contains("grpc-status: 13\r\n"), "{body}: {text:?}");
        }
    });
}

#[test]
fn other_requests_pass_unchanged() {
    on_every_transport(async |transport| {
        let app = async |request: Request| {
            let media_type = request.headers().get("content-type").unwrap_or("none").to_owned();
            Response::from_body(request.into_body())
                .with_header(header::CONTENT_TYPE, &media_type)
                .with_header("grpc-status", "0")
        };
        let server = transport.serve(app.wrap(GrpcWeb::new()));
        for (method, media_type) in [
            ("POST", "application/grpc"),
            ("POST", "application/grpc-webs"),
            ("PUT", "application/grpc-web"),
            ("POST", "text/plain"),
        ] {
            let request = ClientRequest::new(method, "/").field("content-type", media_type);
            let response = server.client().await.fetch(request.body("AAAA")).await;
            assert_eq!(response.field("content-type"), Some(media_type));
            assert_eq!((response.text(), response.field("grpc-status")), ("AAAA", Some("0")));
        }
        server.stop().await;
    });
}
