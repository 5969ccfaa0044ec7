//! Authorities that fail: the server uses the certificate that it has, and tries again later.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::scripted::{Fault, ScriptedAuthority};
use crate::common::external::curl;
use crate::common::{LONG_PATIENCE, Weft, until, weft};

pub const NAME: &str = "example.org";

/// Maximum growth of a server's memory while an authority fails.
const MAX_GROWTH_BYTES: usize = 8 << 20;

/// Maximum number of requests of an attempt.
const MAX_REQUESTS: usize = 40;

/// A server with a certificate whose renewal is due.
pub struct Renewing {
    pub folder: TempDir,
    pub authority: ScriptedAuthority,
    pub weft: Weft,
    memory_bytes: usize,
}

impl Renewing {
    pub fn start(fault: Fault, order_timeout: &str) -> Renewing {
        Renewing::start_with(fault, order_timeout, &[])
    }

    /// Starts the server with variables in its environment.
    pub fn start_with(fault: Fault, order_timeout: &str, variables: &[(&str, &Path)]) -> Renewing {
        let authority = ScriptedAuthority::start(fault);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        authority.write_root(&path("root.pem"));
        let stored = path("state/certificates").join(NAME);
        fs::create_dir_all(&stored).unwrap();
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        let now = SystemTime::now();
        params.not_before = (now - Duration::from_secs(60 * 86_400)).into();
        params.not_after = (now + Duration::from_secs(86_400)).into();
        let key = KeyPair::generate().unwrap();
        let old = params.self_signed(&key).unwrap().pem();
        fs::write(path("old.pem"), &old).unwrap();
        fs::write(stored.join("certificate.pem"), [key.serialize_pem(), old].concat()).unwrap();
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nworkers = 1\n[tls]\nlisten = [\"127.0.0.1:0\"]\n\
             [acme]\nstate = \"state\"\nephemeral_state = true\nca = \"root.pem\"\n\
             retry_delay = \"1s\"\norder_timeout = \"{order_timeout}\"\n\
             directories = [\"{}\"]\ndomains = [\"{NAME}\"]\n\
             [hosts.\"*\"]\n\"/\" = {{ respond = \"served\" }}\n",
            authority.directory()
        );
        fs::write(path("weft.toml"), text).unwrap();
        let mut command = weft([Path::new("--config"), &path("weft.toml")]);
        let weft = Weft::start(command.arg("--no-log").envs(variables.iter().copied()));
        let memory_bytes = anonymous_bytes(&weft);
        Renewing { folder, authority, weft, memory_bytes }
    }

    /// Requests a page, and trusts the certificates in a file.
    pub fn is_served(&self, trusted: &str) -> bool {
        let address = self.weft.tls_address();
        let mut curl = curl();
        curl.arg("--silent").arg("--cacert").arg(self.folder.path().join(trusted));
        curl.args(["--resolve", &format!("{NAME}:{}:{}", address.port(), address.ip())]);
        let output = curl.arg(format!("https://{NAME}:{}/", address.port())).output().unwrap();
        output.stdout == b"served"
    }

    /// Lines about failures.
    fn failures(&self) -> Vec<String> {
        let log = self.weft.stderr();
        let failures = log.lines().filter(|line| line.contains("no certificate for example.org"));
        failures.map(str::to_owned).collect()
    }

