//! HTTP as a pure protocol: bytes in, values out.
//!
//! This crate does no I/O, has no async runtime and reads no clock, like h11 for Python or
//! quinn-proto for QUIC. The engine `weft-http` is built on it.
//!
//! ```
//! use weft_proto::http1::parse::{Limits, ParsedHead};
//!
//! let input = b"GET /index.html HTTP/1.1\r\nHost: example.org\r\n\r\nbehind the head";
//! let limits = Limits { request_line: 8_192, head: 16_384, fields: 100 };
//! let mut head = ParsedHead::new();
//! let length = head.read(input, &limits)?;
//! assert_eq!((length, head.fields.len()), (Some(input.len() - 15), 1));
//! # Ok::<(), weft_proto::Error>(())
//! ```

mod error; // Error, ErrorKind, Result
pub mod fastcgi; // FastCGI records of requests and responses
mod field_coding; // parts that HPACK and QPACK have in common
pub mod headers; // Headers: fields as positions in the bytes of their message
pub mod http1; // parse, framing, chunked, chunk_encoder, compose, client
pub mod http2; // frame, hpack, flow, flood
pub mod http3; // frame, qpack, stream
pub mod list; // members of comma-separated lists
mod name_sketch; // which names a list of fields may contain
pub mod names; // comparison and conversion of field names
pub mod proxy_protocol; // PROXY protocol headers, versions 1 and 2
pub mod scgi; // heads of SCGI requests
pub mod semantics; // semantics of all versions: paths, dates, ranges, preconditions
pub mod uwsgi; // heads of uwsgi requests
pub mod write_buffer; // output of a connection until it is written

pub use error::{Error, ErrorKind, Result};
pub use headers::Headers;
