//! Tunnels and WebSockets.

use super::*;

/// The head of an extended CONNECT (RFC 8441 §4).
fn extended_connect<'a>(protocol: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut head = pseudo_header("CONNECT", path).to_vec();
    head.push((":protocol", protocol));
    head
}

/// A handler may move its tunnel to another task. The connection is not idle then.
#[test]
fn moved_tunnel_keeps_the_connection_open() {
    let idle = Duration::from_millis(200);
    let settings = Settings { idle_timeout: idle, linger_timeout: idle, ..Settings::default() };
    let server = start_with(settings, async |_: Request| {
        Response::upgrade("shout", async |connection| {
            tokio::task::spawn_local(shout(connection));
        })
    });
    let mut client = RawClient::connect(&server);
    let stream = client.request(&extended_connect("shout", "/"), false);
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < 10 * idle {
        client.data(stream, "a", false);
        sent += 1;
        client.read_until("the echo", |client| client.body_length(stream) == sent);
    }
    assert_eq!(client.goaways, []);
    client.data(stream, ".", false);
    client.response(stream);
    assert_eq!(client.read_goaways().last(), Some(&"NO_ERROR"));
    stop(server);
}

/// A reset behind END_STREAM, or the end of the connection, breaks a tunnel. Without one it stays.
#[test]
fn resets_behind_the_end_of_the_input_break_a_tunnel() {
    let (events, received) = std::sync::mpsc::channel();
    let server = start(move |_: Request| {
        let events = events.clone();
        async move {
            Response::upgrade("quiet", async move |mut connection| {
                assert_eq!(connection.read_to_end(&mut Vec::new()).await.ok(), Some(1));
                events.send("end").unwrap();
                connection.broken().await;
                events.send("broken").unwrap();
            })
        }
    });
    for is_reset in [true, false] {
        let mut client = RawClient::connect(&server);
        let [stays, leaves] = [(); 2].map(|()| {
            let stream = client.request(&extended_connect("quiet", "/"), false);
            client.data(stream, "x", true);
            assert_eq!(received.recv_timeout(TEST_TIMEOUT), Ok("end"));
            stream
        });
        if is_reset {
            client.send(reset(leaves, CANCEL));
            assert_eq!(received.recv_timeout(TEST_TIMEOUT), Ok("broken"));
        }
        client.sync();
        assert_eq!(received.try_recv().ok(), None, "{stays} stays");
        drop(client);
        for _ in 0..2 - usize::from(is_reset) {
            assert_eq!(received.recv_timeout(TEST_TIMEOUT), Ok("broken"));
        }
    }
    stop(server);
}

#[test]
fn serves_tunnels_and_extended_connect() {
    let server = start(async |request: Request| match (request.method(), request.path()) {
        (_, "/shout") => Response::upgrade("shout", shout),
        (_, "/no") => Response::not_found(),
        (_, "/panic") => Response::upgrade("shout", async |_| panic!("on purpose")),
        (&Method::CONNECT, _) if request.target() == "a:1" => Response::tunnel(shout),
        _ => Response::text("ok"),
    });
    let mut client = RawClient::connect(&server);
    assert_eq!(client.setting(ENABLE_CONNECT_PROTOCOL), Some(1));
    // RFC 8441 §5: a 2xx would accept the requested tunnel.
    let page = client.request(&extended_connect("shout", "/page"), false);
    assert_eq!(client.response(page).status(), 501);
    let tunnel = vec![(":method", "CONNECT"), (":authority", "a:1")];
    for head in [extended_connect("shout", "/shout"), tunnel] {
        let stream = client.request(&head, false);
        client.data(stream, "early", false);
        client.read_until("the echo", |client| client.body_length(stream) == 5);
        client.data(stream, "later", false);
        client.read_until("the echo", |client| client.body_length(stream) == 10);
        let response = client.peek(stream).unwrap();
        assert_eq!(
            (response.status(), response.text(), response.ended),
            (200, "EARLYLATER", false)
        );
        assert_eq!((response.header("upgrade"), response.header("content-length")), (None, None));
        client.data(stream, ".", false);
        // The handler has returned, which ends the stream; other streams continue.
        client.response(stream);
        client.assert_open("/");
        // END_STREAM of the client ends the handler's input, and with it the response.
        let stream = client.request(&head, false);
        client.data(stream, "x", true);
        assert_eq!(client.response(stream).text(), "X");
    }
    // More data than any window, in both directions.
    let stream = client.request(&extended_connect("shout", "/shout"), false);
    assert!(client.upload(stream, 300_000));
    let response = client.response(stream);
    assert_eq!(response.body.len(), 300_000);
    assert!(response.body.iter().all(|&b| b == b'X'));
    for (head, expected) in [
        (extended_connect("shout", "/no"), "404"),
        (extended_connect("other", "/shout"), "500"),
        (vec![(":method", "CONNECT"), (":authority", "b:1")], "501"),
    ] {
        let stream = client.request(&head, false);
        client.read_until("the response", |client| {
            client.peek(stream).is_some_and(StreamResponse::is_finished)
        });
        assert_eq!(client.response(stream).status().to_string(), expected, "{head:?}");
        client.assert_open("/");
    }
    let stream = client.request(&extended_connect("shout", "/panic"), false);
    client.response(stream);
    client.assert_open("/");
    stop(server);
}

