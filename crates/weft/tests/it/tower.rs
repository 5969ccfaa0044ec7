//! tower services as applications, tower layers as middleware, and applications as services.
#![cfg(all(feature = "gzip", feature = "tower"))]

use std::convert::Infallible;
use std::future::{Future, poll_fn, ready};
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{self, Client, boxed_server, stop, until};
use axum::Router;
use bytes::Bytes;
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use tower::limit::ConcurrencyLimitLayer;
use tower::retry::{Policy, RetryLayer};
use tower::util::MapRequestLayer;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::normalize_path::NormalizePathLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::set_header::{SetRequestHeaderLayer, SetResponseHeaderLayer};
use tower_http::timeout::{RequestBodyTimeoutLayer, ResponseBodyTimeoutLayer, TimeoutLayer};
use tower_http::trace::TraceLayer;
use weft::header::{self, HeaderValue};
use weft::middleware::HeadAsGet;
use weft::net::Peer;
use weft::server::ServerHandle;
use weft::{
    Application, Body, Error, ErrorKind, File, Hooks, Method, Next, Request, Response, StatusCode,
};

fn start<A: Application + Clone + Send + 'static>(app: A) -> ServerHandle {
    let server = boxed_server(app).workers(1);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

fn ask(client: &mut Client, method: &str, path: &str, fields: &str) -> common::Response {
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    if method == "HEAD" { client.head() } else { client.response() }
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Records the kinds of the errors reported to the hooks.
#[derive(Clone, Default)]
struct ErrorRecorder(Arc<Mutex<Vec<ErrorKind>>>);

impl Hooks for ErrorRecorder {
    fn on_error(&self, _: &Peer, error: &Error) {
        self.0.lock().unwrap().push(error.kind());
    }
}

/// The path of a router behind a prefix is never empty.
#[test]
fn router_behind_a_prefix_has_a_root() {
    let path = async |uri: http::Uri| uri.to_string();
    let router = Router::new().fallback(async move |uri| path(uri).await);
    let mount = weft::middleware::Mount::new("/a", weft::tower::app(router));
    let server = start(app_without_routes.wrap(mount));
    let mut client = Client::connect(&server);
    for (target, seen) in [("/a", "/"), ("/a/", "/"), ("/a?b", "/?b"), ("/a/c?d", "/c?d")] {
        let response = ask(&mut client, "GET", target, "");
        assert_eq!((response.status, response.text()), (200, seen), "{target}");
    }
    stop(server);
}

async fn app_without_routes(_: Request) -> Response {
    Response::not_found()
}

// -- services

#[test]
fn requests_wait_until_the_service_is_ready() {
    /// Becomes ready as often as the gate permits. Only an instance that became ready may be
    /// called.
    struct Gated {
        gate: Arc<Mutex<(usize, Vec<Waker>)>>,
        ready: bool,
    }
    impl Clone for Gated {
        fn clone(&self) -> Gated {
            Gated { gate: self.gate.clone(), ready: false }
        }
    }
    impl Service<http::Request<Body>> for Gated {
        type Response = http::Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            let mut gate = self.gate.lock().unwrap();
            if gate.0 == 0 {
                gate.1.push(cx.waker().clone());
                return Poll::Pending;
            }
            gate.0 -= 1;
            self.ready = true;
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            assert!(std::mem::take(&mut self.ready), "called without being ready");
            ready(Ok(http::Response::new(Full::from("ok"))))
        }
    }
    let gate = Arc::new(Mutex::new((1, Vec::new())));
    let server = start(weft::tower::app(Gated { gate: gate.clone(), ready: false }));
    let mut client = Client::connect(&server);
    client.assert_open("/");
    client.get("/");
    until("the request waits", || !gate.lock().unwrap().1.is_empty());
    assert!(client.received().is_empty());
    let wakers = {
        let mut gate = gate.lock().unwrap();
        gate.0 = 1;
        std::mem::take(&mut gate.1)
    };
    wakers.into_iter().for_each(Waker::wake);
    assert_eq!(client.response().text(), "ok");
    stop(server);
}

