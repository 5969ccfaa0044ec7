//! The trait of a store of values, and of leases.

use std::time::Duration;

use crate::store_error::StoreError;

/// Maximum size of a value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

/// Maximum length of the key of a value and of the name of a lease, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// Maximum number of keys that a list has. A longer list is an error.
pub const MAX_LISTED: usize = 65_536;

/// A value of a store, with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The value.
    pub value: Vec<u8>,
    /// Its version.
    pub version: ValueVersion,
}

/// Version of a value, which differs after each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueVersion(pub [u8; 16]);

/// Condition of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The value may exist, in any version.
    Any,
    /// There is no value.
    Absent,
    /// The value has this version.
    Version(ValueVersion),
}

/// Random number of the holder of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseToken(pub [u8; 16]);

/// A store of small values with versions, and of leases, which all processes of a cluster share.
/// [`RedisValues`](crate::RedisValues) implements it for Valkey and Redis. Other stores can follow:
///
/// | store | put if absent or if version | lifetime and lease |
/// | --- | --- | --- |
/// | etcd | transaction that compares `mod_revision` | lease of the key |
/// | S3 | `If-None-Match: *`, `If-Match` | time in the value, checked by readers |
/// | PostgreSQL | `ON CONFLICT DO NOTHING`, `WHERE version =` | column with the time |
///
/// A change is atomic, and an answer is never older than a change whose call has ended before. A
/// lease only saves work: a store that fails over to a copy may give it away twice. A process
/// that must be alone changes a value with [`Expected::Absent`] or [`Expected::Version`].
///
/// Keys are paths, such as `certificates/example.org/state.json`. The store may change, hold back
/// and invent values; [`SealedStore`](crate::SealedStore) encrypts them and finds changes.
///
/// # Errors
/// All calls fail if the store is away, refuses the call, or answers nonsense, and if a key or a
/// value is too large. A change may have been made then.
pub trait Store {
    /// Returns a value; `None` if there is none.
    fn get(&mut self, key: &str) -> impl Future<Output = Result<Option<StoredValue>, StoreError>>;

    /// Creates or replaces a value, which is removed after `lifetime`, if the condition is true.
    /// Returns its new version, or `None` if the condition is false.
    fn put(
        &mut self,
        key: &str,
        value: &[u8],
        expected: Expected,
        lifetime: Option<Duration>,
    ) -> impl Future<Output = Result<Option<ValueVersion>, StoreError>>;

    /// Deletes a value if the condition is true. Returns true if it is, also if there was no value.
    fn delete(
        &mut self,
        key: &str,
        expected: Expected,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// Returns the keys with this beginning, in the order of their bytes, and their versions.
    fn list(
        &mut self,
        prefix: &str,
    ) -> impl Future<Output = Result<Vec<(String, ValueVersion)>, StoreError>>;

    /// Acquires the lease of a name, or extends it if the token has it already. Returns false if
    /// another token has the lease.
    fn lease(
        &mut self,
        name: &str,
        token: LeaseToken,
        lifetime: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// Ends a lease, unless another token has it.
    fn release(
        &mut self,
        name: &str,
        token: LeaseToken,
    ) -> impl Future<Output = Result<(), StoreError>>;
}

/// Checks the size of a key.
pub(crate) fn check_key(key: &str) -> Result<(), StoreError> {
    match key.len() {
        1..=MAX_KEY_BYTES => Ok(()),
        length => Err(StoreError::Refused(format!(
            "a key has {length} bytes; from 1 to {MAX_KEY_BYTES} are possible"
        ))),
    }
}

/// Checks the size of a value, which may be longer by `overhead` bytes.
pub(crate) fn check_value(value: &[u8], overhead: usize) -> Result<(), StoreError> {
    match value.len() <= MAX_VALUE_BYTES + overhead {
        true => Ok(()),
        false => Err(StoreError::Refused(format!("a value has more than {MAX_VALUE_BYTES} bytes"))),
    }
}
