//! 1,000 names with automatic certificates.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::Site;
use super::authority::{Authority, AuthoritySettings};
use crate::common::external::curl;
use crate::common::{LONG_PATIENCE, PATIENCE, Weft, until, weft};

const NAMES: usize = 1_000;

/// A server for the first names, whose authority accepts connections, but never answers.
struct Server {
    weft: Weft,
    _authority: TcpListener,
}

fn name(number: usize) -> String {
    format!("site-{number:04}.example")
}

fn start(folder: &TempDir, names: usize) -> Server {
    let authority = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = format!("https://{}/dir", authority.local_addr().unwrap());
    let domains: Vec<String> = (0..names).map(name).collect();
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nworkers = 1\n[tls]\nlisten = [\"127.0.0.1:0\"]\n\
         [acme]\nstate = \"state\"\nephemeral_state = true\nca = \"ca.pem\"\n\
         directories = [\"{directory}\"]\ndomains = {domains:?}\n\
         [hosts.\"*\"]\n\"/\" = {{ respond = \"served\" }}\n"
    );
    let file = folder.path().join("weft.toml");
    fs::write(&file, text).unwrap();
    let weft = Weft::start(weft([Path::new("--config"), &file]).arg("--no-log"));
    Server { weft, _authority: authority }
}

/// Requests a page, with any certificate or with the certificates of a file.
fn get(server: &Server, host: &str, trusted: Option<&Path>) -> String {
    let address = server.weft.tls_address();
    let mut curl = curl();
    match trusted {
        Some(path) => curl.arg("--cacert").arg(path),
        None => curl.arg("--insecure"),
    };
    let resolve = format!("{host}:{}:{}", address.port(), address.ip());
    let url = format!("https://{host}:{}/", address.port());
    let output = curl.args(["--silent", "--resolve", &resolve, &url]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Anonymous resident memory in bytes.
fn memory_bytes(server: &Server) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.weft.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn orders_of_many_names_do_not_delay_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let ca = CertificateParams::new(vec!["ca.example".to_owned()]).unwrap();
    fs::write(folder.path().join("ca.pem"), ca.self_signed(&key).unwrap().pem()).unwrap();
    let server = start(&folder, NAMES);
    assert_eq!(get(&server, &name(NAMES / 2), None), "served");
    server.weft.stop();
}

/// `WEFT_LONG` orders 1,000 certificates.
#[test]
fn orders_are_parallel_and_bounded() {
    let count = if std::env::var_os("WEFT_LONG").is_some() { NAMES } else { 24 };
    let settings = AuthoritySettings { refused_nonces: 0, ..AuthoritySettings::default() };
    let hosts: Vec<String> = (0..count).map(name).collect();
    let Some(site) = Site::new(Authority::start(settings), &hosts.join(" "), "") else { return };
    let start = Instant::now();
    let server = site.start();
    let logged = |text: &str| server.stderr().matches(text).count();
    let issued = || logged("was issued by");
    let patience = LONG_PATIENCE.max(PATIENCE * count as u32 / 8);
    while issued() < count {
        assert!(start.elapsed() < patience, "{} of {count}: {}", issued(), server.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{count} orders took {:?}", start.elapsed());
    until("the last name is trusted", || site.get(&name(count - 1)).is_ok());
    // The log of the authority does not tell when a failed order has ended.
    let (max, failed) = (site.authority.max_orders(), logged("no certificate for"));
    assert!((2..=8 + failed).contains(&max), "{max} orders were in progress, {failed} failed");
    server.stop();
}

/// Each certificate has a chain of two, as the certificates of public authorities.
#[test]
fn memory_of_a_name_is_bounded() {
    let memory = [1, NAMES + 1].map(|names| {
        let folder = tempfile::tempdir().unwrap();
        let mut last = String::new();
        for number in 0..names {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name(number)]).unwrap();
            last = params.self_signed(&key).unwrap().pem();
            let path = folder.path().join("state/certificates").join(name(number));
            fs::create_dir_all(&path).unwrap();
            // As large as an intermediate certificate.
            let padding = CertificateParams::new(
                (0..40)
                    .map(|number| format!("padding-{number}.padding.example"))
                    .collect::<Vec<_>>(),
            );
            let padding = padding.unwrap().self_signed(&key).unwrap().pem();
            let pem = [key.serialize_pem(), last.clone(), padding].concat();
            fs::write(path.join("certificate.pem"), pem).unwrap();
        }
        let trusted = folder.path().join("ca.pem");
        fs::write(&trusted, last).unwrap();
        let server = start(&folder, names);
        until("the last name has its certificate", || {
            get(&server, &name(names - 1), Some(&trusted)) == "served"
        });
        let memory = memory_bytes(&server);
        server.weft.stop();
        memory
    });
    let of_a_name = (memory[1] - memory[0]) / NAMES;
    println!("memory of a name: {of_a_name} bytes");
    assert!(of_a_name <= 8 << 10, "{of_a_name} bytes for each name, and {} for one", memory[0]);
}
