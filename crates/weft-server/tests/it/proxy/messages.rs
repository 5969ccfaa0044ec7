//! Requests and responses that are forwarded.

use super::*;

#[test]
fn forwards_requests_with_forwarding_fields() {
    let upstream = TestServer::start(echo);
    let at = upstream.address();
    for (path, request, expected) in [
        (
            "/",
            "GET /a%20b/?c=d HTTP/1.1\r\nHost: h:1\r\nAccept: x\r\nConnection: close\r\n\r\n",
            "GET /a%20b/?c=d\nhost: h:1\naccept: x\n\n",
        ),
        (
            "/p/q/",
            "DELETE /a?b HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
             X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nConnection: close\r\n\r\n",
            "DELETE /p/q/a?b\nhost: h\n\n",
        ),
        (
            "/",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            "POST /\nhost: h\ncontent-length: 5\n\nhello",
        ),
        (
            "/",
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            "GET /\nhost: h\ncontent-length: 5\n\nhello",
        ),
        (
            "/",
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\nTE: trailers\r\n\
             Connection: close, te\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: 1\r\n\r\n",
            "PUT /\nhost: h\ntrailer: x-t\ntransfer-encoding: chunked\nte: trailers\nconnection: te\n\
             \nhello\ntrailer x-t: 1",
        ),
        (
            "/",
            "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
             2\r\nhe\r\n0\r\n\r\n",
            "GET /\nhost: h\ncontent-length: 2\n\nhe",
        ),
    ] {
        let options = "request_trailers = [\"x-t\"]";
        let proxy = Proxy::start(&format!("http://{at}{path}"), options);
        let response = send_request(proxy.address(), request);
        // Added fields; only the host depends on the request.
        let host = if request.contains("h:1") { "h:1" } else { "h" };
        let added = [
            "x-forwarded-for: 127.0.0.1".to_owned(),
            "x-forwarded-proto: http".to_owned(),
            format!("x-forwarded-host: {host}"),
            format!("forwarded: for=127.0.0.1;host=\"{host}\";proto=http"),
            "via: 1.1 weft".to_owned(),
        ];
        let (head, body) = response.body.split_once("\n\n").unwrap();
        let (ours, mut rest): (Vec<&str>, Vec<&str>) =
            head.lines().partition(|line| added.iter().any(|field| field == line));
        assert_eq!(ours.len(), added.len(), "{head}");
        rest.extend(["", body]);
        assert_eq!(rest.join("\n"), expected);
        assert_eq!((response.status, response.is_complete), (200, true));
        let cookies = response.fields.iter().filter(|field| field.starts_with("set-cookie"));
        assert_eq!(cookies.cloned().collect::<Vec<_>>(), ["set-cookie: a=1", "set-cookie: b"]);
        assert!(response.fields.contains(&"via: 1.1 weft".to_owned()), "{:?}", response.fields);
    }
}

/// Each row: if the client is trusted, the setting, and the names of its fields, each with the
/// value `evil`; then the names that reach the upstream with that value.
#[test]
fn drops_fields_that_upstreams_would_trust() {
    let upstream = TestServer::start(echo);
    for (is_trusted, field_names, names, expected) in [
        (
            false,
            "plain",
            "X-Other Accept sec-x cookie2 c s x",
            "x-other accept sec-x cookie2 c s x",
        ),
        // Names that upstreams fold to others.
        (false, "plain", "X_Forwarded_For X_Other X-A_B _ a.b !#$%&'*+.^`|~ Content_Length", ""),
        (true, "plain", "X_Forwarded_For X_Other", ""),
        (false, "underscores", "X_Other X-A_B a.b_c", "x_other x-a_b"),
        (false, "any", "X_Other a.b ~", "x_other a.b ~"),
        (
            false,
            "any",
            "X_Forwarded_For x.forwarded-proto X_forwarded.host forwarded Host_ ",
            "host_",
        ),
        (
            false,
            "any",
            "Content_Length Transfer_Encoding Proxy_Authorization te_ Connection.",
            "te_ connection.",
        ),
        (false, "any", "Client_Cert X_SSL_Client_Verify ssl.client_cert", ""),
        // Fields about the client and its certificate.
        (false, "plain", "X-Forwarded-For X-Forwarded-Port X-Forwarded-Ssl X-Forwarded-User", ""),
        (false, "plain", "X-Real-IP True-Client-IP CF-Connecting-IP Client-IP X-Client-IP", ""),
        (false, "plain", "X-Scheme Front-End-Https X-Original-URL X-Rewrite-URL X-Host", ""),
        (
            false,
            "any",
            "X_Real_IP x.real.ip true_client_ip x-real-ip_ X-Realip",
            "x-real-ip_ x-realip",
        ),
        (
            true,
            "plain",
            "X-Real-IP True-Client-IP X-Scheme X-Original-URL",
            "x-real-ip true-client-ip x-scheme x-original-url",
        ),
        (false, "plain", "Client-Cert client-cert-chain X-SSL-Client-Verify SSL-CLIENT-S-DN", ""),
        (false, "plain", "X-Client-Cert X-Forwarded-Client-Cert X-Amzn-Mtls-Clientcert-Leaf", ""),
        (
            true,
            "plain",
            "Client-Cert X-SSL-Verified X-Forwarded-Port",
            "client-cert x-ssl-verified x-forwarded-port",
        ),
    ] {
        let trusted = if is_trusted { ", trusted = [\"127.0.0.0/8\"]" } else { "" };
        let options = format!("field_names = \"{field_names}\"{trusted}");
        let proxy = Proxy::start(&upstream.url("/"), &options);
        let fields: String =
            names.split_whitespace().map(|name| format!("{name}: evil\r\n")).collect();
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}Connection: close\r\n\r\n");
        let response = send_request(proxy.address(), &request);
        let seen = response.body.lines().filter_map(|line| line.strip_suffix(": evil"));
        let seen: Vec<&str> = seen.collect();
        assert_eq!(seen.join(" "), expected, "{is_trusted} {field_names:?} {names}");
    }
}

