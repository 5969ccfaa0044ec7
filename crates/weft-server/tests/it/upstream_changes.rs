//! Changes of upstreams by clients of the status endpoint: draining, disabling and weights.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{
    Client, PATIENCE, Response, Signal, Weft, raw_upstream, read_head, until, weft,
};
use crate::dns::server::DnsServer;

struct Server {
    folder: TempDir,
    server: Weft,
}

impl Server {
    /// Starts a worker with these routes, and a status endpoint on which clients may make changes.
    fn start(permitted: &str, routes: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let status = folder.path().join("status");
        let config = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\n[status]\nlisten = [\"unix:{}\", \
             \"127.0.0.1:0\"]\nhosts = [\"*\"]\nupstream_changes = \"{permitted}\"\n\
             [hosts.\"*\"]\n{routes}\n",
            status.display()
        );
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let file = folder.path().join("weft.toml");
        let server = Weft::start(weft([Path::new("-c"), &file]).arg("--no-log"));
        Server { folder, server }
    }

    fn unix(&self) -> Client {
        Client::unix(&self.folder.path().join("status"))
    }

    fn loopback(&self) -> Client {
        let (_, address) = self.server.announcement.rsplit_once("http://").unwrap();
        Client::tcp(address.trim().parse().unwrap())
    }

    fn change(&self, change: &str) -> Response {
        patch(self.unix(), JSON, change)
    }

    /// Makes a change that succeeds. Returns states and weights of the changed upstreams.
    fn set(&self, change: &str) -> String {
        let response = self.change(change);
        let text = String::from_utf8(response.body).unwrap();
        assert_eq!(response.status, 200, "{text}");
        states(&serde_json::from_str(&text).unwrap())
    }

    /// States and weights of all upstreams.
    fn states(&self) -> String {
        states(&serde_json::from_slice(&self.unix().get("/status.json").body).unwrap())
    }

    /// Responses to so many requests of new clients.
    fn responses(&self, count: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..count {
            *counts.entry(self.session("")).or_default() += 1;
        }
        counts
    }

    /// Response to a client with a cookie.
    fn session(&self, cookie: &str) -> String {
        let mut client = self.server.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n"));
        let response = client.response();
        match response.status {
            200 => String::from_utf8(response.body).unwrap(),
            status => status.to_string(),
        }
    }

    fn reload(&self, from: &str, to: &str) {
        let path = self.folder.path().join("weft.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).unwrap();
        let reloads = || self.server.stderr().matches("the configuration was reloaded").count();
        let before = reloads();
        self.server.signal(Signal::HUP);
        until("the configuration is reloaded", || reloads() > before);
    }
}

fn states(json: &Value) -> String {
    let state = |it: &Value| format!("{}*{}", it["state"].as_str().unwrap(), it["weight"]);
    json["upstreams"].as_array().unwrap().iter().map(state).collect::<Vec<_>>().join(" ")
}

const JSON: &str = "Host: localhost\r\nContent-Type: application/json\r\n";

fn patch(mut client: Client, fields: &str, change: &str) -> Response {
    let length = change.len();
    client.send(format!(
        "PATCH /upstreams HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{change}"
    ));
    client.response()
}

/// Starts an upstream that responds with its name.
fn named(name: &'static str) -> SocketAddr {
    raw_upstream(move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            let length = name.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}").unwrap();
        }
    })
}

/// A URL has the same meaning with and without a slash at its end.
#[test]
fn upstreams_are_found_by_urls_with_and_without_a_slash() {
    let [a, b] = [named("a"), named("b")];
    let server =
        Server::start("unix", &format!("\"/\" = {{ proxy = \"http://{a} http://{b}/app/\" }}"));
    for url in [format!("http://{a}"), format!("http://{a}/"), format!("http://{b}/app")] {
        let change = format!("{{\"upstream\": \"{url}\", \"weight\": 7}}");
        let response = server.change(&change);
        let json: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((response.status, &*states(&json)), (200, "up*7"), "{url}");
    }
    let other = server.change(&format!("{{\"upstream\": \"http://{b}/\", \"weight\": 7}}"));
    assert_eq!(other.status, 404);
    server.server.stop();
}

