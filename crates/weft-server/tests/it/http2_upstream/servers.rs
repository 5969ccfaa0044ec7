//! Real servers as upstreams over HTTP/2: nginx, Caddy (the HTTP/2 of Go) and h2o.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::common::external::{nginx_temp_paths, own_address, pattern, start_caddy, start_nginx};
use crate::common::{Program, has_tool};

/// Size of a download that exceeds all windows and buffers.
const LARGE_BYTES: usize = 12 << 20;

/// Writes the files that the servers serve.
fn site() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.txt"), "small").unwrap();
    fs::write(folder.path().join("large.bin"), pattern(LARGE_BYTES)).unwrap();
    folder
}

/// Checks the files, through a client that reads the large one slowly, and a request with a body.
fn check(upstream: SocketAddr, (upload_status, upload_text): (u16, &str)) {
    // The end of the connection is the end of a response in HTTP/1.0.
    for buffers in [true, false] {
        let proxy = start_proxy(upstream, &format!("buffer_responses = {buffers}"));
        for _ in 0..3 {
            let request = "GET /small.txt HTTP/1.0\r\nHost: h\r\n\r\n";
            assert_eq!(exchange(&proxy, request), (200, b"small".to_vec()));
        }
        let mut slow = TcpStream::connect(proxy.address()).unwrap();
        slow.set_read_timeout(Some(PATIENCE)).unwrap();
        slow.write_all(b"GET /large.bin HTTP/1.0\r\nHost: h\r\n\r\n").unwrap();
        let mut bytes = vec![0; 1 << 20];
        slow.read_exact(&mut bytes).unwrap();
        // Other streams of the same connection are served meanwhile.
        for _ in 0..10 {
            let request = "GET /small.txt HTTP/1.0\r\nHost: h\r\n\r\n";
            assert_eq!(exchange(&proxy, request).0, 200);
        }
        slow.read_to_end(&mut bytes).unwrap();
        assert!(bytes.ends_with(&pattern(LARGE_BYTES)), "buffered: {buffers}");
        let body = "b".repeat(200_000);
        let request = format!(
            "POST /upload HTTP/1.0\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, text) = exchange(&proxy, &request);
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!((status, &*text.replace(&body, "BODY")), (upload_status, upload_text));
    }
}

#[test]
fn forwards_to_nginx() {
    if !has_tool("nginx") {
        return;
    }
    let (folder, address) = (site(), own_address(20, 8_000));
    let root = folder.path().display();
    let paths = nginx_temp_paths(folder.path());
    // Version 1.22, which has no directive `http2`.
    let text = format!(
        "daemon off; master_process off; pid {root}/pid;\nevents {{}}\nhttp {{ {paths} access_log off;\n\
         server {{ listen {address} http2; keepalive_requests 20; root {root}; add_trailer X-End \"of $uri\";\n\
         location /upload {{ return 200 \"$request_method $http_content_length\"; }} }} }}\n"
    );
    fs::write(folder.path().join("nginx.conf"), text).unwrap();
    let _nginx = start_nginx(folder.path(), address);
    check(address, (200, "POST 200000"));
    let proxy = start_proxy(address, "");
    // nginx ends each connection by GOAWAY after 20 requests.
    let upload =
        "POST /upload HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody";
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(exchange(&proxy, upload).0, 200)));
        }
    });
    let request =
        "GET /small.txt HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: close, te\r\n\r\n";
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    // A response with a length has no room for trailers in HTTP/1.1.
    assert!(text.ends_with("small") || text.ends_with("x-end: of /small.txt\r\n\r\n"), "{text}");
}

#[test]
fn forwards_to_caddy() {
    if !has_tool("caddy") {
        return;
    }
    let (folder, address) = (site(), own_address(21, 8_000));
    let root = folder.path().display();
    let (ip, port) = (address.ip(), address.port());
    let text = format!(
        "{{\nadmin off\nservers {{\nprotocols h1 h2c\n}}\n}}\nhttp://:{port} {{\nbind {ip}\nroot * {root}\n\
         respond /upload \"{{http.request.proto}} {{http.request.body}}\"\nfile_server\n}}\n"
    );
    fs::write(folder.path().join("Caddyfile"), text).unwrap();
    let _caddy = start_caddy(folder.path(), address);
    check(address, (200, "HTTP/2.0 BODY"));
}

#[test]
fn forwards_to_h2o() {
    if !has_tool("h2o") {
        return;
    }
    let (folder, address) = (site(), own_address(22, 8_000));
    write_h2o_config(folder.path(), address);
    let mut command = Command::new("h2o");
    let mut h2o = Program::start(command.arg("-c").arg(folder.path().join("h2o.conf")));
    until("h2o accepts connections", || {
        assert!(h2o.is_running(), "{}", h2o.stderr());
        TcpStream::connect(address).is_ok()
    });
    check(address, (404, "not found"));
}

fn write_h2o_config(folder: &Path, address: SocketAddr) {
    let (root, ip, port) = (folder.display(), address.ip(), address.port());
    let text = format!(
        "listen:\n  host: {ip}\n  port: {port}\nnum-threads: 1\nhosts:\n  default:\n    paths:\n      \
         /:\n        file.dir: {root}\n"
    );
    fs::write(folder.join("h2o.conf"), text).unwrap();
}
