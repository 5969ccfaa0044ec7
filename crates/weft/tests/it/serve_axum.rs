//! The replacement for `axum::serve`. `cargo test -p weft-http --features axum,full --test it
//! serve_axum`.
#![cfg(all(feature = "axum", feature = "websocket"))]

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::extract::connect_info::Connected;
use axum::extract::ws::WebSocketUpgrade;
use axum::handler::HandlerWithoutStateExt;
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use futures_util::{SinkExt, StreamExt, stream};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Notify, oneshot};
use weft::axum::{IncomingStream, IntoListeners, MakeService, Serve, serve};
use weft::testing::TestServer;

fn runtimes() -> [Runtime; 2] {
    let multi_thread = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    [Builder::new_current_thread().enable_all().build(), multi_thread].map(Result::unwrap)
}

/// Runs a case in both kinds of runtimes, and with both kinds of threads for the handlers.
fn in_every_runtime<M: MakeService + Sync>(
    make: impl Fn() -> M,
    case: impl AsyncFn(RunningServer) + Copy + Send + 'static,
) {
    for runtime in runtimes() {
        for on_workers in [false, true] {
            let make_service = make();
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let server = serve(listener, make_service).workers(1);
                let server = if on_workers { server.handlers_on_workers() } else { server };
                case(RunningServer::new(server)).await;
            });
        }
    }
}

struct RunningServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<io::Result<()>>,
}

impl RunningServer {
    fn new<M: MakeService + Sync>(server: Serve<M>) -> RunningServer {
        let address = server.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = server.with_graceful_shutdown(async move {
            let _ = stopped.await;
        });
        RunningServer { address, stop, served: tokio::spawn(server.into_future()) }
    }

    async fn fetch(&self, path: &str, body: impl Into<Body>) -> (u16, Bytes) {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let request = http::Request::post(format!("http://{}{path}", self.address));
        let response = client.request(request.body(body.into()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        (status, response.into_body().collect().await.unwrap().to_bytes())
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap().unwrap();
    }
}

#[test]
fn routers_work_in_every_runtime() {
    let router = || {
        Router::new()
            .route("/echo", post(async |body: Bytes| body))
            .route("/stream", post(async |body: Body| body))
            .route("/panic", post(async || -> () { panic!("on purpose") }))
            .route(
                "/events",
                post(async || {
                    Sse::new(stream::iter(["1", "2"]).then(|n| async move {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        let event = async move { Ok::<_, Infallible>(Event::default().data(n)) };
                        tokio::spawn(event).await.unwrap()
                    }))
                }),
            )
            .fallback(async || (http::StatusCode::NOT_FOUND, "nothing"))
    };
    in_every_runtime(router, async |server| {
        let large = Bytes::from(vec![b'x'; 300_000]);
        assert_eq!(server.fetch("/echo", "hello").await, (200, "hello".into()));
        assert_eq!(server.fetch("/stream", large.clone()).await, (200, large));
        assert_eq!(server.fetch("/panic", "").await.0, 500);
        assert_eq!(server.fetch("/none", "").await, (404, "nothing".into()));
        assert_eq!(server.fetch("/events", "").await.1, "data: 1\n\ndata: 2\n\n");
        server.stop().await;
    });
}

/// `block_in_place`, thread-local contexts and tasks of the runtime are available by default.
#[test]
fn handlers_run_on_the_runtime_of_the_caller() {
    for runtime in runtimes() {
        let id = runtime.handle().id();
        let is_multi_thread = runtime.metrics().num_workers() > 1;
        let handler = async move || {
            assert_eq!(Handle::current().id(), id);
            if is_multi_thread {
                tokio::task::block_in_place(|| {});
            }
            tokio::spawn(async { "from a task" }).await.unwrap()
        };
        runtime.block_on(async move {
            let router = Router::new().route("/", post(handler));
            let running = RunningServer::new(serve("127.0.0.1:0", router).workers(1));
            assert_eq!(running.fetch("/", "").await, (200, "from a task".into()));
            running.stop().await;
            let other = async move || (Handle::current().id() != id).to_string();
            let router = Router::new().route("/", post(other));
            let server = serve("127.0.0.1:0", router).workers(1).handlers_on_workers();
            let running = RunningServer::new(server);
            assert_eq!(running.fetch("/", "").await, (200, "true".into()));
            running.stop().await;
        });
    }
}

/// The threads on which a handler starts and on which it ends, after a wait.
#[test]
fn handlers_start_on_their_thread() {
    const START: &str = "weft-0 runtime";
    const TASK: &str = "runtime runtime";
    const WORKER: &str = "weft-0 weft-0";
    fn thread() -> String {
        std::thread::current().name().unwrap().to_owned()
    }
    async fn handler() -> String {
        let start = thread();
        tokio::time::sleep(Duration::from_millis(1)).await;
        format!("{start} {}", thread())
    }
    type Configure = fn(Serve<Router>) -> Serve<Router>;
    let cases: [(Configure, &str); 3] = [
        (|server| server, START),
        (Serve::handlers_as_tasks, TASK),
        (Serve::handlers_on_workers, WORKER),
    ];
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).thread_name("runtime").enable_all().build().unwrap();
    for (configure, expected) in cases {
        runtime.block_on(async move {
            let server = serve("127.0.0.1:0", Router::new().fallback(handler)).workers(1);
            let running = RunningServer::new(configure(server));
            assert_eq!(running.fetch("/", "").await, (200, expected.into()));
            running.stop().await;
        });
    }
}

/// A pool returns its connections by tasks that destructors start.
#[test]
fn destructors_run_in_the_context_of_the_runtime() {
    struct SpawnOnDrop(Option<oneshot::Sender<String>>);
    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            let sender = self.0.take().unwrap();
            tokio::spawn(async move {
                let _ = sender.send(Handle::current().id().to_string());
            });
        }
    }
    /// A future that has its state until it is dropped, not only until it is ready.
    struct Handled(#[expect(dead_code, reason = "it is dropped")] SpawnOnDrop);
    impl Future for Handled {
        type Output = Result<http::Response<Body>, Infallible>;
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            Poll::Ready(Ok(http::Response::new(Body::empty())))
        }
    }
    let [_, runtime] = runtimes();
    let (sender, dropped) = oneshot::channel();
    let state = Arc::new(Mutex::new(Some(sender)));
    let service = tower::service_fn(move |_: http::Request<weft::Body>| {
        Handled(SpawnOnDrop(state.lock().unwrap().take()))
    });
    let service = weft::tower::on_runtime(service, runtime.handle().clone());
    let server = TestServer::start(weft::tower::app(service));
    runtime.block_on(async {
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        let response = client.get(server.url("/").parse().unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(dropped.await.unwrap(), Handle::current().id().to_string());
    });
    server.stop();
}

