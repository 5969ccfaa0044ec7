//! The version of HTTP that is spoken to an upstream.

/// Version of HTTP that is spoken to upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, by ALPN over TLS and by prior knowledge otherwise.
    Http2,
    /// HTTP/2 or HTTP/1.1 over TLS, by ALPN. HTTP/1.1 otherwise.
    Negotiated,
}