#[cfg(feature = "websocket")]
mod websockets {
    use super::*;
    use weft::websocket;

    /// A client frame, masked with a key of zeros.
    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        [&[0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
    }

    fn unmasked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        [&[0x80 | opcode, payload.len() as u8], payload].concat()
    }

    async fn chat(request: Request) -> Response {
        websocket::accept(&request, async |mut socket| {
            while let Ok(Some(message)) = socket.receive().await {
                if socket.send(message).await.is_err() {
                    break;
                }
            }
        })
    }

    fn opening<'a>() -> Vec<(&'a str, &'a str)> {
        let mut head = extended_connect("websocket", "/chat");
        head.push(("sec-websocket-version", "13"));
        head.push(("origin", "http://a"));
        head
    }

    #[track_caller]
    fn assert_received(client: &mut RawClient, stream: u32, expected: &[u8]) {
        let length = expected.len();
        client.read_until("the messages", |client| client.body_length(stream) >= length);
        assert_eq!(client.peek(stream).unwrap().body, expected);
    }

    /// RFC 8441 §5: no key, and 200 rather than 101.
    #[test]
    fn accepts_websocket_by_extended_connect() {
        let server = start(chat);
        let mut client = RawClient::connect(&server);
        let stream = client.request(&opening(), false);
        client.data(stream, masked(1, b"early"), false);
        let mut expected = unmasked(1, b"early");
        assert_received(&mut client, stream, &expected);
        let head = client.peek(stream).unwrap().head.clone().unwrap();
        assert_eq!(find(&head, ":status"), Some("200"));
        for name in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
            assert_eq!(find(&head, name), None, "{name}");
        }
        // Several WebSockets on one connection, concurrently with requests.
        let other = client.request(&opening(), false);
        client.data(other, masked(2, b"other"), false);
        assert_received(&mut client, other, &unmasked(2, b"other"));
        let plain = client.get("/");
        assert_eq!(client.response(plain).status(), 426);
        client.data(stream, [masked(1, b"a"), masked(9, b"b")].concat(), false);
        expected.extend([unmasked(1, b"a"), unmasked(10, b"b")].concat());
        assert_received(&mut client, stream, &expected);
        client.data(stream, masked(8, &[3, 232]), false);
        expected.extend(unmasked(8, &[3, 232]));
        assert_received(&mut client, stream, &expected);
        client.response(stream);
        // RST_STREAM ends only the WebSocket of that stream.
        client.send(reset(other, CANCEL));
        let again = client.request(&opening(), false);
        client.data(again, masked(1, b"again"), false);
        assert_received(&mut client, again, &unmasked(1, b"again"));
        stop(server);
    }

    #[test]
    fn rejects_wrong_version_and_origin() {
        let server = start(chat);
        let mut client = RawClient::connect(&server);
        for (name, value, status) in
            [("sec-websocket-version", "8", 426), ("origin", "http://b", 403)]
        {
            let mut head = opening();
            head.iter_mut().filter(|(n, _)| *n == name).for_each(|field| field.1 = value);
            let stream = client.request(&head, false);
            client.read_until("the response", |client| {
                client.peek(stream).is_some_and(StreamResponse::is_finished)
            });
            assert_eq!(client.response(stream).status(), status, "{name}");
        }
        stop(server);
    }

    #[test]
    fn shutdown_sends_a_close_frame() {
        let server = start(chat);
        let mut client = RawClient::connect(&server);
        let stream = client.request(&opening(), false);
        client.read_until("the head", |client| client.peek(stream).is_some());
        let stopping = std::thread::spawn(move || server.shutdown(TEST_TIMEOUT));
        let close = [&1001u16.to_be_bytes()[..], b"the server stops"].concat();
        assert_received(&mut client, stream, &unmasked(8, &close));
        client.data(stream, masked(8, &[3, 233]), false);
        client.assert_closed();
        assert_eq!(client.goaways.last(), Some(&(stream, "NO_ERROR")));
        stopping.join().unwrap();
    }
}
