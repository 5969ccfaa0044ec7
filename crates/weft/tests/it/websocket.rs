//! WebSockets, tested frame by frame over real sockets. Clients use a masking key of zeros, so that
//! payloads stay readable.
#![cfg(all(feature = "tower", feature = "websocket"))]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Client, SHORT_TIMEOUT, boxed_server, stop, until};
use axum::Extension;
use http::{HeaderMap, Version};
use weft::server::ServerHandle;
use weft::tower::Connection;
use weft::websocket::{self, Message, WebSocket};
use weft::{Application, Body, ErrorKind, Method, Request, Response};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A final frame, as a client sends it.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = unmasked(opcode, payload);
    frame[1] |= 0x80;
    let after_length = frame.len() - payload.len();
    frame.splice(after_length..after_length, [0; 4]);
    frame
}

/// A final frame, as a server sends it.
fn unmasked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..=125 => frame.push(length as u8),
        length => {
            frame.push(126);
            frame.extend((length as u16).to_be_bytes());
        }
    }
    frame.extend(payload);
    frame
}

fn close(code: u16, reason: &str) -> Vec<u8> {
    [&code.to_be_bytes()[..], reason.as_bytes()].concat()
}

const OPENING_HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// The results of the handlers.
type Results = Arc<Mutex<Vec<Result<(), ErrorKind>>>>;

fn settings() -> websocket::WebSocketSettings {
    websocket::WebSocketSettings { max_message_bytes: 1_000, ..Default::default() }
}

fn start(settings: websocket::WebSocketSettings) -> (ServerHandle, Results) {
    let results = Results::default();
    let recorded = results.clone();
    let app = move |request: Request| {
        let (settings, results) = (settings.clone(), recorded.clone());
        async move {
            settings.accept(&request, async move |mut socket| {
                let result = echo(&mut socket).await.map_err(|error| error.kind());
                results.lock().unwrap().push(result);
            })
        }
    };
    (serve(app), results)
}

