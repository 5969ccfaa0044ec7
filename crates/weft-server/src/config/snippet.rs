//! `[snippets.NAME]`: keys that hosts and routes take over by `use = ["NAME"]`.

use std::cell::Cell;
use std::collections::HashSet;

use super::location::{ConfigResult, Problem};
use super::options::{OPTIONS, RouteOptions};
use super::value::{Name, Value};
use crate::base::suggestion::suggest;

/// Keys of a table with their values.
pub(super) type Entries<'a> = Vec<(Name, Value<'a>)>;

/// The snippets of all files.
#[derive(Default)]
pub(super) struct Snippets<'a> {
    list: Vec<Snippet<'a>>,
}

struct Snippet<'a> {
    name: Name,
    entries: Entries<'a>,
    is_used: Cell<bool>,
}

impl<'a> Snippets<'a> {
    /// Reads the tables of all sections `[snippets]`.
    pub(super) fn read(entries: Entries<'a>, problems: &mut Vec<Problem>) -> Snippets<'a> {
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

    /// Returns the snippets that no host and no route uses.
    pub(super) fn unused(&self) -> impl Iterator<Item = &Name> {
        self.list.iter().filter(|snippet| !snippet.is_used.get()).map(|snippet| &snippet.name)
    }

    /// Reads the options of a host or a route from its table and from the snippets that it uses.
    /// Returns the other keys of both. `is_own` has the keys that are not options in this table.
    ///
    /// Keys of the table take precedence over those of snippets, and later snippets over earlier
    /// ones. Options are inherited from a snippet by the rules of [`RouteOptions::or`].
    pub(super) fn read_options(
        &self,
        table: Entries<'a>,
        is_own: impl Fn(&str) -> bool,
        problems: &mut Vec<Problem>,
    ) -> (RouteOptions, Entries<'a>) {
        let (uses, table): (Entries<'_>, Entries<'_>) =
            table.into_iter().partition(|(name, _)| name.value == "use");
        let mut used = Vec::new();
        for (_, names) in uses {
            self.find(&names, &mut used, problems).unwrap_or_else(|problem| problems.push(problem));
        }
        let (mut options, mut others) = (RouteOptions::default(), Entries::new());
        let mut names = HashSet::new();
        let snippets = used.iter().rev().map(|snippet| snippet.entries.clone());
        for entries in std::iter::once(table).chain(snippets) {
            let mut layer = RouteOptions::default();
            for (name, value) in entries {
                match OPTIONS.iter().find(|key| key.name == name.value && !is_own(key.name)) {
                    Some(key) => problems.extend(key.set_value(&mut layer, &value).err()),
                    None if names.insert(name.value.clone()) => others.push((name, value)),
                    None => {}
                }
            }
            options = options.or(&layer);
        }
        (options, others)
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
