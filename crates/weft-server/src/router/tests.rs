//! Routes and the applications that requests reach.

use super::*;
use crate::apps::Respond;
use crate::template::Template;
use weft::{StatusCode, testing};

fn router(hosts: &[(&str, &[&str])]) -> Router {
    let mut builder = RoutingBuilder::default();
    for (names, keys) in hosts {
        let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
        let app = |key: &RouteKey| {
            let text = format!("{} {key}", names[0]);
            let text = Template::parse(&text).unwrap();
            let app = Arc::new(App::Respond(Respond::new(&text, StatusCode::OK, None)));
            let conditions = None;
            Target {
                app,
                conditions,
                uses_maps: false,
                middleware: None,
                noted: None,
                rewrite: None,
                split: None,
            }
        };
        let keys: Vec<_> = keys.iter().map(|key| RouteKey::parse(key).unwrap()).collect();
        let targets = keys.iter().map(|key| (key, app(key))).collect();
        let section = HostNames { names: &names, title: names.join(" "), binding: binding(&names) };
        builder.add(section, targets, None).unwrap();
    }
    builder.build(ListenEnds::default()).router(None, None, &OpenLogs::default(), &Weak::new())
}

fn binding(names: &[String]) -> HostBinding {
    match names[0].strip_prefix(':') {
        Some(port) => HostBinding::Ports(vec![port.parse().unwrap()]),
        None => HostBinding::Everywhere,
    }
}

fn response_text(router: &Router, head: &str) -> String {
    let app = async |request: Request| router.handle(request).await;
    let response = testing::call(app, testing::request(format!("{head}\r\n\r\n")));
    String::from_utf8(response.body.to_vec()).unwrap()
}

const NOT_FOUND: &str = "404 Not Found\n";

#[test]
fn longest_prefix_matches() {
    let router = router(&[("*", &["/", "/app", "/app/in/deep", "/días", "/a/b"])]);
    for (path, expected) in [
        ("/", "* /"),
        ("/x", "* /"),
        ("/app", "* /app/"),
        ("/app/", "* /app/"),
        ("/app/x/y", "* /app/"),
        ("/apple", "* /"),
        ("/ap", "* /"),
        ("/APP", "* /"),
        ("/%61pp/x", "* /app/"),
        ("/app/in", "* /app/"),
        ("/app/in/deeper", "* /app/"),
        ("/app/%69n/deep/x", "* /app/in/deep/"),
        ("/app/in/deep", "* /app/in/deep/"),
        ("/d%C3%ADas/x", "* /días/"),
        ("/d%c3%adas", "* /días/"),
        ("/%64%ff", "* /"),
        ("/a", "* /"),
        ("/a/b?/app", "* /a/b/"),
    ] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a");
        assert_eq!(response_text(&router, &head), expected, "{path}");
    }
}

/// Each row: a path, and its route, or `400` for a path that has another route in a reading of
/// other servers.
#[test]
fn rejects_paths_with_several_routes() {
    const AMBIGUOUS: &str = "another route";
    const PARENT: &str = "parent segment";
    const NUL: &str = "%00";
    let router = router(&[("*", &["/", "/admin", "/app", "/app/admin"])]);
    for (path, expected) in [
        // One route in all readings.
        ("/@scope%2Fname", "* /"),
        ("/x%2Fadmin/y", "* /"),
        ("/app/a%2Fadmin%5C;v=1", "* /app/"),
        ("/app;", AMBIGUOUS),
        ("/admin%2f%2fx/y", AMBIGUOUS),
        ("/x;admin/y;/z", "* /"),
        ("/admin%252Fx", "* /"),
        ("/%252e%252e%252fadmin", "* /"),
        ("/admin/x%2fy;z\\a", "* /admin/"),
        // Windows and case-insensitive upstreams are not considered.
        ("/admin./x", "* /"),
        ("/admin%20/x", "* /"),
        ("/ADMIN%2Fx", "* /"),
        ("/admin%c0%afx", "* /"),
        ("/%ffadmin/x", "* /"),
        // An encoded slash.
        ("/admin%2Fsecret", AMBIGUOUS),
        ("/admin%2F", AMBIGUOUS),
        ("/%2fadmin/secret", AMBIGUOUS),
        ("/.%2fadmin/secret", AMBIGUOUS),
        ("/%61dmin%2f", AMBIGUOUS),
        ("/app/%2fadmin", AMBIGUOUS),
        ("/app%2Fadmin/x", AMBIGUOUS),
        ("/app/admin%2Fx", AMBIGUOUS),
        // A backslash.
        ("/admin\\secret", AMBIGUOUS),
        ("/\\admin/secret", AMBIGUOUS),
        ("/admin%5csecret", AMBIGUOUS),
        ("/app/%5Cadmin", AMBIGUOUS),
        // A parameter.
        ("/admin;/secret", AMBIGUOUS),
        ("/admin;v=1", AMBIGUOUS),
        ("/admin%3Bv=1/x", AMBIGUOUS),
        ("/;x/admin/y", AMBIGUOUS),
        ("/app;a%2Fb/admin", AMBIGUOUS),
        ("/app/x;%2Fy\\..;/admin", PARENT),
        // A hidden parent segment, in all routes.
        ("/x/..%2fadmin/secret", PARENT),
        ("/x/..%5Cadmin", PARENT),
        ("/x/..;/admin", PARENT),
        ("/x%2F..%2Fy", PARENT),
        ("/app/a%2f%2e%2e/b", PARENT),
        ("/app\\..\\admin", PARENT),
        ("/admin%00", NUL),
        ("/app/x%00/y", NUL),
    ] {
        let text = response_text(&router, &format!("GET {path} HTTP/1.1\r\nHost: a"));
        match expected {
            AMBIGUOUS | PARENT | NUL => {
                let is_rejected = text.starts_with("400 ") && text.contains(expected);
                assert!(is_rejected, "{path}: {text}");
            }
            _ => assert_eq!(text, expected, "{path}"),
        }
    }
}