fn serve(app: impl Application + Clone + Send + 'static) -> ServerHandle {
    boxed_server(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap()
}

async fn echo(socket: &mut WebSocket) -> weft::Result<()> {
    while let Some(message) = socket.receive().await? {
        if message.to_text().is_ok_and(|text| text == "bye") {
            return socket.close(1000, "as you wish").await;
        }
        socket.send(message).await?;
    }
    Ok(())
}

/// A client after the opening handshake, which has sent `early` in the same write as its request.
fn open(server: &ServerHandle, early: &[u8]) -> Client {
    let mut client =
        Client::connect_and_send(server, [OPENING_HANDSHAKE.as_bytes(), early].concat());
    assert_eq!(client.response().status, 101);
    client
}

#[track_caller]
fn assert_receives(client: &mut Client, expected: &[u8]) {
    while client.received().len() < expected.len() {
        assert!(client.read() > 0, "only {} received", client.received().escape_ascii());
    }
    assert_eq!(client.received().escape_ascii().to_string(), expected.escape_ascii().to_string());
    client.clear_received();
}

#[test]
fn replies_to_frames() {
    let (server, results) = start(settings());
    let long = [b'x'; 1_000];
    let fragmented =
        [&[TEXT, 0x82, 0, 0, 0, 0][..], b"ab", &[0x80, 0x81, 0, 0, 0, 0], b"c"].concat();
    for (sent, expected) in [
        (masked(TEXT, "días".as_bytes()), unmasked(TEXT, "días".as_bytes())),
        (masked(BINARY, b"\0\xff"), unmasked(BINARY, b"\0\xff")),
        (masked(TEXT, b""), unmasked(TEXT, b"")),
        (masked(BINARY, &long), unmasked(BINARY, &long)),
        (fragmented, unmasked(TEXT, b"abc")),
        (masked(PING, b"there?"), unmasked(PONG, b"there?")),
        (masked(PONG, b""), vec![]),
        (masked(TEXT, b"bye"), unmasked(CLOSE, &close(1000, "as you wish"))),
        (masked(CLOSE, &close(1001, "gone")), unmasked(CLOSE, &close(1001, "gone"))),
        // Protocol violations get a close frame with the status code.
        (unmasked(TEXT, b"a"), unmasked(CLOSE, &close(1002, ""))),
        (masked(3, b"a"), unmasked(CLOSE, &close(1002, ""))),
        (masked(TEXT, b"\xff"), unmasked(CLOSE, &close(1007, ""))),
        (masked(BINARY, &[b'x'; 1_001]), unmasked(CLOSE, &close(1009, ""))),
    ] {
        // In the same write as the opening handshake, and after it.
        let mut client = open(&server, &sent);
        assert_receives(&mut client, &expected);
        let mut client = open(&server, b"");
        client.send(&sent);
        assert_receives(&mut client, &expected);
    }
    stop(server);
    let results = results.lock().unwrap();
    for kind in [ErrorKind::Malformed, ErrorKind::BodyTooLarge, ErrorKind::Disconnected] {
        assert!(results.contains(&Err(kind)), "{kind:?}");
    }
}

#[test]
fn replies_to_close_and_closes_the_connection() {
    let (server, results) = start(settings());
    let mut client = open(&server, b"");
    client.send(masked(CLOSE, &close(1000, "")));
    assert_receives(&mut client, &unmasked(CLOSE, &close(1000, "")));
    client.assert_closed();
    let mut client = open(&server, &masked(TEXT, b"bye"));
    assert_receives(&mut client, &unmasked(CLOSE, &close(1000, "as you wish")));
    client.send(masked(CLOSE, &close(1000, "as you wish")));
    client.assert_closed();
    stop(server);
    assert_eq!(*results.lock().unwrap(), [Ok(()), Ok(())]);
}

#[test]
fn silent_client_is_pinged_then_disconnected() {
    let ping_after = Duration::from_millis(50);
    let (server, results) = start(websocket::WebSocketSettings { ping_after, ..settings() });
    let mut client = open(&server, b"");
    // A client that replies stays connected.
    for _ in 0..3 {
        assert_receives(&mut client, &unmasked(PING, b""));
        client.send(masked(PONG, b""));
    }
    assert_receives(&mut client, &unmasked(PING, b""));
    client.assert_closed();
    stop(server);
    assert_eq!(*results.lock().unwrap(), [Err(ErrorKind::TooSlow)]);
}

/// A handler that did not receive for a while has not sent a ping in that time.
#[test]
fn client_has_time_to_reply_to_a_slow_handler() {
    let ping_after = 2 * SHORT_TIMEOUT;
    let server = serve(move |request: Request| {
        let settings = websocket::WebSocketSettings { ping_after, ..settings() };
        async move {
            settings.accept(&request, async move |mut socket| {
                while let Ok(Some(message)) = socket.receive().await {
                    tokio::time::sleep(3 * ping_after).await;
                    socket.send(message).await.unwrap();
                }
            })
        }
    });
    let mut client = open(&server, &masked(TEXT, b"a"));
    // Nothing was received for `ping_after`, so the server sends a ping.
    assert_receives(&mut client, &[unmasked(TEXT, b"a"), unmasked(PING, b"")].concat());
    std::thread::sleep(SHORT_TIMEOUT / 2);
    client.send([masked(PONG, b""), masked(TEXT, b"b")].concat());
    assert_receives(&mut client, &[unmasked(TEXT, b"b"), unmasked(PING, b"")].concat());
    drop(client);
    stop(server);
}

/// A client cannot reply to a ping in the middle of a frame.
#[test]
fn slow_message_is_not_a_timeout() {
    let ping_after = SHORT_TIMEOUT;
    let (server, _) = start(websocket::WebSocketSettings { ping_after, ..settings() });
    // Attempts with a longer pause than intended, caused by a busy machine, are repeated.
    until("the message is echoed", || {
        let mut client = open(&server, b"");
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        for piece in masked(BINARY, &[b'x'; 100]).chunks(10) {
            std::thread::sleep(ping_after / 2);
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if client.socket().write_all(piece).is_err() {
                break;
            }
        }
        let expected = unmasked(BINARY, &[b'x'; 100]);
        while client.read() > 0 && !client.received().ends_with(&expected) {}
        let whole = client.received().ends_with(&expected);
        assert!(whole || longest > ping_after, "{}", client.received().escape_ascii());
        whole
    });
    stop(server);
}

#[test]
fn max_message_bytes_does_not_limit_sent_messages() {
    for max_message_bytes in [0, 1, 100, usize::MAX] {
        let server = serve(move |request: Request| {
            let settings = websocket::WebSocketSettings { max_message_bytes, ..settings() };
            async move {
                settings.accept(&request, async move |mut socket| {
                    socket.send(vec![b'x'; 20_000]).await.unwrap();
                })
            }
        });
        assert_receives(&mut open(&server, b""), &unmasked(BINARY, &[b'x'; 20_000]));
        stop(server);
    }
}

#[test]
fn interrupted_close_handshake_continues() {
    let results = Results::default();
    let recorded = results.clone();
    let server = serve(move |request: Request| {
        let results = recorded.clone();
        async move {
            settings().accept(&request, async move |mut socket| {
                let result = loop {
                    let soon = tokio::time::sleep(SHORT_TIMEOUT / 10);
                    tokio::select! {
                        result = socket.receive() => break result,
                        () = soon => {}
                    }
                };
                let sent = socket.send("late").await.map_err(|error| error.kind());
                assert_eq!(sent, Err(ErrorKind::Disconnected));
                results.lock().unwrap().push(result.map(|_| ()).map_err(|error| error.kind()));
            })
        }
    });
    let mut client = open(&server, b"");
    let stopping = std::thread::spawn(move || server.shutdown(Duration::from_secs(60)));
    assert_receives(&mut client, &unmasked(CLOSE, &close(1001, "the server stops")));
    std::thread::sleep(SHORT_TIMEOUT);
    client.send(masked(CLOSE, &close(1001, "")));
    client.assert_closed();
    stopping.join().unwrap();
    assert_eq!(*results.lock().unwrap(), [Ok(())]);
}

#[test]
fn timeouts_may_be_infinite() {
    let (ping_after, send_timeout) = (Duration::MAX, Duration::MAX);
    let (server, _) =
        start(websocket::WebSocketSettings { ping_after, send_timeout, ..settings() });
    let mut client = open(&server, &masked(TEXT, b"there?"));
    assert_receives(&mut client, &unmasked(TEXT, b"there?"));
    stop(server);
}

#[test]
fn shutdown_sends_a_close_frame() {
    let (server, results) = start(settings());
    let mut client = open(&server, b"");
    let stopping = std::thread::spawn(move || server.shutdown(Duration::from_secs(60)));
    assert_receives(&mut client, &unmasked(CLOSE, &close(1001, "the server stops")));
    client.send(masked(CLOSE, &close(1001, "")));
    client.assert_closed();
    stopping.join().unwrap();
    assert_eq!(*results.lock().unwrap(), [Ok(())]);
}

/// Senders that wait for a slow client delay neither the receiver nor each other for good.
#[test]
fn halves_work_in_tasks_of_their_own() {
    const MESSAGES: usize = 150;
    let payload = |sender: u8| vec![b'0' + sender; 60_000];
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorded = received.clone();
    let server = serve(move |request: Request| {
        let received = recorded.clone();
        async move {
            settings().accept(&request, async move |socket| {
                let (sender, mut receiver) = socket.split();
                let send = |number: u8| {
                    let sender = sender.clone();
                    tokio::spawn(async move {
                        for _ in 0..MESSAGES {
                            sender.send(payload(number)).await.unwrap();
                        }
                    })
                };
                let tasks = [send(0), send(1), send(2)];
                while let Ok(Some(message)) = receiver.receive().await {
                    received.lock().unwrap().push(message.into_data());
                }
                for task in tasks {
                    task.await.unwrap();
                }
            })
        }
    });
    let mut client = open(&server, b"");
    client.send([masked(TEXT, b"a"), masked(TEXT, b"b")].concat());
    until("messages are received", || received.lock().unwrap().len() == 2);
    let length = unmasked(BINARY, &payload(0)).len();
    while client.received().len() < 3 * MESSAGES * length {
        assert!(client.read() > 0);
    }
    for number in 0..3 {
        let message = unmasked(BINARY, &payload(number));
        let whole = client.received().chunks(length).filter(|received| *received == message);
        assert_eq!(whole.count(), MESSAGES, "{number}");
    }
    client.clear_received();
    client.send(masked(CLOSE, &close(1000, "")));
    assert_receives(&mut client, &unmasked(CLOSE, &close(1000, "")));
    client.assert_closed();
    stop(server);
}

#[test]
fn half_closes_the_websocket() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let recorded = received.clone();
    let server = serve(move |request: Request| {
        let received = recorded.clone();
        async move {
            settings().accept(&request, async move |socket| {
                let (sender, mut receiver) = socket.split();
                sender.close(1000, "enough").await.unwrap();
                sender.clone().close(1001, "again").await.unwrap();
                assert_eq!(sender.send("late").await.unwrap_err().kind(), ErrorKind::Disconnected);
                let record = |text: String| received.lock().unwrap().push(text);
                while let Some(message) = receiver.receive().await.unwrap() {
                    record(message.to_string());
                }
                record("end".to_owned());
            })
        }
    });
    let mut client = open(&server, b"");
    assert_receives(&mut client, &unmasked(CLOSE, &close(1000, "enough")));
    client.send([masked(TEXT, b"a"), masked(CLOSE, &close(1000, ""))].concat());
    client.assert_closed();
    stop(server);
    assert_eq!(*received.lock().unwrap(), ["a", "end"]);
}

