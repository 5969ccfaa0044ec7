//! Fields and body of a request, as middleware changes them.

use http::{HeaderName, HeaderValue};

use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::request::Request;
use crate::message::response::field;

impl Request {
    /// Sets a field for the middleware and application that follow, replacing all fields with the
    /// same name. Name and value are texts or typed. The head is copied for each change.
    ///
    /// ```
    /// use weft::{Next, Request, Response};
    ///
    /// async fn add_tenant(mut request: Request, next: Next<'_>) -> weft::Result<Response> {
    ///     let tenant = request.host().unwrap_or("none").to_owned();
    ///     request.set_header("x-tenant", tenant)?;
    ///     request.remove_header("cookie");
    ///     Ok(next.call(request).await)
    /// }
    /// ```
    ///
    /// A change of `Content-Length` does not change the body: the engine has determined its end.
    ///
    /// # Errors
    /// [`InvalidField`](ErrorKind::InvalidField) if name or value is not valid in HTTP,
    /// [`HeadTooLarge`](ErrorKind::HeadTooLarge) if the head would exceed 65,535 bytes.
    #[doc(alias = "headers_mut")]
    pub fn set_header<N, V>(&mut self, name: N, value: V) -> Result<()>
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        let (name, value) = field(name, value).map_err(invalid_field)?;
        let is_kept = |other: &str| !other.eq_ignore_ascii_case(name.as_str());
        self.head.rewrite_fields(is_kept, &[(name.as_str(), value.as_bytes())])
    }

    /// Adds a field after the existing ones, for the middleware and application that follow.
    ///
    /// # Errors
    /// The errors of [`set_header`](Request::set_header).
    pub fn append_header<N, V>(&mut self, name: N, value: V) -> Result<()>
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        let (name, value) = field(name, value).map_err(invalid_field)?;
        self.head.rewrite_fields(|_| true, &[(name.as_str(), value.as_bytes())])
    }

    /// Removes all fields with this name for the middleware and application that follow.
    pub fn remove_header(&mut self, name: impl AsRef<str>) {
        self.head.remove_fields(&[name.as_ref()]);
    }

    /// Takes the body, and leaves an empty one. The fields that describe it stay.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Sets the body for the middleware and application that follow. `Content-Length` becomes its
    /// length, if that is known, and is removed otherwise.
    ///
    /// ```
    /// use weft::Body;
    ///
    /// let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    /// let mut request = weft::testing::request(text);
    /// request.set_body("good morning");
    /// assert_eq!(request.headers().get("content-length"), Some("12"));
    /// ```
    pub fn set_body(&mut self, body: impl Into<Body>) {
        self.body = body.into();
        self.head.set_content_length(self.body.length());
    }

    /// Splits the request into the request without its body, which has the head, the peer, the
    /// connection and the extensions, and the body.
    ///
    /// ```
    /// use weft::{Next, Request, Response};
    ///
    /// async fn log_body(request: Request, next: Next<'_>) -> weft::Result<Response> {
    ///     let (head, body) = request.into_parts();
    ///     let body = body.collect(1 << 20).await?;
    ///     println!("{:?} sent {} bytes to {}", head.peer().address(), body.len(), head.path());
    ///     Ok(next.call(Request::from_parts(head, body)).await)
    /// }
    /// ```
    #[inline]
    pub fn into_parts(mut self) -> (Request, Body) {
        let body = self.take_body();
        (self, body)
    }

    /// Assembles a request of the parts that [`into_parts`](Request::into_parts) returns. The
    /// fields stay as they are; [`set_body`](Request::set_body) also sets the length.
    pub fn from_parts(head: Request, body: impl Into<Body>) -> Request {
        Request { body: body.into(), ..head }
    }
}

fn invalid_field(reason: String) -> Error {
    Error::new(ErrorKind::InvalidField, reason)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use crate::error::ErrorKind;
    use crate::message::body::Body;
    use crate::message::request::Request;
    use crate::testing::request;

    const POST: &str = "POST http://a/p?q HTTP/1.1\r\nHost: a\r\nA: 1\r\na: 2\r\nB: 3\r\n\
        Content-Length: 2\r\n\r\nhi";

    fn fields(request: &Request) -> String {
        let line = |(name, value): (&str, &[u8])| format!("{name}={}", value.escape_ascii());
        request.headers().iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sets_appends_and_removes_fields() {
        let mut request = request(POST);
        let received = request.head().clone();
        request.extensions_mut().insert(7_u8);
        request.set_header("a", "4").unwrap();
        request.append_header(http::header::ACCEPT, HeaderValue::from_static("x/y")).unwrap();
        request.append_header("b", "").unwrap();
        assert_eq!(fields(&request), "Host=a B=3 Content-Length=2 a=4 accept=x/y b=");
        request.remove_header("B");
        request.remove_header("missing");
        assert_eq!(fields(&request), "Host=a Content-Length=2 a=4 accept=x/y");
        assert_eq!(
            (request.target(), request.path(), request.query()),
            ("http://a/p?q", "/p", Some("q"))
        );
        assert_eq!(request.extensions().get(), Some(&7_u8));
        assert_eq!(received.headers().get("b"), Some("3"));
    }

    #[test]
    fn rejects_invalid_fields_and_keeps_the_head() {
        let mut request = request(POST);
        let before = fields(&request);
        for (name, value, kind) in [
            ("a b", "1", ErrorKind::InvalidField),
            ("", "1", ErrorKind::InvalidField),
            ("a:", "1", ErrorKind::InvalidField),
            ("a", "1\r\nx: 2", ErrorKind::InvalidField),
            ("a", "\0", ErrorKind::InvalidField),
            ("a", &*"x".repeat(65_536), ErrorKind::HeadTooLarge),
        ] {
            assert_eq!(request.set_header(name, value).unwrap_err().kind(), kind, "{name}");
            assert_eq!(request.append_header(name, value).unwrap_err().kind(), kind, "{name}");
            assert_eq!(fields(&request), before);
        }
        request.set_header("a", "1 x: 2").unwrap();
        request.set_header("a", "x".repeat(65_000)).unwrap();
        assert_eq!(request.headers().get("a").map(str::len), Some(65_000));
    }

    #[test]
    fn content_length_follows_the_body() {
        let stream = || Body::stream(futures_util::stream::empty::<Result<&str, crate::Error>>());
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for (text, body, expected) in [
            (POST, Body::from("hello"), "Host=a A=1 a=2 B=3 content-length=5"),
            (POST, Body::empty(), "Host=a A=1 a=2 B=3"),
            (POST, stream(), "Host=a A=1 a=2 B=3"),
            (chunked, Body::from("hello"), "Host=a content-length=5"),
            (chunked, stream(), "Host=a Transfer-Encoding=chunked"),
            (get, Body::empty(), "Host=a"),
            (get, Body::from("x"), "Host=a content-length=1"),
        ] {
            let mut request = request(text);
            request.set_body(body);
            assert_eq!(fields(&request), expected, "{text}");
        }
    }

    #[test]
    fn parts_keep_peer_and_extensions() {
        let mut request = request(POST);
        let address = "192.0.2.1:80".parse().unwrap();
        request.set_peer(address);
        request.extensions_mut().insert("note");
        let (head, body) = request.into_parts();
        assert_eq!((head.peer().address(), body.length()), (Some(address), Some(2)));
        let request = Request::from_parts(head, body);
        assert_eq!(request.peer().address(), Some(address));
        assert_eq!(request.extensions().get(), Some(&"note"));
        assert_eq!(request.into_body().length(), Some(2));
    }
}
