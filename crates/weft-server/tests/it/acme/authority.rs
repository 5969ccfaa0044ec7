//! A certificate authority for tests: Pebble, with a DNS server that resolves all names to its own
//! address of the loopback network, on which the tested server listens, too.

use std::collections::BTreeMap as Map;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::named;
use crate::common::external::{curl, own_address};
use crate::common::{Program, has_tool, until};

/// Number of the next authority's address.
static NEXT_NUMBER: AtomicU8 = AtomicU8::new(100);

/// Settings of an authority.
pub struct AuthoritySettings {
    /// Validity of its certificates, in seconds.
    pub validity: u64,
    /// Percentage of the nonces that it refuses.
    pub refused_nonces: u64,
    /// Zone of a DNS server that accepts updates; otherwise one resolves all names.
    pub zone: Option<&'static str>,
    /// Identifier and key of the external account that it requires.
    pub external_account: Option<(&'static str, &'static str)>,
}

impl Default for AuthoritySettings {
    fn default() -> AuthoritySettings {
        AuthoritySettings {
            validity: 86_400,
            refused_nonces: 5,
            zone: None,
            external_account: None,
        }
    }
}

/// An authority that runs, or that is still to be started.
pub struct Authority {
    folder: TempDir,
    settings: AuthoritySettings,
    address: SocketAddr,
    management: SocketAddr,
    pub dns: SocketAddr,
    /// Addresses on which it validates names.
    pub http: SocketAddr,
    pub tls: SocketAddr,
    programs: Vec<Program>,
}

impl Authority {
    /// Returns `None` if the programs are missing.
    pub fn prepare(settings: AuthoritySettings) -> Option<Authority> {
        let dns_program = settings.zone.map_or("pebble-challtestsrv", |_| "named");
        if !["pebble", dns_program].iter().all(|name| has_tool(name)) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let number = NEXT_NUMBER.fetch_add(1, Relaxed);
        let [address, management, dns, http, tls] =
            [14_000, 15_000, 8_053, 5_002, 5_001].map(|port| own_address(number, port));
        // BIND listens on the addresses of interfaces only.
        let dns = settings.zone.map_or(dns, |_| free_address());
        write_certificates(folder.path(), address.ip());
        let programs = Vec::new();
        Some(Authority { folder, settings, address, management, dns, http, tls, programs })
    }

    /// Prepares another authority, which validates names in the same way as `first`, with its DNS
    /// server.
    pub fn beside(first: &Authority) -> Authority {
        let folder = tempfile::tempdir().unwrap();
        for file in ["ca.pem", "localhost.pem", "localhost.key"] {
            fs::copy(first.path(file), folder.path().join(file)).unwrap();
        }
        let [address, management] = [14_001, 15_001].map(|port| (first.address.ip(), port).into());
        Authority {
            folder,
            settings: AuthoritySettings::default(),
            address,
            management,
            dns: first.dns,
            http: first.http,
            tls: first.tls,
            programs: Vec::new(),
        }
    }

    pub fn start(settings: AuthoritySettings) -> Option<Authority> {
        let mut authority = Authority::prepare(settings)?;
        authority.run();
        Some(authority)
    }

    /// Starts the programs.
    pub fn run(&mut self) {
        let mut command = match self.settings.zone {
            Some(zone) => named::command(self.folder.path(), zone, self.address.ip(), self.dns),
            None => self.resolver(),
        };
        self.programs.push(Program::start(&mut command));
        self.run_without_dns();
    }

    /// Starts the authority only.
    pub fn run_without_dns(&mut self) {
        let config = self.config();
        fs::write(self.path("pebble.json"), config.to_string()).unwrap();
        let dns = self.dns.to_string();
        let mut command = Command::new("pebble");
        command.env("PEBBLE_VA_NOSLEEP", "1");
        command.env("PEBBLE_WFE_NONCEREJECT", self.settings.refused_nonces.to_string());
        command.args(["-config", &self.path("pebble.json"), "-dnsserver", &dns]);
        self.programs.push(Program::start(&mut command));
        until("the authority responds", || self.management("/roots/0").contains("BEGIN CERT"));
        fs::write(self.root(), self.management("/roots/0")).unwrap();
    }

    /// Address of its own API.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn config(&self) -> serde_json::Value {
        serde_json::json!({ "pebble": {
            "listenAddress": self.address.to_string(),
            "managementListenAddress": self.management.to_string(),
            "certificate": self.path("localhost.pem"),
            "privateKey": self.path("localhost.key"),
            "httpPort": self.http.port(),
            "tlsPort": self.tls.port(),
            "retryAfter": { "authz": 1, "order": 1 },
            "externalAccountBindingRequired": self.settings.external_account.is_some(),
            "externalAccountMACKeys": self.settings.external_account.into_iter().collect::<Map<_, _>>(),
            "domainBlocklist": ["blocked.example"],
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": {
                "description": "of the test", "validityPeriod": self.settings.validity,
            } },
        } })
    }

    /// Returns the command of a DNS server that resolves all names.
    fn resolver(&self) -> Command {
        let mut command = Command::new("pebble-challtestsrv");
        let address = self.address.ip().to_string();
        let (dns, management) = (self.dns.to_string(), self.dns_management().to_string());
        command.args(["-defaultIPv4", &address, "-defaultIPv6", "", "-dnsserver", &dns]);
        command.args(["-management", &management]);
        command.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]);
        command
    }

    /// Key for updates of the zone.
    pub fn dns_key(&self) -> String {
        self.path("dns.key")
    }

    /// URL of the directory.
    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.address)
    }

    /// Root of the certificates that it issues.
    pub fn root(&self) -> PathBuf {
        self.path("root.pem").into()
    }

    /// Root of its own certificate.
    pub fn ca(&self) -> String {
        self.path("ca.pem")
    }

    /// Address of the interface that changes the records of its DNS server.
    pub fn dns_management(&self) -> SocketAddr {
        SocketAddr::new(self.address.ip(), 8_055)
    }

    /// Maximum number of orders that were in progress at the same time.
    pub fn max_orders(&self) -> usize {
        let (mut orders, mut max) = (0_usize, 0);
        let log = self.programs.last().map_or_else(String::new, |it| it.stdout() + &it.stderr());
        for line in log.lines() {
            if line.contains("Added order") {
                orders += 1;
                max = max.max(orders);
            } else if line.contains("Issued certificate serial") {
                orders -= 1;
            }
        }
        max
    }

    /// Number of lines in its log with a text.
    pub fn logged(&self, text: &str) -> usize {
        let logs = self.programs.iter().map(|it| it.stdout() + &it.stderr());
        logs.map(|log| log.lines().filter(|line| line.contains(text)).count()).sum()
    }

    fn management(&self, path: &str) -> String {
        let url = format!("https://{}{path}", self.management);
        let output = curl().args(["--silent", "--insecure", &url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

/// Returns an address that is free.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Writes the certificate of the authority's own API, and its root.
fn write_certificates(folder: &Path, address: IpAddr) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, &key);
    let own_key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec![address.to_string()]).unwrap();
    let certificate = own.signed_by(&own_key, &issuer).unwrap();
    fs::write(folder.join("localhost.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("localhost.key"), own_key.serialize_pem()).unwrap();
}
