//! Clients that send cheap input without end: each kind of input has a budget. Within it, the
//! client is served; beyond it, the connection is closed with H3_EXCESSIVE_LOAD.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, RecvStream, SendStream, TransportConfig, VarInt};

use super::raw_client::RawClient;
use super::{control, echo, get, request};
use crate::common::TEST_TIMEOUT;
use crate::common::clients::{Transport, wait_until, within};
use crate::common::http3::{Frames, frame, headers, quic_config, quic_connect};
use weft::{Request, Response, Settings};

const EXCESSIVE_LOAD: u64 = 0x107;

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Thousands of requests, in debug builds on busy machines.
    runtime
        .block_on(async { tokio::time::timeout(TEST_TIMEOUT * 10, test).await })
        .expect("in time");
}

/// Input that a client repeats.
#[derive(Clone)]
enum Repeated {
    /// Bytes of a unidirectional stream: a prefix, and the part that is repeated.
    Uni(Vec<u8>, Vec<u8>),
    /// Bytes of a request stream.
    Request(Vec<u8>, Vec<u8>),
    /// Unidirectional streams with these bytes.
    UniStreams(Vec<u8>),
    /// Unidirectional streams with these bytes, which are reset.
    ResetUniStreams(Vec<u8>),
    /// Requests that the client stops to receive.
    Stopped(Vec<u8>),
}

use Repeated::{Request as OnRequest, ResetUniStreams, Stopped, Uni, UniStreams};

/// Sends the input. Errors mean that the connection is closed. Returns the streams that stay open.
async fn send(connection: &Connection, input: &Repeated, count: usize) -> Vec<SendStream> {
    let mut open = Vec::new();
    match input {
        Uni(prefix, repeated) => {
            let Ok(mut stream) = connection.open_uni().await else { return open };
            let bytes = [&prefix[..], &repeated.repeat(count)].concat();
            let _ = stream.write_all(&bytes).await;
            open.push(stream);
        }
        OnRequest(prefix, repeated) => {
            let Ok((mut stream, receive)) = connection.open_bi().await else { return open };
            let bytes = [&prefix[..], &repeated.repeat(count)].concat();
            let _ = stream.write_all(&bytes).await;
            let _ = stream.finish();
            let _ = Frames::new(receive).status().await;
        }
        UniStreams(bytes) | ResetUniStreams(bytes) => {
            for _ in 0..count {
                let Ok(mut stream) = connection.open_uni().await else { return open };
                let _ = stream.write_all(bytes).await;
                let _ = match input {
                    UniStreams(_) => stream.finish(),
                    _ => stream.reset(VarInt::from_u32(0)),
                };
            }
        }
        Stopped(bytes) => {
            for _ in 0..count {
                let Ok((mut stream, mut receive)) = connection.open_bi().await else { return open };
                let _ = stream.write_all(bytes).await;
                let _ = receive.stop(VarInt::from_u32(0x10c));
            }
        }
    }
    open
}

/// The code with which the connection is closed. The server may still serve requests while it has
/// not processed all input.
async fn close_code(connection: &Connection) -> u64 {
    match connection.closed().await {
        quinn::ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
        other => panic!("{other}"),
    }
}

/// The code with which the connection is closed, or 200 if a request is served.
async fn outcome(connection: &Connection) -> u64 {
    match request(connection).await {
        Ok(status) => status.into(),
        Err(_) => close_code(connection).await,
    }
}

#[test]
fn input_without_effect_has_a_budget() {
    let post =
        headers(&[(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "a")]);
    let control = |repeated: Vec<u8>| Uni(control(&[]), repeated);
    let instructions =
        |repeated: &[u8]| Uni(b"\x02\x3f\xe1\x1f\x41a\x011".to_vec(), repeated.to_vec());
    let priority = frame(0xf_0700, b"\x40\x80u=1");
    let cases = [
        ("PRIORITY_UPDATE", control(priority), 1_000, 5_000),
        ("reserved frames", control(frame(0x21, b"")), 1_000, 5_000),
        ("reserved frames with a payload", control(frame(0x21, &[0; 600])), 5_000, usize::MAX),
        ("MAX_PUSH_ID", control(frame(13, &[7])), 1_000, 5_000),
        ("GOAWAY", control(frame(7, &[0])), 0, 5_000),
        ("reserved frames of a request", OnRequest(get(&[]), frame(0x21, b"")), 1_000, 5_000),
        ("reserved frames before a head", OnRequest(vec![], frame(0x21, b"")), 0, 5_000),
        ("empty DATA", OnRequest(post.clone(), frame(0, b"")), 1_000, 5_000),
        ("DATA of a byte", OnRequest(post, frame(0, b"a")), 200, 20_000),
        ("streams of unknown types", UniStreams(vec![0x21]), 500, 5_000),
        ("streams without a type", UniStreams(vec![]), 500, 5_000),
        ("streams that are reset", ResetUniStreams(vec![0x40]), 500, 5_000),
        ("duplicates", instructions(b"\0"), 5_000, 50_000),
        ("changes of the capacity", instructions(b"\x20\x3f\xe1\x1f"), 1_000, 50_000),
        ("empty insertions", instructions(b"\x40\0"), 5_000, 200_000),
        ("cancellations", Uni(vec![3], vec![0x44]), 200_000, usize::MAX),
        ("stopped requests", Stopped(get(&[])), 50, 5_000),
    ];
    run(async {
        // Some clients send no request.
        let settings = Settings { head_timeout: TEST_TIMEOUT * 10, ..Settings::default() };
        let server = Transport::Http3.serve_with(settings, echo);
        for (name, input, permitted, beyond) in cases {
            for (count, expected) in [(permitted, 200), (beyond, EXCESSIVE_LOAD)] {
                if count == 0 || count == usize::MAX {
                    continue;
                }
                let (_endpoint, connection) = quic_connect(server.address).await.unwrap();
                let _open = send(&connection, &input, count).await;
                let outcome = match expected {
                    200 => outcome(&connection).await,
                    _ => within("the connection ends", 1, close_code(&connection)).await,
                };
                assert_eq!(outcome, expected, "{count} {name}");
            }
        }
        server.stop().await;
    });
}

