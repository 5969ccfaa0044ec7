//! Behaviors that clients see: the same router behind `axum::serve` and `weft::axum::serve`. Each
//! row has bytes in, and status, fields, body and the state of the connection out. Both servers
//! agree, or the row has the reason, which is also on the page "before you switch".
//! `cargo test -p weft-http --features axum,full --test it axum_twins`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path as FilePath;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Form, Json, Path, Query, Request};
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::response::{AppendHeaders, Html, IntoResponse, NoContent, Redirect};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::common::{Client, Response};

#[derive(serde::Deserialize, serde::Serialize)]
struct Item {
    name: String,
    count: u8,
}

fn router() -> Router {
    Router::new()
        .merge(texts())
        .merge(inputs())
        .route("/failure", get(async || (StatusCode::INTERNAL_SERVER_ERROR, "no database")))
        .route("/teapot", get(async || StatusCode::IM_A_TEAPOT))
        .route("/panic", get(async || -> &'static str { panic!("on purpose") }))
        .route("/close", get(async || ([(header::CONNECTION, "close")], "bye")))
        .route("/fails", get(async || stream(&[None])))
        .layer(Extension(7_u32))
}

fn texts() -> Router {
    Router::new()
        .route("/", get(async || "hello"))
        .route("/html", get(async || Html("<p>hello")))
        .route("/empty", get(async || ""))
        .route("/no-content", get(async || NoContent))
        .route("/not-modified", get(async || StatusCode::NOT_MODIFIED))
        .route("/moved", get(async || Redirect::permanent("/")))
        .route("/stream", get(async || stream(&[Some("one"), Some("two")])))
        .route("/large", get(async || "x".repeat(100_000)))
        .route("/json", get(async || Json(Item { name: "tea".to_owned(), count: 3 })))
        .route("/created", post(async || (StatusCode::CREATED, [("x-id", "7")], "created")))
        .route(
            "/cookies",
            get(async || (AppendHeaders([("set-cookie", "a=1"), ("set-cookie", "b=2")]), "set")),
        )
}

fn inputs() -> Router {
    let host = async |headers: HeaderMap| text_of(&headers, "host");
    let cookie = async |headers: HeaderMap| text_of(&headers, "cookie");
    let count = async |headers: HeaderMap| headers.get_all("x-a").iter().count().to_string();
    let small = post(async |body: Bytes| body).layer(DefaultBodyLimit::max(10));
    Router::new()
        .route("/echo", post(async |body: Bytes| body).put(async |body: Bytes| body))
        .route("/unread", post(async || "unread"))
        .route("/small", small)
        .route("/item", post(async |Json(item): Json<Item>| Json(item)))
        .route("/form", post(async |Form(item): Form<Item>| Json(item)))
        .route("/query", get(async |Query(item): Query<Item>| Json(item)))
        .route("/items/{id}", get(async |Path(id): Path<u32>| id.to_string()))
        .route("/files/{*path}", get(async |Path(path): Path<String>| path))
        .route("/extension", get(async |Extension(n): Extension<u32>| n.to_string()))
        .route("/any", any(async |request: Request| request.method().to_string()))
        .route("/host", get(host))
        .route("/cookie", get(cookie))
        .route("/count", get(count))
        .route("/uri", get(async |uri: Uri| uri.to_string()))
        .route("/version", get(async |version: Version| format!("{version:?}")))
}

fn text_of(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).map_or(&b"none"[..], |value| value.as_bytes());
    String::from_utf8_lossy(value).into_owned()
}

/// A response whose pieces are sent one by one; `None` is an error.
fn stream(pieces: &[Option<&'static str>]) -> impl IntoResponse + use<> {
    let pieces = pieces.to_vec();
    let failed = || std::io::Error::other("the disk has failed");
    Body::from_stream(futures_util::stream::iter(
        pieces.into_iter().map(move |piece| piece.ok_or_else(failed)),
    ))
}

/// A behavior that clients see.
struct Check {
    /// The bytes that the client sends.
    input: String,
    /// Number of responses.
    count: usize,
    /// A sentence of the page "before you switch", if the servers differ.
    reason: Option<&'static str>,
}

const CLOSE: &str = "Connection: close\r\n";

/// Sentences of the page "before you switch".
const FAILED: &str =
    "A handler that panics gets 500, and so does a body that fails before its first byte.";
const TEXT: &str = "Errors of the engine state their reason in a text.";
const LENGTH: &str = "A length that two readers could understand in two ways is refused.";
const EXPECTATION: &str = "An expectation other than `100-continue` gets 417.";
const HOST: &str = "A request of HTTP/1.1 has one valid `Host`.";
const CLOSES: &str = "The last response of a connection has `Connection: close`.";
const VERSION: &str =
    "Later minor versions of HTTP/1 are served, and other major versions get 505.";
const LINES: &str = "Lines of a head end in CRLF.";
const FRAGMENT: &str = "A target with `#` is refused.";
const LIMITS: &str = "Targets and heads have the limits above.";

/// One request without content.
fn ask(line: &str, fields: &str) -> Check {
    with_body(line, fields, "")
}

fn with_body(line: &str, fields: &str, body: &str) -> Check {
    raw(1, &format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}"))
}

/// A request with content of known length.
fn post_of(target: &str, media_type: &str, body: &str) -> Check {
    let fields = format!("Content-Type: {media_type}\r\nContent-Length: {}\r\n", body.len());
    with_body(&format!("POST {target}"), &fields, body)
}

fn raw(count: usize, input: &str) -> Check {
    Check { input: input.to_owned(), count, reason: None }
}

impl Check {
    fn differs(self, reason: &'static str) -> Check {
        Check { reason: Some(reason), ..self }
    }

    /// The responses, and `open` or `closed` for the connection behind them.
    fn outcome(&self, server: SocketAddr) -> String {
        let mut client = Client::connect_to(server);
        client.send(&self.input);
        let mut outcome = String::new();
        for _ in 0..self.count {
            let Some(response) = next_response(&mut client, self.input.starts_with("HEAD")) else {
                return outcome + "closed";
            };
            outcome += &shown(&response);
            outcome += "; ";
        }
        // Fails if the connection is closed.
        let _ = client.socket().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        outcome + if next_response(&mut client, false).is_some() { "open" } else { "closed" }
    }
}

/// Reads the next response; `None` if the server closes the connection first.
fn next_response(client: &mut Client, head_only: bool) -> Option<Response> {
    loop {
        let parsed = Response::parse(client.received(), head_only);
        if let Some(response) = parsed.filter(|it| it.is_framed() || head_only) {
            client.take_received(response.length);
            return Some(response);
        }
        if client.read() == 0 {
            return None;
        }
    }
}

fn shown(response: &Response) -> String {
    let mut text = response.status.to_string();
    for name in [
        "allow",
        "connection",
        "content-length",
        "content-type",
        "location",
        "set-cookie",
        "transfer-encoding",
        "x-id",
    ] {
        for (_, value) in response.headers.iter().filter(|(it, _)| it.eq_ignore_ascii_case(name)) {
            text += &format!(" {name}={value}");
        }
    }
    text += if response.header("date").is_some() { " dated" } else { "" };
    match response.body.len() {
        0 => text,
        1..200 => text + &format!(" {:?}", response.body.escape_ascii().to_string()),
        length => text + &format!(" {length} bytes"),
    }
}

fn checks() -> Vec<Check> {
    [responses(), routes(), bodies(), fields(), connections()].into_iter().flatten().collect()
}

fn responses() -> Vec<Check> {
    vec![
        ask("GET /", ""),
        ask("HEAD /", ""),
        ask("GET /html", ""),
        ask("HEAD /html", ""),
        ask("GET /empty", ""),
        ask("HEAD /empty", ""),
        ask("GET /no-content", ""),
        ask("GET /not-modified", ""),
        ask("GET /moved", ""),
        ask("GET /stream", ""),
        ask("HEAD /stream", ""),
        ask("GET /large", ""),
        ask("HEAD /large", ""),
        ask("GET /json", ""),
        ask("POST /created", ""),
        ask("GET /cookies", ""),
        ask("GET /failure", ""),
        ask("GET /teapot", ""),
        ask("GET /panic", "").differs(FAILED),
        ask("GET /close", ""),
        ask("GET /fails", "").differs(FAILED),
    ]
}

fn routes() -> Vec<Check> {
    vec![
        ask("GET /none", ""),
        ask("HEAD /none", ""),
        ask("POST /", ""),
        ask("DELETE /echo", ""),
        ask("OPTIONS /", ""),
        ask("OPTIONS /any", ""),
        ask("PATCH /any", ""),
        ask("PROPFIND /any", ""),
        ask("get /any", ""),
        ask("GET /items/7", ""),
        ask("GET /items/x", ""),
        ask("GET /items/", ""),
        ask("GET /items/7/", ""),
        ask("GET /items/%37", ""),
        ask("GET /files/a/b%20c", ""),
        ask("GET /files/a%2fb", ""),
        ask("GET /files/%ff", ""),
        ask("GET /files/..", ""),
        ask("GET //", ""),
        ask("GET /extension", ""),
        ask("GET /query?name=tea&count=3", ""),
        ask("GET /query?name=tea", ""),
        ask("GET /query?name=%C3%A9&count=3", ""),
        ask("GET /uri?a=b&c", ""),
        ask("GET http://other/uri?x", ""),
        ask("GET /version", ""),
    ]
}

fn bodies() -> Vec<Check> {
    let form = "application/x-www-form-urlencoded";
    let json = "application/json";
    vec![
        post_of("/echo", "text/plain", "hello"),
        post_of("/echo", "text/plain", ""),
        post_of("/unread", "text/plain", "hello"),
        with_body(
            "POST /echo",
            "Transfer-Encoding: chunked\r\n",
            "2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        ),
        with_body("POST /echo", "Transfer-Encoding: chunked\r\n", "0\r\nX-Trailer: a\r\n\r\n"),
        with_body("POST /echo", "Transfer-Encoding: Chunked\r\n", "1\r\na\r\n0\r\n\r\n"),
        with_body("POST /echo", "Transfer-Encoding: chunked\r\n", "x\r\n").differs(TEXT),
        with_body("POST /echo", "Transfer-Encoding: gzip\r\n", "x").differs(LENGTH),
        with_body("POST /echo", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")
            .differs(LENGTH),
        with_body("POST /echo", "Content-Length: 1\r\nContent-Length: 2\r\n", "ab").differs(TEXT),
        with_body("POST /echo", "Content-Length: 2\r\nContent-Length: 2\r\n", "ab").differs(LENGTH),
        with_body("POST /echo", "Content-Length: 2, 2\r\n", "ab").differs(TEXT),
        with_body("POST /echo", "Content-Length: x\r\n", "").differs(TEXT),
        with_body("POST /echo", "Content-Length: +2\r\n", "ab").differs(TEXT),
        with_body("GET /", "Content-Length: 2\r\n", "ab"),
        post_of("/small", "text/plain", "1234567890"),
        post_of("/small", "text/plain", "12345678901"),
        with_body("POST /small", "Transfer-Encoding: chunked\r\n", "b\r\n12345678901\r\n0\r\n\r\n"),
        post_of("/item", json, r#"{"name":"tea","count":3}"#),
        post_of("/item", json, r#"{"name":"tea"}"#),
        post_of("/item", json, r#"{"name":"#),
        post_of("/item", "text/plain", "{}"),
        post_of("/form", form, "name=tea&count=3"),
        post_of("/form", form, "name=tea&count=x"),
        post_of("/form", json, "name=tea&count=3"),
        with_body("PUT /echo", "Expect: nothing\r\nContent-Length: 0\r\n", "").differs(EXPECTATION),
    ]
}

fn fields() -> Vec<Check> {
    vec![
        ask("GET /host", ""),
        ask("GET /cookie", "Cookie: a=1; b=2\r\n"),
        ask("GET /cookie", "Cookie: \u{e9}\r\n"),
        ask("GET /count", "X-A: 1\r\nX-A: 2\r\n"),
        ask("GET /count", "X-A:\r\n"),
        ask("GET /count", "X A: 1\r\n").differs(TEXT),
        ask("GET /count", "X-A : 1\r\n").differs(TEXT),
        ask("GET /count", "X-A: 1\r\n folded\r\n").differs(TEXT),
        ask("GET /count", "X-A: a\0b\r\n").differs(TEXT),
        ask("GET /count", ": 1\r\n").differs(TEXT),
        ask("GET /count", &"X-B: 1\r\n".repeat(90)),
        ask("GET /count", &"X-B: 1\r\n".repeat(200)).differs(TEXT),
        ask("GET /host", "Host: b\r\n").differs(HOST),
        raw(1, "GET /host HTTP/1.1\r\n\r\n").differs(HOST),
        raw(1, "GET /host HTTP/1.1\r\nHost:\r\n\r\n"),
        raw(1, "GET /host HTTP/1.1\r\nHost: a b\r\n\r\n").differs(HOST),
    ]
}

fn connections() -> Vec<Check> {
    vec![
        ask("GET /", CLOSE),
        ask("GET /", "Connection: keep-alive\r\n"),
        ask("HEAD /", CLOSE),
        raw(1, "GET / HTTP/1.0\r\n\r\n").differs(CLOSES),
        raw(1, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
        raw(1, "GET /version HTTP/1.0\r\n\r\n").differs(CLOSES),
        raw(1, "GET /stream HTTP/1.0\r\n\r\n"),
        raw(1, "GET / HTTP/1.2\r\nHost: a\r\n\r\n").differs(VERSION),
        raw(1, "GET / HTTP/3.0\r\nHost: a\r\n\r\n").differs(VERSION),
        raw(1, "GET /\r\n\r\n").differs(TEXT),
        raw(1, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        raw(1, "GET / HTTP/1.1\nHost: a\n\n").differs(LINES),
        raw(1, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n").differs(TEXT),
        raw(1, "nonsense\r\n\r\n").differs(TEXT),
        raw(2, &"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2)),
        raw(3, &"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx".repeat(3)),
        raw(
            2,
            "POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /empty HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        ask("OPTIONS *", ""),
        ask("CONNECT a:443", ""),
        ask("GET /#fragment", "").differs(FRAGMENT),
        ask("GET /\u{e9}", ""),
        ask(&format!("GET /uri?{}", "x".repeat(9_000)), ""),
        ask(&format!("GET /uri?{}", "x".repeat(20_000)), "").differs(LIMITS),
        ask("GET /count", &format!("X-B: {}\r\n", "x".repeat(20_000))),
        ask("GET /count", &format!("X-B: {}\r\n", "x".repeat(40_000))).differs(LIMITS),
    ]
}

/// The servers in the background of a runtime: axum's, and Weft's in its three forms.
fn servers(runtime: &Runtime) -> (SocketAddr, [SocketAddr; 3]) {
    let serve = || weft::axum::serve("127.0.0.1:0", router()).workers(1);
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let axum = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, router()).into_future());
        let forms = [serve(), serve().handlers_as_tasks(), serve().handlers_on_workers()];
        let weft = forms.map(|server| {
            let address = server.local_addr().unwrap();
            tokio::spawn(server.into_future());
            address
        });
        (axum, weft)
    })
}

#[test]
fn clients_see_the_same_server() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (axum, [weft, as_tasks, on_workers]) = servers(&runtime);
    let page = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/before-you-switch.md");
    let page = std::fs::read_to_string(page).unwrap().replace("\n  ", " ");
    let (mut failures, mut equal) = (Vec::new(), 0);
    for check in checks() {
        let input: String = check.input.chars().take(100).collect();
        let [axum, weft] = [axum, weft].map(|server| check.outcome(server));
        for (form, server) in [("as tasks", as_tasks), ("on workers", on_workers)] {
            assert_eq!(check.outcome(server), weft, "{input:?} with handlers {form}");
        }
        equal += usize::from(axum == weft);
        let problem = match check.reason {
            None if axum != weft => "differs without a reason",
            Some(_) if axum == weft => "does not differ any more",
            Some(reason) if !page.contains(reason) => "is not on the page",
            _ => continue,
        };
        failures.push(format!("{input:?} {problem}\n  axum: {axum}\n  weft: {weft}"));
    }
    let count = checks().len();
    assert!(failures.is_empty(), "{equal} of {count} are equal\n{}", failures.join("\n"));
    let sentence = format!("sends {count} inputs");
    assert!(page.contains(&sentence), "the page does not say that the test {sentence}");
    assert!(page.contains(&format!("{equal} are equal")), "{equal} of {count} are equal");
}
