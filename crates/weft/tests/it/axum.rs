//! An axum router on Weft, tested over real sockets.
#![cfg(all(feature = "gzip", feature = "tower"))]

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{Shutdown as Half, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::{self, Client, boxed_server, stop, until};
use axum::body::Body;
use axum::extract::{
    ConnectInfo, DefaultBodyLimit, MatchedPath, OriginalUri, Path, Query, Request, State,
};
use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version};
use axum::response::sse::{Event, Sse};
use axum::response::{AppendHeaders, IntoResponse};
use axum::routing::{any, get, post};
use axum::{Extension, Form, Json, Router};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use weft::server::ServerHandle;
use weft::tower::Connection;
use weft::{Application, Settings, tower};

fn start(router: Router) -> ServerHandle {
    start_with(Settings::default(), tower::app(router))
}

fn start_with<A: Application + Clone + Send + 'static>(settings: Settings, app: A) -> ServerHandle {
    let server = boxed_server(app).settings(settings).workers(1);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

const CHUNKED: &str = "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n";

// -- extractors

#[derive(Deserialize, Serialize)]
struct Person {
    name: String,
    age: u8,
}

async fn all_fields(headers: HeaderMap) -> impl IntoResponse {
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        format!("{name}={};", value.as_bytes().escape_ascii())
    };
    headers.iter().filter(|(name, _)| *name != HOST).map(line).collect::<String>()
}

/// A clone of the map that belongs to an earlier head would have other fields.
#[test]
fn repeated_heads_have_their_own_fields() {
    let change = async |mut headers: HeaderMap| {
        headers.insert("te", HeaderValue::from_static("changed"));
        all_fields(headers).await
    };
    let server = start(Router::new().route("/", any(all_fields)).route("/change", any(change)));
    let mut client = Client::connect(&server);
    let requests = [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", ""),
        ("GET / HTTP/1.1\r\nHost: a\r\nTE: b\r\n\r\n", "te=b;"),
        ("GET / HTTP/1.1\r\nHost: a\r\nTE: c\r\n\r\n", "te=c;"),
        ("GET /change HTTP/1.1\r\nHost: a\r\nTE: c\r\n\r\n", "te=changed;"),
        ("GET / HTTP/1.1\r\nHost: a\r\nCookie: d\r\nTE: c\r\n\r\n", "cookie=d;te=c;"),
    ];
    let repeated = (0..200).map(|n| n / 40);
    let mixed = (0..200).map(|n| [0, 1, 1, 2, 3, 3, 0, 4][n % 8]);
    for index in repeated.chain(mixed) {
        let (request, expected) = requests[index];
        client.send(request);
        assert_eq!(client.response().text(), expected);
    }
    stop(server);
}

async fn request_paths(OriginalUri(original): OriginalUri, path: MatchedPath, uri: Uri) -> String {
    format!("{original} {} {uri}", path.as_str())
}

