//! The memory of contents: stored, arriving, and being sent.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

/// Counts the contents of a store as long as they are in memory. A response that has left the store
/// is still there while a slow client receives it.
#[derive(Clone, Debug)]
pub(super) struct ContentMemory {
    held: Arc<AtomicUsize>,
    limit: usize,
}

/// Content that is counted until its last user drops it.
struct Held {
    content: Vec<u8>,
    held: Arc<AtomicUsize>,
}

impl ContentMemory {
    pub(super) fn new(limit: usize) -> ContentMemory {
        ContentMemory { held: Arc::default(), limit }
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
        self.held.fetch_add(content.len(), Relaxed);
        Bytes::from_owner(Held { content, held: self.held.clone() })
    }
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
