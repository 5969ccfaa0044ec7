//! Health of upstreams.

pub(crate) mod operator_changes;
pub(crate) mod operator_control;
pub(crate) mod upstream_health;
