//! Routes by exact path, pattern and method.

use tempfile::TempDir;

use crate::common::{Weft, weft};
use crate::config::folder_with;

pub(crate) fn serve(routes: &str) -> (TempDir, Weft) {
    let config =
        format!("listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n[hosts.\"*\"]\n{routes}");
    let folder = folder_with(&[
        ("weft.toml", &*config),
        ("site/index.html", "index"),
        ("site/app/a.txt", "a"),
        ("site/about.html", "about"),
        ("site/docs/index.html", "docs"),
        ("site/both.html", "both.html"),
        ("site/both/index.html", "both/index"),
        ("site/empty/file", ""),
        ("site/.hidden", "hidden"),
        ("site/item-1.txt", "one"),
    ]);
    let server = Weft::start(weft(["--config"]).arg(folder.path().join("weft.toml")));
    (folder, server)
}

/// Sends `METHOD TARGET`, and returns the status, and the body or `Location`.
fn send(server: &Weft, request: &str) -> String {
    let mut client = server.client();
    client.send(format!("{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    let response = client.response();
    let body = String::from_utf8_lossy(&response.body).into_owned();
    format!("{} {}", response.status, response.header("location").unwrap_or(body.trim_end()))
}

/// Asserts the outcome of each request; `400` stands for all with this status.
pub(crate) fn assert_outcomes(server: &Weft, rows: &[(&str, &str)]) {
    for (request, expected) in rows {
        let found = send(server, request);
        match *expected {
            "400" => assert!(found.starts_with("400 "), "{request}: {found}"),
            expected => assert_eq!(found, expected, "{request}"),
        }
    }
}

#[test]
fn exact_paths_precede_patterns_and_patterns_precede_prefixes() {
    let (_folder, server) = serve(
        r#"
"/" = { respond = "/" }
"/a" = { respond = "/a" }
"/a/long/prefix" = { respond = "/a/long/prefix" }
"~ ^/a/.*x" = { respond = "first pattern" }
"~ x$" = { respond = "second pattern" }
"= /a/x" = { respond = "exact" }
"= /dir/" = { respond = "exact dir" }
"= /días" = { respond = "exact días" }
"#,
    );
    assert_outcomes(
        &server,
        &[
            ("GET /", "200 /"),
            ("GET /a", "200 /a"),
            ("GET /a/", "200 /a"),
            ("GET /a/x", "200 exact"),
            ("GET /a/x?y", "200 exact"),
            ("GET /a/%78", "200 exact"),
            ("GET //a/./b/../x", "200 exact"),
            ("GET /a/x/", "200 first pattern"),
            ("GET /a/long/prefix", "200 first pattern"),
            ("GET /a/long/prefi", "200 /a"),
            ("GET /x", "200 second pattern"),
            ("GET /%78", "200 second pattern"),
            ("GET /x?y", "200 second pattern"),
            ("GET /?x", "200 /"),
            ("GET /a/%0Ax", "200 first pattern"),
            ("GET /a/%FFx", "200 first pattern"),
            ("GET /dir", "200 /"),
            ("GET /dir/", "200 exact dir"),
            ("GET /d%C3%ADas", "200 exact días"),
        ],
    );
    server.stop();
}

/// A path that belongs to another route in the reading of some server is refused, whatever kind the
/// routes are of.
#[test]
fn no_spelling_of_a_path_leads_past_a_protected_route() {
    let (_folder, server) = serve(
        r#"
"/" = { respond = "/" }
"= /exact" = { respond = "denied", status = 403 }
"~ ^/[a-z]+/admin/" = { respond = "denied", status = 403 }
"~ ^/files/[^/]+/[^/]+$" = { respond = "denied", status = 403 }
"~ ^/end/$" = { respond = "denied", status = 403 }
"#,
    );
    assert_outcomes(
        &server,
        &[
            ("GET /exact", "403 denied"),
            ("GET /%65xact", "403 denied"),
            ("GET /exact%2F", "400"),
            ("GET /exact;x", "400"),
            ("GET /exact%3Bx", "400"),
            ("GET /;x/exact", "400"),
            ("GET /exact\\", "400"),
            ("GET /exact%00", "400"),
            ("GET /exact%20", "200 /"),
            ("GET /a/admin/", "403 denied"),
            ("GET /a/admin/%FF", "403 denied"),
            ("GET /a/admin/%0A", "403 denied"),
            ("GET /a%2Fadmin/", "400"),
            ("GET /a\\admin/", "400"),
            ("GET /a/admin%2Fx", "400"),
            ("GET /a/admin;x/y", "400"),
            ("GET /a/..%2Fadmin/", "400"),
            ("GET /a/b%2F..%2Fadmin/", "400"),
            ("GET /a/admin/b%2Fc;d", "403 denied"),
            // A reading that is neither of the extreme ones.
            ("GET /files/a/b", "403 denied"),
            ("GET /files/a", "200 /"),
            ("GET /files/a/b/c", "200 /"),
            ("GET /files/a%2Fb\\c", "400"),
            ("GET /end%2F", "400"),
            ("GET /end%2F%2F", "400"),
            ("GET /x%2Fy/z;v=1", "200 /"),
        ],
    );
    // As long as the readings of a path are too many to be tried, it is refused.
    let long = "a".repeat(1300);
    assert!(send(&server, &format!("GET /{long}%2F")).starts_with("200 "));
    assert!(send(&server, &format!("GET /{long}%2F;\\%5C%3B")).starts_with("400 "));
    server.stop();
}

/// A group keeps the encoding of the path: what is one segment stays one.
#[test]
fn groups_of_a_pattern_keep_their_encoding() {
    let (_folder, server) = serve(
        r##"
"~ ^/user/(?<name>[^/]+)/(?<rest>.*)$" = "<< https://{re.name}.example.org/{re.rest}?n={re.name}&{query}"
"~ ^/text/(.*)-(.*)$" = { respond = "{re.1}|{re.2}" }
"~ ^/local/(.*)$" = "<< /{re.1}#{re.1}"
"~ ^/optional(/a)?(/b)?$" = { respond = "{re.1}|{re.2}" }
"##,
    );
    assert_outcomes(
        &server,
        &[
            ("GET /user/bob/a/b?c=d", "301 https://bob.example.org/a/b?n=bob&c=d"),
            ("GET /%75ser/%62ob/a%2Fb", "301 https://bob.example.org/a%2Fb?n=bob"),
            ("GET /user/b%2Fx/y", "301 https://b%2Fx.example.org/y?n=b/x"),
            ("GET /user/a%26b%0d/%0d%0aX:", "301 https://a%26b%0D.example.org/%0d%0aX:?n=a%26b%0D"),
            ("GET /text/d%C3%ADas-%2F", "200 días|/"),
            ("GET /local//evil.example", "301 /evil.example#evil.example"),
            ("GET /local/%2Fevil.example", "301 /%2Fevil.example#/evil.example"),
            ("GET /local/\\evil.example", "301 /%5Cevil.example#%5Cevil.example"),
            ("GET /optional", "200 |"),
            ("GET /optional/b", "200 |/b"),
        ],
    );
    server.stop();
}

#[test]
fn patterns_of_hosts_follow_names_and_precede_all_others() {
    let (_folder, server) = serve(
        r#"
"/" = { respond = "other" }
[hosts."example.org"]
"/" = { respond = "name" }
[hosts."*.example.org"]
"/" = { respond = "wildcard" }
[hosts.'~ ^[a-z]+-(dev|test)\.example\.(org|net)$']
"/" = { respond = "first pattern {host}" }
[hosts."~ net$"]
"/" = { respond = "second pattern" }
"= /x" = { respond = "exact" }
"#,
    );
    for (host, expected) in [
        ("example.org", "name"),
        ("a-dev.example.org", "wildcard"),
        ("a-dev.example.net", "first pattern a-dev.example.net"),
        ("A-TEST.Example.NET.:80", "first pattern a-test.example.net"),
        ("a1-dev.example.net", "second pattern"),
        ("net", "second pattern"),
        ("net.example", "other"),
        ("[::1]", "other"),
        (&*format!("{}.net", "a".repeat(251)), "second pattern"),
        (&*format!("{}.net", "a".repeat(252)), "other"),
    ] {
        let mut client = server.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().body, expected.as_bytes(), "{host}");
    }
    let mut client = server.client();
    client.send("GET /x HTTP/1.1\r\nHost: a.net\r\n\r\n");
    assert_eq!(client.response().body, b"exact");
    server.stop();
}

#[test]
fn path_decides_before_method() {
    let (_folder, server) = serve(
        r#"
"/" = { respond = "/" }
"GET /notes" = { respond = "read" }
"PUT, PATCH /notes" = { respond = "write" }
"POST = /notes" = { respond = "create" }
"DELETE ~ ^/notes/[0-9]+$" = { respond = "delete" }
"GET /any" = { respond = "read any" }
"/any" = { respond = "any" }
"#,
    );
    assert_outcomes(
        &server,
        &[
            ("GET /notes/a", "200 read"),
            ("PATCH /notes/a", "200 write"),
            ("POST /notes", "200 create"),
            ("DELETE /notes/1", "200 delete"),
            ("GET /any", "200 read any"),
            ("BREW /any", "200 any"),
            ("BREW /", "200 /"),
        ],
    );
    // No method leads to the route of a shorter prefix.
    for (request, allow) in [
        ("POST /notes/a", "GET, HEAD, PUT, PATCH"),
        ("GET /notes", "POST"),
        ("GET /notes/1", "DELETE"),
        ("OPTIONS /notes/1", "DELETE"),
    ] {
        let mut client = server.client();
        client.send(format!("{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let response = client.response();
        assert_eq!((response.status, response.header("allow")), (405, Some(allow)), "{request}");
    }
    let mut client = server.client();
    client.send("HEAD /notes/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.head()[0], "HTTP/1.1 200 OK");
    server.stop();
}

#[test]
fn targets_get_the_whole_path_of_exact_paths_and_patterns() {
    let (_other_folder, upstream) = serve(r#""/" = { respond = "{uri}" }"#);
    let origin = upstream.address();
    let (_folder, server) = serve(&format!(
        r#"
"/" = {{ respond = "/" }}
"= /" = "-> site"
'~ \.txt$' = "-> site"
"= /hook" = ">> http://{origin}/other"
"= /hook/" = ">> http://{origin}/other/"
"= /same" = ">> http://{origin}/"
"~ ^/api/" = ">> http://{origin}/v1"
"= /old" = "<< /new"
"= /dropped" = "<< https://a.example/new?"
"= /replaced" = "<< /new?a=b#c"
"~ ^/gone/" = "<< /new"
"~ ^/rest/" = {{ respond = "{{path}} {{rest}}" }}
"#
    ));
    assert_outcomes(
        &server,
        &[
            ("GET /", "200 index"),
            ("GET /app/a.txt", "200 a"),
            ("GET /hook", "200 /other"),
            ("GET /hook?a", "200 /other?a"),
            ("GET /hook/", "200 /other/"),
            ("GET /same?a", "200 /same?a"),
            ("GET /api/x%2Fy?z", "200 /v1/api/x%2Fy?z"),
            ("GET /old?a", "301 /new?a"),
            ("GET /dropped?a", "301 https://a.example/new"),
            ("GET /replaced?x", "301 /new?a=b#c"),
            ("GET /gone/x/y?a", "301 /new?a"),
            ("GET /rest/x", "200 /rest/x /rest/x"),
        ],
    );
    server.stop();
    upstream.stop();
}
