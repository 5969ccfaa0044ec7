//! The TLS options of the program, as documented in the configuration reference.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::common::{Client, Signal, Weft, has_tool, run, until, weft};
use rcgen::{CertificateParams, CertifiedKey, DnType, KeyPair, generate_simple_self_signed};
use tempfile::TempDir;
use weft::testing::TestServer;
use weft::{Request, Response};

/// A directory to serve, and a certificate in its parent directory.
struct Site(TempDir);

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("site")).unwrap();
        fs::write(folder.path().join("site/a.txt"), "A\n").unwrap();
        let site = Site(folder);
        site.write_certificate("first");
        site
    }

    /// Writes a new self-signed certificate and its key.
    fn write_certificate(&self, name: &str) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        // The key first: a load between the two writes fails, because key and certificate do not
        // match.
        fs::write(self.path("key"), key.serialize_pem()).unwrap();
        fs::write(self.path("crt"), certificate.pem()).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = weft([self.path("site")]);
        command.args(["--no-log", "--workers", "1"]).args(options);
        command
    }

    fn serve(&self, options: &[&str]) -> Weft {
        let (crt, key) = (self.path("crt"), self.path("key"));
        let tls = ["--tls-cert", &crt, "--tls-key", &key, "--tls-listen", "127.0.0.1:0"];
        Weft::start(self.command(options).args(tls))
    }
}

/// Fetches a file with curl and returns its contents; `Err` is the exit status of curl.
fn curl(server: &Weft, options: &[&str]) -> Result<String, i32> {
    let addresses = server.addresses();
    let tls = addresses.iter().find_map(|address| address.strip_prefix("https://127.0.0.1:"));
    let url = format!("https://localhost:{}/a.txt", tls.expect("an address with TLS"));
    let mut command = Command::new("curl");
    command.args(["-sS", "--http1.1", "--max-time", "30", "--ipv4", &url]).args(options);
    let output = command.output().expect("curl runs");
    match output.status.code() {
        Some(0) => Ok(String::from_utf8(output.stdout).expect("UTF-8")),
        code => Err(code.expect("curl is not killed by a signal")),
    }
}

#[test]
fn sighup_reloads_the_certificate() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    let server = site.serve(&[]);
    assert_eq!(server.addresses().len(), 1, "no plaintext listener: {}", server.announcement);
    let trusted = site.path("trusted");
    fs::copy(site.path("crt"), &trusted).unwrap();
    let with_ca = ["--cacert", &trusted];
    assert_eq!(curl(&server, &with_ca), Ok("A\n".to_owned()));
    assert_eq!(curl(&server, &[]), Err(60), "not trusted by default");

    // An invalid certificate file is reported, and the old certificate stays in use.
    fs::write(site.path("crt"), "x").unwrap();
    server.signal(Signal::HUP);
    until("the error is logged", || server.stderr().contains("crt contains no certificate"));
    assert_eq!(curl(&server, &with_ca), Ok("A\n".to_owned()));

    site.write_certificate("second");
    server.signal(Signal::HUP);
    let new = site.path("crt");
    until("the new certificate is used", || curl(&server, &["--cacert", &new]).is_ok());
    assert_eq!(curl(&server, &with_ca), Err(60), "the old certificate is not used");
    server.stop();
}

#[test]
fn a_renewed_certificate_is_loaded_and_logged() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    let server = site.serve(&[]);
    site.write_certificate("second");
    let new = site.path("crt");
    until("the certificate is loaded", || server.stderr().contains("certificates were reloaded"));
    assert_eq!(curl(&server, &["--cacert", &new]), Ok("A\n".to_owned()));
    server.stop();
}

