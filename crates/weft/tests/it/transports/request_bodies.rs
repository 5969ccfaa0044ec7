//! Bodies of requests.

use super::*;

#[test]
fn receives_request_bodies_completely() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        let length = format!("{:?}", request.body().length());
        let body = request.into_body().collect(1 << 20).await?;
        Ok(Response::from_body(body).with_header(HeaderName::from_static("x-length"), length))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for size in [0, 1, 100, 16_384, 65_535, 65_536, 500_000] {
            let response = client.fetch(ClientRequest::post("/").body(pattern(size))).await;
            assert!(response.body == pattern(size), "{size}: received {}", response.body.len());
            assert_eq!(response.field("x-length"), Some(&*format!("Some({size})")));

            let (request, upload) = ClientRequest::post("/").upload();
            let response_future = client.send(request).await;
            for piece in pattern(size).chunks(10_007) {
                assert!(upload.send(piece.to_vec()).await);
            }
            drop(upload);
            let response = response_future.collect().await;
            assert!(
                response.body == pattern(size),
                "{size}: received {} of a streamed body",
                response.body.len()
            );
            assert_eq!(response.field("x-length"), Some("None"), "{size}");
        }
        // A request without a body has an empty body.
        let response = client.fetch(ClientRequest::new("GET", "/")).await;
        assert_eq!(response.field("x-length"), Some("Some(0)"));
        server.stop().await;
    });
}

#[test]
fn echoes_request_body_while_receiving() {
    on_every_transport(async |transport| {
        let server = transport.serve(echo);
        let mut client = server.client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("zero").await);
        let mut response = response_future.read_head().await.unwrap();
        let mut expected = b"zero".to_vec();
        // Each piece is echoed before the next one is sent.
        for piece in ["one", "two", "three"] {
            response.read(expected.len()).await;
            expected.extend_from_slice(piece.as_bytes());
            assert!(upload.send(piece).await);
        }
        drop(upload);
        assert_eq!(response.collect().await.body, expected);

        // Both directions concurrently, with far more data than any window or buffer holds.
        let body = pattern(5 << 20);
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        let sent = body.clone();
        let sending = tokio::spawn(async move {
            for piece in sent.chunks(50_000) {
                assert!(upload.send(piece.to_vec()).await);
            }
        });
        let received = response_future.collect().await.body;
        assert!(received == body, "echoed {} of {} bytes", received.len(), body.len());
        sending.await.unwrap();
        assert_eq!(client.get("/").await.text(), "ok");
        server.stop().await;
    });
}

#[test]
fn receives_request_trailers() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        if request.path() == "/echo" {
            return Ok(Response::from_body(request.into_body()));
        }
        assert!(request.body().trailers().is_none(), "trailers before the end of the body");
        while request.body().chunk().await?.is_some() {}
        let trailers = request.body().trailers().and_then(|trailers| trailers.get("x-sum"));
        Ok(Response::text(trailers.unwrap_or("none").to_owned()))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (target, text, trailer) in
            [("/read", "17", None), ("/echo", "abc", Some("17")), ("/none", "none", None)]
        {
            let (request, upload) = ClientRequest::post(target).field("trailer", "x-sum").upload();
            let response_future = client.send(request).await;
            assert!(upload.send("abc").await);
            if target != "/none" {
                upload.trailers("x-sum", "17").await;
            }
            drop(upload);
            let response = response_future.collect().await;
            assert_eq!((response.text(), response.trailer("x-sum")), (text, trailer), "{target}");
        }
        server.stop().await;
    });
}

#[test]
fn reads_request_body_in_another_thread() {
    async fn elsewhere(request: Request) -> weft::Result<Response> {
        let body = request.into_body();
        let (sender, result) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = sender.send(runtime.block_on(body.collect(4 << 20)));
        });
        let body = result.await.expect("the thread sends a result")?;
        Ok(Response::text(format!("{}", body.len())))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(elsewhere);
        let mut client = server.client().await;
        for size in [3_000_000, 3] {
            let (request, upload) = ClientRequest::post("/").upload();
            let response_future = client.send(request).await;
            for piece in pattern(size).chunks(30_000) {
                assert!(upload.send(piece.to_vec()).await);
            }
            drop(upload);
            assert_eq!(response_future.collect().await.text(), size.to_string());
        }
        server.stop().await;
    });
}

