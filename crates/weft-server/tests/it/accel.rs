//! Files that upstreams and scripts name in `X-Accel-Redirect` and `X-Sendfile`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::cgi::write_script;
use crate::common::{PATIENCE, Response, Weft, raw_upstream, read_head, until, weft};

/// Responds with the status and the fields in the query of the request, and with a body. It
/// responds to other requests with the names of their fields.
fn upstream() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let target = head.split(' ').nth(1).unwrap();
            let (status, fields, body) = match target.split_once('?') {
                Some((_, fields)) => {
                    let fields = fields.replace("|", "\r\n").replace("_", " ") + "\r\n";
                    let (status, fields) = fields.split_once("\r\n").unwrap();
                    (status.to_owned(), fields.to_owned(), "the body of the upstream".to_owned())
                }
                None => {
                    let names = head.lines().filter_map(|line| Some(line.split_once(": ")?.0));
                    ("200".to_owned(), String::new(), names.collect::<Vec<_>>().join(" "))
                }
            };
            let length = match status.as_str() {
                "204" | "304" => String::new(),
                _ => format!("Content-Length: {}\r\n", body.len()),
            };
            let body = if length.is_empty() || head.starts_with("HEAD") { "" } else { &body };
            let head = format!("HTTP/1.1 {status} X\r\n{fields}{length}\r\n");
            stream.write_all((head + body).as_bytes()).unwrap();
        }
    })
}

/// Serves the routes with files in the folder `private`.
fn serve(routes: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("private/sub")).unwrap();
    for (name, text) in [
        ("private/a.txt", "0123456789"),
        ("private/sub/a b.bin", "a b"),
        ("private/.hidden", "hidden"),
        ("private/index.html", "index"),
        ("private/denied.html", "please log in"),
        ("private2.txt", "secret"),
        ("secret.txt", "secret"),
    ] {
        fs::write(at(name), text).unwrap();
        // The date of a file that may still change is no strong validator.
        let file = fs::File::options().write(true).open(at(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3_600)).unwrap();
    }
    symlink("../secret.txt", at("private/outside.txt")).unwrap();
    symlink("a.txt", at("private/inside.txt")).unwrap();
    write_script(
        &at("scripts/named"),
        "printf \"Content-Type: text/x-own\\nX-Sendfile: $HTTP_X_FILE\\n\\nbody\"\n",
    );
    let config = format!("log.access = \"none\"\n[hosts.\"*\"]\n{routes}");
    fs::write(at("weft.toml"), config).unwrap();
    let mut command = weft([Path::new("--config"), &at("weft.toml")]);
    command.args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    (folder, Weft::start(&mut command))
}

fn send(server: &Weft, method: &str, target: &str, fields: &str) -> Response {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}");
    stream.write_all((head + "\r\n").as_bytes()).unwrap();
    let head = read_head(&mut stream).expect("a head");
    let mut body = Vec::new();
    stream.read_to_end(&mut body).unwrap();
    let head: Vec<_> = head.trim_end().lines().map(str::to_owned).collect();
    let status = head[0].split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head, body }
}

#[track_caller]
fn assert_not_named(response: &Response) {
    for name in ["x-accel-redirect", "x-sendfile"] {
        assert_eq!(response.header(name), None, "{response:?}");
    }
}

