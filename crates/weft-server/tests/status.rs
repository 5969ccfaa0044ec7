//! The status endpoint: what it says after what has happened, and that it says it in forms that
//! others read.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use common::outside::chromium;
use common::{Client, PATIENCE, Program, Response, Signal, Weft, nobody, run, tool, until, weft};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

/// A program with a status endpoint, which may be followed by another.
struct Site {
    folder: TempDir,
    server: Weft,
    address: SocketAddr,
    status: SocketAddr,
}

const ROUTES: &str = r#"
[hosts."*"]
"/" = { respond = "hello" }
"/none/" = { respond = "nothing here", status = 404 }
"/old/" = "<< /new/"
[hosts."b.example a.example"]
"/" = { respond = "other" }
"#;

impl Site {
    /// Two workers, and these routes.
    #[track_caller]
    fn start(routes: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weft.toml"), config(routes)).unwrap();
        let mut command = weft(["--config", "weft.toml", "--pid-file", "pid"]);
        let server = Weft::start(command.current_dir(folder.path()));
        let (_, status) = server.announcement.trim_end().split_once("; status at http://").unwrap();
        let (address, status) = (server.address(), status.parse().unwrap());
        Site { folder, server, address, status }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Asks for something, in a connection of its own.
    #[track_caller]
    fn ask(&self, host: &str, target: &str) -> u16 {
        let mut client = Client::tcp(self.address);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().status
    }

    #[track_caller]
    fn says(&self, target: &str) -> Response {
        Client::tcp(self.status).get(target)
    }

    #[track_caller]
    fn metrics(&self) -> Metrics {
        Metrics::parse(&String::from_utf8(self.says("/metrics").body).unwrap())
    }

    /// Has it reload this configuration, and waits until it has said what came of that.
    #[track_caller]
    fn reload(&self, config: &str) -> String {
        fs::write(self.path("weft.toml"), config).unwrap();
        let before = self.server.stderr().len();
        self.server.signal(Signal::HUP);
        let said = || self.server.stderr()[before..].to_owned();
        until("it has reloaded", || said().contains("reloaded") && said().ends_with('\n'));
        said()
    }

    /// The process that serves now.
    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.path("pid")).ok()?;
        Pid::from_raw(text.strip_suffix('\n')?.parse().ok()?)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let Some(last) = self.pid() else { return };
        // It may have ended, as it should have.
        let _ = kill_process(last, Signal::KILL);
    }
}

fn config(routes: &str) -> String {
    let listen = "listen = [\"127.0.0.1:0\"]\n";
    format!("{listen}workers = 2\n[log]\naccess = \"none\"\n[status]\n{listen}{routes}")
}

// -- what Prometheus reads

/// A page of metrics, checked against the format as it is described:
/// <https://prometheus.io/docs/instrumenting/exposition_formats/>.
struct Metrics {
    /// By name and labels; those are sorted, with commas between them.
    samples: BTreeMap<(String, String), f64>,
}

impl Metrics {
    #[track_caller]
    fn parse(text: &str) -> Metrics {
        assert!(text.ends_with('\n'), "the last line has its end");
        let mut samples = BTreeMap::new();
        let (mut families, mut family, mut helped) = (BTreeSet::new(), ("", ""), "");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                helped = rest.split_once(' ').expect("what it helps with").0;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split_once(' ').expect("a type");
                assert_eq!(helped, family.0, "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&family.1), "{line}");
                assert!(families.insert(family.0), "twice: {line}");
            } else {
                let (series, value) = parse_sample(line);
                let suffix = series.0.strip_prefix(family.0).expect("a sample of the family");
                let suffixes: &[&str] = match family.1 {
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(suffixes.contains(&suffix), "{line}");
                assert!(family.1 != "counter" || family.0.ends_with("_total"), "{line}");
                assert!(samples.insert(series, value).is_none(), "twice: {line}");
            }
        }
        Metrics { samples }
    }

    /// The one with these labels, written as they are sorted.
    #[track_caller]
    fn get(&self, name: &str, labels: &str) -> f64 {
        let found = self.samples.get(&(name.to_owned(), labels.to_owned()));
        *found.unwrap_or_else(|| panic!("no {name}{{{labels}}}: {:#?}", self.samples))
    }

