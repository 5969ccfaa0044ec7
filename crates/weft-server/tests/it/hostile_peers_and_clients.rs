//! Attacks of one client or one peer against the running program. Each test has a twin that differs
//! in one thing and is accepted. So a refusal has the reason in the name of the test.
//!
//! Costs are compared with the costs of the twin on the same server: CPU times, threads that are
//! ready to run, and numbers of queries. The time of the clock decides nothing.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{
    Client, PATIENCE, Response, Weft, connect_from, raw_upstream, read_head, until, weft,
};
use crate::dns::server::{DnsServer, NO_NAME};
use crate::http2_upstream::peer::{
    END_HEADERS, HEADERS, PING, SETTINGS, WINDOW_UPDATE, frame, http2_upstream, text_response,
};

/// Address of the hostile client.
const HOSTILE: [u8; 4] = [127, 0, 0, 2];

/// Address of another client.
const OTHER: [u8; 4] = [127, 0, 0, 3];

/// Address of the trusted proxy in front of the server.
const PROXY: [u8; 4] = [127, 0, 0, 4];

// -- the server

/// A server with one worker, and the folder of its files.
struct Site {
    server: Weft,
    _folder: TempDir,
}

impl Site {
    /// Starts a server with this configuration, which may name the files.
    #[track_caller]
    fn start(files: &[(&str, &str)], config: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
            let permissions = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder.path().join(name), permissions).unwrap();
        }
        Site::start_in(folder, config)
    }

    #[track_caller]
    fn start_in(folder: TempDir, config: &str) -> Site {
        let file = folder.path().join("weft.toml");
        let top = "workers = 1\nlog.access = \"none\"\n";
        fs::write(&file, format!("{top}{config}")).unwrap();
        let server = Weft::start(&mut weft([Path::new("--config"), &file]));
        Site { server, _folder: folder }
    }

    #[track_caller]
    fn connect(&self, from: [u8; 4]) -> Client {
        Client::from_stream(connect_from(from, self.server.address()))
    }

    /// Sends a GET request over a new connection and reads the response.
    #[track_caller]
    fn get(&self, from: [u8; 4], host: &str, target: &str, fields: &str) -> Response {
        let mut client = self.connect(from);
        client.send(request(host, target, fields));
        client.response()
    }

    /// CPU time of the living threads of the server.
    fn cpu(&self) -> Duration {
        let threads = fs::read_dir(format!("/proc/{}/task", self.server.id())).unwrap().flatten();
        let times = threads.map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
        });
        Duration::from_nanos(times.sum())
    }

    /// CPU time of the server during `work`, in microseconds; the minimum of three times.
    fn cost(&self, mut work: impl FnMut()) -> u128 {
        let costs = [(); 3].map(|()| {
            let before = self.cpu();
            work();
            (self.cpu() - before).as_micros()
        });
        costs.into_iter().min().unwrap().max(1)
    }

    /// Number of threads that run or are ready to run (proc_pid_stat(5)).
    fn busy_threads(&self) -> usize {
        let threads = fs::read_dir(format!("/proc/{}/task", self.server.id())).unwrap().flatten();
        let stats =
            threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
        stats.filter(|stat| stat.contains(") R ")).count()
    }

    /// Maximum resident memory so far, in KiB.
    fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

fn request(host: &str, target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// Returns a line of a password file; verification takes longer with each further `cost`.
fn user(name: &str, password: &str, cost: u32) -> String {
    format!("{name}:{}\n", bcrypt::hash(password, cost).unwrap())
}

// -- upstreams and applications

fn respond(stream: &mut TcpStream, status: &str, fields: &str, body: &str) {
    let length = body.len();
    let response = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
    // The server may have closed the connection.
    let _ = stream.write_all(response.as_bytes());
}

/// Starts an upstream whose responses have these fields, and the head of the request as a body.
fn echo(fields: impl Into<String>) -> SocketAddr {
    let fields = fields.into();
    raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let length = head.to_lowercase();
            let length = length.split_once("content-length: ").map_or("0", |(_, rest)| rest);
            let length = length.split("\r\n").next().unwrap().parse().unwrap();
            stream.read_exact(&mut vec![0; length]).unwrap();
            respond(&mut stream, "200 OK", &fields, &head);
        }
    })
}

/// Variables of a request as lines of the form `NAME=VALUE`.
type Variables = String;

