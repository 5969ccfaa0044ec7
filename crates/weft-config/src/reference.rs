//! Tables of keys for reference documentation, in Markdown.

use crate::key::SectionKey;

/// Returns the table of a section whose keys are also options.
pub fn reference_table<S, K: SectionKey<S>>(
    keys: impl IntoIterator<Item = K>,
    defaults: &S,
) -> String {
    let mut table = "| key | option | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for key in keys {
        let option = match key.spec().flag {
            "" => String::new(),
            flag => format!("`{}` ", format!("--{flag} {}", key.spec().argument).trim_end()),
        };
        let (default, meaning) = (default_cell(&key, defaults), meaning(&key));
        table.push_str(&format!("| `{}` | {option}| {default}| {meaning} |\n", key.name()));
    }
    table
}

/// Returns the table of a section whose keys are no options.
pub fn reference_table_without_options<S, K: SectionKey<S>>(
    keys: impl IntoIterator<Item = K>,
    defaults: &S,
) -> String {
    let mut table = "| key | default | meaning |\n| --- | --- | --- |\n".to_owned();
    for key in keys {
        let (default, meaning) = (default_cell(&key, defaults), meaning(&key));
        table.push_str(&format!("| `{}` | {default}| {meaning} |\n", key.name()));
    }
    table
}

fn default_cell<S>(key: &impl SectionKey<S>, defaults: &S) -> String {
    match key.show(defaults) {
        none if none.is_empty() || none == "[]" => String::new(),
        default => format!("`{default}` "),
    }
}

fn meaning<S>(key: &impl SectionKey<S>) -> String {
    let list = if key.spec().is_list() { "; a list" } else { "" };
    format!("{}{list}", key.spec().help)
}
