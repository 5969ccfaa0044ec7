//! Settings of a proxy.

pub(crate) mod invalid_settings;
pub(crate) mod mirror_settings;
pub(crate) mod proxy_settings;
pub(crate) mod sticky_settings;
pub(crate) mod variable;
