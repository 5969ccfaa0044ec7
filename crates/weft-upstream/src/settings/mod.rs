//! Settings of a proxy.

pub(crate) mod invalid_settings;
pub(crate) mod proxy_settings;
