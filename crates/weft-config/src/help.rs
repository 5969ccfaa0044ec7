//! The help text of options, in lines of at most 80 characters.

use crate::key::SectionKey;

/// A space that is not a line break opportunity.
const NO_BREAK: char = '\u{a0}';

/// Column in which the descriptions begin.
const TEXT_COLUMN: usize = 19;

/// Maximum length of a line.
const WIDTH: usize = 80;

/// Appends an option and its description to a help text.
pub fn push_option(help: &mut String, head: &str, text: &str) {
    let head = format!("  {head}");
    // A long option is on a line of its own.
    let mut line = match head.len() + 2 > TEXT_COLUMN {
        true => format!("{head}\n{:TEXT_COLUMN$}", ""),
        false => format!("{head:TEXT_COLUMN$}"),
    };
    let mut column = TEXT_COLUMN;
    for (i, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if i > 0 && column + 1 + length > WIDTH {
            line.push_str(&format!("\n{:TEXT_COLUMN$}", ""));
            column = TEXT_COLUMN;
        } else if i > 0 {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += length;
    }
    help.push_str(&line.replace(NO_BREAK, " "));
    help.push('\n');
}

/// Returns the option of a key, and its description with its default; `None` for a key without an
/// option.
pub fn option_entry<S>(key: &impl SectionKey<S>, defaults: &S) -> Option<(String, String)> {
    let spec = key.spec();
    if spec.flag.is_empty() {
        return None;
    }
    let default = key.show(defaults);
    let head = match (spec.is_switch(), &*default) {
        (true, "true") => format!("--{0}, --no-{0}", spec.flag),
        (true, _) => format!("--{}", spec.flag),
        (false, _) => format!("--{} {}", spec.flag, spec.argument),
    };
    let default = default.trim_start_matches(['[', '"']).trim_end_matches(['"', ']']);
    let repeated = if spec.is_list() { "; may be repeated" } else { "" };
    let text = match (spec.is_switch(), default) {
        (true, "true") => format!("{} [default]", spec.help),
        (true, _) | (_, "") => format!("{}{repeated}", spec.help),
        (false, default) => {
            format!("{}{repeated} [default:{NO_BREAK}{default}]", spec.help)
        }
    };
    Some((head, text))
}
