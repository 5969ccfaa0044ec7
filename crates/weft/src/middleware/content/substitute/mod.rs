//! Substitution of texts in the bodies of responses.

mod body; // the body of a response, with replaced texts
mod needles; // the search for several texts in a stream

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    LAST_MODIFIED,
};

use self::body::SubstitutedBody;
use self::needles::Needles;
use crate::app::{Application, Middleware};
use crate::clock::wall;
use crate::error::{Error, ErrorKind};
use crate::message::body::Body;
use crate::message::payload::Payload;
use crate::message::representation;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;

/// Replaces texts in the bodies of responses.
///
/// ```
/// use weft::middleware::Substitute;
/// use weft::{Application, Request, Response, testing};
///
/// async fn page(_: Request) -> Response { Response::html("<head></head><p>") }
///
/// let substitute = Substitute::new([("</head>", "<script src=\"/a.js\"></script></head>")])?;
/// testing::get(page.wrap(substitute), "/")
///     .assert_text("<head><script src=\"/a.js\"></script></head><p>");
/// # Ok::<(), weft::Error>(())
/// ```
///
/// The search ignores ASCII case. Where two texts begin at the same byte, the longer one is found.
/// Each is replaced once per response, or [everywhere](Substitute::everywhere). A body is changed
/// while it is sent; at most 1 KiB of it is held back, and only what may be the beginning of a
/// text.
///
/// Only bodies of the [media types](Substitute::media_types) are changed, and no bodies with a
/// content coding or of a range: add [`Compress`](crate::middleware::Compress) outside of this
/// middleware, not inside. `Content-Length`, `Accept-Ranges`, `Last-Modified` and digests of the
/// body are removed, and an `ETag` becomes weak. Preconditions on files are evaluated before.
#[derive(Clone, Debug)]
pub struct Substitute {
    needles: Arc<Needles>,
    replacements: Arc<[Replacement]>,
    /// The replacements, if none depends on the request.
    fixed: Option<Arc<[Bytes]>>,
    /// Media types in lower case. Empty: all.
    media_types: Arc<[String]>,
    is_once: bool,
}

/// The text in place of another, for [`Substitute`].
#[derive(Clone)]
#[non_exhaustive]
pub enum Replacement {
    /// The same text in all responses.
    Fixed(Bytes),
    /// A text that depends on the request. In a page, values of the request must be escaped.
    ByRequest(Arc<dyn Fn(&Request) -> Bytes + Send + Sync>),
}

impl From<&str> for Replacement {
    fn from(text: &str) -> Replacement {
        Replacement::Fixed(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl std::fmt::Debug for Replacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Replacement::Fixed(text) => write!(f, "Fixed({text:?})"),
            Replacement::ByRequest(_) => f.write_str("ByRequest"),
        }
    }
}

impl Substitute {
    /// Replaces the first text of each pair by the second, in HTML.
    ///
    /// # Errors
    /// If a text is empty, is given twice (without regard to ASCII case) or has more than 1 KiB, if
    /// all together have more than 8 KiB, or if there are more than 64.
    pub fn new<T: AsRef<[u8]>, R: Into<Replacement>>(
        pairs: impl IntoIterator<Item = (T, R)>,
    ) -> Result<Substitute, Error> {
        let (texts, replacements): (Vec<T>, Vec<Replacement>) =
            pairs.into_iter().map(|(text, replacement)| (text, replacement.into())).unzip();
        let texts: Vec<&[u8]> = texts.iter().map(AsRef::as_ref).collect();
        let needles =
            Needles::new(&texts).map_err(|reason| Error::new(ErrorKind::InvalidSetting, reason))?;
        let fixed = replacements.iter().map(|replacement| match replacement {
            Replacement::Fixed(text) => Some(text.clone()),
            Replacement::ByRequest(_) => None,
        });
        Ok(Substitute {
            needles: Arc::new(needles),
            fixed: fixed.collect(),
            replacements: replacements.into(),
            media_types: ["text/html".to_owned()].into(),
            is_once: true,
        })
    }

    /// Replaces each text wherever it occurs.
    pub fn everywhere(self) -> Substitute {
        Substitute { is_once: false, ..self }
    }

