//! `weft fmt`: the canonical layout of a configuration file. Pure.
//!
//! - A section follows an empty line; further empty lines are removed, and so is indentation.
//! - There is one space around `=`, behind commas and inside of braces, and before a comment.
//! - A list that fits in a line has one line, otherwise one for each item.
//!
//! Comments, the order of keys and the way in which values are written stay as they are.

use toml_edit::{Array, Decor, DocumentMut, InlineTable, Item, RawString, Table, TomlError, Value};

/// Maximum length of a line with a list.
const WIDTH: usize = 100;

const INDENT: &str = "  ";

/// Returns the text in the canonical layout.
///
/// # Errors
/// The first error of the syntax.
pub fn format(text: &str) -> Result<String, TomlError> {
    let mut document: DocumentMut = text.replace("\r\n", "\n").parse()?;
    format_entries(document.as_table_mut());
    let trailing = own_lines(&format!("{}\n", raw(Some(document.trailing()))), true);
    document.set_trailing(trailing);
    let formatted = document.to_string();
    let formatted = formatted.trim_matches('\n');
    Ok(if formatted.is_empty() { String::new() } else { format!("{formatted}\n") })
}

fn format_section(table: &mut Table) {
    if !table.is_implicit() && !table.is_dotted() {
        let decor = table.decor_mut();
        let comments = own_lines(raw(decor.prefix()), false);
        let suffix = comment_behind(raw(decor.suffix()));
        *decor = Decor::new(format!("\n{comments}"), suffix);
    }
    format_entries(table);
}

fn format_entries(table: &mut Table) {
    let mut is_first = !table.is_dotted();
    for (mut key, item) in table.iter_mut() {
        *key.dotted_decor_mut() = Decor::new("", "");
        match item {
            Item::Value(value) => {
                let decor = key.leaf_decor_mut();
                *decor = Decor::new(own_lines(raw(decor.prefix()), !is_first), " ");
                let suffix = comment_behind(raw(value.decor().suffix()));
                format_value(value, key.get().len() + " = ".len(), "");
                *value.decor_mut() = Decor::new(" ", suffix);
            }
            Item::Table(table) => {
                *key.leaf_decor_mut() = Decor::new("", "");
                format_section(table);
            }
            Item::ArrayOfTables(tables) => {
                *key.leaf_decor_mut() = Decor::new("", "");
                tables.iter_mut().for_each(format_section);
            }
            Item::None => {}
        }
        is_first = false;
    }
}

/// Formats a value that begins in this column of a line with this indentation.
fn format_value(value: &mut Value, column: usize, indent: &str) {
    match value {
        Value::Array(array) => format_array(array, column, indent),
        Value::InlineTable(table) if !has_lines(table) => format_inline(table, indent),
        _ => {}
    }
}

fn format_array(array: &mut Array, column: usize, indent: &str) {
    let inner = format!("{indent}{INDENT}");
    // The comments before each item, and those before the bracket.
    let mut comments = Vec::new();
    let mut behind = String::new();
    for item in array.iter() {
        let decor = item.decor();
        comments.push(behind + raw(decor.prefix()));
        behind = raw(decor.suffix()).to_owned();
    }
    comments.push(behind + raw(Some(array.trailing())));
    for (number, item) in array.iter_mut().enumerate() {
        format_value(item, inner.len(), &inner);
        *item.decor_mut() = Decor::new(if number == 0 { "" } else { " " }, "");
    }
    array.set_trailing("");
    array.set_trailing_comma(false);
    *array.decor_mut() = Decor::new("", "");
    let line = array.to_string();
    let has_comments = comments.iter().any(|text| text.contains('#'));
    if !has_comments && !line.contains('\n') && column + line.chars().count() <= WIDTH {
        return;
    }
    for (item, text) in array.iter_mut().zip(&comments) {
        item.decor_mut().set_prefix(lines_in_list(text, &inner) + &inner);
    }
    array.set_trailing_comma(!array.is_empty());
    let last = comments.last().map_or("", |text| text);
    array.set_trailing(lines_in_list(last, &inner) + indent);
}

fn format_inline(table: &mut InlineTable, indent: &str) {
    let count = table.len();
    for (number, (mut key, value)) in table.iter_mut().enumerate() {
        *key.leaf_decor_mut() = Decor::new(" ", " ");
        format_value(value, 0, indent);
        *value.decor_mut() = Decor::new(" ", if number + 1 == count { " " } else { "" });
    }
    table.set_trailing("");
}

