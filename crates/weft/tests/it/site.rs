//! Settings of `Directory`: variants, header fields, pages and symbolic links, tested over real
//! sockets.
#![cfg(all(feature = "brotli", feature = "files", feature = "gzip", feature = "zstd"))]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use crate::common::tree::{
    SECRET, Tree, as_nobody, ask, assert_bodies, assert_statuses, decoded, fields_without_date,
    send_request_with_fields, serve,
};
use crate::common::{Client, Response, stop, until};
use weft::header::{ACCEPT_RANGES, CONTENT_TYPE, ETAG, VARY, X_FRAME_OPTIONS};
use weft::{
    Directory, DirectorySettings, HeaderName, HeaderRule, HeaderValue, StatusCode, Symlinks,
};

/// Settings without dynamic compression. Precompressed files are still served.
fn no_compression() -> DirectorySettings {
    DirectorySettings { compress: false, ..DirectorySettings::default() }
}

/// Settings that revalidate cached files after 10 ms.
fn fast_revalidation(settings: DirectorySettings) -> DirectorySettings {
    DirectorySettings { revalidate_after: Duration::from_millis(10), ..settings }
}

/// A field line, empty without a value.
fn field_line(name: &str, value: Option<&str>) -> String {
    value.map_or(String::new(), |value| format!("{name}: {value}"))
}

fn etag(response: &Response) -> String {
    response.header("etag").expect("an ETag").to_owned()
}

fn varies_by(response: &Response) -> BTreeSet<&str> {
    let fields = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("vary"));
    fields.flat_map(|(_, value)| value.split(',')).map(str::trim).collect()
}

/// Compressible text of `length` bytes.
fn text(length: usize) -> String {
    let words = (0_u32..).flat_map(|n| format!("{} words, ", n.wrapping_mul(n)).into_bytes());
    String::from_utf8(words.take(length).collect()).unwrap()
}

/// Incompressible bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

// -- precompressed files

#[test]
fn selects_the_precompressed_file_by_weight() {
    let tree = Tree::with_files(&[
        ("style.css", "plain"),
        ("style.css.br", "brotli"),
        ("style.css.zst", "zstandard"),
        ("style.css.gz", "gzip"),
    ]);
    tree.settle();
    let server = tree.serve_with(no_compression());
    let mut client = Client::connect(&server);
    let mut etags = BTreeSet::new();
    for (accepted, coding) in [
        (None, None),
        (Some(""), None),
        (Some("identity"), None),
        (Some("deflate"), None),
        (Some("br"), Some("br")),
        (Some("BR"), Some("br")),
        (Some("zstd"), Some("zstd")),
        (Some("gzip"), Some("gzip")),
        (Some("x-gzip"), Some("gzip")),
        (Some("gzip, deflate, br, zstd"), Some("br")),
        (Some("gzip, deflate"), Some("gzip")),
        (Some("gzip, zstd"), Some("zstd")),
        (Some("br;q=0.1, gzip;q=0.2"), Some("gzip")),
        (Some("br;q=0, gzip;q=0, *;q=0.1"), Some("zstd")),
        (Some("identity;q=1, br;q=0.5"), None),
        (Some("identity;q=0.5, br;q=1"), Some("br")),
        (Some("identity;q=0, gzip"), Some("gzip")),
        (Some("*"), Some("br")),
        (Some("*;q=0"), None),
        (Some("gzip;q=0"), None),
        (Some("gzip;q=0, *"), Some("br")),
        (Some("gzip;q=nonsense"), None),
    ] {
        let fields = field_line("Accept-Encoding", accepted);
        let get = send_request_with_fields(&mut client, "GET", "/style.css", &fields);
        let body = match coding {
            None => "plain",
            Some("br") => "brotli",
            Some("zstd") => "zstandard",
            Some(_) => "gzip",
        };
        assert_eq!((get.status, get.text()), (200, body), "{accepted:?}");
        assert_eq!(get.header("content-encoding"), coding, "{accepted:?}");
        assert_eq!(get.header("content-type"), Some("text/css; charset=utf-8"), "{accepted:?}");
        assert_eq!(varies_by(&get), BTreeSet::from(["accept-encoding"]), "{accepted:?}");
        assert!(get.header("last-modified").is_some(), "{accepted:?}");
        let etag = etag(&get);
        assert!(etag.starts_with('"'), "{accepted:?}: {etag} is weak");
        etags.insert((etag.clone(), body));

        let head = send_request_with_fields(&mut client, "HEAD", "/style.css", &fields);
        assert_eq!(fields_without_date(&head), fields_without_date(&get), "{accepted:?}");

        let known = format!("{fields}\r\nIf-None-Match: {etag}").trim_start().to_owned();
        let same = send_request_with_fields(&mut client, "GET", "/style.css", &known);
        assert_eq!((same.status, same.header("etag")), (304, Some(&*etag)), "{accepted:?}");
        assert_eq!(varies_by(&same), BTreeSet::from(["accept-encoding"]), "{accepted:?}");
        assert_eq!(same.header("content-encoding"), None, "{accepted:?}");

        let range = format!("{fields}\r\nRange: bytes=1-3\r\nIf-Range: {etag}");
        let part = send_request_with_fields(&mut client, "GET", "/style.css", range.trim_start());
        assert_eq!((part.status, part.text()), (206, &body[1..4]), "{accepted:?}");
        assert_eq!(part.header("content-encoding"), coding, "{accepted:?}");
        let expected = format!("bytes 1-3/{}", body.len());
        assert_eq!(part.header("content-range"), Some(&*expected), "{accepted:?}");
        assert_eq!(part.header("etag"), Some(&*etag), "{accepted:?}");
    }
    assert_eq!(etags.len(), 4, "each variant has its own ETag: {etags:?}");
    // The ETag of one variant does not match another variant.
    for (etag, of) in &etags {
        for coding in ["identity", "br", "zstd", "gzip"] {
            let fields = format!("Accept-Encoding: {coding}\r\nIf-None-Match: {etag}");
            let response = send_request_with_fields(&mut client, "GET", "/style.css", &fields);
            let is_own = match coding {
                "identity" => *of == "plain",
                coding => of.starts_with(coding) || (coding, *of) == ("zstd", "zstandard"),
            };
            assert_eq!(response.status == 304, is_own, "{etag} of {of} for {coding}");
        }
    }
    stop(server);
}

