//! The table of raw requests and expected responses: `tests/wire/*.wire`.
//!
//! Each case runs three times: at once over a socket, byte by byte through an in-memory pipe with
//! a capacity of one byte, and at once with a pipelined request after it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::common;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::server::ServerHandle;
use weft::{Request, Response, Server, Settings};

/// Responds with the request as parsed by the engine.
async fn mirror(request: Request) -> weft::Result<Response> {
    let (head, mut body) = request.into_parts();
    let mut text = format!("{} {}\n", head.method(), head.target()).into_bytes();
    while let Some(chunk) = body.chunk().await? {
        text.extend_from_slice(&chunk);
    }
    if let Some(trailers) = body.trailers().filter(|trailers| !trailers.is_empty()) {
        text.push(b'\n');
        for (name, value) in trailers.iter() {
            text.extend_from_slice(&[name.as_bytes(), b": ", value, b"\n"].concat());
        }
    }
    Ok(Response::from_body(text))
}

/// HTTP/1 only: with HTTP/2 enabled, its connection preface would switch the protocol.
fn settings() -> Settings {
    Settings { max_body_bytes: 1 << 20, http2: false, ..Settings::default() }
}

struct Case {
    name: String,
    input: Vec<u8>,
    /// For each request line of the input: true if the method is HEAD.
    heads: Vec<bool>,
    expected: Vec<Expected>,
}

#[derive(Debug)]
enum Expected {
    Response {
        status: u16,
        keep: bool,
        body: Option<Vec<u8>>,
    },
    /// The client closes its sending direction here instead of after the last response.
    HalfClose,
    Eof,
}

/// A received response.
#[derive(Debug, PartialEq)]
struct Received {
    status: u16,
    keep: bool,
    body: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut cases: Vec<Case> = Vec::new();
    for file in files {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            if let Some(name) = line.strip_prefix("== ") {
                let name = format!("{}: {name}", file.file_stem().unwrap().display());
                cases.push(Case {
                    name,
                    input: Vec::new(),
                    heads: Vec::new(),
                    expected: Vec::new(),
                });
            } else if let Some(expected) = line.strip_prefix("-- ") {
                cases.last_mut().unwrap().expected.push(expectation(expected));
            } else if line.starts_with('#') || line.is_empty() {
                continue;
            } else if let Some(repeat) = line.strip_prefix(r"\repeat ") {
                let (times, text) = repeat.split_once(' ').unwrap();
                let text = unescape(text).repeat(times.parse().unwrap());
                cases.last_mut().unwrap().input.extend(text);
            } else {
                cases.last_mut().unwrap().input.extend(unescape(line));
            }
        }
    }
    cases.iter_mut().for_each(|case| case.heads = heads_only(&case.input));
    cases
}

fn expectation(text: &str) -> Expected {
    match text {
        "eof" => return Expected::Eof,
        "half-close" => return Expected::HalfClose,
        _ => {}
    }
    let mut words = text.splitn(3, ' ');
    let status = words.next().unwrap().parse().unwrap();
    let keep = match words.next().unwrap() {
        "keep" => true,
        "close" => false,
        other => panic!("neither keep nor close: {other}"),
    };
    let body = words.next().map(|quoted| {
        unescape(quoted.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"')).unwrap())
    });
    Expected::Response { status, keep, body }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        bytes.push(match b {
            b'\\' => match rest.next().unwrap() {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'0' => 0,
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            },
            other => other,
        });
    }
    bytes
}

/// Parses the complete final responses to requests of which these have the method HEAD. Returns the
/// responses and the remaining bytes.
fn responses<'a>(mut bytes: &'a [u8], heads: &[bool]) -> (Vec<Received>, &'a [u8]) {
    let mut head_only = heads.iter().copied();
    let mut got = Vec::new();
    let mut is_head = head_only.next();
    while let Some(response) = common::Response::parse(bytes, is_head == Some(true)) {
        bytes = &bytes[response.length..];
        if response.status >= 200 {
            let keep = response.header("connection") != Some("close");
            got.push(Received { status: response.status, keep, body: response.body });
            is_head = head_only.next();
        }
    }
    (got, bytes)
}

/// For each request line of the input: true if the method is HEAD.
fn heads_only(input: &[u8]) -> Vec<bool> {
    let lines = input.split(|&b| b == b'\n');
    let requests = lines.filter(|line| line.windows(8).any(|w| w == b" HTTP/1."));
    requests.map(|line| line.starts_with(b"HEAD ")).collect()
}

