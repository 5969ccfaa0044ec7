//! Cryptography of the library that a feature selects: aws-lc-rs, or ring if only that is enabled.

#[cfg(feature = "tls")]
#[path = "crypto/aws_lc.rs"]
mod library; // aws-lc-rs
#[cfg(not(feature = "tls"))]
#[path = "crypto/ring.rs"]
mod library; // ring

pub(super) use self::library::{TicketCipher, default_provider, fill_random, hkdf, sha256};
#[cfg(feature = "http3")]
pub(super) use self::library::{header_protection, hmac};
