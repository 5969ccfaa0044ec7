//! Bodies of requests and their windows.

use super::*;

/// An application that reads one chunk, waits for `release` if the path is `/slow`, and reads the
/// rest. For `/never` it never reads.
fn slow_reader(release: &Arc<Notify>) -> impl Application + Clone + Send + use<> {
    let released = release.clone();
    move |mut request: Request| {
        let released = released.clone();
        async move {
            if request.path() == "/never" {
                pending::<()>().await;
            }
            let mut length = 0;
            while let Some(chunk) = request.body().chunk().await? {
                if length == 0 && request.path() == "/slow" {
                    released.notified().await;
                }
                length += chunk.len();
            }
            Ok::<_, Error>(Response::text(length.to_string()))
        }
    }
}

#[test]
fn slow_application_applies_backpressure() {
    let release = Arc::new(Notify::new());
    let server = start_with(
        Settings { body_window_bytes: 400_000, ..Settings::default() },
        slow_reader(&release),
    );
    let mut client = RawClient::connect(&server);
    client.read_until("the connection's window", |client| client.window(0) == 400_000);
    let stream = client.post("/slow");
    assert_eq!(client.window(stream), 100_000);
    let mut sent = 0;
    loop {
        let more = client.upload_some(stream, usize::MAX);
        sent += more;
        client.sync();
        if more == 0 {
            break;
        }
    }
    assert!((100_000..=100_000 + 16_384).contains(&sent), "{sent} bytes were sent");
    release.notify_one();
    assert!(client.upload(stream, 1_000_000 - sent));
    assert_eq!(client.response(stream).text(), "1000000");
    stop(server);
}

/// Data of completed request bodies is returned to the connection window, read or unread, even
/// while their responses continue.
#[test]
fn completed_bodies_release_the_connection_window() {
    let server = start(async |request: Request| match request.path() {
        "/unread" => {
            drop(request.into_body());
            Ok(endless(0))
        }
        _ => Ok::<_, Error>(endless(request.into_body().collect(1 << 24).await?.len())),
    });
    for path in ["/read", "/unread"] {
        let mut client = RawClient::connect(&server);
        client.read_until("the connection's window", |client| client.window(0) == 1 << 20);
        for _ in 0..8 {
            let stream = client.post(path);
            assert!(client.upload(stream, 200_000));
            client.read_until("the response", |client| client.body_length(stream) > 0);
        }
        client.read_until("the window is replenished", |client| client.window(0) > 1 << 19);
    }
    stop(server);
}

#[test]
fn unread_uploads_do_not_block_others() {
    let server = start(slow_reader(&Arc::new(Notify::new())));
    let mut client = RawClient::connect(&server);
    client.read_until("the connection's window", |client| client.window(0) == 1 << 20);
    for _ in 0..3 {
        let stream = client.post("/never");
        assert_eq!(client.upload_some(stream, usize::MAX), 256 << 10);
    }
    let stream = client.post("/");
    assert!(client.upload(stream, 2_000_000));
    assert_eq!(client.response(stream).text(), "2000000");
    stop(server);
}

fn not_drained() -> Settings {
    Settings { max_discarded_bytes: 0, ..Settings::default() }
}

/// Some clients treat RST_STREAM with NO_ERROR as a failure.
#[test]
fn small_unread_upload_is_not_reset() {
    let server = start(async |_: Request| Response::text("no, thanks"));
    let mut client = RawClient::connect(&server);
    for (length, reset) in [(1, None), (60_000, None), (100_000, Some("NO_ERROR"))] {
        let stream = client.post("/");
        // The response is complete before the body is sent.
        client.read_until("the response", |client| {
            client.peek(stream).is_some_and(|response| response.ended)
        });
        client.upload_some(stream, length);
        if reset.is_none() {
            client.data(stream, "", true);
            client.sync();
        } else {
            let is_reset = |client: &RawClient| {
                client.peek(stream).is_some_and(|response| response.reset.is_some())
            };
            client.read_until("a reset", is_reset);
        }
        let response = client.response(stream);
        assert_eq!((response.text(), response.reset), ("no, thanks", reset), "{length} bytes");
    }
    client.assert_open("/");
    stop(server);
}

