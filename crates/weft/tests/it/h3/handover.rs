//! Servers that take over the sockets of each other, as the processes of an upgrade do.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{ConnectionError, Endpoint, ReadError};
use quinn_proto::{ClientConfig, ConnectionId};

use super::connections::run;
use super::get;
use super::raw_client::RawClient;
use crate::common::boxed_server;
use crate::common::clients::{CREDENTIALS, wait_until};
use crate::common::http3::{Frames, frame, headers, quic_config, quic_connect, read_varint};
use weft::net::Listener;
use weft::server::ServerHandle;
use weft::{Request, Response, Settings};

/// Time for requests in progress, and for another request on an idle connection.
const GRACE: Duration = Duration::from_secs(20);
const IDLE_GRACE: Duration = Duration::from_secs(1);

/// Echoes content. The response of GET is the name of the server.
fn start(name: &'static str, listeners: Vec<Listener>, workers: usize) -> ServerHandle {
    let app = async move |request: Request| match request.method() == "GET" {
        true => Response::text(name),
        false => Response::from_body(request.into_body()),
    };
    let mut server = boxed_server(app).workers(workers);
    for listener in listeners {
        server = server.listener(listener);
    }
    server.start_workers().unwrap()
}

fn bind() -> Vec<Listener> {
    let listeners = Listener::bind(&"127.0.0.1:0".parse().unwrap(), &Settings::default()).unwrap();
    listeners.into_iter().map(|listener| listener.with_tls(&CREDENTIALS.server)).collect()
}

/// Returns the listeners of a server, as its successor has them.
fn inherit(server: &ServerHandle) -> Vec<Listener> {
    let http3 = server.http3_descriptors().unwrap().into_iter();
    let mut http3: Vec<_> = http3
        .map(|descriptor| {
            let (text, descriptor) = descriptor.into_parts();
            weft::net::Http3Descriptor::from_parts(&text, descriptor).unwrap()
        })
        .collect();
    let sockets = server.sockets().unwrap().into_iter();
    let listeners = sockets.map(|(_, socket)| {
        let mut listener = Listener::inherited(socket).unwrap();
        listener.inherit_http3(&mut http3);
        listener.with_tls(&CREDENTIALS.server)
    });
    let listeners = listeners.collect();
    assert!(http3.is_empty());
    listeners
}

fn drain(server: ServerHandle) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || server.drain_after_handover(GRACE, IDLE_GRACE))
}

/// Drains a server that has this connection. Waits until it accepts no others.
async fn drain_and_wait(
    server: ServerHandle,
    connection: &quinn::Connection,
) -> tokio::task::JoinHandle<()> {
    let goaway = Arc::new(AtomicBool::new(false));
    tokio::spawn(watch_goaway(connection.clone(), goaway.clone()));
    let drained = drain(server);
    wait_until("GOAWAY", || goaway.load(SeqCst)).await;
    drained
}

fn address(server: &ServerHandle) -> SocketAddr {
    server.addresses()[0].address().unwrap()
}

/// Sends a GET. Returns the content of the response.
async fn name(connection: &quinn::Connection) -> Result<String, ReadError> {
    let (mut send, receive) = connection.open_bi().await?;
    let _ = send.write_all(&get(&[])).await;
    let _ = send.finish();
    let mut frames = Frames::new(receive);
    let mut content = Vec::new();
    while let Some((kind, bytes)) = frames.next().await? {
        if kind == 0 {
            content.extend_from_slice(&bytes);
        }
    }
    Ok(String::from_utf8(content).unwrap())
}

fn rebind(endpoint: &Endpoint) {
    endpoint.rebind(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
}

/// A connection with an upload whose response is its echo.
struct Upload {
    endpoint: Endpoint,
    _connection: quinn::Connection,
    send: quinn::SendStream,
    frames: Frames,
}

impl Upload {
    async fn start(address: SocketAddr) -> Upload {
        let (endpoint, connection) = quic_connect(address).await.unwrap();
        let (mut send, receive) = connection.open_bi().await.unwrap();
        let fields =
            [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "a")];
        send.write_all(&headers(&fields)).await.unwrap();
        let mut upload =
            Upload { endpoint, _connection: connection, send, frames: Frames::new(receive) };
        upload.echo(b"first").await;
        upload
    }

    async fn echo(&mut self, content: &[u8]) {
        self.send.write_all(&frame(0, content)).await.unwrap();
        let mut received = Vec::new();
        while received.len() < content.len() {
            let (kind, bytes) = self.frames.next().await.unwrap().expect("more content");
            if kind == 0 {
                received.extend_from_slice(&bytes);
            }
        }
        assert_eq!(received, content);
    }

    async fn finish(mut self) {
        self.send.finish().unwrap();
        assert_eq!(self.frames.next().await.unwrap(), None);
    }
}

