//! An upstream with the responses of a report.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::report::UpstreamResponse;
use crate::common::{raw_upstream, read_head};

/// Starts an upstream that sends these responses in order, and the last one again. Without a
/// response, it sends each request back as the content of a 200.
pub fn start_upstream(responses: Vec<UpstreamResponse>) -> SocketAddr {
    let requests = AtomicUsize::new(0);
    raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let number = requests.fetch_add(1, Ordering::Relaxed);
            let response = responses.get(number).or(responses.last());
            let is_early = response.is_some_and(|response| response.is_early);
            let content = match is_early {
                true => Vec::new(),
                false => read_content(&mut stream, &head),
            };
            // The proxy closes the connection at the first error.
            let _ = match response {
                Some(response) => stream.write_all(&response.bytes),
                None => stream.write_all(&echo(&head, &content)),
            };
            if response.is_some_and(|response| response.closes) {
                return;
            }
        }
    })
}

/// Returns a response whose content is the request.
fn echo(head: &str, content: &[u8]) -> Vec<u8> {
    let length = head.len() + content.len();
    let fields = format!("Content-Type: text/plain\r\nContent-Length: {length}");
    let mut bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{head}").into_bytes();
    if !head.starts_with("HEAD ") {
        bytes.extend_from_slice(content);
    }
    bytes
}

/// Reads the content of a request with its framing.
fn read_content(stream: &mut TcpStream, head: &str) -> Vec<u8> {
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let mut content = Vec::new();
    if let Some(length) = field("content-length") {
        let length: u64 = length.parse().expect("a length");
        let _ = Read::take(stream, length).read_to_end(&mut content);
    } else if field("transfer-encoding").is_some() {
        let mut byte = [0];
        while !content.ends_with(b"0\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
            content.push(byte[0]);
        }
    }
    content
}
