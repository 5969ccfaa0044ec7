//! Compressed copies of a content that is sent again and again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Maximum number of copies of a content, by coding and level.
const MAX_COPIES: usize = 8;

/// A coding, and its level.
pub(crate) type CopyKey = (&'static str, u32);

/// Copies that live as long as their content.
pub(crate) struct CodedCopies {
    copies: Mutex<Vec<(CopyKey, CodedCopy)>>,
    hold: Box<Hold>,
}

/// Takes a copy into memory, if there is room.
type Hold = dyn Fn(Vec<u8>) -> Option<Bytes> + Send + Sync;

/// A copy of a content.
#[derive(Clone, Debug)]
pub(crate) enum CodedCopy {
    /// Being made for a response that is sent.
    InProgress,
    /// Compression does not make the content smaller.
    NotSmaller,
    Complete(Bytes),
}

impl CodedCopies {
    #[cfg(feature = "cache")]
    pub(crate) fn new(
        hold: impl Fn(Vec<u8>) -> Option<Bytes> + Send + Sync + 'static,
    ) -> Arc<CodedCopies> {
        Arc::new(CodedCopies { copies: Mutex::default(), hold: Box::new(hold) })
    }

    pub(crate) fn get(&self, key: CopyKey) -> Option<CodedCopy> {
        self.lock().iter().find(|(other, _)| *other == key).map(|(_, copy)| copy.clone())
    }

    /// Begins a copy; `None` if there is one, or too many others. It is given up when it has more
    /// than `max_bytes`: the length of the content.
    pub(crate) fn begin(self: &Arc<Self>, key: CopyKey, max_bytes: usize) -> Option<NewCopy> {
        let mut copies = self.lock();
        let is_known = copies.iter().any(|(other, _)| *other == key);
        if is_known || copies.len() >= MAX_COPIES {
            return None;
        }
        copies.push((key, CodedCopy::InProgress));
        Some(NewCopy { copies: self.clone(), key, bytes: Vec::new(), max_bytes })
    }

    fn set(&self, key: CopyKey, copy: Option<CodedCopy>) {
        let mut copies = self.lock();
        copies.retain(|(other, _)| *other != key);
        copies.extend(copy.map(|copy| (key, copy)));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(CopyKey, CodedCopy)>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CodedCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodedCopies").finish_non_exhaustive()
    }
}

/// A copy that is being made. Without [`finish`](NewCopy::finish) it is given up.
#[derive(Debug)]
pub(crate) struct NewCopy {
    copies: Arc<CodedCopies>,
    key: CopyKey,
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl NewCopy {
    /// Appends a part of the compressed content.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        if self.bytes.len() < self.max_bytes {
            self.bytes.extend_from_slice(piece);
        }
    }

    /// Ends the copy.
    pub(crate) fn finish(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let copy = match bytes.len() < self.max_bytes {
            true => (self.copies.hold)(bytes).map(CodedCopy::Complete),
            false => Some(CodedCopy::NotSmaller),
        };
        self.copies.set(self.key, copy);
    }
}

impl Drop for NewCopy {
    fn drop(&mut self) {
        if let Some(CodedCopy::InProgress) = self.copies.get(self.key) {
            self.copies.set(self.key, None);
        }
    }
}
