//! What upstreams may say to the reverse proxy, and what the client gets of it: bytes in, bytes
//! out.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Client, PATIENCE, Weft, nobody, raw, read_head, weft};

// -- upstreams that say what they are told to

/// How an upstream sends what it has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Whole,
    /// Each byte by itself.
    Bytewise,
}

/// An upstream that sends these bytes to who asks for `/`, and then goes on or ends the
/// connection. Who asks for `/next` is told the number of the connection.
fn upstream(sent: Vec<u8>, manner: Manner, ends: bool) -> SocketAddr {
    let sent = Arc::new(sent);
    raw(move |number, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            if head.contains(" /next ") {
                let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nnext {number}");
                stream.write_all(text.as_bytes()).unwrap();
                continue;
            }
            let length = if manner == Manner::Whole { sent.len().max(1) } else { 1 };
            for piece in sent.chunks(length) {
                // Who has seen enough may be gone.
                let _ = stream.write_all(piece);
                std::thread::yield_now();
            }
            if ends {
                return;
            }
        }
    })
}

/// The program as a proxy to it.
fn front(upstream: SocketAddr) -> Weft {
    let route = format!("/ >> http://{upstream}/");
    Weft::start(&mut weft([
        "--route",
        &route,
        "--listen",
        "127.0.0.1:0",
        "--no-log",
        "--workers",
        "1",
    ]))
}

/// All that a client gets for these requests, without the fields that differ each time.
fn ask(server: SocketAddr, requests: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(requests.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {}", bytes.escape_ascii()),
    }
    let text: String = bytes.iter().map(|&b| b as char).collect();
    let varies = |line: &&str| !line.starts_with("date: ") && !line.starts_with("server: ");
    text.split_inclusive("\r\n").filter(varies).collect()
}

// -- the table

/// What is behind a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The next request, over the same connection to the upstream.
    Reused,
    /// The next request, over another one.
    Another,
    /// Nothing: the client's connection ends in the middle.
    Cut,
}

const OK: &str = "HTTP/1.1 200 OK\r\n";

/// The page that takes the place of what is no response.
const BAD: &str = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 16\r\n\
    content-type: text/plain; charset=utf-8\r\n\r\n502 Bad Gateway\n";

/// Sends a request, what the upstream answers, and another request; by all manners.
fn check(method: &str, (sent, ends): (&str, bool), expected: &str, after: After) {
    // A letter stands for its byte.
    let bytes: Vec<u8> = sent.chars().map(|letter| letter as u8).collect();
    for manner in [Manner::Whole, Manner::Bytewise] {
        let front = front(upstream(bytes.clone(), manner, ends));
        let requests = format!(
            "{method} / HTTP/1.1\r\nHost: h\r\n\r\n\
             GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        );
        let next = |connection| {
            format!(
                "{expected}{OK}content-length: 6\r\nconnection: close\r\nvia: 1.1 weft\r\n\r\n\
                 next {connection}"
            )
        };
        let what = format!("{method} {sent:?} {manner:?}");
        let came = ask(front.address(), &requests);
        match after {
            After::Reused => assert_eq!(came, next(0), "{what}"),
            After::Another => assert_eq!(came, next(1), "{what}"),
            // How much of it still arrives is a matter of luck.
            After::Cut => assert!(expected.starts_with(&came), "{what}: {came:?}"),
        }
        front.stop();
    }
}

const GOES_ON: bool = false;
const ENDS: bool = true;

/// A response of the upstream's, and all that the client gets of it behind its head.
fn passes(method: &str, sent: &str, expected: &str, after: After) {
    let ends = if after == After::Reused { GOES_ON } else { ENDS };
    check(method, (sent, ends), expected, after);
}

#[test]
fn sized_responses() {
    use After::*;
    for (sent, expected, after) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nvia: 1.1 weft\r\n\r\nab",
            Reused,
        ),
        (
            "HTTP/1.1 200 Fine\r\ncontent-length:0\r\nX-Empty:\r\nX-Ws: \t a \t\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nX-Empty: \r\nX-Ws: a\r\nvia: 1.1 weft\r\n\r\n",
            Reused,
        ),
        (
            "HTTP/1.1 404\r\nDate: then\r\nServer: up\r\nX: \u{e9}\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 1\r\nDate: then\r\nServer: up\r\nX: \u{e9}\r\n\
             via: 1.1 weft\r\n\r\nx",
            Reused,
        ),
        // What belongs to the connection stays there.
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: X-Mine\r\nX-Mine: 1\r\nA: b\r\n\
             Keep-Alive: x\r\nTE: x\r\nUpgrade: x\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nA: b\r\nvia: 1.1 weft\r\n\r\nx",
            Reused,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nvia: 1.1 weft\r\n\r\nx",
            Another,
        ),
        // It ends although it has not said so.
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nvia: 1.1 weft\r\n\r\nx",
            Another,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nvia: 1.0 weft\r\n\r\nx",
            Reused,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nvia: 1.1 weft\r\n\r\nab",
            Cut,
        ),
    ] {
        passes("GET", sent, expected, after);
    }
    // Those are not used again although nobody has closed them.
    for sent in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Close\r\n\r\nx",
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let via = if sent.starts_with("HTTP/1.0") { "1.0" } else { "1.1" };
        let expected = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\nvia: {via} weft\r\n\r\nx");
        check("GET", (sent, GOES_ON), &expected, Another);
    }
}