#[test]
fn serves_the_best_precompressed_file_that_exists() {
    let tree = Tree::with_files(&[
        ("only-gz.html", "plain"),
        ("only-gz.html.gz", "gzip"),
        ("no-br.js", "plain"),
        ("no-br.js.gz", "gzip"),
        ("no-br.js.zst", "zstd"),
        ("none.html", "plain"),
        ("picture.png", "plain"),
        ("picture.png.gz", "gzip"),
        ("unknown", "plain"),
        ("unknown.br", "br"),
        ("folder/index.html", "plain"),
        ("folder/index.html.br", "br"),
        ("alone.css.br", "br"),
    ]);
    // A name of 255 bytes, the maximum, so that no precompressed file can exist.
    let long = format!("/{}.html", "n".repeat(250));
    tree.write(&long[1..], "plain");
    let all = "Accept-Encoding: gzip, zstd, br";
    for settings in [no_compression(), DirectorySettings::default()] {
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        for (target, coding, varies) in [
            ("/only-gz.html", Some("gzip"), true),
            ("/no-br.js", Some("zstd"), true),
            ("/none.html", None, false),
            ("/picture.png", None, false),
            ("/unknown", None, false),
            ("/folder/", Some("br"), true),
            (&long, None, false),
        ] {
            let response = send_request_with_fields(&mut client, "GET", target, all);
            let body = coding.unwrap_or("plain");
            assert_eq!((response.status, response.text()), (200, body), "{target}");
            assert_eq!(response.header("content-encoding"), coding, "{target}");
            assert_eq!(response.header("vary").is_some(), varies, "{target}");
            // Without Accept-Encoding, the plain file is served with the same Vary.
            let plain = ask(&mut client, "GET", target);
            assert_eq!((plain.status, plain.text()), (200, "plain"), "{target}");
            assert_eq!(plain.header("vary"), response.header("vary"), "{target}");
        }
        // A precompressed file can be requested itself, and does not replace a missing plain file.
        let file = send_request_with_fields(&mut client, "GET", "/only-gz.html.gz", all);
        assert_eq!((file.text(), file.header("content-encoding")), ("gzip", None));
        assert_eq!(file.header("content-type"), Some("application/gzip"));
        assert_eq!(send_request_with_fields(&mut client, "GET", "/alone.css", all).status, 404);
        stop(server);
    }
    let settings = DirectorySettings { precompressed: false, ..no_compression() };
    let server = tree.serve_with(settings);
    let response =
        send_request_with_fields(&mut Client::connect(&server), "GET", "/only-gz.html", all);
    assert_eq!((response.text(), response.header("vary")), ("plain", None));
    stop(server);
}

#[test]
fn ignores_precompressed_files_older_than_the_plain_file() {
    let tree = Tree::new();
    // Ages in seconds of the plain, the brotli and the gzip file, and the coding that is served.
    let cases = [
        ("older.css", 100, 101, 200, None),
        ("same.css", 100, 100, 200, Some("br")),
        ("newer.css", 100, 50, 60, Some("br")),
        ("one.css", 100, 101, 99, Some("gzip")),
    ];
    let now = std::time::SystemTime::now();
    for (name, file, br, gz, _) in cases {
        for (name, age) in
            [(name.to_owned(), file), (format!("{name}.br"), br), (format!("{name}.gz"), gz)]
        {
            tree.write(&name, "x");
            let file = fs::File::options().write(true).open(tree.path(&name)).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
        }
    }
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for (name, _, _, _, coding) in cases {
        let fields = "Accept-Encoding: br, gzip";
        let response = send_request_with_fields(&mut client, "GET", format!("/{name}"), fields);
        assert_eq!(response.header("content-encoding"), coding, "{name}");
    }
    stop(server);
}

#[test]
fn detects_added_removed_and_changed_precompressed_files() {
    let tree = Tree::with_files(&[("a.css", "plain"), ("b.css", "plain")]);
    tree.set_age("a.css", 100);
    tree.set_age("b.css", 100);
    // `a.css` is old enough to be cached in memory, `b.css` is not.
    tree.settle();
    tree.write("b.css", "plain");
    let server = tree.serve_with(fast_revalidation(no_compression()));
    let mut client = Client::connect(&server);
    let mut seen = |target: &str| {
        let response =
            send_request_with_fields(&mut client, "GET", target, "Accept-Encoding: br, gzip");
        assert_eq!(response.header("content-encoding").is_some(), response.text() != "plain");
        (response.text().to_owned(), response.header("vary").is_some())
    };
    let mut wait_for = |description: &str, target: &str, body: &str| {
        let expected = (body.to_owned(), body != "plain");
        until(description, || seen(target) == expected);
    };
    for name in ["a.css", "b.css"] {
        let target = format!("/{name}");
        let (gz, br) = (format!("{name}.gz"), format!("{name}.br"));
        wait_for("the plain file is served at first", &target, "plain");
        tree.write(&gz, "gzip");
        wait_for("the gzip file is served", &target, "gzip");
        tree.write(&br, "brotli");
        wait_for("the brotli file is preferred", &target, "brotli");
        tree.replace(&br, "another");
        wait_for("the replaced file is served", &target, "another");
        tree.write(&br, "a longer text");
        wait_for("the overwritten file is served", &target, "a longer text");
        fs::remove_file(tree.path(&br)).unwrap();
        wait_for("the gzip file is served again", &target, "gzip");
        tree.set_age(&gz, 1_000);
        wait_for("the outdated file is ignored", &target, "plain");
        fs::remove_file(tree.path(&gz)).unwrap();
        wait_for("the plain file is served at last", &target, "plain");
    }
    stop(server);
}

#[test]
fn finds_precompressed_files_after_requests_without_a_coding() {
    let tree = Tree::new();
    let page = text(2_000);
    for name in ["a.css", "b.css"] {
        tree.write(name, &page);
    }
    tree.write("a.css.br", "brotli");
    tree.settle();
    let settings = DirectorySettings {
        revalidate_after: Duration::from_secs(86_400),
        ..DirectorySettings::default()
    };
    for name in ["/a.css", "/b.css"] {
        let server = tree.serve_with(settings.clone());
        let mut client = Client::connect(&server);
        let mut get = |fields: &str| send_request_with_fields(&mut client, "GET", name, fields);
        let vary = BTreeSet::from(["accept-encoding"]);
        let assert_plain = |response: &Response| {
            assert_eq!((response.status, response.text()), (200, &*page), "{name}");
            assert_eq!(response.header("content-encoding"), None, "{name}");
            assert_eq!(varies_by(response), vary, "{name}");
        };
        let [first, second] = [get(""), get("Accept-Encoding: br;q=0.1, identity")];
        assert_plain(&first);
        assert_plain(&second);
        // No lookup is due, but this request needs the precompressed file.
        let coded = get("Accept-Encoding: br");
        assert_eq!(coded.header("content-encoding"), Some("br"), "{name}");
        assert_eq!(coded.body == b"brotli", name == "/a.css", "{name}");
        assert_eq!(varies_by(&coded), vary, "{name}");
        assert_ne!(etag(&coded), etag(&first), "{name}");
        assert_plain(&get(""));
        let known = format!("If-None-Match: {}", etag(&first));
        assert_eq!(get(&known).status, 304, "{name}");
        stop(server);
    }
}

#[test]
fn detects_precompressed_files_between_requests_without_a_coding() {
    let tree = Tree::new();
    let page = text(2_000);
    tree.write("a.css", &page);
    tree.settle();
    let server = tree.serve_with(fast_revalidation(DirectorySettings::default()));
    let mut client = Client::connect(&server);
    let mut get = |fields: &str| send_request_with_fields(&mut client, "GET", "/a.css", fields);
    let precompressed = |response: Response| {
        assert!(response.header("content-encoding").is_some());
        response.body == b"gzip"
    };
    assert_eq!(get("").text(), page);
    tree.write("a.css.gz", "gzip");
    assert_eq!(get("").text(), page);
    until("the precompressed file is served", || precompressed(get("Accept-Encoding: gzip")));
    assert_eq!(get("").text(), page);
    fs::remove_file(tree.path("a.css.gz")).unwrap();
    until("the file is compressed", || {
        assert_eq!(get("").text(), page);
        !precompressed(get("Accept-Encoding: gzip"))
    });
    stop(server);
}

