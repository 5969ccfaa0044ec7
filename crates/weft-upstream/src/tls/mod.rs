//! TLS to upstreams.

mod client_config;
mod key_pin;

pub use client_config::{ClientIdentity, client_config, client_config_without_alpn};
pub use key_pin::KeyPin;
