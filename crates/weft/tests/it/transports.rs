//! Behavior that is the same over every transport: HTTP/1 and HTTP/2, with and without TLS. Each
//! case runs over all of them.
#![cfg(all(
    feature = "brotli",
    feature = "files",
    feature = "gzip",
    feature = "sse",
    feature = "tls",
    feature = "tower",
    feature = "zstd"
))]

use std::fs;
use std::future::pending;
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::clients::{
    Client, ClientRequest, ClientResponse, IncompleteResponse, Transport, TransportServer,
    on_every_transport, wait_until,
};
use crate::common::tree::{Tree, pattern};
use crate::common::{SHORT_TIMEOUT, TEST_TIMEOUT, boxed_server, short_timeouts};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tower_http::compression::CompressionLayer;
use weft::middleware::{CatchPanic, Compress, Log, Mount, RateLimit, Timeout};
use weft::sse::{self, Event};
use weft::{
    Application, Body, Directory, DirectorySettings, Disconnect, Error, ErrorKind, File,
    HeaderName, HeaderValue, Hooks, Method, Peer, Record, Request, Response, Settings, StatusCode,
    header,
};

// -- building blocks of applications

async fn echo(request: Request) -> Response {
    match *request.method() {
        Method::GET => Response::text("ok"),
        _ => Response::body(request.into_body()),
    }
}

/// A streamed body of these pieces, without a length.
fn pieces(pieces: impl IntoIterator<Item = &'static str>) -> Body {
    let pieces: Vec<_> = pieces.into_iter().map(Ok::<_, Error>).collect();
    Body::stream(stream::iter(pieces.into_iter().map(|piece| piece.map(Bytes::from))))
}

/// A body fed through a channel. It ends when the sender is dropped and fails on an error.
fn channel_body() -> (mpsc::Sender<Result<Bytes, Error>>, Body) {
    let (sender, mut receiver) = mpsc::channel(1);
    (sender, Body::stream(stream::poll_fn(move |cx| receiver.poll_recv(cx))))
}

/// A body whose frames are produced by a function.
struct Frames<F>(F);

impl<F> http_body::Body for Frames<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> + Unpin,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        (self.0)(cx)
    }
}

/// A body of one piece followed by trailers.
fn with_trailers(piece: &'static str, trailers: &[(HeaderName, &'static str)]) -> Body {
    let fields = trailers.iter().map(|(n, v)| (n.clone(), HeaderValue::from_static(v)));
    let trailers = Frame::trailers(fields.collect());
    let mut frames = [Frame::data(Bytes::from(piece)), trailers].into_iter();
    Body::from_http_body(Frames(move |_: &mut Context<'_>| Poll::Ready(frames.next().map(Ok))))
}

fn file(contents: &[u8]) -> fs::File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(contents).unwrap();
    file
}

/// Counts its live clones.
#[derive(Clone)]
struct CloneCounter(Arc<()>);

impl CloneCounter {
    fn new() -> CloneCounter {
        CloneCounter(Arc::new(()))
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// A log of events, in order. As `Hooks` it records every call.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn push(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }

    fn count(&self, event: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|recorded| *recorded == event).count()
    }

    fn contains(&self, event: &str) -> bool {
        self.count(event) > 0
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until `event` is recorded.
    async fn wait_for(&self, event: &str) {
        wait_until(event, || self.contains(event)).await;
    }
}

impl Hooks for EventLog {
    fn on_open(&self, peer: &Peer) -> bool {
        self.push(format!("opened {}", peer.address().is_some()));
        true
    }

    fn on_close(&self, _: &Peer) {
        self.push("closed");
    }

    fn on_error(&self, _: &Peer, error: &Error) {
        self.push(format!("{:?} {:?}", error.kind().fault(), error.kind()));
    }

    fn on_response(&self, record: &Record<'_>) {
        let target = record.head.map_or("-", |head| head.target());
        let end = match record.error {
            Some(error) => format!(" {:?}", error.kind()),
            None => String::new(),
        };
        self.push(format!("{target} {} {}{end}", record.status.as_u16(), record.body_bytes));
    }
}

/// Serves an application with hooks that record to the returned log.
fn serve_with_event_log<A>(
    transport: Transport,
    settings: Settings,
    app: A,
) -> (TransportServer, EventLog)
where
    A: Application + Clone + Send + 'static,
{
    let events = EventLog::default();
    let hooks = events.clone();
    let server = boxed_server(app).settings(settings).workers(1).hooks(move || hooks.clone());
    (transport.start(server), events)
}

// -- responses

#[test]
fn sends_every_payload_kind_to_get_and_head() {
    async fn app(request: Request) -> Response {
        let parts = || pieces(["ab", "", "cde"]);
        match request.path() {
            "/empty" => Response::new(StatusCode::OK),
            "/bytes" => Response::body("abcde"),
            "/large" => Response::body(pattern(3_000_000)),
            "/stream" => Response::body(parts()),
            "/sized-stream" => Response::body(parts()).with_header(header::CONTENT_LENGTH, "5"),
            "/empty-stream" => Response::body(pieces([])),
            "/file" => Response::file(File::open(file(&pattern(200_000))).unwrap()),
            "/empty-file" => Response::file(File::open(file(b"")).unwrap()),
            "/file-part" => Response::file(File::new(file(b"0abcde6"), 1, 5)),
            "/file-body" => Response::body(File::open(file(&pattern(200_000))).unwrap()),
            "/trailers" => Response::body(with_trailers("abcde", &[(header::ETAG, "\"e\"")])),
            "/teapot" => Response::text("abcde").with_status(StatusCode::IM_A_TEAPOT),
            "/204" => Response::new(StatusCode::NO_CONTENT),
            "/304" => Response::new(StatusCode::NOT_MODIFIED),
            "/redirect" => Response::redirect(StatusCode::SEE_OTHER, "/elsewhere"),
            _ => Response::not_found(),
        }
    }
    let small = || b"abcde".to_vec();
    let cases: &[(&str, u16, Option<&str>, Vec<u8>)] = &[
        ("/empty", 200, Some("0"), Vec::new()),
        ("/bytes", 200, Some("5"), small()),
        ("/large", 200, Some("3000000"), pattern(3_000_000)),
        ("/stream", 200, None, small()),
        ("/sized-stream", 200, Some("5"), small()),
        ("/empty-stream", 200, None, Vec::new()),
        ("/file", 200, Some("200000"), pattern(200_000)),
        ("/empty-file", 200, Some("0"), Vec::new()),
        ("/file-part", 200, Some("5"), small()),
        ("/file-body", 200, Some("200000"), pattern(200_000)),
        ("/trailers", 200, None, small()),
        ("/teapot", 418, Some("5"), small()),
        ("/204", 204, None, Vec::new()),
        ("/304", 304, None, Vec::new()),
        ("/redirect", 303, Some("0"), Vec::new()),
        ("/none", 404, Some("14"), b"404 Not Found\n".to_vec()),
    ];
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (target, status, length, body) in cases {
            let get = client.get(target).await;
            assert_eq!((get.status, get.version), (*status, transport.version()), "{target}");
            assert_eq!(get.field("content-length"), *length, "{target}");
            assert!(get.body == *body, "{target}: received {} other bytes", get.body.len());
            let head = client.fetch(ClientRequest::new("HEAD", *target)).await;
            assert_eq!(head.status, *status, "HEAD {target}");
            // The file is created anew for each request, so its ETag differs.
            if !target.contains("file") {
                assert_eq!(head.fields_without_date(), get.fields_without_date(), "HEAD {target}");
            }
            assert_eq!(head.field("content-length"), *length, "HEAD {target}");
            assert_eq!(head.body, b"", "HEAD {target}");
        }
        // All requests used one connection.
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn sends_large_and_small_bodies_completely() {
    async fn app(request: Request) -> Response {
        Response::body(pattern(request.path()[1..].parse().unwrap()))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for length in [0, 1, 16_383, 16_384, 16_385, 65_535, 65_536, 5_000_000, 3, 100_000, 7] {
            let body = client.get(&format!("/{length}")).await.body;
            assert!(body == pattern(length), "{length}: received {}", body.len());
        }
        server.stop().await;
    });
}

#[test]
fn sends_stream_chunks_immediately() {
    on_every_transport(async |transport| {
        let (sender, body) = channel_body();
        let body = Mutex::new(Some(body));
        let body = Arc::new(body);
        let server = transport.serve(move |_: Request| {
            let body = body.lock().unwrap().take().expect("one request");
            async { Response::body(body) }
        });
        let mut client = server.client().await;
        // The head is sent before any body is available.
        let mut response = client.send(ClientRequest::get("/")).await.read_head().await.unwrap();
        let mut length = 0;
        for part in ["first", "second", "third"] {
            sender.send(Ok(Bytes::from(part))).await.unwrap();
            length += part.len();
            assert!(response.read(length).await.ends_with(part.as_bytes()));
        }
        drop(sender);
        assert_eq!(response.collect().await.text(), "firstsecondthird");
        server.stop().await;
    });
}

#[test]
fn sends_response_trailers() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/sized" => Response::body(with_trailers("abc", &[(header::ETAG, "\"e\"")]))
                .with_header(header::CONTENT_LENGTH, "3"),
            _ => Response::body(with_trailers("abc", &[(header::ETAG, "\"e\"")])),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        let response = client.get("/").await;
        assert_eq!((response.text(), response.trailer("etag")), ("abc", Some("\"e\"")));
        // HTTP/1 cannot send trailers after a body with Content-Length.
        let response = client.get("/sized").await;
        let trailer = transport.is_http2().then_some("\"e\"");
        assert_eq!((response.text(), response.trailer("etag")), ("abc", trailer));
        assert_eq!(client.get("/").await.status, 200);
        server.stop().await;
    });
}

/// A body that is pending for ever once these frames are polled, and reports its end after
/// `ends_after` of them. It must not be polled after that, nor after its trailers.
struct PendingAtEnd {
    frames: std::vec::IntoIter<Frame<Bytes>>,
    ends_after: usize,
}

