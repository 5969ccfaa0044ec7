//! The logs of the program: what stands in them, and that no line is torn, lost or made up.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Client, Ended, LONG_PATIENCE, Program, Signal, Weft, tool, until, weft};
use tempfile::TempDir;

/// A folder with a site of one file, and with room for logs.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("site")).unwrap();
        fs::write(folder.path().join("site/a.txt"), "A\n").unwrap();
        Place(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Serves the site; paths in the arguments begin in the folder.
    #[track_caller]
    fn serve(&self, more: &[&str]) -> Weft {
        Weft::start(self.command().args(more))
    }

    fn command(&self) -> Command {
        let mut command = weft(["site", "--listen", "127.0.0.1:0", "--workers", "2"]);
        command.current_dir(self.0.path());
        command
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The names of all files that begin so, sorted.
    fn names(&self, beginning: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(beginning)).collect();
        names.sort();
        names
    }

    /// How many lines are in all files whose names begin so. Each is whole, and the same but for
    /// its time.
    #[track_caller]
    fn count_lines(&self, beginning: &str) -> usize {
        let files = self.names(beginning).into_iter().map(|name| {
            let text = self.read(&name);
            for line in text.split_inclusive('\n') {
                let rest = line.strip_prefix("127.0.0.1 - - [");
                let rest = rest.and_then(|rest| rest.get("06/Nov/1994:08:49:37 +0000".len()..));
                let is_whole = rest.is_some_and(|rest| {
                    rest.starts_with("] \"GET /a.txt HTTP/1.1\" 200 2 \"-\" \"") && {
                        rest.ends_with("\"\n") && rest.matches('"').count() == 6
                    }
                });
                assert!(is_whole, "{name}: torn: {line:?}");
            }
            text.lines().count()
        });
        files.sum()
    }
}

fn ask(server: &Weft, request: impl AsRef<[u8]>) -> u16 {
    let mut client = server.client();
    client.send(request);
    client.response().status
}

// -- what stands in a line

#[test]
fn lines_look_as_they_are_told_to() {
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
        let place = Place::new();
        let server = place.serve(&["--log-format", format]);
        assert_eq!(ask(&server, request), 200);
        let line = server.stop().stdout;
        let shown = match format.contains("%t") || format == "combined" {
            true => with_date_blanked(&line),
            false => line,
        };
        assert_eq!(shown, format!("{expected}\n"));
    }
}

/// A line whose date is replaced by what it looks like.
fn with_date_blanked(line: &str) -> String {
    let (before, rest) = line.split_once('[').expect("a date");
    let (date, behind) = rest.split_once(']').expect("its end");
    let kind = |c: char| match c {
        '0'..='9' => '0',
        'A'..='Z' => 'A',
        'a'..='z' => 'a',
        other => other,
    };
    format!("{before}[{}]{behind}", date.chars().map(kind).collect::<String>())
}

