//! The reverse proxy, between clients and upstreams that are real, and some that misbehave.

mod common;
// The program has no library; what cannot be set on its command line is set here.
#[allow(unused_imports, dead_code, reason = "the program uses more of it")]
#[path = "../src/apps/proxy/mod.rs"]
mod proxy;
#[path = "../src/counter.rs"]
mod counter;
#[path = "../src/shortage.rs"]
mod shortage;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{
    Client, PATIENCE, Program, Signal, Weft, nobody, raw, read_head, run, tool, until, weft,
};
use proxy::{Balance, Check, Host, Proxy, ProxySettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::testing::TestServer;
use weft::{Body, LocalAddress, Request, Response, StatusCode, header};

// -- what stands in front and behind

/// A proxy to these upstreams.
fn front(urls: &str, change: impl FnOnce(&mut ProxySettings)) -> TestServer {
    let upstreams = ProxySettings::parse_upstreams(urls).unwrap();
    let mut settings = ProxySettings { upstreams, ..ProxySettings::default() };
    change(&mut settings);
    TestServer::start(Proxy::new(settings).unwrap())
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

/// A port that a program of others' may take.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Answers each request on a connection with these bytes.
fn answering(bytes: &'static [u8]) -> impl Fn(usize, TcpStream) + Send + Sync + 'static {
    move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            stream.write_all(bytes).unwrap();
        }
    }
}

/// Answers with the request, as it came: its line, its fields, and the body.
async fn echo(mut request: Request) -> Response {
    let mut text = format!("{} {}\n", request.method(), request.target());
    for (name, value) in request.headers().iter() {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value));
    }
    text.push('\n');
    while let Some(chunk) = request.body().chunk().await.unwrap() {
        text += &String::from_utf8_lossy(&chunk);
    }
    if let Some(trailers) = request.body().trailers() {
        for (name, value) in trailers.iter() {
            text += &format!("\ntrailer {name}: {}", String::from_utf8_lossy(value));
        }
    }
    Response::text(text).with_header(header::SET_COOKIE, "a=1").with_header(header::SET_COOKIE, "b")
}

// -- a client that reads to the end

/// What a client got before its connection ended.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: u16,
    /// Without those that differ each time.
    fields: Vec<String>,
    body: String,
    is_whole: bool,
}

/// Sends a request, whose connection is to be closed, and reads to the end.
fn ask(server: SocketAddr, request: &str) -> Reply {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    reply(&mut stream, request.starts_with("HEAD"))
}

fn get(server: SocketAddr, target: &str) -> Reply {
    ask(server, &format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
}

fn reply(stream: &mut TcpStream, head_only: bool) -> Reply {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {}", bytes.escape_ascii()),
    }
    parse(&bytes, head_only)
}

fn parse(bytes: &[u8], head_only: bool) -> Reply {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let fields: Vec<String> = lines.map(|line| line.to_ascii_lowercase()).collect();
    if (100..200).contains(&status) && status != 101 {
        let rest = parse(body.as_bytes(), head_only);
        let interim = format!("{status}: {}", fields.join(", "));
        return Reply { fields: [vec![interim], rest.fields].concat(), ..rest };
    }
    let length = fields.iter().find_map(|field| field.strip_prefix("content-length: "));
    let (body, is_whole) = if head_only || [204, 304].contains(&status) {
        (body.to_owned(), body.is_empty())
    } else if fields.iter().any(|field| field == "transfer-encoding: chunked") {
        dechunk(body)
    } else if let Some(length) = length {
        (body.to_owned(), body.len() == length.parse::<usize>().unwrap())
    } else {
        (body.to_owned(), true)
    };
    let varies = |field: &String| field.starts_with("date: ") || field.starts_with("server: ");
    let fields = fields.into_iter().filter(|field| !varies(field)).collect();
    Reply { status, fields, body, is_whole }
}

/// The data, trailers behind it, and whether the end is there.
fn dechunk(mut text: &str) -> (String, bool) {
    let mut data = String::new();
    loop {
        let Some((size, rest)) = text.split_once("\r\n") else { return (data, false) };
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return match rest.strip_suffix("\r\n") {
                Some(trailers) => (data + trailers, true),
                None => (data, false),
            };
        }
        let Some((chunk, rest)) = rest.split_at_checked(size + 2) else { return (data, false) };
        data += &chunk[..size];
        text = rest;
    }
}

// -- requests and responses

