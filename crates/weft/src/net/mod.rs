//! Sockets: listening, accepting, reading, writing, TLS.

pub(crate) mod accepted;
pub(crate) mod buffers;
pub(crate) mod listen;
pub(crate) mod reader;
pub(crate) mod secure;
pub(crate) mod socket;
#[cfg(feature = "tls")]
pub mod tls;
pub(crate) mod writer;
