//! Conditions of requests, as in the key `when` of a route. Pure.

use crate::document::{Table, Value};
use crate::nginx::variables::{is_client_address, title_case};

/// Value of a request that a condition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Method,
    Client,
    Header(String),
    Cookie(String),
    Query(String),
    /// A template.
    Value(String),
}

/// Values with which a condition is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Present,
    Absent,
    /// One of the accepted values, if there are any, and none of the refused values.
    Values {
        accepted: Vec<String>,
        refused: Vec<String>,
    },
}

/// A condition about one value of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) subject: Subject,
    pub(crate) test: Test,
    /// Word for the label of a route.
    pub(crate) label: String,
}

impl Condition {
    pub(crate) fn count_patterns(&self) -> usize {
        match &self.test {
            Test::Present | Test::Absent => 0,
            Test::Values { accepted, refused } => {
                accepted.iter().chain(refused).filter(|value| value.starts_with("~ ")).count()
            }
        }
    }
}

impl Test {
    pub(crate) fn accepted(values: Vec<String>) -> Test {
        Test::Values { accepted: values, refused: Vec::new() }
    }

    pub(crate) fn refused(value: String) -> Test {
        Test::Values { accepted: Vec::new(), refused: vec![value] }
    }

    /// A value that is neither empty nor `0`, which nginx regards as false.
    pub(crate) fn is_true() -> Test {
        Test::Values { accepted: vec!["~ .".to_owned()], refused: vec!["0".to_owned()] }
    }

    /// Returns a test of both; `None` if one value cannot have both.
    fn and(&self, other: &Test) -> Option<Test> {
        match (self, other) {
            _ if self == other => Some(self.clone()),
            (
                Test::Values { accepted, refused },
                Test::Values { accepted: others, refused: more },
            ) => {
                let accepted = match (&**accepted, &**others) {
                    (all, []) | ([], all) => all.to_vec(),
                    (own, others) if own == others => own.to_vec(),
                    (own, others) if others.iter().all(|it| own.contains(it)) => others.to_vec(),
                    (own, others) if own.iter().all(|it| others.contains(it)) => own.to_vec(),
                    _ => return None,
                };
                let others = more.iter().filter(|it| !refused.contains(it));
                let refused = refused.iter().chain(others).cloned().collect();
                Some(Test::Values { accepted, refused })
            }
            (Test::Present, Test::Values { accepted, refused })
            | (Test::Values { accepted, refused }, Test::Present) => {
                let any = vec!["~ .".to_owned()];
                let accepted = if accepted.is_empty() { any } else { accepted.clone() };
                Some(Test::Values { accepted, refused: refused.clone() })
            }
            _ => None,
        }
    }

    fn accepts(&self, value: &str) -> bool {
        matches!(self, Test::Values { accepted, .. } if accepted.iter().any(|it| it == value))
    }

    fn value(&self) -> Value {
        match self {
            Test::Present => Value::Bool(true),
            Test::Absent => Value::Bool(false),
            Test::Values { accepted, refused } => {
                let refused = refused.iter().map(|value| match value.strip_prefix("~ ") {
                    Some(regex) => format!("!~ {regex}"),
                    None => format!("!= {}", value.strip_prefix("= ").unwrap_or(value)),
                });
                Value::one_or_list(accepted.iter().cloned().chain(refused).collect::<Vec<_>>())
            }
        }
    }
}

/// Returns the key and the name of a subject in a table of conditions.
fn keys(subject: &Subject) -> (&'static str, Option<&str>) {
    match subject {
        Subject::Method => ("method", None),
        Subject::Client => ("client", None),
        Subject::Header(name) => ("header", Some(name)),
        Subject::Cookie(name) => ("cookie", Some(name)),
        Subject::Query(name) => ("query", Some(name)),
        Subject::Value(template) => ("value", Some(template)),
    }
}

/// Returns the subject for a placeholder, if requests have it before they have a route, and the
/// word for labels.
pub(crate) fn subject(variable: &str, template: &str) -> (Subject, String) {
    let name = |prefix: &str| template.strip_prefix(prefix)?.strip_suffix('}');
    let (subject, label) = match template {
        "{method}" => (Subject::Method, "method".to_owned()),
        _ if is_client_address(&format!("${variable}")) => (Subject::Client, "client".to_owned()),
        "{header.cookie}" => (Subject::Value(template.to_owned()), "cookie".to_owned()),
        _ => match (name("{header."), name("{cookie."), name("{query.")) {
            (Some(header), ..) => (Subject::Header(title_case(header)), header.to_owned()),
            (_, Some(cookie), _) => (Subject::Cookie(cookie.to_owned()), cookie.to_owned()),
            (.., Some(query)) => (Subject::Query(query.to_owned()), query.to_owned()),
            _ => (Subject::Value(template.to_owned()), variable.to_owned()),
        },
    };
    let is_permitted = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let label: String = label.chars().map(|c| if is_permitted(c) { c } else { '-' }).collect();
    let label = label.trim_matches('-');
    (subject, if label.is_empty() { "value".to_owned() } else { label.to_owned() })
}

/// Returns a condition about the first value of a name only, as in nginx. A condition that is met
/// by requests without a value must not be avoided by a second value.
pub(crate) fn of_first_value(
    subject: Subject,
    template: &str,
    test: Test,
    label: String,
) -> Condition {
    let has_others = match &test {
        Test::Absent | Test::Present => true,
        Test::Values { accepted, refused } => accepted.is_empty() || !refused.is_empty(),
    };
    let test = match (&subject, &test) {
        (Subject::Method, Test::Values { accepted, .. }) if !has_others => {
            accepted_methods(accepted).map_or(test, Test::accepted)
        }
        _ => test,
    };
    let is_exact = match &subject {
        Subject::Header(_) | Subject::Cookie(_) | Subject::Query(_) => !has_others,
        // In a condition, GET includes HEAD.
        Subject::Method => !has_others && has_plain_values(&test) && !test.accepts("GET"),
        Subject::Client => has_plain_values(&test),
        Subject::Value(_) => true,
    };
    let subject = if is_exact { subject } else { Subject::Value(template.to_owned()) };
    Condition { subject, test, label }
}

