//! The listing of a folder, and its form as JSON; `page.rs` has the form as HTML.
//! Pure, except for `folder.rs`.
//!
//! The JSON is written here without a library: it has a fixed structure, and only the strings need
//! escaping, which is the task of `message::escape` anyway.

mod folder; // reads the entries of a folder
mod order; // sort order of the entries

mod human; // human-readable sizes and counts
mod page; // the listing as HTML

use std::fmt::{self, Write};

use crate::message::escape::{Href, Json};
use weft_proto::headers::Headers;
use weft_proto::semantics::accept;
use weft_proto::semantics::date::civil_from_days;

pub(super) use self::folder::{Folder, list_embedded};
pub(super) use self::order::Order;
pub(super) use self::page::PAGE_CSP;

/// The entries of a folder, unsorted.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The folder's path beneath the root, decoded, without slashes at its ends; empty for the
    /// root.
    pub(crate) path: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    /// True if the folder has more entries than these.
    pub(crate) truncated: bool,
}

/// A file or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) is_folder: bool,
    /// Length in bytes; 0 for a folder.
    pub(crate) length: u64,
    /// Time of the last change in seconds since 1970; `None` for embedded files.
    pub(crate) modified: Option<i64>,
}

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

    /// Returns the folder's path from the root, with a slash at each end.
    pub(crate) fn absolute_path(&self) -> Vec<u8> {
        match &self.path[..] {
            b"" => b"/".into(),
            path => [b"/", path, b"/"].concat(),
        }
    }
}

/// Formats a time in RFC 3339 format: `2026-11-21T10:51:01Z`. A time before 1970 is shown as the
/// first second of 1970, as in all metadata of files that is sent.
pub(crate) fn timestamp(seconds: i64) -> String {
    // 9999 is the last year with four digits.
    let seconds = u64::try_from(seconds).unwrap_or(0).min(253_402_300_799);
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns true if a client prefers JSON to HTML. `Accept` has to name `application/json`:
/// browsers name `text/html`, and a client that accepts `*/*` gets HTML.
pub(crate) fn prefers_json(headers: &Headers) -> bool {
    accept::prefers(headers, "application/json", "text/html")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn file(name: &[u8], length: u64, modified: i64) -> Entry {
        Entry { name: name.into(), is_folder: false, length, modified: Some(modified) }
    }

    #[test]
    fn json_can_be_parsed() {
        let listing = Listing {
            path: b"a/\"b\"\xff".into(),
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
        let listing = Listing { path: vec![], entries: vec![], truncated: false };
        let parsed: Value = serde_json::from_str(&listing.json(Order::default())).unwrap();
        assert_eq!(parsed, json!({"path": "/", "truncated": false, "entries": []}));
    }

    #[test]
    fn json_is_sorted_by_the_query() {
        let entries = vec![file(b"a", 1, 3), file(b"b", 2, 2), file(b"c", 3, 1)];
        let listing = Listing { path: vec![], entries, truncated: false };
        for (query, expected) in [("", ["a", "b", "c"]), ("sort=date", ["c", "b", "a"])] {
            let json = listing.json(Order::from_query(Some(query)));
            let parsed: Value = serde_json::from_str(&json).unwrap();
            let names = [0, 1, 2].map(|at| parsed["entries"][at]["name"].as_str().unwrap());
            assert_eq!(names, expected, "{query}");
        }
    }

    #[test]
    fn prefers_json_by_accept() {
        for (accept, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json, text/plain, */*", true),
            ("text/html;q=0.5, application/json;q=0.9", true),
            ("application/json;version=1;Q=0.2", true),
            ("text/html;q=0, application/json;q=0.001", true),
            ("application/json, text/html", false),
            ("application/json;q=0.5, text/html;q=0.9", false),
            ("application/json;q=0", false),
            ("application/json;q=2", false),
            ("application/json;q=nan", false),
            ("application/jsonp", false),
            ("application/*", false),
            ("*/*", false),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
            ("", false),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
            let request = crate::testing::request(head);
            assert_eq!(prefers_json(request.headers()), expected, "{accept}");
        }
        let request = crate::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(!prefers_json(request.headers()));
    }
}