#[test]
fn drained_upstream_gets_requests_of_its_sessions_only() {
    let [a, b] = [named("a"), named("b")];
    let server = Server::start(
        "unix",
        &format!("\"/\" = {{ proxy = \"http://{a}/ http://{b}/\", sticky_cookie = \"srv\" }}"),
    );
    let mut client = server.server.client();
    let first = client.get("/");
    assert_eq!(first.body, b"a");
    let cookie = first.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let both = BTreeMap::from([("a".to_owned(), 5), ("b".to_owned(), 5)]);
    let only_b = BTreeMap::from([("b".to_owned(), 10)]);
    assert_eq!(server.responses(10), both);
    for (state, of_new_clients, of_session) in
        [("draining", &only_b, "a"), ("disabled", &only_b, "b"), ("up", &both, "a")]
    {
        let change = format!("{{\"upstream\": \"http://{a}/\", \"state\": \"{state}\"}}");
        assert_eq!(server.set(&change), format!("{state}*1"));
        assert_eq!(server.states(), format!("{state}*1 up*1"));
        assert_eq!(
            (&server.responses(10), &*server.session(&cookie)),
            (of_new_clients, of_session)
        );
        let metrics = String::from_utf8(server.unix().get("/metrics").body).unwrap();
        let sample = format!("upstream=\"http://{a}/\",state=\"{state}\"}} 1");
        assert!(metrics.contains(&sample), "{metrics}");
        let line = format!("a client changed the upstream http://{a}/ of * /: state {state}");
        until("the change is logged", || server.server.stderr().contains(&line));
    }
    // Without another upstream, there is no response.
    for address in [a, b] {
        server.set(&format!("{{\"upstream\": \"http://{address}/\", \"state\": \"draining\"}}"));
    }
    assert_eq!((&*server.session(""), &*server.session(&cookie)), ("503", "a"));
    server.server.stop();
}

#[test]
fn requests_in_progress_complete_while_an_upstream_is_disabled() {
    let (begun, has_begun) = mpsc::channel();
    let (proceed, may_proceed) = mpsc::channel();
    let may_proceed = std::sync::Mutex::new(may_proceed);
    let slow = raw_upstream(move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl").unwrap();
            begun.send(()).unwrap();
            may_proceed.lock().unwrap().recv().unwrap();
            stream.write_all(b"ow").unwrap();
        }
    });
    let server = Server::start("unix", &format!("\"/\" = \">> http://{slow}/\""));
    let mut client = server.server.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    has_begun.recv().unwrap();
    server.set(&format!("{{\"upstream\": \"http://{slow}/\", \"state\": \"disabled\"}}"));
    assert_eq!(server.session(""), "503");
    proceed.send(()).unwrap();
    assert_eq!(client.response().body, b"slow");
    server.server.stop();
}

#[test]
fn weights_change_the_shares() {
    let [a, b] = [named("a"), named("b")];
    let upstreams = format!("http://{a}/ http://{b}/");
    let server = Server::start(
        "loopback",
        &format!(
            "\"/\" = \">> {upstreams}\"\n\"/other\" = {{ proxy = \"{upstreams}\", via = \"x\" }}"
        ),
    );
    let shares = |a: usize, b: usize| BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
    assert_eq!(server.responses(20), shares(10, 10));
    // Of all routes, or of one.
    assert_eq!(
        server.set(&format!("{{\"upstream\": \"http://{a}/\", \"weight\": 2}}")),
        "up*2 up*2"
    );
    let of_route = format!(
        "{{\"upstream\": \"http://{a}/\", \"host\": \"*\", \"prefix\": \"/\", \"weight\": 4}}"
    );
    assert_eq!(server.set(&of_route), "up*4 up*2");
    assert_eq!(server.responses(20), shares(16, 4));
    // A reload keeps the state, also if the route has changed otherwise.
    server.set(&format!("{{\"upstream\": \"http://{b}/\", \"state\": \"draining\"}}"));
    server.reload(">> http", ">>  http");
    assert_eq!(server.states(), "up*4 draining*1 up*2 draining*1");
    server.reload("via = \"x\"", "via = \"y\"");
    assert_eq!(server.states(), "up*4 draining*1 up*2 draining*1");
    // The weight of the new configuration applies if it differs from the former weight.
    server.reload(&format!("http://{a}/ "), &format!("http://{a}/ weight=3 "));
    assert_eq!(server.states(), "up*3 draining*1 up*3 draining*1");
    // An upstream that was gone begins anew.
    server.reload(&format!(" http://{b}/"), "");
    server.reload("weight=3", &format!("weight=3 http://{b}/"));
    assert_eq!(server.states(), "up*3 up*1 up*3 up*1");
    server.server.stop();
}