fn exactly(stream: &mut TcpStream, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn lines(texts: &[String]) -> Variables {
    texts.chunks(2).map(|pair| format!("{}={}\n", pair[0], pair[1])).collect()
}

fn read_scgi(stream: &mut TcpStream) -> Option<Variables> {
    let mut length = 0;
    loop {
        match exactly(stream, 1)?[0] {
            b':' => break,
            digit => length = 10 * length + usize::from(digit - b'0'),
        }
    }
    let head = exactly(stream, length + 1)?;
    let texts = head[..length - 1].split(|byte| *byte == 0);
    Some(lines(&texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>()))
}

fn read_uwsgi(stream: &mut TcpStream) -> Option<Variables> {
    let begin = exactly(stream, 4)?;
    let head = exactly(stream, u16::from_le_bytes([begin[1], begin[2]]).into())?;
    let (mut texts, mut rest) = (Vec::new(), &head[..]);
    while let [low, high, others @ ..] = rest {
        let (text, others) = others.split_at(u16::from_le_bytes([*low, *high]).into());
        texts.push(String::from_utf8_lossy(text).into_owned());
        rest = others;
    }
    Some(lines(&texts))
}

fn read_fastcgi(stream: &mut TcpStream) -> Option<Variables> {
    let mut head = Vec::new();
    loop {
        let header = exactly(stream, 8)?;
        let content = exactly(stream, u16::from_be_bytes([header[4], header[5]]).into())?;
        exactly(stream, header[6].into())?;
        match (header[1], content.is_empty()) {
            (4, _) => head.extend(content),
            (5, true) => break,
            _ => (),
        }
    }
    let (mut texts, mut rest) = (Vec::new(), &head[..]);
    while !rest.is_empty() {
        let lengths = [(); 2].map(|()| match rest {
            [short @ 0..128, others @ ..] => {
                rest = others;
                usize::from(*short)
            }
            [a, b, c, d, others @ ..] => {
                rest = others;
                u32::from_be_bytes([a & 127, *b, *c, *d]) as usize
            }
            _ => panic!("a truncated length"),
        });
        for length in lengths {
            let (text, others) = rest.split_at(length);
            texts.push(String::from_utf8_lossy(text).into_owned());
            rest = others;
        }
    }
    Some(lines(&texts))
}

/// A record of FastCGI from the application.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

fn cgi_response(fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("Status: 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// The names of the hosts of [`applications`].
const APPLICATIONS: [&str; 5] = ["fastcgi", "scgi", "uwsgi", "cgi", "php"];

/// Starts a server with a host for each protocol of applications, which respond with their
/// variables. On all hosts, `/admin/` is denied.
fn applications() -> Site {
    let fastcgi = raw_upstream(|_, mut stream| {
        while let Some(variables) = read_fastcgi(&mut stream) {
            let end = record(3, &[0; 8]);
            let output = record(6, &cgi_response("", &variables));
            let _ = stream.write_all(&[output, record(6, &[]), end].concat());
        }
    });
    let plain = |read: fn(&mut TcpStream) -> Option<Variables>| {
        raw_upstream(move |_, mut stream| {
            if let Some(variables) = read(&mut stream) {
                let _ = stream.write_all(&cgi_response("", &variables));
            }
        })
    };
    let (scgi, uwsgi) = (plain(read_scgi), plain(read_uwsgi));
    let script = "#!/bin/sh\nbody=$(env)\n\
                  printf 'Status: 200 OK\\nContent-Length: %s\\n\\n%s' \"${#body}\" \"$body\"\n";
    let responders = [
        format!("fastcgi = \"{fastcgi}\""),
        format!("scgi = \"{scgi}\""),
        format!("uwsgi = \"{uwsgi}\""),
        "cgi = \"script\"".to_owned(),
        format!("files = \".\", php = \"{fastcgi}\", fallback = \"index.php\""),
    ];
    let hosts = APPLICATIONS.iter().zip(responders).map(|(name, responder)| {
        format!(
            "[hosts.{name}]\n\"/\" = {{ {responder} }}\n\
             \"/admin/\" = {{ respond = \"\", deny = \"127.0.0.0/8\" }}\n"
        )
    });
    let config = "listen = \"127.0.0.1:0\"\ntrusted_proxies = [\"127.0.0.4\"]\n".to_owned()
        + &hosts.collect::<String>();
    Site::start(&[("script", script), ("index.php", "")], &config)
}

// -- identity

#[test]
fn identities_of_clients_are_removed_whatever_admits_them() {
    let (upstream, authentication) = (echo(""), echo("Remote-User: bob\r\n"));
    let site = Site::start(
        &[("users", &user("bob", "right", 4))],
        &format!(
            "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\nforward_auth = \"http://{authentication}/\"\n\
             forward_auth_headers = [\"Remote-User\", \"Remote-Groups\"]\nsatisfy = \"any\"\n\
             allow = \"127.0.0.2\"\n\
             \"/network/\" = {{ proxy = \"http://{upstream}/\" }}\n\
             \"/password/\" = {{ proxy = \"http://{upstream}/\", basic_auth = \"users\" }}\n"
        ),
    );
    let password = basic("bob", "right");
    for (from, target, credentials) in [
        (HOSTILE, "/network/", ""),
        (HOSTILE, "/password/", ""),
        (OTHER, "/password/", &*password),
        (OTHER, "/network/", ""),
    ] {
        for name in ["Remote-User", "REMOTE-USER", "remote_user", "Remote-Groups"] {
            let fields = format!("{name}: admin\r\n{credentials}");
            let response = site.get(from, "a", target, &fields);
            let received = text(&response);
            assert_eq!(response.status, 200, "{from:?} {target} {fields}");
            assert!(!received.contains("admin"), "{from:?} {target} {fields}: {received}");
        }
    }
    // The field of the authentication arrives, also if the client names it in `Connection`.
    for fields in ["", "Connection: Remote-User\r\n"] {
        let received = text(&site.get(OTHER, "a", "/network/", fields)).to_lowercase();
        assert!(received.contains("remote-user: bob\r\n"), "{fields}: {received}");
    }
}

/// The route with the page of an error gets the request of the client, but no field that the failed
/// route sets or removes. Each row: the target, and its status before the page.
#[test]
fn pages_of_errors_get_no_identity_of_a_client() {
    let (upstream, authentication) = (echo(""), echo("Remote-User: carol\r\n"));
    let site = Site::start(
        &[("users", &user("bob", "right", 4))],
        &format!(
            "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\nerror_pages = {{ \"4xx\" = \"@page\" }}\n\
             \"@page\" = {{ proxy = \"http://{upstream}\" }}\n\
             [hosts.\"*\".\"/asked/\"]\nrespond = \"\"\nstatus = 404\n\
             forward_auth = \"http://{authentication}/\"\nforward_auth_headers = [\"Remote-User\"]\n\
             [hosts.\"*\".\"/refused/\"]\nrespond = \"\"\nbasic_auth = \"users\"\n\
             forward_auth = \"http://{authentication}/\"\nforward_auth_headers = [\"Remote-User\"]\n\
             [hosts.\"*\".\"/set/\"]\nrespond = \"\"\nstatus = 404\n\
             request_headers = {{ Remote-User = \"{{user}}\" }}\n\
             [hosts.\"*\".\"/removed/\"]\nrespond = \"\"\nstatus = 404\n\
             remove_request_headers = [\"Remote-User\"]\n\
             [hosts.\"*\".\"/other/\"]\nrespond = \"\"\nstatus = 404\n"
        ),
    );
    for (target, status, arrives) in [
        ("/asked/", 404, false),
        ("/refused/", 401, false),
        ("/set/", 404, false),
        ("/removed/", 404, false),
        // No authentication has this name here.
        ("/other/", 404, true),
    ] {
        for name in ["Remote-User", "remote_user"] {
            let fields = format!("{name}: admin\r\nX-Own: mine\r\n");
            let response = site.get(HOSTILE, "a", target, &fields);
            let received = text(&response).to_lowercase();
            assert_eq!(response.status, status, "{target}");
            assert!(received.contains("x-own: mine\r\n"), "{target}: {received}");
            // A name with an underscore is not forwarded.
            let has_name = arrives && name == "Remote-User";
            assert_eq!(received.contains("admin"), has_name, "{target} {name}: {received}");
        }
    }
}

/// Applications may merge trailers into the fields, so that fields of the program are no trailers.
#[test]
fn trailers_name_no_user() {
    let authentication = echo("Remote-User: carol\r\n");
    let upstream = raw_upstream(move |_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let mut body = Vec::new();
            while !body.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                body.push(byte[0]);
            }
            respond(&mut stream, "200 OK", "", &(head + &String::from_utf8(body).unwrap()));
        }
    });
    let trailers = "request_trailers = [\"Remote-User\", \"X-User\", \"X-T\"]";
    let site = Site::start(
        &[],
        &format!(
            "listen = \"127.0.0.1:0\"\n\
             [hosts.\"*\".\"/asked/\"]\nproxy = \"http://{upstream}/\"\n{trailers}\n\
             forward_auth = \"http://{authentication}/\"\nforward_auth_headers = [\"Remote-User\"]\n\
             request_headers = {{ X-User = \"{{user}}\" }}\n\
             [hosts.\"*\".\"/open/\"]\nproxy = \"http://{upstream}/\"\n{trailers}\n"
        ),
    );
    for (target, listed, forged) in
        [("/asked/", "x-t", 0), ("/open/", "remote-user, x-user, x-t", 2)]
    {
        let mut client = site.connect(HOSTILE);
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
             Trailer: X-T, Remote-User, x-user, X-Not-Permitted\r\n\r\n\
             1\r\na\r\n0\r\nRemote-User: forged\r\nX-User: forged\r\nX-T: mine\r\n\
             X-Not-Permitted: 1\r\n\r\n"
        ));
        let received = text(&client.response()).to_lowercase();
        assert!(received.contains(&format!("trailer: {listed}\r\n")), "{received}");
        assert!(received.contains("x-t: mine\r\n"), "{received}");
        assert_eq!(received.matches("forged").count(), forged, "{received}");
        assert!(!received.contains("not-permitted"), "{received}");
    }
}

