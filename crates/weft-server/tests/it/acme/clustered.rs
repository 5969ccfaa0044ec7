//! Several machines that share certificates by a store.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::UNTRUSTED;
use super::authority::{Authority, AuthoritySettings};
use crate::common::external::{curl, own_address};
use crate::common::{Client, Program, Signal, Weft, has_tool, run, until, weft};

/// Machines with a store. The first has the addresses that the authority validates.
struct Machines {
    folder: TempDir,
    authority: Authority,
    store: SocketAddr,
    redis: Option<Program>,
    hosts: String,
    keys: String,
}

impl Machines {
    /// `None` without the authority or Redis.
    fn new(number: u8, hosts: &str, keys: &str) -> Option<Machines> {
        if !has_tool("redis-server") {
            return None;
        }
        let authority = Authority::start(AuthoritySettings::default())?;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret"), "0123456789abcdef".repeat(4)).unwrap();
        let (hosts, keys) = (hosts.to_owned(), keys.to_owned());
        let store = own_address(number, 6_379);
        let mut machines = Machines { folder, authority, store, redis: None, hosts, keys };
        machines.start_store();
        Some(machines)
    }

    fn start_store(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--bind", &self.store.ip().to_string(), "--save", "", "--dir"]);
        self.redis = Some(Program::start(command.arg(self.folder.path())));
        until("Redis accepts connections", || std::net::TcpStream::connect(self.store).is_ok());
    }

    fn stop_store(&mut self) {
        let mut redis = self.redis.take().unwrap();
        redis.signal(Signal::KILL);
        redis.wait();
    }

    /// Returns the response of the store to a command.
    fn redis(&self, words: &[&str]) -> String {
        let (host, port) = (self.store.ip().to_string(), self.store.port().to_string());
        let command =
            Command::new("redis-cli").args(["-h", &host, "-p", &port]).args(words).output();
        String::from_utf8_lossy(&command.unwrap().stdout).trim().to_owned()
    }

    /// Returns the key of a value in the store.
    fn stored(&self, key: &str) -> String {
        self.redis(&["--raw", "KEYS", &format!("weft:*:value:{key}")])
    }

    fn config(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.toml"))
    }

    /// Starts a machine. Only a machine that is `validated` is reached by the authority.
    fn start(&self, name: &str, is_validated: bool) -> Weft {
        let path = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        let Authority { http, tls, .. } = &self.authority;
        let any = "127.0.0.1:0".parse().unwrap();
        let (http, tls) = if is_validated { (*http, *tls) } else { (any, any) };
        let (directory, ca) = (self.authority.directory(), self.authority.ca());
        let (state, secret, store) = (path(&format!("{name}.state")), path("secret"), self.store);
        let Machines { hosts, keys, .. } = self;
        let text = format!(
            "listen = [\"{http}\"]\nworkers = 1\n[tls]\nlisten = [\"{tls}\"]\ncertificates = \"auto\"\n\
             [acme]\nstate = {state:?}\nephemeral_state = true\nretry_delay = \"1s\"\n\
             directories = [\"{directory}\"]\nca = \"{ca}\"\n{keys}\n\
             [cluster]\nstore = \"redis://{store}\"\nsecret_file = {secret:?}\n\
             [hosts.\"{hosts}\"]\n\"/\" = {{ respond = \"served\" }}\n"
        );
        fs::write(self.config(name), text).unwrap();
        let config = self.config(name);
        Weft::start(&mut weft(["--no-log", "--config", config.to_str().unwrap()]))
    }

    /// Requests a page of a machine, and verifies the certificate. Returns the text, or the exit
    /// status of curl.
    fn get(&self, server: &Weft, host: &str) -> Result<String, i32> {
        let tls = server.tls_address();
        let output = curl()
            .args(["--silent", "--cacert", self.authority.root().to_str().unwrap()])
            .args(["--resolve", &format!("{host}:{}:{}", tls.port(), tls.ip())])
            .arg(format!("https://{host}:{}/", tls.port()))
            .output()
            .unwrap();
        match output.status.code() {
            Some(0) => Ok(String::from_utf8(output.stdout).unwrap()),
            code => Err(code.unwrap_or(-1)),
        }
    }

