//! A worker's small files in memory: contents and prepared fields, trusted for a second.
//!
//! An entry is looked at again when its time of trust is over: the file is opened anew, and
//! if it is the same version the contents stay. So `open`, `stat` and `read` do not occur per
//! request, no descriptor is held, and a file that changed is fresh after a second. What is
//! full is emptied of what was not asked for lately.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::deadline::Stopwatch;
use crate::response::File;

/// How long contents are believed without a look at the file.
const TRUST: Duration = Duration::from_secs(1);

/// How long an entry that nobody asks for may stay when room is needed.
const USE: Duration = Duration::from_secs(10);

/// The largest file that is kept, and the most bytes and entries in all.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 10;
const MAX_BYTES: usize = 32 << 20;
const MAX_ENTRIES: usize = 4_096;

/// Small files by the path that they were asked for by.
#[derive(Debug, Default)]
pub(crate) struct Files(RefCell<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    entries: HashMap<Box<str>, Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    kept: Kept,
    checked: Stopwatch,
    used: Stopwatch,
}

/// A file in memory, and the fields of a response with it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) file: File,
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
}

impl Files {
    /// What is kept for a path and may be believed.
    pub(crate) fn get(&self, path: &str) -> Option<Kept> {
        let mut shelf = self.0.borrow_mut();
        let entry = shelf.entries.get_mut(path)?;
        let now = Stopwatch::start();
        if now.since(entry.checked) >= TRUST {
            return None;
        }
        entry.used = now;
        Some(entry.kept.clone())
    }

    /// What is kept for a path, if it is of the version of this file; it is believed anew.
    pub(crate) fn confirm(&self, path: &str, file: &File) -> Option<Kept> {
        let mut shelf = self.0.borrow_mut();
        let entry = shelf.entries.get_mut(path)?;
        if entry.kept.file.version != file.version {
            return None;
        }
        entry.checked = Stopwatch::start();
        entry.used = entry.checked;
        Some(entry.kept.clone())
    }

    /// Keeps a small file, in place of any other of that path.
    pub(crate) fn keep(&self, path: &str, kept: Kept) {
        let mut shelf = self.0.borrow_mut();
        let now = Stopwatch::start();
        shelf.remove(path);
        if !shelf.has_room_for(&kept) {
            shelf.retain(|entry| now.since(entry.used) < USE);
        }
        if shelf.has_room_for(&kept) {
            shelf.bytes += kept.file.length as usize;
            shelf.entries.insert(path.into(), Entry { kept, checked: now, used: now });
        }
    }

    /// Forgets a path at which there is no small file any more.
    pub(crate) fn forget(&self, path: &str) {
        self.0.borrow_mut().remove(path);
    }
}

impl Shelf {
    fn has_room_for(&self, kept: &Kept) -> bool {
        self.entries.len() < MAX_ENTRIES && self.bytes + kept.file.length as usize <= MAX_BYTES
    }

    fn remove(&mut self, path: &str) {
        if let Some(entry) = self.entries.remove(path) {
            self.bytes -= entry.kept.file.length as usize;
        }
    }

    fn retain(&mut self, stays: impl Fn(&Entry) -> bool) {
        let bytes = &mut self.bytes;
        self.entries.retain(|_, entry| {
            let stays = stays(entry);
            if !stays {
                *bytes -= entry.kept.file.length as usize;
            }
            stays
        });
    }
}
