//! The keys of `[log]`.

use log::LevelFilter;
use weft::LogFormat;

use super::key::{Key, ValueKind, WordOrPath};
use super::keys::quoted;
use super::location::{ConfigLocation, ConfigResult, Located};
use super::units::show_size;

/// Values of `[log]`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogConfig {
    pub(crate) access: Located<WordOrPath>,
    pub(crate) format: Format,
    pub(crate) error: Located<WordOrPath>,
    pub(crate) level: LevelFilter,
    /// 0 disables rotation.
    pub(crate) max_bytes: u64,
    pub(crate) max_files: u32,
}

/// A log format, with its text in the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Format {
    text: String,
    pub(crate) format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        let word =
            |word| Located { location: ConfigLocation::Unknown, value: WordOrPath::Word(word) };
        LogConfig {
            access: word("stdout"),
            format: Format { text: "combined".to_owned(), format: LogFormat::combined() },
            error: word("stderr"),
            level: LevelFilter::Info,
            max_bytes: 64 << 20,
            max_files: 10,
        }
    }
}

pub(crate) static LOG: [Key<LogConfig>; 6] = [
    Key {
        name: "access",
        flag: "log",
        argument: "WHERE",
        help: "destination of the access log: stdout, stderr, none or a file",
        kind: ValueKind::WordOrPath(&["stdout", "stderr", "none"], |log, destination| {
            log.access = destination
        }),
        show: |log| quoted_destination(&log.access),
    },
    Key {
        name: "format",
        flag: "log-format",
        argument: "FORMAT",
        help: "format of the access log: combined, json or a pattern such as '%h %t \"%r\" %s %B'",
        kind: ValueKind::Text(|log, text| {
            log.format = format(text)?;
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
        show: |log| quoted_destination(&log.error),
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

fn quoted_destination(destination: &Located<WordOrPath>) -> String {
    match &destination.value {
        WordOrPath::Word(word) => quoted(word),
        WordOrPath::Path(path) => quoted(&path.to_string_lossy()),
    }
}

fn format(text: Located<String>) -> ConfigResult<Format> {
    let format = match &*text.value {
        "combined" => LogFormat::combined(),
        "json" => LogFormat::json(),
        pattern if !pattern.contains('%') => {
            return Err(text.problem(format!(
                "expected combined, json or a pattern such as \"%h %s\", found {pattern:?}"
            )));
        }
        pattern => {
            LogFormat::pattern(pattern).map_err(|error| text.problem(error.reason().to_owned()))?
        }
    };
    if format.needs_response() {
        let message = "%L and %{name}o are not supported in `format`; %{X-Request-Id}i is the \
                       value sent by a proxy";
        return Err(text.problem(message));
    }
    Ok(Format { text: text.value, format })
}
