//! CGI (RFC 3875): scripts run by the program, their requests, responses and processes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::common::external::curl;
use crate::common::{
    INHERITABLE_DESCRIPTORS, PATIENCE, Program, Signal, Weft, has_tool, until, weft,
};
use tempfile::TempDir;

// -- scripts, and the program that runs them

const TEXT: &str = "printf 'Content-Type: text/plain\\n\\n'\n";

struct Site {
    folder: TempDir,
    server: Weft,
}

impl Site {
    /// Serves shell scripts below `/cgi/`, with these additional keys in the table of the route.
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

    /// Returns a path in the directory of the scripts, which is their working directory.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("cgi").join(name)
    }

    /// Creates a file that a script waits for.
    fn create(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// Waits for the process IDs that a script writes to a file.
    #[track_caller]
    fn process_ids(&self, name: &str, count: usize) -> Vec<u32> {
        let read = || {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>()
        };
        until("the script has written its process IDs", || read().len() == count);
        read()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request with `Connection: close` and reads to the end of the connection.
    #[track_caller]
    fn send_request(&self, request: &str) -> ReceivedResponse {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        read_response(&mut stream, request.starts_with("HEAD"))
    }

    #[track_caller]
    fn get(&self, target: &str) -> ReceivedResponse {
        self.send_request(&request("GET", target))
    }

    /// Waits until the error log contains `text`.
    #[track_caller]
    fn until_logged(&self, text: &str) {
        until(&format!("`{text}` is logged"), || self.server.stderr().contains(text));
    }

    /// Waits until the program has no child processes, including zombies.
    #[track_caller]
    fn until_no_children(&self) {
        let tasks = format!("/proc/{}/task", self.server.id());
        until("the program has no children", || {
            let tasks = fs::read_dir(&tasks).unwrap();
            let children =
                tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")));
            children.flatten().all(|children| children.trim().is_empty())
        });
    }

    /// Returns the peak resident memory of the program, in KiB.
    fn peak_memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }
}

pub fn write_script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn request(method: &str, target: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
}

/// Waits until none of these processes exists, not even as a zombie.
#[track_caller]
fn until_reaped(ids: &[u32]) {
    until("the processes are reaped", || {
        ids.iter().all(|id| !Path::new(&format!("/proc/{id}")).exists())
    });
}

/// The response that a client received before the end of its connection.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedResponse {
    status: u16,
    fields: BTreeMap<String, String>,
    body: Vec<u8>,
    is_complete: bool,
}