    /// The sum of all whose labels have this text.
    fn sum(&self, name: &str, part: &str) -> f64 {
        let is_it = |((known, labels), _): &(&(String, String), &f64)| {
            known == name && labels.contains(part)
        };
        self.samples.iter().filter(is_it).map(|(_, value)| value).sum()
    }

    /// A histogram's buckets grow, and the last has all.
    #[track_caller]
    fn check_histograms(&self) -> usize {
        let mut checked = 0;
        for ((name, labels), count) in &self.samples {
            let Some(name) = name.strip_suffix("_count") else { continue };
            let mut buckets = Vec::new();
            for ((known, with_bound), value) in &self.samples {
                let (others, bound) = split_bound(with_bound);
                if known.strip_suffix("_bucket") == Some(name) && others == *labels {
                    buckets.push((bound.expect("a bound"), *value));
                }
            }
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name} {labels}");
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{name} {labels}");
            let sum = self.get(&format!("{name}_sum"), labels);
            assert_eq!(sum > 0.0, *count > 0.0, "{name} {labels}");
            checked += 1;
        }
        checked
    }
}

/// `name{label="value",…} value` → the name, the labels sorted, the value.
#[track_caller]
fn parse_sample(line: &str) -> ((String, String), f64) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
    let is_name = |name: &str| {
        let is_good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() && name.bytes().all(is_good)
    };
    assert!(is_name(name), "{line}");
    let mut rest = rest.strip_suffix('}').expect("a closing brace");
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, behind) = rest.split_once("=\"").expect("a label's value");
        assert!(is_name(label), "{line}");
        let mut end = 0;
        while behind.as_bytes()[end] != b'"' {
            end += if behind.as_bytes()[end] == b'\\' { 2 } else { 1 };
        }
        assert!(labels.insert(label, &behind[..end]).is_none(), "twice: {line}");
        rest = &behind[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    let labels: Vec<String> = labels.iter().map(|(l, v)| format!("{l}={v}")).collect();
    ((name.to_owned(), labels.join(",")), value)
}

/// Labels without the bound of a bucket, and that.
fn split_bound(labels: &str) -> (String, Option<f64>) {
    let (bounds, others): (Vec<&str>, Vec<&str>) =
        labels.split(',').partition(|label| label.starts_with("le="));
    let bound = bounds.first().map(|label| label[3..].replace("+Inf", "inf").parse().unwrap());
    (others.join(","), bound)
}

#[test]
fn requests_are_counted_by_route_and_class() {
    let site = Site::start(ROUTES);
    for (host, target, times) in [
        ("x", "/", 5),
        ("x", "/none/x", 3),
        ("x", "/old/x", 2),
        ("A.example", "/none/", 4),
        ("b.example", "/", 1),
    ] {
        (0..times).for_each(|_| _ = site.ask(host, target));
    }
    let metrics = site.metrics();
    for (host, route, code, count) in [
        ("*", "/", "2xx", 5.0),
        ("*", "/", "4xx", 0.0),
        ("*", "/none/", "4xx", 3.0),
        ("*", "/old/", "3xx", 2.0),
        ("b.example a.example", "/", "2xx", 5.0),
        ("", "none", "4xx", 0.0),
    ] {
        let labels = format!("code={code},host={host},route={route}");
        assert_eq!(metrics.get("weft_requests_total", &labels), count, "{labels}");
    }
    assert_eq!(metrics.sum("weft_requests_total", ""), 15.0);
    assert_eq!(metrics.sum("weft_responses_total", ""), 15.0);
    assert_eq!(metrics.sum("weft_request_duration_seconds_count", ""), 15.0);
    assert_eq!(metrics.sum("weft_response_body_bytes_total", "") as u64, 5 * 5 + 3 * 12 + 5 * 5);
    assert_eq!(metrics.sum("weft_connections_accepted_total", ""), 15.0);
    // One for each route, and one for what no route is for.
    assert_eq!(metrics.check_histograms(), 5);
    until("all connections are closed", || site.metrics().sum("weft_connections_open", "") == 0.0);
}