impl http_body::Body for PendingAtEnd {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.ends_after = self.ends_after.wrapping_sub(1);
        self.frames.next().map_or(Poll::Pending, |frame| Poll::Ready(Some(Ok(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.ends_after == 0
    }
}

/// Path, frames, number of frames after which the body reports its end, and the received body and
/// trailer.
type Ending = (&'static str, &'static [&'static str], usize, &'static str, Option<&'static str>);

#[test]
fn ends_a_response_with_its_trailers_or_its_reported_end() {
    const NEVER: usize = usize::MAX;
    let frame = |piece: &str| match piece {
        "trailers" => Frame::trailers(
            [(header::ETAG, HeaderValue::from_static("\"e\""))].into_iter().collect(),
        ),
        _ => Frame::data(Bytes::copy_from_slice(piece.as_bytes())),
    };
    let cases: [Ending; 6] = [
        ("/trailers", &["ab", "trailers"], NEVER, "ab", Some("\"e\"")),
        ("/data-after-trailers", &["ab", "trailers", "cd"], NEVER, "ab", Some("\"e\"")),
        ("/two-trailers", &["trailers", "trailers"], NEVER, "", Some("\"e\"")),
        ("/reported-end", &["ab", "cd", "ef"], 2, "abcd", None),
        ("/end-with-empty-data", &["ab", ""], 2, "ab", None),
        ("/ended-at-once", &["ab"], 0, "", None),
    ];
    let app = async move |request: Request| {
        let (_, frames, ends_after, ..) =
            cases.into_iter().find(|(path, ..)| *path == request.path()).expect("a known path");
        let frames: Vec<_> = frames.iter().map(|piece| frame(piece)).collect();
        Response::body(Body::from_http_body(PendingAtEnd {
            frames: frames.into_iter(),
            ends_after,
        }))
    };
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (path, _, _, body, trailer) in cases {
            let response = client.get(path).await;
            assert_eq!((response.text(), response.trailer("etag")), (body, trailer), "{path}");
        }
        server.stop().await;
    });
}

/// RFC 9110 §8.6: the length in a response to HEAD is that of the response to GET. axum removes the
/// body, so its length is unknown, unless axum has declared it.
#[test]
fn head_response_of_a_framework_has_no_length_if_get_has_none() {
    let router = axum::Router::new()
        .route("/known", get(async || "x".repeat(1_000)))
        .route("/compressed", get(async || "x".repeat(1_000)).layer(CompressionLayer::new()))
        .route("/empty", get(async || ""));
    on_every_transport(async |transport| {
        let server = transport.serve(weft::tower::app(router.clone()));
        let mut client = server.client().await;
        for (path, length) in
            [("/known", Some("1000")), ("/compressed", None), ("/empty", Some("0"))]
        {
            for method in ["GET", "HEAD"] {
                let request = ClientRequest::new(method, path).field("accept-encoding", "gzip");
                let response = client.fetch(request).await;
                assert_eq!(response.field("content-length"), length, "{method} {path}");
            }
        }
        server.stop().await;
    });
}

/// As on hyper: over HTTP/1, the URI is the target.
#[test]
fn uri_of_a_framework_has_scheme_and_authority_over_http2() {
    let uri = async |uri: axum::http::Uri| uri.to_string();
    let inner = async |request: Request| Response::text(request.target().to_owned());
    let router = axum::Router::new()
        .route("/path", get(uri))
        .nest("/nested", axum::Router::new().route("/path", get(uri)))
        .nest_service("/inner", weft::tower::service(inner));
    on_every_transport(async |transport| {
        let app = weft::tower::app(router.clone());
        let server =
            transport.serve(app.with(Mount::new("/mounted", weft::tower::app(router.clone()))));
        let mut client = server.client().await;
        let origin = if transport.is_http2() {
            format!("{}://a", transport.scheme())
        } else {
            String::new()
        };
        for (path, local) in [
            ("/path?query", "/path?query"),
            ("/nested/path?query", "/path?query"),
            ("/mounted/path", "/path"),
        ] {
            assert_eq!(client.get(path).await.text(), format!("{origin}{local}"), "{path}");
        }
        // An application gets the path and the field `Host` over both versions.
        assert_eq!(client.get("/inner/path").await.text(), "/path");
        server.stop().await;
    });
}

#[test]
fn sends_no_body_with_204_and_304() {
    async fn app(request: Request) -> Response {
        let status = request.path()[1..].parse::<u16>().unwrap();
        Response::text("no body").with_status(StatusCode::from_u16(status).unwrap())
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for status in [204, 304, 204] {
            let response = client.get(&format!("/{status}")).await;
            assert_eq!((response.status, response.text()), (status, ""));
        }
        assert_eq!(client.get("/200").await.text(), "no body");
        // An interim status is not a valid final response.
        assert_eq!(client.get_reconnecting("/101").await.status, 500);
        assert_eq!(client.get_reconnecting("/103").await.status, 500);
        assert_eq!(client.get_reconnecting("/200").await.status, 200);
        server.stop().await;
    });
}

#[test]
fn adds_date_and_server_unless_set_by_the_application() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/own" => Response::text("ok")
                .with_header(header::DATE, "Sun, 06 Nov 1994 08:49:37 GMT")
                .with_header(header::SERVER, "own"),
            _ => Response::text("ok"),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (target, server) in [("/", "weft"), ("/own", "own")] {
            let response = client.get(target).await;
            assert_eq!(response.field("server"), Some(server));
            assert_eq!(response.fields.get_all("server").iter().count(), 1);
            assert_eq!(response.fields.get_all("date").iter().count(), 1);
            let date = response.field("date").unwrap();
            assert_eq!(date == "Sun, 06 Nov 1994 08:49:37 GMT", target == "/own", "{date}");
            assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
        }
        server.stop().await;
        let settings = Settings { server_name: String::new(), ..Settings::default() };
        let server = transport.serve_with(settings, app);
        assert_eq!(server.client().await.get("/").await.field("server"), None);
        server.stop().await;
    });
}

#[test]
fn sanitizes_response_fields() {
    async fn app(request: Request) -> Response {
        let own = |name: &'static str| HeaderName::from_static(name);
        let response = Response::text("ok");
        match request.path() {
            "/controls" => response
                .with_header(own("x-a"), "1\r\nx-b: 2\0\x01\x7f3")
                .with_header(own("x-c"), "días\t1")
                .with_header(own("x-d"), ""),
            "/repeated" => response
                .with_header(header::SET_COOKIE, "a=1")
                .with_header(own("x-a"), "1")
                .with_header(header::SET_COOKIE, "b=2"),
            "/transfer-encoding" => response.with_header(header::TRANSFER_ENCODING, "gzip"),
            "/content-length" => response.with_header(header::CONTENT_LENGTH, "2"),
            "/connection" => response
                .with_header(header::CONNECTION, "x-a, keep-alive")
                .with_header(own("x-a"), "1"),
            "/keep-alive" => response.with_header(own("keep-alive"), "timeout=1"),
            "/proxy-connection" => response.with_header(own("proxy-connection"), "close"),
            "/te" => response.with_header(header::TE, "gzip"),
            "/upgrade" => response.with_header(header::UPGRADE, "h2c"),
            _ => Response::not_found(),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        let response = client.get("/controls").await;
        assert_eq!(response.field("x-a"), Some("1  x-b: 2   3"));
        assert_eq!(response.field("x-b"), None);
        assert_eq!(response.fields["x-c"].as_bytes(), "días\t1".as_bytes());
        assert_eq!(response.field("x-d"), Some(""));
        let response = client.get("/repeated").await;
        let cookies: Vec<_> = response.fields.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
        for name in ["transfer-encoding", "content-length", "connection"] {
            let response = client.get(&format!("/{name}")).await;
            assert_eq!((response.status, response.text()), (200, "ok"), "{name}");
            assert_eq!(response.field("content-length"), Some("2"), "{name}");
            assert_eq!(response.field("transfer-encoding"), None, "{name}");
            assert_eq!(response.field("connection"), None, "{name}");
        }
        // RFC 9113 §8.2.2: connection-specific fields are malformed in HTTP/2.
        for name in ["keep-alive", "proxy-connection", "te", "upgrade"] {
            let response = client.get(&format!("/{name}")).await;
            assert_eq!((response.status, response.text()), (200, "ok"), "{name}");
            assert_eq!(response.field(name).is_none(), transport.is_http2(), "{name}");
        }
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn forwards_fields_of_another_message() {
    async fn app(request: Request) -> Response {
        let own = |name: &'static str| HeaderName::from_static(name);
        let names = [&b"x-a"[..], b"date", b"server"];
        let forwarded = request
            .headers()
            .filter(|name, _| names.iter().any(|it| it.eq_ignore_ascii_case(name)));
        let mut response = Response::body("ok").with_headers(forwarded.clone());
        match request.path() {
            "/more" => response
                .with_header(header::VIA, "1.1 a")
                .with_header_value(header::VIA, HeaderValue::from_static("1.1 b")),
            "/behind" => Response::body("ok").with_header(own("x-a"), "0").with_headers(forwarded),
            "/set" => {
                response.set_header(own("x-a"), "3");
                response
            }
            "/removed" => {
                response.remove_header(own("x-a"));
                response
            }
            "/seen" => {
                let seen = response.header("X-A").cloned();
                let response = response.with_header(own("x-a"), "3").with_headers(forwarded);
                response.with_header(own("x-seen"), seen.unwrap())
            }
            _ => response,
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        for (target, values, via_values) in [
            ("/", &["1", "2"][..], &[][..]),
            ("/more", &["1", "2"], &["1.1 a", "1.1 b"]),
            ("/behind", &["0", "1", "2"], &[]),
            ("/set", &["3"], &[]),
            ("/removed", &[], &[]),
            ("/seen", &["1", "2", "3", "1", "2"], &[]),
        ] {
            let request = ClientRequest::get(target).field("x-a", "1").field("x-a", "2");
            let request =
                request.field("date", "then").field("server", "theirs").field("x-b", "no");
            let mut client = server.client().await;
            let response = client.fetch(request).await;
            let all = |name| {
                let values = response.fields.get_all(name).iter();
                values.map(|value| value.to_str().unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(response.text(), "ok", "{target}");
            assert_eq!(
                (all("x-a"), all("via")),
                (values.to_vec(), via_values.to_vec()),
                "{target}"
            );
            // `/seen` adds the fields twice.
            assert_eq!(all("date")[0], "then", "{target}");
            assert_eq!(all("server")[0], "theirs", "{target}");
            assert_eq!(response.field("x-seen"), (target == "/seen").then_some("1"), "{target}");
            assert_eq!(response.field("x-b"), None, "{target}");
        }
        server.stop().await;
    });
}

#[test]
fn drops_framing_fields_in_response_trailers() {
    async fn app(request: Request) -> Response {
        let name: HeaderName = request.path()[1..].parse().unwrap();
        Response::body(with_trailers("abc", &[(name, "1"), (header::ETAG, "\"e\"")]))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for name in ["connection", "transfer-encoding", "content-length", "keep-alive", "te"] {
            let response = client.get(&format!("/{name}")).await;
            assert_eq!(
                (response.text(), response.trailer("etag")),
                ("abc", Some("\"e\"")),
                "{name}"
            );
            // Over HTTP/1 only the first three affect message framing.
            let is_allowed = ["keep-alive", "te"].contains(&name) && !transport.is_http2();
            assert_eq!(response.trailer(name).is_some(), is_allowed, "{name}");
        }
        server.stop().await;
    });
}

// -- requests

#[test]
fn request_exposes_method_target_and_fields() {
    async fn app(request: Request) -> Response {
        let values = |name: &str| {
            let values = request.headers().get_all(name).map(|v| v.escape_ascii().to_string());
            values.collect::<Vec<_>>().join("|")
        };
        Response::text(format!(
            "{} {} {:?} {:?} x-a: {} cookie: {}",
            request.method(),
            request.target(),
            &*request.segments(),
            request.query(),
            values("x-a"),
            values("cookie"),
        ))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (request, expected) in [
            (ClientRequest::get("/"), "GET / [] None x-a:  cookie: "),
            (
                ClientRequest::get("/buenos/d%C3%ADas/?a=b%20c&d"),
                "GET /buenos/d%C3%ADas/?a=b%20c&d [\"buenos\", \"días\", \"\"] \
                 Some(\"a=b%20c&d\") x-a:  cookie: ",
            ),
            (
                ClientRequest::new("PURGE", "//a/../b?").field("x-a", "1").field("x-a", "días"),
                "PURGE //a/../b? [\"\", \"a\", \"..\", \"b\"] Some(\"\") \
                 x-a: 1|d\\xc3\\xadas cookie: ",
            ),
            (
                ClientRequest::get("/").field("cookie", "a=1; b=2").field("x-a", ""),
                "GET / [] None x-a:  cookie: a=1; b=2",
            ),
        ] {
            assert_eq!(client.fetch(request).await.text(), expected);
        }
        server.stop().await;
    });
}

#[test]
fn request_exposes_connection_properties() {
    async fn app(request: Request) -> Response {
        let peer = request.peer();
        Response::text(format!(
            "{:?} {:?} {:?} {:?} {} {} {:?} {:?}",
            request.version(),
            request.authority(),
            request.host(),
            request.headers().get("host"),
            request.is_secure(),
            request.scheme(),
            peer.tls().and_then(|tls| tls.alpn()),
            peer.address().map(|peer| peer.ip().to_string()),
        ))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let secure = match transport {
            Transport::Http1 | Transport::Http2 => "false http None",
            Transport::Http1Tls => "true https Some(\"http/1.1\")",
            Transport::Http2Tls => "true https Some(\"h2\")",
        };
        let host = "Some(\"a\") Some(\"a\") Some(\"a\")";
        let expected = format!("{:?} {host} {secure} Some(\"127.0.0.1\")", transport.version());
        assert_eq!(server.client().await.get("/").await.text(), expected);
        server.stop().await;
    });
}

#[test]
fn rejects_oversized_request_heads() {
    on_every_transport(async |transport| {
        let settings = Settings { max_request_line_bytes: 200, ..Settings::default() };
        let server = transport.serve_with(settings, echo);
        let mut ok = server.client().await;
        for (request, status) in [
            (ClientRequest::get(format!("/{}", "x".repeat(300))), 414),
            (ClientRequest::get("/").field("x", "y".repeat(20_000)), 431),
            (
                (0..101)
                    .fold(ClientRequest::get("/"), |request, n| request.field("x", n.to_string())),
                431,
            ),
            (
                (0..90)
                    .fold(ClientRequest::get("/"), |request, n| request.field("x", n.to_string())),
                200,
            ),
        ] {
            let mut client = server.client().await;
            let response = client.fetch(request).await;
            assert_eq!(response.status, status);
            assert_eq!(ok.get("/").await.text(), "ok");
        }
        server.stop().await;
    });
}

// -- bodies of requests

#[test]
fn receives_request_bodies_completely() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        let length = format!("{:?}", request.body().length());
        let body = request.into_body().collect(1 << 20).await?;
        Ok(Response::body(body).with_header(HeaderName::from_static("x-length"), length))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for size in [0, 1, 100, 16_384, 65_535, 65_536, 500_000] {
            let response = client.fetch(ClientRequest::post("/").body(pattern(size))).await;
            assert!(response.body == pattern(size), "{size}: received {}", response.body.len());
            assert_eq!(response.field("x-length"), Some(&*format!("Some({size})")));

            let (request, upload) = ClientRequest::post("/").upload();
            let response_future = client.send(request).await;
            for piece in pattern(size).chunks(10_007) {
                assert!(upload.send(piece.to_vec()).await);
            }
            drop(upload);
            let response = response_future.collect().await;
            assert!(
                response.body == pattern(size),
                "{size}: received {} of a streamed body",
                response.body.len()
            );
            assert_eq!(response.field("x-length"), Some("None"), "{size}");
        }
        // A request without a body has an empty body.
        let response = client.fetch(ClientRequest::new("GET", "/")).await;
        assert_eq!(response.field("x-length"), Some("Some(0)"));
        server.stop().await;
    });
}

