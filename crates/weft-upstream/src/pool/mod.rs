//! Pools of connections.

pub(crate) mod connection_pool;
mod frame_budget;
mod idle_connections;
mod joined_input;
pub(crate) mod lease;
pub(crate) mod shared_connection;
mod shared_connections;
pub(crate) mod upstream_metrics;
pub(crate) mod upstream_report;