#[test]
fn chunked_responses() {
    use After::*;
    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nvia: 1.1 weft\r\n\r\n";
    let chunked =
        |rest: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}");
    // Chunks are cut anew, so that these are of one byte each.
    for (sent, expected, after) in [
        ("0\r\n\r\n", "0\r\n\r\n", Reused),
        ("1\r\na\r\n0\r\n\r\n", "1\r\na\r\n0\r\n\r\n", Reused),
        ("1;x=\"y\"\r\na\r\n01\r\nb\r\n000\r\n\r\n", "1\r\na\r\n1\r\nb\r\n0\r\n\r\n", Reused),
        (
            "1\r\na\r\n0\r\nX-T: 1\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n\r\n",
            "1\r\na\r\n0\r\nx-t: 1\r\n\r\n",
            Reused,
        ),
        ("1\r\na\r\n0\r\n\r\n", "1\r\na\r\n0\r\n\r\n", Another),
        ("1\r\na\r\n", "1\r\na\r\n", Cut),
        ("1\r\na\r\n0\r\n", "1\r\na\r\n", Cut),
        ("1\r\na\r\n0\r\nX: y", "1\r\na\r\n", Cut),
        ("1\r\na\r\nx\r\n", "1\r\na\r\n", Cut),
        ("1\r\nab\r\n0\r\n\r\n", "1\r\na\r\n", Cut),
        ("1\r\na\r\n1 \r\nb\r\n0\r\n\r\n", "1\r\na\r\n", Cut),
        ("1\r\na\r\n-1\r\nb\r\n0\r\n\r\n", "1\r\na\r\n", Cut),
        ("1\r\na\n0\r\n\r\n", "1\r\na\r\n", Cut),
        ("1\r\na\r\n0\r\nX : y\r\n\r\n", "1\r\na\r\n", Cut),
        ("FFFFFFFFFFFFFFFF\r\na", "1\r\na\r\n", Cut),
        ("10000000000000000\r\na", "", Cut),
    ] {
        passes("GET", &chunked(sent), &format!("{HEAD}{expected}"), after);
    }
}

#[test]
fn responses_without_bodies() {
    use After::*;
    for (method, sent, expected) in [
        ("GET", "HTTP/1.1 204 No\r\n\r\n", "HTTP/1.1 204 No Content\r\n"),
        ("GET", "HTTP/1.1 304 No\r\nETag: x\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nETag: x\r\n"),
        ("GET", "HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 304 Not Modified\r\n"),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n",
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n",
        ),
        ("HEAD", "HTTP/1.1 204 No\r\n\r\n", "HTTP/1.1 204 No Content\r\n"),
    ] {
        let expected = format!("{expected}via: 1.1 weft\r\n\r\n");
        passes(method, sent, &expected, Reused);
        passes(method, sent, &expected, Another);
    }
    // Who speaks of a body that there cannot be may send one.
    let expected = "HTTP/1.1 204 No Content\r\nvia: 1.1 weft\r\n\r\n";
    for field in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let sent = format!("HTTP/1.1 204 No\r\n{field}\r\n\r\n");
        check("GET", (&sent, GOES_ON), expected, Another);
    }
}

#[test]
fn responses_until_the_end_of_the_connection() {
    for (version, via) in [("HTTP/1.1", "1.1"), ("HTTP/1.0", "1.0")] {
        let head =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nvia: {via} weft\r\n\r\n");
        let expected = format!("{head}1\r\na\r\n0\r\n\r\n");
        passes("GET", &format!("{version} 200 OK\r\n\r\na"), &expected, After::Another);
    }
}

