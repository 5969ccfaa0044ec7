//! The files of `tests/field`: a title, prose with the sources, and blocks of code in the order in
//! which they are performed.
//!
//! | block | contents |
//! | --- | --- |
//! | `toml` | the configuration; `{upstream}`, `{nobody}` (an address without a listener), `{folder}` |
//! | `file PATH [SECONDS]` | a file of the folder, with its time since 1970; after the first step, a change |
//! | `upstream [closes] [early]` | one response of the upstream; `closes`: then it closes; `early`: without reading the content |
//! | `request [again] [half-closed]` | bytes of a client, on a new connection or `again` on the same |
//! | `curl` | arguments of curl, a line each; `{server}` is the address |
//! | `response` | the next response; see [`matches`](super::pattern::matches) |
//! | `closed` | the connection ends without further bytes |
//! | `reload` | SIGHUP |
//! | `check STATUS` | the exit status of `weft check --strict`, and texts of its output |
//! | `access-log`, `error-log` | texts that lines of the log have |
//! | `test PATH` | the name of a test in that file, which covers the report |
//!
//! The n-th request receives the n-th response of the upstream, and later ones the last. Without a
//! response, the upstream sends what it received as the content of a 200. Lines of `request` and
//! `upstream` end with CRLF, and after a backslash with nothing. `\xNN` is a byte.

use std::fs;
use std::path::{Path, PathBuf};

pub struct Report {
    /// Name of the file without its extension.
    pub name: String,
    pub title: String,
    pub configuration: Option<String>,
    /// Files that exist when the server starts.
    pub files: Vec<Written>,
    pub upstream_responses: Vec<UpstreamResponse>,
    pub steps: Vec<Step>,
}

pub struct Written {
    pub path: String,
    pub contents: String,
    /// Seconds since 1970.
    pub modified: Option<i64>,
}

#[derive(Clone)]
pub struct UpstreamResponse {
    pub bytes: Vec<u8>,
    pub closes: bool,
    /// It is sent before the content of the request is read.
    pub is_early: bool,
}

pub enum Step {
    Request { bytes: Vec<u8>, again: bool, half_closed: bool },
    Curl(String),
    Response(String),
    Closed,
    Write(Written),
    Reload,
    Check { status: i32, output: String },
    AccessLog(String),
    ErrorLog(String),
    Test { file: String, name: String },
}

/// Reads all reports in the order of their names.
pub fn read_all() -> Vec<Report> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/field");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        Report::parse(name, &fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

impl Report {
    fn parse(name: &str, text: &str) -> Report {
        let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let mut report = Report {
            name: name.to_owned(),
            title: title.unwrap_or_else(|| panic!("{name}: no title")).to_owned(),
            configuration: None,
            files: Vec::new(),
            upstream_responses: Vec::new(),
            steps: Vec::new(),
        };
        for block in text.split("\n```").skip(1).step_by(2) {
            let (info, contents) = block.split_once('\n').unwrap_or((block, ""));
            let contents = match contents.is_empty() {
                true => String::new(),
                false => format!("{contents}\n"),
            };
            let words: Vec<&str> = info.split(' ').collect();
            report.add(words[0], &words[1..], contents);
        }
        assert!(!report.steps.is_empty(), "{name}: nothing is tested");
        report
    }

    fn add(&mut self, kind: &str, words: &[&str], contents: String) {
        let has = |word| words.contains(&word);
        let step = match kind {
            "toml" => return self.configuration = Some(contents),
            "upstream" => {
                let bytes = to_bytes(&contents);
                let (closes, is_early) = (has("closes"), has("early"));
                return self.upstream_responses.push(UpstreamResponse { bytes, closes, is_early });
            }
            "file" => {
                let modified = words.get(1).map(|seconds| seconds.parse().expect("seconds"));
                let file = Written { path: words[0].to_owned(), contents, modified };
                match self.steps.is_empty() {
                    true => return self.files.push(file),
                    false => Step::Write(file),
                }
            }
            "request" => Step::Request {
                bytes: to_bytes(&contents),
                again: has("again"),
                half_closed: has("half-closed"),
            },
            "curl" => Step::Curl(contents),
            "response" => Step::Response(contents),
            "closed" => Step::Closed,
            "reload" => Step::Reload,
            "check" => {
                Step::Check { status: words[0].parse().expect("a status"), output: contents }
            }
            "access-log" => Step::AccessLog(contents),
            "error-log" => Step::ErrorLog(contents),
            "test" => {
                Step::Test { file: words[0].to_owned(), name: contents.trim_end().to_owned() }
            }
            kind => panic!("{}: unknown block {kind:?}", self.name),
        };
        self.steps.push(step);
    }
}

/// Ends each line with CRLF, or after a backslash with nothing, and decodes `\xNN`.
fn to_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let (line, end) = match line.strip_suffix('\\') {
            Some(line) => (line, ""),
            None => (line, "\r\n"),
        };
        let mut pieces = line.split("\\x");
        bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
        for piece in pieces {
            bytes.push(u8::from_str_radix(&piece[..2], 16).expect("two hexadecimal digits"));
            bytes.extend_from_slice(&piece.as_bytes()[2..]);
        }
        bytes.extend_from_slice(end.as_bytes());
    }
    bytes
}
