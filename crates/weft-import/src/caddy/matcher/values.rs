//! Matchers about fields and parameters, as the conditions of a route. Pure.

use crate::document::{Table, Value};
use crate::regex::escape;

/// A matcher about the values of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedValues {
    /// Key of the table of conditions: `header` or `query`.
    key: &'static str,
    pub(crate) name: String,
    values: Values,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Values {
    Present,
    Absent,
    /// One of these, as in conditions.
    Any(Vec<String>),
}

impl NamedValues {
    /// Parses `header FIELD VALUE`; `None` for a field that no condition has.
    pub(super) fn of_header(args: &[String]) -> Option<NamedValues> {
        let (field, value) = match args {
            [field] => (field, None),
            [field, value] => (field, Some(value)),
            _ => return None,
        };
        let values = match (field.strip_prefix('!'), value.map(String::as_str)) {
            (Some(_), None) => Values::Absent,
            (Some(_), Some(_)) | (None, Some("")) => return None,
            (None, None | Some("*")) => Values::Present,
            (None, Some(value)) if value.contains(['{', '}']) => return None,
            (None, Some(value)) => Values::Any(vec![of_value(value)?]),
        };
        NamedValues::of_field(field.trim_start_matches('!'), values)
    }

    /// Parses `header_regexp [NAME] FIELD REGEX`.
    pub(super) fn of_header_regexp(args: &[String]) -> Option<NamedValues> {
        let [.., field, regex] = args else { return None };
        NamedValues::of_field(field, Values::Any(vec![format!("~ {regex}")]))
    }

    fn of_field(field: &str, values: Values) -> Option<NamedValues> {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let is_own = ["host", "cookie"].iter().any(|own| field.eq_ignore_ascii_case(own));
        let is_field = !field.is_empty() && field.bytes().all(is_name) && !is_own;
        is_field.then(|| NamedValues { key: "header", name: field.to_owned(), values })
    }

    /// Parses `query KEY=VALUE`.
    pub(super) fn of_query(args: &[String]) -> Option<NamedValues> {
        let [pair] = args else { return None };
        let (name, value) = pair.split_once('=')?;
        let values = match value {
            "*" => Values::Present,
            value if value.is_empty() || value.contains(['*', '{']) => return None,
            value => Values::Any(vec![text(value)]),
        };
        let is_name = !name.is_empty() && !name.contains(['{', '*', '%']);
        is_name.then(|| NamedValues { key: "query", name: name.to_owned(), values })
    }

    /// Adds the values of another matcher about the same name: any value must match. Returns false
    /// if the matchers are about different names.
    pub(super) fn merge(&mut self, other: &NamedValues) -> bool {
        if self.key != other.key || !self.name.eq_ignore_ascii_case(&other.name) {
            return false;
        }
        match (&mut self.values, &other.values) {
            (Values::Any(own), Values::Any(others)) => own.extend(others.iter().cloned()),
            (own, others) if own == others => {}
            _ => return false,
        }
        true
    }

    /// Returns true if the expressions are valid.
    pub(super) fn is_valid(&self, is_regex: impl Fn(&str) -> bool) -> bool {
        match &self.values {
            Values::Any(values) => {
                values.iter().filter_map(|value| value.strip_prefix("~ ")).all(is_regex)
            }
            _ => true,
        }
    }
}

/// Returns the table of conditions that must all be met; `None` for two conditions about a name.
pub(crate) fn when(all: &[NamedValues]) -> Option<Table> {
    let mut table = Table::default();
    for NamedValues { key, name, values } in all {
        let value = match values {
            Values::Present => Value::from(true),
            Values::Absent => Value::from(false),
            Values::Any(values) => Value::one_or_list(values.clone()),
        };
        let mut inner = Table::default();
        inner.set(name.clone(), value);
        let mut own = Table::default();
        own.set(*key, inner);
        table = joined(&table, &own)?;
    }
    Some(table)
}

/// Joins two tables of conditions; `None` if both have a condition about the same value.
pub(crate) fn joined(one: &Table, other: &Table) -> Option<Table> {
    let mut table = one.clone();
    for key in other.keys() {
        let value = match (table.get(key), other.get(key)?) {
            (None, value) => value.clone(),
            (Some(Value::Table(own)), Value::Table(more)) => {
                let is_known = |name: &str| own.keys().any(|it| it.eq_ignore_ascii_case(name));
                if more.keys().any(is_known) {
                    return None;
                }
                let mut own = own.clone();
                own.add(more);
                Value::Table(own)
            }
            _ => return None,
        };
        table.set(key, value);
    }
    Some(table)
}

/// Returns a value with asterisks at its ends as a condition.
fn of_value(value: &str) -> Option<String> {
    let inner = value.trim_start_matches('*').trim_end_matches('*');
    // Any number of asterisks elsewhere has no special meaning.
    Some(match (value.starts_with('*'), value.ends_with('*')) {
        _ if inner.is_empty() || value.starts_with("**") || value.ends_with("**") => return None,
        (true, true) => format!("~ {}", escape(inner)),
        (true, false) => format!("~ {}$", escape(inner)),
        (false, true) => format!("~ ^{}", escape(inner)),
        (false, false) => text(value),
    })
}

fn text(value: &str) -> String {
    match value.starts_with(['~', '=', '!']) {
        true => format!("= {value}"),
        false => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_are_conditions() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (args, expected) in [
            ("X-A b", Some(r#"{ header = { X-A = "b" } }"#)),
            ("X-A *b.c*", Some(r#"{ header = { X-A = "~ b\\.c" } }"#)),
            ("X-A b*", Some(r#"{ header = { X-A = "~ ^b" } }"#)),
            ("X-A *b", Some(r#"{ header = { X-A = "~ b$" } }"#)),
            ("X-A ~b", Some(r#"{ header = { X-A = "= ~b" } }"#)),
            ("X-A", Some(r#"{ header = { X-A = true } }"#)),
            ("!X-A", Some(r#"{ header = { X-A = false } }"#)),
            ("Cookie *a=b*", None),
            ("X-A {env.B}", None),
            ("X-A **", None),
        ] {
            let found = NamedValues::of_header(&words(args));
            let table = found.and_then(|it| when(&[it])).map(|table| table.show());
            assert_eq!(table.as_deref(), expected, "{args}");
        }
        let query = |text: &str| NamedValues::of_query(&words(text));
        let table = when(&[query("a=1").unwrap(), query("b=*").unwrap()]).unwrap();
        assert_eq!(table.show(), r#"{ query = { a = "1", b = true } }"#);
        assert_eq!(when(&[query("a=1").unwrap(), query("a=2").unwrap()]), None);
        let mut one = query("a=1").unwrap();
        assert!(one.merge(&query("a=2").unwrap()) && !one.merge(&query("b=2").unwrap()));
        assert_eq!(when(&[one]).unwrap().show(), r#"{ query = { a = ["1", "2"] } }"#);
        assert!(query("a").is_none() && query("a=b*").is_none());
    }
}