/// Each row: the setting, and the trailers that reach the upstream.
#[test]
fn forwards_only_listed_request_trailers() {
    const SENT: &str = "X-Checksum: 1\r\nX-Forwarded-For: 2\r\nX_Forwarded_For: 3\r\n\
        Forwarded: for=4\r\nAuthorization: 5\r\nContent-Type: 6\r\nCookie: 7\r\n\
        Client-Cert: 8\r\nx-checksum: 9\r\nHost: a\r\n";
    let upstream = TestServer::start(echo);
    for (listed, expected) in [
        (&[][..], ""),
        (&["x-other"], ""),
        (&["x-checksum", "x-other"], "\ntrailer x-checksum: 1\ntrailer x-checksum: 9"),
    ] {
        let options = format!("request_trailers = {listed:?}");
        let proxy = Proxy::start(&upstream.url("/"), &options);
        let request = format!(
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
             2\r\nhe\r\n0\r\n{SENT}\r\n"
        );
        let response = send_request(proxy.address(), &request);
        let (_, body) = response.body.split_once("\n\n").unwrap();
        assert_eq!(body, format!("he{expected}"), "{listed:?}");
    }
}

/// Each row: whether the body is received before it is sent. It has no content.
#[test]
fn forwards_trailers_of_empty_bodies() {
    let upstream = TestServer::start(echo);
    for is_buffered in [true, false] {
        let options = format!("buffer_requests = {is_buffered}, request_trailers = [\"x-t\"]");
        let proxy = Proxy::start(&upstream.url("/"), &options);
        let request = "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\n";
        let response = send_request(proxy.address(), request);
        let (head, body) = response.body.split_once("\n\n").unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{is_buffered}: {head}");
        assert_eq!(body, "\ntrailer x-t: 1", "{is_buffered}");
    }
}

/// The path of a route itself has a slash at its end for the upstream only if the URL has one.
#[test]
fn the_path_of_a_route_ends_as_the_url() {
    let upstream = TestServer::start(echo);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    let url = |path| upstream.url(path);
    let configuration = format!(
        "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\
         \"/hook\" = \">> {}\"\n\"/slash\" = \">> {}\"\n\"/root\" = \">> {}\"\n\"/\" = \">> {}\"\n",
        url("/hook"),
        url("/hook/"),
        url("/"),
        url("/app")
    );
    fs::write(&file, configuration).unwrap();
    let server = Weft::start(weft(["--config"]).arg(&file));
    for (target, seen) in [
        ("/hook", "/hook"),
        ("/hook?a=b", "/hook?a=b"),
        ("/hook/", "/hook/"),
        ("/hook/x", "/hook/x"),
        ("/slash", "/hook/"),
        ("/slash/", "/hook/"),
        ("/slash/x", "/hook/x"),
        ("/root", "/"),
        ("/root?a", "/?a"),
        ("/", "/app/"),
        ("/x", "/app/x"),
    ] {
        let response = get(server.address(), target);
        let first = response.body.lines().next().unwrap_or_default();
        assert_eq!((response.status, first), (200, &*format!("GET {seen}")), "{target}");
    }
}

