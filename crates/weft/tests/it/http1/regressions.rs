//! The PROXY protocol, and former defects.

use super::*;

// -- the PROXY protocol

#[test]
fn proxy_protocol_sets_the_peer_address() {
    let settings = Settings {
        proxy_protocol: vec!["127.0.0.0/8".parse().unwrap()],
        max_connections_per_peer: 1,
        ..short_timeouts()
    };
    let server = start_with(settings, async |request: Request| {
        Response::text(request.peer().address().map_or("?".to_owned(), |peer| peer.to_string()))
    });
    let preface = "PROXY TCP4 192.0.2.7 192.0.2.8 1234 80\r\n";
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut whole = Client::connect_and_send(&server, format!("{preface}{get}{get}"));
    assert_eq!(whole.response().text(), "192.0.2.7:1234");
    assert_eq!(whole.response().text(), "192.0.2.7:1234");

    let mut pieces = Client::connect(&server);
    pieces.socket().set_nodelay(true).unwrap();
    for byte in format!("{preface}{get}").bytes() {
        pieces.send([byte]);
    }
    assert_eq!(pieces.response().text(), "192.0.2.7:1234");

    // A connection without a PROXY header, or without any input, is closed.
    Client::connect_and_send(&server, get).assert_closed();
    Client::connect(&server).assert_closed();
    stop(server);

    let server = start(echo);
    assert_eq!(Client::connect_and_send(&server, format!("{preface}{get}")).response().status, 400);
    stop(server);
}

// -- regressions

#[test]
fn closes_client_that_pipelines_without_reading() {
    const CONTENT_LENGTH: usize = 5_000;
    // The buffers of both sockets, and the output of the server.
    const MAX_BUFFERED_BYTES: usize = 16 << 20;
    // The application is pending once per request, so that the connection task runs in between:
    // timeouts and memory bounds must apply there, too.
    for (method, response_bytes) in [("GET", CONTENT_LENGTH), ("HEAD", 100)] {
        let calls = Arc::<AtomicUsize>::default();
        let app_calls = calls.clone();
        let server = start_with(short_timeouts(), move |_: Request| {
            app_calls.fetch_add(1, SeqCst);
            async {
                tokio::task::yield_now().await;
                Response::text("x".repeat(CONTENT_LENGTH))
            }
        });
        let started = Instant::now();
        let client = Client::connect(&server);
        client.socket().set_nonblocking(true).unwrap();
        let requests = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n").repeat(500);
        until("the connection is closed", || match client.socket().write(requests.as_bytes()) {
            Ok(_) => false,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        });
        assert!(started.elapsed() >= SHORT_TIMEOUT / 2, "closed before the timeout");
        let output = calls.load(SeqCst) * response_bytes;
        assert!(output <= MAX_BUFFERED_BYTES, "{method}: {output} bytes without a reader");
        stop(server);
    }
}

#[test]
fn closes_connection_when_100_continue_is_abandoned() {
    let server = start(async |mut request: Request| {
        std::future::poll_fn(|cx| {
            let _ = request.body().poll_chunk(cx);
            Poll::Ready(())
        })
        .await;
        Response::text("never mind")
    });
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\nExpect: 100-continue\r\n\r\n";
    let mut client = Client::connect_and_send(&server, head);
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    client.assert_closed();
    stop(server);
}

#[test]
fn closes_connection_despite_a_retained_body() {
    let retained: Arc<Mutex<Vec<Body>>> = Arc::default();
    let app_retained = retained.clone();
    let server = start(move |request: Request| {
        app_retained.lock().unwrap().push(request.into_body());
        async { Response::text("bye") }
    });
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
    let mut client = Client::connect_and_send(&server, head);
    assert_eq!(client.response().text(), "bye");
    client.assert_closed();
    let mut body = retained.lock().unwrap().pop().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = runtime.block_on(body.chunk());
    assert!(matches!(
        read.unwrap_err().kind(),
        ErrorKind::Disconnected | ErrorKind::BodyIncomplete
    ));
    stop(server);
}

