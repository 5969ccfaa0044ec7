//! The status endpoint: its metrics after requests, and their formats for Prometheus, JSON parsers
//! and browsers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::external::chromium;
use crate::common::{
    Client, PATIENCE, Program, Response, Signal, Weft, connect_from, has_tool, raw_upstream,
    read_head, run, until, unused_address, weft,
};
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

/// A program with a status endpoint; an upgrade starts a successor.
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
    /// Starts the program with two workers and these routes.
    #[track_caller]
    fn start(routes: &str) -> Site {
        Site::start_with(&config(routes))
    }

    #[track_caller]
    fn start_with(config: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let mut command = weft(["--config", "weft.toml", "--pid-file", "pid"]);
        let server = Weft::start(command.current_dir(folder.path()));
        let (address, status) = (server.address(), server.status_address());
        Site { folder, server, address, status }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends a request on a new connection and returns the status.
    #[track_caller]
    fn request_status(&self, host: &str, target: &str) -> u16 {
        let mut client = Client::tcp(self.address);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().status
    }

    /// Sends a request to the status endpoint.
    #[track_caller]
    fn get_status_page(&self, target: &str) -> Response {
        Client::tcp(self.status).get(target)
    }

    #[track_caller]
    fn metrics(&self) -> Metrics {
        Metrics::parse(&String::from_utf8(self.get_status_page("/metrics").body).unwrap())
    }

    /// Reloads this configuration, waits until the result is logged, and returns the log lines.
    #[track_caller]
    fn reload(&self, config: &str) -> String {
        fs::write(self.path("weft.toml"), config).unwrap();
        let before = self.server.stderr().len();
        self.server.signal(Signal::HUP);
        let log = || self.server.stderr()[before..].to_owned();
        until("the reload is logged", || log().contains("reloaded") && log().ends_with('\n'));
        log()
    }

    /// Returns the process ID of the serving process.
    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.path("pid")).ok()?;
        Pid::from_raw(text.strip_suffix('\n')?.parse().ok()?)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let Some(last) = self.pid() else { return };
        // The process may have exited already.
        let _ = kill_process(last, Signal::KILL);
    }
}

/// The clients of these tests send the host `a`.
const STATUS_SECTION: &str = "[status]\nlisten = [\"127.0.0.1:0\"]\nhosts = [\"a\"]\n";

fn config(routes: &str) -> String {
    let listen = "listen = [\"127.0.0.1:0\"]\n";
    format!("{listen}workers = 2\n[log]\naccess = \"none\"\n{STATUS_SECTION}{routes}")
}

// -- hosts

/// A site whose name resolves to the address of the endpoint (DNS rebinding) gets nothing.
/// One client can occupy half of the connections to the endpoint.
#[test]
fn a_client_has_half_of_the_status_connections() {
    let site = Site::start(ROUTES);
    let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n";
    let open = |from: [u8; 4]| {
        let mut client = Client::from_stream(connect_from(from, site.status));
        client.send(get);
        client
    };
    let held: Vec<Client> = (0..40).map(|_| open([127, 0, 0, 2])).collect();
    let refused = held.into_iter().map(|mut client| {
        client.send("\r\n");
        client.response().status
    });
    let refused = refused.filter(|status| *status == 503).count();
    assert_eq!(refused, 8);
    let mut other = open([127, 0, 0, 3]);
    other.send("\r\n");
    assert_eq!(other.response().status, 200);
}

