//! The files of `tests/idioms`.

use std::fs;
use std::path::Path;

/// A task of a web server, and its configuration for each server.
pub struct Idiom {
    /// Name of the file without its extension.
    pub name: String,
    pub title: String,
    pub nginx: Option<String>,
    /// The import loses something of the nginx half.
    pub is_lossy: bool,
    pub caddy: Option<String>,
    pub toml: String,
    pub requests: Vec<Request>,
    pub differences: Vec<Difference>,
}

/// `METHOD URL [NAME: VALUE; …] (N bytes) -> STATUS…`, where each status is of one more
/// request. The name `Certificate` stands for a certificate of the client, `PROXY` for a PROXY
/// header with this address.
///
/// `LOG FILE (N lines) -> 200` compares the lines that a log of the server has until then.
pub struct Request {
    pub line: String,
    pub method: String,
    pub is_secure: bool,
    pub host: String,
    pub target: String,
    pub fields: Vec<(String, String)>,
    pub body_length: usize,
    pub statuses: Vec<u16>,
    pub log: Option<LogFile>,
}

/// A log with the path of the idiom.
pub struct LogFile {
    pub path: String,
    pub lines: usize,
}

/// `SERVER | REQUEST | PART | REASON`: an expected difference from the server, in requests whose
/// line has that text, in the status, the body or a field. `*` stands for all of them.
pub struct Difference {
    pub line: String,
    pub server: String,
    pub request: String,
    pub part: String,
    pub reason: String,
}

/// Reads all idioms in the order of their names.
pub fn read_all() -> Vec<Idiom> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/idioms");
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        Idiom::parse(name, &fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

impl Idiom {
    fn parse(name: &str, text: &str) -> Idiom {
        let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let title = title.unwrap_or_else(|| panic!("{name}: no title")).to_owned();
        let mut idiom = Idiom {
            name: name.to_owned(),
            title,
            nginx: None,
            is_lossy: false,
            caddy: None,
            toml: String::new(),
            requests: Vec::new(),
            differences: Vec::new(),
        };
        for block in text.split("\n```").skip(1).step_by(2) {
            let (info, block) = block.split_once('\n').expect("lines");
            let lines = || block.lines().map(str::trim).filter(|line| !line.is_empty());
            match info {
                "nginx" => idiom.nginx = Some(block.to_owned()),
                "nginx lossy" => {
                    idiom.nginx = Some(block.to_owned());
                    idiom.is_lossy = true;
                }
                "caddy" => idiom.caddy = Some(block.to_owned()),
                "toml" => block.clone_into(&mut idiom.toml),
                "requests" => idiom.requests = lines().map(Request::parse).collect(),
                "differences" => idiom.differences = lines().map(Difference::parse).collect(),
                info => panic!("{name}: unknown block {info:?}"),
            }
        }
        assert!(idiom.nginx.is_some() || idiom.caddy.is_some(), "{name}: nothing to compare");
        assert!(!idiom.toml.is_empty() && !idiom.requests.is_empty(), "{name}: a block is missing");
        idiom
    }
}

impl Request {
    pub fn parse(line: &str) -> Request {
        let invalid = || -> ! { panic!("invalid request: {line}") };
        let Some((request, statuses)) = line.split_once(" -> ") else { invalid() };
        let (request, body_length) = match request.split_once(" (") {
            Some((request, length)) => {
                let length = length.trim_end_matches(')').trim_end_matches(" bytes");
                (request, length.trim_end_matches(" lines").parse().expect(line))
            }
            None => (request, 0),
        };
        let (request, fields) = match request.split_once(" [") {
            Some((request, fields)) => (request, fields.trim_end_matches(']')),
            None => (request, ""),
        };
        let field = |field: &str| {
            let (name, value) = field.split_once(": ").expect(line);
            (name.to_owned(), value.to_owned())
        };
        let fields = fields.split("; ").filter(|it| !it.is_empty()).map(field).collect();
        let Some((method, url)) = request.split_once(' ') else { invalid() };
        let log = (method == "LOG").then(|| LogFile { path: url.to_owned(), lines: body_length });
        let url = if log.is_some() { "http://log/" } else { url };
        let Some((scheme, rest)) = url.split_once("://") else { invalid() };
        let (host, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let target = if target.is_empty() { "/" } else { target };
        Request {
            line: line.to_owned(),
            method: method.to_owned(),
            is_secure: scheme == "https",
            host: host.to_owned(),
            target: target.to_owned(),
            fields,
            body_length,
            statuses: statuses.split(' ').map(|status| status.parse().expect(line)).collect(),
            log,
        }
    }
}

impl Difference {
    fn parse(line: &str) -> Difference {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [server, request, part, reason] = parts[..] else { panic!("not 4 parts: {line}") };
        assert!(["nginx", "caddy", "imported"].contains(&server) && !reason.is_empty(), "{line}");
        Difference {
            line: line.to_owned(),
            server: server.to_owned(),
            request: request.to_owned(),
            part: part.to_owned(),
            reason: reason.to_owned(),
        }
    }

    pub fn explains(&self, server: &str, request: &Request, part: &str) -> bool {
        self.server == server
            && (self.request == "*" || request.line.contains(&self.request))
            && (self.part == "*" || self.part == part)
    }
}
