//! Error pages: built-in pages, and pages of the configuration.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;

use crate::common::external::{fields_with_each_version, with_each_version};
use crate::common::{Weft, raw_upstream, read_head, run, until, unused_address, weft};
use crate::common::{has_tool, report_missing_tool};

/// A folder with pages, a site and a configuration.
fn folder(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["pages", "plain", "site"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    for name in ["404.html", "4xx.html", "5xx.json", "own.txt"] {
        fs::write(folder.path().join("pages").join(name), name).unwrap();
    }
    fs::write(folder.path().join("site/404.html"), "404 of the site").unwrap();
    fs::write(folder.path().join("plain/a.txt"), "8 bytes.").unwrap();
    fs::write(folder.path().join("users"), "").unwrap();
    let config = format!("listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n{config}");
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    folder
}

fn start(folder: &TempDir) -> Weft {
    Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]))
}

/// An upstream whose responses are errors with a page and a cookie.
fn failing_upstream() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        while read_head(&mut stream).is_some() {
            let fields = "Set-Cookie: a=b\r\nETag: \"e\"\r\nContent-Length: 8\r\n";
            let head = format!("HTTP/1.1 500 Oops\r\n{fields}\r\nupstream");
            stream.write_all(head.as_bytes()).unwrap();
        }
    })
}

/// Returns status, media type and body of a response.
fn fetch(server: &Weft, target: &str, options: &[&str]) -> String {
    let options = [&["-w", "%{stderr}%{http_code} %{content_type}"], options].concat();
    with_each_version(&options, &server.url(target), |output| {
        format!("{} {}", output.stderr, output.stdout)
    })
}

#[test]
fn routes_respond_with_pages() {
    if !has_tool("curl") {
        return report_missing_tool("curl");
    }
    let down = unused_address();
    let folder = folder(&format!(
        "[hosts.\"*\"]\nintercept_errors = true\n\
         error_pages = {{ \"404\" = \"@missing\", \"403 =\" = \"@own\", \"410 =200\" = \"@missing\", \
         \"500\" = \"@again\", \"501\" = \"@down\", \"405\" = \"@missing\", \"4xx\" = \"pages/4xx.html\" }}\n\
         \"/\" = \"-> plain\"\n\
         \"/403\" = {{ respond = \"x\", status = 403 }}\n\"/410\" = {{ respond = \"x\", status = 410 }}\n\
         \"/500\" = {{ respond = \"first\", status = 500 }}\n\"/501\" = {{ respond = \"x\", status = 501 }}\n\
         \"/429\" = {{ respond = \"x\", status = 429 }}\n\
         \"@missing\" = {{ respond = \"{{method}} {{path}} is not here\" }}\n\
         \"@own\" = {{ respond = \"own\", status = 202 }}\n\"@again\" = {{ rewrite = \"/500\" }}\n\
         \"@down\" = \">> http://{down}\"\n"
    ));
    let server = start(&folder);
    let get = |target: &str| fetch(&server, target, &[]);
    assert_eq!(get("/none?a"), "404 text/plain; charset=utf-8 GET /none is not here");
    assert_eq!(get("/403"), "202 text/plain; charset=utf-8 own");
    assert_eq!(get("/410"), "200 text/plain; charset=utf-8 GET /410 is not here");
    // A page of a class is one of the others.
    assert_eq!(get("/429"), "429 text/html; charset=utf-8 4xx.html");
    // Errors of a page have no page of a route.
    assert_eq!(get("/500"), "500 text/plain; charset=utf-8 first");
    // The route of the page fails.
    assert_eq!(get("/501"), "501 text/plain; charset=utf-8 x");
    // Another method, with the fields of the error.
    let post = fetch(&server, "/a.txt", &["-X", "POST", "-d", "a=b"]);
    assert_eq!(post, "405 text/plain; charset=utf-8 GET /a.txt is not here");
    assert_eq!(fields_with_each_version(&server.url("/none"), "content-length"), "21");
}

