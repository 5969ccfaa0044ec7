//! Fields and content of a response, as middleware reads and changes them.

use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::message::body::Body;
use crate::message::payload::{self, Payload};
use crate::message::response::Response;

impl Response {
    /// Returns name and value of each field, the value for a change in place. Shared fields are
    /// copied.
    ///
    /// ```
    /// use weft::header::{self, HeaderValue};
    /// use weft::Response;
    ///
    /// let mut response = Response::text("").with_header(header::LOCATION, "http://a/");
    /// for (name, value) in response.headers_mut() {
    ///     if *name == header::LOCATION {
    ///         *value = HeaderValue::from_static("https://a/");
    ///     }
    /// }
    /// assert_eq!(response.header("location").unwrap(), "https://a/");
    /// ```
    pub fn headers_mut(&mut self) -> impl Iterator<Item = (&HeaderName, &mut HeaderValue)> {
        self.headers.to_mut().iter_mut().map(|(name, value)| (&*name, value))
    }

    /// Keeps only the fields for which `predicate(name, value)` returns true.
    ///
    /// ```
    /// use weft::{Response, header};
    ///
    /// let mut response = Response::text("").with_header(header::SERVER, "secret/1.2");
    /// response.retain_headers(|name, _| *name != header::SERVER);
    /// assert!(response.header("server").is_none() && response.header("content-type").is_some());
    /// ```
    pub fn retain_headers(&mut self, mut predicate: impl FnMut(&HeaderName, &HeaderValue) -> bool) {
        self.headers.to_mut().retain(|(name, value)| predicate(name, value));
    }

    /// Sets the status, and keeps fields and content.
    pub fn set_status(&mut self, status: StatusCode) {
        self.status = status;
    }

    /// Sets the content, and removes `Content-Length`, which described the former content. All
    /// other fields stay, even if they describe the former content.
    ///
    /// ```
    /// use weft::{Next, Request, Response};
    ///
    /// async fn shorten(request: Request, next: Next<'_>) -> weft::Result<Response> {
    ///     let mut response = next.call(request).await;
    ///     let text = response.take_body().collect(1 << 20).await?;
    ///     response.set_body(text.slice(..text.len().min(10)));
    ///     Ok(response)
    /// }
    /// ```
    pub fn set_body(&mut self, body: impl Into<Body>) {
        self.headers.remove(CONTENT_LENGTH.as_str());
        self.replace_body(body.into());
    }

    /// Sets the content, as [`set_body`](Response::set_body).
    pub fn with_body(mut self, body: impl Into<Body>) -> Response {
        self.set_body(body);
        self
    }

    fn replace_body(&mut self, body: Body) {
        // The content is the application's now, so that no page of an error replaces it.
        self.is_generated_error = false;
        self.payload = Payload::Body(body);
    }

    /// Takes the content as a body, and keeps status, fields and extensions. A file becomes a
    /// stream: the engine no longer applies preconditions and ranges to it. An upgrade stays in
    /// the response, and the body is empty.
    pub fn take_body(&mut self) -> Body {
        match self.payload {
            Payload::Upgrade(_) => Body::empty(),
            _ => payload::to_body(self.take_payload()).0,
        }
    }

    /// Splits the response into the response without its content, which has the status, all fields
    /// and the extensions, and the content, as [`take_body`](Response::take_body) returns it.
    ///
    /// ```
    /// use weft::{Body, Response, StatusCode};
    ///
    /// let response = Response::text("Hello\n").with_status(StatusCode::ACCEPTED);
    /// let (head, body) = response.into_parts();
    /// assert_eq!((head.status(), head.length(), body.length()), (StatusCode::ACCEPTED, Some(0), Some(6)));
    /// let response = Response::from_parts(head, Body::from_http_body(body));
    /// assert_eq!(response.header("content-type").unwrap(), "text/plain; charset=utf-8");
    /// ```
    pub fn into_parts(mut self) -> (Response, Body) {
        let body = self.take_body();
        (self, body)
    }

    /// Assembles a response of the parts that [`into_parts`](Response::into_parts) returns. All
    /// fields stay, also a `Content-Length`, which must be the length of the body. If the head has
    /// an upgrade, the body is ignored.
    pub fn from_parts(mut head: Response, body: impl Into<Body>) -> Response {
        if !matches!(head.payload, Payload::Upgrade(_)) {
            head.replace_body(body.into());
        }
        head
    }
}