fn extractors() -> Router {
    let nested = Router::new().route("/place/{of}", get(request_paths));
    Router::new()
        .route("/", get("Hello"))
        .route(
            "/name/{name}/{age}",
            get(async |Path((n, a)): Path<(String, u8)>| format!("{n} {a}")),
        )
        .route("/query", get(async |Query(p): Query<Person>| format!("{} {}", p.name, p.age)))
        .route("/form", post(async |Form(p): Form<Person>| format!("{} {}", p.name, p.age)))
        .route("/json", post(async |Json(p): Json<Person>| Json(p)))
        .route("/text", post(async |text: String| text))
        .route("/bytes", post(async |bytes: Bytes| bytes))
        .route("/fields", get(all_fields))
        .route("/state", get(async |State(state): State<&'static str>| state))
        .route("/version", get(async |version: Version| format!("{version:?}")))
        .route("/uri", any(async |uri: Uri| format!("{:?} {}", uri.authority(), uri)))
        .route(
            "/status",
            get(async || (StatusCode::IM_A_TEAPOT, AppendHeaders([("x-a", "1"), ("x-a", "2")]))),
        )
        .nest("/nested", nested)
        .fallback(async |uri: Uri| (StatusCode::NOT_FOUND, format!("no {uri}")))
        .with_state("the state")
}

#[test]
fn extractors_receive_the_request() {
    let server = start(extractors());
    // All requests use one connection, which stays open.
    let mut client = Client::connect(&server);
    let json = "Content-Type: application/json\r\n";
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for (line, fields, body, status, expected) in [
        ("GET /", "", "", 200, "Hello"),
        ("GET /name/d%C3%ADas/7", "", "", 200, "días 7"),
        (
            "GET /name/x/700",
            "",
            "",
            400,
            "Invalid URL: Cannot parse value at index 1 with value `700` to a `u8`",
        ),
        ("GET /query?name=a%20b&age=3", "", "", 200, "a b 3"),
        ("POST /form", form, "name=a+b&age=4", 200, "a b 4"),
        (
            "POST /form",
            "",
            "name=a+b&age=4",
            415,
            "Form requests must have `Content-Type: \
            application/x-www-form-urlencoded`",
        ),
        ("POST /json", json, r#"{"name":"a","age":5}"#, 200, r#"{"name":"a","age":5}"#),
        ("POST /text", "", "días", 200, "días"),
        ("POST /text", "", "", 200, ""),
        ("POST /bytes", "", "\0\x01", 200, "\0\x01"),
        ("GET /fields", "X-A: 1\r\nB:\r\nx-a:  2 \r\n", "", 200, "x-a=1;x-a=2;b=;"),
        ("GET /state", "", "", 200, "the state"),
        ("GET /version", "", "", 200, "HTTP/1.1"),
        ("GET /uri?a", "", "", 200, "None /uri?a"),
        (
            "GET http://b.example:81/uri?a",
            "",
            "",
            200,
            "Some(b.example:81) http://b.example:81/uri?a",
        ),
        ("GET /nested/place/b?c", "", "", 200, "/nested/place/b?c /nested/place/{of} /place/b?c"),
        ("GET /status", "", "", 418, ""),
        ("GET /nothing?q", "", "", 404, "no /nothing?q"),
        ("OPTIONS *", "", "", 404, "no *"),
        ("GET http://b.example", "", "", 200, "Hello"),
        ("DELETE /text", "", "", 405, ""),
        // `http::Uri` does not accept this target; hyper rejects it too.
        ("GET /a<b>", "", "", 400, "400 Bad Request: the request target is no URI\n"),
    ] {
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}{length}\r\n{body}"));
        let response = client.response();
        assert_eq!((response.status, response.text()), (status, expected), "{line}");
        assert_eq!(response.header("content-length"), Some(&*expected.len().to_string()), "{line}");
        let repeated = response.headers.iter().filter(|(name, _)| name == "x-a").count();
        assert_eq!(repeated, if status == 418 { 2 } else { 0 });
        assert_eq!(response.header("allow").is_some(), status == 405);
    }
    // Field values with bytes outside ASCII (obs-text) reach the application unchanged.
    client.send(b"GET /fields HTTP/1.1\r\nHost: a\r\nX-A: \xe9\xff\r\n\r\n");
    assert_eq!(client.response().text(), "x-a=\\xe9\\xff;");
    client.send("GET /version HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().text(), "HTTP/1.0");
    client.assert_closed();
    stop(server);
}

#[test]
fn handlers_receive_all_of_1000_fields() {
    let count = async |headers: HeaderMap| {
        let fits = |(name, value): (&HeaderName, &HeaderValue)| {
            *name == HOST || name.as_str()[1..] == value.to_str().unwrap()[1..]
        };
        assert!(headers.iter().all(fits));
        headers.len().to_string()
    };
    let router = Router::new().route("/", get(count));
    let settings = Settings { max_fields: 1_000, ..Settings::default() };
    let server = start_with(settings, tower::app(router));
    let mut client = Client::connect(&server);
    // Field names are cached, and the cache must not confuse them.
    for _ in 0..3 {
        let fields: String = (0..999).map(|n| format!("X{n}: v{n}\r\n")).collect();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(client.response().text(), "1000");
    }
    stop(server);
}

#[test]
fn head_response_has_the_fields_of_get_and_no_body() {
    let server = start(extractors());
    let mut client = Client::connect(&server);
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.head();
    assert_eq!((response.status, response.header("content-length")), (200, Some("5")));
    client.assert_open("/");
    stop(server);
}

/// axum removes the content, so that neither its length nor its coding is known.
#[test]
fn head_response_of_a_stream_has_no_framing() {
    let stream = async || axum::body::Body::from_stream(stream::iter([Ok::<_, Infallible>("a")]));
    let server = start(Router::new().route("/", get(stream)));
    let mut client = Client::connect(&server);
    for version in ["1.1", "1.0"] {
        let fields = "Host: a\r\nConnection: keep-alive\r\n\r\n";
        client.send(format!("HEAD / HTTP/{version}\r\n{fields}"));
        let response = client.head();
        assert_eq!(response.status, 200);
        let framing = ["transfer-encoding", "content-length"].map(|name| response.header(name));
        assert_eq!(framing, [None, None]);
        client.assert_open("/");
    }
    client.get("/");
    assert_eq!(client.response().header("transfer-encoding"), Some("chunked"));
    stop(server);
}

#[test]
fn connect_info_provides_the_peer_address() {
    let peer_address = async |ConnectInfo(a): ConnectInfo<SocketAddr>,
                              Extension(connection): Extension<Connection>| {
        assert_eq!(connection.peer().address(), Some(a));
        a.to_string()
    };
    let router = Router::new().route("/", get(peer_address));
    let app = tower::app(router.clone()).connect_info(ConnectInfo);
    let server = start_with(Settings::default(), app);
    let mut client = Client::connect(&server);
    client.get("/");
    let own = client.socket().local_addr().unwrap();
    assert_eq!(client.response().text(), own.to_string());
    stop(server);

    // Without `connect_info`, the extractor of axum responds with 500.
    let server = start(router);
    let mut client = Client::connect(&server);
    client.get("/");
    assert_eq!(client.response().status, 500);
    stop(server);
}

#[test]
fn handlers_receive_changes_made_by_weft_middleware() {
    #[derive(Clone)]
    struct Greeting(&'static str);
    let router = Router::new().route(
        "/new",
        any(async |Extension(greeting): Extension<Greeting>, request: Request| {
            format!("{} {} {}", greeting.0, request.method(), request.uri())
        }),
    );
    let before = async |mut request: weft::Request, next: weft::Next<'_>| {
        request.extensions_mut().insert(Greeting("hello"));
        request.set_method(weft::Method::PUT);
        request.set_path_and_query("/new?a=%20");
        next.call(request).await
    };
    let server = start_with(Settings::default(), tower::app(router).wrap(before));
    let mut client = Client::connect(&server);
    for (target, expected) in [
        ("/old", "hello PUT /new?a=%20"),
        ("http://b/old", "hello PUT http://b/new?a=%20"),
        ("/<old>", "hello PUT /new?a=%20"),
    ] {
        client.get(target);
        assert_eq!(client.response().text(), expected);
    }
    stop(server);
}

// -- request bodies

#[test]
fn sends_100_continue_when_the_handler_reads_the_body() {
    let server = start(extractors());
    let mut client = Client::connect(&server);
    let fields = "Host: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    client.send(format!("POST /text HTTP/1.1\r\n{fields}"));
    assert_eq!(client.response().status, 100);
    client.send("ab");
    assert_eq!(client.response().text(), "ab");
    // No 100 Continue is sent if the handler does not read the body.
    client.send(format!("POST /nothing HTTP/1.1\r\n{fields}"));
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (404, Some("close")));
    stop(server);
}

#[test]
fn extractors_respond_to_request_body_errors() {
    let settings = Settings { max_body_bytes: 3_000_000, ..Settings::default() };
    let server = start_with(settings, tower::app(extractors()));
    // The default limit of axum is 2 MB.
    let mut client = Client::connect(&server);
    client.send("POST /bytes HTTP/1.1\r\nHost: a\r\nContent-Length: 2500000\r\n\r\n");
    client.send(vec![b'x'; 2_100_000]);
    assert_eq!(client.response().status, 413);
    for (body, status) in [("5\r\nhello\r\n0\r\n\r\n", 200), ("5\r\nhelloX", 400)] {
        let mut client =
            Client::connect_and_send(&server, format!("POST /text HTTP/1.1\r\n{CHUNKED}{body}"));
        assert_eq!(client.response().status, status, "{body}");
    }
    // A truncated body is an error.
    let mut client =
        Client::connect_and_send(&server, format!("POST /text HTTP/1.1\r\n{CHUNKED}5\r\nhel"));
    client.half_close();
    assert_eq!(client.response().status, 400);
    stop(server);
}

#[test]
fn echoes_a_streaming_request_with_its_trailers() {
    let echo = async |request: Request| {
        let body = request.into_body();
        Body::new(body)
    };
    let server = start(Router::new().route("/", post(echo)).route("/get", get("ok")));
    let mut client = Client::connect_and_send(&server, format!("POST / HTTP/1.1\r\n{CHUNKED}"));
    for part in ["one", "three"] {
        client.send(format!("{:x}\r\n{part}\r\n", part.len()));
        let end = format!("{part}\r\n");
        until("the part is echoed", || {
            client.read() > 0 && client.received().ends_with(end.as_bytes())
        });
    }
    client.send("0\r\nX-Sum: 8\r\n\r\n");
    until("the trailers are echoed", || {
        client.read() > 0 && client.received().ends_with(b"0\r\nx-sum: 8\r\n\r\n")
    });
    assert_eq!(client.response().text(), "onethree");
    client.assert_open("/get");
    stop(server);
}

// -- response bodies

/// A streaming body of the frames that `receiver` returns.
fn frames(receiver: mpsc::Receiver<Result<Frame<Bytes>, &'static str>>) -> Body {
    Body::new(StreamBody::new(stream::unfold(receiver, async |mut receiver| {
        Some((receiver.recv().await?, receiver))
    })))
}

#[test]
fn size_hint_of_the_body_decides_the_framing() {
    let body = async |Path(kind): Path<String>| {
        let data = |text: &'static str| Ok::<_, &str>(Frame::data(Bytes::from(text)));
        let trailers = || {
            Frame::trailers(HeaderMap::from_iter([(
                HeaderName::from_static("x-end"),
                HeaderValue::from_static("now"),
            )]))
        };
        let two = stream::iter([data("ab"), data("cd")]);
        match &*kind {
            "empty" => Body::empty(),
            "bytes" => Body::from("abcd"),
            "large" => Body::from("x".repeat(1 << 20)),
            "two" => Body::new(StreamBody::new(two)),
            "trailers" => Body::new(StreamBody::new(stream::iter([data("ab"), Ok(trailers())]))),
            "limited" => Body::new(http_body_util::Limited::new(Body::from("abcd"), 4)),
            // Bodies with an exact size hint that consist of several frames.
            "sized" => Body::new(WithSizeHint(4, Body::new(StreamBody::new(two)))),
            "sized-with-trailers" => {
                let two = stream::iter([data("abcd"), Ok(trailers())]);
                Body::new(WithSizeHint(4, Body::new(StreamBody::new(two))))
            }
            "fails" => Body::new(WithSizeHint(
                4,
                Body::new(StreamBody::new(stream::iter([Err::<Frame<Bytes>, _>("no")]))),
            )),
            "fails-late" => Body::new(WithSizeHint(
                4,
                Body::new(StreamBody::new(stream::iter([data("ab"), Err("no")]))),
            )),
            _ => Body::new(WithSizeHint(5, Body::from("abcd"))),
        }
    };
    let server = start(Router::new().route("/{kind}", get(body)));
    for (kind, framing, body) in [
        ("empty", "content-length: 0", Some("")),
        ("bytes", "content-length: 4", Some("abcd")),
        ("large", "content-length: 1048576", Some(&*"x".repeat(1 << 20))),
        ("two", "transfer-encoding: chunked", Some("abcd")),
        ("trailers", "transfer-encoding: chunked", Some("ab")),
        ("limited", "content-length: 4", Some("abcd")),
        ("sized", "content-length: 4", Some("abcd")),
        ("sized-with-trailers", "content-length: 4", Some("abcd")),
        ("fails", "connection: close", None),
        ("fails-late", "connection: close", None),
        ("wrong-length", "connection: close", None),
    ] {
        let mut client = Client::connect(&server);
        client.get(&format!("/{kind}"));
        let response = client.response();
        let lines = response.headers.iter().map(|(name, value)| format!("{name}: {value}"));
        assert!(lines.into_iter().any(|line| line == framing), "{kind}: {response:?}");
        match body {
            Some(body) => {
                assert_eq!((response.status, response.text()), (200, body), "{kind}");
                client.assert_open("/empty");
            }
            None => {
                assert_eq!(response.status, 500, "{kind}");
                client.assert_closed();
            }
        }
    }
    stop(server);
}

/// A body with an exact size hint, which may differ from its length.
struct WithSizeHint(u64, Body);

impl http_body::Body for WithSizeHint {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        std::pin::Pin::new(&mut self.1).poll_frame(cx)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}

#[test]
fn cuts_a_response_whose_body_fails() {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = Arc::new(std::sync::Mutex::new(Some(receiver)));
    let body = async move || frames(receiver.lock().unwrap().take().expect("a single request"));
    let server = start(Router::new().route("/", get(body)));
    let mut client = Client::connect(&server);
    client.get("/");
    sender.blocking_send(Ok(Frame::data(Bytes::from("abc")))).unwrap();
    until("the chunk arrives", || {
        client.read() > 0 && client.received().ends_with(b"3\r\nabc\r\n")
    });
    sender.blocking_send(Err("broken")).unwrap();
    while client.read() > 0 {}
    assert!(client.received().ends_with(b"3\r\nabc\r\n"), "{}", client.received().escape_ascii());
    stop(server);
}

#[test]
fn sends_events_immediately_and_drops_the_stream_on_disconnect() {
    let (sender, receiver) = mpsc::channel::<&str>(1);
    let receiver = Arc::new(std::sync::Mutex::new(Some(receiver)));
    let events = async move || {
        let receiver = receiver.lock().unwrap().take().expect("a single request");
        Sse::new(stream::unfold(receiver, async |mut receiver| {
            let text = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Event::default().data(text)), receiver))
        }))
    };
    let server = start(Router::new().route("/", get(events)));
    let mut client = Client::connect(&server);
    client.get("/");
    for text in ["one", "two"] {
        sender.blocking_send(text).unwrap();
        let event = format!("data: {text}\n\n\r\n");
        until("the event arrives", || {
            client.read() > 0 && client.received().ends_with(event.as_bytes())
        });
    }
    assert!(!sender.is_closed());
    client.leave();
    until("the stream is dropped", || sender.is_closed());
    stop(server);
}