#[test]
fn requests_reach_the_upstream() {
    let upstream = TestServer::start(echo);
    let at = upstream.address();
    for (path, request, expected) in [
        (
            "/",
            "GET /a%20b/?c=d HTTP/1.1\r\nHost: h:1\r\nAccept: x\r\nConnection: close\r\n\r\n",
            "GET /a%20b/?c=d\nhost: h:1\naccept: x\n\n",
        ),
        (
            "/p/q/",
            "DELETE /a?b HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
             X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nConnection: close\r\n\r\n",
            "DELETE /p/q/a?b\nhost: h\n\n",
        ),
        (
            "/",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            "POST /\nhost: h\ncontent-length: 5\n\nhello",
        ),
        (
            "/",
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            "GET /\nhost: h\ncontent-length: 5\n\nhello",
        ),
        (
            "/",
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\nTE: trailers\r\n\
             Connection: close, te\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: 1\r\n\r\n",
            "PUT /\nhost: h\ntrailer: x-t\ntransfer-encoding: chunked\nte: trailers\nconnection: te\n\
             \nhello\ntrailer x-t: 1",
        ),
        (
            "/",
            "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
             2\r\nhe\r\n0\r\n\r\n",
            "GET /\nhost: h\ntransfer-encoding: chunked\n\nhe",
        ),
    ] {
        let front = front(&format!("http://{at}{path}"), |_| {});
        let reply = ask(front.address(), request);
        // What is said of the client, which is the same each time but for the host.
        let host = if request.contains("h:1") { "h:1" } else { "h" };
        let told = [
            "x-forwarded-for: 127.0.0.1".to_owned(),
            "x-forwarded-proto: http".to_owned(),
            format!("x-forwarded-host: {host}"),
            format!("forwarded: for=127.0.0.1;host=\"{host}\";proto=http"),
            "via: 1.1 weft".to_owned(),
        ];
        let (head, body) = reply.body.split_once("\n\n").unwrap();
        let (ours, mut rest): (Vec<&str>, Vec<&str>) =
            head.lines().partition(|line| told.iter().any(|told| told == line));
        assert_eq!(ours.len(), told.len(), "{head}");
        rest.extend(["", body]);
        assert_eq!(rest.join("\n"), expected);
        assert_eq!((reply.status, reply.is_whole), (200, true));
        let cookies = reply.fields.iter().filter(|field| field.starts_with("set-cookie"));
        assert_eq!(cookies.cloned().collect::<Vec<_>>(), ["set-cookie: a=1", "set-cookie: b"]);
        assert!(reply.fields.contains(&"via: 1.1 weft".to_owned()), "{:?}", reply.fields);
    }
}

#[test]
fn the_host_may_be_that_of_the_upstream() {
    let upstream = TestServer::start(echo);
    let front = front(&upstream.url("/"), |settings| settings.host = Host::Upstream);
    let reply = get(front.address(), "/");
    assert!(reply.body.contains(&format!("\nhost: {}\n", upstream.address())), "{}", reply.body);
    assert!(reply.body.contains("\nx-forwarded-host: h\n"), "{}", reply.body);
}

#[test]
fn responses_reach_the_client() {
    for (method, sent, expected) in [
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", (200, "content-length: 2", "ab")),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", (200, "content-length: 0", "")),
        ("GET", "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nab", (404, "content-length: 2", "ab")),
        (
            "GET",
            "HTTP/1.1 599 Odd\r\nContent-Length: 2\r\n\r\nab",
            (599, "content-length: 2", "ab"),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            (200, "transfer-encoding: chunked", "abc"),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n\
             1\r\na\r\n0\r\nX-T: 1\r\nSet-Cookie: no\r\n\r\n",
            (200, "transfer-encoding: chunked, trailer: x-t", "ax-t: 1\r\n"),
        ),
        ("GET", "HTTP/1.1 204 No\r\n\r\n", (204, "", "")),
        ("GET", "HTTP/1.1 304 No\r\nETag: \"e\"\r\n\r\n", (304, "etag: \"e\"", "")),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", (200, "content-length: 7", "")),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            (200, "transfer-encoding: chunked", ""),
        ),
        (
            "GET",
            "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            (200, "103: link: </a.css>, content-length: 0", ""),
        ),
        (
            "GET",
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            (200, "102: , content-length: 0", ""),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x-mine, keep-alive\r\nX-Mine: 1\r\n\
             Keep-Alive: timeout=1\r\nProxy-Authenticate: x\r\n\r\n",
            (200, "content-length: 0", ""),
        ),
    ] {
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let upstream = raw(move |number, stream| {
            count.fetch_add(1, SeqCst);
            answering(sent.as_bytes())(number, stream);
        });
        let front = front(&url(upstream), |settings| settings.via = String::new());
        // Twice, so that what one leaves behind would be seen by the other.
        for _ in 0..2 {
            let text = format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            let mut reply = ask(front.address(), &text);
            reply.fields.retain(|field| field != "connection: close");
            let mut wanted: Vec<&str> =
                expected.1.split(", ").filter(|field| !field.is_empty()).collect();
            reply.fields.sort();
            wanted.sort();
            assert_eq!(reply.fields, wanted, "{sent}");
            let found = (reply.status, &*reply.body, reply.is_whole);
            assert_eq!(found, (expected.0, expected.2, true), "{sent}");
        }
        assert_eq!(connections.load(SeqCst), 1, "the connection is kept: {sent}");
    }
}

