//! The head of a request that services or layers have had in their hands.

use http::request::Parts;
use http::{HeaderMap, Method, Version};

use crate::error::Result;
use crate::message::request::Head;
use crate::proto::headers::{Lines, size};
use crate::proto::http1::framing;

/// The head with the target and the fields that `http` has of a request. If it was ours
/// and they did not touch its fields, it is still the same.
pub(super) fn from_parts(parts: &Parts, known: Option<Head>) -> Result<Head> {
    match known {
        Some(head) if has_fields(&head, &parts.headers) => Ok(head),
        Some(head) => write((head.method(), head.version(), head.target()), &parts.headers),
        None => write((&parts.method, parts.version, &parts.uri.to_string()), &parts.headers),
    }
}

/// Whether these are the fields of the head. If some of one name do not stand together, the
/// map has another order, and the answer is no.
fn has_fields(head: &Head, map: &HeaderMap) -> bool {
    let headers = head.headers();
    headers.len() == map.len()
        && headers.iter().zip(map).all(|((name, value), (other_name, other_value))| {
            value == other_value.as_bytes() && name.eq_ignore_ascii_case(other_name.as_str())
        })
}

/// A head of new bytes: target, names and values, one after the other.
fn write((method, version, target): (&Method, Version, &str), map: &HeaderMap) -> Result<Head> {
    let mut lines = Lines::with_capacity(target.len() + size(map))?;
    let target = lines.part(target.as_bytes());
    for (name, value) in map {
        lines.field(name.as_str().as_bytes(), value.as_bytes());
    }
    let names = framing::target(method, target, &lines.text)?;
    Ok(Head::new(method.clone(), version, target, names, lines.into_headers()))
}
