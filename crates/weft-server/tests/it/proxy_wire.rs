//! Responses of upstreams to the reverse proxy, valid and invalid, and the bytes that the client
//! receives.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{
    self, Client, PATIENCE, Weft, raw_upstream, read_head, until, unused_address, weft,
};

// -- upstreams with fixed responses

/// Division of the bytes of an upstream into writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendMode {
    Whole,
    /// One write for each byte.
    Bytewise,
}

/// Starts an upstream that responds to `/` with these bytes, and then keeps the connection open or
/// closes it. It responds to `/next` with the number of the connection.
fn upstream(sent: Vec<u8>, mode: SendMode, closes: bool) -> SocketAddr {
    let sent = Arc::new(sent);
    raw_upstream(move |number, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            if head.contains(" /next ") {
                let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nnext {number}");
                stream.write_all(text.as_bytes()).unwrap();
                continue;
            }
            let length = if mode == SendMode::Whole { sent.len().max(1) } else { 1 };
            for piece in sent.chunks(length) {
                // The proxy closes the connection at the first error.
                let _ = stream.write_all(piece);
                std::thread::yield_now();
            }
            if closes {
                return;
            }
        }
    })
}

/// Starts the program as a proxy in front of `upstream`.
fn start_proxy(upstream: SocketAddr) -> Weft {
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

/// Starts the program as a proxy that does not buffer requests.
fn start_unbuffered_proxy(upstream: SocketAddr) -> Weft {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let options = r#"buffer_requests = false, max_body_bytes = "1 GiB""#;
    let route = format!("{{ proxy = \"http://{upstream}/\", {options} }}");
    write!(file, "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\"/\" = {route}\n").unwrap();
    let path = file.path().to_str().unwrap();
    Weft::start(&mut weft(["--config", path, "--no-log", "--workers", "1"]))
}

/// Sends requests on one connection and returns all received bytes, without `Date` and `Server`.
fn send_requests(server: SocketAddr, requests: &str) -> String {
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

/// Expected outcome after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The next request uses the same upstream connection.
    Reused,
    /// The next request uses a new upstream connection.
    NewConnection,
    /// The client connection is closed within the response.
    Truncated,
}

const OK: &str = "HTTP/1.1 200 OK\r\n";

/// Response of the proxy in place of an invalid upstream response.
const BAD_GATEWAY: &str = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 16\r\n\
    content-type: text/plain; charset=utf-8\r\n\r\n502 Bad Gateway\n";

/// Checks a request, its upstream response and a following request, with both send modes.
fn check(method: &str, (sent, closes): (&str, bool), expected: &str, outcome: Outcome) {
    // Latin-1: each character is one byte.
    let bytes: Vec<u8> = sent.chars().map(|letter| letter as u8).collect();
    for mode in [SendMode::Whole, SendMode::Bytewise] {
        let proxy = start_proxy(upstream(bytes.clone(), mode, closes));
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
        let case = format!("{method} {sent:?} {mode:?}");
        let response = send_requests(proxy.address(), &requests);
        match outcome {
            Outcome::Reused => assert_eq!(response, next(0), "{case}"),
            Outcome::NewConnection => assert_eq!(response, next(1), "{case}"),
            // The number of bytes received before the close is nondeterministic.
            Outcome::Truncated => assert!(expected.starts_with(&response), "{case}: {response:?}"),
        }
        proxy.stop();
    }
}

const STAYS_OPEN: bool = false;
const CLOSES: bool = true;

/// Checks an upstream response; the upstream closes the connection unless it is to be reused.
fn check_response(method: &str, sent: &str, expected: &str, outcome: Outcome) {
    let closes = if outcome == Outcome::Reused { STAYS_OPEN } else { CLOSES };
    check(method, (sent, closes), expected, outcome);
}

#[test]
fn forwards_responses_with_content_length() {
    use Outcome::*;
    for (sent, expected, outcome) in [
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
        // Connection-specific fields are not forwarded (RFC 9110 §7.6.1).
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: X-Mine\r\nX-Mine: 1\r\nA: b\r\n\
             Keep-Alive: x\r\nTE: x\r\nUpgrade: x\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nA: b\r\nvia: 1.1 weft\r\n\r\nx",
            Reused,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nvia: 1.1 weft\r\n\r\nx",
            NewConnection,
        ),
        // The upstream closes the connection without `Connection: close`.
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nvia: 1.1 weft\r\n\r\nx",
            NewConnection,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nvia: 1.0 weft\r\n\r\nx",
            Reused,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nvia: 1.1 weft\r\n\r\nab",
            Truncated,
        ),
    ] {
        check_response("GET", sent, expected, outcome);
    }
    // These connections are not reused, although the upstream keeps them open.
    for sent in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Close\r\n\r\nx",
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let via = if sent.starts_with("HTTP/1.0") { "1.0" } else { "1.1" };
        let expected = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\nvia: {via} weft\r\n\r\nx");
        check("GET", (sent, STAYS_OPEN), &expected, NewConnection);
    }
}

