//! Buffering of requests and responses by proxy and CGI routes: slow clients occupy neither
//! upstream connections nor processes.

mod space;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Client, PATIENCE, Weft, connect_from, raw_upstream, read_head, until, weft};
use bytes::Bytes;
use tempfile::TempDir;
use weft::testing::TestServer;

// -- the program with one route

struct Site {
    server: Weft,
    folder: TempDir,
}

impl Site {
    /// Starts the program with one worker and one route, which has these keys.
    #[track_caller]
    fn serve(top: &str, route: &str) -> Site {
        Site::start(tempfile::tempdir().unwrap(), top, route)
    }

    #[track_caller]
    fn start(folder: TempDir, top: &str, route: &str) -> Site {
        fs::create_dir(folder.path().join("tmp")).unwrap();
        let file = folder.path().join("weft.toml");
        let text = format!("workers = 1\n{top}\n[hosts.\"*\"]\n\"/\" = {{ {route} }}\n");
        fs::write(&file, text).unwrap();
        let mut command = weft([PathBuf::from("--config"), file]);
        let socket = format!("unix:{}", folder.path().join("socket").display());
        command.args(["--listen", "127.0.0.1:0", "--listen", &socket, "--no-log"]);
        command.env("TMPDIR", folder.path().join("tmp"));
        Site { server: Weft::start(&mut command), folder }
    }

    #[track_caller]
    fn proxy(upstream: SocketAddr, keys: &str) -> Site {
        Site::serve("", &format!("proxy = \"http://{upstream}/\"{keys}"))
    }

    /// Serves a script that is executed for each path.
    #[track_caller]
    fn script(text: &str, keys: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let route = Site::write_script(&folder, text) + keys;
        Site::start(folder, "", &route)
    }

    /// Writes a script and returns the key of its route.
    fn write_script(folder: &TempDir, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let script = folder.path().join("script");
        fs::write(&script, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        "cgi = \"script\"".to_owned()
    }

    /// Connects a client on a Unix socket, for which the kernel buffers 208 KiB: over TCP on the
    /// loopback interface it would be some MiB. Such clients have no limit of their own.
    fn slow_client(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("socket")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request on a connection of its own and returns the whole response.
    #[track_caller]
    fn get(&self, target: &str) -> (u16, Vec<u8>, bool) {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request("GET", target, "").as_bytes()).unwrap();
        read_response(&mut stream)
    }

    /// Returns the sizes of the open temporary files, which have no name.
    fn temp_files(&self) -> Vec<u64> {
        let entries = fs::read_dir(format!("/proc/{}/fd", self.server.id())).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let is_temp = |path: &PathBuf| {
            let target = fs::read_link(path).unwrap_or_default();
            target.to_string_lossy().ends_with(" (deleted)")
        };
        paths.filter(is_temp).filter_map(|path| Some(fs::metadata(path).ok()?.len())).collect()
    }
}

fn request(method: &str, target: &str, fields: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n")
}

/// Reads a response to the end of the connection: status, body, and true if it is complete.
#[track_caller]
fn read_response(stream: &mut impl Read) -> (u16, Vec<u8>, bool) {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {} bytes", bytes.len()),
    }
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
    let mut body = &bytes[end + 4..];
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut lines = head.lines();
    if let Some(length) = lines.find_map(|line| line.strip_prefix("content-length: ")) {
        return (status, body.to_vec(), body.len() == length.parse::<usize>().unwrap());
    }
    assert!(head.contains("\r\ntransfer-encoding: chunked"), "{head}");
    let mut data = Vec::new();
    loop {
        let Some(line) = body.windows(2).position(|two| two == b"\r\n") else {
            return (status, data, false);
        };
        let size = usize::from_str_radix(str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
        body = &body[line + 2..];
        if size == 0 {
            return (status, data, body == b"\r\n");
        }
        data.extend_from_slice(&body[..size.min(body.len())]);
        let Some(rest) = body.get(size + 2..) else { return (status, data, false) };
        body = rest;
    }
}

/// Bytes without a period that a buffer might have.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Framing of a response.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framing {
    Sized,
    Chunked,
    UntilClose,
}

