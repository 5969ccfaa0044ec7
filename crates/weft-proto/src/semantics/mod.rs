//! Field semantics that all versions share (RFC 9110).

pub mod accept; // content negotiation
pub mod coding; // names of content codings
pub mod conditional; // preconditions
pub mod date; // dates as text
mod date_parse; // dates from text
pub mod mime; // media types of files
pub mod path; // percent-decoding and segments
pub mod range; // ranges and multipart/byteranges
