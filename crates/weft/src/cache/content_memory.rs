//! The memory of contents: stored, arriving, and being sent.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use crate::disk::{CodedCopies, File};

/// Counts the contents of a store as long as they are in memory. A response that has left the store
/// is still there while a slow client receives it.
#[derive(Clone, Debug)]
pub(super) struct ContentMemory {
    held: Arc<AtomicUsize>,
    limit: usize,
    /// Bytes of compressed copies.
    copied: Arc<AtomicUsize>,
    max_copied: usize,
}

/// Content that is counted until its last user drops it.
struct Held {
    content: Vec<u8>,
    held: Arc<AtomicUsize>,
}

impl ContentMemory {
    /// Creates the memory for at most `limit` bytes, and compressed copies of `max_copied` bytes.
    pub(super) fn new(limit: usize, max_copied: usize) -> ContentMemory {
        ContentMemory { held: Arc::default(), limit, copied: Arc::default(), max_copied }
    }

    /// Number of bytes of compressed copies.
    pub(super) fn copied(&self) -> usize {
        self.copied.load(Relaxed)
    }

    /// Makes a file of a content, with room for compressed copies.
    pub(super) fn file(&self, content: Bytes) -> File {
        let (copied, max_copied) = (self.copied.clone(), self.max_copied);
        let copies = CodedCopies::new(move |copy| {
            let has_room = copied.load(Relaxed).saturating_add(copy.len()) <= max_copied;
            has_room.then(|| hold(copy, &copied))
        });
        File::in_memory_of(content).with_copies(copies)
    }

    /// Number of bytes in memory.
    pub(super) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Returns true if there is room for so many bytes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.held().saturating_add(bytes) <= self.limit
    }

    /// Takes content into memory, also beyond the limit.
    pub(super) fn hold(&self, content: Vec<u8>) -> Bytes {
        hold(content, &self.held)
    }
}

fn hold(content: Vec<u8>, held: &Arc<AtomicUsize>) -> Bytes {
    held.fetch_add(content.len(), Relaxed);
    Bytes::from_owner(Held { content, held: held.clone() })
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.held.fetch_sub(self.content.len(), Relaxed);
    }
}
