//! `map`: values by the value of a variable. Pure.

use super::tree::Directive;
use crate::Target;
use crate::regex;

/// Server name of TLS in a stream that forwards the connection as it is.
pub(super) const SERVER_NAME: &str = "$ssl_preread_server_name";

/// A `map` block whose keys are texts and regular expressions.
pub(super) struct Map<'a> {
    /// The variable on which the values depend, with its `$`.
    pub(super) source: &'a str,
    pub(super) entries: Vec<(MapKey<'a>, &'a str)>,
    pub(super) default: &'a str,
    target: &'a dyn Target,
}

pub(super) enum MapKey<'a> {
    Text(&'a str),
    Regex(String),
}

impl<'a> Map<'a> {
    /// Reads a block; `None` if it has something other than keys with values.
    pub(super) fn of(directive: &'a Directive, target: &'a dyn Target) -> Option<Map<'a>> {
        let mut map = Map { source: directive.arg(0), entries: Vec::new(), default: "", target };
        for entry in directive.children() {
            let [value] = &*entry.args else {
                match &*entry.name {
                    "volatile" => continue,
                    // Keys may be `*.example.org`, as in streams.
                    "hostnames" if map.source == SERVER_NAME => continue,
                    _ => return None,
                }
            };
            match &*entry.name {
                "default" => map.default = value,
                "include" => return None,
                name => map.entries.push((MapKey::of(name, target)?, value)),
            }
        }
        Some(map)
    }

    /// Returns the value for a value of the source: texts precede regular expressions.
    pub(super) fn value(&self, input: &str) -> &'a str {
        let find = |is_it: &dyn Fn(&MapKey<'a>) -> bool| {
            self.entries.iter().find(|(key, _)| is_it(key)).map(|(_, value)| *value)
        };
        let is_text = |key: &MapKey<'a>| matches!(key, MapKey::Text(text) if text.eq_ignore_ascii_case(input));
        let is_match = |key: &MapKey<'a>| match key {
            MapKey::Text(_) => false,
            MapKey::Regex(regex) => self.target.matches(regex, input),
        };
        find(&is_text).or_else(|| find(&is_match)).unwrap_or(self.default)
    }
}

impl<'a> MapKey<'a> {
    /// Reads a key; `None` for an expression without an equivalent.
    fn of(name: &'a str, target: &dyn Target) -> Option<MapKey<'a>> {
        match (name.strip_prefix("~*"), name.strip_prefix('~')) {
            (Some(pattern), _) => regex::of_modifier(target, "~*", pattern).map(MapKey::Regex),
            (_, Some(pattern)) => regex::of_modifier(target, "~", pattern).map(MapKey::Regex),
            // A backslash precedes a text that would be a special word.
            _ => Some(MapKey::Text(name.strip_prefix('\\').unwrap_or(name))),
        }
    }
}

/// Returns true for the value of a condition that is met.
pub(super) fn is_true(value: &str) -> bool {
    !matches!(value, "" | "0")
}