    /// Waits until an attempt has failed twice; the memory stays bounded.
    fn wait_for_failures(&self, fault: Fault) {
        let start = Instant::now();
        while self.failures().len() < 2 {
            assert!(start.elapsed() < LONG_PATIENCE, "{fault:?}: {}", self.weft.stderr());
            let growth = anonymous_bytes(&self.weft).saturating_sub(self.memory_bytes);
            assert!(growth < MAX_GROWTH_BYTES, "{fault:?}: {growth} bytes more");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Anonymous resident memory in bytes.
fn anonymous_bytes(weft: &Weft) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", weft.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// Delay of a line about a failure, in seconds.
fn delay(line: &str) -> u64 {
    let (_, rest) = line.split_once("next attempt in ").expect("a delay");
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// The way in which an authority fails, the time limit for orders, and the reason in the log.
const ROWS: [(Fault, &str, &str); 17] = [
    (Fault::Closed, "20s", "Connection refused"),
    (Fault::Silent, "4s", "timed out"),
    (Fault::Slow, "4s", "timed out"),
    (Fault::Status(500), "20s", "the status is 500"),
    (Fault::Status(404), "20s", "the status is 404"),
    (Fault::RetryLater, "20s", "the status is 429"),
    (Fault::Redirect, "20s", "the status is 301 Moved Permanently; redirects are not followed"),
    (Fault::BadNonces(usize::MAX), "60s", "the authority accepts no nonce"),
    (Fault::Huge, "60s", "it is larger than 262144 bytes"),
    (Fault::PendingForever, "8s", "timed out, the order is still pending"),
    (Fault::InvalidChallenge, "60s", "nobody answers at this name"),
    (Fault::ProcessingForever, "8s", "timed out, the order is still processing"),
    (Fault::OtherName, "60s", "is of no use: it is not for example.org"),
    (Fault::OtherKey, "60s", "is of no use: it is invalid, or for another key"),
    (Fault::Expired, "60s", "is of no use: it has expired already"),
    (Fault::NoPem, "60s", "is of no use: it is not in PEM"),
    (Fault::Untrusted, "20s", "invalid peer certificate"),
];

#[test]
fn certificates_stay_in_use_while_an_authority_fails() {
    std::thread::scope(|scope| {
        for (fault, order_timeout, reason) in ROWS {
            scope.spawn(move || fails(fault, order_timeout, reason));
        }
    });
}

fn fails(fault: Fault, order_timeout: &str, reason: &str) {
    let server = Renewing::start(fault, order_timeout);
    assert!(server.is_served("old.pem"), "{fault:?}: {}", server.weft.stderr());
    server.wait_for_failures(fault);
    assert!(server.is_served("old.pem"), "{fault:?}: {}", server.weft.stderr());
    let failures = server.failures();
    let requests = server.authority.requests();
    let output = server.weft.stop();
    for line in &failures {
        assert!(
            line.contains(reason) && line.contains("the present one is valid"),
            "{fault:?}: {line}"
        );
    }
    let delays: Vec<u64> = failures.iter().map(|line| delay(line)).collect();
    let first = if fault == Fault::RetryLater { 3..=3 } else { 0..=1 };
    assert!(first.contains(&delays[0]) && (3..=4).contains(&delays[1]), "{fault:?}: {delays:?}");
    // A third attempt may have begun.
    assert!(requests <= 3 * MAX_REQUESTS, "{fault:?}: {requests} requests");
    let created = usize::from(output.stderr.contains("created an account"));
    let lines = output.stderr.lines().filter(|line| !line.contains("serving")).count();
    assert!(lines <= failures.len() + created + 3, "{fault:?}: {}", output.stderr);
}

#[test]
fn one_refused_nonce_delays_nothing() {
    let server = Renewing::start(Fault::BadNonces(1), "60s");
    until("the new certificate is in use", || server.is_served("root.pem"));
    assert_eq!(server.failures(), [""; 0]);
    assert!(!server.is_served("old.pem"));
    server.weft.stop();
}

/// The authority wants each certificate to be renewed at once.
#[test]
fn renewals_without_end_have_a_pause() {
    let server = Renewing::start(Fault::AlwaysDue, "60s");
    until("the new certificate is in use", || server.is_served("root.pem"));
    let state = || {
        fs::read_to_string(server.folder.path().join("state/certificates/example.org/state.json"))
    };
    until("the window is stored", || state().is_ok_and(|text| text.contains("1577836800")));
    let state: serde_json::Value = serde_json::from_str(&state().unwrap()).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert!(state["retry_at"].as_u64().unwrap() > now + 1_800, "{state}");
    server.weft.stop();
}

/// Starts a server without certificates for so many names.
fn start_with_names(folder: &TempDir, authority: &ScriptedAuthority, names: usize) -> Weft {
    authority.write_root(&folder.path().join("root.pem"));
    let domains: Vec<String> = (0..names).map(|number| format!("n{number}.example")).collect();
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nworkers = 1\n[tls]\nlisten = [\"127.0.0.1:0\"]\n\
         [acme]\nstate = \"state\"\nephemeral_state = true\nca = \"root.pem\"\n\
         retry_delay = \"1h\"\norder_timeout = \"4s\"\n\
         directories = [\"{}\"]\ndomains = {domains:?}\n\
         [hosts.\"*\"]\n\"/\" = {{ respond = \"served\" }}\n",
        authority.directory()
    );
    let file = folder.path().join("weft.toml");
    fs::write(&file, text).unwrap();
    Weft::start(weft([Path::new("--config"), &file]).arg("--no-log"))
}

#[test]
fn failures_of_many_names_are_summed_up() {
    let authority = ScriptedAuthority::start(Fault::Status(503));
    let folder = tempfile::tempdir().unwrap();
    let weft = start_with_names(&folder, &authority, 200);
    let sum = "no certificates for other names: 199 more failures within ";
    until("the failures are summed up", || weft.stderr().contains(sum));
    assert_eq!(weft.stderr().matches("the status is 503").count(), 2, "{}", weft.stderr());
    weft.stop();
}

/// At most 8 orders are in progress. One of them tries to create an account, and the others do not
/// wait for the silent authority after it.
#[test]
fn orders_that_wait_for_an_account_fail_together() {
    let authority = ScriptedAuthority::start(Fault::Silent);
    let folder = tempfile::tempdir().unwrap();
    let weft = start_with_names(&folder, &authority, 32);
    let sum = "no certificates for other names: 31 more failures within ";
    until("the failures are summed up", || weft.stderr().contains(sum));
    assert!(authority.requests() <= 6, "{} requests", authority.requests());
    weft.stop();
}