#[test]
fn forwards_chunked_responses() {
    use Outcome::*;
    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nvia: 1.1 weft\r\n\r\n";
    let chunked =
        |rest: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}");
    // The proxy frames chunks anew; with one byte each, both send modes give the same chunks.
    for (sent, expected, outcome) in [
        ("0\r\n\r\n", "0\r\n\r\n", Reused),
        ("1\r\na\r\n0\r\n\r\n", "1\r\na\r\n0\r\n\r\n", Reused),
        ("1;x=\"y\"\r\na\r\n01\r\nb\r\n000\r\n\r\n", "1\r\na\r\n1\r\nb\r\n0\r\n\r\n", Reused),
        (
            "1\r\na\r\n0\r\nX-T: 1\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n\r\n",
            "1\r\na\r\n0\r\nx-t: 1\r\n\r\n",
            Reused,
        ),
        ("1\r\na\r\n0\r\n\r\n", "1\r\na\r\n0\r\n\r\n", NewConnection),
        ("1\r\na\r\n", "1\r\na\r\n", Truncated),
        ("1\r\na\r\n0\r\n", "1\r\na\r\n", Truncated),
        ("1\r\na\r\n0\r\nX: y", "1\r\na\r\n", Truncated),
        ("1\r\na\r\nx\r\n", "1\r\na\r\n", Truncated),
        ("1\r\nab\r\n0\r\n\r\n", "1\r\na\r\n", Truncated),
        ("1\r\na\r\n1 \r\nb\r\n0\r\n\r\n", "1\r\na\r\n", Truncated),
        ("1\r\na\r\n-1\r\nb\r\n0\r\n\r\n", "1\r\na\r\n", Truncated),
        ("1\r\na\n0\r\n\r\n", "1\r\na\r\n", Truncated),
        ("1\r\na\r\n0\r\nX : y\r\n\r\n", "1\r\na\r\n", Truncated),
        ("FFFFFFFFFFFFFFFF\r\na", "1\r\na\r\n", Truncated),
        ("10000000000000000\r\na", "", Truncated),
    ] {
        check_response("GET", &chunked(sent), &format!("{HEAD}{expected}"), outcome);
    }
}

#[test]
fn forwards_responses_without_body() {
    use Outcome::*;
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
        check_response(method, sent, &expected, Reused);
        check_response(method, sent, &expected, NewConnection);
    }
    // An upstream that announces a body for a 204 may send one, so the connection is not reused.
    let expected = "HTTP/1.1 204 No Content\r\nvia: 1.1 weft\r\n\r\n";
    for field in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let sent = format!("HTTP/1.1 204 No\r\n{field}\r\n\r\n");
        check("GET", (&sent, STAYS_OPEN), expected, NewConnection);
    }
}

#[test]
fn forwards_responses_delimited_by_connection_close() {
    for (version, via) in [("HTTP/1.1", "1.1"), ("HTTP/1.0", "1.0")] {
        let head =
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nvia: {via} weft\r\n\r\n");
        let expected = format!("{head}1\r\na\r\n0\r\n\r\n");
        check_response(
            "GET",
            &format!("{version} 200 OK\r\n\r\na"),
            &expected,
            Outcome::NewConnection,
        );
    }
}

