//! Heads and bodies of requests, and interim responses.

use super::*;

// -- heads

/// A cloned head stays valid; the buffer of a head without clones is reused for the next request.
#[test]
fn retained_request_head_is_not_overwritten() {
    let retained = Arc::new(Mutex::new(Vec::new()));
    let app = {
        let retained = retained.clone();
        async move |request: Request| {
            if request.query() == Some("keep") {
                retained.lock().unwrap().push(request.head().clone());
            }
            let segments = request.segments().join(",");
            let own = request.headers().get("x-own").unwrap_or("none").to_owned();
            Response::text(format!("{} {own} {segments}", request.target()))
        }
    };
    let server = start(app);
    let mut client = Client::connect(&server);
    let mut expected = Vec::new();
    for round in 0..3 {
        let mut batch = String::new();
        for number in 0..8 {
            let target = match number % 3 {
                0 => format!("/a%20{round}/{number}?keep"),
                _ => format!("/b%20{round}/{number}/longer-than-the-one-before"),
            };
            let own = if number % 2 == 0 { format!("X-Own: {round}\r\n") } else { String::new() };
            batch += &format!("GET {target} HTTP/1.1\r\nHost: a\r\n{own}\r\n");
            expected
                .push((target, if number % 2 == 0 { round.to_string() } else { "none".into() }));
        }
        client.send(batch);
        for (target, own) in &expected[expected.len() - 8..] {
            let path = target.trim_start_matches('/').split('?').next().unwrap();
            let segments = path.replace("%20", " ").replace('/', ",");
            assert_eq!(client.response().text(), format!("{target} {own} {segments}"));
        }
    }
    let show = |head: &RequestHead| {
        (head.target().to_owned(), head.headers().get("x-own").unwrap_or("none").to_owned())
    };
    let retained: Vec<_> = retained.lock().unwrap().iter().map(show).collect();
    expected.retain(|(target, _)| target.ends_with("?keep"));
    assert_eq!(retained, expected);
    stop(server);
}

/// A head that repeats an earlier one is shared with that request, also with the one of another
/// connection and with those that the application still holds.
#[test]
fn repeated_head_has_the_content_and_the_changes_of_its_own_request() {
    let retained = Arc::new(Mutex::new(Vec::new()));
    let app = {
        let retained = retained.clone();
        async move |mut request: Request| {
            let text = |head: &RequestHead| {
                let segments = request_segments(head);
                let te = head.headers().get("te").unwrap_or("none");
                format!("{} {} {segments} {:?} {te}", head.method(), head.target(), head.host())
            };
            let before = text(request.head());
            retained.lock().unwrap().push((before.clone(), request.head().clone()));
            if request.path() == "/changed" {
                request.set_path_and_query("/by/middleware");
                request.set_method(Method::DELETE);
                assert_eq!(request_segments(request.head()), "by,middleware");
            }
            // Some are released at once, others later.
            if retained.lock().unwrap().len() > 5 {
                let held = std::mem::take(&mut *retained.lock().unwrap());
                held.iter().for_each(|(before, head)| assert_eq!(*before, text(head)));
            }
            let body = request.body().chunk().await.unwrap().unwrap_or_default();
            Response::text(format!("{before} {body:?}"))
        }
    };
    let server = start(app);
    let mut clients = [Client::connect(&server), Client::connect(&server)];
    let requests = [
        ("GET /a/b HTTP/1.1\r\nHost: c\r\n\r\n", "GET /a/b a,b Some(\"c\") none b\"\""),
        ("GET /a/b HTTP/1.1\r\nHost: d\r\nTE: e\r\n\r\n", "GET /a/b a,b Some(\"d\") e b\"\""),
        ("GET /changed HTTP/1.1\r\nHost: d\r\n\r\n", "GET /changed changed Some(\"d\") none b\"\""),
        (
            "PUT /f HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n\r\ngh",
            "PUT /f f Some(\"d\") none b\"gh\"",
        ),
        (
            "PUT /f HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n\r\nij",
            "PUT /f f Some(\"d\") none b\"ij\"",
        ),
    ];
    // Each is repeated until it is kept; then they alternate.
    let orders = [[0; 40], [1; 40], [2; 40], [3; 40]].concat();
    let mixed = (0..200).map(|n| [0, 1, 1, 2, 0, 3, 4, 4][n % 8]);
    for (number, index) in orders.into_iter().chain(mixed).enumerate() {
        let (request, expected) = requests[index];
        // One of them, or two at once.
        let count = 1 + number / 7 % 2;
        let client = &mut clients[number % 3 % 2];
        client.send(request.repeat(count));
        for _ in 0..count {
            assert_eq!(client.response().text(), expected, "{number}");
        }
    }
    stop(server);
}