#[test]
fn the_numbers_are_those_of_all_workers() {
    let site = Site::start(ROUTES);
    // They are given to the workers by turns.
    let mut clients: Vec<Client> = (0..4).map(|_| Client::tcp(site.address)).collect();
    clients.iter_mut().for_each(|client| _ = client.get("/"));
    let metrics = site.metrics();
    for worker in ["weft-0", "weft-1"] {
        assert_eq!(metrics.get("weft_connections_open", &format!("worker={worker}")), 2.0);
        let labels = format!("code=2xx,worker={worker}");
        assert_eq!(metrics.get("weft_responses_total", &labels), 2.0);
    }
    assert_eq!(metrics.get("weft_requests_total", "code=2xx,host=*,route=/"), 4.0);
}

#[test]
fn what_is_no_request_is_an_error_of_the_peer() {
    let site = Site::start("[hosts.\"a.example\"]\n\"/\" = { respond = \"a\" }\n");
    let mut client = Client::tcp(site.address);
    client.send("nonsense\r\n\r\n");
    assert_eq!(client.response().status, 400);
    // A request, but one for which there is no route.
    assert_eq!(site.ask("elsewhere", "/"), 404);
    let metrics = site.metrics();
    assert_eq!(metrics.sum("weft_errors_total", "fault=peer"), 1.0);
    assert_eq!(metrics.sum("weft_errors_total", ""), 1.0);
    assert_eq!(metrics.sum("weft_responses_total", "code=4xx"), 2.0);
    assert_eq!(metrics.get("weft_requests_total", "code=4xx,host=,route=none"), 1.0);
    assert_eq!(metrics.sum("weft_requests_total", ""), 1.0);
}

#[test]
fn the_process_is_as_the_kernel_sees_it() {
    let site = Site::start(ROUTES);
    let metrics = site.metrics();
    let resident = metrics.get("process_resident_memory_bytes", "");
    assert!((1e6..1e9).contains(&resident), "{resident}");
    let (open, most) = (metrics.get("process_open_fds", ""), metrics.get("process_max_fds", ""));
    assert!(open > 5.0 && open < most, "{open} of {most}");
    assert!(metrics.get("process_cpu_seconds_total", "") > 0.0);
    // Descriptors are counted as they are: more clients are more of them.
    let clients: Vec<Client> = (0..20).map(|_| Client::tcp(site.address)).collect();
    until("they are open", || site.metrics().get("process_open_fds", "") >= open + 20.0);
    drop(clients);
}

#[test]
fn promtool_has_nothing_to_say() {
    if !tool("promtool") {
        return;
    }
    let site = Site::start(ROUTES);
    site.ask("x", "/");
    fs::write(site.path("metrics"), site.says("/metrics").body).unwrap();
    let file = fs::File::open(site.path("metrics")).unwrap();
    let ended = Program::told(Command::new("promtool").args(["check", "metrics"]), file).end();
    assert_eq!((ended.status, &*ended.stdout, &*ended.stderr), (Ok(0), "", ""));
}

/// Reads the JSON form, and says what it finds there.
const READER: &str = r#"
import json, sys
it = json.load(sys.stdin)
print(it["version"], len(it["workers"]), it["time"] >= it["started"])
for route in it["routes"]:
    durations = route["durations"]
    assert len(durations["buckets"]) == len(it["bucket_bounds"]) + 1
    assert sum(durations["buckets"]) == durations["count"] == sum(route["requests"].values())
    print(repr(route["host"]), route["prefix"], durations["count"], route["in_flight"])
"#;

#[test]
fn python_reads_the_json() {
    if !tool("python3") {
        return;
    }
    let site =
        Site::start("[hosts.\"*\"]\n\"/\" = { respond = \"a\" }\n\"/\\\"\\u00e9\" = \"<< /b\"\n");
    (0..3).for_each(|_| _ = site.ask("x", "/"));
    site.ask("x", "/%22%C3%A9/");
    let response = site.says("/status.json");
    assert_eq!(response.header("content-type"), Some("application/json"));
    fs::write(site.path("json"), response.body).unwrap();
    let file = fs::File::open(site.path("json")).unwrap();
    let mut python = Command::new("python3");
    let ended = Program::told(python.args(["-X", "utf8", "-c", READER]), file).end();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("{version} 2 True\n'*' / 3 0\n'*' /\"é/ 1 0\n'' none 0 0\n");
    assert_eq!((ended.status, &*ended.stdout), (Ok(0), &*expected), "{}", ended.stderr);
}

