//! Responses in files: those that have left the memory, and those that are too large for it.
//!
//! A thread of its own writes the files, out of a bounded queue, so that no request waits for it.
//! Requests read them on the blocking pool. The index of all files is in memory.

mod checksum; // checksums of files
mod disk_shared; // state that requests and the thread share
mod disk_writer; // the thread that changes the folder
mod file_format; // bytes of a file
mod file_index; // the files, in the order in which they leave
mod folder; // files by their numbers
mod indexed_file; // a file in the index
mod settings; // DiskSettings
mod spool; // bodies that are written while they arrive
mod unscanned; // changes before the files of a former process are found
mod write_queue; // work for the thread

use std::cmp::Reverse;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

pub use self::settings::{DiskSettings, DiskTotals};
pub(super) use self::spool::Spool;

use self::disk_shared::{DiskShared, now};
use self::file_format::is_damage;
use self::indexed_file::{FileState, IndexedFile};
use self::write_queue::Write;
use crate::cache::content_memory::ContentMemory;
use crate::cache::purge::Purge;
use crate::cache::stored_response::{EntryOrder, FileEntry, StoredHead, StoredResponse};
use crate::client_limit::{Client, ClientLimit, ClientLimitSettings, ClientPermit};

/// Maximum number of files that are read at the same time. One client can have half.
const MAX_LOADS: usize = 64;

/// Maximum number of reads that wait. One client can have half; others are misses.
const MAX_QUEUED_LOADS: usize = 1_024;

/// Longest wait of a read. Requests wait for a shorter time.
const LOAD_QUEUE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of bodies that are written while they arrive. One client can have half.
const MAX_SPOOLS: usize = 16;

/// The files of a store.
#[derive(Debug)]
pub(super) struct DiskTier {
    shared: Arc<DiskShared>,
    loads: ClientLimit,
    spools: ClientLimit,
}

/// The right to read a file.
pub(super) struct LoadPermit {
    shared: Arc<DiskShared>,
    _permit: ClientPermit,
}

impl DiskTier {
    /// Opens the folder, and starts its thread. At most `max_queued` bytes wait to be written.
    pub(super) fn open(settings: &DiskSettings, max_queued: usize) -> io::Result<DiskTier> {
        let shared = Arc::new(DiskShared::open(settings, max_queued)?);
        let thread = shared.clone();
        let builder = std::thread::Builder::new().name("weft-cache-disk".to_owned());
        builder.spawn(move || disk_writer::run(&thread))?;
        let loads = ClientLimit::new(ClientLimitSettings {
            max_queued: MAX_QUEUED_LOADS,
            queue_timeout: LOAD_QUEUE_TIMEOUT,
            ..ClientLimitSettings::new(MAX_LOADS)
        });
        let spools = ClientLimit::new(ClientLimitSettings::new(MAX_SPOOLS));
        Ok(DiskTier { shared, loads, spools })
    }

    /// The maximum length of a content.
    pub(super) fn max_content_bytes(&self) -> u64 {
        self.shared.max_bytes() / 2
    }

    /// Begins to write a response whose body arrives, of the declared length; `None` if another one
    /// of the same variant is being written, or too many others are.
    pub(super) fn spool(
        &self,
        head: &StoredHead,
        length: Option<u64>,
        client: Option<Client>,
    ) -> Option<Spool> {
        let (shared, url, now) = (&self.shared, &*head.key.url, now());
        let variant = shared.variant(head);
        if shared.is_paused() || !shared.queue.has_room(0) {
            return None;
        }
        let permit = self.spools.try_acquire(client)?;
        let id = shared.new_id();
        let file = IndexedFile {
            id,
            variant,
            tags: shared.tags_of(&head.tags()),
            bytes: length.unwrap_or(0),
            is_expired: false,
            last_use: now,
            state: FileState::Writing,
        };
        let mut index = shared.index();
        if index.is_writing(url, variant) {
            return None;
        }
        let removed = index.insert(url, file, now)?;
        drop(index);
        shared.queue.remove(removed);
        Spool::new(shared.clone(), head, id, permit)
    }

