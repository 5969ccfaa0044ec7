//! Field semantics that all versions share (RFC 9110).

pub mod accept;
pub mod coding;
pub mod conditional;
pub mod date;
pub mod date_parse;
pub mod mime;
pub mod path;
pub mod range;