/// Sends a response.
fn send_response(stream: &mut TcpStream, body: &[u8], framing: Framing) -> std::io::Result<()> {
    let field = match framing {
        Framing::Sized => format!("Content-Length: {}\r\n", body.len()),
        Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        Framing::UntilClose => String::new(),
    };
    stream.write_all(format!("HTTP/1.1 200 OK\r\n{field}\r\n").as_bytes())?;
    if framing != Framing::Chunked {
        return stream.write_all(body);
    }
    for (number, piece) in body.chunks(5_000).enumerate() {
        stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
        stream.write_all(piece)?;
        stream.write_all(b"\r\n")?;
        // Some chunks leave in a packet of their own.
        if number % 16 == 0 {
            stream.flush()?;
        }
    }
    stream.write_all(b"0\r\n\r\n")
}

/// Starts an upstream that responds with `length` bytes to `/large`, and with two bytes to others.
fn large_upstream(length: usize) -> SocketAddr {
    let body = pattern(length);
    raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let body = if head.starts_with("GET /large ") { &body[..] } else { b"ok" };
            // The proxy may close the connection.
            if send_response(&mut stream, body, Framing::Sized).is_err() {
                return;
            }
        }
    })
}

const OK: (u16, &[u8], bool) = (200, b"ok", true);

fn parts(response: &(u16, Vec<u8>, bool)) -> (u16, &[u8], bool) {
    (response.0, &response.1, response.2)
}

// -- slow clients

/// Without buffering, the same clients exclude all others: each of them occupies a connection.
#[test]
fn slow_readers_occupy_no_upstream_connections() {
    const BYTES: usize = 1 << 20;
    for (buffers, readers) in [(false, 4), (true, 256)] {
        let keys = format!(
            ", max_connections = 4, max_connections_per_client = 4, buffer_responses = {buffers}, \
             max_queued = 300, queue_timeout = \"{}\"",
            if buffers { "60s" } else { "200ms" }
        );
        let site = Site::proxy(large_upstream(BYTES), &keys);
        let mut slow: Vec<UnixStream> = (0..readers).map(|_| site.slow_client()).collect();
        for stream in &mut slow {
            stream.write_all(request("GET", "/large", "").as_bytes()).unwrap();
            // The head has been received.
            stream.read_exact(&mut [0; 15]).unwrap();
        }
        let response = site.get("/");
        match buffers {
            false => assert_eq!(response.0, 503),
            true => assert_eq!(parts(&response), OK),
        }
        // The slow clients get their responses nevertheless.
        let body = pattern(BYTES);
        for stream in slow.iter_mut().take(8) {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            assert!(rest.ends_with(&body));
        }
        drop(slow);
        until("all temporary files are closed", || site.temp_files().is_empty());
    }
}

