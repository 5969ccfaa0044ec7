//! The end of a connection.

use super::*;

#[test]
fn shutdown_finishes_active_requests_and_closes_idle_connections() {
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            if request.path() == "/slow" {
                released.notified().await;
            }
            Response::from_body(vec![b'x'; 100_000])
        }
    });
    let (mut idle, mut busy) = (RawClient::connect(&server), RawClient::connect(&server));
    idle.assert_open("/");
    busy.assert_open("/");
    let slow = busy.get("/slow");
    busy.sync();
    let stopping = std::thread::spawn(move || server.shutdown(TEST_TIMEOUT));
    let errors = idle.read_goaways();
    assert!(!errors.is_empty() && errors.iter().all(|&e| e == "NO_ERROR"), "{errors:?}");
    assert_eq!(idle.closed, Some(false));
    busy.read_until("a GOAWAY", |client| !client.goaways.is_empty());
    assert!(busy.peek(slow).is_none());
    release.notify_one();
    let response = busy.response(slow);
    assert_eq!((response.status(), response.body.len()), (200, 100_000));
    busy.assert_closed();
    // RFC 9113 §6.8: the last GOAWAY contains the last processed stream.
    assert_eq!(busy.goaways.last(), Some(&(slow, "NO_ERROR")));
    stopping.join().unwrap();
}

#[test]
fn shutdown_ends_despite_unresponsive_clients_and_pending_calls() {
    let alive = CloneCounter::new();
    let app_guard = Arc::new(alive.clone());
    let server = start_with(short_timeouts(), move |request: Request| {
        let call_guard = CloneCounter::clone(&app_guard);
        async move {
            let _call_guard = call_guard;
            match request.path() {
                "/wait" => pending().await,
                _ => Response::text("ok"),
            }
        }
    });
    let idle = alive.count();
    // This client does not acknowledge the PING after the GOAWAY; the server must not depend on it.
    let mut unresponsive = RawClient::connect(&server);
    unresponsive.auto_ack = false;
    unresponsive.assert_open("/");
    let mut waiting = RawClient::connect(&server);
    waiting.get("/wait");
    until("the call starts", || alive.count() > idle);
    let begin = Instant::now();
    server.shutdown(Duration::from_millis(500));
    assert!(begin.elapsed() < TEST_TIMEOUT);
    unresponsive.assert_closed();
    assert!(!unresponsive.goaways.is_empty());
    waiting.assert_closed();
}

#[test]
fn closes_connection_after_max_requests() {
    let server = start_with(Settings { max_requests: 3, ..Settings::default() }, echo);
    let mut client = RawClient::connect(&server);
    client.assert_open("/");
    client.assert_open("/");
    assert_eq!(client.goaways, []);
    client.assert_open("/");
    assert!(client.read_goaways().iter().all(|&error| error == "NO_ERROR"));
    assert_eq!(client.goaways.last(), Some(&(5, "NO_ERROR")));
    stop(server);
}

#[test]
fn closes_connections_after_their_timeouts() {
    let server = start_with(short_timeouts(), echo);
    // Idle after a request.
    let mut client = RawClient::connect(&server);
    client.assert_open("/");
    let errors = client.read_goaways();
    assert!(!errors.is_empty() && errors.iter().all(|&e| e == "NO_ERROR"), "{errors:?}");
    // Before the first request: no input, part of the preface, the preface, with SETTINGS, and with
    // part of a request.
    let settings = [PREFACE, &settings(&[])].concat();
    let half_a_head = [&settings[..], &get(1, "/")[..20]].concat();
    for bytes in [&b""[..], &PREFACE[..3], &PREFACE[..20], PREFACE, &settings, &half_a_head] {
        let mut client = Client::connect_and_send(&server, bytes);
        while client.read() > 0 {}
    }
    // Between requests, with part of the next one.
    let mut client = RawClient::connect(&server);
    client.assert_open("/");
    client.send(&get(3, "/")[..20]);
    client.assert_closed();
    stop(server);
}