/// After a handler that has computed for a long time, others start on the runtime for some time.
#[test]
fn handler_that_computes_delays_no_others() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let is_on_worker = async || {
            let name = std::thread::current().name().map(str::to_owned);
            name.is_some_and(|name| name.starts_with("weft")).to_string()
        };
        let compute = async || std::thread::sleep(Duration::from_millis(10));
        let router = Router::new().route("/compute", post(compute)).fallback(is_on_worker);
        let running = RunningServer::new(serve("127.0.0.1:0", router).workers(1));
        let deadline = Instant::now() + Duration::from_secs(60);
        for expected in ["true", "false", "true"] {
            // A busy machine may delay a request until the pause of a second has ended, or any
            // handler for a millisecond.
            while running.fetch("/", "").await.1 != expected {
                assert!(Instant::now() < deadline, "{expected}");
                if expected == "false" {
                    running.fetch("/compute", "").await;
                }
            }
        }
        running.stop().await;
    });
}

#[derive(Clone)]
struct Ends {
    remote: SocketAddr,
    local: SocketAddr,
    is_secure: bool,
}

impl Connected<IncomingStream<'_>> for Ends {
    fn connect_info(stream: IncomingStream<'_>) -> Ends {
        let (remote, local) = (stream.remote_addr().unwrap(), stream.local_addr().unwrap());
        Ends { remote, local, is_secure: stream.tls().is_some() }
    }
}

#[test]
fn provides_connect_info() {
    async fn handler(ConnectInfo(ends): ConnectInfo<Ends>) -> String {
        format!("{} {} {}", ends.remote.ip(), ends.local, ends.is_secure)
    }
    async fn peer(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
        peer.ip().to_string()
    }
    let router = || Router::new().fallback(handler).into_make_service_with_connect_info::<Ends>();
    in_every_runtime(router, async |server| {
        let expected = format!("127.0.0.1 {} false", server.address);
        assert_eq!(server.fetch("/", "").await, (200, expected.into()));
        server.stop().await;
    });
    let addresses = || post(peer).into_make_service_with_connect_info::<SocketAddr>();
    in_every_runtime(addresses, async |server| {
        assert_eq!(server.fetch("/", "").await, (200, "127.0.0.1".into()));
        server.stop().await;
    });
}

