//! Addresses, listeners, and the other end of a connection.
// Beneath them: sockets, buffers, limits of connections, TLS.

pub(crate) mod accept;
pub(crate) mod accepted;
pub(crate) mod address;
pub(crate) mod buffers;
pub(crate) mod connection_limiter;
mod file_turn;
pub(crate) mod http3_descriptor;
mod into_address;
pub(crate) mod listen;
pub(crate) mod reader;
#[cfg(feature = "http3")]
pub(crate) mod quic;
#[cfg(not(feature = "http3"))]
#[path = "quic_disabled.rs"]
pub(crate) mod quic;
mod reject;
pub(crate) mod secure;
mod secure_half;
mod exhaustion;
pub(crate) mod socket;
#[cfg(feature = "_tls")]
pub(crate) mod tls;
pub(crate) mod transport;
pub(crate) mod writer;

pub use self::address::{Address, LocalAddress};
pub use self::http3_descriptor::Http3Descriptor;
pub use self::into_address::IntoAddress;
pub use self::listen::Listener;
pub use crate::peer::{Peer, TlsSession};
pub use crate::stream::Io;
pub use weft_proto::proxy_protocol::IpNetwork;
