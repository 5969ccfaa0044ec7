//! The static table, and the address space of both tables (RFC 7541 §2.3).

use crate::field_coding::dynamic_table::{DynamicTable, Entry};
use crate::field_coding::field_class::{FieldClass, Name};

/// Initial SETTINGS_HEADER_TABLE_SIZE (RFC 9113 §6.5.2), and the maximum that this implementation
/// uses in both directions.
pub(super) const MAX_TABLE_BYTES: usize = 4_096;

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

/// Returns the index of the newest entry for which `predicate` returns true, in the address space
/// of both tables (§2.3.3).
pub(super) fn position<T>(
    table: &DynamicTable<T>,
    predicate: impl FnMut(&Entry<T>) -> bool,
) -> Option<usize> {
    table.position(predicate).map(|at| STATIC.len() + 1 + at)
}

/// Returns the entry at an index of both tables (§2.3.3): name, value and class.
pub(super) fn get(
    table: &DynamicTable<FieldClass>,
    index: usize,
) -> Option<(&[u8], &[u8], FieldClass)> {
    let at = index.checked_sub(1)?;
    if let Some((name, value)) = STATIC.get(at) {
        let class = FieldClass { name: STATIC_NAMES[at], is_valid_value: true };
        return Some((name.as_bytes(), value.as_bytes(), class));
    }
    let entry = table.get(at - STATIC.len())?;
    let (name, value) = entry.field();
    Some((name, value, entry.data))
}
