//! Several servers that share rate limits, session tickets and purges by a store.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

use crate::common::external::own_address;
use crate::common::{
    Client, Program, Signal, Weft, has_tool, raw_upstream, read_head, run, until, unused_address,
    weft,
};

/// A store for the servers of a test, and the folder of their files.
struct Cluster {
    folder: TempDir,
    address: SocketAddr,
    redis: Option<Program>,
}

impl Cluster {
    /// Starts a store, with a number that no other test has. `None` without Redis.
    fn start(number: u8) -> Option<Cluster> {
        if !has_tool("redis-server") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret"), "0123456789abcdef0123456789abcdef\n").unwrap();
        let mut cluster = Cluster { folder, address: own_address(number, 6_379), redis: None };
        cluster.start_redis();
        Some(cluster)
    }

    fn start_redis(&mut self) {
        let port = self.address.port().to_string();
        self.start_redis_at(&["--port", &port]);
    }

    /// Starts a store with TLS.
    fn start_redis_with(&mut self, options: &[&str]) {
        let port = self.address.port().to_string();
        let tls = ["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"];
        self.start_redis_at(&[&tls, options].concat());
    }

    fn start_redis_at(&mut self, options: &[&str]) {
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            &self.address.ip().to_string(),
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.args(options).arg("--dir").arg(self.folder.path());
        self.redis = Some(Program::start(&mut command));
        until("Redis accepts connections", || TcpStream::connect(self.address).is_ok());
    }

    fn stop_redis(&mut self) {
        let mut redis = self.redis.take().unwrap();
        redis.signal(Signal::KILL);
        redis.wait();
    }

