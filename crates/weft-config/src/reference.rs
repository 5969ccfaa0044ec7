//! Keys for reference documentation.

use std::ops::RangeInclusive;

use crate::key::{SectionKey, ValueType};
use crate::units::show_size;

/// A key in reference documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceEntry {
    /// Name in a file.
    pub name: &'static str,
    /// Option of the command line with its argument, such as `--listen ADDR`. Empty if there is
    /// none.
    pub option: String,
    /// Type of the value, with its limits.
    pub value: String,
    /// Default as in a file. Empty if there is none.
    pub default: String,
    /// Meaning, as a noun phrase.
    pub meaning: &'static str,
}

/// Returns the entries of keys.
pub fn reference<S, K: SectionKey<S>>(keys: &[K], defaults: &S) -> Vec<ReferenceEntry> {
    let entry = |key: &K| {
        let spec = key.spec();
        let option = match spec.flag {
            "" => String::new(),
            flag => format!("--{flag} {}", spec.argument).trim_end().to_owned(),
        };
        let default = key.show(defaults);
        ReferenceEntry {
            name: spec.name,
            option,
            value: value_cell(spec.value_type),
            default: if default == "[]" { String::new() } else { default },
            meaning: spec.help,
        }
    };
    keys.iter().map(entry).collect()
}

/// Returns a table of entries, in Markdown. It has a column of options if a key is also an option.
pub fn reference_table(entries: &[ReferenceEntry]) -> String {
    let has_options = entries.iter().any(|entry| !entry.option.is_empty());
    let (option, line) = if has_options { ("option | ", "--- | ") } else { ("", "") };
    let mut table =
        format!("| key | {option}value | default | meaning |\n| --- | {line}--- | --- | --- |\n");
    for ReferenceEntry { name, option, value, default, meaning } in entries {
        let option = match (has_options, &**option) {
            (false, _) => String::new(),
            (true, "") => "| ".to_owned(),
            (true, option) => format!("`{option}` | "),
        };
        let default = match &**default {
            "" => String::new(),
            default => format!("`{default}` "),
        };
        table.push_str(&format!("| `{name}` | {option}{value} | {default}| {meaning} |\n"));
    }
    table
}

/// Returns the type of a value, with its limits. The meaning of a key lists the words of a choice.
fn value_cell(value_type: ValueType<'_>) -> String {
    match value_type {
        ValueType::Bool => "boolean".to_owned(),
        ValueType::Count(range) => {
            format!("number{}", limits(range, u32::MAX.into(), |it| it.to_string()))
        }
        ValueType::Size(range) => format!("size{}", limits(range, 1 << 40, show_size)),
        ValueType::Time => "time".to_owned(),
        ValueType::Text => "text".to_owned(),
        ValueType::Texts => "text or list".to_owned(),
        ValueType::Path => "path".to_owned(),
        ValueType::WordOrPath(_) => "word or path".to_owned(),
        ValueType::Choice(_) => "word".to_owned(),
        ValueType::BoolOrText => "boolean or text".to_owned(),
        ValueType::Rules | ValueType::Fields => "text, list or table".to_owned(),
        ValueType::Pairs => "table".to_owned(),
        ValueType::BoolOrPairs => "boolean or table".to_owned(),
        ValueType::Custom(custom) => custom.shape.to_owned(),
    }
}

/// Shows a range. An end that is not below `unlimited` is not shown.
fn limits(range: &RangeInclusive<u64>, unlimited: u64, show: fn(u64) -> String) -> String {
    match (*range.start(), *range.end()) {
        (0, end) if end >= unlimited => String::new(),
        (start, end) if end >= unlimited => format!(" from {}", show(start)),
        (start, end) => format!(" from {} to {}", show(start), show(end)),
    }
}
