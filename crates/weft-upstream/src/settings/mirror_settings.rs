//! Settings of copies of requests for another server.

use std::time::Duration;

use super::proxy_settings::{Balance, ProxySettings};
use crate::url::upstream_url::UpstreamUrl;

/// Settings of the copies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MirrorSettings {
    /// Server that gets copies of requests. Default none.
    pub url: Option<UpstreamUrl>,
    /// Share of the requests that are copied, in millionths. Default all.
    pub share: u32,
    /// Longest time for a copy, from the connection to the end of the response. Default 10 s.
    pub timeout: Duration,
    /// Maximum copies of one worker that are in progress. Default 32.
    pub max_copies: usize,
}

impl Default for MirrorSettings {
    fn default() -> MirrorSettings {
        let timeout = Duration::from_secs(10);
        MirrorSettings { url: None, share: ALL, timeout, max_copies: 32 }
    }
}

/// All requests, in millionths.
pub(crate) const ALL: u32 = 1_000_000;

impl MirrorSettings {
    /// # Errors
    /// If there are settings without a server.
    pub(crate) fn validate(&self) -> Result<(), String> {
        match &self.url {
            None if *self != MirrorSettings::default() => {
                Err("mirror_share, mirror_timeout and max_mirrored need mirror".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the settings of the proxy for the copies of `route`. It has no retries, no queue, and a
    /// connection for each copy.
    pub(crate) fn proxy_settings(&self, route: &ProxySettings) -> Option<ProxySettings> {
        let upstreams = vec![self.url.clone()?.into()];
        Some(ProxySettings {
            upstreams,
            balance: Balance::default(),
            mirror: MirrorSettings::default(),
            sticky: Default::default(),
            check: None,
            grpc_web: false,
            connect_timeout: route.connect_timeout.min(self.timeout),
            response_timeout: self.timeout,
            body_timeout: self.timeout,
            max_connections: self.max_copies,
            max_connections_per_client: self.max_copies,
            max_queued: 0,
            max_idle_connections: self.max_copies.min(route.max_idle_connections),
            buffer_responses: false,
            max_temp_file_bytes: 0,
            max_retries: 0,
            failure_statuses: Vec::new(),
            failure_latency: Duration::ZERO,
            failure_rate: None,
            rewrite_location: None,
            tls_name: None,
            tls_pin: Vec::new(),
            ..route.clone()
        })
    }
}
