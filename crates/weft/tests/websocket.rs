//! WebSockets, frame by frame over real sockets. Clients mask with zeros, so that what they say
//! can be read.
#![cfg(feature = "websocket")]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Client, SHORT, stop, until};
use http::{HeaderMap, Version};
use weft::websocket::{self, Message, WebSocket};
use weft::{Application, Body, ErrorKind, Method, Request, Response, Running, Server};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A final frame, as a client sends it.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = unmasked(opcode, payload);
    frame[1] |= 0x80;
    let behind_length = frame.len() - payload.len();
    frame.splice(behind_length..behind_length, [0; 4]);
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

const OPENING: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// What the handlers' ends were.
type Ends = Arc<Mutex<Vec<Result<(), ErrorKind>>>>;

fn settings() -> websocket::Settings {
    websocket::Settings { max_message_bytes: 1_000, ..Default::default() }
}

fn start(settings: websocket::Settings) -> (Running, Ends) {
    let ends = Ends::default();
    let noted = ends.clone();
    let app = move |request: Request| {
        let (settings, ends) = (settings.clone(), noted.clone());
        async move {
            settings.accept(&request, async move |mut socket| {
                let end = echo(&mut socket).await.map_err(|error| error.kind());
                ends.lock().unwrap().push(end);
            })
        }
    };
    (serve(app), ends)
}

