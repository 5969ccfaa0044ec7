//! Signed tokens: which are accepted, and where their keys come from.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::common::{Client, Weft, raw_upstream, read_head, run, until, weft};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn serve(folder: &TempDir, route: &str) -> Weft {
    let config = format!(
        "listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n[hosts.\"*\"]\n\
         \"/\" = {{ respond = \"\", {route} }}\n"
    );
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]))
}

/// Returns status and challenge of a request with a token.
fn send(server: &Weft, token: &str) -> (u16, String) {
    let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
    let field = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{field}Connection: close\r\n\r\n"));
    let response = client.response();
    (response.status, response.header("www-authenticate").unwrap_or_default().to_owned())
}

/// A key to sign with, its algorithm and its public part.
struct Signer {
    key: EncodingKey,
    algorithm: Algorithm,
    public: Value,
}

impl Signer {
    fn new(algorithm: Algorithm, id: &str) -> Signer {
        use Algorithm::{ES256, ES384, EdDSA};
        let der = |algorithm| rcgen::KeyPair::generate_for(algorithm).unwrap().serialize_der();
        let key = match algorithm {
            ES256 => EncodingKey::from_ec_der(&der(&rcgen::PKCS_ECDSA_P256_SHA256)),
            ES384 => EncodingKey::from_ec_der(&der(&rcgen::PKCS_ECDSA_P384_SHA384)),
            EdDSA => EncodingKey::from_ed_der(&ed25519()),
            _ => EncodingKey::from_rsa_der(pkcs1(&der(&rcgen::PKCS_RSA_SHA256))),
        };
        let mut public = serde_json::to_value(Jwk::from_encoding_key(&key, algorithm).unwrap());
        let public = public.as_mut().unwrap();
        public["kid"] = json!(id);
        let public = public.take();
        Signer { key, algorithm, public }
    }

    fn sign(&self, id: Option<&str>, claims: &Value) -> String {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(self.algorithm) };
        encode(&header, claims, &self.key).unwrap()
    }
}

/// Returns a new private key in the short form of RFC 8410 §7.
fn ed25519() -> Vec<u8> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let seed = Sha256::digest(COUNT.fetch_add(1, SeqCst).to_be_bytes());
    let mut der = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
    der.extend_from_slice(&seed);
    der
}

/// Returns the RSA key in a PKCS #8 structure: its last octet string.
fn pkcs1(pkcs8: &[u8]) -> &[u8] {
    let begin = (0..pkcs8.len()).find(|&at| pkcs8[at..].starts_with(&[0x04, 0x82])).unwrap();
    &pkcs8[begin + 4..]
}

fn claims() -> Value {
    json!({ "sub": "alice", "exp": get_current_timestamp() + 600 })
}

fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn jwks(keys: &[&Value]) -> String {
    json!({ "keys": keys }).to_string()
}

fn hmac(claims: &Value) -> String {
    encode(&Header::default(), claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
}

/// Joins the parts of a token. The last part is its signature.
fn token(header: &Value, claims: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(header), part(claims))
}

#[test]
fn accepts_each_algorithm_with_its_own_key_only() {
    use Algorithm::{ES256, ES384, EdDSA, PS256, RS256, RS512};
    let folder = tempfile::tempdir().unwrap();
    let signers: Vec<Signer> = [RS256, PS256, RS512, ES256, ES384, EdDSA]
        .into_iter()
        .map(|algorithm| Signer::new(algorithm, &format!("{algorithm:?}")))
        .collect();
    let keys: Vec<&Value> = signers.iter().map(|signer| &signer.public).collect();
    fs::write(folder.path().join("keys.json"), jwks(&keys)).unwrap();
    let server = serve(&folder, "jwt_keys = \"keys.json\", realm = \"the garden\"");
    let invalid = (401, "Bearer realm=\"the garden\", error=\"invalid_token\"".to_owned());
    for signer in &signers {
        let id = format!("{:?}", signer.algorithm);
        let token = signer.sign(Some(&id), &claims());
        // The second time without the verification of the signature.
        assert_eq!(send(&server, &token).0, 200, "{id}");
        assert_eq!(send(&server, &token).0, 200, "{id}");
        assert_eq!(send(&server, &signer.sign(None, &claims())).0, 200, "{id} without its ID");
        assert_eq!(send(&server, &signer.sign(Some("other"), &claims())), invalid, "{id}");
        // Another signature, or none.
        let (text, _) = token.rsplit_once('.').unwrap();
        assert_eq!(send(&server, text), invalid);
        assert_eq!(send(&server, &format!("{text}.")), invalid);
        assert_eq!(send(&server, &format!("{text}.AAAA")), invalid);
        // The public key as a secret (RFC 8725 §2.1).
        let public = signer.public.to_string();
        let header = Header { kid: Some(id.clone()), ..Header::new(Algorithm::HS256) };
        for secret in [public.as_bytes(), signer.public["n"].as_str().unwrap_or("x").as_bytes()] {
            let forged = encode(&header, &claims(), &EncodingKey::from_secret(secret)).unwrap();
            assert_eq!(send(&server, &forged), invalid, "{id}");
        }
        // The key of another signer with the same ID.
        let other = Signer::new(signer.algorithm, &id);
        assert_eq!(send(&server, &other.sign(Some(&id), &claims())), invalid, "{id}");
    }
    for none in ["none", "None", "NONE", ""] {
        let header = json!({ "alg": none, "typ": "JWT" });
        assert_eq!(send(&server, &token(&header, &claims(), "")), invalid, "{none}");
    }
    assert_eq!(send(&server, ""), (401, "Bearer realm=\"the garden\"".to_owned()));
    for nonsense in ["a", "a.b", "a.b.c", "...", "e30.e30.", "e30.e30.e30.e30"] {
        assert_eq!(send(&server, nonsense), invalid, "{nonsense}");
    }
}

