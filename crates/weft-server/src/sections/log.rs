//! The section `[log]`: access log and error log.

use std::time::Duration;

use log::LevelFilter;
use weft::log::LogPrivacy;
use weft_config::{
    ConfigLocation, Key, Located, ValueKind, quoted, quoted_list, quoted_time, show_size,
};

use crate::base::log_format::AccessFormat;
use crate::base::log_target::{LOG_TARGET, LogTarget};

/// Values of `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) access: Located<LogTarget>,
    pub(crate) format: AccessFormat,
    pub(crate) error: Located<LogTarget>,
    pub(crate) level: LevelFilter,
    pub(crate) error_format: ErrorFormat,
    /// 0 disables rotation.
    pub(crate) max_bytes: u64,
    pub(crate) max_files: u32,
    /// `None`: files are rotated by their size only.
    pub(crate) rotate_every: Option<Duration>,
    /// `None`: rotated files are removed by their number only.
    pub(crate) max_age: Option<Duration>,
    /// Rotated files are compressed.
    pub(crate) compress: bool,
    pub(crate) privacy: LogPrivacy,
    pub(crate) facility: Facility,
    /// Name of the program for logging daemons.
    pub(crate) tag: String,
}

/// Format of the lines of the error log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    #[default]
    Text,
    /// JSON objects with time, level and message.
    Json,
}

/// Facility of messages for logging daemons (RFC 5424 §6.2.1), by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Facility(u8);

/// Names of the facilities, in the order of their codes.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

impl Facility {
    const DAEMON: Facility = Facility(3);

    pub(crate) fn parse(name: &str) -> Option<Facility> {
        let code = FACILITIES.iter().position(|known| *known == name)?;
        Some(Facility(code as u8))
    }

    pub(crate) fn code(self) -> u8 {
        self.0
    }

    fn name(self) -> &'static str {
        FACILITIES[usize::from(self.0)]
    }
}

impl LogSettings {
    /// Returns true if there is an access log.
    pub(crate) fn has_access(&self) -> bool {
        self.access.value != LogTarget::None
    }
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        let at = |value| Located { location: ConfigLocation::Unknown, value };
        LogSettings {
            access: at(LogTarget::Stdout),
            format: AccessFormat::combined(),
            error: at(LogTarget::Stderr),
            level: LevelFilter::Info,
            error_format: ErrorFormat::Text,
            max_bytes: 64 << 20,
            max_files: 10,
            rotate_every: None,
            max_age: None,
            compress: false,
            privacy: LogPrivacy::default(),
            facility: Facility::DAEMON,
            tag: "weft".to_owned(),
        }
    }
}