fn serve(app: impl Application + Clone + Send + 'static) -> Running {
    Server::new(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap()
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

/// A client that is through with the opening, and has sent this in the same breath.
fn open(server: &Running, early: &[u8]) -> Client {
    let mut client = Client::with(server, [OPENING.as_bytes(), early].concat());
    assert_eq!(client.response().status, 101);
    client
}

#[track_caller]
fn assert_comes(client: &mut Client, expected: &[u8]) {
    while client.came().len() < expected.len() {
        assert!(client.read() > 0, "only {} came", client.came().escape_ascii());
    }
    assert_eq!(client.came().escape_ascii().to_string(), expected.escape_ascii().to_string());
    client.forget();
}

#[test]
fn frames_in_and_out() {
    let (server, ends) = start(settings());
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
        // What breaks the protocol is told so.
        (unmasked(TEXT, b"a"), unmasked(CLOSE, &close(1002, ""))),
        (masked(3, b"a"), unmasked(CLOSE, &close(1002, ""))),
        (masked(TEXT, b"\xff"), unmasked(CLOSE, &close(1007, ""))),
        (masked(BINARY, &[b'x'; 1_001]), unmasked(CLOSE, &close(1009, ""))),
    ] {
        // Behind the opening, and with it.
        let mut client = open(&server, &sent);
        assert_comes(&mut client, &expected);
        let mut client = open(&server, b"");
        client.send(&sent);
        assert_comes(&mut client, &expected);
    }
    stop(server);
    let ends = ends.lock().unwrap();
    for kind in [ErrorKind::Malformed, ErrorKind::BodyTooLarge, ErrorKind::Disconnected] {
        assert!(ends.contains(&Err(kind)), "{kind:?}");
    }
}

#[test]
fn a_close_is_answered_and_the_connection_ends() {
    let (server, ends) = start(settings());
    let mut client = open(&server, b"");
    client.send(masked(CLOSE, &close(1000, "")));
    assert_comes(&mut client, &unmasked(CLOSE, &close(1000, "")));
    client.assert_closed();
    let mut client = open(&server, &masked(TEXT, b"bye"));
    assert_comes(&mut client, &unmasked(CLOSE, &close(1000, "as you wish")));
    client.send(masked(CLOSE, &close(1000, "as you wish")));
    client.assert_closed();
    stop(server);
    assert_eq!(*ends.lock().unwrap(), [Ok(()), Ok(())]);
}

#[test]
fn who_goes_silent_is_pinged_and_then_given_up() {
    let ping_after = Duration::from_millis(50);
    let (server, ends) = start(websocket::Settings { ping_after, ..settings() });
    let mut client = open(&server, b"");
    // Whoever answers stays.
    for _ in 0..3 {
        assert_comes(&mut client, &unmasked(PING, b""));
        client.send(masked(PONG, b""));
    }
    assert_comes(&mut client, &unmasked(PING, b""));
    client.assert_closed();
    stop(server);
    assert_eq!(*ends.lock().unwrap(), [Err(ErrorKind::TooSlow)]);
}

/// One that hears nothing for a while itself may not have asked.
#[test]
fn a_handler_that_was_away_gives_the_client_its_time() {
    let ping_after = 2 * SHORT;
    let server = serve(move |request: Request| {
        let settings = websocket::Settings { ping_after, ..settings() };
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
    // It has heard nothing for so long that it asks.
    assert_comes(&mut client, &[unmasked(TEXT, b"a"), unmasked(PING, b"")].concat());
    std::thread::sleep(SHORT / 2);
    client.send([masked(PONG, b""), masked(TEXT, b"b")].concat());
    assert_comes(&mut client, &[unmasked(TEXT, b"b"), unmasked(PING, b"")].concat());
    drop(client);
    stop(server);
}

/// A ping cannot be answered within a frame.
#[test]
fn a_message_that_comes_slowly_is_no_silence() {
    let ping_after = SHORT;
    let (server, _) = start(websocket::Settings { ping_after, ..settings() });
    // A pause that this machine made, and not the test, does not count.
    until("it comes", || {
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
        while client.read() > 0 && !client.came().ends_with(&expected) {}
        let whole = client.came().ends_with(&expected);
        assert!(whole || longest > ping_after, "{}", client.came().escape_ascii());
        whole
    });
    stop(server);
}

#[test]
fn what_may_come_is_no_limit_for_what_is_sent() {
    for max_message_bytes in [0, 1, 100, usize::MAX] {
        let server = serve(move |request: Request| {
            let settings = websocket::Settings { max_message_bytes, ..settings() };
            async move {
                settings.accept(&request, async move |mut socket| {
                    socket.send(vec![b'x'; 20_000]).await.unwrap();
                })
            }
        });
        assert_comes(&mut open(&server, b""), &unmasked(BINARY, &[b'x'; 20_000]));
        stop(server);
    }
}

#[test]
fn a_goodbye_that_was_interrupted_goes_on() {
    let ends = Ends::default();
    let noted = ends.clone();
    let server = serve(move |request: Request| {
        let ends = noted.clone();
        async move {
            settings().accept(&request, async move |mut socket| {
                let end = loop {
                    let soon = tokio::time::sleep(SHORT / 10);
                    tokio::select! {
                        end = socket.receive() => break end,
                        () = soon => {}
                    }
                };
                let sent = socket.send("late").await.map_err(|error| error.kind());
                assert_eq!(sent, Err(ErrorKind::Disconnected));
                ends.lock().unwrap().push(end.map(|_| ()).map_err(|error| error.kind()));
            })
        }
    });
    let mut client = open(&server, b"");
    let stopping = std::thread::spawn(move || server.shutdown(Duration::from_secs(60)));
    assert_comes(&mut client, &unmasked(CLOSE, &close(1001, "the server stops")));
    std::thread::sleep(SHORT);
    client.send(masked(CLOSE, &close(1001, "")));
    client.assert_closed();
    stopping.join().unwrap();
    assert_eq!(*ends.lock().unwrap(), [Ok(())]);
}

#[test]
fn patience_may_have_no_end() {
    let (ping_after, send_timeout) = (Duration::MAX, Duration::MAX);
    let (server, _) = start(websocket::Settings { ping_after, send_timeout, ..settings() });
    let mut client = open(&server, &masked(TEXT, b"there?"));
    assert_comes(&mut client, &unmasked(TEXT, b"there?"));
    stop(server);
}

#[test]
fn a_shutdown_says_goodbye() {
    let (server, ends) = start(settings());
    let mut client = open(&server, b"");
    let stopping = std::thread::spawn(move || server.shutdown(Duration::from_secs(60)));
    assert_comes(&mut client, &unmasked(CLOSE, &close(1001, "the server stops")));
    client.send(masked(CLOSE, &close(1001, "")));
    client.assert_closed();
    stopping.join().unwrap();
    assert_eq!(*ends.lock().unwrap(), [Ok(())]);
}

/// A handler of axum's, and the same behind a layer of tower's.
#[test]
fn from_a_handler_of_axum() {
    async fn chat(method: Method, version: Version, headers: HeaderMap) -> http::Response<Body> {
        settings().accept_http(&method, version, &headers, async |mut socket| {
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
        serve(weft::tower::app(router()).with(weft::tower::layer(layer))),
    ] {
        let mut client = open(&server, &masked(TEXT, b"early"));
        assert_comes(&mut client, &unmasked(TEXT, b"early"));
        client.send(masked(TEXT, b"later"));
        assert_comes(&mut client, &unmasked(TEXT, b"later"));
        let mut other = Client::with(&server, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(other.response().status, 426);
        drop(client);
        stop(server);
    }
}

#[test]
fn both_directions_in_one_task() {
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
    assert_comes(&mut client, &expected);
    client.send(masked(TEXT, b"hi"));
    assert_comes(&mut client, &unmasked(TEXT, b"hi"));
    drop(client);
    stop(server);
}
