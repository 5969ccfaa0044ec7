//! Routes with conditions.

use std::fs;

use crate::common::external::curl;
use crate::common::{Client, Program, Weft, has_tool, until, weft};
use crate::config::{folder_with, run_in};
use crate::matching::serve;

const ROUTES: &str = r#"
"/" = { respond = "stable" }
"/ @canary" = { respond = "canary", when = { cookie = { canary = "1" } } }
"/ @query" = { respond = "query", when = { query = { v = "~ ^2" }, header = { X-Beta = true } } }
"/ @any" = { respond = "any", when = [{ header = { X-A = "1" } }, { value = { "{method} {path}" = "PUT /put" } }] }
"/ @last" = { respond = "last", when = { header = { X-A = ["1", "2"] } } }
"POST /form" = { respond = "form" }
"/form @x" = { respond = "form of x", when = { header = { X-A = "2" } } }
"/only @x" = { respond = "only x", when = { header = { X-A = "2" } } }
"GET = /only/exact @x" = { respond = "exact x", when = { header = { X-A = "3" } } }
'~ ^/only/(.*)t$ @x' = { respond = "pattern {re.1}", when = { header = { X-A = "4" } } }
"/far @x" = { respond = "far", when = { client = "192.0.2.0/24" } }
"/near @x" = { respond = "near", when = { client = ["127.0.0.0/8", "!= 127.0.0.2"] } }
"#;

/// Method, path, fields, and the response.
const REQUESTS: &[(&str, &str, &[&str], &str)] = &[
    ("GET", "/", &[], "200 stable"),
    ("GET", "/", &["Cookie: canary=1"], "200 canary"),
    ("GET", "/", &["Cookie: a=b; canary=1; c=d"], "200 canary"),
    ("GET", "/", &["Cookie: canary=11"], "200 stable"),
    ("GET", "/x/y", &["Cookie: canary=1", "X-A: 1"], "200 canary"),
    ("GET", "/?v=2.1", &["X-Beta;"], "200 query"),
    ("GET", "/?v=2.1", &[], "200 stable"),
    ("GET", "/?v=1", &["X-Beta;"], "200 stable"),
    ("GET", "/?v=1", &["X-Beta;", "X-A: 1"], "200 any"),
    ("PUT", "/put", &[], "200 any"),
    ("POST", "/put", &[], "200 stable"),
    ("GET", "/", &["X-A: 2"], "200 last"),
    // The route without conditions decides about methods.
    ("GET", "/form", &["X-A: 2"], "200 form of x"),
    ("POST", "/form", &["X-A: 3"], "200 form"),
    ("GET", "/form", &["X-A: 3"], "405 405 Method Not Allowed"),
    // A path with conditions only: the next shorter path, with its conditions.
    ("GET", "/only", &["X-A: 2"], "200 only x"),
    ("GET", "/only", &["X-A: 3"], "200 stable"),
    ("GET", "/only", &["X-A: 3", "Cookie: canary=1"], "200 canary"),
    ("GET", "/only/exact", &["X-A: 3"], "200 exact x"),
    ("PUT", "/only/exact", &["X-A: 3"], "200 stable"),
    ("GET", "/only/exact", &["X-A: 4"], "200 pattern exac"),
    ("GET", "/only/exact", &["X-A: 2"], "200 only x"),
    ("GET", "/only/exact", &[], "200 stable"),
    ("GET", "/far", &[], "200 stable"),
    ("GET", "/near/x", &[], "200 near"),
];

#[test]
fn conditions_choose_routes() {
    let (_folder, server) = serve(ROUTES);
    for (method, path, fields, expected) in REQUESTS {
        let mut client = server.client();
        // As in curl, a semicolon at the end stands for an empty value.
        let line = |field: &&str| match field.strip_suffix(';') {
            Some(name) => format!("{name}:\r\n"),
            None => format!("{field}\r\n"),
        };
        let fields: String = fields.iter().map(line).collect();
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let response = client.response();
        let body = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(
            format!("{} {}", response.status, body.trim_end()),
            *expected,
            "{method} {path} {fields}"
        );
    }
    server.stop();
}

#[test]
fn conditions_choose_routes_over_http2() {
    if !has_tool("curl") {
        return;
    }
    let (_folder, server) = serve(ROUTES);
    for (method, path, fields, expected) in REQUESTS {
        let mut command = curl();
        command.args([
            "--http2-prior-knowledge",
            "--request",
            method,
            "--write-out",
            "%{stderr}%{http_code}",
        ]);
        for field in *fields {
            command.args(["--header", field]);
        }
        let output = Program::start(command.arg(server.url(path))).wait_with_output();
        let found = format!("{} {}", output.stderr.trim(), output.stdout.trim_end());
        assert_eq!(found, *expected, "{method} {path} {fields:?}");
    }
    server.stop();
}

