//! HTTP/1.1 to an upstream.

pub(crate) mod attempt;
pub(crate) mod download;
pub(crate) mod exchange;
pub(crate) mod response_reader;
pub(crate) mod upload;
