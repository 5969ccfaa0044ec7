//! A certificate authority that fails in a chosen way. It validates nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::common::unused_address;

/// A way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Connections are refused.
    Closed,
    Silent,
    /// One byte per second.
    Slow,
    /// All requests get this status.
    Status(u16),
    /// All requests get 429 with `Retry-After: 3`.
    RetryLater,
    Redirect,
    /// So many nonces are refused.
    BadNonces(usize),
    /// The directory has 10 MiB.
    Huge,
    PendingForever,
    InvalidChallenge,
    ProcessingForever,
    OtherName,
    OtherKey,
    Expired,
    NoPem,
    /// Each certificate is to be renewed in 2020 (RFC 9773).
    AlwaysDue,
    /// In addition, they are valid for 8 s.
    ShortLived,
    /// No failure: they are valid for 90 days.
    NinetyDays,
    /// The certificate of its API is from another authority.
    Untrusted,
}

/// A running authority.
pub struct ScriptedAuthority {
    pub address: SocketAddr,
    /// Root of the certificate of its API and of the certificates that it issues, in PEM.
    pub root: String,
    state: Arc<State>,
}

struct State {
    fault: Fault,
    address: SocketAddr,
    params: CertificateParams,
    key: KeyPair,
    requests: AtomicUsize,
    nonces: AtomicUsize,
    refused: AtomicUsize,
    order: Mutex<Order>,
    /// Certificates in DER.
    issued: Mutex<Vec<Vec<u8>>>,
    /// Connections without a response.
    held: Mutex<Vec<TcpStream>>,
}

/// The order in progress.
#[derive(Default)]
struct Order {
    name: String,
    /// Certificate that it replaces (RFC 9773 §5).
    replaces: Option<Value>,
    is_validated: bool,
    chain: Option<String>,
}

struct Response {
    status: u16,
    location: Option<&'static str>,
    body: String,
}

impl Response {
    fn json(status: u16, body: &Value) -> Response {
        Response { status, location: None, body: body.to_string() }
    }
}

impl ScriptedAuthority {
    pub fn start(fault: Fault) -> ScriptedAuthority {
        let (params, key) = ca();
        let root = params.self_signed(&key).unwrap().pem();
        if fault == Fault::Closed {
            let address = unused_address();
            let state = Arc::new(State::new(fault, address, params, key));
            return ScriptedAuthority { address, root, state };
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (own_params, own_key) = match fault {
            Fault::Untrusted => ca(),
            _ => (params.clone(), KeyPair::try_from(&*key.serialize_der()).unwrap()),
        };
        let tls = tls_config(address, &Issuer::new(own_params, own_key));
        let state = Arc::new(State::new(fault, address, params, key));
        let shared = state.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (state, tls) = (shared.clone(), tls.clone());
                // Fails if the client has disconnected.
                std::thread::spawn(move || state.serve(socket?, tls));
            }
        });
        ScriptedAuthority { address, root, state }
    }

    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.address)
    }

    /// Number of requests so far.
    pub fn requests(&self) -> usize {
        self.state.requests.load(Relaxed)
    }

    /// The certificates that it has issued, in DER.
    pub fn issued(&self) -> Vec<Vec<u8>> {
        self.state.issued.lock().unwrap().clone()
    }

    pub fn write_root(&self, path: &Path) {
        std::fs::write(path, &self.root).unwrap();
    }
}

impl State {
    fn new(fault: Fault, address: SocketAddr, params: CertificateParams, key: KeyPair) -> State {
        State {
            fault,
            address,
            params,
            key,
            requests: AtomicUsize::new(0),
            nonces: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            order: Mutex::default(),
            issued: Mutex::default(),
            held: Mutex::default(),
        }
    }

