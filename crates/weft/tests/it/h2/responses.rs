//! Responses.

use super::*;

#[test]
fn sends_response_heads() {
    let server = start(async |request: Request| match request.path() {
        "/none" => Response::new(StatusCode::NO_CONTENT),
        "/unchanged" => Response::new(StatusCode::NOT_MODIFIED),
        "/empty" => Response::text(""),
        "/stream" => Response::from_body(parts([Ok("ab"), Ok(""), Ok("c")])),
        "/sized" => {
            Response::from_body(parts([Ok("abc")])).with_header(header::CONTENT_LENGTH, "3")
        }
        // RFC 9113 §8.2.2: connection-specific fields are not sent.
        "/forbidden" => Response::text("abc")
            .with_header(header::CONNECTION, "keep-alive, x")
            .with_header(header::HeaderName::from_static("keep-alive"), "timeout=5")
            .with_header(header::HeaderName::from_static("proxy-connection"), "keep-alive")
            .with_header(header::TRANSFER_ENCODING, "chunked")
            .with_header(header::UPGRADE, "h2c"),
        "/own" => Response::text("abc")
            .with_header(header::DATE, "today")
            .with_header(header::SERVER, "me"),
        _ => Response::text("abc"),
    });
    let plain = "content-type: text/plain; charset=utf-8";
    let mut client = RawClient::connect(&server);
    for (method, path, expected, body) in [
        ("GET", "/", &[plain, "date", "server: weft", "content-length: 3"][..], "abc"),
        ("HEAD", "/", &[plain, "date", "server: weft", "content-length: 3"], ""),
        ("GET", "/forbidden", &[plain, "date", "server: weft", "content-length: 3"], "abc"),
        ("GET", "/own", &[plain, "date: today", "server: me", "content-length: 3"], "abc"),
        ("GET", "/none", &["date", "server: weft"], ""),
        ("HEAD", "/none", &["date", "server: weft"], ""),
        ("GET", "/unchanged", &["date", "server: weft"], ""),
        ("GET", "/empty", &[plain, "date", "server: weft", "content-length: 0"], ""),
        ("GET", "/stream", &["date", "server: weft"], "abc"),
        ("HEAD", "/stream", &["date", "server: weft"], ""),
        ("GET", "/sized", &["date", "server: weft", "content-length: 3"], "abc"),
    ] {
        let stream = client.request(&pseudo_header(method, path), true);
        let response = client.response(stream);
        let name = format!("{method} {path}");
        assert_eq!(response.text(), body, "{name}");
        // An empty body sends no DATA frame.
        assert_eq!(response.data_frames == 0, body.is_empty(), "{name}: {}", response.data_frames);
        let mut lines: Vec<String> = response.head.unwrap()[1..]
            .iter()
            .map(|(name, value)| match &**name {
                "date" if value.ends_with("GMT") => "date".to_owned(),
                _ => format!("{name}: {value}"),
            })
            .collect();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        lines.sort();
        assert_eq!(lines, expected, "{name}");
    }
    stop(server);
}

#[test]
fn sends_interim_responses() {
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            request.early_hints(["</a.css>; rel=preload", "</b>\r\nx: y"]);
            if request.path() == "/slow" {
                released.notified().await;
            }
            Response::text("ok")
        }
    });
    let mut client = RawClient::connect(&server);
    let slow = client.get("/slow");
    client.read_until("the early hints", |client| client.peek(slow).is_some());
    assert!(client.peek(slow).unwrap().head.is_none());
    release.notify_one();
    let fast = client.get("/fast");
    for stream in [slow, fast] {
        let response = client.response(stream);
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let hints = [
            field(":status", "103"),
            field("link", "</a.css>; rel=preload"),
            field("link", "</b>  x: y"),
        ];
        assert_eq!(response.interim, [hints]);
        assert_eq!(response.status(), 200);
    }
    stop(server);
}

#[test]
fn sends_100_continue_only_when_the_application_reads() {
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let server = start(move |request: Request| {
        let released = released.clone();
        async move {
            if request.path() == "/unread" {
                return Ok(Response::text("no, thanks"));
            }
            released.notified().await;
            echo(request).await
        }
    });
    let ask = |path| [&pseudo_header("PUT", path)[..], &[("expect", "100-continue")]].concat();
    let mut client = RawClient::connect(&server);
    let stream = client.request(&ask("/"), false);
    client.sync();
    assert!(client.peek(stream).is_none(), "100 was sent before the application read");
    release.notify_one();
    client.read_until("100", |client| client.peek(stream).is_some());
    assert_eq!(find(&client.peek(stream).unwrap().interim[0], ":status"), Some("100"));
    client.data(stream, "hello", true);
    let response = client.response(stream);
    assert_eq!((response.status(), response.text(), response.interim.len()), (200, "hello", 1));

    // A body sent without waiting needs no 100, nor does a body that is not read.
    let stream = client.request(&ask("/"), false);
    client.data(stream, "hello", true);
    client.sync();
    release.notify_one();
    let response = client.response(stream);
    assert_eq!((response.text(), response.interim.len()), ("hello", 0));
    let stream = client.request(&ask("/unread"), false);
    let response = client.response(stream);
    assert_eq!((response.status(), response.interim.len()), (200, 0));
    stop(server);
}
