//! Formats of access logs: `combined`, `json`, JSON with chosen members, or a pattern, which has
//! placeholders such as `{client_ip}` or the directives of Apache.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use weft::header::HeaderName;
use weft::log::LogFormat;
use weft_config::suggest;

use crate::base::engine_fields::engine_sets;
use crate::base::request_notes;

/// A log format, with its text in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessFormat {
    pub(crate) text: String,
    pub(crate) format: LogFormat,
}

/// A value that is a part of the request, besides the values of the library.
pub(crate) enum RequestValue<'a> {
    /// `cookie.` and a name.
    Cookie(&'a str),
    /// `query.` and the name of a parameter.
    Query(&'a str),
    Port,
}

impl RequestValue<'_> {
    pub(crate) fn parse(name: &str) -> Option<RequestValue<'_>> {
        match name.split_once('.') {
            Some(("cookie", name)) if !name.is_empty() => Some(RequestValue::Cookie(name)),
            Some(("query", name)) if !name.is_empty() => Some(RequestValue::Query(name)),
            None if name == "port" => Some(RequestValue::Port),
            _ => None,
        }
    }
}

/// Names of the values of the library. Others begin with `header.` or `response.`.
const NAMES: [&str; 26] = [
    "time",
    "time_millis",
    "seconds",
    "microseconds",
    "peer",
    "peer_port",
    "user",
    "method",
    "target",
    "path",
    "query",
    "version",
    "scheme",
    "host",
    "status",
    "bytes",
    "bytes_received",
    "event",
    "referer",
    "user_agent",
    "request_id",
    "request_line",
    "end",
    "tls.version",
    "tls.cipher",
    "tls.server_name",
];

impl AccessFormat {
    pub(crate) fn combined() -> AccessFormat {
        AccessFormat { text: "combined".to_owned(), format: LogFormat::combined() }
    }

    /// Parses a format.
    ///
    /// # Errors
    /// The message names an unknown value and suggests another one.
    pub(crate) fn parse(text: &str) -> Result<AccessFormat, String> {
        let format = match text {
            "combined" => LogFormat::combined(),
            "json" => LogFormat::json(),
            _ if text.starts_with("json ") => json_members(&text["json ".len()..])?,
            pattern => {
                let pattern = directives(pattern);
                if !pattern.contains('%') {
                    let hint = match pattern.contains('$') {
                        true => "; a value is in braces, and $remote_addr of nginx is {client_ip}",
                        false => "",
                    };
                    return Err(format!(
                        "expected combined, json, json with names of values, or a pattern such as \
                         \"{{client_ip}} {{status}}\", found {pattern:?}{hint}"
                    ));
                }
                LogFormat::pattern(&pattern).map_err(|error| error.reason().to_owned())?
            }
        };
        format.names().try_for_each(check_name)?;
        format.response_fields().try_for_each(check_response_field)?;
        Ok(AccessFormat { text: text.to_owned(), format })
    }
}

impl Hash for AccessFormat {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// Placeholders that are values of a log under other names.
const ALIASES: [(&str, &str); 4] = [
    ("client_ip", "peer"),
    ("client_port", "peer_port"),
    ("uri", "target"),
    ("upstream", "upstream.address"),
];

fn value_name(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, value)| value)
}

/// Converts the placeholders of a pattern to directives. As elsewhere, `{{` is a literal brace, and
/// a brace that begins no name stands for itself.
fn directives(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.find('{') {
        let (before, braced) = rest.split_at(at);
        out.push_str(before);
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let name = braced[1..].split_once('}').map(|(name, _)| name);
        let name = name.filter(|name| !name.is_empty() && name.chars().all(is_part));
        let is_directive = before.ends_with('%') && !before.ends_with("%%");
        rest = match name {
            _ if is_directive => {
                let end = braced.find('}').unwrap_or(0) + 1;
                out.push_str(&braced[..end]);
                &braced[end..]
            }
            _ if braced.starts_with("{{") => {
                out.push('{');
                &braced[2..]
            }
            Some(name) => {
                // Ignored: a String accepts all texts.
                let _ = write!(out, "%{{{}}}x", value_name(name));
                &braced[name.len() + 2..]
            }
            None => {
                out.push('{');
                &braced[1..]
            }
        };
    }
    out + rest
}