/// Each row: options of the route, claims of a token, and the status.
#[test]
fn requires_claims_within_their_time() {
    let now = get_current_timestamp();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("secret"), format!("{SECRET}\n")).unwrap();
    for (options, rows) in [
        (
            "",
            vec![
                (json!({}), 200),
                (json!({ "exp": now - 20 }), 200),
                (json!({ "exp": now - 60 }), 401),
                (json!({ "exp": null }), 401),
                (json!({ "exp": "tomorrow" }), 401),
                (json!({ "nbf": now + 20 }), 200),
                (json!({ "nbf": now + 60 }), 401),
                (json!({ "nbf": "x" }), 401),
                (json!({ "aud": "any", "iss": "any" }), 200),
                (json!({ "sub": null }), 200),
            ],
        ),
        (", jwt_clock_skew = \"2m\"", vec![(json!({ "exp": now - 60 }), 200)]),
        (
            ", jwt_issuer = [\"a\", \"b\"], jwt_audience = \"api\"",
            vec![
                (json!({ "iss": "a", "aud": "api" }), 200),
                (json!({ "iss": "b", "aud": ["other", "api"] }), 200),
                (json!({ "iss": "c", "aud": "api" }), 401),
                (json!({ "aud": "api" }), 401),
                (json!({ "iss": "a", "aud": "other" }), 401),
                (json!({ "iss": "a", "aud": [] }), 401),
                (json!({ "iss": "a" }), 401),
                (json!({ "iss": 5, "aud": "api" }), 401),
            ],
        ),
        (
            ", jwt_claims = [\"scope=admin\", \"email\"]",
            vec![
                (json!({ "scope": "read admin", "email": "a@b" }), 200),
                (json!({ "scope": "admins", "email": "a@b" }), 401),
                (json!({ "scope": "admin" }), 401),
            ],
        ),
    ] {
        let server = serve(&folder, &format!("jwt_secret = \"secret\"{options}"));
        for (changes, status) in rows {
            assert_eq!(
                send(&server, &hmac(&with(changes.clone()))).0,
                status,
                "{options} {changes}"
            );
        }
        server.stop();
    }
}

