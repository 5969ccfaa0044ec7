//! TLS over real sockets: negotiation, client authentication, session resumption, reloading,
//! records, and the end of connections.
#![cfg(feature = "tls")]

use std::fs;
use std::io::{ErrorKind as IoKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::common::{
    Response as Seen, SHORT_TIMEOUT, TEST_TIMEOUT, boxed_server, has_tool, stop, until,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::CertificateCompressionAlgorithm;
use rustls::client::Resumption;
use rustls::compress::{CertDecompressor, DecompressionFailed};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::middleware::Canonical;
use weft::tls::{
    ClientAuth, Identity, IdentitySource, NamedIdentities, ObtainIdentity, Roots, Tls, TlsSettings,
    Version,
};
use weft::{
    Application, Body, Error, ErrorKind, Fault, File, Hooks, Method, Peer, Request, Response,
    ServerHandle, Settings, Upgraded,
};

// -- certificate authority and certificates

/// A certificate authority for tests.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, in PEM.
#[derive(Clone)]
struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, names: &[&str]) -> Signed {
        self.sign_until(names, SystemTime::now() + Duration::from_secs(86_400))
    }

    fn sign_until(&self, names: &[&str], end: SystemTime) -> Signed {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        let name = |name: &&str| SanType::DnsName((*name).try_into().unwrap());
        params.subject_alt_names = names.iter().map(name).collect();
        params.not_after = end.into();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Signed { certificate, key: key.serialize_pem() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        roots
    }
}

impl Signed {
    fn identity(&self) -> Identity {
        Identity::pem(self.certificate.as_str(), self.key.as_str())
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }

    fn write(&self, folder: &Path) {
        fs::write(folder.join("key"), &self.key).unwrap();
        fs::write(folder.join("crt"), &self.certificate).unwrap();
    }
}

fn in_folder(folder: &TempDir) -> Identity {
    Identity::files(folder.path().join("crt"), folder.path().join("key"))
}

// -- servers

/// Hooks that send errors to the test.
struct ErrorHooks(Mutex<Sender<(ErrorKind, String)>>);

impl Hooks for ErrorHooks {
    fn on_error(&self, _: &Peer, error: &Error) {
        let _ = self.0.lock().unwrap().send((error.kind(), error.to_string()));
    }
}

type Errors = Receiver<(ErrorKind, String)>;

fn serve_with(tls: &Tls, settings: Settings) -> (ServerHandle, Errors) {
    let (sender, errors) = channel();
    let server = boxed_server(app).settings(settings).workers(1);
    let server = server.hooks(move || ErrorHooks(Mutex::new(sender.clone())));
    (server.listen_tls("127.0.0.1:0", tls).unwrap().start().unwrap(), errors)
}

fn serve(settings: TlsSettings) -> (ServerHandle, Errors) {
    serve_with(&Tls::new(settings).unwrap(), Settings::default())
}

fn with_identity(identity: Identity) -> TlsSettings {
    TlsSettings { identities: vec![identity], ..TlsSettings::default() }
}

/// The application of all tests: describes the TLS session, receives and sends bodies.
async fn app(mut request: Request) -> weft::Result<Response> {
    let session = request.peer().tls().expect("all connections use TLS");
    let description = format!(
        "{} {} {} {} {}",
        session.version(),
        session.cipher_suite(),
        session.server_name().unwrap_or("-"),
        session.peer_certificates().len(),
        request.scheme(),
    );
    Ok(match (request.method(), request.path()) {
        (&Method::POST, "/count") => {
            let mut count = 0;
            loop {
                match request.body().chunk().await {
                    Ok(Some(chunk)) => count += chunk.len(),
                    Ok(None) => break Response::text(count.to_string()),
                    Err(error) => break Response::from(&error).with_error(error),
                }
            }
        }
        (&Method::POST, _) => Response::body(request.into_body()),
        (_, "/file") => Response::file(File::open(
            fs::File::open(FILE.get().expect("set by the test")).unwrap(),
        )?),
        (_, "/shout") => Response::upgrade("shout", async |mut connection: Upgraded| {
            let mut byte = [0];
            while let Ok(1) = connection.read(&mut byte).await {
                connection.write_all(&byte.map(|b| b.to_ascii_uppercase())).await.unwrap();
                connection.flush().await.unwrap();
            }
            AsyncWriteExt::shutdown(&mut connection).await.unwrap();
        }),
        (_, "/cut") => {
            let parts = [Ok(vec![b'x'; 200_000]), Err(std::io::Error::other("on purpose"))];
            Response::body(Body::stream(futures_util::stream::iter(parts)))
        }
        (_, path) => match path[1..].parse() {
            Ok(length) => Response::body(Body::from(vec![b'x'; length])),
            Err(_) => Response::text(description),
        },
    })
}

static FILE: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();

// -- clients

fn client_config(authority: &Authority) -> ClientConfig {
    client_config_with(authority, aws_lc_rs::default_provider(), &[&TLS13, &TLS12], None)
}

fn client_config_with(
    authority: &Authority,
    provider: CryptoProvider,
    versions: &[&'static rustls::SupportedProtocolVersion],
    identity: Option<&Signed>,
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(versions).unwrap();
    let builder = builder.with_root_certificates(authority.roots());
    match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![identity.der()], key).unwrap()
        }
    }
}

/// A TLS client that stores the received records, to measure their lengths.
struct Client {
    tls: ClientConnection,
    socket: TcpStream,
    wire: Vec<u8>,
    received: Vec<u8>,
}