    fn await_trusted(&self, servers: &[&Weft], hosts: &[&str]) {
        for host in hosts {
            for server in servers {
                until("the certificate is trusted", || self.get(server, host).is_ok());
            }
        }
    }

    /// Number of lists that the store has returned.
    fn lists(&self) -> usize {
        let statistics = self.redis(&["INFO", "commandstats"]);
        let mut lines = statistics.lines();
        let calls = lines.find_map(|line| line.strip_prefix("cmdstat_zrangebylex:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    }

    fn orders(&self) -> usize {
        self.authority.logged("Added order")
    }
}

/// Names for more orders than one machine has in progress.
fn names() -> Vec<String> {
    (0..60).map(|number| format!("n{number}.example")).collect()
}

/// The authority reaches one machine only, whichever machine orders a name.
#[test]
fn machines_order_each_name_once_and_answer_for_each_other() {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (number, kind) in [(60, "http-01"), (61, "tls-alpn-01")] {
        // One machine may order all names before the others have started.
        let mut owners = 0;
        for _ in 0..10 {
            let Some(count) = order_once(number, kind, &names) else { return };
            owners = count;
            if owners > 1 {
                break;
            }
        }
        assert!(owners > 1, "{kind}: one machine has ordered all names");
    }
}

/// Has three machines order all names, and returns how many of them have ordered one; `None`
/// without the tools.
fn order_once(number: u8, kind: &str, names: &[&str]) -> Option<usize> {
    let keys = format!("challenges = [\"{kind}\"]");
    let machines = Machines::new(number, &names.join(" "), &keys)?;
    let servers = [("x", true), ("y", false), ("z", false)]
        .map(|(name, is_validated)| machines.start(name, is_validated));
    machines.await_trusted(&servers.each_ref(), names);
    assert_eq!(machines.orders(), names.len(), "{kind}");
    assert_eq!(machines.authority.logged("There are now 1 accounts"), 1, "{kind}");
    assert_eq!(machines.authority.logged("There are now 2 accounts"), 0, "{kind}");
    // Nobody reads private keys in the store.
    let value =
        machines.redis(&["GET", &machines.stored("certificates/n0.example/certificate.pem")]);
    assert!(value.len() > 100 && !value.contains("PRIVATE KEY"), "{value}");
    let owners = servers.iter().filter(|it| it.stderr().contains("was issued by")).count();
    servers.into_iter().for_each(|server| drop(server.stop()));
    Some(owners)
}

/// The store refuses the write behind a point of the order, so that the owner stays there until it
/// is killed.
#[test]
fn killed_owners_are_continued_by_another_machine() {
    const ALLOWED: [&str; 8] = [
        "value:accounts/*",
        "value:machines/*",
        "value:certificates/*/order.json",
        "value:certificates/*/state.json",
        "values",
        "lease:*",
        "processes",
        "bus",
    ];
    for (number, written, reason) in [
        (62, "value:certificates/*/certificate.pem", "other machines cannot answer its validation"),
        (67, "value:challenges/*", "cannot store it: the store refuses a call"),
    ] {
        let keys = "challenges = [\"http-01\"]";
        let Some(machines) = Machines::new(number, "a.example", keys) else { return };
        let allowed = ALLOWED.iter().chain([&written]).map(|it| format!("~weft:*:{it}"));
        let user = ["ACL", "SETUSER", "default", "resetkeys", "%R~*"].map(str::to_owned);
        let command: Vec<String> = user.into_iter().chain(allowed).collect();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        assert_eq!(machines.redis(&command), "OK");
        let mut owner = machines.start("x", true);
        until("the owner is at its point", || owner.stderr().contains(reason));
        owner.signal(Signal::KILL);
        owner.wait();
        machines.redis(&["ACL", "SETUSER", "default", "allkeys"]);
        // As after its lifetime.
        let lease = machines.redis(&["--raw", "KEYS", "weft:*:lease:certificates/a.example"]);
        machines.redis(&["DEL", &lease]);
        let next = machines.start("y", true);
        machines.await_trusted(&[&next], &["a.example"]);
        assert_eq!(machines.orders(), 1, "{reason}: {}", next.stderr());
        let continued = next.stderr().contains("the order of a.example is continued");
        assert!(continued, "{reason}: {}", next.stderr());
        assert_eq!(machines.authority.logged("Issued certificate serial"), 1, "{reason}");
        next.stop();
    }
}

#[test]
fn without_the_store_nothing_is_ordered_and_copies_are_served() {
    let Some(mut machines) = Machines::new(63, "a.example", "") else { return };
    let server = machines.start("x", true);
    machines.await_trusted(&[&server], &["a.example"]);
    machines.stop_store();
    assert!(machines.get(&server, "a.example").is_ok());
    server.stop();
    machines.hosts = "a.example b.example".to_owned();
    let server = machines.start("x", true);
    assert!(machines.get(&server, "a.example").is_ok(), "{}", server.stderr());
    until("the order is refused", || {
        server
            .stderr()
            .contains("no certificate for b.example: the store of the cluster cannot be used")
    });
    assert_eq!(machines.get(&server, "b.example"), Err(UNTRUSTED));
    assert_eq!(machines.orders(), 1);
    // The store returns without its values. It gets the certificate of the machine.
    machines.start_store();
    let other = machines.start("y", false);
    machines.await_trusted(&[&server, &other], &["a.example"]);
    assert!(!machines.stored("certificates/a.example/certificate.pem").is_empty());
    server.stop();
    other.stop();
}

#[test]
fn changed_values_are_refused() {
    let Some(machines) = Machines::new(64, "a.example", "") else { return };
    let server = machines.start("x", true);
    machines.await_trusted(&[&server], &["a.example"]);
    let key = machines.stored("certificates/a.example/certificate.pem");
    machines.redis(&["SETRANGE", &key, "0", "changed by another program"]);
    until("the change is refused", || {
        server
            .stderr()
            .contains("the value of certificates/a.example/certificate.pem has a wrong code")
    });
    assert!(machines.get(&server, "a.example").is_ok());
    assert_eq!(machines.orders(), 1);
    server.stop();
}

#[test]
fn random_tokens_cost_few_calls_and_delay_no_validation() {
    let Some(machines) = Machines::new(65, "a.example", "challenges = [\"http-01\"]") else {
        return;
    };
    let server = machines.start("x", true);
    let address = server.address();
    let is_done = AtomicBool::new(false);
    let (start, before) = (Instant::now(), machines.lists());
    let sent = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8_u32)
            .map(|client| {
                let is_done = &is_done;
                scope.spawn(move || {
                    let mut sent = 0_u32;
                    let mut connection = Client::tcp(address);
                    while !is_done.load(Relaxed) && sent < 2_000 {
                        let token = format!("{client:08x}{sent:08x}aaaaaaaaaaaaaaaaaaaaaaaaaaa");
                        let path = format!("/.well-known/acme-challenge/{token}");
                        assert_ne!(connection.get(&path).status, 200);
                        sent += 1;
                    }
                    sent
                })
            })
            .collect();
        // A machine whose validations reach the first one only.
        let other = machines.start("y", false);
        machines.await_trusted(&[&server, &other], &["a.example"]);
        std::thread::sleep(Duration::from_secs(2));
        is_done.store(true, Relaxed);
        other.stop();
        clients.into_iter().map(|client| client.join().unwrap()).sum::<u32>()
    });
    assert!(sent > 50, "{sent}");
    // 20 a second, and the checks and orders of both machines.
    let (lists, time) = (machines.lists() - before, start.elapsed().as_secs_f64());
    assert!(lists as f64 <= 21.0 * time + 60.0, "{lists} calls in {time} s for {sent} requests");
    assert_eq!(machines.orders(), 1);
    server.stop();
}

#[test]
fn status_lists_machines() {
    let Some(machines) = Machines::new(66, "a.example", "") else { return };
    let servers = [machines.start("x", true), machines.start("y", false)];
    machines.await_trusted(&servers.each_ref(), &["a.example"]);
    let config = machines.config("x");
    let status = || run(["cluster", "status", config.to_str().unwrap()]);
    until("both machines are listed", || status().stdout.matches("1 of 1 valid").count() == 2);
    for server in &servers {
        assert!(status().stdout.contains(&format!("/{} ", server.id())), "{}", status().stdout);
    }
    assert!(status().stdout.contains("different configurations"));
    let checked = run(["check", config.to_str().unwrap()]);
    assert!(
        checked.stderr.contains("have one account and the same certificates"),
        "{}",
        checked.stderr
    );
    servers.into_iter().for_each(|server| drop(server.stop()));
}
