//! The thread that changes the folder: it finds the files of a former process, and writes and
//! removes files.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::disk_shared::DiskShared;
use super::file_format::{encode_head, is_damage, read_head};
use super::folder::FileName;
use super::indexed_file::{FileState, IndexedFile};
use super::write_queue::{Work, Write};
use crate::sys::fstat;

/// Times between two attempts to take the folder, which another process has: the first one, and
/// the maximum.
const LOCK_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Number of files that are found before waiting work is done.
const SCAN_STEP: usize = 64;

/// Does the work of a folder until the queue is closed.
pub(super) fn run(shared: &Arc<DiskShared>) {
    let Some(lock) = wait_for_lock(shared) else { return };
    shared.queue.open();
    scan(shared);
    shared.index().end_scan();
    while let Some(work) = shared.queue.next() {
        perform(shared, work);
    }
    drop(lock);
}

/// Takes the folder. During an upgrade and a reload, the former owner still uses it for a while.
fn wait_for_lock(shared: &DiskShared) -> Option<fs::File> {
    let (mut interval, max_interval) = LOCK_INTERVALS;
    loop {
        match shared.folder.try_lock() {
            Ok(Some(lock)) => return Some(lock),
            Ok(None) => {}
            Err(error) => shared.report_failure("cannot lock the folder", &error),
        }
        if shared.queue.is_closed_within(interval) {
            return None;
        }
        interval = (2 * interval).min(max_interval);
    }
}

/// Adds the files of a former process to the index. Damaged ones are removed.
fn scan(shared: &DiskShared) {
    let entries = match fs::read_dir(shared.folder.path()) {
        Ok(entries) => entries,
        Err(error) => return shared.report_failure("cannot read the folder", &error),
    };
    for (number, entry) in entries.flatten().enumerate() {
        match FileName::parse(&entry.file_name()) {
            FileName::Complete(id) => find(shared, id),
            FileName::Temporary => _ = fs::remove_file(entry.path()),
            FileName::Other => {}
        }
        if number % SCAN_STEP == 0 {
            while let Some(work) = shared.queue.try_next() {
                perform(shared, work);
            }
            if shared.queue.is_closed_within(Duration::ZERO) {
                return;
            }
        }
    }
}

fn find(shared: &DiskShared, id: u64) {
    let found = (|| {
        let file = shared.folder.open_file(id)?;
        let stat = fstat(&file)?;
        Ok::<_, io::Error>((read_head(&file, stat.length)?, stat))
    })();
    let (file, stat) = match found {
        Ok(found) => found,
        Err(error) if is_damage(&error) => {
            shared.count_damaged();
            return shared.folder.remove(id);
        }
        Err(_) => return,
    };
    let modified = stat.modified;
    let (seconds, nanoseconds) = (modified.0.max(0) as u64, modified.1.max(0) as u64);
    let indexed = IndexedFile {
        id,
        variant: shared.variant(&file.head),
        tags: shared.tags_of(&file.head.tags()),
        bytes: stat.length,
        is_expired: file.is_expired,
        last_use: seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds),
        state: FileState::Complete { verified: None },
    };
    let url = &file.head.key.url;
    let removed = shared.index().insert_scanned(url, indexed);
    removed.into_iter().for_each(|id| shared.folder.remove(id));
    if !file.is_expired && shared.index().get(url, id).is_some_and(|file| file.is_expired) {
        expire(shared, id);
    }
}

fn perform(shared: &DiskShared, work: Work) {
    match work {
        Work::Remove(id) => shared.folder.remove(id),
        Work::Expire(id) => expire(shared, id),
        Work::Write(write) => write_response(shared, &write),
    }
}

fn expire(shared: &DiskShared, id: u64) {
    // A file that cannot be changed must not be fresh after a restart.
    if shared.folder.expire(id).is_err() {
        shared.folder.remove(id);
    }
}

fn write_response(shared: &DiskShared, write: &Write) {
    let (id, response) = (write.id, &write.response);
    let url = &response.key().url;
    let is_expired = match shared.index().get(url, id) {
        Some(file) => file.is_expired || response.is_expired(),
        None => return,
    };
    let written = match encode_head(response.head()) {
        Some(head) if write.has_content => shared.folder.update(id, &head, is_expired),
        Some(head) => shared.folder.write(id, &head, is_expired, response.content()),
        None => Err(io::ErrorKind::InvalidData.into()),
    };
    match written {
        Ok((bytes, version)) => {
            shared.report_success();
            if !shared.index().complete(url, id, bytes, version) {
                shared.folder.remove(id);
            }
        }
        Err(error) => {
            shared.index().remove(url, id);
            shared.folder.remove(id);
            // A head that is too long for its place, or at all, is no failure of the disk.
            if error.kind() != io::ErrorKind::InvalidData {
                shared.report_failure("cannot write a file", &error);
            }
        }
    }
}