#[test]
fn service_errors_are_500_and_reported_to_the_hooks() {
    let service = service_fn(async |request: http::Request<Body>| match request.uri().path() {
        "/own" => match request.into_body().collect(1).await {
            Ok(_) => Ok(http::Response::new(Body::empty())),
            Err(error) => Err(Box::<dyn std::error::Error + Send + Sync>::from(error)),
        },
        _ => Err("it is broken".into()),
    });
    let errors = ErrorRecorder::default();
    let hooks = errors.clone();
    let server = boxed_server(weft::tower::app(service)).workers(1).hooks(move || hooks.clone());
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    for (path, status, kind) in
        [("/", 500, ErrorKind::ServiceFailed), ("/own", 413, ErrorKind::BodyTooLarge)]
    {
        let mut client = Client::connect(&server);
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"));
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (status, Some("close")));
        assert!(!response.text().contains("broken"), "details must not reach the client");
        client.assert_closed();
        assert_eq!(errors.0.lock().unwrap().pop(), Some(kind));
    }
    stop(server);
}

// -- layers

async fn app(request: Request) -> weft::Result<Response> {
    let (head, body) = request.into_parts();
    Ok(match (head.method().as_str(), head.path()) {
        ("POST", "/length") => {
            let body = body.collect(1 << 20).await?;
            Response::text(format!("{} bytes", body.len()))
        }
        ("POST", _) => Response::from_body(body),
        (_, "/pending") => std::future::pending().await,
        (_, "/panic") => panic!("intended by the test"),
        (_, "/text") => Response::text("This is a text. ".repeat(1_000)),
        (_, "/target") => {
            let id = head.headers().get("x-request-id").unwrap_or("-");
            let all: Vec<_> = head.headers().get_all("x-a").map(String::from_utf8_lossy).collect();
            let query = head.query().unwrap_or_default();
            Response::text(format!("{} {query} {} {id} {all:?}", head.target(), head.path()))
        }
        _ => Response::text(format!("{} {}", head.method(), head.path())),
    })
}

#[test]
fn tower_http_layers_around_an_application() {
    let layers = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(CorsLayer::permissive())
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(CompressionLayer::new())
        .layer(RequestDecompressionLayer::new())
        .layer(RequestBodyLimitLayer::new(20_000))
        .layer(RequestBodyTimeoutLayer::new(common::TEST_TIMEOUT))
        .layer(ResponseBodyTimeoutLayer::new(common::TEST_TIMEOUT))
        .layer(CatchPanicLayer::new())
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            Duration::from_millis(30),
        ))
        .layer(ConcurrencyLimitLayer::new(10));
    let server = start(app.wrap(weft::tower::layer(layers)));
    let mut client = Client::connect(&server);

    let response = ask(&mut client, "GET", "/", "Origin: b\r\n");
    assert_eq!(response.text(), "GET /");
    assert_eq!(response.header("content-length"), Some("5"));
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    let id = response.header("x-request-id").unwrap();
    assert_eq!(id.len(), 36);

    let preflight = "Origin: b\r\nAccess-Control-Request-Method: GET\r\n";
    let response = ask(&mut client, "OPTIONS", "/pending", preflight);
    assert_eq!((response.status, response.text()), (200, ""), "the layer responds itself");

    let response = ask(&mut client, "GET", "/text", "Accept-Encoding: gzip\r\n");
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&response.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, "This is a text. ".repeat(1_000));

    let response = ask(&mut client, "GET", "/target?q", "X-Request-Id: 7\r\nX-A: 1\r\nX-A: 2\r\n");
    assert_eq!(response.text(), "/target?q q /target 7 [\"1\", \"2\"]");

    assert_eq!(ask(&mut client, "GET", "/pending", "").status, 504);
    // The layer catches the panic, so the connection stays open.
    assert_eq!(ask(&mut client, "GET", "/panic", "").status, 500);
    client.assert_open("/");

    let mut coded = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coded.write_all(&[b'x'; 10_000]).unwrap();
    let coded = coded.finish().unwrap();
    let length = coded.len();
    let fields = format!("Content-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
    client.send(
        [format!("POST /length HTTP/1.1\r\nHost: a\r\n{fields}").as_bytes(), &coded].concat(),
    );
    assert_eq!(client.response().text(), "10000 bytes");

    client.send("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 20001\r\n\r\n");
    assert_eq!(client.response().status, 413);
    stop(server);
}

