//! Substitution of texts in the bodies of responses.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use tempfile::TempDir;

use crate::common::external::with_each_version;
use crate::common::{
    Client, Weft, has_tool, raw_upstream, read_head, report_missing_tool, run, weft,
};

fn serve(config: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("site")).unwrap();
    let page = |text: &str| format!("<!-- {text} -->{}", "<p>A cat and a cat.</p>".repeat(100));
    fs::write(folder.path().join("site/page.html"), page("plain")).unwrap();
    fs::write(folder.path().join("site/page.html.gz"), "precompressed").unwrap();
    fs::write(folder.path().join("site/cat.txt"), "cat").unwrap();
    let config = format!("listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n{config}");
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

/// Responds with a page in which the received fields stand, in chunks of three bytes, and with
/// ranges of four bytes.
fn upstream() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let is_coded = head.contains("accept-encoding");
            let body = format!("<head></HEAD>{is_coded} cat cats cat");
            let (status, body) = match head.contains("range: bytes=0-3") {
                true => ("206 Partial Content\r\nContent-Range: bytes 0-3/99", "cat "),
                false => ("200 OK", &*body),
            };
            let media_type = if head.starts_with("GET /video") { "video/mp4" } else { "text/html" };
            let mut text = format!(
                "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nETag: \"e\"\r\n\
                 Transfer-Encoding: chunked\r\n\r\n"
            )
            .into_bytes();
            for chunk in body.as_bytes().chunks(3) {
                text.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
                text.extend([chunk, b"\r\n"].concat());
            }
            text.extend(b"0\r\n\r\n");
            stream.write_all(&text).unwrap();
        }
    })
}

/// Returns the body of a response.
fn fetch(server: &Weft, target: &str, options: &[&str]) -> String {
    with_each_version(options, &server.url(target), |output| output.stdout)
}

#[test]
fn replaces_texts_whatever_serves_the_route() {
    if !has_tool("curl") {
        return report_missing_tool("curl");
    }
    let up = upstream();
    let (_folder, server) = serve(&format!(
        "[defaults]\n\
         sub_filter = {{ \"</head>\" = \"<script></script></head>\", cat = \"dog\" }}\n\
         [hosts.\"*\"]\n\
         \"/up\" = \">> http://{up}/\"\n\
         \"/every\" = {{ proxy = \"http://{up}/\", sub_filter_once = false, compress = true }}\n\
         \"/none\" = {{ proxy = \"http://{up}/\", sub_filter = {{}} }}\n\
         \"/values\" = {{ proxy = \"http://{up}/\", sub_filter = {{ cat = \"{{host}}{{query.q}}\" }} }}\n\
         \"/files\" = \"-> site\"\n\
         \"/texts\" = {{ files = \"site\", sub_filter_types = [\"text/plain\"] }}\n\
         \"/all\" = {{ respond = \"cat\", sub_filter_types = \"*\" }}\n"
    ));
    let coded = ["--compressed", "-r", "0-3"];
    for (target, options, expected) in [
        ("/up", &[][..], "<head><script></script></head>false dog cats cat"),
        ("/up", &coded, "<head><script></script></head>false dog cats cat"),
        ("/every", &coded, "<head><script></script></head>false dog dogs dog"),
        ("/up/video", &coded, "cat "),
        ("/none", &["--compressed"], "<head></HEAD>true cat cats cat"),
        ("/none", &coded, "cat "),
        (
            "/values?q=%3Cscript%3E%22%26",
            &[],
            "<head></HEAD>false 127.0.0.1&lt;script&gt;&quot;&amp; cats cat",
        ),
        ("/files/cat.txt", &[], "cat"),
        ("/texts/cat.txt", &[], "dog"),
        ("/texts/cat.txt", &["-r", "1-2"], "dog"),
        ("/all", &[], "dog"),
    ] {
        assert_eq!(fetch(&server, target, options), expected, "{target} {options:?}");
    }
    for options in [&[][..], &["--compressed"], &["-r", "0-9"]] {
        let page = fetch(&server, "/files/page.html", options);
        assert!(page.starts_with("<!-- plain --><p>A dog and a cat.</p><p>A cat"), "{page}");
    }
}

#[test]
fn fields_describe_the_changed_body() {
    let up = upstream();
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\nsub_filter = {{ cat = \"dog\" }}\n\
         \"/up\" = \">> http://{up}/\"\n\"/files\" = \"-> site\"\n"
    ));
    let head = |method: &str, target: &str, fields: &str| {
        let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        client.head().join("\n") + "\n"
    };
    for (method, target, fields, present, absent) in [
        ("GET", "/up", "", "etag: W/\"e\"", "content-length"),
        ("GET", "/files/page.html", "Range: bytes=0-1\r\n", "HTTP/1.1 200", "accept-ranges"),
        ("GET", "/files/page.html", "", "etag: W/\"", "last-modified"),
        (
            "GET",
            "/files/page.html",
            "Accept-Encoding: gzip\r\n",
            "content-encoding: gzip",
            "content-length",
        ),
        ("HEAD", "/files/page.html", "", "etag: W/\"", "content-length"),
        ("GET", "/files/cat.txt", "", "content-length: 3", "chunked"),
    ] {
        let head = head(method, target, fields);
        assert!(head.contains(present) && !head.contains(absent), "{method} {target}: {head}");
    }
    let page = head("GET", "/files/page.html", "");
    let etag = page.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let fields = format!("If-None-Match: {etag}\r\n");
    assert!(head("GET", "/files/page.html", &fields).starts_with("HTTP/1.1 304"));
}

#[test]
fn data_that_cannot_be_part_of_a_text_is_not_held_back() {
    let (allow, continued) = std::sync::mpsc::channel::<()>();
    let continued = std::sync::Mutex::new(continued);
    let up = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
        stream.write_all(format!("{head}one ca").as_bytes()).unwrap();
        let _ = continued.lock().unwrap().recv();
        stream.write_all(b"t two").unwrap();
    });
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\nsub_filter = {{ cat = \"dog\", \"{}\" = \"\" }}\n\"/\" = \">> http://{up}/\"\n",
        "x".repeat(1_000)
    ));
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    assert_eq!(client.body(9), b"4\r\none \r\n");
    allow.send(()).unwrap();
    assert_eq!(client.body(12), b"7\r\ndog two\r\n");
}

#[test]
fn check_refuses_texts_beyond_the_limits() {
    let long = "x".repeat(1_025);
    for (options, expected) in [
        ("sub_filter = { \"\" = \"a\" }", "sub_filter: an empty text cannot be found"),
        (&*format!("sub_filter = {{ \"{long}\" = \"a\" }}"), "has more than 1024 bytes"),
        ("sub_filter = { a = \"b\", A = \"c\" }", "\"A\" is given twice"),
        ("sub_filter = { a = \"{hots}\" }", "did you mean {host}?"),
        ("sub_filter = { a = \"$host\" }", "`$host`, a variable of nginx"),
        ("sub_filter_types = \"html\"", "expected a media type such as text/css, or *"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weft.toml");
        let config = format!("[hosts.\"*\"]\n\"/\" = {{ respond = \"\", {options} }}\n");
        fs::write(&file, config).unwrap();
        let output = run([Path::new("check"), &file]);
        assert!(output.stderr.contains(expected), "{options}: {}", output.stderr);
    }
}
