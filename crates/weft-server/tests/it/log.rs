//! Access log and error log of the program: their contents, and no torn, lost or forged lines.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{
    self, Client, LONG_PATIENCE, Program, ProgramOutput, Signal, Weft, has_tool, raw_upstream,
    read_head, until, weft,
};
use tempfile::TempDir;

/// A directory for log files, with a site of one file in a subdirectory.
pub struct Site(pub TempDir);

impl Site {
    pub fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("site")).unwrap();
        fs::write(folder.path().join("site/a.txt"), "A\n").unwrap();
        Site(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Serves the site; paths in the options are relative to the directory.
    #[track_caller]
    fn serve(&self, more: &[&str]) -> Weft {
        Weft::start(self.command().args(more))
    }

    fn command(&self) -> Command {
        let mut command = weft(["site", "--listen", "127.0.0.1:0", "--workers", "2"]);
        command.current_dir(self.0.path());
        command
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns the sorted names of all files that start with `prefix`.
    fn names(&self, prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
        names.sort();
        names
    }

    /// Returns the number of lines in all files that start with `prefix`. Asserts that the lines
    /// are complete and identical except for their time.
    #[track_caller]
    fn count_lines(&self, prefix: &str) -> usize {
        let files = self.names(prefix).into_iter().map(|name| {
            let text = self.read(&name);
            for line in text.split_inclusive('\n') {
                let rest = line.strip_prefix("127.0.0.1 - - [");
                let rest = rest.and_then(|rest| rest.get("06/Nov/1994:08:49:37 +0000".len()..));
                let is_complete = rest.is_some_and(|rest| {
                    rest.starts_with("] \"GET /a.txt HTTP/1.1\" 200 2 \"-\" \"") && {
                        rest.ends_with("\"\n") && rest.matches('"').count() == 6
                    }
                });
                assert!(is_complete, "{name}: torn: {line:?}");
            }
            text.lines().count()
        });
        files.sum()
    }
}

/// Sends a request on a new connection and returns the status of the response.
fn request_status(server: &Weft, request: impl AsRef<[u8]>) -> u16 {
    let mut client = server.client();
    client.send(request);
    client.response().status
}

// -- log formats

#[test]
fn access_log_lines_follow_the_format() {
    let request = "GET /a.txt?b HTTP/1.1\r\nHost: a\r\nX-A: b\"c\r\nUser-Agent: d\r\n\r\n";
    let combined =
        r#"127.0.0.1 - - [00/Aaa/0000:00:00:00 +0000] "GET /a.txt?b HTTP/1.1" 200 2 "-" "d""#;
    for (format, expected) in [
        ("combined", combined),
        (r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#, combined),
        (
            "%h|%r|%s|%B|%{X-A}i|%{X-B}i|%X|%%",
            r#"127.0.0.1|GET /a.txt?b HTTP/1.1|200|2|b\"c|-|+|%"#,
        ),
        ("días %s", "días 200"),
    ] {
        let site = Site::new();
        let server = site.serve(&["--log-format", format]);
        assert_eq!(request_status(&server, request), 200);
        let line = server.stop().stdout;
        let actual = match format.contains("%t") || format == "combined" {
            true => with_masked_date(&line),
            false => line,
        };
        assert_eq!(actual, format!("{expected}\n"));
    }
}

/// The milliseconds differ from request to request, and belong to the second of `time`.
#[test]
fn access_log_lines_have_milliseconds() {
    let site = Site::new();
    let server = site.serve(&["--log-format", "{time} {time_millis}"]);
    for _ in 0..20 {
        let request = "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(request_status(&server, request), 200);
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    let lines = server.stop().stdout;
    let times: Vec<_> = lines.lines().map(|line| line.split_once(' ').unwrap()).collect();
    for (time, millis) in &times {
        assert_eq!(millis[..19], time[..19], "{millis}");
        assert!(millis[19..].starts_with('.') && millis.len() == 24 && millis.ends_with('Z'));
    }
    let distinct: std::collections::BTreeSet<_> = times.iter().map(|(_, millis)| millis).collect();
    assert!(times.len() == 20 && distinct.len() > 5, "{lines}");
}

/// Replaces the digits and letters of the date in a line by `0`, `A` and `a`.
fn with_masked_date(line: &str) -> String {
    let (before, rest) = line.split_once('[').expect("a date");
    let (date, after) = rest.split_once(']').expect("the end of the date");
    let class = |c: char| match c {
        '0'..='9' => '0',
        'A'..='Z' => 'A',
        'a'..='z' => 'a',
        other => other,
    };
    format!("{before}[{}]{after}", date.chars().map(class).collect::<String>())
}

/// Parses lines of JSON with Python, and returns these members of each line as bytes.
#[track_caller]
fn json_members(lines: &str, names: &[&str]) -> Vec<Vec<Vec<u8>>> {
    const SCRIPT: &str = "import json, sys\n\
        for line in sys.stdin.buffer.read().decode('ascii').splitlines():\n    \
            entry = json.loads(line)\n    \
            values = [entry[name] for name in sys.argv[1:]]\n    \
            print(' '.join(str(value).encode().hex() for value in values))";
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]).args(names).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = command.spawn().unwrap();
    python.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "not JSON: {lines}");
    let text = String::from_utf8(output.stdout).unwrap();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let value = |hex: &str| hex.as_bytes().chunks(2).map(byte).collect();
    text.lines().map(|line| line.split(' ').map(value).collect()).collect()
}

