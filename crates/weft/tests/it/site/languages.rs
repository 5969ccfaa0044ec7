//! Files in several languages.

use super::*;

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
