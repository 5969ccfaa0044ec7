//! The error log: the logger behind the macros of the crate `log`.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use log::{LevelFilter, Log, Metadata, Record};
use weft::date::rfc3339_millis;

use super::message::severity_mark;
use super::sink::LineSender;

/// The logger of the whole program.
static ERROR_LOG: ErrorLog = ErrorLog(Mutex::new(None));

struct ErrorLog(Mutex<Option<Target>>);

struct Target {
    sender: LineSender,
    style: LineStyle,
}

/// Beginning of the lines.
#[derive(Clone, Copy)]
pub(super) enum LineStyle {
    /// Name of the program: the reader of stderr, such as journald, adds the time.
    Stderr,
    /// Time and level.
    File,
    /// A mark of the severity, for messages that have time and severity.
    Daemon,
}

/// Installs the logger. Errors, notices and panic messages are logged to `sender` from now on.
pub(super) fn install(sender: LineSender, style: LineStyle, level: LevelFilter) {
    let target = Target { sender, style };
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
        let message = one_line(&record.args().to_string());
        if let Some(target) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            target.sender.try_append(&match target.style {
                LineStyle::File => {
                    let level = record.level().as_str().to_ascii_lowercase();
                    format!("{} {level}: {message}\n", rfc3339_millis(SystemTime::now()))
                }
                LineStyle::Stderr => format!("weft: {message}\n"),
                LineStyle::Daemon => format!("{}{message}\n", severity_mark(record.level())),
            });
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
}