    /// Returns the responses of the store to a command, as text.
    fn redis(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Waits until the store knows so many servers.
    fn await_servers(&self, count: usize) {
        until("the store knows all servers", || {
            let names = self.redis("KEYS *:processes");
            let name = names.lines().find(|line| line.starts_with("weft:"));
            let known = name.map(|name| self.redis(&format!("ZCARD {name}")));
            known.is_some_and(|known| known.starts_with(&format!(":{count}\r")))
        });
    }

    /// The section of this store.
    fn section(&self) -> String {
        let secret = self.folder.path().join("secret");
        format!("[cluster]\nstore = \"redis://{}\"\nsecret_file = {secret:?}\n", self.address)
    }

    /// Starts a server with these keys, and the section of the store.
    fn serve(&self, name: &str, section: &str, config: &str) -> Weft {
        let path = self.folder.path().join(name);
        let text = format!("listen = \"127.0.0.1:0\"\nworkers = 1\n{section}{config}");
        fs::write(&path, text).unwrap();
        Weft::start(&mut weft(["--no-log", "--config", path.to_str().unwrap()]))
    }
}

const LIMITED: &str = "[hosts.\"*\"]\n\"/\" = { respond = \"a\", rate = \"20/s\", burst = 10 }\n";

/// Sends requests to all servers at the same time. Returns the admitted ones in proportion to one
/// limit: the burst, and the rate in the time that has passed.
fn admitted_share(servers: &[SocketAddr], time: Duration) -> f64 {
    let (start, admitted) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let clients = servers.iter().map(|address| {
        let (address, admitted) = (*address, admitted.clone());
        thread::spawn(move || {
            let mut client = Client::tcp(address);
            while start.elapsed() < time {
                if client.get("/").status == 200 {
                    admitted.fetch_add(1, Relaxed);
                }
                thread::sleep(Duration::from_millis(5));
            }
        })
    });
    clients.collect::<Vec<_>>().into_iter().for_each(|client| client.join().unwrap());
    admitted.load(Relaxed) as f64 / start.elapsed().as_secs_f64().mul_add(20.0, 10.0)
}

#[test]
fn two_servers_admit_one_limit_together() {
    let Some(cluster) = Cluster::start(30) else { return };
    for (section, least, most) in [(cluster.section(), 0.7, 1.3), (String::new(), 1.6, 2.1)] {
        let servers = ["a", "b"].map(|name| cluster.serve(name, &section, LIMITED));
        if !section.is_empty() {
            cluster.await_servers(2);
        }
        let addresses = [servers[0].address(), servers[1].address()];
        let share = admitted_share(&addresses, Duration::from_secs(4));
        assert!((least..most).contains(&share), "{share}, {section}");
        // Clients are hashes in the store.
        assert!(!cluster.redis("KEYS *").contains("127.0.0.1"));
        servers.into_iter().for_each(|server| drop(server.stop()));
    }
    assert!(cluster.redis("KEYS *:rate:*").contains("weft:{"));
}

#[test]
fn a_store_that_is_away_divides_limits_and_delays_nothing() {
    let Some(mut cluster) = Cluster::start(31) else { return };
    let servers = ["a", "b"].map(|name| cluster.serve(name, &cluster.section(), LIMITED));
    cluster.await_servers(2);
    let addresses = [servers[0].address(), servers[1].address()];
    until("both know two servers", || {
        servers.iter().all(|it| it.stderr().contains("the store of the cluster is connected"))
    });
    // The number of servers is read once a second.
    thread::sleep(Duration::from_millis(1_500));
    for (name, stop) in [("stopped", Signal::STOP), ("killed", Signal::KILL)] {
        cluster.redis.as_ref().unwrap().signal(stop);
        let share = admitted_share(&addresses, Duration::from_secs(4));
        assert!((0.7..1.4).contains(&share), "{name}: {share}");
        until("the failure is logged", || servers.iter().all(|it| it.stderr().contains("is away")));
        match stop {
            Signal::STOP => cluster.redis.as_ref().unwrap().signal(Signal::CONT),
            _ => {
                cluster.stop_redis();
                cluster.start_redis();
            }
        }
        cluster.await_servers(2);
        let share = admitted_share(&addresses, Duration::from_secs(4));
        assert!((0.6..1.4).contains(&share), "after it was {name}: {share}");
    }
    for server in servers {
        let log = server.stop().stderr;
        assert!(log.contains("of 2 processes"), "{log}");
        assert!(!log.contains("0123456789abcdef"), "{log}");
    }
}

/// Returns the number of threads that exchange limits and messages.
fn cluster_threads(server: &Weft) -> usize {
    let threads = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let name = |path: fs::DirEntry| fs::read_to_string(path.path().join("comm")).ok();
    let names = threads.filter_map(|thread| name(thread.unwrap()));
    names.filter(|name| name.trim() == "weft-cluster").count()
}

#[test]
fn a_reload_keeps_the_cluster_unless_it_has_changed() {
    let Some(cluster) = Cluster::start(40) else { return };
    let server = cluster.serve("a", &cluster.section(), LIMITED);
    let reload = |config: &str, count: usize| {
        fs::write(cluster.folder.path().join("a"), config).unwrap();
        server.signal(Signal::HUP);
        until("the reload is complete", || {
            server.stderr().matches("the configuration was reloaded").count() == count
        });
    };
    let is_connected =
        |times| server.stderr().matches("the store of the cluster is connected").count() == times;
    until("the store is connected", || is_connected(1));
    let former = fs::read_to_string(cluster.folder.path().join("a")).unwrap();
    let is_limited = || (0..30).any(|_| server.client().get("/").status == 429);
    assert!(is_limited());
    let added = "\"/b\" = { respond = \"b\", rate = \"20/s\" }\n";
    reload(&format!("{former}{added}"), 1);
    assert_eq!((cluster_threads(&server), is_connected(1)), (1, true));
    // Another secret at the same path.
    fs::write(cluster.folder.path().join("secret"), "f".repeat(64)).unwrap();
    reload(&format!("{former}{added}"), 2);
    until("the store is connected again", || is_connected(2));
    until("the former thread has ended", || cluster_threads(&server) == 1);
    assert!(is_limited());
    let route = former.split("[hosts").nth(1).unwrap();
    reload(&format!("listen = \"127.0.0.1:0\"\nworkers = 1\n[hosts{route}"), 3);
    until("the last thread has ended", || cluster_threads(&server) == 0);
    assert!(is_limited());
    server.stop();
}

#[test]
fn sessions_are_resumed_by_another_server() {
    if !has_tool("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(path("crt"), cert.pem()).unwrap();
    fs::write(path("key"), signing_key.serialize_pem()).unwrap();
    let (first, second) = ("a".repeat(32), "b".repeat(32));
    fs::write(path("first"), &first).unwrap();
    fs::write(path("both"), format!("{second}\n{first}\n")).unwrap();
    fs::write(path("second"), &second).unwrap();
    let serve = |name: &str, cluster: &str| {
        let text = format!(
            "workers = 1\n[tls]\nlisten = \"127.0.0.1:0\"\n\
             certificates = [{{ cert = {:?}, key = {:?} }}]\n{cluster}\n\
             [hosts.\"*\"]\n\"/\" = {{ respond = \"a\" }}\n",
            path("crt"),
            path("key")
        );
        fs::write(path(name), text).unwrap();
        Weft::start(&mut weft(["--no-log", "--config", &path(name)]))
    };
    let with_secret = |name: &str| format!("[cluster]\nsecret_file = {:?}", path(name));
    let connect = |server: &Weft, version: &str, session: [&str; 2]| {
        let mut client = Command::new("openssl");
        client.args(["s_client", version, "-connect", &server.tls_address().to_string()]);
        client.args(session).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = client.spawn().unwrap();
        // The response follows the tickets of TLS 1.3.
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        client.stdin.as_mut().unwrap().write_all(request).unwrap();
        let mut text = String::new();
        client.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        client.wait().unwrap();
        assert!(text.contains("200 OK"), "{text}");
        text.contains("Reused, TLS")
    };
    let issuer = serve("issuer", &with_secret("first"));
    for (name, section, is_resumed) in [
        ("same", with_secret("first"), true),
        ("newer", with_secret("both"), true),
        ("other", with_secret("second"), false),
        ("none", String::new(), false),
    ] {
        let server = serve(name, &section);
        for version in ["-tls1_2", "-tls1_3"] {
            let session = path("session");
            assert!(!connect(&issuer, version, ["-sess_out", &session]));
            let found = connect(&server, version, ["-sess_in", &session]);
            assert_eq!(found, is_resumed, "{name} {version}");
        }
        server.stop();
    }
    issuer.stop();
}

/// Starts an upstream whose responses can be stored, and counts its requests.
fn counting_upstream() -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::<AtomicUsize>::default();
    let counter = count.clone();
    let address = raw_upstream(move |_, mut stream| {
        if read_head(&mut stream).is_some() {
            let number = counter.fetch_add(1, Relaxed);
            let response = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 8\r\n\
                 Connection: close\r\n\r\n{number:08}"
            );
            let _ = stream.write_all(response.as_bytes());
        }
    });
    (address, count)
}