/// Returns the methods that an expression such as `^(PUT|DELETE)$` matches.
fn accepted_methods(accepted: &[String]) -> Option<Vec<String>> {
    let [only] = accepted else { return None };
    let names = only.strip_prefix("~ ^")?.strip_suffix('$')?;
    let names = match names.strip_prefix('(') {
        Some(names) => names.strip_prefix("?:").unwrap_or(names).strip_suffix(')')?,
        None => names,
    };
    let names: Vec<String> = names.split('|').map(str::to_owned).collect();
    let is_method =
        |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase());
    names.iter().all(is_method).then_some(names)
}

/// Returns true if all values are texts, which a list of methods or networks may have.
fn has_plain_values(test: &Test) -> bool {
    match test {
        Test::Present | Test::Absent => false,
        Test::Values { accepted, refused } => {
            accepted.iter().chain(refused).all(|value| !value.starts_with(['~', '=', '!']))
        }
    }
}

/// Returns true if no request meets two conditions, which accept other values of the same subject.
pub(crate) fn exclude_each_other(conditions: &[Condition]) -> bool {
    let plain = |condition: &Condition| match &condition.test {
        Test::Values { accepted, .. } if has_plain_values(&condition.test) => accepted.clone(),
        _ => Vec::new(),
    };
    let exclude = |one: &Condition, other: &Condition| {
        let (one_accepts, other_accepts) = (plain(one), plain(other));
        one.subject == other.subject
            && !one_accepts.is_empty()
            && !other_accepts.is_empty()
            && !one_accepts.iter().any(|value| other_accepts.contains(value))
    };
    let mut pairs = conditions.iter().enumerate();
    pairs.any(|(at, one)| conditions[at + 1..].iter().any(|other| exclude(one, other)))
}

/// Returns the table of conditions that must be met together; `None` if a table cannot have them.
pub(crate) fn when(conditions: &[Condition]) -> Option<Table> {
    let mut merged: Vec<(&Subject, Test)> = Vec::new();
    for Condition { subject, test, .. } in conditions {
        match merged.iter_mut().find(|(known, _)| *known == subject) {
            Some((_, known)) => *known = known.and(test)?,
            None => merged.push((subject, test.clone())),
        }
    }
    let mut table = Table::default();
    for (subject, test) in merged {
        match keys(subject) {
            (key, None) if has_plain_values(&test) => table.set(key, test.value()),
            (_, None) => return None,
            (key, Some(name)) => {
                let mut inner = match table.get(key) {
                    Some(Value::Table(inner)) => inner.clone(),
                    _ => Table::default(),
                };
                inner.set(name, test.value());
                table.set(key, inner);
            }
        }
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(variable: &str, template: &str, test: Test) -> Condition {
        let (subject, label) = subject(variable, template);
        of_first_value(subject, template, test, label)
    }

    #[test]
    fn conditions_are_tables() {
        let is = |value: &str| Test::accepted(vec![value.to_owned()]);
        let is_not = |value: &str| Test::refused(value.to_owned());
        for (conditions, expected) in [
            (
                vec![("http_user_agent", "{header.user-agent}", is("~ (?i)bot"))],
                Some(r#"{ header = { User-Agent = "~ (?i)bot" } }"#),
            ),
            (
                vec![("http_x", "{header.x}", is_not("a"))],
                Some(r#"{ value = { "{header.x}" = "!= a" } }"#),
            ),
            (
                vec![("cookie_a", "{cookie.a}", is("1")), ("cookie_b", "{cookie.b}", is("2"))],
                Some(r#"{ cookie = { a = "1", b = "2" } }"#),
            ),
            (
                vec![
                    ("request_method", "{method}", is("POST")),
                    ("remote_addr", "{client_ip}", is("192.0.2.1")),
                ],
                Some(r#"{ method = "POST", client = "192.0.2.1" }"#),
            ),
            (
                vec![("request_method", "{method}", is("GET"))],
                Some(r#"{ value = { "{method}" = "GET" } }"#),
            ),
            (
                vec![("request_method", "{method}", is("~ ^(PUT|DELETE)$"))],
                Some(r#"{ method = ["PUT", "DELETE"] }"#),
            ),
            (
                vec![("request_method", "{method}", is_not("POST"))],
                Some(r#"{ value = { "{method}" = "!= POST" } }"#),
            ),
            (
                vec![("uri", "{path}", is("~ ^/a")), ("uri", "{path}", is_not("~ b$"))],
                Some(r#"{ value = { "{path}" = ["~ ^/a", "!~ b$"] } }"#),
            ),
            (vec![("uri", "{path}", is("~ a")), ("uri", "{path}", is("~ b"))], None),
            (
                vec![("x", "{map.x}", Test::is_true())],
                Some(r#"{ value = { "{map.x}" = ["~ .", "!= 0"] } }"#),
            ),
            (vec![("args", "{query}", Test::Absent)], Some(r#"{ value = { "{query}" = false } }"#)),
        ] {
            let conditions: Vec<Condition> = conditions
                .into_iter()
                .map(|(variable, template, test)| condition(variable, template, test))
                .collect();
            let table = when(&conditions).map(|table| table.show().replace("\\\\", "\\"));
            assert_eq!(table.as_deref(), expected);
        }
    }
}