#[test]
fn application_body_limit_applies_to_buffered_and_later_data() {
    let server = start(async |mut request: Request| {
        request.body().set_limit(10);
        Ok::<_, Error>(Response::from_body(request.into_body().collect(1000).await?))
    });
    for (length, status) in [(10, 200), (11, 413)] {
        let mut whole = Client::connect_and_send(&server, post(length) + &"x".repeat(length));
        let mut later = Client::connect_and_send(&server, post(length));
        assert_eq!(whole.response().status, status);
        if status == 200 {
            later.send("x".repeat(length));
        }
        assert_eq!(later.response().status, status);
    }
    stop(server);
}

#[test]
fn completes_response_while_client_is_uploading() {
    // The application stops reading while the response is being sent.
    let server = start(async |request: Request| {
        let mut body = Some(request.into_body());
        let mut remaining = 100;
        let stream = Chunks(move |cx: &mut Context<'_>| {
            if let Some(reading) = &mut body {
                if reading.poll_chunk(cx).is_pending() {
                    return Poll::Pending;
                }
                body = None;
            }
            remaining -= 1;
            Poll::Ready((remaining > 0).then(|| Bytes::from_static(&[b'y'; 1000])))
        });
        Response::from_body(Body::stream(stream))
    });
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\nConnection: close\r\n\r\n";
    let mut client = Client::connect_and_send(&server, head);
    let mut socket = client.socket().try_clone().unwrap();
    // Fails when the server closes the connection.
    let sending = std::thread::spawn(move || drop(socket.write_all(&[b'x'; 3_000_000])));
    assert_eq!(client.response().body.len(), 99_000);
    sending.join().unwrap();
    stop(server);
}

#[test]
fn shutdown_does_not_wait_for_blocking_tasks() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let server = start(move |_: Request| {
        let (released, count) = (released.clone(), count.clone());
        async move {
            let wait = move || {
                count.fetch_add(1, SeqCst);
                let _ = released.lock().unwrap().recv();
            };
            tokio::task::spawn_blocking(wait).await.unwrap();
            Response::text("at last")
        }
    });
    let mut client = Client::connect(&server);
    client.get("/");
    until("the call starts", || started.load(SeqCst) == 1);
    server.shutdown(Duration::from_millis(50));
    client.assert_closed();
    drop(release);
}

#[test]
fn application_can_close_the_connection() {
    let server =
        start(async |_: Request| Response::text("bye").with_header(header::CONNECTION, "close"));
    let mut client = Client::connect(&server);
    client.get("/");
    assert_eq!(client.response().header("connection"), Some("close"));
    client.half_close();
    client.assert_closed();
    stop(server);
}

#[test]
fn truncated_http10_response_ends_in_a_reset() {
    // For an HTTP/1.0 client the end of the connection ends the response, so a truncated response
    // must end in a reset.
    let server = start(async |request: Request| {
        let mut body = Some(request.into_body());
        let mut parts = vec!["first"].into_iter();
        let stream = Chunks(move |_: &mut Context<'_>| match parts.next() {
            Some(part) => Poll::Ready(Some(Bytes::from(part))),
            None if body.is_some() => {
                // The body is still held when the stream fails.
                std::mem::forget(body.take());
                panic!("on purpose")
            }
            None => Poll::Ready(None),
        });
        // Large enough to be sent before the failure.
        let head = Chunks({
            let mut whole = Some(Bytes::from(vec![b'x'; 40_000]));
            move |_: &mut Context<'_>| Poll::Ready(whole.take())
        });
        Response::from_body(Body::stream(Chain(head, stream)))
    });
    for request in ["GET / HTTP/1.0\r\n\r\n", "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\n"] {
        let client = Client::connect_and_send(&server, request);
        let mut buffer = [0; 65536];
        let end = loop {
            match client.socket().read(&mut buffer) {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!(end, Some(std::io::ErrorKind::ConnectionReset), "{request}");
    }
    stop(server);
}

/// A stream followed by another.
struct Chain<A, B>(A, B);

impl<A, B> futures_core::Stream for Chain<A, B>
where
    A: futures_core::Stream<Item = Result<Bytes, Error>> + Unpin,
    B: futures_core::Stream<Item = Result<Bytes, Error>> + Unpin,
{
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match Pin::new(&mut self.0).poll_next(cx) {
            Poll::Ready(None) => Pin::new(&mut self.1).poll_next(cx),
            other => other,
        }
    }
}
