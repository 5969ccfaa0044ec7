//! Health of upstreams.

pub(crate) mod health_check;
pub(crate) mod operator_changes;
pub(crate) mod operator_control;
pub(crate) mod upstream_health;