    fn serve(&self, socket: TcpStream, tls: Arc<ServerConfig>) -> std::io::Result<()> {
        let held = socket.try_clone()?;
        let connection = ServerConnection::new(tls).unwrap();
        let mut stream = BufReader::new(StreamOwned::new(connection, socket));
        let Some((method, path, body)) = read_request(&mut stream)? else { return Ok(()) };
        self.requests.fetch_add(1, Relaxed);
        let response = self.respond(&method, &path, &body);
        let nonce = self.nonces.fetch_add(1, Relaxed);
        let mut head = format!(
            "HTTP/1.1 {} Status\r\nConnection: close\r\nReplay-Nonce: nonce{nonce}\r\n\
             Content-Length: {}\r\n",
            response.status,
            response.body.len()
        );
        if let Some(path) = response.location {
            head += &format!("Location: https://{}{path}\r\n", self.address);
        }
        if self.fault == Fault::RetryLater || path.starts_with("/renewal/") {
            head += "Retry-After: 3\r\n";
        }
        head += "\r\n";
        if method != "HEAD" {
            head += &response.body;
        }
        let stream = stream.get_mut();
        match self.fault {
            Fault::Silent => self.held.lock().unwrap().push(held),
            Fault::Slow => {
                for byte in head.bytes() {
                    stream.write_all(&[byte])?;
                    stream.flush()?;
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            _ => {
                stream.write_all(head.as_bytes())?;
                stream.conn.send_close_notify();
                stream.flush()?;
            }
        }
        Ok(())
    }

    fn respond(&self, method: &str, path: &str, body: &[u8]) -> Response {
        let error = |status, text: &str| Response {
            status,
            location: Some("/elsewhere"),
            body: format!("<h1>{text}</h1>"),
        };
        match self.fault {
            Fault::Status(status) => return error(status, "failed"),
            Fault::RetryLater => return error(429, "later"),
            Fault::Redirect => return error(301, "elsewhere"),
            Fault::BadNonces(count)
                if method == "POST" && self.refused.fetch_add(1, Relaxed) < count =>
            {
                let kind = "urn:ietf:params:acme:error:badNonce";
                return Response::json(400, &json!({ "type": kind, "detail": "used" }));
            }
            _ => {}
        }
        let url = |path: &str| format!("https://{}{path}", self.address);
        let mut order = self.order.lock().unwrap();
        match path {
            "/dir" => {
                let padding = if self.fault == Fault::Huge { 10 << 20 } else { 0 };
                let mut directory = json!({
                    "newNonce": url("/nonce"), "newAccount": url("/account"),
                    "newOrder": url("/new-order"), "padding": "x".repeat(padding),
                });
                if matches!(self.fault, Fault::AlwaysDue | Fault::ShortLived) {
                    directory["renewalInfo"] = url("/renewal").into();
                }
                Response::json(200, &directory)
            }
            "/account" => Response {
                location: Some("/account/1"),
                ..Response::json(201, &json!({ "status": "valid" }))
            },
            "/new-order" => {
                let payload = payload(body);
                let name = payload["identifiers"][0]["value"].as_str().unwrap().to_owned();
                let replaces = payload.get("replaces").cloned();
                *order = Order { name, replaces, ..Order::default() };
                Response { location: Some("/order/1"), ..self.order_state(201, &order) }
            }
            "/authz/1" => self.authorization(&order),
            "/challenge/1" => {
                order.is_validated = true;
                Response::json(200, &challenge("processing", &url("/challenge/1"), "http-01"))
            }
            "/finalize/1" => {
                let payload = payload(body);
                let request = payload["csr"].as_str().unwrap();
                let request = BASE64_URL_SAFE_NO_PAD.decode(request).unwrap();
                order.chain = Some(self.issue(&order.name, &request));
                self.order_state(200, &order)
            }
            "/order/1" => self.order_state(200, &order),
            "/certificate/1" => {
                let body = order.chain.clone().unwrap_or_default();
                Response { status: 200, location: None, body }
            }
            path if path.starts_with("/renewal/") => {
                let window =
                    json!({ "start": "2020-01-01T00:00:00Z", "end": "2020-01-01T00:00:01Z" });
                Response::json(200, &json!({ "suggestedWindow": window }))
            }
            _ => Response { status: 200, location: None, body: String::new() },
        }
    }

    fn authorization(&self, order: &Order) -> Response {
        let is_invalid = self.fault == Fault::InvalidChallenge && order.is_validated;
        let (of_authorization, of_challenge) = match (is_invalid, order.is_validated) {
            (true, _) => ("invalid", "invalid"),
            (_, true) => ("valid", "valid"),
            _ => ("pending", "pending"),
        };
        let url = format!("https://{}/challenge/1", self.address);
        let challenges = ["tls-alpn-01", "http-01"].map(|kind| {
            let mut challenge = challenge(of_challenge, &url, kind);
            if is_invalid {
                let detail = "nobody answers at this name";
                challenge["error"] =
                    json!({ "type": "urn:ietf:params:acme:error:connection", "detail": detail });
            }
            challenge
        });
        let identifier = json!({ "type": "dns", "value": order.name });
        Response::json(
            200,
            &json!({
                "status": of_authorization, "identifier": identifier, "challenges": challenges,
            }),
        )
    }

    fn order_state(&self, status: u16, order: &Order) -> Response {
        let state = match (self.fault, order.is_validated, &order.chain) {
            (Fault::InvalidChallenge, true, _) => "invalid",
            (Fault::PendingForever, ..) | (_, false, _) => "pending",
            (Fault::ProcessingForever, _, Some(_)) => "processing",
            (_, true, None) => "ready",
            (_, true, Some(_)) => "valid",
        };
        let url = |path: &str| format!("https://{}{path}", self.address);
        let mut body = json!({
            "status": state, "authorizations": [url("/authz/1")], "finalize": url("/finalize/1"),
            "identifiers": [{ "type": "dns", "value": order.name }],
        });
        if let Some(replaces) = &order.replaces {
            body["replaces"] = replaces.clone();
        }
        if state == "valid" {
            body["certificate"] = url("/certificate/1").into();
        }
        Response::json(status, &body)
    }

    fn issue(&self, name: &str, request: &[u8]) -> String {
        let name = if self.fault == Fault::OtherName { "other.example" } else { name };
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let year = if self.fault == Fault::Expired { 2020 } else { 4096 };
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let seconds = match self.fault {
            Fault::ShortLived => Some(8),
            Fault::NinetyDays => Some(90 * 86_400),
            _ => None,
        };
        if let Some(seconds) = seconds {
            let now = SystemTime::now();
            params.not_before = now.into();
            params.not_after = (now + Duration::from_secs(seconds)).into();
        }
        params.distinguished_name = DistinguishedName::new();
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::new(self.params.clone(), &self.key);
        let certificate = match self.fault {
            Fault::NoPem => return "-----BEGIN CERTIFICATE-----\nno".to_owned(),
            Fault::OtherKey => params.signed_by(&KeyPair::generate().unwrap(), &issuer),
            _ => params.signed_by(&RequestedKey::find(request), &issuer),
        };
        let certificate = certificate.unwrap();
        self.issued.lock().unwrap().push(certificate.der().to_vec());
        certificate.pem()
    }
}

fn ca() -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params, KeyPair::generate().unwrap())
}

