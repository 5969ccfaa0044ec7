//! `SECURITY.md`: each test that its table names exists.

use std::fs;
use std::path::Path;

use crate::common::repository;

/// Files of Rust code below a directory, except build output.
fn rust_files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(path).unwrap());
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
