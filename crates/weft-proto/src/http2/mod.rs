//! HTTP/2 (RFC 9113): frames, HPACK, the budget for frames that carry no work.

pub mod flood;
pub mod flow;
pub mod frame;
pub mod hpack;
