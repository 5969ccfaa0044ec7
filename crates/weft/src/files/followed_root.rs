//! The root directory by its path, which is followed again: a deployment may switch a symbolic link
//! (`current -> releases/2`) or rename directories.
//!
//! All workers share the root, and it is opened again when a lookup needs it and the last time was
//! [`revalidate_after`](crate::files::DirectorySettings::revalidate_after) ago. A root with another
//! device or inode is a new generation, and targets that were cached under a former one are looked
//! up again. If the path leads to no directory, the last one stays in use: some tools replace a
//! link by removing it first.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::deadline::Stopwatch;
use crate::files::root::{MayBlock, Root, RootId};
use crate::files::settings::Symlinks;

#[derive(Debug)]
pub(super) struct FollowedRoot {
    /// `None` for embedded files.
    path: Option<RootPath>,
    /// Locked for a copy only, never while a path is opened.
    state: Mutex<State>,
}

#[derive(Debug)]
struct RootPath {
    path: PathBuf,
    symlinks: Symlinks,
}

#[derive(Debug)]
struct State {
    root: Arc<Root>,
    id: Option<RootId>,
    generation: RootGeneration,
}

/// A root directory of a sequence, and the time at which its path led to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootGeneration {
    number: u64,
    /// `None` for a root that never changes.
    checked: Option<Stopwatch>,
}

impl RootGeneration {
    /// Number of the generation.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns true if the path was followed less than `max_age` before `now`.
    pub(super) fn is_fresh(&self, now: Stopwatch, max_age: Duration) -> bool {
        self.checked.is_none_or(|checked| now.since(checked) < max_age)
    }

    /// Returns true if the path was followed for this generation later than for `other`.
    pub(super) fn is_newer_than(&self, other: &RootGeneration) -> bool {
        self.checked > other.checked
    }
}

impl FollowedRoot {
    /// Opens the directory at this path.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn open(path: &Path, symlinks: Symlinks) -> io::Result<FollowedRoot> {
        let checked = Some(Stopwatch::start());
        let root = Root::open(path, symlinks, MayBlock::Yes)?;
        // Independent of a later change of the working directory.
        let path = std::path::absolute(path)?;
        let path = Some(RootPath { path, symlinks });
        Ok(FollowedRoot::new(path, root, RootGeneration { number: 0, checked }))
    }

    /// Returns the root of embedded files.
    pub(super) fn constant(root: Root) -> FollowedRoot {
        FollowedRoot::new(None, root, RootGeneration { number: 0, checked: None })
    }

    fn new(path: Option<RootPath>, root: Root, generation: RootGeneration) -> FollowedRoot {
        let state = State { id: root.id(), root: Arc::new(root), generation };
        FollowedRoot { path, state: Mutex::new(state) }
    }

    /// Path of the directory.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_ref().map(|path| &*path.path)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the directory as it was opened last.
    pub(super) fn latest(&self) -> (Arc<Root>, RootGeneration) {
        let state = self.state();
        (state.root.clone(), state.generation)
    }

    /// Returns the directory to which the path has led within `max_age`.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if it would wait and must not.
    pub(super) fn current(
        &self,
        max_age: Duration,
        may_block: MayBlock,
    ) -> io::Result<(Arc<Root>, RootGeneration)> {
        let (latest, now) = (self.latest(), Stopwatch::start());
        let Some(RootPath { path, symlinks }) = &self.path else { return Ok(latest) };
        if latest.1.is_fresh(now, max_age) {
            return Ok(latest);
        }
        match Root::open(path, *symlinks, may_block) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            opened => Ok(self.store(opened.ok(), now)),
        }
    }

    /// Stores the directory to which the path led at `checked`; `None` if it led to none. A result
    /// that another thread has obtained later stays.
    fn store(&self, opened: Option<Root>, checked: Stopwatch) -> (Arc<Root>, RootGeneration) {
        let mut state = self.state();
        if state.generation.checked < Some(checked) {
            state.generation.checked = Some(checked);
            if let Some(root) = opened
                && root.id() != state.id
            {
                state.generation.number += 1;
                (state.id, state.root) = (root.id(), Arc::new(root));
            }
        }
        (state.root.clone(), state.generation)
    }
}