/// Each row: fields of the response, and true if it occupies the connection until the client has
/// read it.
#[test]
fn upstreams_may_refuse_the_buffering_of_a_response() {
    for (fields, is_streamed) in [
        ("", false),
        ("X-Accel-Buffering: yes\r\n", false),
        ("X-Accel-Buffering: no\r\n", true),
        ("x-accel-buffering: NO\r\n", true),
    ] {
        let body = pattern(1 << 20);
        let upstream = raw_upstream(move |_, mut stream| {
            while let Some(request) = read_head(&mut stream) {
                let body = if request.starts_with("GET /large ") { &body[..] } else { b"ok" };
                let length = body.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{fields}\r\n");
                // The proxy may close the connection.
                if stream.write_all(&[head.as_bytes(), body].concat()).is_err() {
                    return;
                }
            }
        });
        let keys = ", max_connections = 1, max_connections_per_client = 1, max_queued = 0";
        let site = Site::proxy(upstream, keys);
        let mut slow = site.slow_client();
        slow.write_all(request("GET", "/large", "").as_bytes()).unwrap();
        // The head has been received.
        slow.read_exact(&mut [0; 15]).unwrap();
        match is_streamed {
            // A buffered response, too, occupies the connection until the proxy has received it.
            true => {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(500) {
                    assert_eq!(site.get("/").0, 503, "{fields}");
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            false => until("the response is received", || site.get("/").0 == 200),
        }
        let mut rest = Vec::new();
        slow.read_to_end(&mut rest).unwrap();
        assert!(rest.ends_with(&pattern(1 << 20)), "{fields}");
    }
}

/// Four connections with 64 streams each, whose windows stay shut.
#[tokio::test]
async fn shut_http2_windows_occupy_no_upstream_connections() {
    for (buffers, connections) in [(false, 1), (true, 4)] {
        let keys = format!(
            ", max_connections = 8, max_connections_per_client = 8, buffer_responses = {buffers}, \
             max_queued = 300, queue_timeout = \"{}\"",
            if buffers { "60s" } else { "200ms" }
        );
        let route = format!("proxy = \"http://{}/\"{keys}", large_upstream(1 << 20));
        let site = Site::serve("max_unread_bytes_per_client = \"1GiB\"", &route);
        let mut held = Vec::new();
        for _ in 0..connections {
            let stream = tokio::net::TcpStream::connect(site.server.address()).await.unwrap();
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(0);
            let (mut client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
            tokio::spawn(async move { connection.await.unwrap_or_default() });
            for _ in 0..if buffers { 64 } else { 8 } {
                let uri = format!("http://{}/large", site.server.address());
                let request = http::Request::get(uri).body(()).unwrap();
                client = client.ready().await.unwrap();
                let (response, _) = client.send_request(request, true).unwrap();
                held.push(response.await.unwrap());
            }
            std::mem::forget(client);
        }
        assert!(held.iter().all(|response| response.status() == 200));
        let (site, response) = tokio::task::spawn_blocking(move || {
            let response = site.get("/");
            (site, response)
        })
        .await
        .unwrap();
        match buffers {
            false => assert_eq!(response.0, 503),
            true => assert_eq!(parts(&response), OK),
        }
        drop(held);
        // Reset streams free their files while the connections stay open.
        for _ in 0..6_000 {
            if site.temp_files().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(site.temp_files(), [0u64; 0]);
    }
}

#[test]
fn slow_uploads_occupy_no_upstream_connections() {
    let upstream = TestServer::start(async |mut request: weft::Request| {
        while let Ok(Some(_)) = request.body().chunk().await {}
        weft::Response::text("ok")
    });
    for (buffers, framing) in [
        (false, "Content-Length: 100\r\n\r\nbegin"),
        (true, "Content-Length: 100\r\n\r\nbegin"),
        (true, "Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"),
        (true, "Transfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n"),
    ] {
        let keys = format!(
            ", max_connections = 2, max_connections_per_client = 2, buffer_requests = {buffers}, \
             queue_timeout = \"{}\"",
            if buffers { "60s" } else { "200ms" }
        );
        let site = Site::proxy(upstream.address(), &keys);
        let head = "POST / HTTP/1.1\r\nHost: h\r\n";
        let uploads: Vec<Client> = (0..2)
            .map(|_| {
                let mut client = site.server.client();
                client.send(format!("{head}{framing}"));
                if framing.contains("Expect") {
                    assert_eq!(client.head(), ["HTTP/1.1 100 Continue"]);
                }
                client
            })
            .collect();
        match buffers {
            // The uploads may not have been received when the first other request is.
            false => until("connections are occupied", || site.get("/").0 == 503),
            true => assert_eq!(parts(&site.get("/")), OK, "{framing}"),
        }
        drop(uploads);
    }
}

#[test]
fn slow_clients_occupy_no_processes() {
    let text = "printf 'Content-Type: text/plain\\n\\n'\n";
    let script = format!(
        "{text}if test \"$PATH_INFO\" = /large; then exec head -c 1000000 /dev/zero; fi\n\
         if test \"$REQUEST_METHOD\" = POST; then exec cat; fi\necho ok"
    );
    let post = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
    for (keys, sent, rest, status, expected) in [
        // Requests: the script starts when the body is complete.
        ("", "Content-Length: 9\r\n\r\nbegin", " end", 200, "begin end"),
        (
            "",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n",
            "4\r\n end\r\n0\r\n\r\n",
            200,
            "begin end",
        ),
        ("", "Content-Length: 9\r\nExpect: 100-continue\r\n\r\n", "begin end", 200, "begin end"),
        (", buffer_requests = false", "Content-Length: 9\r\n\r\nbegin", " end", 503, "begin end"),
        // The length of a body has to be known before the script starts.
        (
            ", buffer_requests = false",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n",
            "4\r\n end\r\n0\r\n\r\n",
            200,
            "begin end",
        ),
        // Responses.
        ("", "", "", 200, ""),
        (", buffer_responses = false", "", "", 503, ""),
    ] {
        let case = format!("{keys} {sent}");
        let site = Site::script(
            &script,
            &format!(", max_processes = 1, queue_timeout = \"500ms\", timeout = \"60s\"{keys}"),
        );
        let mut slow = site.slow_client();
        if sent.is_empty() {
            slow.write_all(request("GET", "/large", "").as_bytes()).unwrap();
            slow.read_exact(&mut [0; 15]).unwrap();
        } else {
            slow.write_all(format!("{post}{sent}").as_bytes()).unwrap();
        }
        match status {
            503 => until("the process is occupied", || site.get("/").0 == 503),
            _ => until("a process is free", || site.get("/").0 == 200),
        }
        slow.write_all(rest.as_bytes()).unwrap();
        if sent.contains("Expect") {
            assert_eq!(read_head(&mut slow).unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
        }
        if sent.is_empty() {
            let mut body = Vec::new();
            slow.read_to_end(&mut body).unwrap();
            assert!(body.len() > 1_000_000, "{case}");
        } else {
            let response = read_response(&mut slow);
            assert_eq!(parts(&response), (200, expected.as_bytes(), true), "{case}");
        }
    }
}

#[test]
fn one_client_cannot_use_all_connections() {
    let held = Arc::new(AtomicUsize::new(0));
    let count = held.clone();
    let upstream = raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            if head.starts_with("GET /hold ") {
                count.fetch_add(1, SeqCst);
                continue;
            }
            send_response(&mut stream, b"ok", Framing::Sized).unwrap();
        }
    });
    for (keys, expected) in [("", 2), (", max_connections_per_client = 3", 3)] {
        held.store(0, SeqCst);
        let keys = format!(", max_connections = 4, queue_timeout = \"60s\"{keys}");
        let site = Site::proxy(upstream, &keys);
        let holders: Vec<Client> = (0..12)
            .map(|_| {
                let mut client = site.server.client();
                client.send("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
                client
            })
            .collect();
        until("the client has its share", || held.load(SeqCst) == expected);
        for last in 2..6 {
            let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
            let mut other = Client::from_stream(connect_from(from, site.server.address()));
            assert_eq!(other.get("/").body, b"ok");
        }
        assert_eq!(held.load(SeqCst), expected);
        drop(holders);
    }
}

// -- bodies

/// Bodies pass through memory, the file, and back-pressure: 8 KiB, 64 KiB and more.
#[test]
fn bodies_are_identical_on_each_side_of_the_limits() {
    let body = Arc::new(Mutex::new((Vec::new(), Framing::Sized)));
    let current = body.clone();
    let upstream = raw_upstream(move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            let (body, framing) = current.lock().unwrap().clone();
            if send_response(&mut stream, &body, framing).is_err() || framing == Framing::UntilClose
            {
                return;
            }
        }
    });
    let limits = ", response_buffer_bytes = 8192, request_buffer_bytes = 8192";
    for file in [65_536, 0] {
        let site = Site::proxy(upstream, &format!("{limits}, max_temp_file_bytes = {file}"));
        for length in [
            0, 1, 4_095, 4_096, 4_097, 8_191, 8_192, 8_193, 12_288, 65_535, 65_536, 69_632, 73_728,
            73_729, 200_000, 3_000_000,
        ] {
            for framing in [Framing::Sized, Framing::Chunked, Framing::UntilClose] {
                for is_slow in [false, true] {
                    let case = format!("{length} bytes, {framing:?}, {file}, slow: {is_slow}");
                    let expected = pattern(length);
                    *body.lock().unwrap() = (expected.clone(), framing);
                    let mut stream = site.slow_client();
                    stream.write_all(request("GET", "/", "").as_bytes()).unwrap();
                    if is_slow {
                        // Not needed for the result: it lets the buffers fill up.
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    let (status, found, is_complete) = read_response(&mut stream);
                    assert_eq!((status, found.len(), is_complete), (200, length, true), "{case}");
                    assert!(found == expected, "{case}");
                }
            }
        }
    }
}

#[test]
fn request_bodies_are_identical_on_each_side_of_the_limits() {
    let upstream = TestServer::start(async |mut request: weft::Request| {
        request.body().set_limit(u64::MAX);
        let body = std::mem::take(request.body()).collect(usize::MAX).await.unwrap();
        weft::Response::from_body(body)
    });
    let limits = ", request_buffer_bytes = 8192, max_connections = 1";
    for file in [65_536, 0] {
        let keys = format!("{limits}, max_temp_file_bytes = {file}");
        let site = Site::proxy(upstream.address(), &keys);
        for length in [1, 4_096, 8_191, 8_192, 8_193, 65_536, 69_632, 73_729, 3_000_000] {
            let expected = pattern(length);
            for is_chunked in [false, true] {
                let mut stream = TcpStream::connect(site.server.address()).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let (fields, body) = match is_chunked {
                    false => (format!("Content-Length: {length}\r\n"), expected.clone()),
                    true => {
                        let chunks = expected.chunks(7_000).flat_map(|chunk| {
                            let size = format!("{:x}\r\n", chunk.len()).into_bytes();
                            [&size[..], chunk, b"\r\n"].concat()
                        });
                        let body = chunks.chain(*b"0\r\n\r\n").collect();
                        ("Transfer-Encoding: chunked\r\n".to_owned(), body)
                    }
                };
                let mut sender = stream.try_clone().unwrap();
                let sender = std::thread::spawn(move || {
                    sender.write_all(request("POST", "/", &fields).as_bytes()).unwrap();
                    sender.write_all(&body).unwrap();
                });
                let (status, found, is_complete) = read_response(&mut stream);
                let case = format!("{length} bytes, chunked: {is_chunked}, {file}");
                assert_eq!((status, found.len(), is_complete), (200, length, true), "{case}");
                assert!(found == expected, "{case}");
                sender.join().unwrap();
            }
        }
        assert_eq!(site.temp_files(), [0u64; 0]);
    }
}

#[test]
fn data_passes_at_once() {
    let (send, receive) = std::sync::mpsc::channel::<&'static str>();
    let receive = Mutex::new(receive);
    let upstream = raw_upstream(move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            for piece in receive.lock().unwrap().iter() {
                stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).unwrap();
                if piece.is_empty() {
                    break;
                }
            }
        }
    });
    let site = Site::proxy(upstream, "");
    let mut client = site.server.client();
    // The connection is used again.
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(client.head().contains(&"transfer-encoding: chunked".to_owned()));
        for _ in 0..3 {
            send.send("piece").unwrap();
            assert_eq!(client.body(10), b"5\r\npiece\r\n");
        }
        send.send("").unwrap();
        assert_eq!(client.body(5), b"0\r\n\r\n");
    }
}