fn check(mode: &str, case: &Case, received: &[u8], follower: bool) -> Result<(), String> {
    let (got, incomplete) = responses(received, &case.heads);
    if !incomplete.is_empty() {
        return Err(format!("{mode}, {}: incomplete: {}", case.name, incomplete.escape_ascii()));
    }
    let mut rest = got.iter();
    let mut open = true;
    for expected in case.expected.iter().filter(|e| !matches!(e, Expected::HalfClose)) {
        match (expected, rest.next()) {
            (Expected::Eof, None) => open = false,
            (Expected::Response { status, keep, body }, Some(got))
                if *status == got.status
                    && *keep == got.keep
                    && body.as_ref().is_none_or(|body| *body == got.body) =>
            {
                open = *keep;
            }
            (expected, got) => {
                let got =
                    got.map(|got| (got.status, got.keep, got.body.escape_ascii().to_string()));
                return Err(format!(
                    "{mode}, {}: expected {expected:?}, received {got:?}",
                    case.name
                ));
            }
        }
    }
    match (follower && open, rest.next()) {
        (false, None) => Ok(()),
        (true, Some(got)) if got.body == b"GET /follower\n" => Ok(()),
        (_, more) => Err(format!("{mode}, {}: after it, {more:?}", case.name)),
    }
}

/// Sends the input and reads until the server closes the connection. Closes the sending direction
/// after `expected` responses.
fn over_socket(server: &ServerHandle, input: &[u8], expected: usize) -> Vec<u8> {
    let heads = heads_only(input);
    let mut socket = TcpStream::connect(common::address(server)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reader = socket.try_clone().unwrap();
    let sender = input.to_vec();
    // A server that rejects the request may stop reading before all bytes are sent.
    let sending = std::thread::spawn(move || drop(socket.write_all(&sender).map(|()| socket)));
    let mut sending = Some(sending);
    let mut received = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        if responses(&received, &heads).0.len() >= expected
            && let Some(sending) = sending.take()
        {
            sending.join().unwrap();
            // Fails if the server has already closed the connection.
            let _ = reader.shutdown(Shutdown::Write);
        }
        match reader.read(&mut buffer) {
            Ok(0) => return received,
            Ok(n) => received.extend_from_slice(&buffer[..n]),
            Err(error) => panic!("{error} after {:?}", received.escape_ascii().to_string()),
        }
    }
}

fn through_pipe(input: &[u8]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let capacity = if input.len() < 64 << 10 { 1 } else { 4001 };
        let (client, server) = tokio::io::duplex(capacity);
        let (mut reader, mut writer) = tokio::io::split(client);
        let sending = async {
            // Fails if the server rejects the request and stops reading.
            let _ = writer.write_all(input).await;
            let _ = writer.shutdown().await;
        };
        let mut received = Vec::new();
        let reading = async { reader.read_to_end(&mut received).await.unwrap() };
        let engine = Server::new(mirror).settings(settings());
        let all = async { tokio::join!(engine.serve_connection(server), sending, reading) };
        let all = tokio::time::timeout(Duration::from_secs(60), all).await;
        all.expect("the connection ends in time").0.unwrap();
        received
    })
}

#[test]
fn every_case_at_once_byte_by_byte_and_with_a_follower() {
    let server = Server::new(mirror).settings(settings()).workers(1);
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let cases = cases();
    assert!(cases.len() > 400, "only {} cases found", cases.len());
    let mut failures = Vec::new();
    for case in &cases {
        let is_response = |e: &&Expected| matches!(e, Expected::Response { .. });
        let end = case.expected.iter().position(|e| !is_response(&e));
        let responses_before_end = case.expected[..end.unwrap_or(case.expected.len())].len();
        let received = over_socket(&server, &case.input, responses_before_end);
        failures.extend(check("at once", case, &received, false).err());
        failures.extend(check("byte by byte", case, &through_pipe(&case.input), false).err());
        if end.is_none() {
            let follower = b"GET /follower HTTP/1.1\r\nHost: f\r\n\r\n";
            let input = [&case.input, &follower[..]].concat();
            let open = matches!(case.expected.last(), Some(Expected::Response { keep: true, .. }));
            let received = over_socket(&server, &input, responses_before_end + usize::from(open));
            failures.extend(check("with a follower", case, &received, true).err());
        }
    }
    server.shutdown(Duration::from_secs(5));
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}
