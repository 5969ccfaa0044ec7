//! The static and the dynamic table (RFC 7541 §2.3).

use std::collections::VecDeque;

use crate::field_coding::field_class::{FieldClass, Name};

/// Initial SETTINGS_HEADER_TABLE_SIZE (RFC 9113 §6.5.2), and the maximum that this implementation
/// uses in both directions.
pub(super) const MAX_TABLE_BYTES: usize = 4_096;

/// Size of an entry in addition to its name and value (§4.1).
const ENTRY_OVERHEAD: usize = 32;

/// The static table (RFC 7541 appendix A). The first entry has index 1.
#[rustfmt::skip]
pub(super) static STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Classes of the names in the static table. Its values are all valid.
static STATIC_NAMES: [Name; STATIC.len()] = {
    let mut names = [Name::Other; STATIC.len()];
    let mut at = 0;
    while at < STATIC.len() {
        names[at] = Name::of(STATIC[at].0.as_bytes());
        at += 1;
    }
    names
};

/// An entry of a dynamic table: a field, and data of the side that keeps the table.
#[derive(Debug)]
pub(super) struct Entry<T> {
    text: Box<[u8]>,
    name_length: usize,
    pub(super) data: T,
}

impl<T> Entry<T> {
    /// Returns name and value.
    pub(super) fn field(&self) -> (&[u8], &[u8]) {
        self.text.split_at(self.name_length)
    }

    /// Returns the size of the entry (§4.1).
    fn size(&self) -> usize {
        self.text.len() + ENTRY_OVERHEAD
    }
}

/// The dynamic table (§2.3.2). The peer's encoder controls the table of a decoder, and an encoder
/// keeps a copy of its peer's table. Both must evict the same entries.
#[derive(Debug)]
pub(super) struct DynamicTable<T> {
    /// Newest entry first.
    entries: VecDeque<Entry<T>>,
    size: usize,
    max_size: usize,
}

impl<T> DynamicTable<T> {
    pub(super) fn new() -> DynamicTable<T> {
        DynamicTable { entries: VecDeque::new(), size: 0, max_size: MAX_TABLE_BYTES }
    }

    pub(super) fn max_size(&self) -> usize {
        self.max_size
    }

    /// Returns the index of the newest entry for which `predicate` returns true, in the address
    /// space of both tables (§2.3.3).
    pub(super) fn position(&self, predicate: impl FnMut(&Entry<T>) -> bool) -> Option<usize> {
        self.entries.iter().position(predicate).map(|at| STATIC.len() + 1 + at)
    }

    /// Inserts an entry. An entry that is larger than the table empties it (§4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], data: T) {
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        self.evict(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.size += size;
            let (text, name_length) = ([name, value].concat().into(), name.len());
            self.entries.push_front(Entry { text, name_length, data });
        }
    }

    /// Changes the maximum size and evicts entries that exceed it (§4.3).
    pub(super) fn resize(&mut self, max_size: usize) {
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
    pub(super) fn show(&self) -> (Vec<String>, usize) {
        let show = |entry: &Entry<T>| {
            let (name, value) = entry.field();
            format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        (self.entries.iter().map(show).collect(), self.size)
    }
}

impl DynamicTable<FieldClass> {
    /// Returns the entry at an index of both tables (§2.3.3): name, value and class.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8], FieldClass)> {
        let at = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(at) {
            let class = FieldClass { name: STATIC_NAMES[at], is_valid_value: true };
            return Some((name.as_bytes(), value.as_bytes(), class));
        }
        let entry = self.entries.get(at - STATIC.len())?;
        let (name, value) = entry.field();
        Some((name, value, entry.data))
    }
}