/// The time of a verification by SHA-crypt grows with the length of the password. bcrypt ignores
/// bytes behind the first 72, so that the longest password that is verified is right here.
#[test]
fn long_passwords_are_wrong_at_once() {
    let site = Site::start(
        &[("users", &user("bob", &"a".repeat(72), 4))],
        "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\
         \"/\" = { respond = \"\", basic_auth = \"users\" }\n",
    );
    for (length, status) in [(71, 401), (72, 200), (512, 200), (513, 401), (5_000, 401)] {
        let password = basic("bob", &"a".repeat(length));
        assert_eq!(site.get(HOSTILE, "a", "/", &password).status, status, "{length}");
    }
}

#[test]
fn certificates_of_trusted_proxies_are_not_certificates_of_their_clients() {
    let folder = tempfile::tempdir().unwrap();
    let [site_key, client_key] = ["localhost", "client"]
        .map(|name| generate_simple_self_signed(vec![name.to_owned()]).unwrap());
    let path = |name: &str| folder.path().join(name);
    let CertifiedKey { cert, signing_key } = &site_key;
    fs::write(path("site.crt"), cert.pem()).unwrap();
    fs::write(path("site.key"), signing_key.serialize_pem()).unwrap();
    fs::write(path("clients.pem"), client_key.cert.pem()).unwrap();
    let site = Site::start_in(
        folder,
        "trusted_proxies = [\"127.0.0.4\"]\n\
         [tls]\nlisten = \"127.0.0.1:0\"\nclient_ca = \"clients.pem\"\nclient_auth = \"optional\"\n\
         certificates = [{ cert = \"site.crt\", key = \"site.key\" }]\n\
         [hosts.\"*\"]\n\"/\" = { respond = \"<{tls.client_subject}>\" }\n\
         \"/members/\" = { respond = \"\", client_cert_required = true }\n",
    );
    let mut roots = RootCertStore::empty();
    roots.add(site_key.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::try_from(client_key.signing_key.serialize_der()).unwrap();
    let settings = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![client_key.cert.der().clone()], key);
    let settings = Arc::new(settings.unwrap());
    let get = |from: [u8; 4], target: &str| {
        let stream = connect_from(from, site.server.tls_address());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(settings.clone(), name).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let fields = "X-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n";
        stream.write_all(request("localhost", target, fields).as_bytes()).unwrap();
        let mut received = String::new();
        stream.read_to_string(&mut received).unwrap();
        received
    };
    assert!(get(PROXY, "/members/").starts_with("HTTP/1.1 403 "));
    assert!(get(PROXY, "/").ends_with("\r\n\r\n<>"), "{}", get(PROXY, "/"));
    // The twin is a client of its own that sends the same certificate and the same fields.
    assert!(get(OTHER, "/members/").starts_with("HTTP/1.1 200 "));
    assert!(get(OTHER, "/").ends_with("\r\n\r\n<CN=rcgen self signed cert>"));
}

