//! Formatting of values as in a file.

use std::path::Path;
use std::time::Duration;

use crate::location::Located;
use crate::units::show_time;

/// Returns a string in quotes, escaped.
pub fn quoted(text: &str) -> String {
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

/// Returns a table of quoted strings; empty without entries.
pub fn quoted_table(pairs: impl Iterator<Item = (String, String)>) -> String {
    let pairs = pairs.map(|(name, value)| format!("{} = {}", quoted(&name), quoted(&value)));
    match pairs.collect::<Vec<_>>() {
        pairs if pairs.is_empty() => String::new(),
        pairs => format!("{{ {} }}", pairs.join(", ")),
    }
}

/// Returns a list of quoted strings.
pub fn quoted_list<S: AsRef<str>>(items: impl Iterator<Item = S>) -> String {
    shown_list(items.map(|item| quoted(item.as_ref())))
}

/// Returns a list of formatted values.
pub fn shown_list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// Returns a list of quoted texts.
pub fn quoted_texts(texts: &[Located<String>]) -> String {
    quoted_list(texts.iter().map(|text| &text.value))
}

/// Returns a quoted duration.
pub fn quoted_time(time: Duration) -> String {
    quoted(&show_time(time))
}

/// Returns a quoted path; empty without a path. A path that is not valid UTF-8 is converted
/// lossily.
pub fn quoted_path(path: Option<impl AsRef<Path>>) -> String {
    path.map_or_else(String::new, |path| quoted(&path.as_ref().to_string_lossy()))
}
