//! Sort order of the entries of a listing. Pure.
//!
//! Names are sorted in natural order: `file 9` before `file 10`, `apple` beside `Apple`. A
//! collation key is made once for each name, so that a comparison compares bytes.

use crate::files::listing::entries::Entry;

/// Sort key and direction. Folders are first in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Order {
    pub(crate) by: SortKey,
    pub(crate) is_descending: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum SortKey {
    #[default]
    Name,
    Size,
    Date,
}

impl SortKey {
    /// The value of `sort` in a query.
    pub(crate) fn query_value(self) -> &'static str {
        match self {
            SortKey::Name => "name",
            SortKey::Size => "size",
            SortKey::Date => "date",
        }
    }
}

impl Order {
    /// Parses the order from a query: `sort=name|size|date` and `order=asc|desc`. The default, also
    /// for other values, is by name and ascending.
    pub(crate) fn from_query(query: Option<&str>) -> Order {
        let mut order = Order::default();
        for pair in query.unwrap_or_default().split('&') {
            match pair.split_once('=') {
                Some(("sort", "size")) => order.by = SortKey::Size,
                Some(("sort", "date")) => order.by = SortKey::Date,
                Some(("sort", _)) => order.by = SortKey::Name,
                Some(("order", direction)) => order.is_descending = direction == "desc",
                _ => {}
            }
        }
        order
    }

    /// The value of `order` in a query.
    pub(crate) fn direction(self) -> &'static str {
        if self.is_descending { "desc" } else { "asc" }
    }

    /// Returns the order that the heading of a column links to. The current sort column is
    /// reversed. Another column starts with the largest size or the latest date, and with the
    /// first name.
    pub(crate) fn after_click(self, by: SortKey) -> Order {
        let is_descending = if by == self.by { !self.is_descending } else { by != SortKey::Name };
        Order { by, is_descending }
    }

    /// Returns the entries in this order; equal entries are sorted by name.
    pub(crate) fn sorted(self, entries: &[Entry]) -> impl Iterator<Item = &Entry> {
        let mut sorted: Vec<_> =
            entries.iter().map(|entry| (collation_key(&entry.name), entry)).collect();
        sorted.sort_unstable_by(|(key_a, a), (key_b, b)| {
            let by_name = || key_a.cmp(key_b).then_with(|| a.name.cmp(&b.name));
            let by_key = match self.by {
                SortKey::Name => by_name(),
                SortKey::Size => a.length.cmp(&b.length),
                SortKey::Date => a.modified.cmp(&b.modified),
            };
            let directed = if self.is_descending { by_key.reverse() } else { by_key };
            let folders_first = b.is_folder.cmp(&a.is_folder);
            folders_first.then(directed).then_with(by_name)
        });
        sorted.into_iter().map(|(_, entry)| entry)
    }
}

/// Makes a key with the byte order of the natural order of names: the name in lower case, with
/// each number replaced by a `0`, the count of its digits and the digits, without leading zeros.
/// The `0` keeps numbers in their place among the other characters.
fn collation_key(name: &[u8]) -> Vec<u8> {
    let name = String::from_utf8_lossy(name).to_lowercase();
    let mut key = Vec::with_capacity(name.len() + 8);
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if !first.is_ascii_digit() {
            key.push(first);
            rest = after;
            continue;
        }
        let end = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
        let zeros = rest[..end].iter().take_while(|&&b| b == b'0').count();
        // The name of a file has at most 255 bytes.
        key.extend([b'0', u8::try_from(end - zeros).unwrap_or(u8::MAX)]);
        key.extend_from_slice(&rest[zeros..end]);
        rest = &rest[end..];
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_queries() {
        for (query, by, is_descending) in [
            (None, SortKey::Name, false),
            (Some(""), SortKey::Name, false),
            (Some("sort=name&order=asc"), SortKey::Name, false),
            (Some("order=desc"), SortKey::Name, true),
            (Some("sort=size"), SortKey::Size, false),
            (Some("sort=size&order=desc"), SortKey::Size, true),
            (Some("order=desc&a&sort=date&=&b=c"), SortKey::Date, true),
            (Some("sort=date&order=up"), SortKey::Date, false),
            (Some("sort=SIZE"), SortKey::Name, false),
            (Some("sort=%73ize"), SortKey::Name, false),
            (Some("sort=size&sort=x"), SortKey::Name, false),
            (Some("xsort=size"), SortKey::Name, false),
        ] {
            assert_eq!(Order::from_query(query), Order { by, is_descending }, "{query:?}");
        }
    }

    #[test]
    fn column_headings_reverse_or_change_the_order() {
        let order = |by, is_descending| Order { by, is_descending };
        for (from, by, to) in [
            (order(SortKey::Name, false), SortKey::Name, order(SortKey::Name, true)),
            (order(SortKey::Name, true), SortKey::Name, order(SortKey::Name, false)),
            (order(SortKey::Name, true), SortKey::Size, order(SortKey::Size, true)),
            (order(SortKey::Size, true), SortKey::Size, order(SortKey::Size, false)),
            (order(SortKey::Size, false), SortKey::Date, order(SortKey::Date, true)),
            (order(SortKey::Date, true), SortKey::Name, order(SortKey::Name, false)),
        ] {
            assert_eq!(from.after_click(by), to);
            let query = format!("sort={}&order={}", to.by.query_value(), to.direction());
            assert_eq!(Order::from_query(Some(&query)), to);
        }
    }

    #[test]
    fn sorts_names_in_natural_order() {
        let sorted: &[&[u8]] = &[
            b" space",
            b"-rf",
            b"0",
            b"00",
            b"001",
            b"1.5",
            b"1a",
            b"2",
            b"0010",
            b"10",
            b"100",
            b"99999999999999999999999999",
            b"100000000000000000000000000",
            b"Apple",
            b"apple",
            b"apple 2",
            b"Apple 10",
            b"banana",
            b"v1.9.2",
            b"v1.10.0",
            "élan".as_bytes(),
            "Éлan".as_bytes(),
            b"\xfe",
            b"\xff",
        ];
        let entries: Vec<Entry> = sorted.iter().rev().map(|name| entry(name, 0, 0)).collect();
        let names: Vec<&[u8]> = Order::default().sorted(&entries).map(|e| &*e.name).collect();
        assert_eq!(names, sorted);
    }

    #[test]
    fn sorts_by_key_and_direction_with_folders_first() {
        let folder = |name: &str, modified| Entry { is_folder: true, ..entry(name, 0, modified) };
        let entries = [
            entry("b", 3, 20),
            folder("y", 5),
            entry("A", 3, 30),
            entry("c", 1, 10),
            folder("X", 40),
            entry("d", u64::MAX, i64::MIN),
        ];
        for (query, expected) in [
            ("sort=name", "XyAbcd"),
            ("sort=name&order=desc", "yXdcbA"),
            ("sort=size", "XycAbd"),
            ("sort=size&order=desc", "XydAbc"),
            ("sort=date", "yXdcbA"),
            ("sort=date&order=desc", "XyAbcd"),
        ] {
            let sorted = Order::from_query(Some(query)).sorted(&entries);
            let names: Vec<u8> = sorted.flat_map(|entry| entry.name.clone()).collect();
            assert_eq!(String::from_utf8(names).unwrap(), expected, "{query}");
        }
    }

    fn entry(name: impl AsRef<[u8]>, length: u64, modified: i64) -> Entry {
        let (name, modified) = (name.as_ref().into(), Some(modified));
        Entry { name, is_folder: false, length, modified }
    }
}
