//! HTTP as a pure protocol: bytes in, values out. No I/O, no async runtime, no clock.

pub(crate) mod headers;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod proxy_protocol;
pub(crate) mod semantics;