    /// Changes bodies of these media types, without parameters, in place of `text/html`. `*/*`
    /// stands for all types.
    pub fn media_types<T: AsRef<str>>(self, types: impl IntoIterator<Item = T>) -> Substitute {
        let types: Arc<[String]> =
            types.into_iter().map(|it| it.as_ref().to_ascii_lowercase()).collect();
        let is_any = types.iter().any(|it| it == "*/*");
        Substitute { media_types: if is_any { Arc::default() } else { types }, ..self }
    }

    fn replacements(&self, request: &Request) -> Arc<[Bytes]> {
        let text = |replacement: &Replacement| match replacement {
            Replacement::Fixed(text) => text.clone(),
            Replacement::ByRequest(text) => text(request),
        };
        let of_request = || self.replacements.iter().map(text).collect();
        self.fixed.clone().unwrap_or_else(of_request)
    }

    /// Returns true if the media type of a response is one in which texts are replaced.
    pub fn has_media_type_of(&self, response: &Response) -> bool {
        let value = response.header(CONTENT_TYPE.as_str()).map(|value| value.as_bytes());
        let media_type = value.and_then(|value| value.split(|&b| b == b';').next());
        let media_type = media_type.unwrap_or_default().trim_ascii();
        self.media_types.is_empty()
            || self.media_types.iter().any(|it| it.as_bytes().eq_ignore_ascii_case(media_type))
    }

    fn applies_to(&self, response: &Response) -> bool {
        let has_content = match response.status {
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT => {
                false
            }
            status => !status.is_informational(),
        };
        let is_uncoded = || {
            let coding = response.header(CONTENT_ENCODING.as_str());
            coding.is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
        };
        has_content
            && self.has_media_type_of(response)
            && is_uncoded()
            && response.header(CONTENT_RANGE.as_str()).is_none()
    }

    fn apply(
        &self,
        head: &RequestHead,
        replacements: Arc<[Bytes]>,
        mut response: Response,
    ) -> Response {
        if response.status == StatusCode::NOT_MODIFIED {
            // A 304 has the same `ETag` as the 200 would have (RFC 9110 §15.4.5).
            if response.header(CONTENT_TYPE.as_str()).is_none() || self.has_media_type_of(&response)
            {
                self.change_validators(&mut response);
            }
            return response;
        }
        if !self.applies_to(&response) {
            return response;
        }
        if let Payload::File(_) = response.payload {
            // The engine evaluates preconditions only for files, and the payload becomes a stream.
            response = representation::validate_file(head, response, wall::now());
            if response.status == StatusCode::NOT_MODIFIED {
                self.change_validators(&mut response);
                return response;
            }
        }
        let declared = response.declared_length().and_then(Result::ok);
        let length = response.length().or(declared);
        let source = match std::mem::replace(&mut response.payload, Payload::empty()) {
            Payload::Body(body) => body,
            Payload::File(file) => Body::from(Arc::unwrap_or_clone(file)),
            other @ (Payload::Parts(_) | Payload::Upgrade(_)) => {
                response.payload = other;
                return response;
            }
        };
        let body =
            SubstitutedBody::new(source, length, self.needles.clone(), replacements, self.is_once);
        response.payload = Payload::Body(Body::boxed(body));
        self.change_validators(&mut response);
        for name in [CONTENT_LENGTH, ACCEPT_RANGES] {
            response.remove_header(name);
        }
        for name in ["content-digest", "repr-digest", "digest", "content-md5"] {
            response.remove_header(name);
        }
        response
    }

    /// Removes validators that the changed body does not have. Texts that depend on the request
    /// make another body of the same version.
    fn change_validators(&self, response: &mut Response) {
        response.remove_header(LAST_MODIFIED);
        match self.fixed {
            Some(_) => response.weaken_etag(),
            None => response.remove_header(ETAG),
        }
    }
}

impl Middleware for Substitute {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let head = request.head().clone();
        let replacements = self.replacements(&request);
        let response = next.call(request).await;
        self.apply(&head, replacements, response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestResponse, call, get, request};

    fn substitute() -> Substitute {
        Substitute::new([("cat", "dog"), ("cats", "dogs!")]).unwrap()
    }

    fn reply(substitute: Substitute, response: fn() -> Response) -> TestResponse {
        get((async move |_: Request| response()).wrap(substitute), "/")
    }

