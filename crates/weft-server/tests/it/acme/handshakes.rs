//! Handshakes during renewals.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::failing::{NAME, Renewing};
use super::scripted::Fault;
use crate::common::random::environment_number;
use crate::common::{LONG_PATIENCE, PATIENCE, until};

const CLIENTS: usize = 32;

/// The authority's certificates are valid for 8 s, and each is replaced after 2 s. `WEFT_RENEWALS`
/// sets the number of renewals.
#[test]
fn renewals_fail_no_handshake_and_take_effect() {
    let renewals = environment_number("WEFT_RENEWALS").unwrap_or(4) as usize;
    let server = Renewing::start(Fault::ShortLived, "60s");
    until("the first certificate is in use", || server.is_served("root.pem"));
    let (address, config) = (server.weft.tls_address(), config(&server.authority.root));
    let (is_done, handshakes) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (seen, errors) = std::thread::scope(|scope| {
        let run = || run_client(address, &config, &is_done, &handshakes);
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(run)).collect();
        let (start, first) = (Instant::now(), server.authority.issued().len());
        while server.authority.issued().len() <= first + renewals {
            assert!(start.elapsed() < LONG_PATIENCE, "{}", server.weft.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
        is_done.store(true, Relaxed);
        let (mut seen, mut errors) = (BTreeSet::new(), Vec::new());
        for client in clients {
            let (certificates, failed) = client.join().unwrap();
            seen.extend(certificates);
            errors.extend(failed);
        }
        (seen, errors)
    });
    println!("{} handshakes, {} certificates", handshakes.load(Relaxed), seen.len());
    assert_eq!(errors, [""; 0], "{}", server.weft.stderr());
    let issued = server.authority.issued();
    // The first may have been replaced before the clients began, the last is still to be used.
    let missing = issued[1..=renewals].iter().filter(|it| !seen.contains(*it)).count();
    assert_eq!(missing, 0, "certificates that had no effect");
    server.weft.stop();
}

fn config(root: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Returns the certificates and the errors of a client.
fn run_client(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    is_done: &AtomicBool,
    handshakes: &AtomicUsize,
) -> (BTreeSet<Vec<u8>>, Vec<String>) {
    let (mut seen, mut errors) = (BTreeSet::new(), Vec::new());
    while !is_done.load(Relaxed) {
        match handshake(address, config) {
            Ok(certificate) => {
                seen.insert(certificate);
                handshakes.fetch_add(1, Relaxed);
            }
            Err(error) => errors.push(error.to_string()),
        }
        // 32 clients leave some time for the server.
        std::thread::sleep(Duration::from_millis(100));
    }
    (seen, errors)
}

fn handshake(address: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<Vec<u8>> {
    let name = ServerName::try_from(NAME).unwrap();
    let mut connection =
        ClientConnection::new(config.clone(), name).map_err(std::io::Error::other)?;
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    let certificates = connection.peer_certificates().unwrap_or_default();
    Ok(certificates[0].to_vec())
}