#[test]
fn interim_responses_come_first() {
    for (sent, expected) in [
        (
            "HTTP/1.1 103 Early\r\nLink: </a>\r\nConnection: x\r\nX: y\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        ),
        (
            "HTTP/1.1 102 P\r\n\r\nHTTP/1.1 199 Odd\r\nA: b\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 199 \r\nA: b\r\n\r\n",
        ),
        // Nobody has asked for it.
        ("HTTP/1.1 100 Continue\r\n\r\n", ""),
    ] {
        let sent = format!("{sent}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
        let expected = format!("{expected}{OK}content-length: 1\r\nvia: 1.1 weft\r\n\r\nx");
        passes("GET", &sent, &expected, After::Reused);
    }
}

#[test]
fn what_is_no_response_is_a_bad_gateway() {
    for sent in [
        "",
        "\r\n",
        "HTTP",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nA: b",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 2xx OK\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 1\n\na",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA\r\n\r\n",
        "HTTP/1.1 200 O\u{1}K\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\na",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ] {
        for manner in [Manner::Whole, Manner::Bytewise] {
            let bytes: Vec<u8> = sent.chars().map(|letter| letter as u8).collect();
            let front = front(upstream(bytes, manner, ENDS));
            let came = ask(
                front.address(),
                "GET / HTTP/1.1\r\nHost: h\r\n\r\n\
                 GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            );
            let Some(next) = came.strip_prefix(BAD) else { panic!("{sent:?}: {came:?}") };
            assert!(next.starts_with(OK) && next.contains("\r\n\r\nnext "), "{sent:?}: {next:?}");
            front.stop();
        }
    }
}

#[test]
fn heads_and_interim_ones_have_a_limit_together() {
    let fields = format!("X: {}\r\n", "x".repeat(32 << 10));
    for (sent, least) in [
        (format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), 0),
        ("HTTP/1.1 102 P\r\n\r\n".repeat(10_000), 100),
    ] {
        let front = front(upstream(sent.into(), Manner::Whole, GOES_ON));
        let came = ask(front.address(), "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let bad = BAD.replace("16\r\n", "16\r\nconnection: close\r\n");
        let Some(interim) = came.strip_suffix(&bad) else { panic!("{came}") };
        let count = interim.matches("HTTP/1.1 102 Processing\r\n\r\n").count();
        assert!((least..=(32 << 10) / 18).contains(&count), "{count}");
        front.stop();
    }
}

// -- what comes at the wrong time

#[test]
fn what_is_behind_a_response_is_nobodys() {
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    for sent in [
        format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx{evil}"),
        format!("HTTP/1.1 204 No\r\n\r\n{evil}"),
        format!("HTTP/1.1 304 No\r\nContent-Length: 4\r\n\r\n{evil}"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{evil}"),
    ] {
        let front = front(upstream(sent.clone().into(), Manner::Whole, GOES_ON));
        let came = ask(
            front.address(),
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n\
             GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        );
        assert!(came.ends_with("\r\n\r\nnext 1") && !came.contains("evil"), "{sent}: {came}");
        front.stop();
    }
}

/// An upstream that says more when it is told to, and tells when that is done.
fn saying_more(more: &'static str) -> (SocketAddr, Sender<()>, Receiver<()>) {
    let ((go_on, may_go_on), (done, is_done)) = (channel(), channel());
    let may_go_on = Mutex::new(may_go_on);
    let address = raw(move |number, mut stream| {
        read_head(&mut stream);
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
        stream.write_all(text.as_bytes()).unwrap();
        if number == 0 {
            may_go_on.lock().unwrap().recv().unwrap();
            stream.write_all(more.as_bytes()).unwrap();
            if more.is_empty() {
                drop(stream);
                done.send(()).unwrap();
                return;
            }
            done.send(()).unwrap();
        }
        while read_head(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").unwrap();
        }
    });
    (address, go_on, is_done)
}

#[test]
fn a_connection_that_speaks_or_ends_while_it_is_idle_is_not_used() {
    for more in ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", ""] {
        let (upstream, go_on, is_done) = saying_more(more);
        let front = front(upstream);
        let mut client = Client::tcp(front.address());
        assert_eq!(client.get("/").body, b"0");
        go_on.send(()).unwrap();
        is_done.recv_timeout(PATIENCE).unwrap();
        // It is no request that could be sent once more.
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(client.response().body, b"1", "after {more:?}");
        front.stop();
    }
}

// -- both directions at once

#[test]
fn a_response_goes_on_while_its_request_does() {
    let upstream = raw(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let mut chunk = [0; 6];
        while stream.read_exact(&mut chunk[..5]).is_ok() {
            // The last one has no data, and is sent back as well.
            stream.write_all(&chunk[..5]).unwrap();
            if &chunk[..5] == b"0\r\n\r\n" {
                break;
            }
            stream.read_exact(&mut chunk[5..]).unwrap();
            stream.write_all(&chunk[5..]).unwrap();
        }
        while read_head(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsame").unwrap();
        }
    });
    let front = front(upstream);
    let mut client = Client::tcp(front.address());
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert!(client.head().contains(&"transfer-encoding: chunked".to_owned()));
    for letter in ["a", "b", "c"] {
        // The next is sent when this has come back.
        client.send(format!("1\r\n{letter}\r\n"));
        // The upstream reads one byte more than it needs, which is the line end.
        assert_eq!(client.body(6), format!("1\r\n{letter}\r\n").as_bytes());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.body(5), b"0\r\n\r\n");
    // All of it was sent, and all of it has come: the connection serves again.
    assert_eq!(client.get("/").body, b"same");
    front.stop();
}

#[test]
fn an_answer_is_heard_although_the_body_cannot_be_sent() {
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let upstream = raw(move |_, mut stream| {
        read_head(&mut stream);
        may_go_on.lock().unwrap().recv().unwrap();
        // What was sent and not read makes the end a reset.
        stream.write_all(b"HTTP/1.1 413 Large\r\nContent-Length: 3\r\n\r\nbig").unwrap();
    });
    let front = front(upstream);
    let mut stream = TcpStream::connect(front.address()).unwrap();
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 1 << 30);
    stream.write_all(head.as_bytes()).unwrap();
    // Until nobody takes any more, so that the proxy has something to send when the reset comes.
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    while stream.write(&[b'x'; 1 << 16]).is_ok() {}
    go_on.send(()).unwrap();
    let mut client = Client::over(stream);
    let response = client.response();
    assert_eq!((response.status, &*response.body), (413, &b"big"[..]));
    drop(client);
    front.stop();
}

#[test]
fn bodies_of_requests_arrive_as_they_are() {
    /// Sends the body of a request back, as it came, once it is whole.
    fn mirror(_: usize, mut stream: TcpStream) {
        while let Some(head) = read_head(&mut stream) {
            let mut raw = Vec::new();
            let mut byte = [0; 1 << 16];
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = length.map(|length| length.parse::<usize>().unwrap());
            let is_whole = |raw: &[u8]| match length {
                Some(length) => raw.len() == length,
                None => raw.ends_with(b"\r\n0\r\n\r\n"),
            };
            while !is_whole(&raw) {
                let length = stream.read(&mut byte).unwrap();
                assert!(length > 0, "cut after {}", raw.len());
                raw.extend_from_slice(&byte[..length]);
            }
            let coding = match length {
                Some(length) => format!("Content-Length: {length}"),
                None => "Transfer-Encoding: chunked".to_owned(),
            };
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{coding}\r\n\r\n").as_bytes()).unwrap();
            stream.write_all(&raw).unwrap();
        }
    }
    let front = front(raw(mirror));
    let mut client = Client::tcp(front.address());
    for length in [1, 2_000, 32 << 10, (32 << 10) + 1, 70_000, 1_000_000] {
        let body: Vec<u8> = (0..length).map(|n| b'a' + (n % 23) as u8).collect();
        client.send(format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n"));
        client.send(&body);
        assert!(client.response().body == body, "{length}");
        let head = "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = [format!("{length:x}\r\n").as_bytes(), &body, b"\r\n"].concat();
        client.send([head.as_bytes(), &chunk, &chunk, b"0\r\n\r\n"].concat());
        client.head();
        let mut came = Vec::new();
        loop {
            let size = chunk_size(&mut client);
            came.extend(client.body(size));
            assert_eq!(client.body(2), b"\r\n");
            if size == 0 {
                break;
            }
        }
        assert!(came == [&*body, &*body].concat(), "{length} in chunks");
    }
    front.stop();
}

fn chunk_size(client: &mut Client) -> usize {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.body(1));
    }
    usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim_end(), 16).unwrap()
}

// -- requests that are not passed on

#[test]
fn a_request_that_goes_in_circles_ends() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let route = format!("/ >> http://{address}/");
    let front = Weft::start(&mut weft(["--route", &route, "--listen", &address.to_string()]));
    assert_eq!(front.client().get("/").status, 508);
    // Nine times by us: eight were passed on.
    let lines = |front: &Weft| front.stdout().matches(" 508 ").count();
    common::until("all have their line", || lines(&front) == 9);
    front.stop();
}

#[test]
fn that_nobody_is_up_is_told() {
    let route = format!("/ >> http://{} http://{}", nobody(), nobody());
    let front = Weft::start(&mut weft(["--route", &route, "--listen", "127.0.0.1:0", "--no-log"]));
    let statuses: Vec<u16> = (0..20).map(|_| front.client().get("/").status).collect();
    assert_eq!(statuses.last(), Some(&503), "{statuses:?}");
    let said = front.stop().stderr;
    assert_eq!(said.matches("a request has no upstream: none is up").count(), 1, "{said}");
}
