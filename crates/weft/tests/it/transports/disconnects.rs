//! Clients that disconnect, stall or stay idle.

use super::*;

/// Settings with which the close of a connection by a client is the end of its requests at once.
fn cancel_at_eof() -> Settings {
    Settings { disconnect: Disconnect::CancelAtEof, ..Settings::default() }
}

#[test]
fn client_disconnect_cancels_the_call() {
    on_every_transport(async |transport| {
        let alive = CloneCounter::new();
        let app_guard = alive.clone();
        let (server, events) =
            serve_with_event_log(transport, cancel_at_eof(), move |request: Request| {
                let call_guard = app_guard.clone();
                async move {
                    let _call_guard = call_guard;
                    if request.path() == "/wait" {
                        pending::<()>().await;
                    }
                    Response::text("ok")
                }
            });
        let idle = alive.count();
        for (number, abort) in ABORTS.into_iter().enumerate() {
            let mut client = server.client().await;
            let response_future = client.send(ClientRequest::get("/wait")).await;
            wait_until("the call starts", || alive.count() > idle).await;
            let client = abort.apply(client, response_future);
            wait_until("the call is dropped", || alive.count() == idle).await;
            let reported = || events.count("Peer Disconnected") == number + 1;
            wait_until("the hooks report the disconnect", reported).await;
            if let Some(mut client) = client {
                assert_eq!(client.get_reconnecting("/").await.text(), "ok", "{abort:?}");
            }
        }
        server.stop().await;
    });
}

#[test]
fn detached_call_completes_after_disconnect() {
    on_every_transport(async |transport| {
        let (events, release) = (EventLog::default(), Arc::new(Notify::new()));
        let (app_events, released) = (events.clone(), release.clone());
        let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
        let server = transport.serve_with(settings, move |request: Request| {
            let (app_events, released) = (app_events.clone(), released.clone());
            async move {
                if request.path() == "/wait" {
                    app_events.push("started");
                    released.notified().await;
                    app_events.push("done");
                }
                Response::text("ok")
            }
        });
        for (number, abort) in ABORTS.into_iter().enumerate() {
            let mut client = server.client().await;
            let response_future = client.send(ClientRequest::get("/wait")).await;
            wait_until("the call starts", || events.count("started") == number + 1).await;
            let client = abort.apply(client, response_future);
            // Give the server time to detect the disconnect.
            for _ in 0..10 {
                assert_eq!(server.client().await.get("/").await.text(), "ok");
            }
            assert_eq!(events.count("done"), number);
            release.notify_one();
            wait_until("the call completes", || events.count("done") == number + 1).await;
            drop(client);
        }
        server.stop().await;
    });
}

#[test]
fn aborted_request_body_fails_with_body_incomplete() {
    on_every_transport(async |transport| {
        let events = EventLog::default();
        let app_events = events.clone();
        let server = transport.serve(move |mut request: Request| {
            let app_events = app_events.clone();
            async move {
                if *request.method() == Method::GET {
                    return Response::text("ok");
                }
                loop {
                    match request.body().chunk().await {
                        Ok(Some(chunk)) => app_events.push(chunk.escape_ascii().to_string()),
                        Ok(None) => app_events.push("complete"),
                        Err(error) => {
                            app_events.push(format!("{:?}", error.kind()));
                            return error.into();
                        }
                    }
                }
            }
        });
        for length in [None, Some("100")] {
            for abort in [None, Some(Abort::Request), Some(Abort::Connection)] {
                let case = format!("{length:?} {abort:?}");
                let before = (events.count("some"), events.count("BodyIncomplete"));
                let mut client = server.client().await;
                let request = ClientRequest::post("/");
                let request = match length {
                    Some(length) => request.field("content-length", length),
                    None => request,
                };
                let (request, upload) = request.upload();
                let response_future = client.send(request).await;
                assert!(upload.send("some").await);
                wait_until("a chunk is read", || events.count("some") == before.0 + 1).await;
                let client = match abort {
                    None => {
                        upload.fail().await;
                        Some(client)
                    }
                    Some(abort) => abort.apply(client, response_future),
                };
                let failed = || events.count("BodyIncomplete") == before.1 + 1;
                wait_until(&format!("{case}: the body fails"), failed).await;
                assert!(!events.contains("complete"), "{case}");
                if let Some(mut client) = client {
                    assert_eq!(client.get_reconnecting("/").await.text(), "ok", "{case}");
                }
            }
        }
        server.stop().await;
    });
}

