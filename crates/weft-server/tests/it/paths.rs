//! Random paths to routes and directories: no path reads a file outside of the directory, a hidden
//! file, or a file below a protected route.

use std::fs;
use std::os::unix::fs::symlink;

use crate::common::random::{Random, environment_number};
use crate::common::{Client, Weft, weft};

/// Parts of paths, with the encodings by which filters are bypassed.
const PARTS: [&str; 44] = [
    "/",
    "/",
    "/",
    "/",
    "//",
    "///",
    ".",
    "..",
    "./",
    "../",
    "/./",
    "/../",
    "%2e",
    "%2E%2e",
    ".%2e",
    "%252e",
    "%2f",
    "%2F",
    "%5c",
    "\\",
    "%00",
    ";",
    ";x=1",
    "%3b",
    "admin",
    "%61dmin",
    "adm%69n",
    "ADMIN",
    "admin%20",
    "admin%00",
    "secret",
    "secre%74",
    "site",
    "outside",
    "link",
    "public",
    ".hidden",
    "%2ehidden",
    "a",
    "%c0%ae",
    "%e0%80%ae",
    "%2e%2e%2f",
    "~",
    "?",
];

/// Content of the files that no request may read.
const SECRET: &str = "SECRET";

/// Number of requests; `WEFT_PATHS` sets another.
const REQUESTS: u64 = 5_000;

#[test]
fn random_paths_read_no_protected_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("site/public", "public"),
        ("site/index.html", "public"),
        ("site/a/public", "public"),
        ("site/admin/secret", SECRET),
        ("site/admin/index.html", SECRET),
        ("site/.hidden", SECRET),
        ("outside/secret", SECRET),
        ("secret", SECRET),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    symlink("../outside", folder.path().join("site/link")).unwrap();
    let config = "listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = \"-> site\"\n\
        \"/admin/\" = { respond = \"denied\", status = 403 }\n";
    let file = folder.path().join("weft.toml");
    fs::write(&file, config).unwrap();
    let server = Weft::start(weft(["--config".as_ref(), file.as_os_str()]).arg("--no-log"));

    let mut random = Random::from_environment();
    let mut client = server.client();
    let mut successes = 0;
    for _ in 0..environment_number("WEFT_PATHS").unwrap_or(REQUESTS) {
        let parts = (0..1 + random.below(8)).map(|_| *random.choose(&PARTS));
        let path: String = ["/"].into_iter().chain(parts).collect();
        let response = client.get(&path);
        let body = String::from_utf8_lossy(&response.body);
        assert!(!body.contains(SECRET), "{path} is served");
        if response.status == 200 {
            successes += 1;
            assert_eq!(body, "public", "{path}");
            assert!(!is_protected(&path), "{path} is below a protected route");
        }
        if response.header("connection") == Some("close") {
            client = Client::tcp(server.address());
        }
    }
    assert!(successes > 0, "the paths find no file");
    server.stop();
}

/// Returns true if the normalized path is below `/admin/`: segments are separated, then decoded,
/// then `.` and `..` are resolved.
fn is_protected(path: &str) -> bool {
    let path = path.split('?').next().expect("a path");
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for segment in path.split('/') {
        match &*decode(segment.as_bytes()) {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            decoded => segments.push(decoded.to_vec()),
        }
    }
    segments.first().is_some_and(|first| first == b"admin")
}

fn decode(segment: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = segment;
    while let [first, after @ ..] = rest {
        let hex = rest.strip_prefix(b"%").and_then(|hex| str::from_utf8(hex.get(..2)?).ok());
        (decoded, rest) = match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => ([decoded, vec![byte]].concat(), &rest[3..]),
            None => ([decoded, vec![*first]].concat(), after),
        };
    }
    decoded
}
