//! Embedded files.

use super::*;

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
        fallback_for: FallbackPaths::Pages,
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