#[test]
fn client_disconnect_drops_the_response_body() {
    on_every_transport(async |transport| {
        let alive = CloneCounter::new();
        let app_guard = alive.clone();
        let (server, events) =
            serve_with_event_log(transport, cancel_at_eof(), move |request: Request| {
                let stream_guard = app_guard.clone();
                async move {
                    if request.path() == "/" {
                        return Response::text("ok");
                    }
                    let mut first = Some(Frame::data(Bytes::from("first")));
                    let is_endless = request.path() == "/endless";
                    Response::from_body(Body::from_http_body(Frames(move |_: &mut Context<'_>| {
                        let _ = &stream_guard;
                        match first.take() {
                            Some(frame) => Poll::Ready(Some(Ok(frame))),
                            None if is_endless => {
                                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 10_000])))))
                            }
                            None => Poll::Pending,
                        }
                    })))
                }
            });
        let idle = alive.count();
        for (target, abort) in [
            ("/first", Abort::Request),
            ("/first", Abort::Connection),
            ("/endless", Abort::Request),
            ("/endless", Abort::Connection),
        ] {
            let case = format!("{target} {abort:?}");
            let answered = |target: &str| {
                let prefix = format!("{target} 200 ");
                events.all().iter().filter(|event| event.starts_with(&prefix)).count()
            };
            let before = (events.count("Peer Disconnected"), answered(target));
            let mut client = server.client().await;
            let mut response =
                client.send(ClientRequest::get(target)).await.read_head().await.unwrap();
            response.read(5).await;
            assert!(alive.count() > idle);
            let client = abort.apply(client, response);
            wait_until(&format!("{case}: the stream is dropped"), || alive.count() == idle).await;
            // Over HTTP/2 the hooks may report the end of the connection as well.
            let reported =
                || events.count("Peer Disconnected") > before.0 && answered(target) == before.1 + 1;
            wait_until(&format!("{case}: the hooks report the disconnect"), reported).await;
            if let Some(mut client) = client {
                assert_eq!(client.get_reconnecting("/").await.text(), "ok", "{case}");
            }
        }
        let sent = events.count("/first 200 5 Disconnected");
        assert_eq!(sent, 2, "records with the bytes sent: {:?}", events.all());
        server.stop().await;
    });
}

#[test]
fn stalled_request_body_times_out() {
    on_every_transport(async |transport| {
        let events = EventLog::default();
        let app_events = events.clone();
        let server = transport.serve_with(short_timeouts(), move |request: Request| {
            let app_events = app_events.clone();
            async move {
                let body = request.into_body().collect(1000).await;
                body.map(Response::from_body)
                    .inspect_err(|error| app_events.push(format!("{:?}", error.kind())))
            }
        });
        let mut client = server.client().await;
        let (request, upload) = ClientRequest::post("/").upload();
        let response_future = client.send(request).await;
        assert!(upload.send("some").await);
        assert_eq!(response_future.collect().await.status, 408);
        assert_eq!(events.all(), ["TooSlow"]);
        drop(upload);
        server.stop().await;
    });
}

#[test]
fn slow_handler_does_not_time_out() {
    on_every_transport(async |transport| {
        let server = transport.serve_with(short_timeouts(), async |_: Request| {
            tokio::time::sleep(3 * SHORT_TIMEOUT).await;
            Response::text("at last")
        });
        assert_eq!(server.client().await.get("/").await.text(), "at last");
        server.stop().await;
    });
}

#[test]
fn closes_idle_connection_after_timeout() {
    on_every_transport(async |transport| {
        let server = transport.serve_with(short_timeouts(), echo);
        let mut client = server.client().await;
        assert_eq!(client.get("/").await.text(), "ok");
        client.wait_closed().await;
        server.stop().await;
    });
}

#[test]
fn closes_connection_after_max_requests() {
    on_every_transport(async |transport| {
        let settings = Settings { max_requests: 3, ..Settings::default() };
        let (server, events) = serve_with_event_log(transport, settings, echo);
        let mut client = server.client().await;
        for _ in 0..3 {
            assert_eq!(client.get("/").await.text(), "ok");
        }
        client.wait_closed().await;
        assert_eq!(events.count("/ 200 2"), 3);
        assert_eq!(client.get_reconnecting("/").await.text(), "ok");
        server.stop().await;
    });
}
