//! Placeholders in redirects and texts, with values that hostile clients choose.

use std::fs;
use std::io::Write;
use std::path::Path;

use tempfile::TempDir;

use crate::common::external::{curl, run_successfully};
use crate::common::{Response, Weft, raw_upstream, read_head, weft};

const CONFIG: &str = r##"
listen = "127.0.0.1:0"
log.access = "none"
trusted_proxies = "127.0.0.1"
[tls]
listen = "127.0.0.1:0"
self_signed = true
[hosts."*"]
"/" = "<< https://{host}{uri}"
"/local/" = "<< /{query.to}"
"/rest/" = { redirect = "{rest}", status = 307 }
"/uri/" = "<< {uri}"
"/shop/" = "<< https://{query.shop}.example.org:{port}{path}?{query}"
"/values/" = "<< /?q={query.q}&h={header.X-H}&c={cookie.c}#{header.x-f}"
"/text/" = { respond = "{method} {client_ip}:{client_port} {scheme} {header.X-H} {{host}\n" }
"/tls/" = { respond = "{scheme} {tls.version} {tls.server_name}" }
"##;

fn serve() -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, CONFIG).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &file]));
    (folder, server)
}

fn send(server: &Weft, request: &str) -> Response {
    let mut client = server.client();
    client.send(format!("{request}\r\nConnection: close\r\n\r\n"));
    client.response()
}

/// Each row: the head of a request, the status, and `Location`.
#[test]
fn redirects_escape_values_for_their_position() {
    let (_folder, server) = serve();
    for (head, status, location) in [
        ("GET /a%20b?c=d HTTP/1.1\r\nHost: A.example:81", 301, "https://a.example/a%20b?c=d"),
        ("GET http://b.example?c HTTP/1.1\r\nHost: b.example", 301, "https://b.example?c"),
        ("GET /a%0d%0aX:%20y HTTP/1.1\r\nHost: a", 301, "https://a/a%0d%0aX:%20y"),
        // Neither in a request without a host nor in one with an invalid host is there a URL.
        ("GET /evil.example/ HTTP/1.0", 400, ""),
        ("GET / HTTP/1.1\r\nHost:", 400, ""),
        ("GET / HTTP/1.1\r\nHost: a/@evil.example", 400, ""),
        // Values at the beginning of a path begin no host.
        ("GET /local/?to=a/b HTTP/1.1\r\nHost: a", 301, "/a/b"),
        ("GET /local/?to=/evil.example HTTP/1.1\r\nHost: a", 301, "/evil.example"),
        ("GET /local/?to=%2F%2Fevil.example HTTP/1.1\r\nHost: a", 301, "/evil.example"),
        ("GET /local/?to=%5Cevil.example HTTP/1.1\r\nHost: a", 301, "/%5Cevil.example"),
        ("GET /local/?to=%09/evil.example HTTP/1.1\r\nHost: a", 301, "/%09/evil.example"),
        ("GET /local/?to=a%0D%0AX:+y HTTP/1.1\r\nHost: a", 301, "/a%0D%0AX%3A%20y"),
        ("GET /local/?to=a?b%23c HTTP/1.1\r\nHost: a", 301, "/a%3Fb%23c"),
        ("GET /rest//evil.example HTTP/1.1\r\nHost: a", 307, "/evil.example"),
        ("GET /rest HTTP/1.1\r\nHost: a", 307, "/"),
        ("GET //uri//evil.example HTTP/1.1\r\nHost: a", 301, "/uri//evil.example"),
        ("GET //evil.example/../uri/ HTTP/1.1\r\nHost: a", 301, "/evil.example/../uri/"),
        // Values in a host remain below the configured domain.
        (
            "GET /shop/x?shop=a HTTP/1.1\r\nHost: a:81",
            301,
            "https://a.example.org:81/shop/x?shop=a",
        ),
        (
            "GET /shop/?shop=evil.example/@%23?x HTTP/1.1\r\nHost: a",
            301,
            "https://evil.example%2F%40%23%3Fx.example.org:80/shop/?shop=evil.example/@%23?x",
        ),
        ("GET /shop/ HTTP/1.1\r\nHost: a", 400, ""),
        // Values in a query add no parameter and no fragment.
        (
            "GET /values/?q=1%262 HTTP/1.1\r\nHost: a\r\nX-H: //evil.example/&x=#y\r\nCookie: b=1; c=2&d=3",
            301,
            "/?q=1%262&h=//evil.example/%26x%3D%23y&c=2%26d%3D3#",
        ),
        (
            "GET /values/ HTTP/1.1\r\nHost: a\r\nX-F: \"<\u{e9}>\t",
            301,
            "/?q=&h=&c=#%22%3C%C3%A9%3E",
        ),
    ] {
        let response = send(&server, head);
        let found = (response.status, response.header("location").unwrap_or_default());
        assert_eq!(found, (status, location), "{head}");
        assert_eq!(response.header("x"), None, "{head}");
    }
    let long = "a".repeat(7000);
    let head = format!("GET /values/?q={long} HTTP/1.1\r\nHost: a\r\nX-H: ");
    assert_eq!(send(&server, &format!("{head}{}", &long[..6000])).status, 301);
    // Percent-encoding makes a value longer.
    assert_eq!(send(&server, &format!("{head}{}", "#".repeat(6000))).status, 414);
    server.stop();
}

