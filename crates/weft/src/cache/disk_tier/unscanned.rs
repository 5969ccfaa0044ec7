//! Changes that apply to files of a former process that were not found yet.

use std::collections::HashSet;
use std::hash::BuildHasher;

use super::indexed_file::IndexedFile;
use crate::cache::purge::Purge;

/// Maximum number of purges that are remembered.
const MAX_PURGES: usize = 1_000;

/// Maximum number of replaced responses that are remembered.
const MAX_REPLACED: usize = 500_000;

/// Purges and replacements since the start. If there are too many, all files that were not found
/// yet count as removed.
#[derive(Debug, Default)]
pub(super) struct Unscanned {
    hasher: foldhash::quality::RandomState,
    /// Purges with the hash of their tag. The last value is true for a soft one.
    purges: Vec<(Purge, Option<u64>, bool)>,
    /// Hashes of URLs and variants.
    replaced: HashSet<u64>,
    /// Hashes of URLs whose responses were all removed.
    removed: HashSet<u64>,
    is_full: bool,
}

impl Unscanned {
    /// Records the replacement of a variant of a URL.
    pub(super) fn replace(&mut self, url: &str, variant: u64) {
        self.replaced.insert(self.hasher.hash_one((url, variant)));
        self.bound();
    }

    /// Records a purge.
    pub(super) fn purge(&mut self, purge: &Purge, tag: Option<u64>, is_soft: bool) {
        match purge {
            Purge::Url(url) if !is_soft => {
                self.removed.insert(self.hasher.hash_one(url.as_str()));
            }
            _ => self.purges.push((purge.clone(), tag, is_soft)),
        }
        self.bound();
    }

    /// Returns true if the response in a file was removed or replaced.
    pub(super) fn has_replaced(&self, url: &str, file: &IndexedFile) -> bool {
        self.is_full
            || self.removed.contains(&self.hasher.hash_one(url))
            || self.replaced.contains(&self.hasher.hash_one((url, file.variant)))
            || self.is_purged(url, file, false)
    }

    /// Returns true if the response in a file was made stale.
    pub(super) fn has_expired(&self, url: &str, file: &IndexedFile) -> bool {
        self.is_purged(url, file, true)
    }

    fn is_purged(&self, url: &str, file: &IndexedFile, by_soft: bool) -> bool {
        self.purges.iter().any(|(purge, tag, is_soft)| {
            *is_soft == by_soft
                && purge.concerns(url)
                && tag.is_none_or(|tag| file.tags.contains(&tag))
        })
    }

    fn bound(&mut self) {
        let is_full = self.purges.len() > MAX_PURGES
            || self.replaced.len() + self.removed.len() > MAX_REPLACED;
        if is_full {
            (self.purges, self.replaced, self.removed) = Default::default();
            self.is_full = true;
        }
    }
}