#[test]
fn certificate_that_cannot_be_loaded_is_named() {
    let site = Site::new();
    let server = site.serve(&["--status-listen", "127.0.0.1:0", "--status-host", "a"]);
    let status = server.status_address();
    let page = |target: &str| String::from_utf8(Client::tcp(status).get(target).body).unwrap();
    let crt = site.path("crt");
    let sample = format!("weft_certificate_reload_failed{{file=\"{crt}\"}} 1");
    assert!(!page("/metrics").contains("weft_certificate_reload_failed"));
    fs::write(&crt, "x").unwrap();
    let line = format!(
        "cannot reload a certificate, its former version stays in use: {crt} contains no certificate"
    );
    until("the error is logged", || server.stderr().contains(&line));
    assert!(page("/metrics").contains(&sample), "{}", page("/metrics"));
    let failures = format!("\"certificate_failures\":[{{\"file\":\"{crt}\",");
    assert!(page("/status.json").contains(&failures), "{}", page("/status.json"));
    site.write_certificate("second");
    until("the certificate is loaded", || !page("/metrics").contains(&sample));
    server.stop();
}

#[test]
fn serves_with_a_generated_self_signed_certificate() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    let arguments = ["--tls-self-signed", "--tls-listen", "127.0.0.1:0"];
    let server = Weft::start(&mut site.command(&arguments));
    assert!(server.announcement.ends_with("with 1 worker; its certificate is self-signed\n"));
    assert_eq!(curl(&server, &["-k"]), Ok("A\n".to_owned()));
    assert_eq!(curl(&server, &[]), Err(60));
    server.stop();
}

#[test]
fn reload_applies_tls_settings_and_keeps_the_self_signed_certificate() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    let config = |key: &str| {
        let (folder, tls) = (site.path("site"), "self_signed = true\nlisten = [\"127.0.0.1:0\"]\n");
        let tls = format!("{tls}{key}\n");
        fs::write(
            site.path("toml"),
            format!("[tls]\n{tls}[hosts.\"*\"]\n\"/\" = \"-> {folder}\"\n"),
        )
        .unwrap();
    };
    config("");
    let server = Weft::start(&mut weft(["--no-log", "--config", &site.path("toml")]));
    let certificate = || curl(&server, &["-k", "-w", "%{certs}"]).unwrap();
    let former = certificate();
    assert!(former.contains("BEGIN CERTIFICATE"), "{former}");
    let with_tls_1_2 = ["-k", "--tls-max", "1.2"];
    assert_eq!(curl(&server, &with_tls_1_2), Ok("A\n".to_owned()));
    for (key, accepts_1_2) in
        [("profile = \"modern\"", false), ("profile = \"intermediate\"", true)]
    {
        config(key);
        server.signal(Signal::HUP);
        until(key, || curl(&server, &with_tls_1_2).is_ok() == accepts_1_2);
    }
    assert_eq!(certificate(), former);
    server.stop();
}

#[test]
fn serves_plaintext_and_tls_listeners() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    let server = site.serve(&["--listen", "127.0.0.1:0"]);
    assert_eq!(server.addresses().len(), 2);
    assert_eq!(curl(&server, &["-k"]), Ok("A\n".to_owned()));
    assert_eq!(Client::tcp(server.address()).get("/a.txt").status, 200);
    server.stop();
}

#[test]
fn requires_client_certificates_and_accepts_ticket_keys() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["client".to_owned()]).unwrap();
    let [client, ca, tickets] = ["client", "ca", "tickets"].map(|name| site.path(name));
    fs::write(&client, cert.pem() + &signing_key.serialize_pem()).unwrap();
    fs::write(&ca, cert.pem()).unwrap();
    fs::write(&tickets, [7; 48]).unwrap();
    let server = site.serve(&["--tls-client-ca", &ca, "--tls-tickets", &tickets]);
    assert_eq!(curl(&server, &["-k", "--cert", &client]), Ok("A\n".to_owned()));
    assert!(curl(&server, &["-k"]).is_err());
    server.stop();
}

