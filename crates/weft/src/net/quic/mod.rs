//! QUIC (RFC 9000): a UDP socket for each worker, and connections as values.
//!
//! `quinn-proto` is the transport, which does no I/O. An [`Endpoint`] receives the datagrams of a
//! socket and queues them for their connections. A [`Connection`] is owned by its task, which
//! processes its datagrams and timers, and sends its output. No other module depends on the
//! transport's crate beyond its streams.

mod config;
mod connection;
mod connection_id;
mod crypto;
mod endpoint;
mod processes;
mod socket;
mod transport_frames;
mod unregistered;
mod workers;

pub(crate) use self::config::{QuicConfig, limits};
pub(crate) use self::connection::{Connection, ConnectionEvent};
pub(crate) use self::endpoint::{Attempt, Endpoint};
pub(crate) use self::socket::QuicSocket;
pub(crate) use self::transport_frames::TransportFrames;
pub(crate) use self::unregistered::{EndpointGroup, Unregistered};