/// A server with a response cache and a status endpoint.
fn serve_cached(cluster: &Cluster, name: &str, section: &str, upstream: SocketAddr) -> Weft {
    let status = cluster.folder.path().join(format!("{name}.status"));
    let status =
        format!("[status]\nlisten = \"unix:{}\"\ncache_purge = \"unix\"\n", status.display());
    let route = format!(
        "[hosts.\"*\"]\n\"/\" = {{ proxy = \"http://{upstream}\", response_cache = true }}\n"
    );
    cluster.serve(name, &format!("{section}{status}"), &route)
}

/// Purges the cache of a server, and returns the response.
fn purge(cluster: &Cluster, name: &str, purge: &str) -> String {
    let mut client = Client::unix(&cluster.folder.path().join(format!("{name}.status")));
    client.send(format!(
        "POST /cache/purge HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{purge}",
        purge.len()
    ));
    String::from_utf8(client.response().body).unwrap()
}

/// Returns true if a request for the path is answered by the cache.
fn is_cached(server: &Weft, path: &str) -> bool {
    let response = server.client().get(path);
    response.header("cache-status").is_some_and(|it| it.contains("hit"))
}

#[test]
fn purges_reach_all_servers() {
    let Some(mut cluster) = Cluster::start(32) else { return };
    let (upstream, _) = counting_upstream();
    let section = cluster.section();
    let servers = ["a", "b", "c"].map(|name| {
        let section = if name == "c" { "" } else { &section };
        serve_cached(&cluster, name, section, upstream)
    });
    cluster.await_servers(2);
    let fill = |path: &str| {
        for server in &servers {
            is_cached(server, path);
            assert!(is_cached(server, path));
        }
    };
    // Servers receive messages from the time at which they are connected.
    until("both receive messages", || {
        fill("/probe");
        purge(&cluster, "a", "{\"all\":true}");
        thread::sleep(Duration::from_millis(50));
        !is_cached(&servers[1], "/probe")
    });
    fill("/x");
    fill("/y");
    let url = "{\"url\":\"http://a/x\"}";
    assert_eq!(purge(&cluster, "a", url), "{\"cluster\":\"sent\",\"purged\":1}\n");
    until("the other server has removed the response", || !is_cached(&servers[1], "/x"));
    for (server, path) in [(0, "/y"), (1, "/y"), (2, "/x"), (2, "/y")] {
        assert!(is_cached(&servers[server], path), "{server} {path}");
    }
    assert_eq!(purge(&cluster, "c", "{\"all\":true}"), "{\"purged\":3}\n");

    // While the store is away, a purge waits for it. The other server cannot know if it has missed
    // other purges, because the store has lost its entries.
    cluster.stop_redis();
    assert!(purge(&cluster, "a", url).contains("pending"));
    assert!(is_cached(&servers[1], "/y"));
    cluster.start_redis();
    until("the lost messages are noticed", || {
        servers[1].stderr().contains("purges of other machines were lost")
    });
    assert!(!is_cached(&servers[1], "/y"));

    // Nobody without the secret can purge.
    fill("/z");
    let key = cluster.redis("KEYS *:bus");
    let key = key.lines().find(|line| line.starts_with("weft:")).unwrap();
    for forged in ["a", ""] {
        cluster.redis(&format!("XADD {key} * m \"{}{forged}\"", "x".repeat(40)));
    }
    assert!(purge(&cluster, "a", url).contains("sent"));
    until("later messages are received", || servers[1].stderr().matches("purged").count() > 2);
    assert!(is_cached(&servers[1], "/z"));
    let metrics = |name: &str| {
        let mut client = Client::unix(&cluster.folder.path().join(format!("{name}.status")));
        String::from_utf8(client.get("/metrics").body).unwrap()
    };
    for expected in [
        "weft_cluster_store_connected 1",
        "weft_cluster_servers 2",
        "weft_cluster_messages_total{result=\"published\"} 0",
        "weft_cluster_messages_total{result=\"forged\"} 2",
        "weft_cluster_gaps_total 1",
    ] {
        until(expected, || metrics("b").lines().any(|line| line == expected));
    }
    // The purge that has waited for the store was sent in the end.
    let sent = metrics("a");
    let sent = sent.lines().find_map(|line| line.strip_prefix(PUBLISHED)?.parse::<usize>().ok());
    let waited = servers[0].stderr().matches("the purge waits for the store").count();
    assert_eq!(waited, 1);
    assert_eq!(sent, Some(servers[0].stderr().matches("a client purged").count()));
    servers.into_iter().for_each(|server| drop(server.stop()));
}

