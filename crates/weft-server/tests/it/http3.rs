//! HTTP/3 of the program: reloads, upgrades, sockets of the service manager.

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use quinn::ConnectionError;
use rcgen::generate_simple_self_signed;
use rustls::pki_types::CertificateDer;

use crate::common::http3::Http3Client;
use crate::common::{LONG_PATIENCE, Signal, Weft, until};
use crate::lifecycle::Site;
use crate::service::start_with_sockets;

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LONG_PATIENCE, test).await }).expect("in time");
}

/// Returns a certificate for the host `a`, after writing it and its key to `crt` and `key`.
fn write_certificate(folder: &std::path::Path) -> CertificateDer<'static> {
    let certified = generate_simple_self_signed(["a".to_owned()]).unwrap();
    fs::write(folder.join("key"), certified.signing_key.serialize_pem()).unwrap();
    fs::write(folder.join("crt"), certified.cert.pem()).unwrap();
    certified.cert.der().clone()
}

const DOWNLOAD_BYTES: usize = 8 << 20;

fn config(workers: usize) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\nworkers = {workers}\n[tls]\nlisten = [\"127.0.0.1:0\"]\n\
         certificates = [{{ cert = \"crt\", key = \"key\" }}]\n[hosts.\"*\"]\n\"/\" = {{ respond = \"text\" }}\n\
         \"/files/\" = \"-> files\"\n"
    )
}

/// Starts the program with a site, and with a file for downloads.
fn start(workers: usize) -> (Site, SocketAddr, CertificateDer<'static>) {
    let mut certificate = None;
    let site = Site::start_in(&config(workers), |folder| {
        certificate = Some(write_certificate(folder));
        fs::create_dir(folder.join("files")).unwrap();
        fs::write(folder.join("files/a"), vec![b'a'; DOWNLOAD_BYTES]).unwrap();
    });
    let address = site.server.tls_address();
    (site, address, certificate.unwrap())
}

/// Sends requests until `stop` is set, on another connection after each GOAWAY. Returns the number of
/// responses.
async fn load(
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    stop: Arc<AtomicBool>,
) -> usize {
    let mut responses = 0;
    while !stop.load(SeqCst) {
        let client = Http3Client::connect(address, &certificate).await;
        while !stop.load(SeqCst) && !client.goaway.load(SeqCst) {
            let content = client.get("/").await;
            assert_eq!(content.as_deref(), Ok(&b"text"[..]), "after {responses} responses");
            // Not before the handshake is confirmed (RFC 9000 §9).
            if responses % 50 == 0 {
                client.rebind();
            }
            responses += 1;
        }
        client.close();
    }
    responses
}

#[test]
fn reloads_and_upgrades_under_load_lose_no_request() {
    let (site, address, certificate) = start(2);
    run(async {
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..4)
            .map(|_| tokio::spawn(load(address, certificate.clone(), stop.clone())))
            .collect();
        for upgrade in 0..5 {
            for _ in 0..4 {
                tokio::task::block_in_place(|| site.reload(&config(2)));
            }
            // Another number of workers has another number of sockets.
            site.write_config(&config(if upgrade % 2 == 0 { 3 } else { 1 }));
            tokio::task::block_in_place(|| site.upgrade());
            site.write_config(&config(2));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.store(true, SeqCst);
        let mut responses = 0;
        for client in clients {
            responses += client.await.unwrap();
        }
        assert!(responses > 100, "{responses}");
    });
}

#[test]
fn downloads_and_idle_connections_outlive_upgrades() {
    let (mut site, address, certificate) = start(2);
    run(async {
        let client = Http3Client::connect(address, &certificate).await;
        let mut download = client.send("/files/a").await;
        let (head, _) = download.frame().await.unwrap().expect("a head");
        assert_eq!(head, 1);
        let idle = Http3Client::connect(address, &certificate).await;
        tokio::task::block_in_place(|| site.upgrade());
        idle.rebind();
        assert_eq!(idle.get("/").await.as_deref(), Ok(&b"text"[..]));
        until("the idle connection gets GOAWAY", || idle.goaway.load(SeqCst));
        tokio::task::block_in_place(|| site.upgrade());
        client.rebind();
        assert_eq!(download.content().await.unwrap().len(), DOWNLOAD_BYTES);
        let ConnectionError::ApplicationClosed(close) = idle.connection.closed().await else {
            panic!("the idle connection is closed by the server")
        };
        assert_eq!(close.error_code, 0x100_u32.into());
        client.close();
    });
    assert!(site.server.wait().success(), "{}", site.server.stderr());
}

#[test]
fn warns_of_an_inherited_udp_socket_that_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    write_certificate(folder.path());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (crt, key) = (at("crt"), at("key"));
    let tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind(tls.local_addr().unwrap()).unwrap();
    for (switch, is_used) in [("--http3", true), ("--no-http3", false)] {
        let sockets = [tls.try_clone().unwrap().into(), udp.try_clone().unwrap().into()];
        let options = ["--tls-cert", &crt, "--tls-key", &key, "--no-log", switch];
        let server = start_with_sockets(folder.path(), "tls:tls", &sockets, &options);
        let log = Weft::from_program(server).stop().stderr;
        let warning = format!("the UDP socket {} of the service", udp.local_addr().unwrap());
        assert_eq!(log.contains(&warning), !is_used, "{switch}: {log}");
    }
}

/// One socket of the service manager serves several workers, also after an upgrade.
#[test]
fn serves_on_an_inherited_udp_socket() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = write_certificate(folder.path());
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (crt, key, pid) = (at("crt"), at("key"), at("pid"));
    let options =
        ["--workers", "3", "--tls-cert", &crt, "--tls-key", &key, "--pid-file", &pid, "--no-log"];
    fs::write(folder.path().join("a.txt"), "A\n").unwrap();
    let tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tls.local_addr().unwrap();
    let udp = UdpSocket::bind(address).unwrap();
    let sockets = [tls.into(), udp.try_clone().unwrap().into()];
    let server = start_with_sockets(folder.path(), "tls:tls", &sockets, &options);
    let server = Weft::from_program(server);
    run(async {
        let mut clients = Vec::new();
        for _ in 0..12 {
            let client = Http3Client::connect(address, &certificate).await;
            assert_eq!(client.get("/a.txt").await.as_deref(), Ok(&b"A\n"[..]));
            client.rebind();
            assert_eq!(client.get("/a.txt").await.as_deref(), Ok(&b"A\n"[..]));
            clients.push(client);
        }
        server.signal(Signal::USR2);
        let first = server.id();
        until("the successor serves", || {
            fs::read_to_string(&pid).is_ok_and(|text| text != format!("{first}\n"))
        });
        for client in clients {
            client.rebind();
            assert_eq!(client.get("/a.txt").await.as_deref(), Ok(&b"A\n"[..]));
            client.close();
        }
        let client = Http3Client::connect(address, &certificate).await;
        assert_eq!(client.get("/a.txt").await.as_deref(), Ok(&b"A\n"[..]));
    });
    let last = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let last = rustix::process::Pid::from_raw(last).unwrap();
    rustix::process::kill_process(last, Signal::TERM).unwrap();
    server.stop();
}
