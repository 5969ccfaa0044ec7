//! `weft cache`: a client of the status endpoint of a running server.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use lexopt::prelude::*;
use serde_json::{Value as Json, json};

use crate::base::sys::UnixStream;

/// Timeout for the response of the server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of a response: 100 URLs of the maximum length of a key, with their tags.
const MAX_RESPONSE_BYTES: u64 = 16 << 20;

/// A request to the server.
pub(crate) enum CacheAction {
    Status,
    List { is_hottest: bool },
    Purge(Json),
}

impl CacheAction {
    /// Parses the name of an action.
    pub(crate) fn parse(word: &str) -> Option<CacheAction> {
        match word {
            "status" => Some(CacheAction::Status),
            "list" => Some(CacheAction::List { is_hottest: false }),
            "purge" => Some(CacheAction::Purge(json!({}))),
            _ => None,
        }
    }

    /// Sets an option of the action; false if it has no such option.
    pub(crate) fn set_option(
        &mut self,
        name: &str,
        parser: &mut lexopt::Parser,
    ) -> Result<bool, lexopt::Error> {
        match (name, self) {
            ("hottest", CacheAction::List { is_hottest }) => *is_hottest = true,
            ("largest", CacheAction::List { is_hottest }) => *is_hottest = false,
            ("url" | "prefix" | "tag", CacheAction::Purge(purge)) => {
                purge[name] = json!(parser.value()?.string()?);
            }
            ("all" | "soft", CacheAction::Purge(purge)) => purge[name] = json!(true),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn request(&self) -> (&'static str, &'static str, String) {
        match self {
            CacheAction::Status => ("GET", "/cache", String::new()),
            CacheAction::List { is_hottest: true } => ("GET", "/cache/hottest", String::new()),
            CacheAction::List { is_hottest: false } => ("GET", "/cache/largest", String::new()),
            CacheAction::Purge(purge) => ("POST", "/cache/purge", purge.to_string()),
        }
    }
}

/// Sends the request to the first address of a status endpoint, and returns the text to print.
///
/// # Errors
/// If the server does not respond, or refuses.
pub(crate) fn run<'a>(
    action: &CacheAction,
    addresses: impl Iterator<Item = &'a str>,
) -> Result<String, String> {
    // Changes are usually permitted for a Unix socket only.
    let mut addresses: Vec<_> = addresses.collect();
    addresses.sort_by_key(|address| !address.starts_with("unix:"));
    let address = addresses.first().ok_or(
        "the configuration has no status endpoint; set `listen` in [status], and `cache_purge`",
    )?;
    let cannot =
        |error: io::Error| format!("no response of the status endpoint at {address}: {error}");
    let response = exchange(address, &action.request()).map_err(cannot)?;
    let (status, body) = parse(&response)
        .ok_or_else(|| format!("the status endpoint at {address} did not respond with HTTP/1.1"))?;
    if status != "200" {
        return Err(format!("the server refused ({status}): {}", body.trim_end()));
    }
    let json: Json = serde_json::from_str(body)
        .map_err(|error| format!("the response of {address} is no JSON: {error}"))?;
    Ok(show(action, &json))
}

fn exchange(address: &str, (method, path, body): &(&str, &str, String)) -> io::Result<String> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request = head + body;
    match address.strip_prefix("unix:") {
        Some(socket) => {
            // Options such as `mode=0660` follow the path.
            let mut stream = UnixStream::connect(socket.split(' ').next().unwrap_or(socket))?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.write_all(request.as_bytes())?;
            read(stream)
        }
        None => {
            let mut stream = TcpStream::connect(reachable(address)?)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.write_all(request.as_bytes())?;
            read(stream)
        }
    }
}

/// Returns an address at which a server that listens on `address` is reached from its machine.
fn reachable(address: &str) -> io::Result<SocketAddr> {
    let text = match address.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => address.to_owned(),
    };
    let mut parsed: SocketAddr = text.parse().map_err(io::Error::other)?;
    match parsed.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => parsed.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => parsed.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Ok(parsed)
}

