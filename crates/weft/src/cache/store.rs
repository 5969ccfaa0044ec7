//! The stored responses.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::cache::admission::Admission;
use crate::cache::content_memory::ContentMemory;
use crate::cache::eviction::{Eviction, Limits};
use crate::cache::flight::Flights;
use crate::cache::key::Key;
use crate::cache::purge::Purge;
use crate::cache::statistics::{Counters, Statistics};
use crate::cache::stored_response::{Entry, EntryOrder, StoredResponse};
use crate::clock::wall;
use crate::message::request_head::RequestHead;

/// Number of parts of the index, each with its lock.
const SHARDS: usize = 64;

/// Maximum number of responses of a URL: by `Vary`, and by the fields and cookies in the key.
const MAX_VARIANTS: usize = 64;

/// Stored responses in memory, shared by its clones.
///
/// Limits: [`max_bytes`](Store::max_bytes), [`max_entries`](Store::max_entries), and 64 variants
/// per URL. The least used responses leave first (S3-FIFO), so that a scan displaces a tenth of
/// them. Contents on their way to slow clients have [the same memory again](Store::content_bytes).
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    eviction: Mutex<Eviction>,
    limits: Limits,
    memory: ContentMemory,
    flights: Arc<Flights>,
    admission: Admission,
    counters: Counters,
}

type Shard = HashMap<Box<str>, Variants, foldhash::quality::RandomState>;
type Variants = SmallVec<[Arc<StoredResponse>; 1]>;

/// The result of a lookup.
pub(super) enum Found {
    Response(Arc<StoredResponse>),
    /// There are responses of the URL, for other requests.
    OtherVariants,
    Nothing,
}

impl Default for Store {
    fn default() -> Store {
        Store::with_limits(Limits { bytes: 64 << 20, entries: 100_000 })
    }
}

impl Store {
    /// Creates an empty store with the default limits.
    pub fn new() -> Store {
        Store::default()
    }

    fn with_limits(limits: Limits) -> Store {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Store(Arc::new(Shared {
            hasher: RandomState::new(),
            shards,
            eviction: Mutex::default(),
            limits,
            // The stored contents, and as much again.
            memory: ContentMemory::new(limits.bytes.saturating_mul(2)),
            flights: Arc::default(),
            admission: Admission::default(),
            counters: Counters::default(),
        }))
    }

    /// Creates an empty store with a maximum memory in bytes. Default: 64 MiB. It includes fields
    /// and keys.
    pub fn max_bytes(self, bytes: usize) -> Store {
        Store::with_limits(Limits { bytes, ..self.0.limits })
    }

    /// Creates an empty store with a maximum number of responses. Default: 100,000.
    pub fn max_entries(self, entries: usize) -> Store {
        Store::with_limits(Limits { entries, ..self.0.limits })
    }

    /// Removes responses, or makes them stale if `is_soft`: they are then validated at their next
    /// use, and may still replace errors. Returns the number of responses. Responses that are being
    /// fetched are not stored.
    ///
    /// ```
    /// use weft::cache::{Purge, Store};
    ///
    /// let store = Store::new();
    /// assert_eq!(store.purge(&Purge::Prefix("https://example.org/images/".into()), false), 0);
    /// ```
    pub fn purge(&self, purge: &Purge, is_soft: bool) -> usize {
        let purge = purge.normalized();
        self.0.flights.make_obsolete(&purge);
        let mut purged = Vec::new();
        match &purge {
            Purge::Url(url) => {
                purged.extend(self.shard(url).get(&**url).into_iter().flatten().cloned())
            }
            _ => {
                for shard in &self.0.shards {
                    let shard = lock(shard);
                    let urls = shard.iter().filter(|(url, _)| purge.concerns(url));
                    let responses = urls.flat_map(|(_, variants)| variants);
                    purged.extend(responses.filter(|it| purge.includes(it)).cloned());
                }
            }
        }
        for response in &purged {
            match is_soft {
                true => response.expire(),
                false => self.remove(response),
            }
        }
        purged.len()
    }

    /// Counts of all routes that use the store.
    pub fn statistics(&self) -> Statistics {
        self.0.counters.statistics()
    }

    /// Memory of all responses in bytes, the number of responses, and the number of responses that
    /// were evicted.
    pub fn totals(&self) -> (usize, usize, u64) {
        lock(&self.0.eviction).totals()
    }

    /// Memory of contents in bytes: stored, arriving, and of responses that have left the store and
    /// are still being sent. At most twice [`max_bytes`](Store::max_bytes), and 256 KiB for each
    /// request whose response passes without being stored, because there is no room.
    pub fn content_bytes(&self) -> usize {
        self.0.memory.held()
    }

