//! Tables of keys for reference documentation, in Markdown.

use std::ops::RangeInclusive;

use crate::key::{SectionKey, ValueType};
use crate::units::show_size;

/// Returns a table with name, type, default and meaning of each key. It has a column of options if
/// a key is also an option.
pub fn reference_table<S, K: SectionKey<S>>(keys: &[K], defaults: &S) -> String {
    let has_options = keys.iter().any(|key| !key.spec().flag.is_empty());
    let (option, line) = if has_options { ("option | ", "--- | ") } else { ("", "") };
    let mut table =
        format!("| key | {option}value | default | meaning |\n| --- | {line}--- | --- | --- |\n");
    for key in keys {
        let spec = key.spec();
        let option = match (has_options, spec.flag) {
            (false, _) => String::new(),
            (true, "") => "| ".to_owned(),
            (true, flag) => format!("`{}` | ", format!("--{flag} {}", spec.argument).trim_end()),
        };
        let value = value_cell(spec.value_type);
        let default = match key.show(defaults) {
            none if none.is_empty() || none == "[]" => String::new(),
            default => format!("`{default}` "),
        };
        table.push_str(&format!(
            "| `{}` | {option}{value} | {default}| {} |\n",
            spec.name, spec.help
        ));
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
