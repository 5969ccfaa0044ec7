//! The keys of `[log]`.

use log::LevelFilter;
use weft::LogFormat;

use super::key::{Key, Takes, WordOrPath};
use super::keys::quoted;
use super::place::{At, Checked, Place};
use super::units::show_size;

/// What is logged, where and how.
#[derive(Debug)]
pub(crate) struct LogConfig {
    pub(crate) access: At<WordOrPath>,
    pub(crate) format: Format,
    pub(crate) error: At<WordOrPath>,
    pub(crate) level: LevelFilter,
    /// 0: files are never rotated.
    pub(crate) max_bytes: u64,
    pub(crate) max_files: u32,
}

/// A format, and how it was written.
#[derive(Debug)]
pub(crate) struct Format {
    text: String,
    pub(crate) format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        let word = |word| At { place: Place::Unknown, value: WordOrPath::Word(word) };
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
        help: "where the access log goes: stdout, stderr, none or a file",
        takes: Takes::WordOrPath(&["stdout", "stderr", "none"], |log, at| log.access = at),
        show: |log| place_shown(&log.access),
    },
    Key {
        name: "format",
        flag: "log-format",
        argument: "FORMAT",
        help: "what its lines look like: combined, json or a pattern such as '%h %t \"%r\" %s %B'",
        takes: Takes::Text(|log, text| {
            log.format = format(text)?;
            Ok(())
        }),
        show: |log| quoted(&log.format.text),
    },
    Key {
        name: "error",
        flag: "error-log",
        argument: "WHERE",
        help: "where errors and notices go: stderr or a file",
        takes: Takes::WordOrPath(&["stderr"], |log, at| log.error = at),
        show: |log| place_shown(&log.error),
    },
    Key {
        name: "level",
        flag: "log-level",
        argument: "LEVEL",
        help: "how much of them is told: error, warn, info or debug, which tells of clients' \
               faults too",
        takes: Takes::Choice(&["error", "warn", "info", "debug"], |log, level| {
            log.level = level.parse().expect("a level");
        }),
        show: |log| quoted(&log.level.as_str().to_ascii_lowercase()),
    },
    Key {
        name: "max_bytes",
        flag: "log-max-bytes",
        argument: "SIZE",
        help: "a log file of this size becomes FILE.1, that one FILE.2 and so on, and a new one \
               is begun; 0: never",
        takes: Takes::Size(0..=u64::MAX, |log, bytes| log.max_bytes = bytes),
        show: |log| quoted(&show_size(log.max_bytes)),
    },
    Key {
        name: "max_files",
        flag: "log-max-files",
        argument: "N",
        help: "how many such files are kept beside it",
        takes: Takes::Count(1..=1_000, |log, count| log.max_files = count as u32),
        show: |log| log.max_files.to_string(),
    },
];

fn place_shown(place: &At<WordOrPath>) -> String {
    match &place.value {
        WordOrPath::Word(word) => quoted(word),
        WordOrPath::Path(path) => quoted(&path.to_string_lossy()),
    }
}

fn format(text: At<String>) -> Checked<Format> {
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
        let message = "%L and %{name}o are not known here; %{X-Request-Id}i is what a proxy in \
                       front has sent";
        return Err(text.problem(message));
    }
    Ok(Format { text: text.value, format })
}
