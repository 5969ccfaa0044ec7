//! Certificates that are ordered when a client sends a name without certificate in its handshake.

pub(crate) mod demand_limits; // permission, rate and slots of orders on demand
pub(crate) mod demand_requests; // handshakes that wait
pub(crate) mod on_demand_settings;
