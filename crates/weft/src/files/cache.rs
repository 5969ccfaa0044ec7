//! What a worker knows of its files: descriptors, small contents, prepared fields.
//!
//! An entry is believed for a while (a second by default); then the file is looked up again,
//! and if it is the same version all that was made of it stays. A bare `stat` would not do for
//! that: it follows a path out of the root, and cannot be told not to wait. What nobody asks
//! for is let go of after another while (ten seconds), and what is full is emptied of that
//! first. So `open`, `stat` and `read` do not occur per request, and nothing is held for long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::clock::deadline::Stopwatch;
use crate::files::resource::Resource;
use crate::files::settings::DirectorySettings;
use crate::files::site::Found;

/// The entries, by the keys of their places. Only one worker uses them, so that nobody ever
/// waits for the lock; a task that outlives nothing prunes them.
#[derive(Debug)]
pub(super) struct Files(Arc<Mutex<Shelf>>);

#[derive(Debug)]
struct Shelf {
    /// Hashed quickly, once for each request. Who finds paths that collide gains little: no more
    /// are kept than the limits say.
    entries: HashMap<Box<[u8]>, Entry, foldhash::quality::RandomState>,
    limits: Limits,
    /// What the entries hold in all.
    bytes: usize,
    descriptors: usize,
    /// Entries that hold nothing: most tell that there is nothing.
    empty: usize,
    pruned: Stopwatch,
    /// Whether the task that prunes is there.
    tended: bool,
}

#[derive(Debug)]
struct Limits {
    bytes: usize,
    descriptors: usize,
    entries: usize,
    trust: Duration,
    unused: Duration,
}

#[derive(Debug)]
struct Entry {
    found: Found,
    bytes: usize,
    descriptors: usize,
    checked: Stopwatch,
    used: Stopwatch,
}

/// The longest path that is kept for having nothing: anybody can ask for such.
const MAX_EMPTY_KEY_BYTES: usize = 256;

impl Files {
    pub(super) fn new(settings: &DirectorySettings) -> Files {
        let limits = Limits {
            bytes: settings.max_kept_bytes,
            descriptors: settings.max_kept_descriptors,
            entries: settings.max_kept_entries,
            trust: settings.trust,
            unused: settings.unused,
        };
        Files(Arc::new(Mutex::new(Shelf {
            entries: HashMap::default(),
            limits,
            bytes: 0,
            descriptors: 0,
            empty: 0,
            pruned: Stopwatch::start(),
            tended: false,
        })))
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        lock(&self.0)
    }

    /// What is known of a place, and whether it may be believed without another look.
    pub(super) fn get(&self, key: &[u8]) -> Option<(Found, bool)> {
        self.with(key, |found, is_fresh| (found.clone(), is_fresh))
    }

    /// The same, for who only looks at it.
    pub(super) fn with<T>(&self, key: &[u8], look: impl FnOnce(&Found, bool) -> T) -> Option<T> {
        let mut shelf = self.shelf();
        let trust = shelf.limits.trust;
        let entry = shelf.entries.get_mut(key)?;
        entry.used = Stopwatch::start();
        Some(look(&entry.found, entry.used.since(entry.checked) < trust))
    }

    /// Keeps what was found at a place just now, if there is room.
    pub(super) fn keep(&self, key: &[u8], found: Found) {
        let mut shelf = self.shelf();
        shelf.keep(key, found);
        // Without an event loop nobody can come later, and nothing is held for long.
        if !shelf.tended && !shelf.entries.is_empty() {
            shelf.tended = tokio::runtime::Handle::try_current()
                .map(|runtime| runtime.spawn(tend(Arc::downgrade(&self.0), shelf.limits.period())))
                .is_ok();
        }
    }

    /// Whether there are descriptors to spare.
    pub(super) fn has_descriptors(&self) -> bool {
        let shelf = self.shelf();
        shelf.descriptors < shelf.limits.descriptors / 2
    }

    /// Forgets what was known of a place.
    pub(super) fn forget(&self, key: &[u8]) {
        self.shelf().remove(key);
    }

