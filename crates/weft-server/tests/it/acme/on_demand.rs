//! Certificates that are ordered when a client sends a name in its handshake.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::authority::{Authority, AuthoritySettings};
use super::scripted::{Fault, ScriptedAuthority};
use super::{HANDSHAKE_FAILED, Site, UNTRUSTED};
use crate::common::external::curl;
use crate::common::{Weft, run, until, weft};

fn site(authority: Option<Authority>, keys: &str) -> Option<Site> {
    Site::new(authority, "example.org *", keys)
}

fn served() -> Result<String, i32> {
    Ok("served\n".to_owned())
}

/// A server that permits names that begin with `yes`, until they are withdrawn, and never answers
/// about names that begin with `never`.
struct Permissions {
    address: SocketAddr,
    are_withdrawn: Arc<AtomicBool>,
    /// Names in the order of the questions.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Permissions {
    fn start() -> Permissions {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let are_withdrawn = Arc::new(AtomicBool::new(false));
        let (names, withdrawn) = (asked.clone(), are_withdrawn.clone());
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for socket in listener.incoming() {
                let mut socket = BufReader::new(socket.unwrap());
                let mut line = String::new();
                socket.read_line(&mut line).unwrap();
                // A question that was given up may have sent nothing.
                let Some(name) = line.split("/may?of=weft&domain=").nth(1) else { continue };
                let name = name.split(' ').next().unwrap();
                names.lock().unwrap().push(name.to_owned());
                if name.starts_with("never") {
                    unanswered.push(socket);
                    continue;
                }
                let is_permitted = name.starts_with("yes") && !withdrawn.load(Relaxed);
                let status = if is_permitted { "204 Yes" } else { "404 No" };
                let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                // The server may have stopped.
                let _ = socket.get_mut().write_all(response.as_bytes());
            }
        });
        Permissions { address, are_withdrawn, asked }
    }

    fn keys(&self) -> String {
        format!("on_demand_ask = \"http://{}/may?of=weft\"", self.address)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[test]
fn permitted_names_are_ordered_in_the_handshake() {
    let authority = Authority::start(AuthoritySettings::default());
    let keys = "on_demand = [\"*.shop.example\", \"blocked.example\"]\non_demand_timeout = \"20s\"\nretry_delay = \"1h\"";
    let Some(site) = site(authority, keys) else { return };
    let server = site.start();
    let orders = || site.authority.logged("Added order");
    until("the configured name has its certificate", || site.get("example.org").is_ok());
    // Several handshakes wait for the same order.
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| site.get("a.shop.example"))).collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), served(), "{}", server.stderr());
        }
    });
    assert_eq!(orders(), 2);
    // Names without permission get the self-signed certificate.
    assert_eq!(site.get("shop.example"), Err(UNTRUSTED));
    // The second handshake fails at once, because the order is repeated only after a delay.
    assert_eq!(site.get("blocked.example"), Err(HANDSHAKE_FAILED));
    until("the words of the authority are logged", || {
        server.stderr().contains("blocked.example is a forbidden domain")
    });
    let attempts = || server.stderr().matches("no certificate for blocked.example from").count();
    assert_eq!(attempts(), 1);
    assert_eq!(site.get("blocked.example"), Err(HANDSHAKE_FAILED));
    assert_eq!(attempts(), 1, "{}", server.stderr());
    server.stop();
    let output = run([Path::new("certificates"), &site.config()]).stdout;
    let names: Vec<_> = output.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["a.shop.example", "blocked.example", "example.org"]);
    // The certificate of the store is used again.
    let orders_before = orders();
    let server = site.start();
    assert_eq!(site.get("a.shop.example"), served());
    assert_eq!(orders(), orders_before);
    server.stop();
}

#[test]
fn a_resource_is_asked_about_names() {
    let authority = Authority::start(AuthoritySettings::default());
    let permissions = Permissions::start();
    let keys = format!("{}\non_demand_timeout = \"20s\"\nplaceholder = false", permissions.keys());
    let Some(site) = site(authority, &keys) else { return };
    let server = site.start();
    assert_eq!(site.get("no.example"), Err(HANDSHAKE_FAILED));
    until("the refusal is logged", || {
        server.stderr().contains("there is no certificate for no.example")
    });
    assert_eq!(site.get("yes.example"), served(), "{}", server.stderr());
    // The refusal is kept for a while.
    assert_eq!(site.get("no.example"), Err(HANDSHAKE_FAILED));
    assert_eq!(permissions.asked(), ["no.example", "yes.example"]);
    assert!(!site.state("certificates/no.example").exists());
    server.stop();
}

