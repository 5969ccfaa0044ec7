//! Destinations of logs.

use std::path::PathBuf;

use weft_config::{ConfigResult, CustomType, Given, Located, quoted, schema};

use crate::base::sys::{FEATURES, SYSLOG_SOCKET};

/// Destination of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LogTarget {
    None,
    Stdout,
    Stderr,
    File(PathBuf),
    Daemon(LogDaemon),
}

/// A logging daemon, with its text in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LogDaemon {
    pub(crate) text: String,
    pub(crate) address: DaemonAddress,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DaemonAddress {
    SyslogUnix(PathBuf),
    /// Host and port.
    SyslogUdp(String),
    /// Host and port.
    SyslogTcp(String),
    Journald(PathBuf),
}

/// The type of keys that have a destination.
pub(crate) static LOG_TARGET: CustomType =
    CustomType { is_list: false, shape: "word, URL or path", schema: schema::text };

impl LogTarget {
    /// Reads a destination from a file or from the command line.
    pub(crate) fn read(given: Given<'_>) -> ConfigResult<Located<LogTarget>> {
        given.text_or_path(LogTarget::parse, LogTarget::File)
    }

    /// Parses a destination. Returns `None` if it is a path.
    ///
    /// # Errors
    /// With an invalid address of a daemon.
    fn parse(text: &str) -> Result<Option<LogTarget>, String> {
        Ok(Some(match text {
            "none" => LogTarget::None,
            "stdout" => LogTarget::Stdout,
            "stderr" => LogTarget::Stderr,
            _ => match DaemonAddress::parse(text)? {
                Some(address) => LogTarget::Daemon(LogDaemon { text: text.to_owned(), address }),
                None => return Ok(None),
            },
        }))
    }

    /// Formats the destination as in a file.
    pub(crate) fn show(&self) -> String {
        match self {
            LogTarget::None => quoted("none"),
            LogTarget::Stdout => quoted("stdout"),
            LogTarget::Stderr => quoted("stderr"),
            LogTarget::File(path) => quoted(&path.to_string_lossy()),
            LogTarget::Daemon(daemon) => quoted(&daemon.text),
        }
    }
}

impl DaemonAddress {
    fn parse(text: &str) -> Result<Option<DaemonAddress>, String> {
        let invalid = |expected: &str| Err(format!("expected {expected}, found {text:?}"));
        let (daemon, address) = text.split_once(':').unwrap_or((text, ""));
        let is_path = |path: &str| path.starts_with('/') && !path.contains('\0');
        Ok(Some(match (daemon, address.split_once(':')) {
            ("syslog", None) if text == "syslog" => DaemonAddress::SyslogUnix(SYSLOG_SOCKET.into()),
            ("syslog", Some(("unix", path))) if is_path(path) => {
                DaemonAddress::SyslogUnix(path.into())
            }
            ("syslog", Some(("udp", host))) if is_host_and_port(host) => {
                DaemonAddress::SyslogUdp(host["//".len()..].to_owned())
            }
            ("syslog", Some(("tcp", host))) if is_host_and_port(host) => {
                DaemonAddress::SyslogTcp(host["//".len()..].to_owned())
            }
            ("syslog", _) => {
                return invalid(
                    "syslog, syslog:unix:/PATH, syslog:udp://HOST:PORT or syslog:tcp://HOST:PORT",
                );
            }
            ("journald", _) if text == "journald" && !FEATURES.journald => {
                return Err("this system has no journald: use `syslog`".to_owned());
            }
            ("journald", _) if text == "journald" => {
                DaemonAddress::Journald("/run/systemd/journal/socket".into())
            }
            ("journald", _) if is_path(address) => DaemonAddress::Journald(address.into()),
            ("journald", _) => return invalid("journald or journald:/PATH"),
            _ => return Ok(None),
        }))
    }
}

/// Returns true if the text has the form `//HOST:PORT`.
fn is_host_and_port(text: &str) -> bool {
    let host_and_port = text.strip_prefix("//").and_then(|text| text.rsplit_once(':'));
    host_and_port.is_some_and(|(host, port)| {
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let is_permitted = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let is_name = !host.is_empty() && host.bytes().all(is_permitted);
        (is_bracketed || is_name) && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses_of_daemons() {
        let parse = |text: &str| match LogTarget::parse(text) {
            Ok(Some(LogTarget::Daemon(daemon))) => format!("{:?}", daemon.address),
            Ok(Some(other)) => format!("{other:?}"),
            Ok(None) => "a path".to_owned(),
            Err(message) => message,
        };
        for (text, expected) in [
            ("none", "None"),
            ("access.log", "a path"),
            ("./syslog", "a path"),
            ("syslog.log", "a path"),
            ("syslog", "SyslogUnix(\"/dev/log\")"),
            ("syslog:unix:/run/log", "SyslogUnix(\"/run/log\")"),
            ("syslog:udp://10.0.0.1:514", "SyslogUdp(\"10.0.0.1:514\")"),
            ("syslog:tcp://[::1]:601", "SyslogTcp(\"[::1]:601\")"),
            ("journald", "Journald(\"/run/systemd/journal/socket\")"),
            (
                "journald:/run/systemd/journal.a/socket",
                "Journald(\"/run/systemd/journal.a/socket\")",
            ),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        for text in [
            "syslog:",
            "syslog:unix:log",
            "syslog:udp://a",
            "syslog:udp://:514",
            "syslog:udp:a:514",
            "syslog:tcp://a:0",
            "syslog:tcp://a:66000",
            "syslog:tls://a:6514",
            "journald:",
            "journald:socket",
        ] {
            assert!(parse(text).starts_with("expected "), "{text}: {}", parse(text));
        }
    }
}
