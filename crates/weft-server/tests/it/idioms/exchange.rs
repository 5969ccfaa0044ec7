//! Requests to the servers, and the parts of the responses that are compared.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::file::{LogFile, Request};
use crate::common::external::{curl, run_successfully};
use crate::common::{PATIENCE, Program};

/// Addresses of a server without TLS and with TLS.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub plain: Option<SocketAddr>,
    pub tls: Option<SocketAddr>,
}

/// Fields of responses that are compared.
const FIELDS: [&str; 27] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-max-age",
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-range",
    "content-security-policy",
    "content-type",
    "link",
    "location",
    "permissions-policy",
    "referrer-policy",
    "retry-after",
    "set-cookie",
    "strict-transport-security",
    "upgrade",
    "vary",
    "www-authenticate",
    "x-app",
    "x-content-type-options",
    "x-frame-options",
    "x-request-id",
    "x-served-by",
];

/// The status, fields and the body of a response, by name.
pub type Parts = BTreeMap<String, String>;

/// Sends a request and returns the parts of its response.
pub fn send(addresses: Addresses, request: &Request, folder: &Path) -> Parts {
    let response = match request.is_secure {
        true => send_tls(addresses.tls.expect("an address with TLS"), request, folder),
        false => send_plain(addresses.plain.expect("an address without TLS"), request),
    };
    let split = response.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let split = split.unwrap_or_else(|| panic!("{}: {}", request.line, response.escape_ascii()));
    let (head, body) = (&response[..split], &response[split + 4..]);
    parts(request, &String::from_utf8_lossy(head), body)
}

/// Waits until a log has its lines, and returns them.
pub fn read_log(log: &LogFile, folder: &Path) -> Parts {
    let path = folder.join(log.path.trim_start_matches("/var/log/"));
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    let start = Instant::now();
    while read().matches('\n').count() < log.lines && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let lines: String = read().lines().map(|line| format!("{}\n", without_time(line))).collect();
    Parts::from([("status".to_owned(), "200".to_owned()), ("body".to_owned(), lines)])
}

/// Replaces the time of a line, in brackets or as a member of an object in JSON, and a duration.
fn without_time(line: &str) -> String {
    let mut line = line.to_owned();
    for (begin, end) in [("[", "]"), ("\"time\":\"", "\""), ("\"seconds\":", "}")] {
        let Some(at) = line.find(begin).map(|at| at + begin.len()) else { continue };
        let Some(length) = line[at..].find(end) else { continue };
        line.replace_range(at..at + length, "*");
    }
    line
}

fn send_plain(address: SocketAddr, request: &Request) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut head = String::new();
    for (_, client) in request.fields.iter().filter(|(name, _)| name == "PROXY") {
        head.push_str(&format!("PROXY TCP4 {client} 127.0.0.1 40000 80\r\n"));
    }
    let Request { method, target, host, .. } = request;
    head.push_str(&format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n"));
    for (name, value) in request.fields.iter().filter(|(name, _)| name != "PROXY") {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !request.fields.iter().any(|(name, _)| name == "Connection") {
        head.push_str("Connection: close\r\n");
    }
    if request.body_length > 0 {
        head.push_str(&format!("Content-Length: {}\r\n", request.body_length));
    }
    head.push_str("\r\n");
    // A server may respond and close before it has read all of a body that it rejects.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&vec![b'x'; request.body_length]);
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{}: {error}", request.line),
    }
    response
}