/// Behind a balancer that ends TLS without a word.
#[test]
fn routes_may_replace_generated_fields() {
    let upstream = TestServer::start(echo);
    let options = "request_headers = { X-Forwarded-Proto = \"https\", \"Forwarded\" = \"for=_x\" }, \
                   remove_request_headers = [\"X-Forwarded-Host\"]";
    let proxy = Proxy::start(&upstream.url("/"), options);
    let request =
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: http\r\nConnection: close\r\n\r\n";
    let body = send_request(proxy.address(), request).body;
    let mut fields: Vec<&str> = body.lines().filter(|line| line.contains("forwarded")).collect();
    fields.sort();
    assert_eq!(
        fields,
        ["forwarded: for=_x", "x-forwarded-for: 127.0.0.1", "x-forwarded-proto: https"]
    );
}

/// Routes are chosen by the normalized path.
#[test]
fn doubled_slashes_reach_upstreams_without_a_path() {
    let upstream = TestServer::start(echo);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    let configuration = format!(
        "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\
         \"/\" = \">> {0}\"\n\"/img/\" = \">> {0}/\"\n\"/path/\" = \">> {0}/app/\"\n\
         \"/kept/\" = {{ proxy = \"{0}/app/\", merge_slashes = false }}\n\
         \"/merged/\" = {{ proxy = \"{0}\", merge_slashes = true }}\n\
         \"/admin/\" = {{ respond = \"no\", status = 403 }}\n",
        upstream.url("")
    );
    fs::write(&file, configuration).unwrap();
    let server = Weft::start(weft(["--config"]).arg(&file));
    for (target, seen) in [
        ("//a//b/?c//d", "//a//b/?c//d"),
        ("/img/200x200/http://h//a.png", "/200x200/http://h//a.png"),
        ("//img//a", "//a"),
        ("/path/a//b", "/app/a/b"),
        ("/kept/a//b", "/app/a//b"),
        ("/merged/a//b", "/a/b"),
        // The segments before `..` are ambiguous.
        ("/a//../b//c", "/b/c"),
    ] {
        let response = get(server.address(), target);
        let first = response.body.lines().next().unwrap_or_default();
        assert_eq!((response.status, first), (200, &*format!("GET {seen}")), "{target}");
    }
    for target in ["//admin/x", "/admin//x", "/a/..//admin/x"] {
        assert_eq!(get(server.address(), target).status, 403, "{target}");
    }
}

#[test]
fn trace_is_not_forwarded() {
    let upstream = TestServer::start(echo);
    let proxy = Proxy::start(&upstream.url("/"), "");
    let request = "TRACE / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let response = send_request(proxy.address(), request);
    assert_eq!(response.status, 405);
    assert!(response.fields.iter().any(|field| field.starts_with("allow: get, ")));
}

/// `/admin/` is restricted, and the rest is forwarded. The upstream decodes paths and folds names.
#[test]
fn paths_do_not_pass_a_restricted_route() {
    let upstream = TestServer::start(echo);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    let configuration = format!(
        "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\
         \"/admin/\" = {{ respond = \"restricted\", status = 403 }}\n\
         \"/\" = \">> {}\"\n",
        upstream.url("/")
    );
    fs::write(&file, configuration).unwrap();
    let server = Weft::start(weft(["--config"]).arg(&file));
    for (target, status, seen) in [
        ("/admin/secret", 403, ""),
        ("/x/%2e%2e//%61dmin/secret", 403, ""),
        ("/admin%2Fsecret", 400, ""),
        ("/x/..%2fadmin/secret", 400, ""),
        ("/x/..;/admin/secret", 400, ""),
        ("/admin;a=b/secret", 400, ""),
        ("/%5Cadmin\\secret", 400, ""),
        ("/x%00", 400, ""),
        ("http://h/admin%2Fsecret", 400, ""),
        // Identifiers with slashes, as of GitLab and npm, are forwarded unchanged.
        ("/api/projects/group%2Fadmin?a=%2F", 200, "/api/projects/group%2Fadmin?a=%2F"),
        ("/@scope%2fname", 200, "/@scope%2fname"),
        ("/a;b=c/%252e%252e%252fadmin", 200, "/a;b=c/%252e%252e%252fadmin"),
    ] {
        let response = get(server.address(), target);
        assert_eq!(response.status, status, "{target}: {}", response.body);
        let line = response.body.lines().next().unwrap_or_default();
        assert_eq!(line.strip_prefix("GET ").unwrap_or_default(), seen, "{target}");
    }
    let options = "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    assert_eq!(send_request(server.address(), options).status, 204);
    server.stop();
}