#[test]
fn forwards_interim_responses() {
    for (sent, expected) in [
        (
            "HTTP/1.1 103 Early\r\nLink: </a>\r\nConnection: x\r\nX: y\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        ),
        (
            "HTTP/1.1 102 P\r\n\r\nHTTP/1.1 199 Odd\r\nA: b\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 199 \r\nA: b\r\n\r\n",
        ),
        // The request has no `Expect: 100-continue`.
        ("HTTP/1.1 100 Continue\r\n\r\n", ""),
    ] {
        let sent = format!("{sent}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
        let expected = format!("{expected}{OK}content-length: 1\r\nvia: 1.1 weft\r\n\r\nx");
        check_response("GET", &sent, &expected, Outcome::Reused);
    }
}

#[test]
fn invalid_responses_are_a_bad_gateway() {
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
        for mode in [SendMode::Whole, SendMode::Bytewise] {
            let bytes: Vec<u8> = sent.chars().map(|letter| letter as u8).collect();
            let proxy = start_proxy(upstream(bytes, mode, CLOSES));
            let response = send_requests(
                proxy.address(),
                "GET / HTTP/1.1\r\nHost: h\r\n\r\n\
                 GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            );
            let Some(next) = response.strip_prefix(BAD_GATEWAY) else {
                panic!("{sent:?}: {response:?}")
            };
            assert!(next.starts_with(OK) && next.contains("\r\n\r\nnext "), "{sent:?}: {next:?}");
            proxy.stop();
        }
    }
}

#[test]
fn limits_number_and_total_size_of_final_and_interim_heads() {
    let field = |kib: usize| format!("X: {}\r\n", "x".repeat(kib << 10));
    for (sent, forwarded) in [
        (format!("HTTP/1.1 200 OK\r\n{}\r\n", field(32)), 0),
        (format!("HTTP/1.1 102 P\r\n{}\r\n", field(4)).repeat(100), 7),
        ("HTTP/1.1 102 P\r\n\r\n".repeat(10_000), 32),
    ] {
        let proxy = start_proxy(upstream(sent.into(), SendMode::Whole, STAYS_OPEN));
        let response = send_requests(
            proxy.address(),
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        );
        let bad = BAD_GATEWAY.replace("16\r\n", "16\r\nconnection: close\r\n");
        let Some(interim) = response.strip_suffix(&bad) else { panic!("{response}") };
        assert_eq!(interim.matches("HTTP/1.1 102 Processing\r\n").count(), forwarded);
        proxy.stop();
    }
}

// -- unexpected data

#[test]
fn discards_data_after_a_response() {
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    for sent in [
        format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx{evil}"),
        format!("HTTP/1.1 204 No\r\n\r\n{evil}"),
        format!("HTTP/1.1 304 No\r\nContent-Length: 4\r\n\r\n{evil}"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{evil}"),
    ] {
        let proxy = start_proxy(upstream(sent.clone().into(), SendMode::Whole, STAYS_OPEN));
        let response = send_requests(
            proxy.address(),
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n\
             GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        );
        assert!(
            response.ends_with("\r\n\r\nnext 1") && !response.contains("evil"),
            "{sent}: {response}"
        );
        proxy.stop();
    }
}

/// Starts an upstream that sends `extra`, or closes the connection if that is empty, when it is
/// triggered by the sender, and then notifies the receiver.
fn upstream_with_extra_data(extra: &'static str) -> (SocketAddr, Sender<()>, Receiver<()>) {
    let ((trigger, triggered), (done, is_done)) = (channel(), channel());
    let triggered = Mutex::new(triggered);
    let address = raw_upstream(move |number, mut stream| {
        read_head(&mut stream);
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
        stream.write_all(text.as_bytes()).unwrap();
        if number == 0 {
            triggered.lock().unwrap().recv().unwrap();
            stream.write_all(extra.as_bytes()).unwrap();
            if extra.is_empty() {
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
    (address, trigger, is_done)
}

/// Returns true if all that the sockets of an address have sent, and their FIN, is acknowledged. A
/// busy kernel delivers it later.
fn has_delivered(address: SocketAddr) -> bool {
    const FIN_WAIT1: &str = "04";
    let port = format!(":{:04X}", address.port());
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.lines().all(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, local, _, state, queues, ..] if local.ends_with(&port) => {
            state != FIN_WAIT1 && queues.starts_with("00000000:")
        }
        _ => true,
    })
}

#[test]
fn does_not_reuse_idle_connections_with_data_or_eof() {
    for extra in ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", ""] {
        let (upstream, trigger, is_done) = upstream_with_extra_data(extra);
        let proxy = start_proxy(upstream);
        let mut client = Client::tcp(proxy.address());
        assert_eq!(client.get("/").body, b"0");
        trigger.send(()).unwrap();
        is_done.recv_timeout(PATIENCE).unwrap();
        until("the proxy's socket has received it", || has_delivered(upstream));
        // A POST is not retried.
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(client.response().body, b"1", "after {extra:?}");
        proxy.stop();
    }
}

// -- both directions at once

#[test]
fn streams_request_and_response_at_the_same_time() {
    let upstream = raw_upstream(|_, mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        let mut chunk = [0; 6];
        while stream.read_exact(&mut chunk[..5]).is_ok() {
            // The last chunk is echoed as well.
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
    let proxy = start_unbuffered_proxy(upstream);
    let mut client = Client::tcp(proxy.address());
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert!(client.head().contains(&"transfer-encoding: chunked".to_owned()));
    for letter in ["a", "b", "c"] {
        // Each chunk is sent after the previous one was echoed.
        client.send(format!("1\r\n{letter}\r\n"));
        assert_eq!(client.body(6), format!("1\r\n{letter}\r\n").as_bytes());
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.body(5), b"0\r\n\r\n");
    // Request and response are complete, so the upstream connection is reused.
    assert_eq!(client.get("/").body, b"same");
    proxy.stop();
}

#[test]
fn forwards_the_response_if_sending_the_body_fails() {
    let (trigger, triggered) = channel::<()>();
    let triggered = Mutex::new(triggered);
    let upstream = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        triggered.lock().unwrap().recv().unwrap();
        // Closing a socket with unread data sends a reset.
        stream.write_all(b"HTTP/1.1 413 Large\r\nContent-Length: 3\r\n\r\nbig").unwrap();
    });
    let proxy = start_unbuffered_proxy(upstream);
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 1 << 30);
    stream.write_all(head.as_bytes()).unwrap();
    // Fill all buffers, so that the proxy is sending when the reset arrives.
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    while stream.write(&[b'x'; 1 << 16]).is_ok() {}
    trigger.send(()).unwrap();
    let mut client = Client::from_stream(stream);
    let response = client.response();
    assert_eq!((response.status, &*response.body), (413, &b"big"[..]));
    drop(client);
    proxy.stop();
}

#[test]
fn forwards_request_bodies_unchanged() {
    /// Echoes the raw body of each request after it is complete.
    fn echo(_: usize, mut stream: TcpStream) {
        while let Some(head) = read_head(&mut stream) {
            let mut raw = Vec::new();
            let mut byte = [0; 1 << 16];
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = length.map(|length| length.parse::<usize>().unwrap());
            let is_complete = |raw: &[u8]| match length {
                Some(length) => raw.len() == length,
                None => raw.ends_with(b"\r\n0\r\n\r\n"),
            };
            while !is_complete(&raw) {
                let length = stream.read(&mut byte).unwrap();
                assert!(length > 0, "truncated after {}", raw.len());
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
    let proxy = start_proxy(raw_upstream(echo));
    let mut client = Client::tcp(proxy.address());
    for length in [1, 2_000, 32 << 10, (32 << 10) + 1, 70_000, 1_000_000] {
        let body: Vec<u8> = (0..length).map(|n| b'a' + (n % 23) as u8).collect();
        client.send(format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n"));
        client.send(&body);
        assert!(client.response().body == body, "{length}");
        let head = "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = [format!("{length:x}\r\n").as_bytes(), &body, b"\r\n"].concat();
        client.send([head.as_bytes(), &chunk, &chunk, b"0\r\n\r\n"].concat());
        assert!(client.response().body == [&*body, &*body].concat(), "{length} in chunks");
    }
    proxy.stop();
}

// -- requests that are not forwarded

#[test]
fn detects_request_loops() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let route = format!("/ >> http://{address}/");
    let proxy = Weft::start(&mut weft(["--route", &route, "--listen", &address.to_string()]));
    assert_eq!(proxy.client().get("/").status, 508);
    // Nine requests in the log: eight were forwarded.
    let lines = |proxy: &Weft| proxy.stdout().matches(" 508 ").count();
    common::until("all requests are logged", || lines(&proxy) == 9);
    proxy.stop();
}

#[test]
fn logs_once_that_no_upstream_is_available() {
    let route = format!("/ >> http://{} http://{}", unused_address(), unused_address());
    let proxy = Weft::start(&mut weft(["--route", &route, "--listen", "127.0.0.1:0", "--no-log"]));
    let statuses: Vec<u16> = (0..20).map(|_| proxy.client().get("/").status).collect();
    assert_eq!(statuses.last(), Some(&503), "{statuses:?}");
    let stderr = proxy.stop().stderr;
    assert_eq!(stderr.matches("a request has no upstream: none is up").count(), 1, "{stderr}");
}

#[test]
fn lenient_proxy_mends_heads_and_rejects_different_lengths() {
    const MENDED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nvia: 1.1 weft\r\n\r\nab";
    for (sent, expected, outcome) in [
        ("HTTP/1.1 200 OK\nContent-Length: 2\n\nab", MENDED, Outcome::Reused),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
            MENDED,
            Outcome::Reused,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
            BAD_GATEWAY,
            Outcome::NewConnection,
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length: 2\nTransfer-Encoding: gzip\n\nab",
            BAD_GATEWAY,
            Outcome::NewConnection,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nvia: 1.1 weft\r\n\r\n1\r\na\r\n0\r\n\r\n",
            Outcome::NewConnection,
        ),
    ] {
        for (setting, expected, outcome) in [
            ("lenient_responses = true", expected, outcome),
            ("lenient_responses = false", BAD_GATEWAY, Outcome::NewConnection),
        ] {
            let upstream = upstream(sent.into(), SendMode::Bytewise, false);
            let mut file = tempfile::NamedTempFile::new().unwrap();
            let route = format!("{{ proxy = \"http://{upstream}/\", {setting} }}");
            write!(file, "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\"/\" = {route}\n").unwrap();
            let path = file.path().to_str().unwrap();
            let proxy = Weft::start(&mut weft(["--config", path, "--no-log", "--workers", "1"]));
            let requests = "GET / HTTP/1.1\r\nHost: h\r\n\r\n\
                            GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            let number = i32::from(outcome == Outcome::NewConnection);
            let next = format!(
                "{OK}content-length: 6\r\nconnection: close\r\nvia: 1.1 weft\r\n\r\nnext {number}"
            );
            let found = send_requests(proxy.address(), requests);
            assert_eq!(found, format!("{expected}{next}"), "{sent:?} {setting}");
            proxy.stop();
        }
    }
}

// -- requests of HTTP/2

/// The end of a request over HTTP/2 may come in a DATA frame without content.
#[tokio::test]
async fn empty_data_frames_do_not_become_bodies() {
    let (sender, heads) = channel();
    let address = raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            assert!(!head.contains("transfer-encoding"), "{head}");
            let has_length = head.contains("content-length: 0");
            sender.send((head.split(' ').next().unwrap().to_owned(), has_length)).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let server = start_proxy(address);
    let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    for (method, has_length) in [("GET", false), ("DELETE", false), ("POST", true)] {
        for waits in [false, true] {
            let request = http::Request::builder().method(method).uri("http://h/");
            client = client.ready().await.unwrap();
            let (response, mut body) =
                client.send_request(request.body(()).unwrap(), false).unwrap();
            if waits {
                // The server has the head when it has responded to a request behind it.
                let mut other = client.clone().ready().await.unwrap();
                let options = http::Request::options("http://h/").body(()).unwrap();
                other.send_request(options, true).unwrap().0.await.unwrap();
                assert_eq!(heads.recv_timeout(PATIENCE).unwrap(), ("OPTIONS".to_owned(), false));
            }
            body.send_data(bytes::Bytes::new(), true).unwrap();
            assert_eq!(response.await.unwrap().status(), 200, "{method}");
            let found = heads.recv_timeout(PATIENCE).unwrap();
            assert_eq!(found, (method.to_owned(), has_length), "{waits}");
        }
    }
}
