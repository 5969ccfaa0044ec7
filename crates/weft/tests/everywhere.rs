//! What applications and clients see is the same over every transport: each case runs over
//! all of them.

#[path = "common/clients.rs"]
mod clients;
mod common;

use std::fs;
use std::future::pending;
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clients::{Ask, Client, Cut, Reply, Site, Transport, everywhere, until};
use common::tree::{Tree, pattern};
use common::{PATIENCE, SHORT, quick};
use futures_util::{StreamExt, stream};
use http_body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use weft::middleware::{CatchPanic, Compress, Log, RateLimit, Timeout};
use weft::sse::{self, Event};
use weft::{
    Application, Body, Directory, DirectorySettings, Disconnect, Error, ErrorKind, File,
    HeaderName, HeaderValue, Hooks, Method, Peer, Record, Request, Response, Server, Settings,
    StatusCode, header,
};

// -- what applications are made of

async fn echo(request: Request) -> Response {
    match *request.method() {
        Method::GET => Response::text("ok"),
        _ => Response::body(request.into_body()),
    }
}

/// A body of these pieces, whose length is not known.
fn pieces(pieces: impl IntoIterator<Item = &'static str>) -> Body {
    let pieces: Vec<_> = pieces.into_iter().map(Ok::<_, Error>).collect();
    Body::stream(stream::iter(pieces.into_iter().map(|piece| piece.map(Bytes::from))))
}

/// A body of what is sent, which ends when the sender is dropped, or fails.
fn by_hand() -> (mpsc::Sender<Result<Bytes, Error>>, Body) {
    let (sender, mut receiver) = mpsc::channel(1);
    (sender, Body::stream(stream::poll_fn(move |cx| receiver.poll_recv(cx))))
}

/// A body whose frames a function makes.
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

/// A body of one piece, and trailers behind it.
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

/// Counts how many values of its clones are alive.
#[derive(Clone)]
struct Alive(Arc<()>);

impl Alive {
    fn new() -> Alive {
        Alive(Arc::new(()))
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// What was noted, in order.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn say(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|said| *said == what).count()
    }

    fn has(&self, what: &str) -> bool {
        self.count(what) > 0
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until something was said.
    async fn until(&self, what: &str) {
        until(what, || self.has(what)).await;
    }
}

/// As hooks, they note what they are told.
impl Hooks for Notes {
    fn opened(&self, peer: &Peer) -> bool {
        self.say(format!("opened {}", peer.address().is_some()));
        true
    }

    fn closed(&self, _: &Peer) {
        self.say("closed");
    }

    fn error(&self, _: &Peer, error: &Error) {
        self.say(format!("{:?} {:?}", error.kind().fault(), error.kind()));
    }

    fn answered(&self, record: &Record<'_>) {
        let target = record.head.map_or("-", |head| head.target());
        let end = match record.error {
            Some(error) => format!(" {:?}", error.kind()),
            None => String::new(),
        };
        self.say(format!("{target} {} {}{end}", record.status.as_u16(), record.body_bytes));
    }
}

/// Serves an application, and notes what the hooks are told.
fn serve_noting<A>(via: Transport, settings: Settings, app: A) -> (Site, Notes)
where
    A: Application + Clone + Send + 'static,
{
    let notes = Notes::default();
    let hooks = notes.clone();
    let server = Server::new(app).settings(settings).workers(1).hooks(move || hooks.clone());
    (via.start(server), notes)
}

// -- responses

#[test]
fn payloads_of_every_kind_to_get_and_head() {
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
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        for (target, status, length, body) in cases {
            let get = client.get(target).await;
            assert_eq!((get.status, get.version), (*status, via.version()), "{target}");
            assert_eq!(get.field("content-length"), *length, "{target}");
            assert!(get.body == *body, "{target}: {} other bytes came", get.body.len());
            let head = client.ask(Ask::new("HEAD", *target)).await;
            assert_eq!(head.status, *status, "HEAD {target}");
            // A file that is made for each request has another tag each time.
            if !target.contains("file") {
                assert_eq!(head.fields_but_date(), get.fields_but_date(), "HEAD {target}");
            }
            assert_eq!(head.field("content-length"), *length, "HEAD {target}");
            assert_eq!(head.body, b"", "HEAD {target}");
        }
        // All that over one connection.
        assert!(!client.is_closed());
        site.stop().await;
    });
}

#[test]
fn large_bodies_arrive_whole_among_small_ones() {
    async fn app(request: Request) -> Response {
        Response::body(pattern(request.path()[1..].parse().unwrap()))
    }
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        for length in [0, 1, 16_383, 16_384, 16_385, 65_535, 65_536, 5_000_000, 3, 100_000, 7] {
            let body = client.get(&format!("/{length}")).await.body;
            assert!(body == pattern(length), "{length}: {} came", body.len());
        }
        site.stop().await;
    });
}

#[test]
fn a_stream_is_sent_as_it_comes() {
    everywhere(async |via| {
        let (sender, body) = by_hand();
        let body = Mutex::new(Some(body));
        let body = Arc::new(body);
        let site = via.serve(move |_: Request| {
            let body = body.lock().unwrap().take().expect("one request");
            async { Response::body(body) }
        });
        let mut client = site.client().await;
        // The head comes before there is any body.
        let mut response = client.send(Ask::get("/")).await.begin().await.unwrap();
        let mut length = 0;
        for part in ["first", "second", "third"] {
            sender.send(Ok(Bytes::from(part))).await.unwrap();
            length += part.len();
            assert!(response.read(length).await.ends_with(part.as_bytes()));
        }
        drop(sender);
        assert_eq!(response.reply().await.text(), "firstsecondthird");
        site.stop().await;
    });
}

#[test]
fn trailers_of_responses() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/sized" => Response::body(with_trailers("abc", &[(header::ETAG, "\"e\"")]))
                .with_header(header::CONTENT_LENGTH, "3"),
            _ => Response::body(with_trailers("abc", &[(header::ETAG, "\"e\"")])),
        }
    }
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        let reply = client.get("/").await;
        assert_eq!((reply.text(), reply.trailer("etag")), ("abc", Some("\"e\"")));
        // HTTP/1 has no room for them behind a body whose length was said.
        let reply = client.get("/sized").await;
        let trailer = via.is_http2().then_some("\"e\"");
        assert_eq!((reply.text(), reply.trailer("etag")), ("abc", trailer));
        assert_eq!(client.get("/").await.status, 200);
        site.stop().await;
    });
}

#[test]
fn statuses_without_a_body_have_none() {
    async fn app(request: Request) -> Response {
        let status = request.path()[1..].parse::<u16>().unwrap();
        Response::text("there is none").with_status(StatusCode::from_u16(status).unwrap())
    }
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        for status in [204, 304, 204] {
            let reply = client.get(&format!("/{status}")).await;
            assert_eq!((reply.status, reply.text()), (status, ""));
        }
        assert_eq!(client.get("/200").await.text(), "there is none");
        // An interim status cannot end an exchange.
        assert_eq!(client.get_anew("/101").await.status, 500);
        assert_eq!(client.get_anew("/103").await.status, 500);
        assert_eq!(client.get_anew("/200").await.status, 200);
        site.stop().await;
    });
}

#[test]
fn date_and_server_are_the_engines_unless_they_are_set() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/own" => Response::text("ok")
                .with_header(header::DATE, "Sun, 06 Nov 1994 08:49:37 GMT")
                .with_header(header::SERVER, "own"),
            _ => Response::text("ok"),
        }
    }
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        for (target, server) in [("/", "weft"), ("/own", "own")] {
            let reply = client.get(target).await;
            assert_eq!(reply.field("server"), Some(server));
            assert_eq!(reply.fields.get_all("server").iter().count(), 1);
            assert_eq!(reply.fields.get_all("date").iter().count(), 1);
            let date = reply.field("date").unwrap();
            assert_eq!(date == "Sun, 06 Nov 1994 08:49:37 GMT", target == "/own", "{date}");
            assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
        }
        site.stop().await;
        let settings = Settings { server_name: String::new(), ..Settings::default() };
        let site = via.serve_with(settings, app);
        assert_eq!(site.client().await.get("/").await.field("server"), None);
        site.stop().await;
    });
}

#[test]
fn fields_of_responses_cannot_break_out() {
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
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        let reply = client.get("/controls").await;
        assert_eq!(reply.field("x-a"), Some("1  x-b: 2   3"));
        assert_eq!(reply.field("x-b"), None);
        assert_eq!(reply.fields["x-c"].as_bytes(), "días\t1".as_bytes());
        assert_eq!(reply.field("x-d"), Some(""));
        let reply = client.get("/repeated").await;
        let cookies: Vec<_> = reply.fields.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
        for name in ["transfer-encoding", "content-length", "connection"] {
            let reply = client.get(&format!("/{name}")).await;
            assert_eq!((reply.status, reply.text()), (200, "ok"), "{name}");
            assert_eq!(reply.field("content-length"), Some("2"), "{name}");
            assert_eq!(reply.field("transfer-encoding"), None, "{name}");
            assert_eq!(reply.field("connection"), None, "{name}");
        }
        // RFC 9113 §8.2.2: a connection's fields are malformed over HTTP/2.
        for name in ["keep-alive", "proxy-connection", "te", "upgrade"] {
            let reply = client.get(&format!("/{name}")).await;
            assert_eq!((reply.status, reply.text()), (200, "ok"), "{name}");
            assert_eq!(reply.field(name).is_none(), via.is_http2(), "{name}");
        }
        assert!(!client.is_closed());
        site.stop().await;
    });
}