/// A path that other servers read as the path of a conditional route is refused, whether or not the
/// request meets the conditions.
#[test]
fn no_spelling_of_a_path_leads_past_conditions() {
    let (_folder, server) = serve(
        r#"
"/" = { respond = "/" }
"/admin @office" = { respond = "admin", when = { header = { X-A = "1" } } }
"~ ^/x/secret @office" = { respond = "secret", when = { header = { X-A = "1" } } }
"#,
    );
    for (path, with_field, without) in [
        ("/admin", "200 admin", "200 /"),
        ("/%61dmin/x", "200 admin", "200 /"),
        ("/x/secret", "200 secret", "200 /"),
        ("/admin%2Fx", "400", "400"),
        ("/x%2Fadmin", "200 /", "200 /"),
        ("/x/..%2Fadmin", "400", "400"),
        ("/x%2Fsecret", "400", "400"),
        ("/;a/admin", "400", "400"),
    ] {
        for (field, expected) in [("X-A: 1\r\n", with_field), ("", without)] {
            let mut client = server.client();
            client.send(format!(
                "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{field}\r\n"
            ));
            let response = client.response();
            let found = format!("{} {}", response.status, String::from_utf8_lossy(&response.body));
            let is_expected = found == expected || expected == "400" && found.starts_with("400 ");
            assert!(is_expected, "{path} {field}: {found}");
        }
    }
    server.stop();
}

/// A condition about a name with too many values cannot be decided. Such a request is refused, so
/// that it gets past neither a condition nor its opposite.
#[test]
fn too_many_values_of_a_name_are_refused() {
    let (_folder, server) = serve(
        r#"
"/" = { respond = "open" }
"/ @bad" = { respond = "blocked", status = 403, when = [{ header = { X-Bad = "~ evil" } }, { cookie = { bad = "~ evil" } }, { query = { bad = "~ evil" } }] }
"/not" = { respond = "open" }
"/not @good" = { respond = "good", when = { header = { X-Good = "!~ evil" }, cookie = { good = "!~ evil" }, query = { good = "!~ evil" } } }
"/only @x" = { respond = "x", when = { header = { X-Only = "1" } } }
"/text @long" = { respond = "blocked", status = 403, when = { value = { "{query.a}{query.a}{query.a}" = "~ evil" } } }
"#,
    );
    let request = |kind: &str, count: usize, value: &str| {
        let list = |pair: String, separator: &str| vec![pair; count].join(separator);
        let (path, name) = match kind.split_once(' ') {
            Some((path, kind)) => (path, kind),
            None => ("/", kind),
        };
        let (query, fields) = match name {
            "header" => (String::new(), format!("X-Bad: {value}\r\n").repeat(count)),
            "good" => (String::new(), format!("X-Good: {value}\r\n").repeat(count)),
            "only" => (String::new(), format!("X-Only: {value}\r\n").repeat(count)),
            "cookie" => {
                let cookies = ["bad", "good"].map(|name| list(format!("{name}={value}"), "; "));
                (String::new(), format!("Cookie: {}\r\n", cookies.join("; ")))
            }
            "query" => {
                let pairs = ["bad", "good"].map(|name| list(format!("{name}={value}"), "&"));
                (pairs.join("&"), String::new())
            }
            "text" => (format!("a={}{value}", "x".repeat(count * 340)), String::new()),
            other => panic!("{other}"),
        };
        format!("GET {path}?{query} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n")
    };
    for (kind, value, with_16) in [
        ("header", "evil", "403"),
        ("header", "a", "200"),
        ("cookie", "evil", "403"),
        ("cookie", "a", "200"),
        ("query", "evil", "403"),
        ("query", "a", "200"),
        ("/not good", "a", "200"),
        ("/not cookie", "a", "200"),
        ("/not query", "a", "200"),
        // The conditions of the longer path are undecided, so that no shorter one applies.
        ("/only only", "0", "200"),
        ("/text text", "evil", "403"),
    ] {
        for (count, expected) in [(16, with_16), (17, "400")] {
            let mut client = server.client();
            client.send(request(kind, count, value));
            let response = client.response();
            assert_eq!(response.status.to_string(), expected, "{count} of {kind}: {value}");
        }
    }
    server.stop();
}

