//! HTTP/2 (RFC 9113): frames, HPACK, the budget for frames that carry no work.

pub(crate) mod flood;
pub(crate) mod flow;
pub(crate) mod frame;
pub(crate) mod hpack;