/// Returns the configuration of its API.
fn tls_config(address: SocketAddr, issuer: &Issuer<'_, KeyPair>) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![address.ip().to_string()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let builder = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(vec![certificate.der().clone()], key).unwrap())
}

fn challenge(status: &str, url: &str, kind: &str) -> Value {
    json!({ "type": kind, "url": url, "token": "a-token", "status": status })
}

/// Returns the payload of a signed request.
fn payload(body: &[u8]) -> Value {
    let signed: Value = serde_json::from_slice(body).unwrap();
    let payload = BASE64_URL_SAFE_NO_PAD.decode(signed["payload"].as_str().unwrap()).unwrap();
    serde_json::from_slice(&payload).unwrap()
}

/// Returns method, path and body; `None` if the client disconnects.
fn read_request(
    stream: &mut BufReader<StreamOwned<ServerConnection, TcpStream>>,
) -> std::io::Result<Option<(String, String, Vec<u8>)>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        match line.trim().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().unwrap();
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some((method, path, body)))
}

/// The public key of a certificate request, on the curve P-256.
struct RequestedKey(Vec<u8>);

impl RequestedKey {
    fn find(request: &[u8]) -> RequestedKey {
        // The OID of the curve, and the head of a BIT STRING of 65 bytes and no unused bits.
        let before = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00];
        let at = request.windows(before.len()).position(|bytes| bytes == before).unwrap();
        let at = at + before.len();
        RequestedKey(request[at..at + 65].to_vec())
    }
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}