pub(crate) static LOG: [Key<LogSettings>; 14] = [
    Key {
        name: "access",
        flag: "log",
        argument: "WHERE",
        help: "destination of the access log: stdout, stderr, none, a file, syslog, \
               syslog:udp://HOST:PORT, syslog:tcp://HOST:PORT, syslog:unix:PATH or journald",
        kind: ValueKind::Custom(&LOG_TARGET, |log, given| {
            let target = LogTarget::read(given)?;
            log.access = target;
            Ok(())
        }),
        show: |log| log.access.value.show(),
    },
    Key {
        name: "format",
        flag: "log-format",
        argument: "FORMAT",
        help: "format of the access log: combined, json, json with names such as 'json time status', \
               or a pattern such as '%h %t \"%r\" %s %B'",
        kind: ValueKind::Text(|log, text| {
            let format = AccessFormat::parse(&text.value);
            log.format = format.map_err(|message| text.problem(message))?;
            Ok(())
        }),
        show: |log| quoted(&log.format.text),
    },
    Key {
        name: "error",
        flag: "error-log",
        argument: "WHERE",
        help: "destination of the error log: stderr, a file, or syslog or journald as of the access \
               log",
        kind: ValueKind::Custom(&LOG_TARGET, |log, given| {
            let target = LogTarget::read(given)?;
            if matches!(target.value, LogTarget::None | LogTarget::Stdout) {
                let message = "the error log has another destination: stderr, a file, syslog or \
                               journald; a file is written as ./stdout";
                return Err(target.problem(message));
            }
            log.error = target;
            Ok(())
        }),
        show: |log| log.error.value.show(),
    },
    Key {
        name: "level",
        flag: "log-level",
        argument: "LEVEL",
        help: "level of the error log: error, warn, info or debug; debug includes client errors",
        kind: ValueKind::Choice(&["error", "warn", "info", "debug"], |log, level| {
            log.level = level.parse().expect("the choices are log levels");
        }),
        show: |log| quoted(&log.level.as_str().to_ascii_lowercase()),
    },
    Key {
        name: "error_format",
        flag: "error-log-format",
        argument: "FORMAT",
        help: "format of the error log: text, or json with `time`, `level` and `message`",
        kind: ValueKind::Choice(&["text", "json"], |log, format| {
            log.error_format = match format {
                "json" => ErrorFormat::Json,
                _ => ErrorFormat::Text,
            };
        }),
        show: |log| {
            quoted(match log.error_format {
                ErrorFormat::Text => "text",
                ErrorFormat::Json => "json",
            })
        },
    },
    Key {
        name: "max_bytes",
        flag: "log-max-bytes",
        argument: "SIZE",
        help: "maximum size of a log file before it is rotated to FILE.1, FILE.1 to FILE.2 and so \
               on; 0: never",
        kind: ValueKind::Size(0..=u64::MAX, |log, bytes| log.max_bytes = bytes),
        show: |log| quoted(&show_size(log.max_bytes)),
    },
    Key {
        name: "max_files",
        flag: "log-max-files",
        argument: "N",
        help: "number of rotated log files to keep",
        kind: ValueKind::Count(1..=1_000, |log, count| log.max_files = count as u32),
        show: |log| log.max_files.to_string(),
    },
    Key {
        name: "rotate_every",
        flag: "log-rotate-every",
        argument: "TIME",
        help: "also rotate a file at the first line of each period, such as 1d or 1h; periods begin at \
               midnight UTC",
        kind: ValueKind::Time(|log, time| log.rotate_every = Some(time)),
        show: |log| log.rotate_every.map_or_else(String::new, quoted_time),
    },
    Key {
        name: "max_age",
        flag: "log-max-age",
        argument: "TIME",
        help: "age at which a rotation and a start remove rotated files, such as 30d",
        kind: ValueKind::Time(|log, time| log.max_age = Some(time)),
        show: |log| log.max_age.map_or_else(String::new, quoted_time),
    },
    Key {
        name: "compress",
        flag: "log-compress",
        argument: "",
        help: "compress rotated files by gzip, as FILE.1.gz",
        kind: ValueKind::Bool(|log, switch| log.compress = switch),
        show: |log| log.compress.to_string(),
    },
    Key {
        name: "mask_addresses",
        flag: "log-mask-addresses",
        argument: "",
        help: "log the network of a client, a /24 of IPv4 or a /48 of IPv6, in place of its address, in \
               all access logs",
        kind: ValueKind::Bool(|log, switch| log.privacy.mask_addresses = switch),
        show: |log| log.privacy.mask_addresses.to_string(),
    },
    Key {
        name: "redact",
        flag: "log-redact",
        argument: "NAME",
        help: "parameter of the query whose value is logged as ***, such as token, in all access logs",
        kind: ValueKind::Texts(|log, names| {
            for name in &names {
                if name.value.is_empty() {
                    return Err(name.problem("expected the name of a parameter"));
                }
            }
            log.privacy.redacted_parameters = names.into_iter().map(|name| name.value).collect();
            Ok(())
        }),
        show: |log| quoted_list(log.privacy.redacted_parameters.iter()),
    },
    Key {
        name: "facility",
        flag: "log-facility",
        argument: "NAME",
        help: "facility of messages to syslog and journald: daemon, user, local0 to local7 or \
               another of RFC 5424",
        kind: ValueKind::Choice(&FACILITIES, |log, name| {
            log.facility = Facility::parse(name).expect("the choices are facilities");
        }),
        show: |log| quoted(log.facility.name()),
    },
    Key {
        name: "tag",
        flag: "log-tag",
        argument: "NAME",
        help: "name of the program in messages to syslog and journald",
        kind: ValueKind::Text(|log, text| {
            let is_valid = (1..=48).contains(&text.value.len())
                && text.value.bytes().all(|b| b.is_ascii_graphic());
            if !is_valid {
                return Err(text.problem("expected 1 to 48 ASCII characters without spaces"));
            }
            log.tag = text.value;
            Ok(())
        }),
        show: |log| quoted(&log.tag),
    },
];