#[test]
fn json_lines_contain_request_and_response() {
    if !has_tool("python3") {
        return;
    }
    let site = Site::new();
    let server = site.serve(&["--log-format", "json", "--workers", "1"]);
    assert_eq!(
        request_status(&server, "GET /a.txt?b HTTP/1.1\r\nHost: A:80\r\nReferer: r\r\n\r\n"),
        200
    );
    assert_eq!(request_status(&server, "GET /none HTTP/1.0\r\nUser-Agent: u\r\n\r\n"), 404);
    assert_eq!(request_status(&server, "no HTTP\r\n\r\n"), 400);
    let log = server.stop().stdout;
    let names = [
        "peer",
        "user",
        "method",
        "target",
        "version",
        "host",
        "status",
        "referer",
        "user_agent",
        "request_id",
        "end",
    ];
    let actual: Vec<String> = json_members(&log, &names)
        .into_iter()
        .map(|values| values.into_iter().map(|value| String::from_utf8(value).unwrap() + " "))
        .map(Iterator::collect)
        .collect();
    let expected = [
        "127.0.0.1 None GET /a.txt?b HTTP/1.1 A:80 200 r None None whole ",
        "127.0.0.1 None GET /none HTTP/1.0 None 404 None u None whole ",
        "127.0.0.1 None None None None None 400 None None None whole ",
    ];
    assert_eq!(actual, expected);
    for values in json_members(&log, &["time", "bytes", "microseconds"]) {
        let [time, bytes, microseconds] = &values[..] else { panic!("{values:?}") };
        assert_eq!(time.len(), "1994-11-06T08:49:37Z".len());
        assert!([bytes, microseconds].iter().all(|number| number.is_ascii()));
    }
}

/// Serves a file that does not fit into the buffers of a connection, a proxy whose upstream does
/// not respond, and a script that does not end.
fn serve_slow_routes(site: &Site, more: &[&str]) -> Weft {
    let upstream = raw_upstream(|_, mut stream| while read_head(&mut stream).is_some() {});
    fs::File::create(site.path("site/large")).unwrap().set_len(64 << 20).unwrap();
    fs::create_dir(site.path("cgi")).unwrap();
    let script = site.path("cgi/sleep");
    fs::write(&script, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let proxy = format!("/proxy/ >> http://{upstream}/");
    let mut command = weft(["--listen", "127.0.0.1:0", "--status-listen", "127.0.0.1:0"]);
    command.args([
        "--status-host",
        "a",
        "--route",
        "/ -> site",
        "--route",
        "/cgi/ => cgi",
        "--route",
        &proxy,
    ]);
    command.args(["--log-format", "%r %s %B %X", "--workers", "1"]).args(more);
    Weft::start(command.current_dir(site.0.path()))
}

/// Sends a request for each of the slow routes, each on its own connection.
fn send_slow_requests(server: &Weft) -> Vec<TcpStream> {
    let send = |target| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        stream
    };
    let mut streams = ["/large", "/proxy/a", "/cgi/sleep"].map(send);
    read_head(&mut streams[0]).expect("the head of the file");
    streams.into()
}

/// Returns the sorted lines, without the number of bytes of the large file, which is that of the
/// socket buffers.
fn slow_lines(log: &str) -> Vec<String> {
    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
    for line in lines.iter_mut().filter(|line| line.starts_with("GET /large HTTP/1.1 200 ")) {
        let (start, end) = (line.find(" 200 ").unwrap() + 5, line.rfind(' ').unwrap());
        let bytes: u64 = line[start..end].parse().unwrap();
        assert!(bytes < 64 << 20, "{line}");
        line.replace_range(start..end, "N");
    }
    lines.sort();
    lines
}

const SLOW_LINES: [&str; 3] = [
    "GET /cgi/sleep HTTP/1.1 499 0 X",
    "GET /large HTTP/1.1 200 N X",
    "GET /proxy/a HTTP/1.1 499 0 X",
];