// -- what is where

#[test]
fn paths_and_methods() {
    let site = Site::start(ROUTES);
    for (method, path, status, media_type) in [
        ("GET", "/", 200, "text/html; charset=utf-8"),
        ("GET", "/style.css", 200, "text/css; charset=utf-8"),
        ("GET", "/page.js", 200, "text/javascript; charset=utf-8"),
        ("GET", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
        ("GET", "/metrics?x=y", 200, "text/plain; version=0.0.4; charset=utf-8"),
        ("GET", "/status.json", 200, "application/json"),
        ("GET", "/metrics/", 404, "text/plain; charset=utf-8"),
        ("GET", "/../etc/passwd", 404, "text/plain; charset=utf-8"),
        ("POST", "/", 405, "text/plain; charset=utf-8"),
        ("DELETE", "/metrics", 405, "text/plain; charset=utf-8"),
    ] {
        let mut client = Client::tcp(site.status);
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let response = client.response();
        assert_eq!(response.status, status, "{method} {path}");
        assert_eq!(response.header("content-type"), Some(media_type), "{method} {path}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{method} {path}");
        let policy = response.header("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none'; "), "{method} {path}: {policy}");
        assert_eq!(response.header("allow").is_some(), status == 405, "{method} {path}");
    }
    // Nothing of that is where the site is.
    assert_eq!(site.ask("x", "/none/metrics"), 404);
}

#[test]
fn there_is_none_unless_it_is_asked_for() {
    let server = Weft::serve(std::path::Path::new("."), &[]);
    assert!(!server.announcement.contains("status"), "{}", server.announcement);
    assert_eq!(server.client().get("/metrics").status, 404);
    let ended = server.stop();
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn an_address_that_is_taken_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = taken.to_string();
    let both = ["--listen", &address, "--status-listen", &address, "--reuse-port"];
    let ended = run(both);
    assert_eq!(ended.status, Ok(1));
    assert!(
        ended.stderr.starts_with(&format!("weft: cannot listen on {taken}")),
        "{}",
        ended.stderr
    );
}

// -- upstreams

/// Answers each request on each connection.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut came = Vec::new();
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    came.extend_from_slice(&buffer[..n]);
                    if came.ends_with(b"\r\n\r\n") {
                        came.clear();
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                            .unwrap();
                    }
                }
            });
        }
    });
    address
}

#[test]
fn an_upstream_that_is_not_there_is_told_from_one_that_is() {
    let dead = nobody();
    let alive = upstream();
    let site = Site::start(&format!(
        "[hosts.\"*\"]\n\"/api/\" = {{ proxy = [\"http://{dead}/\", \"http://{alive}/\"], \
         max_failures = 1, down_time = \"1h\" }}\n"
    ));
    let labels = |address| format!("host=*,route=/api/,upstream=http://{address}/");
    let state = |address, state: &str| {
        format!("host=*,route=/api/,state={state},upstream=http://{address}/")
    };
    let before = site.metrics();
    assert_eq!(before.get("weft_upstream_up", &labels(dead)), 1.0);
    let mut client = Client::tcp(site.address);
    (0..6).for_each(|_| assert_eq!(client.get("/api/x").status, 200));
    let metrics = site.metrics();
    for (address, up, resting, requests, failures) in
        [(dead, 0.0, 1.0, 0.0, 1.0), (alive, 1.0, 0.0, 6.0, 0.0)]
    {
        assert_eq!(metrics.get("weft_upstream_up", &labels(address)), up);
        assert_eq!(metrics.get("weft_upstream_state", &state(address, "up")), up);
        assert_eq!(metrics.get("weft_upstream_state", &state(address, "resting")), resting);
        assert_eq!(metrics.get("weft_upstream_state", &state(address, "down")), 0.0);
        assert_eq!(metrics.get("weft_upstream_requests_total", &labels(address)), requests);
        assert_eq!(metrics.get("weft_upstream_response_seconds_count", &labels(address)), requests);
        assert_eq!(metrics.get("weft_upstream_failures_total", &labels(address)), failures);
        assert_eq!(metrics.get("weft_upstream_queue_length", &labels(address)), 0.0);
    }
    assert_eq!(metrics.get("weft_upstream_retries_total", &labels(alive)), 1.0);
    until("the connection is at rest", || {
        let metrics = site.metrics();
        let connections = |name| metrics.get("weft_upstream_connections", &state(alive, name));
        (connections("in_use"), connections("idle")) == (0.0, 1.0)
    });
    assert_eq!(metrics.check_histograms(), 4);
}

