//! The fields of a response that are stored (RFC 9111 §3.1), and their update by a 304 (§3.2).

use std::collections::HashSet;

use http::{HeaderName, HeaderValue};

use crate::list::list_members;

/// Names of fields that concern one connection, or that a cache makes itself.
const NEVER_STORED: [&str; 11] = [
    "age",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Names of fields that describe the stored content, which a 304 does not change.
const OF_CONTENT: [&str; 5] =
    ["content-encoding", "content-length", "content-md5", "content-range", "etag"];

/// Removes fields that are not stored: of the connection, named by `Connection`, and those in
/// `excluded`, whose names are in lowercase.
pub fn retain_stored(fields: &mut Vec<(HeaderName, HeaderValue)>, excluded: &[String]) {
    let lines = fields.iter().filter(|(name, _)| *name == http::header::CONNECTION);
    let mut not_stored: HashSet<String> = lines
        .flat_map(|(_, value)| list_members(value.as_bytes()))
        .map(|name| String::from_utf8_lossy(name).to_ascii_lowercase())
        .collect();
    not_stored.extend(excluded.iter().cloned());
    fields.retain(|(name, _)| {
        !NEVER_STORED.contains(&name.as_str()) && !not_stored.contains(name.as_str())
    });
}

/// Updates stored fields by the fields of a 304: each name that it contains replaces all stored
/// fields with this name, unless it describes the stored content.
pub fn update(
    stored: &mut Vec<(HeaderName, HeaderValue)>,
    mut received: Vec<(HeaderName, HeaderValue)>,
) {
    retain_stored(&mut received, &[]);
    received.retain(|(name, _)| !OF_CONTENT.contains(&name.as_str()));
    stored.retain(|(name, _)| !received.iter().any(|(other, _)| other == name));
    stored.append(&mut received);
}