/// What Python finds in lines of JSON: of each line these members, as bytes.
#[track_caller]
fn members(lines: &str, names: &[&str]) -> Vec<Vec<Vec<u8>>> {
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
fn lines_of_json_say_what_was_asked_and_answered() {
    if !tool("python3") {
        return;
    }
    let place = Place::new();
    let server = place.serve(&["--log-format", "json", "--workers", "1"]);
    assert_eq!(ask(&server, "GET /a.txt?b HTTP/1.1\r\nHost: A:80\r\nReferer: r\r\n\r\n"), 200);
    assert_eq!(ask(&server, "GET /none HTTP/1.0\r\nUser-Agent: u\r\n\r\n"), 404);
    assert_eq!(ask(&server, "no HTTP\r\n\r\n"), 400);
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
    let shown: Vec<String> = members(&log, &names)
        .into_iter()
        .map(|values| values.into_iter().map(|value| String::from_utf8(value).unwrap() + " "))
        .map(Iterator::collect)
        .collect();
    let expected = [
        "127.0.0.1 None GET /a.txt?b HTTP/1.1 A:80 200 r None None whole ",
        "127.0.0.1 None GET /none HTTP/1.0 None 404 None u None whole ",
        "127.0.0.1 None None None None None 400 None None None whole ",
    ];
    assert_eq!(shown, expected);
    for values in members(&log, &["time", "bytes", "microseconds"]) {
        let [time, bytes, microseconds] = &values[..] else { panic!("{values:?}") };
        assert_eq!(time.len(), "1994-11-06T08:49:37Z".len());
        assert!([bytes, microseconds].iter().all(|number| number.is_ascii()));
    }
}

/// What clients try: ends of lines and of quotes, controls, other alphabets, no alphabet.
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
fn nothing_that_a_client_sends_can_break_a_line() {
    if !tool("python3") {
        return;
    }
    for format in ["combined", "json", "%{Host}i %{X-A}i %{Cookie}i %r %{User-Agent}i"] {
        let place = Place::new();
        let server = place.serve(&["--log-format", format, "--workers", "1"]);
        for attack in ATTACKS {
            let field = |name: &[u8]| [name, b": ", attack, b"\r\n"].concat();
            let names: [&[u8]; 4] = [b"User-Agent", b"Referer", b"X-A", b"Cookie"];
            let fields = names.map(field).concat();
            let request = [b"GET /a.txt HTTP/1.1\r\nHost: a\r\n", &fields[..], b"\r\n"].concat();
            assert_eq!(ask(&server, request), 200, "{}", attack.escape_ascii());
        }
        // What cannot stand in a target or in a host is refused, and shown as nothing.
        let mut refused = 0;
        for attack in ATTACKS.into_iter().chain([&b"\x1b[2J"[..], b"a\nb", b"a\rb", b"a\0b"]) {
            let target = [b"GET /", attack, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
            let host = [b"GET /a.txt HTTP/1.1\r\nHost: ", attack, b"\r\n\r\n"].concat();
            for request in [target, host] {
                refused += usize::from(ask(&server, request) == 400);
            }
        }
        assert!(refused > ATTACKS.len(), "{refused}");
        let log = server.stop().stdout;
        assert_eq!(log.lines().count(), 3 * ATTACKS.len() + 8, "{log}");
        let is_plain = |b: u8| matches!(b, b' '..=b'~' | b'\n');
        assert!(log.bytes().all(is_plain), "not plain: {log:?}");
        if format == "json" {
            // It reads back as what was sent, as far as that is UTF-8.
            let found = members(&log, &["user_agent", "referer", "status"]);
            for (values, attack) in found.iter().zip(ATTACKS) {
                let sent = String::from_utf8_lossy(attack).into_owned().into_bytes();
                assert_eq!(values[..], [sent.clone(), sent, b"200".to_vec()]);
            }
        }
    }
}

// -- when it is written

/// Sends requests over several connections at a time, and returns how many were answered.
#[track_caller]
fn load(address: SocketAddr, requests: usize) -> usize {
    let mut command = Command::new("h2load");
    command.args(["--h1", "-c", "64", "-n", &requests.to_string()]);
    let ended = Program::start(command.arg(format!("http://{address}/a.txt")));
    done(&ended.end_within(LONG_PATIENCE))
}

/// How many requests h2load has had answered.
#[track_caller]
fn done(ended: &Ended) -> usize {
    let Ended { status, stdout, .. } = ended;
    assert_eq!(*status, Ok(0), "{stdout}");
    let (_, rest) = stdout.split_once(" started, ").expect("a summary");
    let (done, _) = rest.split_once(" done").expect("how many were done");
    done.parse().expect("a number")
}

/// How many requests a test with much load makes; a million takes a while without optimization.
fn many() -> usize {
    let given = std::env::var("WEFT_LOG_REQUESTS");
    given.map_or(200_000, |given| given.parse().expect("a number in WEFT_LOG_REQUESTS"))
}

#[test]
fn no_line_is_torn_or_lost_while_files_are_rotated() {
    if !tool("h2load") {
        return;
    }
    let place = Place::new();
    let limit = 256 << 10;
    let options = ["--log", "access.log", "--log-max-bytes", "256KiB", "--log-max-files", "1000"];
    let server = place.serve(&options);
    let done = load(server.address(), many());
    assert_eq!(done, many());
    let ended = server.stop();
    assert_eq!(place.count_lines("access.log"), done);
    assert_eq!((&*ended.stdout, ended.stderr.lines().count()), ("", 1), "{}", ended.stderr);
    let names = place.names("access.log");
    assert!(names.len() > done / 4_000, "{names:?}");
    for name in &names {
        let size = fs::metadata(place.path(name)).unwrap().len();
        assert!(size <= limit, "{name}: {size}");
        // All but the newest are full.
        assert!(size > limit - 200 || name == "access.log", "{name}: {size}");
    }
}

#[test]
fn no_line_is_torn_or_lost_while_others_move_files_away() {
    if !tool("h2load") {
        return;
    }
    let place = Place::new();
    let server = place.serve(&["--log", "access.log"]);
    let address = server.address();
    let done = std::thread::scope(|scope| {
        let load = scope.spawn(move || load(address, many() / 2));
        let mut moved = 0;
        while !load.is_finished() && moved < 1_000 || moved < 3 {
            until("there is a file", || place.path("access.log").exists());
            let aside = format!("access.log-{moved}");
            fs::rename(place.path("access.log"), place.path(&aside)).unwrap();
            server.signal(Signal::USR1);
            moved += 1;
        }
        load.join().unwrap()
    });
    assert_eq!(done, many() / 2);
    let ended = server.stop();
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert_eq!(place.count_lines("access.log"), done);
}

/// As the old and the new one do during an upgrade.
#[test]
fn two_servers_may_write_to_the_same_file() {
    if !tool("h2load") {
        return;
    }
    let place = Place::new();
    let options = ["--log", "access.log", "--log-max-bytes", "64KiB", "--log-max-files", "1000"];
    let servers = [place.serve(&options), place.serve(&options)];
    let addresses = [servers[0].address(), servers[1].address()];
    let done: usize = std::thread::scope(|scope| {
        let loads = addresses.map(|address| scope.spawn(move || load(address, many() / 8)));
        loads.into_iter().map(|load| load.join().unwrap()).sum()
    });
    servers.into_iter().for_each(|server| drop(server.stop()));
    assert_eq!(done, many() / 8 * 2);
    assert_eq!(place.count_lines("access.log"), done);
    assert!(place.names("access.log").len() > 3);
}

#[test]
fn no_more_files_are_kept_than_told() {
    let place = Place::new();
    let options = ["--log", "a.log", "--log-max-bytes", "4KiB", "--log-max-files", "2"];
    let server = place.serve(&[&options[..], &["--log-format", "%r", "--workers", "1"]].concat());
    let mut client = server.client();
    for number in 0..2_000 {
        assert_eq!(client.get(&format!("/a.txt?{number:04}")).status, 200);
    }
    drop(client);
    server.stop();
    assert_eq!(place.names("a.log"), ["a.log", "a.log.1", "a.log.2"]);
    let texts = ["a.log.2", "a.log.1", "a.log"].map(|name| place.read(name));
    assert!(texts.iter().all(|text| text.len() <= 4 << 10));
    // The newest lines, in their order.
    let lines = texts.concat();
    let expected = (0..2_000).map(|number| format!("GET /a.txt?{number:04} HTTP/1.1\n"));
    let expected: Vec<String> = expected.collect();
    assert!(expected.concat().ends_with(&lines), "{lines}");
    assert!(lines.len() > 8 << 10);
}

#[test]
fn lines_are_appended_soon_and_all_of_them_at_the_end() {
    let place = Place::new();
    for (round, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        let server = place.serve(&["--log", "access.log", "--log-max-bytes", "0"]);
        let mut client = server.client();
        assert_eq!(client.get("/a.txt").status, 200);
        until("the line is written", || place.count_lines("access.log") == round * 500 + 1);
        for _ in 1..500 {
            assert_eq!(client.get("/a.txt").status, 200);
        }
        server.signal(signal);
        assert_eq!(server.end().status, Ok(0));
        assert_eq!(place.count_lines("access.log"), (round + 1) * 500);
    }
}

/// What is larger than a page is no single write for a pipe that is nearly full: with a writer
/// for each log, one would cut into the other's lines.
#[test]
fn both_logs_may_go_into_the_same_pipe() {
    let place = Place::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let socket = place.path("socket");
    let mut command = weft(["site", "--workers", "1", "--log-level", "debug", "--listen"]);
    command.arg(format!("unix:{}", socket.display())).current_dir(place.0.path());
    let mut server =
        command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().expect("it starts");
    drop(command);
    until("it listens", || UnixStream::connect(&socket).is_ok());
    // Nobody reads yet.
    send_much(&socket);
    let pid = rustix::process::Pid::from_child(&server);
    let reader = std::thread::spawn(move || {
        let mut log = String::new();
        reader.read_to_string(&mut log).unwrap();
        log
    });
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    let log = reader.join().unwrap();
    let is_error = |line: &&str| *line == "weft: unix: the request line has no version";
    let is_access = |line: &&str| line.starts_with("unix: - - [") && line.ends_with('"');
    assert_eq!(log.lines().filter(is_error).count(), 20, "{log}");
    assert_eq!(log.lines().filter(is_access).count(), 1_020, "{log}");
    assert_eq!(log.lines().count(), 1_041);
}

/// More than a pipe takes: 1,020 lines of an access log, and 20 of errors.
#[track_caller]
fn send_much(socket: &Path) {
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
fn who_never_reads_does_not_keep_it_from_ending() {
    let place = Place::new();
    let (_reader, writer) = std::io::pipe().unwrap();
    let socket = place.path("socket");
    let mut command = weft(["site", "--log-level", "debug", "--listen"]);
    command.arg(format!("unix:{}", socket.display())).current_dir(place.0.path());
    let mut server =
        command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().expect("it starts");
    until("it listens", || UnixStream::connect(&socket).is_ok());
    send_much(&socket);
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    until("it ends", || server.try_wait().unwrap().is_some());
}

#[test]
fn both_logs_may_go_into_the_same_file() {
    let place = Place::new();
    let options = ["--error-log", "both.log", "--log", "./both.log", "--log-level", "debug"];
    let mut command = place.command();
    let server = Program::start(command.args(options).args(["--log-max-bytes", "16KiB"]));
    until("it serves", || place.read("both.log").contains(" workers\n"));
    let log = place.read("both.log");
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
    let names = place.names("both.log");
    assert!(names.len() > 3, "{names:?}");
    let log: String = names.iter().map(|name| place.read(name)).collect();
    let is_error = |line: &&str| line.contains(" debug: 127.0.0.1:");
    let is_access = |line: &&str| line.starts_with("127.0.0.1 - - [") && line.ends_with('"');
    assert_eq!(log.lines().filter(is_error).count(), 400);
    assert_eq!(log.lines().filter(is_access).count(), 800);
    assert_eq!(log.lines().count(), 1_201);
}

// -- when it cannot be written

#[test]
fn a_file_that_cannot_be_opened_anew_is_written_on() {
    let place = Place::new();
    fs::create_dir(place.path("logs")).unwrap();
    let server = place.serve(&["--log", "logs/access.log"]);
    fs::rename(place.path("logs"), place.path("moved")).unwrap();
    server.signal(Signal::USR1);
    let complaint = "weft: the access log logs/access.log cannot be opened anew, and goes on as \
                     it was: No such file or directory";
    until("it complains", || server.stderr().contains(complaint));
    assert_eq!(ask(&server, "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
    until("the line is written", || place.read("moved/access.log").ends_with('\n'));
    // Once it can be opened, it is.
    fs::create_dir(place.path("logs")).unwrap();
    server.signal(Signal::USR1);
    until("it is there", || place.path("logs/access.log").exists());
    assert_eq!(ask(&server, "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
    server.stop();
    assert_eq!(place.read("logs/access.log").lines().count(), 1);
    assert_eq!(place.read("moved/access.log").lines().count(), 1);
}

#[test]
fn a_file_that_takes_nothing_stops_nobody() {
    let place = Place::new();
    let server = place.serve(&["--log", "/dev/full", "--workers", "1"]);
    let mut client = server.client();
    // More than is kept.
    let field = "x".repeat(12 << 10);
    for _ in 0..200 {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: {field}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    }
    drop(client);
    let stderr = server.stop().stderr;
    let complaint = "weft: the access log /dev/full cannot be written: No space left on device";
    assert_eq!(stderr.matches(complaint).count(), 1, "once and not for each line: {stderr}");
    assert!(stderr.ends_with("weft: the access log /dev/full: 200 lines were lost\n"));
}

/// A disk of its own, for one process: a name space in which a small one is mounted.
#[test]
fn a_disk_that_is_full_for_a_while_stops_nobody_and_what_is_lost_is_told() {
    let mount = ["--mount", "--map-root-user"];
    let mut trial = Command::new("unshare");
    let trial = trial.args(mount).args(["mount", "-t", "tmpfs", "x", "/mnt"]).output();
    if !trial.is_ok_and(|output| output.status.success()) {
        // The next test does without.
        return common::skipped("nothing may be mounted here");
    }
    let place = Place::new();
    fs::create_dir(place.path("disk")).unwrap();
    let script = "mount -t tmpfs -o size=8m none disk && head -c 7M /dev/zero >disk/ballast \
                  && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(mount).args(["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_weft"), "site"]);
    command.args(["--listen", "127.0.0.1:0", "--log", "disk/access.log", "--workers", "1"]);
    command.args(["--log-format", "%{Referer}i %B", "--log-max-bytes", "0"]);
    let server = Weft::start(command.current_dir(place.0.path()));
    let disk = format!("/proc/{}/root{}", server.id(), place.path("disk").display());
    let disk = Path::new(&disk);
    let mut client = server.client();
    let field = "x".repeat(12 << 10);
    let mut ask = || {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: {field}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    };
    // What the disk has left is 1 MiB, and as much is kept.
    let mut sent = 0;
    let full = "the access log disk/access.log cannot be written: No space left on device";
    until("the disk is full", || {
        ask();
        sent += 1;
        server.stderr().contains(full)
    });
    for _ in 0..300 {
        ask();
        sent += 1;
    }
    fs::remove_file(disk.join("ballast")).unwrap();
    until("it tells what was lost", || server.stderr().contains(" lines were lost\n"));
    ask();
    sent += 1;
    let stderr = server.stderr();
    let (_, lost) = stderr.split_once("the access log disk/access.log: ").expect("how many");
    let lost: usize = lost.split_once(' ').unwrap().0.parse().expect("a number");
    assert!(lost >= 100, "{lost} of {sent}");
    let log = || fs::read_to_string(disk.join("access.log")).unwrap();
    let line = format!("{field} 2\n");
    until("the rest is there", || log().len() == (sent - lost) * line.len());
    assert!(log().split_inclusive('\n').all(|found| found == line), "a line is torn");
    assert_eq!(stderr.lines().count(), 3, "{}", stderr);
    server.stop();
}

/// The same without the right to mount: the file may not grow, until it is another one.
#[test]
fn a_file_that_may_not_grow_is_left_for_another_one() {
    let place = Place::new();
    let limit = 4 << 20;
    let ballast = "ballast\n".repeat((limit - (64 << 10)) / 8);
    fs::write(place.path("access.log"), &ballast).unwrap();
    // Blocks of 512 bytes, and a signal that would end the program.
    let script = format!("ulimit -f {} && trap '' XFSZ && exec \"$@\"", limit / 512);
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_weft"), "site", "--workers", "1"]);
    command.args(["--listen", "127.0.0.1:0", "--log", "access.log", "--log-max-bytes", "0"]);
    command.args(["--log-format", "%{Referer}i %B"]);
    let server = Weft::start(command.current_dir(place.0.path()));
    let line = format!("{} 2\n", "x".repeat(12 << 10));
    let mut client = server.client();
    let mut sent = 0;
    let mut ask = || {
        let field = line.strip_suffix(" 2\n").unwrap();
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: {field}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
        sent += 1;
    };
    let full = "weft: the access log access.log cannot be written: File too large";
    until("the file is full", || {
        ask();
        server.stderr().contains(full)
    });
    (0..300).for_each(|_| ask());
    fs::rename(place.path("access.log"), place.path("old.log")).unwrap();
    server.signal(Signal::USR1);
    until("it tells what was lost", || server.stderr().contains(" lines were lost\n"));
    ask();
    let stderr = server.stop().stderr;
    let (_, lost) = stderr.split_once("the access log access.log: ").expect("how many");
    let lost: usize = lost.split_once(' ').unwrap().0.parse().expect("a number");
    assert!(lost >= 100, "{lost} of {sent}");
    let (old, new) = (place.read("old.log"), place.read("access.log"));
    // What it could not end there is counted as lost.
    let in_old = old.strip_prefix(&ballast).unwrap().matches(&line).count();
    assert!(new.split_inclusive('\n').all(|found| found == line), "a line is torn");
    assert_eq!(in_old + new.lines().count() + lost, sent);
    assert_eq!(stderr.lines().count(), 3, "{stderr}");
}

// -- the error log

/// Starts a server that announces itself in a file.
#[track_caller]
fn serve_with_error_log(place: &Place, more: &[&str]) -> (Program, SocketAddr) {
    let mut command = place.command();
    let server = Program::start(command.args(["--error-log", "error.log"]).args(more));
    until("it serves", || place.read("error.log").contains(" workers\n"));
    let log = place.read("error.log");
    let (_, rest) = log.rsplit_once(" on http://").unwrap();
    (server, rest.split(' ').next().unwrap().parse().unwrap())
}

#[track_caller]
fn stop(server: Program) -> Ended {
    server.signal(Signal::TERM);
    let ended = server.end();
    assert_eq!(ended.status, Ok(0), "{ended:?}");
    ended
}

#[test]
fn errors_have_levels() {
    let upstream = "the upstream http://127.0.0.1:1/";
    let all = [
        "info: serving 2 routes on http://127.0.0.1:".to_owned(),
        "debug: 127.0.0.1:".to_owned(),
        format!("warn: {upstream}: cannot connect: "),
        format!("warn: {upstream} fails again and again: cannot connect: "),
        "error: 127.0.0.1:".to_owned(),
    ];
    // What a client does wrong is not told at the usual level.
    for (level, expected) in [("debug", [0, 1, 2, 3, 4].as_slice()), ("info", &[0, 2, 3, 4])] {
        let place = Place::new();
        let route = "/up/ >> http://127.0.0.1:1/";
        let (server, address) =
            serve_with_error_log(&place, &["--log-level", level, "--route", route, "--no-log"]);
        let mut client = Client::tcp(address);
        client.send("no HTTP\r\n\r\n");
        assert_eq!(client.response().status, 400);
        drop(client);
        assert_eq!(Client::tcp(address).get("/up/").status, 502);
        let ended = stop(server);
        assert_eq!((&*ended.stdout, &*ended.stderr), ("", ""));
        let log = place.read("error.log");
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{level}: {log}");
        for (line, expected) in lines.into_iter().zip(expected) {
            let (time, message) = line.split_once(' ').unwrap();
            let shape: String =
                time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            assert_eq!(shape, "0000-00-00T00:00:00Z");
            assert!(message.starts_with(&all[*expected]), "{level}: {log}");
        }
    }
}

#[test]
fn of_notices_nothing_is_told_where_only_errors_are_wanted() {
    let place = Place::new();
    // It does not say where it listens, either.
    let socket = place.path("socket");
    let mut command = weft(["site", "--log-level", "error", "--listen"]);
    command.arg(format!("unix:{}", socket.display())).current_dir(place.0.path());
    let server = Program::start(&mut command);
    until("it listens", || UnixStream::connect(&socket).is_ok());
    assert_eq!(stop(server).stderr, "");
}

#[test]
fn a_name_cannot_make_a_line_up() {
    let place = Place::new();
    let name = "a\nweft: all is well\r\u{1b}[2J\u{85}\u{2028}";
    fs::create_dir(place.path(name)).unwrap();
    let mut command = weft([name, "--listen", "127.0.0.1:0"]);
    let server = Weft::start(command.current_dir(place.0.path()));
    let begin = r"weft: serving a\nweft: all is well\r\u{1b}[2J\u{85}\u{2028} on http://127.0.0.1:";
    assert!(server.announcement.starts_with(begin), "{}", server.announcement);
    assert_eq!(server.stop().stderr.lines().count(), 1);
    let ended = Program::start(&mut weft(["\u{1b}[2J\n"])).end();
    assert!(ended.stderr.starts_with(r"weft: cannot serve \u{1b}[2J\n: "), "{}", ended.stderr);
}

#[test]
fn the_error_log_is_rotated_and_opened_anew_too() {
    let place = Place::new();
    let options = ["--log-level", "debug", "--log-max-bytes", "2KiB", "--no-log"];
    let (server, address) = serve_with_error_log(&place, &options);
    for _ in 0..100 {
        let mut client = Client::tcp(address);
        client.send("no HTTP\r\n\r\n");
        assert_eq!(client.response().status, 400);
    }
    until("all is written", || lines_of(&place, "error.log") == 101);
    assert!(place.names("error.log").len() > 3);
    fs::rename(place.path("error.log"), place.path("moved.log")).unwrap();
    server.signal(Signal::USR1);
    until("there is a new one", || place.path("error.log").exists());
    stop(server);
    assert_eq!(place.read("error.log"), "");
}

fn lines_of(place: &Place, beginning: &str) -> usize {
    place.names(beginning).iter().map(|name| place.read(name).lines().count()).sum()
}