#[test]
fn ignores_precompressed_files_that_are_not_readable_files() {
    let tree = Tree::new();
    let names = ["folder", "pipe", "socket", "dangling", "outside", "loop", "closed"];
    for name in names {
        tree.write(format!("{name}.css"), "plain");
    }
    fs::create_dir(tree.path("folder.css.br")).unwrap();
    tree.create_fifo("pipe.css.br");
    let socket = UnixListener::bind(tree.path("socket.css.br")).unwrap();
    tree.link("dangling.css.br", "nothing");
    tree.link("outside.css.br", "../secret.txt");
    tree.link("loop.css.br", "loop.css.br");
    tree.write("closed.css.br", SECRET);
    // Written after the plain file, so that it is not ignored as outdated.
    tree.write("closed.css.gz", "gzip");
    tree.deny_access(&["closed.css.br"]);
    as_nobody(|| {
        assert!(fs::read(tree.path("closed.css.br")).is_err(), "file permissions are not enforced");
        let server = tree.serve_with(no_compression());
        let mut client = Client::connect(&server);
        for name in names {
            let fields = "Accept-Encoding: br";
            let response =
                send_request_with_fields(&mut client, "GET", format!("/{name}.css"), fields);
            assert_eq!((response.status, response.text()), (200, "plain"), "{name}");
            assert_eq!(response.header("content-encoding"), None, "{name}");
        }
        let other = send_request_with_fields(
            &mut client,
            "GET",
            "/closed.css",
            "Accept-Encoding: br, gzip",
        );
        assert_eq!((other.status, other.text()), (200, "gzip"));
        stop(server);
    });
    drop(socket);
}

// -- dynamic compression

#[test]
fn compresses_text_files_dynamically() {
    let tree = Tree::new();
    let types = ["html", "css", "js", "json", "svg", "txt", "xml", "wasm"];
    types.iter().for_each(|end| tree.write(format!("a.{end}"), text(30_000)));
    tree.settle();
    let server = tree.serve();
    let mut client = Client::connect(&server);
    for end in types {
        let target = format!("/a.{end}");
        let plain = ask(&mut client, "GET", &target);
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{end}");
        assert!(plain.text() == text(30_000), "{end}");
        assert_eq!(varies_by(&plain), BTreeSet::from(["accept-encoding"]), "{end}");
        let strong = etag(&plain);
        assert!(strong.starts_with('"'), "{end}");
        let weak = format!("W/{strong}");
        for coding in ["br", "zstd", "gzip"] {
            let fields = format!("Accept-Encoding: {coding}");
            let mut get = || send_request_with_fields(&mut client, "GET", &target, &fields);
            let (first, second) = (get(), get());
            assert_eq!((first.status, first.header("content-encoding")), (200, Some(coding)));
            assert!(first.body.len() < 15_000, "{end} {coding}: {} bytes", first.body.len());
            assert!(decoded(&first) == plain.body, "{end} {coding}");
            assert_eq!(
                first.header("content-type"),
                plain.header("content-type"),
                "{end} {coding}"
            );
            assert_eq!(varies_by(&first), BTreeSet::from(["accept-encoding"]), "{end} {coding}");
            assert_eq!(etag(&first), weak, "{end} {coding}");
            for name in ["last-modified", "accept-ranges"] {
                assert!(plain.header(name).is_some(), "{name}");
                assert_eq!(first.header(name), plain.header(name), "{end} {coding} {name}");
            }
            assert!(second.body == first.body, "{end} {coding}");
            assert_eq!(fields_without_date(&second), fields_without_date(&first), "{end} {coding}");
            let head = send_request_with_fields(&mut client, "HEAD", &target, &fields);
            assert_eq!(fields_without_date(&head), fields_without_date(&first), "{end} {coding}");
            for known in [&weak, &strong] {
                let fields = format!("{fields}\r\nIf-None-Match: {known}");
                let same = send_request_with_fields(&mut client, "GET", &target, &fields);
                assert_eq!((same.status, etag(&same)), (304, weak.clone()), "{end} {coding}");
                assert_eq!(varies_by(&same), BTreeSet::from(["accept-encoding"]));
            }
            // Ranges apply to the uncompressed file: only that has a strong ETag.
            let ranges = format!("{fields}\r\nRange: bytes=100-199");
            let part = send_request_with_fields(&mut client, "GET", &target, &ranges);
            assert_eq!((part.status, part.header("content-encoding")), (206, None));
            assert!(part.body == plain.body[100..200], "{end} {coding}");
            assert_eq!(etag(&part), strong, "{end} {coding}");
            assert_eq!(varies_by(&part), BTreeSet::from(["accept-encoding"]));
            for (known, status) in [(&strong, 206), (&weak, 200)] {
                let fields = format!("{ranges}\r\nIf-Range: {known}");
                let response = send_request_with_fields(&mut client, "GET", &target, &fields);
                assert_eq!(response.status, status, "{end} {coding} {known}");
                let whole = decoded(&response);
                let expected = if status == 206 { &plain.body[100..200] } else { &plain.body };
                assert!(whole == expected, "{end} {coding} {known}");
            }
        }
    }
    stop(server);
}

#[test]
fn head_does_not_compress_and_has_the_fields_of_get() {
    let tree = Tree::new();
    tree.write("young.html", text(5_000));
    let server = tree.serve();
    let mut client = Client::connect(&server);
    tree.write("settled.html", text(5_000));
    tree.settle();
    for target in ["/young.html", "/settled.html"] {
        let mut ask = |method: &str, fields: &str| {
            let fields = format!("Accept-Encoding: zstd{fields}");
            send_request_with_fields(&mut client, method, target, &fields)
        };
        // The length is known only after a compression, and two requests have not caused one.
        let heads = [ask("HEAD", ""), ask("HEAD", "")];
        let known = ask("HEAD", &format!("\r\nIf-None-Match: {}", etag(&heads[0])));
        let get = ask("GET", "");
        assert_eq!((get.status, get.header("content-encoding")), (200, Some("zstd")));
        let framing = ["content-length", "transfer-encoding"];
        let is_other = |(name, _): &&(String, String)| !framing.contains(&name.as_str());
        let fields = |response: &Response| -> Vec<_> {
            let all = fields_without_date(response);
            let mut others: Vec<_> = all.iter().filter(is_other).cloned().collect();
            others.sort();
            others
        };
        for head in heads {
            assert_eq!(head.header("content-length"), None, "{target}");
            assert_eq!(fields(&head), fields(&get), "{target}");
        }
        assert_eq!((known.status, etag(&known)), (304, etag(&get)), "{target}");
        let head = ask("HEAD", "");
        assert_eq!(fields_without_date(&head), fields_without_date(&get), "{target}");
    }
    stop(server);
}

#[test]
fn popular_files_are_compressed_with_more_effort_and_kept() {
    let tree = Tree::new();
    // The fast level of zstd does not find a repetition at this distance.
    let contents = text(100_000).repeat(2);
    tree.write("popular.txt", &contents);
    tree.write("other.txt", &contents);
    tree.settle();
    let evict_after = Duration::from_secs(1);
    let server = tree.serve_with(DirectorySettings { evict_after, ..Default::default() });
    for coding in ["br", "zstd"] {
        let mut client = Client::connect(&server);
        let mut ask = |method: &str, name: &str| {
            let fields = format!("Accept-Encoding: {coding}");
            let response =
                send_request_with_fields(&mut client, method, format!("/{name}.txt"), &fields);
            assert_eq!(response.header("content-encoding"), Some(coding));
            response
        };
        let first = ask("GET", "popular");
        assert_eq!(ask("GET", "other").body, first.body);
        // HEAD does not make a file popular.
        (0..100).for_each(|_| assert!(ask("HEAD", "other").body.is_empty()));
        let best = std::cell::OnceCell::new();
        until("the file is compressed with more effort", || {
            let response = ask("GET", "popular");
            assert_eq!(etag(&response), etag(&first), "{coding}");
            assert!(decoded(&response) == contents.as_bytes(), "{coding}");
            response.body.len() < first.body.len() && best.set(response).is_ok()
        });
        let best = best.into_inner().unwrap();
        // The other file is evicted, so the length of its compressed form is not known.
        until("the other file is evicted", || {
            std::thread::sleep(2 * evict_after);
            ask("HEAD", "other").header("content-length").is_none()
        });
        let head = ask("HEAD", "popular");
        assert_eq!(head.header("content-length"), Some(&*best.body.len().to_string()));
    }
    stop(server);
}

