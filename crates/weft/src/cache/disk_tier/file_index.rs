//! The index of the files: which responses there are, and the order in which they leave.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use smallvec::SmallVec;

use super::indexed_file::{FileState, IndexedFile};
use super::unscanned::Unscanned;
use crate::cache::purge::Purge;
use crate::disk::FileVersion;

/// Maximum number of files of a URL.
pub(super) const MAX_VARIANTS: usize = 16;

/// Limits of the files.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskLimits {
    pub(super) bytes: u64,
    pub(super) index_bytes: usize,
}

/// The files of a folder, the least recently used ones first.
#[derive(Debug)]
pub(super) struct FileIndex {
    limits: DiskLimits,
    by_url: HashMap<Arc<str>, SmallVec<[IndexedFile; 1]>>,
    /// URLs by the last uses of their files, and the numbers of these.
    order: BTreeMap<(u64, u64), Arc<str>>,
    bytes: u64,
    memory: usize,
    evicted: u64,
    last_use: u64,
    opened_at: u64,
    /// Changes that apply to files that were not found yet.
    unscanned: Option<Unscanned>,
}

impl FileIndex {
    /// Creates the index of a folder that was not scanned. Times are in nanoseconds since 1970.
    pub(super) fn new(limits: DiskLimits, now: u64) -> FileIndex {
        FileIndex {
            limits,
            by_url: HashMap::new(),
            order: BTreeMap::new(),
            bytes: 0,
            memory: 0,
            evicted: 0,
            last_use: now,
            opened_at: now,
            unscanned: Some(Unscanned::default()),
        }
    }

    /// Adds a file in place of those of the same variant. Returns the files to remove; `None` if
    /// the file is too large.
    pub(super) fn insert(
        &mut self,
        url: &str,
        mut file: IndexedFile,
        now: u64,
    ) -> Option<Vec<u64>> {
        if file.bytes > self.limits.bytes || file.memory(url) > self.limits.index_bytes {
            return None;
        }
        file.last_use = self.next_use(now);
        let mut removed = self.remove_where(url, |other| other.variant == file.variant);
        self.add(url, file);
        removed.extend(self.enforce_limits(url));
        Some(removed)
    }

    /// Adds a file that a former process has written, last used at `file.last_use`, unless it was
    /// replaced or removed since the start. Returns the files to remove.
    pub(super) fn insert_scanned(&mut self, url: &str, mut file: IndexedFile) -> Vec<u64> {
        // Also if the clock has gone back: files of this process are younger.
        file.last_use = file.last_use.min(self.opened_at);
        let files = self.by_url.get(url).into_iter().flatten();
        let same = files.clone().find(|it| it.id == file.id || it.variant == file.variant);
        let is_known = same.is_some_and(|same| same.id == file.id);
        let is_superseded = same.is_some_and(|same| same.last_use >= file.last_use)
            || self.unscanned.as_ref().is_some_and(|it| it.has_replaced(url, &file));
        if is_known {
            return Vec::new();
        }
        if is_superseded || file.bytes > self.limits.bytes {
            return vec![file.id];
        }
        file.is_expired |= self.unscanned.as_ref().is_some_and(|it| it.has_expired(url, &file));
        let mut removed = self.remove_where(url, |other| other.variant == file.variant);
        self.add(url, file);
        removed.extend(self.enforce_limits(url));
        removed
    }

    /// Ends the time in which files of a former process are found.
    pub(super) fn end_scan(&mut self) {
        self.unscanned = None;
    }

    pub(super) fn is_scanned(&self) -> bool {
        self.unscanned.is_none()
    }

