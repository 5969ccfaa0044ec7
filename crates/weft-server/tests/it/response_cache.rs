//! The response cache of routes: requests that must not change the responses to others, failures of
//! the upstream, reloads, and purges.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tempfile::TempDir;

use crate::common::{Client, Response, Signal, Weft, raw_upstream, read_head, until, weft};
use crate::config::run_in;

/// An upstream whose responses have the number of the request and its head in their bodies.
struct Origin {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    is_down: Arc<AtomicBool>,
}

impl Origin {
    fn start() -> Origin {
        let (requests, is_down) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counter, down) = (requests.clone(), is_down.clone());
        let address = raw_upstream(move |_, stream| {
            if !down.load(Relaxed) {
                respond(stream, &counter);
            }
        });
        Origin { address, requests, is_down }
    }
}

fn respond(mut stream: TcpStream, counter: &AtomicUsize) {
    let Some(head) = read_head(&mut stream) else { return };
    let number = counter.fetch_add(1, Relaxed);
    let path = head.split(' ').nth(1).unwrap();
    let name = path.trim_start_matches("/any").split('?').next().unwrap();
    let body = format!("{number} {}", head.replace("\r\n", "|"));
    let (status, fields) = match name {
        "/plain" => ("200 OK", ""),
        "/cookie" => ("200 OK", "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n"),
        "/cookie-public" => ("200 OK", "Cache-Control: public, max-age=60\r\nSet-Cookie: a=b\r\n"),
        "/public" => ("200 OK", "Cache-Control: public, max-age=60\r\n"),
        "/private" => ("200 OK", "Cache-Control: private, max-age=60\r\n"),
        "/tagged" => ("200 OK", "Cache-Control: max-age=60\r\nCache-Tag: one, two\r\n"),
        "/short-lived" => ("200 OK", "Cache-Control: max-age=0\r\n"),
        "/bad" if head.contains("big") => ("400 Bad Request", ""),
        "/range" if head.to_lowercase().contains("range:") => {
            ("206 Partial Content", "Cache-Control: max-age=60\r\nContent-Range: bytes 0-1/99\r\n")
        }
        _ => ("200 OK", "Cache-Control: max-age=60\r\n"),
    };
    // Longer than what is sent.
    let missing = if name == "/cut" && number == 0 { 10 } else { 0 };
    let length = body.len() + missing;
    let head = format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let _ = stream.write_all(head.as_bytes());
}

/// A server with a cache before an origin.
struct Site {
    origin: Origin,
    folder: TempDir,
    server: Weft,
}

impl Site {
    #[track_caller]
    fn start(options: &str) -> Site {
        let origin = Origin::start();
        let folder = tempfile::tempdir().unwrap();
        let status = folder.path().join("status");
        let url = format!("http://{}/", origin.address);
        let config = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 2\n[status]\nlisten = \"unix:{}\"\n\
             cache_purge = \"unix\"\n[hosts.\"*\"]\nmax_body_bytes = 1000\n\
             \"/\" = {{ proxy = \"{url}\", max_retries = 0, response_cache = {options} }}\n\
             \"/any/\" = {{ proxy = \"{url}any/\", max_retries = 0, max_failures = 1000, response_cache = \
             {{ lifetimes = {{ 100-599 = \"1h\" }} }} }}\n",
            status.display()
        );
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let mut command = weft(["-c", "weft.toml", "--no-log"]);
        let server = Weft::start(command.current_dir(folder.path()));
        Site { origin, folder, server }
    }

    /// Sends a request on a new connection: a request line and fields, with `|` between them, and
    /// behind `||` the body.
    #[track_caller]
    fn send(&self, request: &str) -> Response {
        let (head, body) = request.split_once("||").unwrap_or((request, ""));
        let host = if head.contains("|Host:") { "" } else { "\r\nHost: a" };
        let head = head.replace('|', "\r\n");
        let line = if head.contains(" HTTP/1.1") {
            head
        } else {
            let (line, fields) = head.split_once("\r\n").unwrap_or((&head, ""));
            let separator = if fields.is_empty() { "" } else { "\r\n" };
            format!("{line} HTTP/1.1{separator}{fields}")
        };
        let mut client = Client::tcp(self.server.address());
        client.send(format!("{line}{host}\r\n\r\n{body}"));
        client.response()
    }

    fn purge(&self, json: &str) -> (u16, String) {
        let mut client = Client::unix(&self.folder.path().join("status"));
        client.send(format!(
            "POST /cache/purge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{json}",
            json.len()
        ));
        let response = client.response();
        (response.status, text(&response).trim_end().to_owned())
    }

    fn metrics(&self) -> String {
        text(&Client::unix(&self.folder.path().join("status")).get("/metrics"))
    }

    /// Runs `weft cache` and returns its output.
    fn command(&self, arguments: &[&str]) -> String {
        let all = [&["cache"], arguments, &["weft.toml"]].concat();
        let output = run_in(self.folder.path(), &all);
        output.stdout + &output.stderr
    }
}

