//! Selection of upstreams.

pub(crate) mod balancer;
pub(crate) mod sticky;
