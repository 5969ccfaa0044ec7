//! Selection of one of several upstreams by the program.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use tempfile::TempDir;
use weft::testing::TestServer;
use weft::{Request, Response, StatusCode};

use crate::common::{Client, Signal, Weft, run, until, weft};

/// Starts the program with a route to `upstreams`.
fn serve(route: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "listen = \"127.0.0.1:0\"\nworkers = 2\nlog.access = \"none\"\n[hosts.\"*\"]\n\"/\" = {route}\n"
    );
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

/// Starts upstreams that respond with their number.
fn numbered(count: usize) -> Vec<TestServer> {
    let start = |number: usize| {
        TestServer::start(async move |_: Request| Response::text(number.to_string()))
    };
    (0..count).map(start).collect()
}

fn get(server: &Weft, target: &str) -> String {
    String::from_utf8(Client::tcp(server.address()).get(target).body).unwrap()
}

#[test]
fn equal_hash_keys_reach_the_same_upstream() {
    let mut upstreams = numbered(4);
    let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url("/")).collect();
    let route = |urls: &[String]| {
        let urls = urls.join(" ");
        format!(
            "{{ proxy = \"{urls}\", balance = \"hash\", hash_key = \"{{query.k}}\", max_failures = 1 }}"
        )
    };
    let (_folder, server) = serve(&route(&urls));
    // Another server, which has the upstreams in another order.
    let reversed: Vec<String> = urls.iter().rev().cloned().collect();
    let (_other_folder, other) = serve(&route(&reversed));
    let owners = |server: &Weft| -> Vec<String> {
        (0..40).map(|key| get(server, &format!("/?k={key}"))).collect()
    };
    let before = owners(&server);
    assert_eq!(before, owners(&server));
    assert_eq!(before, owners(&other));
    for number in 0..4 {
        assert!(before.contains(&number.to_string()), "{number} in {before:?}");
    }
    drop(upstreams.pop());
    for (before, after) in before.iter().zip(owners(&server)) {
        assert!(if before == "3" { after != "3" } else { *before == after }, "{before} {after}");
    }
    // Without a key, requests take turns.
    let turns: std::collections::BTreeSet<String> = (0..40).map(|_| get(&server, "/")).collect();
    assert_eq!(turns.into_iter().collect::<Vec<_>>(), ["0", "1", "2"]);
}

/// Returns the text of a response, and the cookie that it sets.
fn session(server: &Weft, cookie: &str) -> (String, Option<String>) {
    let mut client = Client::tcp(server.address());
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n"));
    let response = client.response();
    let cookie = response.header("set-cookie").map(ToOwned::to_owned);
    (String::from_utf8(response.body).unwrap(), cookie)
}

#[test]
fn sessions_stay_at_their_upstream() {
    let mut upstreams = numbered(3);
    let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url("/")).collect();
    let urls = urls.join(" ");
    let options = "sticky_cookie = \"srv\", sticky_max_age = \"1h\", max_failures = 1";
    let (folder, server) = serve(&format!("{{ proxy = \"{urls}\", {options} }}"));
    let mut cookies = std::collections::BTreeMap::new();
    for _ in 0..6 {
        let (number, cookie) = session(&server, "other=1");
        let cookie = cookie.unwrap();
        let (pair, attributes) = cookie.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Max-Age=3600");
        let known = cookies.entry(number).or_insert_with(|| pair.to_owned());
        assert_eq!(known, pair);
    }
    assert_eq!(cookies.len(), 3, "new clients take turns");
    for (number, cookie) in &cookies {
        assert!(!urls.split(' ').any(|url| cookie.contains(url)), "{cookie}");
        for fields in [cookie.clone(), format!("a=b; {cookie};c=d")] {
            for _ in 0..4 {
                assert_eq!(session(&server, &fields), (number.clone(), None));
            }
        }
    }
    // A value that is no tag is replaced.
    for forged in
        ["srv=", "srv=AAAAAAAAAAAAAAAAAAAAAA", "srv=0", &cookies["0"].replace("srv", "xsrv")]
    {
        assert!(session(&server, forged).1.is_some(), "{forged}");
    }
    // A reload keeps the sessions.
    let path = folder.path().join("weft.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("max_failures = 1", "max_failures = 1, via = \"other\""))
        .unwrap();
    let reloads = || server.stderr().matches("reloaded").count();
    let before = reloads();
    server.signal(Signal::HUP);
    until("the configuration is reloaded", || reloads() > before);
    for (number, cookie) in &cookies {
        assert_eq!(session(&server, cookie), (number.clone(), None));
    }
    // The sessions of an upstream that is gone get another one, and its cookie.
    drop(upstreams.remove(1));
    let (number, cookie) = session(&server, &cookies["1"]);
    assert!(number != "1");
    assert_eq!(cookie.unwrap().split_once(';').unwrap().0, cookies[&number]);
    assert_eq!(session(&server, &cookies["2"]), ("2".to_owned(), None));
}

