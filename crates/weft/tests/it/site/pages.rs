//! Index, fallback and error pages.

use super::*;

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
fn serves_the_fallback_page_for_missing_files() {
    let tree = Tree::with_files(&[
        ("app.html", "app"),
        ("a.css", "a"),
        ("404.html", "none"),
        ("folder/x.txt", "x"),
        ("page/index.html", "page"),
        (".env", SECRET),
    ]);
    tree.link("out.html", "../secret.txt");
    for (fallback, fallback_for, missing_asset) in [
        ("app.html", FallbackPaths::All, (200, "app")),
        ("/app.html", FallbackPaths::Pages, (404, "none")),
    ] {
        let settings = DirectorySettings {
            fallback: Some(fallback.to_owned()),
            fallback_for,
            headers: vec![HeaderRule::cache("app.html=no-cache").unwrap()],
            ..no_compression()
        };
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        for (target, (status, body)) in [
            ("/a.css", (200, "a")),
            ("/page/", (200, "page")),
            ("/app.html", (200, "app")),
            ("/", (200, "app")),
            ("/users/17", (200, "app")),
            ("/users/17/", (200, "app")),
            ("/users/jane.doe", (200, "app")),
            ("/deep/below/x?query", (200, "app")),
            ("/other.html", (200, "app")),
            ("/folder/", (200, "app")),
            ("/out.html", (200, "app")),
            // Routes of a page may end like files, and files may be missing.
            ("/a.css/", missing_asset),
            ("/wiki/README.md", missing_asset),
            ("/blob/main/logo.svg", missing_asset),
            ("/b.css", missing_asset),
            ("/folder/x.png", missing_asset),
            ("/favicon.ico", missing_asset),
            // Paths that cannot name a file are not found.
            ("/.env", (404, "none")),
            ("/..", (404, "none")),
            ("/%2e%2e/secret.txt", (404, "none")),
            ("/a%00", (404, "none")),
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