impl Client {
    fn connect(
        server: &ServerHandle,
        config: &ClientConfig,
        name: &str,
    ) -> std::io::Result<Client> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let tls = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
        let socket = connect(server);
        let mut client = Client { tls, socket, wire: Vec::new(), received: Vec::new() };
        while client.tls.is_handshaking() {
            client.flush()?;
            if client.tls.is_handshaking() {
                client.receive()?;
            }
        }
        client.flush()?;
        Ok(client)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// Receives once; `false` at the end.
    fn receive(&mut self) -> std::io::Result<bool> {
        let mut buffer = [0; 4096];
        let length = self.socket.read(&mut buffer)?;
        self.wire.extend_from_slice(&buffer[..length]);
        let mut bytes = &buffer[..length];
        loop {
            self.tls.read_tls(&mut bytes)?;
            let processed = self.tls.process_new_packets();
            // Sends the alert if processing failed.
            self.flush()?;
            processed.map_err(|error| std::io::Error::new(IoKind::InvalidData, error))?;
            let mut reader = self.tls.reader();
            let mut plain = vec![0; 64 << 10];
            match reader.read(&mut plain) {
                Ok(n) => self.received.extend_from_slice(&plain[..n]),
                Err(error) if error.kind() == IoKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if bytes.is_empty() {
                return Ok(length > 0);
            }
        }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        for piece in bytes.chunks(16 << 10) {
            self.tls.writer().write_all(piece).unwrap();
            self.flush().unwrap();
        }
    }

    fn get(&mut self, path: &str) -> Seen {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.response().expect("a response")
    }

    fn response(&mut self) -> std::io::Result<Seen> {
        loop {
            let parsed = Seen::parse(&self.received, false);
            if let Some(response) = parsed.filter(|r| {
                r.header("content-length").is_some() || r.header("transfer-encoding").is_some()
            }) {
                self.received.drain(..response.length);
                return Ok(response);
            }
            if !self.receive()? {
                return Err(IoKind::UnexpectedEof.into());
            }
        }
    }

    /// Returns and clears the lengths of the application data records received since the last call.
    fn records(&mut self) -> Vec<usize> {
        let wire = std::mem::take(&mut self.wire);
        let (mut rest, mut lengths) = (&wire[..], Vec::new());
        while let [23, _, _, a, b, ..] = *rest {
            let length = usize::from(u16::from_be_bytes([a, b]));
            lengths.push(length);
            rest = rest.get(5 + length..).unwrap_or_default();
        }
        lengths
    }
}

fn connect(server: &ServerHandle) -> TcpStream {
    let address = server.addresses()[0].address().expect("a TCP address");
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

/// Reads a socket to the end of the stream or a reset.
fn read_to_end(mut socket: &TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    match socket.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) if error.kind() == IoKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    received
}

// -- negotiation

#[test]
fn negotiates_versions_and_cipher_suites() {
    let authority = Authority::new("root");
    let identity = authority.sign(&["a.test"]).identity();
    let (both, _) = serve(with_identity(identity.clone()));
    let newest = TlsSettings { min_version: Version::Tls13, ..with_identity(identity) };
    let (newest, _) = serve(newest);
    for suite in aws_lc_rs::ALL_CIPHER_SUITES {
        let name = suite.suite().as_str().unwrap().replace("TLS13_", "TLS_");
        let is_13 = suite.tls13().is_some();
        let provider =
            CryptoProvider { cipher_suites: vec![*suite], ..aws_lc_rs::default_provider() };
        let version = if is_13 { &TLS13 } else { &TLS12 };
        let config = client_config_with(&authority, provider, &[version], None);
        // The certificate has an ECDSA key.
        let is_supported = !name.contains("_RSA_");
        for (server, expected) in [(&both, is_supported), (&newest, is_13)] {
            let connected = Client::connect(server, &config, "a.test");
            assert_eq!(connected.is_ok(), expected, "{name}");
            if let Ok(mut client) = connected {
                let version = if is_13 { "TLSv1.3" } else { "TLSv1.2" };
                let seen = format!("{version} {name} a.test 0 https");
                assert_eq!(client.get("/").text(), seen);
            }
        }
    }
    stop(both);
    stop(newest);
}

#[test]
fn prefers_aes_128_and_the_cipher_of_clients_without_aes() {
    use rustls::crypto::aws_lc_rs::cipher_suite::*;
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let (aes_128, aes_256, chacha) =
        (TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256);
    let ecdsa_aes_128 = TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let ecdsa_aes_256 = TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    let ecdsa_chacha = TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    // The suites of a client in its order, and the negotiated one.
    let cases = [
        // OpenSSL.
        (vec![aes_256, chacha, aes_128], aes_128),
        // Browsers on a CPU with instructions for AES, and without.
        (vec![aes_128, aes_256, chacha], aes_128),
        (vec![chacha, aes_128, aes_256], chacha),
        (vec![aes_256, chacha], aes_256),
        (vec![ecdsa_aes_256, ecdsa_chacha, ecdsa_aes_128], ecdsa_aes_128),
        (vec![ecdsa_chacha, ecdsa_aes_128], ecdsa_chacha),
    ];
    for (cipher_suites, expected) in cases {
        let version = if expected.tls13().is_some() { &TLS13 } else { &TLS12 };
        let provider = CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() };
        let config = client_config_with(&authority, provider, &[version], None);
        let client = Client::connect(&server, &config, "a.test").unwrap();
        let suite = client.tls.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(suite, expected.suite(), "{:?}", config.crypto_provider().cipher_suites);
    }
    stop(server);
}

fn openssl(arguments: &[&str]) -> (bool, String) {
    let mut command = std::process::Command::new("openssl");
    let output = command.args(arguments).stdin(std::process::Stdio::null()).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn accepts_only_these_of_all_openssl_cipher_suites() {
    if !has_tool("openssl") {
        return;
    }
    let authority = Authority::new("root");
    let folder = tempfile::tempdir().unwrap();
    let [key, crt] = ["rsa.key", "rsa.crt"].map(|name| folder.path().join(name));
    let (succeeded, _) = openssl(&[
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=a.test",
        "-days",
        "2",
        "-addext",
        "subjectAltName=DNS:a.test",
        "-keyout",
        key.to_str().unwrap(),
        "-out",
        crt.to_str().unwrap(),
    ]);
    assert!(succeeded);
    let identities = vec![authority.sign(&["a.test"]).identity(), Identity::files(crt, key)];
    let (server, _) = serve(TlsSettings { identities, ..TlsSettings::default() });
    let address = server.addresses()[0].address().unwrap().to_string();
    let (_, list) = openssl(&["ciphers", "-s", "-v", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]);
    let old = list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    });
    let old: Vec<_> = old.filter(|(_, version)| version != "TLSv1.3").collect();
    assert!(old.len() > 50, "{list}");
    // In parallel, because each attempt is a process.
    let accepted: Vec<String> = std::thread::scope(|scope| {
        let parts = old.chunks(old.len().div_ceil(4));
        let tasks = parts.map(|part| {
            let address = &address;
            scope.spawn(move || {
                let accepts = |name: &&String| {
                    let suite = format!("{name}:@SECLEVEL=0");
                    openssl(&[
                        "s_client",
                        "-connect",
                        address,
                        "-servername",
                        "a.test",
                        "-max_protocol",
                        "TLSv1.2",
                        "-cipher",
                        &suite,
                    ])
                    .0
                };
                part.iter().map(|(name, _)| name).filter(accepts).cloned().collect::<Vec<_>>()
            })
        });
        let tasks: Vec<_> = tasks.collect();
        tasks.into_iter().flat_map(|task| task.join().unwrap()).collect()
    });
    let mut accepted = accepted;
    accepted.sort();
    assert_eq!(
        accepted,
        [
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES256-GCM-SHA384",
            "ECDHE-RSA-CHACHA20-POLY1305",
        ]
    );
    for (option, is_accepted) in
        [("-tls1", false), ("-tls1_1", false), ("-tls1_2", true), ("-tls1_3", true)]
    {
        let (connected, _) =
            openssl(&["s_client", "-connect", &address, option, "-cipher", "ALL:@SECLEVEL=0"]);
        assert_eq!(connected, is_accepted, "{option}");
    }
    stop(server);
}

