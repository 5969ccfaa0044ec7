//! Hosts that are bound to listeners. Each test has loopback addresses of its own, so that ports do
//! not have to be chosen.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Client, Signal, Weft, until, weft};

struct Site {
    folder: TempDir,
    server: Weft,
}

impl Site {
    fn start(config: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let mut command = weft(["--config", "weft.toml", "--no-log"]);
        let server = Weft::start(command.current_dir(folder.path()));
        Site { folder, server }
    }

    fn reload(&self, config: &str) {
        let before = self.server.stderr().len();
        fs::write(self.folder.path().join("weft.toml"), config).unwrap();
        self.server.signal(Signal::HUP);
        until("the reload is logged", || self.server.stderr()[before..].contains("reloaded"));
    }
}

/// Returns the body of the response, or its status if that is not 200.
fn ask(client: &mut Client, host: &str) -> String {
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let response = client.response();
    match response.status {
        200 => String::from_utf8(response.body).unwrap(),
        status => status.to_string(),
    }
}

fn get(address: &str, host: &str) -> String {
    ask(&mut Client::tcp(address.parse().unwrap()), host)
}

fn host(name: &str, listen: &str, text: &str) -> String {
    let listen = if listen.is_empty() { String::new() } else { format!("listen = {listen}\n") };
    format!("[hosts.\"{name}\"]\n{listen}\"/\" = {{ respond = \"{text}\" }}\n")
}

#[test]
fn bound_host_gets_requests_of_its_listeners_only() {
    let config = [
        "listen = [\"127.81.0.1:8080\", \"127.81.0.1:8082\"]\n".to_owned(),
        host("a", "", "a"),
        host("*", "", "all"),
        host("admin", "[\"127.81.0.1:8081\", \"unix:admin.sock\"]", "admin"),
        // Also an address of all hosts.
        host("b", "\"127.81.0.1:8082\"", "b"),
        host("a @special", "\"127.81.0.1:8082\"", "special"),
        host(":8083", "", "port"),
        host("c", "\"127.81.0.1:8083\"", "c"),
    ];
    let site = Site::start(&config.concat());
    for (port, expected) in [
        (8080, [("a", "a"), ("admin", "all"), ("b", "all"), ("c", "all"), ("x", "all")]),
        (8081, [("a", "404"), ("admin", "admin"), ("b", "404"), ("c", "404"), ("x", "404")]),
        (8082, [("a", "special"), ("admin", "all"), ("b", "b"), ("c", "all"), ("x", "all")]),
        (8083, [("a", "port"), ("admin", "port"), ("b", "port"), ("c", "c"), ("x", "port")]),
    ] {
        for (host, text) in expected {
            assert_eq!(get(&format!("127.81.0.1:{port}"), host), text, "{port} {host}");
        }
    }
    let socket = site.folder.path().join("admin.sock");
    assert_eq!(ask(&mut Client::unix(&socket), "admin"), "admin");
    assert_eq!(ask(&mut Client::unix(&socket), "a"), "404");
    site.server.stop();
}

/// Metrics tell hosts with the same name apart by their labels.
#[test]
fn metrics_tell_bound_hosts_apart() {
    let config = [
        "listen = [\"127.80.0.1:8080\", \"127.80.0.1:8081\"]\n[status]\nlisten = \"unix:status\"\n",
        &host("a", "", "a"),
        &host("a @special", "\"127.80.0.1:8081\"", "special"),
    ];
    let site = Site::start(&config.concat());
    for (port, text) in [(8080, "a"), (8081, "special"), (8081, "special")] {
        assert_eq!(get(&format!("127.80.0.1:{port}"), "a"), text);
    }
    let metrics = || Client::unix(&site.folder.path().join("status")).get("/metrics").body;
    until("all requests are counted", || {
        let metrics = String::from_utf8(metrics()).unwrap();
        [("a", 1), ("a @special", 2)].iter().all(|(host, count)| {
            let line = format!("{{host=\"{host}\",route=\"/\",code=\"2xx\"}} {count}\n");
            metrics.contains(&format!("weft_requests_total{line}"))
        })
    });
    site.server.stop();
}

/// As in nginx, a connection to an address that has hosts of its own has no other hosts, although
/// one socket accepts the connections of all addresses.
#[test]
fn address_within_another_has_hosts_of_its_own() {
    let config = [
        "listen = \"0.0.0.0:18482\"\n".to_owned(),
        host("a", "", "a"),
        host("admin", "\"127.82.0.1:18482\"", "admin"),
        host(":18485", "", "port"),
    ];
    let site = Site::start(&config.concat());
    for (address, host, text) in [
        ("127.82.0.1:18482", "admin", "admin"),
        ("127.82.0.1:18482", "a", "404"),
        ("127.82.0.2:18482", "a", "a"),
        ("127.82.0.2:18482", "admin", "404"),
        // The listener of the port is no listener of other hosts.
        ("127.82.0.1:18485", "a", "port"),
    ] {
        assert_eq!(get(address, host), text, "{address} {host}");
    }
    assert_eq!(site.server.addresses(), ["http://0.0.0.0:18482", "http://[::]:18485"]);
    site.server.stop();
}