    /// Keeps a response that leaves the memory, unless there is no room to wait. Returns the number
    /// of its file.
    pub(super) fn keep(&self, response: &Arc<StoredResponse>) -> Option<u64> {
        let (shared, url) = (&*self.shared, &*response.key().url);
        let now = now();
        let known = response.file_id();
        if let Some(id) = known.filter(|id| shared.index().touch(url, *id, now)) {
            return Some(id);
        }
        if shared.is_paused() || !shared.queue.has_room(response.bytes()) {
            shared.count_skipped();
            return None;
        }
        let file = IndexedFile {
            id: shared.new_id(),
            variant: shared.variant(response.head()),
            tags: shared.tags_of(response.tags()),
            // About the length of the file, whose head is not encoded yet.
            bytes: response.bytes() as u64
                + if response.is_on_disk() { response.content_length() } else { 0 },
            is_expired: response.is_expired(),
            last_use: now,
            state: FileState::Writing,
        };
        let id = file.id;
        shared.queue.remove(shared.index().insert(url, file, now)?);
        response.set_file_id(id);
        if !shared.queue.push(Write { id, has_content: false, response: response.clone() }) {
            shared.count_skipped();
            shared.index().remove(url, id);
            return None;
        }
        Some(id)
    }

    /// Waits until a response can be kept. Returns false if that takes too long.
    pub(super) fn wait_for_room(&self, bytes: usize, deadline: Instant) -> bool {
        self.shared.queue.wait_for_room(bytes, deadline)
    }

    /// Waits until all kept responses are written. Returns false if that takes too long.
    pub(super) fn wait_until_written(&self, deadline: Instant) -> bool {
        self.shared.queue.wait_until_idle(deadline)
    }

    /// Keeps no further responses, and lets another process use the folder.
    pub(super) fn release(&self) {
        self.shared.queue.close();
    }

    /// Removes a file.
    pub(super) fn remove(&self, url: &str, id: u64) {
        if self.shared.index().remove(url, id) {
            self.shared.queue.remove(vec![id]);
        }
    }

    /// Gives the file of a validated response its new head. Returns false if it has no file.
    pub(super) fn update(&self, response: &Arc<StoredResponse>) -> bool {
        let (shared, url) = (&*self.shared, &*response.key().url);
        let Some(id) = response.file_id() else { return false };
        if !response.is_on_disk() || !shared.index().begin_update(url, id, now()) {
            return false;
        }
        let is_queued =
            shared.queue.push(Write { id, has_content: true, response: response.clone() });
        if !is_queued {
            shared.count_skipped();
            self.remove(url, id);
        }
        true
    }

    /// Removes the response that the same requests selected before.
    pub(super) fn remove_replaced(&self, response: &StoredResponse) {
        let variant = self.shared.variant(response.head());
        let removed = self.shared.index().remove_variant(&response.key().url, variant);
        self.shared.queue.remove(removed);
    }

    /// Removes responses, or makes them stale. Returns the numbers of their files.
    pub(super) fn purge(&self, purge: &Purge, is_soft: bool) -> Vec<u64> {
        let tag = match purge {
            Purge::Tag(tag) => Some(self.shared.tag(tag)),
            _ => None,
        };
        let purged = self.shared.index().purge(purge, tag, is_soft);
        match is_soft {
            true => self.shared.queue.expire(purged.clone()),
            false => self.shared.queue.remove(purged.clone()),
        }
        purged
    }

    /// Returns true if a file of a response is in the index, also if it is not written yet.
    pub(super) fn has(&self, response: &StoredResponse) -> bool {
        let index = self.shared.index();
        response.file_id().is_some_and(|id| index.get(&response.key().url, id).is_some())
    }

    /// Returns true if a file of a response is in the index and expired.
    pub(super) fn has_expired(&self, response: &StoredResponse) -> bool {
        let index = self.shared.index();
        let file = response.file_id().and_then(|id| index.get(&response.key().url, id));
        file.is_some_and(|file| file.is_expired)
    }