#[test]
fn pages_apply_to_whatever_responds() {
    if !has_tool("curl") {
        return report_missing_tool("curl");
    }
    let (down, failing) = (unused_address(), failing_upstream());
    let folder = folder(&format!(
        "[defaults]\n\
         error_pages = {{ \"4xx\" = \"pages/4xx.html\", \"404\" = \"pages/404.html\", \
                          \"405\" = \"default\", \"5xx\" = \"pages/5xx.json\" }}\n\
         [hosts.\"*\"]\n\
         \"/files\" = \"-> site\"\n\
         \"/plain\" = \"-> plain\"\n\
         \"GET /method\" = {{ respond = \"\" }}\n\
         \"/empty\" = {{ respond = \"\", status = 410 }}\n\
         \"/text\" = {{ respond = \"text\", status = 410 }}\n\
         \"/down\" = \">> http://{down}/\"\n\
         \"/failing\" = \">> http://{failing}/\"\n\
         \"/intercepted\" = {{ proxy = \"http://{failing}/\", intercept_errors = true }}\n\
         \"/denied\" = {{ respond = \"\", deny = [\"0.0.0.0/0\", \"::/0\"] }}\n\
         \"/private\" = {{ respond = \"\", basic_auth = \"users\" }}\n\
         \"/certified\" = {{ respond = \"\", client_cert_required = true }}\n\
         \"/own\" = {{ respond = \"\", status = 404, error_pages = {{ \"404\" = \"pages/own.txt\" }} }}\n\
         \"/fine\" = {{ respond = \"\", status = 404, \
                        error_pages = {{ \"404 =200\" = \"pages/own.txt\" }} }}\n\
         \"/elsewhere\" = {{ respond = \"\", status = 404, \
                             error_pages = {{ \"404\" = \"https://example.org/\" }} }}\n",
    ));
    let server = start(&folder);
    for (target, options, expected) in [
        ("/files/nothing", &[][..], "404 text/html 404.html"),
        ("/files/nothing", &["-H", "Accept: application/json"], "404 text/html 404.html"),
        ("/files/nothing", &["-r", "0-1"], "404 text/html 404.html"),
        ("/files/nothing", &["-H", "If-None-Match: *"], "404 text/html 404.html"),
        ("/files/", &["-X", "PUT"], "405 text/plain; charset=utf-8 405 Method Not Allowed\n"),
        ("/empty", &[], "410 text/html 4xx.html"),
        ("/text", &[], "410 text/plain; charset=utf-8 text"),
        ("/down", &[], "502 application/json 5xx.json"),
        ("/failing", &[], "500  upstream"),
        ("/intercepted", &[], "500 application/json 5xx.json"),
        ("/denied", &[], "403 text/html 4xx.html"),
        ("/private", &[], "401 text/html 4xx.html"),
        ("/certified", &[], "403 text/html 4xx.html"),
        ("/own", &[], "404 text/plain; charset=utf-8 own.txt"),
        ("/fine", &[], "200 text/plain; charset=utf-8 own.txt"),
        ("/fine", &["-r", "0-1"], "200 text/plain; charset=utf-8 own.txt"),
        ("/elsewhere", &[], "302  "),
        ("/no-route", &[], "404 text/html 404.html"),
        // Of the router.
        ("/method", &["-X", "PUT"], "405 text/plain; charset=utf-8 405 Method Not Allowed\n"),
        ("/files%2Fx", &[], "400 text/html 4xx.html"),
        // Of the engine, for files.
        ("/plain/a.txt", &["-H", "If-Match: \"x\""], "412 text/html 4xx.html"),
        ("/plain/a.txt", &["-r", "99-"], "416 text/html 4xx.html"),
        ("/plain/a.txt", &["-r", "0-1"], "206 text/plain; charset=utf-8 8 "),
    ] {
        let reply =
            fetch(&server, target, options).replace("text/html; charset=utf-8", "text/html");
        assert_eq!(reply, expected, "{target} {options:?}");
    }
}

