//! The listing as JSON.
//!
//! The JSON is written here without a library: it has a fixed structure, and only the strings need
//! escaping, which is the task of `message::escape` anyway.

use std::fmt::{self, Write};

use crate::files::listing::entries::{Listing, timestamp};
use crate::files::listing::order::Order;
use crate::message::escape::{Href, Json};

impl Listing {
    /// Writes the listing as a JSON object, with one entry on each line.
    pub(crate) fn json(&self, order: Order) -> String {
        let mut json = String::with_capacity(128 + 160 * self.entries.len());
        self.write_json(&mut json, order).expect("writing to a String does not fail");
        json
    }

    fn write_json(&self, json: &mut String, order: Order) -> fmt::Result {
        let (path, truncated) = (self.absolute_path(), self.truncated);
        write!(json, "{{\"path\": {}, \"truncated\": {truncated}, \"entries\": [", Json(&path))?;
        for (number, entry) in order.sorted(&self.entries).enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let (name, href) = (Json(&entry.name), Href(&entry.name));
            write!(json, "{comma}\n{{\"name\": {name}, \"href\": \"./{href}")?;
            match entry.is_folder {
                true => json.write_str("/\", \"type\": \"folder\", \"size\": null")?,
                false => write!(json, "\", \"type\": \"file\", \"size\": {}", entry.length)?,
            }
            match entry.modified {
                Some(seconds) => write!(json, ", \"modified\": \"{}\"}}", timestamp(seconds))?,
                None => json.write_str(", \"modified\": null}")?,
            }
        }
        json.write_str("\n]}\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::files::listing::entries::Entry;

    fn file(name: &[u8], length: u64, modified: i64) -> Entry {
        Entry { name: name.into(), is_folder: false, length, modified: Some(modified) }
    }

    #[test]
    fn json_can_be_parsed() {
        let listing = Listing {
            path: b"a/\"b\"\xff".into(),
            mount: vec![],
            entries: vec![
                file(b"javascript:alert(1)", u64::MAX, 1_795_258_261),
                file("\u{2028}\u{202e}\\\"\n".as_bytes(), 0, -1),
                file(b"\xff", 1, i64::MAX),
                Entry { is_folder: true, ..file(b"%2e", 0, 0) },
            ],
            truncated: true,
        };
        let parsed: Value = serde_json::from_str(&listing.json(Order::default())).unwrap();
        let expected = json!({
            "path": "/a/\"b\"\u{fffd}/",
            "truncated": true,
            "entries": [
                {"name": "%2e", "href": "./%252e/", "type": "folder", "size": null,
                 "modified": "1970-01-01T00:00:00Z"},
                {"name": "javascript:alert(1)", "href": "./javascript%3Aalert%281%29",
                 "type": "file", "size": u64::MAX, "modified": "2026-11-21T10:51:01Z"},
                {"name": "\u{2028}\u{202e}\\\"\n", "href": "./%E2%80%A8%E2%80%AE%5C%22%0A",
                 "type": "file", "size": 0, "modified": "1970-01-01T00:00:00Z"},
                {"name": "\u{fffd}", "href": "./%FF", "type": "file", "size": 1,
                 "modified": "9999-12-31T23:59:59Z"},
            ],
        });
        assert_eq!(parsed, expected);
    }

    #[test]
    fn json_of_an_empty_root() {
        let listing = Listing { path: vec![], mount: vec![], entries: vec![], truncated: false };
        let parsed: Value = serde_json::from_str(&listing.json(Order::default())).unwrap();
        assert_eq!(parsed, json!({"path": "/", "truncated": false, "entries": []}));
    }

    #[test]
    fn json_is_sorted_by_the_query() {
        let entries = vec![file(b"a", 1, 3), file(b"b", 2, 2), file(b"c", 3, 1)];
        let listing = Listing { path: vec![], mount: vec![], entries, truncated: false };
        for (query, expected) in [("", ["a", "b", "c"]), ("sort=date", ["c", "b", "a"])] {
            let json = listing.json(Order::from_query(Some(query)));
            let parsed: Value = serde_json::from_str(&json).unwrap();
            let names = [0, 1, 2].map(|at| parsed["entries"][at]["name"].as_str().unwrap());
            assert_eq!(names, expected, "{query}");
        }
    }
}