#[test]
fn fields_that_come_from_another_message() {
    async fn app(request: Request) -> Response {
        let own = |name: &'static str| HeaderName::from_static(name);
        let names = [&b"x-a"[..], b"date", b"server"];
        let theirs = request
            .headers()
            .filter(|name, _| names.iter().any(|it| it.eq_ignore_ascii_case(name)));
        let mut response = Response::body("ok").with_headers(theirs.clone());
        match request.path() {
            "/more" => response
                .with_header(header::VIA, "1.1 a")
                .with_value(header::VIA, HeaderValue::from_static("1.1 b")),
            "/behind" => Response::body("ok").with_header(own("x-a"), "0").with_headers(theirs),
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
                let response = response.with_header(own("x-a"), "3").with_headers(theirs);
                response.with_header(own("x-seen"), seen.unwrap())
            }
            _ => response,
        }
    }
    everywhere(async |via| {
        let site = via.serve(app);
        for (target, values, vias) in [
            ("/", &["1", "2"][..], &[][..]),
            ("/more", &["1", "2"], &["1.1 a", "1.1 b"]),
            ("/behind", &["0", "1", "2"], &[]),
            ("/set", &["3"], &[]),
            ("/removed", &[], &[]),
            ("/seen", &["1", "2", "3", "1", "2"], &[]),
        ] {
            let ask = Ask::get(target).field("x-a", "1").field("x-a", "2");
            let ask = ask.field("date", "then").field("server", "theirs").field("x-b", "no");
            let mut client = site.client().await;
            let reply = client.ask(ask).await;
            let all = |name| {
                let values = reply.fields.get_all(name).iter();
                values.map(|value| value.to_str().unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(reply.text(), "ok", "{target}");
            assert_eq!((all("x-a"), all("via")), (values.to_vec(), vias.to_vec()), "{target}");
            // "/seen" has them twice.
            assert_eq!(all("date")[0], "then", "{target}");
            assert_eq!(all("server")[0], "theirs", "{target}");
            assert_eq!(reply.field("x-seen"), (target == "/seen").then_some("1"), "{target}");
            assert_eq!(reply.field("x-b"), None, "{target}");
        }
        site.stop().await;
    });
}

#[test]
fn trailers_that_frame_a_message_do_no_harm() {
    async fn app(request: Request) -> Response {
        let name: HeaderName = request.path()[1..].parse().unwrap();
        Response::body(with_trailers("abc", &[(name, "1"), (header::ETAG, "\"e\"")]))
    }
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        for name in ["connection", "transfer-encoding", "content-length", "keep-alive", "te"] {
            let reply = client.get(&format!("/{name}")).await;
            assert_eq!((reply.text(), reply.trailer("etag")), ("abc", Some("\"e\"")), "{name}");
            // Over HTTP/1 only the first three say something of the message.
            let may_be_there = ["keep-alive", "te"].contains(&name) && !via.is_http2();
            assert_eq!(reply.trailer(name).is_some(), may_be_there, "{name}");
        }
        site.stop().await;
    });
}

// -- requests

#[test]
fn what_an_application_sees_of_a_request() {
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
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        for (ask, expected) in [
            (Ask::get("/"), "GET / [] None x-a:  cookie: "),
            (
                Ask::get("/buenos/d%C3%ADas/?a=b%20c&d"),
                "GET /buenos/d%C3%ADas/?a=b%20c&d [\"buenos\", \"días\", \"\"] \
                 Some(\"a=b%20c&d\") x-a:  cookie: ",
            ),
            (
                Ask::new("PURGE", "//a/../b?").field("x-a", "1").field("x-a", "días"),
                "PURGE //a/../b? [\"\", \"a\", \"..\", \"b\"] Some(\"\") \
                 x-a: 1|d\\xc3\\xadas cookie: ",
            ),
            (
                Ask::get("/").field("cookie", "a=1; b=2").field("x-a", ""),
                "GET / [] None x-a:  cookie: a=1; b=2",
            ),
        ] {
            assert_eq!(client.ask(ask).await.text(), expected);
        }
        site.stop().await;
    });
}

#[test]
fn what_an_application_sees_of_a_connection() {
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
    everywhere(async |via| {
        let site = via.serve(app);
        let secure = match via {
            Transport::Http1 | Transport::Http2 => "false http None",
            Transport::Http1Tls => "true https Some(\"http/1.1\")",
            Transport::Http2Tls => "true https Some(\"h2\")",
        };
        let host = "Some(\"a\") Some(\"a\") Some(\"a\")";
        let expected = format!("{:?} {host} {secure} Some(\"127.0.0.1\")", via.version());
        assert_eq!(site.client().await.get("/").await.text(), expected);
        site.stop().await;
    });
}

#[test]
fn heads_that_are_too_large_are_refused() {
    everywhere(async |via| {
        let settings = Settings { max_request_line_bytes: 200, ..Settings::default() };
        let site = via.serve_with(settings, echo);
        let mut ok = site.client().await;
        for (ask, status) in [
            (Ask::get(format!("/{}", "x".repeat(300))), 414),
            (Ask::get("/").field("x", "y".repeat(20_000)), 431),
            ((0..101).fold(Ask::get("/"), |ask, n| ask.field("x", n.to_string())), 431),
            ((0..90).fold(Ask::get("/"), |ask, n| ask.field("x", n.to_string())), 200),
        ] {
            let mut client = site.client().await;
            let reply = client.ask(ask).await;
            assert_eq!(reply.status, status);
            assert_eq!(ok.get("/").await.text(), "ok");
        }
        site.stop().await;
    });
}

// -- bodies of requests

#[test]
fn bodies_of_requests_come_whole() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        let length = format!("{:?}", request.body().length());
        let body = request.into_body().collect(1 << 20).await?;
        Ok(Response::body(body).with_header(HeaderName::from_static("x-length"), length))
    }
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        for size in [0, 1, 100, 16_384, 65_535, 65_536, 500_000] {
            let reply = client.ask(Ask::post("/").body(pattern(size))).await;
            assert!(reply.body == pattern(size), "{size}: {} came", reply.body.len());
            assert_eq!(reply.field("x-length"), Some(&*format!("Some({size})")));

            let (ask, upload) = Ask::post("/").upload();
            let coming = client.send(ask).await;
            for piece in pattern(size).chunks(10_007) {
                assert!(upload.send(piece.to_vec()).await);
            }
            drop(upload);
            let reply = coming.reply().await;
            assert!(reply.body == pattern(size), "{size}: {} came in pieces", reply.body.len());
            assert_eq!(reply.field("x-length"), Some("None"), "{size}");
        }
        // A request without a body has one of no bytes.
        let reply = client.ask(Ask::new("GET", "/")).await;
        assert_eq!(reply.field("x-length"), Some("Some(0)"));
        site.stop().await;
    });
}

#[test]
fn a_body_is_echoed_while_it_comes() {
    everywhere(async |via| {
        let site = via.serve(echo);
        let mut client = site.client().await;
        let (ask, upload) = Ask::post("/").upload();
        let coming = client.send(ask).await;
        assert!(upload.send("zero").await);
        let mut response = coming.begin().await.unwrap();
        let mut expected = b"zero".to_vec();
        // Each piece is back before the next one is sent.
        for piece in ["one", "two", "three"] {
            response.read(expected.len()).await;
            expected.extend_from_slice(piece.as_bytes());
            assert!(upload.send(piece).await);
        }
        drop(upload);
        assert_eq!(response.reply().await.body, expected);

        // Both directions at once, far more than any window or buffer.
        let whole = pattern(5 << 20);
        let (ask, upload) = Ask::post("/").upload();
        let coming = client.send(ask).await;
        let sent = whole.clone();
        let sending = tokio::spawn(async move {
            for piece in sent.chunks(50_000) {
                assert!(upload.send(piece.to_vec()).await);
            }
        });
        let came = coming.reply().await.body;
        assert!(came == whole, "{} of {} came back", came.len(), whole.len());
        sending.await.unwrap();
        assert_eq!(client.get("/").await.text(), "ok");
        site.stop().await;
    });
}

#[test]
fn trailers_of_requests() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        if request.path() == "/echo" {
            return Ok(Response::body(request.into_body()));
        }
        assert!(request.body().trailers().is_none(), "they cannot have come yet");
        while request.body().chunk().await?.is_some() {}
        let trailers = request.body().trailers().and_then(|trailers| trailers.get("x-sum"));
        Ok(Response::text(trailers.unwrap_or("none").to_owned()))
    }
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        for (target, text, trailer) in
            [("/read", "17", None), ("/echo", "abc", Some("17")), ("/none", "none", None)]
        {
            let (ask, upload) = Ask::post(target).field("trailer", "x-sum").upload();
            let coming = client.send(ask).await;
            assert!(upload.send("abc").await);
            if target != "/none" {
                upload.trailers("x-sum", "17").await;
            }
            drop(upload);
            let reply = coming.reply().await;
            assert_eq!((reply.text(), reply.trailer("x-sum")), (text, trailer), "{target}");
        }
        site.stop().await;
    });
}

