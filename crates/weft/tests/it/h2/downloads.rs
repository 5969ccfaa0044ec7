//! Bodies of responses and their windows.

use super::*;

#[test]
fn obeys_flow_control() {
    let server = start(async |_: Request| Response::from_body(vec![b'x'; 200_000]));
    // RFC 9113 §6.9: the window of a stream.
    let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 0)]);
    client.auto_window_update = false;
    let stream = client.get("/");
    client.read_until("the head", |client| client.peek(stream).is_some());
    let mut open = 0;
    for more in [0, 1, 10, 16_384, 1_000] {
        if more > 0 {
            client.send(window_update(stream, more));
        }
        open += more as usize;
        client.read_until("data up to the window", |client| client.body_length(stream) >= open);
        client.sync();
        assert_eq!(client.body_length(stream), open);
    }
    // SETTINGS change the window of a stream, also to a negative value (§6.9.2).
    client.send(settings(&[(INITIAL_WINDOW_SIZE, 1_000)]));
    client.read_until("data up to the new window", |client| {
        client.body_length(stream) >= open + 1_000
    });
    client.send(settings(&[(INITIAL_WINDOW_SIZE, 0)]));
    client.send(window_update(stream, 900));
    client.sync();
    assert_eq!(client.body_length(stream), open + 1_000);
    client.send(window_update(stream, 200));
    client.read_until("data up to the positive window", |client| {
        client.body_length(stream) >= open + 1_100
    });
    client.sync();
    assert_eq!(client.body_length(stream), open + 1_100);

    // The window of the connection, with larger stream windows.
    let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    client.auto_window_update = false;
    let (one, other) = (client.get("/"), client.get("/"));
    let total = move |client: &RawClient| client.body_length(one) + client.body_length(other);
    let mut open = 65_535;
    for more in [0, 1, 10_000] {
        if more > 0 {
            client.send(window_update(0, more));
        }
        open += more as usize;
        client.read_until("data up to the window", |client| total(client) >= open);
        client.sync();
        assert_eq!(total(&client), open);
    }
    client.send(window_update(0, 1 << 20));
    for stream in [one, other] {
        assert_eq!(client.response(stream).body.len(), 200_000);
    }
    stop(server);
}

/// An application with a file (`/file`), a streamed body (`/stream`) and bytes (`/bytes`) of the
/// length given by the query. The body has frames of 16 KB; their total size is counted.
fn downloads(produced: &Arc<AtomicUsize>) -> impl Application + Clone + Send + use<> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(10 << 20).unwrap();
    let (file, produced) = (Arc::new(file), produced.clone());
    move |request: Request| {
        let (file, produced) = (file.clone(), produced.clone());
        async move {
            let length: usize = request.query().unwrap_or_default().parse().unwrap();
            match request.path() {
                "/file" => Response::from_file(File::new(file, 0, length as u64)),
                "/bytes" => Response::from_body(vec![b'x'; length]),
                _ => {
                    let mut remaining = length;
                    Response::from_body(Body::stream(Chunks(move |_: &mut Context<'_>| {
                        let piece = remaining.min(16_000);
                        remaining -= piece;
                        produced.fetch_add(piece, SeqCst);
                        let frame = Bytes::from(vec![b'x'; piece]);
                        Poll::Ready(Some(Ok(frame)).filter(|_| piece > 0))
                    })))
                }
            }
        }
    }
}

/// Small windows are legal, down to one byte (RFC 9113 §6.9).
#[test]
fn windows_of_one_byte_make_progress() {
    const LENGTH: usize = 60;
    let server = start(downloads(&Arc::default()));
    for path in ["/file", "/stream", "/bytes"] {
        let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1)]);
        client.auto_window_update = false;
        let ids: Vec<u32> = (0..3).map(|_| client.get(&format!("{path}?{LENGTH}"))).collect();
        for received in 1..=LENGTH {
            client.read_until("a byte on each stream", |client| {
                ids.iter().all(|id| client.body_length(*id) == received)
            });
            client.send(ids.iter().flat_map(|id| window_update(*id, 1)).collect::<Vec<u8>>());
        }
        assert!(client.read_all(&ids), "{path}");
    }
    stop(server);
}

