//! Many requests, and the hooks that see them.

use super::*;

#[test]
fn slow_request_does_not_block_others() {
    on_every_transport(async |transport| {
        let release = Arc::new(Notify::new());
        let released = release.clone();
        let server = transport.serve(move |request: Request| {
            let released = released.clone();
            async move {
                if request.path() == "/slow" {
                    released.notified().await;
                }
                Response::text(request.path().to_owned())
            }
        });
        let mut client = server.client().await;
        let mut other = client.concurrent_client().await;
        let slow = client.send(ClientRequest::get("/slow")).await;
        for number in 0..50 {
            assert_eq!(other.get(&format!("/{number}")).await.text(), format!("/{number}"));
        }
        release.notify_one();
        assert_eq!(slow.collect().await.text(), "/slow");
        assert_eq!(client.get("/last").await.text(), "/last");
        server.stop().await;
    });
}

#[test]
fn stalled_bodies_do_not_block_others() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/unread" => {
                let _body = request.into_body();
                pending().await
            }
            "/endless" => {
                Response::from_body(Body::from_http_body(Frames(|_: &mut Context<'_>| {
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 10_000])))))
                })))
            }
            _ => Response::from_body(request.into_body()),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        let mut stalled = Vec::new();
        for _ in 0..2 {
            // Uploads not read by the application.
            let (request, upload) = ClientRequest::post("/unread").upload();
            let mut uploader = client.concurrent_client().await;
            let response_future = uploader.send(request).await;
            let sending = tokio::spawn(async move { while upload.send(vec![0; 50_000]).await {} });
            // Downloads not read by the client.
            let mut downloader = client.concurrent_client().await;
            let response =
                downloader.send(ClientRequest::get("/endless")).await.read_head().await.unwrap();
            stalled.push((uploader, response_future, sending, downloader, response));
        }
        for size in [0, 10, 1_000_000, 3_000_000] {
            let response = client.fetch(ClientRequest::post("/").body(pattern(size))).await;
            assert!(response.body == pattern(size), "{size}: received {}", response.body.len());
        }
        stalled.iter().for_each(|(_, _, sending, _, _)| sending.abort());
        drop(stalled);
        server.stop().await;
    });
}

#[test]
fn head_request_drops_the_response_stream() {
    on_every_transport(async |transport| {
        let alive = CloneCounter::new();
        let app_guard = alive.clone();
        let server = transport.serve(move |request: Request| {
            let stream_guard = app_guard.clone();
            async move {
                if request.path() == "/" {
                    return Response::text("ok");
                }
                Response::from_body(Body::from_http_body(Frames(move |_: &mut Context<'_>| {
                    let _ = &stream_guard;
                    Poll::Pending
                })))
            }
        });
        let idle = alive.count();
        let mut client = server.client().await;
        for _ in 0..3 {
            let response = client.fetch(ClientRequest::new("HEAD", "/stream")).await;
            assert_eq!((response.status, response.body.len()), (200, 0));
            wait_until("the stream is dropped", || alive.count() == idle).await;
        }
        assert_eq!(client.get("/").await.text(), "ok");
        server.stop().await;
    });
}

/// Hooks that handle errors only.
struct NoRecords(EventLog);

impl Hooks for NoRecords {
    fn on_error(&self, peer: &Peer, error: &Error) {
        self.0.on_error(peer, error);
    }

    fn needs_records(&self) -> bool {
        false
    }

    fn on_response(&self, record: &Record<'_>) {
        self.0.on_response(record);
    }
}

#[test]
fn hooks_without_records_receive_none() {
    on_every_transport(async |transport| {
        let (_sender, app) = scripted_body_app();
        let events = EventLog::default();
        let hooks = events.clone();
        let server = boxed_server(app).workers(1).hooks(move || NoRecords(hooks.clone()));
        let server = transport.start(server);
        assert_eq!(server.client().await.get("/panic").await.status, 500);
        assert_eq!(server.client().await.get("/bytes?x").await.status, 500);
        server.stop().await;
        assert_eq!(events.all(), ["Application Panicked", "Application LengthMismatch"]);
    });
}

#[test]
fn serves_a_thousand_requests_on_one_connection() {
    on_every_transport(async |transport| {
        let (server, events) =
            serve_with_event_log(transport, Settings::default(), async |request: Request| {
                Response::text(request.query().unwrap_or_default().to_owned())
            });
        let mut client = server.client().await;
        for number in 0..1_000 {
            let response = client.get(&format!("/?{number}")).await;
            assert_eq!(response.text(), number.to_string());
        }
        assert_eq!(events.count("opened true"), 1);
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn serves_a_hundred_concurrent_requests() {
    on_every_transport(async |transport| {
        // No response is sent before all requests were received.
        let barrier = Arc::new(tokio::sync::Barrier::new(100));
        let server = transport.serve(move |request: Request| {
            let barrier = barrier.clone();
            async move {
                barrier.wait().await;
                Response::from_body(request.into_body())
            }
        });
        let client = server.client().await;
        let mut requests = Vec::new();
        for number in 0..100_usize {
            let mut client = client.concurrent_client().await;
            requests.push(tokio::spawn(async move {
                let length = 1_000 * (number % 50);
                let body = pattern(number + length)[number..].to_vec();
                let response = client.fetch(ClientRequest::post("/").body(body.clone())).await;
                assert!(
                    response.body == body,
                    "{number}: received {} of {length}",
                    response.body.len()
                );
            }));
        }
        for request in requests {
            request.await.unwrap();
        }
        server.stop().await;
    });
}

#[test]
fn hooks_see_each_connection_and_response_once() {
    on_every_transport(async |transport| {
        let (server, events) =
            serve_with_event_log(transport, Settings::default(), async |request: Request| {
                match request.path() {
                    "/stream" => Response::from_body(pieces(["ab", "cde"])),
                    "/large" => Response::from_body(pattern(300_000)),
                    "/file" => Response::from_file(File::open(file(b"0123456789")).unwrap()),
                    "/204" => Response::new(StatusCode::NO_CONTENT),
                    _ => Response::not_found(),
                }
            });
        for _ in 0..3 {
            let mut client = server.client().await;
            for target in ["/stream", "/large", "/file", "/204", "/none"] {
                client.get(target).await;
            }
            client.fetch(ClientRequest::new("HEAD", "/large")).await;
        }
        wait_until("all connections are closed", || events.count("closed") == 3).await;
        let mut recorded = events.all();
        recorded.sort();
        let expected = [
            ("/204 204 0", 3),
            ("/file 200 10", 3),
            ("/large 200 0", 3),
            ("/large 200 300000", 3),
            ("/none 404 14", 3),
            ("/stream 200 5", 3),
            ("closed", 3),
            ("opened true", 3),
        ];
        let expected = expected.into_iter().flat_map(|(event, times)| vec![event; times]);
        assert_eq!(recorded, expected.collect::<Vec<_>>());
        server.stop().await;
    });
}

#[test]
fn hooks_can_reject_a_connection() {
    struct RejectAll;
    impl Hooks for RejectAll {
        fn on_open(&self, _: &Peer) -> bool {
            false
        }
    }
    on_every_transport(async |transport| {
        let server = transport.start(boxed_server(echo).workers(1).hooks(|| RejectAll));
        if let Ok(mut client) = Client::try_connect(transport, server.address).await {
            let try_collect = client.send(ClientRequest::get("/")).await.try_collect().await;
            assert_eq!(try_collect.expect_err("the connection is rejected").status, None);
        }
        server.stop().await;
    });
}
