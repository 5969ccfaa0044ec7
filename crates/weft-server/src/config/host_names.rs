//! Names of the hosts of a section.

use std::collections::HashMap;

use weft_config::{ConfigLocation, Located, Problem};

use crate::base::host_name::host_name;
use crate::template::Pattern;

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
