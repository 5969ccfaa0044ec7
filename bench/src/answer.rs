//! Check of a peer's response before the measurement: a peer with a wrong response is reported, not
//! measured.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::request::{RequestSpec, Scheme};
use crate::server::Server;
use crate::site::Site;

/// A response that has passed the check.
pub struct Answer {
    /// The names of its header fields.
    pub fields: Vec<String>,
    /// The length of a compressed body.
    pub compressed_bytes: Option<u64>,
}

/// Sends one request and compares the body with the file.
pub fn check(server: &Server, request: &RequestSpec, site: &Site) -> Result<Answer> {
    let (head, body) = (site.run.join("answer-head"), site.run.join("answer-body"));
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--insecure", "--max-time", "10"]);
    curl.arg(if request.scheme == Scheme::H2c { "--http2-prior-knowledge" } else { "--http1.1" });
    let is_compressed = request.fields == [("Accept-Encoding", "gzip")];
    if is_compressed {
        curl.arg("--compressed");
    }
    for (name, value) in request.fields {
        curl.args(["-H", &format!("{name}: {value}")]);
    }
    let url = request.url(&server.port_of(request.scheme).to_string());
    // The size is that before the decompression.
    curl.args(["-w", "%{size_download}"]);
    let output = curl.arg("-D").arg(&head).arg("-o").arg(&body).arg(url).output();
    let output = output.map_err(|error| format!("curl: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let (head, body) = (fs::read_to_string(head), fs::read(body));
    let (head, body) =
        head.and_then(|head| Ok((head, body?))).map_err(|error| error.to_string())?;
    let fields = fields(&head)?;
    let expected = site.expected(request.path)?;
    if body != expected {
        return Err(format!(
            "the response has {} bytes instead of the {} of the file",
            body.len(),
            expected.len()
        ));
    }
    if is_compressed && !fields.iter().any(|name| name == "content-encoding") {
        return Err("the response is not compressed".into());
    }
    let size = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    Ok(Answer { fields, compressed_bytes: size.filter(|_| is_compressed) })
}

/// Returns the lowercase field names of a head with status 200.
fn fields(head: &str) -> Result<Vec<String>> {
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("unexpected status line {status:?}"));
    }
    let names = lines.filter_map(|line| Some(line.split_once(':')?.0.to_ascii_lowercase()));
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::fields;

    #[test]
    fn returns_field_names_of_successful_response_only() {
        let names = fields("HTTP/1.1 200 OK\r\nDate: now: then\r\nX-A: b\r\n\r\n").unwrap();
        assert_eq!(names, ["date", "x-a"]);
        assert!(fields("HTTP/1.1 404 Not Found\r\n\r\n").is_err());
        assert!(fields("").is_err());
    }
}