/// Each row: `upstream_changes`, the connection, fields, and the status of the response.
#[test]
fn accepts_changes_from_expected_clients_only() {
    for (permitted, rows) in [
        ("never", &[("unix", "", 403), ("loopback", "", 403)][..]),
        ("unix", &[("unix", "", 200), ("loopback", "", 403)]),
        (
            "loopback",
            &[
                ("unix", "", 200),
                ("loopback", "", 200),
                ("loopback", "Origin: http://localhost\r\n", 403),
                ("unix", "Sec-Fetch-Site: same-origin\r\n", 403),
                ("unix", "Via: 1.1 weft\r\n", 403),
                ("loopback", "X-Forwarded-For: 192.0.2.1\r\n", 403),
            ],
        ),
    ] {
        let server = Server::start(permitted, "\"/\" = \">> http://127.0.0.1:9/\"");
        let change = "{\"upstream\": \"http://127.0.0.1:9/\", \"state\": \"disabled\"}";
        for (connection, fields, expected) in rows {
            let client = match *connection {
                "unix" => server.unix(),
                _ => server.loopback(),
            };
            let response = patch(client, &format!("{JSON}{fields}"), change);
            assert_eq!(response.status, *expected, "{permitted} {connection} {fields}");
        }
        let rebound = JSON.replace("localhost", "rebound.example");
        assert_eq!(patch(server.loopback(), &rebound, change).status, 403);
        server.server.stop();
    }
}

#[test]
fn refuses_other_methods_and_contents() {
    let server = Server::start("unix", "\"/\" = \">> http://127.0.0.1:9/\"");
    for (change, status, reason) in [
        ("{}", 422, "missing field `upstream`"),
        ("{\"upstream\": \"http://127.0.0.1:9/\"}", 422, "a `state`, a `weight` or both"),
        ("{\"upstream\": \"x\", \"state\": \"gone\"}", 422, "unknown variant `gone`"),
        ("{\"upstream\": \"x\", \"weight\": 0}", 422, "from 1 to 65535"),
        ("{\"upstream\": \"x\", \"weight\": 65536}", 422, "from 1 to 65535"),
        ("{\"upstream\": \"x\", \"wait\": 1}", 422, "unknown field `wait`"),
        ("{\"upstream\": \"x\", \"weight\": 1}", 404, "known are http://127.0.0.1:9/"),
        (
            "{\"upstream\": \"http://127.0.0.1:9/\", \"prefix\": \"/x/\", \"weight\": 1}",
            404,
            "no such upstream",
        ),
    ] {
        let response = server.change(change);
        let text = String::from_utf8(response.body).unwrap();
        assert!(response.status == status && text.contains(reason), "{change}: {text}");
    }
    assert_eq!(patch(server.unix(), "Host: a\r\n", "{}").status, 415);
    assert_eq!(patch(server.unix(), JSON, &" ".repeat(8193)).status, 413);
    for method in ["PUT", "OPTIONS"] {
        let mut client = server.unix();
        client.send(format!("{method} /upstreams HTTP/1.1\r\n{JSON}Content-Length: 0\r\n\r\n"));
        let response = client.response();
        assert_eq!(
            (response.status, response.header("allow")),
            (405, Some("GET, HEAD, PATCH, POST, DELETE")),
            "{method}"
        );
    }
    let list = server.unix().get("/upstreams");
    let list: Value = serde_json::from_slice(&list.body).unwrap();
    assert_eq!(states(&list), "up*1");
    assert_eq!(server.states(), "up*1");
    server.server.stop();
}

// -- mirrors