#[test]
fn echoes_request_body_while_receiving() {
    on_every_transport(async |transport| {
        let server = transport.serve(echo);
        let mut client = server.client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("zero").await);
        let mut response = response_future.read_head().await.unwrap();
        let mut expected = b"zero".to_vec();
        // Each piece is echoed before the next one is sent.
        for piece in ["one", "two", "three"] {
            response.read(expected.len()).await;
            expected.extend_from_slice(piece.as_bytes());
            assert!(upload.send(piece).await);
        }
        drop(upload);
        assert_eq!(response.collect().await.body, expected);

        // Both directions concurrently, with far more data than any window or buffer holds.
        let body = pattern(5 << 20);
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        let sent = body.clone();
        let sending = tokio::spawn(async move {
            for piece in sent.chunks(50_000) {
                assert!(upload.send(piece.to_vec()).await);
            }
        });
        let received = response_future.collect().await.body;
        assert!(received == body, "echoed {} of {} bytes", received.len(), body.len());
        sending.await.unwrap();
        assert_eq!(client.get("/").await.text(), "ok");
        server.stop().await;
    });
}

#[test]
fn receives_request_trailers() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        if request.path() == "/echo" {
            return Ok(Response::body(request.into_body()));
        }
        assert!(request.body().trailers().is_none(), "trailers before the end of the body");
        while request.body().chunk().await?.is_some() {}
        let trailers = request.body().trailers().and_then(|trailers| trailers.get("x-sum"));
        Ok(Response::text(trailers.unwrap_or("none").to_owned()))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (target, text, trailer) in
            [("/read", "17", None), ("/echo", "abc", Some("17")), ("/none", "none", None)]
        {
            let (request, upload) = ClientRequest::post(target).field("trailer", "x-sum").upload();
            let response_future = client.send(request).await;
            assert!(upload.send("abc").await);
            if target != "/none" {
                upload.trailers("x-sum", "17").await;
            }
            drop(upload);
            let response = response_future.collect().await;
            assert_eq!((response.text(), response.trailer("x-sum")), (text, trailer), "{target}");
        }
        server.stop().await;
    });
}

#[test]
fn reads_request_body_in_another_thread() {
    async fn elsewhere(request: Request) -> weft::Result<Response> {
        let body = request.into_body();
        let (sender, result) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = sender.send(runtime.block_on(body.collect(4 << 20)));
        });
        let body = result.await.expect("the thread sends a result")?;
        Ok(Response::text(format!("{}", body.len())))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(elsewhere);
        let mut client = server.client().await;
        for size in [3_000_000, 3] {
            let (request, upload) = ClientRequest::post("/").upload();
            let response_future = client.send(request).await;
            for piece in pattern(size).chunks(30_000) {
                assert!(upload.send(piece.to_vec()).await);
            }
            drop(upload);
            assert_eq!(response_future.collect().await.text(), size.to_string());
        }
        server.stop().await;
    });
}

#[test]
fn unread_request_body_does_not_block_the_connection() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        match request.path() {
            "/unread" => Ok(Response::text("unread")),
            "/partly" => {
                let chunk = request.body().chunk().await?.unwrap_or_default();
                Ok(Response::text(if chunk.is_empty() { "empty" } else { "partly" }))
            }
            _ => Ok(Response::text("ok")),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        // A small unread body is drained, and the connection is reused.
        for target in ["/unread", "/partly"] {
            let response = client.fetch(ClientRequest::post(target).body(pattern(20_000))).await;
            assert_eq!(response.text(), &target[1..]);
            assert_eq!(client.get("/").await.text(), "ok");
        }
        // After a large unread body the connection may be closed; the client reconnects then. The
        // total exceeds the connection's window: discarded data must be returned to the window.
        for number in 0..20 {
            let target = ["/unread", "/partly"][number % 2];
            let (request, upload) = ClientRequest::post(target).upload();
            let response_future = client.send(request).await;
            let sending = tokio::spawn(async move {
                for _ in 0..30 {
                    if !upload.send(vec![b'x'; 10_000]).await {
                        break;
                    }
                }
            });
            let response = response_future.collect().await;
            assert_eq!(response.text(), &target[1..], "{number}");
            sending.await.unwrap();
            assert_eq!(client.get_reconnecting("/").await.text(), "ok", "{number}");
        }
        server.stop().await;
    });
}

#[test]
fn completes_response_while_client_is_uploading() {
    async fn app(request: Request) -> Response {
        let mut reading = Some(request.into_body());
        let mut remaining = 100;
        // The application stops reading while the response is being sent.
        let frames = Frames(move |cx: &mut Context<'_>| {
            if let Some(body) = &mut reading {
                if body.poll_chunk(cx).is_pending() {
                    return Poll::Pending;
                }
                reading = None;
            }
            remaining -= 1;
            let frame = || Ok(Frame::data(Bytes::from_static(&[b'y'; 10_000])));
            Poll::Ready((remaining > 0).then(frame))
        });
        Response::body(Body::from_http_body(frames))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        let (request, upload) =
            ClientRequest::post("/").field("content-length", "5000000").upload();
        let response_future = client.send(request).await;
        let sending = tokio::spawn(async move {
            for _ in 0..100 {
                if !upload.send(vec![b'x'; 50_000]).await {
                    break;
                }
            }
        });
        assert_eq!(response_future.collect().await.body.len(), 990_000);
        sending.await.unwrap();
        server.stop().await;
    });
}

#[test]
fn slow_application_applies_backpressure() {
    on_every_transport(async |transport| {
        // The application reads one chunk and then waits for `release`.
        let (taken, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (count, released) = (taken.clone(), release.clone());
        let app = move |mut request: Request| {
            let (count, released) = (count.clone(), released.clone());
            async move {
                while let Some(chunk) = request.body().chunk().await? {
                    if count.fetch_add(chunk.len(), SeqCst) == 0 {
                        released.notified().await;
                    }
                }
                Ok::<_, Error>(Response::text(format!("{}", count.load(SeqCst))))
            }
        };
        let server =
            transport.serve_with(Settings { max_body_bytes: 1 << 30, ..Settings::default() }, app);
        let mut client = server.client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        let piece = Bytes::from(vec![b'x'; 256 << 10]);
        let max_pieces = 256;
        // The kernel's buffers and the window accept some data, then the client is blocked.
        let mut sent = upload.send_until_blocked(piece.clone(), max_pieces).await;
        assert!(sent < max_pieces, "all data was accepted although the application does not read");
        let before = taken.load(SeqCst);
        assert!((1..=128 << 10).contains(&before), "{before} bytes were read for one chunk");
        release.notify_one();
        while sent < max_pieces {
            assert!(upload.send(piece.clone()).await);
            sent += 1;
        }
        drop(upload);
        assert_eq!(response_future.collect().await.text(), (max_pieces * piece.len()).to_string());
        server.stop().await;
    });
}

#[test]
fn closes_client_that_does_not_read_with_bounded_memory() {
    on_every_transport(async |transport| {
        let produced = Arc::new(AtomicUsize::new(0));
        let alive = CloneCounter::new();
        let (count, app_guard) = (produced.clone(), alive.clone());
        let app = move |_: Request| {
            let (count, stream_guard) = (count.clone(), app_guard.clone());
            async move {
                Response::body(Body::from_http_body(Frames(move |_: &mut Context<'_>| {
                    let _ = &stream_guard;
                    count.fetch_add(16_000, SeqCst);
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16_000])))))
                })))
            }
        };
        let (server, events) = serve_with_event_log(transport, short_timeouts(), app);
        let idle = alive.count();
        // On a busy machine the client may be timed out before it has read the head; retry then.
        let (_client, response) = loop {
            produced.store(0, SeqCst);
            let mut client = server.client().await;
            let response = client.send(ClientRequest::get("/")).await.read_head().await;
            let is_alive = alive.count() > idle;
            if let (Ok(response), true) = (response, is_alive) {
                break (client, response);
            }
            wait_until("the stream is dropped", || alive.count() == idle).await;
        };
        wait_until("the stream is dropped", || alive.count() == idle).await;
        events.wait_for("Peer TooSlow").await;
        let produced = produced.load(SeqCst);
        // Bounded by the windows or the kernel's socket buffers on both sides.
        assert!(produced < 32 << 20, "{produced} bytes were produced");
        let partial = response.try_collect().await.expect_err("the response must be incomplete");
        assert!(partial.body.len() <= produced, "{} of {produced}", partial.body.len());
        server.stop().await;
    });
}

