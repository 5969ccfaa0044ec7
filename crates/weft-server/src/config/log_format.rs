//! Formats of access logs: `combined`, `json`, JSON with chosen members, or a pattern.

use std::hash::{Hash, Hasher};

use weft::{HeaderName, LogFormat};

use super::keys::engine_sets;
use super::suggestion::suggest;
use crate::request_notes;

/// A log format, with its text in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessFormat {
    pub(super) text: String,
    pub(crate) format: LogFormat,
}

/// Names of the values of the library. Others begin with `header.` or `response.`.
const NAMES: [&str; 23] = [
    "time",
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
    pub(super) fn combined() -> AccessFormat {
        AccessFormat { text: "combined".to_owned(), format: LogFormat::combined() }
    }

    /// Parses a format.
    ///
    /// # Errors
    /// The message names an unknown value and suggests another one.
    pub(super) fn parse(text: &str) -> Result<AccessFormat, String> {
        let format = match text {
            "combined" => LogFormat::combined(),
            "json" => LogFormat::json(),
            _ if text.starts_with("json ") => json_members(&text["json ".len()..])?,
            pattern if !pattern.contains('%') => {
                return Err(format!(
                    "expected combined, json, json with names of values, or a pattern such as \
                     \"%h %s\", found {pattern:?}"
                ));
            }
            pattern => LogFormat::pattern(pattern).map_err(|error| error.reason().to_owned())?,
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
    let members = members.iter().map(|(member, value)| (&**member, &**value));
    LogFormat::json_with(members).map_err(|error| error.reason().to_owned())
}

/// Checks the name of a value that the library leaves to the application.
fn check_name(name: &str) -> Result<(), String> {
    if NAMES.contains(&name) || request_notes::NAMES.contains(&name) {
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
                "unknown value `{name}` in a log format; known are {known}, header.NAME and \
                 response.NAME"
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
            ("jsn", "expected combined, json, json with"),
            ("json ", "expected names of values"),
            ("json statu", "unknown value `statu` in a log format; did you mean `status`?"),
            ("json time time", "the member \"time\" of a log line is given twice"),
            ("%{upstream.adress}x", "did you mean `upstream.address`?"),
            ("%{zzz}x", "known are time, seconds"),
            ("%{Content-Length}o", "the server sets the response field Content-Length itself"),
            ("%{a b}o", "\"a b\" is not the name of a field"),
            ("%Z", "behind the % of a log pattern, found 'Z'"),
        ] {
            let problem = AccessFormat::parse(text).err().unwrap_or_default();
            assert_eq!(problem.is_empty(), expected.is_empty(), "{text}: {problem}");
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