    /// Lists at most `limit` responses.
    pub fn entries(&self, order: EntryOrder, limit: usize) -> Vec<Entry> {
        let now = wall::now();
        let mut entries = Vec::new();
        for shard in &self.0.shards {
            entries.extend(lock(shard).values().flatten().map(|response| response.entry(now)));
        }
        entries.sort_by_key(|entry| match order {
            EntryOrder::Largest => std::cmp::Reverse(entry.bytes as u64),
            EntryOrder::Hottest => std::cmp::Reverse(entry.hits),
        });
        entries.truncate(limit);
        entries
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(super) fn flights(&self) -> &Arc<Flights> {
        &self.0.flights
    }

    pub(super) fn admission(&self) -> &Admission {
        &self.0.admission
    }

    pub(super) fn memory(&self) -> &ContentMemory {
        &self.0.memory
    }

    /// The most bytes that one response may have.
    pub(super) fn max_response_bytes(&self) -> usize {
        self.0.limits.bytes / 2
    }

    /// Returns the response for a request, the most recent one if several are suitable.
    pub(super) fn find(&self, key: &Key, request: &RequestHead) -> Found {
        let shard = self.shard(&key.url);
        let Some(variants) = shard.get(&key.url) else { return Found::Nothing };
        match variants.iter().rev().find(|response| response.matches(key, request)) {
            Some(response) => Found::Response(response.clone()),
            None => Found::OtherVariants,
        }
    }

    /// Returns the response that was stored last for a URL.
    pub(super) fn last_variant(&self, url: &str) -> Option<Arc<StoredResponse>> {
        self.shard(url).get(url).and_then(|variants| variants.last().cloned())
    }

    /// Stores a response, in place of the response that the same requests selected before.
    pub(super) fn insert(&self, response: Arc<StoredResponse>) {
        if response.bytes() > self.max_response_bytes() {
            return;
        }
        let hash = self.hash(&response.key().url);
        let mut replaced = Variants::new();
        {
            let mut shard = self.shard(&response.key().url);
            let variants = shard.entry(response.key().url.clone()).or_default();
            replaced.extend(variants.iter().filter(|it| response.replaces(it)).cloned());
            variants.retain(|it| !response.replaces(it));
            if variants.len() >= MAX_VARIANTS {
                replaced.push(variants.remove(least_used(variants)));
            }
            variants.push(response.clone());
        }
        let mut eviction = lock(&self.0.eviction);
        replaced.iter().for_each(|response| eviction.forget(response));
        let evicted = eviction.insert(&response, hash, self.0.limits);
        drop(eviction);
        evicted.iter().for_each(|response| _ = self.remove_from_index(response));
    }

    /// Removes a response.
    pub(super) fn remove(&self, response: &Arc<StoredResponse>) {
        if self.remove_from_index(response) {
            lock(&self.0.eviction).forget(response);
        }
    }

    /// Removes all responses of a URL (RFC 9111 §4.4).
    pub(super) fn invalidate(&self, url: &str) {
        self.0.flights.make_obsolete(&Purge::Url(url.to_owned()));
        let variants = self.shard(url).remove(url).unwrap_or_default();
        let mut eviction = lock(&self.0.eviction);
        variants.iter().for_each(|response| eviction.forget(response));
    }

    fn remove_from_index(&self, response: &Arc<StoredResponse>) -> bool {
        let url = &response.key().url;
        let mut shard = self.shard(url);
        let Some(variants) = shard.get_mut(url) else { return false };
        let count = variants.len();
        variants.retain(|other| !Arc::ptr_eq(other, response));
        let is_removed = variants.len() < count;
        if variants.is_empty() {
            shard.remove(url);
        }
        is_removed
    }

    /// The hash of a URL.
    pub(super) fn hash(&self, url: &str) -> u64 {
        self.0.hasher.hash_one(url)
    }

    fn shard(&self, url: &str) -> MutexGuard<'_, Shard> {
        lock(&self.0.shards[self.hash(url) as usize % SHARDS])
    }
}

/// Returns the position of the response with the fewest recent uses, the oldest among them. One
/// client with many variants of a URL displaces its own before the variants of others.
fn least_used(variants: &Variants) -> usize {
    let uses = |at: &usize| variants[*at].uses.load(std::sync::atomic::Ordering::Relaxed);
    (0..variants.len()).min_by_key(uses).unwrap_or(0)
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
