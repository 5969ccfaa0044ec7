//! Changes of a route to the fields of requests and responses.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;

use crate::common::external::fields_with_each_version;
use crate::common::{Weft, has_tool, raw_upstream, read_head, report_missing_tool, run, weft};

fn serve(config: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n{config}");
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

/// An upstream whose responses have the fields of its argument.
fn upstream(fields: &'static str) -> SocketAddr {
    raw_upstream(move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
        }
    })
}

/// An upstream whose responses are the received head, without the fields of the proxy itself.
fn echo() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let lines = head.lines().skip(1).filter(|line| line.starts_with("x-"));
            let own = lines.filter(|line| !line.starts_with("x-forwarded-"));
            let body = own.collect::<Vec<_>>().join("|");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all([head, body].concat().as_bytes()).unwrap();
        }
    })
}

#[test]
fn fields_of_responses_are_set_added_and_completed() {
    if !has_tool("curl") {
        return report_missing_tool("curl");
    }
    let upstream = upstream("X-A: up\r\nX-B: up\r\n");
    let (_folder, server) = serve(&format!(
        "[defaults]\n\
         security_headers = true\n\
         response_headers = {{ \"?X-B\" = \"defaults\", \"?X-C\" = \"defaults\", \
                               \"?X-Frame-Options\" = \"DENY\" }}\n\
         [hosts.\"*\"]\n\
         \"/up\" = {{ proxy = \"http://{upstream}/\", response_headers = {{ \"+X-A\" = \"added\" }} }}\n\
         \"/two\" = {{ respond = \"\", response_headers = [\"+X-A: 1\", \"+X-A: 2\"] }}\n\
         \"/status\" = {{ respond = \"\", status = 404, response_headers = {{ \
             X-A = {{ \"200\" = \"fine\", \"4xx 500\" = \"error\" }}, X-B = {{ \"5xx\" = \"5\" }} }} }}\n\
         \"/type\" = {{ respond = \"x\", content_type = \"text/css; charset=utf-8\", response_headers = {{ \
             X-A = {{ \"*\" = \"other\", \"text/*\" = \"text\", \"text/css image/*\" = \"css\" }}, \
             X-B = {{ \"text/html\" = \"html\" }}, X-C = {{ \"4xx text/css\" = \"missing\" }} }} }}\n\
         \"/other\" = {{ respond = \"x\", content_type = \"text/plain\", response_headers = {{ \
             X-A = {{ \"text/plain\" = \"plain\", \"*\" = \"all\", \"text/css image/*\" = \"css\" }} }} }}\n\
         \"/values\" = {{ respond = \"\", response_headers = {{ X-A = \"{{host}}{{rest}} {{{{a}}\", \
             X-B = \"{{query.b}}\", X-C = \"{{header.X-None}}\" }} }}\n\
         \"~ ^/users/(.+)$\" = {{ respond = \"\", response_headers = {{ X-A = \"{{re.1}}\" }} }}\n"
    ));
    for (target, name, expected) in [
        ("/up", "x-a", "up|added"),
        ("/up", "x-b", "up"),
        ("/up", "x-c", "defaults"),
        ("/up", "x-frame-options", "DENY"),
        ("/two", "x-a", "1|2"),
        ("/status", "x-a", "error"),
        ("/status", "x-b", ""),
        ("/status", "x-c", "defaults"),
        ("/type", "x-a", "css"),
        ("/type", "x-b", ""),
        ("/type", "x-c", ""),
        ("/other", "x-a", "all"),
        ("/values/d%C3%ADas", "x-a", "127.0.0.1/días {a}"),
        ("/values?b=c", "x-b", "c"),
        ("/values?b=%20c%0D%0AX-Evil:%20d%00%0D%0A", "x-b", "c  X-Evil: d"),
        ("/values?b=%0D%0AX-Evil:%20d", "x-evil", ""),
        ("/values", "x-c", ""),
        ("/users/alice", "x-a", "alice"),
    ] {
        assert_eq!(
            fields_with_each_version(&server.url(target), name),
            expected,
            "{target} {name}"
        );
    }
    let mut client = server.client();
    let head = format!("GET /values?b={} HTTP/1.1\r\nHost: a\r\n\r\n", "b".repeat(7_000));
    client.send(head);
    assert_eq!(client.response().status, 200);
}

