//! `map` → tables of `[maps]`.

use std::cell::RefCell;

use super::super::outcome::Outcome;
use super::super::tree::Directive;
use super::placeholders::template;
use crate::Target;
use crate::document::{Document, Table};
use crate::values::is_early;

/// Maximum number of tables, as in `[maps]`.
const MAX_MAPS: usize = 64;

/// The tables of a configuration, by name.
#[derive(Default)]
pub(in crate::caddy) struct Maps(RefCell<Vec<(String, Table)>>);

impl Maps {
    /// Adds a table; equal ones are the same. Returns its placeholder; `None` if there are too many.
    fn add(&self, name: &str, table: Table) -> Option<String> {
        let mut all = self.0.borrow_mut();
        if let Some((known, _)) = all.iter().find(|(_, known)| *known == table) {
            return Some(format!("{{map.{known}}}"));
        }
        if all.len() == MAX_MAPS {
            return None;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let is_free = |name: &String| !all.iter().any(|(known, _)| known == name);
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let name = std::iter::once(name.clone()).chain(numbered).find(is_free)?;
        all.push((name.clone(), table));
        Some(format!("{{map.{name}}}"))
    }

    /// Writes the tables whose values the document has.
    pub(in crate::caddy) fn write(&self, document: &mut Document) {
        let text = document.text_of_tables();
        let is_used = |(name, _): &&(String, Table)| text.contains(&format!("{{map.{name}}}"));
        document.maps = self.0.borrow().iter().filter(is_used).cloned().collect();
    }
}

/// Returns the template for a variable that a `map` sets; `None` if it has no equivalent. The first
/// row that matches applies.
pub(in crate::caddy) fn value(
    maps: &Maps,
    directive: &Directive,
    index: usize,
    outcome: &Outcome,
    target: &dyn Target,
) -> Option<String> {
    let rows = || directive.children().iter().filter(|row| row.arg(index) != "-");
    let default = rows().find(|row| row.name == "default").map(|row| row.arg(index));
    let others: Vec<_> = rows().filter(|row| row.name != "default").collect();
    if let Some(default) = default.filter(|it| others.iter().all(|row| row.arg(index) == *it)) {
        return template(default, outcome).ok();
    }
    let input = early(directive.arg(0), outcome).filter(|input| input.contains('{'))?;
    let (mut values, mut expressions) = (Table::default(), Vec::new());
    for row in others {
        let (key, is_expression) = match row.name.strip_prefix('~') {
            Some(regex) if !target.is_route_key(&format!("~ {regex}")) => return None,
            Some(regex) => {
                expressions.push(regex);
                (format!("~ {regex}"), true)
            }
            None if expressions.iter().any(|regex| target.matches(regex, &row.name)) => continue,
            None if row.name.starts_with(['=', '!']) => (format!("= {}", row.name), false),
            None => (row.name.clone(), false),
        };
        let text = match is_expression {
            true => with_groups(row.arg(index)),
            false => row.arg(index).to_owned(),
        };
        let value = early(&text, outcome).filter(|it| is_expression || !it.contains("{re."))?;
        if values.get(&key).is_none() {
            values.set(key, value);
        }
    }
    let mut table = Table::default();
    table.set("input", input);
    table.set("values", values);
    let default = early(default.unwrap_or_default(), outcome)?;
    table.set_some("default", Some(default).filter(|default| !default.is_empty()));
    let name = directive.arg(index + 1).trim_matches(['{', '}']);
    maps.add(name, table)
}

/// Converts a text to a template whose value is known before a request has a route.
fn early(text: &str, outcome: &Outcome) -> Option<String> {
    let template = template(text, outcome).ok()?;
    let template = outcome.with_path_of_request(&template)?;
    is_early(&template).then_some(template)
}

/// Replaces the groups of an expression, such as `${1}`.
fn with_groups(text: &str) -> String {
    let mut text = text.to_owned();
    for group in 1..10 {
        text = text.replace(&format!("${{{group}}}"), &format!("{{re.{group}}}"));
        text = text.replace(&format!("${group}"), &format!("{{re.{group}}}"));
    }
    text
}
