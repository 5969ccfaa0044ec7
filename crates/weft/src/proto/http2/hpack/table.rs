//! The tables of fields (RFC 7541 §2.3).

use std::collections::VecDeque;

use crate::proto::http2::hpack::meaning::{Meaning, Name};

/// What each side may take for its table without a word (RFC 9113 §6.5.2), and what both take at
/// most here.
pub(super) const MOST_BYTES: usize = 4_096;

/// What an entry counts beside its text (§4.1).
pub(super) const ENTRY_BYTES: usize = 32;

/// RFC 7541 appendix A; the first has the index 1.
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

/// What the names of the static table mean. Its values are all sound.
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
struct Entry {
    text: Box<[u8]>,
    name_length: usize,
    meaning: Meaning,
}

/// The table that the peer makes.
pub(super) struct Table {
    /// The newest is the first.
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
}

impl Table {
    pub(super) fn new() -> Table {
        Table { entries: VecDeque::new(), size: 0, most: MOST_BYTES }
    }

    /// The entry of an index: name, value, and what they mean.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8], Meaning)> {
        let at = index.checked_sub(1)?;
        if let Some((name, value)) = STATIC.get(at) {
            let meaning = Meaning { name: STATIC_NAMES[at], is_sound: true };
            return Some((name.as_bytes(), value.as_bytes(), meaning));
        }
        let Entry { text, name_length, meaning } = self.entries.get(at - STATIC.len())?;
        let (name, value) = text.split_at(*name_length);
        Some((name, value, *meaning))
    }

    /// RFC 7541 §4.4: what does not fit at all empties the table.
    pub(super) fn insert(&mut self, text: &[u8], name_length: usize, meaning: Meaning) {
        let size = text.len() + ENTRY_BYTES;
        self.shrink(self.most.saturating_sub(size));
        if size <= self.most {
            self.size += size;
            self.entries.push_front(Entry { text: text.into(), name_length, meaning });
        }
    }

    /// RFC 7541 §4.3
    pub(super) fn resize(&mut self, most: usize) {
        self.most = most;
        self.shrink(most);
    }

    /// Lets go of the oldest until no more than so much is left.
    fn shrink(&mut self, most: usize) {
        while self.size > most
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.text.len() + ENTRY_BYTES;
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