/// Returns a token that is signed with HMAC, whatever is in its header.
fn signed(header: &Value, secret: &[u8]) -> String {
    let claims = json!({ "sub": "bob", "exp": get_current_timestamp() + 600 });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(header), part(&claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn validly_signed_tokens_with_critical_extensions_are_refused() {
    let secret = "0123456789abcdef0123456789abcdef";
    let site = Site::start(
        &[("secret", secret)],
        "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\
         \"/\" = { respond = \"\", jwt_secret = \"secret\" }\n",
    );
    let status = |header: &Value| {
        site.get(HOSTILE, "a", "/", &bearer(&signed(header, secret.as_bytes()))).status
    };
    for critical in [json!(["exp"]), json!(["b64"]), json!(["a", "b"]), json!([]), json!("exp")] {
        let header = json!({ "alg": "HS256", "crit": critical, "b64": true, "exp": 0 });
        assert_eq!(status(&header), 401, "{header}");
    }
    assert_eq!(status(&json!({ "alg": "HS256", "b64": true, "exp": 0 })), 200);
}

// -- shares of a client

/// Sends wrong passwords over `count` connections, each with the further fields of its number.
fn guess(site: &Site, from: [u8; 4], count: usize, fields: fn(usize) -> String) -> Vec<Client> {
    let guesses = (0..count).map(|number| {
        let mut client = site.connect(from);
        let fields = basic("bob", &number.to_string()) + &fields(number);
        client.send(request("a", "/", &fields));
        client
    });
    guesses.collect()
}

#[test]
fn guesses_of_one_client_do_not_refuse_the_passwords_of_others() {
    let no_fields: fn(usize) -> String = |_| String::new();
    // Each guess has its own /64 of one /48.
    let of_networks: fn(usize) -> String =
        |number| format!("X-Forwarded-For: 2001:db8:1:{number:x}::1\r\n");
    for (from, count, fields) in [(HOSTILE, 70, no_fields), (PROXY, 400, of_networks)] {
        let site = Site::start(
            &[("users", &user("bob", "right", 7))],
            "listen = \"127.0.0.1:0\"\ntrusted_proxies = [\"127.0.0.4\"]\n\
             [hosts.\"*\"]\n\"/\" = { respond = \"\", basic_auth = \"users\" }\n",
        );
        let mut guesses = guess(&site, from, count, fields);
        let response = site.get(OTHER, "a", "/", &basic("bob", "right"));
        assert_eq!(response.status, 200, "the right password beside {count} guesses");
        // The queue was full for the last guess. That is no wrong password.
        let last = guesses.last_mut().unwrap().response();
        assert_eq!((last.status, last.header("retry-after").is_some()), (503, true));
        assert_eq!(guesses[0].response().status, 401);
    }
}

#[test]
fn clients_that_leave_do_not_leave_their_verifications_behind() {
    let site = Site::start(
        &[("users", &user("bob", "right", 9))],
        "listen = \"127.0.0.1:0\"\n\
         [hosts.\"*\"]\n\"/\" = { respond = \"\", basic_auth = \"users\" }\n",
    );
    for guess in guess(&site, HOSTILE, 12, |_| String::new()) {
        until("a verification runs", || site.busy_threads() > 0);
        drop(guess);
        std::thread::sleep(Duration::from_millis(10));
    }
    // A thread that verifies is ready to run at each moment, however busy the machine is. The
    // event loop is so at some moments.
    let busy = (0..8).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        site.busy_threads()
    });
    let busy = busy.min().unwrap();
    assert!(busy <= 2, "{busy} threads work for clients that have left");
    for from in [OTHER, HOSTILE] {
        assert_eq!(site.get(from, "a", "/", &basic("bob", "right")).status, 200, "{from:?}");
    }
}

