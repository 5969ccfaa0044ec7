//! The server under test, its upstream, and the resources that the clients request.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use tempfile::TempDir;

use super::history::{LOG_FORMAT, Target, UpstreamHistory};
use crate::common::external::pattern;
use crate::common::{Client, raw_upstream, read_head};

const SMALL_BYTES: usize = 1_000;
/// More than a socket and the file cache hold, so that it is sent in several steps by `sendfile`.
const LARGE_BYTES: usize = 3 << 19;
const STREAM_BYTES: usize = 300_000;
const UPLOAD_BYTES: usize = 100_000;

/// All resources: each responder of the program once.
pub static TARGETS: [Target; 7] = [
    Target { path: "/text", upload_bytes: 0, content: || b"text".to_vec() },
    Target { path: "/site/small", upload_bytes: 0, content: || pattern(SMALL_BYTES) },
    Target { path: "/site/large", upload_bytes: 0, content: || pattern(LARGE_BYTES) },
    Target { path: "/up/small", upload_bytes: 0, content: || pattern(SMALL_BYTES) },
    Target { path: "/up/stream", upload_bytes: 0, content: || pattern(STREAM_BYTES) },
    Target { path: "/up/upload", upload_bytes: UPLOAD_BYTES, content: || b"100000".to_vec() },
    Target { path: "/cgi/script", upload_bytes: 0, content: || b"script\n".to_vec() },
];

/// A directory with files, certificates and a configuration, and an upstream.
pub struct Site {
    pub folder: TempDir,
    pub upstream: UpstreamHistory,
    upstream_address: SocketAddr,
    /// The certificates that [`use_certificate`](Site::use_certificate) may choose, in PEM.
    pub certificates: [(String, String); 2],
}

impl Site {
    /// Creates a site whose configuration has these listen addresses.
    pub fn new(listen: &str, tls_listen: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let upstream = UpstreamHistory::default();
        let upstream_address = start_upstream(upstream.clone());
        let certificates = [(); 2].map(|()| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
        });
        let site = Site { folder, upstream, upstream_address, certificates };
        fs::create_dir(site.path("site")).unwrap();
        fs::write(site.path("site/small"), pattern(SMALL_BYTES)).unwrap();
        fs::write(site.path("site/large"), pattern(LARGE_BYTES)).unwrap();
        fs::create_dir(site.path("cgi")).unwrap();
        let script = "printf 'Content-Type: text/plain\\n\\nscript\\n'\n";
        crate::cgi::write_script(&site.path("cgi/script"), script);
        site.use_certificate(0);
        site.write_config(listen, tls_listen);
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the certificate file. The key precedes it: if both are loaded in between, the load
    /// fails and the old certificate stays in use.
    pub fn use_certificate(&self, number: usize) {
        let (certificate, key) = &self.certificates[number];
        fs::write(self.path("key"), key).unwrap();
        fs::write(self.path("crt"), certificate).unwrap();
    }

    fn write_config(&self, listen: &str, tls_listen: &str) {
        let config = format!(
            r#"listen = ["{listen}"]
workers = 2
drain_timeout = "20s"

[tls]
listen = ["{tls_listen}"]
certificates = [{{ cert = "crt", key = "key" }}]

[log]
access = "access.log"
format = '{LOG_FORMAT}'

[status]
listen = ["unix:status.sock"]

[hosts."*"]
"/text" = {{ respond = "text" }}
"/site/" = "-> site"
"/up/" = {{ proxy = "http://{}/", response_timeout = "2s", body_timeout = "2s" }}
"/cgi/" = "=> cgi"
"#,
            self.upstream_address
        );
        fs::write(self.path("weft.toml"), config).unwrap();
    }

    /// Returns the names and values of metrics that are not 0 although there is no client.
    pub fn metrics_in_use(&self) -> Vec<(String, i64)> {
        let mut client = Client::unix(&self.path("status.sock"));
        let status: Value = serde_json::from_slice(&client.get("/status.json").body).unwrap();
        let mut found = Vec::new();
        for (list, name) in [
            ("workers", "open_connections"),
            ("routes", "in_flight"),
            ("upstreams", "connections_in_use"),
            ("upstreams", "queued"),
        ] {
            let values = status[list].as_array().expect("a list").iter();
            let values = values.map(|object| object[name].as_i64().expect("a number"));
            found.push((name.to_owned(), values.sum()));
        }
        found.retain(|(_, value)| *value != 0);
        found
    }

    /// Returns the access log, with the files that it was renamed to.
    pub fn access_log(&self) -> String {
        let mut log = String::new();
        for entry in fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with("access.log") {
                log += &fs::read_to_string(path).unwrap();
            }
        }
        log
    }
}

/// Starts an upstream that records its requests.
fn start_upstream(history: UpstreamHistory) -> SocketAddr {
    raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            // The connection may end at any time.
            if respond(&mut stream, &head, &history).is_err() {
                return;
            }
        }
    })
}

fn respond(stream: &mut TcpStream, head: &str, history: &UpstreamHistory) -> std::io::Result<()> {
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let id = field("x-id").expect("an ID").parse().expect("a number");
    history.add(id);
    let length = field("content-length").map_or(0, |length| length.parse().expect("a length"));
    let mut upload = vec![0; length];
    stream.read_exact(&mut upload)?;
    match head.split(' ').nth(1).expect("a target") {
        "/small" => send(stream, &pattern(SMALL_BYTES)),
        "/upload" => send(stream, length.to_string().as_bytes()),
        "/stream" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            for chunk in pattern(STREAM_BYTES).chunks(10_007) {
                write!(stream, "{:x}\r\n", chunk.len())?;
                stream.write_all(chunk)?;
                stream.write_all(b"\r\n")?;
            }
            stream.write_all(b"0\r\n\r\n")
        }
        target => panic!("an unknown target {target}"),
    }
}

fn send(stream: &mut TcpStream, body: &[u8]) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(body)
}