// -- handlers and connections

#[test]
fn drops_the_handler_when_the_client_disconnects() {
    struct DropCounter(Arc<AtomicUsize>);
    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.fetch_add(10, SeqCst);
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let handler = async move || {
        counted.fetch_add(1, SeqCst);
        let _counter = DropCounter(counted.clone());
        std::future::pending::<()>().await
    };
    let server = start(Router::new().route("/", get(handler)));
    let mut client = Client::connect(&server);
    client.get("/");
    until("the handler runs", || count.load(SeqCst) == 1);
    client.leave();
    until("the handler is dropped", || count.load(SeqCst) == 11);
    stop(server);
}

#[test]
fn panic_closes_only_its_own_connection() {
    async fn panics() -> StatusCode {
        panic!("intended by the test")
    }
    let server = start(Router::new().route("/", get("ok")).route("/panic", get(panics)));
    let mut other = Client::connect(&server);
    other.assert_open("/");
    let mut client = Client::connect(&server);
    client.get("/panic");
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (500, Some("close")));
    client.assert_closed();
    other.assert_open("/");
    stop(server);
}

#[test]
fn streams_can_end_on_shutdown() {
    let events = async |Extension(connection): Extension<Connection>| {
        Sse::new(stream::unfold(Some(connection.shutdown()), async |shutdown| {
            let mut shutdown = shutdown?;
            shutdown.requested().await;
            Some((Ok::<_, Infallible>(Event::default().data("goodbye")), None))
        }))
    };
    let server = start(Router::new().route("/", get(events)));
    let mut client = Client::connect(&server);
    client.get("/");
    until("the head arrives", || client.read() > 0);
    let stopped = std::thread::spawn(move || server.shutdown(common::TEST_TIMEOUT));
    assert_eq!(client.response().text(), "data: goodbye\n\n");
    client.assert_closed();
    stopped.join().unwrap();
}