/// A body is not produced while its client cannot receive it, but for a part that does not depend
/// on the number of streams.
#[test]
fn blocked_streams_do_not_produce_their_bodies() {
    const STREAMS: usize = 50;
    const LENGTH: usize = 100_000;
    for (name, window, received) in
        [("of the streams", 0, 0), ("of the connection", 1 << 20, 65_535)]
    {
        let produced = Arc::default();
        let server = start(downloads(&produced));
        let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, window)]);
        client.auto_window_update = false;
        let ids: Vec<u32> =
            (0..STREAMS).map(|_| client.get(&format!("/stream?{LENGTH}"))).collect();
        client.sync();
        let ahead = produced.load(SeqCst) - received;
        assert!(ahead <= 64 << 10, "{name}: {ahead} bytes ahead of the windows");
        // Openings that are worth nothing have no effect.
        client.send(window_update(if window == 0 { ids[0] } else { 0 }, 1));
        client.sync();
        assert!(produced.load(SeqCst) <= received + ahead + 16_000, "{name}");
        let open = |id: &u32| window_update(*id, LENGTH as u32);
        client.send(ids.iter().flat_map(open).collect::<Vec<u8>>());
        client.send(window_update(0, (STREAMS * LENGTH) as u32));
        assert!(client.read_all(&ids), "{name}");
        assert_eq!(produced.load(SeqCst), STREAMS * LENGTH, "{name}");
        stop(server);
    }
}

/// Streams that their client does not read leave the connection to the others.
#[test]
fn blocked_streams_do_not_block_others() {
    const LENGTH: usize = 500_000;
    let server = start(downloads(&Arc::default()));
    for path in ["/file", "/stream", "/bytes"] {
        for window in [1, 10_000, 65_535] {
            let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, window)]);
            client.auto_window_update = false;
            client.send(window_update(0, i32::MAX as u32 - 65_535));
            let blocked: Vec<u32> =
                (0..50).map(|_| client.get(&format!("{path}?{LENGTH}"))).collect();
            client.sync();
            for other in ["/file", "/stream", "/bytes"] {
                let stream =
                    client.request(&pseudo_header("GET", &format!("{other}?{LENGTH}")), true);
                client.send(window_update(stream, 40_000));
                let mut granted = window as usize + 40_000;
                while client.peek(stream).is_none_or(|response| !response.ended) {
                    client.read_until("the window is used, or the end", |client| {
                        let received = client.body_length(stream);
                        // After the content, the end may come separately.
                        let has_ended = client.peek(stream).is_some_and(|it| it.ended);
                        has_ended || (received >= granted - 20_000 && received < LENGTH)
                    });
                    client.send(window_update(stream, 20_000));
                    granted += 20_000;
                }
                assert_eq!(client.body_length(stream), LENGTH, "{path} {window} {other}");
            }
            for id in blocked {
                // Windows below the size of a piece are used as far as the budget lasts.
                assert!(client.body_length(id) <= window as usize, "{path} {window}");
            }
        }
    }
    stop(server);
}

/// The end of a body, and trailers, need no window. They are detected although the windows are
/// closed.
#[test]
fn end_of_a_streamed_body_needs_no_window() {
    let server = start(async |request: Request| {
        let (mut data, mut trailers) = match request.path() {
            "/empty" => (None, None),
            "/failing" => return Response::from_body(parts([Err(ErrorKind::BodyFailed)])),
            _ => {
                let fields = [(header::ETAG, "t".parse().unwrap())].into_iter().collect();
                (Some(Bytes::from_static(b"1234")), Some(fields))
            }
        };
        let frames = futures_util::stream::poll_fn(move |_| {
            let data = data.take().map(http_body::Frame::data);
            let frame = data.or_else(|| trailers.take().map(http_body::Frame::trailers));
            Poll::Ready(frame.map(Ok::<_, Error>))
        });
        Response::from_body(Body::from_http_body(http_body_util::StreamBody::new(frames)))
    });
    for (path, window, outcome) in
        [("/empty", 0, "200"), ("/trailers", 4, "200"), ("/failing", 0, "reset INTERNAL_ERROR")]
    {
        let mut client = RawClient::with_settings(&server, &[(INITIAL_WINDOW_SIZE, window)]);
        for _ in 0..10 {
            let stream = client.get(path);
            assert_eq!(client.outcome(stream), outcome, "{path}");
        }
    }
    stop(server);
}

/// References to the dynamic table make large heads cheap to send. Their total size is limited, as
/// the number of streams is.
#[test]
fn refuses_requests_whose_heads_exceed_the_limit_until_one_ends() {
    let server = start(async |request: Request| match request.path() {
        "/wait" => pending().await,
        _ => Response::text("ok"),
    });
    let mut client = RawClient::connect(&server);
    let cookie = "x".repeat(8_000);
    let head = |path| [&pseudo_header("GET", path)[..], &[("cookie", &*cookie)]].concat();
    // 256 KiB, with 1 KiB of each head not counted.
    let waiting: Vec<u32> = (0..37).map(|_| client.request(&head("/wait"), true)).collect();
    let stream = client.request(&head("/"), true);
    assert_eq!(client.outcome(stream), "reset REFUSED_STREAM");
    client.assert_open("/");
    client.send(reset(waiting[0], CANCEL));
    client.sync();
    let stream = client.request(&head("/"), true);
    assert_eq!(client.outcome(stream), "200");
    stop(server);
}