#[test]
fn slow_bodies_of_one_client_do_not_close_a_route() {
    let upstream = echo("");
    let no_fields: fn(usize) -> String = |_| String::new();
    let of_networks: fn(usize) -> String =
        |number| format!("X-Forwarded-For: 2001:db8:1:{number:x}::1\r\n");
    for (from, fields) in [(HOSTILE, no_fields), (PROXY, of_networks)] {
        let site = Site::start(
            &[],
            &format!(
                "listen = \"127.0.0.1:0\"\ntrusted_proxies = [\"127.0.0.4\"]\n\
                 [hosts.\"*\"]\nmax_concurrent_requests = 8\n\"/\" = \">> http://{upstream}/\"\n"
            ),
        );
        let posts = (0..9).map(|number| {
            let mut client = site.connect(from);
            let fields = fields(number);
            client
                .send(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: 10\r\n\r\n1"));
            client
        });
        let mut posts: Vec<_> = posts.collect();
        assert_eq!(site.get(OTHER, "a", "/", "").status, 200, "beside slow bodies of {from:?}");
        // The same bodies are accepted when they are complete.
        posts.iter_mut().for_each(|post| post.send("234567890"));
        let statuses: Vec<_> = posts.iter_mut().map(|post| post.response().status).collect();
        assert_eq!(statuses[0], 200, "{statuses:?}");
        assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    }
}

#[test]
fn tokens_without_a_key_cost_few_verifications() {
    let keys = [(); 4].map(|()| {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        EncodingKey::from_ec_der(&pair.serialize_der())
    });
    let public = keys.iter().enumerate().map(|(number, key)| {
        let key = Jwk::from_encoding_key(key, Algorithm::ES384).unwrap();
        let mut key = serde_json::to_value(key).unwrap();
        key["kid"] = json!(number.to_string());
        key
    });
    let public = json!({ "keys": public.collect::<Vec<_>>() }).to_string();
    let site = Site::start(
        &[("keys", &public)],
        "listen = \"127.0.0.1:0\"\n\
         [hosts.\"*\"]\n\"/\" = { respond = \"\", jwt_keys = \"keys\" }\n",
    );
    let valid = |id: Option<&str>| {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(Algorithm::ES384) };
        let claims = json!({ "sub": "bob", "exp": get_current_timestamp() + 600 });
        encode(&header, &claims, &keys[0]).unwrap()
    };
    // The signature has another beginning, and so is false.
    let forged = |id: Option<&str>, number: usize| {
        let token = valid(id);
        let (text, signature) = token.rsplit_once('.').unwrap();
        let begin = format!("A{number:05}");
        bearer(&format!("{text}.{begin}{}", &signature[begin.len()..]))
    };
    let mut numbers = 0..;
    let mut number = || numbers.next().unwrap();
    let one_each = site.cost(|| {
        for _ in 0..10 {
            assert_eq!(site.get(OTHER, "a", "/", &forged(Some("0"), number())).status, 401);
        }
    });
    let requests: Vec<_> = (0..200).map(|_| request("a", "/", &forged(None, number()))).collect();
    let before = site.cpu();
    let clients = requests.iter().map(|request| {
        let mut client = site.connect(HOSTILE);
        client.send(request);
        client
    });
    let mut clients: Vec<_> = clients.collect();
    // Another client is admitted meanwhile, with the same kind of token and its right signature.
    assert_eq!(site.get(OTHER, "a", "/", &bearer(&valid(None))).status, 200);
    let statuses = clients.iter_mut().map(|client| client.response().status);
    let refused = statuses.filter(|status| [401, 503].contains(status)).count();
    assert_eq!(refused, clients.len());
    let flood = (site.cpu() - before).as_micros();
    assert!(flood < 15 * one_each, "10 tokens cost {one_each} us, 200 without a key {flood} us");
}

