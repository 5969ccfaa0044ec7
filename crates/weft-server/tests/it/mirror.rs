//! Copies of requests for another server.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};

use tempfile::TempDir;

use crate::common::{Client, PATIENCE, Weft, raw_upstream, read_head, until, weft};

/// Starts a worker whose requests go to `upstream`, with these other keys.
fn serve(upstream: SocketAddr, keys: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let status = folder.path().join("status");
    let config = format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\n[status]\nlisten = \"unix:{}\"\n[hosts.\"*\"]\n\
         \"/\" = {{ proxy = \"http://{upstream}/base/\", {keys} }}\n",
        status.display()
    );
    let file = folder.path().join("weft.toml");
    fs::write(&file, config).unwrap();
    let server = Weft::start(weft([Path::new("-c"), &file]).arg("--no-log"));
    (folder, server)
}

/// Returns the sent and the dropped copies.
fn counts(folder: &TempDir) -> (u64, u64) {
    let status = Client::unix(&folder.path().join("status")).get("/status.json");
    let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
    let mut upstreams = status["upstreams"].as_array().unwrap().iter();
    let mirror = upstreams.find(|it| it["is_mirror"] == true).expect("a mirror");
    (mirror["requests"].as_u64().unwrap(), mirror["dropped_copies"].as_u64().unwrap())
}

/// Reads a request, and returns its method, target and body, and the lines of other fields.
fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<String>)> {
    let head = read_head(stream)?;
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let is_kept = |line: &&str| !line.to_ascii_lowercase().starts_with("content-length");
    let fields = lines.filter(is_kept).map(str::to_owned).collect();
    Some((format!("{line} {}", String::from_utf8_lossy(&body)), fields))
}

type Requests = Receiver<(usize, String, Vec<String>)>;