#[test]
fn a_body_may_be_read_in_another_thread() {
    async fn elsewhere(request: Request) -> weft::Result<Response> {
        let body = request.into_body();
        let (sender, answer) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = sender.send(runtime.block_on(body.collect(4 << 20)));
        });
        let body = answer.await.expect("the thread answers")?;
        Ok(Response::text(format!("{}", body.len())))
    }
    everywhere(async |via| {
        let site = via.serve(elsewhere);
        let mut client = site.client().await;
        for size in [3_000_000, 3] {
            let (ask, upload) = Ask::post("/").upload();
            let coming = client.send(ask).await;
            for piece in pattern(size).chunks(30_000) {
                assert!(upload.send(piece.to_vec()).await);
            }
            drop(upload);
            assert_eq!(coming.reply().await.text(), size.to_string());
        }
        site.stop().await;
    });
}

#[test]
fn a_body_that_is_not_read_is_in_nobodys_way() {
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
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        // What is small is passed over, and the connection goes on.
        for target in ["/unread", "/partly"] {
            let reply = client.ask(Ask::post(target).body(pattern(20_000))).await;
            assert_eq!(reply.text(), &target[1..]);
            assert_eq!(client.get("/").await.text(), "ok");
        }
        // Of what is large the client is told in the response; the next one asks anew. More
        // than the window of a connection: what is thrown away must not use it up.
        for number in 0..20 {
            let target = ["/unread", "/partly"][number % 2];
            let (ask, upload) = Ask::post(target).upload();
            let coming = client.send(ask).await;
            let sending = tokio::spawn(async move {
                for _ in 0..30 {
                    if !upload.send(vec![b'x'; 10_000]).await {
                        break;
                    }
                }
            });
            let reply = coming.reply().await;
            assert_eq!(reply.text(), &target[1..], "{number}");
            sending.await.unwrap();
            assert_eq!(client.get_anew("/").await.text(), "ok", "{number}");
        }
        site.stop().await;
    });
}

#[test]
fn a_response_arrives_whole_though_the_client_still_sends() {
    async fn app(request: Request) -> Response {
        let mut reading = Some(request.into_body());
        let mut left = 100;
        // It stops reading while the response is under way.
        let frames = Frames(move |cx: &mut Context<'_>| {
            if let Some(body) = &mut reading {
                if body.poll_chunk(cx).is_pending() {
                    return Poll::Pending;
                }
                reading = None;
            }
            left -= 1;
            let frame = || Ok(Frame::data(Bytes::from_static(&[b'y'; 10_000])));
            Poll::Ready((left > 0).then(frame))
        });
        Response::body(Body::from_http_body(frames))
    }
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        let (ask, upload) = Ask::post("/").field("content-length", "5000000").upload();
        let coming = client.send(ask).await;
        let sending = tokio::spawn(async move {
            for _ in 0..100 {
                if !upload.send(vec![b'x'; 50_000]).await {
                    break;
                }
            }
        });
        assert_eq!(coming.reply().await.body.len(), 990_000);
        sending.await.unwrap();
        site.stop().await;
    });
}

#[test]
fn a_slow_application_slows_its_client_down() {
    everywhere(async |via| {
        // The application takes one chunk, and then waits for a word.
        let (taken, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (count, word) = (taken.clone(), go_on.clone());
        let app = move |mut request: Request| {
            let (count, word) = (count.clone(), word.clone());
            async move {
                while let Some(chunk) = request.body().chunk().await? {
                    if count.fetch_add(chunk.len(), SeqCst) == 0 {
                        word.notified().await;
                    }
                }
                Ok::<_, Error>(Response::text(format!("{}", count.load(SeqCst))))
            }
        };
        let site = via.serve_with(Settings { max_body_bytes: 1 << 30, ..Settings::default() }, app);
        let mut client = site.client().await;
        let (ask, upload) = Ask::post("/").upload();
        let coming = client.send(ask).await;
        let piece = Bytes::from(vec![b'x'; 256 << 10]);
        let most = 256;
        // The kernel's buffers and the window take some, then nothing goes any more.
        let mut sent = upload.send_until_held_back(piece.clone(), most).await;
        assert!(sent < most, "all was taken, though nobody read it");
        let before = taken.load(SeqCst);
        assert!((1..=128 << 10).contains(&before), "{before} bytes were read for one chunk");
        go_on.notify_one();
        while sent < most {
            assert!(upload.send(piece.clone()).await);
            sent += 1;
        }
        drop(upload);
        assert_eq!(coming.reply().await.text(), (most * piece.len()).to_string());
        site.stop().await;
    });
}

#[test]
fn a_client_that_does_not_read_costs_bounded_memory_and_is_cut() {
    everywhere(async |via| {
        let made = Arc::new(AtomicUsize::new(0));
        let alive = Alive::new();
        let (count, of_app) = (made.clone(), alive.clone());
        let app = move |_: Request| {
            let (count, of_stream) = (count.clone(), of_app.clone());
            async move {
                Response::body(Body::from_http_body(Frames(move |_: &mut Context<'_>| {
                    let _ = &of_stream;
                    count.fetch_add(16_000, SeqCst);
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16_000])))))
                })))
            }
        };
        let (site, notes) = serve_noting(via, quick(), app);
        let idle = alive.count();
        // Whom the machine holds up may be cut before it has read the head: then once more.
        let (_client, response) = loop {
            made.store(0, SeqCst);
            let mut client = site.client().await;
            let begun = client.send(Ask::get("/")).await.begin().await;
            let is_alive = alive.count() > idle;
            if let (Ok(response), true) = (begun, is_alive) {
                break (client, response);
            }
            until("the stream is cut", || alive.count() == idle).await;
        };
        until("the stream is cut", || alive.count() == idle).await;
        notes.until("Peer TooSlow").await;
        let made = made.load(SeqCst);
        // What the windows or the kernel's buffers hold on both sides, and little more.
        assert!(made < 32 << 20, "{made} bytes were made for nobody");
        let cut = response.outcome().await.expect_err("it must not look whole");
        assert!(cut.body.len() <= made, "{} of {made}", cut.body.len());
        site.stop().await;
    });
}

#[test]
fn a_body_kept_beyond_its_response_holds_up_no_other_request() {
    everywhere(async |via| {
        let kept: Arc<Mutex<Vec<Body>>> = Arc::default();
        let keep = kept.clone();
        let site = via.serve(move |request: Request| {
            if *request.method() == Method::POST {
                keep.lock().unwrap().push(request.into_body());
            }
            async { Response::text("ok") }
        });
        let mut client = site.client().await;
        let mut other = client.beside().await;
        let (ask, upload) = Ask::post("/").upload();
        let coming = client.send(ask).await;
        assert!(upload.send("hello").await);
        let response = coming.begin().await.unwrap();
        assert_eq!(response.head().status, 200);
        assert_eq!(other.get("/").await.text(), "ok");
        kept.lock().unwrap().clear();
        drop(upload);
        assert_eq!(response.reply().await.text(), "ok");
        assert_eq!(client.get_anew("/").await.text(), "ok");
        site.stop().await;
    });
}

#[test]
fn a_body_too_large_is_refused_wherever_that_is_noticed() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        match request.path() {
            "/less" => request.body().set_limit(5),
            "/more" => request.body().set_limit(20),
            _ => {}
        }
        Ok(Response::body(request.into_body().collect(100).await?))
    }
    everywhere(async |via| {
        let settings = Settings { max_body_bytes: 10, ..Settings::default() };
        let site = via.serve_with(settings, app);
        let mut client = site.client().await;
        for (target, most) in [("/", 10), ("/less", 5), ("/more", 20)] {
            for (size, status) in [(most, 200), (most + 1, 413)] {
                let case = format!("{size} to {target}");
                let sized = client.send(Ask::post(target).body(pattern(size))).await;
                assert_eq!(sized.reply().await.status, status, "{case}");
                // Without a length it turns out on the way.
                client.get_anew(target).await;
                let (ask, upload) = Ask::post(target).upload();
                let coming = client.send(ask).await;
                for piece in pattern(size).chunks(3) {
                    upload.send(piece.to_vec()).await;
                }
                drop(upload);
                assert_eq!(coming.reply().await.status, status, "{case} in pieces");
                client.get_anew(target).await;
            }
        }
        // Of a length that is too large nothing needs to come.
        let (ask, upload) = Ask::post("/").field("content-length", "11").upload();
        let coming = client.send(ask).await;
        assert_eq!(coming.reply().await.status, 413);
        drop(upload);
        site.stop().await;
    });
}

// -- interim responses