#[test]
fn compression_depends_on_type_and_size() {
    let tree = Tree::new();
    let settings = |max_compressed_bytes| DirectorySettings {
        max_compressed_bytes,
        media_types: vec![("odd".into(), HeaderValue::from_static("text/odd"))],
        ..DirectorySettings::default()
    };
    let large = text(100_001);
    // Name, content, and the expected presence of Content-Encoding and of Vary.
    for (name, contents, compressed, varies) in [
        ("1023.txt", &large[..1_023], false, false),
        ("1024.txt", &large[..1_024], true, true),
        ("100000.txt", &large[..100_000], true, true),
        ("100001.txt", &large[..], false, false),
        ("a.png", &large[..5_000], false, false),
        ("a.woff2", &large[..5_000], false, false),
        ("a.zip", &large[..5_000], false, false),
        ("a", &large[..5_000], false, false),
        ("a.odd", &large[..5_000], true, true),
        ("a.css.gz", &large[..5_000], false, false),
    ] {
        tree.write(name, contents);
        let server = tree.serve_with(settings(100_000));
        let mut client = Client::connect(&server);
        for fields in ["Accept-Encoding: gzip, br", "Accept-Encoding: *"] {
            let response = send_request_with_fields(&mut client, "GET", format!("/{name}"), fields);
            assert!(decoded(&response) == contents.as_bytes(), "{name}");
            assert_eq!(response.header("content-encoding").is_some(), compressed, "{name}");
            assert_eq!(response.header("vary").is_some(), varies, "{name}");
            assert!(etag(&response).starts_with("W/") || !compressed, "{name}");
        }
        stop(server);
    }
    // Files that do not become smaller are served as they are, and the server stores the result
    // instead of compressing them for each request.
    tree.write("noise.txt", noise(5_000));
    tree.settle();
    let server = tree.serve_with(settings(100_000));
    let mut client = Client::connect(&server);
    for _ in 0..2 {
        let fields = "Accept-Encoding: br";
        let response = send_request_with_fields(&mut client, "GET", "/noise.txt", fields);
        assert!(response.body == noise(5_000));
        assert_eq!(response.header("content-encoding"), None);
        assert!(etag(&response).starts_with('"'));
        assert_eq!(varies_by(&response), BTreeSet::from(["accept-encoding"]));
    }
    stop(server);
    let server = tree.serve_with(no_compression());
    let response = send_request_with_fields(
        &mut Client::connect(&server),
        "GET",
        "/1024.txt",
        "Accept-Encoding: br",
    );
    let fields = (response.header("content-encoding"), response.header("vary"));
    assert_eq!((response.text(), fields), (&large[..1_024], (None, None)));
    stop(server);
}

#[test]
fn changed_files_are_compressed_again() {
    let tree = Tree::new();
    let (first, second) = (text(20_000), text(20_001).to_uppercase());
    tree.write("kept.txt", &first);
    tree.settle();
    // A recently changed file is compressed again in any case.
    tree.write("young.txt", &first);
    let server = tree.serve_with(fast_revalidation(DirectorySettings::default()));
    let mut client = Client::connect(&server);
    for (target, name) in [("/kept.txt", "kept.txt"), ("/young.txt", "young.txt")] {
        let mut get =
            || send_request_with_fields(&mut client, "GET", target, "Accept-Encoding: br");
        let before = (0..3).map(|_| get()).last().unwrap();
        assert!(decoded(&before) == first.as_bytes(), "{name}");
        assert_eq!(before.header("content-encoding"), Some("br"));
        for (contents, by_rename) in [(&second, true), (&first, false)] {
            match by_rename {
                true => tree.replace(name, contents),
                false => tree.write(name, contents),
            }
            until("the new content is served", || {
                let response = get();
                assert_eq!(response.header("content-encoding"), Some("br"));
                let text = decoded(&response);
                assert!(text == first.as_bytes() || text == second.as_bytes(), "{name}");
                text == contents.as_bytes()
            });
            assert_ne!(etag(&get()), etag(&before), "{name}");
        }
    }
    stop(server);
}

#[test]
fn serves_concurrent_requests_for_files_not_yet_compressed() {
    let tree = Tree::new();
    (0..8).for_each(|at| tree.write(format!("{at}.html"), text(100_000 + at)));
    tree.settle();
    let server = tree.serve();
    let mut clients: Vec<_> = (0..40).map(|_| Client::connect(&server)).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let target = at % 8;
        client.send(format!(
            "GET /{target}.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br, gzip\r\n\r\n"
        ));
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let response = client.response();
        assert!(decoded(&response) == text(100_000 + at % 8).as_bytes(), "{at}");
        let is_weak = etag(&response).starts_with("W/");
        assert_eq!(is_weak, response.header("content-encoding").is_some(), "{at}");
    }
    let last = send_request_with_fields(&mut clients[0], "GET", "/7.html", "Accept-Encoding: br");
    assert_eq!(last.header("content-encoding"), Some("br"), "compressed in the end");
    stop(server);
}

// -- languages

fn with_languages(languages: &[&str], settings: DirectorySettings) -> DirectorySettings {
    let languages = languages.iter().map(|&tag| tag.to_owned()).collect();
    DirectorySettings { languages, ..settings }
}

#[test]
fn selects_the_language_by_weight() {
    let tree = Tree::with_files(&[
        ("about.html", "about"),
        ("about.html.ja", "ja: about"),
        ("about.html.de", "de: about"),
        ("index.html", "index"),
        ("index.html.de", "de: index"),
        ("folder/index.html", "folder"),
        ("folder/index.html.ja", "ja: folder"),
        ("only.html.de", "de: only"),
        ("style.css", "style"),
        ("style.css.de", "de: style"),
        ("about.html.fr", "fr: not configured"),
    ]);
    let server = tree.serve_with(with_languages(&["ja", "de"], no_compression()));
    let mut client = Client::connect(&server);
    for (target, accepted, language, body) in [
        ("/about.html", None, None, "about"),
        ("/about.html", Some(""), None, "about"),
        ("/about.html", Some("en"), None, "about"),
        ("/about.html", Some("fr"), None, "about"),
        ("/about.html", Some("ja"), Some("ja"), "ja: about"),
        ("/about.html", Some("DE"), Some("de"), "de: about"),
        ("/about.html", Some("de-CH, en;q=0.5"), Some("de"), "de: about"),
        ("/about.html", Some("ja;q=0.2, de;q=0.8"), Some("de"), "de: about"),
        ("/about.html", Some("en, ja;q=0.5"), Some("ja"), "ja: about"),
        ("/about.html", Some("de;q=0"), None, "about"),
        ("/about.html", Some("de;q=0, *;q=0.1"), Some("ja"), "ja: about"),
        ("/", Some("de"), Some("de"), "de: index"),
        ("/", Some("ja"), None, "index"),
        ("/index.html", Some("de"), Some("de"), "de: index"),
        ("/folder/", Some("ja, de"), Some("ja"), "ja: folder"),
        ("/folder/", Some("de, ja;q=0.5"), Some("ja"), "ja: folder"),
    ] {
        let fields = field_line("Accept-Language", accepted);
        let get = send_request_with_fields(&mut client, "GET", target, &fields);
        assert_eq!((get.status, get.text()), (200, body), "{target} {accepted:?}");
        assert_eq!(get.header("content-language"), language, "{target} {accepted:?}");
        assert_eq!(get.header("content-type"), Some("text/html; charset=utf-8"), "{target}");
        assert_eq!(varies_by(&get), BTreeSet::from(["accept-language"]), "{target} {accepted:?}");
        let head = send_request_with_fields(&mut client, "HEAD", target, &fields);
        assert_eq!(fields_without_date(&head), fields_without_date(&get), "{target} {accepted:?}");
        let known = format!("{fields}\r\nIf-None-Match: {}", etag(&get));
        let same = send_request_with_fields(&mut client, "GET", target, known.trim_start());
        assert_eq!((same.status, etag(&same)), (304, etag(&get)), "{target} {accepted:?}");
        assert_eq!(varies_by(&same), BTreeSet::from(["accept-language"]), "{target}");
        let range = format!("{fields}\r\nRange: bytes=-1");
        let part = send_request_with_fields(&mut client, "GET", target, range.trim_start());
        assert_eq!((part.status, part.text()), (206, &body[body.len() - 1..]), "{target}");
    }
    // Only HTML pages have languages, and the page without a language must exist.
    let style = send_request_with_fields(&mut client, "GET", "/style.css", "Accept-Language: de");
    assert_eq!((style.text(), style.header("vary")), ("style", None));
    assert_eq!(
        send_request_with_fields(&mut client, "GET", "/only.html", "Accept-Language: de").status,
        404
    );
    stop(server);
}

