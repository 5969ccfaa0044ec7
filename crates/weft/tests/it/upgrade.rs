//! HTTP/1 upgrades and CONNECT tunnels over real sockets.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Client, boxed_server, stop, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::message::Upgraded;
use weft::net::Peer;
use weft::server::ServerHandle;
use weft::{Application, Error, ErrorKind, Hooks, Method, Request, Response};

/// Echoes its input in upper case, until a full stop.
async fn shout(mut connection: Upgraded) {
    let mut byte = [0];
    while let Ok(1) = connection.read(&mut byte).await {
        let upper = byte.map(|b| b.to_ascii_uppercase());
        if byte == *b"." || connection.write_all(&upper).await.is_err() {
            break;
        }
    }
}

async fn app(request: Request) -> Response {
    match (request.method(), request.path()) {
        (_, "/shout") => Response::upgrade("shout", shout),
        (_, "/read") => {
            let _ = request.into_body().collect(100).await;
            Response::upgrade("shout", shout)
        }
        (_, "/panic") => Response::upgrade("shout", async |_| panic!("on purpose")),
        (_, "/last") => Response::upgrade("shout", async |mut connection: Upgraded| {
            connection.shutdown().requested().await;
            let _ = connection.write_all(b"bye").await;
        }),
        (&Method::CONNECT, _) if request.target() == "a:1" => Response::tunnel(shout),
        _ => Response::text("no\n"),
    }
}

#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<ErrorKind>>>);

impl Hooks for Errors {
    fn on_error(&self, _: &Peer, error: &Error) {
        self.0.lock().unwrap().push(error.kind());
    }
}

fn start<A: Application + Clone + Send + 'static>(app: A) -> (ServerHandle, Errors) {
    let errors = Errors::default();
    let hooks = errors.clone();
    let server = boxed_server(app).workers(1).hooks(move || hooks.clone());
    (server.listen("127.0.0.1:0").unwrap().start().unwrap(), errors)
}

fn request(method: &str, target: &str, fields: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

const SHOUT: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: other, Shout\r\n";

#[test]
fn handler_receives_bytes_before_and_after_the_101() {
    let (server, errors) = start(app);
    for early in ["", "ab", &"x".repeat(20_000)] {
        let mut client = Client::connect_and_send(&server, request("GET", "/shout", SHOUT) + early);
        let response = client.response();
        assert_eq!(response.status, 101);
        assert_eq!(response.header("connection"), Some("upgrade"));
        assert_eq!(response.header("upgrade"), Some("shout"));
        assert_eq!(response.header("content-length"), None);
        let expected = early.to_uppercase();
        while client.received().len() < expected.len() {
            assert!(client.read() > 0);
        }
        client.send("cd");
        let expected = expected + "CD";
        while client.received().len() < expected.len() {
            assert!(client.read() > 0);
        }
        assert_eq!(client.received(), expected.as_bytes());
        client.send(".");
        while client.read() > 0 {}
        assert_eq!(client.received(), expected.as_bytes(), "no HTTP bytes after the upgrade");
    }
    stop(server);
    assert_eq!(*errors.0.lock().unwrap(), []);
}

#[test]
fn upgrade_without_a_matching_request_returns_500() {
    let (server, errors) = start(app);
    let cases = [
        ("GET", "/shout", ""),
        ("GET", "/shout", "Upgrade: shout\r\n"),
        ("GET", "/shout", "Connection: upgrade\r\n"),
        ("GET", "/shout", "Connection: upgrade\r\nUpgrade: websocket, h2c\r\n"),
        ("POST", "/shout", "Connection: upgrade\r\nUpgrade: shout\r\nContent-Length: 5\r\n"),
    ];
    for (method, target, fields) in cases {
        let mut client = Client::connect_and_send(&server, request(method, target, fields));
        let response = client.response();
        assert_eq!((response.status, response.header("upgrade")), (500, None), "{fields}");
    }
    let mut old = Client::connect_and_send(&server, format!("GET /shout HTTP/1.0\r\n{SHOUT}\r\n"));
    assert_eq!(old.response().status, 500, "HTTP/1.0 has no Upgrade");
    stop(server);
    let errors = errors.0.lock().unwrap();
    assert!(errors.iter().all(|kind| *kind == ErrorKind::InvalidResponse), "{errors:?}");
    assert_eq!(errors.len(), cases.len() + 1);
}

#[test]
fn upgrades_after_the_request_body_was_read() {
    let (server, _) = start(app);
    for fields in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = Client::connect_and_send(
            &server,
            request("POST", "/read", &(fields.to_owned() + SHOUT)),
        );
        client.send(if fields.starts_with('C') { "hello" } else { "5\r\nhello\r\n0\r\n\r\n" });
        assert_eq!(client.response().status, 101, "{fields}");
        client.send("a");
        while client.received().is_empty() {
            assert!(client.read() > 0);
        }
        assert_eq!(client.received(), b"A", "{fields}");
    }
    stop(server);
}

