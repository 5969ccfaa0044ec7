//! All `map`, `geo` and `split_clients` of a configuration that have equivalents in `[maps]`.

use std::collections::BTreeMap;

use super::table::{self, NamedTable};
use crate::Target;
use crate::document::{Document, Table};
use crate::nginx::tree::Directive;
use crate::nginx::variables::Variables;

/// Maximum depth of maps in the values of maps, as in `[maps]`.
const MAX_CHAIN: usize = 4;

/// Maximum number of maps.
const MAX_MAPS: usize = 64;

/// Maximum number of values that are told apart.
const MAX_VALUES: usize = 64;

/// Tables by the name of their variable.
pub(crate) struct ValueTables<'a> {
    tables: BTreeMap<&'a str, NamedTable>,
    /// Names in the order of the configuration.
    names: Vec<&'a str>,
}

impl<'a> ValueTables<'a> {
    pub(crate) fn of(http: &'a [Directive], target: &'a dyn Target) -> ValueTables<'a> {
        let mut found = ValueTables { tables: BTreeMap::new(), names: Vec::new() };
        let is_table = |it: &&Directive| matches!(&*it.name, "map" | "geo" | "split_clients");
        let all: Vec<_> = http.iter().filter(is_table).take(MAX_MAPS).collect();
        let mut names: Vec<String> = all.iter().map(|it| name_of(it).to_owned()).collect();
        names.sort();
        names.dedup();
        // Maps that depend on a map without an equivalent have no equivalent either.
        loop {
            let variables = Variables::of_maps(target, names.clone());
            let tables = all.iter().filter(|it| names.iter().any(|name| name == name_of(it)));
            let tables = tables.filter_map(|it| Some((name_of(it), table_of(it, &variables)?)));
            found.tables = tables.collect();
            if found.tables.len() == names.len() {
                break;
            }
            names.retain(|name| found.tables.contains_key(&**name));
        }
        for name in all.iter().map(|it| name_of(it)) {
            if found.tables.contains_key(name) && !found.names.contains(&name) {
                found.names.push(name);
            }
        }
        found
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.names.iter().copied()
    }

    /// Returns all values of a variable, the usual one last; `None` if they depend on the request.
    pub(crate) fn values(&self, name: &str) -> Option<Vec<String>> {
        self.values_within(name, MAX_CHAIN)
    }

    fn values_within(&self, name: &str, depth: usize) -> Option<Vec<String>> {
        let table = self.tables.get(name).filter(|_| depth > 0)?;
        let mut found = Vec::<String>::new();
        for value in &table.values {
            let of_value = match value.strip_prefix('$') {
                _ if !value.contains('$') => vec![value.clone()],
                Some(name) => self.values_within(name, depth - 1)?,
                None => return None,
            };
            // A value that is known already moves to the end: the last one is the usual one.
            for value in of_value {
                found.retain(|known| *known != value);
                found.push(value);
            }
        }
        (found.len() <= MAX_VALUES).then_some(found)
    }

    /// Writes the tables whose values the document has.
    pub(crate) fn write(&self, document: &mut Document) {
        let mut used: Vec<&str> = Vec::new();
        let mut texts = vec![document.text_of_tables()];
        while let Some(text) = texts.pop() {
            for name in self.names() {
                if !used.contains(&name) && text.contains(&format!("{{map.{name}}}")) {
                    used.push(name);
                    texts.push(self.tables[name].table.show());
                }
            }
        }
        let tables = self.names().filter(|name| used.contains(name));
        let table = |name: &str| (name.to_owned(), self.tables[name].table.clone());
        document.maps = tables.map(table).collect::<Vec<(String, Table)>>();
    }
}

/// Returns the name of the variable that a directive sets, without its `$`.
fn name_of(directive: &Directive) -> &str {
    directive.args.last().map_or("", |name| name.trim_start_matches('$'))
}

fn table_of(directive: &Directive, variables: &Variables<'_>) -> Option<NamedTable> {
    match &*directive.name {
        "map" => table::of_map(directive, variables),
        "geo" => table::of_geo(directive),
        _ => table::of_split(directive, variables),
    }
}