#[test]
fn retained_request_body_does_not_block_other_requests() {
    on_every_transport(async |transport| {
        let retained: Arc<Mutex<Vec<Body>>> = Arc::default();
        let app_retained = retained.clone();
        let server = transport.serve(move |request: Request| {
            if *request.method() == Method::POST {
                app_retained.lock().unwrap().push(request.into_body());
            }
            async { Response::text("ok") }
        });
        let mut client = server.client().await;
        let mut other = client.concurrent_client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("hello").await);
        let response = response_future.read_head().await.unwrap();
        assert_eq!(response.head().status, 200);
        assert_eq!(other.get("/").await.text(), "ok");
        retained.lock().unwrap().clear();
        drop(upload);
        assert_eq!(response.collect().await.text(), "ok");
        assert_eq!(client.get_reconnecting("/").await.text(), "ok");
        server.stop().await;
    });
}

#[test]
fn rejects_body_over_limit_with_and_without_length() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        match request.path() {
            "/less" => request.body().set_limit(5),
            "/more" => request.body().set_limit(20),
            _ => {}
        }
        Ok(Response::body(request.into_body().collect(100).await?))
    }
    on_every_transport(async |transport| {
        let settings = Settings { max_body_bytes: 10, ..Settings::default() };
        let server = transport.serve_with(settings, app);
        let mut client = server.client().await;
        for (target, limit) in [("/", 10), ("/less", 5), ("/more", 20)] {
            for (size, status) in [(limit, 200), (limit + 1, 413)] {
                let case = format!("{size} to {target}");
                let sized = client.send(ClientRequest::post(target).body(pattern(size))).await;
                assert_eq!(sized.collect().await.status, status, "{case}");
                // Without a length the limit is exceeded while receiving.
                client.get_reconnecting(target).await;
                let (request, upload) = ClientRequest::post(target).upload();
                let response_future = client.send(request).await;
                for piece in pattern(size).chunks(3) {
                    upload.send(piece.to_vec()).await;
                }
                drop(upload);
                assert_eq!(response_future.collect().await.status, status, "{case} in pieces");
                client.get_reconnecting(target).await;
            }
        }
        // A Content-Length over the limit is rejected before any body is sent.
        let (request, upload) = ClientRequest::post("/").field("content-length", "11").upload();
        let response_future = client.send(request).await;
        assert_eq!(response_future.collect().await.status, 413);
        drop(upload);
        server.stop().await;
    });
}

// -- interim responses

#[test]
fn sends_100_continue_only_when_the_application_reads() {
    async fn app(request: Request) -> weft::Result<Response> {
        match request.path() {
            "/unread" => Ok(Response::text("no, thanks")),
            "/echo" => Ok(Response::body(request.into_body())),
            _ => Ok(Response::body(request.into_body().collect(100).await?)),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        for (target, expectation, interims, status, text) in [
            ("/read", "100-continue", &[100][..], 200, "hello"),
            ("/read", "100-Continue", &[100], 200, "hello"),
            ("/echo", "100-continue", &[100], 200, "hello"),
            ("/unread", "100-continue", &[], 200, "no, thanks"),
            ("/read", "miracles", &[], 417, ""),
        ] {
            let request = ClientRequest::post(target).field("expect", expectation);
            let (received, response) = server.fetch_with_interim(request, "hello").await;
            let received: Vec<u16> = received.into_iter().map(|(status, _)| status).collect();
            assert_eq!((&*received, response.status), (interims, status), "{target} {expectation}");
            assert!(response.text() == text || status == 417, "{target} {expectation}");
        }
        server.stop().await;
    });
}

#[test]
fn sends_early_hints_before_the_response() {
    async fn app(request: Request) -> Response {
        request.early_hints(["</a.css>; rel=preload", "</b>\r\nx: y"]);
        if request.path() == "/slow" {
            tokio::task::yield_now().await;
        }
        request.early_hints(["</c>"]);
        Response::text("ok")
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        for target in ["/slow", "/fast"] {
            let (interims, response) =
                server.fetch_with_interim(ClientRequest::get(target), "").await;
            assert!(interims.iter().all(|(status, _)| *status == 103), "{target}: {interims:?}");
            assert_eq!(
                interims.len(),
                if target == "/slow" { 2 } else { 1 },
                "{target}: {interims:?}"
            );
            let links: Vec<String> = interims.into_iter().flat_map(|(_, links)| links).collect();
            assert_eq!(links, ["</a.css>; rel=preload", "</b>  x: y", "</c>"], "{target}");
            assert_eq!((response.status, response.text()), (200, "ok"), "{target}");
        }
        // A client that ignores interim responses reads the final response.
        let mut client = server.client().await;
        assert_eq!(client.get("/slow").await.text(), "ok");
        assert_eq!(client.get_reconnecting("/fast").await.text(), "ok");
        server.stop().await;
    });
}

#[test]
fn sends_interim_responses_of_the_application() {
    async fn app(request: Request) -> Response {
        request.early_hints(["</a>"]);
        // The application may not send 100 and 101, and 200 is not an interim status.
        for status in [102, 100, 103, 101, 199, 200] {
            let interim = Response::new(StatusCode::from_u16(status).unwrap());
            let interim = interim.with_header(header::LINK, status.to_string());
            request.interim(interim.with_header(header::CONTENT_LENGTH, "5"));
        }
        Response::text("ok")
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let (interims, response) = server.fetch_with_interim(ClientRequest::get("/"), "").await;
        let expected = [(103, "</a>"), (102, "102"), (103, "103"), (199, "199")];
        assert_eq!(interims, expected.map(|(status, link)| (status, vec![link.to_owned()])));
        assert_eq!((response.status, response.text()), (200, "ok"));
        server.stop().await;
    });
}

// -- client disconnects

/// A way for a client to abort an exchange.
#[derive(Clone, Copy, Debug)]
enum Abort {
    /// Cancels the request: over HTTP/1 by closing the connection, over HTTP/2 by RST_STREAM.
    Request,
    /// Closes the connection.
    Connection,
}

const ABORTS: [Abort; 2] = [Abort::Request, Abort::Connection];

impl Abort {
    /// Aborts the exchange of `response`; returns the client if it is still usable.
    fn apply(self, client: Client, response: impl Sized) -> Option<Client> {
        match self {
            Abort::Request => {
                drop(response);
                Some(client)
            }
            Abort::Connection => {
                client.abort();
                None
            }
        }
    }
}

#[test]
fn client_disconnect_cancels_the_call() {
    on_every_transport(async |transport| {
        let alive = CloneCounter::new();
        let app_guard = alive.clone();
        let (server, events) =
            serve_with_event_log(transport, Settings::default(), move |request: Request| {
                let call_guard = app_guard.clone();
                async move {
                    let _call_guard = call_guard;
                    if request.path() == "/wait" {
                        pending::<()>().await;
                    }
                    Response::text("ok")
                }
            });
        let idle = alive.count();
        for (number, abort) in ABORTS.into_iter().enumerate() {
            let mut client = server.client().await;
            let response_future = client.send(ClientRequest::get("/wait")).await;
            wait_until("the call starts", || alive.count() > idle).await;
            let client = abort.apply(client, response_future);
            wait_until("the call is dropped", || alive.count() == idle).await;
            let reported = || events.count("Peer Disconnected") == number + 1;
            wait_until("the hooks report the disconnect", reported).await;
            if let Some(mut client) = client {
                assert_eq!(client.get_reconnecting("/").await.text(), "ok", "{abort:?}");
            }
        }
        server.stop().await;
    });
}

#[test]
fn detached_call_completes_after_disconnect() {
    on_every_transport(async |transport| {
        let (events, release) = (EventLog::default(), Arc::new(Notify::new()));
        let (app_events, released) = (events.clone(), release.clone());
        let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
        let server = transport.serve_with(settings, move |request: Request| {
            let (app_events, released) = (app_events.clone(), released.clone());
            async move {
                if request.path() == "/wait" {
                    app_events.push("started");
                    released.notified().await;
                    app_events.push("done");
                }
                Response::text("ok")
            }
        });
        for (number, abort) in ABORTS.into_iter().enumerate() {
            let mut client = server.client().await;
            let response_future = client.send(ClientRequest::get("/wait")).await;
            wait_until("the call starts", || events.count("started") == number + 1).await;
            let client = abort.apply(client, response_future);
            // Give the server time to detect the disconnect.
            for _ in 0..10 {
                assert_eq!(server.client().await.get("/").await.text(), "ok");
            }
            assert_eq!(events.count("done"), number);
            release.notify_one();
            wait_until("the call completes", || events.count("done") == number + 1).await;
            drop(client);
        }
        server.stop().await;
    });
}

#[test]
fn aborted_request_body_fails_with_body_incomplete() {
    on_every_transport(async |transport| {
        let events = EventLog::default();
        let app_events = events.clone();
        let server = transport.serve(move |mut request: Request| {
            let app_events = app_events.clone();
            async move {
                if *request.method() == Method::GET {
                    return Response::text("ok");
                }
                loop {
                    match request.body().chunk().await {
                        Ok(Some(chunk)) => app_events.push(chunk.escape_ascii().to_string()),
                        Ok(None) => app_events.push("complete"),
                        Err(error) => {
                            app_events.push(format!("{:?}", error.kind()));
                            return error.into();
                        }
                    }
                }
            }
        });
        for length in [None, Some("100")] {
            for abort in [None, Some(Abort::Request), Some(Abort::Connection)] {
                let case = format!("{length:?} {abort:?}");
                let before = (events.count("some"), events.count("BodyIncomplete"));
                let mut client = server.client().await;
                let request = ClientRequest::post("/");
                let request = match length {
                    Some(length) => request.field("content-length", length),
                    None => request,
                };
                let (request, upload) = request.upload();
                let response_future = client.send(request).await;
                assert!(upload.send("some").await);
                wait_until("a chunk is read", || events.count("some") == before.0 + 1).await;
                let client = match abort {
                    None => {
                        upload.fail().await;
                        Some(client)
                    }
                    Some(abort) => abort.apply(client, response_future),
                };
                let failed = || events.count("BodyIncomplete") == before.1 + 1;
                wait_until(&format!("{case}: the body fails"), failed).await;
                assert!(!events.contains("complete"), "{case}");
                if let Some(mut client) = client {
                    assert_eq!(client.get_reconnecting("/").await.text(), "ok", "{case}");
                }
            }
        }
        server.stop().await;
    });
}

