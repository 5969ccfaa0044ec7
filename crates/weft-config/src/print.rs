//! Sections with all of their values, as in a file.

use crate::key::SectionKey;

/// Returns a line `name = value` for each key that has a value.
pub fn print_lines<S, K: SectionKey<S>>(keys: impl IntoIterator<Item = K>, section: &S) -> String {
    let shown = keys.into_iter().map(|key| (key.name(), key.show(section)));
    let set = shown.filter(|(_, shown)| !shown.is_empty());
    set.map(|(name, shown)| format!("{name} = {shown}\n")).collect()
}

/// Returns `name = value` for each key of a table that has a value. Omits empty lists, except for
/// lists that replace a default.
pub fn print_entries<S, K: SectionKey<S>>(
    keys: impl IntoIterator<Item = K>,
    section: &S,
    defaults: &S,
) -> Vec<String> {
    let shown = keys.into_iter();
    let shown = shown.map(|key| (key.name(), key.show(section), key.show(defaults)));
    let set = shown
        .filter(|(_, shown, default)| !shown.is_empty() && (shown != "[]" || shown != default));
    set.map(|(name, shown, _)| format!("{name} = {shown}")).collect()
}
