//! Names of hosts in their normal form.

use std::collections::HashMap;

use weft_config::{ConfigLocation, Located, Problem};

use crate::route::Pattern;

/// Normalizes the names of a host section. A name that another section has already is an error.
pub(super) fn host_names(
    names: &Located<String>,
    known: &mut HashMap<String, ConfigLocation>,
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    if names.value.trim().is_empty() {
        problems.push(names.problem("expected the name of a host, or `*` for all others"));
    }
    let mut accepted = Vec::new();
    let is_pattern = names.value.starts_with("~ ");
    let each: Vec<&str> = match is_pattern {
        true => vec![names.value.trim()],
        false => names.value.split_whitespace().collect(),
    };
    for name in each {
        let name = if is_pattern { host_pattern(name) } else { host_name(name) };
        match name {
            Err(message) => problems.push(names.problem(message)),
            Ok(name) => match known.insert(name.clone(), names.location.clone()) {
                None => accepted.push(name),
                Some(first) => {
                    let first = first.relative_to(&names.location);
                    problems
                        .push(names.problem(format!("the host `{name}` is given twice{first}")));
                }
            },
        }
    }
    accepted
}

/// Validates a pattern of host names.
fn host_pattern(written: &str) -> Result<String, String> {
    let source = written.trim_start_matches('~').trim_start();
    let pattern =
        Pattern::parse(source).map_err(|reason| format!("the host {written:?} {reason}"))?;
    match pattern.source().bytes().any(|b| b.is_ascii_uppercase()) && !source.contains('\\') {
        true => {
            Err(format!("the host {written:?} has upper case; names are compared in lower case"))
        }
        false => Ok(format!("~ {}", pattern.source())),
    }
}

/// Normalizes a list of host names.
pub(super) fn host_list(names: Vec<Located<String>>, problems: &mut Vec<Problem>) -> Vec<String> {
    let normalize = |name: Located<String>| match host_name(&name.value) {
        Ok(normalized) => Some(normalized),
        Err(message) => {
            problems.push(name.problem(message));
            None
        }
    };
    names.into_iter().filter_map(normalize).collect()
}

/// Returns the name of a host in lower case, without its trailing dot.
fn host_name(written: &str) -> Result<String, String> {
    let name = written.strip_suffix('.').unwrap_or(written).to_ascii_lowercase();
    if name == "*" {
        return Ok(name);
    }
    if name == "_" {
        return Err("no client sends the host `_`; all other hosts are `*`".to_owned());
    }
    if !name.is_ascii() {
        return Err(format!("`{written}` is not the name of a host as in the DNS (xn--…)"));
    }
    let is_name = |name: &str| {
        let is_permitted = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_permitted))
    };
    let is_address = |name: &str| {
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
    };
    if is_name(name.strip_prefix("*.").unwrap_or(&name)) || is_address(&name) {
        return Ok(name);
    }
    let hint = match name.rsplit_once(':') {
        Some((host, port)) if is_name(host) && port.parse::<u16>().is_ok() => {
            format!("; a host is given without its port: `{host}`")
        }
        _ => String::new(),
    };
    Err(format!("`{written}` is neither the name of a host, nor `*.` and one, nor `*`{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalizes_host_names() {
        for (written, expected) in [
            ("Example.ORG", Some("example.org")),
            ("example.org.", Some("example.org")),
            ("*", Some("*")),
            ("*.Example.org", Some("*.example.org")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("[2001:DB8::1]", Some("[2001:db8::1]")),
            ("_", None),
            ("a:80", None),
            ("*.*.org", None),
            ("a..b", None),
            ("http://a", None),
            ("días.example", None),
        ] {
            assert_eq!(host_name(written).ok().as_deref(), expected, "{written}");
        }
        assert!(host_name("a:80").unwrap_err().ends_with("without its port: `a`"));
    }
}
