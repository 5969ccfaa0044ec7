//! The location of a path that a location passes requests on to: by an index, or by the last path
//! of `try_files`.

use super::{Location, Pattern};
use crate::nginx::tree::{Directive, named};
use crate::regex;

/// Returns the location of a path, if it is another one: an exact path, an expression, or a longer
/// prefix.
pub(super) fn other_location<'a>(location: &Location<'a>, path: &str) -> Option<&'a Directive> {
    let target = location.global.target;
    let own_length = match &location.pattern {
        Pattern::Prefix(prefix) => prefix.len(),
        _ => 0,
    };
    let others = || {
        let all = named(location.server.children(), "location");
        all.filter(|other| !location.directive.is_some_and(|own| std::ptr::eq(own, *other)))
    };
    let is_exact = |other: &&Directive| other.arg(0) == "=" && other.arg(1) == path;
    let is_match = |other: &&Directive| {
        let expression = regex::of_modifier(target, other.arg(0), other.arg(1));
        expression.is_some_and(|expression| target.matches(&expression, path))
    };
    let is_longer = |other: &&Directive| {
        let prefix = match &*other.args {
            [prefix] => &**prefix,
            [modifier, prefix] if modifier == "^~" => &**prefix,
            _ => return false,
        };
        prefix.len() > own_length && path.starts_with(prefix)
    };
    let exact = others().find(is_exact);
    let longer =
        || others().filter(is_longer).max_by_key(|other| other.args.last().map(String::len));
    let has_expressions = || {
        let preferred = longer().map(|other| other.arg(0) == "^~");
        !preferred.unwrap_or(location.is_preferred)
    };
    exact.or_else(|| others().filter(|_| has_expressions()).find(is_match)).or_else(longer)
}