#[test]
fn client_disconnect_drops_the_response_body() {
    on_every_transport(async |transport| {
        let alive = CloneCounter::new();
        let app_guard = alive.clone();
        let (server, events) =
            serve_with_event_log(transport, Settings::default(), move |request: Request| {
                let stream_guard = app_guard.clone();
                async move {
                    if request.path() == "/" {
                        return Response::text("ok");
                    }
                    let mut first = Some(Frame::data(Bytes::from("first")));
                    let is_endless = request.path() == "/endless";
                    Response::body(Body::from_http_body(Frames(move |_: &mut Context<'_>| {
                        let _ = &stream_guard;
                        match first.take() {
                            Some(frame) => Poll::Ready(Some(Ok(frame))),
                            None if is_endless => {
                                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 10_000])))))
                            }
                            None => Poll::Pending,
                        }
                    })))
                }
            });
        let idle = alive.count();
        for (target, abort) in [
            ("/first", Abort::Request),
            ("/first", Abort::Connection),
            ("/endless", Abort::Request),
            ("/endless", Abort::Connection),
        ] {
            let case = format!("{target} {abort:?}");
            let answered = |target: &str| {
                let prefix = format!("{target} 200 ");
                events.all().iter().filter(|event| event.starts_with(&prefix)).count()
            };
            let before = (events.count("Peer Disconnected"), answered(target));
            let mut client = server.client().await;
            let mut response =
                client.send(ClientRequest::get(target)).await.read_head().await.unwrap();
            response.read(5).await;
            assert!(alive.count() > idle);
            let client = abort.apply(client, response);
            wait_until(&format!("{case}: the stream is dropped"), || alive.count() == idle).await;
            // Over HTTP/2 the hooks may report the end of the connection as well.
            let reported =
                || events.count("Peer Disconnected") > before.0 && answered(target) == before.1 + 1;
            wait_until(&format!("{case}: the hooks report the disconnect"), reported).await;
            if let Some(mut client) = client {
                assert_eq!(client.get_reconnecting("/").await.text(), "ok", "{case}");
            }
        }
        let sent = events.count("/first 200 5 Disconnected");
        assert_eq!(sent, 2, "records with the bytes sent: {:?}", events.all());
        server.stop().await;
    });
}

#[test]
fn stalled_request_body_times_out() {
    on_every_transport(async |transport| {
        let events = EventLog::default();
        let app_events = events.clone();
        let server = transport.serve_with(short_timeouts(), move |request: Request| {
            let app_events = app_events.clone();
            async move {
                let body = request.into_body().collect(1000).await;
                body.map(Response::body)
                    .inspect_err(|error| app_events.push(format!("{:?}", error.kind())))
            }
        });
        let mut client = server.client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("some").await);
        assert_eq!(response_future.collect().await.status, 408);
        assert_eq!(events.all(), ["TooSlow"]);
        drop(upload);
        server.stop().await;
    });
}

#[test]
fn slow_handler_does_not_time_out() {
    on_every_transport(async |transport| {
        let server = transport.serve_with(short_timeouts(), async |_: Request| {
            tokio::time::sleep(3 * SHORT_TIMEOUT).await;
            Response::text("at last")
        });
        assert_eq!(server.client().await.get("/").await.text(), "at last");
        server.stop().await;
    });
}

#[test]
fn closes_idle_connection_after_timeout() {
    on_every_transport(async |transport| {
        let server = transport.serve_with(short_timeouts(), echo);
        let mut client = server.client().await;
        assert_eq!(client.get("/").await.text(), "ok");
        client.wait_closed().await;
        server.stop().await;
    });
}

#[test]
fn closes_connection_after_max_requests() {
    on_every_transport(async |transport| {
        let settings = Settings { max_requests: 3, ..Settings::default() };
        let (server, events) = serve_with_event_log(transport, settings, echo);
        let mut client = server.client().await;
        for _ in 0..3 {
            assert_eq!(client.get("/").await.text(), "ok");
        }
        client.wait_closed().await;
        assert_eq!(events.count("/ 200 2"), 3);
        assert_eq!(client.get_reconnecting("/").await.text(), "ok");
        server.stop().await;
    });
}

// -- applications that fail

/// The next step of a scripted response body.
enum BodyStep {
    Piece(&'static str),
    Fail,
    Panic,
    /// Reports the end of the stream.
    End,
}

/// An application whose response bodies follow the steps sent through the channel. The query of
/// the target becomes `Content-Length`. `/panic` panics before there is a response.
fn scripted_body_app() -> (mpsc::Sender<BodyStep>, impl Application + Clone + Send + 'static) {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = Arc::new(Mutex::new(receiver));
    let app = move |request: Request| {
        let receiver = receiver.clone();
        async move {
            let mut ended = false;
            let frames = Frames(move |cx: &mut Context<'_>| {
                if ended {
                    return Poll::Ready(None);
                }
                receiver.lock().unwrap_or_else(|e| e.into_inner()).poll_recv(cx).map(|act| {
                    match act? {
                        BodyStep::Piece(piece) => Some(Ok(Frame::data(Bytes::from(piece)))),
                        BodyStep::Fail => {
                            Some(Err(Error::new(ErrorKind::BodyFailed, "on purpose")))
                        }
                        BodyStep::Panic => panic!("on purpose"),
                        BodyStep::End => {
                            ended = true;
                            None
                        }
                    }
                })
            });
            let response = match request.path() {
                "/act" => Response::body(Body::from_http_body(frames)),
                "/panic" => panic!("on purpose"),
                "/bytes" => Response::text("abc"),
                _ => return Response::text("ok"),
            };
            match request.query() {
                Some(length) => response.with_header(header::CONTENT_LENGTH, length),
                None => response,
            }
        }
    };
    (sender, app)
}

/// Asserts that a response was replaced by a 500 or is incomplete, and that it reveals no
/// internal error message.
#[track_caller]
fn assert_failed(try_collect: Result<ClientResponse, IncompleteResponse>, case: &str) {
    match try_collect {
        Ok(response) => {
            assert_eq!(response.status, 500, "{case}: the response is complete");
            assert!(!response.text().contains("purpose"), "{case}: {}", response.text());
        }
        Err(error) => assert!(matches!(error.status, None | Some(200)), "{case}: {error:?}"),
    }
}

#[test]
fn application_failure_before_the_head_returns_500() {
    on_every_transport(async |transport| {
        let (_sender, app) = scripted_body_app();
        let (server, events) = serve_with_event_log(transport, Settings::default(), app);
        let mut other = server.client().await;
        for (target, expected_error) in [
            ("/panic", "Application Panicked"),
            ("/bytes?2", "Application LengthMismatch"),
            ("/bytes?4", "Application LengthMismatch"),
            ("/bytes?x", "Application LengthMismatch"),
            ("/act?x", "Application LengthMismatch"),
        ] {
            let before = events.count(expected_error);
            let mut client = other.concurrent_client().await;
            let response = client.get(target).await;
            assert_eq!(response.status, 500, "{target}");
            assert!(!response.text().contains("purpose"), "{target}: {}", response.text());
            wait_until(&format!("{target}: {expected_error}"), || {
                events.count(expected_error) == before + 1
            })
            .await;
            let record = format!("{target} 500 {}", response.body.len());
            wait_until(&record, || events.contains(&record)).await;
            // Other requests are not affected.
            assert_eq!(other.get("/").await.text(), "ok", "{target}");
        }
        server.stop().await;
    });
}

#[test]
fn application_failure_in_body_truncates_the_response() {
    use BodyStep::{End, Fail, Panic, Piece};
    on_every_transport(async |transport| {
        let (sender, app) = scripted_body_app();
        let (server, events) = serve_with_event_log(transport, Settings::default(), app);
        let mut other = server.client().await;
        // `pieces` were received before the last step is taken.
        for (target, pieces, last, expected_error) in [
            ("/act", &[][..], Panic, "Application Panicked"),
            ("/act", &[], Fail, "Application BodyFailed"),
            ("/act", &["abc"], Panic, "Application Panicked"),
            ("/act", &["abc"], Fail, "Application BodyFailed"),
            ("/act", &["abc", "def"], Fail, "Application BodyFailed"),
            ("/act?7", &["abc"], Panic, "Application Panicked"),
            ("/act?7", &["abc"], Fail, "Application BodyFailed"),
            ("/act?7", &[], End, "Application LengthMismatch"),
            ("/act?7", &["abc", "def"], End, "Application LengthMismatch"),
            ("/act?7", &["abc", "def"], Piece("gh"), "Application LengthMismatch"),
            ("/act?2", &[], Piece("abc"), "Application LengthMismatch"),
        ] {
            let case = format!("{target} {pieces:?} {expected_error}");
            let before = events.count(expected_error);
            let mut client = other.concurrent_client().await;
            let response_future = client.send(ClientRequest::get(target)).await;
            let try_collect = match pieces {
                [] => {
                    assert!(sender.send(last).await.is_ok());
                    response_future.try_collect().await
                }
                _ => {
                    let mut response = response_future.read_head().await.unwrap();
                    let mut length = 0;
                    for piece in pieces {
                        assert!(sender.send(Piece(piece)).await.is_ok());
                        length += piece.len();
                        response.read(length).await;
                    }
                    assert!(sender.send(last).await.is_ok());
                    let try_collect = response.try_collect().await;
                    assert!(try_collect.is_err(), "{case}: the response is complete");
                    try_collect
                }
            };
            assert_failed(try_collect, &case);
            wait_until(&case, || events.count(expected_error) == before + 1).await;
            assert_eq!(other.get("/").await.text(), "ok", "{case}");
        }
        server.stop().await;
    });
}

/// Request fields, and the status, `Content-Range` and body of the response.
type Case<'a> = (Vec<(&'a str, String)>, u16, Option<&'a str>, &'a str);

// -- files