#[test]
fn options_of_the_server_reach_no_application() {
    let router = router(&[("a", &["/"])]);
    for host in ["a", "b"] {
        let app = async |request: Request| router.handle(request).await;
        let request = testing::request(format!("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let response = testing::call(app, request);
        assert_eq!((response.status.as_u16(), response.body.len()), (204, 0), "{host}");
        assert!(response.header("allow").is_some_and(|it| it.contains("OPTIONS")), "{host}");
    }
}

#[test]
fn prefix_length_counts_encoded_bytes() {
    let routes = router(&[("*", &["/", "/app", "/a b/c"])]).table.clone();
    for (path, bytes) in [
        ("/x", 0),
        ("/app", 4),
        ("/app/x", 4),
        ("/%61%70p/x", 8),
        ("/a%20b/c", 8),
        ("/a%20b/%63/d", 10),
    ] {
        let request = testing::request(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let found = routes.hosts_of(&request).find(&request).ok();
        assert_eq!(found.map(|found| found.mount), Some(bytes), "{path}");
    }
}

#[test]
fn matches_exact_hosts_before_wildcards() {
    let router = router(&[
        ("example.org www.example.org", &["/", "/only"]),
        ("*.example.org", &["/"]),
        ("*.b.example.org [2001:db8::1]", &["/"]),
        ("x.b.example.org", &["/deep"]),
        ("192.0.2.1", &["/"]),
    ]);
    for (host, expected) in [
        ("example.org", "example.org /"),
        ("EXAMPLE.org.:8080", "example.org /"),
        ("www.example.org", "example.org /"),
        ("a.example.org", "*.example.org /"),
        ("a.c.Example.ORG", "*.example.org /"),
        ("b.example.org", "*.example.org /"),
        ("a.b.example.org", "*.b.example.org /"),
        // An exact host without a matching prefix does not fall back to the wildcard.
        ("x.b.example.org", NOT_FOUND),
        (".example.org", NOT_FOUND),
        ("aexample.org", NOT_FOUND),
        ("192.0.2.1:80", "192.0.2.1 /"),
        ("[2001:DB8::1]:80", "*.b.example.org /"),
        ("elsewhere", NOT_FOUND),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}");
        assert_eq!(response_text(&router, &head), expected, "{host}");
    }
    assert_eq!(response_text(&router, "GET http://192.0.2.1/ HTTP/1.1\r\nHost: a"), "192.0.2.1 /");
    assert_eq!(response_text(&router, "GET / HTTP/1.0"), NOT_FOUND);
}

#[test]
fn star_matches_all_other_hosts() {
    let router = router(&[("a", &["/only"]), ("*", &["/"])]);
    for (head, expected) in [
        ("GET /only HTTP/1.1\r\nHost: a", "a /only/"),
        ("GET / HTTP/1.1\r\nHost: a", NOT_FOUND),
        ("GET /only HTTP/1.1\r\nHost: b", "* /"),
        ("GET / HTTP/1.0", "* /"),
    ] {
        assert_eq!(response_text(&router, head), expected, "{head}");
    }
}
