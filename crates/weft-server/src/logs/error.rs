//! The error log: what the macros of the crate log lead to.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use log::{LevelFilter, Log, Metadata, Record};
use weft::date::rfc3339;

use super::sink::Lines;

/// There is one for the whole program.
static ERROR_LOG: ErrorLog = ErrorLog(Mutex::new(None));

struct ErrorLog(Mutex<Option<Target>>);

struct Target {
    lines: Lines,
    /// Whether a line has its time and its level. Who reads stderr adds the time, and knows
    /// the program by its name.
    is_stamped: bool,
}

/// From now on errors and notices go there, a panic among them.
pub(super) fn begin(lines: Lines, is_stamped: bool, level: LevelFilter) {
    let target = Target { lines, is_stamped };
    *ERROR_LOG.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    // It may have been set by an earlier call, to the same.
    let _ = log::set_logger(&ERROR_LOG);
    log::set_max_level(level);
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
}

impl Log for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        // What is told may panic, which is told here too: nothing is locked meanwhile.
        let message = one_line(&record.args().to_string());
        if let Some(target) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            target.lines.offer(&match target.is_stamped {
                true => {
                    let level = record.level().as_str().to_ascii_lowercase();
                    format!("{} {level}: {message}\n", rfc3339(SystemTime::now()))
                }
                false => format!("weft: {message}\n"),
            });
        }
    }

    /// Each line is written at once, by another thread.
    fn flush(&self) {}
}

/// A text without line ends, other controls and whatever else cannot be seen: they are
/// escaped, for a part of it may be a client's.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // It would be escaped in Rust.
            '"' | '\'' | '\\' => line.push(c),
            c => line.extend(c.escape_debug()),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_controls() {
        for (text, expected) in [
            ("serving site on http://[::1]:80", "serving site on http://[::1]:80"),
            ("d\u{ed}as \"a\" 'b' C:\\", "d\u{ed}as \"a\" 'b' C:\\"),
            ("a\nweft: b\r\n", r"a\nweft: b\r\n"),
            ("\t\0\x1b[2J\x7f", r"\t\0\u{1b}[2J\u{7f}"),
            // Controls, line ends and directions of other alphabets.
            ("\u{85}\u{9b}\u{2028}\u{2029}\u{202e}", r"\u{85}\u{9b}\u{2028}\u{2029}\u{202e}"),
        ] {
            assert_eq!(one_line(text), expected);
        }
    }
}