#[test]
fn continue_is_said_when_the_application_reads_and_not_before() {
    async fn app(request: Request) -> weft::Result<Response> {
        match request.path() {
            "/unread" => Ok(Response::text("no, thanks")),
            "/echo" => Ok(Response::body(request.into_body())),
            _ => Ok(Response::body(request.into_body().collect(100).await?)),
        }
    }
    everywhere(async |via| {
        let site = via.serve(app);
        for (target, expectation, interims, status, text) in [
            ("/read", "100-continue", &[100][..], 200, "hello"),
            ("/read", "100-Continue", &[100], 200, "hello"),
            ("/echo", "100-continue", &[100], 200, "hello"),
            ("/unread", "100-continue", &[], 200, "no, thanks"),
            ("/read", "miracles", &[], 417, ""),
        ] {
            let ask = Ask::post(target).field("expect", expectation);
            let (came, reply) = site.ask_step_by_step(ask, "hello").await;
            let came: Vec<u16> = came.into_iter().map(|(status, _)| status).collect();
            assert_eq!((&*came, reply.status), (interims, status), "{target} {expectation}");
            assert!(reply.text() == text || status == 417, "{target} {expectation}");
        }
        site.stop().await;
    });
}

#[test]
fn early_hints_come_before_the_response() {
    async fn app(request: Request) -> Response {
        request.early_hints(["</a.css>; rel=preload", "</b>\r\nx: y"]);
        if request.path() == "/slow" {
            tokio::task::yield_now().await;
        }
        request.early_hints(["</c>"]);
        Response::text("ok")
    }
    everywhere(async |via| {
        let site = via.serve(app);
        for target in ["/slow", "/fast"] {
            let (came, reply) = site.ask_step_by_step(Ask::get(target), "").await;
            assert!(came.iter().all(|(status, _)| *status == 103), "{target}: {came:?}");
            assert_eq!(came.len(), if target == "/slow" { 2 } else { 1 }, "{target}: {came:?}");
            let links: Vec<String> = came.into_iter().flat_map(|(_, links)| links).collect();
            assert_eq!(links, ["</a.css>; rel=preload", "</b>  x: y", "</c>"], "{target}");
            assert_eq!((reply.status, reply.text()), (200, "ok"), "{target}");
        }
        // A client that does not look for them is not confused.
        let mut client = site.client().await;
        assert_eq!(client.get("/slow").await.text(), "ok");
        assert_eq!(client.get_anew("/fast").await.text(), "ok");
        site.stop().await;
    });
}

#[test]
fn interim_responses_of_an_application() {
    async fn app(request: Request) -> Response {
        request.early_hints(["</a>"]);
        // Of these, 100 and 101 are not the application's, and 200 is none.
        for status in [102, 100, 103, 101, 199, 200] {
            let interim = Response::new(StatusCode::from_u16(status).unwrap());
            let interim = interim.with_header(header::LINK, status.to_string());
            request.interim(interim.with_header(header::CONTENT_LENGTH, "5"));
        }
        Response::text("ok")
    }
    everywhere(async |via| {
        let site = via.serve(app);
        let (came, reply) = site.ask_step_by_step(Ask::get("/"), "").await;
        let expected = [(103, "</a>"), (102, "102"), (103, "103"), (199, "199")];
        assert_eq!(came, expected.map(|(status, link)| (status, vec![link.to_owned()])));
        assert_eq!((reply.status, reply.text()), (200, "ok"));
        site.stop().await;
    });
}

// -- clients that go away

/// How a client goes away.
#[derive(Clone, Copy, Debug)]
enum Going {
    /// It takes its request back: over HTTP/1 it closes the connection for that, over HTTP/2
    /// it resets the stream.
    TakesBack,
    /// Its connection breaks.
    Leaves,
}

const GOINGS: [Going; 2] = [Going::TakesBack, Going::Leaves];

impl Going {
    /// Goes away from a response, with the client if that stays.
    fn go(self, client: Client, response: impl Sized) -> Option<Client> {
        match self {
            Going::TakesBack => {
                drop(response);
                Some(client)
            }
            Going::Leaves => {
                client.leave();
                None
            }
        }
    }
}

#[test]
fn a_client_that_goes_away_cancels_the_call() {
    everywhere(async |via| {
        let alive = Alive::new();
        let of_app = alive.clone();
        let (site, notes) = serve_noting(via, Settings::default(), move |request: Request| {
            let of_call = of_app.clone();
            async move {
                let _of_call = of_call;
                if request.path() == "/wait" {
                    pending::<()>().await;
                }
                Response::text("ok")
            }
        });
        let idle = alive.count();
        for (number, going) in GOINGS.into_iter().enumerate() {
            let mut client = site.client().await;
            let coming = client.send(Ask::get("/wait")).await;
            until("the call began", || alive.count() > idle).await;
            let client = going.go(client, coming);
            until("the call is dropped", || alive.count() == idle).await;
            let told = || notes.count("Peer Disconnected") == number + 1;
            until("the hooks are told", told).await;
            if let Some(mut client) = client {
                assert_eq!(client.get_anew("/").await.text(), "ok", "{going:?}");
            }
        }
        site.stop().await;
    });
}

#[test]
fn a_detached_call_runs_to_its_end() {
    everywhere(async |via| {
        let (notes, go_on) = (Notes::default(), Arc::new(Notify::new()));
        let (said, word) = (notes.clone(), go_on.clone());
        let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
        let site = via.serve_with(settings, move |request: Request| {
            let (said, word) = (said.clone(), word.clone());
            async move {
                if request.path() == "/wait" {
                    said.say("begun");
                    word.notified().await;
                    said.say("done");
                }
                Response::text("ok")
            }
        });
        for (number, going) in GOINGS.into_iter().enumerate() {
            let mut client = site.client().await;
            let coming = client.send(Ask::get("/wait")).await;
            until("the call began", || notes.count("begun") == number + 1).await;
            let client = going.go(client, coming);
            // The server has time to notice.
            for _ in 0..10 {
                assert_eq!(site.client().await.get("/").await.text(), "ok");
            }
            assert_eq!(notes.count("done"), number);
            go_on.notify_one();
            until("the call ends", || notes.count("done") == number + 1).await;
            drop(client);
        }
        site.stop().await;
    });
}

#[test]
fn a_body_that_is_broken_off_never_looks_whole() {
    everywhere(async |via| {
        let notes = Notes::default();
        let said = notes.clone();
        let site = via.serve(move |mut request: Request| {
            let said = said.clone();
            async move {
                if *request.method() == Method::GET {
                    return Response::text("ok");
                }
                loop {
                    match request.body().chunk().await {
                        Ok(Some(chunk)) => said.say(chunk.escape_ascii().to_string()),
                        Ok(None) => said.say("whole"),
                        Err(error) => {
                            said.say(format!("{:?}", error.kind()));
                            return error.into();
                        }
                    }
                }
            }
        });
        for length in [None, Some("100")] {
            for going in [None, Some(Going::TakesBack), Some(Going::Leaves)] {
                let case = format!("{length:?} {going:?}");
                let before = (notes.count("some"), notes.count("BodyIncomplete"));
                let mut client = site.client().await;
                let ask = Ask::post("/");
                let ask = match length {
                    Some(length) => ask.field("content-length", length),
                    None => ask,
                };
                let (ask, upload) = ask.upload();
                let coming = client.send(ask).await;
                assert!(upload.send("some").await);
                until("a part is read", || notes.count("some") == before.0 + 1).await;
                let client = match going {
                    None => {
                        upload.fail().await;
                        Some(client)
                    }
                    Some(going) => going.go(client, coming),
                };
                let told = || notes.count("BodyIncomplete") == before.1 + 1;
                until(&format!("{case}: the application is told"), told).await;
                assert!(!notes.has("whole"), "{case}");
                if let Some(mut client) = client {
                    assert_eq!(client.get_anew("/").await.text(), "ok", "{case}");
                }
            }
        }
        site.stop().await;
    });
}

#[test]
fn a_client_that_goes_away_ends_its_download() {
    everywhere(async |via| {
        let alive = Alive::new();
        let of_app = alive.clone();
        let (site, notes) = serve_noting(via, Settings::default(), move |request: Request| {
            let of_stream = of_app.clone();
            async move {
                if request.path() == "/" {
                    return Response::text("ok");
                }
                let mut first = Some(Frame::data(Bytes::from("first")));
                let goes_on = request.path() == "/endless";
                Response::body(Body::from_http_body(Frames(move |_: &mut Context<'_>| {
                    let _ = &of_stream;
                    match first.take() {
                        Some(frame) => Poll::Ready(Some(Ok(frame))),
                        None if goes_on => {
                            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 10_000])))))
                        }
                        None => Poll::Pending,
                    }
                })))
            }
        });
        let idle = alive.count();
        for (target, going) in [
            ("/first", Going::TakesBack),
            ("/first", Going::Leaves),
            ("/endless", Going::TakesBack),
            ("/endless", Going::Leaves),
        ] {
            let case = format!("{target} {going:?}");
            let answered = |target: &str| {
                let begin = format!("{target} 200 ");
                notes.all().iter().filter(|said| said.starts_with(&begin)).count()
            };
            let before = (notes.count("Peer Disconnected"), answered(target));
            let mut client = site.client().await;
            let mut response = client.send(Ask::get(target)).await.begin().await.unwrap();
            response.read(5).await;
            assert!(alive.count() > idle);
            let client = going.go(client, response);
            until(&format!("{case}: the stream is dropped"), || alive.count() == idle).await;
            // Over HTTP/2 it may be told of the connection as well.
            let told =
                || notes.count("Peer Disconnected") > before.0 && answered(target) == before.1 + 1;
            until(&format!("{case}: the hooks are told"), told).await;
            if let Some(mut client) = client {
                assert_eq!(client.get_anew("/").await.text(), "ok", "{case}");
            }
        }
        let sent = notes.count("/first 200 5 Disconnected");
        assert_eq!(sent, 2, "the bytes that were sent: {:?}", notes.all());
        site.stop().await;
    });
}