#[test]
fn slow_handler_does_not_time_out() {
    let server = start_with(short_timeouts(), async |_: Request| {
        tokio::time::sleep(3 * SHORT_TIMEOUT).await;
        Response::text("at last")
    });
    let mut client = RawClient::connect(&server);
    let stream = client.get("/");
    assert_eq!(client.response(stream).text(), "at last");
    stop(server);
}

#[test]
fn aborts_responses_that_the_client_does_not_read() {
    let alive = CloneCounter::new();
    let app_guard = Arc::new(alive.clone());
    let produced = Arc::new(AtomicUsize::new(0));
    let count = produced.clone();
    let (server, events) = start_with_event_log(short_timeouts(), move |request: Request| {
        let (stream_guard, count) = (CloneCounter::clone(&app_guard), count.clone());
        let is_endless = request.path() == "/endless";
        async move {
            if !is_endless {
                return Response::text("ok");
            }
            Response::from_body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                let _ = &stream_guard;
                count.fetch_add(16_000, SeqCst);
                Poll::Ready(Some(Ok(Bytes::from_static(&[b'x'; 16_000]))))
            })))
        }
    });
    let idle = alive.count();
    // A stream whose window stays at 0 is reset; the connection stays open.
    let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 0)]);
    let stream = client.get("/endless");
    client.read_until("the end of the stream", |client| {
        client.peek(stream).is_some_and(StreamResponse::is_finished)
    });
    assert_eq!(client.outcome(stream), "reset CANCEL");
    assert_eq!(alive.count(), idle);
    until("the hooks report the timeout", || events.contains("Peer TooSlow"));
    drop(client);
    // A connection whose client opens all windows and then does not read is closed.
    produced.store(0, SeqCst);
    let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, i32::MAX as u32)]);
    client.send(window_update(0, i32::MAX as u32 - 65_535));
    client.get("/endless");
    until("the stream starts", || alive.count() > idle);
    until("the stream is dropped", || alive.count() == idle);
    // Bounded by the kernel's socket buffers on both sides.
    let produced = produced.load(SeqCst);
    assert!(produced < 32 << 20, "{produced} bytes were produced");
    client.auto_window_update = false;
    client.assert_closed();
    stop(server);
}

#[test]
fn slow_reading_client_receives_the_full_response() {
    let stall_timeout = 2 * SHORT_TIMEOUT;
    // First case: many responses share the connection, and each waits for longer than the stall
    // timeout. Second case: sending the end of the last response takes longer than the linger
    // timeout.
    for (streams, megabytes, max_requests) in [(32, 1, 0), (1, 16, 1)] {
        let settings = Settings { stall_timeout, max_requests, ..short_timeouts() };
        let body = Bytes::from(vec![b'x'; megabytes << 20]);
        let server = start_with(settings, move |_: Request| {
            let body = body.clone();
            async { Response::from_body(body) }
        });
        // The attempt is repeated if the machine delayed the client.
        until("all responses are read", || {
            let max_window = i32::MAX as u32;
            let mut client =
                RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, max_window)]);
            client.auto_window_update = false;
            client.send(window_update(0, max_window - 65_535));
            let ids: Vec<u32> = (0..streams).map(|_| client.get("/")).collect();
            let (begin, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
            while begin.elapsed() < 4 * stall_timeout && client.read() {
                std::thread::sleep(Duration::from_millis(100));
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            let is_finished = |client: &RawClient, id: &u32| {
                client.peek(*id).is_some_and(StreamResponse::is_finished)
            };
            while !ids.iter().all(|id| is_finished(&client, id)) && client.read() {}
            let is_complete =
                |id: &u32| is_finished(&client, id) && client.body_length(*id) == megabytes << 20;
            let all_complete = ids.iter().all(is_complete);
            assert!(all_complete || longest > SHORT_TIMEOUT, "{streams} streams are incomplete");
            all_complete
        });
        stop(server);
    }
}