#[test]
fn selects_certificate_by_server_name() {
    let authority = Authority::new("root");
    let [first, second, third] = [&["a.test"][..], &["b2.test", "*.b.test"], &["x.b.test"]]
        .map(|names| authority.sign(names));
    let identities = [&first, &second, &third].map(Signed::identity).to_vec();
    let (server, _) = serve(TlsSettings { identities, ..TlsSettings::default() });
    for (name, expected) in [
        ("a.test", Some(&first)),
        ("A.Test", Some(&first)),
        ("b2.test", Some(&second)),
        ("y.b.test", Some(&second)),
        ("x.b.test", Some(&third)),
        // The first certificate is sent, and the client rejects it.
        ("z.y.b.test", None),
        ("b.test", None),
        ("c.test", None),
        ("127.0.0.1", None),
    ] {
        let client = Client::connect(&server, &client_config(&authority), name);
        match (client, expected) {
            (Ok(client), Some(expected)) => {
                let received = &client.tls.peer_certificates().unwrap()[0];
                assert_eq!(*received, expected.der(), "{name}");
            }
            (Err(error), None) => {
                assert!(error.to_string().contains("not valid for name"), "{error}")
            }
            (client, _) => panic!("{name}: {:?}", client.map(|_| ())),
        }
    }
    stop(server);
}

#[test]
fn named_identities_change_while_the_server_runs() {
    let authority = Authority::new("root");
    let named = NamedIdentities::default();
    let (server, errors) =
        serve(TlsSettings { named_identities: Some(named.clone()), ..Default::default() });
    for versions in [&[&TLS13][..], &[&TLS12]] {
        let provider = aws_lc_rs::default_provider();
        let mut config = client_config_with(&authority, provider, versions, None);
        config.resumption = Resumption::disabled();
        let served = |name: &str| match Client::connect(&server, &config, name) {
            Ok(client) => Ok(client.tls.peer_certificates().unwrap()[0].clone()),
            Err(error) => Err(error.to_string()),
        };
        let refused = Err("received fatal alert: UnrecognisedName".to_owned());
        assert_eq!(served("a.test"), refused);
        let reported = errors.recv_timeout(TEST_TIMEOUT).unwrap();
        let reason = "there is no certificate for a.test".to_owned();
        assert_eq!(reported, (ErrorKind::NoCertificate, reason));
        let [first, second, wildcard] =
            [&["a.test"][..], &["a.test"], &["*.b.test"]].map(|names| authority.sign(names));
        named.insert("A.test", &first.identity()).unwrap();
        named.insert("*.b.test", &wildcard.identity()).unwrap();
        assert_eq!(served("a.test"), Ok(first.der()));
        assert_eq!(served("x.b.test"), Ok(wildcard.der()));
        assert_eq!(served("x.y.b.test"), refused);
        named.insert("a.test", &second.identity()).unwrap();
        assert_eq!(served("A.test"), Ok(second.der()));
        // A client that connects to an address sends no name.
        assert_eq!(served("127.0.0.1"), refused);
        let mut address = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        address.not_after = (SystemTime::now() + Duration::from_secs(86_400)).into();
        let key = KeyPair::generate().unwrap();
        let certificate = address.signed_by(&key, &authority.issuer).unwrap();
        let identity = Identity::pem(certificate.pem(), key.serialize_pem());
        named.insert("127.0.0.1", &identity).unwrap();
        assert_eq!(served("127.0.0.1").as_ref(), Ok(certificate.der()));
        ["a.test", "*.b.test", "127.0.0.1"].into_iter().for_each(|name| named.remove(name));
        assert_eq!(served("a.test"), refused);
        while errors.try_recv().is_ok() {}
    }
    stop(server);
}

#[test]
fn named_identities_precede_the_others() {
    let authority = Authority::new("root");
    let [other, named] =
        [&["a.test", "b.test"], &["a.test", "c.test"]].map(|it| authority.sign(it));
    let identities = NamedIdentities::default();
    identities.insert("a.test", &named.identity()).unwrap();
    let settings = with_identity(other.identity());
    let (server, _errors) = serve(TlsSettings { named_identities: Some(identities), ..settings });
    let config = client_config(&authority);
    let served = |name: &str| {
        let client = Client::connect(&server, &config, name).unwrap();
        client.tls.peer_certificates().unwrap()[0].clone()
    };
    assert_eq!(served("a.test"), named.der());
    assert_eq!(served("b.test"), other.der());
    // A resumed session and one more round trip for the key exchange take the same path.
    assert_eq!(handshake_kind(&server, &config), Some(HandshakeKind::Full));
    assert_eq!(handshake_kind(&server, &config), Some(HandshakeKind::Resumed));
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups.retain(|group| group.name() == rustls::NamedGroup::secp384r1);
    let config = client_config_with(&authority, provider, &[&TLS13], None);
    assert!(Client::connect(&server, &config, "a.test").is_ok());
    stop(server);
}

/// Obtains identities for `*.slow.test` when the test permits it.
struct SlowSource {
    permits: Arc<tokio::sync::Semaphore>,
    identities: Arc<std::sync::OnceLock<(NamedIdentities, Identity)>>,
}

impl IdentitySource for SlowSource {
    fn obtain(&self, name: &str) -> Option<ObtainIdentity> {
        let name = Some(name.to_owned()).filter(|name| name.ends_with(".slow.test"))?;
        let (permits, identities) = (self.permits.clone(), self.identities.clone());
        Some(Box::pin(async move {
            permits.acquire_owned().await.unwrap().forget();
            let (named, identity) = identities.get().unwrap();
            match &*name {
                "a.slow.test" => named.insert(&name, identity).map_err(|error| error.to_string()),
                // The source ends without an identity.
                "none.slow.test" => Ok(()),
                _ => Err(format!("no certificate for {name} on purpose")),
            }
        }))
    }
}

