//! A section of a file: its entries, and the keys that read them.

use std::collections::HashMap;

use crate::key::SectionKey;
use crate::location::Problem;
use crate::suggestion::suggest;
use crate::value::{Entries, Name, Value};

/// Reads a section, whose tables may be in several files. `special` returns the problem of a name that
/// has a better explanation than that it is unknown.
pub fn read_section<S, K: SectionKey<S>>(
    keys: &[K],
    section: &mut S,
    tables: &[Value<'_>],
    special: &dyn Fn(&Name) -> Option<Problem>,
    problems: &mut Vec<Problem>,
) {
    for (name, values) in group(section_entries(tables, problems)) {
        match find(keys, &name.value) {
            Some(key) => problems.extend(key.set_values(section, &name, &values).err()),
            None => {
                let unknown = || unknown_key(&name, keys.iter().map(SectionKey::name));
                problems.push(special(&name).unwrap_or_else(unknown));
            }
        }
    }
}

/// Sets the keys that occur in a table. Returns the entries that have other names.
pub fn read_entries<'a, S, K: SectionKey<S>>(
    keys: &[K],
    section: &mut S,
    entries: Entries<'a>,
    problems: &mut Vec<Problem>,
) -> Entries<'a> {
    let mut others = Entries::new();
    for (name, value) in entries {
        match find(keys, &name.value) {
            Some(key) => problems.extend(key.set_value(section, &value).err()),
            None => others.push((name, value)),
        }
    }
    others
}

/// Returns the key with this name in a file.
pub fn find<'k, S, K: SectionKey<S>>(keys: &'k [K], name: &str) -> Option<&'k K> {
    keys.iter().find(|key| key.name() == name)
}

/// Returns the key whose option has this name, without its dashes.
pub fn find_flag<'k, S, K: SectionKey<S>>(keys: &'k [K], flag: &str) -> Option<&'k K> {
    keys.iter().find(|key| key.spec().flag == flag && !flag.is_empty())
}

/// Returns the entries of the tables that a section has in several files. Appends the problem of each
/// value that is no table.
pub fn section_entries<'a>(tables: &[Value<'a>], problems: &mut Vec<Problem>) -> Entries<'a> {
    let mut entries = Entries::new();
    for table in tables {
        match table.entries() {
            Ok(of_table) => entries.extend(of_table),
            Err(problem) => problems.push(problem),
        }
    }
    entries
}

/// Groups the values of equal names, which several files may have. The name is the first occurrence.
pub(crate) fn group<'a>(entries: Entries<'a>) -> Vec<(Name, Vec<Value<'a>>)> {
    let mut groups = Vec::<(Name, Vec<Value<'_>>)>::new();
    let mut numbers = HashMap::new();
    for (name, value) in entries {
        let number = *numbers.entry(name.value.clone()).or_insert(groups.len());
        match groups.get_mut(number) {
            Some((_, values)) => values.push(value),
            None => groups.push((name, vec![value])),
        }
    }
    groups
}

/// Returns the problem of an unknown key, with the known key that it may mean, or all known keys.
pub fn unknown_key<'a>(name: &Name, known: impl Iterator<Item = &'a str> + Clone) -> Problem {
    let hint = match suggest(&name.value, known.clone()) {
        Some(suggestion) => format!("did you mean `{suggestion}`?"),
        None => {
            let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
            format!("known here: {}", known.join(", "))
        }
    };
    name.problem(format!("unknown key `{}`; {hint}", name.value))
}