/// Frames of the transport carry no data. An event loop would send few of them.
#[test]
fn frames_of_the_transport_have_a_budget() {
    run(async {
        // The client sends no request.
        let settings = Settings { head_timeout: TEST_TIMEOUT * 4, ..Settings::default() };
        let server = Transport::Http3.serve_with(settings, echo);
        // The budget grows with the time, so that a slow client needs more frames.
        for (count, expected) in [(500, None), (1_000_000, Some(EXCESSIVE_LOAD))] {
            let mut client = RawClient::connected(server.address);
            client.socket().set_nonblocking(true).unwrap();
            for _ in 0..count {
                client.connection.ping();
                client.send();
                // All of them: the buffer of the socket must not lose the close.
                while client.receive() {}
                if client.lost.is_some() {
                    break;
                }
            }
            client.socket().set_nonblocking(false).unwrap();
            for _ in 0..40 {
                client.send();
                client.receive();
            }
            assert_eq!(client.close_code(), expected, "{count} PING frames: {:?}", client.lost);
        }
        server.stop().await;
    });
}

/// The streams of a client that permits 16 bytes of each response, and reads none.
async fn unread(
    address: SocketAddr,
    count: usize,
) -> (quinn::Endpoint, Connection, Vec<RecvStream>) {
    let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let mut config = quic_config(&[b"h3"]);
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(16));
    config.transport_config(Arc::new(transport));
    let connection = endpoint.connect_with(config, address, "a").unwrap().await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..count {
        let (mut send, receive) = connection.open_bi().await.unwrap();
        send.write_all(&get(&[])).await.unwrap();
        send.finish().unwrap();
        streams.push(receive);
    }
    (endpoint, connection, streams)
}

#[test]
fn responses_that_are_not_read_are_reset() {
    run(async {
        let settings =
            Settings { stall_timeout: Duration::from_millis(300), ..Settings::default() };
        for bytes in [0, 100, 10_000, 200_000] {
            let app = move |_: Request| async move { Response::text("a".repeat(bytes)) };
            let server = Transport::Http3.serve_with(settings.clone(), app);
            let (_endpoint, connection, streams) = unread(server.address, 12).await;
            for mut stream in streams {
                let reset = stream.received_reset().await.unwrap();
                assert_eq!(reset, Some(VarInt::from_u32(0x10c)), "{bytes} bytes");
            }
            assert_eq!(connection.close_reason(), None);
            server.stop().await;
        }
    });
}

/// Above 64 handshakes in progress, a client must prove its address: a client with the addresses of
/// others causes no state.
#[test]
fn handshakes_in_progress_are_bounded() {
    run(async {
        let server = Transport::Http3.serve(echo);
        let mut retries = 0;
        let mut clients = Vec::new();
        for _ in 0..100 {
            let mut client = RawClient::new(server.address);
            client.send();
            clients.push(client);
        }
        for client in &clients {
            let mut buffer = [0; 2_048];
            let socket = client.socket().try_clone().unwrap();
            let received = tokio::task::spawn_blocking(move || {
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                socket.recv(&mut buffer).map(|length| buffer[..length].to_vec())
            });
            let datagram = received.await.unwrap().unwrap();
            // A long header of the type Retry (RFC 9000 §17.2.5).
            retries += usize::from(datagram[0] & 0xf0 == 0xf0);
        }
        assert_eq!(retries, 36);
        // A client that proves its address is served.
        let (_endpoint, connection) = quic_connect(server.address).await.unwrap();
        assert_eq!(outcome(&connection).await, 200);
        server.stop().await;
    });
}

/// The server sends no more than it receives to an address that has proven nothing, and only for
/// datagrams of sufficient size (RFC 9000 §8.1, §14.1).
#[test]
fn small_datagrams_are_not_amplified() {
    run(async {
        let server = Transport::Http3.serve(echo);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut sent = 0;
        for first in [0x40, 0xc0, 0xff, 0x00, 0x80] {
            for length in 1..200 {
                let datagram = [&[first, 0, 0, 0, 1, 8][..], &[7; 200]].concat();
                let _ = socket.send_to(&datagram[..length], server.address);
                sent += length;
            }
        }
        let (_endpoint, connection) = quic_connect(server.address).await.unwrap();
        assert_eq!(outcome(&connection).await, 200);
        let (mut received, mut buffer) = (0, [0; 2_048]);
        while let Ok(length) = socket.recv(&mut buffer) {
            received += length;
        }
        assert!(received < sent / 4, "{received} of {sent}");
        server.stop().await;
    });
}

#[test]
fn requests_with_bodies_of_a_byte_are_served() {
    run(async {
        let server = Transport::Http3.serve(echo);
        let (_endpoint, connection) = quic_connect(server.address).await.unwrap();
        let post = [
            headers(&[
                (":method", "POST"),
                (":scheme", "https"),
                (":path", "/"),
                (":authority", "a"),
            ]),
            frame(0, b"a"),
        ];
        for _ in 0..3_000 {
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&post.concat()).await.unwrap();
            send.finish().unwrap();
            assert_eq!(Frames::new(receive).status().await, Ok(200));
        }
        wait_until("all is served", || connection.close_reason().is_none()).await;
        server.stop().await;
    });
}
