//! `ServerExt::domain`, with certificates from a real authority.

mod client;
mod memory_store;
mod pebble;
mod support;
mod tls_client;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use weft::server::ServerHandle;
use weft::{BoxApplication, ErrorKind, Request, Response};
use weft_acme::{AcmeSettings, ChallengeKind, FileStore, HttpsServer, ServerExt};

use client::{get, get_without_tls};
use memory_store::MemoryStore;
use pebble::Pebble;
use support::{TEST_TIMEOUT, boxed_server, stop, until};

/// Validity of certificates that are not renewed during a test, in seconds.
const DAY: u64 = 86_400;

const NAME: &str = "example.org";

fn server(pebble: &Pebble, settings: AcmeSettings) -> HttpsServer<BoxApplication> {
    let app = async |request: Request| Response::text(request.path().to_owned());
    let server = boxed_server(app).workers(2).domain(NAME).acme(settings);
    server.listen(pebble.http).listen_tls(pebble.tls)
}

fn start(pebble: &Pebble, settings: AcmeSettings) -> ServerHandle {
    server(pebble, settings).start().unwrap()
}

/// Returns true if the server has a certificate of the authority for a name.
fn is_trusted(pebble: &Pebble, name: &str) -> bool {
    get(pebble.tls, name, &pebble.root(), "/path").is_ok_and(|it| it.body == b"/path")
}

/// Sends a request without TLS, and returns the status and the target of the redirect.
fn redirect(address: SocketAddr, target: &str) -> (u16, Option<String>) {
    let response = get_without_tls(address, NAME, target).unwrap();
    (response.status, response.field("location").map(str::to_owned))
}

#[test]
fn domains_are_ordered_by_each_validation_and_restarts_order_nothing() {
    for kind in [ChallengeKind::TlsAlpn01, ChallengeKind::Http01] {
        let Some(pebble) = Pebble::start(DAY) else { return };
        let settings = AcmeSettings {
            challenges: vec![kind],
            email: Some("admin@example.org".to_owned()),
            ..pebble.settings()
        };
        let first = server(&pebble, settings.clone()).domain("WWW.example.org").start().unwrap();
        for name in [NAME, "www.example.org"] {
            until("the certificate is trusted", || is_trusted(&pebble, name));
        }
        // Other clients than the authority are redirected.
        for target in ["/a?b", "/.well-known/acme-challenge/none"] {
            let expected = (308, Some(format!("https://{NAME}{target}")));
            assert_eq!(redirect(pebble.http, target), expected, "{kind:?}");
        }
        assert_eq!(pebble.orders(), 2, "{kind:?}");
        stop(first);
        let second = server(&pebble, settings).domain("www.example.org").start().unwrap();
        for name in [NAME, "www.example.org"] {
            assert!(is_trusted(&pebble, name), "{kind:?} {name}");
        }
        assert_eq!(pebble.orders(), 2, "{kind:?}");
        stop(second);
    }
}

