//! Data and records.

use super::*;

#[test]
fn transfers_bodies_in_both_directions() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let body: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    for version in [&TLS12, &TLS13] {
        let config =
            client_config_with(&authority, aws_lc_rs::default_provider(), &[version], None);
        let mut client = Client::connect(&server, &config, "a.test").unwrap();
        client.send(format!(
            "POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        client.send(&body);
        assert_eq!(client.response().unwrap().text(), body.len().to_string());
        // Less than the socket buffers hold, because this client sends everything before it reads.
        for length in [1, 1_300, 1_301, 16_384, 100_000] {
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
            client.send(&body[..length]);
            assert!(client.response().unwrap().body == body[..length], "{length}");
        }
        assert_eq!(client.get("/5000000").body.len(), 5_000_000);
    }
    stop(server);
}

#[test]
fn serves_files_and_ranges() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.bin");
    let contents: Vec<u8> = (0..3 << 20).map(|n: u32| (n / 3 % 251) as u8).collect();
    fs::write(&path, &contents).unwrap();
    FILE.set(path).unwrap();
    let mut client = Client::connect(&server, &client_config(&authority), "a.test").unwrap();
    assert!(client.get("/file").body == contents);
    for (range, expected) in [
        ("bytes=0-0", &contents[..1]),
        ("bytes=100000-299999", &contents[100_000..300_000]),
        ("bytes=-70000", &contents[contents.len() - 70_000..]),
    ] {
        client.send(format!("GET /file HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n"));
        let response = client.response().unwrap();
        assert_eq!(response.status, 206);
        assert!(response.body == expected, "{range}");
    }
    stop(server);
}

#[test]
fn records_are_small_at_first_and_large_later() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let config = client_config_with(&authority, aws_lc_rs::default_provider(), &[&TLS13], None);
    let mut client = Client::connect(&server, &config, "a.test").unwrap();
    client.get("/");
    client.wire.clear();
    client.get("/1000000");
    let records = client.records();
    // TLS 1.3 adds 17 bytes to a record: the content type and a tag of 16 bytes.
    let (small, large) = records.split_at(records.iter().position(|n| *n > 1_317).unwrap());
    let small: usize = small.iter().map(|length| length - 17).sum();
    assert!((60_000..=65_536 + 1_300).contains(&small), "{records:?}");
    assert!(large.iter().filter(|length| **length == 16_384 + 17).count() > 50, "{records:?}");
    stop(server);
}

#[test]
fn updates_traffic_keys_on_client_request() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let config = client_config_with(&authority, aws_lc_rs::default_provider(), &[&TLS13], None);
    let mut client = Client::connect(&server, &config, "a.test").unwrap();
    for _ in 0..5 {
        assert_eq!(client.get("/").status, 200);
        client.tls.refresh_traffic_keys().unwrap();
        assert_eq!(client.get("/100000").body.len(), 100_000);
    }
    stop(server);
}

#[test]
fn canonical_https_redirects_only_plain_connections() {
    let authority = Authority::new("root");
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let app = (async |_: Request| Response::text("ok")).wrap(Canonical::new().https());
    let server = boxed_server(app).workers(1).listen_tls("127.0.0.1:0", &tls).unwrap();
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let [secure, plain] = server.addresses() else { panic!("two addresses") };
    assert_eq!((secure.is_secure(), plain.is_secure()), (true, false));
    assert!(secure.to_string().starts_with("https://127.0.0.1:"), "{secure}");
    let mut client = Client::connect(&server, &client_config(&authority), "a.test").unwrap();
    assert_eq!(client.get("/").status, 200);
    let mut socket = TcpStream::connect(plain.address().unwrap()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(Seen::parse(&read_to_end(&socket), false).unwrap().status, 308);
    stop(server);
}

#[test]
fn sends_close_notify_before_closing() {
    let authority = Authority::new("root");
    let settings = Settings { idle_timeout: Duration::from_millis(50), ..Settings::default() };
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let (server, _) = serve_with(&tls, settings);
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let mut client = Client::connect(&server, &client_config(&authority), "a.test").unwrap();
        client.send(request);
        assert_eq!(client.response().unwrap().status, 200);
        // Returns an error if there is no close_notify.
        while client.receive().unwrap() {}
        assert_eq!(client.tls.reader().read(&mut [0]).unwrap(), 0, "{request}");
    }
    stop(server);
}

#[test]
fn truncated_response_ends_without_close_notify() {
    let authority = Authority::new("root");
    let (server, errors) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    for version in ["1.0", "1.1"] {
        let config = client_config(&authority);
        let mut client = Client::connect(&server, &config, "a.test").unwrap();
        client.send(format!("GET /cut HTTP/{version}\r\nHost: a\r\n\r\n"));
        let end = loop {
            match client.receive() {
                Ok(true) => {}
                end => break end,
            }
        };
        assert!(end.is_err(), "an HTTP/1.0 client would accept the body as complete");
        assert_eq!(errors.recv_timeout(TEST_TIMEOUT).unwrap().0, ErrorKind::BodyFailed);
    }
    stop(server);
}

