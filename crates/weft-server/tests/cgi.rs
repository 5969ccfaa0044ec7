//! CGI (RFC 3875): scripts that are run by the real program, and what becomes of them.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use common::outside::curl;
use common::{PATIENCE, Program, Signal, Weft, tool, until, weft};
use tempfile::TempDir;

// -- scripts, and the program in front of them

const TEXT: &str = "printf 'Content-Type: text/plain\\n\\n'\n";

struct Site {
    folder: TempDir,
    server: Weft,
}

impl Site {
    /// Serves shell scripts beneath `/cgi/`, with these keys in the route's table.
    #[track_caller]
    fn serve(scripts: &[(&str, &str)], keys: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("cgi")).unwrap();
        for (name, text) in scripts {
            write_script(&folder.path().join("cgi").join(name), text);
        }
        let route = format!("[hosts.\"*\"]\n\"/cgi/\" = {{ cgi = \"cgi\"{keys} }}\n");
        let file = folder.path().join("weft.toml");
        fs::write(&file, route).unwrap();
        let mut command = weft([Path::new("--config"), &file]);
        command
            .args(["--listen", "127.0.0.1:0", "--workers", "2"])
            .env("WEFT_TEST", "from outside");
        Site { server: Weft::start(&mut command), folder }
    }

    /// A path in the folder of the scripts, where they are run.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("cgi").join(name)
    }

    /// Lets a script go on that waits for this.
    fn create(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// Waits for the ids of processes that a script has written into a file.
    #[track_caller]
    fn ids(&self, name: &str, count: usize) -> Vec<u32> {
        let read = || {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>()
        };
        until("the script has written its ids", || read().len() == count);
        read()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request, whose connection is to be closed, and reads to the end.
    #[track_caller]
    fn ask(&self, request: &str) -> Reply {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        reply(&mut stream, request.starts_with("HEAD"))
    }

    #[track_caller]
    fn get(&self, target: &str) -> Reply {
        self.ask(&request("GET", target))
    }

    /// Waits until this is in the error log.
    #[track_caller]
    fn until_told(&self, text: &str) {
        until(&format!("`{text}` is in the log"), || self.server.stderr().contains(text));
    }

    /// Waits until the program has no children, dead ones included.
    #[track_caller]
    fn until_childless(&self) {
        let tasks = format!("/proc/{}/task", self.server.id());
        until("no child is left", || {
            let tasks = fs::read_dir(&tasks).unwrap();
            let children =
                tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")));
            children.flatten().all(|children| children.trim().is_empty())
        });
    }

    /// The most memory that the program has had, in KiB.
    fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }
}

fn write_script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn request(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
}

/// Waits until none of these processes is there, not even as a zombie.
#[track_caller]
fn until_gone(ids: &[u32]) {
    until("the processes are gone", || {
        ids.iter().all(|id| !Path::new(&format!("/proc/{id}")).exists())
    });
}

/// What a client got before its connection ended.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: u16,
    fields: BTreeMap<String, String>,
    body: Vec<u8>,
    is_whole: bool,
}

impl Reply {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

#[track_caller]
fn reply(stream: &mut impl Read, head_only: bool) -> Reply {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {}", bytes.escape_ascii()),
    }
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head: {}", bytes.escape_ascii()));
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8(bytes).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let fields: BTreeMap<String, String> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let (body, is_whole) = if head_only || [204, 304].contains(&status) {
        let is_empty = body.is_empty();
        (body, is_empty)
    } else if fields.contains_key("transfer-encoding") {
        dechunk(&body)
    } else {
        let is_whole = body.len() == fields["content-length"].parse::<usize>().unwrap();
        (body, is_whole)
    };
    Reply { status, fields, body, is_whole }
}

