//! Differences between the responses of Weft and of nginx, and the list of those that are known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::ask::Answer;

/// Returns the kinds of the differences between the responses of Weft and of nginx to a request for
/// a path.
pub fn kinds(path: &str, own: &Answer, other: &Answer) -> Vec<String> {
    let are_errors = own.is_closed() && other.is_closed();
    let has_dot = path
        .replace("%2e", ".")
        .split('/')
        .any(|name| name.starts_with('.') && ![".", "..", ".well-known"].contains(&name));
    let is_success = other.status == 200;
    let is_copy = path.contains(".ph") && own.is_closed() && !other.content.starts_with("ran ");
    let is_of_upstream = [own, other].iter().all(|it| it.content.starts_with("GET "));
    let kind = match () {
        () if own.is_like(other) => None,
        () if are_errors && own.status == other.status => Some("page of an error"),
        () if are_errors => Some("status of an error"),
        () if is_of_upstream => Some("path of the upstream"),
        () if is_success && has_dot => Some("name with a dot"),
        () if is_success && (is_copy || other.content.starts_with("<?php")) => {
            Some("source of a script")
        }
        () if path.ends_with('/') && other.is_closed() => Some("folder without an index"),
        () if own.status != other.status => None,
        () if own.location != other.location => Some("location"),
        () => Some("content"),
    };
    let status = || format!("{} for {}", own.recorded_status(), other.recorded_status());
    let kind = kind.map(str::to_owned);
    let kind = kind.or_else(|| (own.status != other.status).then(status));
    let fields = own.different_fields(other).into_iter().map(|name| format!("field {name}"));
    kind.into_iter().chain(fields).collect()
}

/// Differences that are known: `NAME | REQUEST | REASON` or `NAME | * KIND | REASON`, and the
/// reasons of deliberate ones: `= REASON | WHY`. A line `exit status 3: NAME …` names
/// configurations whose import loses something. The name `*` stands for all configurations.
pub struct KnownDifferences {
    reasons: BTreeMap<String, String>,
    deliberate: BTreeSet<String>,
    /// Configurations whose import has the exit status 3.
    pub incomplete: Vec<String>,
}

impl KnownDifferences {
    pub fn read() -> KnownDifferences {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/differences.txt");
        let text = fs::read_to_string(file).unwrap();
        let mut known = KnownDifferences {
            reasons: BTreeMap::new(),
            deliberate: BTreeSet::new(),
            incomplete: Vec::new(),
        };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(names) = line.strip_prefix("exit status 3: ") {
                known.incomplete.extend(names.split(' ').map(str::to_owned));
                continue;
            }
            let (difference, reason) = line.rsplit_once(" | ").expect("a reason");
            assert!(!reason.trim().is_empty(), "{line}");
            match difference.strip_prefix("= ") {
                Some(deliberate) => drop(known.deliberate.insert(deliberate.to_owned())),
                None => drop(known.reasons.insert(difference.to_owned(), reason.to_owned())),
            }
        }
        known
    }

    /// Returns the row of a difference and its reason.
    fn find(&self, difference: &str) -> Option<(&String, &String)> {
        let (_, rest) = difference.split_once(" | ").expect("a name");
        let of_all = || self.reasons.get_key_value(format!("* | {rest}").as_str());
        self.reasons.get_key_value(difference).or_else(of_all)
    }

    pub fn has(&self, difference: &str) -> bool {
        self.find(difference).is_some()
    }

    pub fn is_deliberate(&self, difference: &str) -> bool {
        self.find(difference).is_some_and(|(_, reason)| self.deliberate.contains(reason))
    }

    /// Returns the rows that none of these differences needs.
    pub fn gone<'a>(&self, found: impl Iterator<Item = &'a String>) -> Vec<&String> {
        let used: BTreeSet<_> = found.filter_map(|it| Some(self.find(it)?.0)).collect();
        self.reasons.keys().filter(|row| !used.contains(row)).collect()
    }
}