const PUBLISHED: &str = "weft_cluster_messages_total{result=\"published\"} ";

#[test]
fn stores_are_verified_by_their_certificate() {
    let Some(mut cluster) = Cluster::start(39) else { return };
    let path = |name: &str| cluster.folder.path().join(name).to_str().unwrap().to_owned();
    let host = cluster.address.ip().to_string();
    for (name, subject) in [("own", &*host), ("other", "other.example")] {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec![subject.to_owned()]).unwrap();
        fs::write(path(&format!("{name}.crt")), cert.pem()).unwrap();
        fs::write(path(&format!("{name}.key")), signing_key.serialize_pem()).unwrap();
    }
    let section = cluster.section().replace("redis://", "rediss://");
    let configs =
        ["own", "other"].map(|ca| format!("{section}ca = {:?}\n", path(&format!("{ca}.crt"))));
    let (checked, options) = (
        path("checked"),
        ["own", "other"].map(|name| [path(&format!("{name}.crt")), path(&format!("{name}.key"))]),
    );
    for (case, certificate, ca, status) in [
        ("its own certificate", 0, 0, 0),
        ("a certificate that is not trusted", 0, 1, 3),
        ("a trusted certificate of another name", 1, 1, 3),
    ] {
        cluster.stop_redis();
        let [certificate, key] = &options[certificate];
        cluster.start_redis_with(&["--tls-cert-file", certificate, "--tls-key-file", key]);
        fs::write(&checked, format!("{}{LIMITED}", configs[ca])).unwrap();
        let output = run(["check", "--config", &checked]);
        assert_eq!(output.status, Ok(status), "{case}: {}", output.stderr);
    }
}