impl ReceivedResponse {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

#[track_caller]
fn read_response(stream: &mut impl Read, head_only: bool) -> ReceivedResponse {
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
    let (body, is_complete) = if head_only || [204, 304].contains(&status) {
        let is_empty = body.is_empty();
        (body, is_empty)
    } else if fields.contains_key("transfer-encoding") {
        dechunk(&body)
    } else {
        let is_complete = body.len() == fields["content-length"].parse::<usize>().unwrap();
        (body, is_complete)
    };
    ReceivedResponse { status, fields, body, is_complete }
}

/// Decodes a chunked body; returns the data, and true if the body is complete.
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

// -- the environment of scripts

#[test]
fn scripts_get_exactly_the_meta_variables() {
    let script = format!("{TEXT}echo \"$#\"; pwd; env");
    let site = Site::serve(&[("in/env.cgi", &script)], "");
    let response = site.send_request(
        "GET /cgi/%69n/env.cgi/a%20b/c?x=1+2&%20 HTTP/1.1\r\nHost: example.org:81\r\n\
         Connection: close, X-Mine\r\nX-Mine: 1\r\nAccept: a\r\nAccept: b\r\nProxy: evil\r\n\
         X_Y: evil\r\nAuthorization: Basic x\r\n\r\n",
    );
    let text = response.text();
    let mut lines = text.lines();
    let root = site.path("");
    let root = root.to_str().unwrap().trim_end_matches('/');
    assert_eq!(lines.next(), Some("0"), "the query is not passed as an argument");
    assert_eq!(lines.next(), Some(&*format!("{root}/in")));
    // Variables set by the shell itself.
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
fn environment_key_sets_and_passes_variables() {
    let keys = ", environment = [\"A=b c\", \"SERVER_NAME=www\", \"WEFT_TEST\", \"WEFT_NONE\"]";
    let script = format!("{TEXT}echo \"$A|$SERVER_NAME|$WEFT_TEST|${{WEFT_NONE-unset}}|$HOME\"");
    let site = Site::serve(&[("env", &script)], keys);
    assert_eq!(site.get("/cgi/env").text(), "b c|www|from outside|unset|\n");
}

#[test]
fn resolves_paths_to_scripts() {
    const PARENT: &str = "400 Bad Request: the path has an encoded parent segment\n";
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
        ("/cgi/in%2findex", (404, "404 Not Found\n")),
        ("/cgi/..%2fsecret", (400, PARENT)),
        ("/cgi/in%2f..%2f..%2fsecret", (400, PARENT)),
        ("/cgi/a%00", (400, "400 Bad Request: the path contains %00\n")),
    ] {
        let response = site.get(target);
        assert_eq!((response.status, &*response.text()), expected, "{target}");
    }
    assert_eq!(site.server.stderr(), site.server.announcement, "nothing else is logged");
}

#[test]
fn single_script_serves_all_paths() {
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
fn scripts_inherit_no_descriptors_and_no_signal_mask() {
    // Descriptors inherited by the test itself are passed on.
    let exclusive = INHERITABLE_DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let inherited: Vec<String> = descriptors("/proc/self/fd");
    let list = format!("{TEXT}exec ls -l /proc/self/fd");
    let masks = format!("{TEXT}exec sed -n 's/SigIgn:\\s*//p; s/SigBlk:\\s*//p' /proc/self/status");
    let site = Site::serve(&[("fd", &list), ("signals", &masks), ("slow", "sleep 1000")], "");
    drop(exclusive);
    // Meanwhile the server has another connection, and pipes to another script.
    let mut slow = site.connect();
    slow.write_all(request("GET", "/cgi/slow").as_bytes()).unwrap();
    let text = site.get("/cgi/fd").text();
    let mut fds = 0;
    for line in text.lines() {
        let Some((before, target)) = line.split_once(" -> ") else { continue };
        fds += 1;
        let is_expected = match before.rsplit(' ').next().unwrap() {
            "0" => target == "/dev/null",
            "1" | "2" => target.starts_with("pipe:"),
            // `ls` has the directory itself open.
            _ => target.starts_with("/proc/") || inherited.iter().any(|known| *known == target),
        };
        assert!(is_expected, "{line}");
    }
    assert!(fds >= 4, "{text}");
    let text = site.get("/cgi/signals").text();
    let masks: Vec<u64> = text.lines().map(|line| u64::from_str_radix(line, 16).unwrap()).collect();
    assert_eq!(masks.len(), 2, "{text}");
    let pipe = 1 << (Signal::PIPE.as_raw() - 1);
    assert!(
        masks.iter().all(|mask| mask & pipe == 0),
        "SIGPIPE has its default action: {masks:x?}"
    );
    crate::common::reset_on_close(&slow);
    drop(slow);
    site.until_no_children();
}

/// The server keeps its ambient capabilities, which a successor needs for ports below 1024.
#[test]
fn scripts_inherit_no_ambient_capabilities() {
    if !has_tool("setpriv") || !has_tool("unshare") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{TEXT}exec grep CapAmb: /proc/self/status");
    write_script(&folder.path().join("a"), &script);
    let mut command = Command::new("unshare");
    // A user namespace has all capabilities without root.
    command.args(["--user", "--map-root-user", "setpriv", "--inh-caps=+net_bind_service"]);
    command.args(["--ambient-caps=+net_bind_service", env!("CARGO_BIN_EXE_weft"), "--route"]);
    command.arg(format!("/cgi/ => {}", folder.path().display()));
    let site = Site { server: Weft::start(command.args(["--listen", "127.0.0.1:0"])), folder };
    let status = fs::read_to_string(format!("/proc/{}/status", site.server.id())).unwrap();
    assert!(status.contains("CapAmb:\t0000000000000400\n"), "{status}");
    assert_eq!(site.get("/cgi/a").text(), "CapAmb:\t0000000000000000\n");
    // Also not after the thread has served other requests.
    assert_eq!(site.get("/cgi/a").text(), "CapAmb:\t0000000000000000\n");
    let status = fs::read_to_string(format!("/proc/{}/status", site.server.id())).unwrap();
    assert!(status.contains("CapAmb:\t0000000000000400\n"), "{status}");
}

#[test]
fn trace_reaches_no_script() {
    let site = Site::serve(&[("a", &format!("{TEXT}env"))], "");
    let response = site.send_request(&request("TRACE", "/cgi/a"));
    assert_eq!(response.status, 405);
    assert!(response.fields["allow"].starts_with("GET, "));
}

/// Returns the targets of the descriptors of a process.
fn descriptors(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let links = entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

// -- request bodies

#[test]
fn forwards_request_bodies_to_scripts() {
    let cat = format!("{TEXT}echo \"${{CONTENT_LENGTH-none}} ${{CONTENT_TYPE-none}}\"; cat");
    let site = Site::serve(
        &[("cat", &cat), ("ignore", &format!("{TEXT}echo done"))],
        ", max_body_bytes = 200000, max_spooled_bytes = 10",
    );
    let large = "x".repeat(200_000);
    let too_large = "x".repeat(200_001);
    for (script, fields, body, expected) in [
        ("cat", "", "", (200, "none none\n")),
        ("cat", "Content-Length: 0\r\n", "", (200, "0 none\n")),
        ("cat", "Content-Length: 5\r\nContent-Type: a/b\r\n", "hello", (200, "5 a/b\nhello")),
        ("cat", "Content-Length: 200000\r\n", &*large, (200, &*format!("200000 none\n{large}"))),
        ("ignore", "Content-Length: 200000\r\n", &*large, (200, "done\n")),
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
            (413, "413 Payload Too Large: the body is larger than 10 bytes\n"),
        ),
        (
            "cat",
            "Content-Length: 200001\r\n",
            &*too_large,
            (413, "413 Payload Too Large: the body is larger than 200000 bytes\n"),
        ),
    ] {
        let head = format!("POST /cgi/{script} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
        let response = site.send_request(&format!("{head}{fields}\r\n{body}"));
        let text = response.text();
        let short = |text: &str| text[..text.len().min(80)].to_owned();
        assert!(
            (response.status, &*text) == expected,
            "{fields}: {} {}",
            response.status,
            short(&text)
        );
    }
}

#[test]
fn streams_large_bodies_in_both_directions() {
    const BYTES: usize = 64 << 20;
    let site = Site::serve(&[("cat", &format!("{TEXT}exec cat"))], ", max_body_bytes = \"1GiB\"");
    assert_eq!(site.get("/cgi/cat").status, 200);
    let before = site.peak_memory_kib();
    let mut stream = site.connect();
    let mut upload = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let head = "POST /cgi/cat HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: ";
        upload.write_all(format!("{head}{BYTES}\r\n\r\n").as_bytes()).unwrap();
        let part: Vec<u8> = (0..BYTES / 64).map(|i| (i % 251) as u8).collect();
        (0..64).for_each(|_| upload.write_all(&part).unwrap());
        part
    });
    let response = read_response(&mut stream, false);
    let part = writer.join().unwrap();
    assert_eq!((response.status, response.body.len(), response.is_complete), (200, BYTES, true));
    assert!(response.body.chunks(part.len()).all(|found| found == part));
    let growth = site.peak_memory_kib() - before;
    assert!(growth < 16 << 10, "{growth} KiB for a body of {} KiB", BYTES >> 10);
}

#[test]
fn scripts_do_not_get_end_of_file_for_truncated_bodies() {
    let script = "echo $$ > id; cat > body; touch whole; sleep 1000";
    for half in ["half", ""] {
        let site = Site::serve(&[("upload", script)], ", buffer_requests = false");
        let mut stream = site.connect();
        let head = "POST /cgi/upload HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n";
        stream.write_all(format!("{head}{half}").as_bytes()).unwrap();
        let ids = site.process_ids("id", 1);
        stream.shutdown(Shutdown::Both).unwrap();
        until_reaped(&ids);
        assert!(!site.path("whole").exists(), "{half:?}");
    }
}

// -- responses of scripts

#[test]
fn forwards_script_responses_to_clients() {
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
        let response = site.send_request(&request(method, "/cgi/a"));
        let fields = response.fields.iter().filter(|(name, _)| {
            !["connection", "date", "server", "transfer-encoding"].contains(&&***name)
        });
        let fields: Vec<String> = fields.map(|(name, value)| format!("{name}: {value}")).collect();
        let found = (response.status, &*fields.join(", "), &*response.text());
        assert_eq!((found, response.is_complete), (expected, true), "{method} {script}");
        let has_length = response.field("content-length").is_some();
        let has_body = ![204, 304].contains(&response.status);
        let is_chunked = response.field("transfer-encoding") == Some("chunked");
        assert_eq!(is_chunked, has_body && !has_length, "{method} {script}");
        site.until_no_children();
    }
}