#[test]
fn combines_languages_and_codings() {
    let tree = Tree::with_files(&[
        ("a.html.ja", "ja, plain"),
        ("a.html.ja.br", "ja, br"),
        ("a.html.ja.gz", "ja, gzip"),
        ("a.html.gz", "gzip"),
    ]);
    let (page, german) = (text(3_000), text(2_000));
    tree.write("a.html", &page);
    tree.write("a.html.gz", "gzip");
    tree.write("a.html.de", &german);
    tree.settle();
    let server = tree.serve_with(with_languages(&["de", "ja"], DirectorySettings::default()));
    let mut client = Client::connect(&server);
    let mut etags = BTreeSet::new();
    for (languages, codings, language, coding, body) in [
        ("ja", "br, gzip", Some("ja"), Some("br"), "ja, br"),
        ("ja", "gzip", Some("ja"), Some("gzip"), "ja, gzip"),
        ("ja", "zstd", Some("ja"), None, "ja, plain"),
        ("ja", "identity", Some("ja"), None, "ja, plain"),
        ("en", "gzip", None, Some("gzip"), "gzip"),
        ("en", "identity", None, None, &*page),
        ("de", "identity", Some("de"), None, &*german),
        ("de", "gzip", Some("de"), Some("gzip"), &*german),
        ("de", "br", Some("de"), Some("br"), &*german),
    ] {
        let fields = format!("Accept-Language: {languages}\r\nAccept-Encoding: {codings}");
        let response = send_request_with_fields(&mut client, "GET", "/a.html", &fields);
        let is_dynamic = language == Some("de");
        let found = if is_dynamic { decoded(&response) } else { response.body.clone() };
        assert!(found == body.as_bytes(), "{fields}");
        assert_eq!(response.header("content-language"), language, "{fields}");
        assert_eq!(response.header("content-encoding"), coding, "{fields}");
        assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"), "{fields}");
        let vary = BTreeSet::from(["accept-encoding", "accept-language"]);
        assert_eq!(varies_by(&response), vary, "{fields}");
        etags.insert(etag(&response));
    }
    // Dynamically compressed variants of one file share a weak ETag.
    assert_eq!(etags.len(), 7, "{etags:?}");
    stop(server);
}

#[test]
fn header_rules_do_not_duplicate_fields() {
    let tree = Tree::with_files(&[("a.txt", "a")]);
    let headers = vec![rule("*", ACCEPT_RANGES, "none"), rule("*", ETAG, "\"mine\"")];
    let server =
        tree.serve_with(fast_revalidation(DirectorySettings { headers, ..no_compression() }));
    let mut client = Client::connect(&server);
    // First a file that has just changed, then the same file from the cache.
    for _ in 0..2 {
        let response = ask(&mut client, "GET", "/a.txt");
        for (name, expected) in [("accept-ranges", "none"), ("etag", "\"mine\"")] {
            let fields = response.headers.iter().filter(|(other, _)| other == name);
            let values: Vec<_> = fields.map(|(_, value)| value.as_str()).collect();
            assert_eq!(values, [expected], "{name}");
        }
        tree.settle();
        std::thread::sleep(Duration::from_millis(20));
    }
    stop(server);
}

#[test]
fn language_can_have_the_name_of_a_coding() {
    let tree = Tree::with_files(&[("a.html", "a"), ("a.html.br", "br: a"), ("a.css", "c")]);
    tree.write("a.css.br", "br, c");
    let server = tree.serve_with(with_languages(&["br"], no_compression()));
    let mut client = Client::connect(&server);
    for (target, languages, language, coding, body) in [
        ("/a.html", "en", None, None, "a"),
        ("/a.html", "br", Some("br"), None, "br: a"),
        ("/a.css", "br", None, Some("br"), "br, c"),
    ] {
        let fields = format!("Accept-Language: {languages}\r\nAccept-Encoding: br");
        let response = send_request_with_fields(&mut client, "GET", target, &fields);
        assert_eq!((response.status, response.text()), (200, body), "{target} {languages}");
        assert_eq!(response.header("content-language"), language, "{target} {languages}");
        assert_eq!(response.header("content-encoding"), coding, "{target} {languages}");
    }
    stop(server);
}

#[test]
fn detects_a_renamed_variant() {
    let tree = Tree::with_files(&[("a.html", "a"), ("a.html.en", "en: a")]);
    tree.link("a.html.fr", "a.html.en");
    tree.settle();
    let server =
        tree.serve_with(fast_revalidation(with_languages(&["en", "fr", "it"], no_compression())));
    let mut client = Client::connect(&server);
    let mut languages = || {
        ["fr", "it"].map(|tag| {
            let response = send_request_with_fields(
                &mut client,
                "GET",
                "/a.html",
                &format!("Accept-Language: {tag}"),
            );
            response.header("content-language").map(str::to_owned)
        })
    };
    assert_eq!(languages(), [Some("fr".to_owned()), None]);
    fs::remove_file(tree.path("a.html.fr")).unwrap();
    tree.link("a.html.it", "a.html.en");
    until("the new name is served", || languages() == [None, Some("it".to_owned())]);
    stop(server);
}

#[test]
fn detects_added_removed_and_unreadable_languages() {
    let tree = Tree::with_files(&[("a.html", "a"), ("b.html", "b"), ("b.html.de", SECRET)]);
    tree.deny_access(&["b.html.de"]);
    as_nobody(|| {
        let server = tree.serve_with(fast_revalidation(with_languages(&["de"], no_compression())));
        let mut client = Client::connect(&server);
        // An unreadable variant is ignored, whatever language is accepted.
        for languages in ["en", "de"] {
            let fields = format!("Accept-Language: {languages}");
            let response = send_request_with_fields(&mut client, "GET", "/b.html", &fields);
            assert_eq!((response.status, response.text()), (200, "b"), "{languages}");
        }
        stop(server);
    });
    let server = tree.serve_with(fast_revalidation(with_languages(&["de"], no_compression())));
    let mut client = Client::connect(&server);
    let mut text = || {
        let response =
            send_request_with_fields(&mut client, "GET", "/a.html", "Accept-Language: de");
        assert_eq!(response.header("content-language").is_some(), response.text() != "a");
        response.text().to_owned()
    };
    assert_eq!(text(), "a");
    tree.write("a.html.de", "de");
    until("the added file is served", || text() == "de");
    tree.replace("a.html.de", "de, new");
    until("the replaced file is served", || text() == "de, new");
    tree.write("a.html.de.br", "br");
    fs::remove_file(tree.path("a.html.de")).unwrap();
    until("the removed file is not served", || text() == "a");
    stop(server);
}