#[test]
fn unread_request_body_does_not_block_the_connection() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        match request.path() {
            "/unread" => Ok(Response::text("unread")),
            "/partly" => {
                let chunk = request.body().chunk().await?.unwrap_or_default();
                Ok(Response::text(if chunk.is_empty() { "empty" } else { "partly" }))
            }
            _ => Ok(Response::text("ok")),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        // A small unread body is drained, and the connection is reused.
        for target in ["/unread", "/partly"] {
            let response = client.fetch(ClientRequest::post(target).body(pattern(20_000))).await;
            assert_eq!(response.text(), &target[1..]);
            assert_eq!(client.get("/").await.text(), "ok");
        }
        // After a large unread body the connection may be closed; the client reconnects then. The
        // total exceeds the connection's window: discarded data must be returned to the window.
        for number in 0..20 {
            let target = ["/unread", "/partly"][number % 2];
            let (request, upload) = ClientRequest::post(target).upload();
            let response_future = client.send(request).await;
            let sending = tokio::spawn(async move {
                for _ in 0..30 {
                    if !upload.send(vec![b'x'; 10_000]).await {
                        break;
                    }
                }
            });
            let response = response_future.collect().await;
            assert_eq!(response.text(), &target[1..], "{number}");
            sending.await.unwrap();
            assert_eq!(client.get_reconnecting("/").await.text(), "ok", "{number}");
        }
        server.stop().await;
    });
}

#[test]
fn completes_response_while_client_is_uploading() {
    async fn app(request: Request) -> Response {
        let mut reading = Some(request.into_body());
        let mut remaining = 100;
        // The application stops reading while the response is being sent.
        let frames = Frames(move |cx: &mut Context<'_>| {
            if let Some(body) = &mut reading {
                if body.poll_chunk(cx).is_pending() {
                    return Poll::Pending;
                }
                reading = None;
            }
            remaining -= 1;
            let frame = || Ok(Frame::data(Bytes::from_static(&[b'y'; 10_000])));
            Poll::Ready((remaining > 0).then(frame))
        });
        Response::from_body(Body::from_http_body(frames))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        let (request, upload) =
            ClientRequest::post("/").field("content-length", "5000000").upload();
        let response_future = client.send(request).await;
        let sending = tokio::spawn(async move {
            for _ in 0..100 {
                if !upload.send(vec![b'x'; 50_000]).await {
                    break;
                }
            }
        });
        assert_eq!(response_future.collect().await.body.len(), 990_000);
        sending.await.unwrap();
        server.stop().await;
    });
}

