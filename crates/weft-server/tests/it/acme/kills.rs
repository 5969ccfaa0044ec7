//! A server that is killed at random moments of its orders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::Site;
use super::authority::{Authority, AuthoritySettings};
use crate::common::random::{Random, environment_number};
use crate::common::{Signal, run, until};

const NAMES: [&str; 2] = ["example.org", "www.example.org"];

/// Both certificates are due at each start. `WEFT_KILLS` sets the number of kills.
#[test]
fn kills_lose_neither_account_nor_state() {
    let authority = Authority::start(AuthoritySettings::default());
    let Some(site) = Site::new(authority, &NAMES.join(" "), "") else { return };
    let mut random = Random::from_environment();
    let mut keys = BTreeMap::new();
    for _ in 0..environment_number("WEFT_KILLS").unwrap_or(6) {
        let mut server = site.start();
        std::thread::sleep(Duration::from_millis(random.below(600) as u64));
        server.signal(Signal::KILL);
        server.wait();
        check_files(&site.state(""), &mut keys);
        let listed = run([Path::new("certificates"), &site.config()]);
        assert!(NAMES.iter().all(|name| listed.stdout.contains(name)), "{}", listed.stderr);
        NAMES.iter().for_each(|name| make_due(&site, name));
    }
    let server = site.start();
    for name in NAMES {
        until("the certificate is trusted", || site.get(name).is_ok());
    }
    until("both certificates are new", || server.stderr().matches("was issued by").count() == 2);
    assert_eq!(site.authority.logged("There are now 2 accounts"), 0);
    server.stop();
    let files = files(&site.state(""));
    let left: Vec<_> = files.iter().filter(|path| is_temporary(path)).collect();
    assert!(left.is_empty(), "{left:?}");
    println!("{} orders were begun", site.authority.logged("Added order"));
}

/// Every file is complete, except those with a temporary name, which are not used. The keys of
/// accounts stay as they are.
fn check_files(state: &Path, keys: &mut BTreeMap<PathBuf, String>) {
    for path in files(state).into_iter().filter(|path| !is_temporary(path)) {
        let text = fs::read_to_string(&path).unwrap();
        match path.file_name().unwrap().to_str().unwrap() {
            "key.pem" => {
                KeyPair::from_pem(&text).unwrap();
                assert_eq!(*keys.entry(path).or_insert(text.clone()), text);
            }
            "certificate.pem" => {
                KeyPair::from_pem(&text).unwrap();
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(text.as_bytes()).collect();
                assert!(!chain.unwrap().is_empty(), "{text}");
            }
            "account.json" | "state.json" | "order.json" => {
                serde_json::from_str::<serde_json::Value>(&text).unwrap();
            }
            "lock" => {}
            name => panic!("unexpected file {name}"),
        }
    }
    let is_kept = |path: &PathBuf| path.is_file();
    assert!(keys.keys().all(is_kept), "a key is lost");
}

/// Writes what the command for revocations writes.
fn make_due(site: &Site, name: &str) {
    let folder = site.state("certificates").join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("state.json"), "{ \"window\": [0, 1] }").unwrap();
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with(".tmp")
}