/// Returns the number of requests in flight, according to the metrics of the server.
fn requests_in_flight(server: &Weft) -> f64 {
    let metrics = Client::tcp(server.status_address()).get("/metrics").body;
    let metrics = String::from_utf8(metrics).unwrap();
    let values = metrics.lines().filter(|line| line.starts_with("weft_requests_in_flight{"));
    values.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

#[test]
fn requests_whose_client_disconnects_have_one_line_with_status_499() {
    for disconnect in ["cancel", "detach"] {
        let site = Site::new();
        let server = serve_slow_routes(&site, &["--disconnect", disconnect]);
        let streams = send_slow_requests(&server);
        until("the requests arrive", || requests_in_flight(&server) == 2.0);
        streams.iter().for_each(crate::common::reset_on_close);
        drop(streams);
        if disconnect == "cancel" {
            until("all requests are logged", || server.stdout().lines().count() == 3);
            assert_eq!(slow_lines(&server.stdout()), SLOW_LINES);
        }
        // A stop cancels the detached requests at the end of its time.
        server.signal(Signal::TERM);
        let log = server.wait_with_output().stdout;
        assert_eq!(slow_lines(&log), SLOW_LINES, "{disconnect}");
    }
}

#[test]
fn requests_that_a_stop_cancels_have_one_line() {
    let site = Site::new();
    let server = serve_slow_routes(&site, &["--drain-timeout", "10ms"]);
    let _streams = send_slow_requests(&server);
    until("the requests arrive", || requests_in_flight(&server) == 2.0);
    server.signal(Signal::TERM);
    assert_eq!(slow_lines(&server.wait_with_output().stdout), SLOW_LINES);
}

#[test]
fn refused_requests_are_logged_with_their_request_line() {
    let site = Site::new();
    let server = site.serve(&["--log-format", "%r|%s|%X", "--workers", "1"]);
    for (request, status) in [
        ("no HTTP\r\n\r\n", 400),
        ("GET /\x1b]0;x\x07 HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/4.2\r\n\r\n", 505),
    ] {
        assert_eq!(request_status(&server, request), status);
    }
    let expected = "no HTTP|400|+\n\
                    GET /\\x1b]0;x\\x07 HTTP/1.1|400|+\n\
                    GET / HTTP/4.2|505|+\n";
    assert_eq!(server.stop().stdout, expected);
}

/// Injection attempts: line ends, quotes, control characters, other scripts, invalid UTF-8.
const ATTACKS: [&[u8]; 14] = [
    b"a\"b",
    b"\" 200 1 \"-\" \"-",
    b"\",\"status\":200,\"x\":\"",
    b"a\\",
    b"a\\\"",
    b"\\x0a\\n\\u000a",
    b"a\tb",
    b"%0d%0a127.0.0.1 - - [",
    b"${jndi:ldap://a}%s%n{}",
    "d\u{ed}as \u{1f600}".as_bytes(),
    "\u{85}\u{9b}2J\u{2028}\u{2029}\u{202e}".as_bytes(),
    b"\x80\xfe\xff",
    b"\xed\xa0\x80\xc0\x8a",
    b"\xe2\x28\xa1",
];

#[test]
fn escapes_client_data_in_all_formats() {
    if !has_tool("python3") {
        return;
    }
    for format in ["combined", "json", "%{Host}i %{X-A}i %{Cookie}i %r %{User-Agent}i"] {
        let site = Site::new();
        let server = site.serve(&["--log-format", format, "--workers", "1"]);
        for attack in ATTACKS {
            let field = |name: &[u8]| [name, b": ", attack, b"\r\n"].concat();
            let names: [&[u8]; 4] = [b"User-Agent", b"Referer", b"X-A", b"Cookie"];
            let fields = names.map(field).concat();
            let request = [b"GET /a.txt HTTP/1.1\r\nHost: a\r\n", &fields[..], b"\r\n"].concat();
            assert_eq!(request_status(&server, request), 200, "{}", attack.escape_ascii());
        }
        // Requests with invalid bytes in target or host are rejected and logged without them.
        let mut rejected = 0;
        for attack in ATTACKS.into_iter().chain([&b"\x1b[2J"[..], b"a\nb", b"a\rb", b"a\0b"]) {
            let target = [b"GET /", attack, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
            let host = [b"GET /a.txt HTTP/1.1\r\nHost: ", attack, b"\r\n\r\n"].concat();
            for request in [target, host] {
                rejected += usize::from(request_status(&server, request) == 400);
            }
        }
        assert!(rejected > ATTACKS.len(), "{rejected}");
        let log = server.stop().stdout;
        assert_eq!(log.lines().count(), 3 * ATTACKS.len() + 8, "{log}");
        let is_printable = |b: u8| matches!(b, b' '..=b'~' | b'\n');
        assert!(log.bytes().all(is_printable), "not printable ASCII: {log:?}");
        if format == "json" {
            // Parsed values are those sent, with invalid UTF-8 replaced.
            let found = json_members(&log, &["user_agent", "referer", "status"]);
            for (values, attack) in found.iter().zip(ATTACKS) {
                let sent = String::from_utf8_lossy(attack).into_owned().into_bytes();
                assert_eq!(values[..], [sent.clone(), sent, b"200".to_vec()]);
            }
        }
    }
}

// -- errors

#[test]
fn a_connection_without_a_proxy_header_is_logged_with_a_hint() {
    let site = Site::new();
    let server = site.serve(&["--proxy-protocol", "127.0.0.0/8", "--workers", "1"]);
    let request = |head: &str| {
        let mut client = server.client();
        client.send(format!("{head}GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        client
    };
    for _ in 0..3 {
        request("").assert_closed();
    }
    assert_eq!(request("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n").response().status, 200);
    let log = server.stop().stderr;
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("PROXY header")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    for part in ["from 127.0.0.1 ", "`proxy_protocol` of [limits]", "`trusted_proxies`"] {
        assert!(warnings[0].contains(part), "{part}: {log}");
    }
}

#[test]
fn errors_of_upstreams_are_logged_with_the_request() {
    let upstream = common::unused_address();
    let (listen, route) = ("127.0.0.1:0", format!("/api/ >> http://{upstream}/"));
    let server = Weft::start(&mut weft(["--listen", listen, "--route", &route, "--no-log"]));
    let long = "x".repeat(4_000);
    for (target, logged) in [
        ("/api/a?b", "(request GET /api/a?b of host a from 127.0.0.1)".to_owned()),
        (&*format!("/api/{long}"), format!("(request GET /api/{}… of host a ", &long[..251])),
    ] {
        assert_eq!(server.client().get(target).status, 502);
        until("the error is logged", || server.stderr().contains(&logged));
    }
    server.stop();
}

// -- writing and rotation

/// Sends requests over 64 concurrent connections, and returns the number of responses.
#[track_caller]
fn load(address: SocketAddr, requests: usize) -> usize {
    let mut command = Command::new("h2load");
    command.args(["--h1", "-c", "64", "-n", &requests.to_string()]);
    let program = Program::start(command.arg(format!("http://{address}/a.txt")));
    completed_requests(&program.wait_with_timeout(LONG_PATIENCE))
}

/// Returns the number of completed requests in the report of h2load.
#[track_caller]
fn completed_requests(output: &ProgramOutput) -> usize {
    let ProgramOutput { status, stdout, .. } = output;
    assert_eq!(*status, Ok(0), "{stdout}");
    let (_, rest) = stdout.split_once(" started, ").expect("a summary");
    let (done, _) = rest.split_once(" done").expect("a number of completed requests");
    done.parse().expect("a number")
}

/// Returns the number of requests of load tests. The default takes 4 s of CPU time without
/// optimization.
fn load_requests() -> usize {
    let value = std::env::var("WEFT_LOG_REQUESTS");
    value.map_or(50_000, |value| value.parse().expect("a number in WEFT_LOG_REQUESTS"))
}

#[test]
fn rotation_keeps_every_line_complete() {
    if !has_tool("h2load") {
        return;
    }
    let site = Site::new();
    // About 80 rotations, whatever the number of requests.
    let kib = (load_requests() / 800).max(64);
    let (limit, max_bytes) = (kib as u64 * 1_024, format!("{kib}KiB"));
    let options = ["--log", "access.log", "--log-max-bytes", &max_bytes, "--log-max-files", "1000"];
    let server = site.serve(&options);
    let done = load(server.address(), load_requests());
    assert_eq!(done, load_requests());
    let output = server.stop();
    assert_eq!(site.count_lines("access.log"), done);
    // The start and the stop.
    assert_eq!((&*output.stdout, output.stderr.lines().count()), ("", 3), "{}", output.stderr);
    let names = site.names("access.log");
    assert!(names.len() > 50.min(done * 65 / limit as usize), "{names:?}");
    for name in &names {
        let size = fs::metadata(site.path(name)).unwrap().len();
        assert!(size <= limit, "{name}: {size}");
        // All files except the current one are full.
        assert!(size > limit - 200 || name == "access.log", "{name}: {size}");
    }
}

#[test]
fn sigusr1_after_external_rename_keeps_every_line_complete() {
    if !has_tool("h2load") {
        return;
    }
    let site = Site::new();
    let server = site.serve(&["--log", "access.log"]);
    let address = server.address();
    let done = std::thread::scope(|scope| {
        let load = scope.spawn(move || load(address, load_requests() / 2));
        let mut renames = 0;
        while !load.is_finished() && renames < 1_000 || renames < 3 {
            until("the log file exists", || site.path("access.log").exists());
            let renamed = format!("access.log-{renames}");
            fs::rename(site.path("access.log"), site.path(&renamed)).unwrap();
            server.signal(Signal::USR1);
            renames += 1;
        }
        load.join().unwrap()
    });
    assert_eq!(done, load_requests() / 2);
    let output = server.stop();
    let is_reopened = |line: &&str| line.ends_with("SIGUSR1: the log files were opened again");
    let others = output.stderr.lines().filter(|line| !is_reopened(line));
    assert_eq!(others.count(), 3, "{}", output.stderr);
    assert_eq!(site.count_lines("access.log"), done);
}

/// During an upgrade, the old and the new process write to the same file.
#[test]
fn two_processes_can_write_to_the_same_file() {
    if !has_tool("h2load") {
        return;
    }
    let site = Site::new();
    let options = ["--log", "access.log", "--log-max-bytes", "64KiB", "--log-max-files", "1000"];
    let servers = [site.serve(&options), site.serve(&options)];
    let addresses = [servers[0].address(), servers[1].address()];
    let done: usize = std::thread::scope(|scope| {
        let loads =
            addresses.map(|address| scope.spawn(move || load(address, load_requests() / 4)));
        loads.into_iter().map(|load| load.join().unwrap()).sum()
    });
    servers.into_iter().for_each(|server| drop(server.stop()));
    assert_eq!(done, load_requests() / 4 * 2);
    assert_eq!(site.count_lines("access.log"), done);
    assert!(site.names("access.log").len() > 3);
}

#[test]
fn keeps_at_most_max_files() {
    let site = Site::new();
    let options = ["--log", "a.log", "--log-max-bytes", "4KiB", "--log-max-files", "2"];
    let server = site.serve(&[&options[..], &["--log-format", "%r", "--workers", "1"]].concat());
    let mut client = server.client();
    for number in 0..2_000 {
        assert_eq!(client.get(&format!("/a.txt?{number:04}")).status, 200);
    }
    drop(client);
    server.stop();
    assert_eq!(site.names("a.log"), ["a.log", "a.log.1", "a.log.2"]);
    let texts = ["a.log.2", "a.log.1", "a.log"].map(|name| site.read(name));
    assert!(texts.iter().all(|text| text.len() <= 4 << 10));
    // The most recent lines are kept, in order.
    let lines = texts.concat();
    let expected = (0..2_000).map(|number| format!("GET /a.txt?{number:04} HTTP/1.1\n"));
    let expected: Vec<String> = expected.collect();
    assert!(expected.concat().ends_with(&lines), "{lines}");
    assert!(lines.len() > 8 << 10);
}

#[test]
fn lines_are_written_soon_and_completely_at_exit() {
    let site = Site::new();
    for (round, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        let server = site.serve(&["--log", "access.log", "--log-max-bytes", "0"]);
        let mut client = server.client();
        assert_eq!(client.get("/a.txt").status, 200);
        until("the line is written", || site.count_lines("access.log") == round * 500 + 1);
        for _ in 1..500 {
            assert_eq!(client.get("/a.txt").status, 200);
        }
        server.signal(signal);
        assert_eq!(server.wait_with_output().status, Ok(0));
        assert_eq!(site.count_lines("access.log"), (round + 1) * 500);
    }
}

/// A write to a pipe is atomic only up to PIPE_BUF bytes (pipe(7)): with one writer per log, the
/// lines of both logs could interleave.
#[test]
fn both_logs_can_share_a_pipe() {
    let site = Site::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let socket = site.path("socket");
    let mut command = weft(["site", "--workers", "1", "--log-level", "debug", "--listen"]);
    command.arg(format!("unix:{}", socket.display())).current_dir(site.0.path());
    let mut server = command
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .expect("the program starts");
    drop(command);
    until("the server listens", || UnixStream::connect(&socket).is_ok());
    // The pipe is not read yet.
    overfill_pipe(&socket);
    let pid = rustix::process::Pid::from_child(&server);
    let reader = std::thread::spawn(move || {
        let mut log = String::new();
        reader.read_to_string(&mut log).unwrap();
        log
    });
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    let log = reader.join().unwrap();
    let is_error = |line: &&str| line.ends_with("Z debug: unix: the request line has no version");
    let is_access = |line: &&str| line.starts_with("unix: - - [") && line.ends_with('"');
    assert_eq!(log.lines().filter(is_error).count(), 20, "{log}");
    assert_eq!(log.lines().filter(is_access).count(), 1_020, "{log}");
    assert_eq!(log.lines().count(), 1_043);
}

/// Causes more log data than the capacity of a pipe: 1,020 access log lines and 20 errors.
#[track_caller]
fn overfill_pipe(socket: &Path) {
    let field = "x".repeat(500);
    for _ in 0..20 {
        let mut client = Client::unix(socket);
        for _ in 0..50 {
            client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: {field}\r\n\r\n"));
            assert_eq!(client.response().status, 200);
        }
        client.send("no HTTP\r\n\r\n");
        assert_eq!(client.response().status, 400);
    }
}

#[test]
fn unread_logs_do_not_block_exit() {
    let site = Site::new();
    let (_reader, writer) = std::io::pipe().unwrap();
    let socket = site.path("socket");
    let mut command = weft(["site", "--log-level", "debug", "--listen"]);
    command.arg(format!("unix:{}", socket.display())).current_dir(site.0.path());
    let mut server = command
        .stdout(writer.try_clone().unwrap())
        .stderr(writer)
        .spawn()
        .expect("the program starts");
    until("the server listens", || UnixStream::connect(&socket).is_ok());
    overfill_pipe(&socket);
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    until("the server exits", || server.try_wait().unwrap().is_some());
}

#[test]
fn both_logs_can_share_a_file() {
    let site = Site::new();
    let options = ["--error-log", "both.log", "--log", "./both.log", "--log-level", "debug"];
    let mut command = site.command();
    let server = Program::start(command.args(options).args(["--log-max-bytes", "16KiB"]));
    until("the server listens", || site.read("both.log").contains(" workers\n"));
    let log = site.read("both.log");
    let (_, address) = log.rsplit_once(" on http://").unwrap();
    let address: SocketAddr = address.split(' ').next().unwrap().parse().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    assert_eq!(Client::tcp(address).get("/a.txt").status, 200);
                    let mut client = Client::tcp(address);
                    client.send("no HTTP\r\n\r\n");
                    assert_eq!(client.response().status, 400);
                }
            });
        }
    });
    stop(server);
    let names = site.names("both.log");
    assert!(names.len() > 3, "{names:?}");
    let log: String = names.iter().map(|name| site.read(name)).collect();
    let is_error = |line: &&str| line.contains(" debug: 127.0.0.1:");
    let is_access = |line: &&str| line.starts_with("127.0.0.1 - - [") && line.ends_with('"');
    assert_eq!(log.lines().filter(is_error).count(), 400);
    assert_eq!(log.lines().filter(is_access).count(), 800);
    assert_eq!(log.lines().count(), 1_203);
}

