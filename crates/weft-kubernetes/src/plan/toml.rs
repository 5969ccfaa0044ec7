//! Values of a configuration file that is being composed.

use std::fmt::Write as _;

/// Returns a text in quotes, with all characters escaped that end it.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                // Writing to a string never fails.
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a text that is no template: its braces begin no placeholder.
pub(super) fn literal(text: &str) -> String {
    text.replace('{', "{{")
}

/// Returns a list of texts; a list of one text is that text.
pub(super) fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<_> = texts.into_iter().map(quoted).collect();
    match &texts[..] {
        [one] => one.clone(),
        texts => format!("[{}]", texts.join(", ")),
    }
}

/// Keys and values of a table in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table(Vec<(String, String)>);

impl Table {
    /// Sets a key to a value in TOML, in place of its former value.
    pub(super) fn set(&mut self, key: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Sets a key to a text.
    pub(super) fn set_text(&mut self, key: &str, text: &str) {
        self.set(key, quoted(text));
    }

    /// Sets a key to a table, unless that is empty.
    pub(super) fn set_table(&mut self, key: &str, table: &Table) {
        if !table.is_empty() {
            self.set(key, table.show());
        }
    }

    /// Sets the keys of another table.
    pub(super) fn extend(&mut self, other: &Table) {
        other.0.iter().for_each(|(key, value)| self.set(key, value.clone()));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(known, _)| known == key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys and values, each as it is written in a file.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(key, value)| format!("{} = {value}", show_key(key)))
    }

    pub(super) fn show(&self) -> String {
        format!("{{ {} }}", self.lines().collect::<Vec<_>>().join(", "))
    }
}

/// Returns a key as it is written in a file.
fn show_key(key: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    match !key.is_empty() && key.bytes().all(is_bare) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_texts() {
        for (text, expected) in [
            ("a", r#""a""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("a\nb\u{7f}", r#""a\u000Ab\u007F""#),
            ("días", r#""días""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn writes_tables() {
        let mut inner = Table::default();
        inner.set_text("X-A", "1");
        inner.set_text("+X B", "2");
        let mut table = Table::default();
        table.set_table("fields", &inner);
        table.set_table("none", &Table::default());
        assert_eq!(table.show(), r#"{ fields = { X-A = "1", "+X B" = "2" } }"#);
    }
}