#[test]
fn connections_stay_with_their_server_over_two_handovers() {
    for workers in [[1, 1, 1], [2, 2, 2], [1, 3, 2], [3, 1, 2]] {
        run(async {
            let first = start("first", bind(), workers[0]);
            let address = address(&first);
            let mut upload = Upload::start(address).await;
            let (idle_endpoint, idle) = quic_connect(address).await.unwrap();
            let second = start("second", inherit(&first), workers[1]);
            // Before and after the first server has stopped to accept.
            assert_eq!(name(&idle).await.unwrap(), "first", "{workers:?}");
            let drained = Instant::now();
            let first = drain_and_wait(first, &idle).await;
            upload.echo(&[b'a'; 100_000]).await;
            rebind(&idle_endpoint);
            match name(&idle).await {
                Ok(name) => assert_eq!(name, "first", "{workers:?}"),
                // The machine is too slow.
                Err(error) => assert!(drained.elapsed() >= IDLE_GRACE, "{workers:?}: {error}"),
            }
            let (_endpoint, connection) = quic_connect(address).await.unwrap();
            assert_eq!(name(&connection).await.unwrap(), "second", "{workers:?}");
            let closed = idle.closed().await;
            let ConnectionError::ApplicationClosed(closed) = closed else { panic!("{closed}") };
            assert_eq!(closed.error_code, 0x100u32.into());

            let third = start("third", inherit(&second), workers[2]);
            let second = drain_and_wait(second, &connection).await;
            for _ in 0..4 {
                rebind(&upload.endpoint);
                upload.echo(&[b'b'; 100_000]).await;
                let (_endpoint, connection) = quic_connect(address).await.unwrap();
                assert_eq!(name(&connection).await.unwrap(), "third", "{workers:?}");
            }
            upload.finish().await;
            for ended in [first, second, drain(third)] {
                ended.await.unwrap();
            }
        });
    }
}

/// A successor may fail after it has received from the sockets.
#[test]
fn a_server_continues_when_its_successor_ends() {
    run(async {
        let first = start("first", bind(), 2);
        let address = address(&first);
        let (endpoint, connection) = quic_connect(address).await.unwrap();
        for _ in 0..2 {
            let failing = start("failing", inherit(&first), 2);
            assert_eq!(name(&connection).await.unwrap(), "first");
            tokio::task::spawn_blocking(|| failing.shutdown(Duration::ZERO)).await.unwrap();
            rebind(&endpoint);
            assert_eq!(name(&connection).await.unwrap(), "first");
            let (_endpoint, other) = quic_connect(address).await.unwrap();
            assert_eq!(name(&other).await.unwrap(), "first");
        }
        tokio::task::spawn_blocking(|| first.shutdown(Duration::ZERO)).await.unwrap();
    });
}

/// Returns a client whose first packet has the server's identifier in a packet with a long header
/// (RFC 8999 §5.1).
fn config_with_id_of(packet: &[u8]) -> ClientConfig {
    let (_, rest) = packet[6..].split_at(usize::from(packet[5]));
    let id = ConnectionId::new(&rest[1..][..usize::from(rest[0])]);
    let mut config = quic_config(&[b"h3"]);
    config.initial_dst_cid_provider(Arc::new(move || id));
    config
}