#[test]
fn handshakes_wait_for_identities_that_are_obtained() {
    let authority = Authority::new("root");
    let permits = Arc::new(tokio::sync::Semaphore::new(0));
    let identities = Arc::new(std::sync::OnceLock::new());
    let source = SlowSource { permits: permits.clone(), identities: identities.clone() };
    let named = NamedIdentities::with_source(source);
    let signed = authority.sign(&["a.slow.test"]);
    let known = authority.sign(&["known.test"]);
    named.insert("known.test", &known.identity()).unwrap();
    identities.set((named.clone(), signed.identity())).ok().unwrap();
    let tls = TlsSettings { named_identities: Some(named), ..Default::default() };
    let tls = Tls::new(tls).unwrap();
    let (server, errors) = serve_with(&tls, Settings::default());
    let config = client_config(&authority);
    let connect = |name: &'static str| Client::connect(&server, &config, name);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| connect("a.slow.test").map(|mut it| it.get("/"))))
            .collect();
        // Meanwhile other handshakes continue on the same worker.
        assert_eq!(connect("known.test").unwrap().get("/").status, 200);
        assert!(waiting.iter().all(|client| !client.is_finished()));
        permits.add_permits(8);
        for client in waiting {
            assert_eq!(client.join().unwrap().unwrap().status, 200);
        }
    });
    assert_eq!(connect("a.slow.test").unwrap().get("/").status, 200, "without another permit");
    permits.add_permits(2);
    for (name, reason) in [
        ("other.test", "there is no certificate for other.test"),
        ("b.slow.test", "no certificate for b.slow.test on purpose"),
        ("none.slow.test", "there is no certificate for none.slow.test"),
    ] {
        assert!(connect(name).is_err(), "{name}");
        let reported = errors.recv_timeout(TEST_TIMEOUT).unwrap();
        assert_eq!(reported, (ErrorKind::NoCertificate, reason.to_owned()));
    }
    stop(server);
    let settings = Settings { head_timeout: 2 * SHORT_TIMEOUT, ..Settings::default() };
    let (server, errors) = serve_with(&tls, settings);
    // A handshake that began late has found the certificate of the others, and used no permit.
    permits.forget_permits(8);
    assert!(Client::connect(&server, &config, "late.slow.test").is_err());
    let reason = "the certificate was not obtained within `head_timeout`".to_owned();
    let reported = errors.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(reported, (ErrorKind::NoCertificate, reason));
    stop(server);
}

#[test]
fn client_authentication_modes() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server_identity = ours.sign(&["a.test"]).identity();
    let (trusted, untrusted) = (ours.sign(&["client"]), theirs.sign(&["client"]));
    let roots = || Roots::pem(ours.pem.as_str());
    for (auth, without, with_trusted, with_untrusted) in [
        (ClientAuth::None, Some("0"), Some("0"), Some("0")),
        (ClientAuth::Optional(roots()), Some("0"), Some("1"), None),
        (ClientAuth::Required(roots()), None, Some("1"), None),
    ] {
        let case = format!("{auth:?}");
        let settings = TlsSettings { client_auth: auth, ..with_identity(server_identity.clone()) };
        let (server, errors) = serve(settings);
        for version in [&TLS12, &TLS13] {
            for (identity, expected) in [
                (None, without),
                (Some(&trusted), with_trusted),
                (Some(&untrusted), with_untrusted),
            ] {
                let provider = aws_lc_rs::default_provider();
                let config = client_config_with(&ours, provider, &[version], identity);
                // In TLS 1.3 the client receives the alert only after its handshake is complete.
                let seen = Client::connect(&server, &config, "a.test").and_then(|mut client| {
                    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                    client.response()
                });
                let seen = seen.ok().map(|seen| seen.text().split(' ').nth(3).unwrap().to_owned());
                assert_eq!(seen.as_deref(), expected, "{case} {version:?}");
                if expected.is_none() {
                    let (kind, _) = errors.recv_timeout(TEST_TIMEOUT).unwrap();
                    assert_eq!((kind, kind.fault()), (ErrorKind::TlsFailed, Fault::Peer));
                }
            }
        }
        stop(server);
    }
}

// -- session resumption

#[test]
fn resumes_sessions_with_the_same_ticket_keys_and_client_auth() {
    let authority = Authority::new("root");
    let identity = authority.sign(&["a.test"]).identity();
    let folder = tempfile::tempdir().unwrap();
    let [keys, rotated, others] =
        ["keys", "rotated", "others"].map(|name| folder.path().join(name));
    fs::write(&keys, [1; 48]).unwrap();
    fs::write(&rotated, [[2; 48], [1; 48]].concat()).unwrap();
    fs::write(&others, [3; 48]).unwrap();
    let settings = |keys: Option<&Path>, client_auth| TlsSettings {
        ticket_keys: keys.map(Path::to_owned),
        client_auth,
        ..with_identity(identity.clone())
    };
    let optional = || ClientAuth::Optional(Roots::pem(authority.pem.as_str()));
    let (first, _) = serve(settings(Some(&keys), ClientAuth::None));
    for (case, second, resumed) in [
        ("the same keys", settings(Some(&keys), ClientAuth::None), true),
        ("a newer key first", settings(Some(&rotated), ClientAuth::None), true),
        ("other keys", settings(Some(&others), ClientAuth::None), false),
        ("random keys", settings(None, ClientAuth::None), false),
        ("another client_auth", settings(Some(&keys), optional()), false),
    ] {
        let (second, _) = serve(second);
        for version in [&TLS12, &TLS13] {
            let provider = aws_lc_rs::default_provider();
            let mut config = client_config_with(&authority, provider, &[version], None);
            config.resumption = Resumption::in_memory_sessions(8);
            for (server, expected) in [(&first, false), (&first, true), (&second, resumed)] {
                let mut client = Client::connect(server, &config, "a.test").unwrap();
                assert_eq!(client.get("/").status, 200);
                let kind = client.tls.handshake_kind().unwrap();
                assert_eq!(kind == HandshakeKind::Resumed, expected, "{case}, {version:?}");
            }
        }
        stop(second);
    }
    stop(first);
}

/// Sends a request on a new connection. Returns the kind of the handshake if it is answered.
fn handshake_kind(server: &ServerHandle, config: &ClientConfig) -> Option<HandshakeKind> {
    // In TLS 1.3 the client receives the alert only after its handshake is complete.
    let mut client = Client::connect(server, config, "a.test").ok()?;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().ok()?.status, 200);
    client.tls.handshake_kind()
}

/// Returns clients for each version of TLS that resume sessions and have a certificate that is valid
/// until `end`.
fn resuming_clients(authority: &Authority, end: SystemTime) -> [ClientConfig; 2] {
    let signed = authority.sign_until(&["client"], end);
    [&TLS12, &TLS13].map(|version| {
        let provider = aws_lc_rs::default_provider();
        let mut config = client_config_with(authority, provider, &[version], Some(&signed));
        config.resumption = Resumption::in_memory_sessions(8);
        config
    })
}