fn read(stream: impl Read) -> io::Result<String> {
    let mut text = String::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the status and the body of a response, which ends with the connection.
fn parse(response: &str) -> Option<(&str, &str)> {
    let (head, body) = response.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    Some((status, body))
}

fn show(action: &CacheAction, json: &Json) -> String {
    let number = |name: &str| json[name].as_u64().unwrap_or_default();
    match action {
        CacheAction::Purge(purge) => {
            let done = if purge["soft"] == true { "are stale now" } else { "removed" };
            let others = match json["cluster"].as_str() {
                Some("sent") => "; the other servers of the cluster follow",
                Some(_) => "; the store is away, and the other servers follow when it is back",
                None => "",
            };
            format!("{} responses {done}{others}\n", number("purged"))
        }
        CacheAction::Status => show_status(json),
        CacheAction::List { .. } => show_list(json),
    }
}

fn show_status(json: &Json) -> String {
    let number = |name: &str| json[name].as_u64().unwrap_or_default();
    let names = ["hits", "collapsed", "stale", "revalidated", "misses"];
    let total: u64 = names.iter().map(|name| number(name)).sum();
    let answered: u64 = names[..3].iter().map(|name| number(name)).sum();
    let rate = if total == 0 { 0.0 } else { answered as f64 * 100.0 / total as f64 };
    let mut text = format!("answered without the upstream: {rate:.1} % of {total} requests\n");
    let sent = number("hits") + number("stale");
    let age = number("age_seconds") as f64 / sent.max(1) as f64;
    let _ = writeln!(text, "mean age of stored responses: {age:.1} s");
    for name in
        names.iter().chain(&["bypassed", "bytes_sent", "entries", "memory_bytes", "evicted"])
    {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{}: {}", name.replace('_', " "), number(name));
    }
    for name in ["responses", "bytes", "loaded", "evicted", "skipped", "damaged"] {
        if let Some(count) = json["on_disk"][name].as_u64() {
            let _ = writeln!(text, "{name} on disk: {count}");
        }
    }
    text
}

fn show_list(json: &Json) -> String {
    let mut text = String::from("    hits      bytes status     age     ttl  url\n");
    for entry in json["entries"].as_array().into_iter().flatten() {
        let number = |name: &str| entry[name].as_u64().unwrap_or_default();
        let url = entry["url"].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "{:>8} {:>10} {:>6} {:>7} {:>7}  {}",
            number("hits"),
            number("bytes"),
            number("status"),
            number("age"),
            entry["ttl"].as_i64().unwrap_or_default(),
            url.escape_default()
        );
    }
    show_files(json, &mut text);
    text
}

fn show_files(json: &Json, text: &mut String) {
    let mut files = json["on_disk_files"].as_array().into_iter().flatten().peekable();
    if files.peek().is_some() {
        text.push_str("on disk:\n       bytes    idle  url\n");
    }
    for file in files {
        let number = |name: &str| file[name].as_u64().unwrap_or_default();
        let url = file["url"].as_str().unwrap_or_default().escape_default();
        let _ = writeln!(text, "{:>12} {:>7}  {url}", number("bytes"), number("idle"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_address_of_this_machine() {
        for (address, expected) in [
            (":9145", "[::1]:9145"),
            ("[::]:9145", "[::1]:9145"),
            ("0.0.0.0:9145", "127.0.0.1:9145"),
            ("10.0.0.1:9145", "10.0.0.1:9145"),
        ] {
            assert_eq!(reachable(address).unwrap().to_string(), expected);
        }
        assert!(reachable("9145").is_err());
    }

    #[test]
    fn parses_responses() {
        assert_eq!(parse("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}"), Some(("200", "{}")));
        for response in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 2\r\n\r\n"] {
            assert_eq!(parse(response), None, "{response:?}");
        }
    }

    #[test]
    fn shows_whether_other_servers_follow_a_purge() {
        let purge = || CacheAction::Purge(json!({ "all": true, "soft": true }));
        for (response, expected) in [
            (json!({ "purged": 2 }), "2 responses are stale now\n"),
            (
                json!({ "purged": 2, "cluster": "sent" }),
                "2 responses are stale now; the other servers of the cluster follow\n",
            ),
            (
                json!({ "purged": 0, "cluster": "pending" }),
                "0 responses are stale now; the store is away, and the other servers follow when it is back\n",
            ),
        ] {
            assert_eq!(show(&purge(), &response), expected);
        }
    }

    #[test]
    fn lists_responses_in_memory_and_in_files() {
        let entry =
            json!({ "hits": 2, "bytes": 9, "status": 200, "age": 1, "ttl": -3, "url": "u" });
        let file = json!({ "bytes": 7, "idle": 5, "url": "\u{1b}v" });
        let list = |json: &Json| show(&CacheAction::List { is_hottest: true }, json);
        let text = list(&json!({ "entries": [entry], "on_disk_files": [file] }));
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["2", "9", "200", "1", "-3", "u"]);
        assert_eq!(
            lines[2..],
            [vec!["on", "disk:"], vec!["bytes", "idle", "url"], vec!["7", "5", "\\u{1b}v"]]
        );
        assert!(!list(&json!({ "entries": [], "on_disk_files": [] })).contains("disk"));
    }

    #[test]
    fn shows_rates() {
        let json = json!({ "hits": 6, "stale": 1, "collapsed": 1, "misses": 2 });
        let text = show(&CacheAction::Status, &json);
        assert!(
            text.starts_with("answered without the upstream: 80.0 % of 10 requests\n"),
            "{text}"
        );
        let nothing = show(&CacheAction::Status, &json!({}));
        assert!(nothing.starts_with("answered without the upstream: 0.0 % of 0"), "{nothing}");
    }
}
