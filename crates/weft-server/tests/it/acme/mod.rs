//! Automatic certificates, ordered from a real authority.

mod accounts;
mod authority;
mod dns;
mod clock;
mod clustered;
mod failing;
mod handshakes;
mod kills;
mod many_names;
mod named;
mod on_demand;
mod scripted;
mod shared_state;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

use self::authority::{Authority, AuthoritySettings};
use crate::common::external::curl;
use crate::common::{PATIENCE, Signal, Weft, run, until, weft};

/// A server with two hosts whose certificates are ordered.
struct Site {
    folder: TempDir,
    authority: Authority,
}

impl Site {
    /// `None` without the authority.
    fn new(authority: Option<Authority>, hosts: &str, keys: &str) -> Option<Site> {
        let authority = authority?;
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("www")).unwrap();
        fs::write(folder.path().join("www/index.html"), "served\n").unwrap();
        let (http, tls) = (authority.http, authority.tls);
        let (directory, ca) = (authority.directory(), authority.ca());
        let retry_delay = if keys.contains("retry_delay") { "" } else { "retry_delay = \"1s\"\n" };
        let text = format!(
            "listen = [\"{http}\"]\nworkers = 2\npid_file = \"weft.pid\"\n\
             [tls]\nlisten = [\"{tls}\"]\ncertificates = \"auto\"\n\
             [acme]\nstate = \"state\"\nephemeral_state = true\n{retry_delay}\
             directories = [\"{directory}\"]\nca = \"{ca}\"\n{keys}\n\
             [hosts.\"{hosts}\"]\n\"/\" = \"-> www\"\n"
        );
        fs::write(folder.path().join("weft.toml"), text).unwrap();
        Some(Site { folder, authority })
    }

    fn command(&self) -> Command {
        let mut command = weft([Path::new("--config"), &self.config()]);
        command.args(["--no-log"]);
        command
    }

    fn start(&self) -> Weft {
        Weft::start(&mut self.command())
    }

    fn config(&self) -> std::path::PathBuf {
        self.folder.path().join("weft.toml")
    }

    /// Requests the page of a host with a new connection, and verifies the certificate. Returns the
    /// text, or the exit status of curl.
    fn get(&self, host: &str) -> Result<String, i32> {
        self.get_with(&["--cacert", self.authority.root().to_str().unwrap()], host)
    }

    fn get_with(&self, options: &[&str], host: &str) -> Result<String, i32> {
        let tls = self.authority.tls;
        let output = curl()
            .args(["--silent", "--show-error"])
            .args(options)
            .args(["--resolve", &format!("{host}:{}:{}", tls.port(), tls.ip())])
            .arg(format!("https://{host}:{}/", tls.port()))
            .output()
            .unwrap();
        match output.status.code() {
            Some(0) => Ok(String::from_utf8(output.stdout).unwrap()),
            code => Err(code.unwrap_or(-1)),
        }
    }

    fn state(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("state").join(path)
    }
}

/// Exit status of curl for a failed handshake.
const HANDSHAKE_FAILED: i32 = 35;

/// Exit status of curl for a certificate that it does not trust.
const UNTRUSTED: i32 = 60;

#[test]
fn orders_certificates_by_each_validation() {
    for kind in ["tls-alpn-01", "http-01"] {
        let keys = format!("challenges = [\"{kind}\"]\nemail = \"a@example.org\"");
        let hosts = "example.org www.example.org 127.0.0.2";
        let authority = Authority::start(AuthoritySettings::default());
        let Some(site) = Site::new(authority, hosts, &keys) else { return };
        let server = site.start();
        for host in ["example.org", "www.example.org"] {
            until("the certificate is trusted", || site.get(host) == Ok("served\n".to_owned()));
        }
        assert_eq!(site.authority.logged("There are now 1 accounts"), 1, "{kind}");
        // Requests other than the request of the authority are redirected.
        let url = format!("http://{}/.well-known/acme-challenge/none", site.authority.http);
        let head = curl().args(["--silent", "--head", "-H", "Host: example.org", &url]).output();
        let head = String::from_utf8(head.unwrap().stdout).unwrap();
        assert!(head.starts_with("HTTP/1.1 308 "), "{head}");
        let mut stored: Vec<_> =
            fs::read_dir(site.state("certificates")).unwrap().flatten().collect();
        stored.sort_by_key(|entry| entry.file_name());
        let stored: Vec<_> = stored.iter().map(|entry| entry.file_name()).collect();
        // An address of the loopback interface is never ordered.
        assert_eq!(stored, ["example.org", "www.example.org"], "{kind}");
        let output = run([Path::new("certificates"), &site.config()]);
        let lines: Vec<&str> = output.stdout.lines().collect();
        assert!(lines[0].starts_with("NAME"), "{}", output.stdout);
        assert!(lines[1].starts_with("example.org "), "{}", output.stdout);
        assert!(!output.stdout.contains("no certificate"), "{}", output.stdout);
        server.stop();
    }
}

