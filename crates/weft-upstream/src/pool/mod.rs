//! Pools of connections.

pub mod client_limit;
pub(crate) mod connection_pool;
pub(crate) mod upstream_metrics;
