//! Field semantics that all versions share (RFC 9110).

pub(crate) mod accept;
pub(crate) mod coding;
pub(crate) mod conditional;
pub mod date;
pub(crate) mod date_parse;
pub(crate) mod mime;
pub mod path;
pub(crate) mod range;