/// The `Server` of an upstream is passed on, unless a route replaces or removes it.
#[test]
fn server_of_upstreams_is_passed_on_replaced_or_removed() {
    if !has_tool("curl") {
        return report_missing_tool("curl");
    }
    let upstream = upstream("Server: up/1.2.3\r\n");
    let routes = format!(
        r#"
[hosts."*"]
"/" = ">> http://{upstream}/"
"/own" = {{ proxy = "http://{upstream}/", remove_response_headers = ["Server"] }}
"/other" = {{ proxy = "http://{upstream}/", response_headers = {{ Server = "other" }} }}
"/empty" = {{ proxy = "http://{upstream}/", response_headers = {{ Server = "" }} }}
"/absent" = {{ respond = "", response_headers = {{ "?Server" = "mine" }} }}
"/text" = {{ respond = "" }}
"#
    );
    for (server_name, own) in [("weft", "weft"), ("", "")] {
        let (_folder, server) = serve(&format!("limits.server_name = \"{server_name}\"\n{routes}"));
        for (target, expected) in [
            ("/", "up/1.2.3"),
            ("/own", own),
            ("/other", "other"),
            ("/empty", own),
            ("/absent", "mine"),
            ("/text", own),
        ] {
            let found = fields_with_each_version(&server.url(target), "server");
            assert_eq!(found, expected, "{target} {server_name}");
        }
        server.stop();
    }
}

#[test]
fn cookies_get_and_lose_flags() {
    if !has_tool("curl") {
        return report_missing_tool("curl");
    }
    let upstream =
        upstream("Set-Cookie: a=1; Path=/\r\nSet-Cookie: session=2; SameSite=None; HttpOnly\r\n");
    let (_folder, server) = serve(&format!(
        r#"
[defaults]
cookie_flags = {{ "*" = "secure" }}
[hosts."*"]
"/" = ">> http://{upstream}/"
"/own" = {{ proxy = "http://{upstream}/", cookie_flags = {{ "~ ^s" = "samesite=lax nohttponly" }} }}
"/none" = {{ proxy = "http://{upstream}/", cookie_flags = {{}} }}
"/set" = {{ respond = "", response_headers = {{ Set-Cookie = "b=3" }} }}
"#
    ));
    for (target, expected) in [
        ("/", "a=1; Path=/; Secure|session=2; SameSite=None; HttpOnly; Secure"),
        ("/own", "a=1; Path=/|session=2; SameSite=Lax"),
        ("/none", "a=1; Path=/|session=2; SameSite=None; HttpOnly"),
        ("/set", "b=3"),
    ] {
        let found = fields_with_each_version(&server.url(target), "set-cookie");
        assert_eq!(found, expected, "{target}");
    }
    server.stop();
}

#[test]
fn fields_of_requests_have_placeholders() {
    let upstream = echo();
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\n\"/app\" = {{ proxy = \"http://{upstream}/\", request_headers = {{ \
         X-Path = \"{{path}} {{rest}}\", \"?X-Lang\" = \"en\", X-Of-Client = \"{{header.X-None}}\", \
         X-Query = \"{{query.q}}\" }} }}\n"
    ));
    for (target, fields, expected) in [
        ("/app/a", "", "x-path: /app/a /a|x-lang: en"),
        ("/app/a", "X-Lang: de\r\n", "x-lang: de|x-path: /app/a /a"),
        ("/app/a", "X-Of-Client: evil\r\n", "x-path: /app/a /a|x-lang: en"),
        ("/app/a", "x-path: evil\r\n", "x-path: /app/a /a|x-lang: en"),
        ("/app/?q=1%0D%0AX-Evil:2", "", "x-path: /app/ /|x-lang: en|x-query: 1  X-Evil:2"),
    ] {
        let mut client = server.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let body = String::from_utf8(client.response().body).unwrap().to_lowercase();
        assert_eq!(body, expected.to_lowercase(), "{target} {fields:?}");
    }
}

#[test]
fn added_values_of_request_fields_follow_the_values_of_the_client() {
    let upstream = echo();
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\n\"/\" = {{ proxy = \"http://{upstream}\", request_headers = {{ \
         \"+X-List\" = \"{{query.q}}\" }} }}\n"
    ));
    for (target, fields, expected) in [
        ("/?q=c", "", "x-list: c"),
        ("/?q=c", "X-List: a\r\nX-List: b\r\n", "x-list: a,b,c"),
        ("/", "X-List: a\r\n", "x-list: a"),
    ] {
        let mut client = server.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let body = String::from_utf8(client.response().body).unwrap().to_lowercase();
        assert_eq!(body, expected, "{target} {fields:?}");
    }
}

