//! Messages of the protocols of logging daemons: syslog (RFC 5424) and journald. Pure.

use std::io::Write;

use crate::sections::log::Facility;

/// The values that all messages of a log have.
pub(super) struct MessageHeader {
    pub(super) facility: Facility,
    /// Name of the program.
    pub(super) tag: String,
    pub(super) host: String,
    pub(super) pid: u32,
    /// Type of the messages: `access` or `error`.
    pub(super) kind: &'static str,
}

/// Severity of lines without a mark (RFC 5424 §6.2.1).
const INFORMATIONAL: u8 = 6;

/// Byte that begins the mark of a line of the error log. Lines of the access log have no marks, and
/// neither log has control characters of clients.
const MARK: u8 = 0x1f;

/// Returns the mark of a line with this level.
pub(super) fn severity_mark(level: log::Level) -> &'static str {
    match level {
        log::Level::Error => "\x1f3",
        log::Level::Warn => "\x1f4",
        log::Level::Info => "\x1f6",
        log::Level::Debug | log::Level::Trace => "\x1f7",
    }
}

/// Returns the severity of a level (RFC 5424 §6.2.1).
pub(super) fn severity(level: log::Level) -> u8 {
    match level {
        log::Level::Error => 3,
        log::Level::Warn => 4,
        log::Level::Info => INFORMATIONAL,
        log::Level::Debug | log::Level::Trace => 7,
    }
}

/// Splits the severity from a line.
fn split_severity(line: &[u8]) -> (u8, &[u8]) {
    match line {
        [MARK, digit, text @ ..] => (digit - b'0', text),
        _ => (INFORMATIONAL, line),
    }
}

impl MessageHeader {
    /// Composes a syslog message (RFC 5424 §6) of at most `max_bytes` of text.
    pub(super) fn syslog(&self, out: &mut Vec<u8>, line: &[u8], time: &str, max_bytes: usize) {
        let (severity, text) = split_severity(line);
        let priority = self.facility.code() * 8 + severity;
        let MessageHeader { tag, host, pid, kind, .. } = self;
        write!(out, "<{priority}>1 {time} {host} {tag} {pid} {kind} - ")
            .expect("writing to a vector cannot fail");
        out.extend_from_slice(&text[..text.len().min(max_bytes)]);
    }

    /// Composes a message of the native protocol of journald: a field in each line.
    pub(super) fn journald(&self, out: &mut Vec<u8>, line: &[u8], max_bytes: usize) {
        let (severity, text) = split_severity(line);
        let MessageHeader { tag, pid, kind, .. } = self;
        let facility = self.facility.code();
        write!(
            out,
            "PRIORITY={severity}\nSYSLOG_FACILITY={facility}\nSYSLOG_IDENTIFIER={tag}\n\
             SYSLOG_PID={pid}\nWEFT_LOG={kind}\nMESSAGE="
        )
        .expect("writing to a vector cannot fail");
        out.extend_from_slice(&text[..text.len().min(max_bytes)]);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composes_messages() {
        let header = MessageHeader {
            facility: Facility::parse("local7").unwrap(),
            tag: "weft".to_owned(),
            host: "a".to_owned(),
            pid: 7,
            kind: "error",
        };
        let line = format!("{}a b", severity_mark(log::Level::Warn));
        for (line, max_bytes, expected) in [
            (&*line, 100, "<188>1 T a weft 7 error - a b"),
            ("<3>a", 100, "<190>1 T a weft 7 error - <3>a"),
            ("abc", 2, "<190>1 T a weft 7 error - ab"),
        ] {
            let mut out = Vec::new();
            header.syslog(&mut out, line.as_bytes(), "T", max_bytes);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let mut out = Vec::new();
        header.journald(&mut out, line.as_bytes(), 2);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "PRIORITY=4\nSYSLOG_FACILITY=23\nSYSLOG_IDENTIFIER=weft\nSYSLOG_PID=7\nWEFT_LOG=error\n\
             MESSAGE=a \n"
        );
    }
}
