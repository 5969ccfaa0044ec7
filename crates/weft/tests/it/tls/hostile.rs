//! Misbehaving clients.

use super::*;

#[test]
fn input_that_is_not_tls_gets_400_or_an_alert() {
    let authority = Authority::new("root");
    let settings = with_identity(authority.sign(&["a.test"]).identity());
    rejects_input_that_is_not_tls(&authority, settings.clone());
    let named_identities = Some(NamedIdentities::default());
    rejects_input_that_is_not_tls(&authority, TlsSettings { named_identities, ..settings });
}

fn rejects_input_that_is_not_tls(authority: &Authority, settings: TlsSettings) {
    let (server, errors) = serve(settings);
    for (sent, expected, reason) in [
        (
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            "without TLS",
        ),
        (b"PRI * HTTP/2.0\r\n\r\n", b"HTTP/1.1 400 ", "without TLS"),
        // Alert, fatal, decode_error (RFC 8446 §6.2), or unexpected_message.
        (b"\x00garbage garbage garbage", b"\x15\x03", "handshake failed"),
        (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", b"\x15\x03", "handshake failed"),
        (b"\x17\x03\x03\x00\x05hello", b"\x15\x03", "handshake failed"),
        // An incomplete ClientHello.
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"", "closed"),
    ] {
        let mut socket = connect(&server);
        socket.write_all(sent).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let received = read_to_end(&socket);
        assert!(
            received.starts_with(expected),
            "{}: {}",
            sent.escape_ascii(),
            received.escape_ascii()
        );
        assert_eq!(received.is_empty(), expected.is_empty(), "{}", sent.escape_ascii());
        let (kind, message) = errors.recv_timeout(TEST_TIMEOUT).unwrap();
        assert_eq!(kind.fault(), Fault::Peer);
        assert!(message.contains(reason), "{}: {message}", sent.escape_ascii());
        if expected.starts_with(b"HTTP") {
            assert!(Seen::parse(&received, false).unwrap().text().contains("https://"));
        }
    }
    // A connection without any input is not reported as an error.
    drop(connect(&server));
    Client::connect(&server, &client_config(authority), "a.test").unwrap().get("/");
    assert!(errors.try_recv().is_err());
    stop(server);
}

#[test]
fn negotiates_alpn_and_rejects_unknown_protocols() {
    let authority = Authority::new("root");
    let (server, errors) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    for (offered, chosen) in [
        (&["http/1.1"][..], Ok(Some("http/1.1"))),
        (&["x", "http/1.1"], Ok(Some("http/1.1"))),
        (&["http/1.0", "http/1.1"], Ok(Some("http/1.1"))),
        // Sent by `curl --http1.0`.
        (&["http/1.0"], Ok(Some("http/1.0"))),
        (&[], Ok(None)),
        (&["x"], Err("NoApplicationProtocol")),
        // Last, because a client that negotiates HTTP/2 and sends no preface is reported, too.
        (&["http/1.1", "h2"], Ok(Some("h2"))),
    ] {
        let mut config = client_config(&authority);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        match (Client::connect(&server, &config, "a.test"), chosen) {
            (Ok(client), Ok(chosen)) => {
                assert_eq!(client.tls.alpn_protocol(), chosen.map(str::as_bytes));
            }
            (Err(error), Err(alert)) => {
                assert!(error.to_string().contains(alert), "{error}");
                assert_eq!(errors.recv_timeout(TEST_TIMEOUT).unwrap().0, ErrorKind::TlsFailed);
            }
            (client, _) => panic!("{offered:?}: {:?}", client.map(|_| ())),
        }
    }
    stop(server);
    let http1 = Settings { http2: false, ..Settings::default() };
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let (server, _) = serve_with(&tls, http1);
    let mut config = client_config(&authority);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let client = Client::connect(&server, &config, "a.test").unwrap();
    assert_eq!(client.tls.alpn_protocol(), Some(&b"http/1.1"[..]));
    stop(server);
}

