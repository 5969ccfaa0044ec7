//! Settings of the resolution of names.

use std::net::SocketAddr;

use super::answer_cache::TtlBounds;

/// Resolution of the names of upstreams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DnsSettings {
    /// Servers of the DNS. Default none: names are resolved as the system does.
    pub servers: Vec<SocketAddr>,

    /// Bounds of the time for which addresses are used, which is that of their records. Default 1 s and
    /// 1 h.
    pub ttl: TtlBounds,
}

impl DnsSettings {
    /// # Errors
    /// If the bounds are in the wrong order.
    pub fn validate(&self) -> Result<(), String> {
        match self.ttl.min > self.ttl.max {
            true => Err("dns_min_ttl must not be longer than dns_max_ttl".to_owned()),
            false => Ok(()),
        }
    }
}