#[test]
fn mirror_that_is_taken_out_gets_no_copies() {
    let (upstream, (sender, copies)) = (named("a"), mpsc::channel());
    let mirror = raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            sender.send(head.split(' ').nth(1).unwrap().to_owned()).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let keys = format!("proxy = \"http://{upstream}/\", mirror = \"http://{mirror}/\"");
    let server = Server::start("unix", &format!("\"/\" = {{ {keys} }}"));
    let get = |path: &str| assert_eq!(server.server.client().get(path).body, b"a", "{path}");
    let set = |state: &str, expected: &str| {
        let change = format!("{{\"upstream\": \"http://{mirror}/\", \"state\": \"{state}\"}}");
        assert_eq!(server.set(&change), expected);
    };
    let copied = || copies.recv_timeout(PATIENCE).unwrap();
    get("/1");
    assert_eq!(copied(), "/1");
    for state in ["disabled", "draining"] {
        set(state, &format!("{state}*1"));
        (0..5).for_each(|_| get("/without-a-copy"));
        server.reload("workers = 1\n", "workers = 1\n\n");
        assert_eq!(server.states(), format!("up*1 {state}*1"));
        get("/without-a-copy");
        set("up", "up*1");
        get("/2");
        assert_eq!(copied(), "/2", "{state}");
    }
    assert!(!server.server.stderr().contains("no upstream"), "{}", server.server.stderr());
}

/// Servers of a service that the DNS leaves out for a while, with another weight, and after a
/// reload.
#[test]
fn servers_of_services_keep_the_changes_of_operators() {
    const SERVICE: &str = "_http._tcp.app.example";
    let dns = DnsServer::start();
    let [a, b] = [named("a").port(), named("b").port()];
    dns.set_addresses("n.example", 60, &[[127, 0, 0, 1]]);
    let weights = |of_a, of_b| {
        dns.set_services(SERVICE, 0, &[(1, of_a, a, "n.example"), (1, of_b, b, "n.example")]);
    };
    weights(1, 1);
    let resolver = dns.address;
    let server = Server::start(
        "unix",
        &format!(
            "\"/\" = {{ proxy = \"srv+http://{SERVICE}/\", resolver = \"{resolver}\", max_failures = 7 }}"
        ),
    );
    let until_states = |expected: &str| {
        until(expected, || {
            // Requests look the service up.
            server.session("");
            let states = server.states();
            let mut states: Vec<_> = states.split(' ').collect();
            states.sort_unstable();
            states.join(" ") == expected
        });
    };
    until_states("up*1 up*1");
    let of_a = format!("{{\"upstream\": \"http://n.example:{a}/\", \"state\": \"draining\"}}");
    assert_eq!(server.set(&of_a), "draining*1");
    let of_b = format!("{{\"upstream\": \"http://n.example:{b}/\", \"weight\": 5}}");
    assert_eq!(server.set(&of_b), "up*5");
    // A weight of the DNS replaces only a weight that no operator has set.
    weights(2, 3);
    until_states("draining*2 up*5");
    dns.set_services(SERVICE, 0, &[(1, 3, b, "n.example")]);
    until_states("up*5");
    weights(2, 3);
    until_states("draining*2 up*5");
    server.reload("max_failures = 7", "max_failures = 8");
    until_states("draining*2 up*5");
    assert_eq!(server.set(&of_a.replace("draining", "up")), "up*2");
    until_states("up*2 up*5");
}

/// Sends a change by another method, and returns the status and the text.
fn send(server: &Server, method: &str, change: &str) -> (u16, String) {
    let mut client = server.unix();
    client.send(format!(
        "{method} /upstreams HTTP/1.1\r\n{JSON}Content-Length: {}\r\n\r\n{change}",
        change.len()
    ));
    let response = client.response();
    (response.status, String::from_utf8(response.body).unwrap())
}