/// Parses `NAME` or `MEMBER=NAME`, separated by spaces. A member without a name of its own has that
/// of its value, with underscores.
fn json_members(text: &str) -> Result<LogFormat, String> {
    let own_name = |value: &str| value.replace(['.', '-'], "_").to_ascii_lowercase();
    let member = |word: &str| match word.split_once('=') {
        Some((member, value)) => (member.to_owned(), value.to_owned()),
        None => (own_name(word), word.to_owned()),
    };
    let members: Vec<(String, String)> = text.split_whitespace().map(member).collect();
    if members.is_empty() {
        return Err("expected names of values behind json, such as \"json time status\"".to_owned());
    }
    let members = members.iter().map(|(member, value)| (&**member, value_name(value)));
    LogFormat::json_with(members).map_err(|error| error.reason().to_owned())
}

/// Checks the name of a value that the library leaves to the application.
fn check_name(name: &str) -> Result<(), String> {
    let is_known = NAMES.contains(&name) || request_notes::NAMES.contains(&name);
    if is_known || RequestValue::parse(name).is_some() || request_notes::is_group(name) {
        return Ok(());
    }
    let known = NAMES.into_iter().chain(request_notes::NAMES);
    Err(match suggest(name, known.clone()) {
        Some(suggestion) => {
            format!("unknown value `{name}` in a log format; did you mean `{suggestion}`?")
        }
        None => {
            let known: Vec<_> = known.collect();
            let known = known.join(", ");
            format!(
                "unknown value `{name}` in a log format; known are {known}, header.NAME, \
                 response.NAME, port, cookie.NAME, query.NAME, rest, re.GROUP, host.GROUP and map.NAME"
            )
        }
    })
}

/// Checks that a field of the response is known when its line is composed.
fn check_response_field(name: &str) -> Result<(), String> {
    match name.parse::<HeaderName>() {
        Ok(field) if engine_sets(&field) => Err(format!(
            "the server sets the response field {name} itself, and does not log it; the size of \
             the body is %B, and the time %t"
        )),
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{name:?} is not the name of a field")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_known_values_only() {
        for (text, expected) in [
            ("combined", ""),
            ("json", ""),
            ("json time status ip=peer ua=header.User-Agent response.X-Cache", ""),
            ("%h %u %{upstream.response_time}x %{X-Cache}o", ""),
            (
                "{client_ip} {user} [{time}] \"{method} {uri}\" {status} {query.a} {cookie.b} {{x}",
                "",
            ),
            ("{re.1} {host.name} %{re.name}x", ""),
            ("json re.1 sub=host.1", ""),
            ("{\"ip\":\"{client_ip}\"} %s %{a}o %%{status}", ""),
            ("{stats}", "unknown value `stats` in a log format; did you mean `status`?"),
            ("{client_ip} {rest}", ""),
            ("{re.}", "unknown value `re.` in a log format"),
            ("{ {a b} {}", "expected combined, json"),
            ("%{a", "found"),
            ("jsn", "expected combined, json, json with"),
            ("json ", "expected names of values"),
            ("json statu", "unknown value `statu` in a log format; did you mean `status`?"),
            ("json time time", "the member \"time\" of a log line is given twice"),
            ("%{upstream.adress}x", "did you mean `upstream.address`?"),
            ("%{zzz}x", "known are time, time_millis"),
            ("%{Content-Length}o", "the server sets the response field Content-Length itself"),
            ("%{a b}o", "\"a b\" is not the name of a field"),
            ("%Z", "behind the % of a log pattern, found 'Z'"),
        ] {
            let problem = AccessFormat::parse(text).err().unwrap_or_default();
            assert_eq!(problem.is_empty(), expected.is_empty(), "{text}: {problem}");
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn placeholders_become_directives() {
        for (pattern, expected) in [
            ("{client_ip} {header.A-b}", "%{peer}x %{header.A-b}x"),
            ("%{A}i{status}%%{uri}", "%{A}i%{status}x%%%{target}x"),
            ("{\"a\":{b c}", "{\"a\":{b c}"),
            ("{{status} {", "{status} {"),
            ("%{", "%{"),
            ("", ""),
        ] {
            assert_eq!(directives(pattern), expected, "{pattern}");
        }
    }
}