#[test]
fn a_body_that_stalls_fails() {
    everywhere(async |via| {
        let notes = Notes::default();
        let said = notes.clone();
        let site = via.serve_with(quick(), move |request: Request| {
            let said = said.clone();
            async move {
                let body = request.into_body().collect(1000).await;
                body.map(Response::body)
                    .inspect_err(|error| said.say(format!("{:?}", error.kind())))
            }
        });
        let mut client = site.client().await;
        let (ask, upload) = Ask::post("/").upload();
        let coming = client.send(ask).await;
        assert!(upload.send("some").await);
        assert_eq!(coming.reply().await.status, 408);
        assert_eq!(notes.all(), ["TooSlow"]);
        drop(upload);
        site.stop().await;
    });
}

#[test]
fn a_handler_may_take_its_time() {
    everywhere(async |via| {
        let site = via.serve_with(quick(), async |_: Request| {
            tokio::time::sleep(3 * SHORT).await;
            Response::text("at last")
        });
        assert_eq!(site.client().await.get("/").await.text(), "at last");
        site.stop().await;
    });
}

#[test]
fn a_connection_at_rest_is_closed_in_time() {
    everywhere(async |via| {
        let site = via.serve_with(quick(), echo);
        let mut client = site.client().await;
        assert_eq!(client.get("/").await.text(), "ok");
        client.closed().await;
        site.stop().await;
    });
}

#[test]
fn a_connection_has_only_so_many_requests() {
    everywhere(async |via| {
        let settings = Settings { max_requests: 3, ..Settings::default() };
        let (site, notes) = serve_noting(via, settings, echo);
        let mut client = site.client().await;
        for _ in 0..3 {
            assert_eq!(client.get("/").await.text(), "ok");
        }
        client.closed().await;
        assert_eq!(notes.count("/ 200 2"), 3);
        assert_eq!(client.get_anew("/").await.text(), "ok");
        site.stop().await;
    });
}

// -- applications that fail

/// What a body does next.
enum Act {
    Piece(&'static str),
    Fail,
    Panic,
    /// It says that it is through.
    End,
}

/// An application whose bodies do as they are told; the query is the length that it claims.
/// What fails before it has begun does so at once.
fn acting() -> (mpsc::Sender<Act>, impl Application + Clone + Send + 'static) {
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
                        Act::Piece(piece) => Some(Ok(Frame::data(Bytes::from(piece)))),
                        Act::Fail => Some(Err(Error::new(ErrorKind::BodyFailed, "on purpose"))),
                        Act::Panic => panic!("on purpose"),
                        Act::End => {
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

/// That a response was replaced by an error of the server's, or was cut. The client learns
/// nothing of the inside.
#[track_caller]
fn assert_failed(outcome: Result<Reply, Cut>, case: &str) {
    match outcome {
        Ok(reply) => {
            assert_eq!(reply.status, 500, "{case}: it looks whole");
            assert!(!reply.text().contains("purpose"), "{case}: {}", reply.text());
        }
        Err(cut) => assert!(matches!(cut.status, None | Some(200)), "{case}: {cut:?}"),
    }
}

#[test]
fn failures_before_the_response_are_answered() {
    everywhere(async |via| {
        let (_sender, app) = acting();
        let (site, notes) = serve_noting(via, Settings::default(), app);
        let mut other = site.client().await;
        for (target, told) in [
            ("/panic", "Application Panicked"),
            ("/bytes?2", "Application LengthMismatch"),
            ("/bytes?4", "Application LengthMismatch"),
            ("/bytes?x", "Application LengthMismatch"),
            ("/act?x", "Application LengthMismatch"),
        ] {
            let before = notes.count(told);
            let mut client = other.beside().await;
            let reply = client.get(target).await;
            assert_eq!(reply.status, 500, "{target}");
            assert!(!reply.text().contains("purpose"), "{target}: {}", reply.text());
            until(&format!("{target}: {told}"), || notes.count(told) == before + 1).await;
            let record = format!("{target} 500 {}", reply.body.len());
            until(&record, || notes.has(&record)).await;
            // Nothing else is touched.
            assert_eq!(other.get("/").await.text(), "ok", "{target}");
        }
        site.stop().await;
    });
}

#[test]
fn failures_within_a_body_never_look_whole() {
    use Act::{End, Fail, Panic, Piece};
    everywhere(async |via| {
        let (sender, app) = acting();
        let (site, notes) = serve_noting(via, Settings::default(), app);
        let mut other = site.client().await;
        // The first pieces have come when the last act is done.
        for (target, pieces, last, told) in [
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
            let case = format!("{target} {pieces:?} {told}");
            let before = notes.count(told);
            let mut client = other.beside().await;
            let coming = client.send(Ask::get(target)).await;
            let outcome = match pieces {
                [] => {
                    assert!(sender.send(last).await.is_ok());
                    coming.outcome().await
                }
                _ => {
                    let mut response = coming.begin().await.unwrap();
                    let mut length = 0;
                    for piece in pieces {
                        assert!(sender.send(Piece(piece)).await.is_ok());
                        length += piece.len();
                        response.read(length).await;
                    }
                    assert!(sender.send(last).await.is_ok());
                    let outcome = response.outcome().await;
                    assert!(outcome.is_err(), "{case}: it looks whole");
                    outcome
                }
            };
            assert_failed(outcome, &case);
            until(&case, || notes.count(told) == before + 1).await;
            assert_eq!(other.get("/").await.text(), "ok", "{case}");
        }
        site.stop().await;
    });
}

/// Fields of the request; status, `Content-Range` and body of the response.
type Case<'a> = (Vec<(&'a str, String)>, u16, Option<&'a str>, &'a str);

// -- files

#[test]
fn files_with_preconditions_and_ranges() {
    let large = pattern(3_000_000);
    let tree = Tree::with(&[("ten.txt", "0123456789"), ("empty.txt", "")]);
    tree.write("large.bin", &large);
    tree.write("long.txt", "x".repeat(5_000));
    // In memory from now on, as far as they are small.
    tree.settle();
    everywhere(async |via| {
        let site = via.serve(Directory::open(tree.root()).unwrap());
        let mut client = site.client().await;
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
                let ask = fields.iter().fold(Ask::new(method, "/ten.txt"), |ask, (name, value)| {
                    ask.field(name, value)
                });
                let reply = client.ask(ask).await;
                let got = (reply.status, reply.field("content-range"), reply.text());
                // RFC 9110 §14.2: a range is for GET alone.
                let (status, range) = match method {
                    "HEAD" if matches!(status, 206 | 416) => (200, None),
                    _ => (status, range),
                };
                let body = if method == "HEAD" { "" } else { body };
                assert_eq!(got, (status, range, body), "{method} {fields:?}");
                assert_eq!(reply.field("etag"), Some(&*etag), "{method} {fields:?}");
            }
        }
        let ask = Ask::get("/large.bin").field("range", "bytes=1000000-2999998");
        assert!(client.ask(ask).await.body == large[1_000_000..2_999_999]);
        assert!(client.get("/large.bin").await.body == large);
        assert_eq!(client.get("/empty.txt").await.field("content-length"), Some("0"));

        for (name, whole, part_type) in [
            ("long.txt", &[b'x'; 5_000][..], "text/plain; charset=utf-8"),
            ("large.bin", &large, "application/octet-stream"),
        ] {
            let length = whole.len();
            let ask = Ask::get(format!("/{name}")).field("range", "bytes=0-2,2000-2001,-1");
            let reply = client.ask(ask).await;
            let media_type = reply.field("content-type").expect("a type");
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
            assert_eq!((reply.status, &reply.body), (206, &expected), "{name}");
            assert_eq!(reply.field("content-length"), Some(&*expected.len().to_string()));
        }
        assert!(!client.is_closed());
        site.stop().await;
    });
}