// -- header rules

fn rule(pattern: &str, name: HeaderName, value: &'static str) -> HeaderRule {
    HeaderRule::new(pattern, name, HeaderValue::from_static(value))
}

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

// -- index, fallback and error pages

#[test]
fn serves_the_first_index_that_exists() {
    let tree = Tree::with_files(&[
        ("both/index.htm", "htm"),
        ("both/index.html", "html"),
        ("second/index.html", "html"),
        ("third/default.txt", "default"),
        ("folder/index.htm/x", "x"),
        ("folder/default.txt", "default"),
        ("none/other.html", "other"),
    ]);
    let index = ["index.htm", "index.html", "default.txt"].map(str::to_owned).into();
    let settings = DirectorySettings { index, ..fast_revalidation(no_compression()) };
    let server = tree.serve_with(settings);
    assert_bodies(
        &server,
        &[
            ("/both/", "htm"),
            ("/second/", "html"),
            ("/third/", "default"),
            // A directory with the name of an index is not an index.
            ("/folder/", "default"),
        ],
    );
    assert_statuses(&server, &[("/none/", 404), ("/none", 301), ("/", 404)]);
    let mut client = Client::connect(&server);
    let response = ask(&mut client, "GET", "/third/");
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    tree.write("third/index.html", "html");
    until("the preferred index is served", || ask(&mut client, "GET", "/third/").text() == "html");
    fs::remove_file(tree.path("both/index.htm")).unwrap();
    until("the next index is served", || ask(&mut client, "GET", "/both/").text() == "html");
    stop(server);
    let server = tree.serve_with(DirectorySettings { index: Vec::new(), ..no_compression() });
    assert_statuses(&server, &[("/both/", 404), ("/both/index.htm/", 404), ("/second/", 404)]);
    assert_bodies(&server, &[("/second/index.html", "html")]);
    stop(server);
}

#[test]
fn serves_the_fallback_page_for_missing_pages() {
    let tree = Tree::with_files(&[
        ("app.html", "app"),
        ("a.css", "a"),
        ("404.html", "none"),
        ("folder/x.txt", "x"),
        ("page/index.html", "page"),
        (".env", SECRET),
    ]);
    tree.link("out.html", "../secret.txt");
    for fallback in ["app.html", "/app.html"] {
        let settings = DirectorySettings {
            fallback: Some(fallback.to_owned()),
            headers: vec![HeaderRule::cache("app.html=no-cache").unwrap()],
            ..no_compression()
        };
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        for (target, status, body) in [
            ("/a.css", 200, "a"),
            ("/page/", 200, "page"),
            ("/app.html", 200, "app"),
            ("/", 200, "app"),
            ("/users/17", 200, "app"),
            ("/users/17/", 200, "app"),
            ("/users/jane.doe", 200, "app"),
            ("/deep/below/x?query", 200, "app"),
            ("/other.html", 200, "app"),
            ("/folder/", 200, "app"),
            ("/a.css/", 404, "none"),
            ("/out.html", 200, "app"),
            // Missing assets are not found.
            ("/b.css", 404, "none"),
            ("/assets/b.js", 404, "none"),
            ("/folder/x.png", 404, "none"),
            ("/favicon.ico", 404, "none"),
            // Paths that cannot name a file are not found.
            ("/.env", 404, "none"),
            ("/..", 404, "none"),
            ("/%2e%2e/secret.txt", 404, "none"),
            ("/a%00", 404, "none"),
        ] {
            let get = ask(&mut client, "GET", target);
            assert_eq!((get.status, get.text()), (status, body), "{target}");
            let head = ask(&mut client, "HEAD", target);
            assert_eq!(head.status, status, "{target}");
            assert_eq!(fields_without_date(&head), fields_without_date(&get), "{target}");
            if body == "app" {
                assert_eq!(get.header("content-type"), Some("text/html; charset=utf-8"));
                assert_eq!(get.header("cache-control"), Some("no-cache"), "{target}");
                let known = format!("If-None-Match: {}", etag(&get));
                assert_eq!(
                    send_request_with_fields(&mut client, "GET", target, &known).status,
                    304,
                    "{target}"
                );
            }
        }
        assert_statuses(&server, &[("/folder", 301), ("/page", 301)]);
        assert_eq!(ask(&mut client, "POST", "/users/17").status, 405);
        stop(server);
    }
    // A fallback that is not a file is ignored.
    for fallback in ["nothing.html", "folder", "../secret.txt", ""] {
        let fallback = Some(fallback.to_owned());
        let server = tree.serve_with(DirectorySettings { fallback, ..no_compression() });
        assert_statuses(&server, &[("/users/17", 404), ("/", 404), ("/a.css", 200)]);
        stop(server);
    }
}

#[test]
fn serves_configured_error_pages() {
    let tree = Tree::with_files(&[
        ("errors/403.html", "closed!"),
        ("errors/404.txt", "none!"),
        ("errors/405.html", "not so!"),
        ("closed.txt", SECRET),
        ("a.txt", "a"),
        ("404.html", "the usual one"),
    ]);
    tree.deny_access(&["closed.txt"]);
    let pages = |pages: &[(u16, &str)]| {
        let page = |&(of, path): &(u16, &str)| (StatusCode::from_u16(of).unwrap(), path.to_owned());
        DirectorySettings {
            error_pages: pages.iter().map(page).collect(),
            headers: vec![HeaderRule::cache("1h").unwrap()],
            ..DirectorySettings::default()
        }
    };
    let own =
        pages(&[(403, "/errors/403.html"), (404, "errors/404.txt"), (405, "errors/405.html")]);
    let html = "text/html; charset=utf-8";
    as_nobody(|| {
        let server = tree.serve_with(own);
        let mut client = Client::connect(&server);
        for (method, target, status, body, media_type) in [
            ("GET", "/closed.txt", 403, "closed!", html),
            ("GET", "/nothing", 404, "none!", "text/plain; charset=utf-8"),
            ("GET", "/", 404, "none!", "text/plain; charset=utf-8"),
            ("POST", "/a.txt", 405, "not so!", html),
            ("DELETE", "/nothing", 405, "not so!", html),
        ] {
            // Ranges, preconditions and codings do not apply to error pages.
            for fields in ["", "Range: bytes=0-0", "If-None-Match: *", "Accept-Encoding: gzip"] {
                let response = send_request_with_fields(&mut client, method, target, fields);
                assert_eq!((response.status, response.text()), (status, body), "{target} {fields}");
                assert_eq!(response.header("content-type"), Some(media_type), "{target}");
                let allowed = (status == 405).then_some("GET, HEAD");
                assert_eq!(response.header("allow"), allowed, "{target}");
                for name in ["etag", "last-modified", "accept-ranges", "cache-control"] {
                    assert_eq!(response.header(name), None, "{target}: {name}");
                }
            }
            if method == "GET" {
                let (get, head) =
                    (ask(&mut client, "GET", target), ask(&mut client, "HEAD", target));
                assert_eq!(head.status, status);
                assert_eq!(fields_without_date(&head), fields_without_date(&get), "{target}");
            }
        }
        // Requested by their own paths, error pages are ordinary files.
        let page = ask(&mut client, "GET", "/errors/403.html");
        assert_eq!((page.status, page.text()), (200, "closed!"));
        assert_eq!(page.header("cache-control"), Some("max-age=3600"));
        stop(server);

        // Error pages that do not exist, are unreadable or are not files.
        for path in ["nothing.html", "errors", "closed.txt", "../secret.txt", ""] {
            let server = tree.serve_with(pages(&[(403, path), (404, path), (405, path)]));
            let mut client = Client::connect(&server);
            for (method, target, title) in [
                ("GET", "/closed.txt", "403 Forbidden"),
                ("GET", "/nothing", "404 Not Found"),
                ("POST", "/a.txt", "405 Method Not Allowed"),
            ] {
                let response = ask(&mut client, method, target);
                assert_eq!(response.status.to_string(), title[..3], "{path}");
                assert_eq!(response.text(), format!("{title}\n"), "{path}");
                assert_eq!(response.header("allow").is_some(), title.starts_with("405"), "{path}");
            }
            stop(server);
        }
        let server = tree.serve_with(pages(&[]));
        let response = ask(&mut Client::connect(&server), "GET", "/nothing");
        assert_eq!(response.text(), "404 Not Found\n");
        stop(server);
    });
}

