//! HTTP/2 (RFC 9113): frames, HPACK, flow control, flood protection.

pub mod flood; // limits for frames that cost work but carry no data
pub mod flow; // send and receive windows
pub mod frame; // frame headers and control frames
pub mod hpack; // field compression (RFC 7541)
