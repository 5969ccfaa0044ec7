//! Several upstreams.

use std::time::Instant;

use super::*;

/// Starts an upstream that responds with its name.
fn named(name: &'static str) -> TestServer {
    TestServer::start(async move |_: Request| Response::text(name))
}

#[test]
fn balances_requests_between_upstreams() {
    let (a, b, dead) = (named("a"), named("b"), http_url(unused_address()));
    let both = format!("{} {}", a.url("/"), b.url("/"));
    for (urls, balance, expected) in [
        (both.clone(), "round-robin", [2, 2]),
        (both.clone(), "least-connections", [2, 2]),
        (format!("{both} {dead}"), "round-robin", [2, 2]),
        (format!("{both} weight=3"), "round-robin", [1, 3]),
        (format!("{both} weight=3"), "least-connections", [1, 3]),
        (format!("{both} backup"), "round-robin", [4, 0]),
        (format!("{both} backup"), "random-two", [4, 0]),
        (format!("{dead} {} backup", b.url("/")), "round-robin", [0, 4]),
    ] {
        let proxy = Proxy::start(&urls, &format!("balance = \"{balance}\""));
        let responses: Vec<ReceivedResponse> = (0..4).map(|_| get(proxy.address(), "/")).collect();
        assert!(responses.iter().all(|response| response.status == 200), "{responses:?}");
        let count = |name| responses.iter().filter(|response| response.body == name).count();
        assert_eq!([count("a"), count("b")], expected, "{urls} {balance:?}");
    }
}

#[test]
fn failed_upstreams_are_skipped_and_retried_after_down_time() {
    let is_healthy = Arc::new(AtomicBool::new(false));
    let visits = Arc::new(AtomicUsize::new(0));
    let (healthy, count) = (is_healthy.clone(), visits.clone());
    let upstream = raw_upstream(move |number, mut stream| {
        count.fetch_add(1, SeqCst);
        if healthy.load(SeqCst) {
            respond_with(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nodd")(number, stream);
        } else {
            read_head(&mut stream);
        }
    });
    let other = named("other");
    let change = |down_time| format!("max_failures = 3, down_time = \"{down_time}\"");
    let urls = format!("{} {}", http_url(upstream), other.url("/"));
    let long_down_time = Proxy::start(&urls, &change("5m"));
    for _ in 0..20 {
        assert_eq!(get(long_down_time.address(), "/").body, "other");
    }
    assert_eq!(visits.load(SeqCst), 3);
    let short_down_time = Proxy::start(&urls, &change("20ms"));
    for _ in 0..6 {
        assert_eq!(get(short_down_time.address(), "/").body, "other");
    }
    is_healthy.store(true, SeqCst);
    until("the upstream gets requests again", || get(short_down_time.address(), "/").body == "odd");
    // All of several upstreams can be unavailable, but a single upstream is always tried.
    for (urls, status) in [
        (format!("{} {}", http_url(unused_address()), http_url(unused_address())), 503),
        (http_url(unused_address()), 502),
    ] {
        let proxy = Proxy::start(&urls, &change("5m"));
        (0..6).for_each(|_| drop(get(proxy.address(), "/")));
        assert_eq!(get(proxy.address(), "/").status, status, "{urls}");
    }
}

#[test]
fn health_checks_disable_and_enable_upstreams() {
    let is_healthy = Arc::new(AtomicBool::new(false));
    let healthy = is_healthy.clone();
    let upstream = TestServer::start(async move |request: Request| {
        match (request.path(), healthy.load(SeqCst)) {
            ("/p/health", false) => StatusCode::INTERNAL_SERVER_ERROR.into(),
            _ => Response::text("ok"),
        }
    });
    let options = r#"check = "/health", check_interval = "10ms", check_timeout = "30s""#;
    let proxy = Proxy::start(&upstream.url("/p/"), options);
    until("the upstream gets no requests", || get(proxy.address(), "/").status == 503);
    is_healthy.store(true, SeqCst);
    until("the upstream gets requests again", || get(proxy.address(), "/").status == 200);
}

/// Each row: the keys of the check, the status and the body of the responses to it, and the status
/// for clients in the end.
#[test]
fn health_checks_expect_statuses_and_texts() {
    for scheme in ["http", "h2c"] {
        for (keys, status, body, expected) in [
            ("check_statuses = [\"204\", \"418\"]", 200, "", 503),
            ("check_statuses = [\"204\", \"418\"]", 418, "", 200),
            ("check_body = \"is ready\"", 200, "it is| ready|.", 200),
            ("check_body = \"is ready\"", 200, "it is |not| ready", 503),
            ("check_body = \"is ready\"", 200, "", 503),
            ("check_body = \"is ready\"", 500, "it is ready", 503),
            ("check_body = \"is ready\", check_statuses = \"500\"", 500, "it is ready", 200),
        ] {
            let checks = Arc::new(AtomicUsize::new(0));
            let count = checks.clone();
            let upstream = TestServer::start(async move |request: Request| {
                if request.path() != "/health" {
                    return Response::text("ok");
                }
                count.fetch_add(1, SeqCst);
                let pieces =
                    body.split('|').map(|piece| Ok::<_, weft::Error>(bytes::Bytes::from(piece)));
                let body = Body::stream(futures_util::stream::iter(pieces));
                Response::from_body(body).with_status(StatusCode::from_u16(status).unwrap())
            });
            let url = format!("{scheme}://{}/", upstream.address());
            let options = "check = \"/health\", check_interval = \"10ms\", check_timeout = \"30s\"";
            let proxy = Proxy::start(&url, &format!("{options}, {keys}"));
            get(proxy.address(), "/");
            until("the upstream was checked", || checks.load(SeqCst) > 4);
            let case = format!("{scheme} {keys} {status} {body}");
            until(&case, || get(proxy.address(), "/").status == expected);
        }
    }
}

/// The first check of an upstream begins with the server and decides whether it gets requests. They
/// wait for it.
#[test]
fn upstreams_get_requests_after_their_first_check() {
    let (requests, hosts) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::default()));
    let (count, seen): (_, Arc<std::sync::Mutex<Vec<String>>>) = (requests.clone(), hosts.clone());
    let upstream = TestServer::start(async move |request: Request| {
        let host = request.headers().get("host").unwrap_or_default().to_owned();
        if request.path() != "/health" {
            count.fetch_add(1, SeqCst);
            return Response::text("ok");
        }
        seen.lock().unwrap().push(host.clone());
        tokio::time::sleep(Duration::from_millis(100)).await;
        match &*host {
            "app.example" => Response::text("ok"),
            _ => StatusCode::BAD_REQUEST.into(),
        }
    });
    for (keys, host, expected) in [
        (", check_host = \"app.example\"", "app.example", 200),
        (", host = \"app.example\"", "app.example", 200),
        ("", &*upstream.address().to_string(), 503),
    ] {
        hosts.lock().unwrap().clear();
        requests.store(0, SeqCst);
        let options = format!("check = \"/health\", check_interval = \"1h\"{keys}");
        let proxy = Proxy::start(&upstream.url("/"), &options);
        // Without a request of a client.
        until("the upstream is checked", || !hosts.lock().unwrap().is_empty());
        assert_eq!(get(proxy.address(), "/").status, expected, "{keys}");
        assert_eq!(*hosts.lock().unwrap(), [host], "{keys}");
        assert_eq!(requests.load(SeqCst), usize::from(expected == 200), "{keys}");
        let reason = "it gets no requests: the status is 400 Bad Request";
        let is_logged = || proxy.stderr().contains(reason);
        match expected {
            503 => until("the reason is logged", is_logged),
            _ => assert!(!is_logged()),
        }
    }
}

