//! Conditions of `if` → conditions of requests. Pure.

use super::condition::{Condition, Subject, Test, of_first_value, subject};
use super::referers;
use crate::nginx::location::Location;
use crate::nginx::maps::{early_template, is_true};
use crate::nginx::tree::Directive;
use crate::nginx::variables::split_name;
use crate::regex;

/// Value of a variable that `set` has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SetValue {
    /// A text, which may have variables of the request.
    Text(String),
    Unknown,
}

/// Result of a condition.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// The condition is the same for all requests.
    Known(bool),
    Depends(Condition),
    Unknown,
}

/// Reads the condition of an `if` block, with the values of variables at its place.
pub(crate) fn parse(
    location: &Location<'_>,
    condition: &str,
    sets: &[(String, SetValue)],
) -> Parsed {
    let (variable, rest) = condition.split_once(char::is_whitespace).unwrap_or((condition, ""));
    if variable == "$invalid_referer" && rest.trim().is_empty() {
        return referers::condition(location).map_or(Parsed::Unknown, Parsed::Depends);
    }
    let Some((name, "")) = variable.strip_prefix('$').map(split_name) else {
        return Parsed::Unknown;
    };
    let Some(test) = operation(location, rest.trim()) else { return Parsed::Unknown };
    match sets.iter().rev().find(|(known, _)| known == name) {
        Some((_, SetValue::Unknown)) => Parsed::Unknown,
        Some((_, SetValue::Text(text))) => match text.strip_prefix('$').map(split_name) {
            _ if !text.contains('$') => Parsed::Known(test.is_met(location, text)),
            Some((inner, "")) => of_variable(location, inner, &test),
            _ => of_text(location, name, text, &test),
        },
        None => of_variable(location, name, &test),
    }
}

/// Comparison of an `if`.
#[derive(Clone, Debug)]
enum Operation {
    IsTrue,
    Equals(String),
    Differs(String),
    Matches(String),
    MatchesNot(String),
}

impl Operation {
    fn is_met(&self, location: &Location<'_>, value: &str) -> bool {
        match self {
            Operation::IsTrue => is_true(value),
            Operation::Equals(text) => value == text,
            Operation::Differs(text) => value != text,
            Operation::Matches(regex) => location.global.target.matches(regex, value),
            Operation::MatchesNot(regex) => !location.global.target.matches(regex, value),
        }
    }

    fn test(&self) -> Test {
        let text = |text: &str| match text.starts_with(['~', '=', '!']) {
            true => format!("= {text}"),
            false => text.to_owned(),
        };
        match self {
            Operation::IsTrue => Test::is_true(),
            Operation::Equals(value) if value.is_empty() => Test::Absent,
            Operation::Equals(value) => Test::accepted(vec![text(value)]),
            Operation::Differs(value) if value.is_empty() => Test::Present,
            Operation::Differs(value) => Test::refused(text(value)),
            Operation::Matches(regex) => Test::accepted(vec![format!("~ {regex}")]),
            Operation::MatchesNot(regex) => Test::refused(format!("~ {regex}")),
        }
    }
}

/// Reads the operator and the value of a condition.
fn operation(location: &Location<'_>, text: &str) -> Option<Operation> {
    if text.is_empty() {
        return Some(Operation::IsTrue);
    }
    let (operator, value) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let value = value.trim();
    let unquoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = unquoted('"').or_else(|| unquoted('\'')).unwrap_or(value);
    let regex = |modifier: &str| regex::of_modifier(location.global.target, modifier, value);
    let has_variables = value.contains('$') && matches!(operator, "=" | "!=");
    match operator {
        _ if has_variables => None,
        "=" => Some(Operation::Equals(value.to_owned())),
        "!=" => Some(Operation::Differs(value.to_owned())),
        "~" | "~*" => regex(operator).map(Operation::Matches),
        "!~" | "!~*" => regex(&operator[1..]).map(Operation::MatchesNot),
        _ => None,
    }
}

