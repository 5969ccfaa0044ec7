//! A section of a file: its entries, and the keys that read them.

use std::collections::HashMap;

use crate::key::SectionKey;
use crate::location::Problem;
use crate::suggestion::suggest;
use crate::value::{Entries, Name, Value};

/// Reads a section, whose tables may be in several files. For a name that is no key, `special` may
/// return a problem that explains more than `unknown key`.
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

/// Returns the entries of the tables that a section has in several files. Appends the problem of
/// each value that is no table.
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

/// Groups the values of equal names, which several files may have. The name is the first
/// occurrence.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::key::{Key, PartKey, SectionKeys, ValueKind};
    use crate::slot::{CustomType, Given};
    use crate::source::{Document, Sources};
    use crate::{ConfigLocation, print_lines, schema};

    #[derive(Debug, Default, PartialEq)]
    struct Whole {
        sizes: Sizes,
        names: Names,
    }

    #[derive(Debug, Default, PartialEq)]
    struct Sizes {
        bytes: u64,
    }

    #[derive(Debug, Default, PartialEq)]
    struct Names {
        list: Vec<String>,
    }

    static SIZES: [Key<Sizes>; 1] = [Key {
        name: "bytes",
        flag: "bytes",
        argument: "SIZE",
        help: "a size",
        kind: ValueKind::Size(1..=1_000, |sizes, bytes| sizes.bytes = bytes),
        show: |sizes| sizes.bytes.to_string(),
    }];

    static LIST: CustomType = CustomType { is_list: true, shape: "", schema: schema::texts };

    static NAMES: [Key<Names>; 1] = [Key {
        name: "names",
        flag: "name",
        argument: "NAME",
        help: "a list with a reader of its own",
        kind: ValueKind::Custom(&LIST, |names, given| {
            match given {
                Given::Values(values) => {
                    for value in values {
                        names.list.push(value.text()?.value);
                    }
                }
                Given::Arguments { option, arguments } => {
                    names.list.push(format!("{option} {arguments:?}"));
                }
            }
            Ok(())
        }),
        show: |names| names.list.join(","),
    }];

    fn keys() -> SectionKeys<Whole> {
        let size = PartKey::new(&SIZES[0], |it: &Whole| &it.sizes, |it| &mut it.sizes);
        let name = PartKey::new(&NAMES[0], |it: &Whole| &it.names, |it| &mut it.names);
        vec![Box::new(size), Box::new(name)]
    }

    fn read(text: &str) -> (Whole, Vec<String>) {
        let sources = Sources::of_text("f", text.to_owned(), Path::new(""));
        let document = Document::parse(&sources);
        let (mut whole, mut problems) = (Whole::default(), Vec::new());
        let special =
            |name: &Name| (name.value == "old").then(|| name.problem("it is now `bytes`"));
        for (_, tables) in document.sections() {
            read_section(&keys(), &mut whole, &tables, &special, &mut problems);
        }
        let problems = document.with_syntax_problems(problems);
        (whole, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn reads_keys_of_several_parts() {
        let (whole, problems) = read("[s]\nbytes = 7\nnames = \"a\"\n");
        assert_eq!(problems, [""; 0]);
        assert_eq!(print_lines(keys(), &whole), "bytes = 7\nnames = a\n");
    }

    #[test]
    fn explains_unknown_and_invalid_keys() {
        for (text, expected) in [
            ("[s]\nbyte = 1\n", "f:2:1: unknown key `byte`; did you mean `bytes`?"),
            ("[s]\nx = 1\n", "f:2:1: unknown key `x`; known here: `bytes`, `names`"),
            ("[s]\nold = 1\n", "f:2:1: it is now `bytes`"),
            ("[s]\nbytes = 0\n", "f:2:9: expected a size from 1 to 1000 bytes, found 0"),
            ("s = 1\n", "f:1:5: expected a table, found the number 1"),
        ] {
            assert_eq!(read(text).1, [expected], "{text}");
        }
    }

    #[test]
    fn options_set_keys_of_parts() {
        let mut whole = Whole::default();
        let keys = keys();
        let words = ["1".into(), "2".into()];
        for (flag, option) in [("bytes", "--bytes"), ("name", "--name")] {
            let key = find_flag(&keys, flag).unwrap();
            key.set_arguments(&mut whole, option, &words).unwrap();
        }
        assert_eq!(whole.sizes.bytes, 2);
        assert_eq!(whole.names.list, ["--name [\"1\", \"2\"]"]);
        let invalid = find(&keys, "bytes").unwrap();
        let problem = invalid.set_arguments(&mut whole, "--bytes", &["x".into()]).unwrap_err();
        assert_eq!(problem.location, ConfigLocation::Option("--bytes".to_owned()));
        assert!(find_flag(&keys, "").is_none());
    }

    #[test]
    fn schema_has_the_keys_of_all_parts() {
        let properties = schema::properties(keys());
        assert_eq!(properties.keys().collect::<Vec<_>>(), ["bytes", "names"]);
        assert_eq!(properties["names"]["description"], "a list with a reader of its own");
    }
}
