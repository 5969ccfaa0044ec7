//! Directory listings, tested over real sockets. Unit tests cover their content.
#![cfg(feature = "files")]

use crate::common::tree::{SECRET, Tree, ask, assert_statuses, send_request_with_fields};
use crate::common::{self, Client, stop, until};
use serde_json::Value;
use std::time::Duration;
use weft::files::{DirectorySettings, Symlinks};

fn listing() -> DirectorySettings {
    DirectorySettings { listing: true, ..DirectorySettings::default() }
}

fn revalidating(revalidate_after: Duration) -> DirectorySettings {
    DirectorySettings { revalidate_after, ..listing() }
}

/// The names in a JSON listing, directories with a trailing slash.
fn names(response: &common::Response) -> Vec<String> {
    let list: Value = serde_json::from_str(response.text()).expect("JSON");
    let name = |entry: &Value| {
        let slash = if entry["type"] == "folder" { "/" } else { "" };
        format!("{}{slash}", entry["name"].as_str().expect("a name"))
    };
    list["entries"].as_array().expect("entries").iter().map(name).collect()
}

const JSON: &str = "Accept: application/json";

#[test]
fn lists_directories_without_an_index_if_enabled() {
    let tree =
        Tree::with_files(&[("a.txt", "a"), ("with/index.html", "index"), ("deep/er/b.txt", "b")]);
    let server = tree.serve();
    assert_statuses(&server, &[("/", 404), ("/with/", 200), ("/deep/", 404)]);
    stop(server);

    let server = tree.serve_with(listing());
    let mut client = Client::connect(&server);
    for (target, fields, expected) in [
        ("/", JSON, "deep/ with/ a.txt"),
        ("/?sort=name&order=desc", JSON, "with/ deep/ a.txt"),
        ("/deep/", JSON, "er/"),
        ("/deep/er/?x", JSON, "b.txt"),
    ] {
        let response = send_request_with_fields(&mut client, "GET", target, fields);
        assert_eq!(response.status, 200, "{target}");
        assert_eq!(names(&response).join(" "), expected, "{target}");
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert_eq!(response.header("vary"), Some("accept"));
    }
    let page = ask(&mut client, "GET", "/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("vary"), Some("accept, accept-encoding"));
    assert!(page.header("content-security-policy").is_some_and(|it| it.contains("'none'")));
    for link in ["href=\"./a.txt\"", "href=\"./deep/\"", "href=\"./with/\""] {
        assert!(page.text().contains(link), "{link}: {}", page.text());
    }
    let head = ask(&mut client, "HEAD", "/");
    assert_eq!(head.header("content-length"), page.header("content-length"));
    assert_eq!(ask(&mut client, "GET", "/with/").text(), "index");
    assert_eq!(ask(&mut client, "GET", "/deep").header("location"), Some("/deep/"));
    assert_eq!(ask(&mut client, "GET", "/none/").status, 404);
    stop(server);
}

#[test]
fn lists_only_entries_that_can_be_requested() {
    let tree = Tree::with_files(&[("a b&<c>.txt", "a"), (".hidden", "h"), (".well-known/x", "x")]);
    tree.create_fifo("pipe");
    tree.link("inside", "a b&<c>.txt");
    tree.link("outside", "../secret.txt");
    tree.write(b"\xff.txt", "no UTF-8");
    for (settings, expected) in [
        (listing(), "a b&<c>.txt inside \u{fffd}.txt"),
        (DirectorySettings { symlinks: Symlinks::Never, ..listing() }, "a b&<c>.txt \u{fffd}.txt"),
        (
            DirectorySettings { symlinks: Symlinks::Anywhere, ..listing() },
            "a b&<c>.txt inside outside \u{fffd}.txt",
        ),
        (
            DirectorySettings { dot_files: true, ..listing() },
            ".well-known/ .hidden a b&<c>.txt inside \u{fffd}.txt",
        ),
    ] {
        let may_leave = settings.symlinks == Symlinks::Anywhere;
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        let response = send_request_with_fields(&mut client, "GET", "/", JSON);
        assert_eq!(names(&response).join(" "), expected);
        // Each `href` leads to the entry.
        let list: Value = serde_json::from_str(response.text()).unwrap();
        for entry in list["entries"].as_array().unwrap() {
            let href = entry["href"].as_str().unwrap().strip_prefix('.').unwrap();
            let found = send_request_with_fields(&mut client, "GET", href, JSON);
            assert_eq!(found.status, 200, "{href}");
            assert!(may_leave || !found.text().contains(SECRET));
        }
        stop(server);
    }
}

#[test]
fn removed_directories_are_not_found() {
    let tree = Tree::with_files(&[("gone/a.txt", "a"), ("file/a.txt", "a")]);
    let server = tree.serve_with(revalidating(Duration::from_millis(10)));
    let mut client = Client::connect(&server);
    for folder in ["gone", "file"] {
        let target = format!("/{folder}/");
        let mut status = || send_request_with_fields(&mut client, "GET", &target, JSON).status;
        assert_eq!(status(), 200, "{folder}");
        std::fs::remove_dir_all(tree.path(folder)).unwrap();
        if folder == "file" {
            tree.write(folder, "a file");
        }
        until("the folder is not found", || status() == 404);
    }
    stop(server);
}

/// Otherwise each request for a large folder would cost one `stat` for each of its entries, and a
/// sort of them.
#[test]
fn listings_are_cached_like_other_lookups() {
    let tree = Tree::with_files(&[("a.txt", "a"), ("b/c.txt", "c")]);
    for (revalidate_after, is_cached) in
        [(Duration::from_secs(86_400), true), (Duration::ZERO, false)]
    {
        let server = tree.serve_with(revalidating(revalidate_after));
        let mut client = Client::connect(&server);
        let mut has_new = |target: &str, fields: &str| {
            let response = send_request_with_fields(&mut client, "GET", target, fields);
            assert_eq!(response.status, 200);
            response.text().contains("new.txt")
        };
        // A listing in another order or format is another text, and so not cached yet.
        for (name, target, fields) in [
            ("new.txt", "/", JSON),
            ("new.txt", "/?sort=size", JSON),
            ("new.txt", "/?sort=size&order=desc", JSON),
            ("new.txt", "/?order=desc&sort=date", ""),
            ("b/new.txt", "/b/", ""),
        ] {
            assert!(!has_new(target, fields), "{target}");
            tree.write(name, "");
            assert_eq!(has_new(target, fields), !is_cached, "{target}");
            std::fs::remove_file(tree.path(name)).unwrap();
        }
        stop(server);
    }

    let server = tree.serve_with(revalidating(Duration::from_millis(10)));
    let mut client = Client::connect(&server);
    assert!(!ask(&mut client, "GET", "/").text().contains("new.txt"));
    tree.write("new.txt", "");
    until("the new file is listed", || ask(&mut client, "GET", "/").text().contains("new.txt"));
    stop(server);
}

#[test]
fn lists_at_most_max_listed_entries() {
    let tree = Tree::new();
    (0..10_000).for_each(|at| tree.write(format!("{at}.txt"), ""));
    for (max_listed_entries, count) in [(20_000, 10_000), (100, 100)] {
        let server = tree.serve_with(DirectorySettings { max_listed_entries, ..listing() });
        let mut client = Client::connect(&server);
        let response = send_request_with_fields(&mut client, "GET", "/", JSON);
        let names = names(&response);
        assert_eq!(names.len(), count);
        let list: Value = serde_json::from_str(response.text()).unwrap();
        assert_eq!(list["truncated"], count == 100);
        if count == 10_000 {
            // Numbers in names are sorted by value, not by digit.
            assert_eq!((&*names[2], &*names[9_999]), ("2.txt", "9999.txt"));
        }
        assert_eq!(ask(&mut client, "GET", "/").text().matches("<time ").count(), count);
        stop(server);
    }
}

#[test]
fn lists_embedded_directories() {
    let files = [("a.txt", &b"a"[..]), ("b/c.txt", b"c"), ("b/d/e.txt", b"e")];
    let app = weft::files::Directory::embedded(files, listing());
    let server = common::tree::serve(app);
    let mut client = Client::connect(&server);
    for (target, expected) in [("/", "b/ a.txt"), ("/b/", "d/ c.txt"), ("/b/d/", "e.txt")] {
        let response = send_request_with_fields(&mut client, "GET", target, JSON);
        assert_eq!(names(&response).join(" "), expected, "{target}");
    }
    stop(server);
}

#[cfg(all(feature = "brotli", feature = "gzip", feature = "zstd"))]
#[test]
fn compresses_listings_for_clients_that_accept_it() {
    use crate::common::tree::{decoded, fields_without_date};
    let tree = Tree::new();
    (0..200).for_each(|number| tree.write(format!("many/file {number}.txt"), ""));
    tree.write("few/a.txt", "");
    // Target, fields, expected coding, and the fields that the response varies by.
    let plain = ("/many/", "", None, "accept, accept-encoding");
    for (settings, cases) in [
        (
            revalidating(Duration::MAX),
            &[
                plain,
                ("/many/", "Accept-Encoding: gzip", Some("gzip"), "accept, accept-encoding"),
                ("/many/", "Accept-Encoding: br, gzip", Some("br"), "accept, accept-encoding"),
                ("/many/", "Accept-Encoding: zstd", Some("zstd"), "accept, accept-encoding"),
                ("/many/?sort=date", "Accept-Encoding: br", Some("br"), "accept, accept-encoding"),
                ("/many/", "Accept-Encoding: br;q=0", None, "accept, accept-encoding"),
                (
                    "/many/",
                    "Accept: application/json\r\nAccept-Encoding: br",
                    Some("br"),
                    "accept, accept-encoding",
                ),
                // Smaller than the smallest file that is compressed.
                ("/few/", "Accept: application/json\r\nAccept-Encoding: br", None, "accept"),
            ][..],
        ),
        (
            DirectorySettings { compress: false, ..listing() },
            &[("/many/", "Accept-Encoding: br", None, "accept")],
        ),
        (
            DirectorySettings { max_compressed_bytes: 2_000, ..listing() },
            &[("/many/", "Accept-Encoding: br", None, "accept")],
        ),
    ] {
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        for &(target, fields, coding, vary) in cases {
            // From the cache in the second round.
            for _ in 0..2 {
                let uncoded = fields.replace("Accept-Encoding", "X");
                let expected = send_request_with_fields(&mut client, "GET", target, &uncoded);
                let found = send_request_with_fields(&mut client, "GET", target, fields);
                assert_eq!((found.status, found.header("content-encoding")), (200, coding));
                assert_eq!(found.header("vary"), Some(vary), "{target} {fields}");
                assert!(decoded(&found) == expected.body, "{target} {fields}");
                assert_eq!(found.body.len() < expected.body.len() / 2, coding.is_some());
                let head = send_request_with_fields(&mut client, "HEAD", target, fields);
                assert_eq!(fields_without_date(&head), fields_without_date(&found), "{target}");
            }
        }
        stop(server);
    }
}

#[test]
fn title_of_listings_is_configured() {
    let tree = Tree::with_files(&[("docs/a.txt", "a")]);
    for (title, expected) in [(None, "Index of /docs/"), (Some("A<b>"), "A&lt;b&gt;: /docs/")] {
        let listing_title = title.map(str::to_owned);
        let server = tree.serve_with(DirectorySettings { listing_title, ..listing() });
        let page = ask(&mut Client::connect(&server), "GET", "/docs/");
        assert!(page.text().contains(&format!("<title>{expected}</title>")), "{}", page.text());
        stop(server);
    }
}