fn of_variable(location: &Location<'_>, name: &str, operation: &Operation) -> Parsed {
    let tables = &location.global.tables;
    if let Some(values) = tables.values(name) {
        return of_table(location, name, &values, operation);
    }
    if name == "https" {
        return of_https(operation);
    }
    if let (Some(argument), Operation::IsTrue) = (name.strip_prefix("arg_"), operation) {
        return of_argument(argument);
    }
    // A variable that another `if` sets is empty.
    let is_set = |levels: &[&[Directive]]| levels.iter().any(|it| sets(it, name));
    if is_set(location.scope.levels()) {
        return Parsed::Known(operation.is_met(location, ""));
    }
    // A port of the host differs from the port of the connection, which nginx compares.
    let has_port = matches!(operation, Operation::Equals(host) | Operation::Differs(host) if host.contains(':'));
    match (name, operation) {
        ("http_host", _) if has_port => return Parsed::Unknown,
        // `?` with a query, otherwise empty.
        ("is_args", Operation::IsTrue) => {
            return of_text(location, name, "$args", &Operation::Differs(String::new()));
        }
        ("is_args", _) => return Parsed::Unknown,
        _ => {}
    }
    of_text(location, name, &format!("${{{name}}}"), operation)
}

/// Returns a condition that is met by a parameter of the query with a value other than `0`. nginx
/// ignores the case of its name.
fn of_argument(name: &str) -> Parsed {
    let pattern = format!("~ (?i)(?:^|&){name}=(?:[^0&]|0[^&])");
    let subject = Subject::Value("{query}".to_owned());
    let test = Test::accepted(vec![pattern]);
    let label = name.replace('_', "-");
    Parsed::Depends(of_first_value(subject, "{query}", test, label))
}

/// Returns true if a directive of a block, or of a block in it, sets a variable.
fn sets(block: &[Directive], name: &str) -> bool {
    block.iter().any(|it| match &*it.name {
        "set" => it.arg(0).strip_prefix('$') == Some(name),
        "if" => sets(it.children(), name),
        _ => false,
    })
}

/// Returns a condition about a map: the values with which it is met, if all are known.
fn of_table(
    location: &Location<'_>,
    name: &str,
    values: &[String],
    operation: &Operation,
) -> Parsed {
    let met: Vec<String> =
        values.iter().filter(|value| operation.is_met(location, value)).cloned().collect();
    let template = format!("{{map.{name}}}");
    let (subject, label) = subject(name, &template);
    let test = match &*met {
        [] => return Parsed::Known(false),
        all if all.len() == values.len() => return Parsed::Known(true),
        _ if matches!(operation, Operation::IsTrue) && met.iter().all(|value| is_plain(value)) => {
            Test::accepted(met)
        }
        _ => operation.test(),
    };
    Parsed::Depends(of_first_value(subject, &template, test, label))
}

fn is_plain(value: &str) -> bool {
    !value.is_empty() && !value.starts_with(['~', '=', '!'])
}

fn of_https(operation: &Operation) -> Parsed {
    let template = "{scheme}";
    let scheme = |is_met: bool| if is_met { "https" } else { "http" };
    let is_met = match operation {
        Operation::IsTrue => true,
        Operation::Equals(value) if value == "on" => true,
        Operation::Equals(value) if value.is_empty() => false,
        Operation::Differs(value) if value == "on" => false,
        Operation::Differs(value) if value.is_empty() => true,
        _ => return Parsed::Unknown,
    };
    let (subject, label) = subject("scheme", template);
    let test = Test::accepted(vec![scheme(is_met).to_owned()]);
    Parsed::Depends(of_first_value(subject, template, test, label))
}

/// Returns a condition about a text with variables.
fn of_text(location: &Location<'_>, name: &str, text: &str, operation: &Operation) -> Parsed {
    match early_template(&location.variables, text) {
        Some(template)
            if template.contains('{')
                && !template.contains("{re.")
                && !template.contains("{host.") =>
        {
            let (subject, label) = subject(name, &template);
            Parsed::Depends(of_first_value(subject, &template, operation.test(), label))
        }
        _ => Parsed::Unknown,
    }
}
