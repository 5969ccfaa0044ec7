//! Entity tags of files: equal for copies on several machines, different for other contents.
#![cfg(feature = "files")]

use std::fs::File;
use std::time::{Duration, UNIX_EPOCH};

use weft::files::DirectorySettings;

use crate::common::tree::{Tree, ask, send_request_with_fields};
use crate::common::{Client, stop, until};

/// An hour of 2025, with a fraction of a second.
const MODIFIED: Duration = Duration::new(1_750_000_000, 123_456_789);

/// The modification time of all files in images that are built reproducibly.
const CONSTANT: Duration = Duration::from_secs(1);

/// Returns the tree of a machine with files of these contents.
fn machine(files: &[(&str, String)], modified: Duration) -> Tree {
    let tree = Tree::new();
    for (name, contents) in files {
        tree.write(name, contents);
        let file = File::options().write(true).open(tree.path(name)).unwrap();
        file.set_modified(UNIX_EPOCH + modified).unwrap();
    }
    tree
}

fn settings() -> DirectorySettings {
    DirectorySettings {
        languages: vec!["de".to_owned(), "en".to_owned()],
        compress: false,
        ..DirectorySettings::default()
    }
}

/// Returns the entity tag for a target, after which fields may follow: `/a.txt Accept-Language:
/// de`.
fn tag(tree: &Tree, request: &str) -> String {
    let server = tree.serve_with(settings());
    let (target, fields) = request.split_once(' ').unwrap_or((request, ""));
    let mut client = Client::connect(&server);
    let response = send_request_with_fields(&mut client, "GET", target, fields);
    assert_eq!(response.status, 200, "{request}");
    let tag = response.header("etag").expect("an ETag").to_owned();
    drop(client);
    stop(server);
    tag
}

/// Each row: the requests for two files, each of another machine, the modification time of the
/// files, and whether the entity tags are equal.
#[test]
fn tags_identify_contents_on_all_machines() {
    let small = |letter: &str| letter.repeat(1_000);
    let large = |letter: &str| letter.repeat(100_000);
    let files = |letter: &str| {
        let small_names = [
            "a.txt",
            "style.css",
            "style.css.br",
            "style.css.gz",
            "p.html",
            "p.html.de",
            "p.html.en",
        ];
        let small_files = small_names.map(|name| (name, small(letter)));
        let mut files = small_files.to_vec();
        files.extend([("large.txt", large(letter)), ("longer.txt", small(letter) + "x")]);
        files.extend([
            ("q.html", large(letter)),
            ("q.html.de", large(letter)),
            ("q.html.gz", large(letter)),
        ]);
        files
    };
    let trees = [
        machine(&files("a"), MODIFIED),
        machine(&files("a"), MODIFIED),
        machine(&files("b"), MODIFIED),
        machine(&files("a"), MODIFIED + Duration::from_nanos(1)),
        machine(&files("a"), CONSTANT),
        machine(&files("b"), CONSTANT),
    ];
    trees.iter().for_each(Tree::settle);
    for (first, second, expected) in [
        // Copies.
        ((0, "/a.txt"), (1, "/a.txt"), true),
        ((0, "/large.txt"), (1, "/large.txt"), true),
        ((0, "/style.css Accept-Encoding: br"), (1, "/style.css Accept-Encoding: br"), true),
        ((0, "/p.html Accept-Language: de"), (1, "/p.html Accept-Language: de"), true),
        // Another length, or a time that differs by a nanosecond.
        ((0, "/a.txt"), (0, "/longer.txt"), false),
        ((0, "/large.txt"), (3, "/large.txt"), false),
        // Equal length and time. Only the contents of small files are compared.
        ((0, "/a.txt"), (2, "/a.txt"), false),
        ((0, "/large.txt"), (2, "/large.txt"), true),
        // A time that is the same for all versions says nothing.
        ((4, "/large.txt"), (5, "/large.txt"), false),
        // Variants of equal length and time.
        ((0, "/style.css"), (0, "/style.css Accept-Encoding: br"), false),
        ((0, "/style.css Accept-Encoding: gzip"), (0, "/style.css Accept-Encoding: br"), false),
        ((0, "/p.html Accept-Language: de"), (0, "/p.html Accept-Language: en"), false),
        ((0, "/q.html"), (0, "/q.html Accept-Language: de"), false),
        ((0, "/q.html"), (0, "/q.html Accept-Encoding: gzip"), false),
    ] {
        let [a, b] = [first, second].map(|(tree, request)| tag(&trees[tree], request));
        assert_eq!(a == b, expected, "{first:?} {second:?}: {a} {b}");
        assert!(a.starts_with('"') && b.starts_with('"'), "{a} {b}");
    }
}

#[test]
fn recently_changed_file_has_a_weak_tag() {
    let tree = Tree::new();
    let settings = DirectorySettings { revalidate_after: Duration::from_millis(10), ..settings() };
    let server = tree.serve_with(settings);
    let mut client = Client::connect(&server);
    let mut changed = String::new();
    until("a response within the time in which the file may change again", || {
        tree.write("a.txt", "0123456789");
        changed = ask(&mut client, "GET", "/a.txt").header("etag").unwrap().to_owned();
        changed.starts_with("W/")
    });
    // RFC 9110 §13.1.5: a weak tag never matches, so the whole file is sent.
    let range = format!("Range: bytes=2-3\r\nIf-Range: {changed}");
    let whole = send_request_with_fields(&mut client, "GET", "/a.txt", &range);
    assert_eq!((whole.status, whole.text()), (200, "0123456789"));
    tree.settle();
    until("a strong tag", || {
        let settled = ask(&mut client, "GET", "/a.txt").header("etag").unwrap().to_owned();
        let range = format!("Range: bytes=2-3\r\nIf-Range: {settled}");
        let part = send_request_with_fields(&mut client, "GET", "/a.txt", &range);
        settled.starts_with('"') && (part.status, part.text()) == (206, "23")
    });
    drop(client);
    stop(server);
}