fn request_segments(head: &RequestHead) -> String {
    head.segments().join(",")
}

// -- bodies on loan

#[test]
fn echoes_request_body_while_receiving() {
    let server = start(echo);
    let mut client = Client::connect_and_send(&server, CHUNKED);
    let mut seen = Vec::new();
    for part in ["one", "two", "three"] {
        client.send(format!("{:x}\r\n{part}\r\n", part.len()));
        // Each part is echoed before the next one is sent.
        let end = format!("{part}\r\n");
        until("the part is echoed", || {
            client.read();
            client.received().ends_with(end.as_bytes())
        });
        seen.push(part);
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response().text(), seen.concat());
    client.assert_open("/");
    stop(server);
}

#[test]
fn reads_request_body_in_another_thread() {
    async fn elsewhere(request: Request) -> weft::Result<Response> {
        let body = request.into_body();
        let (sender, result) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = sender.send(runtime.block_on(body.collect(1 << 20)));
        });
        let body = result.await.expect("the thread sends a result")?;
        Ok(Response::text(format!("{}", body.len())))
    }
    let server = start(elsewhere);
    let mut client = Client::connect_and_send(&server, post(100_000));
    for _ in 0..100 {
        client.send([b'x'; 1000]);
    }
    assert_eq!(client.response().text(), "100000");
    client.send(post(3));
    client.send("abc");
    assert_eq!(client.response().text(), "3");
    stop(server);
}

#[test]
fn dropped_body_returns_the_reader_to_the_connection() {
    async fn first_chunk(mut request: Request) -> weft::Result<Response> {
        let chunk = request.body().chunk().await?.unwrap_or_default();
        Ok(Response::text(format!("{}", chunk.len())))
    }
    let server = start(first_chunk);
    let mut client = Client::connect_and_send(&server, post(20_000));
    client.send([b'x'; 10]);
    assert_eq!(client.response().text(), "10");
    client.send([b'x'; 19_990]);
    client.assert_open("/");
    stop(server);
}

