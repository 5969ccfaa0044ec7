//! Tests of applications without a socket: the engine serves them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use weft::header::CONTENT_LENGTH;
use weft::hooks::Record;
use weft::net::Peer;
use weft::testing::{self, TestRequest, TestServer};
use weft::{Body, File, Hooks, Request, Response, Server, StatusCode};

const SOON: Duration = Duration::from_secs(10);

async fn hello(_: Request) -> Response {
    Response::text("Hello\n")
}

/// Returns the message of a panic.
fn panic_message<T>(code: impl FnOnce() -> T) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(code)).err()?;
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
}

#[tokio::test]
async fn async_form_serves_in_a_runtime_and_the_blocking_form_names_it() {
    TestRequest::get("/").send(hello).await.assert_text("Hello\n");
    let message = panic_message(|| testing::get(hello, "/")).unwrap();
    assert!(message.contains(".send(app).await"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn async_form_serves_in_a_runtime_with_threads() {
    TestRequest::get("/").send(hello).await.assert_text("Hello\n");
}

#[test]
fn blocking_form_serves_in_a_thread_that_may_block() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    testing::get(hello, "/").assert_text("Hello\n");
    let blocking = runtime.spawn_blocking(|| testing::get(hello, "/").assert_text("Hello\n"));
    runtime.block_on(blocking).unwrap();
}

#[test]
fn request_has_method_target_fields_body_and_client() {
    async fn describe(request: Request) -> Response {
        let peer = request.peer().address().unwrap();
        let (method, target) = (request.method().clone(), request.target().to_owned());
        let field = request.headers().get("x-a").unwrap().to_owned();
        let body = request.into_body().collect(100).await.unwrap();
        Response::text(format!("{method} {target} {field} {peer} {body:?}"))
    }
    let request = TestRequest::put("/a b?c=d e\t").header("X-A", "1").body("some text");
    let response = request.peer(([192, 0, 2, 7], 80)).call(describe);
    response.assert_text("PUT /a%20b?c=d%20e%09 1 192.0.2.7:80 b\"some text\"");
    assert!(panic_message(|| TestRequest::get("/#top")).unwrap().contains("fragment"));
    assert!(panic_message(|| TestRequest::get("/").header("a b", "c")).is_some());
    testing::get(async |r: Request| Response::text(r.path().to_owned()), "/a b")
        .assert_text("/a%20b");
}

#[test]
fn ranges_of_files_and_head_are_those_of_the_engine() {
    async fn file(_: Request) -> Response {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"0123456789").unwrap();
        Response::from_file(File::open(file).unwrap())
    }
    let response = TestRequest::get("/").header("range", "bytes=2-4").call(file);
    assert_eq!(
        (response.status, response.header("content-range")),
        (StatusCode::PARTIAL_CONTENT, Some("bytes 2-4/10"))
    );
    response.assert_text("234");
    let whole = TestRequest::get("/").call(file);
    assert_eq!((whole.status, &*whole.body), (StatusCode::OK, &b"0123456789"[..]));
    let head = TestRequest::head("/").call(file);
    assert_eq!((head.header("content-length"), head.body.len()), (Some("10"), 0));
    let request = testing::request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(testing::call(hello, request).body.len(), 0);
}

#[test]
fn wrong_length_is_an_error() {
    let with_length = |length: &'static str| {
        async move |_: Request| Response::text("Hello\n").with_header(CONTENT_LENGTH, length)
    };
    let response = testing::get(with_length("6"), "/");
    assert_eq!((response.status, response.errors.len()), (StatusCode::OK, 0));
    let response = testing::get(with_length("7"), "/");
    assert_eq!(response.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(response.errors[0].contains("Content-Length"), "{:?}", response.errors);
}

fn streamed<S, B>(frames: S) -> Response
where
    S: futures_core::Stream<Item = Result<B, std::io::Error>> + Send + 'static,
    B: Into<bytes::Bytes>,
{
    Response::from_body(Body::stream(frames))
}

#[test]
fn response_that_is_cut_short_is_a_panic_with_its_error() {
    async fn cut(request: Request) -> Response {
        let failure = std::io::Error::other("the disk has failed");
        let frames = match request.path() {
            "/whole" => vec![Ok("a")],
            "/late" => {
                let large: &'static str = "a".repeat(100_000).leak();
                vec![Ok(large), Err(failure)]
            }
            _ => vec![Err(failure)],
        };
        streamed(futures_util::stream::iter(frames))
    }
    testing::get(cut, "/whole").assert_text("a");
    let message = panic_message(|| testing::get(cut, "/late")).unwrap();
    assert!(message.contains("cut short") && message.contains("the disk has failed"), "{message}");
    // Nothing was sent, so that a client gets an error response.
    let response = testing::get(cut, "/early");
    assert_eq!(response.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(response.errors[0].contains("the disk has failed"), "{:?}", response.errors);
}

#[test]
fn panic_of_the_application_is_a_panic_of_the_test() {
    async fn odd(request: Request) -> Response {
        assert!(request.path() == "/", "the path is odd");
        Response::text("even\n")
    }
    testing::get(odd, "/").assert_text("even\n");
    assert!(panic_message(|| testing::get(odd, "/odd")).unwrap().contains("the path is odd"));
    use weft::Application;
    let caught = testing::get(odd.wrap(weft::middleware::CatchPanic::new()), "/odd");
    assert_eq!((caught.status, caught.errors.len()), (StatusCode::INTERNAL_SERVER_ERROR, 1));
}

#[tokio::test]
async fn handlers_spawn_local_tasks() {
    async fn spawns(_: Request) -> Response {
        let text = Rc::new(Cell::new("Hello\n"));
        Response::text(tokio::task::spawn_local(async move { text.get() }).await.unwrap())
    }
    TestRequest::get("/").send(spawns).await.assert_text("Hello\n");
    tokio::task::spawn_blocking(|| testing::get(spawns, "/").assert_text("Hello\n")).await.unwrap();
}

#[tokio::test]
async fn streams_are_read_piece_by_piece_with_a_deadline() {
    async fn ticks(_: Request) -> Response {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<String, std::io::Error>>(1);
        tokio::task::spawn_local(async move {
            for number in 0..2 {
                sender.send(Ok(format!("tick {number}\n"))).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            std::future::pending::<()>().await;
        });
        let next = async |mut receiver: tokio::sync::mpsc::Receiver<_>| {
            receiver.recv().await.map(|tick| (tick, receiver))
        };
        streamed(futures_util::stream::unfold(receiver, next))
    }
    let mut response = TestRequest::get("/").open(ticks).await;
    assert_eq!(response.status, StatusCode::OK);
    for number in 0..2 {
        let piece = response.next(SOON).await.unwrap().unwrap();
        assert_eq!(piece, format!("tick {number}\n"));
    }
    let silence = response.next(Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(silence.kind(), weft::ErrorKind::TooSlow);
    drop(response);

    let endless = TestRequest::get("/").deadline(Duration::from_millis(50));
    let tasks = tokio::task::LocalSet::new();
    let ended = tasks.run_until(async {
        tokio::task::spawn_local(endless.send(ticks)).await.unwrap_err().into_panic()
    });
    let message = *ended.await.downcast::<String>().unwrap();
    assert!(message.contains("TestRequest::open"), "{message}");
    let mut whole = TestRequest::get("/").open(hello).await;
    assert_eq!(whole.next(SOON).await.unwrap().unwrap(), "Hello\n");
    assert_eq!(whole.next(SOON).await.unwrap(), None);
}

#[test]
fn prepared_request_keeps_its_changes_and_sends_interim_responses() {
    async fn describe(request: Request) -> Response {
        request.early_hints(["</a.css>; rel=preload"]);
        let number = request.extensions().get::<u32>().unwrap();
        let peer = request.peer().address().unwrap();
        let text = format!("{} {} {number} {peer}", request.method(), request.path());
        Response::text(text)
    }
    let mut request = testing::request("POST /a HTTP/1.1\r\nHost: a\r\n\r\nbody");
    request.extensions_mut().insert(7_u32);
    request.set_path_and_query("/b");
    request.set_peer(([192, 0, 2, 7], 80).into());
    let response = testing::call(describe, request);
    response.assert_text("POST /b 7 192.0.2.7:80");
    assert_eq!(response.interim[0].0, StatusCode::EARLY_HINTS);
}

#[test]
fn test_server_keeps_the_hooks_of_the_application() {
    #[derive(Clone, Default)]
    struct Counts(Arc<[AtomicUsize; 3]>);

    impl Hooks for Counts {
        fn on_open(&self, _: &Peer) -> bool {
            self.0[0].fetch_add(1, SeqCst);
            true
        }

        fn on_close(&self, _: &Peer) {
            self.0[1].fetch_add(1, SeqCst);
        }

        fn on_response(&self, record: &Record<'_>) {
            assert_eq!(record.status, StatusCode::OK);
            self.0[2].fetch_add(1, SeqCst);
        }
    }

    let counts = Counts::default();
    let hooks = counts.clone();
    let server = TestServer::from_server(Server::new(hello).hooks(move || hooks.clone()));
    let mut client = crate::common::Client::connect_to(server.address());
    client.get("/");
    assert_eq!(client.response().text(), "Hello\n");
    drop(client);
    server.stop();
    assert_eq!(counts.0.each_ref().map(|count| count.load(SeqCst)), [1, 1, 1]);
}