#[test]
fn answers_that_are_none() {
    const BIG: &str = "HTTP/1.1 200 OK\r\nX: ";
    let big: &'static [u8] =
        Box::leak([BIG.as_bytes(), &[b'x'; 70_000], b"\r\n\r\n"].concat().into());
    for (what, sent) in [
        ("nothing", &b""[..]),
        ("garbage", b"\x16\x03\x01 garbage\r\n\r\n"),
        ("half a head", b"HTTP/1.1 200 OK\r\nContent-"),
        ("another version", b"HTTP/3.7 200 OK\r\n\r\n"),
        ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        ("a bad length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab"),
        (
            "length and chunks",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        ),
        ("a head too large", big),
        ("an upgrade that nobody wanted", b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
    ] {
        let upstream = raw(move |_, mut stream| {
            read_head(&mut stream);
            // We may be gone before all of it is sent.
            let _ = stream.write_all(sent);
        });
        let front = front(&url(upstream), |_| {});
        let reply = get(front.address(), "/");
        assert_eq!((reply.status, reply.is_whole), (502, true), "{what}");
        assert_eq!(reply.body, "502 Bad Gateway\n", "{what}");
    }
    let reply = get(front(&url(nobody()), |_| {}).address(), "/");
    assert_eq!((reply.status, &*reply.body), (502, "502 Bad Gateway\n"));
}

#[test]
fn upstreams_that_are_silent() {
    let soon = Duration::from_millis(50);
    let upstream = raw(|_, mut stream| while read_head(&mut stream).is_some() {});
    let slow = front(&url(upstream), |settings| settings.response_timeout = soon);
    assert_eq!(get(slow.address(), "/").status, 504);
    // A queue that is full takes no connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let full = listener.local_addr().unwrap();
    let soon_over = || TcpStream::connect_timeout(&full, Duration::from_millis(100)).ok();
    let _taken: Vec<TcpStream> = std::iter::from_fn(soon_over).collect();
    let slow = front(&url(full), |settings| settings.connect_timeout = soon);
    assert_eq!(get(slow.address(), "/").status, 504);
}

#[test]
fn bodies_that_are_cut_never_look_complete() {
    for (what, sent, silent) in [
        ("sized", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", false),
        ("chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", false),
        ("in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab", false),
        ("bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz", false),
        ("silent", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", true),
    ] {
        let upstream = raw(move |_, mut stream| {
            read_head(&mut stream);
            stream.write_all(sent.as_bytes()).unwrap();
            if silent {
                read_head(&mut stream);
            }
        });
        let patience = Duration::from_millis(50);
        let front = front(&url(upstream), |settings| settings.body_timeout = patience);
        let reply = get(front.address(), "/");
        assert_eq!((reply.status, reply.is_whole), (200, false), "{what}");
        assert!("ab".starts_with(&reply.body), "{what}: {}", reply.body);
    }
}

#[test]
fn events_arrive_at_once() {
    let (send, receive) = std::sync::mpsc::channel::<&'static str>();
    let receive = Mutex::new(receive);
    let upstream = raw(move |_, mut stream| {
        read_head(&mut stream);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for event in receive.lock().unwrap().iter() {
            stream.write_all(event.as_bytes()).unwrap();
        }
    });
    let front = front(&url(upstream), |_| {});
    let mut client = Client::tcp(front.address());
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.head().contains(&"transfer-encoding: chunked".to_owned()));
    for _ in 0..3 {
        // The next is sent only when this has come.
        send.send("data: 1\n\n").unwrap();
        assert_eq!(client.body(14), b"9\r\ndata: 1\n\n\r\n");
    }
    drop(send);
    assert_eq!(client.body(5), b"0\r\n\r\n");
}

#[test]
fn events_may_be_seldom() {
    let (send, goes_on) = std::sync::mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let upstream = raw(move |_, mut stream| {
        let is_events = read_head(&mut stream).unwrap().starts_with("GET /events ");
        let kind = if is_events { "Text/Event-Stream; charset=utf-8" } else { "text/plain" };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked");
        stream.write_all(format!("{head}\r\n\r\n2\r\na\n\r\n").as_bytes()).unwrap();
        if is_events {
            goes_on.lock().unwrap().recv().unwrap();
            stream.write_all(b"2\r\nb\n\r\n0\r\n\r\n").unwrap();
        }
        read_head(&mut stream);
    });
    let soon = Duration::from_millis(50);
    let front = front(&url(upstream), |settings| settings.body_timeout = soon);
    let mut client = Client::tcp(front.address());
    client.send("GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
    client.head();
    assert_eq!(client.body(7), b"2\r\na\n\r\n");
    // In the meantime others are silent for too long.
    (0..2).for_each(|_| assert!(!get(front.address(), "/").is_whole));
    send.send(()).unwrap();
    assert_eq!(client.body(12), b"2\r\nb\n\r\n0\r\n\r\n");
}

#[test]
fn a_client_that_leaves_is_told_to_the_upstream() {
    for head in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"] {
        let (send, has_left) = std::sync::mpsc::channel();
        let upstream = raw(move |_, mut stream| {
            read_head(&mut stream);
            stream.write_all(head.as_bytes()).unwrap();
            assert_eq!(read_head(&mut stream), None);
            send.send(()).unwrap();
        });
        let front = front(&url(upstream), |_| {});
        let mut client = Client::tcp(front.address());
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        if !head.is_empty() {
            client.head();
        }
        drop(client);
        has_left.recv_timeout(PATIENCE).unwrap();
    }
}

// -- bodies of requests

#[test]
fn an_answer_may_come_before_the_body() {
    let (send, goes_on) = std::sync::mpsc::channel::<()>();
    let (tell_count, count) = std::sync::mpsc::channel();
    let goes_on = Mutex::new(goes_on);
    let upstream = raw(move |_, mut stream| {
        read_head(&mut stream);
        stream.read_exact(&mut [0; 5]).unwrap();
        stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nn").unwrap();
        goes_on.lock().unwrap().recv().unwrap();
        stream.write_all(b"o").unwrap();
        // The connection ends with the response, however it does.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        tell_count.send(rest.len()).unwrap();
    });
    let front = front(&url(upstream), |_| {});
    let mut client = Client::tcp(front.address());
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\nbegin");
    assert!(client.head()[0].starts_with("HTTP/1.1 403 "));
    assert_eq!(client.body(1), b"n");
    client.send([b'x'; 10_000]);
    send.send(()).unwrap();
    assert_eq!(client.body(1), b"o");
    assert_eq!(count.recv_timeout(PATIENCE), Ok(0), "nobody wanted the rest");
}

#[test]
fn a_slow_client_is_no_slow_upstream() {
    // The head of the response, or its body, comes when the request is here.
    let (head, body) = ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "yes");
    let whole = || format!("{head}{body}");
    // Longer than a busy machine mostly holds up an upstream that means well.
    let soon = Duration::from_millis(500);
    // An upstream that knows nothing of it has a second to tell a client to go ahead.
    let later = Duration::from_millis(1_500);
    for (at_once, then, soon, expect, early) in [
        ("", whole(), soon, "", "bo"),
        (head, body.to_owned(), soon, "", "bo"),
        ("", whole(), later, "Expect: 100-continue\r\n", ""),
    ] {
        let upstream = raw(move |_, mut stream| {
            while let Some(head) = read_head(&mut stream) {
                stream.write_all(at_once.as_bytes()).unwrap();
                // Who asks for that waits in vain.
                if head.starts_with("POST ") {
                    stream.read_exact(&mut [0; 4]).unwrap();
                    stream.write_all(then.as_bytes()).unwrap();
                }
            }
        });
        let front = front(&url(upstream), |settings| {
            (settings.response_timeout, settings.body_timeout) = (soon, soon);
        });
        let mut client = Client::tcp(front.address());
        let fields = format!("Host: h\r\nContent-Length: 4\r\n{expect}");
        client.send(format!("POST / HTTP/1.1\r\n{fields}\r\n{early}"));
        if !expect.is_empty() {
            assert_eq!(client.head(), ["HTTP/1.1 100 Continue"]);
        }
        // In the meantime the upstream is too slow for others.
        for _ in 0..2 {
            let reply = get(front.address(), "/");
            assert!(reply.status == 504 || !reply.is_whole, "{reply:?}");
        }
        client.send(&"body"[early.len()..]);
        assert_eq!(client.response().body, b"yes", "{at_once}{expect}");
    }
}

#[test]
fn who_expects_to_be_told_is_told_by_the_upstream() {
    let request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    // One that refuses before the body, one that asks for it, and one that knows nothing of it.
    for (goes_ahead, refuses) in [(false, true), (true, false), (false, false)] {
        let upstream = raw(move |_, mut stream| {
            let head = read_head(&mut stream).unwrap();
            assert!(head.contains("expect: 100-continue\r\n"), "{head}");
            let mut body = [0; 4];
            if goes_ahead {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            }
            if refuses {
                stream.write_all(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n").unwrap();
                assert_eq!(stream.read(&mut body).unwrap_or(0), 0, "no body was wanted");
            } else {
                stream.read_exact(&mut body).unwrap();
                assert_eq!(&body, b"body");
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        });
        let front = front(&url(upstream), |_| {});
        let mut client = Client::tcp(front.address());
        client.send(request);
        if refuses {
            assert_eq!(client.response().status, 401);
        } else {
            assert_eq!(client.head(), ["HTTP/1.1 100 Continue"]);
            client.send("body");
            assert_eq!(client.response().status, 200);
        }
    }
}

#[test]
fn bodies_that_fail_through_the_client() {
    let upstream = TestServer::start(async |mut request: Request| {
        while let Ok(Some(_)) = request.body().chunk().await {}
        Response::text("ok")
    });
    let front = front(&upstream.url("/"), |settings| settings.max_body_bytes = 9);
    for (body, status) in [
        ("Content-Length: 10\r\n\r\n0123456789", 413),
        ("Content-Length: 9\r\n\r\n012345678", 200),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", 413),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\nzz\r\n", 400),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{body}");
        assert_eq!(ask(front.address(), &request).status, status, "{body}");
    }
}

// -- connections

#[test]
fn what_is_sent_once_more_and_what_is_not() {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab";
    let get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    // Connections end at their second request, or as soon as the first is answered.
    for (request, at_once, expected, seen) in
        [(get, false, 200, 3), (post, false, 502, 2), (get, true, 200, 2), (post, true, 200, 2)]
    {
        let requests = Arc::new(AtomicUsize::new(0));
        let (count, ended) = (requests.clone(), Arc::new(AtomicBool::new(false)));
        let is_ended = ended.clone();
        let upstream = raw(move |_, mut stream| {
            read_head(&mut stream);
            count.fetch_add(1, SeqCst);
            stream.write_all(OK).unwrap();
            if !at_once && read_head(&mut stream).is_some() {
                count.fetch_add(1, SeqCst);
            }
            drop(stream);
            ended.store(true, SeqCst);
        });
        let front = front(&url(upstream), |_| {});
        assert_eq!(ask(front.address(), get).status, 200);
        if at_once {
            until("the upstream has closed it", || is_ended.load(SeqCst));
        }
        assert_eq!(ask(front.address(), request).status, expected, "{request}");
        assert_eq!(requests.load(SeqCst), seen, "{request}");
    }
}

#[test]
fn idle_connections_are_closed_in_time() {
    let open = Arc::new(AtomicUsize::new(0));
    let count = open.clone();
    let upstream = raw(move |number, stream| {
        count.fetch_add(1, SeqCst);
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")(number, stream);
        count.fetch_sub(1, SeqCst);
    });
    let soon = Duration::from_millis(50);
    let front = front(&url(upstream), |settings| settings.keep_alive_timeout = soon);
    assert_eq!(get(front.address(), "/").status, 200);
    until("it is closed", || open.load(SeqCst) == 0);
}

#[test]
fn requests_queue_up_to_a_limit() {
    let (send, goes_on) = std::sync::mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = arrived.clone();
    let upstream = raw(move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            count.fetch_add(1, SeqCst);
            goes_on.lock().unwrap().recv().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let front = front(&url(upstream), |settings| {
        (settings.max_connections, settings.max_queued) = (1, 1);
        settings.queue_timeout = PATIENCE;
    });
    let address = front.address();
    let ask_beside = || std::thread::spawn(move || get(address, "/").status);
    let first = ask_beside();
    until("the first is there", || arrived.load(SeqCst) == 1);
    // Of two more, one waits and one cannot.
    let (second, third) = (ask_beside(), ask_beside());
    until("one of them has its answer", || second.is_finished() || third.is_finished());
    send.send(()).unwrap();
    send.send(()).unwrap();
    assert_eq!(first.join().unwrap(), 200);
    let mut others = [second.join().unwrap(), third.join().unwrap()];
    others.sort();
    assert_eq!(others, [200, 503]);
    assert_eq!(arrived.load(SeqCst), 2);
}

#[test]
fn who_waits_too_long_is_sent_away() {
    let upstream = raw(|_, mut stream| while read_head(&mut stream).is_some() {});
    let front = front(&url(upstream), |settings| {
        settings.max_connections = 1;
        settings.queue_timeout = Duration::from_millis(50);
    });
    let mut holder = Client::tcp(front.address());
    holder.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until("another is sent away", || {
        let address = front.address();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        // It may have come before the holder, and gets nothing then.
        let _ = stream.read_to_string(&mut text);
        text.starts_with("HTTP/1.1 503 ") && text.contains("retry-after: 1\r\n")
    });
}

// -- upgrades

/// Speaks `shout` to who asks for it.
async fn shout(request: Request) -> Response {
    if !request.headers().list("upgrade").any(|name| name == b"shout") {
        return Response::text("no upgrade");
    }
    if request.path() == "/no" {
        return Response::text("refused").with_status(StatusCode::FORBIDDEN);
    }
    Response::upgrade("shout", async |mut connection| {
        let mut all = Vec::new();
        let mut buffer = [0; 1024];
        // What comes is answered at once; the end only when the other has ended.
        while let Ok(length @ 1..) = connection.read(&mut buffer).await {
            all.extend_from_slice(&buffer[..length]);
            let loud = buffer[..length].to_ascii_uppercase();
            connection.write_all(&loud).await.unwrap();
        }
        let end = format!(" {} bytes", all.len());
        connection.write_all(end.as_bytes()).await.unwrap();
        let _ = AsyncWriteExt::shutdown(&mut connection).await;
    })
    .with_header(header::SEC_WEBSOCKET_PROTOCOL, "x")
}

#[test]
fn upgrades_are_passed_and_each_direction_ends_by_itself() {
    let upstream = TestServer::start(shout);
    let front = front(&upstream.url("/"), |_| {});
    let fields = "Host: h\r\nConnection: Upgrade\r\nUpgrade: shout";
    let mut stream = TcpStream::connect(front.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The first bytes come with the request.
    stream.write_all(format!("GET / HTTP/1.1\r\n{fields}\r\n\r\nhello").as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in ["upgrade: shout", "connection: upgrade", "sec-websocket-protocol: x"] {
        assert_eq!(head.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line} in {head}");
    }
    let mut five = [0; 5];
    stream.read_exact(&mut five).unwrap();
    assert_eq!(&five, b"HELLO");
    stream.write_all(b" world").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, " WORLD 11 bytes");
    // A refusal is a response like any other, and without an upgrade there is none.
    for (target, upgrade, expected) in [
        ("/no", "Upgrade: shout\r\nConnection: upgrade\r\n", (403, "refused")),
        ("/", "", (200, "no upgrade")),
    ] {
        let mut client = Client::tcp(front.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n"));
        let response = client.response();
        assert_eq!((response.status, &*response.body), (expected.0, expected.1.as_bytes()));
    }
}

#[tokio::test]
async fn an_extended_connect_over_http2_is_an_upgrade_for_the_upstream() {
    let upstream = TestServer::start(shout);
    let front = front(&upstream.url("/"), |_| {});
    let stream = tokio::net::TcpStream::connect(front.address()).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    while !client.is_extended_connect_protocol_enabled() {
        tokio::task::yield_now().await;
    }
    for (path, status, expected) in [("/", 200, "HELLO 5 bytes"), ("/no", 403, "refused")] {
        let mut request = http::Request::new(());
        *request.method_mut() = http::Method::CONNECT;
        *request.uri_mut() = format!("http://h{path}").parse().unwrap();
        request.extensions_mut().insert(h2::ext::Protocol::from_static("shout"));
        client = client.ready().await.unwrap();
        let (response, mut send) = client.send_request(request, false).unwrap();
        send.send_data("hello".into(), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        let (mut body, mut text) = (response.into_body(), String::new());
        while let Some(data) = body.data().await {
            text += std::str::from_utf8(&data.unwrap()).unwrap();
        }
        assert_eq!(text, expected, "{path}");
    }
}

#[test]
fn tunnels_end_with_the_server_after_the_grace() {
    let upstream = TestServer::start(shout);
    let upstreams = ProxySettings::parse_upstreams(&upstream.url("/")).unwrap();
    let proxy = Proxy::new(ProxySettings { upstreams, ..ProxySettings::default() }).unwrap();
    let server = weft::Server::new(proxy).workers(1).listen("127.0.0.1:0").unwrap();
    let running = server.start().unwrap();
    let LocalAddress::Tcp(address) = running.addresses()[0] else { unreachable!("it is of TCP") };
    let mut client = Client::tcp(address);
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\n");
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    let stopped = std::thread::spawn(move || running.shutdown(Duration::from_secs(1)));
    // Within the grace it still goes on.
    client.send("still");
    assert_eq!(client.body(5), b"STILL");
    client.assert_closed();
    stopped.join().unwrap();
}

#[test]
fn silent_tunnels_end() {
    let upstream = TestServer::start(shout);
    let soon = Duration::from_millis(50);
    let front = front(&upstream.url("/"), |settings| settings.tunnel_timeout = soon);
    let mut client = Client::tcp(front.address());
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\n");
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    client.assert_closed();
}

// -- several upstreams

/// An upstream that says who it is.
fn named(name: &'static str) -> TestServer {
    TestServer::start(async move |_: Request| Response::text(name))
}

#[test]
fn requests_are_dealt_out() {
    let (a, b, gone) = (named("a"), named("b"), url(nobody()));
    let both = format!("{} {}", a.url("/"), b.url("/"));
    for (urls, balance, expected) in [
        (both.clone(), Balance::RoundRobin, [2, 2]),
        (both.clone(), Balance::LeastConnections, [2, 2]),
        (format!("{both} {gone}"), Balance::RoundRobin, [2, 2]),
    ] {
        let front = front(&urls, |settings| settings.balance = balance);
        let replies: Vec<Reply> = (0..4).map(|_| get(front.address(), "/")).collect();
        assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
        let count = |name| replies.iter().filter(|reply| reply.body == name).count();
        assert_eq!([count("a"), count("b")], expected, "{urls} {balance:?}");
    }
}

#[test]
fn who_fails_is_left_alone_and_tried_again() {
    let is_well = Arc::new(AtomicBool::new(false));
    let visits = Arc::new(AtomicUsize::new(0));
    let (well, count) = (is_well.clone(), visits.clone());
    let upstream = raw(move |number, mut stream| {
        count.fetch_add(1, SeqCst);
        if well.load(SeqCst) {
            answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nodd")(number, stream);
        } else {
            read_head(&mut stream);
        }
    });
    let other = named("other");
    let change = |down_time| {
        move |settings: &mut ProxySettings| {
            (settings.max_failures, settings.down_time) = (3, down_time);
        }
    };
    let urls = format!("{} {}", url(upstream), other.url("/"));
    let patient = front(&urls, change(PATIENCE * 10));
    for _ in 0..20 {
        assert_eq!(get(patient.address(), "/").body, "other");
    }
    assert_eq!(visits.load(SeqCst), 3);
    let hasty = front(&urls, change(Duration::from_millis(20)));
    for _ in 0..6 {
        assert_eq!(get(hasty.address(), "/").body, "other");
    }
    is_well.store(true, SeqCst);
    until("it is asked again", || get(hasty.address(), "/").body == "odd");
    // All that there are, but not one alone, may be out.
    for (urls, status) in
        [(format!("{} {}", url(nobody()), url(nobody())), 503), (url(nobody()), 502)]
    {
        let front = front(&urls, change(PATIENCE * 10));
        (0..6).for_each(|_| drop(get(front.address(), "/")));
        assert_eq!(get(front.address(), "/").status, status, "{urls}");
    }
}

#[test]
fn upstreams_are_asked_how_they_are() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = is_well.clone();
    let upstream = TestServer::start(async move |request: Request| {
        match (request.path(), well.load(SeqCst)) {
            ("/p/health", false) => StatusCode::INTERNAL_SERVER_ERROR.into(),
            _ => Response::text("ok"),
        }
    });
    let front = front(&upstream.url("/p/"), |settings| {
        let interval = Duration::from_millis(10);
        let (path, timeout) = ("/health".to_owned(), PATIENCE);
        settings.check = Some(Check { path, interval, timeout, ..Check::default() });
    });
    until("it gets no requests", || get(front.address(), "/").status == 503);
    is_well.store(true, SeqCst);
    until("it gets them again", || get(front.address(), "/").status == 200);
}

// -- other kinds of connections

#[test]
fn a_unix_socket_where_many_wait_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    // It has room for one, who says nothing.
    let _silent = UnixStream::connect(&path).unwrap();
    let front = front(&format!("unix:{}", path.display()), |settings| {
        settings.connect_timeout = Duration::from_millis(100);
    });
    assert_eq!(get(front.address(), "/").status, 504);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(|| {
                let mut stream = stream.unwrap();
                while read_head(&mut stream).is_some() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                }
            });
        }
    });
    until("there is room", || get(front.address(), "/").status == 200);
}

