//! Scripts: their text is never sent, and no script is run that the configuration does not name.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::common::external::PhpFpm;
use crate::common::{PATIENCE, Weft, weft};

/// Text of all scripts, which their output does not have.
const TEXT: &str = "text-of-a-script";

/// Files beneath the folder of the site.
const SCRIPTS: [&str; 14] = [
    "index.php",
    "config.php",
    "uploads/shell.php",
    "uploads/index.php",
    "upper.PHP",
    "old.phtml",
    "archive.phar",
    "config.php.gz",
    "config.php.bak",
    "config.php~",
    "config.php.",
    "config.php ",
    "cgi-bin/report",
    "cgi-bin/report.sh",
];

/// Routes whose paths lead to the files. Only `/` has a list of scripts.
const ROUTES: &str = r#"
[hosts."*"]
error_pages = { "403 404" = "@errors" }
"/" = { files = "ROOT", php = "FPM", fallback = "index.php", list = true, scripts = ["index.php", "accel.php"], accel = { "/kept/" = "ROOT" } }
"/any/" = { files = "ROOT", php = "FPM", list = true }
"/files/" = { files = "ROOT", list = true, index = ["index.html"] }
"/sub/" = { files = "ROOT/uploads", list = true }
"/try/" = { files = "ROOT", try_files = ["{path}", "/try{rest}", "=404"] }
"/rewritten/" = { files = "ROOT", rewrite = "/uploads{rest}" }
"/fastcgi/" = { fastcgi = "FPM", root = "ROOT" }
"/cgi/" = { cgi = "ROOT/cgi-bin" }
"@errors" = { rewrite = "/index.php" }
"#;

const PREFIXES: [&str; 8] =
    ["", "/any", "/files", "/sub", "/try", "/rewritten", "/fastcgi", "/cgi"];

struct Site {
    server: Weft,
    _fpm: PhpFpm,
    _folder: tempfile::TempDir,
}

impl Site {
    fn start() -> Option<Site> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("site");
        for name in SCRIPTS {
            let script = format!("<?php /* {TEXT} */ echo 'ran ', '{name}';\n");
            write(&root, name, &script);
        }
        let accel = format!(
            "<?php /* {TEXT} */ header($_GET['field'] . ': ' . $_GET['to']); echo 'ran accel';\n"
        );
        write(&root, "accel.php", &accel);
        write(&root, "style.css", "p { margin: 0 }\n");
        write(&root, "uploads/photo.jpg", "photo\n");
        let fpm = PhpFpm::start(folder.path())?;
        let routes = ROUTES
            .replace("ROOT", root.to_str().unwrap())
            .replace("FPM", &format!("unix:{}", fpm.socket.display()));
        let file = folder.path().join("weft.toml");
        fs::write(&file, routes).unwrap();
        let mut command = weft([Path::new("--config"), &file]);
        command.args(["--listen", "127.0.0.1:0", "--workers", "1", "--no-log"]);
        Some(Site { server: Weft::start(&mut command), _fpm: fpm, _folder: folder })
    }

    /// Sends a request and returns the response.
    fn ask(&self, method: &str, target: &str, field: &str) -> String {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{field}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        let response = String::from_utf8_lossy(&response).into_owned();
        assert!(response.starts_with("HTTP/1.1 "), "{method} {target}: {response:?}");
        response
    }
}

