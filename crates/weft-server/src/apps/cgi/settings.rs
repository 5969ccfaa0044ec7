//! What a folder of scripts is set up with: every limit and clock, one plain struct.

use std::path::PathBuf;
use std::time::Duration;

/// Where the scripts are, and within which limits they run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The folder with the scripts, or one script that answers for all paths.
    pub(crate) root: PathBuf,

    /// The script that stands for its folder. Default none: a folder is not found.
    pub(crate) index: Option<String>,

    /// Variables of the environment beside those of RFC 3875, and in place of them. Default none:
    /// of the server's own environment scripts see `PATH` only.
    pub(crate) environment: Vec<Variable>,

    /// How long a script may take for the head of its response; longer: it is ended, and the
    /// client gets 504. Bytes of the request's body that move begin it anew, and waiting for the
    /// client is not counted. Default 60 s, as for upstreams.
    pub(crate) timeout: Duration,

    /// How long a script may be silent in the middle of its output; longer: it is ended, and the
    /// response is cut. Also how long it may go on when its response is complete. Waiting for the
    /// client is not counted. Default 60 s.
    pub(crate) body_timeout: Duration,

    /// The most scripts that run at a time, in all workers together; further requests queue.
    /// Default 64: each is a process, and most of them interpreters.
    pub(crate) max_processes: usize,

    /// The most requests that wait for a place; more: 503 with `Retry-After`. Default 64.
    pub(crate) max_queued: usize,

    /// How long they wait; longer: 503. Default 5 s.
    pub(crate) queue_timeout: Duration,

    /// The largest body of a request, in bytes; larger: 413. Default 1 GiB: it is streamed, and
    /// costs no memory.
    pub(crate) max_body_bytes: u64,

    /// The same for a body whose length the client does not say. Scripts are told the length
    /// before they start (RFC 3875 §4.1.2), so it is first kept in a file without a name, in
    /// `TMPDIR` or /tmp. Default 16 MiB.
    pub(crate) max_spooled_bytes: u64,

    /// The largest head of a script's response, in bytes; larger: 502. Default 64 KiB.
    pub(crate) max_head_bytes: usize,
}

/// A variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// `None`: what the server itself has, if it has it.
    pub(crate) value: Option<String>,
}

impl Variable {
    /// `NAME=VALUE`, or `NAME` for one that is passed on.
    pub(crate) fn parse(text: &str) -> Result<Variable, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let is_name = name.bytes().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit());
        if name.is_empty() || !is_name || text.contains('\0') {
            return Err(format!("expected NAME=VALUE, or NAME to pass it on, found {text:?}"));
        }
        Ok(Variable { name: name.to_owned(), value })
    }
}

impl std::fmt::Display for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            root: PathBuf::new(),
            index: None,
            environment: Vec::new(),
            timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            max_processes: 64,
            max_queued: 64,
            queue_timeout: Duration::from_secs(5),
            max_body_bytes: 1 << 30,
            max_spooled_bytes: 16 << 20,
            max_head_bytes: 64 << 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables() {
        for (text, expected) in [
            ("A=b", Some(("A", Some("b")))),
            ("A_1=b=c ", Some(("A_1", Some("b=c ")))),
            ("A=", Some(("A", Some("")))),
            ("LANG", Some(("LANG", None))),
            ("", None),
            ("=b", None),
            ("1A=b", None),
            ("A B=c", None),
            ("A-B", None),
            ("A=b\0c", None),
        ] {
            let found = Variable::parse(text).ok();
            let parts = found.as_ref().map(|found| (&*found.name, found.value.as_deref()));
            assert_eq!(parts, expected, "{text:?}");
            assert_eq!(found.map(|found| found.to_string()), expected.map(|_| text.to_owned()));
        }
    }
}