/// Each row: the status and the fields of the upstream, and the expected status and body.
#[test]
fn sends_only_files_inside_the_named_folders() {
    let up = upstream();
    let (folder, server) = serve(&format!(
        "\"/\" = {{ proxy = \"http://{up}/\", accel = {{ \"/p/\" = \"private\" }} }}\n"
    ));
    let root = folder.path().to_str().unwrap();
    for (reply, expected) in [
        ("200|X-Accel-Redirect:/p/a.txt", "200 0123456789"),
        ("200|X-Accel-Redirect:/p/a.txt?download=1", "200 0123456789"),
        ("200|x-accel-redirect:/p/sub/a%20b.bin", "200 a b"),
        ("200|X-Accel-Redirect:/p/sub/a_b.bin", "200 a b"),
        ("200|X-Accel-Redirect:/p/inside.txt", "200 0123456789"),
        ("200|X-Sendfile:ROOT/private/a.txt", "200 0123456789"),
        ("200|X-Sendfile:ROOT/private/sub/a_b.bin", "200 a b"),
        ("206|X-Sendfile:ROOT/private/a.txt|Content-Range:bytes_0-1/2", "200 0123456789"),
        ("403|X-Accel-Redirect:/p/denied.html", "403 please log in"),
        // No such file.
        ("200|X-Accel-Redirect:/p/b.txt", "404"),
        ("200|X-Accel-Redirect:/p/", "404"),
        ("200|X-Accel-Redirect:/p/sub", "404"),
        ("200|X-Accel-Redirect:/p/sub/", "404"),
        ("200|X-Accel-Redirect:/p/.hidden", "404"),
        ("200|X-Sendfile:ROOT/private/sub/a%20b.bin", "404"),
        // Paths that lead out of the folder.
        ("200|X-Accel-Redirect:/p/../secret.txt", "404"),
        ("200|X-Accel-Redirect:/p/%2e%2e/secret.txt", "404"),
        ("200|X-Accel-Redirect:/p/..%2fsecret.txt", "404"),
        ("200|X-Accel-Redirect:/p/sub/..%2f..%2fsecret.txt", "404"),
        ("200|X-Accel-Redirect:/p/%252e%252e/secret.txt", "404"),
        ("200|X-Accel-Redirect:/p/a.txt%00", "404"),
        ("200|X-Accel-Redirect:/p/outside.txt", "404"),
        ("200|X-Sendfile:ROOT/private/outside.txt", "404"),
        ("200|X-Sendfile:ROOT/private/../secret.txt", "404"),
        ("200|X-Sendfile:ROOT/private//../secret.txt", "404"),
        // Paths in no folder.
        ("200|X-Accel-Redirect:/p2/a.txt", "502"),
        ("200|X-Accel-Redirect:/other/../p/a.txt", "502"),
        ("200|X-Accel-Redirect:/%70/a.txt", "502"),
        ("200|X-Accel-Redirect:@named", "502"),
        ("200|X-Accel-Redirect:", "502"),
        ("200|X-Accel-Redirect:http://127.0.0.1/p/a.txt", "502"),
        ("200|X-Sendfile:ROOT/private2.txt", "502"),
        ("200|X-Sendfile:ROOT/secret.txt", "502"),
        ("200|X-Sendfile:private/a.txt", "502"),
        ("200|X-Sendfile:/etc/passwd", "502"),
        // The first field decides.
        ("200|X-Sendfile:ROOT/private/a.txt|X-Accel-Redirect:/q/a.txt", "502"),
        // Responses without a body, and without a file.
        ("204|X-Accel-Redirect:/p/a.txt", "204 "),
        ("304|X-Accel-Redirect:/p/a.txt", "304 "),
        ("200|X-Own:1", "200 the body of the upstream"),
    ] {
        let reply = reply.replace("ROOT", root);
        let response = send(&server, "GET", &format!("/any?{reply}"), "");
        let text = format!("{} {}", response.status, String::from_utf8_lossy(&response.body));
        let is_expected = match expected.len() {
            3 => text.starts_with(expected) && !text.contains("secret"),
            _ => text == expected,
        };
        assert!(is_expected, "{reply}: {text}");
        assert_not_named(&response);
    }
    for line in [
        "x-accel-redirect: no such file in ",
        "x-accel-redirect: \"@named\" is in no folder of `accel` (request GET /any?",
        "x-sendfile: \"/etc/passwd\" is in no folder of `accel` (request GET /any?",
    ] {
        until("the error is logged", || server.stderr().contains(line));
    }
}

