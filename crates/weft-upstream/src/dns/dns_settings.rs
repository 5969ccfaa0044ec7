//! Settings of the resolution of names.

use std::net::SocketAddr;

use super::answer_cache::TtlBounds;
use super::local_services::LocalServices;
use crate::base::invalid_settings::InvalidSettings;

/// Resolution of the names of upstreams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DnsSettings {
    /// Servers of the DNS. Default none: names are resolved as the system does.
    pub servers: Vec<SocketAddr>,

    /// Bounds of the time for which addresses are used. Within them it is the TTL of the records.
    /// Default 1 s and 1 h.
    pub ttl: TtlBounds,

    /// Services whose servers the process itself sets. Default none.
    pub local_services: LocalServices,
}

impl DnsSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// If the bounds are in the wrong order.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        match self.ttl.min > self.ttl.max {
            true => Err("`ttl.min` must not be longer than `ttl.max`".into()),
            false => Ok(()),
        }
    }
}
