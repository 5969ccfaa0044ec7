//! A certificate authority for tests: Pebble, with a DNS server that resolves all names to an
//! address of the loopback network, on which the tested server listens, too.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use weft_acme::{AcmeSettings, FileStore, TlsClient};

use crate::client::get;
use crate::support::{has_tool, until};

/// Number of the next authority's address.
static NEXT_NUMBER: AtomicU8 = AtomicU8::new(200);

/// A running authority.
pub struct Pebble {
    folder: TempDir,
    address: SocketAddr,
    /// Addresses on which it validates names.
    pub http: SocketAddr,
    pub tls: SocketAddr,
    programs: Vec<Child>,
}

impl Pebble {
    /// Starts an authority whose certificates are valid for some seconds. `None` if the programs
    /// are missing.
    pub fn start(validity: u64) -> Option<Pebble> {
        if !["pebble", "pebble-challtestsrv"].iter().all(|name| has_tool(name)) {
            return None;
        }
        let number = NEXT_NUMBER.fetch_add(1, Relaxed);
        let [address, management, dns, dns_management, http, tls] =
            [14_000, 15_000, 8_053, 8_055, 5_002, 5_001].map(|port| own_address(number, port));
        let folder = tempfile::tempdir().unwrap();
        write_certificates(folder.path(), address.ip());
        let mut pebble = Pebble { folder, address, http, tls, programs: Vec::new() };
        let ip = address.ip().to_string();
        let (dns, dns_management) = (dns.to_string(), dns_management.to_string());
        pebble.run(
            Command::new("pebble-challtestsrv").args(
                [
                    ["-defaultIPv4", &*ip],
                    ["-defaultIPv6", ""],
                    ["-dnsserver", &dns],
                    ["-management", &dns_management],
                    ["-http01", ""],
                    ["-https01", ""],
                    ["-tlsalpn01", ""],
                    ["-doh", ""],
                ]
                .as_flattened(),
            ),
        );
        let config = serde_json::json!({ "pebble": {
            "listenAddress": address.to_string(),
            "managementListenAddress": management.to_string(),
            "certificate": pebble.path("own.pem"),
            "privateKey": pebble.path("own.key"),
            "httpPort": http.port(),
            "tlsPort": tls.port(),
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": { "default": { "description": "of the test", "validityPeriod": validity } },
        } });
        fs::write(pebble.path("pebble.json"), config.to_string()).unwrap();
        let mut command = Command::new("pebble");
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "5");
        command.arg("-config").arg(pebble.path("pebble.json")).args(["-dnsserver", &dns]);
        pebble.run(&mut command);
        until("the authority responds", || {
            let response = get(management, &ip, &pebble.path("ca.pem"), "/roots/0");
            response.is_ok_and(|response| fs::write(pebble.root(), response.body).is_ok())
        });
        Some(pebble)
    }

    fn run(&mut self, command: &mut Command) {
        let output = File::create(self.path(&format!("output.{}", self.programs.len()))).unwrap();
        let command = command.stdin(Stdio::null()).stdout(output.try_clone().unwrap());
        self.programs.push(command.stderr(output).spawn().unwrap());
    }

    /// Settings for orders from this authority, whose state is in a folder of it.
    pub fn settings(&self) -> AcmeSettings {
        AcmeSettings {
            directories: vec![format!("https://{}/dir", self.address)],
            staging: None,
            client: Arc::new(TlsClient::with_ca(self.path("ca.pem"))),
            store: Arc::new(FileStore::new(self.path("state")).ephemeral_state()),
            ..AcmeSettings::default()
        }
    }

    /// Root of the certificates that it issues.
    pub fn root(&self) -> PathBuf {
        self.path("root.pem")
    }

    /// Number of orders.
    pub fn orders(&self) -> usize {
        let log = fs::read_to_string(self.path("output.1")).unwrap();
        log.lines().filter(|line| line.contains("Added order")).count()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for program in &mut self.programs {
            program.kill().and_then(|()| program.wait()).expect("the process is our child");
        }
    }
}

/// Returns a loopback address of this process only, so that no other test takes its ports.
fn own_address(number: u8, port: u16) -> SocketAddr {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    (Ipv4Addr::new(127, 1 + high % 254, low, number), port).into()
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
    fs::write(folder.join("own.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("own.key"), own_key.serialize_pem()).unwrap();
}
