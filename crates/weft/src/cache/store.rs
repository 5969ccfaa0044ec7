//! The stored responses.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::cache::admission::Admission;
use crate::cache::content_memory::ContentMemory;
use crate::cache::disk_tier::{DiskSettings, DiskTier, DiskTotals, Spool};
use crate::cache::eviction::{Eviction, Limits};
use crate::cache::flight::Flights;
use crate::cache::key::Key;
use crate::cache::open_contents::OpenContents;
use crate::cache::purge::Purge;
use crate::cache::statistics::{Counters, Statistics};
use crate::cache::stored_response::{Entry, EntryOrder, FileEntry, StoredHead, StoredResponse};
use crate::client_limit::Client;
use crate::clock::wall;
use crate::message::request_head::RequestHead;

/// Number of parts of the index, each with its lock.
const SHARDS: usize = 64;

/// Maximum number of responses of a URL: by `Vary`, and by the fields and cookies in the key.
const MAX_VARIANTS: usize = 64;

/// Memory of compressed copies: one part of this many, in addition.
const COPIED_PART: usize = 4;

/// Part of the memory whose responses may wait to be written to files: one of this many.
const QUEUED_PART: usize = 4;

/// Stored responses in memory, and if [`disk`](Store::disk) says so in files. Its clones share them.
///
/// Limits: [`max_bytes`](Store::max_bytes), [`max_entries`](Store::max_entries), and 64 variants
/// per URL. The least used responses leave first (S3-FIFO), so that a scan displaces a tenth of
/// them. Contents on their way to slow clients have [the same memory again](Store::content_bytes).
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    hasher: foldhash::quality::RandomState,
    shards: Box<[Mutex<Shard>]>,
    eviction: Mutex<Eviction>,
    limits: Limits,
    memory: ContentMemory,
    disk: Option<DiskTier>,
    open_contents: OpenContents,
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
        Store::with_limits(Limits { bytes: 64 << 20, entries: 100_000 }, None)
    }
}

impl Store {
    /// Creates an empty store with the default limits.
    pub fn new() -> Store {
        Store::default()
    }

    fn with_limits(limits: Limits, disk: Option<DiskTier>) -> Store {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Store(Arc::new(Shared {
            hasher: foldhash::quality::RandomState::default(),
            shards,
            eviction: Mutex::default(),
            limits,
            // The stored contents, and as much again.
            memory: ContentMemory::new(limits.bytes.saturating_mul(2), limits.bytes / COPIED_PART),
            disk,
            open_contents: OpenContents::default(),
            flights: Arc::default(),
            admission: Admission::default(),
            counters: Counters::default(),
        }))
    }

    /// Creates an empty store with a maximum memory in bytes. Default: 64 MiB. It includes fields
    /// and keys.
    pub fn max_bytes(self, bytes: usize) -> Store {
        Store::with_limits(Limits { bytes, ..self.0.limits }, None)
    }

    /// Creates an empty store with a maximum number of responses. Default: 100,000.
    pub fn max_entries(self, entries: usize) -> Store {
        Store::with_limits(Limits { entries, ..self.0.limits }, None)
    }

    /// Creates an empty store with the same limits, which also keeps responses in files: those that
    /// leave the memory. They survive the end of the process. Up to 256 files are open for
    /// responses in use. To be called last.
    ///
    /// # Errors
    /// If the folder cannot be created, or if other users may write to it.
    pub fn disk(self, settings: &DiskSettings) -> io::Result<Store> {
        let limits = self.0.limits;
        let disk = DiskTier::open(settings, limits.bytes / QUEUED_PART)?;
        Ok(Store::with_limits(limits, Some(disk)))
    }

    /// Writes the responses in memory to the files, at the end of a process; waits for the disk. The
    /// store writes nothing after that, and another process may use the folder. Returns false if
    /// there are no files, or if it takes too long.
    pub fn save(&self, timeout: Duration) -> bool {
        let Some(disk) = &self.0.disk else { return false };
        let is_saved = self.write_all(disk, Instant::now() + timeout);
        disk.release();
        is_saved
    }

