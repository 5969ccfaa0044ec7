//! Preconditions and ranges of file responses: status 200, 206, 304, 412 or 416 (RFC 9110 §13,
//! §14). Pure.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, EXPIRES, LAST_MODIFIED,
};
use http::{Method, StatusCode};

use crate::disk::File;
use crate::message::fields::Fields;
use crate::message::payload::{Part, Parts, Payload};
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use weft_proto::semantics::conditional::{Outcome, Validators, evaluate, range_applies};
use weft_proto::semantics::date::{http_date, parse_http_date};
use weft_proto::semantics::range::{
    Multipart, Selection, content_range, select, unsatisfied_content_range,
};

/// Time of a response, and the source of the boundary for a multipart response.
pub(crate) struct ResponseContext {
    /// Seconds since 1970.
    pub(crate) now: u64,
    pub(crate) boundary: fn() -> String,
}

/// Completes a response with a file: adds its validators, evaluates the preconditions of the
/// request and applies its ranges. Any other response is returned unchanged.
pub(crate) fn complete_file_response(
    head: &RequestHead,
    mut response: Response,
    context: &ResponseContext,
) -> Response {
    let Payload::File(file) = &response.payload else { return response };
    // RFC 9110 §13.2.1: preconditions apply if the response would be a success otherwise, and are
    // evaluated before the method has its effect. The application has already run, so they are
    // evaluated here only for methods without effects.
    let is_get_or_head = matches!(*head.received_method(), Method::GET | Method::HEAD);
    if !is_get_or_head || response.status != StatusCode::OK {
        return response;
    }
    // The fields of a cached file are complete; most requests have no condition and no range.
    if matches!(response.headers, Fields::Preserialized(_)) && !has_condition_or_range(head) {
        return response;
    }
    let file = File::clone(file);
    response = validate_file(head, response, context.now);
    if response.status != StatusCode::OK {
        return response;
    }
    if response.header(ACCEPT_RANGES.as_str()).is_none() {
        response.set_header(ACCEPT_RANGES, "bytes");
    }
    let mut ranges = head.headers().get_all("range");
    let range = match (ranges.next(), ranges.next()) {
        (Some(range), None) if *head.received_method() == Method::GET => range,
        // RFC 9110 §14.2: ranges apply only to GET, not to a HEAD handled as GET. Several Range
        // fields are ignored.
        _ => return response,
    };
    if !range_applies(head.headers(), &validators(&response, context.now), context.now) {
        return response;
    }
    match select(range, file.length) {
        Selection::Whole => response,
        Selection::One(range) => {
            response.remove_header(CONTENT_LENGTH);
            response.set_header(CONTENT_RANGE, content_range(&range, file.length));
            response.payload = Payload::File(Arc::new(file.slice(range)));
            response.with_status(StatusCode::PARTIAL_CONTENT)
        }
        Selection::Several(ranges) => {
            let content_type = response.header(CONTENT_TYPE.as_str()).cloned();
            let content_type = content_type.as_ref().map(|value| value.as_bytes());
            let boundary = (context.boundary)();
            let multipart = Multipart::new(&ranges, file.length, content_type, &boundary);
            response.remove_header(CONTENT_LENGTH);
            response.set_header(CONTENT_TYPE, multipart.content_type());
            response.payload = parts(&multipart, ranges, &file);
            response.with_status(StatusCode::PARTIAL_CONTENT)
        }
        Selection::Unsatisfiable => {
            response.set_header(CONTENT_RANGE, unsatisfied_content_range(file.length));
            error_response(response, StatusCode::RANGE_NOT_SATISFIABLE)
        }
    }
}

/// Adds the validators of a file to its response, and evaluates the preconditions of the request.
pub(crate) fn validate_file(head: &RequestHead, mut response: Response, now: u64) -> Response {
    let Payload::File(file) = &response.payload else { return response };
    let file = file.clone();
    add_validators(&mut response, &file, now);
    let is_get_or_head = matches!(*head.received_method(), Method::GET | Method::HEAD);
    match is_get_or_head && response.status == StatusCode::OK {
        true => evaluate_preconditions(head, response, now),
        false => response,
    }
}

/// Evaluates the preconditions of a request against the validators of a successful response.
/// Returns the response unchanged, or as 304 or 412.
pub(crate) fn evaluate_preconditions(head: &RequestHead, response: Response, now: u64) -> Response {
    match evaluate(head.received_method(), head.headers(), &validators(&response, now), now) {
        Outcome::Proceed => response,
        Outcome::NotModified => not_modified(response),
        Outcome::Failed => error_response(response, StatusCode::PRECONDITION_FAILED),
    }
}

/// Returns the validators in the header fields of a response.
fn validators(response: &Response, now: u64) -> Validators<'_> {
    let modified = response.header(LAST_MODIFIED.as_str());
    Validators {
        etag: response.header(ETAG.as_str()).map(|etag| etag.as_bytes()),
        modified: modified.and_then(|date| parse_http_date(date.as_bytes(), now)),
    }
}

/// Returns true if a request has a precondition or a range.
fn has_condition_or_range(head: &RequestHead) -> bool {
    head.headers().names().any(|name| match name {
        [b'i' | b'I', b'f' | b'F', b'-', ..] => true,
        name => name.eq_ignore_ascii_case(b"range"),
    })
}

