//! `[snippets.NAME]`: keys that other tables take over by `use = ["NAME"]`.

use std::cell::Cell;
use std::collections::HashSet;

use crate::key::SectionKey;
use crate::location::{ConfigResult, Problem};
use crate::section::find;
use crate::suggestion::suggest;
use crate::value::{Entries, Name, Value};

/// The snippets of all files.
#[derive(Default)]
pub struct Snippets<'a> {
    list: Vec<Snippet<'a>>,
}

struct Snippet<'a> {
    name: Name,
    entries: Entries<'a>,
    is_used: Cell<bool>,
}

impl<'a> Snippets<'a> {
    /// Reads the tables of all sections `[snippets]`.
    pub fn read(entries: Entries<'a>, problems: &mut Vec<Problem>) -> Snippets<'a> {
        let mut list = Vec::<Snippet<'_>>::new();
        for (name, value) in entries {
            if let Some(first) = list.iter().find(|known| known.name.value == name.value) {
                let first = first.name.location.relative_to(&name.location);
                problems.push(
                    name.problem(format!("the snippet `{}` is given twice{first}", name.value)),
                );
                continue;
            }
            match value.entries() {
                Ok(entries) => {
                    if let Some((nested, _)) = entries.iter().find(|(key, _)| key.value == "use") {
                        problems.push(nested.problem("a snippet uses no other snippets"));
                    }
                    list.push(Snippet { name, entries, is_used: Cell::new(false) });
                }
                Err(problem) => problems.push(problem),
            }
        }
        Snippets { list }
    }

    /// Returns the snippets that no table uses.
    pub fn unused(&self) -> impl Iterator<Item = &Name> {
        self.list.iter().filter(|snippet| !snippet.is_used.get()).map(|snippet| &snippet.name)
    }

    /// Reads a section from its table and from the snippets that the table uses. Returns the
    /// section, and the entries whose names are not in `keys`.
    ///
    /// Keys of the table take precedence over keys of snippets, and later snippets over earlier
    /// snippets: `or` adds the values of the next snippet to a section.
    pub fn read_section<S: Default, K: SectionKey<S>>(
        &self,
        keys: &[K],
        table: Entries<'a>,
        or: impl Fn(S, &S) -> S,
        problems: &mut Vec<Problem>,
    ) -> (S, Entries<'a>) {
        let (uses, table): (Entries<'_>, Entries<'_>) =
            table.into_iter().partition(|(name, _)| name.value == "use");
        let mut used = Vec::new();
        for (_, names) in uses {
            self.find(&names, &mut used, problems).unwrap_or_else(|problem| problems.push(problem));
        }
        let (mut section, mut others) = (S::default(), Entries::new());
        let mut names = HashSet::new();
        let snippets = used.iter().rev().map(|snippet| snippet.entries.clone());
        for entries in std::iter::once(table).chain(snippets) {
            let mut layer = S::default();
            for (name, value) in entries {
                match find(keys, &name.value) {
                    Some(key) => problems.extend(key.set_value(&mut layer, &value).err()),
                    None if names.insert(name.value.clone()) => others.push((name, value)),
                    None => {}
                }
            }
            section = or(section, &layer);
        }
        (section, others)
    }

    fn find<'s>(
        &'s self,
        names: &Value<'_>,
        used: &mut Vec<&'s Snippet<'a>>,
        problems: &mut Vec<Problem>,
    ) -> ConfigResult {
        for name in names.texts()? {
            let found = self.list.iter().find(|known| known.name.value == name.value);
            match found {
                Some(snippet) => {
                    snippet.is_used.set(true);
                    used.push(snippet);
                }
                None => {
                    let known = self.list.iter().map(|known| &*known.name.value);
                    let hint = match suggest(&name.value, known) {
                        Some(suggestion) => format!("; did you mean `{suggestion}`?"),
                        None => format!("; it is a section [snippets.{}]", name.value),
                    };
                    problems
                        .push(name.problem(format!("there is no snippet `{}`{hint}", name.value)));
                }
            }
        }
        Ok(())
    }
}
