//! The keys of `[log]`.

use log::LevelFilter;

use super::key::{Key, ValueKind, WordOrPath};
use super::keys::quoted;
use super::location::{ConfigLocation, Located};
use super::log_format::AccessFormat;
use super::units::show_size;

/// Values of `[log]`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogConfig {
    pub(crate) access: Located<WordOrPath>,
    pub(crate) format: AccessFormat,
    pub(crate) error: Located<WordOrPath>,
    pub(crate) level: LevelFilter,
    /// 0 disables rotation.
    pub(crate) max_bytes: u64,
    pub(crate) max_files: u32,
}

impl LogConfig {
    /// Returns true if there is an access log.
    pub(crate) fn has_access(&self) -> bool {
        self.access.value != WordOrPath::Word("none")
    }
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        let word =
            |word| Located { location: ConfigLocation::Unknown, value: WordOrPath::Word(word) };
        LogConfig {
            access: word("stdout"),
            format: AccessFormat::combined(),
            error: word("stderr"),
            level: LevelFilter::Info,
            max_bytes: 64 << 20,
            max_files: 10,
        }
    }
}

/// Destinations of an access log that are no files.
pub(super) const ACCESS_WORDS: [&str; 3] = ["stdout", "stderr", "none"];

pub(crate) static LOG: [Key<LogConfig>; 6] = [
    Key {
        name: "access",
        flag: "log",
        argument: "WHERE",
        help: "destination of the access log: stdout, stderr, none or a file",
        kind: ValueKind::WordOrPath(&ACCESS_WORDS, |log, destination| log.access = destination),
        show: |log| quoted_destination(&log.access.value),
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
        help: "destination of the error log: stderr or a file",
        kind: ValueKind::WordOrPath(&["stderr"], |log, destination| log.error = destination),
        show: |log| quoted_destination(&log.error.value),
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
];

pub(super) fn quoted_destination(destination: &WordOrPath) -> String {
    match destination {
        WordOrPath::Word(word) => quoted(word),
        WordOrPath::Path(path) => quoted(&path.to_string_lossy()),
    }
}