/// The authority's certificates are valid for 12 s, and each of them is replaced before it expires.
#[test]
fn renewals_fail_no_request() {
    let Some(pebble) = Pebble::start(12) else { return };
    let server = start(&pebble, pebble.settings());
    until("the first certificate is trusted", || is_trusted(&pebble, NAME));
    let failures = AtomicUsize::new(0);
    let start = Instant::now();
    let has_failed = || failures.load(Relaxed) > 0 || start.elapsed() > 2 * TEST_TIMEOUT;
    let seen = std::thread::scope(|scope| {
        let request = || {
            let mut seen = BTreeSet::new();
            while seen.len() < 3 && !has_failed() {
                match get(pebble.tls, NAME, &pebble.root(), "/") {
                    Ok(response) => drop(seen.insert(response.certificate.to_vec())),
                    Err(_) => drop(failures.fetch_add(1, Relaxed)),
                }
            }
            seen.len()
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(request)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!((failures.load(Relaxed), seen), (0, vec![3; 4]));
    stop(server);
}

/// The orders end with their servers.
#[test]
fn processes_share_the_certificates_of_any_store() {
    let Some(pebble) = Pebble::start(DAY) else { return };
    let store = Arc::new(MemoryStore::default());
    let settings = AcmeSettings { store: store.clone(), ..pebble.settings() };
    let first = start(&pebble, settings.clone());
    until("the certificate is trusted", || is_trusted(&pebble, NAME));
    // It listens on addresses that the authority does not validate.
    let app = async |_: Request| Response::text("second");
    let second = boxed_server(app).domain(NAME).acme(settings).listen("127.0.0.1:0");
    let second = second.listen_tls("127.0.0.1:0").start().unwrap();
    let address = second.addresses()[1].address().unwrap();
    let response = get(address, NAME, &pebble.root(), "/").unwrap();
    assert_eq!((&*response.body, pebble.orders()), (&b"second"[..], 1));
    assert_eq!(store.keys().len(), 5, "{:?}", store.keys());
    stop(second);
    stop(first);
    until("the orders end with their servers", || Arc::strong_count(&store) == 1);
}

#[test]
fn invalid_settings_and_occupied_addresses_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let settings = || AcmeSettings {
        store: Arc::new(FileStore::new(folder.path())),
        directories: vec!["https://127.0.0.1:1/".to_owned()],
        ..AcmeSettings::default()
    };
    let app = async |_: Request| Response::text("");
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let occupied = occupied.local_addr().unwrap().to_string();
    let any = "127.0.0.1:0".to_owned();
    for (name, settings, address, kind, reason) in [
        (
            "a/b",
            settings(),
            &any,
            ErrorKind::InvalidSetting,
            "\"a/b\": it is neither a domain name",
        ),
        (
            NAME,
            AcmeSettings { directories: Vec::new(), ..settings() },
            &any,
            ErrorKind::InvalidSetting,
            "there is no directory",
        ),
        (
            NAME,
            AcmeSettings { challenges: Vec::new(), ..settings() },
            &any,
            ErrorKind::InvalidSetting,
            "there is no kind of validation",
        ),
        (
            NAME,
            AcmeSettings { challenges: vec![ChallengeKind::Dns01], ..settings() },
            &any,
            ErrorKind::InvalidSetting,
            "dns-01 needs a DNS provider",
        ),
        (NAME, settings(), &occupied, ErrorKind::Listen, "cannot listen on"),
    ] {
        let server = boxed_server(app).domain(name).acme(settings).listen(address);
        let error = server.listen_tls("127.0.0.1:0").start().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().starts_with(reason), "{error}");
    }
    assert!(!Path::new(&folder.path().join("certificates")).exists());
}

/// The authority does not run: a self-signed certificate is in place of the ordered one.
#[test]
fn a_self_signed_certificate_serves_until_the_first_order() {
    let folder = tempfile::tempdir().unwrap();
    let settings = AcmeSettings {
        directories: vec!["https://127.0.0.1:1/".to_owned()],
        staging: None,
        store: Arc::new(FileStore::new(folder.path()).ephemeral_state()),
        retry_delay: Duration::from_secs(3_600),
        ..AcmeSettings::default()
    };
    let server = boxed_server(async |_: Request| Response::text("")).domain(NAME);
    let server = server.acme(settings.clone()).listen("127.0.0.1:0").listen_tls("127.0.0.1:0");
    let server = server.start().unwrap();
    let address = server.addresses()[1].address().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, rcgen::generate_simple_self_signed(vec![]).unwrap().cert.pem()).unwrap();
    let error = get(address, NAME, &ca, "/").err().unwrap();
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    let info = || settings.stored_certificate(&NAME.parse().unwrap()).unwrap();
    until("the failure is stored", || info().failures == 1);
    assert_eq!(settings.stored_names().unwrap(), [NAME.parse().unwrap()]);
    let reason = info().last_error.unwrap();
    assert!(reason.starts_with("https://127.0.0.1:1: "), "{reason}");
    stop(server);
}