/// The authority's certificates are valid for 40 s, and each of them is replaced before it expires.
#[test]
fn renewals_fail_no_request() {
    let settings = AuthoritySettings { validity: 40, ..AuthoritySettings::default() };
    let Some(site) = Site::new(Authority::start(settings), "example.org", "") else { return };
    let server = site.start();
    until("the first certificate is trusted", || site.get("example.org").is_ok());
    let renewals = || server.stderr().matches("was issued by").count();
    let failures = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let is_done = Arc::new(AtomicBool::new(false));
        // Two clients, so that connections overlap, with pauses: each request starts a process.
        for _ in 0..2 {
            let is_done = is_done.clone();
            let (site, failures) = (&site, &failures);
            scope.spawn(move || {
                while !is_done.load(Relaxed) {
                    if site.get("example.org").is_err() {
                        failures.fetch_add(1, Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
        let start = Instant::now();
        while renewals() < 2 && start.elapsed() < 4 * PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_done.store(true, Relaxed);
    });
    assert!(renewals() >= 2, "{}", server.stderr());
    assert_eq!(failures.load(Relaxed), 0, "{}", server.stderr());
    server.stop();
}

#[test]
fn failures_are_logged_with_their_reason_and_retried() {
    let authority = Authority::prepare(AuthoritySettings::default());
    let Some(authority) = authority else { return };
    let status = SocketAddr::new(authority.http.ip(), 9_090);
    let keys = format!("[status]\nlisten = \"{status}\"");
    let Some(mut site) = Site::new(Some(authority), "example.org blocked.example", &keys) else {
        return;
    };
    let server = site.start();
    // The authority does not run yet.
    until("the failure is logged", || server.stderr().contains("Connection refused"));
    let insecure = site.get_with(&["--insecure"], "example.org");
    assert_eq!(insecure, Ok("served\n".to_owned()), "a self-signed certificate is in its place");
    site.authority.run();
    until("the certificate is trusted", || site.get("example.org").is_ok());
    until("the authority's words are logged", || {
        server.stderr().contains("blocked.example is a forbidden domain")
    });
    assert_eq!(site.get("blocked.example"), Err(UNTRUSTED));
    let metrics = format!("http://{status}/metrics");
    let metrics = curl().args(["--silent", &metrics]).output().unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    let value = |name: &str, host: &str| -> Option<f64> {
        let sample = format!("{name}{{name=\"{host}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&sample)?.parse().ok())
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let expiry = value("weft_certificate_expiry_seconds", "example.org").unwrap();
    assert!((now..now + 86_400.0).contains(&expiry), "{metrics}");
    assert_eq!(value("weft_certificate_expiry_seconds", "blocked.example"), None);
    assert_eq!(value("weft_certificate_order_failures", "example.org"), Some(0.0));
    assert!(value("weft_certificate_order_failures", "blocked.example") >= Some(1.0), "{metrics}");
    server.stop();
    let output = run([Path::new("certificates"), &site.config()]);
    let line = output.stdout.lines().find(|line| line.starts_with("blocked.example")).unwrap();
    assert!(line.contains("no certificate") && line.contains("forbidden"), "{line}");
}

#[test]
fn handshakes_fail_without_placeholder_until_the_first_order_has_ended() {
    let authority = Authority::prepare(AuthoritySettings::default());
    let Some(mut site) = Site::new(authority, "example.org", "placeholder = false") else { return };
    let server = site.start();
    assert_eq!(site.get_with(&["--insecure"], "example.org"), Err(HANDSHAKE_FAILED));
    until("the reason is logged", || {
        server.stderr().contains("there is no certificate for example.org")
    });
    site.authority.run();
    until("the certificate is trusted", || site.get("example.org").is_ok());
    assert_eq!(site.get("other.example"), Err(HANDSHAKE_FAILED));
    server.stop();
}

/// The certificates and the account of the first process are used again.
#[test]
fn restarts_and_upgrades_order_nothing_again() {
    let authority = Authority::start(AuthoritySettings::default());
    let Some(site) = Site::new(authority, "example.org", "") else { return };
    let server = site.start();
    until("the certificate is trusted", || site.get("example.org").is_ok());
    server.stop();
    let server = site.start();
    assert_eq!(site.get("example.org"), Ok("served\n".to_owned()));
    let pid = || fs::read_to_string(site.folder.path().join("weft.pid")).unwrap_or_default();
    let former = pid();
    server.signal(Signal::USR2);
    until("the successor serves", || pid() != former && pid().ends_with('\n'));
    let successor = Pid::from_raw(pid().trim().parse().unwrap()).unwrap();
    let response = site.get("example.org");
    kill_process(successor, Signal::KILL).unwrap();
    assert_eq!(response, Ok("served\n".to_owned()));
    assert_eq!(site.authority.logged("Added order"), 1);
}

#[test]
fn invalid_keys_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (keys, expected) in [
        (
            "[acme]\nchallenges = [\"dns-02\"]",
            "expected tls-alpn-01, http-01, dns-01 or dns-persist-01, found \"dns-02\"",
        ),
        (
            "[acme]\nchallenges = [\"dns-01\"]",
            "dns-01 needs `dns_program`, `dns_server` or `acme_dns`",
        ),
        ("[acme]\ndns_server = \"ns.example.org\"", "`dns_server` needs `dns_key`"),
        ("[acme]\ndns_key = \"k\"", "`dns_key` needs `dns_server`"),
        ("[acme]\nacme_dns = \"http://a\"", "`acme_dns` needs `acme_dns_accounts`"),
        ("[acme]\nacme_dns_accounts = \"a\"", "`acme_dns_accounts` needs `acme_dns`"),
        ("[acme]\nacme_dns = \"a\"", "expected http://, https://"),
        ("[acme]\neab_key = \"k\"", "`eab_key` needs `eab_key_id`"),
        ("[acme]\neab_key_id = \"k\"", "`eab_key_id` needs `eab_key`"),
        ("[acme]\nstaging = \"x\"", "expected the URL of a directory"),
        ("[acme]\ndns_server = \"a b\"", "expected an address such as ns.example.org or"),
        (
            "[acme]\ndns_program = \"p\"\ndns_server = \"ns.example.org\"\ndns_key = \"k\"",
            "only one of `dns_program`, `dns_server` and `acme_dns` is possible",
        ),
        (
            "[acme]\ndomains = [\"*.a.example\"]\ndns_server = \"ns.example.org\"\n\
             dns_key = \"/k\"",
            "by dns-01 (records are set by updates of ns.example.org:53 with the key /k)",
        ),
        (
            "[acme]\ndomains = [\"192.0.2.1\"]\ndns_program = \"p\"",
            "an IP address is validated by tls-alpn-01 or http-01, not by DNS",
        ),
        (
            "[tls]\ncertificates = \"auto\"\n[acme]\ndns_program = \"/p\"\n\
             [hosts.\"*.a.example\"]",
            "certificates for *.a.example are ordered from \
             https://acme-v02.api.letsencrypt.org/directory by dns-01 (records are set by /p)",
        ),
        (
            "[acme]\ndomains = [\"*.example.org\"]",
            "a wildcard certificate needs a validation by DNS",
        ),
        ("[acme]\ndomains = [\"a/b\"]", "it is neither a domain name nor an IP address"),
        ("[acme]\ndirectories = [\"http://a.example/dir\"]", "expected the URL of a directory"),
        ("[acme]\nemail = \"me\"", "expected an address such as admin@example.org"),
        ("[tls]\ncertificates = \"all\"", "expected \"auto\", or a list of certificates"),
        (
            "[tls]\ncertificates = \"auto\"\n[hosts.\"a.example localhost *.b.example\"]",
            "no certificate is ordered for \"*.b.example\"",
        ),
        (
            "[tls]\ncertificates = \"auto\"\n[hosts.\"a.example localhost\"]",
            "certificates for a.example are ordered from \
             https://acme-v02.api.letsencrypt.org/directory by tls-alpn-01 (the authority must reach \
             port 443) or http-01 (the authority must reach port 80)",
        ),
    ] {
        let file = folder.path().join("weft.toml");
        let host = if keys.contains("[hosts") { "" } else { "[hosts.\"*\"]" };
        fs::write(&file, format!("{keys}\n{host}\n\"/\" = \"-> .\"\n")).unwrap();
        let output = run([Path::new("check"), &file]);
        assert!(output.stderr.contains(expected), "{keys}: {}", output.stderr);
    }
}
