//! Formatting of values as in a file.

use std::path::PathBuf;
use std::time::Duration;

use super::location::Located;
use super::units::show_time;

/// A string in quotes, escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A table of quoted strings; empty without entries.
pub(super) fn table(pairs: impl Iterator<Item = (String, String)>) -> String {
    let pairs = pairs.map(|(name, value)| format!("{} = {}", quoted(&name), quoted(&value)));
    match pairs.collect::<Vec<_>>() {
        pairs if pairs.is_empty() => String::new(),
        pairs => format!("{{ {} }}", pairs.join(", ")),
    }
}

/// A list of quoted strings.
pub(crate) fn quoted_list<S: AsRef<str>>(items: impl Iterator<Item = S>) -> String {
    list(items.map(|item| quoted(item.as_ref())))
}

pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

pub(super) fn quoted_addresses(addresses: &[Located<String>]) -> String {
    quoted_list(addresses.iter().map(|address| &address.value))
}

pub(super) fn quoted_time(time: Duration) -> String {
    quoted(&show_time(time))
}

pub(super) fn quoted_path(path: Option<&Located<PathBuf>>) -> String {
    path.map_or_else(String::new, |path| quoted(&path.value.to_string_lossy()))
}
