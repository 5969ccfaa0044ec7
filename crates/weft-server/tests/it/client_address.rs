//! The address of the client behind trusted proxies: in logs, rules, limits and applications.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::common::{Client, Signal, Weft, raw_upstream, read_head, until, weft};

/// Responds with the address and the scheme of the client.
const SCRIPT: &str = "#!/bin/sh
text=\"$REMOTE_ADDR $REQUEST_SCHEME\"
printf 'Content-Type: text/plain\\nContent-Length: %s\\n\\n%s' ${#text} \"$text\"
";

fn write_config(folder: &Path, config: &str) {
    fs::write(folder.join("weft.toml"), format!("listen = \"127.0.0.1:0\"\n{config}")).unwrap();
}

fn serve(config: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("address.cgi");
    fs::write(&script, SCRIPT).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    write_config(folder.path(), config);
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

/// Sends a request with additional field lines on a new connection, and returns status and body.
fn send(server: &Weft, target: &str, fields: &[&str]) -> (u16, String) {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n"));
    let response = client.response();
    (response.status, String::from_utf8(response.body).unwrap())
}

/// Each row: the field lines of a request, and the address of its client.
#[test]
fn reads_the_list_from_the_right_up_to_an_untrusted_address() {
    let (folder, server) = serve(
        "workers = 1\ntrusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\", \"fd00::/8\"]\n\
         log = { access = \"access.log\", format = \"%h\" }\n\
         [hosts.\"*\"]\n\"/\" = \"=> address.cgi\"\n",
    );
    let too_many = format!("X-Forwarded-For: 192.0.2.1{}", ", 10.1.1.1".repeat(64));
    let proxy = "127.0.0.1";
    let rows: &[(&[&str], &str)] = &[
        (&["X-Forwarded-For: 192.0.2.1"], "192.0.2.1"),
        (&["X-Forwarded-For: 192.0.2.66, 192.0.2.1"], "192.0.2.1"),
        (&["X-Forwarded-For: 192.0.2.66", "X-Forwarded-For: 192.0.2.1, 10.1.1.1"], "192.0.2.1"),
        (&["X-Forwarded-For: 127.0.0.1, 192.0.2.1, 10.1.1.1,fd00::1"], "192.0.2.1"),
        (&["X-Forwarded-For: 10.1.1.1, 10.1.1.2"], "10.1.1.1"),
        (&["X-Forwarded-For: garbage, 192.0.2.1"], "192.0.2.1"),
        (&["X-Forwarded-For: [2001:db8::1]:443"], "2001:db8::1"),
        (&["X-Forwarded-For: 2001:db8::1"], "2001:db8::1"),
        (&["X-Forwarded-For: 192.0.2.1:8080"], "192.0.2.1"),
        (&["X-Forwarded-For: ::ffff:192.0.2.1"], "192.0.2.1"),
        (&["X-Forwarded-For: 192.0.2.1, garbage"], proxy),
        (&["X-Forwarded-For: 192.0.2.1, unknown"], proxy),
        (&["X-Forwarded-For: 192.0.2.1, _hidden"], proxy),
        (&["X-Forwarded-For: 192.0.2.1, garbage, 10.1.1.1"], proxy),
        (&["X-Forwarded-For: 2001:db8::1]:443"], proxy),
        (&["X-Forwarded-For: 192.0.2.1:99999"], proxy),
        (&["X-Forwarded-For:"], proxy),
        (&[&too_many], proxy),
        // A field that the proxies do not set is chosen by the client.
        (&["Forwarded: for=192.0.2.66", "X-Real-IP: 192.0.2.66"], proxy),
        (&[], proxy),
    ];
    for (fields, client) in rows {
        let found = send(&server, "/", fields);
        assert_eq!(found, (200, format!("{client} http")), "{fields:?}");
    }
    server.stop();
    let log = fs::read_to_string(folder.path().join("access.log")).unwrap();
    let logged: Vec<&str> = log.lines().collect();
    assert_eq!(logged, rows.iter().map(|(_, client)| *client).collect::<Vec<_>>());
}

#[test]
fn other_fields_and_untrusted_proxies() {
    let forwarded = "Forwarded: for=192.0.2.66, for=\"[2001:db8::1]:1\";proto=https";
    let x_forwarded = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https";
    for (options, fields, expected) in [
        ("trusted_proxies = \"127.0.0.1\"\n", x_forwarded, "192.0.2.1 https"),
        ("trusted_proxies = \"192.0.2.0/24\"\n", x_forwarded, "127.0.0.1 http"),
        ("", x_forwarded, "127.0.0.1 http"),
        (
            "trusted_proxies = \"127.0.0.1\"\nclient_ip_header = \"Forwarded\"\n",
            forwarded,
            "2001:db8::1 https",
        ),
        (
            "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\n",
            "X-Forwarded-For: 192.0.2.1, 10.0.0.1\r\nX-Forwarded-Proto: https, http",
            "192.0.2.1 https",
        ),
        (
            "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\nclient_ip_header = \"Forwarded\"\n",
            "Forwarded: for=192.0.2.1;proto=https, for=10.0.0.1;proto=http",
            "192.0.2.1 https",
        ),
        (
            "trusted_proxies = \"127.0.0.1\"\nclient_ip_header = \"Forwarded\"\n",
            "Forwarded: for=unknown\r\nX-Forwarded-For: 192.0.2.66",
            "127.0.0.1 http",
        ),
        (
            "trusted_proxies = \"127.0.0.1\"\nclient_ip_header = \"X-Real-IP\"\n",
            "X-Real-IP: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.66",
            "192.0.2.1 http",
        ),
    ] {
        let routes = "log.access = \"none\"\n[hosts.\"*\"]\n\"/\" = \"=> address.cgi\"\n";
        let (_folder, server) = serve(&format!("{options}{routes}"));
        assert_eq!(send(&server, "/", &[fields]).1, expected, "{options}{fields}");
        server.stop();
    }
}

#[test]
fn rules_and_rates_apply_to_the_client() {
    let config = |proxies: &str| {
        format!(
            "{proxies}log.access = \"none\"\n[hosts.\"*\"]\n\
             \"/allowed\" = {{ respond = \"\", allow = \"192.0.2.0/24\" }}\n\
             \"/denied\" = {{ respond = \"\", deny = \"192.0.2.0/24\" }}\n\
             \"/rate\" = {{ respond = \"\", rate = \"1/h\" }}\n\
             \"/https\" = {{ respond = \"\", https_redirect = true }}\n"
        )
    };
    let (folder, server) = serve(&config("trusted_proxies = \"127.0.0.1\"\n"));
    let status = |target: &str, client: &str| {
        send(&server, target, &[&format!("X-Forwarded-For: {client}")]).0
    };
    assert_eq!([status("/allowed", "192.0.2.1"), status("/allowed", "10.0.0.1")], [200, 403]);
    assert_eq!([status("/denied", "192.0.2.1"), status("/denied", "10.0.0.1")], [403, 200]);
    let rate = ["192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|client| status("/rate", client));
    assert_eq!(rate, [200, 429, 200]);
    assert_eq!(send(&server, "/https", &["X-Forwarded-Proto: https"]).0, 200);
    assert_eq!(send(&server, "/https", &[]).0, 308);
    // A reload ends the trust.
    write_config(folder.path(), &config(""));
    server.signal(Signal::HUP);
    until("the reload is in effect", || status("/allowed", "192.0.2.1") == 403);
}

/// Requests of one connection have each its own client, over HTTP/1.1.
#[test]
fn each_request_of_a_connection_has_its_own_client() {
    let (folder, server) = serve(
        "workers = 1\ntrusted_proxies = [\"127.0.0.1\"]\n\
         log = { access = \"access.log\", format = \"%h %s\" }\n\
         [hosts.\"*\"]\n\"/\" = { respond = \"\" }\n",
    );
    let mut client = server.client();
    for field in ["X-Forwarded-For: 192.0.2.1", "X-A: b", "X-Forwarded-For: 192.0.2.2"] {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"));
        client.response();
    }
    client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    client.response();
    server.stop();
    let log = fs::read_to_string(folder.path().join("access.log")).unwrap();
    let expected = ["192.0.2.1 200", "127.0.0.1 200", "192.0.2.2 200", "127.0.0.1 400"];
    assert_eq!(log.lines().collect::<Vec<_>>(), expected);
}

/// Each row: the keys of the proxy, and what the upstream gets.
#[test]
fn upstreams_get_the_chain_of_addresses() {
    let upstream = raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let fields: Vec<&str> =
                head.lines().filter(|line| line.contains("forwarded")).collect();
            let text = fields.join("|");
            let length = text.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all((head + &text).as_bytes()).unwrap();
        }
    });
    let (_folder, server) = serve(&format!(
        "trusted_proxies = \"127.0.0.1\"\nlog.access = \"none\"\n[hosts.\"*\"]\n\
         \"/\" = {{ proxy = \"http://{upstream}/\" }}\n\
         \"/none\" = {{ proxy = \"http://{upstream}/\", trusted = [] }}\n"
    ));
    for (target, expected) in [
        (
            "/",
            "x-forwarded-for: 192.0.2.66, 192.0.2.1, 127.0.0.1|x-forwarded-proto: https|\
             x-forwarded-host: front|forwarded: for=192.0.2.66;host=\"front\";proto=https, \
             for=192.0.2.1, for=127.0.0.1;host=\"a\";proto=https",
        ),
        (
            "/none/",
            "x-forwarded-for: 192.0.2.1|x-forwarded-proto: https|x-forwarded-host: a|\
             forwarded: for=192.0.2.1;host=\"a\";proto=https",
        ),
    ] {
        let found = send(
            &server,
            target,
            &[
                "X-Forwarded-For: 192.0.2.66, 192.0.2.1",
                "X-Forwarded-Proto: https",
                "X-Forwarded-Host: front",
            ],
        );
        assert_eq!(found.1, expected, "{target}");
    }
}
