//! Matches of HTTPRoutes → keys of routes, conditions, and the precedence of the Gateway API.

use std::cmp::Reverse;

use regex::bytes::RegexBuilder;

use super::fields::check_name;
use super::toml::{Table, quoted};
use crate::objects::http_route::{HttpMatch, ValueMatch};

/// Maximum size of an expression, in bytes.
const MAX_REGEX_BYTES: usize = 1_024;

/// Maximum size of a compiled expression, as of a pattern in the configuration.
const MAX_COMPILED_BYTES: usize = 256 << 10;

/// Characters that a prefix or a path in the configuration cannot have.
const UNSUPPORTED_IN_PATH: &[char] =
    &['%', '?', '#', '\\', ';', '*', '{', '}', '[', ']', '|', '^', '"'];

/// Paths that a route matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathRule {
    /// Decoded.
    Exact(String),
    /// Decoded, without a slash at its end, except for `/`.
    Prefix(String),
    /// An expression for the whole path.
    Regex(String),
    /// An expression for the beginning of the path, without regard to case, as of ingress-nginx.
    RegexPrefix(String),
}

/// A match of a rule.
#[derive(Clone, Debug)]
pub(super) struct RouteMatch {
    pub(super) path: PathRule,
    /// Conditions other than the path, as the value of `when`.
    pub(super) conditions: Table,
    pub(super) precedence: Precedence,
    /// Number of expressions in the conditions.
    pub(super) expressions: usize,
}

/// Position of a match among the matches of the same path: the smallest comes first. Of equal ones,
/// the oldest route has precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Precedence {
    has_no_method: bool,
    headers: Reverse<usize>,
    parameters: Reverse<usize>,
}

impl PathRule {
    /// Returns the key of a route.
    pub(super) fn key(&self) -> String {
        match self {
            PathRule::Exact(path) => format!("= {path}"),
            PathRule::Prefix(prefix) => prefix.clone(),
            PathRule::Regex(regex) => format!("~ ^(?:{regex})$"),
            PathRule::RegexPrefix(regex) => format!("~ (?i)^{regex}"),
        }
    }

    /// Returns the prefix that the configuration removes from the path, if there is one.
    pub(super) fn removed_prefix(&self) -> Option<&str> {
        match self {
            PathRule::Prefix(prefix) if prefix != "/" => Some(prefix),
            _ => None,
        }
    }

    fn parse(kind: &str, value: &str) -> Result<PathRule, String> {
        match kind {
            "Exact" => check_path(value).map(|()| PathRule::Exact(value.to_owned())),
            "PathPrefix" => {
                check_path(value)?;
                let prefix = value.strip_suffix('/').filter(|prefix| !prefix.is_empty());
                Ok(PathRule::Prefix(prefix.unwrap_or(value).to_owned()))
            }
            "RegularExpression" => check_regex(value).map(|()| PathRule::Regex(value.to_owned())),
            _ => Err(format!("the type of path match {kind:?} is not supported")),
        }
    }
}

impl RouteMatch {
    /// Reads a match.
    ///
    /// # Errors
    /// With a message for the owner of the route.
    pub(super) fn parse(given: &HttpMatch) -> Result<RouteMatch, String> {
        let path = given.path.clone().unwrap_or_default();
        let kind = path.kind.as_deref().unwrap_or("PathPrefix");
        let path = PathRule::parse(kind, path.value.as_deref().unwrap_or("/"))?;
        let mut conditions = Table::default();
        if let Some(method) = &given.method {
            if method.is_empty() || !method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-') {
                return Err(format!("the method {method:?} is invalid"));
            }
            conditions.set_text("method", method);
        }
        let mut expressions = 0;
        let field = |name: &str| check_name(name).map(str::to_ascii_lowercase);
        let headers = tests(&given.headers, field, &mut expressions)?;
        let parameter = |name: &str| match name.is_empty() || name.chars().any(char::is_control) {
            true => Err(format!("the name of a parameter {name:?} is invalid")),
            false => Ok(name.to_owned()),
        };
        let parameters = tests(&given.query_params, parameter, &mut expressions)?;
        let precedence = Precedence {
            has_no_method: given.method.is_none(),
            headers: Reverse(headers.lines().count()),
            parameters: Reverse(parameters.lines().count()),
        };
        conditions.set_table("header", &headers);
        conditions.set_table("query", &parameters);
        Ok(RouteMatch { path, conditions, precedence, expressions })
    }
}

/// Returns the conditions about fields or parameters. The first of a name applies.
fn tests(
    matches: &[ValueMatch],
    normalize: impl Fn(&str) -> Result<String, String>,
    expressions: &mut usize,
) -> Result<Table, String> {
    let mut table = Table::default();
    for given in matches {
        let name = normalize(&given.name)?;
        if table.has(&name) {
            continue;
        }
        let test = match given.kind.as_deref().unwrap_or("Exact") {
            "Exact" => format!("= {}", given.value),
            "RegularExpression" => {
                check_regex(&given.value)?;
                *expressions += 1;
                format!("~ ^(?:{})$", given.value)
            }
            kind => return Err(format!("the type of match {kind:?} is not supported")),
        };
        table.set(&name, quoted(&test));
    }
    Ok(table)
}

/// Checks a path, which the configuration compares with decoded and normalized paths.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    let invalid = |reason: &str| Err(format!("the path {path:?} {reason}"));
    if !path.starts_with('/') {
        return invalid("does not begin with a slash");
    }
    if path.contains(UNSUPPORTED_IN_PATH) || path.chars().any(char::is_control) {
        return invalid("has a character that is not supported");
    }
    let inner = path[1..].strip_suffix('/').unwrap_or(&path[1..]);
    match inner.split('/').any(|segment| matches!(segment, "." | "..")) {
        true => invalid("has a segment of dots"),
        false if path != "/" && inner.split('/').any(str::is_empty) => {
            invalid("has an empty segment")
        }
        false => Ok(()),
    }
}

/// Checks an expression and its size.
pub(super) fn check_regex(regex: &str) -> Result<(), String> {
    if regex.len() > MAX_REGEX_BYTES {
        return Err(format!("an expression has over {MAX_REGEX_BYTES} bytes"));
    }
    // Alone, because an unbalanced bracket could end the group around it.
    let compiled = RegexBuilder::new(regex).unicode(false).size_limit(MAX_COMPILED_BYTES).build();
    match compiled {
        Ok(_) => Ok(()),
        // The text of the error repeats the expression in several lines.
        Err(regex::Error::CompiledTooBig(_)) => {
            Err(format!("the expression {regex:?} is too large when it is compiled"))
        }
        Err(_) => Err(format!("the expression {regex:?} is invalid or not supported")),
    }
}