// -- symbolic links and dot files

#[test]
fn follows_symlinks_according_to_the_policy() {
    let tree = Tree::with_files(&[
        ("a.txt", "a"),
        ("folder/b.txt", "b"),
        ("folder/index.html", "index"),
        ("folder/deep/x", "x"),
        ("out-index/x", "x"),
        ("page.html", "page"),
    ]);
    let inside = tree.path("a.txt");
    let outer = tree.outer.path();
    fs::create_dir(outer.join("shared")).unwrap();
    fs::write(outer.join("shared/c.txt"), "c").unwrap();
    fs::write(outer.join("shared/index.html"), "shared").unwrap();
    fs::write(outer.join("shared/page.html.br"), "shared br").unwrap();
    let (shared, shared_file) = (outer.join("shared"), outer.join("shared/c.txt"));
    let links: [(&str, &Path); _] = [
        ("link.txt", Path::new("a.txt")),
        ("folder/up.txt", Path::new("../a.txt")),
        ("chain.txt", Path::new("link.txt")),
        ("linked", Path::new("folder")),
        ("absolute-in.txt", &inside),
        ("out.txt", Path::new("../shared/c.txt")),
        ("out-and-in.txt", Path::new("../root/a.txt")),
        ("out-chain.txt", Path::new("out.txt")),
        ("absolute-out.txt", &shared_file),
        ("out", Path::new("../shared")),
        ("absolute", &shared),
        ("out-index/index.html", Path::new("../../shared/index.html")),
        ("page.html.br", Path::new("../shared/page.html.br")),
        ("loop", Path::new("loop")),
        ("loop-a", Path::new("loop-b")),
        ("loop-b", Path::new("loop-a")),
        ("dangling", Path::new("nothing")),
        ("magic", Path::new("/proc/self/root")),
        ("magic-file", Path::new("/proc/self/exe")),
    ];
    links.iter().for_each(|(name, target)| tree.link(name, target));
    // Statuses for Never, Inside and Anywhere, and the body of a 200.
    let cases = [
        ("/a.txt", [200, 200, 200], "a"),
        ("/folder/", [200, 200, 200], "index"),
        ("/link.txt", [404, 200, 200], "a"),
        ("/folder/up.txt", [404, 200, 200], "a"),
        ("/chain.txt", [404, 200, 200], "a"),
        ("/linked", [404, 301, 301], ""),
        ("/linked/", [404, 200, 200], "index"),
        ("/linked/b.txt", [404, 200, 200], "b"),
        ("/linked/up.txt", [404, 200, 200], "a"),
        ("/absolute-in.txt", [404, 404, 200], "a"),
        ("/out.txt", [404, 404, 200], "c"),
        ("/out-and-in.txt", [404, 404, 200], "a"),
        ("/out-chain.txt", [404, 404, 200], "c"),
        ("/absolute-out.txt", [404, 404, 200], "c"),
        ("/out", [404, 404, 301], ""),
        ("/out/", [404, 404, 200], "shared"),
        ("/out/c.txt", [404, 404, 200], "c"),
        ("/absolute/c.txt", [404, 404, 200], "c"),
        ("/out-index/", [404, 404, 200], "shared"),
        ("/loop", [404, 404, 404], ""),
        ("/loop-a", [404, 404, 404], ""),
        ("/dangling", [404, 404, 404], ""),
        ("/magic/etc/passwd", [404, 404, 404], ""),
        ("/magic-file", [404, 404, 404], ""),
        // Dot segments after a link out of the root are not found either.
        ("/out/../secret.txt", [404, 404, 404], ""),
        ("/out/%2e%2e/secret.txt", [404, 404, 404], ""),
    ];
    for (at, links) in
        [Symlinks::Never, Symlinks::Inside, Symlinks::Anywhere].into_iter().enumerate()
    {
        let settings = DirectorySettings { symlinks: links, ..no_compression() };
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        for (target, statuses, body) in cases {
            let response = ask(&mut client, "GET", target);
            assert_eq!(response.status, statuses[at], "{links:?} {target}");
            if response.status == 200 {
                assert_eq!(response.text(), body, "{links:?} {target}");
            }
        }
        // The policy applies to precompressed files as well.
        let page =
            send_request_with_fields(&mut client, "GET", "/page.html", "Accept-Encoding: br");
        let expected = if links == Symlinks::Anywhere { "shared br" } else { "page" };
        assert_eq!((page.status, page.text()), (200, expected), "{links:?}");
        stop(server);
    }
}

#[test]
fn dot_segments_cannot_escape_the_root_with_any_symlink_policy() {
    let tree = Tree::with_files(&[("folder/deep/a.txt", "a"), ("index.html", "top")]);
    fs::create_dir(tree.outer.path().join("shared")).unwrap();
    tree.link("out", "../shared");
    let mut targets = tree.traversal_targets();
    targets.extend(
        [
            "/out/../secret.txt",
            "/out/%2e%2e/secret.txt",
            "/out/..%2fsecret.txt",
            "/out%2f..%2fsecret.txt",
            "/out/..\\secret.txt",
            "/out/%c0%ae%c0%ae/secret.txt",
            "/out/..%00/secret.txt",
            "/out/../root-secret/",
            "/out/../root/index.html",
        ]
        .map(str::to_owned),
    );
    let cases: Vec<_> = targets.iter().map(|target| (&**target, 404)).collect();
    for links in [Symlinks::Never, Symlinks::Inside, Symlinks::Anywhere] {
        for dot_files in [false, true] {
            let settings = DirectorySettings { symlinks: links, dot_files, ..no_compression() };
            let server = tree.serve_with(settings);
            assert_statuses(&server, &cases);
            assert_bodies(&server, &[("/folder/deep/a.txt", "a"), ("/", "top")]);
            stop(server);
        }
    }
}