#[test]
fn unix_sockets_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(file("site")).unwrap();
    fs::write(file("site/a.txt"), "A\n").unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(file("crt"), made.cert.pem()).unwrap();
    fs::write(file("key"), made.signing_key.serialize_pem()).unwrap();
    let socket = file("socket");
    let (crt, key) = (file("crt"), file("key"));
    let options = ["--tls-cert", &crt, "--tls-key", &key, "--tls-listen", "127.0.0.1:0"];
    let listen = format!("unix:{socket}");
    let upstream = Weft::start(weft([file("site")]).args(options).args(["--listen", &listen]));
    let addresses = upstream.addresses();
    let port = addresses.iter().find_map(|it| it.strip_prefix("https://127.0.0.1:")).unwrap();
    for (url, is_known, status) in [
        (format!("unix:{socket}"), false, 200),
        (format!("unix:{socket}:/"), false, 200),
        (format!("https://localhost:{port}/"), true, 200),
        // Neither a name nor an authority that it does not have.
        (format!("https://127.0.0.1:{port}/"), true, 502),
        (format!("https://localhost:{port}/"), false, 502),
    ] {
        let ca = if is_known { file("crt") } else { file("other") };
        let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(file("other"), other.cert.pem()).unwrap();
        let front = front(&url, |settings| settings.ca = Some(ca.into()));
        let reply = get(front.address(), "/a.txt");
        assert_eq!(reply.status, status, "{url}");
        assert_eq!(reply.body == "A\n", status == 200, "{url}");
    }
    upstream.stop();
}

