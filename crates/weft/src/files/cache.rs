//! The file cache of a worker: descriptors, small contents, prepared header fields.
//!
//! An entry is fresh for a while (1 s by default). Then the file is looked up again, and if its
//! version is unchanged, everything derived from it is kept. A bare `stat` is not sufficient for
//! this: it follows a path out of the root and has no non-blocking form. Entries that are not
//! requested are evicted after another while (10 s by default), and a full cache evicts these
//! first. So `open`, `stat` and `read` do not occur per request, and no file is held for long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::clock::deadline::Stopwatch;
use crate::files::followed_root::RootGeneration;
use crate::files::lookup::Target;
use crate::files::resource::Resource;
use crate::files::settings::DirectorySettings;

/// Shared handle of a [`FileCache`]. Only one worker uses it, so the lock is never contended
/// on the path of a request; the task that prunes the cache holds a weak reference.
#[derive(Debug)]
pub(super) struct CacheHandle(Arc<Mutex<FileCache>>);

#[derive(Debug)]
struct FileCache {
    /// Entries by the cache keys of their paths. The hash function is fast because it runs once for
    /// each request. Colliding paths gain an attacker little: the limits bound the number of
    /// entries.
    entries: HashMap<Box<[u8]>, Entry, foldhash::quality::RandomState>,
    limits: Limits,
    /// The root directory of the last lookup. Entries of another one, and all entries when it has
    /// to be followed again, are not current. `None` before the first lookup.
    root: Option<RootGeneration>,
    /// Bytes of memory that all entries hold.
    bytes: usize,
    /// Descriptors that all entries hold.
    descriptors: usize,
    /// Number of entries without a file; most are negative entries (not found).
    empty_entries: usize,
    last_pruned: Stopwatch,
    /// Set while the task that prunes the cache is running.
    has_prune_task: bool,
}

#[derive(Debug)]
struct Limits {
    bytes: usize,
    descriptors: usize,
    entries: usize,
    revalidate_after: Duration,
    evict_after: Duration,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    bytes: usize,
    descriptors: usize,
    validated: Stopwatch,
    last_used: Stopwatch,
    /// Number of the root directory in which the target was looked up.
    generation: u64,
}

/// A target from the cache.
pub(super) struct CachedTarget {
    pub(super) target: Target,
    /// Set if the target may be used without another lookup: it was validated a short time ago,
    /// and its open files are unchanged.
    pub(super) is_current: bool,
}

/// The longest key of an entry without a file: any client can request paths that do not exist.
const MAX_EMPTY_KEY_BYTES: usize = 256;

/// The maximum number of entries without a file, for the same reason.
const MAX_EMPTY_ENTRIES: usize = 1_024;

/// Factor by which a file is kept longer than others after one of its forms was compressed with
/// more effort: 5 minutes by default. The limits of the cache apply to these files too.
pub(super) const KEEP_FACTOR: u32 = 30;

impl CacheHandle {
    pub(super) fn new(settings: &DirectorySettings) -> CacheHandle {
        let limits = Limits {
            bytes: settings.max_cached_bytes,
            descriptors: settings.max_cached_descriptors,
            entries: settings.max_cached_entries,
            revalidate_after: settings.revalidate_after,
            evict_after: settings.evict_after,
        };
        CacheHandle(Arc::new(Mutex::new(FileCache {
            entries: HashMap::default(),
            limits,
            root: None,
            bytes: 0,
            descriptors: 0,
            empty_entries: 0,
            last_pruned: Stopwatch::start(),
            has_prune_task: false,
        })))
    }

    /// Returns another handle of the same cache, for a request of the same worker.
    pub(super) fn share(&self) -> CacheHandle {
        CacheHandle(self.0.clone())
    }

    fn lock(&self) -> MutexGuard<'_, FileCache> {
        lock(&self.0)
    }

    /// Returns the target for `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<CachedTarget> {
        self.with(key, |target, is_current| CachedTarget { target: target.clone(), is_current })
    }

    /// Calls `inspect` with the target for `key`, and true if it is current. As
    /// [`get`](Self::get), without a clone.
    pub(super) fn with<T>(
        &self,
        key: &[u8],
        inspect: impl FnOnce(&Target, bool) -> T,
    ) -> Option<T> {
        let mut cache = self.lock();
        let (root, revalidate_after) = (cache.root, cache.limits.revalidate_after);
        let entry = cache.entries.get_mut(key)?;
        let now = Stopwatch::start();
        entry.last_used = now;
        let is_fresh = now.since(entry.validated) < revalidate_after
            && root.is_some_and(|root| {
                root.number() == entry.generation && root.is_fresh(now, revalidate_after)
            });
        Some(inspect(&entry.target, is_fresh && entry.target.is_current()))
    }

    /// Inserts the result of a lookup that was just made, if there is room.
    pub(super) fn insert(&self, key: &[u8], target: Target, root: RootGeneration) {
        let mut cache = self.lock();
        if cache.root.is_none_or(|known| root.is_newer_than(&known)) {
            cache.root = Some(root);
        }
        cache.insert(key, target, root.number());
        // The prune task ensures that no file is held for long. It needs a runtime.
        if !cache.has_prune_task && !cache.entries.is_empty() {
            let interval = cache.limits.prune_interval();
            cache.has_prune_task = tokio::runtime::Handle::try_current()
                .map(|runtime| runtime.spawn(prune_periodically(Arc::downgrade(&self.0), interval)))
                .is_ok();
        }
    }

    /// Returns true if less than half of the allowed descriptors are in use.
    pub(super) fn has_spare_descriptors(&self) -> bool {
        let cache = self.lock();
        cache.descriptors < cache.limits.descriptors / 2
    }

    /// Removes the entry for `key`.
    pub(super) fn remove(&self, key: &[u8]) {
        self.lock().remove(key);
    }

    /// Removes all entries with an open descriptor: the process has no descriptors left, and the
    /// files can be opened again later.
    pub(super) fn close_descriptors(&self) {
        self.lock().retain(|entry| entry.descriptors == 0);
    }

    /// Returns true if a resource is in the cache, and there is room for `bytes` more bytes of it.
    pub(super) fn has_room(&self, key: &[u8], resource: &Arc<Resource>, bytes: usize) -> bool {
        let cache = self.lock();
        cache.bytes + bytes <= cache.limits.bytes
            && cache.entries.get(key).is_some_and(|entry| entry.holds(resource))
    }

    /// Counts the memory of a resource again, because its compressed forms have changed.
    pub(super) fn recount(&self, key: &[u8], resource: &Arc<Resource>) {
        let mut cache = self.lock();
        let Some(entry) = cache.entries.get_mut(key).filter(|entry| entry.holds(resource)) else {
            return;
        };
        let (before, now) = (entry.bytes, resource.bytes_in_memory());
        entry.bytes = now;
        cache.bytes = cache.bytes - before + now;
    }

    /// Returns a handle that does not keep the cache alive.
    pub(super) fn downgrade(&self) -> WeakCacheHandle {
        WeakCacheHandle(Arc::downgrade(&self.0))
    }
}

