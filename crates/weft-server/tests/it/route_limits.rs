//! Limits and rules of a route: maintenance, networks in files, rates by other keys than the
//! client, client certificates, the rate of request bodies, and the bandwidth of responses.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

use crate::common::{
    Client, Response, Weft, connect_from, has_tool, raw_upstream, read_head, run, until, weft,
};

/// Starts the server with a configuration and other files in its folder.
fn serve(config: &str, files: &[(&str, &str)]) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    let file = folder.path().join("weft.toml");
    fs::write(&file, format!("listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n{config}")).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &file]));
    (folder, server)
}

fn send(server: &Weft, target: &str, fields: &str) -> Response {
    let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n"));
    client.response()
}

// -- rate of request bodies

#[test]
fn a_route_permits_pauses_of_request_bodies() {
    let upstream = raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let mut body = [0; 4];
            if head.contains("ontent-length: 4") && stream.read_exact(&mut body).is_err() {
                return;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let (_folder, server) = serve(
        &format!(
            "[limits]\nstall_timeout = \"1s\"\n[hosts.\"*\"]\n\
             \"/\" = \">> http://{upstream}\"\n\
             \"/patient/\" = {{ proxy = \"http://{upstream}\", stall_timeout = \"never\" }}\n\
             \"/slow/\" = {{ proxy = \"http://{upstream}\", min_bytes_per_second = 0 }}\n"
        ),
        &[],
    );
    let start = |target: &str| {
        let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
        client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab"));
        client
    };
    let mut patient = start("/patient/");
    // One after the other, so that the first one pauses twice as long.
    for target in ["/", "/slow/"] {
        assert_eq!(start(target).response().status, 408, "{target}");
    }
    patient.send("cd");
    assert_eq!(patient.response().status, 200);
}

// -- concurrent requests

/// Uploads of one byte of several occupy the places of their client only, and as many in the queue.
#[test]
fn a_client_occupies_its_share_of_a_route() {
    let upstream = raw_upstream(|_, mut stream| {
        while read_head(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let (_folder, server) = serve(
        &format!(
            "trusted_proxies = \"127.0.0.3\"\n[hosts.\"*\"]\n\
             \"/half\" = {{ proxy = \"http://{upstream}\", max_concurrent_requests = 4 }}\n\
             \"/all\" = {{ proxy = \"http://{upstream}\", max_concurrent_requests = 4, \
                           max_concurrent_requests_per_client = 4 }}\n"
        ),
        &[],
    );
    // Each row: the route, the address of slow clients, and how many of nine are refused at once.
    for (target, from, refused, status_of_others) in [
        ("/half", [127, 0, 0, 2], 5, 200),
        // Requests of many clients, which the proxy does not name.
        ("/half", [127, 0, 0, 3], 1, 503),
        ("/all", [127, 0, 0, 2], 1, 503),
    ] {
        let mut slow: Vec<_> = (0..9)
            .map(|_| {
                let mut client = connect_from(from, server.address());
                let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n");
                client.write_all(format!("{head}\r\nx").as_bytes()).unwrap();
                client.set_nonblocking(true).unwrap();
                client
            })
            .collect();
        let has_response = |client: &&mut TcpStream| client.peek(&mut [0]).is_ok();
        until("requests beyond the share are refused", || {
            slow.iter_mut().filter(has_response).count() >= refused
        });
        assert_eq!(send(&server, target, "").status, status_of_others, "{target} {from:?}");
        drop(slow);
        until("the places are free", || send(&server, target, "").status == 200);
    }
    server.stop();
}

// -- maintenance

/// Each step: a change of the file, and the response of `/`.
#[test]
fn a_file_closes_routes_while_it_exists() {
    let (folder, server) = serve(
        "[hosts.\"*\"]\nmaintenance = \"closed.html\"\nerror_pages = { 503 = \"503.json\" }\n\
         deny = \"127.0.0.1\"\n\
         \"/\" = { respond = \"open\", deny = [] }\n\"/denied\" = { respond = \"\" }\n\
         \"/status\" = { respond = \"well\", maintenance = \"none\", deny = [] }\n",
        &[("503.json", "{\"error\": 503}"), ("closed.html", "closed until noon")],
    );
    let file = folder.path().join("closed.html");
    let response = |target: &str| {
        let response = send(&server, target, "");
        let media_type = response.header("content-type").unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default();
        format!("{} {media_type} {}", response.status, String::from_utf8_lossy(&response.body))
    };
    let closed = "503 text/html closed until noon";
    // Before the rules about clients.
    assert_eq!([response("/"), response("/denied")], [closed, closed]);
    assert_eq!(response("/status"), "200 text/plain well");
    fs::remove_file(&file).unwrap();
    until("the site is open", || response("/") == "200 text/plain open");
    // Each route looks at the file at times of its own.
    until("the rules about clients apply", || response("/denied").starts_with("403 "));
    fs::write(&file, "").unwrap();
    until("the site is closed", || response("/") == "503 application/json {\"error\": 503}");
    fs::write(&file, vec![b'a'; (1 << 20) + 1]).unwrap();
    until("the file is reported", || {
        response("/").starts_with("503 application/json")
            && server.stderr().contains("is larger than")
    });
    fs::write(&file, "again").unwrap();
    until("the text is read again", || response("/") == "503 text/html again");
}

// -- networks in files

/// Each row: the client, and the statuses of the routes `/allow`, `/deny`, `/both` and `/open`.
#[test]
fn networks_in_files_decide_about_clients() {
    let (folder, server) = serve(
        "trusted_proxies = \"127.0.0.1\"\n[hosts.\"*\"]\nallow_file = \"allowed\"\n\
         \"/allow\" = { respond = \"\" }\n\
         \"/deny\" = { respond = \"\", deny_file = \"denied\" }\n\
         \"/both\" = { respond = \"\", allow = \"198.51.100.1\", allow_file = \"allowed\", \
                       deny = \"192.0.2.9\", deny_file = \"denied\" }\n\
         \"/open\" = { respond = \"\", allow = [] }\n",
        &[
            ("allowed", "# Offices\n192.0.2.0/24 # Berlin\n\n2001:db8::/32\n"),
            ("denied", "192.0.2.8\n203.0.113.0/24"),
        ],
    );
    let statuses = |client: &str| {
        ["/allow", "/deny", "/both", "/open"]
            .map(|target| send(&server, target, &format!("X-Forwarded-For: {client}\r\n")).status)
    };
    for (client, expected) in [
        ("192.0.2.1", [200, 200, 200, 200]),
        ("::ffff:192.0.2.1", [200, 200, 200, 200]),
        ("2001:db8::5", [200, 200, 200, 200]),
        ("192.0.2.8", [200, 403, 403, 200]),
        ("192.0.2.9", [200, 200, 403, 200]),
        ("203.0.113.7", [403, 403, 403, 200]),
        ("198.51.100.1", [403, 200, 200, 200]),
        ("198.51.100.2", [403, 200, 403, 200]),
    ] {
        assert_eq!(statuses(client), expected, "{client}");
    }
    // Read again when it changes; an invalid file leaves the former networks in effect.
    fs::write(folder.path().join("allowed"), "198.51.100.2\n").unwrap();
    until("the new networks are allowed", || statuses("198.51.100.2")[0] == 200);
    assert_eq!(statuses("192.0.2.1")[0], 403);
    fs::write(folder.path().join("allowed"), "198.51.100.2\nnonsense\n").unwrap();
    until("the error is logged", || {
        send(&server, "/allow", "");
        server.stderr().contains("line 2: expected an address or a network")
    });
    assert_eq!(statuses("198.51.100.2")[0], 200);
    // A file without networks allows nobody.
    fs::write(folder.path().join("allowed"), "# nobody\n").unwrap();
    until("nobody is allowed", || statuses("198.51.100.2")[0] == 403);
}

/// Each row: the file, and the error of a check.
#[test]
fn check_reads_the_files_of_networks() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("weft.toml");
    fs::write(&config, "[hosts.\"*\"]\n\"/\" = { respond = \"\", deny_file = \"networks\" }\n")
        .unwrap();
    let networks = folder.path().join("networks");
    let check = || run([Path::new("check"), &config]);
    assert!(check().stderr.contains("networks: No such file"), "{}", check().stderr);
    let too_large = "#".repeat((1 << 20) + 1);
    for (text, expected) in [
        ("10.0.0.0/8\n10.0.0.0/33\n", "networks: line 2: expected an address or a network"),
        (&*too_large, "networks is larger than 1048576 bytes"),
    ] {
        fs::write(&networks, text).unwrap();
        let output = check();
        assert_eq!(output.status, Ok(1));
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
    fs::write(&networks, &too_large[1..]).unwrap();
    assert_eq!(check().status, Ok(0));
}

// -- rates

/// Each row: the target, fields, and the status. A bucket has one request.
#[test]
fn rate_applies_to_each_value_of_its_key() {
    let (_folder, server) = serve(
        "[hosts.\"*\"]\nrate = \"1/h\"\nrate_key = \"{header.X-Key}\"\n\
         \"/key\" = { respond = \"\" }\n\
         \"/query\" = { respond = \"\", rate_key = \"{query.a}{query.b}\" }\n\
         \"/client\" = { respond = \"\", rate_key = \"{client_ip}\" }\n\
         \"/free\" = { respond = \"\", rate = \"none\" }\n",
        &[],
    );
    let long = format!("X-Key: {}\r\n", "x".repeat(10_000));
    for (target, fields, status) in [
        ("/key", "X-Key: a\r\n", 200),
        ("/key", "X-Key: a\r\n", 429),
        ("/key", "X-Key: b\r\n", 200),
        ("/key", "X-Key: b\r\n", 429),
        // Without a value there is no limit.
        ("/key", "", 200),
        ("/key", "", 200),
        ("/key", &*long, 200),
        ("/key", &*long, 429),
        // Each route counts its own requests.
        ("/query?a=1", "", 200),
        ("/query?b=1", "", 429),
        ("/query?b=2", "", 200),
        ("/client", "X-Key: a\r\n", 200),
        ("/client", "X-Key: b\r\n", 429),
        ("/free", "X-Key: a\r\n", 200),
        ("/free", "X-Key: a\r\n", 200),
    ] {
        let response = send(&server, target, fields);
        assert_eq!(response.status, status, "{target} {fields}");
        assert_eq!(response.header("retry-after").is_some(), status == 429, "{target} {fields}");
    }
}

// -- client certificates

#[test]
fn routes_require_client_certificates() {
    if !has_tool("curl") {
        return;
    }
    let pair = |name: &str| {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        (cert.pem(), signing_key.serialize_pem())
    };
    let ((crt, key), (client_crt, client_key)) = (pair("localhost"), pair("client"));
    let (stranger_crt, stranger_key) = pair("stranger");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, text) in [
        ("crt", crt),
        ("key", key),
        ("ca", client_crt.clone()),
        ("client", client_crt + &client_key),
        ("stranger", stranger_crt + &stranger_key),
        (
            "weft.toml",
            "listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n\
             trusted_proxies = \"127.0.0.2\"\n[tls]\nlisten = \"127.0.0.1:0\"\n\
             certificates = [{ cert = \"crt\", key = \"key\" }]\n\
             client_ca = \"ca\"\nclient_auth = \"optional\"\n\
             [hosts.\"*\"]\n\"/\" = { respond = \"open\" }\n\
             \"/api\" = { respond = \"api\", client_cert_required = true }\n\
             \"/subject\" = { redirect = \"/{tls.client_subject}\" }\n\
             [hosts.secure]\nclient_cert_required = true\n\"/\" = { respond = \"secure\" }\n\
             \"/open\" = { respond = \"open\", client_cert_required = false }\n"
                .to_owned(),
        ),
    ] {
        fs::write(path(name), text).unwrap();
    }
    let server = Weft::start(&mut weft(["--config", &path("weft.toml")]));
    let addresses = server.addresses();
    let secure = addresses.iter().find(|address| address.starts_with("https://")).unwrap();
    let plain = addresses.iter().find(|address| address.starts_with("http://")).unwrap();
    let curl_with = |options: &[&str], address: &str, host: &str, target: &str, certificate| {
        let mut command = Command::new("curl");
        command.args(["-sSk", "--max-time", "30", "-w", "%{http_code}%{redirect_url}"]);
        command.args(["-o", "/dev/null"]).args(options);
        command.args([
            "-H",
            &format!("Host: {host}"),
            &format!("{}{target}", address.trim_end_matches('/')),
        ]);
        let certificate: Option<&str> = certificate;
        command.args(certificate.iter().flat_map(|name| ["--cert".to_owned(), path(name)]));
        let output = command.output().unwrap();
        match output.status.success() {
            true => String::from_utf8(output.stdout).unwrap(),
            false => "failed".to_owned(),
        }
    };
    let curl = |address: &str, host: &str, target: &str, certificate| {
        curl_with(&[], address, host, target, certificate)
    };
    let client = Some("client");
    for (address, host, target, certificate, expected) in [
        (secure, "a", "/", None, "200"),
        (secure, "a", "/api", None, "403"),
        (secure, "a", "/api", client, "200"),
        (secure, "a", "/", client, "200"),
        (secure, "secure", "/", None, "403"),
        (secure, "secure", "/", client, "200"),
        (secure, "secure", "/open", None, "200"),
        // A certificate of another authority fails the handshake, also where none is required.
        (secure, "a", "/", Some("stranger"), "failed"),
        (plain, "a", "/", None, "200"),
        (plain, "a", "/api", None, "403"),
    ] {
        let found = curl(address, host, target, certificate);
        assert_eq!(found, expected, "{address} {host}{target} {certificate:?}");
    }
    // The certificate of a proxy is not the certificate of the client that the proxy names.
    let names_client = "X-Forwarded-For: 192.0.2.1";
    for (from, field, target, expected) in [
        ("127.0.0.1", names_client, "/api", "200"),
        ("127.0.0.2", "X-A: b", "/api", "200"),
        ("127.0.0.2", names_client, "/api", "403"),
        ("127.0.0.1", names_client, "/subject", "/CN%3Drcgen%20self%20signed%20cert"),
        ("127.0.0.2", "X-A: b", "/subject", "/CN%3Drcgen%20self%20signed%20cert"),
        ("127.0.0.2", names_client, "/subject", "/"),
    ] {
        let options = ["--interface", from, "-H", field];
        let found = curl_with(&options, secure, "a", target, client);
        assert!(found.ends_with(expected), "{from} {field} {target}: {found}");
    }
}

// -- bandwidth

#[test]
fn responses_have_the_bandwidth_of_their_route() {
    let text = "x".repeat(60_000);
    let (_folder, server) = serve(
        "[hosts.\"*\"]\nbandwidth = \"40kB\"\n\
         \"/files\" = { files = \".\" }\n\
         \"/after\" = { files = \".\", bandwidth_after = \"30kB\" }\n\
         \"/fast\" = { files = \".\", bandwidth = \"0\" }\n",
        &[("a.bin", &text)],
    );
    // A quarter of a second is sent at once. On a busy machine, a single response may take longer.
    for (target, at_once) in [("/files", 10_000), ("/after", 40_000), ("/fast", 60_000)] {
        let minimum = Duration::from_secs_f64(f64::from(60_000 - at_once) / 40_000.0);
        until(&format!("{target} takes about {minimum:?}"), || {
            let start = Instant::now();
            let response = send(&server, &format!("{target}/a.bin"), "");
            let took = start.elapsed();
            assert!(response.body == text.as_bytes(), "{target}");
            assert!(took >= minimum, "{target}: {took:?}");
            took <= minimum * 3 / 2 + Duration::from_millis(250)
        });
    }
}
