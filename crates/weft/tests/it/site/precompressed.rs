//! Precompressed files.

use super::*;

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
