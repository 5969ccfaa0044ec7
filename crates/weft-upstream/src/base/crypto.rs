//! Cryptography of the library that a feature selects: aws-lc-rs, or ring if only that is enabled.

#[cfg(feature = "tls")]
use aws_lc_rs as library;
#[cfg(not(feature = "tls"))]
use ring as library;

use library::rand::{SecureRandom, SystemRandom};
pub(crate) use library::{digest, hmac};
#[cfg(feature = "tls")]
pub(crate) use rustls::crypto::aws_lc_rs::default_provider;
#[cfg(not(feature = "tls"))]
pub(crate) use rustls::crypto::ring::default_provider;

/// Fills a buffer with random bytes. `None` if the system has none.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Option<()> {
    SystemRandom::new().fill(bytes).ok()
}
