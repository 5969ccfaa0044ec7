//! The precedence of locations. In nginx the longest prefix is determined first, and regular
//! expressions apply only in it and beside it, unless it is preferred (`^~`). In Weft the
//! first regular expression that matches applies, before all prefixes.

use std::cmp::Reverse;

use super::access::{denies_all, is_access_rule};
use super::{Location, Pattern};
use crate::nginx::tree::{Directive, named};
use crate::regex;

/// Arranges the locations of a server. A location that would lose paths to one with a shorter
/// prefix becomes a regular expression itself, or the paths are refused.
pub(crate) fn arrange(locations: &mut Vec<Location<'_>>) {
    let is_regex = |location: &Location<'_>| matches!(location.pattern, Pattern::Regex(_));
    if !locations.iter().any(is_regex) {
        return;
    }
    prefer(locations);
    let mut expressions: Vec<usize> =
        (0..locations.len()).filter(|index| is_regex(&locations[*index])).collect();
    // A prefix that becomes an expression must not precede longer ones either.
    while let Some(index) = expressions.pop() {
        expressions.extend(protect_longer_prefixes(locations, index));
    }
    locations.sort_by_cached_key(|location| {
        let is_preferred_prefix = is_regex(location) && is_of_prefix(location);
        (Reverse(prefix_lengths(location)), is_preferred_prefix)
    });
}

/// Converts preferred prefixes to regular expressions.
fn prefer(locations: &mut [Location<'_>]) {
    for location in locations.iter_mut().filter(|location| location.is_preferred) {
        let Pattern::Prefix(prefix) = &location.pattern else { continue };
        if replaces_prefix(location) {
            // The path behind the prefix is a group.
            let regex = format!("^{}(.*)$", regex::escape(prefix));
            location.variables = location.variables.with_groups(&regex);
            location.pattern = Pattern::Regex(regex);
            continue;
        }
        match location.directive.filter(|_| needs_prefix(location)) {
            Some(directive) => {
                let reason = "regular expressions have precedence over its prefix";
                location.lost(directive, reason);
            }
            None => location.pattern = Pattern::Regex(format!("^{}", regex::escape(prefix))),
        }
    }
}

/// Returns true if a folder or an upstream has another path in place of the prefix, and nothing else
/// changes the paths.
fn replaces_prefix(location: &Location<'_>) -> bool {
    let ends = |text: &str| text.ends_with('/') && !text.contains('$');
    let block = location.scope.innermost();
    let mut responders = block.iter().filter(|it| needs(it));
    let is_only = |it: &Directive| ends(it.arg(0)) && !it.arg(0).contains("unix:");
    let is_other = |it: &Directive| {
        matches!(&*it.name, "rewrite" | "location" | "try_files" | "if" | "index" | "autoindex")
    };
    let first = responders.next();
    matches!(&location.pattern, Pattern::Prefix(prefix) if prefix.ends_with('/'))
        && first.is_some_and(is_only)
        && responders.next().is_none()
        && !block.iter().any(is_other)
}

/// Returns true if the paths of a location are changed by its prefix.
fn needs_prefix(location: &Location<'_>) -> bool {
    location.scope.innermost().iter().any(needs)
}

fn needs(directive: &Directive) -> bool {
    let url = directive.arg(0).split_once("://").map_or("", |(_, rest)| rest);
    directive.name == "alias" || directive.name == "proxy_pass" && url.contains('/')
}

/// Returns true for an expression in place of a prefix that another path replaces, which is behind
/// it in a group.
pub(super) fn is_replaced_prefix(location: &Location<'_>) -> bool {
    let prefix = location.directive.and_then(prefix_of);
    let own = prefix.map(|prefix| format!("^{}(.*)$", regex::escape(prefix)));
    matches!((&location.pattern, own), (Pattern::Regex(regex), Some(own)) if *regex == own)
}

/// Keeps the paths of longer prefixes from a regular expression that applies only in a prefix.
/// Returns the indexes of prefixes that became regular expressions.
fn protect_longer_prefixes(locations: &mut Vec<Location<'_>>, index: usize) -> Vec<usize> {
    let mut changed = Vec::new();
    for other in longer_prefixes(&locations[index]) {
        let is_other = |location: &Location<'_>| {
            let is_same = location.directive.is_some_and(|own| std::ptr::eq(own, other));
            is_same && matches!(location.pattern, Pattern::Prefix(_))
        };
        let Some(at) = locations.iter().position(is_other) else { continue };
        let (regex, prefix) = (&locations[index], &locations[at]);
        let Some(common) = common_paths(regex, other) else { continue };
        if may_become_regex(prefix) {
            let escaped = regex::escape(prefix_of(other).unwrap_or_default());
            locations[at].pattern = Pattern::Regex(format!("^{escaped}"));
            changed.push(at);
            continue;
        }
        let own = regex.directive.filter(|own| !serves_other_contents(own));
        if let (Some(own), false) = (own, serves_other_contents(other)) {
            let reason = format!("it also applies to paths of `{}`", other.text());
            regex.lost(own, reason);
            continue;
        }
        let refused =
            prefix.derive(Pattern::Regex(common), prefix.scope.clone(), prefix.variables.clone());
        let text = regex.directive.map(Directive::text).unwrap_or_default();
        refused
            .refuse(other, format!("`{text}` would precede it, and the common paths are refused"));
        locations.push(refused);
    }
    changed
}