/// The data, and whether the end is there.
fn dechunk(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut data = Vec::new();
    loop {
        let Some(line) = bytes.windows(2).position(|it| it == b"\r\n") else {
            return (data, false);
        };
        let size = std::str::from_utf8(&bytes[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (data, true);
        }
        let Some(chunk) = bytes.get(line + 2..line + 2 + size + 2) else { return (data, false) };
        data.extend_from_slice(&chunk[..size]);
        bytes = &bytes[line + 2 + size + 2..];
    }
}

// -- what scripts are told

#[test]
fn the_environment_and_nothing_else() {
    let script = format!("{TEXT}echo \"$#\"; pwd; env");
    let site = Site::serve(&[("in/env.cgi", &script)], "");
    let reply = site.ask(
        "GET /cgi/%69n/env.cgi/a%20b/c?x=1+2&%20 HTTP/1.1\r\nHost: example.org:81\r\n\
         Connection: close, X-Mine\r\nX-Mine: 1\r\nAccept: a\r\nAccept: b\r\nProxy: evil\r\n\
         X_Y: evil\r\nAuthorization: Basic x\r\n\r\n",
    );
    let text = reply.text();
    let mut lines = text.lines();
    let root = site.path("");
    let root = root.to_str().unwrap().trim_end_matches('/');
    assert_eq!(lines.next(), Some("0"), "a query is no argument");
    assert_eq!(lines.next(), Some(&*format!("{root}/in")));
    // The shell sets some for itself.
    let of_shell = ["PWD=", "OLDPWD=", "SHLVL=", "_="];
    let mut found: Vec<String> = lines
        .filter(|line| !of_shell.iter().any(|name| line.starts_with(name)))
        .map(|line| line.replace(root, "ROOT"))
        .collect();
    found.sort();
    let port = found.iter().position(|line| line.starts_with("REMOTE_PORT=")).unwrap();
    assert!(found.remove(port)["REMOTE_PORT=".len()..].parse::<u16>().is_ok());
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let mut expected = vec![
        "DOCUMENT_ROOT=ROOT",
        "GATEWAY_INTERFACE=CGI/1.1",
        "HTTP_ACCEPT=a, b",
        "HTTP_HOST=example.org:81",
        "PATH_INFO=/a b/c",
        "PATH_TRANSLATED=ROOT/a b/c",
        "QUERY_STRING=x=1+2&%20",
        "REMOTE_ADDR=127.0.0.1",
        "REQUEST_METHOD=GET",
        "REQUEST_SCHEME=http",
        "REQUEST_URI=/cgi/%69n/env.cgi/a%20b/c?x=1+2&%20",
        "SCRIPT_FILENAME=ROOT/in/env.cgi",
        "SCRIPT_NAME=/cgi/in/env.cgi",
        "SERVER_NAME=example.org",
        "SERVER_PORT=81",
        "SERVER_PROTOCOL=HTTP/1.1",
        concat!("SERVER_SOFTWARE=weft/", env!("CARGO_PKG_VERSION")),
        &path,
    ];
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn variables_that_are_set_for_scripts() {
    let keys = ", environment = [\"A=b c\", \"SERVER_NAME=www\", \"WEFT_TEST\", \"WEFT_NONE\"]";
    let script = format!("{TEXT}echo \"$A|$SERVER_NAME|$WEFT_TEST|${{WEFT_NONE-unset}}|$HOME\"");
    let site = Site::serve(&[("env", &script)], keys);
    assert_eq!(site.get("/cgi/env").text(), "b c|www|from outside|unset|\n");
}

#[test]
fn paths_that_lead_to_scripts_and_others() {
    let script = format!("{TEXT}printf '%s + %s' \"$SCRIPT_NAME\" \"$PATH_INFO\"");
    let site = Site::serve(
        &[("a", &script), ("in/index", &script), ("../secret", &script), (".hidden", &script)],
        ", index = \"index\"",
    );
    fs::write(site.path("text"), "no program").unwrap();
    std::os::unix::fs::symlink("../secret", site.path("out")).unwrap();
    for (target, expected) in [
        ("/cgi/a", (200, "/cgi/a + ")),
        ("/cgi/a/x//y/.%2e/z", (200, "/cgi/a + /x/z")),
        ("/cgi/in/", (200, "/cgi/in/index + ")),
        ("/cgi/text", (403, "403 Forbidden\n")),
        ("/cgi/in", (404, "404 Not Found\n")),
        ("/cgi/", (404, "404 Not Found\n")),
        ("/cgi/out", (404, "404 Not Found\n")),
        ("/cgi/.hidden", (404, "404 Not Found\n")),
        ("/cgi/../secret", (404, "404 Not Found\n")),
        ("/cgi/%2e%2e/secret", (404, "404 Not Found\n")),
        ("/cgi/..%2fsecret", (404, "404 Not Found\n")),
        ("/cgi/in%2f..%2f..%2fsecret", (404, "404 Not Found\n")),
        ("/cgi/a%00", (404, "404 Not Found\n")),
    ] {
        let reply = site.get(target);
        assert_eq!((reply.status, &*reply.text()), expected, "{target}");
    }
    assert_eq!(site.server.stderr(), site.server.announcement, "that is nobody's trouble");
}

#[test]
fn one_script_for_all_paths() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one");
    write_script(&file, &format!("{TEXT}printf '%s + %s' \"$SCRIPT_NAME\" \"$PATH_INFO\""));
    let route = format!("/git/ => {}", file.display());
    let mut command = weft(["--route", &route, "--listen", "127.0.0.1:0"]);
    let site = Site { server: Weft::start(&mut command), folder };
    assert_eq!(site.get("/git/a/b").text(), "/git + /a/b");
    assert_eq!(site.get("/git").text(), "/git + /");
}

#[test]
fn no_descriptor_and_no_signal_is_inherited() {
    // What the test itself was given, it gives on.
    let mine: Vec<String> = descriptors("/proc/self/fd");
    let list = format!("{TEXT}exec ls -l /proc/self/fd");
    let masks = format!("{TEXT}exec sed -n 's/SigIgn:\\s*//p; s/SigBlk:\\s*//p' /proc/self/status");
    let site = Site::serve(&[("fd", &list), ("signals", &masks), ("slow", "sleep 1000")], "");
    // While the server has another connection, and another script's pipes.
    let mut slow = site.connect();
    slow.write_all(request("GET", "/cgi/slow").as_bytes()).unwrap();
    let text = site.get("/cgi/fd").text();
    let mut fds = 0;
    for line in text.lines() {
        let Some((before, what)) = line.split_once(" -> ") else { continue };
        fds += 1;
        let is_sound = match before.rsplit(' ').next().unwrap() {
            "0" => what == "/dev/null",
            "1" | "2" => what.starts_with("pipe:"),
            // `ls` has the folder itself open.
            _ => what.starts_with("/proc/") || mine.iter().any(|given| *given == what),
        };
        assert!(is_sound, "{line}");
    }
    assert!(fds >= 4, "{text}");
    let text = site.get("/cgi/signals").text();
    let masks: Vec<u64> = text.lines().map(|line| u64::from_str_radix(line, 16).unwrap()).collect();
    assert_eq!(masks.len(), 2, "{text}");
    let pipe = 1 << (Signal::PIPE.as_raw() - 1);
    assert!(masks.iter().all(|mask| mask & pipe == 0), "SIGPIPE ends a script: {masks:x?}");
    drop(slow);
    site.until_childless();
}

/// Where the descriptors of a process lead.
fn descriptors(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let links = entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

// -- what scripts read

#[test]
fn bodies_reach_scripts() {
    let cat = format!("{TEXT}echo \"${{CONTENT_LENGTH-none}} ${{CONTENT_TYPE-none}}\"; cat");
    let site = Site::serve(
        &[("cat", &cat), ("deaf", &format!("{TEXT}echo done"))],
        ", max_body_bytes = 200000, max_spooled_bytes = 10",
    );
    let large = "x".repeat(200_000);
    let too_large = "x".repeat(200_001);
    for (script, fields, body, expected) in [
        ("cat", "", "", (200, "none none\n")),
        ("cat", "Content-Length: 0\r\n", "", (200, "0 none\n")),
        ("cat", "Content-Length: 5\r\nContent-Type: a/b\r\n", "hello", (200, "5 a/b\nhello")),
        ("cat", "Content-Length: 200000\r\n", &*large, (200, &*format!("200000 none\n{large}"))),
        ("deaf", "Content-Length: 200000\r\n", &*large, (200, "done\n")),
        (
            "cat",
            "Transfer-Encoding: chunked\r\n",
            "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            (200, "5 none\nhello"),
        ),
        ("cat", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n", (200, "0 none\n")),
        (
            "cat",
            "Transfer-Encoding: chunked\r\n",
            "b\r\nhello world\r\n0\r\n\r\n",
            (413, "413 Payload Too Large: the body is larger than allowed\n"),
        ),
        (
            "cat",
            "Content-Length: 200001\r\n",
            &*too_large,
            (413, "413 Payload Too Large: the body is larger than allowed\n"),
        ),
    ] {
        let head = format!("POST /cgi/{script} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
        let reply = site.ask(&format!("{head}{fields}\r\n{body}"));
        let text = reply.text();
        let short = |text: &str| text[..text.len().min(80)].to_owned();
        assert!((reply.status, &*text) == expected, "{fields}: {} {}", reply.status, short(&text));
    }
}

#[test]
fn large_bodies_are_streamed_both_ways() {
    const BYTES: usize = 64 << 20;
    let site = Site::serve(&[("cat", &format!("{TEXT}exec cat"))], "");
    assert_eq!(site.get("/cgi/cat").status, 200);
    let before = site.peak_memory();
    let mut stream = site.connect();
    let mut upload = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let head = "POST /cgi/cat HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: ";
        upload.write_all(format!("{head}{BYTES}\r\n\r\n").as_bytes()).unwrap();
        let piece: Vec<u8> = (0..BYTES / 64).map(|i| (i % 251) as u8).collect();
        (0..64).for_each(|_| upload.write_all(&piece).unwrap());
        piece
    });
    let reply = reply(&mut stream, false);
    let piece = writer.join().unwrap();
    assert_eq!((reply.status, reply.body.len(), reply.is_whole), (200, BYTES, true));
    assert!(reply.body.chunks(piece.len()).all(|found| found == piece));
    let more = site.peak_memory() - before;
    assert!(more < 16 << 10, "{more} KiB for a body of {} KiB", BYTES >> 10);
}

#[test]
fn a_script_does_not_take_a_part_of_a_body_for_the_whole() {
    let script = "echo $$ > id; cat > body; touch whole; sleep 1000";
    for half in ["half", ""] {
        let site = Site::serve(&[("upload", script)], "");
        let mut stream = site.connect();
        let head = "POST /cgi/upload HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n";
        stream.write_all(format!("{head}{half}").as_bytes()).unwrap();
        let ids = site.ids("id", 1);
        stream.shutdown(Shutdown::Both).unwrap();
        until_gone(&ids);
        assert!(!site.path("whole").exists(), "{half:?}");
    }
}

// -- what scripts write

#[test]
fn responses_reach_the_client() {
    for (method, script, expected) in [
        (
            "GET",
            "printf 'Content-Type: text/plain\\n\\nbody'",
            (200, "content-type: text/plain", "body"),
        ),
        ("GET", "printf 'Content-Type: a/b\\r\\n\\r\\nbody'", (200, "content-type: a/b", "body")),
        ("GET", "printf 'Content-Type: a/b\\n\\n'", (200, "content-type: a/b", "")),
        (
            "GET",
            "printf 'Status: 404 Odd\\nContent-Type: a/b\\n\\nx'",
            (404, "content-type: a/b", "x"),
        ),
        ("GET", "printf 'Status: 204\\n\\n'", (204, "", "")),
        ("GET", "printf 'Status: 304\\nETag: \"e\"\\n\\nignored'", (304, "etag: \"e\"", "")),
        ("GET", "printf 'Location: https://a/b\\n\\n'", (302, "location: https://a/b", "")),
        ("GET", "printf 'Location: /a?b\\n\\n'", (302, "location: /a?b", "")),
        ("GET", "printf 'Status: 301\\nLocation: /a\\n\\n'", (301, "location: /a", "")),
        (
            "GET",
            "printf 'Content-Length: 4\\nContent-Type: a/b\\n\\nbody'",
            (200, "content-length: 4, content-type: a/b", "body"),
        ),
        (
            "GET",
            "printf 'Content-Length: 4\\nContent-Type: a/b\\n\\nbody and more'",
            (200, "content-length: 4, content-type: a/b", "body"),
        ),
        (
            "GET",
            "printf 'Content-Type: a/b\\nTransfer-Encoding: x\\nConnection: x\\nX-A: b\\n\\nbody'",
            (200, "content-type: a/b, x-a: b", "body"),
        ),
        ("HEAD", "printf 'Content-Type: a/b\\n\\nbody'", (200, "content-type: a/b", "")),
        (
            "HEAD",
            "printf 'Content-Length: 4\\nContent-Type: a/b\\n\\nbody'",
            (200, "content-length: 4, content-type: a/b", ""),
        ),
    ] {
        let site = Site::serve(&[("a", script)], "");
        let reply = site.ask(&request(method, "/cgi/a"));
        let fields = reply.fields.iter().filter(|(name, _)| {
            !["connection", "date", "server", "transfer-encoding"].contains(&&***name)
        });
        let fields: Vec<String> = fields.map(|(name, value)| format!("{name}: {value}")).collect();
        let found = (reply.status, &*fields.join(", "), &*reply.text());
        assert_eq!((found, reply.is_whole), (expected, true), "{method} {script}");
        let has_length = reply.field("content-length").is_some();
        let has_body = ![204, 304].contains(&reply.status);
        let is_chunked = reply.field("transfer-encoding") == Some("chunked");
        assert_eq!(is_chunked, has_body && !has_length, "{method} {script}");
        site.until_childless();
    }
}

#[test]
fn what_is_no_response() {
    for (script, status, told) in [
        ("echo no head; echo", 502, "a line of its head has no colon: no head"),
        ("printf 'X: y\\n\\n'", 502, "its head has neither Content-Type nor Location nor Status"),
        ("printf 'HTTP/1.1 200 OK\\n\\n'", 502, "it speaks HTTP itself"),
        ("printf 'Status: 1\\n\\n'", 502, "no status that a response can have: Status: 1"),
        ("printf 'Content-Type: a/b\\n'", 502, "it ended without a head"),
        ("", 502, "it ended without a head"),
        ("exit 3", 502, "it ended with status 3"),
        ("kill -9 $$", 502, "it was ended by a signal"),
        (
            "printf 'X: '; head -c 2000 /dev/zero | tr '\\0' x",
            502,
            "its head is larger than allowed",
        ),
        (
            "printf 'X: '; head -c 2000 /dev/zero | tr '\\0' x; printf '\\n\\n'",
            502,
            "its head is larger than allowed",
        ),
    ] {
        let site = Site::serve(
            &[("a", &format!("echo 'my words' >&2\n{script}\n"))],
            ", max_head_bytes = 1024",
        );
        let reply = site.get("/cgi/a");
        assert_eq!((reply.status, reply.is_whole), (status, true), "{script}");
        let path = site.path("a");
        site.until_told(&format!("weft: {}: my words\n", path.display()));
        site.until_told(told);
        site.until_childless();
    }
}

#[test]
fn what_cannot_be_run() {
    let site = Site::serve(&[], "");
    for (name, text, told) in [
        ("a", "#!/no/such/interpreter\n", "cannot be run: No such file or directory"),
        ("b", "no program", "cannot be run: Exec format error"),
    ] {
        write_script(&site.path(name), "");
        fs::write(site.path(name), text).unwrap();
        assert_eq!(site.get(&format!("/cgi/{name}")).status, 500);
        site.until_told(told);
    }
}

#[test]
fn a_cut_response_does_not_look_whole() {
    const SIZED: &str = "printf 'Content-Type: a/b\\nContent-Length: 5\\n\\n'\n";
    for (head, script, is_whole, told) in [
        (TEXT, "printf abc; kill -9 $$", false, "it was ended by a signal"),
        (TEXT, "printf abc; exit 3", true, "it ended with status 3"),
        (TEXT, "printf abc; exec >&-; sleep 1.5; touch after", true, ""),
        (TEXT, "printf abc; sleep 1000", false, "it took too long and was ended"),
        (SIZED, "printf abc", false, "it wrote less than its Content-Length"),
        (SIZED, "printf abcde; kill -9 $$", true, "it was ended by a signal"),
        (SIZED, "printf abcdef", true, "it writes more than its Content-Length"),
        (SIZED, "printf abcde; sleep 0.5; touch after", true, ""),
        (SIZED, "printf abcde; sleep 1000", true, "it went on for too long behind its response"),
        (TEXT, "printf abc; exec >&-; sleep 1000", true, "it went on for too long behind"),
    ] {
        let text = format!("{head}while ! test -e go; do sleep 0.02; done\n{script}\n");
        let site = Site::serve(&[("a", &text)], ", body_timeout = \"3s\"");
        let mut stream = site.connect();
        stream.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
        // The head is on its way before the script goes on.
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        site.create("go");
        let reply = reply(&mut first.chain(stream), false);
        let body = if script.contains("abcde") { "abcde" } else { "abc" };
        assert_eq!((reply.status, reply.is_whole), (200, is_whole), "{script}");
        // What stands before a cut may be lost with it.
        let text = reply.text();
        assert!(text == body || (!is_whole && body.starts_with(&text)), "{script}: {text}");
        site.until_told(told);
        if script.contains("after") {
            until("the script has come to its end", || site.path("after").exists());
        }
        site.until_childless();
    }
}

#[test]
fn output_comes_as_it_is_written() {
    let script = format!("{TEXT}echo one; while ! test -e go; do sleep 0.02; done; echo two");
    let site = Site::serve(&[("a", &script)], "");
    let mut stream = site.connect();
    stream.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    let mut came = Vec::new();
    while !came.ends_with(b"4\r\none\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        came.push(byte[0]);
    }
    site.create("go");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "4\r\ntwo\n\r\n0\r\n\r\n");
}

#[test]
fn a_script_writes_no_faster_than_its_client_reads() {
    const BYTES: usize = 64 << 20;
    let script = format!("echo $$ > id; {TEXT}head -c {BYTES} /dev/zero; touch done");
    let site = Site::serve(&[("a", &script)], "");
    let before = site.peak_memory();
    let mut stream = site.connect();
    stream.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    let id = site.ids("id", 1)[0];
    // The script's child writes, until it has to wait.
    let child = || {
        let of_shell = format!("/proc/{id}/task/{id}/children");
        fs::read_to_string(of_shell).ok().and_then(|ids| ids.trim().parse::<u32>().ok())
    };
    let written = || fs::read_to_string(format!("/proc/{}/io", child()?)).ok();
    let mut last = None;
    let mut times = 0;
    until("the script has to wait", || {
        let now = written();
        times = if now.is_some() && now == last { times + 1 } else { 0 };
        last = now;
        times == 40
    });
    assert!(!site.path("done").exists());
    let more = site.peak_memory() - before;
    assert!(more < 16 << 10, "{more} KiB");
    assert_eq!(reply(&mut stream, false).body.len(), BYTES);
    until("the script has come to its end", || site.path("done").exists());
}

#[test]
fn complaints_are_told_and_bounded() {
    let script = format!(
        "{TEXT}printf 'a\\033[2Jb\\r\\n\\nlast' >&2; i=0; while [ $i -lt 300 ]; do echo $i >&2; \
         i=$((i+1)); done; echo body",
    );
    let site = Site::serve(&[("a", &script)], "");
    assert_eq!(site.get("/cgi/a").text(), "body\n");
    site.until_told("more lines)\n");
    let path = site.path("a");
    let said = site.server.stderr();
    let said: Vec<&str> = said.lines().skip(1).collect();
    let line = |text: &str| format!("weft: {}: {text}", path.display());
    assert_eq!(said[..4], [line("a\\u{1b}[2Jb"), line(""), line("last0"), line("1")]);
    assert_eq!(said.len(), 101);
    assert_eq!(said[100], line("(202 more lines)"));
}

// -- how scripts end

/// Writes the ids of the script and of a child of its child, and then waits.
const FAMILY: &str =
    "echo $$ > ids; (sh -c 'echo $$ >> ids; sleep 1000; true'; true) & sleep 1000; true\n";

#[test]
fn a_script_that_takes_too_long_is_ended_with_its_children() {
    for (script, keys, status) in [
        (FAMILY.to_owned(), ", timeout = \"1s\"", 504),
        (format!("printf 'Content-Type: '; {FAMILY}"), ", timeout = \"1s\"", 504),
        // Who drops a byte now and then is not faster.
        (
            FAMILY.replace("& sleep 1000", "& while :; do printf x; sleep 0.1; done"),
            ", timeout = \"1s\"",
            504,
        ),
        (format!("trap '' TERM; {FAMILY}"), ", timeout = \"1s\"", 504),
        (format!("{TEXT}{FAMILY}"), ", body_timeout = \"1s\"", 200),
    ] {
        let site = Site::serve(&[("a", &script)], keys);
        let reply = site.get("/cgi/a");
        assert_eq!((reply.status, reply.is_whole), (status, status == 504), "{script}");
        until_gone(&site.ids("ids", 2));
        site.until_childless();
        site.until_told("it took too long and was ended");
    }
}

#[test]
fn waiting_for_the_client_is_not_counted() {
    let site =
        Site::serve(&[("cat", &format!("read line; {TEXT}echo $line"))], ", timeout = \"500ms\"");
    let mut stream = site.connect();
    let head =
        "POST /cgi/cat HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 6\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // Longer than the script may take.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    stream.write_all(b"hello\n").unwrap();
    assert_eq!(reply(&mut stream, false).text(), "hello\n");
}

#[test]
fn a_script_is_ended_when_its_client_leaves() {
    for (script, is_read) in [
        (FAMILY.to_owned(), false),
        (format!("{TEXT}echo one; {FAMILY}"), true),
        (format!("trap '' TERM; {FAMILY}"), false),
    ] {
        let site = Site::serve(&[("a", &script)], "");
        let mut stream = site.connect();
        stream.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
        let ids = site.ids("ids", 2);
        if is_read {
            stream.read_exact(&mut [0; 12]).unwrap();
        }
        drop(stream);
        until_gone(&ids);
        site.until_childless();
    }
}

#[test]
fn a_script_may_clean_up() {
    let script = "trap 'touch cleaned; echo cleaned >&2; exit 1' TERM; echo $$ > ids; while :; do sleep 0.02; done";
    let site = Site::serve(&[("a", script)], ", timeout = \"500ms\"");
    assert_eq!(site.get("/cgi/a").status, 504);
    until_gone(&site.ids("ids", 1));
    assert!(site.path("cleaned").exists());
    site.until_told(": cleaned\n");
}

#[test]
fn scripts_end_with_the_server() {
    let site = Site::serve(&[("a", FAMILY)], "");
    let mut stream = site.connect();
    stream.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    let ids = site.ids("ids", 2);
    let Site { server, folder } = site;
    server.stop();
    until("they are gone, or nobody's", || {
        ids.iter().all(|id| {
            let state = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        })
    });
    drop(folder);
}

#[test]
fn what_a_script_leaves_behind_goes_on() {
    let script = format!(
        "(while ! test -e go; do sleep 0.02; done; touch went) </dev/null >/dev/null 2>&1 &\n{TEXT}echo body"
    );
    let site = Site::serve(&[("a", &script)], "");
    let reply = site.get("/cgi/a");
    assert_eq!((&*reply.text(), reply.is_whole), ("body\n", true));
    site.until_childless();
    site.create("go");
    until("it has gone on", || site.path("went").exists());
}

// -- how many there are

const WAITS: &str = "echo $$ > ids; while ! test -e go; do sleep 0.02; done\n";

#[test]
fn there_are_so_many_at_a_time() {
    let script = format!("{WAITS}{TEXT}");
    let site = Site::serve(&[("a", &script)], ", max_processes = 1, max_queued = 0");
    let mut first = site.connect();
    first.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    site.ids("ids", 1);
    // On each of the workers.
    for _ in 0..4 {
        let reply = site.get("/cgi/a");
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    }
    site.until_told("too many scripts are running");
    // What is not there is not waited for.
    assert_eq!(site.get("/cgi/none").status, 404);
    site.create("go");
    assert_eq!(reply(&mut first, false).status, 200);
    assert_eq!(site.get("/cgi/a").status, 200);
}

#[test]
fn others_wait_for_their_turn() {
    let script = format!("{WAITS}{TEXT}");
    let site = Site::serve(
        &[("a", &script), ("b", TEXT)],
        ", max_processes = 1, max_queued = 1, queue_timeout = \"never\"",
    );
    let mut first = site.connect();
    first.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    site.ids("ids", 1);
    let statuses = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let status = site.get("/cgi/b").status;
                statuses.lock().unwrap().push(status);
            });
        }
        // One of them waits.
        until("three are refused", || statuses.lock().unwrap().len() == 3);
        site.create("go");
    });
    assert_eq!(statuses.into_inner().unwrap(), [503, 503, 503, 200]);
    assert_eq!(reply(&mut first, false).status, 200);

    let site = Site::serve(&[("a", &script)], ", max_processes = 1, queue_timeout = \"100ms\"");
    let mut first = site.connect();
    first.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    site.ids("ids", 1);
    assert_eq!(site.get("/cgi/a").status, 503);
    site.create("go");
    assert_eq!(reply(&mut first, false).status, 200);
}