// -- what applications are told

#[test]
fn applications_get_fields_about_clients_from_trusted_proxies_only() {
    let names = [
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Port",
        "X-Forwarded-Prefix",
        "Forwarded",
        "X-Real-IP",
        "X-Client-IP",
        "Client-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Original-Host",
        "X-Host",
        "X-Scheme",
        "Front-End-Https",
        "Client-Cert",
        "X-SSL-Client-Verify",
        "X_Forwarded_For",
        "X.Real.IP",
    ];
    let forged: String = names.iter().map(|name| format!("{name}: forged\r\n")).collect();
    let site = applications();
    for host in APPLICATIONS {
        let response = site.get(HOSTILE, host, "/x", &(forged.clone() + "X-Own: kept\r\n"));
        let variables = text(&response);
        assert_eq!(response.status, 200, "{host}: {variables}");
        assert!(!variables.contains("forged"), "{host}: {variables}");
        assert!(variables.contains("HTTP_X_OWN=kept\n"), "{host}: {variables}");
        let variables = text(&site.get(PROXY, host, "/x", "X-Real-IP: 203.0.113.9\r\n"));
        assert!(variables.contains("HTTP_X_REAL_IP=203.0.113.9\n"), "{host}: {variables}");
    }
}

#[test]
fn applications_get_the_path_that_the_rules_were_applied_to() {
    let site = applications();
    let uri = |host: &str, target: &str| {
        let response = site.get(HOSTILE, host, target, "");
        let variables = text(&response);
        let mut lines = variables.lines();
        let uri = lines.find_map(|line| line.strip_prefix("REQUEST_URI="));
        (response.status, uri.unwrap_or_default().to_owned())
    };
    for host in APPLICATIONS {
        // Each of these targets has a path that the rules do not apply to as it is written.
        for target in [
            "/admin/../x",
            "/admin/%2e%2e/x",
            "/admin/%2E./x",
            "/a/../admin/../x",
            "/%61dmin/../x",
            "/admin/x/../../x",
            "//admin/../x",
            "//admin//../x",
            "/./admin/..",
            "/admin/..?a=b",
            "/admin/..%2fx",
            "/x/..%2fadmin/",
            "/x/%2e%2e/admin/",
            "//admin/x",
            "/.//admin/x",
            "/%61dmin/x",
            "http://other.example/admin/../x",
        ] {
            match uri(host, target) {
                (200, uri) => {
                    let has_dots = [".", "%2e", "%2E"].iter().any(|dots| uri.contains(dots));
                    let is_denied = uri.contains("admin") || uri.contains("%61") || has_dots;
                    assert!(uri.starts_with('/') && !is_denied, "{host} {target}: {uri}");
                }
                (status, _) => assert!([400, 403, 404].contains(&status), "{host} {target}"),
            }
        }
        for target in ["/x", "/x%20y", "/x?q=/admin/../y"] {
            assert_eq!(uri(host, target), (200, target.to_owned()), "{host}");
        }
    }
}

// -- peers

/// Returns frames in the given number, for a stream.
type Frames = fn(stream: u32, count: usize) -> Vec<u8>;

/// Interim responses that have a field of 4,000 bytes three times each, by references to the table
/// of HPACK (RFC 7541 §6.1): 16 bytes in place of 12 KiB.
fn interim_responses(stream: u32, count: usize) -> Vec<u8> {
    const STATUS: &[u8] = b"\x08\x03103";
    let field = [b"\x40\x01x\x7f\xa1\x1e", &[b'a'; 4_000][..]].concat();
    let first = frame(HEADERS, END_HEADERS, stream, &[STATUS, &field].concat());
    let others = frame(HEADERS, END_HEADERS, stream, &[STATUS, &[0xbe; 3]].concat());
    [first, others.repeat(count)].concat()
}

/// Starts an upstream of HTTP/2 that sends the frames `rounds` times before its response.
fn flooding_upstream(frames: Frames, count: usize, rounds: usize) -> SocketAddr {
    http2_upstream(move |_, peer| {
        let Some(stream) = peer.request() else { return };
        let frames = frames(stream, count);
        let mut received = peer.stream.try_clone().unwrap();
        // The answers to the frames are read, so that the server can write them.
        std::thread::spawn(move || std::io::copy(&mut received, &mut std::io::sink()));
        let is_open = (0..rounds).all(|_| peer.stream.write_all(&frames).is_ok());
        if is_open {
            peer.send(&text_response(stream, "end"));
        }
    })
}

