//! TLS to upstreams: certificates of the proxy, and names in certificates of upstreams.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base64::Engine;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use crate::common::{Client, Weft, raw_upstream, read_head, run, until, weft};

/// Writes a certificate for a name, which is its own authority, and its key.
fn write_certificate(folder: &Path, file: &str, name: &str) {
    let certified = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    fs::write(folder.join(format!("{file}.pem")), certified.cert.pem()).unwrap();
    fs::write(folder.join(format!("{file}.key")), certified.signing_key.serialize_pem()).unwrap();
}

/// Starts a server for `app.internal` that requires the certificate `proxy`. Returns its port.
fn upstream(folder: &TempDir) -> (Weft, u16) {
    let config = "listen = \"127.0.0.1:0\"\nworkers = 1\nlog.access = \"none\"\n\
                  [tls]\nlisten = \"127.0.0.1:0\"\n\
                  certificates = [{ cert = \"app.pem\", key = \"app.key\" }]\n\
                  client_ca = \"proxy.pem\"\n\
                  [hosts.\"*\"]\n\"/\" = { respond = \"served\\n\" }\n";
    fs::write(folder.path().join("upstream.toml"), config).unwrap();
    let path = folder.path().join("upstream.toml");
    let server = Weft::start(&mut weft([Path::new("--config"), &path]));
    let addresses = server.addresses();
    let port = addresses.iter().find_map(|it| it.strip_prefix("https://127.0.0.1:"));
    let port = port.unwrap().parse().unwrap();
    (server, port)
}

fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, name) in [("app", "app.internal"), ("proxy", "proxy"), ("other", "proxy")] {
        write_certificate(folder.path(), file, name);
    }
    folder
}

fn write_proxy(folder: &TempDir, port: u16, keys: &str) -> std::path::PathBuf {
    let path = folder.path().join("proxy.toml");
    let route = format!("{{ proxy = \"https://127.0.0.1:{port}/\", ca = \"app.pem\"{keys} }}");
    let config = format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\nlog.access = \"none\"\n[hosts.\"*\"]\n\"/\" = {route}\n"
    );
    fs::write(&path, config).unwrap();
    path
}

#[test]
fn upstreams_get_a_certificate_and_must_have_a_name() {
    let folder = certificates();
    let (upstream, port) = upstream(&folder);
    let own = ", tls_cert = \"proxy.pem\", tls_key = \"proxy.key\"";
    let other = ", tls_cert = \"other.pem\", tls_key = \"other.key\"";
    let name = ", tls_name = \"app.internal\"";
    for (keys, status) in [
        (format!("{own}{name}"), 200),
        (format!("{own}{name}, http_version = \"2\""), 200),
        // Without a certificate, or with another one.
        (name.to_owned(), 502),
        (format!("{other}{name}"), 502),
        // The certificate of the upstream has neither its address nor another name.
        (own.to_owned(), 502),
        (format!("{own}, tls_name = \"other.internal\""), 502),
    ] {
        let path = write_proxy(&folder, port, &keys);
        let proxy = Weft::start(&mut weft([Path::new("--config"), &path]));
        let response = Client::tcp(proxy.address()).get("/");
        assert_eq!(response.status, status, "{keys}: {}", proxy.stderr());
        assert_eq!(response.body == b"served\n", status == 200, "{keys}");
        proxy.stop();
    }
    upstream.stop();
}

/// Returns the pin of the key of a certificate.
fn pin(folder: &TempDir, file: &str) -> String {
    let key = fs::read_to_string(folder.path().join(format!("{file}.key"))).unwrap();
    let key = rcgen::KeyPair::from_pem(&key).unwrap();
    let info = rcgen::PublicKeyData::subject_public_key_info(&key);
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &info);
    format!("sha256/{}", base64::prelude::BASE64_STANDARD.encode(hash))
}

