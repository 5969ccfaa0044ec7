//! Connections to upstreams.

use super::*;

// -- connections

/// The upstream closes a connection at its second request, or right after the first response.
#[test]
fn retries_only_requests_that_are_safe_to_repeat() {
    let with_body = |method: &str, length| {
        let body = "a".repeat(length);
        let head = format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: close");
        format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let chunked = "PUT / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
                   Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n";
    let get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned();
    for (request, at_once, expected, expected_requests) in [
        (get.clone(), false, "200 0", 3),
        (with_body("POST", 2), false, "502", 2),
        (with_body("PUT", 2), false, "200 2", 3),
        (with_body("DELETE", 60_000), false, "200 60000", 3),
        // Of a larger body, the begin is not kept.
        (with_body("PUT", 100_000), false, "502", 2),
        (chunked.to_owned(), false, "200 5", 3),
        (get.clone(), true, "200 0", 2),
        (with_body("POST", 2), true, "200 2", 2),
    ] {
        let requests = Arc::new(AtomicUsize::new(0));
        let (count, closed) = (requests.clone(), Arc::new(AtomicBool::new(false)));
        let is_closed = closed.clone();
        let upstream = raw_upstream(move |_, mut stream| {
            // A connection that is closed with unread input is reset, and the response is lost.
            let Some(length) = read_request(&mut stream) else { return };
            count.fetch_add(1, SeqCst);
            let digits = length.to_string().len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {digits}\r\n\r\n{length}").unwrap();
            if !at_once && read_request(&mut stream).is_some() {
                count.fetch_add(1, SeqCst);
            }
            drop(stream);
            closed.store(true, SeqCst);
        });
        let proxy = Proxy::start(&http_url(upstream), "");
        assert_eq!(send_request(proxy.address(), &get).status, 200);
        if at_once {
            until("the upstream has closed the connection", || is_closed.load(SeqCst));
        }
        let name = format!("{:.40} of {} bytes, {at_once}", request, request.len());
        let response = send_request(proxy.address(), &request);
        let found = match response.status {
            200 => format!("200 {}", response.body),
            status => status.to_string(),
        };
        assert_eq!(found, expected, "{name}");
        assert_eq!(requests.load(SeqCst), expected_requests, "{name}");
    }
}

/// Reads a request and returns the length of its body.
fn read_request(stream: &mut TcpStream) -> Option<usize> {
    let head = read_head(stream)?.to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        let mut body = Vec::new();
        while !body.ends_with(b"\r\n0\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).ok()?;
            body.push(byte[0]);
        }
        return Some(body.iter().filter(|byte| byte.is_ascii_lowercase()).count());
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().unwrap());
    stream.read_exact(&mut vec![0; length]).ok()?;
    Some(length)
}

/// Each row: the field of the first response, the pause behind it in milliseconds, and the number
/// of the connection of the second request.
#[test]
fn idle_connections_are_used_only_as_long_as_the_upstream_keeps_them() {
    for (field, pause, expected) in [
        ("", 0, 0),
        ("Keep-Alive: timeout=3600, max=100\r\n", 0, 0),
        ("Keep-Alive: timeout=x\r\n", 0, 0),
        ("Keep-Alive: timeout=0\r\n", 0, 1),
        ("keep-alive: Timeout=1\r\n", 600, 1),
    ] {
        let upstream = raw_upstream(move |number, mut stream| {
            while read_head(&mut stream).is_some() {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{field}\r\n{number}");
                stream.write_all(head.as_bytes()).unwrap();
            }
        });
        let proxy = Proxy::start(&http_url(upstream), "");
        let post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let first = send_request(proxy.address(), post);
        assert_eq!(first.body, "0");
        assert!(!first.fields.iter().any(|line| line.starts_with("keep-alive")));
        std::thread::sleep(Duration::from_millis(pause));
        let second = send_request(proxy.address(), post);
        assert_eq!(second.body, expected.to_string(), "{field:?}");
    }
}