#[test]
fn a_directory_with_its_list_its_pages_and_its_codings() {
    let text = "This is a line of a long text.\n".repeat(200);
    let tree = Tree::with(&[
        ("index.html", "top"),
        ("page.css", &text),
        ("folder/a.txt", "a"),
        ("folder/b.txt", "b"),
        ("404.html", "none"),
        (".env", "hidden"),
    ]);
    everywhere(async |via| {
        let settings = DirectorySettings {
            listing: true,
            fallback: Some("index.html".to_owned()),
            ..DirectorySettings::default()
        };
        let site = via.serve(Directory::with_settings(tree.root(), settings).unwrap());
        let mut client = site.client().await;
        for (method, target, status, body) in [
            ("GET", "/", 200, "top"),
            ("GET", "/a/route/of/the/page", 200, "top"),
            ("GET", "/none.css", 404, "none"),
            ("HEAD", "/folder", 301, ""),
            ("GET", "/folder/a.txt", 200, "a"),
            ("GET", "/../secret.txt", 404, "none"),
        ] {
            let reply = client.ask(Ask::new(method, target)).await;
            assert_eq!((reply.status, reply.text()), (status, body), "{method} {target}");
        }
        assert_eq!(client.get("/folder").await.field("location"), Some("/folder/"));
        let refused = client.ask(Ask::post("/").body("abc")).await;
        assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD")));
        let list = client.ask(Ask::get("/folder/").field("accept", "application/json")).await;
        let list: serde_json::Value = serde_json::from_str(list.text()).unwrap();
        let names = list["entries"].as_array().unwrap().iter().map(|entry| &entry["name"]);
        assert_eq!(names.collect::<Vec<_>>(), ["a.txt", "b.txt"]);
        let page = client.get("/folder/").await;
        assert!(page.text().contains("href=\"./a.txt\""), "{}", page.text());
        let head = client.ask(Ask::new("HEAD", "/folder/")).await;
        assert_eq!(head.field("content-length"), page.field("content-length"));
        for coding in CODINGS {
            let reply = client.ask(Ask::get("/page.css").field("accept-encoding", coding)).await;
            assert_eq!(reply.field("content-encoding"), Some(coding));
            assert_eq!(reply.field("vary"), Some("accept-encoding"));
            assert!(reply.body.len() < text.len() / 4);
            assert_eq!(decoded_so_far(coding, &reply.body), text, "{coding}");
        }
        assert_eq!(client.get("/page.css").await.text(), text);
        site.stop().await;
    });
}

#[test]
fn embedded_files() {
    static LARGE: [u8; 100_000] = [b'x'; 100_000];
    let files: [(&str, &'static [u8]); _] =
        [("index.html", b"top"), ("folder/ten.txt", b"0123456789"), ("large.bin", &LARGE)];
    everywhere(async |via| {
        let site = via.serve(Directory::embedded(files, DirectorySettings::default()));
        let mut client = site.client().await;
        assert_eq!(client.get("/").await.text(), "top");
        assert_eq!(client.get("/none").await.status, 404);
        assert_eq!(client.get("/large.bin").await.body, LARGE);
        let reply = client.ask(Ask::get("/folder/ten.txt").field("range", "bytes=2-3")).await;
        assert_eq!((reply.status, reply.text()), (206, "23"));
        let etag = reply.field("etag").unwrap();
        let reply = client.ask(Ask::get("/folder/ten.txt").field("if-none-match", etag)).await;
        assert_eq!(reply.status, 304);
        let reply = client.ask(Ask::get("/large.bin").field("range", "bytes=0-1,99998-")).await;
        assert_eq!(reply.status, 206);
        assert_eq!(reply.text().matches("\r\n\r\nxx\r\n").count(), 2, "{}", reply.text());
        site.stop().await;
    });
}

#[test]
fn a_file_that_becomes_shorter_while_it_is_sent_never_looks_whole() {
    let tree = Tree::new();
    everywhere(async |via| {
        tree.write("large.bin", pattern(40 << 20));
        let site = via.serve(Directory::open(tree.root()).unwrap());
        let mut client = site.client().await;
        let response = client.send(Ask::get("/large.bin")).await.begin().await.unwrap();
        let file = fs::File::options().write(true).open(tree.path("large.bin")).unwrap();
        file.set_len(1 << 20).unwrap();
        let cut = response.outcome().await.expect_err("it must not look whole");
        assert!(cut.body.len() < 40 << 20);
        // Of what the kernel had taken already, it may have blanked what was cut off.
        let sure = cut.body.len().min(1 << 20);
        assert!(cut.body[..sure] == pattern(sure));
        site.stop().await;
    });
}

// -- middleware

const CODINGS: [&str; 3] = ["br", "zstd", "gzip"];

/// What can be decoded of a body of which maybe not all has come.
fn decoded_so_far(coding: &str, body: &[u8]) -> String {
    let mut text = Vec::new();
    // An error says that more is to come.
    let _ = match coding {
        "br" => brotli::Decompressor::new(body, 4096).read_to_end(&mut text),
        "zstd" => zstd::Decoder::new(body).unwrap().read_to_end(&mut text),
        _ => flate2::read::GzDecoder::new(body).read_to_end(&mut text),
    };
    String::from_utf8(text).unwrap()
}

#[test]
fn a_chain_of_middleware() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/panic" => panic!("on purpose"),
            "/slow" => pending().await,
            "/text" => Response::text("This is a line of a long text.\n".repeat(200)),
            "/stream" => Response::text(pieces(["ab", "cde"])),
            _ => Response::text("ok"),
        }
    }
    everywhere(async |via| {
        let lines = Notes::default();
        let sink = lines.clone();
        let log = Log::new(move |line| sink.say(line)).pattern("%r %s %B %X").unwrap();
        let catch = CatchPanic::new().page(|head, _| {
            Response::text(format!("{} broke", head.path())).with_status(500u16.try_into().unwrap())
        });
        let app = app
            .with(log)
            .with(catch)
            .with(Compress::new())
            .with(Timeout::new(Duration::from_millis(100)));
        let site = via.serve(app);
        let mut client = site.client().await;
        let version = via.version();
        for (target, status, text, line) in [
            ("/a?b", 200, "ok", "200 2 +"),
            ("/panic", 500, "/panic broke", "500 12 +"),
            ("/slow", 503, "503 Service Unavailable\n", "503 24 +"),
            ("/stream", 200, "abcde", "200 5 +"),
        ] {
            let reply = client.get(target).await;
            assert_eq!((reply.status, reply.text()), (status, text), "{target}");
            lines.until(&format!("GET {target} {version:?} {line}\n")).await;
        }
        let reply = client.ask(Ask::get("/text").field("accept-encoding", "gzip")).await;
        assert_eq!(reply.field("content-encoding"), Some("gzip"));
        assert_eq!(decoded_so_far("gzip", &reply.body).len(), 31 * 200);
        lines.until(&format!("GET /text {version:?} 200 {} +\n", reply.body.len())).await;
        // All that over one connection.
        assert!(!client.is_closed());
        site.stop().await;
    });
}

#[test]
fn a_client_that_leaves_is_logged() {
    everywhere(async |via| {
        let (lines, begun) = (Notes::default(), Arc::new(AtomicUsize::new(0)));
        let (sink, count) = (lines.clone(), begun.clone());
        let log = Log::new(move |line| sink.say(line)).pattern("%r %s %X").unwrap();
        let app = move |_: Request| {
            count.fetch_add(1, SeqCst);
            pending::<Response>()
        };
        let site = via.serve(app.with(log));
        for (number, going) in GOINGS.into_iter().enumerate() {
            let mut client = site.client().await;
            let coming = client.send(Ask::get("/")).await;
            until("the call began", || begun.load(SeqCst) == number + 1).await;
            let _client = going.go(client, coming);
            let line = format!("GET / {:?} 499 X\n", via.version());
            until(&line, || lines.count(&line) == number + 1).await;
        }
        site.stop().await;
    });
}

#[test]
fn a_client_may_ask_only_so_often() {
    everywhere(async |via| {
        let limit = RateLimit::new(1, Duration::from_secs(3600)).burst(2);
        let site = via.serve(echo.with(limit));
        let mut client = site.client().await;
        for status in [200, 200, 429, 429] {
            let reply = client.get("/").await;
            assert_eq!(reply.status, status);
            assert_eq!(reply.field("retry-after").is_some(), status == 429);
        }
        // Another connection is the same client.
        assert_eq!(site.client().await.get("/").await.status, 429);
        site.stop().await;
    });
}