#[test]
fn expired_client_certificate_is_rejected_with_a_ticket() {
    let authority = Authority::new("root");
    let identity = authority.sign(&["a.test"]).identity();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    fs::write(&keys, [1; 48]).unwrap();
    let roots = || Roots::pem(authority.pem.as_str());
    for (case, client_auth, ticket_keys) in [
        ("required", ClientAuth::Required(roots()), None),
        ("optional", ClientAuth::Optional(roots()), Some(keys)),
    ] {
        let settings = TlsSettings { client_auth, ticket_keys, ..with_identity(identity.clone()) };
        let (server, _) = serve(settings);
        // A busy machine may need longer for the handshakes than the certificate is valid.
        let validities = (1..).map(|exponent| Duration::from_secs(1 << exponent));
        let (end, configs) = validities
            .map(|validity| SystemTime::now() + validity)
            .map(|end| (end, resuming_clients(&authority, end)))
            .find(|(end, configs)| {
                let kinds: Vec<_> =
                    [0, 0, 1, 1].map(|i| handshake_kind(&server, &configs[i])).into();
                assert!(!kinds.contains(&Some(HandshakeKind::Resumed)), "{case}");
                let is_in_time = SystemTime::now() < *end;
                assert!(!is_in_time || !kinds.contains(&None), "{case}: the certificate is valid");
                is_in_time
            })
            .expect("an endless sequence");
        // A certificate is valid up to and including the last second.
        until("the certificate has expired", || SystemTime::now() > end + Duration::from_secs(1));
        for config in &configs {
            for number in 0..3 {
                assert_eq!(handshake_kind(&server, config), None, "{case}, attempt {number}");
            }
        }
        stop(server);
    }
}

// -- reloading