#[test]
fn frames_of_upstreams_without_an_end_are_errors() {
    let rows: [(&str, Frames); 5] = [
        ("interim responses", interim_responses),
        ("PING", |_, count| frame(PING, 0, 0, &[0; 8]).repeat(count)),
        ("SETTINGS", |_, count| frame(SETTINGS, 0, 0, &[]).repeat(count)),
        ("WINDOW_UPDATE", |_, count| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(count)),
        ("an unknown frame", |_, count| frame(0xfa, 0, 0, &[0; 8]).repeat(count)),
    ];
    for (name, frames) in rows {
        let flood = flooding_upstream(frames, 2_000, 50);
        let one = flooding_upstream(frames, 1, 1);
        let site = Site::start(
            &[],
            &format!(
                "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\"/flood\" = \">> h2c://{flood}/\"\n\
                 \"/one\" = \">> h2c://{one}/\"\n"
            ),
        );
        let final_status = |target: &str| {
            let mut client = site.connect(OTHER);
            client.send(request("a", target, ""));
            let mut statuses = std::iter::repeat_with(|| client.head()[0][9..12].to_owned());
            statuses.find(|status| !status.starts_with('1'))
        };
        assert_eq!(final_status("/one").as_deref(), Some("200"), "one frame: {name}");
        let before = site.peak_memory();
        assert_eq!(final_status("/flood").as_deref(), Some("502"), "{name} without an end");
        let grown = site.peak_memory() - before;
        assert!(grown < 4 << 10, "{name}: {grown} KiB");
    }
}

/// Starts an application of FastCGI whose heads have this length, in records of `record_size`.
fn application_with_head(length: usize, record_size: usize) -> SocketAddr {
    let line = format!("X-Long: {}\r\n", "a".repeat(990));
    let response = cgi_response(&line.repeat(length / line.len()), "");
    let records = response.chunks(record_size).flat_map(|part| record(6, part));
    let output: Vec<u8> = records.chain(record(6, &[])).chain(record(3, &[0; 8])).collect();
    raw_upstream(move |_, mut stream| {
        if read_fastcgi(&mut stream).is_some() {
            let _ = stream.write_all(&output);
        }
    })
}

#[test]
fn small_records_of_a_head_cost_in_proportion_to_their_number() {
    let routes = [("/short", 7_000, 1), ("/long", 28_000, 1), ("/whole", 28_000, 28_000)];
    let routes = routes.map(|(route, length, size)| {
        format!("{route:?} = {{ fastcgi = \"{}\" }}\n", application_with_head(length, size))
    });
    let site =
        Site::start(&[], &format!("listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n{}", routes.concat()));
    let cost = |target: &str, lines: usize| {
        site.cost(|| {
            let response = site.get(OTHER, "a", target, "");
            let found = response.head.iter().filter(|line| line.contains("aaa")).count();
            assert_eq!((response.status, found), (200, lines), "{target}");
        })
    };
    let (short, long) = (cost("/short", 7), cost("/long", 28));
    // The twin is the same head in one record.
    cost("/whole", 28);
    assert!(long < 8 * short, "four times as many records: {long} us in place of {short} us");
}

/// Starts a server of the DNS whose answers have 3,000 records. Each name in them leads to the name
/// of the query by `depth` references.
fn dns_with_references(depth: usize) -> SocketAddr {
    let (socket, listener) = loop {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()) {
            break (socket, listener);
        }
    };
    let address = socket.local_addr().unwrap();
    // Over UDP all answers are truncated, so that the server asks again over TCP.
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let mut answer = question(&buffer[..length]);
            answer[2] |= 2;
            socket.send_to(&answer, client).unwrap();
        }
    });
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                while let Some(length) = exactly(&mut stream, 2) {
                    let length = u16::from_be_bytes([length[0], length[1]]);
                    let Some(query) = exactly(&mut stream, length.into()) else { return };
                    let answer = answer_with_references(&query, depth);
                    let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                    let _ = stream.write_all(&[&length[..], &answer].concat());
                }
            });
        }
    });
    address
}

/// Returns the head of an answer without records, and its question.
fn question(query: &[u8]) -> Vec<u8> {
    let name = query[12..].iter().position(|byte| *byte == 0).unwrap();
    let mut answer = query[..12 + name + 5].to_vec();
    answer[2..4].copy_from_slice(&[0x85, 0x80]);
    answer[6..12].fill(0);
    answer
}

fn answer_with_references(query: &[u8], depth: usize) -> Vec<u8> {
    const REFERENCES: usize = 7_000;
    const RECORDS: usize = 3_000;
    let mut answer = question(query);
    let kind = answer[answer.len() - 3];
    answer[6..8].copy_from_slice(&(RECORDS as u16 + 1).to_be_bytes());
    let reference = |to: usize| (0xc000 | to as u16).to_be_bytes();
    // The first record is a text that consists of references, each to the one before.
    answer.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 0]);
    answer.extend((2 * REFERENCES as u16).to_be_bytes());
    let begin = answer.len();
    for number in 0..REFERENCES {
        let to = if number == 0 { 12 } else { begin + 2 * (number - 1) };
        answer.extend(reference(to));
    }
    for _ in 0..RECORDS {
        answer.extend(reference(begin + 2 * (depth - 1)));
        match kind {
            1 => answer.extend([0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]),
            _ => answer.extend([0, 16, 0, 1, 0, 0, 0, 60, 0, 4, 3, b'a', b'b', b'c']),
        }
    }
    answer
}

