//! Early data (0-RTT, RFC 8470, RFC 9001 §4.6): which requests are served, and that no other party
//! can repeat one.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream};

use super::connections::run;
use super::relay::{Direction, Fate, Path, Relay};
use crate::common::boxed_server;
use crate::common::clients::{CREDENTIALS, wait_until, within};
use crate::common::http3::{Frames, frame, headers};
use weft::net::Peer;
use weft::server::ServerHandle;
use weft::tls::{Tls, TlsSettings};
use weft::{BoxApplication, Error, Hooks, Request, Response, Server, Settings};

/// A client that has a session of the server after its first connection.
fn client_config() -> ClientConfig {
    let mut tls = CREDENTIALS.client.clone();
    tls.resumption = rustls::client::Resumption::in_memory_sessions(8);
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.enable_early_data = true;
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

/// Responds with the value of Early-Data. Counts the requests in `calls`.
fn server(
    early_data: bool,
    settings: Settings,
    calls: &Arc<AtomicUsize>,
) -> Server<BoxApplication> {
    let calls = calls.clone();
    let app = move |request: Request| {
        calls.fetch_add(1, SeqCst);
        let early = request.header("early-data").unwrap_or("none").to_owned();
        async move { Response::text(early) }
    };
    let identities = vec![CREDENTIALS.identity.clone()];
    let tls = Tls::new(TlsSettings { identities, early_data, ..Default::default() }).unwrap();
    let server = boxed_server(app).workers(2).settings(settings);
    server.listen_tls("127.0.0.1:0", &tls).unwrap()
}

fn serve(early_data: bool, calls: &Arc<AtomicUsize>) -> ServerHandle {
    server(early_data, Settings::default(), calls).start().unwrap()
}

fn address(server: &ServerHandle) -> SocketAddr {
    server.addresses()[0].address().unwrap()
}

async fn stop(server: ServerHandle) {
    tokio::task::spawn_blocking(|| server.shutdown(Duration::ZERO)).await.unwrap();
}

/// Sends a request with one packet. Nothing is awaited that needs the server.
async fn send(connection: &Connection, method: &str) -> RecvStream {
    let (mut send, receive) = connection.open_bi().await.unwrap();
    let fields = [(":method", method), (":scheme", "https"), (":path", "/"), (":authority", "a")];
    send.write_all(&headers(&fields)).await.unwrap();
    if method == "POST" {
        send.write_all(&frame(0, b"a")).await.unwrap();
    }
    send.finish().unwrap();
    receive
}

/// Status and content of a response.
async fn response(receive: RecvStream) -> (u16, String) {
    let mut frames = Frames::new(receive);
    let status = within("a response", 1, frames.status()).await.unwrap();
    let mut content = Vec::new();
    while let Some((kind, bytes)) = frames.next().await.unwrap() {
        if kind == 0 {
            content.extend_from_slice(&bytes);
        }
    }
    (status, String::from_utf8(content).unwrap())
}

/// Obtains sessions by a first connection.
async fn connect_first(endpoint: &Endpoint, config: &ClientConfig, server: SocketAddr) {
    let connecting = endpoint.connect_with(config.clone(), server, "a").unwrap();
    let connection = connecting.await.unwrap();
    assert_eq!(response(send(&connection, "GET").await).await, (200, "none".to_owned()));
    connection.close(0x100u32.into(), b"");
    endpoint.wait_idle().await;
}

fn endpoint() -> Endpoint {
    Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
}

#[test]
fn early_requests_are_safe_and_marked() {
    run(async {
        let calls = Arc::new(AtomicUsize::new(0));
        let server = serve(true, &calls);
        for (method, status, content) in
            [("GET", 200, Some("1")), ("OPTIONS", 200, Some("1")), ("POST", 425, None)]
        {
            let (endpoint, config) = (endpoint(), client_config());
            connect_first(&endpoint, &config, address(&server)).await;
            let connecting = endpoint.connect_with(config, address(&server), "a").unwrap();
            let Ok((connection, accepted)) = connecting.into_0rtt() else { panic!("no session") };
            let early = send(&connection, method).await;
            assert!(accepted.await, "{method}");
            let (received, text) = response(early).await;
            assert_eq!(received, status, "{method}: {text}");
            assert!(content.is_none_or(|content| content == text), "{method}: {text}");
            // The same request after the handshake.
            let late = send(&connection, method).await;
            assert_eq!(response(late).await, (200, "none".to_owned()), "{method}");
        }
        stop(server).await;
    });
}

/// The twin of the test above: nothing but the setting differs.
#[test]
fn early_data_is_off_by_default() {
    run(async {
        let calls = Arc::new(AtomicUsize::new(0));
        let server = serve(TlsSettings::default().early_data, &calls);
        let (endpoint, config) = (endpoint(), client_config());
        connect_first(&endpoint, &config, address(&server)).await;
        let connecting = endpoint.connect_with(config, address(&server), "a").unwrap();
        assert!(connecting.into_0rtt().is_err());
        stop(server).await;
    });
}

/// Another party records the datagrams of a client and sends them again.
#[test]
fn early_requests_are_executed_once() {
    run(async {
        let calls = Arc::new(AtomicUsize::new(0));
        let server = serve(true, &calls);
        let (endpoint, config) = (endpoint(), client_config());
        connect_first(&endpoint, &config, address(&server)).await;
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let record = recorded.clone();
        let path = Path {
            observer: Some(Arc::new(move |direction, datagram: &[u8]| {
                if direction == Direction::ToServer {
                    record.lock().unwrap().push(datagram.to_vec());
                }
            })),
            ..Path::default()
        };
        let relay = Relay::with_path(address(&server), path).await;
        let connecting = endpoint.connect_with(config, relay.address, "a").unwrap();
        let Ok((connection, accepted)) = connecting.into_0rtt() else { panic!("no session") };
        let early = send(&connection, "GET").await;
        assert!(accepted.await);
        assert_eq!(response(early).await, (200, "1".to_owned()));
        assert_eq!(calls.load(SeqCst), 2);
        let datagrams = recorded.lock().unwrap().clone();
        connection.close(0x100u32.into(), b"");
        endpoint.wait_idle().await;
        let attacker = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        attacker.set_nonblocking(true).unwrap();
        // A flight of the server means that it has processed the repeated flight, as the flight of
        // a new connection. Before, the datagrams belong to the connection that is being closed.
        let is_processed = || {
            for datagram in &datagrams {
                attacker.send_to(datagram, address(&server)).unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
            matches!(attacker.recv(&mut [0; 2_048]), Ok(1_200..))
        };
        wait_until("the repeated flight is processed", is_processed).await;
        // A request that is executed is counted before its response.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(calls.load(SeqCst), 2, "the request was executed again");
        stop(server).await;
    });
}

/// Keeps the errors of connections.
struct Errors(Arc<Mutex<Vec<String>>>);

impl Hooks for Errors {
    fn on_error(&self, _: &Peer, error: &Error) {
        self.0.lock().unwrap().push(error.to_string());
    }
}

/// A client that sends early data and does not complete the handshake is disconnected after the
/// time-out of heads. The packets that it repeats would keep the transport from its idle time-out.
#[test]
fn handshakes_after_early_data_have_a_time_out() {
    run(async {
        let (calls, errors) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let settings = Settings { head_timeout: Duration::from_secs(1), ..Settings::default() };
        let server = server(true, settings, &calls);
        let seen = errors.clone();
        let server = server.hooks(move || Errors(seen.clone())).start().unwrap();
        let (endpoint, config) = (endpoint(), client_config());
        connect_first(&endpoint, &config, address(&server)).await;
        // The server's packets are lost, so that the handshake cannot end.
        let path = Path::with_treatment(Duration::ZERO, |direction, _| match direction {
            Direction::ToServer => Fate::Delivered,
            Direction::ToClient => Fate::Lost,
        });
        let relay = Relay::with_path(address(&server), path).await;
        let connecting = endpoint.connect_with(config, relay.address, "a").unwrap();
        let Ok((connection, _)) = connecting.into_0rtt() else { panic!("no session") };
        let _early = send(&connection, "GET").await;
        wait_until("the early request is executed", || calls.load(SeqCst) == 2).await;
        let is_slow = |error: &String| error.contains("the QUIC handshake took too long");
        wait_until("the time-out", || errors.lock().unwrap().iter().any(is_slow)).await;
        stop(server).await;
    });
}
