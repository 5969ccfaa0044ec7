//! Bad paths between client and server: the cases of the QUIC interop runner, through a relay.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, TransportConfig};

use super::connections::run;
use super::raw_client::RawClient;
use super::relay::{Direction, Fate, Path, Relay};
use crate::common::boxed_server;
use crate::common::clients::{CREDENTIALS, Transport, TransportServer, within};
use crate::common::http3::{Frames, headers, quic_config};
use weft::{Request, Response};

/// A response has as many bytes as its path says.
fn serve() -> TransportServer {
    serve_with(2)
}

fn serve_with(workers: usize) -> TransportServer {
    let app = async |request: Request| {
        let length: usize = request.path()[1..].parse().unwrap();
        Response::from_body(pattern(length))
    };
    Transport::Http3.start(boxed_server(app).workers(workers))
}

/// Content in which each byte depends on its position.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|position| (position * 31 + position / 251) as u8).collect()
}

/// Connects, with an initial round-trip time that is near the truth: lost handshakes are repeated
/// sooner than after the default of a second.
async fn connect(address: SocketAddr) -> (Endpoint, Connection) {
    connect_with(quic_config(&[b"h3"]), address).await
}

async fn connect_with(mut config: ClientConfig, address: SocketAddr) -> (Endpoint, Connection) {
    let mut transport = TransportConfig::default();
    transport.initial_rtt(Duration::from_millis(50));
    config.transport_config(Arc::new(transport));
    let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let connecting = endpoint.connect_with(config, address, "a").unwrap();
    let connection = within("the handshake completes", 1, connecting).await.unwrap();
    (endpoint, connection)
}

/// Requests content of this length, and compares it.
async fn fetch(connection: &Connection, length: usize) {
    let (mut send, receive) = connection.open_bi().await.unwrap();
    let path = format!("/{length}");
    let fields = [(":method", "GET"), (":scheme", "https"), (":path", &path), (":authority", "a")];
    send.write_all(&headers(&fields)).await.unwrap();
    send.finish().unwrap();
    let (mut frames, mut content) = (Frames::new(receive), Vec::new());
    assert_eq!(frames.status().await, Ok(200));
    while let Some((kind, bytes)) = frames.next().await.unwrap() {
        if kind == 0 {
            content.extend_from_slice(&bytes);
        }
    }
    assert!(content == pattern(length), "{} of {length} bytes", content.len());
}

const DELAY: Duration = Duration::from_millis(10);

/// Handshakes and transfers over paths that treat a part of the datagrams badly.
#[test]
fn bad_paths_lose_no_response() {
    let late = Fate::Late(Duration::from_millis(25));
    for (name, percent, fate, connections, length) in [
        ("a handshake and a transfer", 0, Fate::Lost, 1, 1_000_000),
        ("loss in handshakes", 15, Fate::Lost, 6, 1_000),
        ("loss in a transfer", 2, Fate::Lost, 1, 400_000),
        ("damage in handshakes", 15, Fate::Damaged, 6, 1_000),
        ("damage in a transfer", 2, Fate::Damaged, 1, 400_000),
        ("reordering", 20, late, 2, 400_000),
        ("duplication", 30, Fate::Repeated, 2, 400_000),
    ] {
        run(async {
            let server = serve();
            let clients = (0..connections).map(|_| async {
                let relay = Path::with_share(DELAY, percent, fate);
                let relay = Relay::with_path(server.address, relay).await;
                let (_endpoint, connection) = connect(relay.address).await;
                fetch(&connection, length).await;
            });
            within(name, 1, futures_util::future::join_all(clients)).await;
            server.stop().await;
        });
    }
}

#[test]
fn long_round_trips_are_served() {
    run(async {
        let server = serve();
        let relay = Relay::start(server.address, Duration::from_millis(750)).await;
        let (_endpoint, connection) = connect(relay.address).await;
        fetch(&connection, 20_000).await;
        server.stop().await;
    });
}

#[test]
fn transfers_continue_after_an_interruption() {
    run(async {
        let server = serve();
        let path = Path { delay: DELAY, interval: Duration::from_micros(500), ..Path::default() };
        let relay = Relay::with_path(server.address, path).await;
        let (_endpoint, connection) = connect(relay.address).await;
        let interruption = async {
            while relay.count(Direction::ToClient) < 100 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            relay.interrupt(true);
            tokio::time::sleep(Duration::from_secs(1)).await;
            relay.interrupt(false);
        };
        futures_util::future::join(fetch(&connection, 600_000), interruption).await;
        server.stop().await;
    });
}

