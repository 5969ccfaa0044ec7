//! Connections of HTTP/3: their addresses, their limits, their announcement.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use quinn::{Connection, ConnectionError, ReadError};

use super::relay::Relay;
use super::{echo, get};
use crate::common::TEST_TIMEOUT;
use crate::common::boxed_server;
use crate::common::clients::{CREDENTIALS, Transport, wait_until};
use crate::common::http3::{Frames, headers, quic_config, quic_connect, quic_connect_patiently};
use weft::tls::{Tls, TlsSettings};
use weft::{Request, Response, Settings};

pub(super) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, test).await }).expect("in time");
}

async fn status(connection: &Connection) -> Result<u16, ReadError> {
    let (mut send, receive) = connection.open_bi().await?;
    let _ = send.write_all(&get(&[])).await;
    let _ = send.finish();
    Frames::new(receive).status().await
}

/// The kernel distributes datagrams by the address of the client: with four workers, three of four
/// new addresses lead to a worker that does not have the connection.
#[test]
fn connections_survive_changes_of_the_address() {
    run(async {
        for workers in [1, 4] {
            let addresses = async |request: Request| {
                Response::text(request.peer().address().unwrap().port().to_string())
            };
            let server = Transport::Http3.start(boxed_server(addresses).workers(workers));
            let (endpoint, connection) = quic_connect(server.address).await.unwrap();
            for change in 0..16 {
                assert_eq!(status(&connection).await, Ok(200), "{workers} workers, {change}");
                endpoint.rebind(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
            }
            server.stop().await;
        }
    });
}

#[test]
fn heads_have_a_time_out_while_other_requests_are_served() {
    run(async {
        let settings = Settings { head_timeout: Duration::from_millis(300), ..Settings::default() };
        let server = Transport::Http3.serve_with(settings, echo);
        let (_endpoint, connection) = loop {
            let connected = quic_connect_patiently(server.address).await;
            // The first request has the same time-out, and a busy machine may be slower.
            if status(&connected.1).await == Ok(200) {
                break connected;
            }
        };
        let (mut send, receive) = connection.open_bi().await.unwrap();
        let head = get(&[]);
        send.write_all(&head[..head.len() - 1]).await.unwrap();
        let reset = Frames::new(receive).status().await;
        assert_eq!(reset, Err(ReadError::Reset(0x10du32.into())), "an incomplete head");
        assert_eq!(status(&connection).await, Ok(200), "a complete one");
        server.stop().await;
    });
}

#[test]
fn incomplete_heads_have_a_limit_together() {
    run(async {
        let settings = Settings { max_head_bytes: 1_000, ..Settings::default() };
        let server = Transport::Http3.serve_with(settings, echo);
        let (_endpoint, connection) = quic_connect(server.address).await.unwrap();
        let filler = "a".repeat(900);
        let fields =
            [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a")];
        let head = headers(&[&fields[..], &[("x-a", &filler[..])]].concat());
        let mut open = Vec::new();
        let mut incomplete = async || {
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&head[..head.len() - 1]).await.unwrap();
            open.push(send);
            Frames::new(receive)
        };
        // 16 heads of the maximum size: the streams of 15 wait for the rest.
        let mut last = None;
        for _ in 0..40 {
            let mut stream = incomplete().await;
            let reaction = tokio::time::timeout(Duration::from_millis(50), stream.status()).await;
            if let Ok(reaction) = reaction {
                last = Some(reaction);
                break;
            }
        }
        assert_eq!(last, Some(Err(ReadError::Reset(0x107u32.into()))));
        assert!(open.len() > 15, "{}", open.len());
        assert_eq!(status(&connection).await, Ok(200), "a complete head");
        server.stop().await;
    });
}

#[test]
fn a_client_has_a_limit_of_connections() {
    run(async {
        let settings = Settings { max_connections_per_peer: 2, ..Settings::default() };
        let server = Transport::Http3.serve_with(settings, echo);
        let first = quic_connect(server.address).await.unwrap();
        let _second = quic_connect(server.address).await.unwrap();
        let refused = quic_connect(server.address).await.expect_err("a third connection");
        let refused = refused.downcast::<ConnectionError>().unwrap();
        assert!(matches!(refused, ConnectionError::ConnectionClosed(_)), "{refused}");
        first.1.close(0x100u32.into(), b"");
        wait_until("the place of a closed connection is free", || first.1.close_reason().is_some())
            .await;
        while quic_connect(server.address).await.is_err() {
            tokio::task::yield_now().await;
        }
        server.stop().await;
    });
}

#[test]
fn other_versions_announce_http3_unless_it_is_off() {
    run(async {
        for transport in [Transport::Http1Tls, Transport::Http2Tls] {
            for http3 in [true, false] {
                let settings = Settings { http3, ..Settings::default() };
                let server = transport.serve_with(settings, echo);
                let mut client = server.client().await;
                let response = client.get("/").await;
                let announced = response.field("alt-svc");
                let expected = format!("h3=\":{}\"; ma=86400", server.address.port());
                assert_eq!(announced, http3.then_some(&expected[..]), "{transport:?}");
                let is_free = UdpSocket::bind(server.address).is_ok();
                assert_eq!(is_free, !http3, "{transport:?}: the UDP port");
                server.stop().await;
            }
        }
    });
}

/// A server without the connections of its predecessor resets them (RFC 9000 §10.3), if it has the
/// same secret: the client need not wait for a time-out.
#[test]
fn servers_with_one_secret_reset_the_connections_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let start = |secret: u8| {
        let path = folder.path().join(secret.to_string());
        std::fs::write(&path, [secret; 48]).unwrap();
        let identities = vec![CREDENTIALS.identity.clone()];
        let settings = TlsSettings { identities, ticket_keys: Some(path), ..Default::default() };
        let server = boxed_server(echo).workers(2);
        let server = server.listen_tls("127.0.0.1:0", &Tls::new(settings).unwrap()).unwrap();
        server.start().unwrap()
    };
    let address = |server: &weft::server::ServerHandle| server.addresses()[0].address().unwrap();
    run(async {
        let servers = [start(1), start(1), start(2)];
        for (index, is_reset) in [(1, true), (2, false)] {
            let relay = Relay::start(address(&servers[0]), Duration::ZERO).await;
            let (_endpoint, connection) = quic_connect(relay.address).await.unwrap();
            assert_eq!(status(&connection).await, Ok(200));
            relay.replace_server(address(&servers[index]));
            let lost = tokio::time::timeout(Duration::from_secs(1), status(&connection)).await;
            let reset = Ok(Err(ReadError::ConnectionLost(ConnectionError::Reset)));
            assert_eq!(lost == reset, is_reset, "{index}: {lost:?}");
        }
        for server in servers {
            tokio::task::spawn_blocking(|| server.shutdown(Duration::ZERO)).await.unwrap();
        }
    });
}

#[test]
fn sessions_have_their_cipher_suite_and_resumption() {
    let session = async |request: Request| {
        let tls = request.peer().tls().unwrap();
        let (suite, resumed) = (tls.cipher_suite(), tls.is_resumed());
        Response::text(format!("{suite} {resumed} {:?}", tls.server_name()))
    };
    run(async {
        let server = Transport::Http3.serve(session);
        // The sessions of a configuration are resumed by the connections of its endpoint.
        let config = quic_config(&[b"h3"]);
        for resumed in [false, true, true] {
            let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let connecting = endpoint.connect_with(config.clone(), server.address, "a").unwrap();
            let connection = connecting.await.unwrap();
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&get(&[])).await.unwrap();
            send.finish().unwrap();
            let mut frames = Frames::new(receive);
            assert_eq!(frames.status().await, Ok(200));
            let (_, text) = frames.next().await.unwrap().unwrap();
            let expected = format!("TLS_AES_256_GCM_SHA384 {resumed} Some(\"a\")");
            assert_eq!(String::from_utf8_lossy(&text), expected);
            connection.close(0x100u32.into(), b"");
            endpoint.wait_idle().await;
        }
        server.stop().await;
    });
}
