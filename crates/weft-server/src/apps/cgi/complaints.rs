//! What a script writes to its standard error, and what there is to say of it: the error log.

use std::fmt;

use tokio::io::{AsyncRead, AsyncReadExt};

/// A line is cut after so many bytes.
const MOST_LINE_BYTES: usize = 2_048;

/// So many lines of one run are told, then only how many more there were.
const MOST_LINES: usize = 100;

/// Tells whoever runs the server. All that is said of scripts goes through here.
pub(super) fn tell(script: &str, text: impl fmt::Display) {
    log::warn!("{script}: {text}");
}

/// Passes on what comes, line by line, to its end.
pub(super) async fn pass_on(script: &str, mut stderr: impl AsyncRead + Unpin) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; 4_096];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        lines.take(&buffer[..read], |line| tell(script, line));
    }
    lines.end(|line| tell(script, line));
}

/// Bytes → lines that can be told.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    is_cut: bool,
    count: usize,
}

impl Lines {
    fn take(&mut self, bytes: &[u8], mut tell: impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            let (text, is_end) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = MOST_LINE_BYTES - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            self.is_cut |= text.len() > room;
            if is_end {
                self.tell_line(&mut tell);
            }
        }
    }

    fn end(mut self, mut tell: impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.tell_line(&mut tell);
        }
        if self.count > MOST_LINES {
            tell(&format!("({} more lines)", self.count - MOST_LINES));
        }
    }

    fn tell_line(&mut self, tell: &mut impl FnMut(&str)) {
        self.count += 1;
        if self.count <= MOST_LINES {
            let mut line = String::with_capacity(self.line.len());
            for c in String::from_utf8_lossy(&self.line).trim_end_matches('\r').chars() {
                match c {
                    // It can neither begin a line of its own nor move a terminal's cursor.
                    c if c.is_control() && c != '\t' => line.extend(c.escape_default()),
                    c => line.push(c),
                }
            }
            if self.is_cut {
                line.push('…');
            }
            tell(&line);
        }
        self.line.clear();
        self.is_cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pieces: &[&[u8]]) -> Vec<String> {
        let mut told = Vec::new();
        let mut lines = Lines::default();
        for piece in pieces {
            lines.take(piece, |line| told.push(line.to_owned()));
        }
        lines.end(|line| told.push(line.to_owned()));
        told
    }

    #[test]
    fn output_and_lines() {
        for (pieces, expected) in [
            (&[&b""[..]][..], &[][..]),
            (&[b"one\ntwo\n"], &["one", "two"]),
            (&[b"o", b"ne\r\n\nno", b" end"], &["one", "", "no end"]),
            (&[b"\x1b[2J d\xc3\xadas \xff\t\0\rx\n"], &["\\u{1b}[2J días \u{fffd}\t\\u{0}\\rx"]),
        ] {
            assert_eq!(told(pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn long_lines_are_cut() {
        let whole = "x".repeat(MOST_LINE_BYTES);
        let pieces = [whole.as_bytes(), b"\n", whole.as_bytes(), b"y", b"z\nshort\n"];
        assert_eq!(told(&pieces), [whole.clone(), whole + "…", "short".to_owned()]);
    }

    #[test]
    fn many_lines_are_counted() {
        let most = "x\n".repeat(MOST_LINES);
        assert_eq!(told(&[most.as_bytes()]).len(), MOST_LINES);
        let told = told(&[most.as_bytes(), b"a\nb\nc"]);
        assert_eq!(told.len(), MOST_LINES + 1);
        assert_eq!(told[MOST_LINES], "(3 more lines)");
    }
}