#[test]
fn changed_client_auth_closes_established_connections() {
    let [ours, theirs] = ["ours", "theirs"].map(Authority::new);
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca");
    fs::write(&ca, &ours.pem).unwrap();
    let identity = ours.sign(&["a.test"]).identity();
    let tls = |client_auth| {
        Tls::new(TlsSettings {
            client_auth,
            check_files_every: Duration::from_millis(10),
            ..with_identity(identity.clone())
        })
    };
    let of_file = || ClientAuth::Required(Roots::file(&ca));
    let without = client_config(&ours);
    let client = ours.sign(&["client"]);
    let with =
        client_config_with(&ours, aws_lc_rs::default_provider(), &[&TLS13, &TLS12], Some(&client));
    type Change<'a> = Box<dyn Fn(&Tls) + 'a>;
    let changes: [(&str, _, _, bool, Change<'_>); 4] = [
        (
            "the same",
            ClientAuth::None,
            &without,
            true,
            Box::new(|shared| {
                shared.renew(tls(ClientAuth::None).unwrap());
            }),
        ),
        (
            "none to required",
            ClientAuth::None,
            &without,
            false,
            Box::new(|shared| {
                shared.renew(tls(of_file()).unwrap());
            }),
        ),
        (
            "required to none",
            of_file(),
            &with,
            false,
            Box::new(|shared| {
                shared.renew(tls(ClientAuth::None).unwrap());
            }),
        ),
        (
            "another authority in the file",
            of_file(),
            &with,
            false,
            Box::new(|_| {
                fs::write(&ca, &theirs.pem).unwrap();
            }),
        ),
    ];
    for (case, before, config, stays_open, change) in changes {
        let hour = Duration::from_secs(3_600);
        let settings = Settings { idle_timeout: hour, head_timeout: hour, ..Settings::default() };
        let shared = tls(before).unwrap();
        let (server, _) = serve_with(&shared, settings);
        let mut clients: Vec<Client> =
            (0..3).map(|_| Client::connect(&server, config, "a.test").unwrap()).collect();
        let mut http2 = config.clone();
        http2.alpn_protocols = vec![b"h2".to_vec()];
        let mut h2 = Client::connect(&server, &http2, "a.test").unwrap();
        h2.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        // Only a server that has sent SETTINGS owes a GOAWAY.
        while h2.received.is_empty() {
            assert!(h2.receive().unwrap(), "{case}");
        }
        let [idle, busy, silent] = &mut clients[..] else { unreachable!() };
        assert_eq!(idle.get("/").status, 200);
        busy.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
        // The response streams the request body, so that its head proves that it has begun.
        while busy.received.is_empty() {
            assert!(busy.receive().unwrap(), "{case}");
        }
        change(&shared);
        if stays_open {
            assert_eq!(idle.get("/").status, 200, "{case}");
            assert_eq!(silent.get("/").status, 200, "{case}");
        } else {
            assert!(idle.response().is_err(), "{case}: the idle connection is open");
            assert!(silent.response().is_err(), "{case}: the connection without a request is open");
            while let Ok(true) = h2.receive() {}
            let goaway = b"\0\0\x08\x07\0\0\0\0\0";
            assert!(h2.received.windows(9).any(|bytes| bytes == goaway), "{case}: no GOAWAY");
        }
        // A request in progress completes.
        busy.send("def");
        assert_eq!(busy.response().unwrap().text(), "abcdef", "{case}");
        if stays_open {
            assert_eq!(busy.get("/").status, 200, "{case}");
        } else {
            assert!(busy.response().is_err(), "{case}: the connection is open after the response");
        }
        stop(server);
    }
}

#[test]
fn tls_1_2_renegotiation_is_refused() {
    if !has_tool("openssl") {
        return;
    }
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let address = server.addresses()[0].address().unwrap().to_string();
    let mut command = std::process::Command::new("timeout");
    let piped = std::process::Stdio::piped;
    let client = command
        .args(["30", "openssl", "s_client", "-connect", &address, "-tls1_2"])
        .stdin(piped())
        .stdout(piped())
        .stderr(piped());
    let mut client = client.spawn().unwrap();
    let mut stdin = client.stdin.take().unwrap();
    // `R` renegotiates.
    stdin.write_all(b"R\n").unwrap();
    let output = client.wait_with_output().unwrap();
    drop(stdin);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no renegotiation"), "{stderr}");
    stop(server);
}

#[test]
fn reloads_changed_files() {
    let authority = Authority::new("root");
    let [first, second, third] = [1, 2, 3].map(|_| authority.sign(&["a.test"]));
    let folder = tempfile::tempdir().unwrap();
    first.write(folder.path());
    let tls = Tls::new(TlsSettings {
        check_files_every: Duration::from_millis(10),
        ..with_identity(in_folder(&folder))
    });
    let tls = tls.unwrap();
    let (server, errors) = serve_with(&tls, Settings::default());
    let config = client_config(&authority);
    let served_certificate = || {
        let client = Client::connect(&server, &config, "a.test").unwrap();
        client.tls.peer_certificates().unwrap()[0].clone().into_owned()
    };
    assert_eq!(served_certificate(), first.der());
    let mut old = Client::connect(&server, &config, "a.test").unwrap();

    // The certificate is replaced first and its key later: the mismatch is reported once, and the
    // old identity stays in use.
    fs::write(folder.path().join("crt"), &second.certificate).unwrap();
    let (kind, reason) = errors.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(kind, ErrorKind::InvalidSetting);
    assert!(reason.contains("does not belong to the certificate in"), "{reason}");
    assert_eq!(served_certificate(), first.der());
    assert!(tls.reload().is_err());
    fs::write(folder.path().join("key"), &second.key).unwrap();
    until("the new certificate is served", || served_certificate() == second.der());
    assert_eq!(old.get("/").status, 200, "open connections are not affected");

    // By symbolic links into another directory, as tools do that replace both files atomically.
    let swapped = folder.path().join("swapped");
    fs::create_dir(&swapped).unwrap();
    third.write(&swapped);
    for name in ["key", "crt"] {
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(swapped.join(name), &link).unwrap();
        fs::rename(link, folder.path().join(name)).unwrap();
    }
    until("the third certificate is served", || served_certificate() == third.der());
    stop(server);
}

#[test]
fn errors_name_the_unusable_file() {
    let authority = Authority::new("root");
    let [one, other] = [1, 2].map(|_| authority.sign(&["a.test"]));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("crt"), &one.certificate).unwrap();
    fs::write(path("key"), &one.key).unwrap();
    fs::write(path("other"), &other.key).unwrap();
    fs::write(path("empty"), "").unwrap();
    fs::write(
        path("encrypted"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    fs::write(path("cut"), &one.key[..80]).unwrap();
    fs::write(path("47"), [0; 47]).unwrap();
    let files = |crt: &str, key: &str| with_identity(Identity::files(path(crt), path(key)));
    let roots = ClientAuth::Required(Roots::file(path("empty")));
    for (settings, expected) in [
        (TlsSettings::default(), "TLS requires a certificate"),
        (files("crt", "key"), ""),
        (files("crt", "other"), "the key in ?/other does not belong to the certificate in ?/crt"),
        (files("missing", "key"), "cannot read ?/missing"),
        (files("crt", "missing"), "cannot read ?/missing"),
        (files("empty", "key"), "?/empty holds no certificate"),
        (files("key", "key"), "?/key holds no certificate"),
        (files("crt", "crt"), "?/crt holds no private key"),
        (files("crt", "cut"), "?/cut is not sound PEM"),
        (files("crt", "encrypted"), "the key in ?/encrypted is encrypted"),
        (
            TlsSettings { ticket_keys: Some(path("47")), ..files("crt", "key") },
            "?/47 has 47 bytes, and keys of session tickets have 48 each",
        ),
        (TlsSettings { client_auth: roots, ..files("crt", "key") }, "?/empty holds no certificate"),
    ] {
        let expected = expected.replace('?', folder.path().to_str().unwrap());
        let error = Tls::new(settings).err().map(|error| (error.kind(), error.to_string()));
        match error {
            None => assert_eq!(expected, ""),
            Some((kind, reason)) => {
                assert_eq!(kind, ErrorKind::InvalidSetting);
                assert!(
                    !expected.is_empty() && reason.contains(&expected),
                    "{reason}, not {expected}"
                );
            }
        }
    }
}

// -- misbehaving clients

#[test]
fn input_that_is_not_tls_gets_400_or_an_alert() {
    let authority = Authority::new("root");
    let settings = with_identity(authority.sign(&["a.test"]).identity());
    rejects_input_that_is_not_tls(&authority, settings.clone());
    let named_identities = Some(NamedIdentities::default());
    rejects_input_that_is_not_tls(&authority, TlsSettings { named_identities, ..settings });
}

fn rejects_input_that_is_not_tls(authority: &Authority, settings: TlsSettings) {
    let (server, errors) = serve(settings);
    for (sent, expected, reason) in [
        (
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            "without TLS",
        ),
        (b"PRI * HTTP/2.0\r\n\r\n", b"HTTP/1.1 400 ", "without TLS"),
        // Alert, fatal, decode_error (RFC 8446 §6.2), or unexpected_message.
        (b"\x00garbage garbage garbage", b"\x15\x03", "handshake failed"),
        (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", b"\x15\x03", "handshake failed"),
        (b"\x17\x03\x03\x00\x05hello", b"\x15\x03", "handshake failed"),
        // An incomplete ClientHello.
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"", "closed"),
    ] {
        let mut socket = connect(&server);
        socket.write_all(sent).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let received = read_to_end(&socket);
        assert!(
            received.starts_with(expected),
            "{}: {}",
            sent.escape_ascii(),
            received.escape_ascii()
        );
        assert_eq!(received.is_empty(), expected.is_empty(), "{}", sent.escape_ascii());
        let (kind, message) = errors.recv_timeout(TEST_TIMEOUT).unwrap();
        assert_eq!(kind.fault(), Fault::Peer);
        assert!(message.contains(reason), "{}: {message}", sent.escape_ascii());
        if expected.starts_with(b"HTTP") {
            assert!(Seen::parse(&received, false).unwrap().text().contains("https://"));
        }
    }
    // A connection without any input is not reported as an error.
    drop(connect(&server));
    Client::connect(&server, &client_config(authority), "a.test").unwrap().get("/");
    assert!(errors.try_recv().is_err());
    stop(server);
}

#[test]
fn negotiates_alpn_and_rejects_unknown_protocols() {
    let authority = Authority::new("root");
    let (server, errors) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    for (offered, chosen) in [
        (&["http/1.1"][..], Ok(Some("http/1.1"))),
        (&["x", "http/1.1"], Ok(Some("http/1.1"))),
        (&["http/1.0", "http/1.1"], Ok(Some("http/1.1"))),
        // Sent by `curl --http1.0`.
        (&["http/1.0"], Ok(Some("http/1.0"))),
        (&[], Ok(None)),
        (&["x"], Err("NoApplicationProtocol")),
        // Last, because a client that negotiates HTTP/2 and sends no preface is reported, too.
        (&["http/1.1", "h2"], Ok(Some("h2"))),
    ] {
        let mut config = client_config(&authority);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        match (Client::connect(&server, &config, "a.test"), chosen) {
            (Ok(client), Ok(chosen)) => {
                assert_eq!(client.tls.alpn_protocol(), chosen.map(str::as_bytes));
            }
            (Err(error), Err(alert)) => {
                assert!(error.to_string().contains(alert), "{error}");
                assert_eq!(errors.recv_timeout(TEST_TIMEOUT).unwrap().0, ErrorKind::TlsFailed);
            }
            (client, _) => panic!("{offered:?}: {:?}", client.map(|_| ())),
        }
    }
    stop(server);
    let http1 = Settings { http2: false, ..Settings::default() };
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let (server, _) = serve_with(&tls, http1);
    let mut config = client_config(&authority);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let client = Client::connect(&server, &config, "a.test").unwrap();
    assert_eq!(client.tls.alpn_protocol(), Some(&b"http/1.1"[..]));
    stop(server);
}

#[test]
fn slow_reading_client_receives_the_full_response() {
    const LENGTH: usize = 16 << 20;
    let authority = Authority::new("root");
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let stall_timeout = 2 * SHORT_TIMEOUT;
    let (server, _) = serve_with(&tls, Settings { stall_timeout, ..Settings::default() });
    let config = client_config(&authority);
    // Far above the minimum rate, but the kernel does not report the socket as writable for longer
    // than the stall timeout. The attempt is repeated if the machine delayed the client.
    until("the full response is received", || {
        let mut client = Client::connect(&server, &config, "a.test").unwrap();
        client.send(format!("GET /{LENGTH} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let (begin, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        while begin.elapsed() < 4 * stall_timeout {
            std::thread::sleep(Duration::from_millis(20));
            if !client.receive().unwrap_or(false) {
                break;
            }
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        while client.receive().unwrap_or(false) {}
        let is_complete = client.received.len() > LENGTH;
        assert!(
            is_complete || longest > SHORT_TIMEOUT,
            "closed after {} bytes",
            client.received.len()
        );
        is_complete
    });
    stop(server);
}

#[test]
fn trickling_handshake_times_out() {
    let authority = Authority::new("root");
    let identity = authority.sign(&["a.test"]).identity();
    let tls = Tls::new(with_identity(identity)).unwrap();
    let settings = Settings { head_timeout: SHORT_TIMEOUT, ..Settings::default() };
    let (server, errors) = serve_with(&tls, settings);
    let name = ServerName::try_from("a.test").unwrap();
    let mut hello = Vec::new();
    let config = Arc::new(client_config(&authority));
    ClientConnection::new(config, name).unwrap().write_tls(&mut hello).unwrap();
    let socket = connect(&server);
    socket.set_nodelay(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut bytes = hello[..hello.len() - 1].iter();
    let mut is_closed = false;
    until("the server closes the connection", || {
        if let Some(&byte) = bytes.next() {
            is_closed |= (&socket).write(&[byte]).is_err();
        }
        let mut buffer = [0; 64];
        match (&socket).read(&mut buffer) {
            Ok(0) => is_closed = true,
            Ok(_) => panic!("received unexpected bytes"),
            Err(error) => is_closed |= error.kind() != IoKind::WouldBlock,
        }
        is_closed
    });
    assert_eq!(errors.recv_timeout(TEST_TIMEOUT).unwrap().0, ErrorKind::TooSlow);
    stop(server);
}

#[test]
fn truncated_request_body_fails_with_body_incomplete() {
    let authority = Authority::new("root");
    let (server, errors) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let config = client_config(&authority);
    for (sends_close_notify, framing) in [
        (false, "Content-Length: 100000"),
        (true, "Content-Length: 100000"),
        (false, "Transfer-Encoding: chunked"),
        (true, "Transfer-Encoding: chunked"),
    ] {
        let mut client = Client::connect(&server, &config, "a.test").unwrap();
        client.send(format!("POST /count HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        client.send("5\r\nhello\r\n");
        if sends_close_notify {
            client.tls.send_close_notify();
            client.flush().unwrap();
        }
        client.socket.shutdown(Shutdown::Write).unwrap();
        let (kind, _) = errors.recv_timeout(TEST_TIMEOUT).unwrap();
        assert_eq!(kind, ErrorKind::BodyIncomplete, "{framing}, {sends_close_notify}");
        // Closing before the response would be another error.
        while let Ok(true) = client.receive() {}
    }
    // Between requests a missing close_notify is not an error.
    let mut client = Client::connect(&server, &config, "a.test").unwrap();
    client.get("/");
    drop(client);
    let mut last = Client::connect(&server, &config, "a.test").unwrap();
    last.get("/");
    assert!(errors.try_recv().is_err());
    stop(server);
}

// -- data and records

#[test]
fn transfers_bodies_in_both_directions() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let body: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    for version in [&TLS12, &TLS13] {
        let config =
            client_config_with(&authority, aws_lc_rs::default_provider(), &[version], None);
        let mut client = Client::connect(&server, &config, "a.test").unwrap();
        client.send(format!(
            "POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        client.send(&body);
        assert_eq!(client.response().unwrap().text(), body.len().to_string());
        // Less than the socket buffers hold, because this client sends everything before it reads.
        for length in [1, 1_300, 1_301, 16_384, 100_000] {
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
            client.send(&body[..length]);
            assert!(client.response().unwrap().body == body[..length], "{length}");
        }
        assert_eq!(client.get("/5000000").body.len(), 5_000_000);
    }
    stop(server);
}

#[test]
fn serves_files_and_ranges() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.bin");
    let contents: Vec<u8> = (0..3 << 20).map(|n: u32| (n / 3 % 251) as u8).collect();
    fs::write(&path, &contents).unwrap();
    FILE.set(path).unwrap();
    let mut client = Client::connect(&server, &client_config(&authority), "a.test").unwrap();
    assert!(client.get("/file").body == contents);
    for (range, expected) in [
        ("bytes=0-0", &contents[..1]),
        ("bytes=100000-299999", &contents[100_000..300_000]),
        ("bytes=-70000", &contents[contents.len() - 70_000..]),
    ] {
        client.send(format!("GET /file HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n"));
        let response = client.response().unwrap();
        assert_eq!(response.status, 206);
        assert!(response.body == expected, "{range}");
    }
    stop(server);
}

#[test]
fn records_are_small_at_first_and_large_later() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let config = client_config_with(&authority, aws_lc_rs::default_provider(), &[&TLS13], None);
    let mut client = Client::connect(&server, &config, "a.test").unwrap();
    client.get("/");
    client.wire.clear();
    client.get("/1000000");
    let records = client.records();
    // TLS 1.3 adds 17 bytes to a record: the content type and a tag of 16 bytes.
    let (small, large) = records.split_at(records.iter().position(|n| *n > 1_317).unwrap());
    let small: usize = small.iter().map(|length| length - 17).sum();
    assert!((60_000..=65_536 + 1_300).contains(&small), "{records:?}");
    assert!(large.iter().filter(|length| **length == 16_384 + 17).count() > 50, "{records:?}");
    stop(server);
}

#[test]
fn updates_traffic_keys_on_client_request() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let config = client_config_with(&authority, aws_lc_rs::default_provider(), &[&TLS13], None);
    let mut client = Client::connect(&server, &config, "a.test").unwrap();
    for _ in 0..5 {
        assert_eq!(client.get("/").status, 200);
        client.tls.refresh_traffic_keys().unwrap();
        assert_eq!(client.get("/100000").body.len(), 100_000);
    }
    stop(server);
}

#[test]
fn canonical_https_redirects_only_plain_connections() {
    let authority = Authority::new("root");
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let app = (async |_: Request| Response::text("ok")).with(Canonical::new().https());
    let server = boxed_server(app).workers(1).listen_tls("127.0.0.1:0", &tls).unwrap();
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let [secure, plain] = server.addresses() else { panic!("two addresses") };
    assert_eq!((secure.is_secure(), plain.is_secure()), (true, false));
    assert!(secure.to_string().starts_with("https://127.0.0.1:"), "{secure}");
    let mut client = Client::connect(&server, &client_config(&authority), "a.test").unwrap();
    assert_eq!(client.get("/").status, 200);
    let mut socket = TcpStream::connect(plain.address().unwrap()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(Seen::parse(&read_to_end(&socket), false).unwrap().status, 308);
    stop(server);
}

#[test]
fn sends_close_notify_before_closing() {
    let authority = Authority::new("root");
    let settings = Settings { idle_timeout: Duration::from_millis(50), ..Settings::default() };
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let (server, _) = serve_with(&tls, settings);
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let mut client = Client::connect(&server, &client_config(&authority), "a.test").unwrap();
        client.send(request);
        assert_eq!(client.response().unwrap().status, 200);
        // Returns an error if there is no close_notify.
        while client.receive().unwrap() {}
        assert_eq!(client.tls.reader().read(&mut [0]).unwrap(), 0, "{request}");
    }
    stop(server);
}

#[test]
fn truncated_response_ends_without_close_notify() {
    let authority = Authority::new("root");
    let (server, errors) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    for version in ["1.0", "1.1"] {
        let config = client_config(&authority);
        let mut client = Client::connect(&server, &config, "a.test").unwrap();
        client.send(format!("GET /cut HTTP/{version}\r\nHost: a\r\n\r\n"));
        let end = loop {
            match client.receive() {
                Ok(true) => {}
                end => break end,
            }
        };
        assert!(end.is_err(), "an HTTP/1.0 client would accept the body as complete");
        assert_eq!(errors.recv_timeout(TEST_TIMEOUT).unwrap().0, ErrorKind::BodyFailed);
    }
    stop(server);
}

#[test]
fn upgraded_connections_are_decrypted() {
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let mut client = Client::connect(&server, &client_config(&authority), "a.test").unwrap();
    let upgrade = "Connection: upgrade\r\nUpgrade: shout";
    // The first bytes are sent together with the request.
    client.send(format!("GET /shout HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n\r\nhel"));
    client.send("lo");
    client.tls.send_close_notify();
    client.flush().unwrap();
    while client.receive().unwrap() {}
    let received = String::from_utf8(client.received).unwrap();
    assert!(
        received.starts_with("HTTP/1.1 101 ") && received.ends_with("\r\n\r\nHELLO"),
        "{received}"
    );
    stop(server);
}

#[test]
fn serves_tls_over_unix_sockets() {
    let authority = Authority::new("root");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let server = boxed_server(app).workers(1);
    let server = server.listen_tls(format!("unix:{}", path.display()), &tls).unwrap();
    let server = server.start().unwrap();
    assert_eq!(server.addresses()[0].to_string(), format!("https+unix:{}", path.display()));
    let name = ServerName::try_from("a.test").unwrap();
    let mut tls = ClientConnection::new(Arc::new(client_config(&authority)), name).unwrap();
    let mut socket = UnixStream::connect(&path).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"GET /200000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert_eq!(Seen::parse(&received, false).unwrap().body.len(), 200_000);
    stop(server);
}

#[test]
fn reads_proxy_header_before_the_handshake() {
    let authority = Authority::new("root");
    let tls = Tls::new(with_identity(authority.sign(&["a.test"]).identity())).unwrap();
    let proxy_protocol = vec!["127.0.0.1".parse().unwrap()];
    let (server, _) = serve_with(&tls, Settings { proxy_protocol, ..Settings::default() });
    let name = ServerName::try_from("a.test").unwrap();
    let mut tls = ClientConnection::new(Arc::new(client_config(&authority)), name).unwrap();
    let mut socket = connect(&server);
    // In one packet with the ClientHello.
    let mut first = b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n".to_vec();
    tls.write_tls(&mut first).unwrap();
    socket.write_all(&first).unwrap();
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(Seen::parse(&received, false).unwrap().text().ends_with("https"));
    stop(server);
}

#[test]
fn handshakes_do_not_block_established_connections() {
    const CLIENTS: usize = 64;
    let authority = Authority::new("root");
    let (server, errors) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let config = client_config(&authority);
    let mut established = Client::connect(&server, &config, "a.test").unwrap();
    std::thread::scope(|scope| {
        let connecting: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| Client::connect(&server, &config, "a.test").unwrap().get("/")))
            .collect();
        for _ in 0..100 {
            assert_eq!(established.get("/").status, 200);
        }
        for client in connecting {
            assert_eq!(client.join().unwrap().status, 200);
        }
    });
    assert!(errors.try_recv().is_err());
    stop(server);
}

/// Decompresses certificates, and counts them.
#[cfg(all(feature = "brotli", feature = "gzip"))]
#[derive(Debug)]
struct Decompressor {
    algorithm: CertificateCompressionAlgorithm,
    count: AtomicUsize,
}

#[cfg(all(feature = "brotli", feature = "gzip"))]
impl CertDecompressor for Decompressor {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        self.count.fetch_add(1, Relaxed);
        let decompressed = match self.algorithm {
            CertificateCompressionAlgorithm::Brotli => {
                brotli::Decompressor::new(input, 4096).read_exact(output)
            }
            _ => flate2::read::ZlibDecoder::new(input).read_exact(output),
        };
        assert!(input.len() < output.len() * 3 / 4, "{} of {}", input.len(), output.len());
        decompressed.map_err(|_| DecompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        self.algorithm
    }
}

#[test]
#[cfg(all(feature = "brotli", feature = "gzip"))]
fn certificates_are_compressed_for_clients_that_offer_it() {
    use CertificateCompressionAlgorithm::{Brotli, Zlib, Zstd};
    let authority = Authority::new("root");
    let names: Vec<String> = (0..20).map(|number| format!("name-{number}.a.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["a.test"]).collect();
    let (server, errors) = serve(with_identity(authority.sign(&names).identity()));
    let decompressor = |algorithm| -> &'static Decompressor {
        Box::leak(Box::new(Decompressor { algorithm, count: AtomicUsize::new(0) }))
    };
    let all = [Brotli, Zlib, Zstd].map(decompressor);
    for (offered, expected) in [
        (&all[..1], [1, 0, 0]),
        (&all[1..2], [1, 1, 0]),
        // The server does not know it, and does not compress.
        (&all[2..], [1, 1, 0]),
        (&[], [1, 1, 0]),
        // The second one is from the cache of compressed certificates.
        (&all[..1], [2, 1, 0]),
    ] {
        let mut config = client_config(&authority);
        config.cert_decompressors = offered.iter().map(|it| *it as &dyn CertDecompressor).collect();
        Client::connect(&server, &config, "a.test").unwrap().get("/");
        assert_eq!([0, 1, 2].map(|at| all[at].count.load(Relaxed)), expected);
    }
    assert!(errors.try_recv().is_err());
    stop(server);
}
