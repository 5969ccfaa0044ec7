//! The response cache before upstreams that fail, before scripts, and before many clients at once.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::common::external::PhpFpm;
use crate::common::{Client, PATIENCE, Response, Weft, raw_upstream, read_head, until, weft};

/// Behavior of an upstream for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behavior {
    /// 200 with the number of the request.
    Good,
    /// Closes the connection.
    Down,
    /// Does not respond.
    Silent,
    /// Closes the connection within the body.
    Cut,
    /// An error with this status.
    Error(u16),
}

/// An upstream, and its requests: in total, and the most at the same time.
#[derive(Clone)]
struct Upstream {
    address: SocketAddr,
    behavior: Arc<Mutex<Behavior>>,
    requests: Arc<AtomicUsize>,
    at_once: Arc<AtomicUsize>,
}

impl Upstream {
    fn start() -> Upstream {
        let behavior = Arc::new(Mutex::new(Behavior::Good));
        let (requests, at_once) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (now, active) = (behavior.clone(), Arc::<AtomicUsize>::default());
        let (count, most) = (requests.clone(), at_once.clone());
        let address = raw_upstream(move |_, mut stream| {
            let Some(_) = read_head(&mut stream) else { return };
            let behavior = *now.lock().unwrap();
            let number = count.fetch_add(1, SeqCst);
            most.fetch_max(active.fetch_add(1, SeqCst) + 1, SeqCst);
            respond(&mut stream, behavior, number);
            active.fetch_sub(1, SeqCst);
        });
        Upstream { address, behavior, requests, at_once }
    }

    fn set(&self, behavior: Behavior) {
        *self.behavior.lock().unwrap() = behavior;
    }
}

fn respond(stream: &mut TcpStream, behavior: Behavior, number: usize) {
    let (status, missing) = match behavior {
        Behavior::Good => (200, 0),
        Behavior::Cut => (200, 5),
        Behavior::Error(status) => (status, 0),
        Behavior::Down => return,
        Behavior::Silent => {
            // Until the proxy gives up.
            _ = stream.read(&mut [0]);
            return;
        }
    };
    let body = format!("response {number}");
    let head = format!(
        "HTTP/1.1 {status} X\r\nCache-Control: max-age=0\r\nETag: \"{number}\"\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len() + missing
    );
    _ = stream.write_all(head.as_bytes());
}

fn site(upstream: &Upstream, options: &str) -> (Weft, TempDir) {
    start(&format!(
        "\"/\" = {{ proxy = \"http://{}/\", max_retries = 0, max_failures = 1000, response_timeout = \
         \"200ms\", response_cache = {options} }}\n",
        upstream.address
    ))
}

/// Starts a server with these lines of a host.
fn start(routes: &str) -> (Weft, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("listen = \"127.0.0.1:0\"\nworkers = 2\n[hosts.\"*\"]\n{routes}");
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let mut command = weft(["-c", "weft.toml", "--no-log"]);
    (Weft::start(command.current_dir(folder.path())), folder)
}

