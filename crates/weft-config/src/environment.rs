//! Environment variables in the strings of a file: `{env.NAME}` and `{env.NAME:default}`.
//!
//! They are replaced after the file is parsed, so that no value can change its structure.

use std::borrow::Cow;
use std::env::VarError;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::location::{ConfigText, Problem};

/// Beginning of a placeholder for an environment variable.
pub(crate) const BEGIN: &str = "{env.";

/// Beginning of an environment variable in a file of Caddy.
const OF_CADDY: &str = "{$";

/// Returns the name of the first environment variable that is written as in Caddy, such as
/// `{$NAME}`.
fn of_caddy(text: &str) -> Option<&str> {
    text.match_indices(OF_CADDY).find_map(|(at, _)| {
        let name = text[at + OF_CADDY.len()..].split(['}', ':']).next()?;
        let is_closed = text[at..].contains('}');
        let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        (is_closed && is_name && !text[..at].ends_with('{')).then_some(name)
    })
}

/// Replaces the variables in all strings and keys of a table.
pub(crate) fn expand_table(
    table: &mut DeTable<'_>,
    text: &ConfigText,
    problems: &mut Vec<Problem>,
) {
    // Nothing is rebuilt without a variable.
    if !text.as_str().contains(BEGIN) && !text.as_str().contains(OF_CADDY) {
        return;
    }
    for (name, mut value) in std::mem::take(table) {
        expand_value(&mut value, text, problems);
        let span = name.span();
        let key = match expand(name.get_ref(), variable) {
            Ok(Cow::Owned(expanded)) => Spanned::new(span.clone(), Cow::Owned(expanded)),
            Ok(Cow::Borrowed(_)) => name,
            Err(message) => {
                problems.push(Problem { location: text.location(span.clone()), message });
                name
            }
        };
        let shown = key.get_ref().clone();
        if table.insert(key, value).is_some() {
            let message = format!("the key `{shown}` is given twice");
            problems.push(Problem { location: text.location(span), message });
        }
    }
}

fn expand_value(value: &mut Spanned<DeValue<'_>>, text: &ConfigText, problems: &mut Vec<Problem>) {
    let span = value.span();
    match value.get_mut() {
        DeValue::String(string) => match expand(string, variable) {
            Ok(Cow::Owned(expanded)) => *string = Cow::Owned(expanded),
            Ok(Cow::Borrowed(_)) => {}
            Err(message) => problems.push(Problem { location: text.location(span), message }),
        },
        DeValue::Array(items) => {
            items.iter_mut().for_each(|item| expand_value(item, text, problems));
        }
        DeValue::Table(table) => expand_table(table, text, problems),
        _ => {}
    }
}

fn variable(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(format!("the environment variable {name} is not valid UTF-8"))
        }
    }
}

/// Replaces the variables in a text. A doubled brace is a literal one in a template, and begins no
/// variable.
fn expand<'t>(
    text: &'t str,
    variable: impl Fn(&str) -> Result<Option<String>, String>,
) -> Result<Cow<'t, str>, String> {
    let (mut expanded, mut rest) = (String::new(), text);
    if let Some(name) = of_caddy(text) {
        return Err(format!(
            "`{{${name}}}` of Caddy is `{{env.{name}}}`; as a text it is `{{{{${name}}}`"
        ));
    }
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find(BEGIN)).min() {
        let (before, from) = rest.split_at(at);
        expanded.push_str(before);
        if let Some(behind) = from.strip_prefix("{{") {
            expanded.push_str("{{");
            rest = behind;
            continue;
        }
        let unclosed = || format!("the placeholder {from:?} has no closing brace");
        let (inner, behind) = from[BEGIN.len()..].split_once('}').ok_or_else(unclosed)?;
        let (name, default) = match inner.split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let is_permitted = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || !name.bytes().all(is_permitted) {
            return Err(format!("expected the name of an environment variable, found {name:?}"));
        }
        match variable(name)?.as_deref().or(default) {
            Some(value) => expanded.push_str(value),
            None => {
                return Err(format!(
                    "the environment variable {name} is not set; with a default it is \
                     {{env.{name}:default}}"
                ));
            }
        }
        rest = behind;
    }
    // Otherwise nothing has changed.
    match rest.len() == text.len() || !text.contains(BEGIN) {
        true => Ok(Cow::Borrowed(text)),
        false => Ok(Cow::Owned(expanded + rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_variables() {
        let variable = |name: &str| match name {
            "A" => Ok(Some("a".to_owned())),
            "EMPTY" => Ok(Some(String::new())),
            "BRACES" => Ok(Some("{env.A}".to_owned())),
            "BAD" => Err("not valid".to_owned()),
            _ => Ok(None),
        };
        for (text, expected) in [
            ("", Ok("")),
            ("a", Ok("a")),
            ("{env.A}", Ok("a")),
            ("x{env.A}y{env.A}z", Ok("xayaz")),
            ("{env.NONE:b}", Ok("b")),
            ("{env.NONE:}", Ok("")),
            ("{env.NONE:http://h:1/}", Ok("http://h:1/")),
            ("{env.EMPTY:b}", Ok("")),
            ("{path}{env.A}{header.x}", Ok("{path}a{header.x}")),
            ("{{env.A}", Ok("{{env.A}")),
            ("{{{env.A}", Ok("{{a")),
            ("{env.BRACES}", Ok("{env.A}")),
            ("{environment}", Ok("{environment}")),
            ("{env.NONE}", Err("the environment variable NONE is not set")),
            ("{env.A", Err("no closing brace")),
            ("{env.}", Err("expected the name of an environment variable")),
            ("{env.A B}", Err("expected the name of an environment variable")),
            ("{env.BAD}", Err("not valid")),
            ("-> {$ROOT}", Err("`{$ROOT}` of Caddy is `{env.ROOT}`; as a text it is `{{$ROOT}`")),
            ("{$A:b}{env.A}", Err("`{$A}` of Caddy is `{env.A}`")),
            ("{{$A}", Ok("{{$A}")),
            ("{$a} {$} {$A ^[a-z]{$", Ok("{$a} {$} {$A ^[a-z]{$")),
        ] {
            match (expand(text, variable), expected) {
                (Ok(expanded), Ok(expected)) => assert_eq!(expanded, expected, "{text}"),
                (Err(message), Err(expected)) => {
                    assert!(message.contains(expected), "{text}: {message}");
                }
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