#[test]
fn sends_100_continue_only_if_the_application_reads_a_wrapped_body() {
    let slow = async |request: Request| {
        tokio::time::sleep(Duration::from_millis(5)).await;
        app(request).await
    };
    let server = start(slow.wrap(weft::tower::layer(RequestBodyLimitLayer::new(10))));
    let mut client = Client::connect(&server);
    let fields = "Content-Length: 2\r\nExpect: 100-continue\r\n";
    assert_eq!(ask(&mut client, "POST", "/length", fields).status, 100);
    client.send("ab");
    assert_eq!(client.response().text(), "2 bytes");
    assert_eq!(
        ask(&mut client, "GET", "/", fields).status,
        200,
        "no 100 Continue for an unread body"
    );
    stop(server);
}

#[test]
fn layer_that_drops_the_service_future_drops_the_application() {
    struct DropCounter(Arc<AtomicUsize>);
    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let count = drops.clone();
    let app = move |_: Request| {
        let counter = DropCounter(count.clone());
        async move {
            std::future::pending::<()>().await;
            drop(counter);
            Response::text("never")
        }
    };
    /// Drops the future of the inner service after 10 ms, and responds later.
    #[derive(Clone)]
    struct Impatient<S>(S, Arc<tokio::sync::Notify>);
    impl<S> Service<http::Request<Body>> for Impatient<S>
    where
        S: Service<http::Request<Body>, Future: Send + 'static> + Send,
    {
        type Response = http::Response<Body>;
        type Error = S::Error;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
            self.0.poll_ready(cx)
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let inner = self.0.call(request);
            let later = self.1.clone();
            Box::pin(async move {
                let timeout = Duration::from_millis(10);
                assert!(tokio::time::timeout(timeout, inner).await.is_err());
                later.notified().await;
                Ok(http::Response::new("later".into()))
            })
        }
    }
    let later = Arc::new(tokio::sync::Notify::new());
    let notify = later.clone();
    let layer = tower::layer::layer_fn(move |inner| Impatient(inner, notify.clone()));
    let server = start(app.wrap(weft::tower::layer(layer)));
    let mut client = Client::connect(&server);
    client.get("/");
    until("the application's future is dropped", || drops.load(SeqCst) == 1);
    assert!(client.received().is_empty());
    later.notify_one();
    assert_eq!(client.response().text(), "later");
    // A disconnect of the client drops both futures.
    client.get("/");
    client.leave();
    until("the application's future is dropped", || drops.load(SeqCst) == 2);
    stop(server);
}

#[test]
fn layer_may_call_the_application_again() {
    #[derive(Clone)]
    struct RetryServerErrors(usize);
    impl Policy<http::Request<Body>, http::Response<Body>, Infallible> for RetryServerErrors {
        type Future = std::future::Ready<()>;

        fn retry(
            &mut self,
            request: &mut http::Request<Body>,
            result: &mut Result<http::Response<Body>, Infallible>,
        ) -> Option<Self::Future> {
            self.0 -= 1;
            let number = self.0.to_string().parse().unwrap();
            request.headers_mut().insert("x-attempts-left", number);
            let failed = result.as_ref().is_ok_and(|response| response.status().is_server_error());
            (failed && self.0 > 0).then(|| ready(()))
        }

        fn clone_request(&mut self, request: &http::Request<Body>) -> Option<http::Request<Body>> {
            let (parts, _) = request.clone_parts();
            Some(http::Request::from_parts(parts, Body::empty()))
        }
    }
    /// Clones everything but the body, which cannot be cloned.
    trait CloneParts {
        fn clone_parts(&self) -> (http::request::Parts, ());
    }
    impl<B> CloneParts for http::Request<B> {
        fn clone_parts(&self) -> (http::request::Parts, ()) {
            let mut request = http::Request::new(());
            *request.method_mut() = self.method().clone();
            *request.uri_mut() = self.uri().clone();
            *request.headers_mut() = self.headers().clone();
            *request.extensions_mut() = self.extensions().clone();
            request.into_parts()
        }
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let app = move |request: Request| {
        count.fetch_add(1, SeqCst);
        async move {
            match request.headers().get("x-attempts-left") {
                Some("1") => Response::text("at last"),
                _ => Response::new(StatusCode::SERVICE_UNAVAILABLE),
            }
        }
    };
    let server = start(app.wrap(weft::tower::layer(RetryLayer::new(RetryServerErrors(3)))));
    let mut client = Client::connect(&server);
    client.get("/");
    assert_eq!((client.response().text(), calls.load(SeqCst)), ("at last", 3));
    stop(server);
}

#[test]
fn layer_may_call_the_application_from_another_task() {
    #[derive(Clone)]
    struct Spawns<S>(S);
    impl<S> Service<http::Request<Body>> for Spawns<S>
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
    {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let inner = self.0.clone();
            let (parts, _) = request.into_parts();
            let same = http::Request::from_parts(parts.clone(), Body::empty());
            let other = http::Request::from_parts(parts, Body::empty());
            // Calls the service twice; neither call completes before the other has started.
            let after = |inner: S, request, milliseconds| {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                    inner.oneshot(request).await
                })
            };
            let first = after(inner.clone(), same, 1);
            let second = after(inner, other, 10);
            Box::pin(async move {
                first.await.unwrap()?;
                second.await.unwrap()
            })
        }
    }
    let layer = tower::layer::layer_fn(Spawns);
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let wait_for_both = move |request: Request| {
        let both = both.clone();
        async move {
            both.wait().await;
            app(request).await
        }
    };
    let server = start(wait_for_both.wrap(weft::tower::layer(layer)));
    let mut client = Client::connect(&server);
    for path in ["/a", "/b"] {
        client.get(path);
        assert_eq!(client.response().text(), format!("GET {path}"));
    }
    stop(server);
}

