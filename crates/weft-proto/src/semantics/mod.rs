//! Field semantics that all versions share (RFC 9110), and the fields of gRPC.

pub mod accept; // content negotiation
pub mod caching; // caching by a shared cache
pub mod coding; // names of content codings
pub mod conditional; // preconditions
pub mod date; // dates as text
mod date_parse; // dates from text
pub mod grpc; // calls of gRPC: media types, deadlines and status
pub mod mime; // media types of files
pub mod path; // percent-decoding and segments
pub mod priority; // priorities of responses
pub mod range; // ranges and multipart/byteranges
