//! Requests to authorities.

pub(crate) mod http_client; // the trait of HTTP clients
pub(crate) mod tls_client; // an HTTP client
