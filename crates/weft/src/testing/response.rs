//! Responses of tests.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use weft_proto::Headers;
use weft_proto::http1::client::{BodyLength, BodyPiece, BodyReader, ResponseHead};

use crate::error::{Error, ErrorKind, Result};
use crate::testing::connection::TestConnection;

/// Names and values of fields.
type FieldList = Vec<(HeaderName, HeaderValue)>;

/// A response with its complete body.
#[derive(Debug)]
#[non_exhaustive]
pub struct TestResponse {
    /// Status code.
    pub status: StatusCode,
    /// The fields of the application, then the fields that the engine has added, such as `Date` and
    /// `Content-Length`.
    pub headers: FieldList,
    /// Body.
    pub body: Bytes,
    /// Trailer fields.
    pub trailers: FieldList,
    /// Status and fields of the interim responses.
    pub interim: Vec<(StatusCode, FieldList)>,
    /// Texts of the errors that the engine has reported to the hooks.
    pub errors: Vec<String>,
}

impl TestResponse {
    /// Returns the value of the first field with this name.
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        find(&self.headers, name.as_ref())
    }

    /// Returns the body as text.
    ///
    /// # Panics
    /// If the body is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    /// Reads the body as JSON.
    ///
    /// # Panics
    /// If the body is not JSON of the form of `T`.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Asserts that the body is `text`.
    ///
    /// # Panics
    /// If the body differs.
    #[track_caller]
    pub fn assert_text(&self, text: &str) {
        assert_eq!(String::from_utf8_lossy(&self.body), text);
    }
}

/// A response whose body is read piece by piece; returned by
/// [`TestRequest::open`](super::TestRequest::open). The engine runs while a piece is read.
#[non_exhaustive]
pub struct StreamedResponse<'a> {
    /// Status code.
    pub status: StatusCode,
    /// The fields of the application, then the fields that the engine has added.
    pub headers: FieldList,
    interim: Vec<(StatusCode, FieldList)>,
    trailers: FieldList,
    body: BodyReader,
    connection: TestConnection<'a>,
}

impl<'a> StreamedResponse<'a> {
    /// Receives the head.
    pub(super) async fn receive(mut connection: TestConnection<'a>) -> StreamedResponse<'a> {
        let received = connection.read_heads().await;
        connection.errors.resume_panic();
        let (interim, head) = received.unwrap_or_else(|error| panic!("{error}"));
        let is_upgrade =
            head.status == StatusCode::SWITCHING_PROTOCOLS || connection.is_tunnel(&head);
        let length = if is_upgrade { BodyLength::Sized(0) } else { head.length };
        let interim = interim.iter().map(|head| (head.status, fields(&head.headers)));
        StreamedResponse {
            status: head.status,
            headers: fields_in_order(&head),
            interim: interim.collect(),
            trailers: Vec::new(),
            body: BodyReader::new(length),
            connection,
        }
    }

    /// Returns the value of the first field with this name.
    pub fn header(&self, name: impl AsRef<str>) -> Option<&str> {
        find(&self.headers, name.as_ref())
    }

    /// Reads the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// [`TooSlow`](ErrorKind::TooSlow) if there is none within this time; the response can still be
    /// read. [`BodyFailed`](ErrorKind::BodyFailed) if the response is cut short.
    pub async fn next(&mut self, within: Duration) -> Result<Option<Bytes>> {
        match tokio::time::timeout(within, self.next_piece()).await {
            Ok(piece) => piece,
            Err(_) => Err(Error::new(ErrorKind::TooSlow, "no piece of the body was received")),
        }
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.connection.read_piece(&mut self.body).await? {
                BodyPiece::Data(data) => return Ok(Some(data)),
                BodyPiece::Trailers(trailers) => self.trailers = fields(&trailers),
                BodyPiece::End => return Ok(None),
                BodyPiece::Wait => unreachable!("the connection waits for more input"),
            }
        }
    }

    /// Reads the rest of the response.
    pub(super) async fn collect(mut self) -> TestResponse {
        let mut body = Vec::new();
        let ended = loop {
            match self.next_piece().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let StreamedResponse { status, headers, interim, trailers, connection, .. } = self;
        let errors = connection.close().await;
        errors.resume_panic();
        if let Err(error) = ended {
            panic!("{error} (after {} bytes of the body)", body.len());
        }
        let (body, errors) = (body.into(), errors.texts());
        TestResponse { status, headers, body, trailers, interim, errors }
    }
}

impl std::fmt::Debug for StreamedResponse<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StreamedResponse { status, headers, .. } = self;
        f.debug_struct("StreamedResponse")
            .field("status", status)
            .field("headers", headers)
            .finish_non_exhaustive()
    }
}

/// Names of the fields that the engine adds.
const ADDED: [&str; 4] = ["connection", "content-length", "date", "transfer-encoding"];

/// Returns the fields of a response; the fields of the application are first.
fn fields_in_order(head: &ResponseHead) -> FieldList {
    let mut list = fields(&head.headers);
    // The sort is stable.
    list.sort_by_key(|(name, value)| {
        ADDED.contains(&name.as_str()) || (name == "server" && value == "weft")
    });
    list
}

fn fields(headers: &Headers) -> FieldList {
    let field = |(name, value): (&[u8], &[u8])| {
        let name = HeaderName::from_bytes(name).ok()?;
        Some((name, HeaderValue::from_bytes(value).ok()?))
    };
    headers.iter_bytes().filter_map(field).collect()
}

fn find<'a>(fields: &'a FieldList, name: &str) -> Option<&'a str> {
    let found = fields.iter().find(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
    found.and_then(|(_, value)| value.to_str().ok())
}