    /// Closes all that can be opened again: the process has no descriptors left.
    pub(super) fn close(&self) {
        self.shelf().retain(|entry| entry.descriptors == 0);
    }

    /// Makes room for more bytes of a resource; false if there is none, or if it is not kept.
    pub(super) fn grow(&self, key: &[u8], resource: &Arc<Resource>, bytes: usize) -> bool {
        let mut shelf = self.shelf();
        if shelf.bytes + bytes > shelf.limits.bytes {
            return false;
        }
        let Some(entry) = shelf.entries.get_mut(key) else { return false };
        if !matches!(&entry.found, Found::File(kept) if Arc::ptr_eq(kept, resource)) {
            return false;
        }
        entry.bytes += bytes;
        shelf.bytes += bytes;
        true
    }
}

/// Lets go of what nobody asks for, until nothing is left.
async fn tend(shelf: Weak<Mutex<Shelf>>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let Some(shelf) = shelf.upgrade() else { return };
        let mut shelf = lock(&shelf);
        let unused = shelf.limits.unused;
        shelf.prune(unused, |_| true);
        if shelf.entries.is_empty() {
            shelf.tended = false;
            return;
        }
    }
}

fn lock(shelf: &Mutex<Shelf>) -> MutexGuard<'_, Shelf> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Limits {
    /// How often it is worth while to look for what is unused.
    fn period(&self) -> Duration {
        (self.unused / 8).max(Duration::from_millis(10))
    }
}

impl Shelf {
    fn keep(&mut self, key: &[u8], found: Found) {
        let now = Stopwatch::start();
        // What was compressed of a resource that stays is still counted.
        let grown = match (self.entries.get(key), &found) {
            (Some(Entry { found: Found::File(kept), bytes, .. }), Found::File(found))
                if Arc::ptr_eq(kept, found) =>
            {
                *bytes
            }
            _ => 0,
        };
        self.remove(key);
        let (bytes, descriptors) = match &found {
            Found::File(resource) => (resource.bytes().max(grown), resource.descriptors()),
            _ => (0, 0),
        };
        let entry = Entry { found, bytes, descriptors, checked: now, used: now };
        if entry.is_empty() && key.len() > MAX_EMPTY_KEY_BYTES {
            return;
        }
        if !self.has_room_for(&entry) && now.since(self.pruned) >= self.limits.trust {
            // What is not there makes no room for itself among what is.
            let (trust, empty) = (self.limits.trust, entry.is_empty());
            self.prune(trust, |other| other.is_empty() || !empty);
        }
        if self.has_room_for(&entry) {
            self.bytes += entry.bytes;
            self.descriptors += entry.descriptors;
            self.empty += usize::from(entry.is_empty());
            self.entries.insert(key.into(), entry);
        }
    }

    fn has_room_for(&self, entry: &Entry) -> bool {
        let limits = &self.limits;
        match entry.is_empty() {
            true => self.empty < limits.entries / 4,
            false => {
                self.entries.len() - self.empty < limits.entries
                    && self.bytes + entry.bytes <= limits.bytes
                    && self.descriptors + entry.descriptors <= limits.descriptors
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
            self.descriptors -= entry.descriptors;
            self.empty -= usize::from(entry.is_empty());
        }
    }

    /// Lets go of what was not asked for in this time, if it may go.
    fn prune(&mut self, unused: Duration, may_go: impl Fn(&Entry) -> bool) {
        self.pruned = Stopwatch::start();
        let now = self.pruned;
        self.retain(|entry| now.since(entry.used) < unused || !may_go(entry));
    }

    fn retain(&mut self, stays: impl Fn(&Entry) -> bool) {
        self.entries.retain(|_, entry| stays(entry));
        let entries = self.entries.values();
        self.bytes = entries.clone().map(|entry| entry.bytes).sum();
        self.descriptors = entries.clone().map(|entry| entry.descriptors).sum();
        self.empty = entries.filter(|entry| entry.is_empty()).count();
        if self.entries.is_empty() {
            self.entries.shrink_to_fit();
        }
    }
}

impl Entry {
    fn is_empty(&self) -> bool {
        !matches!(self.found, Found::File(_))
    }
}
