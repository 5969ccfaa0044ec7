//! Settings of a proxy.

pub(crate) mod fastcgi_settings;
pub(crate) mod health_check_settings;
pub(crate) mod mirror_settings;
pub(crate) mod proxy_settings;
pub(crate) mod sticky_settings;
pub(crate) mod variable;
