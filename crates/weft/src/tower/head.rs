//! Request heads, from requests that services or layers may have changed.

use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, Method, Version};

use crate::error::Result;
use crate::message::request_head::RequestHead;
use weft_proto::headers::{HeadersBuilder, text_len};
use weft_proto::http1::framing;

/// Returns a head with the target and the fields of an `http` request. If the request was created
/// from `original` and its fields are unchanged, this is `original` itself.
pub(super) fn from_parts(parts: &Parts, original: Option<RequestHead>) -> Result<RequestHead> {
    match original {
        Some(head) if has_fields(&head, &parts.headers) => Ok(head),
        Some(original) => {
            let line = (original.received_method(), original.version(), original.target());
            let mut head = write(line, &parts.headers)?;
            if head.method() != original.method() {
                head.set_method(original.method().clone());
            }
            Ok(head)
        }
        // Over HTTP/2 the target is path and query, and the authority is the field `Host`.
        None => match parts.uri.path_and_query() {
            Some(local) if parts.version >= Version::HTTP_2 && parts.headers.contains_key(HOST) => {
                write((&parts.method, parts.version, local.as_str()), &parts.headers)
            }
            _ => write((&parts.method, parts.version, &parts.uri.to_string()), &parts.headers),
        },
    }
}

/// Returns true if the map has the same fields as the head. If fields of the same name are not
/// adjacent, the map has another order, and the result is `false`.
fn has_fields(head: &RequestHead, map: &HeaderMap) -> bool {
    let headers = head.headers();
    headers.len() == map.len()
        && headers.iter().zip(map).all(|((name, value), (other_name, other_value))| {
            value == other_value.as_bytes() && name.eq_ignore_ascii_case(other_name.as_str())
        })
}

/// Writes a head into a new buffer: target, names and values, one after the other.
fn write(
    (method, version, target): (&Method, Version, &str),
    map: &HeaderMap,
) -> Result<RequestHead> {
    let mut lines = HeadersBuilder::with_capacity(target.len() + text_len(map))?;
    let target = lines.part(target.as_bytes());
    for (name, value) in map {
        lines.field(name.as_str().as_bytes(), value.as_bytes());
    }
    let names = framing::target(method, target, lines.text())?;
    Ok(RequestHead::new(method.clone(), version, target, names, lines.into_headers()))
}
