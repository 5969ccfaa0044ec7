//! Sockets: listening, accepting, reading, writing, TLS.

pub(crate) mod accept;
pub(crate) mod accepted;
pub(crate) mod address;
pub(crate) mod buffers;
pub(crate) mod connection_limiter;
mod file_turn;
pub(crate) mod listen;
pub(crate) mod reader;
mod reject;
pub(crate) mod secure;
mod secure_half;
mod exhaustion;
pub(crate) mod socket;
#[cfg(feature = "_tls")]
pub mod tls;
pub(crate) mod transport;
pub(crate) mod writer;