#[test]
fn invalid_script_responses_are_a_bad_gateway() {
    for (script, status, log) in [
        ("echo no head; echo", 502, "a line of its head has no colon: no head"),
        ("printf 'X: y\\n\\n'", 502, "its head has neither Content-Type nor Location nor Status"),
        ("printf 'HTTP/1.1 200 OK\\n\\n'", 502, "it begins with a status line"),
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
        let response = site.get("/cgi/a");
        assert_eq!((response.status, response.is_complete), (status, true), "{script}");
        let path = site.path("a");
        site.until_logged(&format!("weft: {}: my words\n", path.display()));
        site.until_logged(log);
        site.until_no_children();
    }
}

#[test]
fn scripts_that_cannot_be_executed() {
    let site = Site::serve(&[], "");
    for (name, text, log) in [
        (
            "a",
            "#!/no/such/interpreter\n",
            "cannot be run: No such file or directory (os error 2): the interpreter \
             `/no/such/interpreter` of its first line does not exist",
        ),
        (
            "c",
            "#!/bin/sh\r\necho\r\n",
            "its lines end as in Windows, so that the system looks for the interpreter `/bin/sh\\r`",
        ),
        ("b", "no program", "cannot be run: Exec format error"),
    ] {
        write_script(&site.path(name), "");
        fs::write(site.path(name), text).unwrap();
        assert_eq!(site.get(&format!("/cgi/{name}")).status, 500);
        site.until_logged(log);
    }
}

