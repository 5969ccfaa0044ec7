//! Log files: rotation by time, compression, removed files; and what lines withhold.

use std::fs::{self, File};
use std::io::Read;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::common::{Client, Signal, Weft, until, weft};
use crate::log::Site;
use flate2::read::GzDecoder;

impl Site {
    fn read_compressed(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        GzDecoder::new(File::open(self.path(name)).ok()?).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Writes a file whose last line is as old as this.
    fn write_old(&self, name: &str, text: &str, age: Duration) {
        fs::write(self.path(name), text).unwrap();
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    fn log_names(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("access.log")).collect();
        names.sort();
        names
    }

    fn serve_in_order(&self, options: &[&str]) -> Weft {
        // The lines of several workers are not in the order of their requests.
        let mut command = weft(["site", "--workers", "1", "--listen", "127.0.0.1:0"]);
        let command = command.args(["--log", "access.log"]);
        let command = command.args(["--log-format", "{method} {uri}"]).args(options);
        Weft::start(command.current_dir(self.0.path()))
    }
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

#[test]
fn rotates_at_the_first_line_of_a_period() {
    let site = Site::new();
    site.write_old("access.log", "yesterday\n", DAY);
    let server = site.serve_in_order(&["--log-rotate-every", "1d"]);
    server.client().get("/one");
    until("the file is rotated", || site.log_names() == ["access.log", "access.log.1"]);
    until("the line is written", || site.read("access.log") == "GET /one\n");
    assert_eq!(site.read("access.log.1"), "yesterday\n");
    // The next line is of the same day.
    server.client().get("/two");
    server.stop();
    assert_eq!(site.read("access.log"), "GET /one\nGET /two\n");
    assert_eq!(site.log_names(), ["access.log", "access.log.1"]);
    // Without the option, a file of yesterday is continued.
    site.write_old("access.log", "yesterday\n", DAY);
    let server = site.serve_in_order(&[]);
    server.client().get("/three");
    server.stop();
    assert_eq!(site.read("access.log"), "yesterday\nGET /three\n");
}

#[test]
fn rotates_in_a_running_server() {
    let site = Site::new();
    let server = site.serve_in_order(&["--log-rotate-every", "1s", "--log-max-files", "3"]);
    until("there are rotated files", || {
        server.client().get("/a.txt");
        site.log_names().len() == 4
    });
    server.stop();
    assert_eq!(site.log_names(), ["access.log", "access.log.1", "access.log.2", "access.log.3"]);
}

#[test]
fn compresses_rotated_files_and_removes_old_ones() {
    let site = Site::new();
    for (name, days) in [("access.log", 1), ("access.log.1", 2), ("access.log.3.gz", 40)] {
        site.write_old(name, &format!("{name}\n"), days * DAY);
    }
    site.write_old("access.log.2", "two\n", 40 * DAY);
    let options = ["--log-rotate-every", "1d", "--log-compress", "--log-max-age", "30d"];
    let server = site.serve_in_order(&options);
    server.client().get("/one");
    until("the files are compressed", || {
        site.log_names() == ["access.log", "access.log.1.gz", "access.log.2.gz"]
    });
    assert_eq!(site.read_compressed("access.log.1.gz").as_deref(), Some("access.log\n"));
    assert_eq!(site.read_compressed("access.log.2.gz").as_deref(), Some("access.log.1\n"));
    // The age of a compressed file is the age of its lines.
    let age = fs::metadata(site.path("access.log.2.gz")).unwrap().modified().unwrap();
    assert!(age.elapsed().unwrap() > DAY * 3 / 2);
    server.stop();
    assert_eq!(site.read("access.log"), "GET /one\n");
}

/// Compression takes long for a large file; lines are written and files rotated meanwhile.
/// Files that a larger `max_files` has left are removed when a file is rotated, and no others.
#[test]
fn rotation_removes_files_above_max_files() {
    let site = Site::new();
    let rotated = ["1", "2.gz", "3", "4.gz", "7", "1000.gz"];
    let foreign = ["03", "1001", "20261128", "5.bz2", "3-old", "bak"];
    for end in rotated.iter().chain(&foreign) {
        fs::write(site.path(&format!("access.log.{end}")), end).unwrap();
    }
    site.write_old("access.log", "yesterday\n", DAY);
    let options = ["--log-rotate-every", "1d", "--log-max-files", "2"];
    let server = site.serve_in_order(&options);
    assert_eq!(site.log_names().len(), 1 + rotated.len() + foreign.len(), "a start removes none");
    server.client().get("/one");
    let mut expected: Vec<_> = foreign.iter().map(|end| format!("access.log.{end}")).collect();
    expected.extend(["access.log", "access.log.1", "access.log.2"].map(str::to_owned));
    expected.sort();
    until("the files are removed", || site.log_names() == expected);
    server.stop();
    assert_eq!(site.read("access.log.2"), "1");
}

#[test]
fn compression_loses_no_line_beside_rotation() {
    let site = Site::new();
    let options = ["--log-max-bytes", "2KiB", "--log-max-files", "1000", "--log-compress"];
    let server = site.serve_in_order(&options);
    let mut client = server.client();
    for number in 0..2_000 {
        client.get(&format!("/{number}"));
    }
    server.stop();
    // Files that the end of the process has left uncompressed are compressed at the next start.
    let server = site.serve_in_order(&options);
    until("all files are compressed", || {
        site.log_names().iter().all(|name| name == "access.log" || name.ends_with(".gz"))
    });
    server.stop();
    let names = site.log_names();
    assert!(names.len() > 5, "{names:?}");
    let mut lines = site.read("access.log");
    for name in names.iter().filter(|name| name.ends_with(".gz")) {
        lines += &site.read_compressed(name).unwrap();
    }
    let mut numbers: Vec<u32> =
        lines.lines().map(|line| line.strip_prefix("GET /").unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..2_000).collect::<Vec<_>>());
}

/// A disk that is full cuts a line. The administrator removes the file, which frees no space while
/// it is open. A limit on the size of files stands for the disk.
#[test]
fn removed_file_is_created_again_although_a_line_was_cut() {
    let site = Site::new();
    let limit = 1 << 20;
    let ballast = "ballast\n".repeat((limit - 24) / 8);
    fs::write(site.path("access.log"), &ballast).unwrap();
    let script = format!("ulimit -f {} && trap '' XFSZ && exec \"$@\"", limit / 512);
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_weft"), "site", "--workers", "1"]);
    command.args(["--listen", "127.0.0.1:0", "--log", "access.log", "--log-max-bytes", "0"]);
    command.args(["--status-listen", "127.0.0.1:0", "--status-host", "a"]);
    command.args(["--log-format", "%{Referer}i"]);
    let server = Weft::start(command.current_dir(site.0.path()));
    let line = format!("{}\n", "x".repeat(100));
    let request = || {
        let field = line.trim_end();
        let mut client = server.client();
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nReferer: {field}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    };
    let full = "the access log access.log cannot be written: File too large";
    until("the file is full", || {
        request();
        server.stderr().contains(full)
    });
    assert_eq!(site.read("access.log").len(), limit);
    fs::remove_file(site.path("access.log")).unwrap();
    until("the file is created again", || {
        request();
        site.read("access.log").contains(&line)
    });
    assert!(site.read("access.log").split_inclusive('\n').all(|found| found == line), "torn");
    // The cut line is counted.
    let metrics = Client::tcp(server.status_address()).get("/metrics").body;
    let metrics = String::from_utf8(metrics).unwrap();
    let sample = "weft_log_lines_lost_total{log=\"access log access.log\"} 1\n";
    until("the lost line is reported", || server.stderr().contains("1 lines were lost"));
    assert!(metrics.contains(sample), "{metrics}");
    server.stop();
}

// -- what lines withhold

#[test]
fn lines_have_networks_and_no_secrets() {
    let site = Site::new();
    let format = "{client_ip} {uri} {query} {query.token} {query.b} {referer} \
                  {header.X-Forwarded-For} {request_line} %r";
    let run = |options: &[&str]| {
        let path = site.path("own.log");
        let _ = fs::remove_file(&path);
        let server =
            site.serve_in_order(&[&["--log", "own.log", "--log-format", format], options].concat());
        let mut client = server.client();
        client.send(
            "GET /a?token=secret&b=c HTTP/1.1\r\nHost: a\r\nReferer: http://a/?b=1&TOKEN=secret\r\n\
             X-Forwarded-For: 192.0.2.7\r\n\r\n",
        );
        client.response();
        let mut client = server.client();
        client.send("GET /a?token=secret HTTP/1.1\r\nHost: a b\r\n\r\n");
        client.response();
        server.stop();
        fs::read_to_string(path).unwrap()
    };
    assert_eq!(
        run(&[]),
        "127.0.0.1 /a?token=secret&b=c token=secret&b=c secret c http://a/?b=1&TOKEN=secret \
         192.0.2.7 - GET /a?token=secret&b=c HTTP/1.1\n\
         127.0.0.1 - - - - - - GET /a?token=secret HTTP/1.1 GET /a?token=secret HTTP/1.1\n"
    );
    assert_eq!(
        run(&["--log-mask-addresses", "--log-redact", "token"]),
        "127.0.0.0 /a?token=***&b=c token=***&b=c *** c http://a/?b=1&TOKEN=*** - - \
         GET /a?token=***&b=c HTTP/1.1\n\
         127.0.0.0 - - - - - - GET /a?token=*** HTTP/1.1 GET /a?token=*** HTTP/1.1\n"
    );
}

/// The error log has the targets of requests whose upstream fails.
#[test]
fn error_log_has_no_secrets() {
    for (options, expected) in [
        (&[][..], "GET /up/a?b=c&token=secret&d=e of host"),
        (&["--log-redact", "token"], "GET /up/a?b=c&token=***&d=e of host"),
    ] {
        let site = Site::new();
        let route = ["--route", "/up/ >> http://127.0.0.1:1/", "--error-log", "error.log"];
        // The server does not announce its address on stderr.
        let mut command = weft(["site", "--listen", "127.0.0.1:0", "--no-log"]);
        let command = command.args(route).args(options).current_dir(site.0.path());
        let mut server = command.spawn().expect("the program starts");
        until("the server serves", || site.read("error.log").contains(" on http://"));
        let text = site.read("error.log");
        let (_, rest) = text.split_once(" on http://").unwrap();
        let mut client = Client::tcp(rest.split_whitespace().next().unwrap().parse().unwrap());
        assert_eq!(client.get("/up/a?b=c&token=secret&d=e").status, 502);
        until("the error is logged", || site.read("error.log").contains(expected));
        // A secret that is cut.
        let long = "x".repeat(300);
        assert_eq!(client.get(&format!("/up/?token=secret{long}")).status, 502);
        until("the error is logged", || site.read("error.log").contains("GET /up/?token="));
        let pid = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        assert!(server.wait().unwrap().success());
        assert_eq!(site.read("error.log").contains("secret"), options.is_empty());
    }
}

#[test]
fn error_log_can_be_json_in_the_order_of_time() {
    let site = Site::new();
    let options =
        ["--error-log", "error.log", "--error-log-format", "json", "--log-level", "debug"];
    let mut command = weft(["site", "--listen", "127.0.0.1:0", "--no-log"]);
    let mut server =
        command.args(options).current_dir(site.0.path()).spawn().expect("the program starts");
    let log = || site.read("error.log");
    until("the server serves", || log().contains("serving site on http://"));
    let text = log();
    let (_, rest) = text.split_once("http://").unwrap();
    let address: std::net::SocketAddr = rest.split(' ').next().unwrap().parse().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..50 {
                    let mut client = Client::tcp(address);
                    client.send("no HTTP \"\\\r\n\r\n");
                    client.response();
                }
            });
        }
    });
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    let lines: Vec<serde_json::Value> =
        log().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 1 + 200 + 2);
    let times: Vec<&str> = lines.iter().map(|line| line["time"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(
        (&lines[1]["level"], &lines[202]["message"]),
        (&serde_json::json!("debug"), &serde_json::json!("the server has stopped"),)
    );
}