/// The only upstream restarts. Requests beyond the share of a client are not held.
#[test]
fn requests_are_held_while_the_only_upstream_restarts() {
    // An address that no other test uses.
    let reserved = TcpListener::bind("127.0.24.1:0").unwrap();
    let address = reserved.local_addr().unwrap();
    drop(reserved);
    let url = http_url(address);
    let (get, post) = (
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
    );
    let without = Proxy::start(&url, "");
    assert_eq!(send_request(without.address(), get).status, 502);
    let proxy = Proxy::start(&url, "try_duration = \"30s\", max_queued = 4");
    let to = proxy.address();
    let held = [get, post].map(|text| std::thread::spawn(move || send_request(to, text).status));
    // Time for both to be held.
    std::thread::sleep(Duration::from_secs(1));
    let started = Instant::now();
    assert_eq!(send_request(to, get).status, 502);
    assert!(started.elapsed() < Duration::from_secs(20));
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = read_head(&mut stream).unwrap_or_default();
            let length = if head.starts_with("POST ") { 2 } else { 0 };
            stream.read_exact(&mut [0; 2][..length]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    assert_eq!(held.map(|thread| thread.join().unwrap()), [200, 200]);
    // The time ends for an upstream that does not come back.
    let proxy = Proxy::start(&http_url(unused_address()), "try_duration = \"300ms\"");
    let started = Instant::now();
    assert_eq!(send_request(proxy.address(), get).status, 502);
    assert!(started.elapsed() >= Duration::from_millis(300));
}

/// Each check waits for its status.
#[test]
fn health_checks_have_thresholds() {
    let (sender, statuses) = tokio::sync::mpsc::unbounded_channel::<u16>();
    let (statuses, checks) = (Arc::new(tokio::sync::Mutex::new(statuses)), Arc::default());
    let count: Arc<AtomicUsize> = Arc::clone(&checks);
    let upstream = TestServer::start(async move |request: Request| {
        if request.path() != "/health" {
            return Response::text("ok");
        }
        count.fetch_add(1, SeqCst);
        let status = statuses.lock().await.recv().await.unwrap_or(500);
        StatusCode::from_u16(status).unwrap().into()
    });
    let options = "check = \"/health\", check_interval = \"10ms\", check_timeout = \"10m\", \
                   check_fall = 3, check_rise = 2";
    let proxy = Proxy::start(&upstream.url("/"), options);
    let status = || get(proxy.address(), "/").status;
    let rows = [
        // The first check decides at once.
        (200, 200),
        (500, 200),
        (500, 200),
        (500, 503),
        (200, 503),
        (500, 503),
        (200, 503),
        (200, 200),
    ];
    for (number, (check, expected)) in rows.into_iter().enumerate() {
        until("the next check has begun", || checks.load(SeqCst) == number + 1);
        sender.send(check).unwrap();
        until("the check has ended", || checks.load(SeqCst) == number + 2);
        assert_eq!(status(), expected, "after check {number}");
    }
}