/// Upstreams and scripts get the verified certificate, and no field of a client that claims one.
#[test]
fn certificates_of_clients_reach_upstreams_and_scripts() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["client".to_owned()]).unwrap();
    let [client, ca, file, script] = ["client", "ca", "toml", "a.txt"].map(|name| site.path(name));
    fs::write(&client, cert.pem() + &signing_key.serialize_pem()).unwrap();
    fs::write(&ca, cert.pem()).unwrap();
    let text = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; env\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let upstream = TestServer::start(async |request: Request| {
        let fields = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value)));
        Response::text(fields.collect::<String>())
    });
    // The clients choose the route by their host.
    let serve = |top: &str, tls: &str| {
        let [crt, key] = ["crt", "key"].map(|name| site.path(name));
        let configuration = format!(
            "{top}\n[tls]\nlisten = [\"127.0.0.1:0\"]\n\
             certificates = [{{ cert = {crt:?}, key = {key:?} }}]\n{tls}\n\
             [hosts.leaf]\n\"/\" = \">> {url}\"\n\
             [hosts.none]\n\"/\" = {{ proxy = \"{url}\", client_cert = \"none\", \
             request_headers = [\"X-Subject: {{tls.client_subject}}\"] }}\n\
             [hosts.trusted]\n\"/\" = {{ proxy = \"{url}\", trusted = \"127.0.0.1\" }}\n\
             [hosts.cgi]\n\"/\" = \"=> {script}\"\n",
            url = upstream.url("/")
        );
        fs::write(&file, configuration).unwrap();
        Weft::start(&mut weft(["--no-log", "--config", &file]))
    };
    let get = |server: &Weft, host: &str, options: &[&str]| {
        let host = format!("Host: {host}");
        let claim = ["-k", "-H", &host, "-H", "Client-Cert: :AA==:", "-H", "X-SSL-Verify: yes"];
        curl(server, &[&claim[..], options].concat()).unwrap()
    };
    let is_sent = |text: &str, value: &str| text.contains(value);

    let authentication = format!("client_ca = {ca:?}");
    let server = serve("", &authentication);
    let with_client = ["--cert", &*client];
    let pem = cert.pem().replace("\r\n", "\n");
    let der: String =
        pem.lines().filter(|line| !line.starts_with("-----")).collect::<Vec<_>>().concat();
    let text = get(&server, "leaf", &with_client);
    assert!(is_sent(&text, &format!("\nclient-cert: :{der}:\n")), "{text}");
    assert!(!is_sent(&text, ":AA==:") && !is_sent(&text, "x-ssl-verify"), "{text}");
    let text = get(&server, "none", &with_client);
    assert!(!is_sent(&text, "client-cert") && !is_sent(&text, "x-ssl-verify"), "{text}");
    assert!(is_sent(&text, "\nx-subject: CN=rcgen self signed cert\n"), "{text}");
    let text = get(&server, "trusted", &with_client);
    assert!(is_sent(&text, "\nclient-cert: :AA==:\nx-ssl-verify: yes\n"), "{text}");
    let text = get(&server, "cgi", &with_client);
    assert!(is_sent(&text, &format!("SSL_CLIENT_CERT={pem}")), "{text}");
    assert!(is_sent(&text, "SSL_CLIENT_VERIFY=SUCCESS\n"), "{text}");
    assert!(is_sent(&text, "SSL_CLIENT_S_DN=CN=rcgen self signed cert\n"), "{text}");
    assert!(!is_sent(&text, "HTTP_CLIENT_CERT") && !is_sent(&text, "HTTP_X_SSL"), "{text}");
    server.stop();

    // The certificate of a trusted proxy is not the certificate of its client.
    let server = serve("trusted_proxies = [\"127.0.0.1\"]", &authentication);
    let text = get(&server, "cgi", &with_client);
    assert!(!is_sent(&text, "SSL_CLIENT"), "{text}");
    assert!(is_sent(&text, "HTTP_CLIENT_CERT=:AA==:\n"), "{text}");
    server.stop();

    let server = serve("", "");
    let text = get(&server, "leaf", &[]);
    assert!(!is_sent(&text, "client-cert") && !is_sent(&text, "x-ssl-verify"), "{text}");
    let text = get(&server, "cgi", &[]);
    assert!(is_sent(&text, "SSL_CLIENT_VERIFY=NONE\n"), "{text}");
    assert!(!is_sent(&text, "SSL_CLIENT_CERT"), "{text}");
    server.stop();
}

