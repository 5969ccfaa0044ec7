//! JSON (RFC 8259) in requests and responses, converted with serde.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::error::{Error, ErrorKind, Result};
use crate::message::fields::{Fields, JSON};
use crate::message::payload::Payload;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use http::StatusCode;

/// Maximum size of a document that [`Request::json`] reads, in bytes.
const MAX_JSON_BYTES: usize = 2 << 20;

/// Maximum number of characters of an error in a response. Errors contain texts of the client.
const MAX_REASON_CHARS: usize = 300;

impl Request {
    /// Reads the body as JSON, up to 2 MiB.
    ///
    /// ```
    /// use weft::{Request, Response, testing};
    ///
    /// #[derive(serde::Deserialize, serde::Serialize)]
    /// struct User { name: String, age: u8 }
    ///
    /// async fn birthday(request: Request) -> weft::Result<Response> {
    ///     let User { name, age } = request.json().await?;
    ///     Ok(Response::json(User { name, age: age.saturating_add(1) }))
    /// }
    ///
    /// let post = |text: &str| {
    ///     let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    ///     let text = format!("{head}Content-Length: {}\r\n\r\n{text}", text.len());
    ///     testing::call(birthday, testing::request(text))
    /// };
    /// post(r#"{"name":"Ada","age":36}"#).assert_text(r#"{"name":"Ada","age":37}"#);
    /// post(r#"{"name":"Ada"}"#).assert_text(
    ///     "422 Unprocessable Entity: invalid JSON: missing field `age` at line 1 column 14\n",
    /// );
    /// ```
    ///
    /// # Errors
    /// They become these responses:
    ///
    /// - 415 if `Content-Type` is neither `application/json` nor `application/…+json`,
    /// - 413 if the document is larger than 2 MiB, or than
    ///   [`Settings::max_body_bytes`](crate::Settings),
    /// - 400 if it is not JSON, or nested by more than 128 levels,
    /// - 422 if it does not have the form of the type.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T> {
        self.json_within(MAX_JSON_BYTES).await
    }

    /// Reads the body as JSON as [`json`](Request::json) does, up to `max_bytes` bytes.
    /// [`Settings::max_body_bytes`](crate::Settings) still applies;
    /// [`Body::set_limit`](crate::Body::set_limit) raises it.
    ///
    /// # Errors
    /// The errors of [`json`](Request::json).
    pub async fn json_within<T: DeserializeOwned>(mut self, max_bytes: usize) -> Result<T> {
        expect_json(&self)?;
        let text = self.take_body().collect_within(max_bytes, "Request::json_within").await?;
        serde_json::from_slice(&text).map_err(invalid_json)
    }
}

impl Response {
    /// Creates a 200 response with a value, or what a reference refers to, as JSON. If the value
    /// cannot be written as JSON, such as a map whose keys are not text, the response is 500, and
    /// the hooks get the error.
    pub fn json<T: Serialize>(value: T) -> Response {
        match serde_json::to_vec(&value) {
            Ok(text) => {
                let body = Bytes::from(text).into();
                Response::success(Fields::Static(&JSON), Payload::Body(body))
            }
            Err(error) => Error::other(error).into(),
        }
    }
}

/// Checks that the content of a request is JSON.
fn expect_json(head: &RequestHead) -> Result<()> {
    let found = head.headers().get_bytes("content-type").unwrap_or_default();
    let found = found.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
    let found = String::from_utf8_lossy(found).to_ascii_lowercase();
    let kind = found.strip_prefix("application/");
    if kind.is_some_and(|kind| kind == "json" || kind.ends_with("+json")) {
        return Ok(());
    }
    let found = if found.is_empty() { "nothing".into() } else { shown(&found) };
    let reason = format!("expected application/json, and Content-Type says {found}");
    Err(Error::new(ErrorKind::MediaTypeUnsupported, reason))
}

fn invalid_json(error: serde_json::Error) -> Error {
    let reason = format!("invalid JSON: {}", shown(&error.to_string()));
    match error.classify() {
        Category::Data => Error::status(StatusCode::UNPROCESSABLE_ENTITY, reason),
        Category::Io | Category::Syntax | Category::Eof => Error::new(ErrorKind::Malformed, reason),
    }
}