#[test]
fn serves_dot_files_if_enabled() {
    let tree = Tree::with_files(&[
        (".env", "env"),
        (".git/config", "config"),
        ("folder/.hidden/index.html", "hidden"),
        (".well-known/x", "x"),
        ("...", "three"),
        ("..a", "two"),
    ]);
    let files = [
        ("/.env", "env"),
        ("/%2eenv", "env"),
        ("/.git/config", "config"),
        ("/folder/.hidden/", "hidden"),
        ("/...", "three"),
        ("/%2e%2e%2e", "three"),
        ("/..a", "two"),
    ];
    let server = tree.serve_with(DirectorySettings { dot_files: true, ..no_compression() });
    assert_bodies(&server, &files);
    assert_bodies(&server, &[("/.well-known/x", "x")]);
    assert_statuses(&server, &[("/.", 404), ("/..", 404), ("/folder/..", 404), ("/.git", 301)]);
    stop(server);
    let server = tree.serve_with(no_compression());
    assert_statuses(&server, &files.map(|(target, _)| (target, 404)));
    assert_bodies(&server, &[("/.well-known/x", "x")]);
    stop(server);
}

// -- embedded

static LARGE: [u8; 50_000] = {
    let mut bytes = [b'x'; 50_000];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = b'a' + (at % 23) as u8;
        at += 1;
    }
    bytes
};

fn embedded(settings: DirectorySettings) -> Directory {
    let files: [(&str, &'static [u8]); _] = [
        ("index.html", b"top"),
        ("css/style.css", b"h1 { color: teal }"),
        ("/css/other.css/", b"other"),
        ("guide/index.html", b"guide"),
        ("guide-not", b"not"),
        ("deep/below/a.txt", b"0123456789"),
        ("empty.txt", b""),
        ("404.html", b"none"),
        ("large.txt", &LARGE),
        ("picture.png", &LARGE),
        ("page.html", b"page"),
        ("page.html.br", b"page, br"),
        ("page.html.de", b"Seite"),
        ("page.html.de.gz", b"Seite, gzip"),
        (".env", b"env"),
        ("días.txt", b"dias"),
    ];
    Directory::embedded(files, settings)
}

#[test]
fn serves_embedded_files() {
    let headers = vec![HeaderRule::cache("*.css=1h").unwrap()];
    let settings = DirectorySettings { headers, ..DirectorySettings::default() };
    let server = serve(embedded(with_languages(&["de"], settings)));
    let large = std::str::from_utf8(&LARGE).unwrap();
    assert_bodies(
        &server,
        &[
            ("/", "top"),
            ("/index.html", "top"),
            ("/css/style.css", "h1 { color: teal }"),
            ("/css/other.css", "other"),
            ("/guide/", "guide"),
            ("/deep/below/a.txt", "0123456789"),
            ("/deep//below/%61.txt?query", "0123456789"),
            ("/empty.txt", ""),
            ("/large.txt", large),
            ("/d%C3%ADas.txt", "dias"),
        ],
    );
    assert_statuses(
        &server,
        &[
            ("/guide", 301),
            ("/deep", 301),
            ("/deep/below", 301),
            ("/deep/", 404),
            ("/css", 301),
            ("/css/", 404),
            ("/guid", 404),
            ("/guide/index.html/", 404),
            ("/index.html/x", 404),
            ("/nothing", 404),
            ("/.env", 404),
            ("/../index.html", 404),
            ("/css/../index.html", 404),
            ("/%00", 404),
        ],
    );
    let mut client = Client::connect(&server);
    let none = ask(&mut client, "GET", "/nothing");
    assert_eq!((none.status, none.text()), (404, "none"));
    assert_eq!(none.header("etag"), None);
    assert_eq!(ask(&mut client, "GET", "/guide?a").header("location"), Some("/guide/?a"));
    assert_eq!(ask(&mut client, "POST", "/").status, 405);

    let style = ask(&mut client, "GET", "/css/style.css");
    assert_eq!(style.header("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(style.header("cache-control"), Some("max-age=3600"));
    assert_eq!(style.header("last-modified"), None, "embedded files have no modification time");
    assert_eq!(style.header("accept-ranges"), Some("bytes"));
    let head = ask(&mut client, "HEAD", "/css/style.css");
    assert_eq!(fields_without_date(&head), fields_without_date(&style));

    let ten = etag(&ask(&mut client, "GET", "/deep/below/a.txt"));
    assert!(ten.starts_with('"') && ten != etag(&style));
    for (fields, status, body) in [
        (format!("If-None-Match: {ten}"), 304, ""),
        (format!("If-None-Match: {}", etag(&style)), 200, "0123456789"),
        ("If-Modified-Since: Thu, 01 Jan 2060 00:00:00 GMT".to_owned(), 200, "0123456789"),
        ("Range: bytes=2-4".to_owned(), 206, "234"),
        (format!("Range: bytes=-1\r\nIf-Range: {ten}"), 206, "9"),
        ("Range: bytes=2-4\r\nIf-Range: \"x\"".to_owned(), 200, "0123456789"),
        ("Range: bytes=10-".to_owned(), 416, "416 Range Not Satisfiable\n"),
        ("If-Match: \"x\"".to_owned(), 412, "412 Precondition Failed\n"),
    ] {
        let response = send_request_with_fields(&mut client, "GET", "/deep/below/a.txt", &fields);
        assert_eq!((response.status, response.text()), (status, body), "{fields}");
        assert_eq!(etag(&response), ten, "{fields}");
    }
    let several =
        send_request_with_fields(&mut client, "GET", "/large.txt", "Range: bytes=0-3,40000-40003");
    assert_eq!(several.status, 206);
    for part in [&LARGE[..4], &LARGE[40_000..40_004]] {
        assert!(several.body.windows(4).any(|bytes| bytes == part));
    }

    for (target, languages, codings, language, coding, body) in [
        ("/page.html", "en", "br", None, Some("br"), "page, br"),
        ("/page.html", "en", "gzip", None, None, "page"),
        ("/page.html", "de", "gzip", Some("de"), Some("gzip"), "Seite, gzip"),
        ("/page.html", "de", "br", Some("de"), None, "Seite"),
    ] {
        let fields = format!("Accept-Language: {languages}\r\nAccept-Encoding: {codings}");
        let response = send_request_with_fields(&mut client, "GET", target, &fields);
        assert_eq!(response.text(), body, "{fields}");
        assert_eq!(response.header("content-language"), language, "{fields}");
        assert_eq!(response.header("content-encoding"), coding, "{fields}");
    }
    for (target, compressed) in [("/large.txt", true), ("/picture.png", false)] {
        for coding in ["br", "zstd", "gzip"] {
            let fields = format!("Accept-Encoding: {coding}");
            for _ in 0..2 {
                let response = send_request_with_fields(&mut client, "GET", target, &fields);
                assert_eq!(response.header("content-encoding").is_some(), compressed, "{target}");
                assert!(decoded(&response) == LARGE, "{target} {coding}");
                assert_eq!(etag(&response).starts_with("W/"), compressed, "{target}");
                let known = format!("{fields}\r\nIf-None-Match: {}", etag(&response));
                assert_eq!(
                    send_request_with_fields(&mut client, "GET", target, &known).status,
                    304
                );
            }
        }
    }
    stop(server);
}

#[test]
fn embedded_files_support_fallback_and_index() {
    let settings = DirectorySettings {
        fallback: Some("/page.html".to_owned()),
        dot_files: true,
        index: vec!["a.txt".to_owned()],
        ..no_compression()
    };
    let server = serve(embedded(settings));
    assert_bodies(
        &server,
        &[("/users/17", "page"), ("/", "page"), ("/.env", "env"), ("/deep/below/", "0123456789")],
    );
    assert_statuses(&server, &[("/nothing.css", 404)]);
    stop(server);
    let server = serve(Directory::embedded([("", &b""[..]); 0], DirectorySettings::default()));
    assert_statuses(&server, &[("/", 404), ("/a", 404)]);
    stop(server);
}