#[test]
fn closes_idle_connections_after_keep_alive_timeout() {
    let open = Arc::new(AtomicUsize::new(0));
    let count = open.clone();
    let upstream = raw_upstream(move |number, stream| {
        count.fetch_add(1, SeqCst);
        respond_with(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")(number, stream);
        count.fetch_sub(1, SeqCst);
    });
    let proxy = Proxy::start(&http_url(upstream), "keep_alive_timeout = \"50ms\"");
    assert_eq!(get(proxy.address(), "/").status, 200);
    until("the connection is closed", || open.load(SeqCst) == 0);
}

#[test]
fn requests_queue_up_to_max_queued() {
    let (send, trigger) = std::sync::mpsc::channel::<()>();
    let trigger = Mutex::new(trigger);
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = arrived.clone();
    let upstream = raw_upstream(move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            count.fetch_add(1, SeqCst);
            trigger.lock().unwrap().recv().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let proxy = Proxy::start(
        &http_url(upstream),
        "max_connections = 1, max_queued = 1, queue_timeout = \"30s\"",
    );
    let address = proxy.address();
    let get_in_thread = || std::thread::spawn(move || get(address, "/").status);
    let first = get_in_thread();
    until("the first request has arrived", || arrived.load(SeqCst) == 1);
    // One of two more requests is queued, the other is rejected.
    let (second, third) = (get_in_thread(), get_in_thread());
    until("one of them has a response", || second.is_finished() || third.is_finished());
    send.send(()).unwrap();
    send.send(()).unwrap();
    assert_eq!(first.join().unwrap(), 200);
    let mut others = [second.join().unwrap(), third.join().unwrap()];
    others.sort();
    assert_eq!(others, [200, 503]);
    assert_eq!(arrived.load(SeqCst), 2);
}

#[test]
fn queue_timeout_is_a_503() {
    let upstream = raw_upstream(|_, mut stream| while read_head(&mut stream).is_some() {});
    let proxy = Proxy::start(&http_url(upstream), "max_connections = 1, queue_timeout = \"50ms\"");
    let mut holder = Client::tcp(proxy.address());
    holder.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until("a queued request is rejected", || {
        let address = proxy.address();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        // The request may have been forwarded before the request of the holder: then it has no
        // response.
        let _ = stream.read_to_string(&mut text);
        text.starts_with("HTTP/1.1 503 ") && text.contains("retry-after: 1\r\n")
    });
}

// -- other kinds of connections

#[test]
fn waits_for_a_full_accept_queue_of_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    // The accept queue has room for one connection.
    let _silent = UnixStream::connect(&path).unwrap();
    let proxy = Proxy::start(&format!("unix:{}", path.display()), "connect_timeout = \"100ms\"");
    assert_eq!(get(proxy.address(), "/").status, 504);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(|| {
                let mut stream = stream.unwrap();
                while read_head(&mut stream).is_some() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                }
            });
        }
    });
    until("the queue has room", || get(proxy.address(), "/").status == 200);
}

#[test]
fn connects_over_unix_sockets_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(file("site")).unwrap();
    fs::write(file("site/a.txt"), "A\n").unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(file("crt"), certified.cert.pem()).unwrap();
    fs::write(file("key"), certified.signing_key.serialize_pem()).unwrap();
    let socket = file("socket");
    let (crt, key) = (file("crt"), file("key"));
    let options = ["--tls-cert", &crt, "--tls-key", &key, "--tls-listen", "127.0.0.1:0"];
    let listen = format!("unix:{socket}");
    let upstream = Weft::start(weft([file("site")]).args(options).args(["--listen", &listen]));
    let addresses = upstream.addresses();
    let port = addresses.iter().find_map(|it| it.strip_prefix("https://127.0.0.1:")).unwrap();
    for (url, is_trusted, status) in [
        (format!("unix:{socket}"), false, 200),
        (format!("unix:{socket}:/"), false, 200),
        (format!("https://localhost:{port}/"), true, 200),
        // Certificates for another name or of another authority are rejected.
        (format!("https://127.0.0.1:{port}/"), true, 502),
        (format!("https://localhost:{port}/"), false, 502),
    ] {
        let ca = if is_trusted { file("crt") } else { file("other") };
        let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(file("other"), other.cert.pem()).unwrap();
        let proxy = Proxy::start(&url, &format!("ca = \"{ca}\""));
        let response = get(proxy.address(), "/a.txt");
        assert_eq!(response.status, status, "{url}");
        assert_eq!(response.body == "A\n", status == 200, "{url}");
    }
    upstream.stop();
}

/// Checks the files of a directory that another program serves behind the proxy.
fn assert_serves_files(url: &str, folder: &std::path::Path) {
    let proxy = Proxy::start(url, "");
    let mut client = Client::tcp(proxy.address());
    for file in ["small.txt", "large.bin", "small.txt"] {
        until("the upstream is up", || get(proxy.address(), "/small.txt").status == 200);
        let response = client.get(&format!("/{file}"));
        assert_eq!(response.status, 200, "{url}{file}");
        assert!(response.body == fs::read(folder.join(file)).unwrap(), "{url}{file}");
    }
    assert_eq!(client.get("/nothing").status, 404);
}

fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.txt"), "small\n").unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
    fs::write(folder.path().join("large.bin"), large).unwrap();
    folder
}

#[test]
fn python_http_server_as_upstream() {
    if !has_tool("python3") {
        return;
    }
    let (folder, address) = (files(), free_address());
    let mut command = Command::new("python3");
    command.args(["-m", "http.server", "--bind", "127.0.0.1", &address.port().to_string()]);
    let _python = Program::start(command.current_dir(folder.path()));
    assert_serves_files(&http_url(address), folder.path());
}

#[test]
fn nginx_as_upstream() {
    if !has_tool("nginx") {
        return;
    }
    let (folder, address) = (files(), free_address());
    let at = folder.path().display();
    let configuration = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p; \
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         server {{ listen {address}; root {at}; }} }}\n"
    );
    fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
    let file = folder.path().join("nginx.conf");
    let _nginx = Program::start(Command::new("nginx").arg("-c").arg(&file).args(["-e", "stderr"]));
    assert_serves_files(&http_url(address), folder.path());
}
