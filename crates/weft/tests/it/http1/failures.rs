//! Applications and clients that fail.

use super::*;

/// Hooks that record every call.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn push(&self, event: String) {
        self.0.lock().unwrap().push(event);
    }

    fn contains(&self, event: &str) -> bool {
        self.0.lock().unwrap().iter().any(|recorded| recorded == event)
    }
}

impl Hooks for EventLog {
    fn on_open(&self, peer: &Peer) -> bool {
        self.push(format!("opened {}", peer.address().is_some()));
        true
    }

    fn on_close(&self, _: &Peer) {
        self.push("closed".to_owned());
    }

    fn on_error(&self, _: &Peer, error: &Error) {
        self.push(format!("{:?} {:?}", error.kind().fault(), error.kind()));
    }

    fn on_response(&self, record: &Record<'_>) {
        let target = record.head.map_or("-", |head| head.target());
        self.push(format!("{target} {} {}", record.status.as_u16(), record.body_bytes));
    }
}

#[test]
fn panic_closes_one_connection_and_is_reported() {
    let events = EventLog::default();
    let server = boxed_server(async |request: Request| match request.path() {
        "/panic" => panic!("on purpose"),
        "/late" => {
            Response::from_body(Body::stream(Chunks(|_: &mut Context<'_>| panic!("on purpose"))))
        }
        _ => Response::text("ok"),
    });
    let hooks = events.clone();
    let server = server.hooks(move || hooks.clone()).workers(1);
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut other = Client::connect(&server);
    other.assert_open("/");
    for target in ["/panic", "/late"] {
        let mut client = Client::connect(&server);
        client.get(target);
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (500, Some("close")));
        assert!(
            !response.text().contains("purpose"),
            "the response reveals an internal error message"
        );
        client.assert_closed();
        other.assert_open("/");
    }
    Client::connect_and_send(&server, "nonsense\r\n\r\n").response();
    for event in [
        "opened true",
        "closed",
        "Application Panicked",
        "/panic 500 26",
        "/ 200 2",
        "Peer Malformed",
    ] {
        until(event, || events.contains(event));
    }
    assert_eq!(ErrorKind::Panicked.fault(), Fault::Application);
    stop(server);
}

/// Hooks that collect the errors, and the records with their errors.
#[derive(Clone, Default)]
struct ErrorLog(EventLog);

impl Hooks for ErrorLog {
    fn on_error(&self, _: &Peer, error: &Error) {
        self.0.push(error.to_string());
    }

    fn on_response(&self, record: &Record<'_>) {
        let error = record.error.map(Error::to_string).unwrap_or_default();
        self.0.push(format!("{} {}: {error}", record.status.as_u16(), record.is_complete));
    }
}

/// Errors that a handler returns are reported with their sources, each of them once, if the
/// response is 5xx. Failures of the handler's own I/O are not failures of the client.
#[test]
fn errors_of_handlers_are_reported_and_recorded() {
    let io = |kind: std::io::ErrorKind| std::io::Error::from(kind);
    let server = boxed_server(async move |request: Request| -> weft::Result<Response> {
        let wrapped = Error::new(ErrorKind::Io, "cannot read the list")
            .with_source(io(std::io::ErrorKind::NotFound));
        match request.path() {
            "/io" => Err(io(std::io::ErrorKind::ConnectionReset))?,
            "/end" => Err(io(std::io::ErrorKind::UnexpectedEof))?,
            "/chain" => Err(Error::new(ErrorKind::ServiceFailed, "no users").with_source(wrapped)),
            "/adapter" => Err(std::io::Error::other(wrapped))?,
            "/form" => Err(Error::new(ErrorKind::Malformed, "not a number")),
            "/panic" => panic!("on purpose"),
            _ => Ok(Response::text("ok")),
        }
    });
    let log = ErrorLog::default();
    let hooks = log.clone();
    let server = server.hooks(move || hooks.clone()).workers(1);
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    for (target, status, error) in [
        ("/io", 500, "I/O failed: connection reset"),
        ("/end", 500, "I/O failed: unexpected end of file"),
        ("/chain", 500, "no users: cannot read the list: entity not found"),
        ("/adapter", 500, "cannot read the list: entity not found"),
        ("/panic", 500, "the application panicked: on purpose"),
        // An error of the client is not reported.
        ("/form", 400, ""),
        ("/", 200, ""),
    ] {
        let mut client = Client::connect(&server);
        client.get(target);
        let response = client.response();
        assert_eq!(response.status, status, "{target}");
        let reason = response.text().contains("number");
        assert_eq!(reason, target == "/form", "{target}: {}", response.text());
        let recorded = format!("{status} true: {error}");
        until(target, || log.0.contains(&recorded));
        let expected: Vec<_> = match error {
            "" => vec![recorded],
            error => vec![error.to_owned(), recorded],
        };
        assert_eq!(std::mem::take(&mut *log.0.0.lock().unwrap()), expected, "{target}");
    }
    stop(server);
}

#[test]
fn client_disconnect_cancels_the_call() {
    let alive = CloneCounter::new();
    let server = start(waiting_app(&alive));
    let idle = alive.count();
    let mut client = Client::connect(&server);
    client.get("/wait");
    until("the call starts", || alive.count() > idle);
    // A pipelined request does not cancel the call.
    client.get("/");
    client.leave();
    until("the call is dropped", || alive.count() == idle);
    stop(server);
}

/// RFC 9112 §9.6: a client that has shut down its sending direction may wait for the response.
/// Each row: if it gets one.
#[test]
fn half_closed_client_gets_its_response() {
    for (disconnect, expected) in
        [(Disconnect::Cancel, true), (Disconnect::Detach, true), (Disconnect::CancelAtEof, false)]
    {
        let (alive, release) = (CloneCounter::new(), Arc::new(tokio::sync::Notify::new()));
        let (guard, released) = (alive.clone(), release.clone());
        let settings = Settings { disconnect, ..Settings::default() };
        let server = start_with(settings, move |_: Request| {
            let (guard, released) = (guard.clone(), released.clone());
            async move {
                released.notified().await;
                drop(guard);
                Response::text("still here")
            }
        });
        let idle = alive.count();
        let mut client = Client::connect(&server);
        client.get("/");
        until("the call starts", || alive.count() > idle);
        client.half_close();
        match expected {
            true => {
                // Time for the server to read the end of the input.
                std::thread::sleep(Duration::from_millis(50));
                release.notify_one();
                assert_eq!(client.response().text(), "still here", "{disconnect:?}");
            }
            false => until("the call is dropped", || alive.count() == idle),
        }
        client.assert_closed();
        // Behind the end of the input, a reset is found, too.
        if disconnect == Disconnect::Cancel {
            let mut client = Client::connect(&server);
            client.get("/");
            until("the call starts", || alive.count() > idle);
            client.half_close();
            std::thread::sleep(Duration::from_millis(50));
            client.leave();
            until("the call is dropped", || alive.count() == idle);
        }
        stop(server);
    }
}

/// A detached call does not need the socket of its connection.
#[test]
fn detached_call_does_not_keep_a_broken_connection_open() {
    let release = Arc::new(tokio::sync::Notify::new());
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
    // Also with a request that waits behind it.
    for (number, requests) in [1, 2].into_iter().enumerate() {
        let mut client = Client::connect(&server);
        (0..requests).for_each(|_| client.get("/"));
        until("the call starts", || started.load(SeqCst) == number + 1);
        let socket = common::ServerSocket::of(client.socket());
        common::reset_on_close(client.socket());
        drop(client);
        until("the socket is closed", || !socket.is_open());
    }
    assert_eq!(ended.load(SeqCst), 0);
    until("both calls complete", || {
        release.notify_waiters();
        ended.load(SeqCst) == 2
    });
    assert_eq!(started.load(SeqCst), 2);
    stop(server);
}

#[test]
fn client_disconnect_drops_the_response_stream() {
    let alive = CloneCounter::new();
    let app_guard = alive.clone();
    let server = start(move |_: Request| {
        let stream_guard = app_guard.clone();
        async move {
            let mut parts = Some(Bytes::from_static(b"first"));
            let stream = Chunks(move |_: &mut Context<'_>| {
                let _ = &stream_guard;
                parts.take().map_or(Poll::Pending, |part| Poll::Ready(Some(part)))
            });
            Response::from_body(Body::stream(stream))
        }
    });
    let idle = alive.count();
    let mut client = Client::connect(&server);
    client.get("/");
    until("the stream starts", || client.read() > 0 && client.received().ends_with(b"first\r\n"));
    assert!(alive.count() > idle);
    client.leave();
    until("the stream is dropped", || alive.count() == idle);
    stop(server);
}