#[test]
fn halves_close_at_a_shutdown() {
    let server = serve(|request: Request| async move {
        settings().accept(&request, async move |socket| {
            let (sender, mut receiver) = socket.split();
            assert_eq!(receiver.receive().await.unwrap(), None);
            assert!(sender.send("late").await.is_err());
        })
    });
    let mut client = open(&server, b"");
    let stopping = std::thread::spawn(move || server.shutdown(Duration::from_secs(60)));
    assert_receives(&mut client, &unmasked(CLOSE, &close(1001, "the server stops")));
    client.send(masked(CLOSE, &close(1001, "")));
    client.assert_closed();
    stopping.join().unwrap();
}

/// An axum handler, without and with a tower layer.
#[test]
fn accepts_from_an_axum_handler() {
    async fn chat(
        method: Method,
        version: Version,
        headers: HeaderMap,
        Extension(connection): Extension<Connection>,
    ) -> http::Response<Body> {
        settings().accept_http(&method, version, &headers, &connection, async |mut socket| {
            let _ = echo(&mut socket).await;
        })
    }
    let router = || axum::Router::new().route("/", axum::routing::any(chat));
    let name = http::HeaderName::from_static("x-a");
    let layer = tower_http::set_header::SetRequestHeaderLayer::overriding(
        name,
        http::HeaderValue::from_static("b"),
    );
    for server in [
        serve(weft::tower::app(router())),
        serve(weft::tower::app(router().layer(layer.clone()))),
        serve(weft::tower::app(router()).wrap(weft::tower::layer(layer))),
    ] {
        let mut client = open(&server, &masked(TEXT, b"early"));
        assert_receives(&mut client, &unmasked(TEXT, b"early"));
        client.send(masked(TEXT, b"later"));
        assert_receives(&mut client, &unmasked(TEXT, b"later"));
        let mut other = Client::connect_and_send(&server, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(other.response().status, 426);
        drop(client);
        stop(server);
    }
}

#[test]
fn sends_and_receives_in_one_task() {
    async fn ticks(request: Request) -> Response {
        websocket::accept(&request, async |mut socket| {
            let mut tick = tokio::time::interval(Duration::from_millis(5));
            for number in 0..3 {
                let sent = tokio::select! {
                    _ = tick.tick() => socket.send(Message::text(number.to_string())).await,
                    _ = socket.receive() => return,
                };
                if sent.is_err() {
                    return;
                }
            }
            let _ = echo(&mut socket).await;
        })
    }
    let server = serve(ticks);
    let mut client = open(&server, b"");
    let expected: Vec<u8> = (b'0'..b'3').flat_map(|digit| unmasked(TEXT, &[digit])).collect();
    assert_receives(&mut client, &expected);
    client.send(masked(TEXT, b"hi"));
    assert_receives(&mut client, &unmasked(TEXT, b"hi"));
    drop(client);
    stop(server);
}
