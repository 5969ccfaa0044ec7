//! Calls of gRPC through the proxy.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Mutex, mpsc};

use bytes::Bytes;
use h2::client::SendRequest;
use http::HeaderMap;

use super::*;
use crate::common::{Program, Weft, has_tool, weft};

// -- a client

/// Opens a connection to a server.
async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    client
}

fn call(fields: &[(&'static str, &'static str)]) -> http::Request<()> {
    let request = http::Request::post("http://h/test.Service/Method");
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let add = |request: http::request::Builder, (name, value): &(&'static str, _)| {
        request.header(*name, *value)
    };
    fields.iter().fold(request, add).body(()).unwrap()
}

/// The outcome of a call: fields of the head, data and trailers.
struct Outcome {
    head: HeaderMap,
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl Outcome {
    /// The status, with `head` or `trailers` as its place.
    fn status(&self) -> String {
        let of = |fields: &HeaderMap| {
            let status = fields.get("grpc-status")?.to_str().unwrap().to_owned();
            assert!(fields.contains_key("grpc-message") || status == "0", "{fields:?}");
            Some(status)
        };
        match (of(&self.head), self.trailers.as_ref().and_then(of)) {
            (Some(status), None) => format!("head {status}"),
            (None, Some(status)) => format!("trailers {status}"),
            statuses => format!("{statuses:?}"),
        }
    }
}

async fn outcome(response: h2::client::ResponseFuture) -> Outcome {
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let (head, mut body) = response.into_parts();
    let mut data = Vec::new();
    while let Some(piece) = body.data().await {
        data.extend_from_slice(&piece.unwrap());
    }
    let trailers = body.trailers().await.unwrap();
    Outcome { head: head.headers, data, trailers }
}

// -- errors

/// The reaction of an upstream to a call.
#[derive(Clone, Copy, Debug)]
enum CallReaction {
    Silence,
    Reset,
    Refuse,
    Invalid,
    /// The first message, and then nothing.
    Message,
    MessageAndReset,
    MessageAndClose,
    TrailersOnly,
}

const MESSAGE: &[u8] = b"\0\0\0\0\x02hi";

#[tokio::test]
async fn errors_have_a_status_of_grpc() {
    use CallReaction::*;
    let begin = || head(0, 1, &[(":status", "200"), ("content-type", "application/grpc")]);
    for (reaction, timeout, expected) in [
        (Silence, "300m", "head 4"),
        (Silence, "300000u", "head 4"),
        (Silence, "", "head 4"),
        (Reset, "", "head 13"),
        (Refuse, "", "head 14"),
        (Invalid, "", "head 13"),
        (Message, "500m", "trailers 4"),
        (MessageAndReset, "", "trailers 14"),
        (MessageAndClose, "", "trailers 14"),
        (TrailersOnly, "", "head 7"),
    ] {
        let (sender, resets) = mpsc::channel();
        let sender = Mutex::new(sender);
        let upstream = http2_upstream(move |_, peer| {
            while let Some(stream) = peer.request() {
                let message = [begin(), frame(DATA, 0, stream, MESSAGE)].concat();
                match reaction {
                    Silence => {}
                    Reset => peer.send(&reset(stream, 2)),
                    Refuse => peer.send(&reset(stream, 7)),
                    Invalid => peer.send(&head(END_STREAM, stream, &[("a", "b")])),
                    Message => peer.send(&message),
                    MessageAndReset => peer.send(&[message, reset(stream, 2)].concat()),
                    MessageAndClose => return peer.send(&message),
                    TrailersOnly => {
                        let fields = [
                            (":status", "200"),
                            ("content-type", "application/grpc"),
                            ("grpc-status", "7"),
                            ("grpc-message", "no"),
                        ];
                        peer.send(&head(END_STREAM, stream, &fields));
                    }
                }
                if matches!(reaction, Silence | Message) {
                    let frame = peer.read_one_of(&[RST_STREAM]).unwrap();
                    sender.lock().unwrap().send(frame.payload).unwrap();
                }
            }
        });
        let proxy = start_proxy(upstream, "response_timeout = \"400ms\", max_retries = 1");
        let mut client = connect(proxy.address()).await;
        let fields = [("grpc-timeout", timeout)];
        let fields = if timeout.is_empty() { &[][..] } else { &fields };
        let (response, mut stream) = client.send_request(call(fields), false).unwrap();
        stream.send_data(MESSAGE.into(), true).unwrap();
        let outcome = outcome(response).await;
        assert_eq!(outcome.status(), expected, "{reaction:?} {timeout}");
        let has_message = format!("{reaction:?}").starts_with("Message");
        assert_eq!(outcome.data, if has_message { MESSAGE } else { b"" }, "{reaction:?}");
        if matches!(reaction, Silence | Message) {
            let code = resets.recv_timeout(PATIENCE).unwrap();
            assert_eq!(code, [0, 0, 0, 8], "{reaction:?}: the call is canceled");
        }
    }
}

#[tokio::test]
async fn calls_to_an_upstream_that_is_down_are_unavailable() {
    let proxy = start_proxy(unused_address(), "");
    let mut client = connect(proxy.address()).await;
    let (response, _) = client.send_request(call(&[]), true).unwrap();
    let outcome = outcome(response).await;
    assert_eq!((&*outcome.status(), outcome.data.len()), ("head 14", 0));
    // A request that is not a call gets a status of HTTP.
    assert_eq!(get(&proxy).0, 502);
}

// -- streams

#[tokio::test]
async fn messages_pass_in_both_directions_at_any_pace() {
    let (sender, mut frames) = tokio::sync::mpsc::unbounded_channel();
    let upstream = http2_upstream(move |_, peer| {
        let stream = peer.request().unwrap();
        peer.send(&head(0, stream, &[(":status", "200"), ("content-type", "application/grpc")]));
        // More than the windows and buffers on the way to a client that reads nothing.
        peer.send(&frame(DATA, 0, stream, &[b'a'; 16 << 10]).repeat(4));
        while let Some(frame) = peer.read_one_of(&[DATA, RST_STREAM]) {
            sender.send((frame.kind, frame.payload)).unwrap();
        }
    });
    let proxy = start_proxy(upstream, "");
    let mut client = connect(proxy.address()).await;
    let (response, mut stream) = client.send_request(call(&[]), false).unwrap();
    // The head of the response arrives before the first message of the client.
    let response = response.await.unwrap();
    let mut next = async || {
        tokio::time::timeout(PATIENCE, frames.recv()).await.expect("a frame in time").unwrap()
    };
    for text in ["one", "two", "three"] {
        stream.send_data(text.into(), false).unwrap();
        assert_eq!(next().await, (DATA, text.as_bytes().to_vec()));
    }
    drop((response, stream));
    assert_eq!(next().await, (RST_STREAM, vec![0, 0, 0, 8]), "the client has left");
}

/// The messages of a stream that stays open are not kept until there are more of them.
#[tokio::test]
async fn each_message_of_an_upstream_arrives_at_once() {
    let upstream = http2_upstream(|_, peer| {
        let stream = peer.request().unwrap();
        peer.send(&head(0, stream, &[(":status", "200"), ("content-type", "application/grpc")]));
        // A message of the client asks for the next ones: one, two that are joined, and one in
        // parts.
        let message = |text: &str| frame(DATA, 0, stream, text.as_bytes());
        for messages in [message("1"), [message("2"), message("3")].concat(), message("45")] {
            peer.read_one_of(&[DATA]).unwrap();
            let (first, second) = messages.split_at(10);
            peer.send(first);
            peer.send(second);
        }
        while peer.read().is_some() {}
    });
    let proxy = start_proxy(upstream, "");
    let mut client = connect(proxy.address()).await;
    let (response, mut stream) = client.send_request(call(&[]), false).unwrap();
    let mut body = response.await.unwrap().into_body();
    let mut received = Vec::new();
    for expected in ["1", "123", "12345"] {
        stream.send_data("next".into(), false).unwrap();
        while received.len() < expected.len() {
            let piece = tokio::time::timeout(PATIENCE, body.data()).await.expect("data in time");
            received.extend_from_slice(&piece.unwrap().unwrap());
        }
        assert_eq!(received, expected.as_bytes());
    }
}

#[tokio::test]
async fn small_messages_are_joined() {
    const COUNT: usize = 2_000;
    let (sender, released) = mpsc::channel();
    let released = Mutex::new(released);
    let upstream = http2_upstream(move |_, peer| {
        let stream = peer.request().unwrap();
        peer.send(&head(0, stream, &[(":status", "200"), ("content-type", "application/grpc")]));
        released.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        let messages = frame(DATA, 0, stream, MESSAGE).repeat(COUNT);
        peer.send(&[messages, head(END_STREAM, stream, &[("grpc-status", "0")])].concat());
        while peer.read().is_some() {}
    });
    let proxy = start_proxy(upstream, "");
    let mut client = connect(proxy.address()).await;
    let (response, _) = client.send_request(call(&[]), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    sender.send(()).unwrap();
    let (mut data, mut pieces) = (Vec::new(), 0);
    while let Some(piece) = body.data().await {
        data.extend_from_slice(&piece.unwrap());
        pieces += 1;
    }
    assert!(data == MESSAGE.repeat(COUNT), "{} bytes", data.len());
    assert!(pieces < COUNT / 10, "{pieces} frames");
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn a_client_may_pause_before_the_response() {
    let upstream = http2_upstream(|_, peer| {
        while let Some((stream, body)) = peer.whole_request() {
            assert_eq!(body, [MESSAGE, MESSAGE].concat());
            let fields =
                [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")];
            peer.send(&head(END_STREAM, stream, &fields));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("weft.toml");
    fs::write(&config, format!("[hosts.\"*\"]\n\"/\" = \">> h2c://{upstream}\"\n")).unwrap();
    let mut command = weft(["--listen", "127.0.0.1:0", "--stall-timeout", "1s", "--no-log"]);
    let server = Weft::start(command.arg("--config").arg(&config));
    let mut client = connect(server.address()).await;
    let (response, mut stream) = client.send_request(call(&[]), false).unwrap();
    stream.send_data(MESSAGE.into(), false).unwrap();
    // Longer than a body may stall; the rest is the time in which the server would notice.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    stream.send_data(MESSAGE.into(), true).unwrap();
    assert_eq!(outcome(response).await.status(), "head 0");
    server.stop();
}

// -- gRPC-Web

/// Sends a call of gRPC-Web by HTTP/1.0, whose responses end with the connection. Returns the body.
fn web_call(proxy: &Proxy, media_type: &str, body: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!(
        "POST /test.Service/Method HTTP/1.0\r\nHost: h\r\nContent-Type: {media_type}\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let end = response.windows(4).position(|part| part == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8(response[..end].to_vec()).unwrap().to_ascii_lowercase();
    assert!(head.contains(&format!("content-type: {media_type}\r\n")), "{head}");
    response.split_off(end)
}

#[test]
fn calls_of_grpc_web_are_converted() {
    const STATUS: &[u8] = b"\x80\0\0\0\x10grpc-status: 0\r\n";
    let upstream = http2_upstream(|_, peer| {
        while let Some((stream, body)) = peer.whole_request() {
            assert_eq!(body, MESSAGE);
            let fields = [(":status", "200"), ("content-type", "application/grpc")];
            peer.send(&head(0, stream, &fields));
            peer.send(&frame(DATA, 0, stream, MESSAGE));
            peer.send(&head(END_STREAM, stream, &[("grpc-status", "0")]));
        }
    });
    let proxy = start_proxy(upstream, "grpc_web = true");
    let binary = web_call(&proxy, "application/grpc-web+proto", MESSAGE);
    assert_eq!(binary, [MESSAGE, STATUS].concat());
    // The pieces are padded one by one. They may have been joined.
    let text = web_call(&proxy, "application/grpc-web-text+proto", b"AAAAAAJoaQ==");
    assert_eq!(text, b"AAAAAAJoaQ==gAAAABBncnBjLXN0YXR1czogMA0K");

    let down = start_proxy(unused_address(), "grpc_web = true");
    let failed = web_call(&down, "application/grpc-web+proto", MESSAGE);
    assert!(failed.starts_with(b"\x80\0\0\0"), "{}", failed.escape_ascii());
    let unavailable = b"grpc-status: 14\r\n";
    assert!(failed.windows(unavailable.len()).any(|part| part == unavailable));
}

// -- the interoperability tests of gRPC

/// The cases that need no credentials of a cloud.
const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "cancel_after_begin",
    "cancel_after_first_response",
    "timeout_on_sleeping_server",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

/// Starts the server of gRPC's interoperability tests. It cannot choose a port itself, and another
/// test may bind the free one first.
fn start_interop_server(options: &[&str]) -> (Program, u16) {
    for _ in 0..10 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("grpc-interop-server");
        let mut server = Program::start(command.arg(format!("--port={port}")).args(options));
        let is_listening = || TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port)).is_ok();
        until("the server listens or exits", || is_listening() || !server.is_running());
        if server.is_running() {
            return (server, port);
        }
    }
    panic!("no port stays free");
}

#[test]
fn interoperability_cases_pass_with_and_without_tls() {
    if !has_tool("grpc-interop-client") || !has_tool("grpc-interop-server") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(file("crt"), certified.cert.pem()).unwrap();
    fs::write(file("key"), certified.signing_key.serialize_pem()).unwrap();
    for (is_tls, version) in [(false, "2"), (true, "2"), (true, "auto")] {
        let tls = ["--use_tls", "--tls_cert_file", &file("crt"), "--tls_key_file", &file("key")];
        let (_upstream, upstream_port) = start_interop_server(if is_tls { &tls } else { &[] });
        let scheme = if is_tls { "https" } else { "http" };
        let text = format!(
            "[hosts.\"*\"]\n\"/\" = {{ proxy = \"{scheme}://localhost:{upstream_port}\", \
             http_version = \"{version}\", ca = \"{}\" }}\n",
            file("crt")
        );
        fs::write(file("weft.toml"), text).unwrap();
        let (config, crt, key) = (file("weft.toml"), file("crt"), file("key"));
        let mut command = weft(["--config", &config, "--listen", "127.0.0.1:0", "--workers", "1"]);
        command.args(["--tls-cert", &crt, "--tls-key", &key, "--tls-listen", "127.0.0.1:0"]);
        let server = Weft::start(command.arg("--no-log"));
        let address = if is_tls { server.tls_address() } else { server.address() };
        for case in CASES {
            let mut client = Command::new("grpc-interop-client");
            client
                .args([format!("--server_port={}", address.port()), format!("--test_case={case}")]);
            client.arg("--server_host=localhost");
            if is_tls {
                client.args(["--use_tls", "--use_test_ca", "--ca_file", &crt]);
                client.arg("--server_host_override=localhost");
            }
            let output = Program::start(&mut client).wait_with_output();
            let (status, errors) = (output.status, output.stderr);
            assert_eq!(status, Ok(0), "{case} with TLS: {is_tls}, {version}: {errors}");
        }
        server.stop();
    }
}