fn write(root: &Path, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let file = root.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    if name.starts_with("cgi-bin") {
        // A script that is not executable is not run, and its text is not sent either.
        let mode = if name.ends_with(".sh") { 0o644 } else { 0o755 };
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Forms of the path of a file.
fn forms(path: &str) -> Vec<String> {
    let encoded: String = path
        .bytes()
        .map(|b| match b {
            b'/' => "/".to_owned(),
            b => format!("%{b:02X}"),
        })
        .collect();
    let mut forms = vec![
        path.replace(' ', "%20"),
        encoded,
        path.replace(' ', "%20").to_uppercase(),
        path.replace(' ', "%20").replace(".php", ".PhP"),
        path.replace(' ', "%20").replacen('/', "//", 1),
    ];
    let ends =
        ["/", "/x", "/x.css", "/index.html", "?x=.css", "%20", "%00", ".", ";x", "%2F", "%5C"];
    forms.extend(ends.map(|end| format!("{}{end}", path.replace(' ', "%20"))));
    forms
}

#[track_caller]
fn check(response: &str, request: &str) {
    assert!(!response.contains(TEXT), "{request} has the text of a script:\n{response}");
}

/// Asks for each script by all routes, in all forms of its path, and by the fields of `accel`.
#[test]
fn text_of_scripts_is_never_sent() {
    let Some(site) = Site::start() else { return };
    for prefix in PREFIXES {
        for name in SCRIPTS {
            let inner = match prefix {
                "/sub" | "/rewritten" => name.trim_start_matches("uploads/"),
                "/cgi" => name.trim_start_matches("cgi-bin/"),
                _ => name,
            };
            for target in forms(&format!("{prefix}/{inner}")) {
                let response = site.ask("GET", &target, "");
                check(&response, &target);
                let may_run = ["/any", "/fastcgi"].contains(&prefix);
                let has_run = response.split("ran ").nth(1);
                let other = has_run.filter(|name| !name.starts_with("index.php"));
                assert!(may_run || other.is_none(), "{target} runs {other:?}");
            }
            let target = format!("{prefix}/{}", inner.replace(' ', "%20"));
            for (method, field) in [
                ("GET", "Range: bytes=0-40\r\n"),
                ("GET", "Accept-Encoding: gzip, br, zstd\r\n"),
                ("GET", "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n"),
                ("GET", "Accept-Language: php\r\n"),
                ("POST", "Content-Length: 0\r\n"),
                ("PROPFIND", ""),
            ] {
                check(&site.ask(method, &target, field), &format!("{method} {target} {field}"));
            }
        }
        for folder in ["/", "/uploads/", "/uploads", "/cgi-bin/"] {
            let target = format!("{prefix}{folder}");
            check(&site.ask("GET", &target, ""), &target);
        }
    }
    for name in SCRIPTS {
        let root = site._folder.path().join("site");
        let file = format!("{}/{name}", root.display());
        for (field, value) in [
            ("X-Accel-Redirect", format!("/kept/{name}")),
            ("X-Accel-Redirect", format!("/kept/uploads/%2e%2e/{name}")),
            ("X-Accel-Redirect", format!("/kept/{}", name.replace('.', "%2e"))),
            ("X-Sendfile", file),
        ] {
            let value = value.replace('%', "%25").replace(' ', "%20");
            let target = format!("/accel.php?field={field}&to={value}");
            check(&site.ask("GET", &target, ""), &target);
        }
    }
    // The same ways lead to other files, and to the scripts that are named.
    for (target, expected) in [
        ("/style.css", "p { margin: 0 }"),
        ("/any/style.css", "p { margin: 0 }"),
        ("/files/style.css", "p { margin: 0 }"),
        ("/sub/photo.jpg", "photo"),
        ("/try/style.css", "p { margin: 0 }"),
        ("/rewritten/photo.jpg", "photo"),
        ("/accel.php?field=X-Accel-Redirect&to=/kept/style.css", "p { margin: 0 }"),
        ("/index.php", "ran index.php"),
        ("/index.php/a/b", "ran index.php"),
        ("/none", "ran index.php"),
        ("/uploads/shell.php", "ran index.php"),
        ("/any/uploads/shell.php", "ran uploads/shell.php"),
        ("/fastcgi/config.php", "ran config.php"),
        ("/files/none", "ran index.php"),
        ("/files/", "config.php"),
    ] {
        let response = site.ask("GET", target, "");
        assert!(response.contains(expected), "{target}: {response}");
    }
    assert!(site.ask("GET", "/files/none", "").starts_with("HTTP/1.1 404"));
}
