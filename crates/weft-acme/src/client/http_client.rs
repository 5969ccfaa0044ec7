//! The trait of HTTP clients for requests to authorities.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

/// HTTP client for requests to authorities, such as [`TlsClient`](crate::TlsClient).
pub trait HttpClient: fmt::Debug + Send + Sync + 'static {
    /// Sends a request with an absolute `https` URL, and returns the whole response within `time`.
    /// Its body has at most `max_bytes`. Redirects are not followed. The client adds `Host` and
    /// `Content-Length`.
    ///
    /// An error is the reason. It is logged behind the server of the URL.
    fn send(&self, request: Request<Bytes>, max_bytes: usize, time: Duration)
    -> ResponseFuture<'_>;
}

/// Future of [`HttpClient::send`].
pub type ResponseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<Vec<u8>>, String>> + Send + 'a>>;