/// Each row: routes, and the warning.
#[test]
fn check_warns_of_conditions_that_are_probably_not_intended() {
    for (routes, expected) in [
        (
            r#"
"/" = { respond = "" }
"/ @a" = { respond = "", when = { query = { a = "1" } } }
"/ @b" = { respond = "", when = { query = { a = "1", b = "1" } } }
"#,
            ":4:10: warning: no request gets the route `/ @b`: each that meets its conditions also meets \
             the conditions of `/ @a`, which comes before it",
        ),
        (
            r#"
"/" = { respond = "" }
"/ @b" = { respond = "", when = { query = { a = "1", b = "1" } } }
"/ @a" = { respond = "", when = { query = { a = "1" } } }
"#,
            "",
        ),
        // A pattern precedes a prefix, also if the prefix restricts its clients.
        (
            r#"
"/admin" = { respond = "", deny = "192.0.2.1" }
'~ \.(html|txt)$' = "-> ."
"#,
            ":3:21: warning: `~ \\.(html|txt)$` takes precedence over `/admin/`, which restricts its \
             clients: all clients get /admin/x.html",
        ),
        (
            r#"
"/admin" = { respond = "", deny = "192.0.2.1" }
'~ ^/public/.*\.(html|txt)$' = "-> ."
"#,
            "",
        ),
        (
            r#"
"/admin" = { respond = "" }
'~ \.(html|txt)$' = "-> ."
"#,
            "",
        ),
        (
            r#"
"/" = { respond = "" }
"/admin @a" = { respond = "", deny = "192.0.2.1", when = { query = { a = "1" } } }
"#,
            ":3:15: warning: `/admin/ @a` restricts its clients, but requests that do not meet its \
             conditions get `/`, which does not",
        ),
        (
            r#"
"/" = { respond = "" }
"/admin" = { respond = "", deny = "192.0.2.2" }
"/admin @a" = { respond = "", deny = "192.0.2.1", when = { query = { a = "1" } } }
"#,
            "",
        ),
    ] {
        let folder = folder_with(&[("w.toml", &format!("[hosts.\"*\"]{routes}"))]);
        let output = run_in(folder.path(), &["check", "w.toml"]);
        let expected = match expected {
            "" => String::new(),
            warning => format!("weft: w.toml{warning}\n"),
        };
        assert_eq!(output.stderr, expected, "{routes}");
    }
}

/// Each row: the number of routes with conditions for one path, the patterns of each route, and the
/// error.
#[test]
fn conditions_of_a_path_are_bounded() {
    for (routes, patterns, expected) in [
        (256, 0, None),
        (257, 0, Some("the path / has 257 routes with conditions; 256 are permitted")),
        (32, 2, None),
        (65, 1, Some("the conditions of the path / have 65 patterns; 64 are permitted")),
    ] {
        let values = |route: usize| match patterns {
            0 => format!("\"{route}\""),
            _ => vec![format!("\"~ ^{route}\""); patterns].join(", "),
        };
        let route = |number: usize| {
            format!(
                "\"/ @r{number}\" = {{ respond = \"\", when = {{ query = {{ a = [{}] }} }} }}\n",
                values(number)
            )
        };
        let routes: String = (0..routes).map(route).collect();
        let folder = folder_with(&[("w.toml", &format!("[hosts.\"*\"]\n{routes}"))]);
        let output = run_in(folder.path(), &["check", "w.toml"]);
        match expected {
            None => assert_eq!(output.stderr, ""),
            Some(expected) => assert!(output.stderr.contains(expected), "{}", output.stderr),
        }
    }
}

/// A route with conditions has a name of its own in the log, in metrics and on the status page.
#[test]
fn routes_with_conditions_have_names() {
    let folder = folder_with(&[(
        "weft.toml",
        r#"
listen = "127.0.0.1:0"
[log]
access = "access.log"
format = "%s %{route}x"
[status]
listen = "127.0.0.1:0"
[hosts."*"]
"/" = { respond = "stable" }
"/ @canary" = { respond = "canary", when = { query = { canary = true } } }
"#,
    )]);
    let mut command = weft(["--config", "weft.toml"]);
    let server = Weft::start(command.current_dir(folder.path()));
    for path in ["/", "/?canary", "/x?canary=1"] {
        assert_eq!(server.client().get(path).status, 200);
    }
    let log = || fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
    until("the log has all lines", || log().lines().count() == 3);
    let log = log();
    let mut lines: Vec<_> = log.lines().collect();
    lines.sort();
    assert_eq!(lines, ["200 /", "200 / @canary", "200 / @canary"]);
    let mut status = Client::tcp(server.status_address());
    status.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let metrics = String::from_utf8(status.response().body).unwrap();
    for (route, count) in [("/", 1), ("/ @canary", 2)] {
        let line = format!("route=\"{route}\",code=\"2xx\"}} {count}");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    server.stop();
}
