//! Payloads, fields and trailers of responses.

use super::*;

#[test]
fn sends_every_payload_kind_to_get_and_head() {
    async fn app(request: Request) -> Response {
        let parts = || pieces(["ab", "", "cde"]);
        match request.path() {
            "/empty" => Response::new(StatusCode::OK),
            "/bytes" => Response::from_body("abcde"),
            "/large" => Response::from_body(pattern(3_000_000)),
            "/stream" => Response::from_body(parts()),
            "/sized-stream" => {
                Response::from_body(parts()).with_header(header::CONTENT_LENGTH, "5")
            }
            "/empty-stream" => Response::from_body(pieces([])),
            "/file" => Response::from_file(File::open(file(&pattern(200_000))).unwrap()),
            "/empty-file" => Response::from_file(File::open(file(b"")).unwrap()),
            "/file-part" => Response::from_file(File::new(file(b"0abcde6"), 1, 5)),
            "/file-body" => Response::from_body(File::open(file(&pattern(200_000))).unwrap()),
            "/trailers" => Response::from_body(with_trailers("abcde", &[(header::ETAG, "\"e\"")])),
            "/teapot" => Response::text("abcde").with_status(StatusCode::IM_A_TEAPOT),
            "/204" => Response::new(StatusCode::NO_CONTENT),
            "/304" => Response::new(StatusCode::NOT_MODIFIED),
            "/redirect" => Response::redirect(StatusCode::SEE_OTHER, "/elsewhere"),
            _ => Response::not_found(),
        }
    }
    let small = || b"abcde".to_vec();
    let cases: &[(&str, u16, Option<&str>, Vec<u8>)] = &[
        ("/empty", 200, Some("0"), Vec::new()),
        ("/bytes", 200, Some("5"), small()),
        ("/large", 200, Some("3000000"), pattern(3_000_000)),
        ("/stream", 200, None, small()),
        ("/sized-stream", 200, Some("5"), small()),
        ("/empty-stream", 200, None, Vec::new()),
        ("/file", 200, Some("200000"), pattern(200_000)),
        ("/empty-file", 200, Some("0"), Vec::new()),
        ("/file-part", 200, Some("5"), small()),
        ("/file-body", 200, Some("200000"), pattern(200_000)),
        ("/trailers", 200, None, small()),
        ("/teapot", 418, Some("5"), small()),
        ("/204", 204, None, Vec::new()),
        ("/304", 304, None, Vec::new()),
        ("/redirect", 303, Some("0"), Vec::new()),
        ("/none", 404, Some("14"), b"404 Not Found\n".to_vec()),
    ];
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (target, status, length, body) in cases {
            let get = client.get(target).await;
            assert_eq!((get.status, get.version), (*status, transport.version()), "{target}");
            assert_eq!(get.field("content-length"), *length, "{target}");
            assert!(get.body == *body, "{target}: received {} other bytes", get.body.len());
            let head = client.fetch(ClientRequest::new("HEAD", *target)).await;
            assert_eq!(head.status, *status, "HEAD {target}");
            // The file is created anew for each request, so its ETag differs.
            if !target.contains("file") {
                assert_eq!(head.fields_without_date(), get.fields_without_date(), "HEAD {target}");
            }
            assert_eq!(head.field("content-length"), *length, "HEAD {target}");
            assert_eq!(head.body, b"", "HEAD {target}");
        }
        // All requests used one connection.
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn sends_large_and_small_bodies_completely() {
    async fn app(request: Request) -> Response {
        Response::from_body(pattern(request.path()[1..].parse().unwrap()))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for length in [0, 1, 16_383, 16_384, 16_385, 65_535, 65_536, 5_000_000, 3, 100_000, 7] {
            let body = client.get(&format!("/{length}")).await.body;
            assert!(body == pattern(length), "{length}: received {}", body.len());
        }
        server.stop().await;
    });
}

#[test]
fn sends_stream_chunks_immediately() {
    on_every_transport(async |transport| {
        let (sender, body) = channel_body();
        let body = Mutex::new(Some(body));
        let body = Arc::new(body);
        let server = transport.serve(move |_: Request| {
            let body = body.lock().unwrap().take().expect("one request");
            async { Response::from_body(body) }
        });
        let mut client = server.client().await;
        // The head is sent before any body is available.
        let mut response = client.send(ClientRequest::get("/")).await.read_head().await.unwrap();
        let mut length = 0;
        for part in ["first", "second", "third"] {
            sender.send(Ok(Bytes::from(part))).await.unwrap();
            length += part.len();
            assert!(response.read(length).await.ends_with(part.as_bytes()));
        }
        drop(sender);
        assert_eq!(response.collect().await.text(), "firstsecondthird");
        server.stop().await;
    });
}