/// The ports, and then the addresses, that the server sees change during a transfer.
#[test]
fn transfers_continue_when_the_address_of_the_client_changes() {
    for is_address in [false, true] {
        run(async {
            let server = serve();
            let path =
                Path { delay: DELAY, interval: Duration::from_micros(500), ..Path::default() };
            let relay = Relay::with_path(server.address, path).await;
            let (_endpoint, connection) = connect(relay.address).await;
            let done = AtomicBool::new(false);
            let changes = async {
                for change in 1..=4 {
                    let seen = relay.count(Direction::ToClient);
                    while relay.count(Direction::ToClient) < seen + 60 && !done.load(SeqCst) {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                    let ip = Ipv4Addr::new(127, 0, 0, if is_address { 1 + change } else { 1 });
                    relay.rebind(ip).await;
                }
            };
            let transfer = async {
                fetch(&connection, 600_000).await;
                done.store(true, SeqCst);
            };
            futures_util::future::join(transfer, changes).await;
            server.stop().await;
        });
    }
}

/// A client whose handshake stops after its first flight gets at most three times its bytes (RFC
/// 9000 §8.1), however long it waits.
#[test]
fn handshakes_are_not_amplified() {
    run(async {
        let server = serve();
        let flight = Arc::new(AtomicUsize::new(0));
        let delivered = flight.clone();
        let path = Path {
            // The first flight has one or two datagrams, all of 1,200 bytes.
            treatment: Some(Arc::new(|direction, number| {
                match direction == Direction::ToServer && number >= 2 {
                    true => Fate::Lost,
                    false => Fate::Delivered,
                }
            })),
            observer: Some(Arc::new(move |direction, datagram: &[u8]| {
                if direction == Direction::ToServer && delivered.load(SeqCst) < 2_000 {
                    delivered.fetch_add(datagram.len(), SeqCst);
                }
            })),
            ..Path::default()
        };
        let relay = Relay::with_path(server.address, path).await;
        let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connecting = endpoint.connect_with(quic_config(&[b"h3"]), relay.address, "a").unwrap();
        // Several of the server's probe time-outs.
        let _ = tokio::time::timeout(Duration::from_secs(5), connecting).await;
        let (sent, received) = (flight.load(SeqCst), relay.bytes(Direction::ToClient));
        assert!((1..=3 * sent).contains(&received), "{received} for {sent}");
        server.stop().await;
    });
}

#[test]
fn connections_have_many_streams() {
    run(async {
        let server = serve();
        let relay = Relay::start(server.address, DELAY).await;
        let (_endpoint, connection) = connect(relay.address).await;
        let requests = (0..1_000).map(|number| fetch(&connection, 32 + number % 7));
        futures_util::future::join_all(requests).await;
        server.stop().await;
    });
}

#[test]
fn clients_update_their_keys() {
    run(async {
        let server = serve();
        let (_endpoint, connection) = connect(server.address).await;
        for _ in 0..3 {
            fetch(&connection, 50_000).await;
            connection.force_key_update();
        }
        fetch(&connection, 50_000).await;
        server.stop().await;
    });
}

#[test]
fn clients_without_aes_are_served() {
    run(async {
        let server = serve();
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|suite| {
            // For the packets of the handshake, QUIC requires AES of each client.
            suite.suite() != rustls::CipherSuite::TLS13_AES_256_GCM_SHA384
        });
        provider.cipher_suites.sort_by_key(|suite| {
            suite.suite() != rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        });
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(CREDENTIALS.roots.clone())
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let (_endpoint, connection) = connect_with(config, server.address).await;
        fetch(&connection, 50_000).await;
        server.stop().await;
    });
}

/// A client whose version the server does not have learns the versions that it has (RFC 9000 §6).
#[test]
fn unknown_versions_are_negotiated() {
    run(async {
        let server = serve();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut buffer = [0; 2_048];
        for (length, is_answered) in [(1_200, true), (1_199, false)] {
            let mut datagram = vec![7; length];
            // A version of the pattern that is reserved for this (RFC 9000 §15).
            let head = b"\xc0\x1a\x2a\x3a\x4a\x08abcdefgh\x08ABCDEFGH";
            datagram[..head.len()].copy_from_slice(head);
            socket.send_to(&datagram, server.address).unwrap();
            let answer = socket.recv(&mut buffer);
            assert_eq!(answer.is_ok(), is_answered, "{length} bytes");
            if let Ok(length) = answer {
                // Version 0, and the identifiers of the client in the other order.
                assert_eq!(buffer[1..5], [0; 4]);
                assert_eq!(&buffer[5..23], b"\x08ABCDEFGH\x08abcdefgh");
                assert!(buffer[23..length].chunks(4).any(|version| version == [0, 0, 0, 1]));
            }
        }
        server.stop().await;
    });
}

/// The handshake of a client that has to prove its address, over a path with losses.
#[test]
fn retries_survive_losses() {
    run(async {
        let server = serve_with(1);
        let mut others: Vec<RawClient> = (0..70).map(|_| RawClient::new(server.address)).collect();
        for client in &mut others {
            client.send();
        }
        let retries = Arc::new(AtomicUsize::new(0));
        let seen = retries.clone();
        let path = Path {
            delay: DELAY,
            treatment: Path::with_share(DELAY, 10, Fate::Lost).treatment,
            observer: Some(Arc::new(move |direction, datagram: &[u8]| {
                let is_retry = direction == Direction::ToClient && datagram[0] & 0xf0 == 0xf0;
                seen.fetch_add(usize::from(is_retry), SeqCst);
            })),
            ..Path::default()
        };
        let relay = Relay::with_path(server.address, path).await;
        let (_endpoint, connection) = connect(relay.address).await;
        fetch(&connection, 10_000).await;
        assert!(retries.load(SeqCst) > 0, "the server has requested no proof");
        server.stop().await;
    });
}

#[test]
fn addresses_of_version_6_are_served() {
    run(async {
        let app = async |_: Request| Response::text("a");
        let server = boxed_server(app).workers(1).listen_tls("[::1]:0", &CREDENTIALS.server);
        // A machine without IPv6 cannot bind it.
        let Ok(server) = server else { return };
        let server = server.start().unwrap();
        let address = server.addresses()[0].address().unwrap();
        let endpoint = Endpoint::client((IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]), 0).into());
        let connecting =
            endpoint.unwrap().connect_with(quic_config(&[b"h3"]), address, "a").unwrap();
        let connection = within("the handshake completes", 1, connecting).await.unwrap();
        let (mut send, receive) = connection.open_bi().await.unwrap();
        send.write_all(&super::get(&[])).await.unwrap();
        send.finish().unwrap();
        assert_eq!(Frames::new(receive).status().await, Ok(200));
        tokio::task::spawn_blocking(|| server.shutdown(Duration::ZERO)).await.unwrap();
    });
}
