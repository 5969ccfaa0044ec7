//! Upgrades and tunnels.

use super::*;

/// Accepts upgrades to the protocol `shout`, which echoes text in upper case.
async fn shout(request: Request) -> Response {
    if !request.headers().list("upgrade").any(|name| name == b"shout") {
        return Response::text("no upgrade");
    }
    if request.path() == "/no" {
        return Response::text("refused").with_status(StatusCode::FORBIDDEN);
    }
    Response::upgrade("shout", async |mut connection| {
        let mut all = Vec::new();
        let mut buffer = [0; 1024];
        // Data is echoed immediately; the final text is sent after the end of the input.
        while let Ok(length @ 1..) = connection.read(&mut buffer).await {
            all.extend_from_slice(&buffer[..length]);
            let upper = buffer[..length].to_ascii_uppercase();
            connection.write_all(&upper).await.unwrap();
        }
        let end = format!(" {} bytes", all.len());
        connection.write_all(end.as_bytes()).await.unwrap();
        let _ = AsyncWriteExt::shutdown(&mut connection).await;
    })
    .with_header(header::SEC_WEBSOCKET_PROTOCOL, "x")
}

#[test]
fn forwards_upgrades_and_half_closes() {
    let upstream = TestServer::start(shout);
    let proxy = Proxy::start(&upstream.url("/"), "");
    let fields = "Host: h\r\nConnection: Upgrade\r\nUpgrade: shout";
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The first bytes are sent with the request.
    stream.write_all(format!("GET / HTTP/1.1\r\n{fields}\r\n\r\nhello").as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in ["upgrade: shout", "connection: upgrade", "sec-websocket-protocol: x"] {
        assert_eq!(head.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line} in {head}");
    }
    let mut five = [0; 5];
    stream.read_exact(&mut five).unwrap();
    assert_eq!(&five, b"HELLO");
    stream.write_all(b" world").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, " WORLD 11 bytes");
    // A rejected upgrade and a request without an upgrade have ordinary responses.
    for (target, upgrade, expected) in [
        ("/no", "Upgrade: shout\r\nConnection: upgrade\r\n", (403, "refused")),
        ("/", "", (200, "no upgrade")),
    ] {
        let mut client = Client::tcp(proxy.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n"));
        let response = client.response();
        assert_eq!((response.status, &*response.body), (expected.0, expected.1.as_bytes()));
    }
}

#[tokio::test]
async fn forwards_http2_extended_connect_as_an_upgrade() {
    let upstream = TestServer::start(shout);
    let proxy = Proxy::start(&upstream.url("/"), "");
    let stream = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    while !client.is_extended_connect_protocol_enabled() {
        tokio::task::yield_now().await;
    }
    for (path, status, expected) in [("/", 200, "HELLO 5 bytes"), ("/no", 403, "refused")] {
        let mut request = http::Request::new(());
        *request.method_mut() = http::Method::CONNECT;
        *request.uri_mut() = format!("http://h{path}").parse().unwrap();
        request.extensions_mut().insert(h2::ext::Protocol::from_static("shout"));
        client = client.ready().await.unwrap();
        let (response, mut send) = client.send_request(request, false).unwrap();
        send.send_data("hello".into(), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        let (mut body, mut text) = (response.into_body(), String::new());
        while let Some(data) = body.data().await {
            text += std::str::from_utf8(&data.unwrap()).unwrap();
        }
        assert_eq!(text, expected, "{path}");
    }
}

#[test]
fn shutdown_closes_tunnels_after_the_grace_period() {
    let upstream = TestServer::start(shout);
    let route = proxy_route(&upstream.url("/"));
    let server = Weft::start(&mut weft([
        "--route",
        &route,
        "--listen",
        "127.0.0.1:0",
        "--drain-timeout",
        "1s",
    ]));
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\n");
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    server.signal(Signal::TERM);
    until("the server stops to accept connections", || {
        TcpStream::connect(server.address()).is_err()
    });
    // During the grace period the tunnel still works.
    client.send("still");
    assert_eq!(client.body(5), b"STILL");
    client.assert_closed();
    assert_eq!(server.wait_with_output().status, Ok(0));
}

#[test]
fn tunnel_timeout_closes_silent_tunnels() {
    let upstream = TestServer::start(shout);
    let proxy = Proxy::start(&upstream.url("/"), "tunnel_timeout = \"50ms\"");
    let mut client = Client::tcp(proxy.address());
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\n");
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    client.assert_closed();
}

/// Performs one upgrade over HTTP/1 and one over HTTP/2, in which `hello` is echoed, and returns
/// the server after both have ended.
async fn server_after_tunnels(format: &str, config: &str) -> (Weft, TestServer) {
    let upstream = TestServer::start(shout);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nlog.format = \"{format}\"\n[hosts.\"*\"]\n\
         \"/\" = {{ proxy = \"{}\", {config} }}\n",
        upstream.url("/")
    );
    std::fs::write(&file, text).unwrap();
    let server = Weft::start(weft(["--config"]).arg(&file));
    let mut client = server.client();
    client
        .send("GET /h1 HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\nhello");
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    assert_eq!(client.body(5), b"HELLO");
    drop(client);
    let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    while !client.is_extended_connect_protocol_enabled() {
        tokio::task::yield_now().await;
    }
    let mut request = http::Request::new(());
    *request.method_mut() = http::Method::CONNECT;
    *request.uri_mut() = "http://h/h2".parse().unwrap();
    request.extensions_mut().insert(h2::ext::Protocol::from_static("shout"));
    client = client.ready().await.unwrap();
    let (response, mut send) = client.send_request(request, false).unwrap();
    send.send_data("hello".into(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    while let Some(data) = body.data().await {
        data.unwrap();
    }
    (server, upstream)
}

/// An upgraded connection has one line, at its end, with its bytes. HTTP/2 has it as `CONNECT` with
/// the status 200, as it was sent.
#[tokio::test(flavor = "multi_thread")]
async fn tunnels_have_a_line_at_their_end() {
    let format = "{event} {method} {path} {status} {bytes} {bytes_received} {route}";
    let (server, _upstream) = server_after_tunnels(format, "").await;
    until("both lines are written", || server.stdout().lines().count() == 2);
    let mut client = server.client();
    assert_eq!(client.get("/plain").status, 200);
    let output = server.stop();
    let mut lines: Vec<&str> = output.stdout.lines().collect();
    lines.sort_unstable();
    let expected = [
        "request GET /plain 200 10 - /",
        // The upstream sends `HELLO` and ` 5 bytes`.
        "tunnel GET /h1 101 13 5 /",
        "tunnel GET /h2 101 13 5 /",
    ];
    assert_eq!(lines, expected);
}

/// Long tunnels are found, although their response was fast.
#[tokio::test(flavor = "multi_thread")]
async fn min_duration_is_compared_with_the_duration_of_a_tunnel() {
    let logged = "access_log = { min_duration = \"1h\" }";
    let (server, _) = server_after_tunnels("{event} {path}", logged).await;
    assert_eq!(server.stop().stdout, "");
    let upstream = TestServer::start(shout);
    let file = tempfile::NamedTempFile::new().unwrap();
    let logged = "{ min_duration = \"250ms\", format = \"{event} {path}\" }";
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = {{ proxy = \"{}\", \
         tunnel_timeout = \"300ms\", access_log = {logged} }}\n",
        upstream.url("/")
    );
    std::fs::write(file.path(), text).unwrap();
    let server = Weft::start(weft(["--config"]).arg(file.path()));
    let mut client = server.client();
    client.send("GET /long HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\n");
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    client.assert_closed();
    until("the line is written", || server.stdout() == "tunnel /long\n");
}

/// A tunnel that a shutdown cuts has its line, too.
#[test]
fn tunnel_that_a_shutdown_cuts_has_a_line() {
    let upstream = TestServer::start(shout);
    let route = proxy_route(&upstream.url("/"));
    let server = Weft::start(&mut weft([
        "--route",
        &route,
        "--listen",
        "127.0.0.1:0",
        "--drain-timeout",
        "100ms",
        "--log-format",
        "{event} {path} {status}",
    ]));
    let mut client = server.client();
    client.send("GET /cut HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\n");
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    assert_eq!(server.stop().stdout, "tunnel /cut 101\n");
}
