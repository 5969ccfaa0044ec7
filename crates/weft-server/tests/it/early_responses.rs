//! Responses of upstreams that come early: interim ones, and final ones before the end of the
//! request.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::common::{Client, PATIENCE, Weft, raw_upstream, read_head, weft};
use crate::http2_upstream::peer::{
    DATA, END_STREAM, Peer, frame, head, http2_upstream, reset, text_response,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http1,
    Http2,
}

use Version::{Http1, Http2};

/// The four combinations of the versions of clients and upstreams.
const VERSIONS: [(Version, Version); 4] =
    [(Http1, Http1), (Http1, Http2), (Http2, Http1), (Http2, Http2)];

/// Starts a worker in front of an upstream.
fn serve(upstream: SocketAddr, version: Version, keys: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let scheme = if version == Http1 { "http" } else { "h2c" };
    let config = format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\nlog.access = \"none\"\n[hosts.\"*\"]\n\
         \"/\" = {{ proxy = \"{scheme}://{upstream}/\", {keys} }}\n"
    );
    let file = folder.path().join("weft.toml");
    fs::write(&file, config).unwrap();
    (folder, Weft::start(&mut weft([Path::new("-c"), &file])))
}

/// A client of HTTP/2, with an event loop of its own.
struct Http2Client {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
}

impl Http2Client {
    fn connect(address: SocketAddr) -> Http2Client {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let sender = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let (sender, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(async move { connection.await.unwrap_or_default() });
            sender.ready().await.unwrap()
        });
        Http2Client { runtime, sender }
    }

    /// Sends a request with a body, or with the beginning of one if it is not `is_complete`.
    fn send(&mut self, method: &str, body: &[u8], is_complete: bool) -> Exchange<'_> {
        let request = http::Request::builder().method(method).uri("http://h/").body(()).unwrap();
        let (response, mut stream) = self.sender.send_request(request, body.is_empty()).unwrap();
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body), is_complete).unwrap();
        }
        Exchange { runtime: &self.runtime, response, _stream: stream }
    }
}

struct Exchange<'a> {
    runtime: &'a Runtime,
    response: ResponseFuture,
    /// Dropped, it would cancel the stream.
    _stream: h2::SendStream<Bytes>,
}

impl Exchange<'_> {
    /// Status and `Link` of the next interim response.
    fn interim(&mut self) -> (u16, String) {
        let next = std::future::poll_fn(|cx| self.response.poll_informational(cx));
        let next = self.runtime.block_on(async { timeout(PATIENCE, next).await });
        let interim = next.expect("in time").expect("an interim response").unwrap();
        (interim.status().as_u16(), interim.headers()["link"].to_str().unwrap().to_owned())
    }

    /// Status and body.
    fn response(self) -> (u16, Vec<u8>) {
        let Exchange { response, runtime, _stream } = self;
        let exchange = async {
            let response = response.await.unwrap();
            let (status, mut body, mut bytes) =
                (response.status().as_u16(), response.into_body(), Vec::new());
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                bytes.extend_from_slice(&data);
            }
            (status, bytes)
        };
        runtime.block_on(async { timeout(PATIENCE, exchange).await.expect("in time") })
    }
}

/// Starts an upstream that sends an interim response, and the final one when it is told to.
fn hinting(version: Version) -> (SocketAddr, Sender<()>) {
    let (proceed, may_proceed) = mpsc::channel();
    let may_proceed = Arc::new(Mutex::new(may_proceed));
    let wait = move || may_proceed.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    let address = match version {
        Http1 => raw_upstream(move |_, mut stream| {
            while read_head(&mut stream).is_some() {
                stream
                    .write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>;rel=preload\r\n\r\n")
                    .unwrap();
                wait();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            }
        }),
        Http2 => http2_upstream(move |_, peer| {
            while let Some((stream, _)) = peer.whole_request() {
                let link = ("link", "</a>;rel=preload");
                peer.send(&head(0, stream, &[(":status", "103"), link]));
                wait();
                peer.send(&text_response(stream, "ok"));
            }
        }),
    };
    (address, proceed)
}