/// RFC 9113 §3.1: `Upgrade: h2c` is obsolete. A server may always ignore `Upgrade`.
#[test]
fn ignores_upgrade_to_h2c() {
    let (server, _) = start(app);
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n";
    let mut client = Client::connect_and_send(&server, request("GET", "/", h2c));
    assert_eq!(client.response().text(), "no\n");
    client.assert_open("/");
    stop(server);
}

#[test]
fn connect_opens_a_tunnel_if_the_application_accepts() {
    let (server, errors) = start(app);
    let connect =
        |authority: &str| format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    let mut client = Client::connect_and_send(&server, connect("a:1") + "early");
    let head = "HTTP/1.1 200 OK\r\n";
    while !client.received().ends_with(b"\r\n\r\nEARLY") {
        assert!(client.read() > 0);
    }
    let received = String::from_utf8_lossy(client.received()).into_owned();
    assert!(received.starts_with(head) && !received.contains("content-length"), "{received}");
    assert!(!received.contains("connection"), "{received}");

    // A client would interpret any other 2xx as a tunnel.
    let mut client = Client::connect_and_send(&server, connect("b:1"));
    assert_eq!(client.response().status, 501);
    client.assert_closed();
    stop(server);
    assert_eq!(*errors.0.lock().unwrap(), [ErrorKind::NotImplemented]);
}

#[test]
fn panic_in_upgrade_handler_closes_only_its_connection() {
    let (server, errors) = start(app);
    let mut client = Client::connect_and_send(&server, request("GET", "/panic", SHOUT));
    assert_eq!(client.response().status, 101);
    client.assert_closed();
    Client::connect(&server).assert_open("/");
    until("the hooks report the panic", || *errors.0.lock().unwrap() == [ErrorKind::Panicked]);
    stop(server);
}

#[test]
fn shutdown_notifies_and_awaits_upgrade_handler() {
    let (server, _) = start(app);
    let mut client = Client::connect_and_send(&server, request("GET", "/last", SHOUT));
    assert_eq!(client.response().status, 101);
    let stopping = std::thread::spawn(move || server.shutdown(Duration::from_secs(60)));
    while client.read() > 0 {}
    assert_eq!(client.received(), b"bye");
    stopping.join().unwrap();
}

#[test]
fn shutdown_aborts_upgrade_handler_after_the_grace_period() {
    let (server, _) = start(app);
    let mut client = Client::connect_and_send(&server, request("GET", "/shout", SHOUT));
    assert_eq!(client.response().status, 101);
    server.shutdown(Duration::ZERO);
    client.assert_closed();
}

#[test]
fn upgrades_over_any_stream() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (mut client, stream) = tokio::io::duplex(100);
        let server = boxed_server(app);
        let exchange = async move {
            client.write_all((request("GET", "/shout", SHOUT) + "ab.").as_bytes()).await.unwrap();
            let mut received = String::new();
            client.read_to_string(&mut received).await.unwrap();
            assert!(
                received.starts_with("HTTP/1.1 101 ") && received.ends_with("\r\n\r\nAB"),
                "{received}"
            );
        };
        tokio::join!(server.serve_connection(stream), exchange).0.unwrap();
    });
}
