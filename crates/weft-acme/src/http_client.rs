//! The trait of HTTP clients for requests to authorities.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

/// HTTP client for requests to authorities; [`TlsClient`](crate::TlsClient) is one.
pub trait HttpClient: fmt::Debug + Send + Sync + 'static {
    /// Sends a request with an absolute `https` URL, and returns the whole response, whose body has at
    /// most `max_bytes`, within `time`. Redirects are not followed. The client adds `Host` and
    /// `Content-Length`.
    ///
    /// Errors are the reason, which is logged behind the server of the URL.
    fn send(&self, request: Request<Bytes>, max_bytes: usize, time: Duration)
    -> ResponseFuture<'_>;
}

/// Future of [`HttpClient::send`].
pub type ResponseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<Vec<u8>>, String>> + Send + 'a>>;