#[test]
fn slow_reading_client_receives_the_full_response() {
    const LENGTH: usize = 16 << 20;
    let authority = Authority::new("root");
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let stall_timeout = 2 * SHORT_TIMEOUT;
    let (server, _) = serve_with(&tls, Settings { stall_timeout, ..Settings::default() });
    let config = client_config(&authority);
    // Far above the minimum rate, but the kernel does not report the socket as writable for longer
    // than the stall timeout. The attempt is repeated if the machine delayed the client.
    until("the full response is received", || {
        let mut client = Client::connect(&server, &config, "a.test").unwrap();
        client.send(format!("GET /{LENGTH} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let (begin, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        while begin.elapsed() < 4 * stall_timeout {
            std::thread::sleep(Duration::from_millis(20));
            if !client.receive().unwrap_or(false) {
                break;
            }
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        while client.receive().unwrap_or(false) {}
        let is_complete = client.received.len() > LENGTH;
        assert!(
            is_complete || longest > SHORT_TIMEOUT,
            "closed after {} bytes",
            client.received.len()
        );
        is_complete
    });
    stop(server);
}

#[test]
fn trickling_handshake_times_out() {
    let authority = Authority::new("root");
    let identity = authority.sign(&["a.test"]).identity();
    let tls = Tls::new(with_identity(identity)).unwrap();
    let settings = Settings { head_timeout: SHORT_TIMEOUT, ..Settings::default() };
    let (server, errors) = serve_with(&tls, settings);
    let name = ServerName::try_from("a.test").unwrap();
    let mut hello = Vec::new();
    let config = Arc::new(client_config(&authority));
    ClientConnection::new(config, name).unwrap().write_tls(&mut hello).unwrap();
    let socket = connect(&server);
    socket.set_nodelay(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut bytes = hello[..hello.len() - 1].iter();
    let mut is_closed = false;
    until("the server closes the connection", || {
        if let Some(&byte) = bytes.next() {
            is_closed |= (&socket).write(&[byte]).is_err();
        }
        let mut buffer = [0; 64];
        match (&socket).read(&mut buffer) {
            Ok(0) => is_closed = true,
            Ok(_) => panic!("received unexpected bytes"),
            Err(error) => is_closed |= error.kind() != IoKind::WouldBlock,
        }
        is_closed
    });
    assert_eq!(errors.recv_timeout(TEST_TIMEOUT).unwrap().0, ErrorKind::TooSlow);
    stop(server);
}

#[test]
fn truncated_request_body_fails_with_body_incomplete() {
    let authority = Authority::new("root");
    let (server, errors) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let config = client_config(&authority);
    for (sends_close_notify, framing) in [
        (false, "Content-Length: 100000"),
        (true, "Content-Length: 100000"),
        (false, "Transfer-Encoding: chunked"),
        (true, "Transfer-Encoding: chunked"),
    ] {
        let mut client = Client::connect(&server, &config, "a.test").unwrap();
        client.send(format!("POST /count HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        client.send("5\r\nhello\r\n");
        if sends_close_notify {
            client.tls.send_close_notify();
            client.flush().unwrap();
        }
        client.socket.shutdown(Shutdown::Write).unwrap();
        let (kind, _) = errors.recv_timeout(TEST_TIMEOUT).unwrap();
        assert_eq!(kind, ErrorKind::BodyIncomplete, "{framing}, {sends_close_notify}");
        // Closing before the response would be another error.
        while let Ok(true) = client.receive() {}
    }
    // Between requests a missing close_notify is not an error.
    let mut client = Client::connect(&server, &config, "a.test").unwrap();
    client.get("/");
    drop(client);
    let mut last = Client::connect(&server, &config, "a.test").unwrap();
    last.get("/");
    assert!(errors.try_recv().is_err());
    stop(server);
}