// -- write errors

#[test]
fn keeps_the_old_file_if_reopening_fails() {
    let site = Site::new();
    fs::create_dir(site.path("logs")).unwrap();
    let server = site.serve(&["--log", "logs/access.log"]);
    fs::rename(site.path("logs"), site.path("moved")).unwrap();
    server.signal(Signal::USR1);
    let message = "weft: the access log logs/access.log cannot be opened anew, and goes on as \
                     it was: No such file or directory";
    until("the error is logged", || server.stderr().contains(message));
    assert_eq!(request_status(&server, "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
    until("the line is written", || site.read("moved/access.log").ends_with('\n'));
    // The next signal reopens the file.
    fs::create_dir(site.path("logs")).unwrap();
    server.signal(Signal::USR1);
    until("the file is reopened", || site.path("logs/access.log").exists());
    assert_eq!(request_status(&server, "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
    server.stop();
    assert_eq!(site.read("logs/access.log").lines().count(), 1);
    assert_eq!(site.read("moved/access.log").lines().count(), 1);
}

#[test]
fn write_errors_do_not_stop_the_server() {
    let site = Site::new();
    let server = site.serve(&["--log", "/dev/full", "--workers", "1"]);
    let mut client = server.client();
    // More data than the log buffers.
    let field = "x".repeat(12 << 10);
    for _ in 0..200 {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: {field}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    }
    drop(client);
    let stderr = server.stop().stderr;
    let message = "weft: the access log /dev/full cannot be written: No space left on device";
    assert_eq!(stderr.matches(message).count(), 1, "logged once: {stderr}");
    assert!(stderr.ends_with("weft: the access log /dev/full: 200 lines were lost\n"));
}

/// Uses a mount namespace with a small tmpfs.
#[test]
fn full_disk_does_not_stop_the_server_and_lost_lines_are_counted() {
    let mount = ["--mount", "--map-root-user"];
    let mut probe = Command::new("unshare");
    let probe = probe.args(mount).args(["mount", "-t", "tmpfs", "x", "/mnt"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        // The next test does not need a mount.
        return common::report_skipped("mounting is not permitted");
    }
    let site = Site::new();
    fs::create_dir(site.path("disk")).unwrap();
    let script = "mount -t tmpfs -o size=8m none disk && head -c 7M /dev/zero >disk/ballast \
                  && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(mount).args(["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_weft"), "site"]);
    command.args(["--listen", "127.0.0.1:0", "--log", "disk/access.log", "--workers", "1"]);
    command.args(["--log-format", "%{Referer}i %B", "--log-max-bytes", "0"]);
    let server = Weft::start(command.current_dir(site.0.path()));
    let disk = format!("/proc/{}/root{}", server.id(), site.path("disk").display());
    let disk = Path::new(&disk);
    let mut client = server.client();
    let field = "x".repeat(12 << 10);
    let mut request = || {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: {field}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    };
    // 1 MiB is free on the disk, and the log buffers the same amount.
    let mut sent = 0;
    let full = "the access log disk/access.log cannot be written: No space left on device";
    until("the disk is full", || {
        request();
        sent += 1;
        server.stderr().contains(full)
    });
    for _ in 0..300 {
        request();
        sent += 1;
    }
    fs::remove_file(disk.join("ballast")).unwrap();
    until("the lost lines are reported", || server.stderr().contains(" lines were lost\n"));
    request();
    sent += 1;
    let stderr = server.stderr();
    let (_, lost) =
        stderr.split_once("the access log disk/access.log: ").expect("a number of lost lines");
    let lost: usize = lost.split_once(' ').unwrap().0.parse().expect("a number");
    assert!(lost >= 100, "{lost} of {sent}");
    let log = || fs::read_to_string(disk.join("access.log")).unwrap();
    let line = format!("{field} 2\n");
    until("the remaining lines are written", || log().len() == (sent - lost) * line.len());
    assert!(log().split_inclusive('\n').all(|found| found == line), "a line is torn");
    assert_eq!(stderr.lines().count(), 3, "{}", stderr);
    server.stop();
}

/// The same without mounting: a file size limit (RLIMIT_FSIZE) prevents writes until the file is
/// replaced.
#[test]
fn continues_in_a_new_file_after_file_size_limit() {
    let site = Site::new();
    let limit = 4 << 20;
    let ballast = "ballast\n".repeat((limit - (64 << 10)) / 8);
    fs::write(site.path("access.log"), &ballast).unwrap();
    // The unit of `ulimit -f` is 512 bytes; the default action of SIGXFSZ terminates the program.
    let script = format!("ulimit -f {} && trap '' XFSZ && exec \"$@\"", limit / 512);
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_weft"), "site", "--workers", "1"]);
    command.args(["--listen", "127.0.0.1:0", "--log", "access.log", "--log-max-bytes", "0"]);
    command.args(["--log-format", "%{Referer}i %B"]);
    let server = Weft::start(command.current_dir(site.0.path()));
    let line = format!("{} 2\n", "x".repeat(12 << 10));
    let mut client = server.client();
    let mut sent = 0;
    let mut request = || {
        let field = line.strip_suffix(" 2\n").unwrap();
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: {field}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
        sent += 1;
    };
    let full = "weft: the access log access.log cannot be written: File too large";
    until("the file is full", || {
        request();
        server.stderr().contains(full)
    });
    (0..300).for_each(|_| request());
    fs::rename(site.path("access.log"), site.path("old.log")).unwrap();
    server.signal(Signal::USR1);
    until("the lost lines are reported", || server.stderr().contains(" lines were lost\n"));
    request();
    let stderr = server.stop().stderr;
    let (_, lost) =
        stderr.split_once("the access log access.log: ").expect("a number of lost lines");
    let lost: usize = lost.split_once(' ').unwrap().0.parse().expect("a number");
    assert!(lost >= 100, "{lost} of {sent}");
    let (old, new) = (site.read("old.log"), site.read("access.log"));
    // A line that was only partly written to the old file is counted as lost.
    let in_old = old.strip_prefix(&ballast).unwrap().matches(&line).count();
    assert!(new.split_inclusive('\n').all(|found| found == line), "a line is torn");
    assert_eq!(in_old + new.lines().count() + lost, sent);
    assert_eq!(stderr.lines().count(), 6, "{stderr}");
}

// -- the error log

/// Starts a server whose startup notice is written to the file `error.log`.
#[track_caller]
fn serve_with_error_log(site: &Site, more: &[&str]) -> (Program, SocketAddr) {
    let mut command = site.command();
    let server = Program::start(command.args(["--error-log", "error.log"]).args(more));
    until("the server listens", || site.read("error.log").contains(" workers\n"));
    let log = site.read("error.log");
    let (_, rest) = log.rsplit_once(" on http://").unwrap();
    (server, rest.split(' ').next().unwrap().parse().unwrap())
}

#[track_caller]
fn stop(server: Program) -> ProgramOutput {
    server.signal(Signal::TERM);
    let output = server.wait_with_output();
    assert_eq!(output.status, Ok(0), "{output:?}");
    output
}

#[test]
fn error_log_filters_by_level() {
    let upstream = "the upstream http://127.0.0.1:1/";
    let all = [
        "info: serving 2 routes on http://127.0.0.1:".to_owned(),
        "debug: 127.0.0.1:".to_owned(),
        format!("warn: {upstream}: cannot connect: "),
        format!("warn: {upstream} fails again and again: cannot connect: "),
        "error: 127.0.0.1:".to_owned(),
        "info: SIGTERM: the server stops; requests in progress have 10s".to_owned(),
        "info: the server has stopped".to_owned(),
    ];
    // Client errors are not logged at the default level.
    for (level, expected) in
        [("debug", [0, 1, 2, 3, 4, 5, 6].as_slice()), ("info", &[0, 2, 3, 4, 5, 6])]
    {
        let site = Site::new();
        let route = "/up/ >> http://127.0.0.1:1/";
        let (server, address) =
            serve_with_error_log(&site, &["--log-level", level, "--route", route, "--no-log"]);
        let mut client = Client::tcp(address);
        client.send("no HTTP\r\n\r\n");
        assert_eq!(client.response().status, 400);
        drop(client);
        assert_eq!(Client::tcp(address).get("/up/").status, 502);
        let output = stop(server);
        assert_eq!((&*output.stdout, &*output.stderr), ("", ""));
        let log = site.read("error.log");
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{level}: {log}");
        for (line, expected) in lines.into_iter().zip(expected) {
            let (time, message) = line.split_once(' ').unwrap();
            let shape: String =
                time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            assert_eq!(shape, "0000-00-00T00:00:00.000Z");
            assert!(message.starts_with(&all[*expected]), "{level}: {log}");
        }
    }
}

#[test]
fn level_error_suppresses_notices() {
    let site = Site::new();
    // The startup notice is suppressed as well.
    let socket = site.path("socket");
    let mut command = weft(["site", "--log-level", "error", "--listen"]);
    command.arg(format!("unix:{}", socket.display())).current_dir(site.0.path());
    let server = Program::start(&mut command);
    until("the server listens", || UnixStream::connect(&socket).is_ok());
    assert_eq!(stop(server).stderr, "");
}

#[test]
fn escapes_file_names_in_log_lines() {
    let site = Site::new();
    let name = "a\nweft: all is well\r\u{1b}[2J\u{85}\u{2028}";
    fs::create_dir(site.path(name)).unwrap();
    let mut command = weft([name, "--listen", "127.0.0.1:0"]);
    let server = Weft::start(command.current_dir(site.0.path()));
    let expected =
        r"weft: serving a\nweft: all is well\r\u{1b}[2J\u{85}\u{2028} on http://127.0.0.1:";
    assert!(server.announcement.starts_with(expected), "{}", server.announcement);
    assert_eq!(server.stop().stderr.lines().count(), 3);
    let output = Program::start(&mut weft(["\u{1b}[2J\n"])).wait_with_output();
    assert!(output.stderr.starts_with(r"weft: cannot serve \u{1b}[2J\n: "), "{}", output.stderr);
}

#[test]
fn error_log_is_rotated_and_reopened() {
    let site = Site::new();
    let options = ["--log-level", "debug", "--log-max-bytes", "2KiB", "--no-log"];
    let (server, address) = serve_with_error_log(&site, &options);
    for _ in 0..100 {
        let mut client = Client::tcp(address);
        client.send("no HTTP\r\n\r\n");
        assert_eq!(client.response().status, 400);
    }
    until("all lines are written", || line_count(&site, "error.log") == 101);
    assert!(site.names("error.log").len() > 3);
    fs::rename(site.path("error.log"), site.path("moved.log")).unwrap();
    server.signal(Signal::USR1);
    until("the file is reopened", || site.path("error.log").exists());
    stop(server);
    let log = site.read("error.log");
    let messages = log.lines().filter_map(|line| line.split_once(" info: "));
    let messages: Vec<&str> = messages.map(|(_, message)| message).collect();
    let stop = "SIGTERM: the server stops; requests in progress have 10s";
    let expected = ["SIGUSR1: the log files were opened again", stop, "the server has stopped"];
    assert_eq!(messages, expected);
}

fn line_count(site: &Site, prefix: &str) -> usize {
    site.names(prefix).iter().map(|name| site.read(name).lines().count()).sum()
}