fn get(server: &Weft, target: &str) -> Response {
    Client::tcp(server.address()).get(target)
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

/// Sends a request, and reads all bytes up to the end of the connection.
fn read_all(server: &Weft, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    // A response that is cut may end with a reset.
    _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

/// Each row: the options, the behavior of the upstream when the stored response is stale, and the
/// status; 200 is the stale response.
#[test]
fn stale_responses_are_sent_by_rule() {
    use Behavior::{Down, Error, Good, Silent};
    const PLAIN: &str = "true";
    const IF_ERROR: &str = "{ stale_if_error = \"1h\" }";
    const WHILE: &str = "{ stale_while_revalidate = \"1h\" }";
    for (options, behavior, status) in [
        (PLAIN, Down, 502),
        (PLAIN, Silent, 504),
        (PLAIN, Error(500), 500),
        (PLAIN, Error(503), 503),
        (IF_ERROR, Down, 200),
        (IF_ERROR, Silent, 200),
        (IF_ERROR, Error(500), 200),
        (IF_ERROR, Error(503), 200),
        // Not an error that a stale response may replace.
        (IF_ERROR, Error(404), 404),
        (WHILE, Down, 200),
        (WHILE, Silent, 200),
        (WHILE, Error(500), 200),
    ] {
        let case = format!("{options}, {behavior:?}");
        let upstream = Upstream::start();
        let (server, _folder) = site(&upstream, options);
        assert_eq!(text(&get(&server, "/")), "response 0", "{case}");
        upstream.set(behavior);
        let second = get(&server, "/");
        assert_eq!(second.status, status, "{case}: {:?}", second.head);
        assert_eq!(text(&second) == "response 0", status == 200, "{case}");
        // It recovers at once.
        upstream.set(Good);
        until(&case, || !["response 0", "response 1"].contains(&&*text(&get(&server, "/"))));
    }
}

/// A response that is cut neither replaces nor removes the stale one.
#[test]
fn a_cut_response_leaves_the_stale_one() {
    let upstream = Upstream::start();
    let (server, _folder) = site(&upstream, "{ stale_if_error = \"1h\" }");
    assert_eq!(text(&get(&server, "/")), "response 0");
    upstream.set(Behavior::Cut);
    let cut = read_all(&server, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(!cut.ends_with("response 0") && cut.len() < 500, "{cut}");
    upstream.set(Behavior::Down);
    assert_eq!(text(&get(&server, "/")), "response 0");
    assert_eq!(upstream.requests.load(SeqCst), 3);
}

/// Requests of many clients while the upstream fails, and when it recovers: one at a time.
#[test]
fn no_storm_reaches_an_upstream_that_fails_or_recovers() {
    const CLIENTS: usize = 20;
    for options in ["{ stale_if_error = \"1h\" }", "{ collapse_timeout = \"1m\" }"] {
        let upstream = Upstream::start();
        let (server, _folder) = site(&upstream, options);
        get(&server, "/");
        for behavior in [Behavior::Error(500), Behavior::Silent, Behavior::Good] {
            upstream.set(behavior);
            let before = upstream.requests.load(SeqCst);
            std::thread::scope(|scope| {
                for _ in 0..CLIENTS {
                    scope.spawn(|| get(&server, "/"));
                }
            });
            let requests = upstream.requests.load(SeqCst) - before;
            assert!((1..=CLIENTS).contains(&requests), "{options}, {behavior:?}: {requests}");
        }
        // The upstream may notice the end of one request after the start of the next.
        let at_once = upstream.at_once.load(SeqCst);
        assert!(at_once <= 3, "{options}: {at_once}");
    }
}

fn write_script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The requests of a site with scripts, each with true if the script must not run again for it.
const SCRIPT_REQUESTS: [(&str, bool); 9] = [
    ("GET PAGE", false),
    ("GET PAGE", true),
    ("HEAD PAGE", true),
    ("GET PAGE?a=1", false),
    ("GET PAGE?a=1", true),
    ("GET PAGE|Cookie: user=1", false),
    ("GET PAGE", true),
    // Invalidates the page.
    ("POST PAGE|Content-Length: 0", false),
    ("GET PAGE", false),
];

/// Sends the requests, and compares the number of runs that each response states.
#[track_caller]
fn check_scripts(server: &Weft, page: &str) {
    let mut last = String::new();
    for (row, (request, is_stored)) in SCRIPT_REQUESTS.into_iter().enumerate() {
        let request = request.replace("PAGE", page);
        let (line, fields) = request.split_once('|').unwrap_or((&request, "X: y"));
        let text = format!("{line} HTTP/1.0\r\nHost: a\r\n{fields}\r\n\r\n");
        let response = read_all(server, &text);
        let status = response.lines().find(|line| line.to_lowercase().starts_with("cache-status"));
        let status = status.unwrap_or_else(|| panic!("{row} {request}: {response}"));
        assert_eq!(status.contains("; hit"), is_stored, "{row} {request}: {response}");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{row} {request}: {response}");
        if !line.starts_with("HEAD") {
            assert_eq!(body == last, is_stored && row != 6, "{row} {request}: {response}");
            last = body.to_owned();
        }
    }
}

const BYPASS: &str = "{ bypass = { cookie = { user = true } } }";

#[test]
fn responses_of_cgi_scripts_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let script = format!(
        "#!/bin/sh\necho x >> {0}\n\
         printf 'Content-Type: text/plain\\nCache-Control: max-age=60\\n\\n'\nwc -l < {0}\n",
        count.display()
    );
    write_script(&folder.path().join("cgi/page"), &script);
    let cgi = folder.path().join("cgi");
    let route =
        format!("\"/cgi/\" = {{ cgi = \"{}\", response_cache = {BYPASS} }}\n", cgi.display());
    let (server, _folder) = start(&route);
    check_scripts(&server, "/cgi/page");
    let runs = fs::read_to_string(count).unwrap().lines().count();
    assert_eq!(runs, SCRIPT_REQUESTS.iter().filter(|(_, is_stored)| !is_stored).count());
}

#[test]
fn responses_of_fastcgi_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    write_script(
        &root.join("page.php"),
        "<?php header('Cache-Control: max-age=60'); echo bin2hex(random_bytes(8));",
    );
    let Some(fpm) = PhpFpm::start(folder.path()) else { return };
    let route = format!(
        "\"/\" = {{ files = \"{}\", php = \"unix:{}\", response_cache = {BYPASS} }}\n",
        root.display(),
        fpm.socket.display()
    );
    let (server, _folder) = start(&route);
    check_scripts(&server, "/page.php");
}

/// Clients of one cold response at the same time, some of which read slowly. The full size is the
/// command `bench/cache-crowd`.
#[test]
fn many_clients_of_a_cold_response_are_one_request() {
    const CLIENTS: usize = 200;
    const SLOW: usize = 10;
    const LENGTH: usize = 2 << 20;
    let content = || (0..LENGTH / 8).flat_map(|at| (at as u64).to_be_bytes()).collect::<Vec<u8>>();
    let requests = Arc::<AtomicUsize>::default();
    let count = requests.clone();
    let address = raw_upstream(move |_, mut stream| {
        let Some(_) = read_head(&mut stream) else { return };
        count.fetch_add(1, SeqCst);
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {LENGTH}\r\n\
             Connection: close\r\n\r\n"
        );
        _ = stream.write_all(head.as_bytes());
        content().chunks(100_000).for_each(|piece| _ = stream.write_all(piece));
    });
    let (server, _folder) = start(&format!(
        "\"/\" = {{ proxy = \"http://{address}/\", response_cache = {{ collapse_timeout = \"1m\" }} }}\n"
    ));
    let expected = content();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (server, expected) = (&server, &expected);
            scope.spawn(move || {
                let mut client = Client::tcp(server.address());
                client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
                client.head();
                let pieces = if number < SLOW { 64 } else { 1 };
                for piece in expected.chunks(LENGTH / pieces) {
                    if pieces > 1 {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                    }
                    assert!(client.body(piece.len()) == piece, "client {number}");
                }
            });
        }
    });
    assert_eq!(requests.load(SeqCst), 1);
}