fn text(response: &Response) -> String {
    String::from_utf8(response.body.clone()).unwrap()
}

/// Returns true if another request has caused the response: it is stored, or about to be.
fn is_hit(response: &Response) -> bool {
    let status = response.header("Cache-Status").unwrap_or_default();
    status.contains("; hit") || status.contains("; collapsed")
}

/// Fields that only an attacker sends, and the origin reflects, are in no response to others. The same
/// request again shows that the cache is in use.
#[test]
fn unkeyed_parts_of_requests_poison_nothing() {
    let site = Site::start("true");
    for (number, attack) in [
        "GET /PATH|X-Forwarded-Host: evil",
        "GET /PATH|X-Forwarded-Scheme: evil",
        "GET /PATH|X-Host: evil",
        "GET /PATH|X-Original-URL: /evil",
        "GET /PATH|X-Rewrite-URL: /evil",
        "GET /PATH|X-HTTP-Method-Override: evil",
        "GET /PATH|Host: evil",
        "GET /PATH|Host: a:81",
        "GET /PATH?a=1&a=evil",
        "GET /PATH?evil",
        "GET /PATH%3fevil",
        "GET /PATH/evil",
        "HEAD /PATH|X-Forwarded-Host: evil",
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("p{number}");
        let attack = attack.replace("PATH", &path);
        let first = if attack.starts_with("HEAD") { None } else { Some(site.send(&attack)) };
        let victim = site.send(&format!("GET /{path}"));
        assert_eq!(victim.status, 200, "{attack}");
        assert!(!text(&victim).contains("evil"), "{attack}: {}", text(&victim));
        assert!(!is_hit(&victim), "{attack}: {:?}", victim.head);
        // The twin: an equal request gets the stored response.
        assert!(is_hit(&site.send(&format!("GET /{path}"))), "{attack}");
        if let Some(first) = first {
            let again = site.send(&attack);
            assert!(is_hit(&again), "{attack}: {:?}", again.head);
            assert_eq!(again.body, first.body, "{attack}");
        }
    }
}

/// Different spellings of a host have one response. Other spellings of a path, which an upstream
/// may see, have their own.
#[test]
fn spellings_of_a_resource_share_its_response() {
    let site = Site::start("true");
    let first = text(&site.send("GET /p|Host: example.org"));
    for same in ["GET /p|Host: EXAMPLE.org", "GET /p|Host: example.org:80"] {
        let response = site.send(same);
        assert!(is_hit(&response), "{same}: {:?}", response.head);
        assert_eq!(text(&response), first, "{same}");
    }
    for other in [
        "GET /P|Host: example.org",
        "GET /p?|Host: example.org",
        "GET /p|Host: example.com",
        "GET /x/../p|Host: example.org",
        "GET //p|Host: example.org",
    ] {
        assert!(!is_hit(&site.send(other)), "{other}");
    }
}

/// Spellings of paths, of which a proxy and its upstream might disagree. A response is shared only
/// by requests that the upstream receives with the same target.
#[test]
fn the_key_has_the_path_that_the_upstream_receives() {
    let site = Site::start("true");
    let spellings = [
        "/d/p",
        "/d//p",
        "//d/p",
        "/d/./p",
        "/d/x/../p",
        "/d/%2e/p",
        "/d/x/%2E%2e/p",
        "/d%2fp",
        "/d%2Fp",
        "/d/%70",
        "/d/p;a=1",
        "/d/p/",
        "/D/p",
        "/d/p%20",
        "/d/p+",
        "/d\\p",
        "/d%5Cp",
        "/d/p?",
        "/d/p?a=1",
        "/d/p?a=%31",
        "/d/p?a=1&a=2",
        "/d/p?a=2&a=1",
        "/d/p?A=1",
        "/d/p%3Fa=1",
        "/d/p%00",
        "/d/p%0d%0aX:y",
        "http://a/d/p",
        "HTTP://A:80/d/p",
        "/d/p.css",
        "/d/p%23",
        "/d/p%252e",
    ];
    // A request that is not safe shows the target, and is answered by the upstream.
    let target = |spelling: &str| {
        let response = site.send(&format!("POST {spelling}|Content-Length: 0"));
        let line = text(&response).split(['|', '\r']).next().unwrap_or_default().to_owned();
        (response.status == 200).then(|| line.split(' ').nth(2).unwrap().to_owned())
    };
    let targets = spellings.map(target);
    assert!(targets.iter().flatten().count() > 20, "{targets:?}");
    let mut shared = 0;
    for _ in 0..2 {
        for (spelling, target) in spellings.iter().zip(&targets) {
            let response = site.send(&format!("GET {spelling}"));
            assert_eq!(
                (response.status == 200).then_some(()),
                target.as_ref().map(|_| ()),
                "{spelling}"
            );
            let Some(target) = target else { continue };
            let received = text(&response);
            assert_eq!(received.split(' ').nth(2), Some(&**target), "{spelling}: {received}");
            shared += usize::from(is_hit(&response));
        }
    }
    assert!(shared > spellings.len() / 2, "the cache is in use: {shared}");
}

