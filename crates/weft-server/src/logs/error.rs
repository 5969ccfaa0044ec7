//! The error log: the logger behind the macros of the crate `log`.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use log::{Level, LevelFilter, Log, Metadata, Record};
use weft::date::rfc3339_millis;
use weft::log::LogPrivacy;

use super::message::{severity, severity_mark};
use super::sink::LineSender;
use crate::base::sys::stream_id;

/// The logger of the whole program.
static ERROR_LOG: ErrorLog = ErrorLog(Mutex::new(None));

struct ErrorLog(Mutex<Option<Target>>);

struct Target {
    sender: LineSender,
    style: LineStyle,
    privacy: LogPrivacy,
}

/// Form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineStyle {
    /// Name of the program, for a person at a terminal.
    Terminal,
    /// A level in the form of the kernel, `<4>`, for stderr that journald reads. It adds the time.
    Journal,
    /// Time and level.
    Text,
    /// An object of JSON with time and level.
    Json,
    /// A mark of the severity, for messages that have time and severity.
    Daemon,
}

impl LineStyle {
    /// Returns the style for lines on stderr.
    pub(super) fn of_stderr() -> LineStyle {
        match () {
            () if std::io::stderr().is_terminal() => LineStyle::Terminal,
            () if is_read_by_journald() => LineStyle::Journal,
            () => LineStyle::Text,
        }
    }

    fn line(self, level: Level, message: &str, now: SystemTime) -> String {
        let name = level.as_str().to_ascii_lowercase();
        match self {
            LineStyle::Terminal => format!("weft: {message}\n"),
            LineStyle::Journal => format!("<{}>{message}\n", severity(level)),
            LineStyle::Text => format!("{} {name}: {message}\n", rfc3339_millis(now)),
            LineStyle::Json => {
                let time = rfc3339_millis(now);
                let text = serde_json::Value::from(message);
                format!("{{\"time\":\"{time}\",\"level\":\"{name}\",\"message\":{text}}}\n")
            }
            LineStyle::Daemon => format!("{}{message}\n", severity_mark(level)),
        }
    }
}

/// Returns true if stderr is the stream to journald that the service manager has opened
/// (systemd.exec(5), `$JOURNAL_STREAM`).
fn is_read_by_journald() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    stream_id(std::io::stderr()).is_some_and(|id| id == stream)
}

/// Installs the logger. Errors, notices and panic messages are logged to `sender` from now on.
pub(super) fn install(
    sender: LineSender,
    style: LineStyle,
    level: LevelFilter,
    privacy: LogPrivacy,
) {
    let target = Target { sender, style, privacy };
    *ERROR_LOG.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    // Fails if an earlier call has set the same logger.
    let _ = log::set_logger(&ERROR_LOG);
    log::set_max_level(level);
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
}

impl Log for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        // Formatting may panic, and the panic hook logs here too, so no lock is held meanwhile.
        let message = record.args().to_string();
        if let Some(target) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // The time is read under the lock, so that lines are in the order of their time.
            let message = one_line(&target.privacy.redact_text(&message));
            let line = target.style.line(record.level(), &message, SystemTime::now());
            target.sender.try_append(&line);
        }
    }

    /// Does nothing: the writer thread writes each line without delay.
    fn flush(&self) {}
}

/// Escapes line ends, other control characters and invisible characters, because a part of the
/// text may come from a client.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // `escape_debug` would escape these.
            '"' | '\'' | '\\' => line.push(c),
            c => line.extend(c.escape_debug()),
        }
    }
    line
}

/// Writes one line to stderr, with control characters of `text` escaped. Used for errors before the
/// error log is open, and for failures of the error log.
pub(crate) fn print_error(text: &str) {
    let line = format!("weft: {}\n", one_line(text));
    // Ignored: there is no output to report an error of stderr to.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_control_characters() {
        for (text, expected) in [
            ("serving site on http://[::1]:80", "serving site on http://[::1]:80"),
            ("d\u{ed}as \"a\" 'b' C:\\", "d\u{ed}as \"a\" 'b' C:\\"),
            ("a\nweft: b\r\n", r"a\nweft: b\r\n"),
            ("\t\0\x1b[2J\x7f", r"\t\0\u{1b}[2J\u{7f}"),
            // C1 controls, Unicode line separators and a bidirectional override.
            ("\u{85}\u{9b}\u{2028}\u{2029}\u{202e}", r"\u{85}\u{9b}\u{2028}\u{2029}\u{202e}"),
        ] {
            assert_eq!(one_line(text), expected);
        }
    }

    #[test]
    fn lines_have_the_form_of_their_reader() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(784_111_777_012);
        for (style, expected) in [
            (LineStyle::Terminal, "weft: a \"b\"\n"),
            (LineStyle::Journal, "<4>a \"b\"\n"),
            (LineStyle::Text, "1994-11-06T08:49:37.012Z warn: a \"b\"\n"),
            (
                LineStyle::Json,
                "{\"time\":\"1994-11-06T08:49:37.012Z\",\"level\":\"warn\",\
                 \"message\":\"a \\\"b\\\"\"}\n",
            ),
            (LineStyle::Daemon, "\x1f4a \"b\"\n"),
        ] {
            assert_eq!(style.line(Level::Warn, "a \"b\"", now), expected, "{style:?}");
        }
    }
}