    fn write_all(&self, disk: &DiskTier, deadline: Instant) -> bool {
        let now = wall::now();
        for shard in &self.0.shards {
            let responses: Vec<_> = lock(shard).values().flatten().cloned().collect();
            for response in responses.iter().filter(|response| response.is_useful(now)) {
                if !disk.wait_for_room(response.bytes(), deadline) {
                    return false;
                }
                disk.keep(response);
            }
        }
        disk.wait_until_written(deadline)
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
        // Before the memory, and after it: a response may be on its way to either of them.
        let purge_files =
            || self.0.disk.iter().flat_map(|disk| disk.purge(&purge, is_soft)).collect::<Vec<_>>();
        let mut files = HashSet::<u64>::from_iter(purge_files());
        let purged = self.purge_memory(&purge, is_soft);
        files.extend(purge_files());
        let has_file = |id: u64| files.contains(&id);
        let without_file = purged.iter().filter(|it| !it.file_id().is_some_and(has_file));
        files.len() + without_file.count()
    }

    /// Purges the memory. Returns the responses.
    fn purge_memory(&self, purge: &Purge, is_soft: bool) -> Vec<Arc<StoredResponse>> {
        let mut purged = Vec::new();
        match purge {
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
                false => self.remove_from_memory(response),
            }
        }
        purged
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

    /// Counts of the files; `None` without them.
    pub fn disk_totals(&self) -> Option<DiskTotals> {
        self.0.disk.as_ref().map(DiskTier::totals)
    }

    /// Memory of contents in bytes: stored, arriving, and of responses that have left the store and
    /// are still being sent. At most twice [`max_bytes`](Store::max_bytes), and 256 KiB for each
    /// request whose response passes without being stored, because there is no room.
    pub fn content_bytes(&self) -> usize {
        self.0.memory.held()
    }

    /// Memory of compressed copies in bytes, at most a quarter of [`max_bytes`](Store::max_bytes).
    /// [`Compress`](crate::middleware::Compress) in front of the cache makes one when it sends a
    /// stored response of up to 256 KiB for the first time.
    pub fn copied_bytes(&self) -> usize {
        self.0.memory.copied()
    }

    /// Lists at most `limit` responses in memory.
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