#[test]
fn texts_describe_the_request() {
    let (_folder, server) = serve();
    for (head, expected) in [
        (
            "PUT /text/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nX-Forwarded-For: 192.0.2.1\r\n\
             X-Forwarded-Proto: https\r\nX-H: <b>%41",
            "PUT 192.0.2.1: https <b>%41 {host}\n",
        ),
        (
            "GET /text/ HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.66, [2001:db8::1]:7",
            "GET 2001:db8::1:7 http  {host}\n",
        ),
        ("GET /tls/ HTTP/1.1\r\nHost: a", "http  "),
    ] {
        let response = send(&server, head);
        assert_eq!(String::from_utf8(response.body.clone()).unwrap(), expected, "{head}");
        let media_type = response.header("content-type").unwrap();
        assert!(media_type.starts_with("text/plain"), "{media_type}");
    }
    let port = server.tls_address().port();
    let output = run_successfully(curl().args([
        "--insecure",
        "--resolve",
        &format!("name.example:{port}:127.0.0.1"),
        &format!("https://name.example:{port}/tls/"),
    ]));
    assert_eq!(output.stdout, "https TLSv1.3 name.example");
    server.stop();
}

/// Each row: a host, a target, the status, and `Location` or the body.
#[test]
fn hosts_with_a_pattern_have_its_groups() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    let config = r#"
listen = "127.0.0.1:0"
log.access = "none"
[hosts.'~ ^www\.(.+)$']
"/" = "<< https://{host.1}{uri}"
"/text" = { respond = "{host.1}\n" }
[hosts.'~ ^(?<user>[a-z]+)\.(users|people)\.example\.org$']
response_headers = { X-User = "{host.user}" }
"/" = "<< https://example.org/{host.2}/{host.user}{path}"
'~ ^/(\d)$' = { respond = "{re.1} {host.user} {host.2}" }
"/inner" = { rewrite = "/7" }
"#;
    fs::write(&file, config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &file]));
    for (host, target, status, expected) in [
        ("www.A.example:81", "/b?c", 301, "https://a.example/b?c"),
        ("www.a%2Fb", "/text", 200, "a%2fb\n"),
        ("alice.users.example.org", "/a%20b", 301, "https://example.org/users/alice/a%20b"),
        ("bob.people.example.org", "/7", 200, "7 bob people"),
        ("bob.people.example.org", "/inner", 200, "7 bob people"),
        ("1.people.example.org", "/7", 404, "404 Not Found\n"),
    ] {
        let response = send(&server, &format!("GET {target} HTTP/1.1\r\nHost: {host}"));
        let body = String::from_utf8_lossy(&response.body).into_owned();
        let found = response.header("location").unwrap_or(&body);
        assert_eq!((response.status, found), (status, expected), "{host}{target}");
        let user = host.split_once(".users").or_else(|| host.split_once(".people"));
        let user = user.map(|(user, _)| user).filter(|_| status != 404);
        assert_eq!(response.header("x-user"), user, "{host}");
    }
}

#[test]
fn response_fields_have_the_upstream() {
    let upstream = raw_upstream(|_, mut stream| {
        while read_head(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    let config = format!(
        "listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n[hosts.\"*\"]\n\
         response_headers = {{ X-Served = \"{{upstream}}\", X-Path = \"{{path}} by {{upstream}}!\" }}\n\
         \"/\" = {{ respond = \"\" }}\n\"/app\" = \">> http://{upstream}/\"\n"
    );
    fs::write(&file, config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &file]));
    let (address, path) = (upstream.to_string(), format!("/app/a by {upstream}!"));
    for (target, served, path) in
        [("/app/a", Some(&*address), &*path), ("/b", None, "/b by !"), ("/app%00", None, "")]
    {
        let response = send(&server, &format!("GET {target} HTTP/1.1\r\nHost: a"));
        assert_eq!(response.header("x-served"), served, "{target}");
        assert_eq!(response.header("x-path").unwrap_or_default(), path, "{target}");
    }
}