/// Starts a server that reports its requests, with the number of the connection, and responds.
fn recording(response: &'static str) -> (SocketAddr, Requests) {
    let (sender, requests) = mpsc::channel();
    let address = raw_upstream(move |connection, mut stream| {
        while let Some((request, fields)) = read_request(&mut stream) {
            let _ = sender.send((connection, request, fields));
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, requests)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn mirror_gets_the_requests_of_the_upstream() {
    let (upstream, requests) = recording(OK);
    let (mirror, copies) = recording("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy");
    let keys =
        format!("mirror = \"http://{mirror}/base/\", request_headers = {{ X-Added = \"a\" }}");
    let (folder, server) = serve(upstream, &keys);
    let mut client = server.client();
    for (request, expected) in [
        ("GET /a%2Fb?c HTTP/1.1\r\nHost: h\r\nX-Own: 1\r\n\r\n", "GET /base/a%2Fb?c "),
        (
            "POST /p HTTP/1.1\r\nHost: h\r\nX-Mirror: 2\r\nContent-Length: 4\r\n\r\nbody",
            "POST /base/p body",
        ),
        (
            "PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
            "PUT /base/p body",
        ),
    ] {
        client.send(request);
        assert_eq!(client.response().body, b"ok", "{request}");
        let (_, copied, mut fields) = copies.recv_timeout(PATIENCE).unwrap();
        assert_eq!(copied, expected);
        assert!(fields.contains(&"x-mirror: 1".to_owned()), "{fields:?}");
        fields.retain(|line| !line.starts_with("x-mirror"));
        if !request.contains("chunked") {
            let (_, forwarded, mut of_upstream) = requests.recv_timeout(PATIENCE).unwrap();
            of_upstream.retain(|line| !line.to_ascii_lowercase().starts_with("x-mirror"));
            assert_eq!((forwarded, &of_upstream), (copied, &fields));
        }
    }
    until("all copies are counted", || counts(&folder) == (3, 0));
    server.stop();
}

#[test]
fn copies_beyond_the_limit_are_dropped() {
    let (upstream, _requests) = recording(OK);
    // A mirror that never responds.
    let (silent, silence) = mpsc::channel::<()>();
    let silence = std::sync::Mutex::new(silence);
    let mirror = raw_upstream(move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            let _ = silence.lock().unwrap().recv();
        }
    });
    let keys = format!("mirror = \"http://{mirror}/\", max_mirrored = 2, mirror_timeout = \"1h\"");
    let (folder, server) = serve(upstream, &keys);
    let mut client = server.client();
    (0..5).for_each(|_| assert_eq!(client.get("/").body, b"ok"));
    until("two copies are in progress", || counts(&folder) == (2, 3));
    server.stop();
    // After the timeout, others are sent.
    let keys =
        format!("mirror = \"http://{mirror}/\", max_mirrored = 1, mirror_timeout = \"50ms\"");
    let (folder, server) = serve(upstream, &keys);
    let mut client = server.client();
    until("a copy is sent after others have timed out", || {
        assert_eq!(client.get("/").body, b"ok");
        counts(&folder).0 > 2
    });
    server.stop();
    drop(silent);
}

#[test]
fn mirror_that_is_down_does_not_matter() {
    let (upstream, _requests) = recording(OK);
    let keys = "mirror = \"http://127.0.0.1:9/\", max_failures = 1";
    let (_folder, server) = serve(upstream, keys);
    let mut client = server.client();
    (0..5).for_each(|_| assert_eq!(client.get("/").body, b"ok"));
    until("the failure is logged", || server.stderr().contains("the upstream http://127.0.0.1:9/"));
    server.stop();
}

#[test]
fn bodies_beyond_the_memory_are_not_copied() {
    let (upstream, _requests) = recording(OK);
    for (buffer, lengths) in
        [("true", &[(4_096, true), (4_097, false)][..]), ("false", &[(4, false)])]
    {
        let (mirror, copies) = recording(OK);
        let keys = format!(
            "mirror = \"http://{mirror}/\", request_buffer_bytes = \"4KiB\", buffer_requests = {buffer}"
        );
        let (folder, server) = serve(upstream, &keys);
        let mut client = server.client();
        for (length, is_copied) in lengths {
            let (_, dropped) = counts(&folder);
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
            // In two pieces, so that the body does not arrive with the head.
            let body = "x".repeat(*length);
            client.send(&body[..length / 2]);
            client.send(&body[length / 2..]);
            assert_eq!(client.response().body, b"ok");
            match is_copied {
                true => {
                    let (_, copied, _) = copies.recv_timeout(PATIENCE).unwrap();
                    assert_eq!(copied, format!("POST / {body}"));
                }
                false => assert_eq!(counts(&folder).1, dropped + 1, "{length}"),
            }
        }
        server.stop();
        assert!(copies.try_recv().is_err());
    }
}

#[test]
fn share_of_the_requests_is_copied_over_few_connections() {
    let (upstream, _requests) = recording(OK);
    // The responses are read to their ends, so that connections can be used again.
    let body = "x".repeat(100_000);
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let (mirror, copies) = recording(response.leak());
    let keys = format!("mirror = \"http://{mirror}/\", mirror_share = \"25%\", max_mirrored = 100");
    let (folder, server) = serve(upstream, &keys);
    let mut client = server.client();
    (0..400).for_each(|_| assert_eq!(client.get("/").body, b"ok"));
    until("all copies have arrived", || counts(&folder).0 + counts(&folder).1 > 0);
    let (sent, dropped) = counts(&folder);
    // Five standard deviations of nine.
    assert!(sent.abs_diff(100) <= 45 && dropped == 0, "{sent} {dropped}");
    let connections: Vec<usize> =
        (0..sent).map(|_| copies.recv_timeout(PATIENCE).unwrap().0).collect();
    let count = connections.iter().max().unwrap() + 1;
    assert!(count < sent as usize / 2, "{count} connections for {sent} copies");
    server.stop();
}
