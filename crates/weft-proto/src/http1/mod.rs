//! HTTP/1 (RFC 9112): heads, message framing, the chunked coding.

pub mod chunk_encoder;
pub mod chunked;
pub mod client;
pub mod compose;
pub mod framing;
pub mod parse;
pub mod scan;
