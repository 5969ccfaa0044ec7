//! Limit on the size of request bodies.

use crate::app::{Application, Middleware};
use crate::error::Result;
use crate::message::body::too_large;
use crate::message::request::Request;
use crate::message::response::Response;

/// Limits the size of request bodies, in place of
/// [`Settings::max_body_bytes`](crate::Settings::max_body_bytes).
///
/// ```
/// use weft::middleware::BodyLimit;
/// use weft::{Application, Request, Response, testing};
///
/// async fn store(request: Request) -> weft::Result<Response> {
///     let body = request.into_body().collect(usize::MAX).await?;
///     Ok(Response::text(format!("{} bytes", body.len())))
/// }
///
/// let app = store.wrap(BodyLimit::new(5));
/// let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:";
/// testing::call(app.clone(), testing::request(format!("{head} 5\r\n\r\nabcde"))).assert_text("5 bytes");
/// assert_eq!(testing::call(app.clone(), testing::request(format!("{head} 6\r\n\r\nabcdef"))).status, 413);
/// ```
///
/// If the request declares a larger body, the response is 413 (RFC 9110 §15.5.14) and the
/// application is not called; a client that expects `100-continue` gets no 100. A body of
/// unknown length fails when it exceeds the limit, with
/// [`ErrorKind::BodyTooLarge`](crate::ErrorKind::BodyTooLarge): an application that returns the
/// error, as `?` does, thereby responds with 413.
///
/// The limit may be higher than [`Settings::max_body_bytes`](crate::Settings::max_body_bytes). If
/// several limits are nested, the innermost applies to bodies of unknown length.
#[derive(Clone, Debug)]
pub struct BodyLimit {
    bytes: u64,
}

impl BodyLimit {
    /// Sets the maximum size of a body in bytes, counted after transfer decoding.
    pub fn new(bytes: u64) -> BodyLimit {
        BodyLimit { bytes }
    }

    /// Applies the limit to a request, as the middleware does before it calls the application.
    ///
    /// # Errors
    /// [`ErrorKind::BodyTooLarge`](crate::ErrorKind::BodyTooLarge) if the request declares a larger
    /// body.
    pub fn apply(&self, request: &mut Request) -> Result<()> {
        if request.body().length().is_some_and(|length| length > self.bytes) {
            return Err(too_large(self.bytes, "BodyLimit"));
        }
        request.body().set_limit(self.bytes);
        Ok(())
    }
}

impl Middleware for BodyLimit {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        match self.apply(&mut request) {
            Ok(()) => next.call(request).await,
            Err(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn rejects_bodies_over_the_limit() {
        for (limit, body, status) in [
            (0, "", 200),
            (0, "a", 413),
            (3, "abc", 200),
            (3, "abcd", 413),
            (u64::MAX, "abcd", 200),
        ] {
            let length = body.len();
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
            let app = async |request: Request| -> crate::Result<Response> {
                request.into_body().collect(usize::MAX).await?;
                Ok(Response::text("ok"))
            };
            let request = testing::request(head + body);
            let reply = testing::call(app.wrap(BodyLimit::new(limit)), request);
            assert_eq!(reply.status, status, "{length} of {limit}");
        }
    }
}