#[test]
fn final_response_is_not_truncated_when_the_connection_closes() {
    const LENGTH: usize = 20_000;
    let settings =
        Settings { stall_timeout: 60 * SHORT_TIMEOUT, max_requests: 1, ..short_timeouts() };
    let server = boxed_server(async |_: Request| Response::from_body(vec![b'x'; LENGTH]));
    let server = server.settings(settings);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, stream) = tokio::io::duplex(1_000);
        let client = async move {
            let opening = [PREFACE, &self::settings(&[]), &get(1, "/")].concat();
            client.write_all(&opening).await.unwrap();
            // The complete response is queued, and waits for longer than the linger timeout.
            tokio::time::sleep(3 * SHORT_TIMEOUT).await;
            let (mut received, mut piece) = (0, [0; 1_000]);
            while received < LENGTH {
                let length = client.read(&mut piece).await.unwrap();
                assert!(length > 0, "closed after {received} bytes");
                received += piece[..length].iter().filter(|&&byte| byte == b'x').count();
            }
        };
        let all = async { tokio::join!(server.serve_connection(stream), client) };
        let (served, ()) =
            tokio::time::timeout(TEST_TIMEOUT, all).await.expect("the connection ends in time");
        served.unwrap();
    });
}

#[test]
fn closing_connection_waits_while_the_client_reads() {
    const STREAMS: u32 = 6;
    let settings = Settings {
        stall_timeout: 2 * SHORT_TIMEOUT,
        max_requests: STREAMS.into(),
        ..short_timeouts()
    };
    let server = start_with(settings, async |_: Request| Response::text("x".repeat(1_000)));
    // The attempt is repeated if the machine delayed the client.
    until("all responses are read", || {
        let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 0)]);
        let ids: Vec<u32> = (0..STREAMS).map(|_| client.get("/")).collect();
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        for id in &ids {
            std::thread::sleep(SHORT_TIMEOUT);
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if client.try_send(window_update(*id, 1_000)).is_err() {
                break;
            }
        }
        let is_complete = client.read_all(&ids);
        assert!(
            is_complete || longest > 3 * SHORT_TIMEOUT / 2,
            "closed before the responses were read"
        );
        is_complete
    });
    stop(server);
}

#[test]
fn trickling_body_times_out_and_slow_body_does_not() {
    let server = start_with(short_timeouts(), echo);
    let mut client = RawClient::connect(&server);
    let stream = client.post("/");
    client.data(stream, "some", false);
    client.read_until("the response", |client| {
        client.peek(stream).is_some_and(|response| response.head.is_some())
    });
    assert_eq!(client.response(stream).status(), 408);
    // Single bytes are below the minimum rate, even if they arrive more often than the server's
    // clock ticks.
    let mut client = RawClient::connect(&server);
    let stream = client.post("/");
    let begin = Instant::now();
    while !client.has_input_within(Duration::from_millis(10)) {
        client.data(stream, "x", false);
        assert!(begin.elapsed() < TEST_TIMEOUT, "the server does not time out");
    }
    assert_eq!(client.response(stream).status(), 408);
    // Slow, but above the minimum rate, for longer than the stall timeout. The attempt is repeated
    // if the machine delayed the client.
    until("a slow body is read", || {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        let mut client = RawClient::connect(&server);
        let stream = client.post("/");
        for _ in 0..40 {
            let sent = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            if client.try_send(frame(DATA, 0, stream, &[b'x'; 300])).is_err() {
                break;
            }
            longest = longest.max(sent.elapsed());
        }
        let _ = client.try_send(frame(DATA, END_STREAM, stream, b""));
        let is_complete = client.outcome(stream) == "200";
        assert!(is_complete || longest > SHORT_TIMEOUT / 2, "timed out although data was sent");
        is_complete && begin.elapsed() > SHORT_TIMEOUT
    });
    stop(server);
}
