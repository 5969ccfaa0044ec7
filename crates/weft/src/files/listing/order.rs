//! The order in which a folder's entries are listed. Pure.
//!
//! Names are compared as people count and spell: `file 9` before `file 10`, `apple` beside
//! `Apple`. Each name is made into a key once, so that comparing two is comparing bytes.

use crate::files::listing::Entry;

/// By what, and which way. Folders come first either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) by: By,
    pub(crate) is_descending: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    #[default]
    Name,
    Size,
    Date,
}

impl By {
    /// What a query calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            By::Name => "name",
            By::Size => "size",
            By::Date => "date",
        }
    }
}

impl Order {
    /// The order that a query asks for: `sort=name|size|date` and `order=asc|desc`. All else
    /// is by name, and ascending.
    pub(crate) fn of(query: Option<&str>) -> Order {
        let mut order = Order::default();
        for pair in query.unwrap_or_default().split('&') {
            match pair.split_once('=') {
                Some(("sort", "size")) => order.by = By::Size,
                Some(("sort", "date")) => order.by = By::Date,
                Some(("sort", _)) => order.by = By::Name,
                Some(("order", way)) => order.is_descending = way == "desc",
                _ => {}
            }
        }
        order
    }

    /// What a query calls the way.
    pub(crate) fn way(self) -> &'static str {
        if self.is_descending { "desc" } else { "asc" }
    }

    /// The order that the head of a column leads to. The column that is in charge is
    /// reversed. Another begins with what is looked for most: the largest and the latest.
    pub(crate) fn turned_to(self, by: By) -> Order {
        let is_descending = if by == self.by { !self.is_descending } else { by != By::Name };
        Order { by, is_descending }
    }

    /// The entries in this order; those that are equal in it stand by name.
    pub(crate) fn sorted(self, entries: &[Entry]) -> impl Iterator<Item = &Entry> {
        let mut sorted: Vec<_> = entries.iter().map(|entry| (key(&entry.name), entry)).collect();
        sorted.sort_unstable_by(|(key_a, a), (key_b, b)| {
            let by_name = || key_a.cmp(key_b).then_with(|| a.name.cmp(&b.name));
            let wanted = match self.by {
                By::Name => by_name(),
                By::Size => a.length.cmp(&b.length),
                By::Date => a.modified.cmp(&b.modified),
            };
            let turned = if self.is_descending { wanted.reverse() } else { wanted };
            let folders_first = b.is_folder.cmp(&a.is_folder);
            folders_first.then(turned).then_with(by_name)
        });
        sorted.into_iter().map(|(_, entry)| entry)
    }
}

/// Bytes that compare as the names should: small letters, and before the digits of each
/// number how many they are, without the zeros in front. All digits begin with a `0`, and
/// so keep their place among the other characters.
fn key(name: &[u8]) -> Vec<u8> {
    let name = String::from_utf8_lossy(name).to_lowercase();
    let mut key = Vec::with_capacity(name.len() + 8);
    let mut rest = name.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if !first.is_ascii_digit() {
            key.push(first);
            rest = behind;
            continue;
        }
        let end = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
        let zeros = rest[..end].iter().take_while(|&&b| b == b'0').count();
        // A name of a file has at most 255 bytes.
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
    fn queries() {
        for (query, by, is_descending) in [
            (None, By::Name, false),
            (Some(""), By::Name, false),
            (Some("sort=name&order=asc"), By::Name, false),
            (Some("order=desc"), By::Name, true),
            (Some("sort=size"), By::Size, false),
            (Some("sort=size&order=desc"), By::Size, true),
            (Some("order=desc&a&sort=date&=&b=c"), By::Date, true),
            (Some("sort=date&order=up"), By::Date, false),
            (Some("sort=SIZE"), By::Name, false),
            (Some("sort=%73ize"), By::Name, false),
            (Some("sort=size&sort=x"), By::Name, false),
            (Some("xsort=size"), By::Name, false),
        ] {
            assert_eq!(Order::of(query), Order { by, is_descending }, "{query:?}");
        }
    }

    #[test]
    fn heads_of_columns() {
        let order = |by, is_descending| Order { by, is_descending };
        for (from, by, to) in [
            (order(By::Name, false), By::Name, order(By::Name, true)),
            (order(By::Name, true), By::Name, order(By::Name, false)),
            (order(By::Name, true), By::Size, order(By::Size, true)),
            (order(By::Size, true), By::Size, order(By::Size, false)),
            (order(By::Size, false), By::Date, order(By::Date, true)),
            (order(By::Date, true), By::Name, order(By::Name, false)),
        ] {
            assert_eq!(from.turned_to(by), to);
            let query = format!("sort={}&order={}", to.by.word(), to.way());
            assert_eq!(Order::of(Some(&query)), to);
        }
    }

    #[test]
    fn names_as_people_sort_them() {
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
    fn orders() {
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
            let sorted = Order::of(Some(query)).sorted(&entries);
            let names: Vec<u8> = sorted.flat_map(|entry| entry.name.clone()).collect();
            assert_eq!(String::from_utf8(names).unwrap(), expected, "{query}");
        }
    }

    fn entry(name: impl AsRef<[u8]>, length: u64, modified: i64) -> Entry {
        let (name, modified) = (name.as_ref().into(), Some(modified));
        Entry { name, is_folder: false, length, modified }
    }
}