#[test]
fn reload_that_adds_client_ca_closes_unauthenticated_connections() {
    if !has_tool("openssl") {
        return;
    }
    let site = Site::new();
    let CertifiedKey { cert, .. } = generate_simple_self_signed(vec!["client".to_owned()]).unwrap();
    fs::write(site.path("ca"), cert.pem()).unwrap();
    let config = |client_ca: &str| {
        let tls = "self_signed = true\nlisten = [\"127.0.0.1:0\"]\n";
        let folder = site.path("site");
        let text = format!(
            "[limits]\nidle_timeout = \"1h\"\n[tls]\n{tls}{client_ca}[hosts.\"*\"]\n\"/\" = \"-> \
             {folder}\"\n"
        );
        fs::write(site.path("toml"), text).unwrap();
    };
    config("");
    let server = Weft::start(&mut weft(["--no-log", "--config", &site.path("toml")]));
    let mut client = Command::new("timeout")
        .args(["60", "openssl", "s_client", "-quiet", "-connect"])
        .arg(server.tls_address().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    let mut stdout = client.stdout.take().unwrap();
    let mut received = Vec::new();
    let mut ask = |received: &mut Vec<u8>| {
        stdin.write_all(b"GET /a.txt HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        received.clear();
        while !received.ends_with(b"A\n") {
            let mut bytes = [0; 1_000];
            let length = stdout.read(&mut bytes).unwrap();
            assert_ne!(length, 0, "{}", received.escape_ascii());
            received.extend_from_slice(&bytes[..length]);
        }
    };
    ask(&mut received);
    server.signal(Signal::HUP);
    until("the reload is logged", || server.stderr().contains("was reloaded"));
    // Nothing has changed.
    ask(&mut received);
    config(&format!("client_ca = \"{}\"\n", site.path("ca")));
    server.signal(Signal::HUP);
    let status = client.wait().unwrap();
    assert_ne!(status.code(), Some(124), "the connection stays open");
    server.stop();
}

#[test]
fn rejects_invalid_tls_options() {
    let site = Site::new();
    let path = |name: &str| site.path(name);
    let (crt, key) = (path("crt"), path("key"));
    fs::write(path("other"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let (other, missing) = (path("other"), path("missing"));
    for (arguments, status, expected) in [
        (&["--tls-cert", &*crt][..], 2, "each --tls-cert has its --tls-key; there are 1 and 0"),
        (&["--tls-key", &key], 2, "there are 0 and 1"),
        (&["--tls-listen", ":1"], 2, "--tls-listen needs --tls-cert or --tls-self-signed"),
        (&["--tls-tickets", "x"], 2, "--tls-tickets needs --tls-cert"),
        (&["--tls-client-ca", "x"], 2, "--tls-client-ca needs --tls-cert"),
        (
            &["--tls-self-signed", "--tls-cert", &crt, "--tls-key", &key],
            2,
            "--tls-self-signed cannot be combined",
        ),
        (&["--tls-self-signed", "--tls-listen", "x"], 2, "`x` is no address to listen on"),
        (&["--tls-cert", &crt, "--tls-key", &other], 1, "does not belong to the certificate in"),
        (&["--tls-cert", &crt, "--tls-key", &missing], 1, "cannot read"),
        (&["--tls-self-signed", "--tls-tickets", &crt], 1, "keys of session tickets have 48 each"),
    ] {
        // Other tests may use the default port.
        let any_port = ["--tls-listen", "127.0.0.1:0"].iter().filter(|_| status == 1);
        let output = run(arguments.iter().chain(any_port).copied().chain([&*path("site")]));
        assert_eq!(output.status, Ok(status), "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{arguments:?}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
}