#[test]
fn application_receives_changes_made_by_layers() {
    let rewrite = |mut request: http::Request<Body>| {
        *request.method_mut() = Method::PUT;
        request.extensions_mut().insert("a word");
        request
    };
    let show = async |request: Request| {
        let extension = request.extensions().get::<&str>().copied().unwrap_or("-");
        let fields: Vec<_> = request.headers().iter().skip(1).map(|(name, _)| name).collect();
        Response::text(format!(
            "{} {} {} {extension} {fields:?}",
            request.method(),
            request.target(),
            request.path()
        ))
    };
    let before = async |mut request: Request, next: Next<'_>| {
        request.extensions_mut().insert(7u8);
        next.call(request).await
    };
    let behind = async |request: Request, next: Next<'_>| {
        assert_eq!(request.extensions().get(), Some(&7u8));
        assert!(request.peer().address().is_some());
        assert!(!request.shutdown().is_requested());
        request.early_hints(["</a>"]);
        next.call(request).await
    };
    let add =
        SetRequestHeaderLayer::appending(header::ACCEPT, HeaderValue::from_bytes(b"\xff").unwrap());
    let app = weft::stack(show)
        .with(before)
        .with(weft::tower::layer(NormalizePathLayer::trim_trailing_slash()))
        .with(weft::tower::layer(MapRequestLayer::new(rewrite)))
        .with(weft::tower::layer(add))
        .with(behind);
    let server = start(app);
    let mut client = Client::connect(&server);
    for (target, expected) in [
        ("/a/", "PUT /a/ /a a word [\"accept\"]"),
        ("/a", "PUT /a /a a word [\"accept\"]"),
        ("http://b.example/a/?q", "PUT http://b.example/a/?q /a a word [\"accept\"]"),
        ("http://b.example", "PUT http://b.example / a word [\"accept\"]"),
    ] {
        client.get(target);
        assert_eq!(client.response().status, 103);
        assert_eq!(client.response().text(), expected);
    }
    stop(server);
}

#[test]
fn bodies_stream_through_layers_with_their_trailers() {
    for layered in [false, true] {
        let layers = ServiceBuilder::new()
            .layer(TraceLayer::new_for_http())
            .option_layer(layered.then(|| RequestBodyTimeoutLayer::new(common::TEST_TIMEOUT)))
            .layer(SetResponseHeaderLayer::appending(header::VIA, HeaderValue::from_static("t")));
        let server = start(app.wrap(weft::tower::layer(layers)));
        let mut client = Client::connect_and_send(&server, CHUNKED);
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
        // The length of a body is passed on.
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
        std::thread::sleep(Duration::from_millis(10));
        client.send("abc");
        let response = client.response();
        assert_eq!(response.text(), "abc");
        // The body of tower-http's timeout layer has no exact size hint.
        assert_eq!(response.header("content-length").is_some(), !layered);
        assert_eq!(response.header("via"), Some("t"));
        stop(server);
    }
}

/// A file with a constant entity tag.
async fn file(request: Request) -> Response {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"0123456789").unwrap();
    if request.path() == "/large" {
        file.set_len(300_000).unwrap();
    }
    Response::from_file(File::open(file).unwrap())
        .with_header(header::CONTENT_TYPE, "text/plain")
        .with_header(header::ETAG, "\"e\"")
}

