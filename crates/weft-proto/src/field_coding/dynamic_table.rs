//! The dynamic table of HPACK (RFC 7541 §2.3.2) and QPACK (RFC 9204 §3.2).

use std::collections::VecDeque;

/// Size of an entry in addition to its name and value (RFC 7541 §4.1, RFC 9204 §3.2.1).
pub(crate) const ENTRY_OVERHEAD: usize = 32;

/// Returns the size of an entry whose name and value have this length together.
pub(crate) fn entry_size(text_length: usize) -> usize {
    text_length + ENTRY_OVERHEAD
}

/// An entry of a dynamic table: a field, and data of the side that keeps the table.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    text: Box<[u8]>,
    name_length: usize,
    pub(crate) data: T,
}

impl<T> Entry<T> {
    /// Returns name and value.
    pub(crate) fn field(&self) -> (&[u8], &[u8]) {
        self.text.split_at(self.name_length)
    }

    /// Returns the size of the entry.
    pub(crate) fn size(&self) -> usize {
        entry_size(self.text.len())
    }
}

/// The dynamic table. The peer's encoder controls the table of a decoder, and an encoder
/// keeps a copy of its peer's table. Both must evict the same entries.
#[derive(Debug)]
pub(crate) struct DynamicTable<T> {
    /// Newest entry first.
    entries: VecDeque<Entry<T>>,
    size: usize,
    max_size: usize,
}

impl<T> DynamicTable<T> {
    /// Creates an empty table of at most this size.
    pub(crate) fn new(max_size: usize) -> DynamicTable<T> {
        DynamicTable { entries: VecDeque::new(), size: 0, max_size }
    }

    /// Returns the current maximum size.
    pub(crate) fn max_size(&self) -> usize {
        self.max_size
    }

    /// Returns the position of the newest entry for which `predicate` returns true. The newest
    /// entry has position 0.
    pub(crate) fn position(&self, predicate: impl FnMut(&Entry<T>) -> bool) -> Option<usize> {
        self.entries.iter().position(predicate)
    }

    /// Returns the entry at a position.
    pub(crate) fn get(&self, position: usize) -> Option<&Entry<T>> {
        self.entries.get(position)
    }

    /// Inserts an entry. An entry that is larger than the table empties it
    /// (RFC 7541 §4.4).
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8], data: T) {
        let size = entry_size(name.len() + value.len());
        self.evict(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.size += size;
            let (text, name_length) = ([name, value].concat().into(), name.len());
            self.entries.push_front(Entry { text, name_length, data });
        }
    }

    /// Changes the maximum size and evicts entries that exceed it.
    pub(crate) fn resize(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict(max_size);
    }

    /// Evicts the oldest entries until the size is at most `max`.
    fn evict(&mut self, max: usize) {
        while self.size > max
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size();
        }
    }

    #[cfg(test)]
    pub(crate) fn show(&self) -> (Vec<String>, usize) {
        let show = |entry: &Entry<T>| {
            let (name, value) = entry.field();
            format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        (self.entries.iter().map(show).collect(), self.size)
    }
}