#[test]
fn sends_response_trailers() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/sized" => Response::from_body(with_trailers("abc", &[(header::ETAG, "\"e\"")]))
                .with_header(header::CONTENT_LENGTH, "3"),
            _ => Response::from_body(with_trailers("abc", &[(header::ETAG, "\"e\"")])),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        let response = client.get("/").await;
        assert_eq!((response.text(), response.trailer("etag")), ("abc", Some("\"e\"")));
        // HTTP/1 cannot send trailers after a body with Content-Length.
        let response = client.get("/sized").await;
        let trailer = transport.is_multiplexed().then_some("\"e\"");
        assert_eq!((response.text(), response.trailer("etag")), ("abc", trailer));
        assert_eq!(client.get("/").await.status, 200);
        server.stop().await;
    });
}

/// A body that is pending for ever once these frames are polled, and reports its end after
/// `ends_after` of them. It must not be polled after that, nor after its trailers.
struct PendingAtEnd {
    frames: std::vec::IntoIter<Frame<Bytes>>,
    ends_after: usize,
}

impl http_body::Body for PendingAtEnd {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.ends_after = self.ends_after.wrapping_sub(1);
        self.frames.next().map_or(Poll::Pending, |frame| Poll::Ready(Some(Ok(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.ends_after == 0
    }
}

/// Path, frames, number of frames after which the body reports its end, and the received body and
/// trailer.
type Ending = (&'static str, &'static [&'static str], usize, &'static str, Option<&'static str>);

#[test]
fn ends_a_response_with_its_trailers_or_its_reported_end() {
    const NEVER: usize = usize::MAX;
    let frame = |piece: &str| match piece {
        "trailers" => Frame::trailers(
            [(header::ETAG, HeaderValue::from_static("\"e\""))].into_iter().collect(),
        ),
        _ => Frame::data(Bytes::copy_from_slice(piece.as_bytes())),
    };
    let cases: [Ending; 6] = [
        ("/trailers", &["ab", "trailers"], NEVER, "ab", Some("\"e\"")),
        ("/data-after-trailers", &["ab", "trailers", "cd"], NEVER, "ab", Some("\"e\"")),
        ("/two-trailers", &["trailers", "trailers"], NEVER, "", Some("\"e\"")),
        ("/reported-end", &["ab", "cd", "ef"], 2, "abcd", None),
        ("/end-with-empty-data", &["ab", ""], 2, "ab", None),
        ("/ended-at-once", &["ab"], 0, "", None),
    ];
    let app = async move |request: Request| {
        let (_, frames, ends_after, ..) =
            cases.into_iter().find(|(path, ..)| *path == request.path()).expect("a known path");
        let frames: Vec<_> = frames.iter().map(|piece| frame(piece)).collect();
        Response::from_body(Body::from_http_body(PendingAtEnd {
            frames: frames.into_iter(),
            ends_after,
        }))
    };
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (path, _, _, body, trailer) in cases {
            let response = client.get(path).await;
            assert_eq!((response.text(), response.trailer("etag")), (body, trailer), "{path}");
        }
        server.stop().await;
    });
}

/// RFC 9110 §8.6: a response to HEAD has the length of the response to GET. axum removes the body,
/// so its length is unknown, unless axum has declared it.
#[test]
fn head_response_of_a_framework_has_no_length_if_get_has_none() {
    let router = axum::Router::new()
        .route("/known", get(async || "x".repeat(1_000)))
        .route("/compressed", get(async || "x".repeat(1_000)).layer(CompressionLayer::new()))
        .route("/empty", get(async || ""));
    on_every_transport(async |transport| {
        let server = transport.serve(weft::tower::app(router.clone()));
        let mut client = server.client().await;
        for (path, length) in
            [("/known", Some("1000")), ("/compressed", None), ("/empty", Some("0"))]
        {
            for method in ["GET", "HEAD"] {
                let request = ClientRequest::new(method, path).field("accept-encoding", "gzip");
                let response = client.fetch(request).await;
                assert_eq!(response.field("content-length"), length, "{method} {path}");
            }
        }
        server.stop().await;
    });
}

/// As on hyper: over HTTP/1, the URI is the target.
#[test]
fn uri_of_a_framework_has_scheme_and_authority_over_http2() {
    let uri = async |uri: axum::http::Uri| uri.to_string();
    let inner = async |request: Request| Response::text(request.target().to_owned());
    let router = axum::Router::new()
        .route("/path", get(uri))
        .nest("/nested", axum::Router::new().route("/path", get(uri)))
        .nest_service("/inner", weft::tower::service(inner));
    on_every_transport(async |transport| {
        let app = weft::tower::app(router.clone());
        let server =
            transport.serve(app.wrap(Mount::new("/mounted", weft::tower::app(router.clone()))));
        let mut client = server.client().await;
        let origin = if transport.is_multiplexed() {
            format!("{}://a", transport.scheme())
        } else {
            String::new()
        };
        for (path, local) in [
            ("/path?query", "/path?query"),
            ("/nested/path?query", "/path?query"),
            ("/mounted/path", "/path"),
        ] {
            assert_eq!(client.get(path).await.text(), format!("{origin}{local}"), "{path}");
        }
        // An application gets the path and the field `Host` over both versions.
        assert_eq!(client.get("/inner/path").await.text(), "/path");
        server.stop().await;
    });
}

#[test]
fn sends_no_body_with_204_and_304() {
    async fn app(request: Request) -> Response {
        let status = request.path()[1..].parse::<u16>().unwrap();
        Response::text("no body").with_status(StatusCode::from_u16(status).unwrap())
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for status in [204, 304, 204] {
            let response = client.get(&format!("/{status}")).await;
            assert_eq!((response.status, response.text()), (status, ""));
        }
        assert_eq!(client.get("/200").await.text(), "no body");
        // An interim status is not a valid final response.
        assert_eq!(client.get_reconnecting("/101").await.status, 500);
        assert_eq!(client.get_reconnecting("/103").await.status, 500);
        assert_eq!(client.get_reconnecting("/200").await.status, 200);
        server.stop().await;
    });
}

#[test]
fn adds_date_and_server_unless_set_by_the_application() {
    async fn app(request: Request) -> Response {
        match request.path() {
            "/own" => Response::text("ok")
                .with_header(header::DATE, "Sun, 06 Nov 1994 08:49:37 GMT")
                .with_header(header::SERVER, "own"),
            _ => Response::text("ok"),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (target, server) in [("/", "weft"), ("/own", "own")] {
            let response = client.get(target).await;
            assert_eq!(response.field("server"), Some(server));
            assert_eq!(response.fields.get_all("server").iter().count(), 1);
            assert_eq!(response.fields.get_all("date").iter().count(), 1);
            let date = response.field("date").unwrap();
            assert_eq!(date == "Sun, 06 Nov 1994 08:49:37 GMT", target == "/own", "{date}");
            assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
        }
        server.stop().await;
        let settings = Settings { server_name: String::new(), ..Settings::default() };
        let server = transport.serve_with(settings, app);
        assert_eq!(server.client().await.get("/").await.field("server"), None);
        server.stop().await;
    });
}

#[test]
fn rejects_invalid_response_fields() {
    async fn app(request: Request) -> Response {
        let response = Response::text("ok");
        match request.path() {
            "/text" => response.with_header("x-a", "días\t1"),
            "/lines" => response.with_header("x-a", "1\r\nx-b: 2"),
            "/nul" => response.with_header("x-a", "1\0"),
            "/appended" => response.with_appended_header("x-a", "\x7f"),
            "/empty" => response.with_header("x-a", ""),
            "/name" => response.with_header("x a", "1"),
            "/no-name" => response.with_header("", "1"),
            // Later calls do not make the response valid.
            "/later" => {
                response.with_header("x a", "1").with_header("x-a", "1").with_status(StatusCode::OK)
            }
            _ => Response::redirect(StatusCode::FOUND, "/a\r\nx-b: 2"),
        }
    }
    on_every_transport(async |transport| {
        let (server, events) = serve_with_event_log(transport, Settings::default(), app);
        let mut errors = 0;
        for (path, status, value) in [
            ("/text", 200, Some("días\t1")),
            ("/lines", 500, None),
            ("/nul", 500, None),
            ("/appended", 500, None),
            ("/empty", 200, Some("")),
            ("/name", 500, None),
            ("/no-name", 500, None),
            ("/later", 500, None),
        ] {
            // The connection ends after an error of the application.
            let response = server.client().await.get(path).await;
            let found = response.fields.get("x-a").map(|value| value.as_bytes());
            assert_eq!((response.status, found), (status, value.map(str::as_bytes)), "{path}");
            errors += usize::from(status == 500);
            assert_eq!(events.count("Application InvalidField"), errors, "{path}");
        }
        // The reference of a redirect is often a text of the client.
        let response = server.client().await.get("/redirect").await;
        assert_eq!((response.status, response.field("location")), (302, Some("/a  x-b: 2")));
        server.stop().await;
    });
}

#[test]
fn sanitizes_response_fields() {
    async fn app(request: Request) -> Response {
        let own = |name: &'static str| HeaderName::from_static(name);
        let response = Response::text("ok");
        match request.path() {
            "/repeated" => response
                .with_header(header::SET_COOKIE, "a=0")
                .with_header(header::SET_COOKIE, "a=1")
                .with_header(own("x-a"), "1")
                .with_appended_header(header::SET_COOKIE, "b=2"),
            "/transfer-encoding" => response.with_header(header::TRANSFER_ENCODING, "gzip"),
            "/content-length" => response.with_header(header::CONTENT_LENGTH, "2"),
            "/connection" => response
                .with_header(header::CONNECTION, "x-a, keep-alive")
                .with_header(own("x-a"), "1"),
            "/keep-alive" => response.with_header(own("keep-alive"), "timeout=1"),
            "/proxy-connection" => response.with_header(own("proxy-connection"), "close"),
            "/te" => response.with_header(header::TE, "gzip"),
            "/upgrade" => response.with_header(header::UPGRADE, "h2c"),
            _ => Response::not_found(),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        let response = client.get("/repeated").await;
        let cookies: Vec<_> = response.fields.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
        for name in ["transfer-encoding", "content-length", "connection"] {
            let response = client.get(&format!("/{name}")).await;
            assert_eq!((response.status, response.text()), (200, "ok"), "{name}");
            assert_eq!(response.field("content-length"), Some("2"), "{name}");
            assert_eq!(response.field("transfer-encoding"), None, "{name}");
            assert_eq!(response.field("connection"), None, "{name}");
        }
        // RFC 9113 §8.2.2: connection-specific fields are malformed in HTTP/2.
        for name in ["keep-alive", "proxy-connection", "te", "upgrade"] {
            let response = client.get(&format!("/{name}")).await;
            assert_eq!((response.status, response.text()), (200, "ok"), "{name}");
            assert_eq!(response.field(name).is_none(), transport.is_multiplexed(), "{name}");
        }
        assert!(!client.is_closed());
        server.stop().await;
    });
}

#[test]
fn forwards_fields_of_another_message() {
    async fn app(request: Request) -> Response {
        let own = |name: &'static str| HeaderName::from_static(name);
        let names = [&b"x-a"[..], b"date", b"server"];
        let forwarded = request
            .headers()
            .filter(|name, _| names.iter().any(|it| it.eq_ignore_ascii_case(name)));
        let mut response = Response::from_body("ok").with_headers(forwarded.clone());
        match request.path() {
            "/more" => response
                .with_header(header::VIA, "1.1 a")
                .with_appended_header(header::VIA, HeaderValue::from_static("1.1 b")),
            "/behind" => {
                Response::from_body("ok").with_header(own("x-a"), "0").with_headers(forwarded)
            }
            "/set" => {
                response.set_header(own("x-a"), "3");
                response
            }
            "/removed" => {
                response.remove_header(own("x-a"));
                response
            }
            "/seen" => {
                let seen = response.header("X-A").cloned();
                let response =
                    response.with_appended_header(own("x-a"), "3").with_headers(forwarded);
                response.with_header(own("x-seen"), seen.unwrap())
            }
            _ => response,
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        for (target, values, via_values) in [
            ("/", &["1", "2"][..], &[][..]),
            ("/more", &["1", "2"], &["1.1 a", "1.1 b"]),
            ("/behind", &["0", "1", "2"], &[]),
            ("/set", &["3"], &[]),
            ("/removed", &[], &[]),
            ("/seen", &["1", "2", "3", "1", "2"], &[]),
        ] {
            let request = ClientRequest::get(target).field("x-a", "1").field("x-a", "2");
            let request =
                request.field("date", "then").field("server", "theirs").field("x-b", "no");
            let mut client = server.client().await;
            let response = client.fetch(request).await;
            let all = |name| {
                let values = response.fields.get_all(name).iter();
                values.map(|value| value.to_str().unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(response.text(), "ok", "{target}");
            assert_eq!(
                (all("x-a"), all("via")),
                (values.to_vec(), via_values.to_vec()),
                "{target}"
            );
            // `/seen` adds the fields twice.
            assert_eq!(all("date")[0], "then", "{target}");
            assert_eq!(all("server")[0], "theirs", "{target}");
            assert_eq!(response.field("x-seen"), (target == "/seen").then_some("1"), "{target}");
            assert_eq!(response.field("x-b"), None, "{target}");
        }
        server.stop().await;
    });
}

#[test]
fn drops_framing_fields_in_response_trailers() {
    async fn app(request: Request) -> Response {
        let name: HeaderName = request.path()[1..].parse().unwrap();
        Response::from_body(with_trailers("abc", &[(name, "1"), (header::ETAG, "\"e\"")]))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for name in ["connection", "transfer-encoding", "content-length", "keep-alive", "te"] {
            let response = client.get(&format!("/{name}")).await;
            assert_eq!(
                (response.text(), response.trailer("etag")),
                ("abc", Some("\"e\"")),
                "{name}"
            );
            // Over HTTP/1 only the first three affect message framing.
            let is_allowed = ["keep-alive", "te"].contains(&name) && !transport.is_multiplexed();
            assert_eq!(response.trailer(name).is_some(), is_allowed, "{name}");
        }
        server.stop().await;
    });
}