#[test]
fn host_can_be_that_of_the_upstream() {
    let upstream = TestServer::start(echo);
    let proxy = Proxy::start(&upstream.url("/"), "host = \"upstream\"");
    let response = get(proxy.address(), "/");
    assert!(
        response.body.contains(&format!("\nhost: {}\n", upstream.address())),
        "{}",
        response.body
    );
    assert!(response.body.contains("\nx-forwarded-host: h\n"), "{}", response.body);
}

#[test]
fn forwards_responses_and_reuses_the_connection() {
    for (method, sent, expected) in [
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", (200, "content-length: 2", "ab")),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", (200, "content-length: 0", "")),
        ("GET", "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nab", (404, "content-length: 2", "ab")),
        (
            "GET",
            "HTTP/1.1 599 Odd\r\nContent-Length: 2\r\n\r\nab",
            (599, "content-length: 2", "ab"),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            (200, "transfer-encoding: chunked", "abc"),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n\
             1\r\na\r\n0\r\nX-T: 1\r\nSet-Cookie: no\r\n\r\n",
            (200, "transfer-encoding: chunked, trailer: x-t", "ax-t: 1\r\n"),
        ),
        ("GET", "HTTP/1.1 204 No\r\n\r\n", (204, "", "")),
        ("GET", "HTTP/1.1 304 No\r\nETag: \"e\"\r\n\r\n", (304, "etag: \"e\"", "")),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", (200, "content-length: 7", "")),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            (200, "transfer-encoding: chunked", ""),
        ),
        (
            "GET",
            "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            (200, "103: link: </a.css>, content-length: 0", ""),
        ),
        (
            "GET",
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            (200, "102: , content-length: 0", ""),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x-mine, keep-alive\r\nX-Mine: 1\r\n\
             Keep-Alive: timeout=1\r\nProxy-Authenticate: x\r\n\r\n",
            (200, "content-length: 0", ""),
        ),
    ] {
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let upstream = raw_upstream(move |number, stream| {
            count.fetch_add(1, SeqCst);
            respond_with(sent.as_bytes())(number, stream);
        });
        let proxy = Proxy::start(&http_url(upstream), "via = \"\"");
        // Twice: the second request shows data left on the connection by the first.
        for _ in 0..2 {
            let text = format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            let mut response = send_request(proxy.address(), &text);
            response.fields.retain(|field| field != "connection: close");
            let mut wanted: Vec<&str> =
                expected.1.split(", ").filter(|field| !field.is_empty()).collect();
            response.fields.sort();
            wanted.sort();
            assert_eq!(response.fields, wanted, "{sent}");
            let found = (response.status, &*response.body, response.is_complete);
            assert_eq!(found, (expected.0, expected.2, true), "{sent}");
        }
        assert_eq!(connections.load(SeqCst), 1, "the connection is reused: {sent}");
    }
}

