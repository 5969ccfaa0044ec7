//! Requests, and what their responses disclose.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::connection::{Connection, ReceivedResponse};
use super::sweep::ServerBlock;
use crate::idioms::file::Request;

/// The parts of a response that are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 0 for a connection that is closed without a response.
    pub status: u16,
    /// Location of a redirect, without the requested host.
    pub location: String,
    /// First line of the content, if it is the content of a file, a script or an upstream.
    pub content: String,
    /// Compared fields by their names in lower case.
    fields: BTreeMap<String, String>,
    body: String,
    /// Only the status is known.
    is_recorded: bool,
}

/// Beginnings of the contents of files, scripts and upstreams.
const MARKS: [&str; 8] =
    ["text of", "secret of", "ran ", "GET ", "POST ", "PUT ", "DELETE ", "<?php"];

/// Fields that are compared, besides `Access-Control-…` and `X-…`.
const FIELDS: [&str; 8] = [
    "cache-control",
    "content-security-policy",
    "content-type",
    "expires",
    "referrer-policy",
    "set-cookie",
    "strict-transport-security",
    "www-authenticate",
];

/// Fields that restrict browsers.
const PROTECTIONS: [&str; 5] = [
    "content-security-policy",
    "referrer-policy",
    "strict-transport-security",
    "x-content-type-options",
    "x-frame-options",
];

impl Answer {
    fn new(response: Option<ReceivedResponse>, host: &str) -> Answer {
        let Some(ReceivedResponse { head, body }) = response else { return Answer::default() };
        let body = String::from_utf8_lossy(&body).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let mut answer = Answer { status: status.unwrap_or(0), ..Answer::default() };
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            answer.add_field(&name.to_ascii_lowercase(), value, host);
        }
        let line = body.lines().next().unwrap_or_default();
        if MARKS.iter().any(|mark| line.contains(mark)) {
            // An empty and an absent PATH_INFO are the same.
            answer.content = line.replace("  ", " - ");
        }
        answer.body = body;
        answer
    }

    fn add_field(&mut self, name: &str, value: &str, host: &str) {
        match name {
            "location" => self.location = own_location(value, host),
            // The time depends on the second of the request.
            "expires" => drop(self.fields.insert(name.to_owned(), "present".to_owned())),
            _ if FIELDS.contains(&name)
                || name.starts_with("access-control-")
                || name.starts_with("x-") =>
            {
                let value = value.split("; charset=").next().unwrap_or_default();
                let list = self.fields.entry(name.to_owned()).or_default();
                if !list.is_empty() {
                    list.push_str(", ");
                }
                list.push_str(value);
            }
            _ => {}
        }
    }

    /// Returns the recorded status as the response of a server that is not installed.
    pub fn of_status(status: u16) -> Answer {
        let status = if status == 444 { 0 } else { status };
        let body = "unknown".to_owned();
        Answer { status, body, is_recorded: true, ..Answer::default() }
    }

    /// Returns true if a client sees no difference, except for fields.
    pub fn is_like(&self, other: &Answer) -> bool {
        self.status == other.status
            && (other.is_recorded
                || (&self.location, &self.content) == (&other.location, &other.content))
    }

    /// Returns the names of fields that differ, if the rest is equal. Pages of errors and of
    /// redirects have other types.
    pub fn different_fields(&self, other: &Answer) -> Vec<String> {
        if other.is_recorded || !self.is_like(other) {
            return Vec::new();
        }
        let names = self.fields.keys().chain(other.fields.keys());
        let differ = |name: &&String| self.fields.get(*name) != other.fields.get(*name);
        let is_page = self.content.is_empty();
        let mut names: Vec<String> = names
            .filter(differ)
            .filter(|name| !is_page || *name != "content-type")
            .cloned()
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the value of a compared field.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub fn show(&self) -> String {
        let status = self.recorded_status();
        format!("{status} {} {}", self.location, self.content).trim_end().replace("  ", " ")
    }

    /// Returns the status 444 of nginx for a connection that is closed.
    pub fn recorded_status(&self) -> u16 {
        if self.status == 0 { 444 } else { self.status }
    }

    /// Returns true if the response discloses nothing: an error, or no content.
    pub fn is_closed(&self) -> bool {
        self.status >= 400 || self.status == 0 || self.status == 200 && self.body.is_empty()
    }

    /// Returns the reason for which this response of Weft is more than the response of the other
    /// server.
    pub fn opens(&self, other: &Answer) -> Option<&'static str> {
        let is_secret = self.body.contains("secret of") && self.content != other.content;
        match () {
            () if other.is_recorded && !other.is_closed() => None,
            () if self.body.contains("<?php") && !other.body.contains("<?php") => Some("a source"),
            () if is_secret => Some("a secret"),
            () if other.is_closed() && !self.is_closed() => Some("a response"),
            () => None,
        }
    }

    /// Returns the reason for which this response of Weft permits more than the response of nginx:
    /// as [`Answer::opens`], and by its fields.
    pub fn permits(&self, other: &Answer) -> Option<&'static str> {
        let permits_origin = |name: &&String| {
            name.starts_with("access-control-") && self.field(name) != other.field(name)
        };
        let is_missing = |name: &&str| !other.field(name).is_empty() && self.field(name).is_empty();
        let has = |answer: &Answer, value: &str| answer.field("cache-control").contains(value);
        let may_store = |value: &&str| has(other, value) && !has(self, value);
        self.opens(other).or(match () {
            () if other.is_recorded || self.status != other.status || self.is_closed() => None,
            () if self.fields.keys().any(|name| permits_origin(&name)) => Some("an origin"),
            () if self.content.is_empty() => None,
            () if PROTECTIONS.iter().any(is_missing) => Some("no protection"),
            () if ["no-store", "private", "no-cache"].iter().any(may_store) => {
                Some("a cached response")
            }
            () => None,
        })
    }

    /// Returns the file whose content this is, or the script that has made it.
    pub fn source(&self) -> Option<&str> {
        match self.content.split_once(' ') {
            Some(("ran", rest)) => rest.split(' ').next(),
            _ if self.content.contains("text of") || self.content.contains("secret of") => {
                Some(&self.content)
            }
            _ => None,
        }
    }
}