#[test]
fn chains_of_references_in_names_are_refused_at_once() {
    let port = echo("").port();
    let route = |name: &str, depth: usize| {
        let resolver = dns_with_references(depth);
        format!(
            "\"/{name}\" = {{ proxy = \"http://{name}.example:{port}/\", \
             resolver = \"{resolver}\", dns_max_ttl = \"1h\" }}\n"
        )
    };
    let site = Site::start(
        &[],
        &format!(
            "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n{}{}",
            route("few", 8),
            route("many", 7_000)
        ),
    );
    let cost = |target: &str| {
        let before = site.cpu();
        let status = site.get(OTHER, "a", target, "").status;
        (status, (site.cpu() - before).as_micros())
    };
    let (few, many) = (cost("/few"), cost("/many"));
    assert_eq!(few.0, 200, "names of 8 references");
    assert!((502..505).contains(&many.0), "names of 7,000 references: {}", many.0);
    assert!(many.1 < 6 * few.1, "CPU time {} us in place of {} us", many.1, few.1);
}

#[test]
fn names_that_do_not_resolve_are_asked_for_once_a_second() {
    let dns = DnsServer::start();
    dns.fail(Some(NO_NAME));
    let port = echo("").port();
    let resolver = dns.address;
    let site = Site::start(
        &[],
        &format!(
            "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\
             \"/\" = {{ proxy = \"http://app.example:{port}/\", resolver = \"{resolver}\" }}\n"
        ),
    );
    let start = Instant::now();
    let get = || site.get(HOSTILE, "a", "/", "").status;
    assert!((502..505).contains(&get()));
    let per_lookup = dns.queries();
    for _ in 0..60 {
        assert!((502..505).contains(&get()));
    }
    let permitted = start.elapsed().as_secs() as usize + 2;
    let queries = dns.queries();
    assert!(queries <= permitted * per_lookup, "{queries} queries, {per_lookup} for a lookup");
    // The twin is a name that resolves.
    dns.set_addresses("app.example", 60, &[[127, 0, 0, 1]]);
    dns.fail(None);
    until("the name resolves", || get() == 200);
}

#[test]
fn rewritten_locations_stay_on_the_host() {
    for (path, is_kept) in [
        ("evil.example/", true),
        ("\t/evil.example/", false),
        ("\t\t/evil.example/", false),
        ("\t\\evil.example/", false),
        ("/evil.example/", false),
        ("\\evil.example/", false),
        ("\t\t\\/evil.example/", false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let url = format!("http://{upstream}/{path}");
                while read_head(&mut stream).is_some() {
                    let fields = format!("Location: {url}\r\nRefresh: 0; url={url}\r\n");
                    respond(&mut stream, "302 Found", &fields, "");
                }
            }
        });
        let site = Site::start(
            &[],
            &format!(
                "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\"/\" = \">> http://{upstream}/\"\n"
            ),
        );
        let response = site.get(OTHER, "a", "/", "");
        let location = response.header("location").unwrap_or_default();
        let refresh = response.header("refresh").unwrap_or_default();
        let refresh = refresh.split_once("url=").map_or("", |(_, url)| url);
        for url in [location, refresh] {
            if is_kept {
                assert_eq!(url, "/evil.example/", "{:?}", response.head);
            }
            // Browsers remove TAB, and take a backslash for a slash.
            let seen = url.replace('\t', "").replace('\\', "/");
            assert!(!seen.starts_with("//"), "{path:?}: {:?}", response.head);
        }
    }
}

#[test]
fn nested_texts_of_a_substitution_cost_as_much_as_others() {
    // Each letter of the page is a match. Only the end of a long text shows that it is none.
    let route = |name: &str, letter: &str| {
        let long = letter.repeat(1_000) + "z";
        format!("\"/{name}\" = {{ files = \".\", sub_filter = {{ a = \"-\", {long} = \"-\" }} }}\n")
    };
    let length = 16 << 10;
    let routes = route("nested", "a") + &route("others", "b");
    let site = Site::start(
        &[("page.html", &"a".repeat(length))],
        &format!("listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\nsub_filter_once = false\n{routes}"),
    );
    let cost = |target: &str| {
        site.cost(|| {
            let mut client = site.connect(OTHER);
            client.send("GET ".to_owned() + target + " HTTP/1.0\r\n\r\n");
            let head = client.head();
            assert!(head[0].contains(" 200 "), "{head:?}");
            assert_eq!(client.body(length), "-".repeat(length).as_bytes());
        })
    };
    let (others, nested) = (cost("/others/page.html"), cost("/nested/page.html"));
    assert!(nested < 10 * others, "CPU time {nested} us in place of {others} us");
}