    /// Lists at most `limit` files of responses, with [`EntryOrder::Hottest`] the last used ones
    /// first. A response may be in memory, too.
    pub fn files(&self, order: EntryOrder, limit: usize) -> Vec<FileEntry> {
        self.0.disk.as_ref().map_or_else(Vec::new, |disk| disk.files(order, limit))
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

    /// The most bytes that one content may have, in memory or in a file.
    pub(super) fn max_content_bytes(&self) -> u64 {
        let on_disk = self.0.disk.as_ref().map_or(0, DiskTier::max_content_bytes);
        on_disk.max(self.max_response_bytes() as u64)
    }

    /// Begins to write a response to a file while its body arrives.
    pub(super) fn spool(
        &self,
        head: &StoredHead,
        length: Option<u64>,
        client: Option<Client>,
    ) -> Option<Spool> {
        self.0.disk.as_ref()?.spool(head, length, client)
    }

    /// Removes the response in memory that the same requests select as one in a new file.
    pub(super) fn forget_replaced(&self, head: &StoredHead) {
        let variants = self.shard(&head.key.url).get(&head.key.url).cloned().unwrap_or_default();
        for response in variants.iter().filter(|response| response.head().replaces(head)) {
            self.remove_from_memory(response);
        }
    }

    /// The most bytes that one response may have in memory.
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

    /// Returns true if a file may have the response to a request.
    pub(super) fn has_file(&self, key: &Key) -> bool {
        self.0.disk.as_ref().is_some_and(|disk| disk.has_files(&key.url))
    }

    /// Returns a response for a request from its file, and takes it into memory.
    pub(super) async fn load(
        &self,
        key: &Key,
        request: &RequestHead,
        client: Option<Client>,
    ) -> Option<Arc<StoredResponse>> {
        let permit = self.0.disk.as_ref()?.permit(client).await?;
        // Another request may have loaded it while this one has waited.
        if let Found::Response(response) = self.find(key, request) {
            return Some(response);
        }
        let (store, key, request) = (self.clone(), key.clone(), request.clone());
        let load = move || {
            let matches = |head: &StoredHead| head.matches(&key, &request);
            let response = permit.load(&key.url, matches, &store.0.memory)?;
            store.insert_loaded(Arc::new(response))
        };
        tokio::task::spawn_blocking(load).await.ok().flatten()
    }

    /// Stores a response, in place of the response that the same requests selected before.
    pub(super) fn insert(&self, response: Arc<StoredResponse>) {
        if let Some(disk) = &self.0.disk
            && !disk.update(&response)
        {
            disk.remove_replaced(&response);
        }
        if response.bytes() > self.max_response_bytes() {
            self.forget_replaced(response.head());
            self.0.disk.as_ref().map(|disk| disk.keep(&response));
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
        self.insert_into_order(&response, hash, &replaced);
        self.limit_open(&response);
    }

    /// Takes a response from a file into memory. Returns the response in memory for the same
    /// requests, if there is one by now, and `None` if the file was removed meanwhile.
    fn insert_loaded(&self, response: Arc<StoredResponse>) -> Option<Arc<StoredResponse>> {
        let hash = self.hash(&response.key().url);
        {
            let mut shard = self.shard(&response.key().url);
            let variants = shard.entry(response.key().url.clone()).or_default();
            if let Some(known) = variants.iter().find(|it| response.replaces(it)) {
                return Some(known.clone());
            }
            if variants.len() < MAX_VARIANTS {
                // The first: it is older than the others.
                variants.insert(0, response.clone());
            } else {
                return Some(response.clone());
            }
        }
        self.insert_into_order(&response, hash, &Variants::new());
        let disk = self.0.disk.as_ref()?;
        if !disk.has(&response) {
            self.remove_from_memory(&response);
            return None;
        }
        if disk.has_expired(&response) {
            response.expire();
        }
        self.limit_open(&response);
        Some(response)
    }

    fn insert_into_order(&self, response: &Arc<StoredResponse>, hash: u64, replaced: &Variants) {
        let mut eviction = lock(&self.0.eviction);
        replaced.iter().for_each(|response| eviction.forget(response));
        let evicted = eviction.insert(response, hash, self.0.limits);
        drop(eviction);
        evicted.iter().for_each(|response| self.evict(response));
    }

    /// Takes a response out of the index in memory, and keeps it in a file.
    fn evict(&self, response: &Arc<StoredResponse>) {
        let disk = self.0.disk.as_ref().filter(|_| response.is_useful(wall::now()));
        // The file is known before the memory forgets the response, so that a purge finds it.
        let kept = disk.and_then(|disk| disk.keep(response));
        let was_there = self.remove_from_index(response);
        if let (Some(disk), Some(id), false) = (disk, kept, was_there) {
            disk.remove(&response.key().url, id);
        }
    }

    /// Limits the number of open files: the response that was opened first leaves the memory.
    fn limit_open(&self, response: &Arc<StoredResponse>) {
        if response.is_on_disk()
            && let Some(first) = self.0.open_contents.add(response)
            && self.remove_from_index(&first)
        {
            lock(&self.0.eviction).forget(&first);
        }
    }

    /// Removes a response, also its file.
    pub(super) fn remove(&self, response: &Arc<StoredResponse>) {
        if let Some(disk) = &self.0.disk {
            disk.remove_replaced(response);
        }
        self.remove_from_memory(response);
    }

    fn remove_from_memory(&self, response: &Arc<StoredResponse>) {
        if self.remove_from_index(response) {
            lock(&self.0.eviction).forget(response);
        }
    }

    /// Removes all responses of a URL (RFC 9111 §4.4).
    pub(super) fn invalidate(&self, url: &str) {
        let purge = Purge::Url(url.to_owned());
        self.0.flights.make_obsolete(&purge);
        let purge_files = || self.0.disk.as_ref().map(|disk| disk.purge(&purge, false));
        purge_files();
        let variants = self.shard(url).remove(url).unwrap_or_default();
        let mut eviction = lock(&self.0.eviction);
        variants.iter().for_each(|response| eviction.forget(response));
        drop(eviction);
        purge_files();
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
