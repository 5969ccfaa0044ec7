//! Pools of connections.

pub(crate) mod connection_pool;
mod joined_input;
pub(crate) mod shared_connection;
pub(crate) mod shared_connections;
pub(crate) mod upstream_metrics;