#[test]
fn truncated_responses_are_not_complete() {
    const SIZED: &str = "printf 'Content-Type: a/b\\nContent-Length: 5\\n\\n'\n";
    for (head, script, is_complete, log) in [
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
        // The response head has been sent before the script continues.
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        site.create("go");
        let response = read_response(&mut first.chain(stream), false);
        let body = if script.contains("abcde") { "abcde" } else { "abc" };
        assert_eq!((response.status, response.is_complete), (200, is_complete), "{script}");
        // Data before a truncation may be lost.
        let text = response.text();
        assert!(text == body || (!is_complete && body.starts_with(&text)), "{script}: {text}");
        site.until_logged(log);
        if script.contains("after") {
            until("the script has exited", || site.path("after").exists());
        }
        site.until_no_children();
    }
}

#[test]
fn forwards_output_without_delay() {
    let script = format!("{TEXT}echo one; while ! test -e go; do sleep 0.02; done; echo two");
    let site = Site::serve(&[("a", &script)], "");
    let mut stream = site.connect();
    stream.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"4\r\none\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        received.push(byte[0]);
    }
    site.create("go");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "4\r\ntwo\n\r\n0\r\n\r\n");
}

#[test]
fn slow_clients_apply_backpressure_to_scripts() {
    const BYTES: usize = 64 << 20;
    let script = format!("echo $$ > id; {TEXT}head -c {BYTES} /dev/zero; touch done");
    let site = Site::serve(&[("a", &script)], ", buffer_responses = false");
    let before = site.peak_memory_kib();
    let mut stream = site.connect();
    stream.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    let id = site.process_ids("id", 1)[0];
    // A child process of the script writes until it blocks.
    let child = || {
        let children = format!("/proc/{id}/task/{id}/children");
        fs::read_to_string(children).ok().and_then(|ids| ids.trim().parse::<u32>().ok())
    };
    let written = || fs::read_to_string(format!("/proc/{}/io", child()?)).ok();
    let mut last = None;
    let mut unchanged = 0;
    until("the script blocks on a write", || {
        let current = written();
        unchanged = if current.is_some() && current == last { unchanged + 1 } else { 0 };
        last = current;
        unchanged == 40
    });
    assert!(!site.path("done").exists());
    let growth = site.peak_memory_kib() - before;
    assert!(growth < 16 << 10, "{growth} KiB");
    assert_eq!(read_response(&mut stream, false).body.len(), BYTES);
    until("the script has exited", || site.path("done").exists());
}

