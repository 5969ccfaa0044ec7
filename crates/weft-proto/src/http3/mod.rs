//! HTTP/3 (RFC 9114): frames, streams, QPACK. The transport, QUIC, is not part of this crate.

pub mod control; // control streams
pub mod error_code; // error codes of streams and connections
pub mod frame; // varints, frame heads, frames of a server
pub mod qpack; // field compression (RFC 9204)
pub mod request; // request streams

pub use self::error_code::ErrorCode;
