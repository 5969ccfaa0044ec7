//! Fields that are set by rules.

use super::*;

#[test]
fn last_matching_header_rule_applies() {
    let tree = Tree::with_files(&[
        ("index.html", "index"),
        ("a.css", "a"),
        ("assets/a.css", "a"),
        ("assets/deep/b.js", "b"),
        ("assets/deep/b.js.br", "br"),
        ("assets/private.html", "p"),
        ("data.json", "{}"),
        ("404.html", "none"),
    ]);
    let headers = vec![
        HeaderRule::cache("5m").unwrap(),
        HeaderRule::cache("*.css=1h").unwrap(),
        HeaderRule::cache("/assets/**=immutable").unwrap(),
        HeaderRule::cache("*.html=no-cache").unwrap(),
        rule("*.html", X_FRAME_OPTIONS, "DENY"),
        rule("/assets/*", X_FRAME_OPTIONS, "SAMEORIGIN"),
        rule("*.json", CONTENT_TYPE, "application/odd"),
        rule("*.js", VARY, "cookie"),
    ];
    let server = tree.serve_with(DirectorySettings { headers, ..no_compression() });
    let mut client = Client::connect(&server);
    let immutable = Some("max-age=31536000, immutable");
    for (target, cache, frame) in [
        ("/", Some("no-cache"), Some("DENY")),
        ("/index.html", Some("no-cache"), Some("DENY")),
        ("/a.css", Some("max-age=3600"), None),
        ("/assets/a.css", immutable, Some("SAMEORIGIN")),
        ("/assets/deep/b.js", immutable, None),
        ("/assets/private.html", Some("no-cache"), Some("SAMEORIGIN")),
        ("/data.json", Some("max-age=300"), None),
    ] {
        let fields = |response: &Response| {
            ["cache-control", "x-frame-options"].map(|n| response.header(n).map(str::to_owned))
        };
        let expected = [cache, frame].map(|value| value.map(str::to_owned));
        let whole = ask(&mut client, "GET", target);
        assert_eq!(fields(&whole), expected, "{target}");
        let names = whole.headers.iter().filter(|(name, _)| name == "cache-control");
        assert_eq!(names.count(), 1, "{target}");
        for more in [
            format!("If-None-Match: {}", etag(&whole)),
            "Range: bytes=0-0".to_owned(),
            "Accept-Encoding: br".to_owned(),
        ] {
            let response = send_request_with_fields(&mut client, "GET", target, &more);
            assert!([200, 206, 304].contains(&response.status), "{target} {more}");
            assert_eq!(fields(&response), expected, "{target} {more}");
        }
        // Error responses get no Cache-Control.
        for (more, status) in [("If-Match: \"x\"", 412), ("Range: bytes=99-", 416)] {
            let refused = send_request_with_fields(&mut client, "GET", target, more);
            assert_eq!((refused.status, refused.header("cache-control")), (status, None));
        }
    }
    assert_eq!(
        ask(&mut client, "GET", "/data.json").header("content-type"),
        Some("application/odd")
    );
    // A rule for Vary does not remove the values set by the server.
    let script = ask(&mut client, "GET", "/assets/deep/b.js");
    assert_eq!(varies_by(&script), BTreeSet::from(["accept-encoding", "cookie"]));
    for (target, status) in [("/nothing.html", 404), ("/assets/nothing", 404), ("/assets", 301)] {
        let response = ask(&mut client, "GET", target);
        assert_eq!((response.status, response.header("cache-control")), (status, None), "{target}");
    }
    stop(server);
}

#[test]
fn configured_media_types_apply_by_extension() {
    let types = [("md", "text/x-md"), ("weird", "image/weird"), ("html", "application/xhtml+xml")];
    let media_types = types.map(|(end, value)| (end.to_owned(), HeaderValue::from_static(value)));
    let settings = DirectorySettings { media_types: media_types.into(), ..no_compression() };
    let cases = [
        ("a.md", "text/x-md"),
        ("A.MD", "text/x-md"),
        ("a.weird", "image/weird"),
        ("index.html", "application/xhtml+xml"),
        ("a.weird.css", "text/css; charset=utf-8"),
        ("weird", "application/octet-stream"),
        ("a.css", "text/css; charset=utf-8"),
    ];
    let tree = Tree::new();
    cases.iter().for_each(|(name, _)| tree.write(name, "x"));
    let server = tree.serve_with(settings);
    let mut client = Client::connect(&server);
    for (name, expected) in cases {
        let response = ask(&mut client, "GET", format!("/{name}"));
        assert_eq!(response.header("content-type"), Some(expected), "{name}");
    }
    stop(server);
}