#[test]
fn slow_application_applies_backpressure() {
    on_every_transport(async |transport| {
        // The application reads one chunk and then waits for `release`.
        let (taken, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
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
        let server =
            transport.serve_with(Settings { max_body_bytes: 1 << 30, ..Settings::default() }, app);
        let mut client = server.client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        let piece = Bytes::from(vec![b'x'; 256 << 10]);
        let max_pieces = 256;
        // The kernel's buffers and the window accept some data, then the client is blocked.
        let mut sent = upload.send_until_blocked(piece.clone(), max_pieces).await;
        assert!(sent < max_pieces, "all data was accepted although the application does not read");
        let before = taken.load(SeqCst);
        assert!((1..=128 << 10).contains(&before), "{before} bytes were read for one chunk");
        release.notify_one();
        while sent < max_pieces {
            assert!(upload.send(piece.clone()).await);
            sent += 1;
        }
        drop(upload);
        assert_eq!(response_future.collect().await.text(), (max_pieces * piece.len()).to_string());
        server.stop().await;
    });
}

#[test]
fn closes_client_that_does_not_read_with_bounded_memory() {
    on_every_transport(async |transport| {
        let produced = Arc::new(AtomicUsize::new(0));
        let alive = CloneCounter::new();
        let (count, app_guard) = (produced.clone(), alive.clone());
        let app = move |_: Request| {
            let (count, stream_guard) = (count.clone(), app_guard.clone());
            async move {
                Response::from_body(Body::from_http_body(Frames(move |_: &mut Context<'_>| {
                    let _ = &stream_guard;
                    count.fetch_add(16_000, SeqCst);
                    Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16_000])))))
                })))
            }
        };
        let (server, events) = serve_with_event_log(transport, short_timeouts(), app);
        let idle = alive.count();
        // On a busy machine the client may be timed out before it has read the head; retry then.
        let (_client, response) = loop {
            produced.store(0, SeqCst);
            let mut client = server.client().await;
            let response = client.send(ClientRequest::get("/")).await.read_head().await;
            let is_alive = alive.count() > idle;
            if let (Ok(response), true) = (response, is_alive) {
                break (client, response);
            }
            wait_until("the stream is dropped", || alive.count() == idle).await;
        };
        wait_until("the stream is dropped", || alive.count() == idle).await;
        events.wait_for("Peer TooSlow").await;
        let produced = produced.load(SeqCst);
        // Bounded by the windows or the kernel's socket buffers on both sides.
        assert!(produced < 32 << 20, "{produced} bytes were produced");
        let partial = response.try_collect().await.expect_err("the response must be incomplete");
        assert!(partial.body.len() <= produced, "{} of {produced}", partial.body.len());
        server.stop().await;
    });
}

#[test]
fn retained_request_body_does_not_block_other_requests() {
    on_every_transport(async |transport| {
        let retained: Arc<Mutex<Vec<Body>>> = Arc::default();
        let app_retained = retained.clone();
        let server = transport.serve(move |request: Request| {
            if *request.method() == Method::POST {
                app_retained.lock().unwrap().push(request.into_body());
            }
            async { Response::text("ok") }
        });
        let mut client = server.client().await;
        let mut other = client.concurrent_client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("hello").await);
        let response = response_future.read_head().await.unwrap();
        assert_eq!(response.head().status, 200);
        assert_eq!(other.get("/").await.text(), "ok");
        retained.lock().unwrap().clear();
        drop(upload);
        assert_eq!(response.collect().await.text(), "ok");
        assert_eq!(client.get_reconnecting("/").await.text(), "ok");
        server.stop().await;
    });
}

#[test]
fn rejects_body_over_limit_with_and_without_length() {
    async fn app(mut request: Request) -> weft::Result<Response> {
        match request.path() {
            "/less" => request.body().set_limit(5),
            "/more" => request.body().set_limit(20),
            _ => {}
        }
        Ok(Response::from_body(request.into_body().collect(100).await?))
    }
    on_every_transport(async |transport| {
        let settings = Settings { max_body_bytes: 10, ..Settings::default() };
        let server = transport.serve_with(settings, app);
        let mut client = server.client().await;
        for (target, limit) in [("/", 10), ("/less", 5), ("/more", 20)] {
            for (size, status) in [(limit, 200), (limit + 1, 413)] {
                let case = format!("{size} to {target}");
                let sized = client.send(ClientRequest::post(target).body(pattern(size))).await;
                assert_eq!(sized.collect().await.status, status, "{case}");
                // Without a length the limit is exceeded while receiving.
                client.get_reconnecting(target).await;
                let (request, upload) = ClientRequest::post(target).upload();
                let response_future = client.send(request).await;
                for piece in pattern(size).chunks(3) {
                    upload.send(piece.to_vec()).await;
                }
                drop(upload);
                assert_eq!(response_future.collect().await.status, status, "{case} in pieces");
                client.get_reconnecting(target).await;
            }
        }
        // A Content-Length over the limit is rejected before any body is sent.
        let (request, upload) = ClientRequest::post("/").field("content-length", "11").upload();
        let response_future = client.send(request).await;
        assert_eq!(response_future.collect().await.status, 413);
        drop(upload);
        server.stop().await;
    });
}