fn send_tls(address: SocketAddr, request: &Request, folder: &Path) -> Vec<u8> {
    let output = folder.join(format!("response-{address}"));
    let mut command = curl();
    command.args([
        "--insecure",
        "--include",
        "--raw",
        "--http1.1",
        "--path-as-is",
        "--max-time",
        "60",
    ]);
    command.arg("--connect-to").arg(format!("::{address}"));
    command.args(["--request", &request.method]).arg("--output").arg(&output);
    for (name, value) in &request.fields {
        match &**name {
            "Certificate" => {
                let file = folder.join("etc/ssl").join(value);
                command.arg("--cert").arg(file.with_extension("pem"));
                command.arg("--key").arg(file.with_extension("key"));
            }
            name => drop(command.args(["--header", &format!("{name}: {value}")])),
        }
    }
    command.arg(format!("https://{}{}", request.host, request.target));
    match request.fields.iter().any(|(name, _)| name == "Certificate") {
        // The handshake may fail, which is a difference like others.
        true => drop(Program::start(&mut command).wait_with_output()),
        false => drop(run_successfully(&mut command)),
    }
    std::fs::read(output).unwrap()
}

fn parts(request: &Request, head: &str, body: &[u8]) -> Parts {
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut fields = BTreeMap::<String, String>::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let known = fields.entry(name.to_ascii_lowercase()).or_default();
        if !known.is_empty() {
            known.push_str(", ");
        }
        known.push_str(value);
    }
    let mut body = match fields.get("transfer-encoding").is_some_and(|value| value == "chunked") {
        true => decode_chunks(body),
        false => body.to_vec(),
    };
    if fields.get("content-encoding").is_some_and(|value| value == "gzip") {
        let mut decoded = Vec::new();
        flate2::read::GzDecoder::new(&*body).read_to_end(&mut decoded).expect("gzip");
        body = decoded;
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    let is_built_in = is_built_in(&status, &body);
    let mut parts = Parts::new();
    for name in FIELDS {
        let value = fields.get(name).map(|value| normalize(name, value, request));
        // The type of a built-in page is not of interest.
        if let Some(value) = value.filter(|_| !is_built_in || name != "content-type") {
            parts.insert(name.to_owned(), value);
        }
    }
    let body = if is_built_in { String::new() } else { body };
    parts.insert("status".to_owned(), status);
    parts.insert("body".to_owned(), body);
    parts
}

/// Returns true for a body that the server has itself for this status, or none.
fn is_built_in(status: &str, body: &str) -> bool {
    let begins_with_status = body.starts_with(status) && body.len() < 100;
    let is_redirect = status.starts_with('3');
    is_redirect
        || begins_with_status
        || body.is_empty()
        || body.contains("<hr><center>nginx")
        || body.contains("<h1>") && body.contains(status) && !body.contains("custom")
}

/// Removes differences of form, such as an absolute URL of the same host.
fn normalize(name: &str, value: &str, request: &Request) -> String {
    match name {
        "location" => {
            let scheme = if request.is_secure { "https://" } else { "http://" };
            let own = value.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(&request.host));
            let value = &match value.starts_with("//") {
                true => format!("{}{}", scheme.trim_end_matches("//"), value),
                false => value.to_owned(),
            };
            let path = own.map(|rest| {
                let rest = rest.strip_prefix(':').unwrap_or(rest);
                rest.trim_start_matches(|c: char| c.is_ascii_digit())
            });
            path.filter(|path| path.starts_with('/')).unwrap_or(value).to_owned()
        }
        "content-type" => {
            let value = value.to_ascii_lowercase().replace("; charset=utf-8", "");
            match &*value {
                "application/javascript" => "text/javascript".to_owned(),
                _ => value,
            }
        }
        "x-request-id" if is_random(value) => "random".to_owned(),
        "vary" | "access-control-allow-headers" => value.to_ascii_lowercase(),
        "www-authenticate" => value.replace(", charset=\"UTF-8\"", ""),
        _ => value.to_owned(),
    }
}

/// Returns true for 128 random bits in hexadecimal digits, also as a UUID.
pub fn is_random(value: &str) -> bool {
    let digits = value.replace('-', "");
    digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn decode_chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|bytes| bytes == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).unwrap_or_default();
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16);
        let size = size.expect("a chunk size");
        let chunk = &rest[end + 2..];
        body.extend_from_slice(&chunk[..size]);
        match size {
            0 => break,
            _ => rest = &chunk[size + 2..],
        }
    }
    body
}
