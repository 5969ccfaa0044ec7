//! Keys and values of `map`. Pure.

use crate::Target;
use crate::nginx::tree::Directive;
use crate::regex;

/// Server name of TLS in a stream that forwards the connection as it is.
pub(crate) const SERVER_NAME: &str = "$ssl_preread_server_name";

/// A `map` block whose keys are texts and regular expressions.
pub(crate) struct Map<'a> {
    /// The variable on which the values depend, with its `$`.
    pub(crate) source: &'a str,
    pub(crate) entries: Vec<(MapKey<'a>, &'a str)>,
    pub(crate) default: &'a str,
    target: &'a dyn Target,
}

pub(crate) enum MapKey<'a> {
    Text(&'a str),
    Regex(String),
}

impl<'a> Map<'a> {
    /// Reads a block; `None` if it has something other than keys with values.
    pub(crate) fn of(directive: &'a Directive, target: &'a dyn Target) -> Option<Map<'a>> {
        let has_hostnames = directive.children().iter().any(|it| it.name == "hostnames");
        // Keys may be `*.example.org`, as in streams.
        let is_permitted = !has_hostnames || directive.arg(0) == SERVER_NAME;
        if is_permitted { Map::of_names(directive, target) } else { None }
    }

    /// Reads a block whose keys may be names of hosts with asterisks.
    pub(crate) fn of_names(directive: &'a Directive, target: &'a dyn Target) -> Option<Map<'a>> {
        let mut map = Map { source: directive.arg(0), entries: Vec::new(), default: "", target };
        for entry in directive.children() {
            let [value] = &*entry.args else {
                match &*entry.name {
                    "volatile" | "hostnames" => continue,
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
    pub(crate) fn value(&self, input: &str) -> &'a str {
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
pub(crate) fn is_true(value: &str) -> bool {
    !matches!(value, "" | "0")
}