    #[test]
    fn replaces_texts_of_bytes_files_and_streams() {
        fn bytes() -> Response {
            Response::html("a cat, CATS and a cat")
        }
        fn file() -> Response {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), "a cat, CATS and a cat").unwrap();
            Response::from_file(crate::File::open(file.reopen().unwrap()).unwrap())
                .with_header(CONTENT_TYPE, "TEXT/HTML;charset=utf-8")
        }
        fn stream() -> Response {
            let parts = ["a c", "at, CA", "TS an", "d a ca", "t"].map(Ok::<_, Error>);
            Response::html(Body::stream(futures_util::stream::iter(parts)))
        }
        for response in [bytes, file, stream] {
            reply(substitute(), response).assert_text("a dog, dogs! and a cat");
            reply(substitute().everywhere(), response).assert_text("a dog, dogs! and a dog");
        }
    }

    #[test]
    fn changes_only_suitable_responses() {
        fn with(name: &'static str, value: &'static str) -> Response {
            Response::html("cat").with_header(http::HeaderName::from_static(name), value)
        }
        for (response, expected) in [
            ((|| Response::text("cat")) as fn() -> Response, "cat"),
            (|| Response::from_body("cat"), "cat"),
            (|| with("content-encoding", "gzip"), "cat"),
            (|| with("content-encoding", "identity"), "dog"),
            (|| with("content-range", "bytes 0-2/3"), "cat"),
            (|| Response::html("cat").with_status(StatusCode::PARTIAL_CONTENT), "cat"),
            (|| Response::html("cat").with_status(StatusCode::NOT_FOUND), "dog"),
        ] {
            reply(substitute(), response).assert_text(expected);
        }
        let text = || Response::text("cat");
        reply(substitute().media_types(["text/HTML", "text/plain"]), text).assert_text("dog");
        reply(substitute().media_types(["*/*"]), || Response::from_body("cat")).assert_text("dog");
    }

    #[test]
    fn fields_describe_the_changed_body() {
        let response = || {
            Response::html("cat")
                .with_header(CONTENT_LENGTH, "3")
                .with_header(ETAG, "\"e\"")
                .with_header(ACCEPT_RANGES, "bytes")
                .with_header(LAST_MODIFIED, "Thu, 01 Jan 1970 00:00:00 GMT")
        };
        let changed = reply(substitute(), response);
        assert_eq!(changed.header("etag"), Some("W/\"e\""));
        for name in ["content-length", "accept-ranges", "last-modified"] {
            assert_eq!(changed.header(name), None, "{name}");
        }
        let by_host = Replacement::ByRequest(Arc::new(|request| {
            Bytes::copy_from_slice(request.host().unwrap_or_default().as_bytes())
        }));
        let changed = reply(Substitute::new([("CAT", by_host)]).unwrap(), response);
        assert_eq!((changed.header("etag"), &changed.body[..]), (None, &b"test"[..]));
    }

    #[test]
    fn files_have_preconditions_but_no_ranges() {
        let app = async |_: Request| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), "a cat").unwrap();
            Response::from_file(crate::File::open(file.reopen().unwrap()).unwrap())
                .with_header(CONTENT_TYPE, "text/html")
                .with_header(ETAG, "\"e\"")
        };
        for (fields, status, body) in [
            ("Range: bytes=0-1\r\n", 200, "a dog"),
            ("If-None-Match: W/\"e\"\r\n", 304, ""),
            ("If-None-Match: \"f\"\r\n", 200, "a dog"),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let response = call(app.wrap(substitute()), request(head));
            assert_eq!((response.status.as_u16(), &response.body[..]), (status, body.as_bytes()));
            assert_eq!(response.header("etag"), Some("W/\"e\""), "{fields}");
        }
    }

    #[test]
    fn detects_wrong_lengths() {
        for (length, expected) in [("2", None), ("3", Some("dog")), ("4", None)] {
            let app = async |_: Request| {
                let parts = [Ok::<_, Error>("cat")];
                let body = Body::stream(futures_util::stream::iter(parts));
                Response::html(body).with_header(CONTENT_LENGTH, length)
            };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let result = runtime.block_on(async {
                let request = request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                app.wrap(substitute()).call(request).await.into_body().collect(usize::MAX).await
            });
            match (result, expected) {
                (Ok(body), Some(text)) => assert_eq!(body, text),
                (Err(error), None) => assert_eq!(error.kind(), ErrorKind::LengthMismatch),
                (result, _) => panic!("{length}: {result:?}"),
            }
        }
    }
}