#[test]
fn files_keep_their_preconditions_and_ranges_behind_layers() {
    let through = SetResponseHeaderLayer::appending(header::VIA, HeaderValue::from_static("t"));
    let plain = start(file);
    let passed_through = start(file.wrap(weft::tower::layer(through)));
    let wrapped = start(file.wrap(weft::tower::layer(TraceLayer::new_for_http())));
    let router = Router::new().fallback_service(weft::tower::service(file));
    let mounted = start(weft::tower::app(router));
    for server in [&plain, &passed_through, &wrapped, &mounted] {
        let mut client = Client::connect(server);
        for (method, fields, status, range, body) in [
            ("GET", "", 200, None, "0123456789"),
            ("HEAD", "", 200, None, ""),
            ("GET", "Range: bytes=2-4\r\n", 206, Some("bytes 2-4/10"), "234"),
            ("GET", "Range: bytes=2-4\r\nIf-Range: \"f\"\r\n", 200, None, "0123456789"),
            ("GET", "Range: bytes=10-\r\n", 416, Some("bytes */10"), "416 Range Not Satisfiable\n"),
            ("GET", "If-None-Match: \"e\"\r\n", 304, None, ""),
            ("GET", "If-Match: \"f\"\r\n", 412, None, "412 Precondition Failed\n"),
        ] {
            let response = ask(&mut client, method, "/", fields);
            assert_eq!((response.status, response.text()), (status, body), "{fields}");
            assert_eq!(response.header("content-range"), range, "{fields}");
            if status == 200 {
                assert_eq!(response.header("content-length"), Some("10"));
                assert_eq!(response.header("accept-ranges"), Some("bytes"));
                assert!(response.header("last-modified").is_some());
            }
        }
        let response = ask(&mut client, "GET", "/large", "Range: bytes=0-1,200000-200009\r\n");
        assert_eq!((response.status, response.text().matches("Content-Range").count()), (206, 2));
        assert_eq!(response.header("content-length"), Some(&*response.body.len().to_string()));
        client.assert_open("/");
    }
    for server in [plain, passed_through, wrapped, mounted] {
        stop(server);
    }
}

// -- applications as services

#[test]
fn serves_an_application_mounted_in_an_axum_router() {
    let app = async |request: Request| {
        assert!(request.peer().address().is_some());
        let extension = request.extensions().get::<&str>().copied().unwrap_or_default();
        request.early_hints(["</a>"]);
        Response::text(format!("{} {} {extension}", request.path(), request.authority().unwrap()))
    };
    let router = Router::new()
        .route("/axum", axum::routing::get("axum"))
        .nest_service("/weft", weft::tower::service(app))
        .layer(axum::Extension("a word"));
    let server = start(weft::tower::app(router));
    let mut client = Client::connect(&server);
    client.get("/axum");
    assert_eq!(client.response().text(), "axum");
    client.get("/weft/a?b");
    assert_eq!(client.response().status, 103);
    assert_eq!(client.response().text(), "/a a a word");
    stop(server);
}

#[test]
fn mounted_application_is_dropped_on_disconnect_and_may_panic() {
    let alive = Arc::new(());
    let held = alive.clone();
    let app = move |request: Request| {
        let held = held.clone();
        async move {
            if request.path() == "/panic" {
                panic!("intended by the test");
            }
            std::future::pending::<()>().await;
            drop(held);
            Response::text("never")
        }
    };
    let router = Router::new().fallback_service(weft::tower::service(app));
    let server = start(weft::tower::app(router));
    let baseline = Arc::strong_count(&alive);
    let mut client = Client::connect(&server);
    client.get("/");
    until("the application runs", || Arc::strong_count(&alive) > baseline);
    client.leave();
    // The thread keeps one clone.
    until("the request is dropped", || Arc::strong_count(&alive) <= baseline + 1);
    let mut client = Client::connect(&server);
    client.get("/panic");
    assert_eq!(client.response().status, 500);
    client.assert_closed();
    stop(server);
}