#[test]
fn serves_other_services_of_axum() {
    async fn handler() -> &'static str {
        "a handler"
    }
    in_every_runtime(
        || post(handler),
        async |server| {
            assert_eq!(server.fetch("/", "").await, (200, "a handler".into()));
            server.stop().await;
        },
    );
    in_every_runtime(
        || handler.into_make_service(),
        async |server| {
            assert_eq!(server.fetch("/", "").await, (200, "a handler".into()));
            server.stop().await;
        },
    );
}

#[test]
fn listens_on_sockets_and_addresses() {
    async fn assert_serves(listeners: impl IntoListeners) {
        let router = Router::new().fallback(async || "here");
        let running = RunningServer::new(serve(listeners, router).workers(1));
        assert_eq!(running.fetch("/", "").await, (200, "here".into()));
        running.stop().await;
    }
    let [_, runtime] = runtimes();
    runtime.block_on(async {
        assert_serves(std::net::TcpListener::bind("127.0.0.1:0").unwrap()).await;
        assert_serves("127.0.0.1:0").await;
        assert_serves("localhost:0".to_owned()).await;
        assert_serves(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let server = serve(address, Router::new());
        assert!(server.local_addr().unwrap_err().to_string().contains(&address.to_string()));
        let error = server.await.unwrap_err();
        assert!(error.to_string().contains("cannot listen on 127.0.0.1"), "{error}");
    });
}

#[test]
fn upgrades_websockets() {
    let router = || {
        let echo = async |upgrade: WebSocketUpgrade| {
            upgrade.on_upgrade(async |mut socket| {
                while let Some(Ok(message)) = socket.recv().await {
                    let _ = socket.send(message).await;
                }
            })
        };
        Router::new().route("/", get(echo))
    };
    in_every_runtime(router, async |server| {
        let socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let (mut socket, _) = tokio_tungstenite::client_async("ws://a/", socket).await.unwrap();
        for _ in 0..3 {
            socket.send("hello".into()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), "hello".into());
        }
        socket.close(None).await.unwrap();
        while socket.next().await.is_some() {}
        server.stop().await;
    });
}