#[test]
fn events_arrive_at_once_compressed_or_not() {
    everywhere(async |via| {
        let senders: Arc<Mutex<Vec<sse::Sender>>> = Arc::default();
        let noted = senders.clone();
        let app = move |request: Request| {
            let (sender, response) = sse::channel(&request);
            noted.lock().unwrap().push(sender);
            async { response }
        };
        let site = via.serve(app.with(Compress::new()));
        let mut client = site.client().await;
        for coding in ["identity"].into_iter().chain(CODINGS) {
            let ask = Ask::get("/").field("accept-encoding", coding);
            let mut response = client.send(ask).await.begin().await.unwrap();
            assert_eq!(response.head().field("content-type"), Some("text/event-stream"));
            let sender = senders.lock().unwrap().pop().unwrap();
            let mut expected = String::new();
            for number in 1..=3 {
                sender.send(Event::data(number.to_string())).await.unwrap();
                expected += &format!("data: {number}\n\n");
                loop {
                    assert!(response.next().await.unwrap(), "{coding}: it ended");
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
            let reply = response.reply().await;
            assert_eq!(reply.field("content-encoding"), Some(coding).filter(|c| *c != "identity"));
        }
        // A sender is told that its client has left.
        for going in GOINGS {
            let mut client = site.client().await;
            let response = client.send(Ask::get("/")).await.begin().await.unwrap();
            let sender = senders.lock().unwrap().pop().unwrap();
            let _client = going.go(client, response);
            tokio::time::timeout(PATIENCE, sender.closed()).await.expect("the sender is told");
        }
        site.stop().await;
    });
}

// -- tower

#[test]
fn an_axum_router() {
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
    everywhere(async |via| {
        let app = weft::tower::app(router.clone()).connect_info(ConnectInfo);
        let site = via.serve(app);
        let mut client = site.client().await;
        let version = format!("{:?}", via.version());
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
            let reply = client.get(target).await;
            assert_eq!((reply.status, reply.text()), (status, text), "{target}");
        }
        assert!(client.get("/large").await.body == pattern(1_000_000));
        let json = Ask::post("/json").field("content-type", "application/json").body("{\"a\":1}");
        assert_eq!(client.ask(json).await.text(), "{\"a\":1}");
        for target in ["/bytes", "/echo"] {
            let reply = client.ask(Ask::post(target).body(pattern(1_000_000))).await;
            assert!(reply.body == pattern(1_000_000), "{target}: {} came", reply.body.len());
        }
        // Both directions at once, with trailers behind.
        let (ask, upload) = Ask::post("/echo").field("trailer", "x-sum").upload();
        let coming = client.send(ask).await;
        assert!(upload.send("abc").await);
        let mut response = coming.begin().await.unwrap();
        response.read(3).await;
        upload.trailers("x-sum", "17").await;
        drop(upload);
        let reply = response.reply().await;
        assert_eq!((reply.text(), reply.trailer("x-sum")), ("abc", Some("17")));
        assert_eq!(client.get_anew("/panic").await.status, 500);
        assert_eq!(client.get_anew("/").await.text(), "ok");
        site.stop().await;
    });
}

// -- WebSockets

#[cfg(feature = "websocket")]
#[test]
fn websockets_beside_other_requests() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    everywhere(async |via| {
        let ends = Notes::default();
        let noted = ends.clone();
        let site = via.serve(move |request: Request| {
            let ends = noted.clone();
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
                        ends.say(format!("{end:?}"));
                    }),
                    _ => Response::text("ok"),
                }
            }
        });
        for (way, end) in [("close", "Ok(())"), ("leave", "Err(Disconnected)"), ("stop", "Ok(())")]
        {
            let before = ends.count(end);
            let mut client = site.client().await;
            // Over HTTP/2 the server has said by then that it knows extended CONNECT.
            assert_eq!(client.get("/").await.text(), "ok");
            let mut other = client.beside().await;
            let ask = Ask::get("/chat").field("sec-websocket-version", "13");
            let io = client.upgrade(ask, "websocket").await.expect("a WebSocket");
            let mut socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
            let messages = [
                Message::text("días"),
                Message::binary(pattern(500_000)),
                Message::text(""),
                Message::binary(pattern(70_000)),
            ];
            for message in messages {
                socket.send(message.clone()).await.unwrap();
                let answer = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap();
                assert!(answer.unwrap().unwrap() == message, "{way}: another message came");
                assert_eq!(other.get("/").await.text(), "ok", "{way}");
            }
            match way {
                "close" => {
                    socket.close(None).await.unwrap();
                    while let Some(Ok(_)) = socket.next().await {}
                }
                "leave" => client.leave(),
                _ => {
                    let stopping = site.shutdown(PATIENCE);
                    let goodbye = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap();
                    let goodbye = goodbye.unwrap().unwrap();
                    let Message::Close(Some(frame)) = goodbye else { panic!("{goodbye:?}") };
                    assert_eq!(u16::from(frame.code), 1001);
                    while let Some(Ok(_)) = socket.next().await {}
                    until(&format!("{way}: {end}"), || ends.count(end) > before).await;
                    stopping.await.unwrap();
                    return;
                }
            }
            drop(socket);
            until(&format!("{way}: {end}"), || ends.count(end) > before).await;
        }
    });
}

// -- other protocols