#[test]
fn invalid_responses_are_a_bad_gateway() {
    const BIG: &str = "HTTP/1.1 200 OK\r\nX: ";
    let big: &'static [u8] =
        Box::leak([BIG.as_bytes(), &[b'x'; 70_000], b"\r\n\r\n"].concat().into());
    for (case, sent) in [
        ("nothing", &b""[..]),
        ("garbage", b"\x16\x03\x01 garbage\r\n\r\n"),
        ("partial head", b"HTTP/1.1 200 OK\r\nContent-"),
        ("another version", b"HTTP/3.7 200 OK\r\n\r\n"),
        ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        ("a bad length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab"),
        (
            "length and chunks",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        ),
        ("oversized head", big),
        ("unrequested upgrade", b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
    ] {
        let upstream = raw_upstream(move |_, mut stream| {
            read_head(&mut stream);
            // The proxy may close the connection before all bytes are sent.
            let _ = stream.write_all(sent);
        });
        let proxy = Proxy::start(&http_url(upstream), "");
        let response = get(proxy.address(), "/");
        assert_eq!((response.status, response.is_complete), (502, true), "{case}");
        assert_eq!(response.body, "502 Bad Gateway\n", "{case}");
    }
    let response = get(Proxy::start(&http_url(unused_address()), "").address(), "/");
    assert_eq!((response.status, &*response.body), (502, "502 Bad Gateway\n"));
}

#[test]
fn silent_upstreams_are_a_gateway_timeout() {
    let upstream = raw_upstream(|_, mut stream| while read_head(&mut stream).is_some() {});
    let slow = Proxy::start(&http_url(upstream), "response_timeout = \"50ms\"");
    assert_eq!(get(slow.address(), "/").status, 504);
    // With a full accept queue, connection attempts are not completed.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let full = listener.local_addr().unwrap();
    let connect_soon = || TcpStream::connect_timeout(&full, Duration::from_millis(100)).ok();
    let _taken: Vec<TcpStream> = std::iter::from_fn(connect_soon).collect();
    let slow = Proxy::start(&http_url(full), "connect_timeout = \"50ms\"");
    assert_eq!(get(slow.address(), "/").status, 504);
}

#[test]
fn truncated_bodies_are_not_complete() {
    for (case, sent, silent) in [
        ("sized", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", false),
        ("chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", false),
        ("in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab", false),
        ("bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz", false),
        ("silent", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", true),
    ] {
        let upstream = raw_upstream(move |_, mut stream| {
            read_head(&mut stream);
            stream.write_all(sent.as_bytes()).unwrap();
            if silent {
                read_head(&mut stream);
            }
        });
        let proxy = Proxy::start(&http_url(upstream), "body_timeout = \"50ms\"");
        let response = get(proxy.address(), "/");
        assert_eq!((response.status, response.is_complete), (200, false), "{case}");
        assert!("ab".starts_with(&response.body), "{case}: {}", response.body);
    }
}

#[test]
fn forwards_server_sent_events_without_delay() {
    let (send, receive) = std::sync::mpsc::channel::<&'static str>();
    let receive = Mutex::new(receive);
    let upstream = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for event in receive.lock().unwrap().iter() {
            stream.write_all(event.as_bytes()).unwrap();
        }
    });
    let proxy = Proxy::start(&http_url(upstream), "");
    let mut client = Client::tcp(proxy.address());
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.head().contains(&"transfer-encoding: chunked".to_owned()));
    for _ in 0..3 {
        // Each event is sent after the previous one was received.
        send.send("data: 1\n\n").unwrap();
        assert_eq!(client.body(14), b"9\r\ndata: 1\n\n\r\n");
    }
    drop(send);
    assert_eq!(client.body(5), b"0\r\n\r\n");
}

#[test]
fn event_streams_are_exempt_from_body_timeout() {
    let (send, trigger) = std::sync::mpsc::channel::<()>();
    let trigger = Mutex::new(trigger);
    let upstream = raw_upstream(move |_, mut stream| {
        let is_events = read_head(&mut stream).unwrap().starts_with("GET /events ");
        let kind = if is_events { "Text/Event-Stream; charset=utf-8" } else { "text/plain" };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked");
        stream.write_all(format!("{head}\r\n\r\n2\r\na\n\r\n").as_bytes()).unwrap();
        if is_events {
            trigger.lock().unwrap().recv().unwrap();
            stream.write_all(b"2\r\nb\n\r\n0\r\n\r\n").unwrap();
        }
        read_head(&mut stream);
    });
    let proxy = Proxy::start(&http_url(upstream), "body_timeout = \"50ms\"");
    let mut client = Client::tcp(proxy.address());
    client.send("GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
    client.head();
    assert_eq!(client.body(7), b"2\r\na\n\r\n");
    // Meanwhile the timeout applies to other responses.
    (0..2).for_each(|_| assert!(!get(proxy.address(), "/").is_complete));
    send.send(()).unwrap();
    assert_eq!(client.body(12), b"2\r\nb\n\r\n0\r\n\r\n");
}

#[test]
fn client_disconnect_closes_the_upstream_connection() {
    for head in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"] {
        let (send, disconnected) = std::sync::mpsc::channel();
        let upstream = raw_upstream(move |_, mut stream| {
            read_head(&mut stream);
            stream.write_all(head.as_bytes()).unwrap();
            assert_eq!(read_head(&mut stream), None);
            send.send(()).unwrap();
        });
        let proxy = Proxy::start(&http_url(upstream), "");
        let mut client = Client::tcp(proxy.address());
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        if !head.is_empty() {
            client.head();
        }
        client.leave();
        disconnected.recv_timeout(PATIENCE).unwrap();
    }
}
