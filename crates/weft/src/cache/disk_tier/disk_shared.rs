//! State that requests and the thread share.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::file_format::{FileHead, damaged, read_head, verify_content};
use super::file_index::{DiskLimits, FileIndex};
use super::folder::Folder;
use super::indexed_file::{FileState, IndexedFile};
use super::settings::DiskSettings;
use super::write_queue::WriteQueue;
use crate::cache::content_memory::ContentMemory;
use crate::cache::stored_response::{StoredHead, StoredResponse};
use crate::disk::{File, FileVersion};
use crate::sys::{fstat, read_exact_at};

/// Maximum length of a content that returns to memory. Longer ones are sent from their files.
const MAX_RETURNING: u64 = 64 << 10;

/// Time for which nothing is written after a failure, such as of a full disk.
const PAUSE: Duration = Duration::from_secs(10);

/// State that requests and the thread share.
pub(super) struct DiskShared {
    pub(super) folder: Folder,
    hasher: RandomState,
    index: Mutex<FileIndex>,
    pub(super) queue: WriteQueue,
    settings: DiskSettings,
    /// The end of the pause after a failure.
    paused_until: Mutex<Option<Instant>>,
    next_id: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) loaded: AtomicU64,
}

impl DiskShared {
    /// Opens the folder. At most `max_queued` bytes wait to be written.
    pub(super) fn open(settings: &DiskSettings, max_queued: usize) -> io::Result<DiskShared> {
        let limits =
            DiskLimits { bytes: settings.max_bytes, index_bytes: settings.max_index_bytes };
        Ok(DiskShared {
            folder: Folder::open(settings.folder.clone())?,
            hasher: RandomState::new(),
            index: Mutex::new(FileIndex::new(limits, now())),
            queue: WriteQueue::new(max_queued),
            settings: settings.clone(),
            paused_until: Mutex::default(),
            next_id: AtomicU64::default(),
            skipped: AtomicU64::default(),
            damaged: AtomicU64::default(),
            loaded: AtomicU64::default(),
        })
    }

    /// The maximum size of all files.
    pub(super) fn max_bytes(&self) -> u64 {
        self.settings.max_bytes
    }

    /// Reads a file, if its head `is_suitable`.
    ///
    /// # Errors
    /// Errors of the system, and [`damaged`].
    pub(super) fn read(
        &self,
        url: &str,
        indexed: &IndexedFile,
        is_suitable: impl Fn(&StoredHead) -> bool,
        memory: &ContentMemory,
    ) -> io::Result<Option<StoredResponse>> {
        let file = self.folder.open_file(indexed.id)?;
        let stat = fstat(&file)?;
        let FileHead { layout, head, is_expired } = read_head(&file, stat.length)?;
        if *head.key.url != *url {
            return Err(damaged());
        }
        if !is_suitable(&head) {
            return Ok(None);
        }
        // A content is verified once, unless the file changes.
        let version = FileVersion::new(&stat);
        if indexed.state != (FileState::Complete { verified: Some(version) }) {
            verify_content(&file, &layout)?;
            self.index().set_verified(url, indexed.id, version);
        }
        let content = content_of(file, layout.content_start(), layout.content_length, memory)?;
        let response = StoredResponse::from_file(head, content, indexed.id);
        if is_expired || indexed.is_expired {
            response.expire();
        }
        Ok(Some(response))
    }

    /// The hash of the values that select a response among others of its URL.
    pub(super) fn variant(&self, head: &StoredHead) -> u64 {
        self.hasher.hash_one((&head.key.extras, &head.selector))
    }

    /// The hashes of tags.
    pub(super) fn tags_of(&self, tags: &[Box<str>]) -> Box<[u64]> {
        tags.iter().map(|tag| self.tag(tag)).collect()
    }

    /// The hash of a tag.
    pub(super) fn tag(&self, tag: &str) -> u64 {
        self.hasher.hash_one(tag)
    }

    /// Returns a number that no file has, as far as can be told.
    pub(super) fn new_id(&self) -> u64 {
        self.hasher.hash_one(self.next_id.fetch_add(1, Relaxed))
    }

    pub(super) fn count_skipped(&self) {
        self.skipped.fetch_add(1, Relaxed);
    }

    pub(super) fn count_loaded(&self) {
        self.loaded.fetch_add(1, Relaxed);
    }

    pub(super) fn count_damaged(&self) {
        self.damaged.fetch_add(1, Relaxed);
    }

    pub(super) fn is_paused(&self) -> bool {
        lock(&self.paused_until).is_some_and(|end| Instant::now() < end)
    }

    /// Reports the first failure, and pauses.
    pub(super) fn report_failure(&self, action: &str, error: &io::Error) {
        let former = lock(&self.paused_until).replace(Instant::now() + PAUSE);
        if former.is_none() {
            let folder = self.folder.path().display();
            self.settings.report(&format!(
                "{action} in {folder}: {error}; responses that leave the memory are not kept until it \
                 succeeds"
            ));
        }
    }

    pub(super) fn report_success(&self) {
        *lock(&self.paused_until) = None;
    }

    pub(super) fn index(&self) -> MutexGuard<'_, FileIndex> {
        lock(&self.index)
    }
}

/// The time in nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a content: in memory if it is small and there is room, otherwise as a part of its file.
fn content_of(file: fs::File, start: u64, length: u64, memory: &ContentMemory) -> io::Result<File> {
    if length > MAX_RETURNING || !memory.has_room(length as usize) {
        return Ok(File::new(file, start, length));
    }
    let mut content = vec![0; length as usize];
    read_exact_at(&file, &mut content, start)?;
    Ok(memory.file(memory.hold(content)))
}

impl std::fmt::Debug for DiskShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskShared").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
