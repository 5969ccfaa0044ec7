//! Matches of an HTTPRoute of the Gateway API, as routes with conditions.

use crate::matching::serve;

/// `path` (Exact, PathPrefix, RegularExpression), `headers` and `queryParams` (Exact and
/// RegularExpression), `method`, several parts of a match, and several matches.
const ROUTES: &str = r#"
"/" = { respond = "no match" }
"= /bar" = { respond = "exact" }
"/foo" = { respond = "prefix" }
"~ ^/v[0-9]+/items$" = { respond = "pattern" }
"PATCH /foo" = { respond = "method" }
"/foo @both" = { respond = "both", when = { header = { version = "v2" }, query = { great = "example" } } }
"/foo @v2" = { respond = "header", when = { header = { version = "v2" } } }
"/foo @later" = { respond = "header by pattern", when = { header = { version = "~ ^v[34]$" } } }
"/foo @great" = { respond = "query", when = { query = { great = "example" } } }
"/foo @ex" = { respond = "query by pattern", when = { query = { great = "~ ^ex-" } } }
"/either @canary" = { respond = "one of two", when = [{ header = { env = "canary" } }, { query = { canary = "1" } }] }
"#;

/// Method, target, field, and the text of the response.
const REQUESTS: &[(&str, &str, &str, &str)] = &[
    ("GET", "/bar", "", "exact"),
    ("GET", "/bar/", "", "no match"),
    ("GET", "/BAR", "", "no match"),
    ("GET", "/foo", "", "prefix"),
    ("GET", "/foo/", "", "prefix"),
    ("GET", "/foo/bar", "", "prefix"),
    ("GET", "/foobar", "", "no match"),
    ("GET", "/v12/items", "", "pattern"),
    ("GET", "/v12/items/x", "", "no match"),
    ("GET", "/foo", "version: v2", "header"),
    ("GET", "/foo/x", "VERSION: v2", "header"),
    ("GET", "/foo", "version: v22", "prefix"),
    ("GET", "/foo", "version: V2", "prefix"),
    ("GET", "/foo", "version: v4", "header by pattern"),
    ("GET", "/foo", "version: v5", "prefix"),
    ("GET", "/foo?great=example", "", "query"),
    ("GET", "/foo?Great=example", "", "prefix"),
    ("GET", "/foo?great=examples", "", "prefix"),
    ("GET", "/foo?great=ex-1", "", "query by pattern"),
    ("GET", "/foo?great=example", "version: v2", "both"),
    ("GET", "/foo?great=ex-1", "version: v2", "header"),
    ("PATCH", "/foo", "", "method"),
    ("PATCH", "/foo", "version: v2", "header"),
    ("GET", "/either", "env: canary", "one of two"),
    ("GET", "/either?canary=1", "", "one of two"),
    ("GET", "/either?canary=2", "env: stable", "no match"),
];

#[test]
fn matches_of_the_gateway_api_are_conditions() {
    let (_folder, server) = serve(ROUTES);
    let mut client = server.client();
    for (method, target, field, expected) in REQUESTS {
        let field = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
        let response = client.response();
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!(
            (response.status, text.trim_end()),
            (200, *expected),
            "{method} {target} {field}"
        );
    }
    server.stop();
}