#[test]
fn serves_files_with_preconditions_and_ranges() {
    let large = pattern(3_000_000);
    let tree = Tree::with_files(&[("ten.txt", "0123456789"), ("empty.txt", "")]);
    tree.write("large.bin", &large);
    tree.write("long.txt", "x".repeat(5_000));
    // Small files are cached in memory from now on.
    tree.settle();
    on_every_transport(async |transport| {
        let server = transport.serve(Directory::open(tree.root()).unwrap());
        let mut client = server.client().await;
        let first = client.get("/ten.txt").await;
        assert_eq!(first.field("accept-ranges"), Some("bytes"));
        let etag = first.field("etag").expect("an ETag").to_owned();
        let date = first.field("last-modified").expect("a date").to_owned();
        let cases: Vec<Case> = vec![
            (vec![], 200, None, "0123456789"),
            (vec![("range", "bytes=2-3".into())], 206, Some("bytes 2-3/10"), "23"),
            (vec![("range", "bytes=5-".into())], 206, Some("bytes 5-9/10"), "56789"),
            (vec![("range", "bytes=-3".into())], 206, Some("bytes 7-9/10"), "789"),
            (
                vec![("range", "bytes=16-".into())],
                416,
                Some("bytes */10"),
                "416 Range Not Satisfiable\n",
            ),
            (vec![("range", "lines=1-2".into())], 200, None, "0123456789"),
            (
                vec![("range", "bytes=2-3".into()), ("if-range", etag.clone())],
                206,
                Some("bytes 2-3/10"),
                "23",
            ),
            (
                vec![("range", "bytes=2-3".into()), ("if-range", "\"x\"".into())],
                200,
                None,
                "0123456789",
            ),
            (vec![("if-none-match", etag.clone())], 304, None, ""),
            (vec![("if-none-match", format!("\"x\", W/{etag}"))], 304, None, ""),
            (vec![("if-none-match", "\"x\"".into())], 200, None, "0123456789"),
            (vec![("if-modified-since", date)], 304, None, ""),
            (
                vec![("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT".into())],
                200,
                None,
                "0123456789",
            ),
            (vec![("if-match", etag.clone())], 200, None, "0123456789"),
            (vec![("if-match", "\"x\"".into())], 412, None, "412 Precondition Failed\n"),
        ];
        for (fields, status, range, body) in cases {
            for method in ["GET", "HEAD"] {
                let request = fields
                    .iter()
                    .fold(ClientRequest::new(method, "/ten.txt"), |request, (name, value)| {
                        request.field(name, value)
                    });
                let response = client.fetch(request).await;
                let actual = (response.status, response.field("content-range"), response.text());
                // RFC 9110 §14.2: Range applies to GET only.
                let (status, range) = match method {
                    "HEAD" if matches!(status, 206 | 416) => (200, None),
                    _ => (status, range),
                };
                let body = if method == "HEAD" { "" } else { body };
                assert_eq!(actual, (status, range, body), "{method} {fields:?}");
                assert_eq!(response.field("etag"), Some(&*etag), "{method} {fields:?}");
            }
        }
        let request = ClientRequest::get("/large.bin").field("range", "bytes=1000000-2999998");
        assert!(client.fetch(request).await.body == large[1_000_000..2_999_999]);
        assert!(client.get("/large.bin").await.body == large);
        assert_eq!(client.get("/empty.txt").await.field("content-length"), Some("0"));

        for (name, whole, part_type) in [
            ("long.txt", &[b'x'; 5_000][..], "text/plain; charset=utf-8"),
            ("large.bin", &large, "application/octet-stream"),
        ] {
            let length = whole.len();
            let request =
                ClientRequest::get(format!("/{name}")).field("range", "bytes=0-2,2000-2001,-1");
            let response = client.fetch(request).await;
            let media_type = response.field("content-type").expect("a type");
            let boundary =
                media_type.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
            let mut expected = Vec::new();
            for (from, to) in [(0, 2), (2_000, 2_001), (length - 1, length - 1)] {
                let line_end = if expected.is_empty() { "" } else { "\r\n" };
                expected.extend(format!("{line_end}--{boundary}\r\n").bytes());
                expected.extend(format!("Content-Type: {part_type}\r\n").bytes());
                expected
                    .extend(format!("Content-Range: bytes {from}-{to}/{length}\r\n\r\n").bytes());
                expected.extend(&whole[from..=to]);
            }
            expected.extend(format!("\r\n--{boundary}--\r\n").bytes());
            assert_eq!((response.status, &response.body), (206, &expected), "{name}");
            assert_eq!(response.field("content-length"), Some(&*expected.len().to_string()));
        }
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn serves_directory_listing_error_pages_and_codings() {
    let text = "This is a line of a long text.\n".repeat(200);
    let tree = Tree::with_files(&[
        ("index.html", "top"),
        ("page.css", &text),
        ("folder/a.txt", "a"),
        ("folder/b.txt", "b"),
        ("404.html", "none"),
        (".env", "hidden"),
    ]);
    on_every_transport(async |transport| {
        let settings = DirectorySettings {
            listing: true,
            fallback: Some("index.html".to_owned()),
            ..DirectorySettings::default()
        };
        let server = transport.serve(Directory::with_settings(tree.root(), settings).unwrap());
        let mut client = server.client().await;
        for (method, target, status, body) in [
            ("GET", "/", 200, "top"),
            ("GET", "/a/route/of/the/page", 200, "top"),
            ("GET", "/none.css", 404, "none"),
            ("HEAD", "/folder", 301, ""),
            ("GET", "/folder/a.txt", 200, "a"),
            ("GET", "/../secret.txt", 404, "none"),
        ] {
            let response = client.fetch(ClientRequest::new(method, target)).await;
            assert_eq!((response.status, response.text()), (status, body), "{method} {target}");
        }
        assert_eq!(client.get("/folder").await.field("location"), Some("/folder/"));
        let refused = client.fetch(ClientRequest::post("/").body("abc")).await;
        assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD")));
        let list =
            client.fetch(ClientRequest::get("/folder/").field("accept", "application/json")).await;
        let list: serde_json::Value = serde_json::from_str(list.text()).unwrap();
        let names = list["entries"].as_array().unwrap().iter().map(|entry| &entry["name"]);
        assert_eq!(names.collect::<Vec<_>>(), ["a.txt", "b.txt"]);
        let page = client.get("/folder/").await;
        assert!(page.text().contains("href=\"./a.txt\""), "{}", page.text());
        let head = client.fetch(ClientRequest::new("HEAD", "/folder/")).await;
        assert_eq!(head.field("content-length"), page.field("content-length"));
        for coding in CODINGS {
            let response = client
                .fetch(ClientRequest::get("/page.css").field("accept-encoding", coding))
                .await;
            assert_eq!(response.field("content-encoding"), Some(coding));
            assert_eq!(response.field("vary"), Some("accept-encoding"));
            assert!(response.body.len() < text.len() / 4);
            assert_eq!(decoded_so_far(coding, &response.body), text, "{coding}");
        }
        assert_eq!(client.get("/page.css").await.text(), text);
        server.stop().await;
    });
}

#[test]
fn serves_embedded_files() {
    static LARGE: [u8; 100_000] = [b'x'; 100_000];
    let files: [(&str, &'static [u8]); _] =
        [("index.html", b"top"), ("folder/ten.txt", b"0123456789"), ("large.bin", &LARGE)];
    on_every_transport(async |transport| {
        let server = transport.serve(Directory::embedded(files, DirectorySettings::default()));
        let mut client = server.client().await;
        assert_eq!(client.get("/").await.text(), "top");
        assert_eq!(client.get("/none").await.status, 404);
        assert_eq!(client.get("/large.bin").await.body, LARGE);
        let response =
            client.fetch(ClientRequest::get("/folder/ten.txt").field("range", "bytes=2-3")).await;
        assert_eq!((response.status, response.text()), (206, "23"));
        let etag = response.field("etag").unwrap();
        let response =
            client.fetch(ClientRequest::get("/folder/ten.txt").field("if-none-match", etag)).await;
        assert_eq!(response.status, 304);
        let response =
            client.fetch(ClientRequest::get("/large.bin").field("range", "bytes=0-1,99998-")).await;
        assert_eq!(response.status, 206);
        assert_eq!(response.text().matches("\r\n\r\nxx\r\n").count(), 2, "{}", response.text());
        server.stop().await;
    });
}

#[test]
fn file_truncated_while_sending_gives_incomplete_response() {
    let tree = Tree::new();
    on_every_transport(async |transport| {
        tree.write("large.bin", pattern(40 << 20));
        let server = transport.serve(Directory::open(tree.root()).unwrap());
        let mut client = server.client().await;
        let response =
            client.send(ClientRequest::get("/large.bin")).await.read_head().await.unwrap();
        let file = fs::File::options().write(true).open(tree.path("large.bin")).unwrap();
        file.set_len(1 << 20).unwrap();
        let partial = response.try_collect().await.expect_err("the response must be incomplete");
        assert!(partial.body.len() < 40 << 20);
        // Beyond the new length, the kernel may have zeroed data that was already queued.
        let unchanged = partial.body.len().min(1 << 20);
        assert!(partial.body[..unchanged] == pattern(unchanged));
        server.stop().await;
    });
}

// -- middleware

const CODINGS: [&str; 3] = ["br", "zstd", "gzip"];

/// Decodes the received part of a body that may be incomplete.
fn decoded_so_far(coding: &str, body: &[u8]) -> String {
    let mut text = Vec::new();
    // An error means that the input is incomplete.
    let _ = match coding {
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut text),
        "zstd" => zstd::Decoder::new(body).unwrap().read_to_end(&mut text),
        _ => flate2::read::GzDecoder::new(body).read_to_end(&mut text),
    };
    String::from_utf8(text).unwrap()
}

#[test]
fn runs_a_middleware_chain() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/panic" => panic!("on purpose"),
            "/slow" => pending().await,
            "/text" => Response::text("This is a line of a long text.\n".repeat(200)),
            "/stream" => Response::text(pieces(["ab", "cde"])),
            _ => Response::text("ok"),
        }
    }
    on_every_transport(async |transport| {
        let lines = EventLog::default();
        let sink = lines.clone();
        let log = Log::new(move |line| sink.push(line)).pattern("%r %s %B %X").unwrap();
        let catch = CatchPanic::new().page(|head, _| {
            Response::text(format!("{} failed", head.path()))
                .with_status(500u16.try_into().unwrap())
        });
        let app = app
            .with(log)
            .with(catch)
            .with(Compress::new())
            .with(Timeout::new(Duration::from_millis(100)));
        let server = transport.serve(app);
        let mut client = server.client().await;
        let version = transport.version();
        for (target, status, text, line) in [
            ("/a?b", 200, "ok", "200 2 +"),
            ("/panic", 500, "/panic failed", "500 13 +"),
            ("/slow", 503, "503 Service Unavailable\n", "503 24 +"),
            ("/stream", 200, "abcde", "200 5 +"),
        ] {
            let response = client.get(target).await;
            assert_eq!((response.status, response.text()), (status, text), "{target}");
            lines.wait_for(&format!("GET {target} {version:?} {line}\n")).await;
        }
        let response =
            client.fetch(ClientRequest::get("/text").field("accept-encoding", "gzip")).await;
        assert_eq!(response.field("content-encoding"), Some("gzip"));
        assert_eq!(decoded_so_far("gzip", &response.body).len(), 31 * 200);
        lines.wait_for(&format!("GET /text {version:?} 200 {} +\n", response.body.len())).await;
        // All requests used one connection.
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn logs_client_disconnect_as_499() {
    on_every_transport(async |transport| {
        let (lines, started) = (EventLog::default(), Arc::new(AtomicUsize::new(0)));
        let (sink, count) = (lines.clone(), started.clone());
        let log = Log::new(move |line| sink.push(line)).pattern("%r %s %X").unwrap();
        let app = move |_: Request| {
            count.fetch_add(1, SeqCst);
            pending::<Response>()
        };
        let server = transport.serve(app.with(log));
        for (number, abort) in ABORTS.into_iter().enumerate() {
            let mut client = server.client().await;
            let response_future = client.send(ClientRequest::get("/")).await;
            wait_until("the call starts", || started.load(SeqCst) == number + 1).await;
            let _client = abort.apply(client, response_future);
            let line = format!("GET / {:?} 499 X\n", transport.version());
            wait_until(&line, || lines.count(&line) == number + 1).await;
        }
        server.stop().await;
    });
}

#[test]
fn rate_limit_applies_per_client_address() {
    on_every_transport(async |transport| {
        let limit = RateLimit::new(1, Duration::from_secs(3600)).burst(2);
        let server = transport.serve(echo.with(limit));
        let mut client = server.client().await;
        for status in [200, 200, 429, 429] {
            let response = client.get("/").await;
            assert_eq!(response.status, status);
            assert_eq!(response.field("retry-after").is_some(), status == 429);
        }
        // Another connection from the same address shares the limit.
        assert_eq!(server.client().await.get("/").await.status, 429);
        server.stop().await;
    });
}

#[test]
fn sends_events_immediately_with_and_without_compression() {
    on_every_transport(async |transport| {
        let senders: Arc<Mutex<Vec<sse::Sender>>> = Arc::default();
        let app_senders = senders.clone();
        let app = move |request: Request| {
            let (sender, response) = sse::channel(&request);
            app_senders.lock().unwrap().push(sender);
            async { response }
        };
        let server = transport.serve(app.with(Compress::new()));
        let mut client = server.client().await;
        for coding in ["identity"].into_iter().chain(CODINGS) {
            let request = ClientRequest::get("/").field("accept-encoding", coding);
            let mut response = client.send(request).await.read_head().await.unwrap();
            assert_eq!(response.head().field("content-type"), Some("text/event-stream"));
            let sender = senders.lock().unwrap().pop().unwrap();
            let mut expected = String::new();
            for number in 1..=3 {
                sender.send(Event::data(number.to_string())).await.unwrap();
                expected += &format!("data: {number}\n\n");
                loop {
                    assert!(response.next().await.unwrap(), "{coding}: the stream ended");
                    let body = &response.head().body;
                    let text = match coding {
                        "identity" => String::from_utf8(body.clone()).unwrap(),
                        _ => decoded_so_far(coding, body),
                    };
                    assert!(expected.starts_with(&text), "{coding}: {text}");
                    if text == expected {
                        break;
                    }
                }
            }
            drop(sender);
            let response = response.collect().await;
            assert_eq!(
                response.field("content-encoding"),
                Some(coding).filter(|c| *c != "identity")
            );
        }
        // `Sender::closed` completes when the client disconnects.
        for abort in ABORTS {
            let mut client = server.client().await;
            let response = client.send(ClientRequest::get("/")).await.read_head().await.unwrap();
            let sender = senders.lock().unwrap().pop().unwrap();
            let _client = abort.apply(client, response);
            tokio::time::timeout(TEST_TIMEOUT, sender.closed())
                .await
                .expect("the sender is closed");
        }
        server.stop().await;
    });
}

// -- tower

#[test]
fn serves_axum_router() {
    use axum::Router;
    use axum::extract::{ConnectInfo, Path, Query};
    use axum::routing::{get, post};
    use std::collections::HashMap;
    use std::net::SocketAddr;

    async fn stream() -> axum::body::Body {
        let pieces = ["ab", "", "cde"].map(|piece| Ok::<_, Error>(Bytes::from(piece)));
        axum::body::Body::from_stream(stream::iter(pieces))
    }
    let router = Router::new()
        .route("/", get("ok"))
        .route("/name/{name}", get(async |Path(name): Path<String>| name))
        .route(
            "/query",
            get(async |Query(query): Query<HashMap<String, String>>| query["a"].clone()),
        )
        .route("/json", post(async |body: axum::Json<serde_json::Value>| body))
        .route("/bytes", post(async |body: Bytes| body))
        .route("/echo", post(async |body: axum::body::Body| body))
        .route("/stream", get(stream))
        .route("/large", get(async || pattern(1_000_000)))
        .route("/version", get(async |version: weft::Version| format!("{version:?}")))
        .route(
            "/peer",
            get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.ip().to_string()),
        )
        .route("/panic", get(async || -> &'static str { panic!("on purpose") }));
    on_every_transport(async |transport| {
        let app = weft::tower::app(router.clone()).connect_info(ConnectInfo);
        let server = transport.serve(app);
        let mut client = server.client().await;
        let version = format!("{:?}", transport.version());
        for (target, status, text) in [
            ("/", 200, "ok"),
            ("/name/d%C3%ADas", 200, "días"),
            ("/query?a=b%20c", 200, "b c"),
            ("/stream", 200, "abcde"),
            ("/version", 200, &*version),
            ("/peer", 200, "127.0.0.1"),
            ("/none", 404, ""),
            ("/json", 405, ""),
        ] {
            let response = client.get(target).await;
            assert_eq!((response.status, response.text()), (status, text), "{target}");
        }
        assert!(client.get("/large").await.body == pattern(1_000_000));
        let json = ClientRequest::post("/json")
            .field("content-type", "application/json")
            .body("{\"a\":1}");
        assert_eq!(client.fetch(json).await.text(), "{\"a\":1}");
        for target in ["/bytes", "/echo"] {
            let response = client.fetch(ClientRequest::post(target).body(pattern(1_000_000))).await;
            assert!(
                response.body == pattern(1_000_000),
                "{target}: received {}",
                response.body.len()
            );
        }
        // Both directions concurrently, followed by trailers.
        let (request, upload) = ClientRequest::post("/echo").field("trailer", "x-sum").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("abc").await);
        let mut response = response_future.read_head().await.unwrap();
        response.read(3).await;
        upload.trailers("x-sum", "17").await;
        drop(upload);
        let response = response.collect().await;
        assert_eq!((response.text(), response.trailer("x-sum")), ("abc", Some("17")));
        assert_eq!(client.get_reconnecting("/panic").await.status, 500);
        assert_eq!(client.get_reconnecting("/").await.text(), "ok");
        server.stop().await;
    });
}

// -- WebSockets

#[cfg(feature = "websocket")]
#[test]
fn websocket_runs_concurrently_with_requests() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    on_every_transport(async |transport| {
        let ends = EventLog::default();
        let app_ends = ends.clone();
        let server = transport.serve(move |request: Request| {
            let ends = app_ends.clone();
            async move {
                match request.path() {
                    "/chat" => weft::websocket::accept(&request, async move |mut socket| {
                        let end = loop {
                            match socket.receive().await {
                                Ok(Some(message)) => {
                                    if let Err(error) = socket.send(message).await {
                                        break Err(error.kind());
                                    }
                                }
                                Ok(None) => break Ok(()),
                                Err(error) => break Err(error.kind()),
                            }
                        };
                        ends.push(format!("{end:?}"));
                    }),
                    _ => Response::text("ok"),
                }
            }
        });
        for (close_by, end) in
            [("close", "Ok(())"), ("disconnect", "Err(Disconnected)"), ("stop", "Ok(())")]
        {
            let before = ends.count(end);
            let mut client = server.client().await;
            // Over HTTP/2 this ensures that SETTINGS_ENABLE_CONNECT_PROTOCOL was received.
            assert_eq!(client.get("/").await.text(), "ok");
            let mut other = client.concurrent_client().await;
            let request = ClientRequest::get("/chat").field("sec-websocket-version", "13");
            let io = client.upgrade(request, "websocket").await.expect("a WebSocket");
            let mut socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
            let messages = [
                Message::text("días"),
                Message::binary(pattern(500_000)),
                Message::text(""),
                Message::binary(pattern(70_000)),
            ];
            for message in messages {
                socket.send(message.clone()).await.unwrap();
                let echoed = tokio::time::timeout(TEST_TIMEOUT, socket.next()).await.unwrap();
                assert!(
                    echoed.unwrap().unwrap() == message,
                    "{close_by}: received another message"
                );
                assert_eq!(other.get("/").await.text(), "ok", "{close_by}");
            }
            match close_by {
                "close" => {
                    socket.close(None).await.unwrap();
                    while let Some(Ok(_)) = socket.next().await {}
                }
                "disconnect" => client.abort(),
                _ => {
                    let stopping = server.shutdown(TEST_TIMEOUT);
                    let message = tokio::time::timeout(TEST_TIMEOUT, socket.next()).await.unwrap();
                    let message = message.unwrap().unwrap();
                    let Message::Close(Some(frame)) = message else { panic!("{message:?}") };
                    assert_eq!(u16::from(frame.code), 1001);
                    while let Some(Ok(_)) = socket.next().await {}
                    wait_until(&format!("{close_by}: {end}"), || ends.count(end) > before).await;
                    stopping.await.unwrap();
                    return;
                }
            }
            drop(socket);
            wait_until(&format!("{close_by}: {end}"), || ends.count(end) > before).await;
        }
    });
}

// -- other protocols

/// Upgrades and tunnels to a handler that echoes its input in upper case, until a full stop.
async fn shout(request: Request) -> Response {
    async fn shout(mut connection: weft::Upgraded) {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = connection.read(&mut buffer).await {
            let written = connection.write_all(&buffer[..length].to_ascii_uppercase()).await;
            if written.is_err()
                || connection.flush().await.is_err()
                || buffer[..length].contains(&b'.')
            {
                break;
            }
        }
    }
    match *request.method() {
        Method::CONNECT => Response::tunnel(shout),
        _ if request.path() == "/shout" => Response::upgrade("shout", shout),
        _ => Response::text("ok"),
    }
}

#[test]
fn switches_protocols_by_upgrade_and_connect() {
    on_every_transport(async |transport| {
        let server = transport.serve(shout);
        for is_tunnel in [false, true] {
            // The client ends the stream, or the handler does after a full stop.
            for sends_stop in [false, true] {
                let case = format!("tunnel: {is_tunnel}, stop: {sends_stop}");
                let mut client = server.client().await;
                assert_eq!(client.get("/").await.text(), "ok");
                let mut other = client.concurrent_client().await;
                let mut io = match is_tunnel {
                    true => client.tunnel().await,
                    false => client.upgrade(ClientRequest::get("/shout"), "shout").await,
                }
                .unwrap_or_else(|status| panic!("{case}: {status}"));
                for text in ["hello", "días"] {
                    io.write_all(text.as_bytes()).await.unwrap();
                    io.flush().await.unwrap();
                    let mut echoed = vec![0; text.len()];
                    io.read_exact(&mut echoed).await.unwrap();
                    assert_eq!(echoed, text.as_bytes().to_ascii_uppercase(), "{case}");
                    assert_eq!(other.get("/").await.text(), "ok", "{case}");
                }
                let last = vec![b'x'; 300_000];
                let (mut read, mut write) = tokio::io::split(io);
                let sending = tokio::spawn(async move {
                    write.write_all(&last).await.unwrap();
                    if sends_stop {
                        write.write_all(b".").await.unwrap();
                        write.flush().await.unwrap();
                    } else {
                        write.shutdown().await.unwrap();
                    }
                    write
                });
                let mut received = Vec::new();
                let read =
                    tokio::time::timeout(TEST_TIMEOUT, read.read_to_end(&mut received)).await;
                let length = 300_000 + usize::from(sends_stop);
                assert_eq!(received.len(), length, "{case}: the last bytes are lost: {read:?}");
                assert!(
                    read.is_ok_and(|read| read.is_ok()),
                    "{case}: the stream does not end cleanly"
                );
                sending.await.unwrap();
                assert_eq!(other.get("/").await.text(), "ok", "{case}");
            }
        }
        // The client requested another protocol than the application upgrades to.
        let mut client = server.client().await;
        client.get("/").await;
        assert_eq!(client.upgrade(ClientRequest::get("/shout"), "whisper").await.err(), Some(500));
        server.stop().await;
    });
}

#[test]
fn upgrade_handler_completes_after_disconnect() {
    on_every_transport(async |transport| {
        let (events, release) = (EventLog::default(), Arc::new(Notify::new()));
        let (app_events, released) = (events.clone(), release.clone());
        let server = transport.serve(move |request: Request| {
            let (app_events, released) = (app_events.clone(), released.clone());
            async move {
                if request.path() == "/" {
                    return Response::text("ok");
                }
                Response::upgrade("wait", async move |mut connection| {
                    app_events.push("started");
                    let mut buffer = [0; 10];
                    while let Ok(1..) = connection.read(&mut buffer).await {}
                    app_events.push("disconnected");
                    released.notified().await;
                    app_events.push("completed");
                })
            }
        });
        for (number, abort) in ABORTS.into_iter().enumerate() {
            let mut client = server.client().await;
            client.get("/").await;
            let io = client.upgrade(ClientRequest::get("/wait"), "wait").await.unwrap();
            wait_until("the handler starts", || events.count("started") == number + 1).await;
            let _client = abort.apply(client, io);
            wait_until("the handler sees the disconnect", || {
                events.count("disconnected") == number + 1
            })
            .await;
            assert_eq!(server.client().await.get("/").await.text(), "ok");
            release.notify_one();
            wait_until("the handler completes", || events.count("completed") == number + 1).await;
        }
        server.stop().await;
    });
}

// -- stopping

#[test]
fn shutdown_finishes_active_requests_and_closes_idle_connections() {
    on_every_transport(async |transport| {
        let (started, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (count, released) = (started.clone(), release.clone());
        let server = transport.serve(move |request: Request| {
            let (count, released) = (count.clone(), released.clone());
            async move {
                if request.path() == "/slow" {
                    count.fetch_add(1, SeqCst);
                    released.notified().await;
                }
                Response::text("done")
            }
        });
        let address = server.address;
        let (mut idle, mut busy, fresh) =
            (server.client().await, server.client().await, server.client().await);
        assert_eq!(idle.get("/").await.text(), "done");
        assert_eq!(busy.get("/").await.text(), "done");
        let response_future = busy.send(ClientRequest::get("/slow")).await;
        wait_until("the call starts", || started.load(SeqCst) == 1).await;
        let stopping = server.shutdown(TEST_TIMEOUT);
        idle.wait_closed().await;
        fresh.wait_closed().await;
        while Client::try_connect(transport, address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!stopping.is_finished(), "a request is still active");
        release.notify_one();
        assert_eq!(response_future.collect().await.text(), "done");
        busy.wait_closed().await;
        stopping.await.unwrap();
    });
}

#[test]
fn shutdown_aborts_requests_after_the_grace_period() {
    on_every_transport(async |transport| {
        let started = Arc::new(AtomicUsize::new(0));
        let count = started.clone();
        let server = transport.serve(move |_: Request| {
            count.fetch_add(1, SeqCst);
            pending::<Response>()
        });
        let mut client = server.client().await;
        let response_future = client.send(ClientRequest::get("/")).await;
        wait_until("the call starts", || started.load(SeqCst) == 1).await;
        server.shutdown(Duration::from_millis(50)).await.unwrap();
        let error = response_future.try_collect().await.expect_err("the request is aborted");
        assert_eq!(error.status, None);
        client.wait_closed().await;
    });
}

#[test]
fn shutdown_notifies_response_streams() {
    on_every_transport(async |transport| {
        let server = transport.serve(async |request: Request| {
            let mut shutdown = request.shutdown();
            let last = async move {
                shutdown.requested().await;
                Ok::<_, Error>(Bytes::from("goodbye"))
            };
            let first = async { Ok(Bytes::from("hello ")) };
            Response::body(Body::stream(stream::once(first).chain(stream::once(last))))
        });
        let mut client = server.client().await;
        let mut response = client.send(ClientRequest::get("/")).await.read_head().await.unwrap();
        assert_eq!(response.read(6).await, b"hello ");
        let stopping = server.shutdown(TEST_TIMEOUT);
        assert_eq!(response.collect().await.text(), "hello goodbye");
        client.wait_closed().await;
        stopping.await.unwrap();
    });
}

#[test]
fn shutdown_completes_uploads() {
    on_every_transport(async |transport| {
        let server = transport.serve(echo);
        let mut client = server.client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("hello ").await);
        let mut response = response_future.read_head().await.unwrap();
        response.read(6).await;
        let address = server.address;
        let stopping = server.shutdown(TEST_TIMEOUT);
        while Client::try_connect(transport, address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(upload.send("goodbye").await);
        drop(upload);
        assert_eq!(response.collect().await.text(), "hello goodbye");
        client.wait_closed().await;
        stopping.await.unwrap();
    });
}

// -- many requests

#[test]
fn slow_request_does_not_block_others() {
    on_every_transport(async |transport| {
        let release = Arc::new(Notify::new());
        let released = release.clone();
        let server = transport.serve(move |request: Request| {
            let released = released.clone();
            async move {
                if request.path() == "/slow" {
                    released.notified().await;
                }
                Response::text(request.path().to_owned())
            }
        });
        let mut client = server.client().await;
        let mut other = client.concurrent_client().await;
        let slow = client.send(ClientRequest::get("/slow")).await;
        for number in 0..50 {
            assert_eq!(other.get(&format!("/{number}")).await.text(), format!("/{number}"));
        }
        release.notify_one();
        assert_eq!(slow.collect().await.text(), "/slow");
        assert_eq!(client.get("/last").await.text(), "/last");
        server.stop().await;
    });
}

#[test]
fn stalled_bodies_do_not_block_others() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/unread" => {
                let _body = request.into_body();
                pending().await
            }
            "/endless" => Response::body(Body::from_http_body(Frames(|_: &mut Context<'_>| {
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 10_000])))))
            }))),
            _ => Response::body(request.into_body()),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        let mut stalled = Vec::new();
        for _ in 0..2 {
            // Uploads not read by the application.
            let (request, upload) = ClientRequest::post("/unread").upload();
            let mut uploader = client.concurrent_client().await;
            let response_future = uploader.send(request).await;
            let sending = tokio::spawn(async move { while upload.send(vec![0; 50_000]).await {} });
            // Downloads not read by the client.
            let mut downloader = client.concurrent_client().await;
            let response =
                downloader.send(ClientRequest::get("/endless")).await.read_head().await.unwrap();
            stalled.push((uploader, response_future, sending, downloader, response));
        }
        for size in [0, 10, 1_000_000, 3_000_000] {
            let response = client.fetch(ClientRequest::post("/").body(pattern(size))).await;
            assert!(response.body == pattern(size), "{size}: received {}", response.body.len());
        }
        stalled.iter().for_each(|(_, _, sending, _, _)| sending.abort());
        drop(stalled);
        server.stop().await;
    });
}