/// The packets of a client that has proven its address by a Retry have an identifier of the first
/// server, so that the second one would forward them again and again.
#[test]
fn a_server_that_drains_refuses_attempts_after_its_retry() {
    run(async {
        let first = start("first", bind(), 1);
        let address = address(&first);
        let upload = Upload::start(address).await;
        let (_endpoint, idle) = quic_connect(address).await.unwrap();
        let mut clients: Vec<RawClient> = (0..65).map(|_| RawClient::new(address)).collect();
        for client in &mut clients {
            client.send();
        }
        let mut client = clients.pop().unwrap();
        client.socket().set_read_timeout(Some(GRACE)).unwrap();
        let mut retry = [0; 1_500];
        client.socket().peek(&mut retry).unwrap();
        assert_eq!(retry[0] & 0xf0, 0xf0, "the server requires a proof");
        client.receive();
        client.socket().set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let second = start("second", inherit(&first), 1);
        let first = drain(first);
        idle.closed().await;
        let mut forged = RawClient::with_config(address, config_with_id_of(&retry));
        forged.send();
        client.run_until("the attempt ends", |client| client.lost.is_some());
        let Some(quinn_proto::ConnectionError::ConnectionClosed(close)) = &client.lost else {
            panic!("{:?}", client.lost)
        };
        assert_eq!(close.error_code, quinn_proto::TransportErrorCode::CONNECTION_REFUSED);
        // The client of this packet has proven nothing.
        forged.socket().set_nonblocking(true).unwrap();
        forged.socket().recv(&mut retry).unwrap_err();
        for client in &mut clients {
            // The response has the identifier by which the packets reach the first server.
            client.socket().set_read_timeout(Some(GRACE)).unwrap();
            client.receive();
            client.connection.close(Instant::now(), 0_u32.into(), Bytes::new());
            client.send();
        }
        upload.finish().await;
        for ended in [first, drain(second)] {
            ended.await.unwrap();
        }
    });
}

/// Sets `received` after GOAWAY on the control stream of the server, which stays open. Returns the
/// identifier of the last GOAWAY, from which requests are not processed.
async fn watch_goaway(connection: quinn::Connection, received: Arc<AtomicBool>) -> u64 {
    let mut last = u64::MAX;
    while let Ok(mut stream) = connection.accept_uni().await {
        let mut kind = [0];
        if stream.read_exact(&mut kind).await.is_err() || kind != [0] {
            continue;
        }
        let mut frames = Frames::new(stream);
        while let Ok(Some((kind, payload))) = frames.next().await {
            if kind == 7 {
                received.store(true, SeqCst);
                last = read_varint(&mut &payload[..]).unwrap();
            }
        }
    }
    last
}

/// Sends requests until `stop` is set, on another connection after each GOAWAY. Returns the number
/// of responses.
async fn load(address: SocketAddr, stop: &AtomicBool) -> usize {
    let mut responses = 0;
    'connections: while !stop.load(SeqCst) {
        let (endpoint, connection) = quic_connect(address).await.unwrap();
        let goaway = Arc::new(AtomicBool::new(false));
        let watch = tokio::spawn(watch_goaway(connection.clone(), goaway.clone()));
        let mut requests = 0;
        while !stop.load(SeqCst) && !goaway.load(SeqCst) {
            let response = name(&connection).await;
            requests += 1;
            if let Err(error) = response {
                // The GOAWAY has crossed the request, which the client repeats (RFC 9114 §5.2).
                let processed = watch.await.unwrap();
                assert!(
                    processed <= 4 * (requests - 1),
                    "{error}, request {requests}, {processed}"
                );
                continue 'connections;
            }
            assert_eq!(response.unwrap(), "server", "after {responses} responses");
            // Not before the handshake is confirmed (RFC 9000 §9).
            if responses % 100 == 0 {
                rebind(&endpoint);
            }
            responses += 1;
        }
        connection.close(0x100u32.into(), b"");
        watch.abort();
    }
    responses
}

#[test]
fn five_handovers_under_load_lose_no_request() {
    run(async {
        let mut server = start("server", bind(), 2);
        let address = address(&server);
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let (stop, done) = (stop.clone(), done.clone());
                tokio::spawn(async move {
                    done.fetch_add(load(address, &stop).await, SeqCst);
                })
            })
            .collect();
        let mut drained = Vec::new();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let successor = start("server", inherit(&server), 2);
            drained.push(drain(std::mem::replace(&mut server, successor)));
        }
        for former in drained {
            former.await.unwrap();
        }
        stop.store(true, SeqCst);
        for client in clients {
            client.await.unwrap();
        }
        wait_until("responses", || done.load(SeqCst) > 20).await;
        tokio::task::spawn_blocking(|| server.shutdown(Duration::ZERO)).await.unwrap();
    });
}