#[test]
fn upgraded_connections_are_decrypted() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let mut client = Client::connect(&server, &client_config(&authority), "a.test").unwrap();
    let upgrade = "Connection: upgrade\r\nUpgrade: shout";
    // The first bytes are sent together with the request.
    client.send(format!("GET /shout HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n\r\nhel"));
    client.send("lo");
    client.tls.send_close_notify();
    client.flush().unwrap();
    while client.receive().unwrap() {}
    let received = String::from_utf8(client.received).unwrap();
    assert!(
        received.starts_with("HTTP/1.1 101 ") && received.ends_with("\r\n\r\nHELLO"),
        "{received}"
    );
    stop(server);
}

#[test]
fn serves_tls_over_unix_sockets() {
    let authority = Authority::new("root");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let server = boxed_server(app).workers(1);
    let server = server.listen_tls(format!("unix:{}", path.display()), &tls).unwrap();
    let server = server.start().unwrap();
    assert_eq!(server.addresses()[0].to_string(), format!("https+unix:{}", path.display()));
    let name = ServerName::try_from("a.test").unwrap();
    let mut tls = ClientConnection::new(Arc::new(client_config(&authority)), name).unwrap();
    let mut socket = UnixStream::connect(&path).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"GET /200000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(Seen::parse(&received, false).unwrap().body.len(), 200_000);
    stop(server);
}

#[test]
fn reads_proxy_header_before_the_handshake() {
    let authority = Authority::new("root");
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let proxy_protocol = vec!["127.0.0.1".parse().unwrap()];
    let (server, _) = serve_with(&tls, Settings { proxy_protocol, ..Settings::default() });
    let name = ServerName::try_from("a.test").unwrap();
    let mut tls = ClientConnection::new(Arc::new(client_config(&authority)), name).unwrap();
    let mut socket = connect(&server);
    // In one packet with the ClientHello.
    let mut first = b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n".to_vec();
    tls.write_tls(&mut first).unwrap();
    socket.write_all(&first).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(Seen::parse(&received, false).unwrap().text().ends_with("https"));
    stop(server);
}

#[test]
fn handshakes_do_not_block_established_connections() {
    const CLIENTS: usize = 64;
    let authority = Authority::new("root");
    let (server, errors) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let config = client_config(&authority);
    let mut established = Client::connect(&server, &config, "a.test").unwrap();
    std::thread::scope(|scope| {
        let connecting: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| Client::connect(&server, &config, "a.test").unwrap().get("/")))
            .collect();
        for _ in 0..100 {
            assert_eq!(established.get("/").status, 200);
        }
        for client in connecting {
            assert_eq!(client.join().unwrap().status, 200);
        }
    });
    assert!(errors.try_recv().is_err());
    stop(server);
}

/// Decompresses certificates, and counts them.
#[cfg(all(feature = "brotli", feature = "gzip"))]
#[derive(Debug)]
struct Decompressor {
    algorithm: CertificateCompressionAlgorithm,
    count: AtomicUsize,
}

#[cfg(all(feature = "brotli", feature = "gzip"))]
impl CertDecompressor for Decompressor {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        self.count.fetch_add(1, Relaxed);
        let decompressed = match self.algorithm {
            CertificateCompressionAlgorithm::Brotli => {
                brotli::Decompressor::new(input, 4096).read_exact(output)
            }
            _ => flate2::read::ZlibDecoder::new(input).read_exact(output),
        };
        assert!(input.len() < output.len() * 3 / 4, "{} of {}", input.len(), output.len());
        decompressed.map_err(|_| DecompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        self.algorithm
    }
}

#[test]
#[cfg(all(feature = "brotli", feature = "gzip"))]
fn certificates_are_compressed_for_clients_that_offer_it() {
    use CertificateCompressionAlgorithm::{Brotli, Zlib, Zstd};
    let authority = Authority::new("root");
    let names: Vec<String> = (0..20).map(|number| format!("name-{number}.a.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["a.test"]).collect();
    let (server, errors) = serve(with_identity(authority.sign(&names).identity()));
    let decompressor = |algorithm| -> &'static Decompressor {
        Box::leak(Box::new(Decompressor { algorithm, count: AtomicUsize::new(0) }))
    };
    let all = [Brotli, Zlib, Zstd].map(decompressor);
    for (offered, expected) in [
        (&all[..1], [1, 0, 0]),
        (&all[1..2], [1, 1, 0]),
        // The server does not know it, and does not compress.
        (&all[2..], [1, 1, 0]),
        (&[], [1, 1, 0]),
        // The second one is from the cache of compressed certificates.
        (&all[..1], [2, 1, 0]),
    ] {
        let mut config = client_config(&authority);
        config.cert_decompressors = offered.iter().map(|it| *it as &dyn CertDecompressor).collect();
        Client::connect(&server, &config, "a.test").unwrap().get("/");
        assert_eq!([0, 1, 2].map(|at| all[at].count.load(Relaxed)), expected);
    }
    assert!(errors.try_recv().is_err());
    stop(server);
}