/// Limits a text that a client determines. The end of an error has its place in the document.
fn shown(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let length = text.chars().count();
    if length <= MAX_REASON_CHARS {
        return text.chars().map(clean).collect();
    }
    let half = MAX_REASON_CHARS / 2;
    let start = text.chars().take(half);
    start.chain(['…']).chain(text.chars().skip(length - half)).map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, TestResponse};

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Point {
        x: u8,
        y: Option<u8>,
    }

    async fn point(request: Request) -> Result<Response> {
        let Point { x, y } = request.json_within(40).await?;
        Ok(Response::json([Some(x), y]))
    }

    fn post(media_type: &str, text: &str) -> TestResponse {
        let head = "POST / HTTP/1.1\r\nHost: a\r\n";
        let length = text.len();
        let text = format!("{head}{media_type}Content-Length: {length}\r\n\r\n{text}");
        testing::call(point, testing::request(text))
    }

    #[test]
    fn reads_json_or_states_its_error() {
        let json = "Content-Type: application/json\r\n";
        let longest = format!("{{\"x\":1{}}}", " ".repeat(33));
        let too_long = format!("{{\"x\":1{}}}", " ".repeat(34));
        let nested = "[".repeat(40);
        for (media_type, text, status, expected) in [
            (json, r#"{"x":1}"#, 200, "[1,null]"),
            (json, &*longest, 200, "[1,null]"),
            (json, &*too_long, 413, "413 Payload Too Large: the body is larger than 40 bytes\n"),
            (
                "Content-Type: Application/Geo+JSON; charset=utf-8\r\n",
                r#"{"x":1}"#,
                200,
                "[1,null]",
            ),
            ("Content-Type: application/ld+json\r\n", r#"{"x":1,"y":2}"#, 200, "[1,2]"),
            ("Content-Type: text/json\r\n", r#"{"x":1}"#, 415, "Content-Type says text/json\n"),
            ("Content-Type: application/jsonp\r\n", r#"{"x":1}"#, 415, "says application/jsonp\n"),
            ("", r#"{"x":1}"#, 415, "expected application/json, and Content-Type says nothing\n"),
            (json, "", 400, "invalid JSON: EOF while parsing a value at line 1 column 0\n"),
            (json, r#"{"x":1"#, 400, "EOF while parsing an object at line 1 column 6\n"),
            (json, r#"{"x":1} 2"#, 400, "trailing characters at line 1 column 9\n"),
            (json, "{x:1}", 400, "key must be a string at line 1 column 2\n"),
            (json, &*nested, 422, "invalid type"),
            (
                json,
                r#"{"x":256}"#,
                422,
                "invalid value: integer `256`, expected u8 at line 1 column 8",
            ),
            (json, r#"{"y":1}"#, 422, "missing field `x` at line 1 column 7\n"),
            (json, "{\"x\":1,\"a\\r\\nb\":1}", 422, "unknown field `a  b`, expected `x` or `y`"),
        ] {
            let response = post(media_type, text);
            let body = String::from_utf8_lossy(&response.body);
            assert_eq!(response.status, status, "{media_type}{text}: {body}");
            assert!(body.contains(expected), "{media_type}{text}: {body}");
        }
    }

    #[test]
    fn rejects_documents_without_end_of_nesting() {
        async fn any(request: Request) -> Result<Response> {
            let value: serde_json::Value = request.json().await?;
            Ok(Response::json(&value))
        }
        for (levels, status) in [(127, 200), (128, 400), (100_000, 400)] {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
            let length = text.len();
            let text = format!("{head}Content-Length: {length}\r\n\r\n{text}");
            assert_eq!(testing::call(any, testing::request(text)).status, status, "{levels}");
        }
    }

    #[test]
    fn errors_have_a_limited_length() {
        async fn number(request: Request) -> Result<Response> {
            Ok(Response::json(request.json::<u8>().await?))
        }
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
        let text = format!("\"{}\"", "í".repeat(500_000));
        let length = text.len();
        let text = format!("{head}Content-Length: {length}\r\n\r\n{text}");
        let response = testing::call(number, testing::request(text));
        assert_eq!(response.status, 422);
        assert!(response.body.len() < 700, "{}", response.body.len());
        assert!(response.body.ends_with(b"expected u8 at line 1 column 1000002\n"));
    }

    #[test]
    fn value_that_is_no_json_is_an_error_with_a_reason() {
        let response = Response::json(std::collections::BTreeMap::from([([1], 2)]));
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let error = response.error().unwrap().to_string();
        assert_eq!(error, "the application failed: key must be a string");
        assert_eq!(Response::json("text").header("content-type").unwrap(), "application/json");
    }
}
