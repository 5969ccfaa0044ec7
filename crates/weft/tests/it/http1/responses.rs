//! Responses.

use super::*;

#[test]
fn frames_responses_by_http_version() {
    let server = start(async |request: Request| {
        let mut parts = ["ab", "", "cde"].into_iter();
        let stream = Chunks(move |_: &mut Context<'_>| {
            Poll::Ready(parts.next().map(|part| Bytes::from_static(part.as_bytes())))
        });
        match request.path() {
            "/stream" => Response::from_body(Body::stream(stream)),
            "/sized" => {
                Response::from_body(Body::stream(stream)).with_header(header::CONTENT_LENGTH, "5")
            }
            "/none" => Response::new(StatusCode::NO_CONTENT),
            _ => Response::text("abcde"),
        }
    });
    for (request, framing, body, open) in [
        ("GET /stream HTTP/1.1", "transfer-encoding: chunked", "abcde", true),
        ("GET /stream HTTP/1.0", "connection: close", "abcde", false),
        ("GET /sized HTTP/1.1", "content-length: 5", "abcde", true),
        ("GET /bytes HTTP/1.0", "content-length: 5", "abcde", false),
        ("HEAD /stream HTTP/1.1", "transfer-encoding: chunked", "", true),
        ("HEAD /bytes HTTP/1.1", "content-length: 5", "", true),
        ("GET /none HTTP/1.1", "date: ", "", true),
    ] {
        let mut client = Client::connect_and_send(&server, format!("{request}\r\nHost: a\r\n\r\n"));
        let head_only = request.starts_with("HEAD");
        let response = if head_only { client.head() } else { client.response() };
        let lines: Vec<String> =
            response.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert!(lines.iter().any(|line| line.starts_with(framing)), "{request}: {lines:?}");
        assert_eq!(response.text(), body, "{request}");
        if open { client.assert_open("/bytes") } else { client.assert_closed() }
    }
    stop(server);
}

#[test]
fn wrong_content_length_never_breaks_framing() {
    let server = start(async |request: Request| {
        let mut parts = ["abc", "def"].into_iter();
        let stream = Chunks(move |_: &mut Context<'_>| {
            Poll::Ready(parts.next().map(|part| Bytes::from_static(part.as_bytes())))
        });
        let response = match request.path() {
            "/bytes" => Response::text("abc"),
            _ => Response::from_body(Body::stream(stream)),
        };
        response.with_header(header::CONTENT_LENGTH, request.query().unwrap_or_default())
    });
    // A response that was not sent yet is replaced.
    for target in ["/bytes?4", "/bytes?2", "/bytes?x", "/stream?x", "/stream?5"] {
        let mut client = Client::connect(&server);
        client.get(target);
        let response = client.response();
        assert_eq!(
            (response.status, response.header("connection")),
            (500, Some("close")),
            "{target}"
        );
        client.assert_closed();
    }
    let mut client = Client::connect(&server);
    client.get("/stream?7");
    // The stream ended too early: a 500 if nothing was sent yet, otherwise a closed connection.
    assert_eq!(client.response().status, 500);
    client.assert_closed();
    stop(server);
}

#[test]
fn http_body_keeps_length_and_trailers() {
    struct Frames(Vec<http_body::Frame<Bytes>>);
    impl http_body::Body for Frames {
        type Data = Bytes;
        type Error = Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Error>>> {
            Poll::Ready(self.0.pop().map(Ok))
        }
    }
    let server = start(async |_: Request| {
        let trailers = [(header::ETAG, weft::header::HeaderValue::from_static("\"x\""))];
        let trailers = http_body::Frame::trailers(trailers.into_iter().collect());
        let data = http_body::Frame::data(Bytes::from_static(b"abc"));
        Response::from_body(Body::from_http_body(Frames(vec![trailers, data])))
    });
    let mut client = Client::connect(&server);
    client.get("/");
    until("the response is received", || {
        client.read() > 0 && client.received().ends_with(b"\r\n\r\n")
    });
    assert!(client.received().ends_with(b"3\r\nabc\r\n0\r\netag: \"x\"\r\n\r\n"));
    assert_eq!(client.response().text(), "abc");
    stop(server);
}

#[test]
fn flushes_stream_when_it_is_pending() {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let server = start(move |_: Request| {
        let mut receiver: tokio::sync::mpsc::UnboundedReceiver<&'static str> =
            receiver.lock().unwrap().take().expect("one request");
        async move {
            let stream = Chunks(move |cx: &mut Context<'_>| {
                receiver.poll_recv(cx).map(|part| part.map(Bytes::from))
            });
            Response::from_body(Body::stream(stream))
        }
    });
    let mut client = Client::connect(&server);
    client.get("/");
    for part in ["first", "second"] {
        sender.send(part).unwrap();
        until("the part is received at once", || {
            client.read();
            client.received().ends_with(format!("{part}\r\n").as_bytes())
        });
    }
    drop(sender);
    assert_eq!(client.response().text(), "firstsecond");
    stop(server);
}

#[test]
fn pipelined_responses_are_in_order_and_not_delayed_by_later_requests() {
    let release = Arc::new(tokio::sync::Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            if request.path() == "/slow" {
                released.notified().await;
            }
            Response::text(request.target().to_owned())
        }
    });
    let mut client = Client::connect(&server);
    let requests = ["/1", "/2", "/slow", "/3"];
    let heads = requests.map(|target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client.send(heads.concat());
    assert_eq!(client.response().text(), "/1");
    assert_eq!(client.response().text(), "/2");
    assert!(client.received().is_empty());
    release.notify_one();
    assert_eq!(client.response().text(), "/slow");
    assert_eq!(client.response().text(), "/3");
    stop(server);
}

#[test]
fn sends_large_and_small_bodies_completely() {
    let server = start(async |request: Request| {
        let length: usize = request.path()[1..].parse().unwrap();
        Response::from_body((0..length).map(|i| i as u8).collect::<Vec<u8>>())
    });
    let lengths = [0, 1, 16_383, 16_384, 16_385, 32_768, 5_000_000, 3, 100_000, 7];
    let mut client = Client::connect(&server);
    for length in lengths {
        client.get(&format!("/{length}"));
    }
    for length in lengths {
        let body = client.response().body;
        assert_eq!(body.len(), length);
        assert!(body.iter().enumerate().all(|(i, &b)| b == i as u8), "{length}");
    }
    stop(server);
}