#[test]
fn keeps_fields_and_the_length_of_a_page() {
    let failing = failing_upstream();
    let folder = folder(&format!(
        "[hosts.\"*\"]\n\
         error_pages = {{ \"4xx 5xx\" = \"pages/4xx.html\" }}\n\
         response_headers = {{ X-Served-By = \"weft\" }}\n\
         \"/files\" = \"-> site\"\n\
         \"/plain\" = \"-> plain\"\n\
         \"/private\" = {{ respond = \"\", basic_auth = \"users\" }}\n\
         \"/intercepted\" = {{ proxy = \"http://{failing}/\", intercept_errors = true }}\n",
    ));
    let server = start(&folder);
    for (request, field, value) in [
        ("PUT /files/", "allow", Some("GET, HEAD")),
        ("GET /private", "www-authenticate", Some("Basic realm=\"Restricted\", charset=\"UTF-8\"")),
        ("GET /intercepted", "set-cookie", Some("a=b")),
        ("GET /intercepted", "etag", None),
        ("HEAD /intercepted", "content-length", Some("8")),
        ("HEAD /files/nothing", "content-length", Some("8")),
        ("GET /plain/a.txt", "content-range", Some("bytes */8")),
        ("GET /no-route", "x-served-by", Some("weft")),
    ] {
        let mut client = server.client();
        let range = if field == "content-range" { "Range: bytes=9-\r\n" } else { "" };
        client.send(format!("{request} HTTP/1.1\r\nHost: a\r\n{range}Connection: close\r\n\r\n"));
        let head = client.head();
        let fields = head.iter().filter_map(|line| line.split_once(": "));
        let found = fields.filter(|(name, _)| *name == field).map(|(_, value)| value).next();
        assert_eq!(found, value, "{request}: {head:?}");
        if request.starts_with("HEAD") {
            client.assert_closed();
        }
    }
}

#[test]
fn built_in_pages_have_the_preferred_form() {
    if !has_tool("curl") {
        return report_missing_tool("curl");
    }
    let folder = folder(&format!(
        "[hosts.a]\n\"/\" = {{ respond = \"\" }}\n[hosts.\"127.0.0.1\"]\n\
         \"/files\" = \"-> plain\"\n\"/down\" = \">> http://{}/\"\n",
        unused_address()
    ));
    let server = start(&folder);
    for (target, status) in [
        ("/no-route", "404 Not Found"),
        ("/files/nothing", "404 Not Found"),
        ("/down", "502 Bad Gateway"),
        ("/a%00", "400 Bad Request"),
    ] {
        let page = fetch(&server, target, &["-H", "Accept: text/html,*/*;q=0.8"]);
        assert!(page.contains("text/html; charset=utf-8 <!doctype html>"), "{page}");
        assert!(page.contains(&format!("<h1>{status}</h1>")), "{page}");
        let (code, title) = status.split_once(' ').unwrap();
        let json = fetch(&server, target, &["-H", "Accept: application/json, */*"]);
        let expected =
            format!("{code} application/problem+json {{\"status\":{code},\"title\":\"{title}\"");
        assert!(json.starts_with(&expected), "{json}");
        let line = fetch(&server, target, &[]);
        assert!(line.starts_with(&format!("{code} text/plain; charset=utf-8 {status}")), "{line}");
    }
    let mut client = server.client();
    client.send(
        "GET /files/a.txt HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=99-\r\n\
                 Accept: application/json\r\n\r\n",
    );
    let response = client.response();
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.header("content-range"), Some("bytes */8"));
}

#[test]
fn a_changed_page_takes_effect_without_a_reload() {
    let folder = folder("[hosts.\"*\"]\nerror_pages = { \"404\" = \"pages/new.html\" }\n");
    let server = start(&folder);
    let body = || String::from_utf8(server.client().get("/").body).unwrap();
    assert_eq!(body(), "404 Not Found\n");
    fs::write(folder.path().join("pages/new.html"), "new").unwrap();
    until("the page is read", || body() == "new");
    fs::write(folder.path().join("pages/new.html"), vec![b' '; (1 << 20) + 1]).unwrap();
    until("the page is too large", || body() == "404 Not Found\n");
}

#[test]
fn check_warns_of_pages_that_cannot_be_read() {
    for (page, expected) in [
        (
            "pages/none.html",
            "No such file or directory (os error 2); the built-in page in its place",
        ),
        ("pages", "is no file; the built-in page in its place"),
        ("pages/404.html", ""),
    ] {
        let folder = folder(&format!(
            "[hosts.\"*\"]\n\"/\" = {{ respond = \"\", error_pages = {{ \"404\" = \"{page}\" }} }}\n"
        ));
        let output = run(["check".as_ref(), folder.path().join("weft.toml").as_os_str()]);
        let status = if expected.is_empty() { 0 } else { 3 };
        assert_eq!(output.status, Ok(status), "{}", output.stderr);
        assert!(output.stderr.trim_end().ends_with(expected), "{}", output.stderr);
        assert_eq!(output.stderr.is_empty(), expected.is_empty(), "{}", output.stderr);
    }
}