/// Servers with the same key, in any order of the upstreams, set the same cookies.
#[test]
fn servers_with_the_same_key_share_their_sessions() {
    let upstreams = numbered(2);
    let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url("/")).collect();
    let secrets = tempfile::tempdir().unwrap();
    let secret = |name: &str, text: &str| {
        let path = secrets.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let shared = secret("a", "0123456789abcdef\n");
    let route = |urls: [&String; 2], secret: &str| {
        let urls = urls.map(String::as_str).join(" ");
        serve(&format!(
            "{{ proxy = \"{urls}\", sticky_cookie = \"s\", sticky_secret = \"{secret}\" }}"
        ))
    };
    let (_first_folder, first) = route([&urls[0], &urls[1]], &shared);
    let (_second_folder, second) = route([&urls[1], &urls[0]], &shared);
    let (_other_folder, other) = route([&urls[0], &urls[1]], &secret("b", "0123456789abcdeX"));
    for _ in 0..4 {
        let (number, cookie) = session(&first, "");
        let cookie = cookie.unwrap();
        assert!(!cookie.contains("Max-Age"), "{cookie}");
        let pair = cookie.split_once(';').unwrap().0;
        assert_eq!(session(&second, pair), (number, None));
        assert!(session(&other, pair).1.is_some(), "another key");
    }
    let short = secret("c", "0123456789abcde\n");
    let config = secrets.path().join("weft.toml");
    for (keys, reason) in [
        (format!("sticky_cookie = \"s\", sticky_secret = \"{short}\""), "fewer than 16 bytes"),
        ("sticky_cookie = \"s\", sticky_secret = \"none\"".to_owned(), "No such file"),
        ("sticky_cookie = \"a b\"".to_owned(), "is no name of a cookie"),
        ("sticky_cookie = \"\"".to_owned(), "expected the name of a cookie"),
        ("sticky_max_age = \"1h\"".to_owned(), "need `sticky_cookie`"),
    ] {
        fs::write(
            &config,
            format!("[hosts.\"*\"]\n\"/\" = {{ proxy = \"{}\", {keys} }}\n", urls[0]),
        )
        .unwrap();
        let output = run([Path::new("check"), &config]);
        assert!(output.stderr.contains(reason), "{keys}: {}", output.stderr);
    }
}

/// An upstream that responds with its number, or with a status that is set.
fn failing(count: usize) -> (Vec<TestServer>, Vec<Arc<AtomicU16>>) {
    let start = |number: usize| {
        let status = Arc::new(AtomicU16::new(200));
        let shared = status.clone();
        let server = TestServer::start(async move |request: Request| {
            drop(request.into_body().collect(1 << 20).await);
            let status = StatusCode::from_u16(shared.load(Relaxed)).unwrap();
            Response::text(number.to_string()).with_status(status)
        });
        (server, status)
    };
    (0..count).map(start).unzip()
}

/// Returns statuses with the numbers of the upstreams.
fn ask(server: &Weft, method: &str) -> String {
    let mut client = Client::tcp(server.address());
    let body = if method == "GET" { "" } else { "Content-Length: 1\r\n" };
    client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n{body}\r\n"));
    client.send(if body.is_empty() { "" } else { "x" });
    let response = client.response();
    format!("{} {}", response.status, String::from_utf8(response.body).unwrap())
}

#[test]
fn statuses_are_failures_if_configured() {
    let (upstreams, statuses) = failing(2);
    let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url("/")).collect();
    let urls = urls.join(" ");
    let keys = "failure_statuses = [\"502\", \"503\"], max_failures = 2, down_time = \"1h\"";
    let (_folder, server) = serve(&format!("{{ proxy = \"{urls}\", {keys} }}"));
    statuses[0].store(503, Relaxed);
    // Another upstream responds, and the first one gets no more requests after two failures.
    for _ in 0..6 {
        assert_eq!(ask(&server, "GET"), "200 1");
    }
    until("the upstream is down", || server.stderr().contains("fails again and again"));
    statuses[0].store(200, Relaxed);
    assert!((0..6).all(|_| ask(&server, "GET") == "200 1"));
    // If all have failed, their responses are forwarded.
    statuses[1].store(502, Relaxed);
    let found: Vec<String> = (0..6).map(|_| ask(&server, "GET")).collect();
    assert!(found.iter().all(|it| it == "502 1" || it == "200 0"), "{found:?}");
    statuses[1].store(500, Relaxed);
    let (_other_folder, other) = serve(&format!("{{ proxy = \"{urls}\", {keys} }}"));
    assert!((0..8).any(|_| ask(&other, "GET") == "500 1"), "another status is no failure");
    // Requests that may have had an effect are not repeated.
    statuses[1].store(503, Relaxed);
    let (_third_folder, third) = serve(&format!("{{ proxy = \"{urls}\", {keys} }}"));
    for method in ["POST", "PUT"] {
        assert!((0..8).any(|_| ask(&third, method) == "503 1"), "{method}");
    }
}