#[test]
fn routes_that_are_set_alike_share_their_upstream() {
    let upstream = upstream();
    let routes = format!(
        "[hosts.\"*\"]\n\"/a/\" = \">> http://{upstream}/\"\n\"/b/\" = \">> http://{upstream}/\"\n"
    );
    let site = Site::start(&routes);
    let ask = || ["/a/", "/b/", "/b/"].map(|target| site.ask("x", target));
    let requests = || site.metrics().sum("weft_upstream_requests_total", "");
    let labels = format!("host=*,route=/a/,upstream=http://{upstream}/");
    ask();
    assert_eq!(requests(), 3.0);
    assert_eq!(site.metrics().get("weft_upstream_requests_total", &labels), 3.0);
    // It goes on with its counts, and is counted once.
    site.reload(&config(&format!("{routes}\"/c/\" = {{ respond = \"c\" }}\n")));
    until("the reload counts", || site.ask("x", "/c/") == 200);
    ask();
    assert_eq!(site.metrics().get("weft_upstream_requests_total", &labels), 6.0);
    assert_eq!(requests(), 6.0);
}

#[test]
fn an_upstream_that_fails_its_checks_is_down() {
    let dead = nobody();
    let site = Site::start(&format!(
        "[hosts.\"*\"]\n\"/\" = {{ proxy = \"http://{dead}/\", check = \"/health\", \
         check_interval = \"10ms\" }}\n"
    ));
    // The first request begins the checks.
    site.ask("x", "/");
    let down = format!("host=*,route=/,state=down,upstream=http://{dead}/");
    until("it is down", || site.metrics().get("weft_upstream_state", &down) == 1.0);
}

#[test]
fn clients_that_wait_are_in_flight_and_those_that_leave_are_counted() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let site = Site::start(&format!("[hosts.\"*\"]\n\"/\" = \">> http://{address}/\"\n"));
    let mut client = Client::tcp(site.address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let in_flight = || site.metrics().get("weft_requests_in_flight", "host=*,route=/");
    until("it waits", || in_flight() == 1.0);
    let in_use = format!("host=*,route=/,state=in_use,upstream=http://{address}/");
    until("it has a connection", || {
        site.metrics().get("weft_upstream_connections", &in_use) == 1.0
    });
    assert_eq!(site.metrics().sum("weft_requests_total", ""), 0.0);
    drop(client);
    until("nobody waits", || in_flight() == 0.0);
    let metrics = site.metrics();
    assert_eq!(metrics.get("weft_requests_total", "code=none,host=*,route=/"), 1.0);
    assert_eq!(metrics.check_histograms(), 3);
}

// -- events

/// A client of `/events`, behind the head of the response.
fn events(site: &Site) -> TcpStream {
    let mut stream = TcpStream::connect(site.status).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    stream
}

#[test]
fn events_come_again_and_again() {
    let site = Site::start(ROUTES);
    let mut stream = events(&site);
    let mut came = String::new();
    let mut buffer = [0; 65536];
    while came.matches("data: {").count() < 3 {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "it ended: {came}");
        came.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    assert!(came.contains("content-type: text/event-stream\r\n"), "{came}");
}

#[test]
fn a_stop_waits_neither_for_pages_nor_for_the_clock() {
    let mut site = Site::start(ROUTES);
    let mut stream = events(&site);
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    site.server.signal(Signal::QUIT);
    assert!(site.server.status().success(), "{}", site.server.stderr());
    // It was not cut, but has come to its end.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"\r\n0\r\n\r\n"), "{}", rest.escape_ascii());
}

// -- reloads and upgrades