#[test]
fn script_stderr_is_escaped_and_limited_in_the_log() {
    let script = format!(
        "{TEXT}printf 'a\\033[2Jb\\r\\n\\nlast' >&2; i=0; while [ $i -lt 300 ]; do echo $i >&2; \
         i=$((i+1)); done; echo body",
    );
    let site = Site::serve(&[("a", &script)], "");
    assert_eq!(site.get("/cgi/a").text(), "body\n");
    site.until_logged("more lines)\n");
    let path = site.path("a");
    let stderr = site.server.stderr();
    let stderr: Vec<&str> = stderr.lines().skip(1).collect();
    let line = |text: &str| format!("weft: {}: {text}", path.display());
    assert_eq!(stderr[..4], [line("a\\u{1b}[2Jb"), line(""), line("last0"), line("1")]);
    assert_eq!(stderr.len(), 101);
    assert_eq!(stderr[100], line("(202 more lines)"));
}

// -- termination of scripts

/// Script that writes the process IDs of itself and of a grandchild to a file, and then sleeps.
const PROCESS_TREE: &str =
    "echo $$ > ids; (sh -c 'echo $$ >> ids; sleep 1000; true'; true) & sleep 1000; true\n";

#[test]
fn timeout_terminates_the_process_group() {
    for (script, keys, status) in [
        (PROCESS_TREE.to_owned(), ", timeout = \"1s\"", 504),
        (format!("printf 'Content-Type: '; {PROCESS_TREE}"), ", timeout = \"1s\"", 504),
        // Single bytes of output do not restart the timeout.
        (
            PROCESS_TREE.replace("& sleep 1000", "& while :; do printf x; sleep 0.1; done"),
            ", timeout = \"1s\"",
            504,
        ),
        (format!("trap '' TERM; {PROCESS_TREE}"), ", timeout = \"1s\"", 504),
        (format!("{TEXT}{PROCESS_TREE}"), ", body_timeout = \"1s\"", 200),
    ] {
        let site = Site::serve(&[("a", &script)], keys);
        let response = site.get("/cgi/a");
        assert_eq!((response.status, response.is_complete), (status, status == 504), "{script}");
        until_reaped(&site.process_ids("ids", 2));
        site.until_no_children();
        site.until_logged("it took too long and was ended");
    }
}

#[test]
fn timeout_excludes_waiting_for_the_request_body() {
    let site = Site::serve(
        &[("cat", &format!("read line; {TEXT}echo $line"))],
        ", timeout = \"500ms\", buffer_requests = false",
    );
    let mut stream = site.connect();
    let head =
        "POST /cgi/cat HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 6\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // Longer than the timeout of the script.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    stream.write_all(b"hello\n").unwrap();
    assert_eq!(read_response(&mut stream, false).text(), "hello\n");
}

#[test]
fn client_disconnect_terminates_the_process_group() {
    for (script, reads_head) in [
        (PROCESS_TREE.to_owned(), false),
        (format!("{TEXT}echo one; {PROCESS_TREE}"), true),
        (format!("trap '' TERM; {PROCESS_TREE}"), false),
    ] {
        let site = Site::serve(&[("a", &script)], "");
        let mut stream = site.connect();
        stream.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
        let ids = site.process_ids("ids", 2);
        if reads_head {
            stream.read_exact(&mut [0; 12]).unwrap();
        }
        crate::common::reset_on_close(&stream);
        drop(stream);
        until_reaped(&ids);
        site.until_no_children();
    }
}

#[test]
fn scripts_can_handle_sigterm() {
    let script = "trap 'touch cleaned; echo cleaned >&2; exit 1' TERM; echo $$ > ids; while :; do sleep 0.02; done";
    let site = Site::serve(&[("a", script)], ", timeout = \"500ms\"");
    assert_eq!(site.get("/cgi/a").status, 504);
    until_reaped(&site.process_ids("ids", 1));
    assert!(site.path("cleaned").exists());
    site.until_logged(": cleaned\n");
}

#[test]
fn stopping_the_server_terminates_scripts() {
    let site = Site::serve(&[("a", PROCESS_TREE)], "");
    let mut stream = site.connect();
    stream.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    let ids = site.process_ids("ids", 2);
    let Site { server, folder } = site;
    server.stop();
    until("the processes have exited", || {
        ids.iter().all(|id| {
            let state = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        })
    });
    drop(folder);
}

