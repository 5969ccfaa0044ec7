//! Connections to an upstream.

pub(crate) mod happy_eyeballs;
pub(crate) mod upstream;
pub(crate) mod upstream_connection;
