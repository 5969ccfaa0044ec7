//! TLS of streams: terminated for clients, and opened to upstreams.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

use super::{Streams, connect, echo, exchange, read_to_close};
use crate::common::external::curl;
use crate::common::{Weft, until};

/// Writes a certificate for a name, and its key, as NAME.crt and NAME.key.
fn write_certificate(folder: &Path, name: &str) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    // The key first, so that no load finds a certificate without its key.
    fs::write(folder.join(format!("{name}.key")), signing_key.serialize_pem()).unwrap();
    fs::write(folder.join(format!("{name}.crt")), cert.pem()).unwrap();
}

/// Returns a `[tls]` section with the certificates of these names, which are in `folder`.
fn tls_section(folder: &Path, names: &[&str]) -> String {
    let pair = |name: &&str| {
        let path = folder.join(name);
        format!("{{ cert = \"{0}.crt\", key = \"{0}.key\" }}", path.display())
    };
    let pairs: Vec<String> = names.iter().map(pair).collect();
    format!("[tls]\ncertificates = [{}]\n", pairs.join(", "))
}

fn folder_with_certificates(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    names.iter().for_each(|name| write_certificate(folder.path(), name));
    folder
}

/// Fetches `/a.txt` of a name from a stream, which has to have a certificate in the file `trusted`.
fn fetch(streams: &Streams, name: &str, trusted: &Path) -> Result<Vec<u8>, i32> {
    let port = streams.addresses()[0].port();
    let resolve = format!("{name}:{port}:127.0.0.1");
    let url = format!("https://{name}:{port}/a.txt");
    let mut command = curl();
    command.args(["-sS", "--resolve", &resolve, "--cacert"]).arg(trusted).arg(&url);
    let output = command.output().unwrap();
    match output.status.code() {
        Some(0) => Ok(output.stdout),
        code => Err(code.unwrap()),
    }
}

#[test]
fn terminates_tls_with_the_certificate_of_the_server_name() {
    let folder = folder_with_certificates(&["a.example", "b.example"]);
    let site = |text: &[u8]| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), text).unwrap();
        let options = ["--listen", "127.0.0.1:0", "--proxy-protocol", "127.0.0.0/8", "--no-log"];
        (Weft::serve(folder.path(), &options), folder)
    };
    let large: Vec<u8> = (0..3_000_000).map(|number: u32| (number % 251) as u8).collect();
    let [(first, _one), (second, _two)] = [site(&large), site(b"second")];
    let streams = Streams::start(&format!(
        "{}[streams.\"127.0.0.1:0\"]\ntls = true\nproxy_protocol = \"v2\"\nto = \"{}\"\n\
         server_names = {{ \"b.example\" = \"{}\" }}\n",
        tls_section(folder.path(), &["a.example", "b.example"]),
        first.address(),
        second.address(),
    ));
    let path = |name: &str| folder.path().join(name);
    let (a, b) = (path("a.example.crt"), path("b.example.crt"));
    let returned = fetch(&streams, "a.example", &a).unwrap();
    assert!(returned == large, "{} of {} bytes", returned.len(), large.len());
    assert_eq!(fetch(&streams, "b.example", &b).as_deref(), Ok(&b"second"[..]));
    // Status of curl: the certificate cannot be verified.
    assert_eq!(fetch(&streams, "a.example", &b), Err(60));
    assert!(streams.server.addresses().iter().all(|address| address.starts_with("tcp://")));
}

#[test]
fn connections_without_a_handshake_are_closed() {
    let upstream = echo("never ");
    let streams = Streams::start(&format!(
        "[tls]\nself_signed = true\n[streams.\"127.0.0.1:0\"]\ntls = true\nto = \"{upstream}\"\n\
         handshake_timeout = \"1s\"\n"
    ));
    for sent in ["", "SSH-2.0-x\r\n"] {
        let mut stream = streams.connect();
        stream.write_all(sent.as_bytes()).unwrap();
        let returned = read_to_close(stream);
        assert!(!returned.starts_with(b"never"), "{sent:?}: {returned:?}");
    }
}

#[test]
fn certificates_of_streams_are_reloaded_when_their_files_change() {
    let folder = folder_with_certificates(&["a.example"]);
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("a.txt"), "A").unwrap();
    let upstream = Weft::serve(site.path(), &["--listen", "127.0.0.1:0", "--no-log"]);
    let streams = Streams::start(&format!(
        "{}[streams.\"127.0.0.1:0\"]\ntls = true\nto = \"{}\"\n",
        tls_section(folder.path(), &["a.example"]),
        upstream.address(),
    ));
    let current = folder.path().join("a.example.crt");
    assert_eq!(fetch(&streams, "a.example", &current).as_deref(), Ok(&b"A"[..]));
    write_certificate(folder.path(), "a.example");
    until("the new certificate is used", || fetch(&streams, "a.example", &current).is_ok());
}

#[test]
fn opens_tls_to_upstreams_behind_the_proxy_header() {
    let folder = folder_with_certificates(&["localhost", "other.example"]);
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("a.txt"), "A").unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (crt, key) = (path("localhost.crt"), path("localhost.key"));
    for (header, from, ca, expected) in [
        ("none", "192.0.2.0/24", "localhost.crt", "\r\n\r\nA"),
        ("v1", "127.0.0.0/8", "localhost.crt", "\r\n\r\nA"),
        ("v2", "127.0.0.0/8", "localhost.crt", "\r\n\r\nA"),
        ("none", "192.0.2.0/24", "other.example.crt", ""),
    ] {
        let options = ["--tls-cert", &crt, "--tls-key", &key, "--tls-listen", "127.0.0.1:0"];
        let others = ["--proxy-protocol", from, "--no-log"];
        let upstream = Weft::serve(site.path(), &[options.as_slice(), &others].concat());
        let streams = Streams::start(&format!(
            "[streams.\"127.0.0.1:0\"]\nto = \"tls://localhost:{}\"\nca = \"{}\"\n\
             proxy_protocol = \"{header}\"\n",
            upstream.tls_address().port(),
            path(ca),
        ));
        let mut stream = streams.connect();
        stream
            .write_all(b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let returned = String::from_utf8(read_to_close(stream)).unwrap();
        assert!(returned.ends_with(expected), "{header} {ca}: {returned}");
        assert_eq!(returned.is_empty(), expected.is_empty(), "{header} {ca}: {returned}");
        if expected.is_empty() {
            let reason = "cannot connect: invalid peer certificate";
            until("the failure is logged", || streams.server.stderr().contains(reason));
        }
    }
}

#[test]
fn upstreams_get_connections_while_their_checks_succeed() {
    let up = echo("up ");
    // An address that no other test uses.
    let reserved = TcpListener::bind("127.0.23.1:0").unwrap();
    let address = reserved.local_addr().unwrap();
    drop(reserved);
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = [\"{address}\", \"{up}\"]\ncheck_interval = \"100ms\"\n"
    ));
    let lines = |text: &str| streams.server.stderr().matches(text).count();
    until("the checks fail", || lines("health checks fail") == 1);
    for _ in 0..8 {
        assert_eq!(exchange(connect(streams.addresses()[0]), b"x"), b"up x");
    }
    assert_eq!(lines("cannot connect"), 0);
    let listener = TcpListener::bind(address).unwrap();
    until("the checks succeed", || lines("health checks pass") == 1);
    drop(listener);
}