/// Each row: method, fields of the request, fields of the upstream, the expected status and body,
/// and fields of the response.
#[test]
fn response_has_the_fields_of_the_upstream_and_of_the_file() {
    let up = upstream();
    let (_folder, server) = serve(&format!(
        "\"/\" = {{ proxy = \"http://{up}/\", accel = {{ \"/\" = \"private\" }}, \
         response_headers = {{ X-Route = \"1\" }} }}\n"
    ));
    let target = |reply: &str| format!("/any?200|X-Accel-Redirect:/a.txt{reply}");
    let own = "|Content-Type:text/x-own|Content-Disposition:attachment|Set-Cookie:a=1|\
               Set-Cookie:b=2|Cache-Control:private|ETag:\"own\"|Accept-Ranges:none|\
               Last-Modified:Thu,_01_Jan_1970_00:00:00_GMT|Content-Encoding:x-own";
    let whole = send(&server, "GET", &target(own), "");
    assert_eq!((whole.status, &*whole.body), (200, &b"0123456789"[..]));
    let lines: Vec<_> = whole.head.iter().map(|line| line.to_ascii_lowercase()).collect();
    for line in [
        "content-type: text/x-own",
        "content-disposition: attachment",
        "set-cookie: a=1",
        "set-cookie: b=2",
        "cache-control: private",
        "content-encoding: x-own",
        "content-length: 10",
        "accept-ranges: bytes",
        "x-route: 1",
    ] {
        assert_eq!(lines.iter().filter(|it| *it == line).count(), 1, "{line}: {lines:?}");
    }
    assert!(!lines.iter().any(|line| line.contains("1970") || line.contains("\"own\"")));
    let plain = send(&server, "GET", &target(""), "");
    assert_eq!(plain.header("content-type"), Some("text/plain; charset=utf-8"));
    let etag = plain.header("etag").expect("a validator").to_owned();
    assert_eq!(whole.header("etag"), Some(&*etag));
    let modified = plain.header("last-modified").expect("a date").to_owned();
    for (method, fields, status, body, field) in [
        ("GET", "Range: bytes=2-4\r\n", 206, "234", ("content-range", "bytes 2-4/10")),
        ("GET", "Range: bytes=20-\r\n", 416, "", ("content-range", "bytes */10")),
        ("GET", &format!("If-None-Match: {etag}\r\n"), 304, "", ("etag", &*etag)),
        (
            "GET",
            &format!("If-Range: {modified}\r\nRange: bytes=-1\r\n"),
            206,
            "9",
            ("content-length", "1"),
        ),
        (
            "GET",
            "If-Range: \"own\"\r\nRange: bytes=-1\r\n",
            200,
            "0123456789",
            ("content-length", "10"),
        ),
        ("HEAD", "", 200, "", ("content-length", "10")),
        ("HEAD", &format!("If-None-Match: {etag}\r\n"), 304, "", ("etag", &*etag)),
        // The upstream has processed the request.
        (
            "POST",
            &format!("If-None-Match: {etag}\r\nRange: bytes=0-1\r\nContent-Length: 0\r\n"),
            200,
            "0123456789",
            ("content-length", "10"),
        ),
    ] {
        let response = send(&server, method, &target(""), fields);
        assert_eq!(response.status, status, "{method} {fields}");
        if status != 416 {
            assert_eq!(String::from_utf8_lossy(&response.body), body, "{method} {fields}");
        }
        assert_eq!(response.header(field.0), Some(field.1), "{method} {fields}");
        assert_not_named(&response);
    }
    // A client cannot tell the upstream how to name files.
    let names = send(&server, "GET", "/", "X-Sendfile-Type: a\r\nX-Accel-Mapping: b\r\nX-A: c\r\n");
    let names = String::from_utf8(names.body).unwrap().to_lowercase();
    assert!(names.contains("x-a") && !names.contains("sendfile") && !names.contains("mapping"));
}

#[test]
fn scripts_name_files_if_their_route_has_folders() {
    let up = upstream();
    let (folder, server) = serve(&format!(
        "\"/cgi\" = {{ cgi = \"scripts\", accel = {{ \"/\" = \"private\" }} }}\n\
         \"/without\" = {{ cgi = \"scripts\" }}\n\
         \"/up\" = {{ proxy = \"http://{up}/\" }}\n"
    ));
    let field = format!("X-File: {}/private/a.txt\r\n", folder.path().display());
    let response = send(&server, "GET", "/cgi/named", &field);
    assert_eq!((response.status, &*response.body), (200, &b"0123456789"[..]));
    assert_eq!(response.header("content-type"), Some("text/x-own"));
    assert_not_named(&response);
    let response = send(&server, "GET", "/up/any?200|X-Accel-Redirect:/a.txt", "");
    assert_eq!(response.body, b"the body of the upstream");
    // A server in front may handle it.
    assert_eq!(response.header("x-accel-redirect"), Some("/a.txt"));
    let response = send(&server, "GET", "/without/named", &field);
    assert!(response.header("x-sendfile").is_some());
}
