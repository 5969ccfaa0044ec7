//! Options of the program, an upstream that is killed, and the memory of the process.

use super::*;

#[test]
fn proxy_option_forwards_requests() {
    let upstream = TestServer::start(echo);
    let server = Weft::start(&mut weft([
        "--route",
        &proxy_route(&upstream.url("/p/")),
        "--listen",
        "127.0.0.1:0",
    ]));
    let response = server.client().get("/x");
    assert!(response.body.starts_with(b"GET /p/x\n"), "{}", response.body.escape_ascii());
    server.stop();
    let output = run(["--route", "/ >> nonsense"]);
    assert_eq!(output.status, Ok(2));
    let message = "nonsense: expected http://, https://, h2c:// or unix:/";
    assert!(output.stderr.contains(message), "{}", output.stderr);
}

#[test]
fn all_timeouts_can_be_never() {
    let checks = Arc::new(AtomicUsize::new(0));
    let check_count = checks.clone();
    let upstream = TestServer::start(async move |request: Request| {
        check_count.fetch_add(usize::from(request.path() == "/health"), SeqCst);
        Response::text("ok")
    });
    let never = |names: &[&str], between| {
        let settings = names.iter().map(|name| format!("{name} = \"never\""));
        settings.collect::<Vec<_>>().join(between)
    };
    let general = never(&["drain_timeout", "handover_timeout"], "\n");
    let limits = never(&["head_timeout", "idle_timeout", "stall_timeout", "linger_timeout"], "\n");
    let route_timeouts = never(
        &[
            "connect_timeout",
            "response_timeout",
            "body_timeout",
            "tunnel_timeout",
            "queue_timeout",
            "keep_alive_timeout",
            "failure_window",
            "down_time",
            "check_interval",
            "check_timeout",
        ],
        ", ",
    );
    let configuration = format!(
        "listen = \"127.0.0.1:0\"\n{general}\n[limits]\n{limits}\n[hosts.\"*\"]\n\
         \"/\" = {{ proxy = \"{}\", check = \"/health\", {route_timeouts} }}\n",
        upstream.url("/")
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, configuration).unwrap();
    let server = Weft::start(weft(["--config"]).arg(&file));
    let mut client = server.client();
    (0..2).for_each(|_| assert_eq!(client.get("/").body, b"ok"));
    until("a health check is made", || checks.load(SeqCst) > 0);
    drop(client);
    let output = server.stop();
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}

#[test]
fn killed_upstream_causes_no_failed_requests() {
    // A text is sent in one write with its head: a killed upstream has sent it completely or not at
    // all.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, "[hosts.\"*\"]\n\"/\" = { respond = \"small\\n\" }\n").unwrap();
    let upstreams = [(); 2].map(|()| {
        let options = ["--listen", "127.0.0.1:0", "--no-log", "--workers", "1"];
        Weft::start(weft(["--config"]).arg(&file).args(options))
    });
    let urls = upstreams.each_ref().map(|upstream| upstream.url("/")).join(" ");
    let server = Weft::start(&mut weft([
        "--route",
        &proxy_route(&urls),
        "--listen",
        "127.0.0.1:0",
        "--no-log",
        "--workers",
        "2",
    ]));
    let (address, done) = (server.address(), Arc::new(AtomicBool::new(false)));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (done, answered) = (done.clone(), answered.clone());
            std::thread::spawn(move || {
                let mut client = Client::tcp(address);
                while !done.load(SeqCst) {
                    let response = client.get("/");
                    assert_eq!((response.status, &*response.body), (200, &b"small\n"[..]));
                    answered.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    let wait_for_responses = |count| {
        let before = answered.load(SeqCst);
        let is_finished = || clients.iter().any(|client| client.is_finished());
        until("further requests succeed", || {
            answered.load(SeqCst) >= before + count || is_finished()
        });
    };
    wait_for_responses(500);
    upstreams[0].signal(Signal::KILL);
    wait_for_responses(500);
    done.store(true, SeqCst);
    let clients: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
    let output = server.stop();
    assert!(clients.iter().all(Result::is_ok), "{}", output.stderr);
    // The failure may be in an exchange or in a connection attempt.
    let message = format!("weft: the upstream {}: ", upstreams[0].url("/"));
    assert!(output.stderr.contains(&message), "{}", output.stderr);
}

#[test]
fn memory_does_not_grow_with_body_size() {
    const BYTES: u64 = 256 << 20;
    // The upstream reads the body and responds with the same number of bytes.
    let upstream = TestServer::start(async |mut request: Request| {
        request.body().set_limit(u64::MAX);
        let mut bytes = 0;
        while let Some(chunk) = request.body().chunk().await.unwrap() {
            bytes += chunk.len() as u64;
        }
        Response::from_body(Body::from_http_body(Zeros(bytes)))
    });
    let upstream_url = upstream.url("/");
    let server = Weft::start(&mut weft([
        "--route",
        &proxy_route(&upstream_url),
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "1",
        "--max-body-bytes",
        "1GiB",
    ]));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let part = vec![b'x'; 1 << 20];
    (0..BYTES >> 20).for_each(|_| stream.write_all(&part).unwrap());
    let head = read_head(&mut stream).unwrap();
    assert!(head.contains(&format!("content-length: {BYTES}\r\n")), "{head}");
    let received = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    assert_eq!(received, BYTES);
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 48 << 10, "{peak} KiB at most");
    server.stop();
}

/// A body of this number of zeros, in frames of up to 64 KiB.
struct Zeros(u64);

impl http_body::Body for Zeros {
    type Data = bytes::Bytes;
    type Error = weft::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, weft::Error>>> {
        static PART: [u8; 64 << 10] = [0; 64 << 10];
        let length = self.0.min(PART.len() as u64);
        self.0 -= length;
        let part = bytes::Bytes::from_static(&PART[..length as usize]);
        std::task::Poll::Ready((length > 0).then(|| Ok(http_body::Frame::data(part))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}