/// Returns a location without its scheme and host, if the request has the same.
fn own_location(location: &str, host: &str) -> String {
    let rest = location.strip_prefix("http://").or(location.strip_prefix("https://"));
    let own = rest.and_then(|rest| rest.strip_prefix(host));
    let path = own.map(|rest| {
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        rest.trim_start_matches(|c: char| c.is_ascii_digit())
    });
    path.filter(|path| path.starts_with('/')).unwrap_or(location).to_owned()
}

/// A client of a server that keeps its connection.
pub struct KeptClient {
    address: SocketAddr,
    tls_host: Option<String>,
    connection: Option<Connection>,
}

impl KeptClient {
    pub fn new(address: SocketAddr, block: &ServerBlock) -> KeptClient {
        let tls_host = block.is_secure.then(|| block.host.clone());
        KeptClient { address, tls_host, connection: None }
    }

    /// Sends a request. If the server has closed the connection meanwhile, it is sent once more.
    pub fn send(&mut self, request: &Request) -> Answer {
        if let Some(connection) = self.connection.as_mut().filter(|it| it.is_open()) {
            let answer = send_over(connection, request, false);
            if answer.status > 0 {
                return answer;
            }
        }
        let connection = Connection::open(self.address, self.tls_host.as_deref());
        send_over(self.connection.insert(connection), request, false)
    }
}

/// Sends a request over a connection of its own.
pub fn send(address: SocketAddr, request: &Request) -> Answer {
    let host = request.is_secure.then_some(request.host.as_str());
    send_over(&mut Connection::open(address, host), request, true)
}

/// Sends a request over an open connection.
fn send_over(connection: &mut Connection, request: &Request, is_last: bool) -> Answer {
    let Request { method, target, host, .. } = request;
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
    if is_last {
        head.push_str("Connection: close\r\n");
    }
    for (name, value) in request.fields.iter().filter(|(name, _)| name != "Listener") {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if request.body_length > 0 {
        head.push_str(&format!("Content-Length: {}\r\n", request.body_length));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + request.body_length, b'x');
    Answer::new(connection.exchange(&bytes, method == "HEAD"), host)
}
