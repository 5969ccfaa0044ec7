//! Names of the hosts of a section.

use weft_config::{Located, Problem};

use crate::base::host_name::host_name;
use crate::template::Pattern;

/// The names in the key of a section.
#[derive(Debug, Default)]
pub(super) struct SectionNames {
    /// Names in their normal form; `:PORT` stands for all names that have no host on that port.
    pub(super) hosts: Vec<String>,
    /// A word that distinguishes the section from others with the same names.
    pub(super) label: Option<String>,
}

/// Normalizes the names of a host section.
pub(super) fn section_names(names: &Located<String>, problems: &mut Vec<Problem>) -> SectionNames {
    let mut found = SectionNames::default();
    let mut report = |message: String| problems.push(names.problem(message));
    if names.value.trim().is_empty() {
        report("expected the name of a host, or `*` for all others".to_owned());
    }
    if names.value.starts_with("~ ") {
        match host_pattern(names.value.trim()) {
            Ok(pattern) => found.hosts.push(pattern),
            Err(message) => report(message),
        }
        return found;
    }
    for word in names.value.split_whitespace() {
        let name = match (word.strip_prefix('@'), word.strip_prefix(':')) {
            (Some(label), _) => match is_label(label) && found.label.is_none() {
                true => {
                    found.label = Some(label.to_owned());
                    continue;
                }
                false => Err(format!(
                    "expected one label of letters, digits, `-` and `_` such as @internal, found \
                     `{word}`"
                )),
            },
            (None, Some(port)) => port_name(port),
            (None, None) => host_name(word).map_err(|message| with_port(message, word)),
        };
        match name {
            Ok(name) => found.hosts.push(name),
            Err(message) => report(message),
        }
    }
    if found.label.is_some() && found.hosts.is_empty() {
        report("expected the name of a host before the label, or `*` for all others".to_owned());
    }
    let ports = found.hosts.iter().filter(|name| name.starts_with(':')).count();
    if ports > 0 && ports < found.hosts.len() {
        report(
            "a section has either names or ports; a host is bound to a port by `listen = \":PORT\"` \
             in its section"
                .to_owned(),
        );
    }
    found
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

/// Adds the key for the port of a name.
fn with_port(message: String, word: &str) -> String {
    match word.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) {
        Some((_, port)) => {
            format!("{message}; `listen = \":{port}\"` in its section binds it to that port")
        }
        None => message,
    }
}

/// Returns the name of all hosts on a port.
fn port_name(port: &str) -> Result<String, String> {
    match port.parse::<u16>() {
        Ok(port @ 1..) => Ok(format!(":{port}")),
        _ => Err(format!("expected a port from 1 to 65535 behind the colon, found `:{port}`")),
    }
}

/// Returns the ports that are names of a section.
pub(super) fn named_ports(names: &[String]) -> Vec<u16> {
    names.iter().filter_map(|name| name.strip_prefix(':')?.parse().ok()).collect()
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