#[test]
fn responds_to_pipelined_requests_in_order() {
    let server = start(extractors());
    let mut socket = TcpStream::connect(common::address(&server)).unwrap();
    let request = |n| format!("GET /name/x/{n} HTTP/1.1\r\nHost: a\r\n\r\n");
    socket.write_all((0..100).map(request).collect::<String>().as_bytes()).unwrap();
    socket.shutdown(Half::Write).unwrap();
    let mut all = String::new();
    socket.read_to_string(&mut all).unwrap();
    let bodies: Vec<&str> = all.split("\r\n\r\n").skip(1).collect();
    assert_eq!(bodies.len(), 100);
    for (n, body) in bodies.iter().enumerate() {
        assert!(body.starts_with(&format!("x {n}")), "{body}");
    }
    stop(server);
}

/// A reduced version of axum's `key-value-store` example: a router with layers of tower-http.
#[test]
fn tower_http_layers_inside_a_router() {
    use tower_http::compression::CompressionLayer;
    use tower_http::limit::RequestBodyLimitLayer;
    use tower_http::timeout::TimeoutLayer;
    use tower_http::trace::TraceLayer;
    type Store = Arc<std::sync::Mutex<HashMap<String, Bytes>>>;
    let read = async |Path(key): Path<String>, State(store): State<Store>| {
        store.lock().unwrap().get(&key).cloned().ok_or(StatusCode::NOT_FOUND)
    };
    let write = async |Path(key): Path<String>, State(store): State<Store>, value: Bytes| {
        store.lock().unwrap().insert(key, value);
    };
    let slow = async || tokio::time::sleep(common::TEST_TIMEOUT * 10).await;
    let timeout = Duration::from_millis(20);
    let router = Router::new()
        .route("/slow", get(slow))
        .route("/{key}", get(read).post(write))
        .layer(CompressionLayer::new())
        .layer(DefaultBodyLimit::disable())
        .layer(RequestBodyLimitLayer::new(5_000))
        .layer(TraceLayer::new_for_http())
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, timeout))
        .with_state(Store::default());
    let server = start(router);
    let mut client = Client::connect(&server);
    let text = "This is a text. ".repeat(250);
    client.send(format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\n{text}"));
    assert_eq!(client.response().status, 200);
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let response = client.response();
    let framing = response.header("transfer-encoding");
    assert_eq!((response.header("content-encoding"), framing), (Some("gzip"), Some("chunked")));
    let mut plain = String::new();
    flate2::read::GzDecoder::new(&response.body[..]).read_to_string(&mut plain).unwrap();
    assert_eq!(plain, text);
    client.get("/b");
    assert_eq!(client.response().status, 404);
    client.get("/slow");
    assert_eq!(client.response().status, 408);
    client.get("/a");
    assert_eq!(client.response().text(), text);
    // Without a Content-Length, the limit counts the bytes received.
    let chunk = format!("1388\r\n{}\r\n1\r\nx\r\n0\r\n\r\n", "x".repeat(5_000));
    let mut client =
        Client::connect_and_send(&server, format!("POST /c HTTP/1.1\r\n{CHUNKED}{chunk}"));
    assert_eq!(client.response().status, 413);
    stop(server);
}

