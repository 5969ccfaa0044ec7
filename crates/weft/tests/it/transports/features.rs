//! Middleware, tower services, WebSockets and other protocols.

use super::*;

// -- middleware

#[test]
fn runs_a_middleware_chain() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/panic" => panic!("on purpose"),
            "/slow" => pending().await,
            "/text" => Response::text("This is a line of a long text.\n".repeat(200)),
            "/stream" => Response::text(pieces(["ab", "cde"])),
            _ => Response::text("ok"),
        }
    }
    on_every_transport(async |transport| {
        let lines = EventLog::default();
        let sink = lines.clone();
        let log =
            Log::new(move |line| sink.push(format!("{line}\n"))).pattern("%r %s %B %X").unwrap();
        let catch = CatchPanic::new().page(|head, _| {
            Response::text(format!("{} failed", head.path()))
                .with_status(500u16.try_into().unwrap())
        });
        let app = weft::stack(app)
            .with(log)
            .with(catch)
            .with(Compress::new())
            .with(Timeout::new(Duration::from_millis(100)));
        let server = transport.serve(app);
        let mut client = server.client().await;
        let version = transport.version();
        for (target, status, text, line) in [
            ("/a?b", 200, "ok", "200 2 +"),
            ("/panic", 500, "/panic failed", "500 13 +"),
            ("/slow", 503, "503 Service Unavailable\n", "503 24 +"),
            ("/stream", 200, "abcde", "200 5 +"),
        ] {
            let response = client.get(target).await;
            assert_eq!((response.status, response.text()), (status, text), "{target}");
            lines.wait_for(&format!("GET {target} {version:?} {line}\n")).await;
        }
        let response =
            client.fetch(ClientRequest::get("/text").field("accept-encoding", "gzip")).await;
        assert_eq!(response.field("content-encoding"), Some("gzip"));
        assert_eq!(decoded_so_far("gzip", &response.body).len(), 31 * 200);
        lines.wait_for(&format!("GET /text {version:?} 200 {} +\n", response.body.len())).await;
        // All requests used one connection.
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn logs_client_disconnect_as_499() {
    on_every_transport(async |transport| {
        let (lines, started) = (EventLog::default(), Arc::new(AtomicUsize::new(0)));
        let (sink, count) = (lines.clone(), started.clone());
        let log = Log::new(move |line| sink.push(format!("{line}\n"))).pattern("%r %s %X").unwrap();
        let app = move |_: Request| {
            count.fetch_add(1, SeqCst);
            pending::<Response>()
        };
        let disconnect = Disconnect::CancelAtEof;
        let settings = Settings { disconnect, ..Settings::default() };
        let server = transport.serve_with(settings, app.wrap(log));
        for (number, abort) in ABORTS.into_iter().enumerate() {
            let mut client = server.client().await;
            let response_future = client.send(ClientRequest::get("/")).await;
            wait_until("the call starts", || started.load(SeqCst) == number + 1).await;
            let _client = abort.apply(client, response_future);
            let line = format!("GET / {:?} 499 X\n", transport.version());
            wait_until(&line, || lines.count(&line) == number + 1).await;
        }
        server.stop().await;
    });
}

#[test]
fn rate_limit_applies_per_client_address() {
    on_every_transport(async |transport| {
        let limit = RateLimit::new(1, Duration::from_secs(3600)).burst(2);
        let server = transport.serve(echo.wrap(limit));
        let mut client = server.client().await;
        for status in [200, 200, 429, 429] {
            let response = client.get("/").await;
            assert_eq!(response.status, status);
            assert_eq!(response.field("retry-after").is_some(), status == 429);
        }
        // Another connection from the same address shares the limit.
        assert_eq!(server.client().await.get("/").await.status, 429);
        server.stop().await;
    });
}

#[test]
fn sends_events_immediately_with_and_without_compression() {
    on_every_transport(async |transport| {
        let senders: Arc<Mutex<Vec<sse::Sender>>> = Arc::default();
        let app_senders = senders.clone();
        let app = move |request: Request| {
            let (sender, response) = sse::channel(&request);
            app_senders.lock().unwrap().push(sender);
            async { response }
        };
        let server = transport.serve(app.wrap(Compress::new()));
        let mut client = server.client().await;
        for coding in ["identity"].into_iter().chain(CODINGS) {
            let request = ClientRequest::get("/").field("accept-encoding", coding);
            let mut response = client.send(request).await.read_head().await.unwrap();
            assert_eq!(response.head().field("content-type"), Some("text/event-stream"));
            let sender = senders.lock().unwrap().pop().unwrap();
            let mut expected = String::new();
            for number in 1..=3 {
                sender.send(Event::data(number.to_string())).await.unwrap();
                expected += &format!("data: {number}\n\n");
                loop {
                    assert!(response.next().await.unwrap(), "{coding}: the stream ended");
                    let body = &response.head().body;
                    let text = match coding {
                        "identity" => String::from_utf8(body.clone()).unwrap(),
                        _ => decoded_so_far(coding, body),
                    };
                    assert!(expected.starts_with(&text), "{coding}: {text}");
                    if text == expected {
                        break;
                    }
                }
            }
            drop(sender);
            let response = response.collect().await;
            assert_eq!(
                response.field("content-encoding"),
                Some(coding).filter(|c| *c != "identity")
            );
        }
        // `Sender::closed` completes when the client disconnects.
        for abort in ABORTS {
            let mut client = server.client().await;
            let response = client.send(ClientRequest::get("/")).await.read_head().await.unwrap();
            let sender = senders.lock().unwrap().pop().unwrap();
            let _client = abort.apply(client, response);
            tokio::time::timeout(TEST_TIMEOUT, sender.closed())
                .await
                .expect("the sender is closed");
        }
        server.stop().await;
    });
}

// -- tower

#[test]
fn serves_axum_router() {
    use axum::Router;
    use axum::extract::{ConnectInfo, Path, Query};
    use axum::routing::{get, post};
    use std::collections::HashMap;
    use std::net::SocketAddr;

    async fn stream() -> axum::body::Body {
        let pieces = ["ab", "", "cde"].map(|piece| Ok::<_, Error>(Bytes::from(piece)));
        axum::body::Body::from_stream(stream::iter(pieces))
    }
    let router = Router::new()
        .route("/", get("ok"))
        .route("/name/{name}", get(async |Path(name): Path<String>| name))
        .route(
            "/query",
            get(async |Query(query): Query<HashMap<String, String>>| query["a"].clone()),
        )
        .route("/json", post(async |body: axum::Json<serde_json::Value>| body))
        .route("/bytes", post(async |body: Bytes| body))
        .route("/echo", post(async |body: axum::body::Body| body))
        .route("/stream", get(stream))
        .route("/large", get(async || pattern(1_000_000)))
        .route("/version", get(async |version: weft::message::Version| format!("{version:?}")))
        .route(
            "/peer",
            get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.ip().to_string()),
        )
        .route("/panic", get(async || -> &'static str { panic!("on purpose") }));
    on_every_transport(async |transport| {
        let app = weft::tower::app(router.clone()).connect_info(ConnectInfo);
        let server = transport.serve(app);
        let mut client = server.client().await;
        let version = format!("{:?}", transport.version());
        for (target, status, text) in [
            ("/", 200, "ok"),
            ("/name/d%C3%ADas", 200, "días"),
            ("/query?a=b%20c", 200, "b c"),
            ("/stream", 200, "abcde"),
            ("/version", 200, &*version),
            ("/peer", 200, "127.0.0.1"),
            ("/none", 404, ""),
            ("/json", 405, ""),
        ] {
            let response = client.get(target).await;
            assert_eq!((response.status, response.text()), (status, text), "{target}");
        }
        assert!(client.get("/large").await.body == pattern(1_000_000));
        let json = ClientRequest::post("/json")
            .field("content-type", "application/json")
            .body("{\"a\":1}");
        assert_eq!(client.fetch(json).await.text(), "{\"a\":1}");
        for target in ["/bytes", "/echo"] {
            let response = client.fetch(ClientRequest::post(target).body(pattern(1_000_000))).await;
            assert!(
                response.body == pattern(1_000_000),
                "{target}: received {}",
                response.body.len()
            );
        }
        // Both directions concurrently, followed by trailers.
        let (request, upload) = ClientRequest::post("/echo").field("trailer", "x-sum").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("abc").await);
        let mut response = response_future.read_head().await.unwrap();
        response.read(3).await;
        upload.trailers("x-sum", "17").await;
        drop(upload);
        let response = response.collect().await;
        assert_eq!((response.text(), response.trailer("x-sum")), ("abc", Some("17")));
        assert_eq!(client.get_reconnecting("/panic").await.status, 500);
        assert_eq!(client.get_reconnecting("/").await.text(), "ok");
        server.stop().await;
    });
}

// -- WebSockets

#[cfg(feature = "websocket")]
#[test]
fn websocket_runs_concurrently_with_requests() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    on_every_transport(async |transport| {
        let ends = EventLog::default();
        let app_ends = ends.clone();
        let server = transport.serve(move |request: Request| {
            let ends = app_ends.clone();
            async move {
                match request.path() {
                    "/chat" => weft::websocket::accept(&request, async move |mut socket| {
                        let end = loop {
                            match socket.receive().await {
                                Ok(Some(message)) => {
                                    if let Err(error) = socket.send(message).await {
                                        break Err(error.kind());
                                    }
                                }
                                Ok(None) => break Ok(()),
                                Err(error) => break Err(error.kind()),
                            }
                        };
                        ends.push(format!("{end:?}"));
                    }),
                    _ => Response::text("ok"),
                }
            }
        });
        for (close_by, end) in
            [("close", "Ok(())"), ("disconnect", "Err(Disconnected)"), ("stop", "Ok(())")]
        {
            let before = ends.count(end);
            let mut client = server.client().await;
            // Over HTTP/2 this ensures that SETTINGS_ENABLE_CONNECT_PROTOCOL was received.
            assert_eq!(client.get("/").await.text(), "ok");
            let mut other = client.concurrent_client().await;
            let request = ClientRequest::get("/chat").field("sec-websocket-version", "13");
            let io = client.upgrade(request, "websocket").await.expect("a WebSocket");
            let mut socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
            let messages = [
                Message::text("días"),
                Message::binary(pattern(500_000)),
                Message::text(""),
                Message::binary(pattern(70_000)),
            ];
            for message in messages {
                socket.send(message.clone()).await.unwrap();
                let echoed = tokio::time::timeout(TEST_TIMEOUT, socket.next()).await.unwrap();
                assert!(
                    echoed.unwrap().unwrap() == message,
                    "{close_by}: received another message"
                );
                assert_eq!(other.get("/").await.text(), "ok", "{close_by}");
            }
            match close_by {
                "close" => {
                    socket.close(None).await.unwrap();
                    while let Some(Ok(_)) = socket.next().await {}
                }
                "disconnect" => client.abort(),
                _ => {
                    let stopping = server.shutdown(TEST_TIMEOUT);
                    let message = tokio::time::timeout(TEST_TIMEOUT, socket.next()).await.unwrap();
                    let message = message.unwrap().unwrap();
                    let Message::Close(Some(frame)) = message else { panic!("{message:?}") };
                    assert_eq!(u16::from(frame.code), 1001);
                    while let Some(Ok(_)) = socket.next().await {}
                    wait_until(&format!("{close_by}: {end}"), || ends.count(end) > before).await;
                    stopping.await.unwrap();
                    return;
                }
            }
            drop(socket);
            wait_until(&format!("{close_by}: {end}"), || ends.count(end) > before).await;
        }
    });
}

// -- other protocols

/// Upgrades and tunnels to a handler that echoes its input in upper case, until a full stop.
async fn shout(request: Request) -> Response {
    async fn shout(mut connection: weft::message::Upgraded) {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = connection.read(&mut buffer).await {
            let written = connection.write_all(&buffer[..length].to_ascii_uppercase()).await;
            if written.is_err()
                || connection.flush().await.is_err()
                || buffer[..length].contains(&b'.')
            {
                break;
            }
        }
    }
    match *request.method() {
        Method::CONNECT => Response::tunnel(shout),
        _ if request.path() == "/shout" => Response::upgrade("shout", shout),
        _ => Response::text("ok"),
    }
}

#[test]
fn switches_protocols_by_upgrade_and_connect() {
    on_every_transport(async |transport| {
        let server = transport.serve(shout);
        for is_tunnel in [false, true] {
            // The client ends the stream, or the handler does after a full stop.
            for sends_stop in [false, true] {
                let case = format!("tunnel: {is_tunnel}, stop: {sends_stop}");
                let mut client = server.client().await;
                assert_eq!(client.get("/").await.text(), "ok");
                let mut other = client.concurrent_client().await;
                let mut io = match is_tunnel {
                    true => client.tunnel().await,
                    false => client.upgrade(ClientRequest::get("/shout"), "shout").await,
                }
                .unwrap_or_else(|status| panic!("{case}: {status}"));
                for text in ["hello", "días"] {
                    io.write_all(text.as_bytes()).await.unwrap();
                    io.flush().await.unwrap();
                    let mut echoed = vec![0; text.len()];
                    io.read_exact(&mut echoed).await.unwrap();
                    assert_eq!(echoed, text.as_bytes().to_ascii_uppercase(), "{case}");
                    assert_eq!(other.get("/").await.text(), "ok", "{case}");
                }
                let last = vec![b'x'; 300_000];
                let (mut read, mut write) = tokio::io::split(io);
                let sending = tokio::spawn(async move {
                    write.write_all(&last).await.unwrap();
                    if sends_stop {
                        write.write_all(b".").await.unwrap();
                        write.flush().await.unwrap();
                    } else {
                        write.shutdown().await.unwrap();
                    }
                    write
                });
                let mut received = Vec::new();
                let read =
                    tokio::time::timeout(TEST_TIMEOUT, read.read_to_end(&mut received)).await;
                let length = 300_000 + usize::from(sends_stop);
                assert_eq!(received.len(), length, "{case}: the last bytes are lost: {read:?}");
                assert!(
                    read.is_ok_and(|read| read.is_ok()),
                    "{case}: the stream does not end cleanly"
                );
                sending.await.unwrap();
                assert_eq!(other.get("/").await.text(), "ok", "{case}");
            }
        }
        // The client requested another protocol than the application upgrades to.
        let mut client = server.client().await;
        client.get("/").await;
        assert_eq!(client.upgrade(ClientRequest::get("/shout"), "whisper").await.err(), Some(500));
        server.stop().await;
    });
}

#[test]
fn upgrade_handler_completes_after_disconnect() {
    on_every_transport(async |transport| {
        let (events, release) = (EventLog::default(), Arc::new(Notify::new()));
        let (app_events, released) = (events.clone(), release.clone());
        let server = transport.serve(move |request: Request| {
            let (app_events, released) = (app_events.clone(), released.clone());
            async move {
                if request.path() == "/" {
                    return Response::text("ok");
                }
                Response::upgrade("wait", async move |mut connection| {
                    app_events.push("started");
                    let mut buffer = [0; 10];
                    while let Ok(1..) = connection.read(&mut buffer).await {}
                    app_events.push("disconnected");
                    released.notified().await;
                    app_events.push("completed");
                })
            }
        });
        for (number, abort) in ABORTS.into_iter().enumerate() {
            let mut client = server.client().await;
            client.get("/").await;
            let io = client.upgrade(ClientRequest::get("/wait"), "wait").await.unwrap();
            wait_until("the handler starts", || events.count("started") == number + 1).await;
            let _client = abort.apply(client, io);
            wait_until("the handler sees the disconnect", || {
                events.count("disconnected") == number + 1
            })
            .await;
            assert_eq!(server.client().await.get("/").await.text(), "ok");
            release.notify_one();
            wait_until("the handler completes", || events.count("completed") == number + 1).await;
        }
        server.stop().await;
    });
}