/// The resource, which is also the authority here, has a certificate of an authority of its own.
#[test]
fn the_resource_may_have_an_authority_of_its_own() {
    for (ca, is_permitted) in [("on_demand_ask_ca = \"root.pem\"", true), ("", false)] {
        let authority = ScriptedAuthority::start(Fault::BadNonces(0));
        let folder = tempfile::tempdir().unwrap();
        authority.write_root(&folder.path().join("root.pem"));
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\n[tls]\nlisten = [\"127.0.0.1:0\"]\n\
             [acme]\nstate = \"state\"\nephemeral_state = true\nca = \"root.pem\"\n\
             directories = [\"{}\"]\non_demand_ask = \"https://{}/may\"\n{ca}\n\
             [hosts.\"*\"]\n\"/\" = {{ respond = \"served\" }}\n",
            authority.directory(),
            authority.address
        );
        let file = folder.path().join("weft.toml");
        fs::write(&file, text).unwrap();
        let weft = Weft::start(weft([Path::new("--config"), &file]).arg("--no-log"));
        let address = weft.tls_address();
        let mut curl = curl();
        curl.arg("--silent").arg("--cacert").arg(folder.path().join("root.pem"));
        curl.args(["--resolve", &format!("a.example:{}:{}", address.port(), address.ip())]);
        let output = curl.arg(format!("https://a.example:{}/", address.port())).output().unwrap();
        assert_eq!(output.stdout == b"served", is_permitted, "{}", weft.stderr());
        if !is_permitted {
            until("the reason is logged", || weft.stderr().contains("cannot ask https://"));
        }
        weft.stop();
    }
}

/// The authority's certificates are valid for 6 s.
#[test]
fn renewals_need_permission_too() {
    let settings = AuthoritySettings { validity: 6, ..AuthoritySettings::default() };
    let permissions = Permissions::start();
    let keys = format!("{}\non_demand_timeout = \"20s\"\nplaceholder = false", permissions.keys());
    let Some(site) = site(Authority::start(settings), &keys) else { return };
    let server = site.start();
    assert_eq!(site.get("yes.example"), served(), "{}", server.stderr());
    let issued = || server.stderr().matches("the certificate for yes.example was issued").count();
    until("the certificate is renewed", || issued() >= 2);
    assert!(permissions.asked().len() >= 2, "{:?}", permissions.asked());
    permissions.are_withdrawn.store(true, Relaxed);
    until("the missing permission is logged", || {
        server.stderr().contains("for yes.example is not renewed without permission")
    });
    until("the certificate is removed at its end", || {
        site.get("yes.example") == Err(HANDSHAKE_FAILED)
    });
    server.stop();
}

#[test]
fn orders_on_demand_have_a_rate_and_names_a_bound() {
    for (keys, reason) in [
        ("on_demand_rate = \"1/h\"", "the rate of orders, 1/h (`on_demand_rate`), is used up"),
        ("on_demand_names = 1", "the store has 1 names on demand (`on_demand_names`)"),
    ] {
        let authority = Authority::start(AuthoritySettings::default());
        let keys = format!("{keys}\non_demand = \"*.example\"\non_demand_timeout = \"20s\"");
        let Some(site) = site(authority, &keys) else { return };
        let server = site.start();
        assert_eq!(site.get("a.example"), served(), "{}", server.stderr());
        assert_eq!(site.get("b.example"), Err(HANDSHAKE_FAILED));
        until("the reason is logged", || {
            server.stderr().contains(&format!("no certificate for b.example: {reason}"))
        });
        assert!(!site.state("certificates/b.example").exists());
        assert_eq!(site.get("a.example"), served());
        server.stop();
    }
}

#[test]
fn a_client_that_uses_up_its_orders_leaves_half_to_others() {
    let keys = "on_demand_rate = \"2/h\"\non_demand = \"*.example\"\non_demand_timeout = \"20s\"";
    let Some(site) = site(Authority::start(AuthoritySettings::default()), keys) else { return };
    let server = site.start();
    assert_eq!(site.get("a.example"), served(), "{}", server.stderr());
    assert_eq!(site.get("b.example"), Err(HANDSHAKE_FAILED));
    let root = site.authority.root();
    let other = ["--interface", "127.0.0.2", "--cacert", root.to_str().unwrap()];
    assert_eq!(site.get_with(&other, "c.example"), served(), "{}", server.stderr());
    assert_eq!(site.get_with(&other, "d.example"), Err(HANDSHAKE_FAILED));
    server.stop();
}

