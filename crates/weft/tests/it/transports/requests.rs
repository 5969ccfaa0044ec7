//! Heads of requests, and interim responses.

use super::*;

// -- requests

#[test]
fn request_exposes_method_target_and_fields() {
    async fn app(request: Request) -> Response {
        let values = |name: &str| {
            let values = request.headers().get_all(name).map(|v| v.escape_ascii().to_string());
            values.collect::<Vec<_>>().join("|")
        };
        Response::text(format!(
            "{} {} {:?} {:?} x-a: {} cookie: {}",
            request.method(),
            request.target(),
            &*request.segments(),
            request.query(),
            values("x-a"),
            values("cookie"),
        ))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let mut client = server.client().await;
        for (request, expected) in [
            (ClientRequest::get("/"), "GET / [] None x-a:  cookie: "),
            (
                ClientRequest::get("/buenos/d%C3%ADas/?a=b%20c&d"),
                "GET /buenos/d%C3%ADas/?a=b%20c&d [\"buenos\", \"días\", \"\"] \
                 Some(\"a=b%20c&d\") x-a:  cookie: ",
            ),
            (
                ClientRequest::new("PURGE", "//a/../b?").field("x-a", "1").field("x-a", "días"),
                "PURGE //a/../b? [\"\", \"a\", \"..\", \"b\"] Some(\"\") \
                 x-a: 1|d\\xc3\\xadas cookie: ",
            ),
            (
                ClientRequest::get("/").field("cookie", "a=1; b=2").field("x-a", ""),
                "GET / [] None x-a:  cookie: a=1; b=2",
            ),
        ] {
            assert_eq!(client.fetch(request).await.text(), expected);
        }
        server.stop().await;
    });
}

#[test]
fn request_exposes_connection_properties() {
    async fn app(request: Request) -> Response {
        let peer = request.peer();
        Response::text(format!(
            "{:?} {:?} {:?} {:?} {} {} {:?} {:?}",
            request.version(),
            request.authority(),
            request.host(),
            request.headers().get("host"),
            request.is_secure(),
            request.scheme(),
            peer.tls().and_then(|tls| tls.alpn()),
            peer.address().map(|peer| peer.ip().to_string()),
        ))
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let secure = match transport {
            Transport::Http1 | Transport::Http2 => "false http None",
            Transport::Http1Tls => "true https Some(\"http/1.1\")",
            Transport::Http2Tls => "true https Some(\"h2\")",
            #[cfg(feature = "http3")]
            Transport::Http3 => "true https Some(\"h3\")",
        };
        let host = "Some(\"a\") Some(\"a\") Some(\"a\")";
        let expected = format!("{:?} {host} {secure} Some(\"127.0.0.1\")", transport.version());
        assert_eq!(server.client().await.get("/").await.text(), expected);
        server.stop().await;
    });
}

#[test]
fn rejects_oversized_request_heads() {
    on_every_transport(async |transport| {
        let settings = Settings { max_request_line_bytes: 200, ..Settings::default() };
        let server = transport.serve_with(settings, echo);
        let mut ok = server.client().await;
        for (request, status) in [
            (ClientRequest::get(format!("/{}", "x".repeat(300))), 414),
            (ClientRequest::get("/").field("x", "y".repeat(20_000)), 431),
            (
                (0..101)
                    .fold(ClientRequest::get("/"), |request, n| request.field("x", n.to_string())),
                431,
            ),
            (
                (0..90)
                    .fold(ClientRequest::get("/"), |request, n| request.field("x", n.to_string())),
                200,
            ),
        ] {
            let mut client = server.client().await;
            match client.send(request).await.try_collect().await {
                Ok(response) => assert_eq!(response.status, status),
                Err(error) => assert!(transport.obeys_field_limit() && status == 431, "{error:?}"),
            }
            assert_eq!(ok.get("/").await.text(), "ok");
        }
        server.stop().await;
    });
}

// -- interim responses

#[test]
fn sends_100_continue_only_when_the_application_reads() {
    async fn app(request: Request) -> weft::Result<Response> {
        match request.path() {
            "/unread" => Ok(Response::text("no, thanks")),
            "/echo" => Ok(Response::from_body(request.into_body())),
            _ => Ok(Response::from_body(request.into_body().collect(100).await?)),
        }
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        for (target, expectation, interims, status, text) in [
            ("/read", "100-continue", &[100][..], 200, "hello"),
            ("/read", "100-Continue", &[100], 200, "hello"),
            ("/echo", "100-continue", &[100], 200, "hello"),
            ("/unread", "100-continue", &[], 200, "no, thanks"),
            ("/read", "miracles", &[], 417, ""),
        ] {
            let request = ClientRequest::post(target).field("expect", expectation);
            let (received, response) = server.fetch_with_interim(request, "hello").await;
            let received: Vec<u16> = received.into_iter().map(|(status, _)| status).collect();
            assert_eq!((&*received, response.status), (interims, status), "{target} {expectation}");
            assert!(response.text() == text || status == 417, "{target} {expectation}");
        }
        server.stop().await;
    });
}

#[test]
fn sends_early_hints_before_the_response() {
    async fn app(request: Request) -> Response {
        request.early_hints(["</a.css>; rel=preload", "</b>\r\nx: y"]);
        if request.path() == "/slow" {
            tokio::task::yield_now().await;
        }
        request.early_hints(["</c>"]);
        Response::text("ok")
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        for target in ["/slow", "/fast"] {
            let (interims, response) =
                server.fetch_with_interim(ClientRequest::get(target), "").await;
            assert!(interims.iter().all(|(status, _)| *status == 103), "{target}: {interims:?}");
            assert_eq!(
                interims.len(),
                if target == "/slow" { 2 } else { 1 },
                "{target}: {interims:?}"
            );
            let links: Vec<String> = interims.into_iter().flat_map(|(_, links)| links).collect();
            assert_eq!(links, ["</a.css>; rel=preload", "</b>  x: y", "</c>"], "{target}");
            assert_eq!((response.status, response.text()), (200, "ok"), "{target}");
        }
        // A client that ignores interim responses reads the final response.
        let mut client = server.client().await;
        assert_eq!(client.get("/slow").await.text(), "ok");
        assert_eq!(client.get_reconnecting("/fast").await.text(), "ok");
        server.stop().await;
    });
}

#[test]
fn sends_interim_responses_of_the_application() {
    async fn app(request: Request) -> Response {
        request.early_hints(["</a>"]);
        // The application may not send 100 and 101, and 200 is not an interim status.
        for status in [102, 100, 103, 101, 199, 200] {
            let interim = Response::new(StatusCode::from_u16(status).unwrap());
            let interim = interim.with_header(header::LINK, status.to_string());
            request.interim(interim.with_header(header::CONTENT_LENGTH, "5"));
        }
        Response::text("ok")
    }
    on_every_transport(async |transport| {
        let server = transport.serve(app);
        let (interims, response) = server.fetch_with_interim(ClientRequest::get("/"), "").await;
        let expected = [(103, "</a>"), (102, "102"), (103, "103"), (199, "199")];
        assert_eq!(interims, expected.map(|(status, link)| (status, vec![link.to_owned()])));
        assert_eq!((response.status, response.text()), (200, "ok"));
        server.stop().await;
    });
}
