//! Redirects and cookies of upstreams, rewritten for the client.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;

use crate::common::external::fields_with_each_version;
use crate::common::{Weft, has_tool, raw_upstream, read_head, report_missing_tool, weft};

fn serve(config: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n{config}");
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

/// An upstream that redirects to the URL in the query, or to itself at `self`, and sets two
/// cookies.
fn upstream() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        let own = stream.local_addr().unwrap();
        while let Some(head) = read_head(&mut stream) {
            let target = head.split(' ').nth(1).unwrap();
            let (status, location) = match target.split_once('?') {
                Some(("/fine", location)) => ("200 OK", location),
                Some((_, location)) => ("302 Found", location),
                None => ("302 Found", ""),
            };
            let location = location.replace("self", &format!("http://{own}"));
            let fields = format!(
                "Location: {location}\r\nRefresh: 0; url={location}\r\n\
                 Set-Cookie: a=b; Path=/app/x; Domain=app.local; Secure\r\nSet-Cookie: c=d\r\n"
            );
            let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
        }
    })
}

#[test]
fn redirects_and_cookies_lead_to_the_route() {
    if !has_tool("curl") {
        return report_missing_tool("curl");
    }
    let up = upstream();
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\n\
         \"/app\" = \">> http://{up}/\"\n\
         \"/base\" = \">> http://{up}/inner/\"\n\
         \"/off\" = {{ proxy = \"http://{up}/\", rewrite_location = false }}\n\
         \"/own\" = {{ proxy = \"http://{up}/\", \
             rewrite_location = {{ \"https://other/\" = \"/other/\", \"/\" = \"/own/\" }}, \
             cookie_path = {{ \"/app/\" = \"/own/\" }}, \
             cookie_domain = {{ \"APP.local\" = \"example.org\" }} }}\n"
    ));
    let own = format!("http://{up}");
    for (target, name, expected) in [
        ("/app/?self/login?a=b", "location", "/app/login?a=b"),
        ("/app/?self/login", "refresh", "0; url=/app/login"),
        ("/app/?self//evil.example/", "location", "/app//evil.example/"),
        ("/app/?https://other/x", "location", "https://other/x"),
        ("/app/?/login", "location", "/login"),
        ("/app/fine?self/x", "location", &format!("{own}/x")),
        ("/app/", "set-cookie", "a=b; Path=/app/x; Domain=app.local; Secure|c=d"),
        ("/base/?self/inner/login", "location", "/base/login"),
        ("/base/?self/login", "location", &format!("{own}/login")),
        ("/off/?self/login", "location", &format!("{own}/login")),
        ("/own/?self/login", "location", "/own/login"),
        ("/own/?https://other/x", "location", "/other/x"),
        ("/own/?/login", "location", "/own/login"),
        ("/own/", "set-cookie", "a=b; Path=/own/x; Domain=example.org; Secure|c=d"),
    ] {
        assert_eq!(
            fields_with_each_version(&server.url(target), name),
            expected,
            "{target} {name}"
        );
    }
}