#[test]
fn head_request_drops_the_response_stream() {
    on_every_transport(async |transport| {
        let alive = CloneCounter::new();
        let app_guard = alive.clone();
        let server = transport.serve(move |request: Request| {
            let stream_guard = app_guard.clone();
            async move {
                if request.path() == "/" {
                    return Response::text("ok");
                }
                Response::body(Body::from_http_body(Frames(move |_: &mut Context<'_>| {
                    let _ = &stream_guard;
                    Poll::Pending
                })))
            }
        });
        let idle = alive.count();
        let mut client = server.client().await;
        for _ in 0..3 {
            let response = client.fetch(ClientRequest::new("HEAD", "/stream")).await;
            assert_eq!((response.status, response.body.len()), (200, 0));
            wait_until("the stream is dropped", || alive.count() == idle).await;
        }
        assert_eq!(client.get("/").await.text(), "ok");
        server.stop().await;
    });
}

/// Hooks that handle errors only.
struct NoRecords(EventLog);

impl Hooks for NoRecords {
    fn on_error(&self, peer: &Peer, error: &Error) {
        self.0.on_error(peer, error);
    }

    fn needs_records(&self) -> bool {
        false
    }

    fn on_response(&self, record: &Record<'_>) {
        self.0.on_response(record);
    }
}