#[test]
fn counts_go_on_after_a_reload() {
    let site = Site::start(ROUTES);
    (0..3).for_each(|_| _ = site.ask("x", "/"));
    let with_other = ROUTES.replace("/none/", "/other/").replace("\"hello\"", "\"hello again\"");
    site.reload(&config(&with_other));
    until("the other route is there", || site.ask("x", "/other/") == 404);
    site.ask("x", "/");
    let metrics = site.metrics();
    assert_eq!(metrics.get("weft_requests_total", "code=2xx,host=*,route=/"), 4.0);
    assert!(metrics.get("weft_requests_total", "code=4xx,host=*,route=/other/") >= 1.0);
    assert_eq!(metrics.sum("weft_requests_total", "route=/none/"), 0.0);
    assert_eq!(metrics.get("weft_config_reloads_total", "result=success"), 1.0);
    assert_eq!(metrics.get("weft_config_last_reload_successful", ""), 1.0);
    assert!(
        metrics.get("weft_config_loaded_timestamp_seconds", "")
            > metrics.get("process_start_time_seconds", "")
    );
    site.reload("listen = 1\n");
    let after = site.metrics();
    assert_eq!(after.get("weft_config_reloads_total", "result=failure"), 1.0);
    assert_eq!(after.get("weft_config_last_reload_successful", ""), 0.0);
    let loaded = "weft_config_loaded_timestamp_seconds";
    assert_eq!(after.get(loaded, ""), metrics.get(loaded, ""));
}

#[test]
fn a_reload_opens_and_closes_it() {
    let site = Site::start(ROUTES);
    let socket = site.path("status");
    let more =
        config(ROUTES).replace("[status]\nlisten = [", "[status]\nlisten = [\"unix:status\", ");
    site.reload(&more);
    assert_eq!(Client::unix(&socket).get("/metrics").status, 200);
    assert_eq!(site.says("/metrics").status, 200);
    site.reload(&config(ROUTES).replace("[status]\nlisten = [\"127.0.0.1:0\"]", ""));
    until("nobody listens", || TcpStream::connect(site.status).is_err() && !socket.exists());
    assert_eq!(site.ask("x", "/"), 200);
    // There is a server for it still, and it has counted on.
    site.reload(&more);
    let metrics = String::from_utf8(Client::unix(&socket).get("/metrics").body).unwrap();
    let labels = "code=2xx,host=*,route=/";
    assert_eq!(Metrics::parse(&metrics).get("weft_requests_total", labels), 1.0);
}

#[test]
fn who_does_not_count_says_that_it_takes_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weft.toml");
    let without = config(ROUTES).replace("[status]\nlisten = [\"127.0.0.1:0\"]", "");
    fs::write(&path, &without).unwrap();
    let server = Weft::start(weft(["--config", "weft.toml"]).current_dir(folder.path()));
    let with =
        without.replace("[hosts.\"*\"]", "[status]\nlisten = \"unix:status\"\n[hosts.\"*\"]");
    fs::write(&path, with).unwrap();
    server.signal(Signal::HUP);
    let expected = "weft: what changed in `status` counts from the next start or upgrade\n\
                    weft: the configuration was reloaded\n";
    until("it has reloaded", || server.stderr().ends_with(expected));
    assert_eq!(server.client().get("/").status, 200);
    assert!(!folder.path().join("status").exists(), "it is not opened either");
    server.stop();
}

#[test]
fn after_an_upgrade_the_other_process_answers() {
    let mut site = Site::start(ROUTES);
    site.ask("x", "/");
    let started = site.metrics().get("process_start_time_seconds", "");
    let mut stream = events(&site);
    let former = site.pid();
    site.server.signal(Signal::USR2);
    until("another process serves", || site.pid().is_some_and(|now| Some(now) != former));
    // The events of the former process end, so that pages ask the other one.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"\r\n0\r\n\r\n"), "{}", rest.escape_ascii());
    for _ in 0..20 {
        let metrics = site.metrics();
        assert!(metrics.get("process_start_time_seconds", "") > started);
        assert_eq!(metrics.sum("weft_requests_total", ""), 0.0);
    }
    assert_eq!(site.ask("x", "/"), 200);
    assert_eq!(site.metrics().sum("weft_requests_total", ""), 1.0);
    assert!(site.server.status().success(), "{}", site.server.stderr());
}