#[test]
fn requests_with_a_body_are_not_cached() {
    let site = Site::start("true");
    site.send("GET /fat|Content-Length: 4||evil");
    let victim = site.send("GET /fat");
    assert!(!is_hit(&victim) && !text(&victim).contains("ontent-"), "{}", text(&victim));
    assert!(!is_hit(&site.send("GET /fat|Content-Length: 4||evil")));
    assert!(is_hit(&site.send("GET /fat")));
}

#[test]
fn parts_are_not_stored_as_the_whole() {
    let site = Site::start("true");
    assert_eq!(site.send("GET /range|Range: bytes=0-1").status, 206);
    let whole = site.send("GET /range");
    assert!(whole.status == 200 && !is_hit(&whole), "{:?}", whole.head);
    until("the response is stored", || site.metrics().contains("weft_cache_entries 1\n"));
    let part = site.send("GET /range|Range: bytes=0-1");
    assert_eq!((part.status, part.body.as_slice()), (206, &whole.body[..2]));
    assert!(is_hit(&part), "{:?}", part.head);
}

#[test]
fn errors_and_truncated_responses_are_not_stored() {
    let site = Site::start("true");
    assert_eq!(site.send("GET /bad|X-Big: big").status, 400);
    // For a while, requests of a URL without a stored response are not collapsed, and not stored.
    until("the good response is stored", || {
        assert_eq!(site.send("GET /bad").status, 200);
        is_hit(&site.send("GET /bad|X-Big: big"))
    });

    let site = Site::start("true");
    let mut stream = TcpStream::connect(site.server.address()).unwrap();
    stream.write_all(b"GET /cut HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // Up to its end: a request before that gets the same response, which is cut, too. The end may
    // be a reset.
    _ = stream.read_to_end(&mut Vec::new());
    assert_eq!(site.origin.requests.load(Relaxed), 1);
    let second = site.send("GET /cut");
    assert!(!is_hit(&second) && text(&second).starts_with("1 "), "{:?}", second.head);
    assert!(is_hit(&site.send("GET /cut")));
}

/// Even with lifetimes for all statuses.
#[test]
fn errors_of_this_server_are_not_stored() {
    let site = Site::start("true");
    site.origin.is_down.store(true, Relaxed);
    assert_eq!(site.send("GET /any/plain").status, 502);
    assert_eq!(site.send("POST /any/plain|Content-Length: 2000").status, 413);
    site.origin.is_down.store(false, Relaxed);
    assert_eq!(site.send("GET /any/plain").status, 200);
    assert!(is_hit(&site.send("GET /any/plain")), "a response of the origin is stored");
}

#[test]
fn private_responses_are_not_stored() {
    let site = Site::start("true");
    for (request, is_stored) in [
        ("GET /plain", false),
        ("GET /private", false),
        ("GET /cookie", false),
        ("GET /cookie-public", true),
        ("GET /page|Authorization: Basic eDp4", false),
        ("GET /public|Authorization: Basic eDp4", true),
        ("POST /post|Content-Length: 0", false),
    ] {
        site.send(request);
        assert_eq!(is_hit(&site.send(request)), is_stored, "{request}");
    }
}

#[test]
fn stale_responses_replace_errors_within_their_time() {
    for (options, expected) in [("{ stale_if_error = \"1h\" }", 200), ("true", 502)] {
        let site = Site::start(options);
        let first = site.send("GET /short-lived");
        site.origin.is_down.store(true, Relaxed);
        let second = site.send("GET /short-lived");
        assert_eq!(second.status, expected, "{options}");
        assert_eq!(second.body == first.body, expected == 200);
        site.origin.is_down.store(false, Relaxed);
    }
}

#[test]
fn conditions_let_requests_pass() {
    let site = Site::start("{ bypass = { cookie = { session = true } }, query = [\"!= utm\"] }");
    site.send("GET /p");
    let passed = site.send("GET /p|Cookie: session=1");
    assert_eq!(passed.header("Cache-Status"), Some("Weft; fwd=bypass"));
    assert!(is_hit(&site.send("GET /p|Cookie: other=1")));
    assert!(is_hit(&site.send("GET /p?utm=1")));
    assert!(!is_hit(&site.send("GET /p?page=1")));
    assert!(site.metrics().contains("result=\"bypassed\"} 1\n"), "{}", site.metrics());
}

#[test]
fn a_reload_keeps_responses() {
    let site = Site::start("true");
    site.send("GET /p");
    until("the response is stored", || site.metrics().contains("weft_cache_entries 1\n"));
    let path = site.folder.path().join("weft.toml");
    let config = fs::read_to_string(&path).unwrap();
    let reload = |config: &str| {
        fs::write(&path, config).unwrap();
        let count = || site.server.stderr().matches("the configuration was reloaded").count();
        let before = count();
        site.server.signal(Signal::HUP);
        until("the configuration is reloaded", || count() > before);
    };
    // Another cache of the route, with the same store.
    let changed = config.replacen("response_cache = true", "response_cache = { min_uses = 2 }", 1);
    assert_ne!(changed, config);
    reload(&changed);
    assert!(is_hit(&site.send("GET /p")));
    // Another store.
    reload(&format!("{changed}[response_cache]\nmemory = \"1MiB\"\n"));
    assert!(!is_hit(&site.send("GET /p")));
}

#[test]
fn purges_remove_responses() {
    let site = Site::start("true");
    let fill = || ["/tagged", "/a/1", "/a/2", "/b"].map(|path| site.send(&format!("GET {path}")));
    let stored = || {
        let paths = ["/tagged", "/a/1", "/a/2", "/b"];
        paths.map(|path| is_hit(&site.send(&format!("GET {path}|Cache-Control: only-if-cached"))))
    };
    for (purge, count, expected) in [
        ("{\"url\":\"http://a/b\"}", 1, [true, true, true, false]),
        ("{\"url\":\"HTTP://A:80/b\"}", 1, [true, true, true, false]),
        ("{\"url\":\"http://a/\"}", 0, [true; 4]),
        ("{\"prefix\":\"http://a/a/\"}", 2, [true, false, false, true]),
        ("{\"tag\":\"two\"}", 1, [false, true, true, true]),
        ("{\"tag\":\"three\"}", 0, [true; 4]),
        ("{\"all\":true,\"soft\":true}", 4, [false; 4]),
        ("{\"all\":true}", 4, [false; 4]),
    ] {
        fill();
        until("all are stored", || site.metrics().contains("weft_cache_entries 4\n"));
        assert_eq!(stored(), [true; 4], "{purge}");
        assert_eq!(site.purge(purge), (200, format!("{{\"purged\":{count}}}")), "{purge}");
        assert_eq!(stored(), expected, "{purge}");
    }
}

#[test]
fn invalid_purges_and_other_clients_are_refused() {
    let site = Site::start("true");
    site.send("GET /p");
    for purge in ["", "{}", "{\"url\":\"/p\"}", "{\"tag\":\"a\",\"all\":true}", "{\"al\":true}"] {
        assert_eq!(site.purge(purge).0, 422, "{purge}");
    }
    assert_eq!(site.purge(&format!("{{\"tag\":\"{}\"}}", "x".repeat(20_000))).0, 413);
    let mut client = Client::unix(&site.folder.path().join("status"));
    client.send("POST /cache/purge HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 403);
    assert_eq!(Client::unix(&site.folder.path().join("status")).get("/cache/purge").status, 405);
    assert!(is_hit(&site.send("GET /p")), "nothing is removed");
    assert_eq!(site.purge("{\"all\":true}").0, 200);
}

#[test]
fn the_command_line_shows_and_purges() {
    let site = Site::start("true");
    site.send("GET /p?x=1");
    until("the response is stored", || site.metrics().contains("weft_cache_entries 1\n"));
    for _ in 0..3 {
        site.send("GET /p?x=1");
    }
    let status = site.command(&["status"]);
    assert!(
        status.starts_with("answered without the upstream: 75.0 % of 4 requests\n"),
        "{status}"
    );
    let list = site.command(&["list", "--hottest"]);
    assert!(list.ends_with("  http://a/p?x=1\n"), "{list}");
    assert_eq!(
        site.command(&["purge", "--prefix", "http://a/", "--soft"]),
        "1 responses are stale now\n"
    );
    assert_eq!(site.command(&["purge", "--all"]), "1 responses removed\n");
    let refused = site.command(&["purge"]);
    assert!(refused.contains("the server refused (422): expected one of"), "{refused}");
    let metrics = site.metrics();
    for line in [
        "route=\"/\",result=\"hit\"} 3\n",
        "route=\"/\",result=\"miss\"} 1\n",
        "weft_cache_entries 0\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}
