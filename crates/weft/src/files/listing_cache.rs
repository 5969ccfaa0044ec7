//! The cache of folder listings, and its limits.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::deadline::Stopwatch;
use crate::compression::Coding;
use crate::files::listing::Order;
use crate::files::path_in_root::PathInRoot;
use crate::sys::Errno;

/// Limit of concurrent reads of folders. A folder always uses the same of these threads, so that
/// concurrent requests for it wait for one read and get its result.
const MAX_CONCURRENT_READS: usize = 4;

/// Limit of the number of cached listings.
const MAX_CACHED: usize = 256;

/// Limit of the memory for listings that are cached or wait to be sent, in permits of
/// [`PERMIT_BYTES`]. ListingCache shorter than one permit are not counted.
const MAX_PERMITS: usize = 1_024;
const PERMIT_BYTES: usize = 64 << 10;

/// Lets concurrent requests for a listing wait for the first of them.
pub(super) type TurnLock = Arc<tokio::sync::Mutex<()>>;

/// The cached listings of a directory.
#[derive(Debug)]
pub(super) struct ListingCache {
    cached: Mutex<HashMap<ListingKey, ListingText, foldhash::quality::RandomState>>,
    pub(super) reads: [TurnLock; MAX_CONCURRENT_READS],
    pub(super) compressions: [TurnLock; MAX_CONCURRENT_READS],
    permits: Arc<Semaphore>,
}

/// A folder and a form of its listing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListingKey {
    pub(super) path: PathInRoot<'static>,
    /// The prefix under which the root is served, decoded; empty for JSON, which does not show it.
    pub(super) mount: Vec<u8>,
    pub(super) order: Order,
    pub(super) as_json: bool,
    /// Number of the generation of the root directory.
    pub(super) generation: u64,
    pub(super) coding: Option<Coding>,
}

/// The text of a listing, or its compressed form.
#[derive(Clone, Debug)]
pub(super) struct ListingText {
    pub(super) bytes: Bytes,
    /// Start of the read of the folder.
    pub(super) made: Stopwatch,
}

/// Bytes with their permits from the memory limit for listings.
struct HeldBytes {
    bytes: Bytes,
    _permits: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ListingCache {
    pub(super) fn new() -> ListingCache {
        ListingCache {
            cached: Mutex::default(),
            reads: Default::default(),
            compressions: Default::default(),
            permits: Arc::new(Semaphore::new(MAX_PERMITS)),
        }
    }

    fn cached(
        &self,
    ) -> MutexGuard<'_, HashMap<ListingKey, ListingText, foldhash::quality::RandomState>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &ListingKey, max_age: Duration) -> Option<ListingText> {
        let cached = self.cached();
        cached.get(key).filter(|listing| listing.made.elapsed() < max_age).cloned()
    }

    /// Caches a listing. Returns true if it is the only one.
    pub(super) fn insert(&self, key: ListingKey, text: ListingText, max_age: Duration) -> bool {
        let mut cached = self.cached();
        let was_empty = cached.is_empty();
        if cached.len() >= MAX_CACHED {
            cached.retain(|_, listing| listing.made.elapsed() < max_age);
        }
        if cached.len() < MAX_CACHED {
            cached.insert(key, text);
        }
        was_empty
    }

    /// Removes old listings. Returns true if none is left.
    pub(super) fn remove_older_than(&self, max_age: Duration) -> bool {
        let mut cached = self.cached();
        cached.retain(|_, listing| listing.made.elapsed() < max_age);
        cached.is_empty()
    }

    /// Returns the one of these locks that a folder uses in all forms.
    pub(super) fn lock_of(
        &self,
        key: &ListingKey,
        locks: &[TurnLock; MAX_CONCURRENT_READS],
    ) -> TurnLock {
        let hash = self.cached().hasher().hash_one(&key.path);
        locks[hash as usize % MAX_CONCURRENT_READS].clone()
    }

    /// Acquires the memory for a listing. ListingCache that are only cached give way.
    pub(super) fn hold(&self, bytes: impl Into<Bytes>) -> io::Result<Bytes> {
        let bytes = bytes.into();
        let count = u32::try_from(bytes.len() / PERMIT_BYTES).unwrap_or(u32::MAX);
        let permits = self.permits.clone().try_acquire_many_owned(count).or_else(|_| {
            self.cached().clear();
            self.permits.clone().try_acquire_many_owned(count)
        });
        let permits = permits.map_err(|_| Errno::NOMEM)?;
        Ok(Bytes::from_owner(HeldBytes { bytes, _permits: permits }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(1_000);

    fn key(path: &str) -> ListingKey {
        let path = PathInRoot::from_setting(path).into_owned();
        let (mount, order) = (Vec::new(), Order::default());
        ListingKey { path, mount, order, as_json: false, generation: 0, coding: None }
    }

    fn text(bytes: Bytes) -> ListingText {
        ListingText { bytes, made: Stopwatch::start() }
    }

    #[test]
    fn bounds_the_number_of_cached_listings() {
        let listings = ListingCache::new();
        for number in 0..MAX_CACHED + 10 {
            let is_first = listings.insert(key(&number.to_string()), text(Bytes::new()), LONG);
            assert_eq!(is_first, number == 0);
        }
        assert_eq!(listings.cached().len(), MAX_CACHED);
        assert!(listings.get(&key("0"), LONG).is_some());
        assert!(listings.get(&key("0"), Duration::ZERO).is_none());
        // Old listings give way to a new one.
        listings.insert(key("new"), text(Bytes::new()), Duration::ZERO);
        assert_eq!(listings.cached().len(), 1);
        assert!(listings.remove_older_than(Duration::ZERO));
    }

    #[test]
    fn cached_listings_give_way_to_others() {
        let listings = ListingCache::new();
        let half = || "x".repeat(MAX_PERMITS * PERMIT_BYTES / 2);
        let sent = listings.hold(half()).unwrap();
        listings.insert(key("a"), text(listings.hold(half()).unwrap()), LONG);
        assert_eq!(listings.permits.available_permits(), 0);
        // The memory of the cached listing is used again, the memory of the listing being sent is
        // not.
        let other = listings.hold(half()).unwrap();
        assert!(listings.get(&key("a"), LONG).is_none());
        assert!(listings.hold(half()).is_err());
        drop((sent, other));
        assert_eq!(listings.permits.available_permits(), MAX_PERMITS);
    }

    #[test]
    fn folder_has_one_lock_in_all_forms() {
        let listings = ListingCache::new();
        let first = listings.lock_of(&key("a"), &listings.reads);
        let other = ListingKey { as_json: true, coding: Some(Coding::Gzip), ..key("a") };
        let other = listings.lock_of(&other, &listings.reads);
        assert!(Arc::ptr_eq(&first, &other));
    }
}
