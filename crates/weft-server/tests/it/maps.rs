//! Maps, whose values are placeholders.

use std::fs;

use crate::common::external::curl;
use crate::common::{Program, Signal, Weft, has_tool, until, weft};
use crate::config::folder_with;

const CONFIG: &str = r#"
listen = "127.0.0.1:0"
trusted_proxies = "127.0.0.1"
[log]
access = "access.log"
format = "%r {map.backend} {map.place}"

[maps.backend]
input = "{host}"
values = { "a.example" = "one", "~ ^(.)\\.example$" = "of {re.1}", "x" = "two" }
default = "three"

[maps.place]
client = { "192.0.2.0/24" = "office" }

[maps.new]
input = "{path}"
values = { "/old" = "/new/path?a=b", "/away" = "https://other.example/x", "~ ^/by/(.*)$" = "/to/{re.1}" }

[maps.open]
input = "{path}"
values = { "~ ^/open/a(.*)$" = "{re.1}", "~ ^/open/b(.*)$" = "https://a.example{re.1}", "~ ^/open/c(.*)$" = "https://a.example/{re.1}", "~ ^/open/d(.*)$" = "/{re.1}", "~ ^/host/(.*)$" = "{re.1}", "/host" = "b.example" }

[maps.tier]
input = "{map.place}:{query.tier}"
values = { "office:" = "staff", ":gold" = "gold" }

[hosts."*"]
response_headers = { X-Tier = "{map.tier}" }
"/" = { respond = "{map.backend} {map.place}" }
"/ @one" = { respond = "the first", when = { value = { "{map.backend}" = ["one", "two"] } } }
"/page/" = { rewrite = "/inner/{map.backend}{rest}" }
"/inner/" = { respond = "{path}" }
"/rate" = { respond = "ok", rate = "1/h", rate_key = "{map.tier}" }
"= /old" = "<< {map.new}"
"= /away" = "<< {map.new}"
"/by/" = "<< {map.new}"
"/open/" = "<< {map.open}"
"/host/" = "<< https://{map.open}/"
"#;

const REFUSED: &str = "400 Bad Request: the request has no value for the host of the redirect\n";

/// Host, path, `X-Forwarded-For`; then the status, `Location` or the body, and `X-Tier`.
const REQUESTS: &[([&str; 3], [&str; 3])] = &[
    (["z.org", "/", "192.0.2.1"], ["200", "three office", "staff"]),
    (["z.org", "/", "198.51.100.1"], ["200", "three ", ""]),
    (["b.example", "/?tier=gold", "198.51.100.1"], ["200", "of b ", "gold"]),
    (["a.example", "/", "198.51.100.1"], ["200", "the first", ""]),
    (["x", "/any", "198.51.100.1"], ["200", "the first", ""]),
    (["z.org", "/page/x", "198.51.100.1"], ["200", "/inner/three/x", ""]),
    (["z.org", "/old", "198.51.100.1"], ["301", "/new/path?a=b", ""]),
    (["z.org", "/away", "198.51.100.1"], ["301", "https://other.example/x", ""]),
    (["z.org", "/by/a%3Fb", "198.51.100.1"], ["301", "/to/a%3Fb", ""]),
    // No part of a request is the host of a redirect.
    (["z.org", "/open/a/x", "198.51.100.1"], ["400", REFUSED, ""]),
    (["z.org", "/open/ahttps://evil.example/", "198.51.100.1"], ["400", REFUSED, ""]),
    (["z.org", "/open/b.evil.example", "198.51.100.1"], ["400", REFUSED, ""]),
    (["z.org", "/open/c%2Fx@y", "198.51.100.1"], ["301", "https://a.example//x%40y", ""]),
    (["z.org", "/open/d%2Fevil.example", "198.51.100.1"], ["301", "/evil.example", ""]),
    (["z.org", "/open/none", "198.51.100.1"], ["404", "404 Not Found\n", ""]),
    (["z.org", "/host/evil.example", "198.51.100.1"], ["400", REFUSED, ""]),
    (["z.org", "/host", "198.51.100.1"], ["301", "https://b.example/", ""]),
];

fn start(config: &str) -> (tempfile::TempDir, Weft) {
    let folder = folder_with(&[("weft.toml", config)]);
    let server = Weft::start(weft(["--config"]).arg(folder.path().join("weft.toml")));
    (folder, server)
}

#[test]
fn values_of_maps_are_placeholders() {
    let (folder, server) = start(CONFIG);
    for ([host, path, client], expected) in REQUESTS {
        let mut connection = server.client();
        connection.send(format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: {client}\r\n\r\n"
        ));
        let response = connection.response();
        let body = String::from_utf8_lossy(&response.body).into_owned();
        let text = response.header("location").unwrap_or(&body);
        let tier = response.header("x-tier").unwrap_or_default();
        assert_eq!([&response.status.to_string(), text, tier], *expected, "{host} {path} {client}");
    }
    let log = || fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
    until("the log has all lines", || log().lines().count() == REQUESTS.len());
    for line in [
        "GET / HTTP/1.1 three office",
        "GET / HTTP/1.1 three -",
        "GET /?tier=gold HTTP/1.1 of b -",
        "GET / HTTP/1.1 one -",
    ] {
        assert!(log().lines().any(|found| found == line), "{line}\n{}", log());
    }
    server.stop();
}

#[test]
fn values_of_maps_are_placeholders_over_http2() {
    if !has_tool("curl") {
        return;
    }
    let (_folder, server) = start(CONFIG);
    for ([host, path, client], [status, text, tier]) in REQUESTS {
        let mut command = curl();
        command.args(["--http2-prior-knowledge", "--header", &format!("Host: {host}")]);
        command.args(["--header", &format!("X-Forwarded-For: {client}")]);
        command.args(["--write-out", "%{stderr}%{http_code} %header{location}%header{x-tier}"]);
        let output = Program::start(command.arg(server.url(path))).wait_with_output();
        let shown = match *status {
            "301" => text.to_string(),
            _ => {
                assert_eq!(output.stdout, *text, "{host} {path}");
                tier.to_string()
            }
        };
        assert_eq!(output.stderr, format!("{status} {shown}"), "{host} {path} {client}");
    }
    server.stop();
}

/// Clients share a rate by the value of a map.
#[test]
fn values_of_maps_are_keys_of_rates() {
    let (_folder, server) = start(CONFIG);
    for (path, expected) in
        [("/rate?tier=gold", 200), ("/rate?tier=gold", 429), ("/rate?tier=gold&x", 429)]
    {
        let mut connection = server.client();
        connection.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n"
        ));
        assert_eq!(connection.response().status, expected, "{path}");
    }
    server.stop();
}

/// A reload changes the values, also of routes that stay the same.
#[test]
fn a_reload_changes_maps() {
    let (folder, server) = start(CONFIG);
    let get = || {
        let mut connection = server.client();
        connection.send("GET / HTTP/1.1\r\nHost: z.org\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n");
        let response = connection.response();
        let tier = response.header("x-tier").unwrap_or_default().to_owned();
        format!("{} {tier}", String::from_utf8_lossy(&response.body))
    };
    assert_eq!(get(), "three office staff");
    let text = CONFIG.replace("three", "four").replace("\"staff\"", "\"crew\"");
    fs::write(folder.path().join("weft.toml"), text).unwrap();
    server.signal(Signal::HUP);
    until("the configuration is reloaded", || server.stderr().contains("reloaded"));
    assert_eq!(get(), "four office crew");
    server.stop();
}