#[test]
fn drains_unread_body_up_to_the_limit() {
    let settings = Settings { max_discarded_bytes: 1000, ..Settings::default() };
    let server = start_with(settings, async |_: Request| Response::text("ok"));
    let mut client = Client::connect_and_send(&server, post(1000));
    assert_eq!(client.response().header("connection"), None);
    client.send([b'x'; 1000]);
    client.assert_open("/");

    client.send(post(1001));
    assert_eq!(
        client.response().header("connection"),
        Some("close"),
        "the length exceeds the drain limit"
    );
    client.assert_closed();

    // Without a length the limit is exceeded only while draining, after the response was sent.
    let mut client = Client::connect_and_send(&server, CHUNKED);
    assert_eq!(client.response().header("connection"), None);
    client.send(format!("800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800)));
    client.assert_closed();
    stop(server);
}

#[test]
fn slow_application_applies_backpressure() {
    // The application reads one chunk and then waits for `release`.
    let taken = Arc::new(AtomicUsize::new(0));
    let release = Arc::new(tokio::sync::Notify::new());
    let (count, released) = (taken.clone(), release.clone());
    let app = move |mut request: Request| {
        let (count, released) = (count.clone(), released.clone());
        async move {
            while let Some(chunk) = request.body().chunk().await? {
                if count.fetch_add(chunk.len(), SeqCst) == 0 {
                    released.notified().await;
                }
            }
            Ok::<_, Error>(Response::text(format!("{}", count.load(SeqCst))))
        }
    };
    let server = start_with(Settings { max_body_bytes: 1 << 30, ..Settings::default() }, app);
    let length = 64 << 20;
    let mut client = Client::connect_and_send(&server, post(length));
    client.socket().set_nonblocking(true).unwrap();
    // The kernel's buffers accept some data, then the client is blocked.
    let mut sent = 0;
    let block = vec![b'x'; 1 << 20];
    until("the client is blocked", || {
        match client.socket().write(&block[..block.len().min(length - sent)]) {
            Ok(n) => {
                sent += n;
                false
            }
            Err(_) => taken.load(SeqCst) > 0,
        }
    });
    assert!(sent < length, "all data was accepted although the application does not read");
    let before = taken.load(SeqCst);
    assert!(before <= 128 << 10, "{before} bytes were read for one chunk");
    release.notify_one();
    client.socket().set_nonblocking(false).unwrap();
    while sent < length {
        let part = block.len().min(length - sent);
        client.send(&block[..part]);
        sent += part;
    }
    assert_eq!(client.response().text(), length.to_string());
    stop(server);
}

#[test]
fn retained_request_body_blocks_only_its_own_connection() {
    let retained: Arc<Mutex<Vec<Body>>> = Arc::default();
    let app_retained = retained.clone();
    let app = move |request: Request| {
        let app_retained = app_retained.clone();
        async move {
            if *request.method() == Method::POST {
                app_retained.lock().unwrap().push(request.into_body());
            }
            Response::text("ok")
        }
    };
    let server = start(app);
    let mut client = Client::connect_and_send(&server, post(5));
    assert_eq!(client.response().text(), "ok");
    Client::connect(&server).assert_open("/");
    client.send("hello");
    client.get("/");
    // The next request is read only after the body is dropped.
    retained.lock().unwrap().clear();
    assert_eq!(client.response().text(), "ok");
    stop(server);
}

#[test]
fn sends_100_continue_only_when_the_application_reads() {
    let server = start(async |request: Request| match request.path() {
        "/unread" => Response::text("no, thanks"),
        _ => match request.into_body().collect(100).await {
            Ok(body) => Response::from_body(body),
            Err(error) => error.into(),
        },
    });
    let ask = |path: &str| {
        format!(
            "PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n"
        )
    };
    let mut client = Client::connect_and_send(&server, ask("/read"));
    assert_eq!(client.response().status, 100);
    client.send("hello");
    assert_eq!(client.response().text(), "hello");
    // A body that is sent without waiting needs no 100.
    client.send(ask("/read") + "hello");
    assert_eq!(client.response().status, 200);

    client.send(ask("/unread"));
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    client.assert_closed();
    stop(server);
}

#[test]
fn sends_100_continue_before_the_head_of_an_echo() {
    let server = start(echo);
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let mut client = Client::connect_and_send(&server, head);
    assert_eq!(client.response().status, 100);
    client.send("hello");
    assert_eq!(client.response().text(), "hello");
    client.assert_open("/");
    stop(server);
}

#[test]
fn rejects_body_over_limit_with_and_without_length() {
    let settings = Settings { max_body_bytes: 10, ..Settings::default() };
    let server = start_with(settings, echo);
    for request in [post(11), format!("{CHUNKED}b\r\nhello world\r\n0\r\n\r\n")] {
        let mut client = Client::connect_and_send(&server, request);
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (413, Some("close")));
        client.assert_closed();
    }
    let mut client = Client::connect_and_send(&server, post(10) + "0123456789");
    assert_eq!(client.response().text(), "0123456789");
    stop(server);
}

// -- interim responses

#[test]
fn sends_early_hints_before_a_slow_response() {
    let release = Arc::new(tokio::sync::Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            request.early_hints(["</a.css>; rel=preload", "</b>\r\nx: y"]);
            if request.path() == "/slow" {
                released.notified().await;
            }
            Response::text("ok")
        }
    });
    let mut client = Client::connect(&server);
    client.get("/slow");
    let hints = client.response();
    assert_eq!(hints.status, 103);
    let links: Vec<&str> = hints.headers.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(links, ["</a.css>; rel=preload", "</b>  x: y"]);
    release.notify_one();
    assert_eq!(client.response().status, 200);
    client.get("/fast");
    assert_eq!((client.response().status, client.response().status), (103, 200));
    // RFC 9110 §15.2: interim responses are not sent to an HTTP/1.0 client.
    let mut client = Client::connect_and_send(&server, "GET /fast HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    stop(server);
}

#[test]
fn late_early_hints_are_not_sent_to_the_next_request() {
    let server = start(async |request: Request| match request.path() {
        "/late" => {
            let mut is_over = false;
            Response::from_body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                if std::mem::replace(&mut is_over, true) {
                    request.early_hints(["</late>"]);
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Bytes::from_static(b"body")))
            })))
        }
        _ => Response::text("ok"),
    });
    let mut client = Client::connect(&server);
    client.get("/late");
    assert_eq!(client.response().text(), "body");
    client.get("/next");
    assert_eq!((client.response().status, client.received()), (200, &b""[..]));
    stop(server);
}

/// The application keeps a request beyond its response, in which it could send interim responses
/// for the next request of the connection.
#[test]
fn kept_request_sends_no_early_hints_for_the_next_one() {
    let kept = Arc::new(Mutex::new(None));
    let server = start(move |request: Request| {
        let kept = kept.clone();
        async move {
            if request.path() == "/keep" {
                *kept.lock().unwrap() = Some(request);
                return Response::text("kept");
            }
            if let Some(earlier) = kept.lock().unwrap().take() {
                earlier.early_hints(["</earlier>"]);
                earlier.interim(Response::new(StatusCode::PROCESSING));
            }
            // Interim responses are sent when the call is pending.
            tokio::task::yield_now().await;
            Response::text("ok")
        }
    });
    let mut client = Client::connect(&server);
    client.get("/keep");
    assert_eq!(client.response().text(), "kept");
    client.get("/next");
    assert_eq!((client.response().status, client.received()), (200, &b""[..]));
    stop(server);
}
