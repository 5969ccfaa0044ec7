//! TLS over real sockets: negotiation, client authentication, session resumption, reloading,
//! records, and the end of connections.
#![cfg(feature = "tls")]

mod negotiation;
mod resumption;
mod reloading;
mod hostile;
mod records;

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
use weft::error::Fault;
use weft::message::Upgraded;
use weft::middleware::Canonical;
use weft::net::Peer;
use weft::server::ServerHandle;
use weft::tls::{
    ClientAuth, Identity, IdentitySource, NamedIdentities, ObtainIdentity, Roots, TicketSecret,
    Tls, TlsSettings, Version,
};
use weft::{Application, Body, Error, ErrorKind, File, Hooks, Method, Request, Response, Settings};

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
        (&Method::POST, _) => Response::from_body(request.into_body()),
        (_, "/file") => Response::from_file(File::open(
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
            Response::from_body(Body::stream(futures_util::stream::iter(parts)))
        }
        (_, path) => match path[1..].parse() {
            Ok(length) => Response::from_body(Body::from(vec![b'x'; length])),
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

// -- shared by the modules

fn openssl(arguments: &[&str]) -> (bool, String) {
    let mut command = std::process::Command::new("openssl");
    let output = command.args(arguments).stdin(std::process::Stdio::null()).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Sends a request on a new connection. Returns the kind of the handshake if it is answered.
fn handshake_kind(server: &ServerHandle, config: &ClientConfig) -> Option<HandshakeKind> {
    // In TLS 1.3 the client receives the alert only after its handshake is complete.
    let mut client = Client::connect(server, config, "a.test").ok()?;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().ok()?.status, 200);
    client.tls.handshake_kind()
}