/// Upstreams that were added get requests at once, and no more after they were removed. A reload
/// reads the configuration.
#[test]
fn upstreams_are_added_and_removed_until_a_reload() {
    let [one, two, three] = ["one", "two", "three"].map(named);
    let server = Server::start("unix", &format!("\"/\" = \">> http://{one}/ http://{two}/\""));
    assert_eq!(server.responses(8).len(), 2);
    let of_route = "\"host\": \"*\", \"prefix\": \"/\"";
    let added = format!("{{\"upstream\": \"http://{three} weight=2\", {of_route}}}");
    let (status, text) = send(&server, "POST", &added);
    assert_eq!((status, text.contains(&three.to_string())), (200, true), "{text}");
    assert_eq!(server.responses(8), count([("one", 2), ("two", 2), ("three", 4)]));
    let metrics = String::from_utf8(server.unix().get("/metrics").body).unwrap();
    let requests =
        format!("weft_upstream_requests_total{{host=\"*\",route=\"/\",upstream=\"http://{three}");
    assert!(metrics.contains(&requests), "{metrics}");
    // It has a state and a weight of its own.
    assert_eq!(
        server
            .set(&format!("{{\"upstream\": \"http://{three}/\", \"weight\": 1}}"))
            .lines()
            .count(),
        1
    );
    let removed = format!("{{\"upstream\": \"http://{one}/\"}}");
    assert_eq!(send(&server, "DELETE", &removed).0, 200);
    assert_eq!(server.responses(8), count([("two", 4), ("three", 4)]));
    for (method, change, status, expected) in [
        ("POST", added.clone(), 422, "given twice"),
        ("POST", format!("{{\"upstream\": \"http://{one}\"}}"), 422, "its `host` and `prefix`"),
        ("POST", added.replace("\"/\"", "\"/none/\""), 404, "no route to upstreams"),
        ("POST", added.replace("http:", "https:"), 422, "the route has no upstream with TLS"),
        ("POST", added.replace(&three.to_string(), ""), 422, ""),
        ("POST", added.replace('}', ", \"weight\": 2}"), 422, "follow its URL"),
        ("DELETE", removed.clone(), 404, "no such upstream"),
        ("DELETE", removed.replace('}', ", \"state\": \"up\"}"), 422, "no `state` and no `weight`"),
    ] {
        let (found, text) = send(&server, method, &change);
        assert_eq!(found, status, "{method} {change}: {text}");
        assert!(text.contains(expected), "{method} {change}: {text}");
    }
    assert_eq!(send(&server, "DELETE", &format!("{{\"upstream\": \"http://{two}/\"}}")).0, 200);
    let (status, text) = send(&server, "DELETE", &format!("{{\"upstream\": \"http://{three}/\"}}"));
    assert_eq!(status, 422, "{text}");
    assert!(text.contains("the last upstream of its route"), "{text}");
    server.reload("workers = 1", "workers = 1\n# changed");
    until("the configuration is in effect", || server.responses(8).len() == 2);
    assert_eq!(server.responses(8), count([("one", 4), ("two", 4)]));
}

/// An upstream with a name, whose health checks get this status.
fn checked(name: &'static str, status: u16) -> SocketAddr {
    raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let status = if head.starts_with("GET /health ") { status } else { 200 };
            let length = name.len();
            write!(stream, "HTTP/1.1 {status} S\r\nContent-Length: {length}\r\n\r\n{name}")
                .unwrap();
        }
    })
}

/// An upstream that was added gets no request before its first check, nor if that fails.
#[test]
fn added_upstreams_are_checked_before_they_get_requests() {
    let [one, ill, well] = [("one", 200), ("ill", 503), ("well", 200)].map(|(n, s)| checked(n, s));
    let route = "{ proxy = \"http://ONE/\", check = \"/health\", check_interval = \"1s\" }";
    let server =
        Server::start("unix", &format!("\"/\" = {}", route.replace("ONE", &one.to_string())));
    until("the first upstream is checked", || server.responses(1) == count([("one", 1)]));
    for added in [ill, well] {
        let change =
            format!("{{\"upstream\": \"http://{added}/\", \"host\": \"*\", \"prefix\": \"/\"}}");
        assert_eq!(send(&server, "POST", &change).0, 200);
    }
    let mut seen = BTreeMap::new();
    until("the healthy one is used", || {
        seen.extend(server.responses(4));
        seen.contains_key("well")
    });
    seen.extend(server.responses(12));
    assert!(!seen.contains_key("ill"), "{seen:?}");
    server.server.stop();
}

fn count<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[test]
fn upstreams_are_added_by_permitted_clients_only() {
    let one = named("one");
    let server = Server::start("never", &format!("\"/\" = \">> http://{one}/\""));
    let change =
        format!("{{\"upstream\": \"http://{one}1/\", \"host\": \"*\", \"prefix\": \"/\"}}");
    for method in ["POST", "DELETE"] {
        assert_eq!(send(&server, method, &change).0, 403, "{method}");
    }
    assert_eq!(server.responses(2), count([("one", 2)]));
}