/// What another program serves, through us, compared with what lies there.
fn serves_files(url: &str, folder: &std::path::Path) {
    let front = front(url, |_| {});
    let mut client = Client::tcp(front.address());
    for file in ["small.txt", "large.bin", "small.txt"] {
        until("it is up", || get(front.address(), "/small.txt").status == 200);
        let response = client.get(&format!("/{file}"));
        assert_eq!(response.status, 200, "{url}{file}");
        assert!(response.body == fs::read(folder.join(file)).unwrap(), "{url}{file}");
    }
    assert_eq!(client.get("/nothing").status, 404);
}

fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.txt"), "small\n").unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
    fs::write(folder.path().join("large.bin"), large).unwrap();
    folder
}

#[test]
fn python_as_upstream() {
    if !tool("python3") {
        return;
    }
    let (folder, address) = (files(), free());
    let mut command = Command::new("python3");
    command.args(["-m", "http.server", "--bind", "127.0.0.1", &address.port().to_string()]);
    let _python = Program::start(command.current_dir(folder.path()));
    serves_files(&url(address), folder.path());
}

#[test]
fn nginx_as_upstream() {
    if !tool("nginx") {
        return;
    }
    let (folder, address) = (files(), free());
    let at = folder.path().display();
    let configuration = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p; \
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         server {{ listen {address}; root {at}; }} }}\n"
    );
    fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
    let file = folder.path().join("nginx.conf");
    let _nginx = Program::start(Command::new("nginx").arg("-c").arg(&file).args(["-e", "stderr"]));
    serves_files(&url(address), folder.path());
}