/// Adds `ETag` and `Last-Modified`, unless the application has set them.
fn add_validators(response: &mut Response, file: &File, now: u64) {
    let Some(version) = &file.version else { return };
    if response.header(ETAG.as_str()).is_none() {
        response.set_header(ETAG, version.entity_tag(now));
    }
    if response.header(LAST_MODIFIED.as_str()).is_none()
        && let Some(modified) = version.modified()
    {
        // RFC 9110 §8.8.2.1: Last-Modified must not be in the future.
        let now = UNIX_EPOCH + Duration::from_secs(now);
        response.set_header(LAST_MODIFIED, http_date(modified.min(now)));
    }
}

/// Makes a 304 response. Fields that describe the representation are removed, fields that a cache
/// needs to update the stored response are kept (RFC 9110 §15.4.5).
pub(crate) fn not_modified(mut response: Response) -> Response {
    for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LENGTH, ACCEPT_RANGES] {
        response.remove_header(name);
    }
    response.payload = Payload::empty();
    response.with_status(StatusCode::NOT_MODIFIED)
}

/// Makes an error response with a line of text, without the fields that describe the file.
fn error_response(mut response: Response, status: StatusCode) -> Response {
    for name in [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_DISPOSITION, CACHE_CONTROL, EXPIRES] {
        response.remove_header(name);
    }
    response.set_header(CONTENT_TYPE, "text/plain; charset=utf-8");
    response.payload = Payload::Body(format!("{status}\n").into());
    response.is_generated_error = true;
    let replacement = response.extensions.remove::<ErrorReplacement>();
    let response = response.with_status(status);
    match replacement {
        Some(ErrorReplacement(replace)) => replace(response),
        None => response,
    }
}

/// Replaces the error response that is made of a file response by its preconditions or its range.
#[derive(Clone)]
pub(crate) struct ErrorReplacement(pub(crate) Arc<dyn Fn(Response) -> Response + Send + Sync>);

fn parts(multipart: &Multipart, ranges: Vec<std::ops::Range<u64>>, file: &File) -> Payload {
    let part = |(index, range)| Part {
        head: multipart.part_head(index).to_vec(),
        file: file.clone().slice(range),
    };
    Payload::Parts(Box::new(Parts {
        parts: ranges.into_iter().enumerate().map(part).collect(),
        end: multipart.end().to_vec(),
        length: multipart.content_length(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    const NOW: u64 = 1_000_000_000;

    fn ten_byte_file() -> Response {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(NOW - 1_000)).unwrap();
        Response::from_file(File::open(file).unwrap())
            .with_header(CONTENT_TYPE, "text/plain")
            .with_header(CONTENT_LENGTH, "10")
            .with_header(ETAG, "\"e\"")
    }

    /// Returns status, Content-Range and body length of the response.
    fn respond(method: &str, fields: &str) -> (u16, Option<String>, Option<u64>) {
        let request = request(format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let context = ResponseContext { now: NOW, boundary: || "B".to_owned() };
        let response = complete_file_response(request.head(), ten_byte_file(), &context);
        let range = response.header("content-range").map(|v| v.to_str().unwrap().to_owned());
        let declared = response.declared_length().map(|length| length.unwrap());
        assert!(declared.is_none_or(|length| Some(length) == response.length()), "{fields}");
        (response.status().as_u16(), range, response.length())
    }

    #[test]
    fn applies_preconditions_and_ranges() {
        let modified = http_date(UNIX_EPOCH + Duration::from_secs(NOW - 1_000));
        for (method, fields, status, range, length) in [
            ("GET", "", 200, None, 10),
            ("GET", "Range: bytes=2-4\r\n", 206, Some("bytes 2-4/10"), 3),
            ("HEAD", "Range: bytes=2-4\r\n", 200, None, 10),
            ("GET", "Range: bytes=2-4\r\nRange: bytes=5-6\r\n", 200, None, 10),
            ("GET", "Range: bytes=-3\r\n", 206, Some("bytes 7-9/10"), 3),
            ("GET", "Range: bytes=10-\r\n", 416, Some("bytes */10"), 26),
            ("GET", "Range: nonsense\r\n", 200, None, 10),
            ("GET", "Range: bytes=2-4\r\nIf-Range: \"e\"\r\n", 206, Some("bytes 2-4/10"), 3),
            ("GET", "Range: bytes=2-4\r\nIf-Range: \"f\"\r\n", 200, None, 10),
            ("GET", "If-None-Match: \"e\"\r\n", 304, None, 0),
            ("GET", "If-None-Match: W/\"e\", \"f\"\r\nRange: bytes=2-4\r\n", 304, None, 0),
            ("GET", "If-None-Match: \"f\"\r\n", 200, None, 10),
            ("POST", "If-None-Match: *\r\nRange: bytes=2-4\r\n", 200, None, 10),
            ("GET", "If-Match: \"f\"\r\n", 412, None, 24),
            ("GET", &format!("If-Modified-Since: {modified}\r\n"), 304, None, 0),
            ("GET", &format!("If-Unmodified-Since: {modified}\r\n"), 200, None, 10),
        ] {
            let expected = (status, range.map(str::to_owned), Some(length));
            assert_eq!(respond(method, fields), expected, "{method} {fields}");
        }
    }

    #[test]
    fn leaves_unsuccessful_responses_unchanged() {
        let request = request("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"e\"\r\n\r\n");
        let context = ResponseContext { now: NOW, boundary: || "B".to_owned() };
        let not_found = ten_byte_file().with_status(StatusCode::NOT_FOUND);
        let response = complete_file_response(request.head(), not_found, &context);
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.header("accept-ranges"), None);
    }
}