#[test]
fn reload_binds_hosts_to_listeners_and_frees_them() {
    let a = "127.83.0.1:8080";
    let b = "127.83.0.1:8081";
    let top = format!("listen = \"{a}\"\n");
    let free = [&*top, &host("a", "", "a"), &host("b", "", "b")].concat();
    let bound = [&*top, &host("a", "", "a"), &host("b", &format!("\"{b}\""), "bound")].concat();
    let site = Site::start(&free);
    let mut kept = Client::tcp(a.parse().unwrap());
    for _ in 0..3 {
        assert_eq!((&*get(a, "b"), &*ask(&mut kept, "b")), ("b", "b"));
        site.reload(&bound);
        until("the host is bound", || ask(&mut kept, "b") == "404");
        assert_eq!((&*get(a, "a"), &*get(b, "b"), &*get(b, "a")), ("a", "bound", "404"));
        let mut to_bound = Client::tcp(b.parse().unwrap());
        assert_eq!(ask(&mut to_bound, "b"), "bound");
        site.reload(&free);
        until("the host is free", || ask(&mut kept, "b") == "b");
        // The connection outlives its listener.
        assert_eq!(ask(&mut to_bound, "b"), "b");
        let address: SocketAddr = b.parse().unwrap();
        until("the listener is closed", || std::net::TcpStream::connect(address).is_err());
    }
    site.server.stop();
}

#[test]
fn bound_hosts_are_served_over_tls_and_http2() {
    let config = [
        "listen = \"127.84.0.1:8080\"\n[tls]\nself_signed = true\nlisten = \"127.84.0.1:8443\"\n"
            .to_owned(),
        host("a", "", "a"),
        host("admin", "\"tls://127.84.0.1:8444\"", "admin"),
        host("b", "\"127.84.0.1:8443\"", "b"),
    ];
    let site = Site::start(&config.concat());
    let curl = |options: &[&str], host: &str, port: u16| {
        let url = format!("https://{host}:{port}/");
        let resolve = format!("{host}:{port}:127.84.0.1");
        let mut command = Command::new("curl");
        command.args(["-sk", "--max-time", "30", "--resolve", &resolve, &url]).args(options);
        String::from_utf8(command.output().expect("curl runs").stdout).unwrap()
    };
    for version in ["--http1.1", "--http2"] {
        for (host, port, text) in [
            ("a", 8443, "a"),
            ("b", 8443, "b"),
            ("admin", 8443, "404 Not Found\n"),
            ("admin", 8444, "admin"),
            ("a", 8444, "404 Not Found\n"),
        ] {
            assert_eq!(curl(&[version], host, port), text, "{version} {host} {port}");
        }
    }
    assert_eq!(get("127.84.0.1:8080", "b"), "404");
    site.server.stop();
}

/// The header names another address than the one that has accepted the connection.
#[test]
fn proxy_protocol_does_not_change_the_listener() {
    let config = [
        "listen = \"127.85.0.1:8080\"\nlimits.proxy_protocol = \"127.0.0.0/8\"\n".to_owned(),
        host("a", "", "a"),
        host("admin", "\"127.85.0.1:8081\"", "admin"),
    ];
    let site = Site::start(&config.concat());
    let mut client = Client::tcp("127.85.0.1:8080".parse().unwrap());
    client.send("PROXY TCP4 192.0.2.1 127.85.0.1 1000 8081\r\n");
    assert_eq!((&*ask(&mut client, "admin"), &*ask(&mut client, "a")), ("404", "a"));
    site.server.stop();
}

/// Both sockets are bound: the second one accepts connections of IPv6 only.
#[test]
fn listens_on_all_addresses_of_ipv4_and_of_ipv6() {
    let both = "listen = [\"0.0.0.0:18486\", \"[::]:18486\"]\n";
    let loopback = "listen = [\"127.86.0.1:18487\", \"[::]:18487\"]\n";
    for (top, port) in [(both, 18486), (loopback, 18487)] {
        let site = Site::start(&[top, &host("*", "", "x")].concat());
        assert_eq!(site.server.addresses().len(), 2);
        for address in [format!("127.86.0.1:{port}"), format!("[::1]:{port}")] {
            assert_eq!(get(&address, "a"), "x");
        }
        let other = std::net::TcpStream::connect(format!("127.86.0.2:{port}"));
        assert_eq!(other.is_ok(), top == both);
        site.server.stop();
    }
}