#[test]
fn serves_expected_hosts_only() {
    let site = Site::start(ROUTES);
    let status_for = |host: &str| {
        let mut client = Client::tcp(site.status);
        client.send(format!("GET /status.json HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let response = client.response();
        let has_metrics = response.body.windows(9).any(|text| text == b"\"workers\"");
        assert_eq!(has_metrics, response.status == 200, "{host}");
        response.status
    };
    let port = site.status.port();
    for (host, status) in [
        (format!("127.0.0.1:{port}"), 200),
        (format!("localhost:{port}"), 200),
        ("[::1]".to_owned(), 200),
        (format!("rebound.example:{port}"), 421),
        ("web1.internal".to_owned(), 421),
    ] {
        assert_eq!(status_for(&host), status, "{host}");
    }
    let with_hosts =
        config(ROUTES).replace("hosts = [\"a\"]", "hosts = [\"WEB1.internal\", \"*.a.example\"]");
    site.reload(&with_hosts);
    let hosts = [("web1.internal", 200), ("b.a.example:80", 200), ("rebound.example", 421)];
    for (host, status) in hosts {
        assert_eq!(status_for(host), status, "{host}");
    }
}

// -- metrics for Prometheus

/// A page of metrics. Parsing checks it against the text format:
/// <https://prometheus.io/docs/instrumenting/exposition_formats/>.
struct Metrics {
    /// Values by name and labels; the labels are sorted and separated by commas.
    samples: BTreeMap<(String, String), f64>,
}

impl Metrics {
    #[track_caller]
    fn parse(text: &str) -> Metrics {
        assert!(text.ends_with('\n'), "the last line has a line end");
        let mut samples = BTreeMap::new();
        let (mut families, mut family, mut help_name) = (BTreeSet::new(), ("", ""), "");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                help_name = rest.split_once(' ').expect("a name and a help text").0;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split_once(' ').expect("a type");
                assert_eq!(help_name, family.0, "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&family.1), "{line}");
                assert!(families.insert(family.0), "duplicate: {line}");
            } else {
                let (series, value) = parse_sample(line);
                let suffix = series.0.strip_prefix(family.0).expect("a sample of the family");
                let suffixes: &[&str] = match family.1 {
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(suffixes.contains(&suffix), "{line}");
                assert!(family.1 != "counter" || family.0.ends_with("_total"), "{line}");
                assert!(samples.insert(series, value).is_none(), "duplicate: {line}");
            }
        }
        Metrics { samples }
    }

    /// Returns the sample with these labels, which must be sorted.
    #[track_caller]
    fn get(&self, name: &str, labels: &str) -> f64 {
        let found = self.samples.get(&(name.to_owned(), labels.to_owned()));
        *found.unwrap_or_else(|| panic!("no {name}{{{labels}}}: {:#?}", self.samples))
    }

    /// Returns the sum of all samples whose labels contain `part`.
    fn sum(&self, name: &str, part: &str) -> f64 {
        let matches = |((known, labels), _): &(&(String, String), &f64)| {
            known == name && labels.contains(part)
        };
        self.samples.iter().filter(matches).map(|(_, value)| value).sum()
    }

    /// Asserts that the buckets of all histograms are cumulative and that the last one equals the
    /// count; returns the number of histograms.
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

/// Parses `name{label="value",…} value`; returns the name, the sorted labels, and the value.
#[track_caller]
fn parse_sample(line: &str) -> ((String, String), f64) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
    let is_name = |name: &str| {
        let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() && name.bytes().all(is_allowed)
    };
    assert!(is_name(name), "{line}");
    let mut rest = rest.strip_suffix('}').expect("a closing brace");
    let mut labels = BTreeMap::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").expect("a label's value");
        assert!(is_name(label), "{line}");
        let mut end = 0;
        while after.as_bytes()[end] != b'"' {
            end += if after.as_bytes()[end] == b'\\' { 2 } else { 1 };
        }
        assert!(labels.insert(label, &after[..end]).is_none(), "duplicate: {line}");
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    let labels: Vec<String> = labels.iter().map(|(l, v)| format!("{l}={v}")).collect();
    ((name.to_owned(), labels.join(",")), value)
}

/// Splits labels into those without the bound of a bucket, and the bound.
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
        (0..times).for_each(|_| _ = site.request_status(host, target));
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
    // One histogram for each route, and one for requests without a route.
    assert_eq!(metrics.check_histograms(), 5);
    until("all connections are closed", || site.metrics().sum("weft_connections_open", "") == 0.0);
}

#[test]
fn metrics_cover_all_workers() {
    let site = Site::start(ROUTES);
    // Connections are assigned to the workers in turn.
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
fn invalid_requests_are_peer_errors() {
    let site = Site::start("[hosts.\"a.example\"]\n\"/\" = { respond = \"a\" }\n");
    let mut client = Client::tcp(site.address);
    client.send("nonsense\r\n\r\n");
    assert_eq!(client.response().status, 400);
    // A valid request without a route.
    assert_eq!(site.request_status("elsewhere", "/"), 404);
    let metrics = site.metrics();
    assert_eq!(metrics.sum("weft_errors_total", "fault=peer"), 1.0);
    assert_eq!(metrics.sum("weft_errors_total", ""), 1.0);
    assert_eq!(metrics.sum("weft_responses_total", "code=4xx"), 2.0);
    assert_eq!(metrics.get("weft_requests_total", "code=4xx,host=,route=none"), 1.0);
    assert_eq!(metrics.sum("weft_requests_total", ""), 1.0);
}

#[test]
fn process_metrics_match_the_kernel() {
    let site = Site::start(ROUTES);
    let metrics = site.metrics();
    let resident = metrics.get("process_resident_memory_bytes", "");
    assert!((1e6..1e9).contains(&resident), "{resident}");
    let (open, max) = (metrics.get("process_open_fds", ""), metrics.get("process_max_fds", ""));
    assert!(open > 5.0 && open < max, "{open} of {max}");
    assert!(metrics.get("process_cpu_seconds_total", "") > 0.0);
    // Each open connection increases the number of descriptors.
    let clients: Vec<Client> = (0..20).map(|_| Client::tcp(site.address)).collect();
    until("the connections are open", || site.metrics().get("process_open_fds", "") >= open + 20.0);
    drop(clients);
}

#[test]
fn promtool_reports_no_problems() {
    if !has_tool("promtool") {
        return;
    }
    let site = Site::start(ROUTES);
    site.request_status("x", "/");
    fs::write(site.path("metrics"), site.get_status_page("/metrics").body).unwrap();
    let file = fs::File::open(site.path("metrics")).unwrap();
    let output =
        Program::start_with_stdin(Command::new("promtool").args(["check", "metrics"]), file)
            .wait_with_output();
    assert_eq!((output.status, &*output.stdout, &*output.stderr), (Ok(0), "", ""));
}

/// Parses the JSON form and prints a summary.
const READER: &str = r#"
import json, sys
status = json.load(sys.stdin)
print(status["version"], len(status["workers"]), status["time"] >= status["started"])
for route in status["routes"]:
    durations = route["durations"]
    assert len(durations["buckets"]) == len(status["bucket_bounds"]) + 1
    assert sum(durations["buckets"]) == durations["count"] == sum(route["requests"].values())
    print(repr(route["host"]), route["prefix"], durations["count"], route["in_flight"])
"#;

#[test]
fn python_parses_the_json() {
    if !has_tool("python3") {
        return;
    }
    let site =
        Site::start("[hosts.\"*\"]\n\"/\" = { respond = \"a\" }\n\"/\\\"\\u00e9\" = \"<< /b\"\n");
    (0..3).for_each(|_| _ = site.request_status("x", "/"));
    site.request_status("x", "/%22%C3%A9/");
    let response = site.get_status_page("/status.json");
    assert_eq!(response.header("content-type"), Some("application/json"));
    fs::write(site.path("json"), response.body).unwrap();
    let file = fs::File::open(site.path("json")).unwrap();
    let mut python = Command::new("python3");
    let output = Program::start_with_stdin(python.args(["-X", "utf8", "-c", READER]), file)
        .wait_with_output();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("{version} 2 True\n'*' / 3 0\n'*' /\"é/ 1 0\n'' none 0 0\n");
    assert_eq!((output.status, &*output.stdout), (Ok(0), &*expected), "{}", output.stderr);
}

// -- resources of the endpoint

#[test]
fn serves_pages_by_path_and_rejects_other_methods() {
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
    // The site does not serve the status pages.
    assert_eq!(site.request_status("x", "/none/metrics"), 404);
}

#[test]
fn endpoint_is_disabled_by_default() {
    let server = Weft::serve(&crate::common::repository("site"), &[]);
    assert!(!server.announcement.contains("status"), "{}", server.announcement);
    assert_eq!(server.client().get("/metrics").status, 404);
    let output = server.stop();
    assert_eq!(output.stderr.lines().count(), 3, "{}", output.stderr);
}

#[test]
fn reports_an_address_in_use() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let output = run(["--listen", "127.0.0.1:0", "--status-listen", &taken, "--reuse-port"]);
    assert_eq!(output.status, Ok(1));
    let expected = format!("weft: cannot listen on {taken}");
    assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
    let output = run(["--listen", &taken, "--status-listen", &taken]);
    assert_eq!(output.status, Ok(2));
    let expected = format!("weft: --status-listen: the address `{taken}` is given twice");
    assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
}

// -- upstreams

/// Starts an upstream that responds to each request with `ok`.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut received = Vec::new();
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    received.extend_from_slice(&buffer[..n]);
                    if received.ends_with(b"\r\n\r\n") {
                        received.clear();
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
fn upstream_metrics_distinguish_dead_and_live_upstreams() {
    let dead = unused_address();
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
    for (address, up, down, requests, failures) in
        [(dead, 0.0, 1.0, 0.0, 1.0), (alive, 1.0, 0.0, 6.0, 0.0)]
    {
        assert_eq!(metrics.get("weft_upstream_up", &labels(address)), up);
        assert_eq!(metrics.get("weft_upstream_state", &state(address, "up")), up);
        assert_eq!(metrics.get("weft_upstream_state", &state(address, "down")), down);
        assert_eq!(metrics.get("weft_upstream_state", &state(address, "unhealthy")), 0.0);
        assert_eq!(metrics.get("weft_upstream_requests_total", &labels(address)), requests);
        assert_eq!(metrics.get("weft_upstream_response_seconds_count", &labels(address)), requests);
        assert_eq!(metrics.get("weft_upstream_failures_total", &labels(address)), failures);
        assert_eq!(metrics.get("weft_upstream_queue_length", &labels(address)), 0.0);
    }
    for (reason, count) in
        [("unreachable", 1.0), ("closed", 0.0), ("idle_closed", 0.0), ("not_processed", 0.0)]
    {
        let labels = format!("host=*,reason={reason},route=/api/,upstream=http://{alive}/");
        assert_eq!(metrics.get("weft_upstream_retries_total", &labels), count, "{reason}");
    }
    for (address, count) in [(dead, 0.0), (alive, 1.0)] {
        assert_eq!(metrics.get("weft_upstream_connect_seconds_count", &labels(address)), count);
        assert_eq!(metrics.get("weft_upstream_queue_seconds_count", &labels(address)), 0.0);
    }
    until("the connection is idle", || {
        let metrics = site.metrics();
        let connections = |name| metrics.get("weft_upstream_connections", &state(alive, name));
        (connections("in_use"), connections("idle")) == (0.0, 1.0)
    });
    assert_eq!(metrics.check_histograms(), 8);
}

/// An upstream that permits one connection, and closes it after a response.
#[test]
fn upstream_metrics_have_times_in_the_queue_and_reasons_of_retries() {
    let (waiting, is_waiting) = mpsc::channel();
    let (proceed, may_proceed) = mpsc::channel::<()>();
    let may_proceed = Mutex::new(may_proceed);
    let address = raw_upstream(move |_, mut stream| {
        if read_head(&mut stream).is_some() {
            waiting.send(()).unwrap();
            may_proceed.lock().unwrap().recv().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            // The next request arrives before the connection closes.
            read_head(&mut stream);
        }
    });
    let config = config(&format!(
        "[hosts.\"*\"]\n\"/\" = {{ proxy = \"http://{address}/\", max_connections = 1, \
         max_connections_per_client = 1 }}\n"
    ));
    // Each worker has a queue of its own.
    let site = Site::start_with(&config.replace("workers = 2", "workers = 1"));
    let labels = format!("host=*,route=/,upstream=http://{address}/");
    std::thread::scope(|scope| {
        let get = || Client::tcp(site.address).get("/").status;
        let first = scope.spawn(get);
        is_waiting.recv_timeout(PATIENCE).unwrap();
        let second = scope.spawn(get);
        let is_queued = || site.metrics().get("weft_upstream_queue_length", &labels) == 1.0;
        let start = Instant::now();
        while !is_queued() && start.elapsed() < PATIENCE / 6 {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Both threads end in any case.
        proceed.send(()).unwrap();
        proceed.send(()).unwrap();
        assert_eq!([first, second].map(|thread| thread.join().unwrap()), [200, 200]);
    });
    let metrics = site.metrics();
    assert_eq!(metrics.get("weft_upstream_queue_seconds_count", &labels), 1.0);
    assert_eq!(metrics.get("weft_upstream_connect_seconds_count", &labels), 2.0);
    let retries = format!("host=*,reason=idle_closed,route=/,upstream=http://{address}/");
    assert_eq!(metrics.get("weft_upstream_retries_total", &retries), 1.0);
    assert_eq!(metrics.sum("weft_upstream_retries_total", ""), 1.0);
    let json: serde_json::Value =
        serde_json::from_slice(&site.get_status_page("/status.json").body).unwrap();
    let upstream = &json["upstreams"][0];
    assert_eq!(upstream["retries"], 1);
    assert_eq!(upstream["retries_by_reason"]["idle_closed"], 1);
    assert_eq!(upstream["queue_times"]["count"], 1);
    assert_eq!(upstream["connect_times"]["count"], 2);
}

#[test]
fn routes_with_equal_settings_share_upstream_metrics() {
    let upstream = upstream();
    let routes = format!(
        "[hosts.\"*\"]\n\"/a/\" = \">> http://{upstream}/\"\n\"/b/\" = \">> http://{upstream}/\"\n"
    );
    let site = Site::start(&routes);
    let send_requests = || ["/a/", "/b/", "/b/"].map(|target| site.request_status("x", target));
    let requests = || site.metrics().sum("weft_upstream_requests_total", "");
    let labels = format!("host=*,route=/a/,upstream=http://{upstream}/");
    send_requests();
    assert_eq!(requests(), 3.0);
    assert_eq!(site.metrics().get("weft_upstream_requests_total", &labels), 3.0);
    // After a reload the counters continue, and the shared upstream is counted once.
    site.reload(&config(&format!("{routes}\"/c/\" = {{ respond = \"c\" }}\n")));
    until("the reload applies", || site.request_status("x", "/c/") == 200);
    send_requests();
    assert_eq!(site.metrics().get("weft_upstream_requests_total", &labels), 6.0);
    assert_eq!(requests(), 6.0);
}

#[test]
fn failed_health_checks_set_upstream_state_unhealthy() {
    let dead = unused_address();
    let site = Site::start(&format!(
        "[hosts.\"*\"]\n\"/\" = {{ proxy = \"http://{dead}/\", check = \"/health\", \
         check_interval = \"10ms\" }}\n"
    ));
    let unhealthy = format!("host=*,route=/,state=unhealthy,upstream=http://{dead}/");
    until("the upstream is unhealthy", || {
        site.metrics().sum("weft_upstream_state", &unhealthy) == 1.0
    });
}

#[test]
fn counts_requests_in_flight_and_disconnected_clients() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let site = Site::start(&format!("[hosts.\"*\"]\n\"/\" = \">> http://{address}/\"\n"));
    let mut client = Client::tcp(site.address);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let in_flight = || site.metrics().get("weft_requests_in_flight", "host=*,route=/");
    until("the request is in flight", || in_flight() == 1.0);
    let in_use = format!("host=*,route=/,state=in_use,upstream=http://{address}/");
    until("the request has an upstream connection", || {
        site.metrics().get("weft_upstream_connections", &in_use) == 1.0
    });
    assert_eq!(site.metrics().sum("weft_requests_total", ""), 0.0);
    client.leave();
    until("no request is in flight", || in_flight() == 0.0);
    let metrics = site.metrics();
    assert_eq!(metrics.get("weft_requests_total", "code=none,host=*,route=/"), 1.0);
    assert_eq!(metrics.check_histograms(), 5);
}

// -- events

/// Requests `/events` on a new connection.
fn events(site: &Site) -> TcpStream {
    let mut stream = TcpStream::connect(site.status).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // After a signal, the connection might not be accepted any more, or by the successor.
    stream.peek(&mut [0]).unwrap();
    stream
}

#[test]
fn events_are_sent_repeatedly() {
    let site = Site::start(ROUTES);
    let mut stream = events(&site);
    let mut received = String::new();
    let mut buffer = [0; 65536];
    while received.matches("data: {").count() < 3 {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "end of the stream: {received}");
        received.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    assert!(received.contains("content-type: text/event-stream\r\n"), "{received}");
}

#[test]
fn stop_ends_event_streams_immediately() {
    let mut site = Site::start(ROUTES);
    let mut stream = events(&site);
    let mut first = [0; 15];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    site.server.signal(Signal::QUIT);
    assert!(site.server.wait().success(), "{}", site.server.stderr());
    // The event stream ends with its last chunk and is not truncated.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"\r\n0\r\n\r\n"), "{}", rest.escape_ascii());
}

// -- reloads and upgrades

#[test]
fn counters_continue_after_a_reload() {
    let site = Site::start(ROUTES);
    (0..3).for_each(|_| _ = site.request_status("x", "/"));
    let with_other = ROUTES.replace("/none/", "/other/").replace("\"hello\"", "\"hello again\"");
    site.reload(&config(&with_other));
    until("the new route applies", || site.request_status("x", "/other/") == 404);
    site.request_status("x", "/");
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
fn reload_opens_and_closes_endpoint_listeners() {
    let site = Site::start(ROUTES);
    let socket = site.path("status");
    let more =
        config(ROUTES).replace("[status]\nlisten = [", "[status]\nlisten = [\"unix:status\", ");
    site.reload(&more);
    assert_eq!(Client::unix(&socket).get("/metrics").status, 200);
    assert_eq!(site.get_status_page("/metrics").status, 200);
    site.reload(&config(ROUTES).replace(STATUS_SECTION, ""));
    until("the listeners are closed", || {
        TcpStream::connect(site.status).is_err() && !socket.exists()
    });
    assert_eq!(site.request_status("x", "/"), 200);
    // Requests were counted while the endpoint had no listener.
    site.reload(&more);
    let metrics = String::from_utf8(Client::unix(&socket).get("/metrics").body).unwrap();
    let labels = "code=2xx,host=*,route=/";
    assert_eq!(Metrics::parse(&metrics).get("weft_requests_total", labels), 1.0);
}

#[test]
fn enabling_the_endpoint_requires_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weft.toml");
    let without = config(ROUTES).replace(STATUS_SECTION, "");
    fs::write(&path, &without).unwrap();
    let server = Weft::start(weft(["--config", "weft.toml"]).current_dir(folder.path()));
    let with =
        without.replace("[hosts.\"*\"]", "[status]\nlisten = \"unix:status\"\n[hosts.\"*\"]");
    fs::write(&path, with).unwrap();
    server.signal(Signal::HUP);
    let expected = "weft: changes to `status` take effect at the next start or upgrade\n\
                    weft: the configuration was reloaded\n";
    until("the reload is logged", || server.stderr().ends_with(expected));
    assert_eq!(server.client().get("/").status, 200);
    assert!(!folder.path().join("status").exists(), "the listener is not opened");
    server.stop();
}

#[test]
fn successor_serves_the_endpoint_after_an_upgrade() {
    let mut site = Site::start(ROUTES);
    site.request_status("x", "/");
    let started = site.metrics().get("process_start_time_seconds", "");
    let mut stream = events(&site);
    let former = site.pid();
    site.server.signal(Signal::USR2);
    until("the successor serves", || site.pid().is_some_and(|current| Some(current) != former));
    // The event stream of the former process ends, so that pages reconnect to the successor.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"\r\n0\r\n\r\n"), "{}", rest.escape_ascii());
    for _ in 0..20 {
        let metrics = site.metrics();
        assert!(metrics.get("process_start_time_seconds", "") > started);
        assert_eq!(metrics.sum("weft_requests_total", ""), 0.0);
    }
    assert_eq!(site.request_status("x", "/"), 200);
    assert_eq!(site.metrics().sum("weft_requests_total", ""), 1.0);
    assert!(site.server.wait().success(), "{}", site.server.stderr());
}

// -- chromium

/// A page in a browser, controlled by the Chrome DevTools Protocol.
struct Page {
    browser: Program,
    client: Client,
}

impl Page {
    fn open(browser: Program, url: &str) -> Page {
        let port = || -> Option<u16> {
            let stderr = browser.stderr();
            let (_, after) = stderr.split_once("DevTools listening on ws://127.0.0.1:")?;
            after.split_once('/')?.0.parse().ok()
        };
        until("the browser listens", || port().is_some());
        let address = SocketAddr::from(([127, 0, 0, 1], port().unwrap()));
        let mut path = None;
        until("the page is listed", || {
            let mut client = Client::tcp(address);
            client.send("GET /json/list HTTP/1.1\r\nHost: localhost\r\n\r\n");
            // The browser sends fields without a space after the colon.
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

    /// Returns the title and the visible text of the page.
    fn text(&mut self) -> String {
        let call = r#"{"id":1,"method":"Runtime.evaluate","params":{"expression":"document.title+document.body.innerText"}}"#;
        // A text frame with the masking key 0.
        assert!(call.len() < 126, "fits a frame with a 7-bit length");
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
fn chromium_page_updates_its_numbers() {
    if !has_tool("chromium") {
        return;
    }
    let site = Site::start(&format!("{ROUTES}\"/api/\" = \">> http://{}/\"\n", upstream()));
    let profile = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", site.status);
    let mut command = chromium(profile.path());
    command.args(["--remote-debugging-port=0", &url]);
    let mut page = Page::open(Program::start(&mut command), &url);
    until("the page is live", || page.text().contains("live"));
    let mut text = page.text();
    assert!(text.contains("weft-0") && text.contains("weft-1"), "{text}");
    assert!(text.contains("/old/"), "{text}");
    let mut client = Client::tcp(site.address);
    for (more, shown) in [(7, "7"), (1_000, "1,007")] {
        (0..more).for_each(|_| _ = client.get("/none/"));
        until("the page shows the requests", || {
            text = page.text();
            text.contains(&format!("\\t{shown}\\t"))
        });
    }
    assert!(text.contains("/s \\u00b7 weft"), "{text}");
    assert!(text.contains("Upstreams") && text.contains("\\tup\\t"), "{text}");
    let stderr = page.browser.stderr();
    let messages: Vec<&str> = stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert_eq!(messages, [""; 0]);
}

#[test]
fn chromium_page_reconnects_after_an_upgrade() {
    if !has_tool("chromium") {
        return;
    }
    let mut site = Site::start(ROUTES);
    let profile = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", site.status);
    let mut command = chromium(profile.path());
    command.args(["--remote-debugging-port=0", &url]);
    let mut page = Page::open(Program::start(&mut command), &url);
    (0..5).for_each(|_| _ = site.request_status("x", "/none/"));
    until("the page shows the requests", || page.text().contains("\\t5\\t"));
    site.server.signal(Signal::USR2);
    assert!(site.server.wait().success(), "{}", site.server.stderr());
    (0..11).for_each(|_| _ = site.request_status("x", "/none/"));
    until("the page shows the requests of the successor", || page.text().contains("\\t11\\t"));
}