/// An application of SCGI whose responses have the received `HTTP_HOST`.
fn scgi_host() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        let mut received = Vec::new();
        let mut buffer = [0; 4_096];
        let is_end = |received: &[u8]| received.ends_with(b"\0,");
        while !is_end(&received) {
            match stream.read(&mut buffer) {
                Ok(length @ 1..) => received.extend_from_slice(&buffer[..length]),
                _ => return,
            }
        }
        let text = String::from_utf8(received).unwrap();
        let mut pairs = text.split('\0').skip_while(|name| *name != "HTTP_HOST");
        let body = format!("host={}", pairs.nth(1).unwrap());
        let head = format!("Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all([head, body].concat().as_bytes()).unwrap();
    })
}

/// `Host` of `request_headers` precedes the key `host`, over each protocol to upstreams and scripts.
#[test]
fn host_of_request_fields_reaches_upstreams_and_scripts() {
    let config = |upstream: &str, application: SocketAddr| {
        format!(
            r#"
[hosts."*"]
"/a/" = {{ proxy = "{upstream}/", host = "fixed", request_headers = {{ Host = "{{host}}:{{port}}" }} }}
"/b/" = {{ proxy = "{upstream}/", request_headers = {{ Host = "{{header.X-Host}}" }} }}
"/c/" = {{ proxy = "{upstream}/", request_headers = {{ Host = "c.internal:81" }} }}
"/d/" = {{ scgi = "{application}", request_headers = {{ Host = "d.internal" }} }}
"/e/" = {{ scgi = "{application}" }}
"#
        )
    };
    let (_upstream_folder, upstream) =
        serve("[hosts.\"*\"]\n\"/\" = { respond = \"host={host}:{port}\" }\n");
    for protocol in ["http", "h2c"] {
        let upstream = format!("{protocol}://{}", upstream.address());
        let (_folder, server) = serve(&config(&upstream, scgi_host()));
        for (target, fields, expected) in [
            ("/a/", "", "200 host=a.example:80"),
            ("/b/", "X-Host: b.internal:82\r\n", "200 host=b.internal:82"),
            ("/b/", "", "400 "),
            ("/b/", "X-Host: b/c\r\n", "400 "),
            ("/c/", "", "200 host=c.internal:81"),
            ("/d/", "", "200 host=d.internal"),
            ("/e/", "", "200 host=A.example"),
        ] {
            let mut client = server.client();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: A.example\r\n{fields}\r\n"));
            let response = client.response();
            let found = format!("{} {}", response.status, String::from_utf8_lossy(&response.body));
            assert!(found.starts_with(expected), "{protocol} {target} {fields:?}: {found}");
        }
    }
}

#[test]
fn check_refuses_changes_that_cannot_be() {
    for (options, expected) in [
        ("request_headers = { \"+Host\" = \"b\" }", "a request has one `host`"),
        ("request_headers = { X-A = { \"404\" = \"b\" } }", "a request has no status"),
        (
            "response_headers = { X-A = { \"6xx\" = \"b\" } }",
            "expected statuses such as 404 or 5xx",
        ),
        ("request_headers = { Host = \"a b\" }", "expected a host such as app.internal:8080"),
        ("remove_request_headers = \"Host\"", "the key `host` of the proxy sets it"),
        (
            "response_headers = { X-A = { \"text/css;q=1\" = \"b\" } }",
            "and media types such as text/css or image/*",
        ),
        ("response_headers = { X-A = \"{hots}\" }", "did you mean {host}?"),
        ("response_headers = { X-A = \"{re.1}\" }", "{re.1} needs a route with a pattern"),
        ("sub_filter = { a = \"{re.1}\" }", "{re.1} needs a route with a pattern"),
        ("response_headers = { X-A = \"$host\" }", "`$host`, a variable of nginx"),
        ("response_headers = { \"?Date\" = \"b\" }", "the server sets date itself"),
        ("response_headers = { X-A = \"a\\u0000\" }", "has a byte that no field can have"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weft.toml");
        let config = format!("[hosts.\"*\"]\n\"/\" = {{ respond = \"\", {options} }}\n");
        fs::write(&file, config).unwrap();
        let output = run([Path::new("check"), &file]);
        assert!(output.stderr.contains(expected), "{options}: {}", output.stderr);
    }
}
