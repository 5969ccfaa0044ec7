//! `map`, `geo` and `split_clients` → tables of `[maps]`.

use super::map::{Map, MapKey};
use super::networks::networks;
use crate::document::Table;
use crate::nginx::tree::Directive;
use crate::nginx::variables::{Variables, split_name};
use crate::regex;
use crate::values::is_early;

/// A table, and the values that it has.
pub(super) struct NamedTable {
    pub(super) table: Table,
    /// All values as they are written in nginx, the usual one last.
    pub(super) values: Vec<String>,
}

/// Converts a text to a template whose value is known before a request has a route.
pub(crate) fn early_template(variables: &Variables<'_>, text: &str) -> Option<String> {
    let mut names = text.match_indices('$').map(|(at, _)| split_name(&text[at + 1..]).0);
    // In `[maps]` there is neither a server nor its port.
    let is_of_server = |name: &str| matches!(name, "server_name" | "server_port");
    if names.any(is_of_server) {
        return None;
    }
    let template = variables.template(text).ok()?;
    is_early(&template).then_some(template)
}

/// Translates a `map`.
pub(super) fn of_map(directive: &Directive, variables: &Variables<'_>) -> Option<NamedTable> {
    let target = variables.target;
    let has_hostnames = directive.children().iter().any(|it| it.name == "hostnames");
    let map = Map::of_names(directive, target)?;
    let input = early_template(variables, map.source)?;
    if !input.contains('{') {
        return None;
    }
    let mut entries = Vec::new();
    let mut values = Vec::new();
    for (key, value) in &map.entries {
        let (class, key, groups) = match key {
            MapKey::Text(text) if has_hostnames => {
                let (class, key) = host_key(text);
                (class, key, None)
            }
            MapKey::Text(text) => {
                let key = text_key(map.source, text);
                (Class::of_text(&key), key, None)
            }
            MapKey::Regex(regex) => (Class::Regex, format!("~ {regex}"), Some(regex)),
        };
        let of_key = match groups {
            Some(regex) => variables.with_groups(regex),
            None => variables.clone(),
        };
        entries.push((class, key, early_template(&of_key, value)?));
        values.push((*value).to_owned());
    }
    // Expressions in place of texts precede other expressions, as texts do.
    entries.sort_by_key(|(class, ..)| *class);
    let mut pairs = Table::default();
    for (_, key, value) in entries {
        if pairs.get(&key).is_none() {
            pairs.set(key, value);
        }
    }
    let default = early_template(variables, map.default)?;
    values.push(map.default.to_owned());
    let mut table = Table::default();
    table.set("input", input);
    if !pairs.is_empty() {
        table.set("values", pairs);
    }
    table.set_some("default", Some(default).filter(|default| !default.is_empty()));
    Some(NamedTable { table, values })
}

/// Precedence of the keys of a map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Text,
    TextWithoutCase,
    /// A longer domain precedes a shorter one.
    Subdomains(std::cmp::Reverse<usize>),
    Domains(std::cmp::Reverse<usize>),
    Regex,
}

impl Class {
    fn of_text(key: &str) -> Class {
        if key.starts_with("~ ") { Class::TextWithoutCase } else { Class::Text }
    }
}

/// Returns the key for a text, whose case nginx ignores.
fn text_key(source: &str, text: &str) -> String {
    const LOWER: [&str; 3] = ["$host", "$http_host", "$scheme"];
    const FIXED: [&str; 3] = ["$request_method", "$ssl_protocol", "$ssl_cipher"];
    match text {
        text if LOWER.contains(&source) => text.to_ascii_lowercase(),
        text if FIXED.contains(&source) => text.to_owned(),
        text if text.bytes().any(|byte| byte.is_ascii_alphabetic()) => {
            format!("~ (?i)^{}$", regex::escape(text))
        }
        text if text.starts_with(['~', '=', '!']) => format!("= {text}"),
        text => text.to_owned(),
    }
}

/// Returns the key for the name of a host, which may begin or end with an asterisk.
fn host_key(name: &str) -> (Class, String) {
    use std::cmp::Reverse;
    let name = name.to_ascii_lowercase();
    let len = Reverse(name.len());
    if let Some(domain) = name.strip_prefix("*.") {
        return (Class::Subdomains(len), format!("~ \\.{}$", regex::escape(domain)));
    }
    if let Some(domain) = name.strip_prefix('.') {
        return (Class::Subdomains(len), format!("~ (?:^|\\.){}$", regex::escape(domain)));
    }
    match name.strip_suffix(".*") {
        Some(begin) => (Class::Domains(len), format!("~ ^{}\\.", regex::escape(begin))),
        None => (Class::Text, name),
    }
}

/// Translates a `geo` of the address of the client.
pub(super) fn of_geo(directive: &Directive) -> Option<NamedTable> {
    if let [source, _] = &*directive.args
        && source != "$remote_addr"
    {
        return None;
    }
    let has_ranges = directive.children().iter().any(|it| it.name == "ranges");
    let (mut clients, mut values, mut default) = (Table::default(), Vec::new(), String::new());
    for entry in directive.children() {
        match (&*entry.name, &*entry.args) {
            ("ranges", []) => {}
            ("default", [value]) => default.clone_from(value),
            // `proxy`, `delete` and others change the meaning of the networks.
            (key, [value]) if !value.contains('$') => {
                let found = networks(key, has_ranges)?;
                found.into_iter().for_each(|network| clients.set(network, plain(value)));
                values.push(value.clone());
            }
            _ => return None,
        }
    }
    let mut table = Table::default();
    if clients.is_empty() {
        return None;
    }
    table.set("client", clients);
    table.set_some("default", Some(plain(&default)).filter(|default| !default.is_empty()));
    values.push(default);
    Some(NamedTable { table, values })
}

/// Translates `split_clients`.
pub(super) fn of_split(directive: &Directive, variables: &Variables<'_>) -> Option<NamedTable> {
    let input = early_template(variables, directive.arg(0))?;
    let (mut shares, mut values, mut default) = (Table::default(), Vec::new(), String::new());
    for entry in directive.children() {
        let [value] = &*entry.args else { return None };
        if value.contains('$') {
            return None;
        }
        match &*entry.name {
            "*" => default.clone_from(value),
            share if share.ends_with('%') && !value.is_empty() && shares.get(value).is_none() => {
                shares.set(value.clone(), share);
                values.push(value.clone());
            }
            _ => return None,
        }
    }
    if shares.is_empty() || !input.contains('{') {
        return None;
    }
    let mut table = Table::default();
    table.set("input", input);
    table.set("split", shares);
    table.set_some("default", Some(plain(&default)).filter(|default| !default.is_empty()));
    values.push(default);
    Some(NamedTable { table, values })
}

/// Returns a template for a text without variables.
fn plain(text: &str) -> String {
    text.replace('{', "{{")
}
