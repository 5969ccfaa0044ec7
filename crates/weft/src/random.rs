//! Random identifiers, which need not be cryptographically secure.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes a random boundary. A file contains it only if its author could predict it.
pub(crate) fn random_boundary() -> String {
    format!("{:032x}", u128::from_be_bytes(random_bytes()))
}

/// Makes bytes that are unlikely to be guessed. They are not cryptographically secure.
pub(crate) fn random_bytes() -> [u8; 16] {
    let number = || u128::from(RandomState::new().build_hasher().finish());
    (number() << 64 | number()).to_be_bytes()
}
