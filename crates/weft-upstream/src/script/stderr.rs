//! Standard error of scripts and warnings about scripts, both written to the error log.

use std::fmt;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Longer lines are truncated.
const MAX_LINE_BYTES: usize = 2_048;

/// Lines logged per run. Further lines are only counted, and their number is logged at the end.
const MAX_LINES: usize = 100;

/// Logs a warning about a script. All log lines about scripts are written here.
pub fn warn(script: impl fmt::Display, text: impl fmt::Display) {
    log::warn!("{script}: {text}");
}

/// Copies `stderr` to the error log, line by line, until its end.
pub async fn forward(script: &str, mut stderr: impl AsyncRead + Unpin) {
    let mut lines = LineSplitter::default();
    let mut buffer = vec![0; 4_096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        lines.push(&buffer[..read], |line| warn(script, line));
    }
    lines.finish(|line| warn(script, line));
}

/// Splits bytes into printable lines, within the limits above.
#[derive(Default)]
pub struct LineSplitter {
    line: Vec<u8>,
    is_truncated: bool,
    count: usize,
}

impl LineSplitter {
    /// Adds bytes, and calls `emit` for each complete line.
    pub fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            let (text, is_end) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = MAX_LINE_BYTES - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            self.is_truncated |= text.len() > room;
            if is_end {
                self.end_line(&mut emit);
            }
        }
    }

    /// Calls `emit` for an incomplete last line, and for the number of lines that were not logged.
    pub fn finish(mut self, mut emit: impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.end_line(&mut emit);
        }
        if self.count > MAX_LINES {
            emit(&format!("({} more lines)", self.count - MAX_LINES));
        }
    }

    fn end_line(&mut self, emit: &mut impl FnMut(&str)) {
        self.count += 1;
        if self.count <= MAX_LINES {
            let mut line = String::with_capacity(self.line.len());
            for c in String::from_utf8_lossy(&self.line).trim_end_matches('\r').chars() {
                match c {
                    // Escaped, so that it can neither start a line nor control a terminal.
                    c if c.is_control() && c != '\t' => line.extend(c.escape_default()),
                    c => line.push(c),
                }
            }
            if self.is_truncated {
                line.push('…');
            }
            emit(&line);
        }
        self.line.clear();
        self.is_truncated = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(pieces: &[&[u8]]) -> Vec<String> {
        let mut emitted = Vec::new();
        let mut lines = LineSplitter::default();
        for piece in pieces {
            lines.push(piece, |line| emitted.push(line.to_owned()));
        }
        lines.finish(|line| emitted.push(line.to_owned()));
        emitted
    }

    #[test]
    fn splits_lines_and_escapes_controls() {
        for (pieces, expected) in [
            (&[&b""[..]][..], &[][..]),
            (&[b"one\ntwo\n"], &["one", "two"]),
            (&[b"o", b"ne\r\n\nno", b" end"], &["one", "", "no end"]),
            (&[b"\x1b[2J d\xc3\xadas \xff\t\0\rx\n"], &["\\u{1b}[2J días \u{fffd}\t\\u{0}\\rx"]),
        ] {
            assert_eq!(emitted(pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn truncates_long_lines() {
        let whole = "x".repeat(MAX_LINE_BYTES);
        let pieces = [whole.as_bytes(), b"\n", whole.as_bytes(), b"y", b"z\nshort\n"];
        assert_eq!(emitted(&pieces), [whole.clone(), whole + "…", "short".to_owned()]);
    }

    #[test]
    fn counts_lines_beyond_the_limit() {
        let allowed = "x\n".repeat(MAX_LINES);
        assert_eq!(emitted(&[allowed.as_bytes()]).len(), MAX_LINES);
        let lines = emitted(&[allowed.as_bytes(), b"a\nb\nc"]);
        assert_eq!(lines.len(), MAX_LINES + 1);
        assert_eq!(lines[MAX_LINES], "(3 more lines)");
    }
}