    /// Returns true if a URL has complete files.
    pub(super) fn has_files(&self, url: &str) -> bool {
        self.shared.index().has_complete(url)
    }

    /// Waits for the right to read a file; `None` if too many reads wait.
    pub(super) async fn permit(&self, client: Option<Client>) -> Option<LoadPermit> {
        let permit = self.loads.acquire(client).await?;
        Some(LoadPermit { shared: self.shared.clone(), _permit: permit })
    }

    /// Lists at most `limit` files.
    pub(super) fn files(&self, order: EntryOrder, limit: usize) -> Vec<FileEntry> {
        let files = self.shared.index().list();
        let mut entries: Vec<_> = files.iter().collect();
        entries.sort_by_key(|(_, bytes, last_use)| match order {
            EntryOrder::Largest => Reverse(*bytes),
            EntryOrder::Hottest => Reverse(*last_use),
        });
        let now = now();
        let entry = |(url, bytes, last_use): &(Arc<str>, u64, u64)| FileEntry {
            url: url.to_string(),
            bytes: *bytes,
            idle: now.saturating_sub(*last_use) / 1_000_000_000,
        };
        entries.into_iter().take(limit).map(entry).collect()
    }

    pub(super) fn totals(&self) -> DiskTotals {
        let index = self.shared.index();
        let (bytes, files, index_bytes, evicted) = index.totals();
        let is_scanned = index.is_scanned();
        drop(index);
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let DiskShared { skipped, damaged, loaded, .. } = &*self.shared;
        let (skipped, damaged, loaded) = (count(skipped), count(damaged), count(loaded));
        DiskTotals { bytes, files, index_bytes, evicted, skipped, damaged, loaded, is_scanned }
    }
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

impl LoadPermit {
    /// Reads the response of a URL whose head `is_suitable`; waits for the disk. A damaged file is
    /// removed.
    pub(super) fn load(
        &self,
        url: &str,
        is_suitable: impl Fn(&StoredHead) -> bool,
        memory: &ContentMemory,
    ) -> Option<StoredResponse> {
        let shared = &self.shared;
        let files = shared.index().complete_files(url);
        for file in files {
            match shared.read(url, &file, &is_suitable, memory) {
                Ok(Some(response)) => {
                    shared.count_loaded();
                    return Some(response);
                }
                Ok(None) => {}
                Err(error) if is_damage(&error) || error.kind() == io::ErrorKind::NotFound => {
                    // Otherwise it was removed while it was read.
                    if shared.index().remove(url, file.id) {
                        shared.count_damaged();
                        shared.queue.remove(vec![file.id]);
                    }
                }
                // The descriptors or the disk fail for the moment.
                Err(_) => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_client_has_half_of_the_reads() {
        let folder = tempfile::tempdir().unwrap();
        let settings = DiskSettings::new(folder.path().join("responses"));
        let tier = DiskTier::open(&settings, 1 << 20).unwrap();
        let [one, other] = [1, 2].map(|last| Some(Client::new([192, 0, 2, last].into())));
        let permit = |client| tier.permit(client).now_or_never().flatten();
        let mut held: Vec<_> = (0..MAX_LOADS / 2).map(|_| permit(one).unwrap()).collect();
        assert!(permit(one).is_none());
        assert!(permit(other).is_some());
        held.pop();
        assert!(permit(one).is_some());
    }

    #[tokio::test]
    async fn a_client_has_half_of_the_bodies_that_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let settings = DiskSettings::new(folder.path().join("responses"));
        let tier = DiskTier::open(&settings, 1 << 20).unwrap();
        let [one, other] = [1, 2].map(|last| Some(Client::new([192, 0, 2, last].into())));
        let permit = |client| tier.spools.try_acquire(client);
        let mut held: Vec<_> = (0..MAX_SPOOLS / 2).map(|_| permit(one).unwrap()).collect();
        assert!(permit(one).is_none());
        assert!(permit(other).is_some());
        held.pop();
        assert!(permit(one).is_some());
    }
}