/// Upgrades and tunnels to what sends everything back in capitals, until it hears a full stop.
async fn shout(request: Request) -> Response {
    async fn shout(mut connection: weft::Upgraded) {
        let mut room = [0; 4096];
        while let Ok(length @ 1..) = connection.read(&mut room).await {
            let said = connection.write_all(&room[..length].to_ascii_uppercase()).await;
            if said.is_err() || connection.flush().await.is_err() || room[..length].contains(&b'.')
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
fn upgrades_and_tunnels() {
    everywhere(async |via| {
        let site = via.serve(shout);
        for is_tunnel in [false, true] {
            // The end comes from the client, or from the handler behind its last word.
            for says_stop in [false, true] {
                let case = format!("tunnel: {is_tunnel}, stop: {says_stop}");
                let mut client = site.client().await;
                assert_eq!(client.get("/").await.text(), "ok");
                let mut other = client.beside().await;
                let mut io = match is_tunnel {
                    true => client.tunnel().await,
                    false => client.upgrade(Ask::get("/shout"), "shout").await,
                }
                .unwrap_or_else(|status| panic!("{case}: {status}"));
                for word in ["hello", "días"] {
                    io.write_all(word.as_bytes()).await.unwrap();
                    io.flush().await.unwrap();
                    let mut came = vec![0; word.len()];
                    io.read_exact(&mut came).await.unwrap();
                    assert_eq!(came, word.as_bytes().to_ascii_uppercase(), "{case}");
                    assert_eq!(other.get("/").await.text(), "ok", "{case}");
                }
                let last = vec![b'x'; 300_000];
                let (mut read, mut write) = tokio::io::split(io);
                let sending = tokio::spawn(async move {
                    write.write_all(&last).await.unwrap();
                    if says_stop {
                        write.write_all(b".").await.unwrap();
                        write.flush().await.unwrap();
                    } else {
                        write.shutdown().await.unwrap();
                    }
                    write
                });
                let mut came = Vec::new();
                let read = tokio::time::timeout(PATIENCE, read.read_to_end(&mut came)).await;
                let length = 300_000 + usize::from(says_stop);
                assert_eq!(came.len(), length, "{case}: the last words are lost: {read:?}");
                assert!(read.is_ok_and(|read| read.is_ok()), "{case}: no proper end");
                sending.await.unwrap();
                assert_eq!(other.get("/").await.text(), "ok", "{case}");
            }
        }
        // What is not wanted is refused.
        let mut client = site.client().await;
        client.get("/").await;
        assert_eq!(client.upgrade(Ask::get("/shout"), "whisper").await.err(), Some(500));
        site.stop().await;
    });
}

#[test]
fn what_a_connection_was_handed_over_to_ends_in_its_own_time() {
    everywhere(async |via| {
        let (notes, go_on) = (Notes::default(), Arc::new(Notify::new()));
        let (said, word) = (notes.clone(), go_on.clone());
        let site = via.serve(move |request: Request| {
            let (said, word) = (said.clone(), word.clone());
            async move {
                if request.path() == "/" {
                    return Response::text("ok");
                }
                Response::upgrade("wait", async move |mut connection| {
                    said.say("begun");
                    let mut room = [0; 10];
                    while let Ok(1..) = connection.read(&mut room).await {}
                    said.say("left");
                    word.notified().await;
                    said.say("through");
                })
            }
        });
        for (number, going) in GOINGS.into_iter().enumerate() {
            let mut client = site.client().await;
            client.get("/").await;
            let io = client.upgrade(Ask::get("/wait"), "wait").await.unwrap();
            until("it has begun", || notes.count("begun") == number + 1).await;
            let _client = going.go(client, io);
            until("the client has left", || notes.count("left") == number + 1).await;
            assert_eq!(site.client().await.get("/").await.text(), "ok");
            go_on.notify_one();
            until("it is through", || notes.count("through") == number + 1).await;
        }
        site.stop().await;
    });
}

// -- stopping

#[test]
fn a_shutdown_finishes_what_runs_and_closes_what_rests() {
    everywhere(async |via| {
        let (begun, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (count, word) = (begun.clone(), go_on.clone());
        let site = via.serve(move |request: Request| {
            let (count, word) = (count.clone(), word.clone());
            async move {
                if request.path() == "/slow" {
                    count.fetch_add(1, SeqCst);
                    word.notified().await;
                }
                Response::text("done")
            }
        });
        let address = site.address;
        let (mut idle, mut busy, fresh) =
            (site.client().await, site.client().await, site.client().await);
        assert_eq!(idle.get("/").await.text(), "done");
        assert_eq!(busy.get("/").await.text(), "done");
        let coming = busy.send(Ask::get("/slow")).await;
        until("the call began", || begun.load(SeqCst) == 1).await;
        let stopping = site.shutdown(PATIENCE);
        idle.closed().await;
        fresh.closed().await;
        while Client::try_connect(via, address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!stopping.is_finished(), "there is still something to be done");
        go_on.notify_one();
        assert_eq!(coming.reply().await.text(), "done");
        busy.closed().await;
        stopping.await.unwrap();
    });
}

#[test]
fn a_shutdown_ends_when_its_grace_does() {
    everywhere(async |via| {
        let begun = Arc::new(AtomicUsize::new(0));
        let count = begun.clone();
        let site = via.serve(move |_: Request| {
            count.fetch_add(1, SeqCst);
            pending::<Response>()
        });
        let mut client = site.client().await;
        let coming = client.send(Ask::get("/")).await;
        until("the call began", || begun.load(SeqCst) == 1).await;
        site.shutdown(Duration::from_millis(50)).await.unwrap();
        let cut = coming.outcome().await.expect_err("there is no response");
        assert_eq!(cut.status, None);
        client.closed().await;
    });
}

#[test]
fn a_long_stream_is_told_of_the_shutdown() {
    everywhere(async |via| {
        let site = via.serve(async |request: Request| {
            let mut shutdown = request.shutdown();
            let goodbye = async move {
                shutdown.requested().await;
                Ok::<_, Error>(Bytes::from("goodbye"))
            };
            let hello = async { Ok(Bytes::from("hello ")) };
            Response::body(Body::stream(stream::once(hello).chain(stream::once(goodbye))))
        });
        let mut client = site.client().await;
        let mut response = client.send(Ask::get("/")).await.begin().await.unwrap();
        assert_eq!(response.read(6).await, b"hello ");
        let stopping = site.shutdown(PATIENCE);
        assert_eq!(response.reply().await.text(), "hello goodbye");
        client.closed().await;
        stopping.await.unwrap();
    });
}

#[test]
fn a_shutdown_lets_an_upload_end() {
    everywhere(async |via| {
        let site = via.serve(echo);
        let mut client = site.client().await;
        let (ask, upload) = Ask::post("/").upload();
        let coming = client.send(ask).await;
        assert!(upload.send("hello ").await);
        let mut response = coming.begin().await.unwrap();
        response.read(6).await;
        let address = site.address;
        let stopping = site.shutdown(PATIENCE);
        while Client::try_connect(via, address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(upload.send("goodbye").await);
        drop(upload);
        assert_eq!(response.reply().await.text(), "hello goodbye");
        client.closed().await;
        stopping.await.unwrap();
    });
}

// -- many requests

#[test]
fn a_slow_request_does_not_hold_up_others() {
    everywhere(async |via| {
        let go_on = Arc::new(Notify::new());
        let word = go_on.clone();
        let site = via.serve(move |request: Request| {
            let word = word.clone();
            async move {
                if request.path() == "/slow" {
                    word.notified().await;
                }
                Response::text(request.path().to_owned())
            }
        });
        let mut client = site.client().await;
        let mut other = client.beside().await;
        let slow = client.send(Ask::get("/slow")).await;
        for number in 0..50 {
            assert_eq!(other.get(&format!("/{number}")).await.text(), format!("/{number}"));
        }
        go_on.notify_one();
        assert_eq!(slow.reply().await.text(), "/slow");
        assert_eq!(client.get("/last").await.text(), "/last");
        site.stop().await;
    });
}

#[test]
fn bodies_that_stand_still_do_not_hold_up_others() {
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
    everywhere(async |via| {
        let site = via.serve(app);
        let mut client = site.client().await;
        let mut held = Vec::new();
        for _ in 0..2 {
            // Uploads that the application does not read.
            let (ask, upload) = Ask::post("/unread").upload();
            let mut beside = client.beside().await;
            let coming = beside.send(ask).await;
            let sending = tokio::spawn(async move { while upload.send(vec![0; 50_000]).await {} });
            // Downloads that the client does not read.
            let mut other = client.beside().await;
            let response = other.send(Ask::get("/endless")).await.begin().await.unwrap();
            held.push((beside, coming, sending, other, response));
        }
        for size in [0, 10, 1_000_000, 3_000_000] {
            let reply = client.ask(Ask::post("/").body(pattern(size))).await;
            assert!(reply.body == pattern(size), "{size}: {} came", reply.body.len());
        }
        held.iter().for_each(|(_, _, sending, _, _)| sending.abort());
        drop(held);
        site.stop().await;
    });
}

#[test]
fn a_head_alone_ends_a_stream() {
    everywhere(async |via| {
        let alive = Alive::new();
        let of_app = alive.clone();
        let site = via.serve(move |request: Request| {
            let of_stream = of_app.clone();
            async move {
                if request.path() == "/" {
                    return Response::text("ok");
                }
                Response::body(Body::from_http_body(Frames(move |_: &mut Context<'_>| {
                    let _ = &of_stream;
                    Poll::Pending
                })))
            }
        });
        let idle = alive.count();
        let mut client = site.client().await;
        for _ in 0..3 {
            let reply = client.ask(Ask::new("HEAD", "/stream")).await;
            assert_eq!((reply.status, reply.body.len()), (200, 0));
            until("the stream is dropped", || alive.count() == idle).await;
        }
        assert_eq!(client.get("/").await.text(), "ok");
        site.stop().await;
    });
}

/// Hooks that look at errors only.
struct NoRecords(Notes);

impl Hooks for NoRecords {
    fn error(&self, peer: &Peer, error: &Error) {
        self.0.error(peer, error);
    }

    fn wants_records(&self) -> bool {
        false
    }

    fn answered(&self, record: &Record<'_>) {
        self.0.answered(record);
    }
}

#[test]
fn who_wants_no_records_gets_none() {
    everywhere(async |via| {
        let (_sender, app) = acting();
        let notes = Notes::default();
        let hooks = notes.clone();
        let server = Server::new(app).workers(1).hooks(move || NoRecords(hooks.clone()));
        let site = via.start(server);
        assert_eq!(site.client().await.get("/panic").await.status, 500);
        assert_eq!(site.client().await.get("/bytes?x").await.status, 500);
        site.stop().await;
        assert_eq!(notes.all(), ["Application Panicked", "Application LengthMismatch"]);
    });
}

#[test]
fn a_thousand_requests_over_one_connection() {
    everywhere(async |via| {
        let (site, notes) = serve_noting(via, Settings::default(), async |request: Request| {
            Response::text(request.query().unwrap_or_default().to_owned())
        });
        let mut client = site.client().await;
        for number in 0..1_000 {
            let reply = client.get(&format!("/?{number}")).await;
            assert_eq!(reply.text(), number.to_string());
        }
        assert_eq!(notes.count("opened true"), 1);
        assert!(!client.is_closed());
        site.stop().await;
    });
}

#[test]
fn a_hundred_requests_at_a_time() {
    everywhere(async |via| {
        // Nobody is answered before all have asked.
        let barrier = Arc::new(tokio::sync::Barrier::new(100));
        let site = via.serve(move |request: Request| {
            let barrier = barrier.clone();
            async move {
                barrier.wait().await;
                Response::body(request.into_body())
            }
        });
        let client = site.client().await;
        let mut asked = Vec::new();
        for number in 0..100_usize {
            let mut client = client.beside().await;
            asked.push(tokio::spawn(async move {
                let length = 1_000 * (number % 50);
                let body = pattern(number + length)[number..].to_vec();
                let reply = client.ask(Ask::post("/").body(body.clone())).await;
                assert!(reply.body == body, "{number}: {} of {length} came", reply.body.len());
            }));
        }
        for asked in asked {
            asked.await.unwrap();
        }
        site.stop().await;
    });
}

#[test]
fn hooks_are_told_of_each_connection_and_each_response_once() {
    everywhere(async |via| {
        let (site, notes) =
            serve_noting(via, Settings::default(), async |request: Request| match request.path() {
                "/stream" => Response::body(pieces(["ab", "cde"])),
                "/large" => Response::body(pattern(300_000)),
                "/file" => Response::file(File::open(file(b"0123456789")).unwrap()),
                "/204" => Response::new(StatusCode::NO_CONTENT),
                _ => Response::not_found(),
            });
        for _ in 0..3 {
            let mut client = site.client().await;
            for target in ["/stream", "/large", "/file", "/204", "/none"] {
                client.get(target).await;
            }
            client.ask(Ask::new("HEAD", "/large")).await;
        }
        until("all are closed", || notes.count("closed") == 3).await;
        let mut told = notes.all();
        told.sort();
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
        let expected = expected.into_iter().flat_map(|(what, times)| vec![what; times]);
        assert_eq!(told, expected.collect::<Vec<_>>());
        site.stop().await;
    });
}

#[test]
fn hooks_may_refuse_a_connection() {
    struct Nobody;
    impl Hooks for Nobody {
        fn opened(&self, _: &Peer) -> bool {
            false
        }
    }
    everywhere(async |via| {
        let site = via.start(Server::new(echo).workers(1).hooks(|| Nobody));
        if let Ok(mut client) = Client::try_connect(via, site.address).await {
            let cut = client.send(Ask::get("/")).await.outcome().await;
            assert_eq!(cut.expect_err("it is not served").status, None);
        }
        site.stop().await;
    });
}