// -- the program

fn passed_on(urls: &str) -> String {
    format!("/ >> {urls}")
}

#[test]
fn the_program_passes_everything_on() {
    let upstream = TestServer::start(echo);
    let server = Weft::start(&mut weft([
        "--route",
        &passed_on(&upstream.url("/p/")),
        "--listen",
        "127.0.0.1:0",
    ]));
    let response = server.client().get("/x");
    assert!(response.body.starts_with(b"GET /p/x\n"), "{}", response.body.escape_ascii());
    server.stop();
    let ended = run(["--route", "/ >> nonsense"]);
    assert_eq!(ended.status, Ok(2));
    let said = "nonsense: expected http://, https:// or unix:/";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
}

#[test]
fn no_time_need_have_an_end() {
    let checks = Arc::new(AtomicUsize::new(0));
    let counted = checks.clone();
    let upstream = TestServer::start(async move |request: Request| {
        counted.fetch_add(usize::from(request.path() == "/health"), SeqCst);
        Response::text("ok")
    });
    let never = |names: &[&str], between| {
        let settings = names.iter().map(|name| format!("{name} = \"never\""));
        settings.collect::<Vec<_>>().join(between)
    };
    let of_all = never(&["drain_timeout", "retire_timeout"], "\n");
    let limits = never(&["head_timeout", "idle_timeout", "stall_timeout", "linger_timeout"], "\n");
    let of_route = never(
        &[
            "connect_timeout",
            "response_timeout",
            "body_timeout",
            "tunnel_timeout",
            "queue_timeout",
            "keep_alive_timeout",
            "failure_window",
            "down_time",
            "check_interval",
            "check_timeout",
        ],
        ", ",
    );
    let configuration = format!(
        "listen = \"127.0.0.1:0\"\n{of_all}\n[limits]\n{limits}\n[hosts.\"*\"]\n\
         \"/\" = {{ proxy = \"{}\", check = \"/health\", {of_route} }}\n",
        upstream.url("/")
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, configuration).unwrap();
    let server = Weft::start(weft(["--config"]).arg(&file));
    let mut client = server.client();
    (0..2).for_each(|_| assert_eq!(client.get("/").body, b"ok"));
    until("it is checked", || checks.load(SeqCst) > 0);
    drop(client);
    let ended = server.stop();
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[test]
fn no_request_fails_when_one_of_two_is_killed() {
    // A text leaves in one piece with its head: who is killed has sent all of it or nothing.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, "[hosts.\"*\"]\n\"/\" = { respond = \"small\\n\" }\n").unwrap();
    let upstreams = [(); 2].map(|()| {
        let options = ["--listen", "127.0.0.1:0", "--no-log", "--workers", "1"];
        Weft::start(weft(["--config"]).arg(&file).args(options))
    });
    let urls = upstreams.each_ref().map(|upstream| upstream.url("/")).join(" ");
    let server = Weft::start(&mut weft([
        "--route",
        &passed_on(&urls),
        "--listen",
        "127.0.0.1:0",
        "--no-log",
        "--workers",
        "2",
    ]));
    let (address, done) = (server.address(), Arc::new(AtomicBool::new(false)));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (done, answered) = (done.clone(), answered.clone());
            std::thread::spawn(move || {
                let mut client = Client::tcp(address);
                while !done.load(SeqCst) {
                    let response = client.get("/");
                    assert_eq!((response.status, &*response.body), (200, &b"small\n"[..]));
                    answered.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    let more = |count| {
        let before = answered.load(SeqCst);
        let is_over = || clients.iter().any(|client| client.is_finished());
        until("requests are answered", || answered.load(SeqCst) >= before + count || is_over());
    };
    more(500);
    upstreams[0].signal(Signal::KILL);
    more(500);
    done.store(true, SeqCst);
    let clients: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
    let ended = server.stop();
    assert!(clients.iter().all(Result::is_ok), "{}", ended.stderr);
    // A request may have been under way, or only about to be sent.
    let told = format!("weft: the upstream {}: ", upstreams[0].url("/"));
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
}

#[test]
fn memory_stays_flat_for_large_bodies() {
    const BYTES: u64 = 256 << 20;
    // It takes what comes, and sends as much.
    let upstream = TestServer::start(async |mut request: Request| {
        request.body().set_limit(u64::MAX);
        let mut bytes = 0;
        while let Some(chunk) = request.body().chunk().await.unwrap() {
            bytes += chunk.len() as u64;
        }
        Response::body(Body::from_http_body(Zeros(bytes)))
    });
    let upstream_url = upstream.url("/");
    let server = Weft::start(&mut weft([
        "--route",
        &passed_on(&upstream_url),
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "1",
    ]));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![b'x'; 1 << 20];
    (0..BYTES >> 20).for_each(|_| stream.write_all(&piece).unwrap());
    let head = read_head(&mut stream).unwrap();
    assert!(head.contains(&format!("content-length: {BYTES}\r\n")), "{head}");
    let came = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    assert_eq!(came, BYTES);
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 48 << 10, "{peak} KiB at most");
    server.stop();
}

/// So many zeros, one piece at a time.
struct Zeros(u64);

impl http_body::Body for Zeros {
    type Data = bytes::Bytes;
    type Error = weft::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, weft::Error>>> {
        static PIECE: [u8; 64 << 10] = [0; 64 << 10];
        let length = self.0.min(PIECE.len() as u64);
        self.0 -= length;
        let piece = bytes::Bytes::from_static(&PIECE[..length as usize]);
        std::task::Poll::Ready((length > 0).then(|| Ok(http_body::Frame::data(piece))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}