/// Compares the exact size hint and `is_end_stream` before the first and after the last frame.
#[test]
fn request_body_reports_size_and_end() {
    let measure = async |request: Request| {
        let mut body = request.into_body();
        let mut hints = Vec::new();
        loop {
            let hint = http_body::Body::size_hint(&body);
            hints.push((hint.exact(), http_body::Body::is_end_stream(&body)));
            match body.frame().await {
                Some(frame) => assert!(frame.is_ok()),
                None => return format!("{:?} {:?}", hints[0], hints.last().unwrap()),
            }
        }
    };
    let server = start(Router::new().route("/", post(measure)));
    let mut client = Client::connect(&server);
    for (fields, body, hints) in [
        ("", "", "(Some(0), true) (Some(0), true)"),
        ("Content-Length: 3\r\n", "abc", "(Some(3), false) (Some(0), true)"),
        (
            "Transfer-Encoding: chunked\r\n",
            "3\r\nabc\r\n0\r\n\r\n",
            "(None, false) (Some(0), true)",
        ),
    ] {
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}"));
        assert_eq!(client.response().text(), hints);
    }
    // A body that arrives in two parts.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na");
    std::thread::sleep(Duration::from_millis(20));
    client.send("bc");
    assert_eq!(client.response().text(), "(Some(3), false) (Some(0), true)");
    stop(server);
}