/// The authority does not run, so that each order waits for its answer until the handshake ends.
#[test]
fn handshakes_wait_for_a_limited_time() {
    let authority = Authority::prepare(AuthoritySettings::default());
    let keys = "on_demand = \"*.example\"\non_demand_timeout = \"1s\"\nretry_delay = \"1h\"";
    let Some(site) = site(authority, keys) else { return };
    // Accepts connections, and never answers.
    let _listener = TcpListener::bind(site.authority.address()).unwrap();
    let server = site.start();
    assert_eq!(site.get_with(&["--insecure"], "a.example"), Err(HANDSHAKE_FAILED));
    until("the reason is logged", || {
        server.stderr().contains(
            "no certificate for a.example: its order has not ended within `on_demand_timeout`",
        )
    });
    server.stop();
}

/// Requests the page of the configured name on 25 connections, one after the other, beside clients
/// that request the page of other names and expect a result of `beside`. Returns the median of the
/// times.
fn time_of_request(
    site: &Site,
    clients: usize,
    name: &(dyn Fn() -> String + Sync),
    beside: &[Result<String, i32>],
) -> Duration {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let request = || {
            // Not an assertion, which would leave the other threads running.
            while !is_done.load(Relaxed) {
                let found = site.get(&name());
                if !beside.contains(&found) {
                    return Some(found);
                }
            }
            None
        };
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(request)).collect();
        let times = catch_unwind(AssertUnwindSafe(|| {
            let mut times = [Duration::ZERO; 25];
            for time in &mut times {
                let start = Instant::now();
                assert_eq!(site.get("example.org"), served());
                *time = start.elapsed();
            }
            times.sort_unstable();
            times[12]
        }));
        is_done.store(true, Relaxed);
        let unexpected: Vec<_> = clients.into_iter().filter_map(|it| it.join().unwrap()).collect();
        assert_eq!(unexpected, []);
        times.expect("a request failed")
    })
}

/// The resource gets at most 50 questions of a client in 10 s, and known names are served.
#[test]
fn a_client_causes_a_limited_number_of_questions() {
    let authority = Authority::start(AuthoritySettings::default());
    let permissions = Permissions::start();
    let Some(site) = site(authority, &permissions.keys()) else { return };
    let server = site.start();
    until("the configured name has its certificate", || site.get("example.org").is_ok());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let site = &site;
            scope.spawn(move || {
                for number in 0..12 {
                    let found = site.get(&format!("n{number}.t{thread}.example"));
                    assert!([Err(UNTRUSTED), Err(HANDSHAKE_FAILED)].contains(&found), "{found:?}");
                }
            });
        }
    });
    // A slow machine takes longer than a period.
    let periods = start.elapsed().as_secs() as usize / 10 + 1;
    let asked = permissions.asked().len();
    assert!(asked > 0 && asked <= 50 * periods, "{asked} in {periods} periods");
    if asked < 8 * 12 {
        until("the reason is logged", || {
            server.stderr().contains("too many names were asked about in 10 s: at most 100")
        });
    }
    assert_eq!(site.get("example.org"), served());
    server.stop();
}

/// Sends the first message of a handshake with this name.
fn hello(server: &Weft, name: &str) -> TcpStream {
    let roots = rustls::RootCertStore::empty();
    let config =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = name.to_owned().try_into().unwrap();
    let mut session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(server.tls_address()).unwrap();
    session.write_tls(&mut stream).unwrap();
    stream
}

/// Questions for clients that have left occupy the half of a client among the 16 at the same time,
/// until another one comes.
#[test]
fn questions_of_clients_that_left_are_given_up() {
    let authority = Authority::start(AuthoritySettings::default());
    let permissions = Permissions::start();
    let Some(site) = site(authority, &permissions.keys()) else { return };
    let server = site.start();
    until("the configured name has its certificate", || site.get("example.org").is_ok());
    // All would be asked about in 50 s.
    let clients: Vec<_> = (0..40).map(|it| hello(&server, &format!("never{it}.example"))).collect();
    until("half of the questions are asked", || permissions.asked().len() == 8);
    let _stays = hello(&server, "no.example");
    for _ in 0..10 {
        drop(hello(&server, "other.example"));
    }
    assert_eq!(permissions.asked().len(), 8, "of clients that stay");
    drop(clients);
    until("the question of a client that stays is asked", || {
        // The server may not have noticed before that the others have left.
        let _ = hello(&server, "no.example");
        permissions.asked().contains(&"no.example".to_owned())
    });
    server.stop();
}