/// RFC 7515 §4.1.11. The signatures are right.
#[test]
fn refuses_extensions_that_must_be_understood() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("secret"), SECRET).unwrap();
    let server = serve(&folder, "jwt_secret = \"secret\"");
    for (crit, status) in
        [(None, 200), (Some(vec!["b64"]), 401), (Some(vec!["exp"]), 401), (Some(vec![]), 401)]
    {
        let crit = crit.map(|names| names.into_iter().map(str::to_owned).collect());
        let header = Header { crit, ..Header::new(Algorithm::HS256) };
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        let token = encode(&header, &claims(), &key).unwrap();
        assert_eq!(send(&server, &token).0, status, "{header:?}");
    }
    // The parameter is refused in any form.
    for (header, status) in [
        (r#"{"alg":"HS256"}"#, 200),
        (r#"{"alg":"HS256","crit":null}"#, 401),
        (r#"{"alg":"HS256","crit":"exp"}"#, 401),
        (r#"{"alg":"HS256","cri\u0074":null}"#, 401),
    ] {
        let parts = [header, &claims().to_string()].map(|part| URL_SAFE_NO_PAD.encode(part));
        let signed = parts.join(".");
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        let signature =
            jsonwebtoken::crypto::sign(signed.as_bytes(), &key, Algorithm::HS256).unwrap();
        assert_eq!(send(&server, &format!("{signed}.{signature}")).0, status, "{header}");
    }
    server.stop();
}

#[test]
fn follows_changes_of_a_file_of_keys() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|id| Signer::new(Algorithm::ES256, id));
    let file = folder.path().join("keys.json");
    fs::write(&file, jwks(&[&old.public])).unwrap();
    let server = serve(&folder, "jwt_keys = \"keys.json\"");
    let [with_old, with_new] =
        [(&old, "old"), (&new, "new")].map(|(signer, id)| signer.sign(Some(id), &claims()));
    assert_eq!([send(&server, &with_old).0, send(&server, &with_new).0], [200, 401]);
    fs::write(&file, jwks(&[&new.public, &json!({ "kty": "future" })])).unwrap();
    until("the new keys are in effect", || send(&server, &with_new).0 == 200);
    assert_eq!(send(&server, &with_old).0, 401, "a remembered token of a removed key");
    fs::write(&file, "nonsense").unwrap();
    until("the error is logged", || {
        send(&server, &with_new);
        server.stderr().contains("the former content stays in effect")
    });
    assert_eq!(send(&server, &with_new).0, 200);
}

/// Serves text that can be changed, and counts the requests.
fn key_server(text: Arc<Mutex<String>>) -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let address = raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            counted.fetch_add(1, SeqCst);
            assert!(head.starts_with("GET /jwks?a=b HTTP/1.1\r\n"), "{head}");
            let text = text.lock().unwrap().clone();
            let (status, length) = match text.len() {
                0 => ("500 No", 0),
                length => ("200 OK", length),
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all((head + &text).as_bytes());
        }
    });
    (address, count)
}

#[test]
fn fetches_keys_within_bounds() {
    let [first, second] = ["first", "second"].map(|id| Signer::new(Algorithm::EdDSA, id));
    let secret = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET) });
    let text = Arc::new(Mutex::new(jwks(&[&secret, &first.public])));
    let (address, count) = key_server(text.clone());
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&folder, &format!("jwt_keys_url = \"http://{address}/jwks?a=b\""));
    assert_eq!(send(&server, "").0, 401);
    assert_eq!(count.load(SeqCst), 0, "nothing is fetched without a token");
    assert_eq!(send(&server, &first.sign(Some("first"), &claims())).0, 200);
    assert_eq!(send(&server, &hmac(&claims())).0, 401, "published secrets are ignored");
    // Unknown keys do not make the server fetch at once, again and again.
    *text.lock().unwrap() = jwks(&[&second.public]);
    let with_second = second.sign(Some("second"), &claims());
    for _ in 0..20 {
        assert_eq!(send(&server, &with_second).0, 401);
    }
    assert_eq!(count.load(SeqCst), 1);
    until("the keys are fetched again for the unknown key", || {
        send(&server, &with_second).0 == 200
    });
    assert_eq!(count.load(SeqCst), 2);
}

#[test]
fn tokens_are_refused_without_keys() {
    let (address, count) = key_server(Arc::default());
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&folder, &format!("jwt_keys_url = \"http://{address}/jwks?a=b\""));
    let signer = Signer::new(Algorithm::EdDSA, "a");
    for _ in 0..5 {
        assert_eq!(send(&server, &signer.sign(Some("a"), &claims())).0, 503);
    }
    assert_eq!(count.load(SeqCst), 1);
    until("the failure is logged", || server.stderr().contains("the status is 500"));
}

#[test]
fn reports_invalid_keys() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("short"), "too short\n").unwrap();
    fs::write(folder.path().join("empty.json"), "{\"keys\":[]}").unwrap();
    fs::write(folder.path().join("secret"), SECRET).unwrap();
    fs::write(folder.path().join("users"), "").unwrap();
    for (options, expected) in [
        ("jwt_secret = \"short\"", "at least 32 bytes"),
        ("jwt_secret = \"missing\"", "cannot read"),
        ("jwt_keys = \"short\"", "expected a set of keys"),
        ("jwt_keys = \"empty.json\"", "no key for signatures"),
        ("jwt_keys_url = \"ftp://a/\"", "expected http://"),
        ("jwt_secret = \"secret\", jwt_claims = \"=x\"", "expected NAME or NAME=VALUE"),
        ("jwt_secret = \"secret\", basic_auth = \"users\"", "both a password and a token"),
    ] {
        let config = format!("[hosts.\"*\"]\n\"/\" = {{ respond = \"\", {options} }}\n");
        let file = folder.path().join("weft.toml");
        fs::write(&file, config).unwrap();
        let output = run([Path::new("check"), &file]);
        assert_eq!(output.status, Ok(1), "{options}");
        assert!(output.stderr.contains(expected), "{options}\n{}", output.stderr);
    }
}
