//! `Directory`, the application that serves files, tested over real sockets.
#![cfg(all(feature = "brotli", feature = "files", feature = "gzip", feature = "zstd"))]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use crate::common::tree::{
    SECRET, Tree, as_nobody, ask, assert_bodies, assert_statuses, fields_without_date, pattern,
    request,
};
use crate::common::{self, Client, stop};
use weft::files::Directory;
use weft::server::ServerHandle;

// -- files

#[test]
fn serves_files_of_all_sizes_to_get_and_head() {
    let sizes = [0, 1, 151, 16 << 10, (16 << 10) + 1, 1 << 20, 5 << 20];
    let tree = Tree::new();
    for size in sizes {
        tree.write(format!("{size}.bin"), pattern(size));
    }
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for size in sizes {
        let target = format!("/{size}.bin");
        let head = ask(&mut client, "HEAD", &target);
        let get = ask(&mut client, "GET", &target);
        assert_eq!((get.status, head.status), (200, 200), "{target}");
        assert_eq!(get.header("content-length"), Some(&*size.to_string()));
        assert!(get.body == pattern(size), "{target}: wrong body of {} bytes", get.body.len());
        assert_eq!(fields_without_date(&get), fields_without_date(&head), "{target}");
    }
    stop(server);
}

#[test]
fn content_type_depends_on_the_extension_and_text_has_a_charset() {
    let cases = [
        ("a.html", "text/html; charset=utf-8"),
        ("A.HTML", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.json", "application/json"),
        ("a.wasm", "application/wasm"),
        ("a.tar.gz", "application/gzip"),
        ("a.html.unheard-of", "application/octet-stream"),
        ("folder.html/README", "application/octet-stream"),
        ("folder/html", "application/octet-stream"),
    ];
    let tree = Tree::new();
    cases.iter().for_each(|(name, _)| tree.write(name, "x"));
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for (name, content_type) in cases {
        let response = ask(&mut client, "GET", format!("/{name}"));
        assert_eq!(response.header("content-type"), Some(content_type), "{name}");
    }
    stop(server);
}

#[test]
fn last_modified_is_the_modification_time_of_the_file() {
    let cases = [
        ("rfc.txt", 784_111_777, Some("Sun, 06 Nov 1994 08:49:37 GMT")),
        ("leap.txt", 1_709_251_199, Some("Thu, 29 Feb 2024 23:59:59 GMT")),
        // RFC 9110 §8.8.2.1: a time in the future is replaced by the current time.
        ("far.txt", 4_107_542_400, Some("now")),
        // Times that build systems give to all versions of a file.
        ("two.txt", 2, Some("Thu, 01 Jan 1970 00:00:02 GMT")),
        ("one.txt", 1, None),
        ("zero.txt", 0, None),
        ("before-1970.txt", -86_400, None),
    ];
    let tree = Tree::new();
    for (name, seconds, _) in cases {
        tree.write(name, "x");
        let since = Duration::from_secs(i64::unsigned_abs(seconds));
        let time = if seconds < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since };
        let file = File::options().write(true).open(tree.path(name)).unwrap();
        // The fraction of a second is not rounded up.
        file.set_modified(time + Duration::from_millis(999)).unwrap();
    }
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for (name, _, date) in cases {
        let response = ask(&mut client, "GET", format!("/{name}"));
        let date = if date == Some("now") { response.header("date") } else { date };
        assert_eq!(response.header("last-modified"), date, "{name}");
    }
    stop(server);
}