#[test]
fn hooks_without_records_receive_none() {
    on_every_transport(async |transport| {
        let (_sender, app) = scripted_body_app();
        let events = EventLog::default();
        let hooks = events.clone();
        let server = boxed_server(app).workers(1).hooks(move || NoRecords(hooks.clone()));
        let server = transport.start(server);
        assert_eq!(server.client().await.get("/panic").await.status, 500);
        assert_eq!(server.client().await.get("/bytes?x").await.status, 500);
        server.stop().await;
        assert_eq!(events.all(), ["Application Panicked", "Application LengthMismatch"]);
    });
}

#[test]
fn serves_a_thousand_requests_on_one_connection() {
    on_every_transport(async |transport| {
        let (server, events) =
            serve_with_event_log(transport, Settings::default(), async |request: Request| {
                Response::text(request.query().unwrap_or_default().to_owned())
            });
        let mut client = server.client().await;
        for number in 0..1_000 {
            let response = client.get(&format!("/?{number}")).await;
            assert_eq!(response.text(), number.to_string());
        }
        assert_eq!(events.count("opened true"), 1);
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn serves_a_hundred_concurrent_requests() {
    on_every_transport(async |transport| {
        // No response is sent before all requests were received.
        let barrier = Arc::new(tokio::sync::Barrier::new(100));
        let server = transport.serve(move |request: Request| {
            let barrier = barrier.clone();
            async move {
                barrier.wait().await;
                Response::body(request.into_body())
            }
        });
        let client = server.client().await;
        let mut requests = Vec::new();
        for number in 0..100_usize {
            let mut client = client.concurrent_client().await;
            requests.push(tokio::spawn(async move {
                let length = 1_000 * (number % 50);
                let body = pattern(number + length)[number..].to_vec();
                let response = client.fetch(ClientRequest::post("/").body(body.clone())).await;
                assert!(
                    response.body == body,
                    "{number}: received {} of {length}",
                    response.body.len()
                );
            }));
        }
        for request in requests {
            request.await.unwrap();
        }
        server.stop().await;
    });
}

#[test]
fn hooks_see_each_connection_and_response_once() {
    on_every_transport(async |transport| {
        let (server, events) =
            serve_with_event_log(transport, Settings::default(), async |request: Request| {
                match request.path() {
                    "/stream" => Response::body(pieces(["ab", "cde"])),
                    "/large" => Response::body(pattern(300_000)),
                    "/file" => Response::file(File::open(file(b"0123456789")).unwrap()),
                    "/204" => Response::new(StatusCode::NO_CONTENT),
                    _ => Response::not_found(),
                }
            });
        for _ in 0..3 {
            let mut client = server.client().await;
            for target in ["/stream", "/large", "/file", "/204", "/none"] {
                client.get(target).await;
            }
            client.fetch(ClientRequest::new("HEAD", "/large")).await;
        }
        wait_until("all connections are closed", || events.count("closed") == 3).await;
        let mut recorded = events.all();
        recorded.sort();
        let expected = [
            ("/204 204 0", 3),
            ("/file 200 10", 3),
            ("/large 200 0", 3),
            ("/large 200 300000", 3),
            ("/none 404 14", 3),
            ("/stream 200 5", 3),
            ("closed", 3),
            ("opened true", 3),
        ];
        let expected = expected.into_iter().flat_map(|(event, times)| vec![event; times]);
        assert_eq!(recorded, expected.collect::<Vec<_>>());
        server.stop().await;
    });
}

#[test]
fn hooks_can_reject_a_connection() {
    struct RejectAll;
    impl Hooks for RejectAll {
        fn on_open(&self, _: &Peer) -> bool {
            false
        }
    }
    on_every_transport(async |transport| {
        let server = transport.start(boxed_server(echo).workers(1).hooks(|| RejectAll));
        if let Ok(mut client) = Client::try_connect(transport, server.address).await {
            let try_collect = client.send(ClientRequest::get("/")).await.try_collect().await;
            assert_eq!(try_collect.expect_err("the connection is rejected").status, None);
        }
        server.stop().await;
    });
}