/// Returns the locations with longer prefixes that nginx prefers to the prefixes around a location,
/// and to the location itself if it is a prefix.
fn longer_prefixes<'a>(location: &Location<'a>) -> Vec<&'a Directive> {
    let longer = |(block, around): (&'a [Directive], &'a Directive)| {
        let prefix = prefix_of(around);
        named(block, "location").filter(move |other| {
            let other = prefix_of(other);
            prefix
                .zip(other)
                .is_some_and(|(own, other)| other.len() > own.len() && other.starts_with(own))
        })
    };
    around(location).into_iter().flat_map(longer).collect()
}

/// Returns a regular expression for the paths of a prefix to which another location would apply;
/// `None` if there are none. It may have further paths of the prefix.
fn common_paths(location: &Location<'_>, other: &Directive) -> Option<String> {
    let prefix = prefix_of(other)?;
    let all = format!("^{}", regex::escape(prefix));
    let directive = location.directive?;
    let target = location.global.target;
    let Some(inner) = regex::of_modifier(target, directive.arg(0), directive.arg(1)) else {
        return Some(all);
    };
    match regex::literal_prefix(&inner) {
        Some(literal) if !literal.starts_with(prefix) && !prefix.starts_with(literal) => None,
        _ if regex::is_in_segment(&inner) && !target.matches(&inner, prefix) => {
            Some(regex::behind(prefix, &inner))
        }
        _ => Some(all),
    }
}

/// Returns true if a location with a prefix may precede all others with its paths.
fn may_become_regex(location: &Location<'_>) -> bool {
    let block = location.scope.innermost();
    let has_prefixes = named(block, "location").any(|inner| prefix_of(inner).is_some());
    let is_regex = |other: &Directive| matches!(other.arg(0), "~" | "~*");
    let has_regexes =
        || around(location).iter().any(|(block, _)| named(block, "location").any(is_regex));
    !needs_prefix(location) && !has_prefixes && (denies_all(location) || !has_regexes())
}

/// Returns true if a location does not only change options of files.
fn serves_other_contents(directive: &Directive) -> bool {
    directive.children().iter().any(|child| {
        let name = &*child.name;
        let responds = name.ends_with("_pass") || matches!(name, "return" | "rewrite" | "if");
        let has_folder = matches!(name, "root" | "alias" | "try_files" | "index" | "autoindex");
        responds
            || has_folder
            || is_access_rule(name)
            || name == "location" && serves_other_contents(child)
    })
}

/// Returns the blocks around a location, the outermost first, each with the location in it.
fn around<'a>(location: &Location<'a>) -> Vec<(&'a [Directive], &'a Directive)> {
    let directive = location.directive.into_iter();
    let found = directive.map(|it| path_to(location.server.children(), it)).next();
    found.flatten().unwrap_or_default()
}

fn path_to<'a>(
    block: &'a [Directive],
    directive: &Directive,
) -> Option<Vec<(&'a [Directive], &'a Directive)>> {
    named(block, "location").find_map(|child| {
        if std::ptr::eq(child, directive) {
            return Some(vec![(block, child)]);
        }
        let mut path = path_to(child.children(), directive)?;
        path.insert(0, (block, child));
        Some(path)
    })
}

/// Returns the lengths of the prefixes around a location with a regular expression. The longest
/// prefix at the outermost level precedes others.
fn prefix_lengths(location: &Location<'_>) -> Vec<usize> {
    match location.pattern {
        Pattern::Regex(_) => {
            around(location).iter().filter_map(|(_, it)| prefix_of(it).map(str::len)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns true for a location whose directive has a prefix.
pub(super) fn is_of_prefix(location: &Location<'_>) -> bool {
    location.directive.is_some_and(|directive| prefix_of(directive).is_some())
}

/// Returns the prefix of a location.
fn prefix_of(directive: &Directive) -> Option<&str> {
    match &*directive.args {
        [path] if !path.starts_with('@') => Some(path),
        [modifier, path] if modifier == "^~" => Some(path),
        _ => None,
    }
}