#[test]
fn each_thread_has_one_clone_of_a_mounted_application() {
    struct Counts(Arc<AtomicUsize>);
    impl Clone for Counts {
        fn clone(&self) -> Counts {
            self.0.fetch_add(1, SeqCst);
            Counts(self.0.clone())
        }
    }
    impl Application for Counts {
        async fn call(&self, _: Request) -> Response {
            Response::text(self.0.load(SeqCst).to_string())
        }
    }
    let router = Router::new().fallback_service(weft::tower::service(Counts(Arc::default())));
    let server = start(weft::tower::app(router));
    let mut client = Client::connect(&server);
    for _ in 0..5 {
        client.get("/");
        assert_eq!(client.response().text(), "1");
    }
    stop(server);
}

/// Requests built with tower utilities instead of received by a server.
#[test]
fn application_works_with_tower_utilities() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let layers = ServiceBuilder::new().layer(CompressionLayer::new());
        let service = layers.service(weft::tower::service(app));
        let call = |request: http::request::Builder, body: &'static str| {
            service.clone().oneshot(request.body(Full::from(body)).unwrap())
        };
        let response = call(http::Request::get("/a%20b?c"), "").await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "GET /a%20b");
        let request = http::Request::post("http://b.example/length").header("host", "b.example");
        let response = call(request, "abc").await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "3 bytes");
        let response = call(http::Request::get("ftp://b.example/"), "").await.unwrap();
        assert_eq!(response.status(), 400);
        let response = call(http::Request::get("/").header("a", "x".repeat(70_000)), "").await;
        assert_eq!(response.unwrap().status(), 431);
    });
}

/// Ranges apply only to GET (RFC 9110 §14.2), also if a layer behind `HeadAsGet` evaluates them.
#[test]
fn ranges_do_not_apply_to_head_behind_layers() {
    async fn app(_: Request) -> Response {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        Response::from_file(File::open(file).unwrap())
    }
    let set_field = SetRequestHeaderLayer::overriding(header::FROM, HeaderValue::from_static("a"));
    let servers = [
        start(
            weft::stack(app).with(HeadAsGet).with(weft::tower::layer(TraceLayer::new_for_http())),
        ),
        // A head with changed fields is composed anew.
        start(weft::stack(app).with(HeadAsGet).with(weft::tower::layer(set_field))),
    ];
    for server in servers {
        let mut client = Client::connect(&server);
        for (method, status, length) in [("HEAD", 200, "10"), ("GET", 206, "3")] {
            let response = ask(&mut client, method, "/", "Range: bytes=2-4\r\n");
            let actual = (response.status, response.header("content-length"));
            assert_eq!(actual, (status, Some(length)), "{method}");
        }
        stop(server);
    }
}

// -- bodies

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Lists the frames of a body (`t` for trailers), each after the exact size hint and the value of
/// `is_end_stream`.
async fn describe(mut body: Body) -> String {
    let mut text = String::new();
    loop {
        let hint = body.size_hint();
        text += &format!("[{:?} {}]", hint.exact(), body.is_end_stream());
        match body.frame().await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => text += std::str::from_utf8(&data).unwrap(),
                Err(_) => text += "t",
            },
            Some(Err(error)) => return format!("{text}{error}"),
            None => return text,
        }
    }
}

#[test]
fn bodies_report_size_and_end() {
    let file = || {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        File::new(file, 2, 3)
    };
    let frames = |frames: Vec<Result<Frame<Bytes>, &'static str>>| {
        let mut frames = frames.into_iter();
        let next = poll_fn(move |_| Poll::Ready(frames.next()));
        Body::from_http_body(StreamBody::new(futures_util::stream::unfold(
            next,
            async |mut next| Some(((&mut next).await?, next)),
        )))
    };
    let data = || Ok(Frame::data(Bytes::from("ab")));
    for (body, expected) in [
        (Body::empty(), "[Some(0) true]"),
        ("ab".into(), "[Some(2) false]ab[Some(0) true]"),
        (file().into(), "[Some(3) false]234[Some(0) true]"),
        (Body::from_http_body(Full::new(Bytes::from("ab"))), "[Some(2) false]ab[Some(0) true]"),
        (frames(vec![data(), data()]), "[None false]ab[None false]ab[None false]"),
        (
            frames(vec![data(), Ok(Frame::trailers(Default::default()))]),
            "[None false]ab[None false]t[Some(0) true]",
        ),
        (
            frames(vec![data(), Err("no")]),
            "[None false]ab[None false]the application's body failed: no",
        ),
    ] {
        assert_eq!(run(describe(body)), expected);
    }
}