#[test]
fn check_connects_to_the_store() {
    let Some(cluster) = Cluster::start(33) else { return };
    let path = |name: &str| cluster.folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("short"), "short").unwrap();
    fs::write(path("password"), "wrong-password\n").unwrap();
    let section = cluster.section();
    let away = section.replace(&cluster.address.to_string(), &unused_address().to_string());
    let store = section.lines().nth(1).unwrap();
    fs::write(path("right"), "right-password\n").unwrap();
    // As the documentation says.
    let permissions = "~weft:{* +@read +@write +@scripting +@connection +time";
    let created = cluster.redis(&format!("ACL SETUSER weft on >right-password {permissions}"));
    assert!(created.starts_with("+OK"), "{created}");
    let as_user = format!("{section}user = \"weft\"\npassword_file = {:?}\n", path("right"));
    let created = cluster.redis("ACL SETUSER other on >right-password ~weft:{* +@connection");
    assert!(created.starts_with("+OK"), "{created}");
    let other_user = as_user.replace("\"weft\"", "\"other\"");
    let with_password = format!("{section}password_file = {:?}\n", path("password"));
    for (case, section, status, message) in [
        ("a store", section.clone(), 0, ""),
        ("a user", as_user, 0, ""),
        ("a user without permissions", other_user, 3, "the store refuses a call"),
        ("no connection", away, 3, "cannot connect to redis://"),
        ("a wrong password", with_password, 3, "the store refuses a call"),
        ("no secret", format!("[cluster]\n{store}\n"), 1, "`store` needs `secret_file`"),
        (
            "a short secret",
            format!("[cluster]\n{store}\nsecret_file = {:?}\n", path("short")),
            1,
            "expected secrets of 32",
        ),
        (
            "no file",
            format!("[cluster]\n{store}\nsecret_file = {:?}\n", path("missing")),
            1,
            "cannot read",
        ),
        (
            "credentials",
            section.replace("redis://", "redis://u:p@"),
            1,
            "set `user` and `password_file`",
        ),
    ] {
        fs::write(path("checked"), format!("{section}{LIMITED}")).unwrap();
        let output = run(["check", "--config", &path("checked")]);
        assert_eq!(output.status, Ok(status), "{case}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{case}: {}", output.stderr);
        for secret in ["0123456789abcdef", "wrong-password", "right-password", "u:p@"] {
            assert!(!output.stderr.contains(secret), "{case}: {}", output.stderr);
        }
    }
}

/// A store whose answers are hostile does not delay requests, and takes no memory.
#[test]
fn hostile_stores_harm_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let answers: [&[u8]; 5] = [
        b"$-1\r\n",
        b"*1000000000\r\n:1\r\n",
        b"$9999999999\r\n",
        b"*3\r\n:-1\r\n:9223372036854775807\r\n:x\r\n",
        b"\xff\xff\xff\xff\r\n",
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = is_stopped.clone();
        let store = raw_upstream(move |_, mut stream| {
            // The second part of an endless answer.
            let rest = vec![b'1'; 64 << 10];
            let _ = stream.write_all(answer);
            while !stopped.load(Relaxed) && stream.write_all(&rest).is_ok() {}
        });
        let config = format!(
            "listen = \"127.0.0.1:0\"\n[cluster]\nstore = \"redis://{store}\"\n\
             secret_file = {:?}\n{LIMITED}",
            path("secret")
        );
        fs::write(path("config"), config).unwrap();
        let server = Weft::start(&mut weft(["--no-log", "--config", &path("config")]));
        let share = admitted_share(&[server.address()], Duration::from_secs(2));
        assert!((0.7..1.2).contains(&share), "answer {number}: {share}");
        let memory = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let memory = memory.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = memory.trim().trim_end_matches(" kB").trim().parse().unwrap();
        assert!(kilobytes < 200_000, "answer {number}: {kilobytes} kB");
        is_stopped.store(true, Relaxed);
        let log = server.stop().stderr;
        assert!(log.contains("is away"), "answer {number}: {log}");
    }
}
