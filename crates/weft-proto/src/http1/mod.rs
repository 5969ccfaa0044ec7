//! HTTP/1 (RFC 9112): heads, message framing, the chunked coding.

pub mod chunk_encoder; // chunks and trailers as bytes
pub mod chunked; // bodies: Content-Length and the chunked coding
pub mod client; // responses, for clients and proxies
pub mod compose; // response heads as bytes
pub mod framing; // body length, persistence, target and Host
pub mod parse; // request heads and trailer sections
pub mod scan; // prefixes of allowed bytes, 16 at a time
pub mod single_exchange; // an exchange with a connection of its own, for clients
