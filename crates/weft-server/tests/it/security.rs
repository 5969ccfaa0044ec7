//! `SECURITY.md`: each test that its tables name exists, and each limit and each use of the
//! blocking pool is in its table.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::repository;

/// Files of Rust code below a directory, except build output.
fn rust_files(folder: &Path) -> Vec<String> {
    rust_paths(folder).iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

fn rust_paths(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(rust_paths(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn each_test_named_in_security_md_exists() {
    let text = fs::read_to_string(repository("SECURITY.md")).unwrap();
    let sources = rust_files(&repository("crates"));
    let (_, table) = text.split_once("| attack | tests |\n| --- | --- |\n").expect("a table");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.filter_map(|row| row.trim_end_matches(" |").split_once(" | "));
    let mut names = Vec::new();
    for (class, tests) in rows {
        // The names are the odd parts between backticks.
        let found = tests.split('`').skip(1).step_by(2);
        let before = names.len();
        names.extend(found);
        assert!(names.len() > before, "no test covers {class:?}");
    }
    assert!(names.len() > 40, "the table has too few names: {names:?}");
    for name in names {
        let is_file = name.contains(['/', '.']) && repository(name).exists();
        let function = format!("fn {name}(");
        assert!(
            is_file || sources.iter().any(|source| source.contains(&function)),
            "SECURITY.md names the test {name}, which does not exist"
        );
    }
}

/// Returns the rows of the table with this head.
fn table<'a>(text: &'a str, head: &str) -> impl Iterator<Item = Vec<&'a str>> {
    let (_, table) = text.split_once(head).expect("a table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
    rows.map(|row| row.trim_matches(['|', ' ']).split(" | ").collect())
}

/// Returns the names between backticks.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns the section and the name of all keys, except for times, in `docs/configuration.md`. A
/// test compares it with the keys of the program.
fn keys(text: &str) -> BTreeSet<(&str, &str)> {
    let (mut section, mut is_table, mut keys) = ("", false, BTreeSet::new());
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            section = title;
        } else if line.starts_with("<!-- keys of ") {
            is_table = true;
        } else if is_table && line.starts_with("| `") && !line.contains("| time |") {
            keys.insert((section, names(line).next().unwrap_or_default()));
        } else if is_table && !line.starts_with('|') && !line.is_empty() {
            is_table = false;
        }
    }
    keys
}

/// Returns true for the key of a limit, but not of the share of one client in it.
fn is_limit(key: &str) -> bool {
    let is_share = key.ends_with("_per_client") || key.ends_with("_per_peer");
    let is_limit = |word| ["max", "rate", "queue", "burst", "bandwidth"].contains(&word);
    let is_limit = key.split('_').any(is_limit) || key == "on_demand_names";
    is_limit && !is_share && key != "rate_key"
}

/// Fails for a limit that has neither a share for each client nor a reason to do without.
#[test]
fn each_limit_has_a_share_per_client_or_a_reason() {
    let text = fs::read_to_string(repository("SECURITY.md")).unwrap();
    let docs = fs::read_to_string(repository("docs/configuration.md")).unwrap();
    let (keys, sources) = (keys(&docs), rust_files(&repository("crates")));
    let mut described = BTreeSet::new();
    for row in table(&text, "| section | limits | share of one client |") {
        let [sections, limits, share] = row[..] else { panic!("{row:?}") };
        for section in sections.split(" + ") {
            described.extend(names(limits).map(|limit| (section, limit)));
            let is_share = |name| {
                keys.contains(&(section, name))
                    || sources.iter().any(|source| source.contains(&format!("fn {name}(")))
            };
            let has_share = names(share).next().is_some() && names(share).all(is_share);
            let has_reason = share.strip_prefix("none: ").is_some_and(|reason| reason.len() > 20);
            assert!(has_share || has_reason, "{row:?}");
        }
    }
    let limits: BTreeSet<_> = keys.into_iter().filter(|(_, key)| is_limit(key)).collect();
    assert!(limits.len() > 40, "{limits:?}");
    let missing: Vec<_> = limits.difference(&described).collect();
    let unknown: Vec<_> = described.difference(&limits).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "without a row: {missing:?}; no limits: {unknown:?}"
    );
}

/// Fails for work on blocking threads that has neither a bound with a test nor a reason to do
/// without.
#[test]
fn work_on_blocking_threads_has_a_bound_or_a_reason() {
    let text = fs::read_to_string(repository("SECURITY.md")).unwrap();
    let docs = fs::read_to_string(repository("docs/configuration.md")).unwrap();
    let sources = rust_files(&repository("crates"));
    let keys: BTreeSet<_> = keys(&docs).into_iter().map(|(_, key)| key).collect();
    let mut described = BTreeSet::new();
    for row in table(&text, "| source file | work | bound |") {
        let [files, _, bound] = row[..] else { panic!("{row:?}") };
        described.extend(names(files).map(repository));
        let is_bound = |name| {
            keys.contains(name)
                || sources.iter().any(|source| source.contains(&format!("fn {name}(")))
        };
        let has_bound = names(bound).next().is_some() && names(bound).all(is_bound);
        let has_reason = bound.strip_prefix("none: ").is_some_and(|reason| reason.len() > 15);
        assert!(has_bound || has_reason, "{row:?}");
    }
    let uses_pool = |path: &PathBuf| {
        let source = fs::read_to_string(path).unwrap();
        let is_source = path.components().any(|part| part.as_os_str() == "src");
        let calls = ["spawn_blocking(", "disk::blocking(", " blocking("];
        is_source && calls.iter().any(|call| source.contains(call))
    };
    let used = rust_paths(&repository("crates")).into_iter().filter(uses_pool).collect();
    assert_eq!(described, used, "left: SECURITY.md, right: source files");
}