#[test]
fn interrupted_responses_are_visibly_cut() {
    const SENT: usize = 300_000;
    for framing in [Framing::Sized, Framing::Chunked] {
        let upstream = raw_upstream(move |_, mut stream| {
            read_head(&mut stream);
            let mut bytes = match framing {
                Framing::Sized => b"HTTP/1.1 200 OK\r\nContent-Length: 300001\r\n\r\n".to_vec(),
                _ => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n493e1\r\n".to_vec(),
            };
            bytes.extend(pattern(SENT));
            stream.write_all(&bytes).unwrap();
        });
        let site = Site::proxy(upstream, "");
        let mut stream = site.slow_client();
        stream.write_all(request("GET", "/", "").as_bytes()).unwrap();
        until("the failure is logged", || site.server.stderr().contains("truncated"));
        let (status, body, is_complete) = read_response(&mut stream);
        assert_eq!((status, is_complete), (200, false), "{framing:?}");
        // A reset may discard the last bytes.
        assert!(pattern(SENT).starts_with(&body), "{framing:?}");
    }
}

// -- limits and resources

#[test]
fn temporary_files_stay_within_their_limits() {
    const BYTES: usize = 8 << 20;
    for (top, keys, max_each, max_all) in [
        ("max_temp_bytes = \"1MiB\"", "", 1 << 20, 1 << 20),
        ("", ", max_temp_file_bytes = \"512KiB\"", 512 << 10, 2 << 20),
        ("max_temp_bytes = 0", "", 0, 0),
    ] {
        let upstream = large_upstream(BYTES);
        let site = Site::serve(top, &format!("proxy = \"http://{upstream}/\"{keys}"));
        let mut slow: Vec<UnixStream> = (0..4).map(|_| site.slow_client()).collect();
        for stream in &mut slow {
            stream.write_all(request("GET", "/large", "").as_bytes()).unwrap();
            stream.read_exact(&mut [0; 15]).unwrap();
        }
        let is_near = |sizes: &[u64]| sizes.iter().sum::<u64>() + (256 << 10) >= max_all;
        until("the files have their size", || is_near(&site.temp_files()));
        std::thread::sleep(Duration::from_millis(50));
        let sizes = site.temp_files();
        assert!(sizes.iter().all(|size| *size <= max_each), "{sizes:?}");
        assert!(sizes.iter().sum::<u64>() <= max_all, "{sizes:?}");
        let body = pattern(BYTES);
        let readers: Vec<_> = slow
            .into_iter()
            .map(|mut stream| {
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    stream.read_to_end(&mut bytes).unwrap();
                    bytes
                })
            })
            .collect();
        for reader in readers {
            assert!(reader.join().unwrap().ends_with(&body));
        }
        until("all temporary files are closed", || site.temp_files().is_empty());
        // The space is available again.
        let response = site.get("/large");
        assert_eq!((response.0, response.1 == body, response.2), (200, true, true));
    }
}

