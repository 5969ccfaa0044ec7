//! Timeouts and limits.

use super::*;

// -- timeouts

#[test]
fn incomplete_head_gets_408_at_the_head_timeout() {
    let server = start_with(short_timeouts(), echo);
    let mut silent = Client::connect(&server);
    let client = Client::connect_and_send(&server, "GET / HTTP/1.1\r\n");
    client.socket().set_nonblocking(true).unwrap();
    // Each byte is progress, but the deadline is absolute.
    until("the server responds with 408", || {
        std::thread::sleep(Duration::from_millis(20));
        let _ = client.socket().write(b"a");
        let mut one = [0; 12];
        client.socket().read(&mut one).is_ok_and(|n| &one[..n] == b"HTTP/1.1 408")
    });
    // Without a request there is no response.
    silent.assert_closed();
    stop(server);
}

#[test]
fn closes_idle_connection_after_timeout() {
    let server = start_with(short_timeouts(), echo);
    let mut client = Client::connect(&server);
    client.assert_open("/");
    client.assert_closed();
    stop(server);
}

#[test]
fn stalled_body_times_out_and_slow_body_does_not() {
    let server = start_with(short_timeouts(), echo);
    let mut client = Client::connect_and_send(&server, post(100) + "some");
    until("the connection is closed", || client.read() == 0);
    assert!(client.received().ends_with(b"some"), "{}", client.received().escape_ascii());

    // Slow, but above the minimum rate, for longer than the stall timeout. The attempt is repeated
    // if the machine delayed the client.
    until("a slow body is read", || {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        let mut client = Client::connect_and_send(&server, post(4000));
        for _ in 0..40 {
            let sent = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            if client.socket().write_all(&[b'x'; 100]).is_err() {
                break;
            }
            longest = longest.max(sent.elapsed());
        }
        let is_complete = client.read() > 0 && client.received().starts_with(b"HTTP/1.1 200");
        assert!(is_complete || longest > SHORT_TIMEOUT / 2, "timed out although data was sent");
        is_complete && begin.elapsed() > SHORT_TIMEOUT
    });
    stop(server);
}

#[test]
fn slow_handler_does_not_time_out() {
    let server = start_with(short_timeouts(), async |_: Request| {
        tokio::time::sleep(3 * SHORT_TIMEOUT).await;
        Response::text("at last")
    });
    let mut client = Client::connect(&server);
    client.get("/");
    assert_eq!(client.response().text(), "at last");
    stop(server);
}

#[test]
fn slow_reading_client_receives_the_full_response() {
    const LENGTH: usize = 16 << 20;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![b'x'; LENGTH]).unwrap();
    let file = weft::File::open(file).unwrap();
    let settings = Settings { stall_timeout: 2 * SHORT_TIMEOUT, ..short_timeouts() };
    let server = start_with(settings.clone(), move |request: Request| {
        let response = match request.path() {
            "/file" => Response::from_file(file.clone()),
            _ => Response::from_body(vec![b'x'; LENGTH]),
        };
        async { response }
    });
    for target in ["/file", "/bytes"] {
        // Far above the minimum rate, but the kernel does not report the socket as writable for
        // longer than the stall timeout. The attempt is repeated if the machine delayed the client.
        until("the full response is received", || {
            let mut client = Client::connect(&server);
            client.get(target);
            let (begin, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
            let (mut received, mut piece) = (0, [0; 4 << 10]);
            while begin.elapsed() < 4 * settings.stall_timeout {
                std::thread::sleep(Duration::from_millis(20));
                received += client.socket().read(&mut piece).unwrap_or(0);
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            received += std::io::copy(&mut client.socket().take(u64::MAX), &mut std::io::sink())
                .unwrap_or(0) as usize;
            let is_complete = received > LENGTH;
            assert!(
                is_complete || longest > SHORT_TIMEOUT,
                "{target} closed after {received} bytes"
            );
            is_complete
        });
    }
    stop(server);
}

#[test]
fn closes_client_that_does_not_read_with_bounded_memory() {
    let produced = Arc::new(AtomicUsize::new(0));
    let alive = CloneCounter::new();
    let (count, app_guard) = (produced.clone(), alive.clone());
    let server = start_with(short_timeouts(), move |_: Request| {
        let (count, stream_guard) = (count.clone(), app_guard.clone());
        async move {
            let stream = Chunks(move |_: &mut Context<'_>| {
                let _ = &stream_guard;
                count.fetch_add(16_000, SeqCst);
                Poll::Ready(Some(Bytes::from_static(&[b'x'; 16_000])))
            });
            Response::from_body(Body::stream(stream))
        }
    });
    let idle = alive.count();
    let mut client = Client::connect(&server);
    client.get("/");
    until("the stream starts", || alive.count() > idle);
    until("the stream is dropped", || alive.count() == idle);
    let produced = produced.load(SeqCst);
    // Bounded by the kernel's socket buffers on both sides.
    assert!(produced < 32 << 20, "{produced} bytes were produced");
    stop(server);
}

// -- limits

#[test]
fn closes_connection_after_max_requests() {
    let settings = Settings { max_requests: 3, ..Settings::default() };
    let server = start_with(settings, echo);
    let mut client = Client::connect(&server);
    for connection in [None, None, Some("close")] {
        client.get("/");
        assert_eq!(client.response().header("connection"), connection);
    }
    client.assert_closed();
    stop(server);
}

#[test]
fn limits_connections_per_peer() {
    let settings = Settings { max_connections_per_peer: 2, ..Settings::default() };
    let server = start_with(settings, echo);
    let (mut first, mut second) = (Client::connect(&server), Client::connect(&server));
    first.assert_open("/");
    second.assert_open("/");
    let mut third = Client::connect(&server);
    assert_eq!(third.response().status, 503);
    drop(first);
    until("a permit is free", || {
        let mut client = Client::connect(&server);
        client.get("/");
        client.response().status == 200
    });
    stop(server);
}

#[test]
fn rejected_connections_linger() {
    let settings = Settings { max_connections_per_peer: 1, ..Settings::default() };
    let server = start_with(settings, echo);
    let mut first = Client::connect(&server);
    first.assert_open("/");
    let rejected = || {
        let mut client = TcpStream::connect(common::address(&server))?;
        client.set_read_timeout(Some(common::TEST_TIMEOUT))?;
        let mut status = [0; 12];
        client.read_exact(&mut status)?;
        assert_eq!(&status, b"HTTP/1.1 503");
        std::io::Result::Ok(client)
    };
    // The request arrives after the response, and is no reason for a reset.
    let exchange = || {
        let (mut client, mut rest) = (rejected()?, String::new());
        client.read_to_string(&mut rest)?;
        for byte in format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(5_000)).bytes() {
            client.write_all(&[byte])?;
        }
        std::io::Result::Ok(rest)
    };
    // This thread may wait for the CPU for longer than a connection lingers.
    let response = exchange().or_else(|_| exchange()).or_else(|_| exchange());
    let response = response.expect("the connection is not reset");
    assert!(response.ends_with("Too many connections from one client\n"), "{response}");

    // A client may neither send without an end nor keep the connection.
    let mut endless = rejected().unwrap();
    assert!((0..1024).any(|_| endless.write_all(&[b'x'; 64 << 10]).is_err()), "64 MiB");
    let mut silent = rejected().unwrap();
    until("the connection is closed", || silent.write_all(b"x").is_err());
    first.assert_open("/");
    stop(server);
}