#[test]
fn no_zombie_and_no_descriptor_is_left() {
    let site = Site::serve(
        &[
            ("a", &format!("{TEXT}echo body")),
            ("b", "exit 1"),
            ("c", &format!("{TEXT}echo x; sleep 1000")),
        ],
        "",
    );
    let fds = format!("/proc/{}/fd", site.server.id());
    let count = || descriptors(&fds).len();
    let before = count();
    for _ in 0..20 {
        assert_eq!(site.get("/cgi/a").text(), "body\n");
        assert_eq!(site.get("/cgi/b").status, 502);
        let mut stream = site.connect();
        stream.write_all(request("GET", "/cgi/c").as_bytes()).unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
    }
    site.until_childless();
    until("no descriptor is left", || count() <= before);
}

// -- another version of HTTP

#[test]
fn over_http_2() {
    if !tool("curl") {
        return;
    }
    let script =
        format!("{TEXT}echo \"$SERVER_PROTOCOL $HTTP_HOST $HTTP_COOKIE $CONTENT_LENGTH\"; cat");
    let site = Site::serve(&[("cat", &script), ("family", FAMILY)], "");
    let address = site.server.address().to_string();
    fs::write(site.path("body"), "hello").unwrap();
    for more in [
        &["--data", "hello"][..],
        // As a stream whose length the client does not say.
        &["--request", "POST", "--upload-file", "-"],
    ] {
        let mut command = curl();
        command.args(["--http2-prior-knowledge", "--cookie", "a=1; b=2"]).args(more);
        let stdin = fs::File::open(site.path("body")).unwrap();
        let ended = Program::told(command.arg(site.server.url("/cgi/cat")), stdin).end();
        assert_eq!(ended.stdout, format!("HTTP/2.0 {address} a=1; b=2 5\nhello"), "{more:?}");
    }
    let mut command = curl();
    command.args(["--http2-prior-knowledge", &site.server.url("/cgi/family")]);
    let client = Program::start(&mut command);
    let ids = site.ids("ids", 2);
    drop(client);
    until_gone(&ids);
}

#[test]
fn with_tls() {
    if !tool("curl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{TEXT}echo \"$HTTPS $REQUEST_SCHEME $SERVER_NAME $SERVER_PORT\"");
    write_script(&folder.path().join("a"), &script);
    let route = format!("/ => {}", folder.path().display());
    let mut command = weft(["--route", &route, "--tls-self-signed", "--tls-listen", "127.0.0.1:0"]);
    let server = Weft::start(&mut command);
    let address = server.tls_address();
    for (host, expected) in [
        (address.to_string(), format!("on https 127.0.0.1 {}\n", address.port())),
        ("example.org".to_owned(), "on https example.org 443\n".to_owned()),
    ] {
        let mut command = curl();
        command.args(["--insecure", "--header", &format!("Host: {host}")]);
        let ended = Program::start(command.arg(format!("https://{address}/a"))).end();
        assert_eq!(ended.stdout, expected, "{}", ended.stderr);
    }
}