#[test]
fn upstreams_must_have_a_pinned_key() {
    let folder = certificates();
    let (upstream, port) = upstream(&folder);
    let (app, other) = (pin(&folder, "app"), pin(&folder, "other"));
    let keys = ", tls_cert = \"proxy.pem\", tls_key = \"proxy.key\"";
    for (pins, name, version, status) in [
        (format!("{app:?}"), "app.internal", "1.1", 200),
        (format!("{other:?}, {app:?}"), "app.internal", "2", 200),
        (format!("{other:?}"), "app.internal", "1.1", 502),
        (format!("{other:?}"), "app.internal", "2", 502),
        // A pin does not replace the verification of the name.
        (format!("{app:?}"), "other.internal", "1.1", 502),
    ] {
        let keys =
            format!("{keys}, tls_name = {name:?}, http_version = {version:?}, tls_pin = [{pins}]");
        let path = write_proxy(&folder, port, &keys);
        let proxy = Weft::start(&mut weft([Path::new("--config"), &path]));
        assert_eq!(Client::tcp(proxy.address()).get("/").status, status, "{keys}");
        if status == 502 && name == "app.internal" {
            let refused = format!("its key is not a pinned one: {app}");
            until("the key is logged", || proxy.stderr().contains(&refused));
        }
        proxy.stop();
    }
    upstream.stop();
}

/// Each connection serves one request, so that the second one needs another handshake.
#[test]
fn sessions_are_resumed() {
    let folder = certificates();
    let read = |file: &str| folder.path().join(file);
    let chain = CertificateDer::pem_file_iter(read("app.pem")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(read("app.key")).unwrap();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_protocol_versions(&[version]).unwrap().with_no_client_auth();
        let config = config.with_single_cert(chain.clone(), key.clone_key()).unwrap();
        let (config, kinds) = (Arc::new(config), Arc::<Mutex<Vec<HandshakeKind>>>::default());
        let seen = kinds.clone();
        let upstream = raw_upstream(move |_, stream| {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            if read_head(&mut stream).is_some() {
                seen.lock().unwrap().push(stream.conn.handshake_kind().unwrap());
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                stream.write_all(response).unwrap();
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        });
        let path = write_proxy(&folder, upstream.port(), ", tls_name = \"app.internal\"");
        let proxy = Weft::start(&mut weft([Path::new("--config"), &path]));
        for _ in 0..3 {
            assert_eq!(Client::tcp(proxy.address()).get("/").status, 200, "{}", proxy.stderr());
        }
        let expected = [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed];
        let kinds = kinds.lock().unwrap().clone();
        // An upstream may need a second message of the client for its first handshake.
        assert!(kinds[0] != HandshakeKind::Resumed && kinds[1..] == expected[1..], "{kinds:?}");
        proxy.stop();
    }
}

#[test]
fn invalid_certificates_are_reported() {
    let folder = certificates();
    fs::write(folder.path().join("empty.pem"), "").unwrap();
    for (keys, expected) in [
        (", tls_cert = \"proxy.pem\"", "`tls_cert` and `tls_key` need each other"),
        (", tls_key = \"proxy.key\"", "`tls_cert` and `tls_key` need each other"),
        (", tls_cert = \"none.pem\", tls_key = \"proxy.key\"", "none.pem: "),
        (", tls_cert = \"empty.pem\", tls_key = \"proxy.key\"", "empty.pem: "),
        (", tls_cert = \"proxy.pem\", tls_key = \"none.key\"", "none.key: "),
        (", tls_cert = \"proxy.pem\", tls_key = \"other.key\"", "proxy.pem: "),
        (", tls_name = \"a b\"", "the TLS name \"a b\": "),
        (", tls_pin = [\"sha1/AAAA\"]", "expected sha256/ and the SHA-256 of a public key"),
        (", tls_pin = [\"sha256/AAAA\"]", "expected sha256/ and the SHA-256 of a public key"),
    ] {
        let path = write_proxy(&folder, 1, keys);
        let output = run([Path::new("check"), &path]);
        assert!(output.stderr.contains(expected), "{keys}: {}", output.stderr);
    }
}