/// Of the first upstream's responses, each second one is a failure.
#[test]
fn a_rate_of_failures_is_a_failure_if_configured() {
    let (upstreams, statuses) = failing(2);
    let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url("/")).collect();
    let urls = urls.join(" ");
    let keys = "failure_statuses = [\"503\"], max_failures = 1000, down_time = \"1h\", \
                failure_window = \"1h\", max_retries = 0";
    for (rate, expected) in [("failure_rate = \"40%\"", false), ("failure_rate = \"60%\"", true)] {
        let (_folder, server) = serve(&format!("{{ proxy = \"{urls}\", {keys}, {rate} }}"));
        let mut status = 503;
        for _ in 0..60 {
            statuses[0].store(status, Relaxed);
            if ask(&server, "POST").ends_with(" 0") {
                status = if status == 503 { 200 } else { 503 };
            }
        }
        statuses[0].store(200, Relaxed);
        let is_used = (0..6).any(|_| ask(&server, "POST") == "200 0");
        assert_eq!(is_used, expected, "{rate}");
        let is_logged = server.stderr().contains("fails again and again");
        assert_eq!(is_logged, !expected, "{rate}");
    }
}

#[test]
fn upstreams_rest_only_as_long_as_enough_are_available() {
    let (upstreams, statuses) = failing(4);
    let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url("/")).collect();
    let urls = urls.join(" ");
    let keys =
        "failure_statuses = [\"503\"], max_failures = 1, down_time = \"1h\", max_retries = 0";
    // Upstreams that fail, and the responses once they have.
    for (min, failing, expected) in [
        ("", 0..3, &["200 3"][..]),
        (", min_available = \"50%\"", 0..2, &["200 2", "200 3"]),
        (", min_available = \"50%\"", 0..3, &["200 3", "503 0", "503 1", "503 2"]),
    ] {
        let (_folder, server) = serve(&format!("{{ proxy = \"{urls}\", {keys}{min} }}"));
        for (number, status) in statuses.iter().enumerate() {
            status.store(if failing.contains(&number) { 503 } else { 200 }, Relaxed);
        }
        (0..12).for_each(|_| _ = ask(&server, "POST"));
        let mut found: Vec<String> = (0..12).map(|_| ask(&server, "POST")).collect();
        found.sort();
        found.dedup();
        assert_eq!(found, expected, "{failing:?}{min}");
    }
}

#[test]
fn a_client_that_leaves_does_not_keep_an_upstream_from_others() {
    // The first upstream fails, then never responds, and then responds.
    let (state, calls) = <(Arc<AtomicU16>, Arc<AtomicU16>)>::default();
    let (current, called) = (state.clone(), calls.clone());
    let failing = TestServer::start(async move |_: Request| {
        called.fetch_add(1, Relaxed);
        match current.load(Relaxed) {
            0 => StatusCode::SERVICE_UNAVAILABLE.into(),
            1 => std::future::pending().await,
            _ => Response::text("failing"),
        }
    });
    let other = TestServer::start(async |_: Request| Response::text("other"));
    let keys = "failure_statuses = [\"503\"], max_failures = 1, down_time = \"4s\"";
    let urls = format!("{} {}", failing.url("/"), other.url("/"));
    let (_folder, server) = serve(&format!("{{ proxy = \"{urls}\", {keys} }}"));
    until("the upstream fails", || get(&server, "/") == "other" && calls.load(Relaxed) == 1);
    state.store(1, Relaxed);
    // Its rest ends, and a request waits for it.
    let mut clients = Vec::new();
    until("a request tries the upstream", || {
        std::thread::sleep(Duration::from_millis(50));
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        clients.push(client);
        calls.load(Relaxed) > 1
    });
    state.store(2, Relaxed);
    let began = std::time::Instant::now();
    clients.into_iter().for_each(Client::leave);
    until("the upstream is tried again", || get(&server, "/") == "failing");
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(3), "tried again after {waited:?}");
}

#[test]
fn slow_responses_are_failures_if_configured() {
    let start = |number: usize| {
        let is_slow = Arc::new(AtomicU16::new(0));
        let shared = is_slow.clone();
        let server = TestServer::start(async move |_: Request| {
            if shared.load(Relaxed) > 0 {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            Response::text(number.to_string())
        });
        (server, is_slow)
    };
    let (upstreams, slow): (Vec<_>, Vec<_>) = (0..2).map(start).unzip();
    let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url("/")).collect();
    let urls = urls.join(" ");
    let keys = "failure_latency = \"2s\", max_failures = 1, down_time = \"1h\"";
    let (_folder, server) = serve(&format!("{{ proxy = \"{urls}\", {keys} }}"));
    slow[0].store(1, Relaxed);
    // The slow response is forwarded, and the next requests go to the other upstream.
    assert!((0..4).any(|_| ask(&server, "GET") == "200 0"));
    until("the slow response is logged", || server.stderr().contains("the response took "));
    assert!((0..6).all(|_| ask(&server, "GET") == "200 1"));
    // If all are slow, they respond nevertheless.
    slow[1].store(1, Relaxed);
    assert!((0..2).all(|_| ask(&server, "GET").starts_with("200 ")));
}