/// Returns true if an inline table has several lines, which stay as they are.
fn has_lines(table: &InlineTable) -> bool {
    let mut table = table.clone();
    *table.decor_mut() = Decor::new("", "");
    table.to_string().contains('\n')
}

fn raw(text: Option<&RawString>) -> &str {
    text.and_then(RawString::as_str).unwrap_or_default()
}

/// Returns a comment at the end of a line, behind a space.
fn comment_behind(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        comment => format!(" {comment}"),
    }
}

/// Returns the lines of comments in front of a key or a section. Several empty lines become one.
/// Empty lines at the beginning are kept only if `begins_empty`.
fn own_lines(text: &str, begins_empty: bool) -> String {
    let mut lines = String::new();
    let mut is_empty = !begins_empty;
    // The text after the last line end is the indentation of the key.
    let Some((complete, _)) = text.rsplit_once('\n') else { return lines };
    for line in complete.split('\n').map(str::trim) {
        match line {
            "" if is_empty => {}
            line => {
                lines.push_str(line);
                lines.push('\n');
            }
        }
        is_empty = line.is_empty();
    }
    lines
}

/// Returns the comments in front of an item of a list: the first at the end of the line before.
fn lines_in_list(text: &str, indent: &str) -> String {
    let mut lines = text.split('\n').map(str::trim);
    let mut result = comment_behind(lines.next().unwrap_or_default());
    result.push('\n');
    for line in lines.filter(|line| !line.is_empty()) {
        result.push_str(&format!("{indent}{line}\n"));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_files() {
        let long = format!("a = [{}]\n", "\"0123456789\", ".repeat(9));
        let lines = format!("a = [\n{}]\n", "  \"0123456789\",\n".repeat(9));
        for (text, expected) in [
            ("", ""),
            ("\n\n", ""),
            ("# only\n\n\n# comments", "# only\n\n# comments\n"),
            ("a=1", "a = 1\n"),
            ("\n\n  a  =  1\t# x\r\n\r\n\r\n\r\n  b=\"c\"\r\n", "a = 1 # x\n\nb = \"c\"\n"),
            ("a = [ 1,2 , 3, ]", "a = [1, 2, 3]\n"),
            ("a = [\n 1,\n\n 2\n]", "a = [1, 2]\n"),
            (
                "a = [\n1, # one\n# two\n2\n# end\n]",
                "a = [\n  1, # one\n  # two\n  2,\n  # end\n]\n",
            ),
            ("a = [ # list\n1]", "a = [ # list\n  1,\n]\n"),
            ("a = []", "a = []\n"),
            (&long, &lines),
            ("a = {b=1,c = [ 1,2 ]}", "a = { b = 1, c = [1, 2] }\n"),
            ("a = {}", "a = {}\n"),
            ("a = [{b=1},{ c=2 }]", "a = [{ b = 1 }, { c = 2 }]\n"),
            ("a=1\n[b]\nc=1\n[ d ] # x\n# y\ne=1", "a = 1\n\n[b]\nc = 1\n\n[d] # x\n# y\ne = 1\n"),
            ("[a]\n\n\nb=1\n\n\n\n# c\n\n  # d\n[e]", "[a]\nb = 1\n\n# c\n\n# d\n[e]\n"),
            (
                "[hosts.\"a b\"]\n\"/\"=\"-> x\"\n'/y'='z'",
                "[hosts.\"a b\"]\n\"/\" = \"-> x\"\n'/y' = 'z'\n",
            ),
            ("a . b=1\na.c = 2", "a.b = 1\na.c = 2\n"),
            ("[ a . b ]\nc=1", "[a.b]\nc = 1\n"),
            ("[[a]]\nb=1\n[[a]]\nb=2", "[[a]]\nb = 1\n\n[[a]]\nb = 2\n"),
            ("a = \"\"\"\n  x\n\n\n\"\"\"", "a = \"\"\"\n  x\n\n\n\"\"\"\n"),
            ("a = 1\n\n\n# end\n\n", "a = 1\n\n# end\n"),
        ] {
            let formatted = format(text).unwrap();
            assert_eq!(formatted, expected, "{text:?}");
            assert_eq!(format(&formatted).unwrap(), formatted, "{text:?}");
        }
        assert!(format("a =").is_err());
    }
}
