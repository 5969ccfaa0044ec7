//! Files that the program serves.

use super::*;

#[test]
fn serves_the_site_of_the_repository() {
    let site = repository("site");
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("s");
    let unix = format!("unix:{}", socket.display());
    let server = Weft::serve(&site, &["--listen", &unix]);
    let mut files = Vec::new();
    list(&site, "", &mut files);
    assert!(files.len() >= 6, "too few files: {files:?}");
    for mut client in [server.client(), Client::unix(&socket)] {
        for name in &files {
            let response = client.get(&encoded(name));
            assert_eq!(response.status, 200, "{name}");
            assert!(
                response.body == fs::read(site.join(name)).unwrap(),
                "{name} has other contents"
            );
            let kind = response.header("content-type").expect("a type");
            assert_eq!(kind, content_type(name), "{name}");
        }
        for (target, status, name) in [
            ("/", 200, "index.html"),
            ("/guide/", 200, "guide/index.html"),
            ("/nothing", 404, "404.html"),
        ] {
            let response = client.get(target);
            assert_eq!(response.status, status, "{target}");
            assert!(
                response.body == fs::read(site.join(name)).unwrap(),
                "{target} has other contents"
            );
        }
        let response = client.get("/guide?a=b");
        let found = (response.status, response.header("location"));
        assert_eq!(found, (301, Some("/guide/?a=b")));
    }
    server.stop();
}