#[test]
fn sends_large_and_small_bodies_completely() {
    let server = start(async |request: Request| {
        let length: usize = request.path()[1..].parse().unwrap();
        Response::from_body((0..length).map(|i| i as u8).collect::<Vec<u8>>())
    });
    let lengths = [0, 1, 16_383, 16_384, 16_385, 1 << 20, 65_535, 65_536, 5_000_000, 3];
    let mut client = RawClient::connect(&server);
    let streams = lengths.map(|length| client.get(&format!("/{length}")));
    for (stream, length) in streams.into_iter().zip(lengths) {
        let response = client.response(stream);
        assert_eq!(response.header("content-length"), Some(&*length.to_string()));
        assert_eq!(response.body.len(), length);
        assert!(response.body.iter().enumerate().all(|(i, &b)| b == i as u8), "{length}");
    }
    stop(server);
}

#[test]
fn serves_files_and_ranges() {
    const LENGTH: u64 = 5 << 30;
    let mut sparse = tempfile::tempfile().unwrap();
    sparse.set_len(LENGTH - 3).unwrap();
    std::io::Seek::seek(&mut sparse, std::io::SeekFrom::End(0)).unwrap();
    sparse.write_all(b"end").unwrap();
    let sparse = Arc::new(sparse);
    let server = start(move |_: Request| {
        let file = File::open(sparse.clone()).unwrap();
        async move { Response::from_file(file) }
    });
    let mut client = RawClient::connect(&server);
    for (method, range, status, length, range_field, body) in [
        ("HEAD", None, 200, LENGTH, None, &b""[..]),
        ("GET", Some("bytes=-3"), 206, 3, Some("bytes 5368709117-5368709119/5368709120"), b"end"),
        ("GET", Some("bytes=0-1"), 206, 2, Some("bytes 0-1/5368709120"), b"\0\0"),
        (
            "GET",
            Some("bytes=5368709118-"),
            206,
            2,
            Some("bytes 5368709118-5368709119/5368709120"),
            b"nd",
        ),
        (
            "GET",
            Some("bytes=5368709120-"),
            416,
            26,
            Some("bytes */5368709120"),
            b"416 Range Not Satisfiable\n",
        ),
    ] {
        let mut head = pseudo_header(method, "/").to_vec();
        head.extend(range.map(|range| ("range", range)));
        let stream = client.request(&head, true);
        let response = client.response(stream);
        assert_eq!((response.status(), &*response.body), (status, body), "{range:?}");
        assert_eq!(response.header("content-length"), Some(&*length.to_string()), "{range:?}");
        assert_eq!(response.header("content-range"), range_field, "{range:?}");
    }
    // Several ranges. One of them exceeds every window.
    let head = [&pseudo_header("GET", "/")[..], &[("range", "bytes=0-299999, -3")]].concat();
    let stream = client.request(&head, true);
    let response = client.response(stream);
    assert_eq!((response.status(), response.reset), (206, None));
    assert_eq!(response.header("content-length"), Some(&*response.body.len().to_string()));
    let has = |text: &str| response.body.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has("bytes 0-299999/5368709120\r\n\r\n\0\0") && has("\r\n\r\nend\r\n--"));
    // Reset after the first window: the rest of the file is not read.
    let mut client = RawClient::connect(&server);
    client.auto_window_update = false;
    let stream = client.get("/");
    client.read_until("the first window", |client| client.body_length(stream) == 65_535);
    client.send([reset(stream, CANCEL), window_update(0, 65_535)].concat());
    let stream = client.request(&pseudo_header("HEAD", "/"), true);
    assert_eq!(client.response(stream).status(), 200);
    stop(server);
}

#[test]
fn serves_streams_concurrently() {
    let server = start(async |request: Request| {
        let number: u64 = request.path()[1..].parse().unwrap();
        for _ in 0..100 - number {
            tokio::task::yield_now().await;
        }
        Response::text(request.path()[1..].to_owned())
    });
    let responses = with_h2_client(&server, async |client| {
        let mut responses = Vec::new();
        for number in 0..100 {
            let request = http::Request::get(format!("http://a/{number}")).body(()).unwrap();
            let mut client = client.clone().ready().await.unwrap();
            responses.push(client.send_request(request, true).unwrap().0);
        }
        let mut texts = Vec::new();
        for response in responses {
            let mut body = response.await.unwrap().into_body();
            texts.push(body.data().await.unwrap().unwrap());
        }
        texts
    });
    for (number, text) in responses.iter().enumerate() {
        assert_eq!(*text, number.to_string());
    }
    stop(server);
}