/// A cache that stored the first version of a file of Nix or OSTree must get the second one, and
/// never a part of it. The row with another time is the same in all but the time.
#[test]
fn constant_modification_time_confirms_nothing() {
    let times = [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT", 200, 200),
        (1, "Thu, 01 Jan 1970 00:00:01 GMT", 200, 200),
        (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT", 304, 206),
    ];
    let tree = Tree::new();
    for (seconds, ..) in times {
        // Contents in memory, and a file that is sent from its descriptor.
        for length in [10, 100_000] {
            let name = format!("{seconds}-{length}.txt");
            tree.write(&name, "x".repeat(length));
            let file = File::options().write(true).open(tree.path(&name)).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        }
    }
    // A file that changed recently has other fields.
    for _ in 0..2 {
        let server = tree.serve();
        let mut client = Client::connect(&server);
        for (seconds, date, unchanged, part) in times {
            for length in [10, 100_000] {
                let mut status = |fields: String| {
                    let target = format!("/{seconds}-{length}.txt");
                    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
                    client.response().status
                };
                assert_eq!(status(format!("If-Modified-Since: {date}")), unchanged, "{date}");
                assert_eq!(status(format!("If-Unmodified-Since: {date}")), 200, "{date}");
                let range = format!("Range: bytes=2-3\r\nIf-Range: {date}");
                assert_eq!(status(range), part, "{date}");
            }
        }
        drop(client);
        stop(server);
        tree.settle();
    }
}

/// The kernel generates these files when they are read, and reports the length 0 or 4096.
#[test]
fn files_of_unknown_length_are_streamed() {
    for (folder, name) in
        [("/proc/self", "status"), ("/sys/kernel/mm/transparent_hugepage", "enabled")]
    {
        let Ok(contents) = fs::read_to_string(Path::new(folder).join(name)) else { continue };
        let server = common::tree::serve(Directory::open(folder).unwrap());
        let mut client = Client::connect(&server);
        for method in ["GET", "GET", "HEAD"] {
            let response = ask(&mut client, method, format!("/{name}"));
            let fields = ["content-length", "etag", "last-modified"].map(|it| response.header(it));
            assert_eq!((response.status, fields), (200, [None; 3]), "{folder}");
            let (first, _) = contents.split_once('\n').unwrap();
            assert_eq!(response.text().starts_with(first), method == "GET", "{folder}");
        }
        stop(server);
    }
}

#[test]
fn compressed_image_has_its_content_coding() {
    let tree = Tree::with_files(&[("a.svgz", &"x".repeat(2_000)), ("a.svgz.gz", "y")]);
    tree.settle();
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for accepted in ["gzip", "br", "identity"] {
        client.send(format!(
            "GET /a.svgz HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accepted}\r\n\r\n"
        ));
        let response = client.response();
        let fields = ["content-type", "content-encoding", "vary"].map(|it| response.header(it));
        assert_eq!(fields, [Some("image/svg+xml"), Some("gzip"), None], "{accepted}");
        assert_eq!(response.body.len(), 2_000, "{accepted}");
    }
    stop(server);
}

#[test]
fn ranges_and_preconditions_over_one_connection() {
    let tree = Tree::with_files(&[("ten.txt", "0123456789"), ("empty.txt", "")]);
    let large = pattern(3_000_000);
    fs::write(tree.path("large.bin"), &large).unwrap();
    tree.settle();
    let server = tree.serve();
    let mut client = Client::connect(&server);
    let first = ask(&mut client, "GET", "/ten.txt");
    assert_eq!(first.header("accept-ranges"), Some("bytes"));
    let etag = first.header("etag").expect("an ETag").to_owned();
    let date = first.header("last-modified").expect("a date").to_owned();
    let cases: Vec<(String, u16, Option<&str>, &str)> = vec![
        ("Range: bytes=2-3".into(), 206, Some("bytes 2-3/10"), "23"),
        ("Range: bytes=5-".into(), 206, Some("bytes 5-9/10"), "56789"),
        ("Range: bytes=-3".into(), 206, Some("bytes 7-9/10"), "789"),
        ("Range: bytes=-17".into(), 206, Some("bytes 0-9/10"), "0123456789"),
        ("Range: bytes=16-".into(), 416, Some("bytes */10"), "416 Range Not Satisfiable\n"),
        ("Range: lines=1-2".into(), 200, None, "0123456789"),
        (format!("Range: bytes=2-3\r\nIf-Range: {etag}"), 206, Some("bytes 2-3/10"), "23"),
        ("Range: bytes=2-3\r\nIf-Range: \"x\"".into(), 200, None, "0123456789"),
        (format!("If-None-Match: {etag}"), 304, None, ""),
        (format!("If-None-Match: \"x\", W/{etag}"), 304, None, ""),
        ("If-None-Match: \"x\"".into(), 200, None, "0123456789"),
        (format!("If-Modified-Since: {date}"), 304, None, ""),
        ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT".into(), 200, None, "0123456789"),
        (format!("If-Match: {etag}"), 200, None, "0123456789"),
        ("If-Match: \"x\"".into(), 412, None, "412 Precondition Failed\n"),
    ];
    for (fields, status, range, body) in cases {
        client.send(format!("GET /ten.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
        let response = client.response();
        let got = (response.status, response.header("content-range"), response.text());
        assert_eq!(got, (status, range, body), "{fields}");
        assert_eq!(response.header("etag"), Some(&*etag), "{fields}");
    }

    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=1000000-2999998\r\n\r\n");
    assert!(client.response().body == large[1_000_000..2_999_999]);

    let several = "Range: bytes=0-9,1000000-1000009,-5";
    client.send(format!("GET /large.bin HTTP/1.1\r\nHost: a\r\n{several}\r\n\r\n"));
    let response = client.response();
    let media_type = response.header("content-type").expect("a type");
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
    let mut expected = Vec::new();
    for (range, part) in [
        ("0-9", &large[..10]),
        ("1000000-1000009", &large[1_000_000..1_000_010]),
        ("2999995-2999999", &large[2_999_995..]),
    ] {
        let line_end = if expected.is_empty() { "" } else { "\r\n" };
        expected.extend(format!("{line_end}--{boundary}\r\n").bytes());
        expected.extend(b"Content-Type: application/octet-stream\r\n");
        expected.extend(format!("Content-Range: bytes {range}/3000000\r\n\r\n").bytes());
        expected.extend(part);
    }
    expected.extend(format!("\r\n--{boundary}--\r\n").bytes());
    assert_eq!((response.status, response.body), (206, expected));

    // Offsets beyond 32 bits, in a sparse file of 5 GiB.
    let hole = File::create(tree.path("hole.bin")).unwrap();
    hole.set_len(5 << 30).unwrap();
    client.send("GET /hole.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=5000000000-5000000004\r\n\r\n");
    let response = client.response();
    assert_eq!(response.header("content-range"), Some("bytes 5000000000-5000000004/5368709120"));
    assert_eq!(response.body, [0; 5]);

    // A changed file has a new ETag.
    tree.write("ten.txt", "9876543210");
    common::until("the new content is served", || {
        client.send(format!("GET /ten.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: {etag}\r\n\r\n"));
        client.response().text() == "9876543210"
    });
    for fields in ["", "Range: bytes=0-", "Range: bytes=0-1048575", "Range: bytes=-5"] {
        client.send(format!("GET /empty.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
        let response = client.response();
        let range = response.header("content-range");
        assert_eq!((response.status, range, response.text()), (200, None, ""), "{fields}");
    }
    stop(server);
}

#[test]
fn serves_files_with_names_of_all_kinds() {
    let long = "n".repeat(255);
    let cases: [(&[u8], &[u8]); _] = [
        (b"a b.txt", b"/a%20b.txt"),
        (b"100%.txt", b"/100%25.txt"),
        // A `%` without two hexadecimal digits after it is literal.
        (b"100%.txt", b"/100%.txt"),
        (b"%41.txt", b"/%2541.txt"),
        (b"q\"uo'te.txt", b"/q%22uo%27te.txt"),
        (b"q\"uo'te.txt", b"/q\"uo'te.txt"),
        (b"a?b.txt", b"/a%3Fb.txt"),
        (b"a?b.txt", b"/a%3fb.txt?c=d"),
        (b"a#b.txt", b"/a%23b.txt"),
        (b"a+b.txt", b"/a+b.txt"),
        (b"a&b;c=d,e!.txt", b"/a&b;c=d,e!.txt"),
        (b"a\\b.txt", b"/a%5Cb.txt"),
        (b"a\\b.txt", b"/a\\b.txt"),
        (b"a:b.txt", b"/a:b.txt"),
        (b"<b>.txt", b"/%3Cb%3E.txt"),
        (b"a\nb\r\tc.txt", b"/a%0Ab%0D%09c.txt"),
        ("días.txt".as_bytes(), b"/d%C3%ADas.txt"),
        ("días.txt".as_bytes(), b"/d%c3%adas.txt"),
        ("días.txt".as_bytes(), "/días.txt".as_bytes()),
        ("日本/語.txt".as_bytes(), b"/%E6%97%A5%E6%9C%AC/%E8%AA%9E.txt"),
        (b"\xff\xfe\x80.txt", b"/%FF%fe%80.txt"),
        (b"a.", b"/a."),
        (b"a..b", b"/a..b"),
        (b"-", b"/-"),
        (b"~", b"/~"),
        (b"CON", b"/CON"),
        (b"plain.txt", b"/%70%6C%61%69%6E%2E%74%78%74"),
        (b"plain.txt", b"//plain.txt"),
        (b"plain.txt", b"/plain.txt?"),
        (b"plain.txt", b"/plain.txt?/../../secret.txt"),
        (b"plain.txt", b"http://other/plain.txt"),
        (b"d/e/f/g.txt", b"/d//e///f/g.txt"),
        (long.as_bytes(), &[b"/", long.as_bytes()].concat()),
    ];
    let tree = Tree::new();
    // Each file contains its own escaped name.
    let label = |name: &[u8]| name.escape_ascii().to_string();
    cases.iter().for_each(|(name, _)| tree.write(name, label(name)));
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for (name, target) in cases {
        let response = ask(&mut client, "GET", target);
        let found = (response.status, response.text());
        assert_eq!(found, (200, &*label(name)), "{}", target.escape_ascii());
    }
    stop(server);
}

#[test]
fn missing_names_are_not_found() {
    let tree = Tree::with_files(&[("a.txt", "a"), ("folder/b.txt", "b")]);
    let server = tree.serve();
    let (long_name, long_path) = ("n".repeat(256), "n/".repeat(3000));
    assert_statuses(
        &server,
        &[
            ("/b.txt", 404),
            ("/A.TXT", 404),
            ("/a.txt/", 404),
            ("/a.txt//", 404),
            ("/a.txt/b", 404),
            ("/a.tx", 404),
            ("/a.txt%20", 404),
            ("/a%00.txt", 404),
            ("/a.txt%00.html", 404),
            ("/folder%2fb.txt", 404),
            ("/folder%2Fb.txt", 404),
            // Directories are not listed.
            ("/folder/", 404),
            ("/", 404),
            (&format!("/{long_name}"), 404),
            (&format!("/{long_path}"), 404),
            ("/folder/b.txt", 200),
        ],
    );
    stop(server);
}

#[test]
fn renamed_root_is_still_served() {
    let tree = Tree::with_files(&[("a.txt", "a"), ("folder/index.html", "b")]);
    let server = tree.serve();
    fs::rename(tree.root(), tree.outer.path().join("elsewhere")).unwrap();
    assert_bodies(&server, &[("/a.txt", "a"), ("/folder/", "b")]);
    stop(server);
}

#[test]
fn root_must_be_a_directory() {
    let tree = Tree::with_files(&[("a.txt", "a")]);
    for name in ["a.txt", "nothing", ""] {
        let path = if name.is_empty() { PathBuf::new() } else { tree.path(name) };
        assert!(Directory::open(&path).is_err(), "{name:?}");
    }
    Directory::open(tree.root()).expect("the root is a directory");
}

// -- directories

#[test]
fn serves_the_index_of_a_directory() {
    let tree = Tree::with_files(&[
        ("index.html", "top"),
        ("guide/index.html", "guide"),
        ("two words/index.html", "words"),
    ]);
    let server = tree.serve();
    assert_bodies(
        &server,
        &[
            ("/", "top"),
            ("/?query", "top"),
            ("//", "top"),
            ("http://a/", "top"),
            ("http://a", "top"),
            ("http://a?query", "top"),
            ("/index.html", "top"),
            ("/guide/", "guide"),
            ("/guide//", "guide"),
            ("/guide/index.html", "guide"),
            ("/two%20words/", "words"),
        ],
    );
    let response = ask(&mut Client::connect(&server), "GET", "/guide/");
    assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(response.header("last-modified").is_some());
    stop(server);
}

#[test]
fn redirects_directories_without_a_trailing_slash() {
    let cases: [(&[u8], &[u8], &str); _] = [
        (b"guide", b"/guide", "/guide/"),
        (b"guide", b"/guide?a=b&c=%2F?d", "/guide/?a=b&c=%2F?d"),
        (b"guide", b"/guide?next=//evil.example/", "/guide/?next=//evil.example/"),
        (b"guide", b"//guide", "/guide/"),
        (b"guide", b"http://other/guide?a", "/guide/?a"),
        (b"guide/more", b"/guide//more", "/guide/more/"),
        (b"two words", b"/two%20words", "/two%20words/"),
        (b"two words", b"/two%20words?a%20b", "/two%20words/?a%20b"),
        (b"100%", b"/100%25", "/100%25/"),
        (b"100%", b"/100%", "/100%25/"),
        (b"%2e%2e", b"/%252e%252e", "/%252e%252e/"),
        (b"a?b", b"/a%3Fb?c", "/a%3Fb/?c"),
        (b"a#b", b"/a%23b", "/a%23b/"),
        (b"a\r\nb", b"/a%0d%0ab", "/a%0D%0Ab/"),
        (b"\"'", b"/\"'", "/%22%27/"),
        ("días".as_bytes(), "/días".as_bytes(), "/d%C3%ADas/"),
        ("días".as_bytes(), b"/d%c3%adas", "/d%C3%ADas/"),
        (b"\xff", b"/%ff", "/%FF/"),
        // Browsers treat `/\` as `//`, which starts a reference to another host.
        (b"\\evil.example", b"/%5Cevil.example", "/%5Cevil.example/"),
        (b"\\evil.example", b"/\\evil.example", "/%5Cevil.example/"),
        (b"evil.example", b"//evil.example", "/evil.example/"),
        (b"evil.example", b"///evil.example", "/evil.example/"),
        (b".well-known", b"/.well-known", "/.well-known/"),
    ];
    let tree = Tree::new();
    for (folder, _, _) in cases {
        tree.write([folder, b"/index.html"].concat(), "here");
    }
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for (_, target, location) in cases {
        let response = ask(&mut client, "GET", target);
        let shown = target.escape_ascii();
        assert_eq!(
            (response.status, response.header("location")),
            (301, Some(location)),
            "{shown}"
        );
        assert!(response.text().contains("301 Moved Permanently"), "{shown}");
        // The redirect leads to the index.
        let response = ask(&mut client, "GET", location);
        assert_eq!((response.status, response.text()), (200, "here"), "{shown}");
    }
    stop(server);
}

#[test]
fn ignores_an_index_that_is_not_a_file() {
    let tree = Tree::with_files(&[("folder/index.html/index.html", "nested")]);
    let server = tree.serve();
    assert_statuses(
        &server,
        &[
            ("/folder/", 404),
            ("/folder", 301),
            ("/folder/index.html", 301),
            ("/folder/index.html/", 200),
        ],
    );
    stop(server);
}

// -- missing files and other methods

#[test]
fn serves_404_html_for_missing_files() {
    let tree =
        Tree::with_files(&[("404.html", "<p>Nothing here"), ("a.txt", "a"), (".hidden", SECRET)]);
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for target in ["/nothing", "/deep/below/nothing", "/.hidden", "/a%00b", "/..%2fsecret.txt", "/"]
    {
        let response = ask(&mut client, "GET", target);
        assert_eq!((response.status, response.text()), (404, "<p>Nothing here"), "{target}");
        assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"), "{target}");
        let head = ask(&mut client, "HEAD", target);
        assert_eq!(head.status, 404);
        assert_eq!(fields_without_date(&head), fields_without_date(&response), "{target}");
    }
    assert_bodies(&server, &[("/404.html", "<p>Nothing here"), ("/a.txt", "a")]);
    stop(server);
}

#[test]
fn serves_a_default_404_page_without_404_html() {
    let none = Tree::new();
    let folder = Tree::with_files(&[("404.html/index.html", "no")]);
    let pipe = Tree::new();
    pipe.create_fifo("404.html");
    let outside = Tree::new();
    outside.link("404.html", "../secret.txt");
    for tree in [none, folder, pipe, outside] {
        let server = tree.serve();
        let mut client = Client::connect(&server);
        let response = ask(&mut client, "GET", "/nothing");
        assert_eq!(response.status, 404);
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(response.text(), "404 Not Found\n");
        let head = ask(&mut client, "HEAD", "/nothing");
        assert_eq!(fields_without_date(&head), fields_without_date(&response));
        stop(server);
    }
}

#[test]
fn other_methods_get_405_with_allow() {
    let tree = Tree::with_files(&[("a.txt", "a"), ("404.html", "no")]);
    let server = tree.serve();
    let cases = [
        ("POST", "/a.txt"),
        ("PUT", "/new.txt"),
        ("DELETE", "/a.txt"),
        ("PATCH", "/a.txt"),
        ("OPTIONS", "/a.txt"),
        ("OPTIONS", "*"),
        ("TRACE", "/a.txt"),
        ("PROPFIND", "/"),
        ("get", "/a.txt"),
        ("POST", "/nothing"),
        ("POST", "/../secret.txt"),
    ];
    let mut client = Client::connect(&server);
    for (method, target) in cases {
        let response = ask(&mut client, method, target);
        assert_eq!(response.status, 405, "{method} {target}");
        assert_eq!(response.header("allow"), Some("GET, HEAD"), "{method} {target}");
        assert!(response.text().contains("405 Method Not Allowed"), "{method} {target}");
    }
    // An unread request body does not close the connection.
    client.send("PUT /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 405);
    client.assert_open("/a.txt");
    assert_bodies(&server, &[("/a.txt", "a")]);
    assert!(!tree.path("new.txt").exists());
    stop(server);
}

#[test]
fn head_response_has_the_fields_of_get() {
    let tree = Tree::with_files(&[("index.html", "top"), ("guide/index.html", "guide")]);
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for (target, status) in [("/", 200), ("/guide/", 200), ("/guide", 301), ("/nothing", 404)] {
        let head = ask(&mut client, "HEAD", target);
        let get = ask(&mut client, "GET", target);
        assert_eq!((head.status, get.status), (status, status), "{target}");
        assert_eq!(fields_without_date(&head), fields_without_date(&get), "{target}");
        assert_eq!(get.header("content-length"), Some(&*get.body.len().to_string()), "{target}");
    }
    stop(server);
}

// -- files that must not be served

#[test]
fn dot_files_are_hidden() {
    let tree = Tree::with_files(&[
        (".env", SECRET),
        (".git/config", SECRET),
        (".git/index.html", SECRET),
        ("folder/.env", SECRET),
        ("folder/.well-known/x", SECRET),
        (".well-known/security.txt", "Contact: here"),
        (".well-known/index.html", "index"),
        (".well-known/.env", SECRET),
        (".well-known/acme-challenge/token", "token"),
        (".well-known-not/x", SECRET),
        ("...", SECRET),
    ]);
    let server = tree.serve();
    assert_statuses(
        &server,
        &[
            ("/.env", 404),
            ("/%2eenv", 404),
            ("/%2Eenv", 404),
            ("//.env", 404),
            ("/.git", 404),
            ("/.git/", 404),
            ("/.git/config", 404),
            ("/folder/.env", 404),
            ("/folder//.env", 404),
            ("/folder/.well-known/x", 404),
            ("/.well-known/.env", 404),
            ("/.well-known/../.env", 404),
            ("/.well-known/%2e%2e/.env", 404),
            ("/.well-known%2f..%2f.env", 404),
            ("/.well-known-not/x", 404),
            ("/...", 404),
            ("/.", 404),
            ("/./", 404),
        ],
    );
    assert_bodies(
        &server,
        &[
            ("/.well-known/security.txt", "Contact: here"),
            ("/%2ewell-known/security.txt", "Contact: here"),
            ("/.well-known/", "index"),
            ("/.well-known/acme-challenge/token", "token"),
        ],
    );
    stop(server);
}

#[test]
fn paths_cannot_escape_the_root() {
    let tree = Tree::with_files(&[("folder/deep/a.txt", "a"), ("index.html", "top")]);
    let server = tree.serve();
    let targets = tree.traversal_targets();
    let cases: Vec<_> = targets.iter().map(|target| (&**target, 404)).collect();
    assert_statuses(&server, &cases);
    // Invalid request targets are rejected before they reach the application.
    for target in ["../secret.txt", "secret.txt", "/../secret.txt#a", "\\..\\secret.txt"] {
        let mut client = Client::connect_and_send(&server, request("GET", target));
        let response = client.response();
        assert_eq!(response.status, 400, "{target}");
        assert!(!response.text().contains(SECRET), "{target}");
    }
    // Bytes that are not UTF-8 are accepted only percent-encoded.
    let mut client =
        Client::connect_and_send(&server, request("GET", b"/\xc0\xae\xc0\xae/secret.txt"));
    assert_eq!(client.response().status, 400);
    stop(server);
}

#[test]
fn symlinks_are_followed_inside_the_root_only() {
    let tree =
        Tree::with_files(&[("a.txt", "a"), ("folder/b.txt", "b"), ("folder/index.html", "index")]);
    let inside = tree.path("a.txt");
    let outside = tree.outer.path().join("secret.txt");
    tree.write("out-index/x", "x");
    tree.write("up/x", "x");
    let links: [(&str, &Path); _] = [
        ("link.txt", Path::new("a.txt")),
        ("folder/link.txt", Path::new("../a.txt")),
        ("chain.txt", Path::new("link.txt")),
        ("linked-folder", Path::new("folder")),
        ("round.txt", Path::new("folder/../a.txt")),
        ("out.txt", Path::new("../secret.txt")),
        ("out-and-in.txt", Path::new("../root/a.txt")),
        ("out-folder", Path::new("..")),
        ("out-sibling", Path::new("../root-secret")),
        ("out-index/index.html", Path::new("../../secret.txt")),
        ("out-chain.txt", Path::new("out.txt")),
        ("up/up", Path::new("../..")),
        ("absolute-out.txt", &outside),
        ("absolute-in.txt", &inside),
        ("absolute-folder", Path::new("/")),
        ("magic", Path::new("/proc/self/root")),
        ("loop", Path::new("loop")),
        ("dangling", Path::new("nothing")),
    ];
    links.iter().for_each(|(name, target)| tree.link(name, target));
    let server = tree.serve();
    assert_bodies(
        &server,
        &[
            ("/link.txt", "a"),
            ("/folder/link.txt", "a"),
            ("/chain.txt", "a"),
            ("/linked-folder/b.txt", "b"),
            ("/linked-folder/", "index"),
            ("/linked-folder/link.txt", "a"),
            ("/round.txt", "a"),
        ],
    );
    assert_statuses(
        &server,
        &[
            ("/linked-folder", 301),
            ("/out.txt", 404),
            ("/out-and-in.txt", 404),
            ("/out-folder", 404),
            ("/out-folder/", 404),
            ("/out-folder/secret.txt", 404),
            ("/out-sibling", 404),
            ("/out-sibling/", 404),
            ("/out-index/", 404),
            ("/out-chain.txt", 404),
            ("/up/up/secret.txt", 404),
            ("/absolute-out.txt", 404),
            // Absolute links are never followed, not even to files inside the root.
            ("/absolute-in.txt", 404),
            ("/absolute-folder/etc/passwd", 404),
            ("/magic/etc/passwd", 404),
            ("/loop", 404),
            ("/dangling", 404),
        ],
    );
    stop(server);
}

#[test]
fn special_files_are_not_found_and_do_not_block() {
    let tree = Tree::with_files(&[("a.txt", "a"), ("folder/x", "x")]);
    tree.create_fifo("pipe");
    tree.create_fifo("folder/index.html");
    // A pipe with a reader and a writer: a server that opened it would wait for data forever.
    tree.create_fifo("busy");
    let busy = File::options().read(true).write(true).open(tree.path("busy")).unwrap();
    let socket = UnixListener::bind(tree.path("socket")).unwrap();
    let server = tree.serve();
    assert_statuses(
        &server,
        &[
            ("/pipe", 404),
            ("/pipe/", 404),
            ("/folder/", 404),
            ("/busy", 404),
            ("/socket", 404),
            ("/a.txt", 200),
        ],
    );
    drop((busy, socket));
    stop(server);
}

#[test]
fn unreadable_files_are_forbidden() {
    let tree = Tree::with_files(&[
        ("closed.txt", SECRET),
        ("closed/a.txt", SECRET),
        ("closed-index/index.html", SECRET),
        ("open.txt", "open"),
    ]);
    tree.deny_access(&["closed.txt", "closed", "closed-index/index.html"]);
    as_nobody(|| {
        assert!(File::open(tree.path("closed.txt")).is_err(), "file permissions are not enforced");
        let server = tree.serve();
        assert_statuses(
            &server,
            &[
                ("/closed.txt", 403),
                ("/closed/", 403),
                ("/closed/a.txt", 403),
                ("/closed/nothing", 403),
                ("/closed-index/", 403),
                ("/open.txt", 200),
            ],
        );
        stop(server);
    });
    // Allows the temporary directory to be removed.
    fs::set_permissions(tree.path("closed"), fs::Permissions::from_mode(0o700)).unwrap();
}

// -- concurrent requests and files that change

/// Method and target of a request, status and body of its response.
type Exchange<'a> = (&'a str, &'a str, u16, &'a [u8]);

#[test]
fn serves_pipelined_files_in_order() {
    let tree = Tree::with_files(&[("404.html", "none"), ("empty", ""), ("a.txt", "a")]);
    let large = pattern(1 << 20);
    tree.write("large", &large);
    let server = tree.serve();
    let (large, missing) = (&large[..], &b"none"[..]);
    // Each row is sent with one write.
    let rows: [&[Exchange]; _] = [
        &[("GET", "/a.txt", 200, b"a"), ("GET", "/404.html", 200, missing)],
        &[("GET", "/large", 200, large), ("GET", "/a.txt", 200, b"a")],
        &[("GET", "/a.txt", 200, b"a"), ("GET", "/large", 200, large)],
        &[("GET", "/large", 200, large), ("GET", "/large", 200, large)],
        &[
            ("HEAD", "/large", 200, b""),
            ("GET", "/nothing", 404, missing),
            ("GET", "/a.txt", 200, b"a"),
        ],
        &[("GET", "/empty", 200, b""), ("HEAD", "/empty", 200, b""), ("GET", "/empty", 200, b"")],
    ];
    let mut client = Client::connect(&server);
    for row in rows {
        client.send(row.iter().map(|r| request(r.0, r.1)).collect::<Vec<_>>().concat());
        for &(method, target, status, body) in row {
            let response = if method == "HEAD" { client.head() } else { client.response() };
            assert_eq!(response.status, status, "{method} {target}");
            assert!(response.body == body, "{method} {target}: wrong body");
        }
        assert_eq!(client.received(), b"", "bytes received after the last response");
    }
    stop(server);
}

/// Size of a file that far exceeds the socket buffers of both sides.
const LONG_FILE_BYTES: u64 = 64 << 20;

/// A client that has requested `/long` and read only the start of the response.
fn slow_reader(server: &ServerHandle) -> Client {
    let mut client = Client::connect(server);
    client.get("/long");
    while !client.received().windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        assert!(client.read() > 0, "the connection closed before the response head");
    }
    client
}

#[test]
fn truncating_a_file_while_it_is_sent_closes_the_connection() {
    let tree = Tree::with_files(&[("a.txt", "a")]);
    let file = File::create(tree.path("long")).unwrap();
    file.set_len(LONG_FILE_BYTES).unwrap();
    let server = tree.serve();
    let mut client = slow_reader(&server);
    // A pipelined request: its response must not take the place of the missing content.
    client.get("/a.txt");
    file.set_len(1 << 20).unwrap();
    while client.read() > 0 {}
    let received = client.received();
    let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert!(received.starts_with(b"HTTP/1.1 200 OK\r\n"));
    let length = format!("content-length: {LONG_FILE_BYTES}\r\n");
    assert!(received[..head].windows(length.len()).any(|bytes| bytes == length.as_bytes()));
    assert!(((received.len() - head) as u64) < LONG_FILE_BYTES, "the response must be incomplete");
    assert!(received[head..].iter().all(|&b| b == 0), "received bytes that are not from the file");
    Client::connect(&server).assert_open("/a.txt");
    stop(server);
}

#[test]
fn extending_or_replacing_a_file_does_not_change_a_response_in_flight() {
    let tree = Tree::with_files(&[("a.txt", "a"), ("new", "new")]);
    let file = File::create(tree.path("long")).unwrap();
    file.set_len(LONG_FILE_BYTES).unwrap();
    let server = tree.serve();
    let mut client = slow_reader(&server);
    file.set_len(LONG_FILE_BYTES + (1 << 20)).unwrap();
    fs::rename(tree.path("new"), tree.path("long")).unwrap();
    let response = client.response();
    assert_eq!(response.body.len() as u64, LONG_FILE_BYTES);
    assert_eq!(client.received(), b"", "the appended bytes must not be sent");
    common::until("the new file is served", || ask(&mut client, "GET", "/long").text() == "new");
    client.assert_open("/a.txt");
    stop(server);
}

#[test]
fn slow_readers_do_not_block_each_other() {
    let tree = Tree::with_files(&[("a.txt", "a")]);
    File::create(tree.path("long")).unwrap().set_len(LONG_FILE_BYTES).unwrap();
    let server = tree.serve();
    let mut readers: Vec<Client> = (0..3).map(|_| slow_reader(&server)).collect();
    // The only worker serves other clients while it waits for each of the three readers.
    Client::connect(&server).assert_open("/a.txt");
    let whole = readers.pop().unwrap().response();
    assert_eq!(whole.body.len() as u64, LONG_FILE_BYTES);
    // The other two disconnect before the end of the response.
    drop(readers);
    Client::connect(&server).assert_open("/a.txt");
    stop(server);
}

#[test]
fn cached_files_are_revalidated() {
    let tree = Tree::new();
    let write = |name: &str, text: &str, age: u64| {
        tree.write(name, text);
        let file = File::options().write(true).open(tree.path(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).unwrap();
    };
    write("a.txt", "first", 100);
    write("b.txt", "gone soon", 100);
    let server = tree.serve();
    let mut client = Client::connect(&server);
    // Files that changed recently are not cached.
    let written = std::time::Instant::now();
    common::until("the files are old enough to be cached", || {
        written.elapsed() > Duration::from_secs(4)
    });
    for _ in 0..3 {
        assert_eq!(ask(&mut client, "GET", "/a.txt").text(), "first");
        assert_eq!(ask(&mut client, "GET", "/b.txt").text(), "gone soon");
    }
    // Ranges and preconditions apply to cached files as well.
    let etag = ask(&mut client, "HEAD", "/a.txt").header("etag").unwrap().to_owned();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=1-3\r\n\r\n");
    assert_eq!(client.response().text(), "irs");
    client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: {etag}\r\n\r\n"));
    assert_eq!(client.response().status, 304);

    // New content with the same length and modification time, as some copy tools produce it.
    let same = fs::metadata(tree.path("a.txt")).unwrap().modified().unwrap();
    tree.write("a.txt", "other");
    File::options().write(true).open(tree.path("a.txt")).unwrap().set_modified(same).unwrap();
    common::until("the new content is served", || {
        ask(&mut client, "GET", "/a.txt").text() == "other"
    });

    write("a.txt", "second", 50);
    fs::remove_file(tree.path("b.txt")).unwrap();
    common::until("the new content is served", || {
        ask(&mut client, "GET", "/a.txt").text() == "second"
    });
    common::until("the file is not found", || ask(&mut client, "GET", "/b.txt").status == 404);
    write("b.txt", "back", 25);
    common::until("the new file is served", || ask(&mut client, "GET", "/b.txt").text() == "back");

    // Too large to be cached in memory, then small again.
    write("a.txt", &"x".repeat(300_000), 20);
    common::until("the large file is served", || {
        ask(&mut client, "GET", "/a.txt").body.len() == 300_000
    });
    write("a.txt", "small", 10);
    assert_eq!(
        ask(&mut client, "GET", "/a.txt").text(),
        "small",
        "the open file shows the change immediately"
    );
    stop(server);
}