// -- chromium

/// A page in a browser, whose text can be asked for by the browser's own protocol.
struct Page {
    browser: Program,
    client: Client,
}

impl Page {
    fn open(browser: Program, url: &str) -> Page {
        let port = || -> Option<u16> {
            let said = browser.stderr();
            let (_, behind) = said.split_once("DevTools listening on ws://127.0.0.1:")?;
            behind.split_once('/')?.0.parse().ok()
        };
        until("the browser listens", || port().is_some());
        let address = SocketAddr::from(([127, 0, 0, 1], port().unwrap()));
        let mut path = None;
        until("the page is there", || {
            let mut client = Client::tcp(address);
            client.send("GET /json/list HTTP/1.1\r\nHost: localhost\r\n\r\n");
            // Its fields have no space behind the colon.
            let head = client.head();
            let length = head.iter().find_map(|line| line.strip_prefix("Content-Length:"));
            let list = client.body(length.expect("a length").trim().parse().unwrap());
            let list = String::from_utf8(list).unwrap();
            let page = list.split("}").find(|target| target.contains(url));
            path = page.and_then(|page| {
                let (_, socket) = page.split_once("\"webSocketDebuggerUrl\": \"ws://")?;
                Some(socket.split_once('"')?.0.split_once('/')?.1.to_owned())
            });
            path.is_some()
        });
        let mut client = Client::tcp(address);
        client.send(format!(
            "GET /{} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            path.unwrap()
        ));
        assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
        Page { browser, client }
    }

    /// All that can be read on it.
    fn text(&mut self) -> String {
        let call = r#"{"id":1,"method":"Runtime.evaluate","params":{"expression":"document.title+document.body.innerText"}}"#;
        // A text, masked with zeros.
        assert!(call.len() < 126, "it fits a short frame");
        let frame = [&[0x81, 0x80 | call.len() as u8, 0, 0, 0, 0], call.as_bytes()];
        self.client.send(frame.concat());
        let length = match self.client.body(2)[1] {
            126 => self.client.body(2).iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
            short => usize::from(short),
        };
        String::from_utf8(self.client.body(length)).unwrap()
    }
}

#[test]
fn chromium_shows_the_numbers_as_they_grow() {
    if !tool("chromium") {
        return;
    }
    let site = Site::start(&format!("{ROUTES}\"/api/\" = \">> http://{}/\"\n", upstream()));
    let profile = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", site.status);
    let mut command = chromium(profile.path());
    command.args(["--remote-debugging-port=0", &url]);
    let mut page = Page::open(Program::start(&mut command), &url);
    until("it is live", || page.text().contains("live"));
    let mut text = page.text();
    assert!(text.contains("weft-0") && text.contains("weft-1"), "{text}");
    assert!(text.contains("/old/"), "{text}");
    let mut client = Client::tcp(site.address);
    for (more, shown) in [(7, "7"), (1_000, "1,007")] {
        (0..more).for_each(|_| _ = client.get("/none/"));
        until("it shows them", || {
            text = page.text();
            text.contains(&format!("\\t{shown}\\t"))
        });
    }
    assert!(text.contains("/s \\u00b7 weft"), "{text}");
    assert!(text.contains("Upstreams") && text.contains("\\tup\\t"), "{text}");
    let said = page.browser.stderr();
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert_eq!(complaints, [""; 0]);
}

#[test]
fn chromium_finds_its_way_back_after_an_upgrade() {
    if !tool("chromium") {
        return;
    }
    let mut site = Site::start(ROUTES);
    let profile = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", site.status);
    let mut command = chromium(profile.path());
    command.args(["--remote-debugging-port=0", &url]);
    let mut page = Page::open(Program::start(&mut command), &url);
    (0..5).for_each(|_| _ = site.ask("x", "/none/"));
    until("it shows them", || page.text().contains("\\t5\\t"));
    site.server.signal(Signal::USR2);
    assert!(site.server.status().success(), "{}", site.server.stderr());
    (0..11).for_each(|_| _ = site.ask("x", "/none/"));
    until("it shows those of the other process", || page.text().contains("\\t11\\t"));
}