/// A request in progress completes, and a request whose client leaves is cancelled.
#[test]
fn shutdown_waits_for_requests() {
    let [_, runtime] = runtimes();
    runtime.block_on(async {
        let (began, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let notify = (began.clone(), finish.clone());
        let handler = async move || {
            notify.0.notify_one();
            notify.1.notified().await;
            "finished"
        };
        let router = Router::new().fallback(handler);
        let running = RunningServer::new(serve("127.0.0.1:0", router).workers(1));
        let address = running.address;
        let client = tokio::spawn(async move {
            let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
            let response = client.get(format!("http://{address}/").parse().unwrap()).await;
            response.unwrap().into_body().collect().await.unwrap().to_bytes()
        });
        began.notified().await;
        running.stop.send(()).unwrap();
        tokio::task::yield_now().await;
        assert!(!running.served.is_finished());
        finish.notify_one();
        assert_eq!(client.await.unwrap(), "finished");
        running.served.await.unwrap().unwrap();
    });
}

#[test]
fn handler_is_dropped_with_its_client() {
    struct SetOnDrop(Arc<AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let [_, runtime] = runtimes();
    runtime.block_on(async {
        let (began, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let state = (began.clone(), dropped.clone());
        let handler = async move || {
            let _guard = SetOnDrop(state.1.clone());
            state.0.notify_one();
            std::future::pending::<()>().await;
        };
        let router = Router::new().fallback(handler);
        let running = RunningServer::new(serve("127.0.0.1:0", router).workers(1));
        let socket = tokio::net::TcpStream::connect(running.address).await.unwrap();
        let io = TokioIo::new(socket);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = http::Request::get("/").header("host", "a").body(Body::empty()).unwrap();
        let response = tokio::spawn(async move { sender.send_request(request).await.is_err() });
        began.notified().await;
        connection.abort();
        response.abort();
        while !dropped.load(SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        running.stop().await;
    });
}

/// Dropping the future closes the listener.
#[test]
fn dropped_server_stops() {
    let [runtime, _] = runtimes();
    runtime.block_on(async {
        let router = Router::new().fallback(async || "here");
        let running = RunningServer::new(serve("127.0.0.1:0", router).workers(1));
        assert_eq!(running.fetch("/", "").await, (200, "here".into()));
        running.served.abort();
        while tokio::net::TcpStream::connect(running.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// A form with a file of this size.
fn multipart(bytes: usize) -> String {
    let head = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n";
    format!("{head}{}\r\n--b--\r\n", "x".repeat(bytes))
}

/// The limits of axum apply in place of the default of the engine. A limit that the user has set
/// applies, too, and its status is 413.
#[test]
fn limits_of_extractors_raise_the_limit_of_the_engine() {
    use axum::extract::{DefaultBodyLimit, Multipart};

    fn router() -> Router {
        let upload = async |mut form: Multipart| -> Result<String, axum::response::Response> {
            let mut bytes = 0;
            while let Some(mut field) =
                form.next_field().await.map_err(IntoResponse::into_response)?
            {
                while let Some(piece) = field.chunk().await.map_err(IntoResponse::into_response)? {
                    bytes += piece.len();
                }
            }
            Ok(bytes.to_string())
        };
        let length = async |body: Bytes| body.len().to_string();
        Router::new()
            .route("/form", post(upload).layer(DefaultBodyLimit::disable()))
            .route("/bytes", post(length).layer(DefaultBodyLimit::max(24 << 20)))
            .route("/default", post(length))
    }
    use axum::response::IntoResponse;

    let send = async |server: &RunningServer, path: &str, bytes: usize, is_chunked: bool| {
        let body = if path == "/form" { multipart(bytes) } else { "x".repeat(bytes) };
        let body = match is_chunked {
            true => Body::from_stream(stream::iter([Ok::<_, io::Error>(body)])),
            false => Body::from(body),
        };
        let request = http::Request::post(format!("http://{}{path}", server.address))
            .header("content-type", "multipart/form-data; boundary=b");
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request.body(body).unwrap()).await;
        // The client may fail to send the rest of a body that is too large.
        let Ok(response) = response else { return (413, String::new()) };
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map(|body| body.to_bytes());
        (status, String::from_utf8(body.unwrap_or_default().to_vec()).unwrap())
    };
    let large = 20 << 20;
    for (max_body_bytes, cases) in [
        (None, [("/form", large, 200), ("/bytes", large, 200), ("/bytes", 25 << 20, 413)]),
        (
            Some(4 << 20),
            [("/form", 3 << 20, 200), ("/form", 5 << 20, 413), ("/bytes", 5 << 20, 413)],
        ),
    ] {
        Runtime::new().unwrap().block_on(async move {
            let server = serve("127.0.0.1:0", router()).workers(1);
            let server = match max_body_bytes {
                Some(max_body_bytes) => {
                    server.settings(weft::Settings { max_body_bytes, ..Default::default() })
                }
                None => server,
            };
            let server = RunningServer::new(server);
            for (path, bytes, status) in cases {
                for is_chunked in [false, true] {
                    let response = send(&server, path, bytes, is_chunked).await;
                    assert_eq!(response.0, status, "{path} {bytes} {is_chunked} {}", response.1);
                    if status == 200 {
                        assert_eq!(response.1, bytes.to_string());
                    }
                }
            }
            assert_eq!(send(&server, "/default", 3 << 20, false).await.0, 413);
            server.stop().await;
        });
    }
}

/// A slow upload is answered with 408, whatever the extractor makes of its error.
#[test]
fn slow_upload_is_a_timeout() {
    use weft::testing::TestRequest;

    let router = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
    let stall_timeout = Duration::from_millis(100);
    let settings = weft::Settings { stall_timeout, ..weft::Settings::default() };
    let send = |declared: &str| {
        let request = TestRequest::post("/").header("content-length", declared).body("abc");
        request.settings(settings.clone()).call(weft::axum::app(router.clone()))
    };
    assert_eq!(send("3").status, 200);
    assert_eq!(send("4").status, 408);
}

/// Heads that hyper accepts, up to 32 KiB, and lines up to 16 KiB.
#[test]
fn large_cookies_and_urls_reach_handlers() {
    let lengths = async |uri: http::Uri, headers: http::HeaderMap| {
        format!("{} {}", uri.path().len(), headers.get("cookie").map_or(0, |value| value.len()))
    };
    let router = Router::new().fallback(lengths);
    Runtime::new().unwrap().block_on(async move {
        let server = RunningServer::new(serve("127.0.0.1:0", router).workers(1));
        for http2 in [false, true] {
            let client =
                Client::builder(TokioExecutor::new()).http2_only(http2).build_http::<Body>();
            for (path, cookie, status) in [
                (1, 20_000, 200),
                (9_000, 0, 200),
                (9_000, 20_000, 200),
                (17_000, 0, 414),
                (1, 33_000, 431),
            ] {
                let url = format!("http://{}/{}", server.address, "p".repeat(path - 1));
                let request = http::Request::get(url).header("cookie", "c".repeat(cookie));
                let response = client.request(request.body(Body::empty()).unwrap()).await.unwrap();
                let case = format!("{http2} {path} {cookie}");
                assert_eq!(response.status().as_u16(), status, "{case}");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                if status == 200 {
                    assert_eq!(body, format!("{path} {cookie}"), "{case}");
                }
            }
        }
        server.stop().await;
    });
}
