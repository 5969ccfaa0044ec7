//! The names at the root of the crate: a page that a newcomer can read.

use std::collections::BTreeSet;
use std::fs;

/// Limit of the names besides modules. A further name belongs in a module.
const MAX_ROOT_NAMES: usize = 25;

/// Names that the `pub use` items of a root re-export, without items of inline modules.
fn root_names(source: &str) -> BTreeSet<String> {
    let lines = source.lines().filter(|line| line.starts_with("pub use "));
    let mut names = BTreeSet::new();
    for line in lines {
        let path = line.trim_start_matches("pub use ").trim_end_matches(';');
        assert!(line.ends_with(';') && !path.ends_with('*'), "list the names on one line: {line}");
        let list = path.rsplit_once("::{").map_or(path, |(_, list)| list.trim_end_matches('}'));
        for item in list.split(',').map(str::trim) {
            let name = item.rsplit([' ', ':']).next().unwrap();
            if name != "self" {
                assert!(names.insert(name.to_owned()), "{name} is listed twice");
            }
        }
    }
    names
}

#[test]
fn the_root_has_at_most_25_names_besides_modules() {
    let source = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs")).unwrap();
    let names = root_names(&source);
    assert!(names.contains("Response") && names.contains("serve"), "{names:?}");
    assert!(names.len() <= MAX_ROOT_NAMES, "{} names: {names:?}", names.len());
    // Items of the root itself would not be counted.
    let items = ["pub fn ", "pub struct ", "pub enum ", "pub trait ", "pub type ", "pub const "];
    let is_item = |line: &&str| items.iter().any(|item| line.starts_with(item));
    assert_eq!(source.lines().filter(is_item).count(), 0);
}

#[test]
fn names_of_groups_and_new_names_are_counted() {
    let source =
        "pub use a::{B, C as D, self};\npub use e::f;\n    pub use g::h;\npub use i::J as K;\n";
    assert_eq!(root_names(source), ["B", "D", "K", "f"].map(str::to_owned).into());
}