/// Handle for work that may outlive the cache.
#[derive(Debug)]
pub(super) struct WeakCacheHandle(Weak<Mutex<FileCache>>);

impl WeakCacheHandle {
    pub(super) fn upgrade(&self) -> Option<CacheHandle> {
        self.0.upgrade().map(CacheHandle)
    }
}

/// Evicts unused entries at each interval, until the cache is empty.
async fn prune_periodically(cache: Weak<Mutex<FileCache>>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(cache) = cache.upgrade() else { return };
        let mut cache = lock(&cache);
        let evict_after = cache.limits.evict_after;
        cache.prune(evict_after, |_| true);
        if cache.entries.is_empty() {
            cache.has_prune_task = false;
            return;
        }
    }
}

fn lock(cache: &Mutex<FileCache>) -> MutexGuard<'_, FileCache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Limits {
    /// Time between two runs of the prune task.
    fn prune_interval(&self) -> Duration {
        (self.evict_after / 8).max(Duration::from_millis(10))
    }
}

impl FileCache {
    fn insert(&mut self, key: &[u8], target: Target, generation: u64) {
        let now = Stopwatch::start();
        self.remove(key);
        let (bytes, descriptors) = match &target {
            Target::File(resource) => (resource.bytes_in_memory(), resource.open_descriptors()),
            _ => (0, 0),
        };
        let entry =
            Entry { target, bytes, descriptors, validated: now, last_used: now, generation };
        if entry.is_empty() && key.len() > MAX_EMPTY_KEY_BYTES {
            return;
        }
        let revalidate_after = self.limits.revalidate_after;
        if !self.has_room_for(&entry) && now.since(self.last_pruned) >= revalidate_after {
            // An entry without a file never evicts an entry with one.
            let empty = entry.is_empty();
            self.prune(revalidate_after, |other| other.is_empty() || !empty);
        }
        if self.has_room_for(&entry) {
            self.bytes += entry.bytes;
            self.descriptors += entry.descriptors;
            self.empty_entries += usize::from(entry.is_empty());
            self.entries.insert(key.into(), entry);
        }
    }

    fn has_room_for(&self, entry: &Entry) -> bool {
        let limits = &self.limits;
        match entry.is_empty() {
            true => self.empty_entries < (limits.entries / 4).min(MAX_EMPTY_ENTRIES),
            false => {
                self.entries.len() - self.empty_entries < limits.entries
                    && self.bytes + entry.bytes <= limits.bytes
                    && self.descriptors + entry.descriptors <= limits.descriptors
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
            self.descriptors -= entry.descriptors;
            self.empty_entries -= usize::from(entry.is_empty());
        }
    }

    /// Evicts the entries that were not used for `max_idle`, if `may_evict` returns true. An entry
    /// with a form that was worth more effort stays [`KEEP_FACTOR`] times as long.
    fn prune(&mut self, max_idle: Duration, may_evict: impl Fn(&Entry) -> bool) {
        self.last_pruned = Stopwatch::start();
        let now = self.last_pruned;
        self.retain(|entry| {
            let max_idle =
                max_idle.saturating_mul(if entry.has_best_form() { KEEP_FACTOR } else { 1 });
            now.since(entry.last_used) < max_idle || !may_evict(entry)
        });
    }

    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        self.entries.retain(|_, entry| keep(entry));
        let entries = self.entries.values();
        self.bytes = entries.clone().map(|entry| entry.bytes).sum();
        self.descriptors = entries.clone().map(|entry| entry.descriptors).sum();
        self.empty_entries = entries.filter(|entry| entry.is_empty()).count();
        if self.entries.is_empty() {
            self.entries.shrink_to_fit();
        }
    }
}

impl Entry {
    /// Returns true if the entry has no file, and so neither contents nor a descriptor.
    fn is_empty(&self) -> bool {
        !matches!(self.target, Target::File(_))
    }

    fn holds(&self, resource: &Arc<Resource>) -> bool {
        matches!(&self.target, Target::File(held) if Arc::ptr_eq(held, resource))
    }

    fn has_best_form(&self) -> bool {
        matches!(&self.target, Target::File(resource) if resource.has_best_form())
    }
}
