//! Applications that fail, and clients that disconnect.

use super::*;

// -- failures

#[test]
fn failure_ends_one_stream_and_is_reported() {
    let (server, events) = start_with_event_log(Settings::default(), async |request: Request| {
        let sized = |body: Body| {
            Response::from_body(body)
                .with_header(header::CONTENT_LENGTH, request.query().unwrap_or(""))
        };
        match request.path() {
            "/wait" => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Response::text("ok")
            }
            "/panic" => panic!("on purpose"),
            "/late" => Response::from_body(Body::stream(Chunks({
                let mut parts = vec!["first"];
                move |_: &mut Context<'_>| match parts.pop() {
                    Some(part) => Poll::Ready(Some(Ok(Bytes::from_static(part.as_bytes())))),
                    None => panic!("on purpose"),
                }
            }))),
            "/failing" => Response::from_body(parts([Ok("first"), Err(ErrorKind::BodyFailed)])),
            "/bytes" => sized("abc".into()),
            "/stream" => sized(parts([Ok("ab"), Ok("c")])),
            "/upgrade" => Response::upgrade("shout", async |_: Upgraded| {}),
            _ => Response::text("ok"),
        }
    });
    let mut client = RawClient::connect(&server);
    for (path, expected, event) in [
        ("/panic", "500", "Application Panicked"),
        ("/late", "reset INTERNAL_ERROR", "Application Panicked"),
        ("/failing", "reset INTERNAL_ERROR", "Application BodyFailed"),
        ("/bytes?2", "500", "Application LengthMismatch"),
        ("/bytes?4", "500", "Application LengthMismatch"),
        ("/bytes?x", "500", "Application LengthMismatch"),
        ("/bytes?3", "200", "/bytes?3 200 3"),
        ("/stream?3", "200", "/stream?3 200 3"),
        ("/stream?4", "reset INTERNAL_ERROR", "Application LengthMismatch"),
        ("/stream?2", "reset INTERNAL_ERROR", "Application LengthMismatch"),
        ("/stream?x", "500", "Application LengthMismatch"),
        // The client did not request an upgrade.
        ("/upgrade", "500", "Application InvalidResponse"),
    ] {
        events.0.lock().unwrap().clear();
        let concurrent = client.get("/wait");
        let stream = client.get(path);
        client.read_until("the end of the stream", |client| {
            client.peek(stream).is_some_and(StreamResponse::is_finished)
        });
        let text = client.peek(stream).unwrap().text();
        assert!(!text.contains("purpose"), "the response reveals an internal error message");
        assert_eq!(client.outcome(stream), expected, "{path}");
        assert_eq!(client.outcome(concurrent), "200", "{path}");
        until(event, || events.contains(event));
    }
    stop(server);
}

// -- client disconnects

#[test]
fn reset_cancels_one_call_and_disconnect_cancels_all() {
    let alive = CloneCounter::new();
    let app_guard = Arc::new(alive.clone());
    let app = move |request: Request| {
        // The clones of the application share one guard; each call has its own.
        let call_guard = CloneCounter::clone(&app_guard);
        async move {
            let _call_guard = call_guard;
            match request.path() {
                "/stream" => {
                    let stream_guard = _call_guard.clone();
                    Response::from_body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                        let _ = &stream_guard;
                        Poll::Pending
                    })))
                }
                _ => pending().await,
            }
        }
    };
    let server = start(app);
    let idle = alive.count();
    for (path, per_call) in [("/", 1), ("/stream", 1)] {
        let mut client = RawClient::connect(&server);
        let streams: Vec<u32> = (0..5).map(|_| client.get(path)).collect();
        until("the calls start", || alive.count() == idle + 5 * per_call);
        client.send(reset(streams[2], CANCEL));
        until("one call is dropped", || alive.count() == idle + 4 * per_call);
        client.sync();
        assert_eq!(alive.count(), idle + 4 * per_call, "{path}");
        drop(client);
        until("all calls are dropped", || alive.count() == idle);
    }
    stop(server);
}

#[test]
fn detached_call_completes_after_disconnect() {
    let release = Arc::new(Notify::new());
    let (started, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (released, begin, end) = (release.clone(), started.clone(), ended.clone());
    let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
    let server = start_with(settings, move |_: Request| {
        let (released, begin, end) = (released.clone(), begin.clone(), end.clone());
        async move {
            begin.fetch_add(1, SeqCst);
            released.notified().await;
            end.fetch_add(1, SeqCst);
            Response::text("unused")
        }
    });
    // One stream is reset, the other ends with the connection.
    let mut client = RawClient::connect(&server);
    let stream = client.get("/");
    client.send(reset(stream, CANCEL));
    client.sync();
    client.get("/");
    until("both calls start", || started.load(SeqCst) == 2);
    drop(client);
    until("both calls complete", || {
        release.notify_waiters();
        ended.load(SeqCst) == 2
    });
    stop(server);
}

/// A detached call does not need the socket of its connection.
#[test]
fn detached_call_does_not_keep_a_broken_connection_open() {
    let release = Arc::new(Notify::new());
    let ended = Arc::new(AtomicUsize::new(0));
    let (released, end) = (release.clone(), ended.clone());
    let settings = Settings { disconnect: Disconnect::Detach, ..short_timeouts() };
    let server = start_with(settings, move |_: Request| {
        let (released, end) = (released.clone(), end.clone());
        async move {
            released.notified().await;
            end.fetch_add(1, SeqCst);
            Response::text("unused")
        }
    });
    for (name, breaking, goaways) in [
        ("connection error", frame(DATA, 0, 0, b"x"), &["PROTOCOL_ERROR"][..]),
        ("end of the input", vec![], &[]),
    ] {
        let mut client = RawClient::connect(&server);
        client.get("/");
        client.sync();
        match breaking.is_empty() {
            true => client.socket().shutdown(std::net::Shutdown::Write).unwrap(),
            false => client.send(breaking),
        }
        assert_eq!(client.read_goaways(), goaways, "{name}");
        // Both directions are closed: the server answers further input by a reset.
        until("the socket is closed", || client.try_send(b"x").is_err());
    }
    let mut client = RawClient::connect(&server);
    client.get("/");
    client.sync();
    let socket = ServerSocket::of(client.socket());
    reset_on_close(client.socket());
    drop(client);
    until("the socket of a reset connection is closed", || !socket.is_open());
    assert_eq!(ended.load(SeqCst), 0);
    until("all calls complete", || {
        release.notify_waiters();
        ended.load(SeqCst) == 3
    });
    stop(server);
}