#[test]
fn interim_responses_precede_the_final_one() {
    for (client_version, upstream_version) in VERSIONS {
        let (upstream, proceed) = hinting(upstream_version);
        let (_folder, server) = serve(upstream, upstream_version, "");
        for _ in 0..2 {
            let (interim, response) = match client_version {
                Http1 => {
                    let mut client = server.client();
                    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
                    let interim = client.head();
                    proceed.send(()).unwrap();
                    let response = client.response();
                    let status: u16 = interim[0].split(' ').nth(1).unwrap().parse().unwrap();
                    let link = interim[1].split_once(": ").unwrap().1.to_owned();
                    ((status, link), (response.status, response.body))
                }
                Http2 => {
                    let mut client = Http2Client::connect(server.address());
                    let mut exchange = client.send("GET", b"", true);
                    let interim = exchange.interim();
                    proceed.send(()).unwrap();
                    (interim, exchange.response())
                }
            };
            let expected = ((103, "</a>;rel=preload".to_owned()), (200, b"ok".to_vec()));
            assert_eq!((interim, response), expected, "{client_version:?} {upstream_version:?}");
        }
        // RFC 9110 §15.2: a client of HTTP/1.0 gets none.
        let mut client = server.client();
        client.send("GET / HTTP/1.0\r\nHost: h\r\n\r\n");
        proceed.send(()).unwrap();
        assert_eq!(client.response().status, 200);
        server.stop();
    }
}

/// Length of the body of an upload, which no socket buffers hold.
const UPLOAD_BYTES: usize = 12 << 20;

const RESPONSE_BYTES: usize = 8_000;

/// Starts an upstream that responds to each POST before it has read the body, of which it reads no
/// more, and to each GET. It sends the numbers of connections on which there were requests.
/// `leaves`: a connection of HTTP/1.1 closes after the response, and a stream is reset.
fn hasty(version: Version, status: u16, leaves: bool) -> (SocketAddr, Receiver<usize>) {
    let (sender, connections) = mpsc::channel();
    let body = [b'x'; RESPONSE_BYTES];
    let address = match version {
        Http1 => raw_upstream(move |connection, mut stream| {
            while let Some(head) = read_head(&mut stream) {
                let _ = sender.send(connection);
                let response =
                    format!("HTTP/1.1 {status} Hasty\r\nContent-Length: {RESPONSE_BYTES}\r\n\r\n");
                stream.write_all(&[response.as_bytes(), &body].concat()).unwrap();
                if head.starts_with("POST ") {
                    if !leaves {
                        // The connection closes if the proxy does.
                        wait_for_close(&stream);
                    }
                    return;
                }
            }
        }),
        Http2 => http2_upstream(move |connection, peer: &mut Peer| {
            while let Some(stream) = peer.request() {
                let _ = sender.send(connection);
                let (status, length) = (status.to_string(), RESPONSE_BYTES.to_string());
                peer.send(&head(0, stream, &[(":status", &status), ("content-length", &length)]));
                peer.send(&frame(DATA, END_STREAM, stream, &body));
                if leaves {
                    peer.send(&reset(stream, 0));
                }
            }
        }),
    };
    (address, connections)
}

/// Waits until the peer has closed a connection whose input is not read.
fn wait_for_close(stream: &std::net::TcpStream) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP | PollFlags::HUP)];
    let patience = Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut fds, Some(&patience)), Ok(1), "the connection stays open");
}

#[test]
fn response_before_the_end_of_an_upload_is_forwarded_at_once() {
    for (client_version, upstream_version) in VERSIONS {
        for (status, buffers, leaves) in
            [(413, true, false), (413, true, true), (401, false, false), (401, false, true)]
        {
            let row =
                format!("{client_version:?} {upstream_version:?} {status} {buffers} {leaves}");
            let (upstream, connections) = hasty(upstream_version, status, leaves);
            let keys = format!("buffer_requests = {buffers}");
            let (_folder, server) = serve(upstream, upstream_version, &keys);
            // A buffered body is received before; of another one, the client sends the beginning
            // only.
            let body = vec![b'u'; if buffers { UPLOAD_BYTES } else { 1_000 }];
            let response = match client_version {
                Http1 => {
                    let mut client = server.client();
                    let head = "POST / HTTP/1.1\r\nHost: h\r\n";
                    client.send(format!("{head}Content-Length: {UPLOAD_BYTES}\r\n\r\n"));
                    client.send(&body);
                    let response = client.response();
                    (response.status, response.body)
                }
                Http2 => {
                    let mut client = Http2Client::connect(server.address());
                    client.send("POST", &body, buffers).response()
                }
            };
            assert_eq!(response.0, status, "{row}");
            assert!(response.1 == [b'x'; RESPONSE_BYTES], "{row}: {} bytes", response.1.len());
            // The connection, whose request is not complete, serves no other request.
            assert_eq!(Client::tcp(server.address()).get("/").status, status, "{row}");
            let used: Vec<usize> = connections.try_iter().collect();
            let expected = if upstream_version == Http1 { [0, 1] } else { [0, 0] };
            assert_eq!(used, expected, "{row}");
            assert!(!server.stderr().contains("upstream"), "{row}: {}", server.stderr());
            server.stop();
        }
    }
}
