//! Settings of copies of requests for another server.

use std::time::Duration;

use crate::base::invalid_settings::InvalidSettings;
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
    pub(crate) fn validate(&self) -> Result<(), InvalidSettings> {
        match self.url.is_none() && *self != MirrorSettings::default() {
            true => {
                Err("`mirror.share`, `mirror.timeout` and `mirror.max_copies` need `mirror.url`"
                    .into())
            }
            false => Ok(()),
        }
    }
}
