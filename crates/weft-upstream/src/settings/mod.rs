//! Settings of a proxy.

pub(crate) mod proxy_settings;