    /// Returns the complete files of a URL, the last used one first.
    pub(super) fn complete_files(&self, url: &str) -> Vec<IndexedFile> {
        let files = self.by_url.get(url).into_iter().flatten();
        let mut files: Vec<_> =
            files.filter(|file| file.state != FileState::Writing).cloned().collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.last_use));
        files
    }

    pub(super) fn has_complete(&self, url: &str) -> bool {
        let mut files = self.by_url.get(url).into_iter().flatten();
        files.any(|file| file.state != FileState::Writing)
    }

    /// Returns a file, unless it was removed.
    pub(super) fn get(&self, url: &str, id: u64) -> Option<&IndexedFile> {
        self.by_url.get(url)?.iter().find(|file| file.id == id)
    }

    /// Records that a file is complete. Returns false if it was removed meanwhile.
    pub(super) fn complete(
        &mut self,
        url: &str,
        id: u64,
        bytes: u64,
        version: FileVersion,
    ) -> bool {
        let Some(file) = self.get_mut(url, id) else { return false };
        file.state = FileState::Complete { verified: Some(version) };
        let former = std::mem::replace(&mut file.bytes, bytes);
        self.bytes = self.bytes - former + bytes;
        true
    }

    /// Hides a file until its head is replaced. Returns false if it was removed, or is being written.
    pub(super) fn begin_update(&mut self, url: &str, id: u64, now: u64) -> bool {
        if self.get(url, id).is_none_or(|file| file.state == FileState::Writing) {
            return false;
        }
        if let Some(file) = self.get_mut(url, id) {
            file.state = FileState::Writing;
            file.is_expired = false;
        }
        self.touch(url, id, now)
    }

    /// Returns true if a response of the variant is being written.
    pub(super) fn is_writing(&self, url: &str, variant: u64) -> bool {
        let mut files = self.by_url.get(url).into_iter().flatten();
        files.any(|file| file.variant == variant && file.state == FileState::Writing)
    }

    /// Records the length of a file that is being written. Returns the files to remove; `None` if
    /// it was removed itself, or is too large.
    pub(super) fn grow(&mut self, url: &str, id: u64, bytes: u64) -> Option<Vec<u64>> {
        let max = self.limits.bytes / 2;
        let file = self.get_mut(url, id)?;
        if bytes > max {
            return None;
        }
        // A length that the head has declared is counted from the start on.
        let former = file.bytes;
        file.bytes = former.max(bytes);
        self.bytes += former.max(bytes) - former;
        let removed = self.enforce_limits(url);
        (!removed.contains(&id)).then_some(removed)
    }

    /// Records the version with which a content was verified.
    pub(super) fn set_verified(&mut self, url: &str, id: u64, version: FileVersion) {
        if let Some(file) = self.get_mut(url, id) {
            file.state = FileState::Complete { verified: Some(version) };
        }
    }

    /// Records a use. Returns false if the file was removed.
    pub(super) fn touch(&mut self, url: &str, id: u64, now: u64) -> bool {
        let last_use = self.next_use(now);
        let Some(file) = self.get_mut(url, id) else { return false };
        let former = std::mem::replace(&mut file.last_use, last_use);
        if let Some(url) = self.order.remove(&(former, id)) {
            self.order.insert((last_use, id), url);
        }
        true
    }

    /// Removes a file. Returns true if it was there.
    pub(super) fn remove(&mut self, url: &str, id: u64) -> bool {
        !self.remove_where(url, |file| file.id == id).is_empty()
    }

    /// Removes the files of a variant of a URL. Returns their numbers.
    pub(super) fn remove_variant(&mut self, url: &str, variant: u64) -> Vec<u64> {
        if let Some(unscanned) = &mut self.unscanned {
            unscanned.replace(url, variant);
        }
        self.remove_where(url, |file| file.variant == variant)
    }

    /// Removes files, or marks them as expired. Returns their numbers. `tag` is the hash of the tag.
    pub(super) fn purge(&mut self, purge: &Purge, tag: Option<u64>, is_soft: bool) -> Vec<u64> {
        if let Some(unscanned) = &mut self.unscanned {
            unscanned.purge(purge, tag, is_soft);
        }
        let has_tag = |file: &IndexedFile| tag.is_none_or(|tag| file.tags.contains(&tag));
        let urls: Vec<Arc<str>> = match purge {
            Purge::Url(url) => {
                self.by_url.get_key_value(&**url).map(|it| it.0.clone()).into_iter().collect()
            }
            _ => self.by_url.keys().filter(|url| purge.concerns(url)).cloned().collect(),
        };
        let mut purged = Vec::new();
        for url in urls {
            if !is_soft {
                purged.extend(self.remove_where(&url, has_tag));
                continue;
            }
            for file in self.by_url.get_mut(&*url).into_iter().flatten().filter(|it| has_tag(it)) {
                file.is_expired = true;
                purged.push(file.id);
            }
        }
        purged
    }

    /// Returns the URL, the length and the last use of each complete file.
    pub(super) fn list(&self) -> Vec<(Arc<str>, u64, u64)> {
        let mut list = Vec::with_capacity(self.order.len());
        for (url, files) in &self.by_url {
            let complete = files.iter().filter(|file| file.state != FileState::Writing);
            list.extend(complete.map(|file| (url.clone(), file.bytes, file.last_use)));
        }
        list
    }

    /// Bytes and number of all files, the memory of the index, and the number of evicted files.
    pub(super) fn totals(&self) -> (u64, usize, usize, u64) {
        (self.bytes, self.order.len(), self.memory, self.evicted)
    }

    fn add(&mut self, url: &str, file: IndexedFile) {
        let url: Arc<str> = match self.by_url.get_key_value(url) {
            Some((known, _)) => known.clone(),
            None => url.into(),
        };
        self.bytes += file.bytes;
        self.memory += file.memory(&url);
        self.order.insert((file.last_use, file.id), url.clone());
        self.by_url.entry(url).or_default().push(file);
    }

    /// Removes the files that are too many: of a URL, and in total those not used for the longest
    /// time.
    fn enforce_limits(&mut self, url: &str) -> Vec<u64> {
        let mut removed = Vec::new();
        let files = self.by_url.get(url).filter(|files| files.len() > MAX_VARIANTS);
        if let Some(oldest) = files.and_then(|files| files.iter().min_by_key(|it| it.last_use)) {
            let oldest = oldest.id;
            removed.extend(self.remove_where(url, |file| file.id == oldest));
        }
        while self.bytes > self.limits.bytes || self.memory > self.limits.index_bytes {
            let Some(((_, id), url)) = self.order.first_key_value() else { break };
            let (id, url) = (*id, url.clone());
            removed.extend(self.remove_where(&url, |file| file.id == id));
        }
        self.evicted += removed.len() as u64;
        removed
    }

    fn remove_where(&mut self, url: &str, is_removed: impl Fn(&IndexedFile) -> bool) -> Vec<u64> {
        let Some(files) = self.by_url.get_mut(url) else { return Vec::new() };
        let mut removed = Vec::new();
        files.retain(|file| {
            if !is_removed(file) {
                return true;
            }
            removed.push(file.id);
            self.order.remove(&(file.last_use, file.id));
            self.bytes -= file.bytes;
            self.memory -= file.memory(url);
            false
        });
        if files.is_empty() {
            self.by_url.remove(url);
        }
        removed
    }

    fn get_mut(&mut self, url: &str, id: u64) -> Option<&mut IndexedFile> {
        self.by_url.get_mut(url)?.iter_mut().find(|file| file.id == id)
    }

    /// Returns a time of use after all former ones.
    fn next_use(&mut self, now: u64) -> u64 {
        self.last_use = now.max(self.last_use + 1);
        self.last_use
    }
}