#[test]
fn options_for_files_take_effect() {
    let outer = folder_with(&[("out.txt", "out")]);
    let site = outer.path().join("site");
    fs::create_dir(&site).unwrap();
    let text = "many words, ".repeat(200);
    for (name, contents) in [
        ("index.html", "index"),
        ("start.html", "start"),
        ("app.html", "app"),
        ("about.html", "about"),
        ("about.html.de", "de"),
        ("about.html.ja", "ja"),
        ("a.css", "a"),
        ("a.css.gz", "gzip"),
        ("text.txt", &text),
    ] {
        fs::write(site.join(name), contents).unwrap();
    }
    std::os::unix::fs::symlink("../out.txt", site.join("link.txt")).unwrap();
    std::os::unix::fs::symlink("a.css", site.join("within.css")).unwrap();

    /// Options; target and request field; status, prefix of the body, and response field.
    type Case<'a> = (&'a [&'a str], &'a str, &'a str, u16, &'a str, (&'a str, Option<&'a str>));
    let cache = "cache-control";
    let (coding, gzip) = ("content-encoding", "Accept-Encoding: gzip");
    let (language, german) = ("content-language", "Accept-Language: de, ja;q=0.5");
    let cases: [Case; _] = [
        (&[], "/", "", 200, "index", (cache, None)),
        (&["--index", "start.html"], "/", "", 200, "start", (cache, None)),
        (&["--index", "none", "--index", "about.html"], "/", "", 200, "about", (cache, None)),
        (&["--index=start.html", "--index=index.html"], "/", "", 200, "start", (cache, None)),
        (&["--index", "none"], "/", "", 404, "", (cache, None)),
        (&[], "/users/17", "", 404, "", (cache, None)),
        (&["--spa", "app.html"], "/users/17", "", 200, "app", (cache, None)),
        (&["--spa", "app.html"], "/", "", 200, "index", (cache, None)),
        (&["--spa", "app.html"], "/none.css", "", 200, "app", (cache, None)),
        (&["--spa", "app.html", "--spa-for", "pages"], "/none.css", "", 404, "", (cache, None)),
        (&["--spa", "index.html", "--spa", "app.html"], "/x", "", 200, "app", (cache, None)),
        (&["--spa", "none.html"], "/users/17", "", 404, "", (cache, None)),
        (&["--cache", "5m"], "/a.css", "", 200, "a", (cache, Some("max-age=300"))),
        (&["--cache", "*.css=1h"], "/a.css", "", 200, "a", (cache, Some("max-age=3600"))),
        (&["--cache", "*.css=1h"], "/", "", 200, "index", (cache, None)),
        (
            &["--cache=*.css=1h", "--cache=no-cache"],
            "/a.css",
            "",
            200,
            "a",
            (cache, Some("no-cache")),
        ),
        (
            &["--cache=no-cache", "--cache=*.css=1h"],
            "/a.css",
            "",
            200,
            "a",
            (cache, Some("max-age=3600")),
        ),
        (
            &["--cache", "/*.css=immutable"],
            "/a.css",
            "",
            200,
            "a",
            (cache, Some("max-age=31536000, immutable")),
        ),
        (
            &["--cache", "private, max-age=60"],
            "/",
            "",
            200,
            "index",
            (cache, Some("private, max-age=60")),
        ),
        (&["--cache", "5m"], "/nothing", "", 404, "", (cache, None)),
        (&[], "/about.html", german, 200, "about", (language, None)),
        (&["--language", "ja"], "/about.html", german, 200, "ja", (language, Some("ja"))),
        (
            &["--language=ja", "--language=de"],
            "/about.html",
            german,
            200,
            "de",
            (language, Some("de")),
        ),
        (&[], "/text.txt", gzip, 200, "\x1f", (coding, Some("gzip"))),
        (&["--compress"], "/text.txt", gzip, 200, "\x1f", (coding, Some("gzip"))),
        (&["--no-compress"], "/text.txt", gzip, 200, "many", (coding, None)),
        (&["--no-compress", "--compress"], "/text.txt", gzip, 200, "\x1f", (coding, Some("gzip"))),
        (&["--compress", "--no-compress"], "/text.txt", gzip, 200, "many", (coding, None)),
        (&["--no-compress"], "/a.css", gzip, 200, "gzip", (coding, Some("gzip"))),
        (&["--no-compress"], "/a.css", "Accept-Encoding: br", 200, "a", (coding, None)),
        (&[], "/link.txt", "", 404, "", (cache, None)),
        (&[], "/within.css", "", 200, "a", (cache, None)),
        (&["--follow-links"], "/link.txt", "", 200, "out", (cache, None)),
        (&["--follow-links"], "/../out.txt", "", 404, "", (cache, None)),
    ];
    for (options, target, field, status, prefix, (name, value)) in cases {
        let server = Weft::serve(&site, &[&["--workers", "1"], options].concat());
        let mut client = server.client();
        let field = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
        let response = client.response();
        let case = format!("{options:?} {target} {field}");
        assert_eq!(response.status, status, "{case}");
        assert_eq!(response.header(name), value, "{case}");
        assert!(response.body.starts_with(prefix.as_bytes()), "{case}: {:?}", response.body);
        server.stop();
    }
}

fn encoded(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._".contains(&b);
    let encode = |b: u8| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") };
    name.bytes().fold("/".to_owned(), |target, b| target + &encode(b))
}

fn content_type(name: &str) -> &str {
    match name.rsplit('.').next().unwrap() {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        other => panic!("unexpected extension .{other}"),
    }
}

/// The file exists, and nothing else says why it is 404.
#[test]
fn links_that_are_not_followed_are_named_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let www = folder.path().join("www");
    fs::create_dir(&www).unwrap();
    fs::write(www.join("a.txt"), "A\n").unwrap();
    std::os::unix::fs::symlink(www.join("a.txt"), www.join("absolute")).unwrap();
    std::os::unix::fs::symlink("a.txt", www.join("relative")).unwrap();
    let server = Weft::serve(&www, &[]);
    assert_eq!(server.client().get("/relative").status, 200);
    assert_eq!(server.client().get("/absolute").status, 404);
    until("the link is named", || server.stderr().contains("www/absolute -> /"));
    let stderr = server.stderr();
    assert!(stderr.contains("`links = \"anywhere\"` follows all links"), "{stderr}");
    // Any client could cause further lines.
    (0..5).for_each(|_| drop(server.client().get("/absolute")));
    assert_eq!(server.stop().stderr.matches("is not followed").count(), 1);
}