#[test]
fn background_processes_of_scripts_keep_running() {
    let script = format!(
        "(while ! test -e go; do sleep 0.02; done; touch resumed) </dev/null >/dev/null 2>&1 &\n{TEXT}echo body"
    );
    let site = Site::serve(&[("a", &script)], "");
    let response = site.get("/cgi/a");
    assert_eq!((&*response.text(), response.is_complete), ("body\n", true));
    site.until_no_children();
    site.create("go");
    until("the background process has continued", || site.path("resumed").exists());
}

// -- limits on the number of scripts

/// Script that writes its process ID to a file and waits for the file `go`.
const WAIT_FOR_GO: &str = "echo $$ > ids; while ! test -e go; do sleep 0.02; done\n";

#[test]
fn limits_concurrent_processes() {
    let script = format!("{WAIT_FOR_GO}{TEXT}");
    let site = Site::serve(&[("a", &script)], ", max_processes = 1, max_queued = 0");
    let mut first = site.connect();
    first.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    site.process_ids("ids", 1);
    // Several requests, so that each worker gets one.
    for _ in 0..4 {
        let response = site.get("/cgi/a");
        assert_eq!((response.status, response.field("retry-after")), (503, Some("1")));
    }
    site.until_logged("too many scripts are running");
    // A missing script does not need a process slot.
    assert_eq!(site.get("/cgi/none").status, 404);
    site.create("go");
    assert_eq!(read_response(&mut first, false).status, 200);
    assert_eq!(site.get("/cgi/a").status, 200);
}

#[test]
fn requests_queue_for_a_process_slot() {
    let script = format!("{WAIT_FOR_GO}{TEXT}");
    let site = Site::serve(
        &[("a", &script), ("b", TEXT)],
        ", max_processes = 1, max_queued = 1, queue_timeout = \"never\"",
    );
    let mut first = site.connect();
    first.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    site.process_ids("ids", 1);
    let statuses = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let status = site.get("/cgi/b").status;
                statuses.lock().unwrap().push(status);
            });
        }
        // The fourth request is queued.
        until("three requests are rejected", || statuses.lock().unwrap().len() == 3);
        site.create("go");
    });
    assert_eq!(statuses.into_inner().unwrap(), [503, 503, 503, 200]);
    assert_eq!(read_response(&mut first, false).status, 200);

    let site = Site::serve(&[("a", &script)], ", max_processes = 1, queue_timeout = \"100ms\"");
    let mut first = site.connect();
    first.write_all(request("GET", "/cgi/a").as_bytes()).unwrap();
    site.process_ids("ids", 1);
    assert_eq!(site.get("/cgi/a").status, 503);
    site.create("go");
    assert_eq!(read_response(&mut first, false).status, 200);
}

#[test]
fn leaves_no_zombies_and_no_descriptors() {
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
    site.until_no_children();
    until("all descriptors are closed", || count() <= before);
}

// -- HTTP/2 and TLS

#[test]
fn serves_scripts_over_http2() {
    if !has_tool("curl") {
        return;
    }
    let script =
        format!("{TEXT}echo \"$SERVER_PROTOCOL $HTTP_HOST $HTTP_COOKIE $CONTENT_LENGTH\"; cat");
    let site = Site::serve(&[("cat", &script), ("tree", PROCESS_TREE)], "");
    let address = site.server.address().to_string();
    fs::write(site.path("body"), "hello").unwrap();
    for options in [
        &["--data", "hello"][..],
        // As a stream without `Content-Length`.
        &["--request", "POST", "--upload-file", "-"],
    ] {
        let mut command = curl();
        command.args(["--http2-prior-knowledge", "--cookie", "a=1; b=2"]).args(options);
        let stdin = fs::File::open(site.path("body")).unwrap();
        let output = Program::start_with_stdin(command.arg(site.server.url("/cgi/cat")), stdin)
            .wait_with_output();
        assert_eq!(output.stdout, format!("HTTP/2.0 {address} a=1; b=2 5\nhello"), "{options:?}");
    }
    let mut command = curl();
    command.args(["--http2-prior-knowledge", &site.server.url("/cgi/tree")]);
    let client = Program::start(&mut command);
    let ids = site.process_ids("ids", 2);
    drop(client);
    until_reaped(&ids);
}

#[test]
fn serves_scripts_over_tls() {
    if !has_tool("curl") {
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
        let output = Program::start(command.arg(format!("https://{address}/a"))).wait_with_output();
        assert_eq!(output.stdout, expected, "{}", output.stderr);
    }
}