#[test]
fn unread_uploads_release_the_connection_window() {
    let server = start_with(not_drained(), async |request: Request| match request.path() {
        "/unread" => Ok::<_, Error>(Response::text("no, thanks")),
        _ => Ok(Response::text(request.into_body().collect(1 << 24).await?.len().to_string())),
    });
    let mut client = RawClient::connect(&server);
    for number in 0..50 {
        let stream = client.post("/unread");
        // Sent without reading; the response may arrive meanwhile.
        client.upload_some(stream, 60_000);
        // RFC 9113 §8.1: the response is complete, the rest of the request is not needed.
        client.read_until("a reset", |client| {
            client.peek(stream).is_some_and(|response| response.reset.is_some())
        });
        let response = client.response(stream);
        assert_eq!((response.status(), response.text()), (200, "no, thanks"), "{number}");
        assert_eq!((response.ended, response.reset), (true, Some("NO_ERROR")), "{number}");
    }
    let stream = client.post("/");
    assert!(client.upload(stream, 1 << 20));
    assert_eq!(client.response(stream).text(), "1048576");
    assert_eq!(client.goaways, []);
    stop(server);
}

/// A client continues to send for a round trip before it receives the response. This must not
/// count as an attack.
#[test]
fn many_unread_uploads_are_not_treated_as_an_attack() {
    let server = start_with(not_drained(), async |_: Request| Response::text("no, thanks"));
    let mut client = RawClient::connect(&server);
    client.read_until("the connection's window", |client| client.window(0) == 1 << 20);
    for _ in 0..4 {
        let streams: Vec<u32> = (0..100).map(|_| client.post("/")).collect();
        client.sync();
        for &stream in &streams {
            for _ in 0..5 {
                client.data(stream, [b'x'; 1_000], false);
            }
        }
        for stream in streams {
            assert_eq!(client.response(stream).status(), 200);
        }
    }
    client.assert_open("/");
    assert_eq!(client.goaways, []);
    stop(server);
}

#[test]
fn rejects_body_over_limit_with_and_without_length() {
    let server = start_with(Settings { max_body_bytes: 10, ..Settings::default() }, echo);
    let mut client = RawClient::connect(&server);
    for (length, sent, status) in [
        (Some("10"), "0123456789", 200),
        (None, "0123456789", 200),
        (Some("11"), "", 413),
        (None, "0123456789a", 413),
    ] {
        let mut head = pseudo_header("POST", "/").to_vec();
        head.extend(length.map(|length| ("content-length", length)));
        let stream = client.request(&head, false);
        client.data(stream, sent, status == 200);
        assert_eq!(client.response(stream).status(), status, "{length:?} {sent}");
        client.assert_open("/");
    }
    stop(server);
}

#[test]
fn aborted_request_body_fails_with_body_incomplete() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let app_ends = ends.clone();
    let settings = Settings { disconnect: Disconnect::Detach, ..Settings::default() };
    let server = start_with(settings, move |request: Request| {
        let ends = app_ends.clone();
        async move {
            let end = request.into_body().collect(1000).await;
            ends.lock().unwrap().push(end.map(|_| ()).map_err(|error| error.kind()));
            Response::text("ok")
        }
    });
    let mut client = RawClient::connect(&server);
    let stream = client.post("/");
    client.data(stream, "hello", false);
    client.sync();
    client.send(reset(stream, CANCEL));
    until("the reset is detected", || ends.lock().unwrap().len() == 1);
    let stream = client.post("/");
    client.data(stream, "hello", false);
    client.sync();
    drop(client);
    until("the disconnect is detected", || ends.lock().unwrap().len() == 2);
    assert_eq!(*ends.lock().unwrap(), [Err(ErrorKind::BodyIncomplete); 2]);
    stop(server);
}

#[test]
fn echoes_trailers() {
    let server = start(async |request: Request| Response::from_body(request.into_body()));
    let mut client = RawClient::connect(&server);
    let stream = client.post("/");
    client.data(stream, "hello", false);
    client.read_until("the echo", |client| client.body_length(stream) == 5);
    client.send(frame(HEADERS, END_ALL, stream, &field_block(&[("x", "1"), ("y", "2")])));
    let response = client.response(stream);
    assert_eq!(response.text(), "hello");
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(response.trailers, Some(vec![field("x", "1"), field("y", "2")]));
    stop(server);
}

#[test]
fn padding_is_not_part_of_the_body() {
    let server = start(echo);
    let mut client = RawClient::connect(&server);
    let head = [&pseudo_header("POST", "/")[..], &[("content-length", "2000")]].concat();
    // The padding exceeds the windows of the stream and of the connection.
    for _ in 0..3 {
        let stream = client.request(&head, false);
        for number in 0..2_000 {
            let payload = [&[255][..], b"x", &[0; 255]].concat();
            client.send(frame(DATA, PADDED | u8::from(number == 1_999), stream, &payload));
            client.sync();
        }
        assert_eq!(client.response(stream).text(), "x".repeat(2_000));
    }
    stop(server);
}
