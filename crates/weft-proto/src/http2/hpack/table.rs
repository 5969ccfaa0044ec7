//! The static and the dynamic table (RFC 7541 §2.3).

use std::collections::VecDeque;

use crate::http2::hpack::field_class::{FieldClass, Name};

/// Initial SETTINGS_HEADER_TABLE_SIZE (RFC 9113 §6.5.2), and the maximum that this implementation
/// uses in both directions.
pub(super) const MAX_TABLE_BYTES: usize = 4_096;

/// Size of an entry in addition to its name and value (§4.1).
pub(super) const ENTRY_OVERHEAD: usize = 32;

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

/// An entry of the dynamic table.
#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    name_length: usize,
    class: FieldClass,
}

/// The dynamic table of the decoder, which the peer's encoder controls.
#[derive(Debug)]
pub(super) struct Table {
    /// Newest entry first.
    entries: VecDeque<Entry>,
    size: usize,
    max_size: usize,
}

impl Table {
    pub(super) fn new() -> Table {
        Table { entries: VecDeque::new(), size: 0, max_size: MAX_TABLE_BYTES }
    }

    /// Returns the entry at an index: name, value and class.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8], FieldClass)> {
        let at = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(at) {
            let class = FieldClass { name: STATIC_NAMES[at], is_valid_value: true };
            return Some((name.as_bytes(), value.as_bytes(), class));
        }
        let Entry { text, name_length, class } = self.entries.get(at - STATIC.len())?;
        let (name, value) = text.split_at(*name_length);
        Some((name, value, *class))
    }

    /// Inserts an entry. One that is larger than the table empties it (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, text: &[u8], name_length: usize, class: FieldClass) {
        let size = text.len() + ENTRY_OVERHEAD;
        self.evict(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.size += size;
            self.entries.push_front(Entry { text: text.into(), name_length, class });
        }
    }

    /// Changes the maximum size and evicts entries that exceed it (RFC 7541 §4.3).
    pub(super) fn resize(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict(max_size);
    }

    /// Evicts the oldest entries until the size is at most `max`.
    fn evict(&mut self, max: usize) {
        while self.size > max
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.text.len() + ENTRY_OVERHEAD;
        }
    }

    #[cfg(test)]
    pub(super) fn show(&self) -> (Vec<String>, usize) {
        let show = |entry: &Entry| {
            let (name, value) = entry.text.split_at(entry.name_length);
            format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        (self.entries.iter().map(show).collect(), self.size)
    }
}