#[test]
fn memory_of_buffered_responses_is_limited() {
    let site = Site::proxy(large_upstream(4 << 20), ", max_connections_per_client = 256");
    let memory = || {
        let path = format!("/proc/{}/smaps_rollup", site.server.id());
        let text = fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(parts(&site.get("/")), OK);
    let before = memory();
    let mut slow: Vec<UnixStream> = (0..64).map(|_| site.slow_client()).collect();
    for stream in &mut slow {
        stream.write_all(request("GET", "/large", "").as_bytes()).unwrap();
    }
    let is_stored = |size: &u64| *size > 3 << 20;
    until("all responses are stored", || {
        site.temp_files().iter().filter(|s| is_stored(s)).count() == 64
    });
    let each = (memory().saturating_sub(before)) / 64;
    assert!(each <= 256, "{each} KiB for each response");
}

/// A client that leaves frees the file, and the upstream connection is closed.
#[test]
fn disconnects_free_files_and_connections() {
    let (is_closed, closed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (flag, count) = (is_closed.clone(), closed.clone());
    let upstream = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [b"1000\r\n", &[b'x'; 4_096][..], b"\r\n"].concat();
        let mut sent = 0;
        // Endless, but not faster than the disk.
        while !flag.load(SeqCst) && stream.write_all(&chunk).is_ok() {
            sent += chunk.len();
            if sent > 4 << 20 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        count.fetch_add(1, SeqCst);
    });
    let site = Site::proxy(upstream, ", max_connections = 1");
    for round in 1..=3 {
        let mut client = site.slow_client();
        client.write_all(request("GET", "/", "").as_bytes()).unwrap();
        until("a file is used", || site.temp_files().iter().any(|size| *size > 1 << 20));
        drop(client);
        until("the file is closed", || site.temp_files().is_empty());
        until("the connection is closed", || closed.load(SeqCst) == round);
    }
    is_closed.store(true, SeqCst);
}

/// An upload that the upstream takes slowly, but steadily, takes longer than the timeout.
#[test]
fn progress_of_uploads_restarts_the_response_timeout() {
    const BYTES: usize = 3 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_head(&mut stream);
        let mut buffer = vec![0; 16 << 10];
        for _ in 0..BYTES / buffer.len() {
            stream.read_exact(&mut buffer).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    });
    let route = format!("proxy = \"unix:{}\", response_timeout = \"1s\"", path.display());
    let site = Site::serve("", &route);
    let mut client = TcpStream::connect(site.server.address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = request("POST", "/", &format!("Content-Length: {BYTES}\r\n"));
    client.write_all(head.as_bytes()).unwrap();
    client.write_all(&pattern(BYTES)).unwrap();
    assert_eq!(parts(&read_response(&mut client)), OK);
    upstream.join().unwrap();
}
