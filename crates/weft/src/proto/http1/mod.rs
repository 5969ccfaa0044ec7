//! HTTP/1 (RFC 9112): heads, message framing, the chunked coding.

pub(crate) mod chunked;
pub mod client;
pub(crate) mod compose;
pub(crate) mod framing;
pub(crate) mod parse;
pub(crate) mod scan;