/// Clients with random names that are not permitted neither cause orders nor disturb others: a
/// request takes as long beside them as beside clients that request the page of the configured
/// name.
#[test]
fn unknown_names_cause_no_orders() {
    let authority = Authority::start(AuthoritySettings::default());
    let permissions = Permissions::start();
    let Some(site) = site(authority, &permissions.keys()) else { return };
    let server = site.start();
    until("the configured name has its certificate", || site.get("example.org").is_ok());
    let count = AtomicUsize::new(0);
    let unknown = || format!("n{}.example", count.fetch_add(1, Relaxed));
    let known = || "example.org".to_owned();
    let alone = time_of_request(&site, 0, &known, &[served()]);
    // Other load of the machine may disturb one of the measurements.
    let is_undisturbed = (0..3).any(|_| {
        let beside_known = time_of_request(&site, 4, &known, &[served()]);
        // Handshakes fail after the first 50 questions in 10 s.
        let beside = [Err(UNTRUSTED), Err(HANDSHAKE_FAILED)];
        let beside_unknown = time_of_request(&site, 4, &unknown, &beside);
        println!(
            "handshake with a request, median: {alone:?}; beside known names {beside_known:?}, beside \
             unknown names {beside_unknown:?}"
        );
        beside_unknown <= 2 * beside_known + Duration::from_millis(50)
    });
    assert!(is_undisturbed, "{}", server.stderr());
    let asked = permissions.asked();
    assert!(!asked.is_empty() && asked.len() <= count.load(Relaxed), "{asked:?}");
    assert_eq!(site.authority.logged("Added order"), 1);
    server.stop();
}

#[test]
fn invalid_settings_are_reported_and_valid_ones_described() {
    let folder = tempfile::tempdir().unwrap();
    for (keys, expected) in [
        ("on_demand = \"*\"", "all names cannot be permitted by a pattern: set `on_demand_ask`"),
        ("on_demand = \"a*.example\"", "expected a name, or *.example.org for its subdomains"),
        ("on_demand = \"192.0.2.1\"", "clients that connect to an address send no name"),
        ("on_demand_ask = \"ftp://a\"", "ftp"),
        ("on_demand_rate = \"none\"", "expected a rate such as 10/m, of at most 10000 orders"),
        ("on_demand_rate = \"10001/m\"", "expected a rate such as 10/m, of at most 10000 orders"),
        (
            "on_demand = \"a.example\"\non_demand_timeout = \"21s\"",
            "handshakes wait for certificates on demand for 20s, as long as `head_timeout` permits, not \
             for 21s (`on_demand_timeout`)",
        ),
        (
            "on_demand = \"*.a.example\"\non_demand_ask = \"http://127.0.0.1/may\"",
            "certificates for *.a.example and names that http://127.0.0.1/may permits are ordered on \
             demand, 10/m and 1000 names at most; handshakes wait for 10s",
        ),
    ] {
        let file = folder.path().join("weft.toml");
        let text = format!("[acme]\n{keys}\n[hosts.\"*\"]\n\"/\" = \"-> .\"\n");
        std::fs::write(&file, text).unwrap();
        let output = run([Path::new("check"), &file]);
        assert!(output.stderr.contains(expected), "{keys}: {}", output.stderr);
    }
}

#[test]
fn wildcards_that_are_ordered_on_demand_have_no_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    for (keys, expected) in [
        ("on_demand = \"*.b.example\"", false),
        ("on_demand = \"*.example\"", false),
        ("on_demand_ask = \"http://127.0.0.1/may\"", false),
        ("on_demand = \"*.c.example\"", true),
        ("", true),
    ] {
        let text = format!(
            "[tls]\ncertificates = \"auto\"\n[acme]\n{keys}\n\
             [hosts.\"a.example *.b.example\"]\n\"/\" = \"-> .\"\n"
        );
        fs::write(&file, text).unwrap();
        let output = run([Path::new("check"), &file]);
        let is_warned = output.stderr.contains("no certificate is ordered for \"*.b.example\"");
        assert_eq!(is_warned, expected, "{keys}: {}", output.stderr);
    }
}
