//! The head of a request that services or layers have had in their hands.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Version};

use crate::error::{Error, ErrorKind, Result};
use crate::h1::framing;
use crate::h1::parse::{self, Field, MOST_BYTES, Span};
use crate::headers::Headers;
use crate::request::Head;

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
    let parts = map.iter().map(|(name, value)| name.as_str().len() + value.len());
    let mut text = Vec::with_capacity(target.len() + parts.sum::<usize>());
    if text.capacity() > MOST_BYTES {
        return Err(Error::new(ErrorKind::HeadTooLarge, "the fields of the head are too large"));
    }
    let mut head = parse::Head::new();
    head.method = method.clone();
    head.version = version;
    head.target = add(&mut text, target.as_bytes());
    for (name, value) in map {
        let name = add(&mut text, name.as_str().as_bytes());
        head.fields.push(Field { name, value: add(&mut text, value.as_bytes()) });
    }
    let names = framing::target(&head, &text)?;
    let headers = Headers::new(Bytes::from(text), head.fields);
    Ok(Head::new(head.method, head.version, head.target, names, headers))
}

fn add(text: &mut Vec<u8>, part: &[u8]) -> Span {
    let start = text.len();
    text.extend_from_slice(part);
    Span::new(start, text.len())
}
