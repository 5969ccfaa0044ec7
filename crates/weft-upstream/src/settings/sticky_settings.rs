//! Settings of the cookie of sessions.

use std::path::PathBuf;
use std::time::Duration;

use crate::base::invalid_settings::InvalidSettings;

/// Settings of the cookie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StickySettings {
    /// Name of the cookie. Default empty: there is none.
    pub cookie: String,
    /// Time for which clients keep the cookie. Default zero: until the end of their session.
    pub max_age: Duration,
    /// File with the key of the tags, at least 16 bytes. Default none: a random key of the process,
    /// which reloads keep.
    pub secret: Option<PathBuf>,
}

impl StickySettings {
    /// # Errors
    /// If the name of the cookie is no token (RFC 6265 §4.1.1), or missing beside other settings.
    pub(crate) fn validate(&self) -> Result<(), InvalidSettings> {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if !self.cookie.bytes().all(is_token) {
            return Err(format!("`sticky.cookie`: {:?} is no name of a cookie", self.cookie).into());
        }
        if self.cookie.is_empty() && *self != StickySettings::default() {
            return Err("`sticky.max_age` and `sticky.secret` need `sticky.cookie`".into());
        }
        Ok(())
    }
}
