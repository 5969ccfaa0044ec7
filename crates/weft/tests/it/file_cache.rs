//! The file cache of a directory: revalidation, limits and eviction; and files that are not in the
//! kernel's page cache.
#![cfg(all(feature = "brotli", feature = "files", feature = "gzip", feature = "zstd"))]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::common::tree::{Tree, ask, pattern, request, send_request_with_fields, serve};
use crate::common::{Client, Response, TEST_TIMEOUT, address, stop, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::Server;
use weft::files::{Directory, DirectorySettings};
use weft::net::LocalAddress;

/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(86_400);

/// So short that entries are revalidated almost every time.
const OFTEN: Duration = Duration::from_millis(10);

/// Settings that revalidate entries after `interval` and never evict them for being unused.
fn revalidating(interval: Duration) -> DirectorySettings {
    DirectorySettings {
        revalidate_after: interval,
        evict_after: NEVER,
        ..DirectorySettings::default()
    }
}

fn letters(letter: u8, length: usize) -> Vec<u8> {
    vec![letter; length]
}

// -- revalidation

/// Expected status, and the body if it is checked.
type Expected = (u16, Option<Vec<u8>>);

/// A change of a file, and the response expected after it.
struct Change {
    name: &'static str,
    make: fn(&Tree, &str),
    then: fn(Vec<u8>) -> Expected,
    /// The inode stays the same, so the change is visible immediately through an open descriptor.
    in_place: bool,
}

const CHANGES: [Change; 8] = [
    Change {
        name: "replaced",
        make: |tree, name| tree.replace(name, "new"),
        then: |_| (200, Some("new".into())),
        in_place: false,
    },
    Change {
        name: "written-over",
        make: |tree, name| tree.write(name, "new"),
        then: |_| (200, Some("new".into())),
        in_place: true,
    },
    Change {
        name: "cut",
        make: |tree, name| {
            let file = File::options().write(true).open(tree.path(name)).unwrap();
            file.set_len(100).unwrap();
        },
        then: |old| (200, Some(old[..100].to_vec())),
        in_place: true,
    },
    Change {
        name: "emptied",
        make: |tree, name| tree.write(name, ""),
        then: |_| (200, Some(Vec::new())),
        in_place: true,
    },
    Change {
        name: "grown",
        make: |tree, name| {
            let mut file = File::options().append(true).open(tree.path(name)).unwrap();
            file.write_all(b"more").unwrap();
        },
        then: |old| (200, Some([&old, &b"more"[..]].concat())),
        in_place: true,
    },
    Change {
        name: "deleted",
        make: |tree, name| fs::remove_file(tree.path(name)).unwrap(),
        then: |_| (404, None),
        in_place: false,
    },
    Change {
        name: "made-a-folder",
        make: |tree, name| {
            fs::remove_file(tree.path(name)).unwrap();
            fs::create_dir(tree.path(name)).unwrap();
        },
        then: |_| (301, None),
        in_place: false,
    },
    Change {
        name: "made-a-link-out",
        make: |tree, name| {
            fs::remove_file(tree.path(name)).unwrap();
            tree.link(name, "../secret.txt");
        },
        then: |_| (404, None),
        in_place: false,
    },
];

/// Cached in memory, and as an open file.
const SIZES: [usize; 2] = [1_000, 100_000];

#[test]
fn detects_every_change_of_a_cached_file() {
    let tree = Tree::new();
    let cases = || CHANGES.iter().flat_map(|change| SIZES.map(|size| (change, size)));
    let file = |change: &Change, size: usize| format!("{}-{size}.bin", change.name);
    cases().for_each(|(change, size)| tree.write(file(change, size), pattern(size)));
    tree.settle();
    let server = tree.serve_with(revalidating(OFTEN));
    let mut client = Client::connect(&server);
    for (change, size) in cases() {
        let (name, old) = (file(change, size), pattern(size));
        let target = format!("/{name}");
        for _ in 0..3 {
            assert!(ask(&mut client, "GET", &target).body == old, "{name}");
        }
        (change.make)(&tree, &name);
        let (status, body) = (change.then)(old.clone());
        let mut tries = 0;
        until("the change is detected", || {
            let response = ask(&mut client, "GET", &target);
            let is_new = response.status == status
                && body.as_ref().is_none_or(|body| *body == response.body);
            let is_old = response.status == 200 && response.body == old;
            assert!(is_new || is_old, "{name}: {} {}", response.status, response.body.len());
            assert!(is_new || tries > 0 || !(change.in_place && size > 64 << 10), "{name}");
            tries += 1;
            is_new
        });
        assert_eq!(client.received(), b"", "{name}: received unexpected bytes");
        let head = ask(&mut client, "HEAD", &target);
        let length = head.header("content-length").map(|length| length.parse().unwrap());
        assert_eq!(
            (head.status, body.is_none() || length == body.map(|b| b.len())),
            (status, true)
        );
    }
    stop(server);
}

#[test]
fn cached_entries_are_not_checked_before_revalidation() {
    let tree = Tree::with_files(&[("folder/x", "x"), ("small", "small"), ("vanishing", "here")]);
    tree.write("large", pattern(100_000));
    tree.settle();
    let server = tree.serve_with(revalidating(NEVER));
    let mut client = Client::connect(&server);
    let targets = ["/small", "/vanishing", "/missing", "/folder"];
    let before = targets.map(|target| ask(&mut client, "GET", target));
    assert!(ask(&mut client, "GET", "/large").body == pattern(100_000));
    tree.replace("small", "other");
    tree.replace("large", "other");
    fs::remove_file(tree.path("vanishing")).unwrap();
    tree.write("missing", "found");
    fs::remove_dir_all(tree.path("folder")).unwrap();
    for (target, before) in targets.iter().zip(&before) {
        let after = ask(&mut client, "GET", target);
        assert_eq!(after.status, before.status, "{target}");
        assert!(after.body == before.body, "{target}");
        assert_eq!(after.header("etag"), before.header("etag"), "{target}");
    }
    assert_eq!(before.map(|response| response.status), [200, 200, 404, 301]);
    // An open file whose link count became 0 is looked up again.
    assert_eq!(ask(&mut client, "GET", "/large").text(), "other");
    stop(server);
}

#[test]
fn detects_created_and_deleted_files() {
    let tree = Tree::with_files(&[("404.html", "none")]);
    let server = tree.serve_with(revalidating(OFTEN));
    let mut client = Client::connect(&server);
    let mut text = |target: &str| ask(&mut client, "GET", target).text().to_owned();
    for name in ["a.txt", "deep/below/a.txt", "folder/index.html"] {
        let target = format!("/{}", name.strip_suffix("index.html").unwrap_or(name));
        for round in ["first", "second"] {
            assert_eq!(text(&target), "none", "{target}");
            tree.write(name, round);
            until("the new file is served", || text(&target) == round);
            fs::remove_file(tree.path(name)).unwrap();
            until("the deleted file is no longer served", || text(&target) == "none");
        }
    }
    tree.write("404.html", "another");
    until("the new error page is served", || text("/nothing") == "another");
    fs::remove_file(tree.path("404.html")).unwrap();
    until("the default error page is served", || text("/nothing") == "404 Not Found\n");
    stop(server);
}

/// Length of version `number` of a file. No two versions have the same length.
fn version_length(number: usize) -> usize {
    number + [10, 1_000, 40_000, 90_000, 300_000][number % 5]
}

/// Contents determined by their length.
fn version(length: usize) -> Vec<u8> {
    letters(b'a' + (length % 26) as u8, length)
}

#[test]
fn responses_never_mix_versions_of_a_replaced_file() {
    const ROUNDS: usize = 300;
    let tree = Tree::new();
    tree.write("f.txt", version(version_length(0)));
    let settings = DirectorySettings { max_cached_file_bytes: 20_000, ..revalidating(OFTEN) };
    let server = tree.serve_with(settings);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let client = |offset: usize| {
            let mut client = Client::connect(&server);
            let mut etag = "\"none\"".to_owned();
            for round in 0..ROUNDS {
                let fields = match (round + offset) % 4 {
                    0 => String::new(),
                    1 => "Range: bytes=3-9".to_owned(),
                    2 => "Accept-Encoding: gzip".to_owned(),
                    _ => format!("If-None-Match: {etag}"),
                };
                let response = send_request_with_fields(&mut client, "GET", "/f.txt", &fields);
                assert_eq!(client.received(), b"", "{fields}: received more bytes");
                let body = match response.header("content-encoding") {
                    Some("gzip") => {
                        let mut body = Vec::new();
                        flate2::read::GzDecoder::new(&response.body[..])
                            .read_to_end(&mut body)
                            .unwrap();
                        body
                    }
                    other => {
                        assert_eq!(other, None);
                        response.body.clone()
                    }
                };
                match (response.status, response.header("content-range")) {
                    (206, Some(range)) => {
                        let whole = range.strip_prefix("bytes 3-9/").unwrap().parse().unwrap();
                        assert!(body == version(whole)[3..10], "{range}");
                    }
                    (304, None) => {
                        // A compressed form has the ETag of its file, marked as weak.
                        let strong = |etag: &str| etag.trim_start_matches("W/").to_owned();
                        assert_eq!(response.header("etag").map(strong), Some(strong(&etag)));
                    }
                    (status, range) => {
                        assert_eq!((status, range), (200, None));
                        assert!(body == version(body.len()), "{fields}: a mixture of versions");
                    }
                }
                etag = response.header("etag").unwrap().to_owned();
            }
        };
        scope.spawn(|| {
            for number in 1.. {
                if done.load(Relaxed) {
                    break;
                }
                tree.replace("f.txt", version(version_length(number)));
            }
        });
        let clients: Vec<_> = (0..3).map(|offset| scope.spawn(move || client(offset))).collect();
        let ends: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    until("old versions are closed", || {
        ask(&mut Client::connect(&server), "GET", "/f.txt");
        tree.open_files() <= 1
    });
    stop(server);
}

#[test]
fn concurrent_writes_to_a_file_never_break_framing() {
    const ROUNDS: usize = 300;
    const MAX_LENGTH: usize = 400_000;
    let tree = Tree::with_files(&[("end.txt", "end")]);
    let all = pattern(MAX_LENGTH);
    // Truncated data may be zeroed before it disappears, also in data queued to a socket.
    let matches_at = |i: usize, bytes: &[u8]| {
        let all = &all[i..];
        bytes.len() <= all.len() && bytes.iter().zip(all).all(|(b, a)| b == a || *b == 0)
    };
    tree.write("f.txt", &all[..1_000]);
    let server = tree.serve_with(revalidating(OFTEN));
    let done = AtomicBool::new(false);
    let complete = thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::options().append(true).open(tree.path("f.txt")).unwrap();
            for i in 0.. {
                if done.load(Relaxed) {
                    break;
                }
                // The file is always a prefix of `all`.
                let (truncated, extended) =
                    ([0, 700, 30_000, 65_536][i % 4], [2_000, 65_537, MAX_LENGTH][i % 3]);
                file.set_len(truncated as u64).unwrap();
                file.write_all(&all[truncated..extended.max(truncated)]).unwrap();
            }
        });
        let client = |fields: &str| {
            let (mut client, mut complete) = (Client::connect(&server), 0);
            for _ in 0..ROUNDS {
                let first_request = format!("GET /f.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
                client.send([first_request.as_bytes(), &request("GET", "/end.txt")].concat());
                // Two complete responses, or a connection closed within the first.
                let (first, second) = loop {
                    let first = Response::parse(client.received(), false);
                    let rest = first.as_ref().map(|first| &client.received()[first.length..]);
                    let second = rest.and_then(|rest| Response::parse(rest, false));
                    if second.is_some() || client.read() == 0 {
                        break (first, second);
                    }
                };
                match (first, second) {
                    (Some(first), Some(second)) => {
                        assert_eq!(second.text(), "end");
                        assert_eq!(client.received().len(), first.length + second.length);
                        let mut body = first.body;
                        if fields.contains("zstd") && body.starts_with(b"\x28\xb5\x2f\xfd") {
                            body = zstd::decode_all(&body[..]).unwrap();
                        }
                        let i = if first.status == 206 { 100 } else { 0 };
                        assert!(first.status == 416 || matches_at(i, &body), "{fields}");
                        client.clear_received();
                        complete += 1;
                    }
                    (None, None) => {
                        let received = client.received();
                        let head = received.windows(4).position(|w| w == b"\r\n\r\n");
                        let body = head.map_or(&b""[..], |head| &received[head + 4..]);
                        let i = if received.starts_with(b"HTTP/1.1 206 ") { 100 } else { 0 };
                        assert!(fields.contains("zstd") || matches_at(i, body), "{fields}");
                        client = Client::connect(&server);
                    }
                    (first, _) => {
                        panic!("{fields}: only the first response is complete: {first:?}")
                    }
                }
            }
            complete
        };
        let fields = ["", "Range: bytes=100-\r\n", "Accept-Encoding: zstd\r\n"];
        let clients: Vec<_> = fields.map(|f| scope.spawn(move || client(f))).into();
        let ends: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Relaxed);
        ends.into_iter().map(|end| end.unwrap()).sum::<usize>()
    });
    assert!(
        complete > ROUNDS / 10,
        "only {complete} complete responses: too few to be significant"
    );
    stop(server);
}

// -- limits

/// Requests ten files; returns how many of them are open, and how many have their contents in
/// memory: after all files were replaced, these are served with the old contents.
#[track_caller]
fn cached_of_ten(tree: &Tree, settings: DirectorySettings) -> (usize, usize) {
    let (old, new) = (letters(b'o', 1_000), letters(b'n', 1_001));
    let names: Vec<_> = (0..10).map(|i| format!("{i}.css")).collect();
    names.iter().for_each(|name| tree.write(name, &old));
    tree.settle();
    let server = tree.serve_with(settings);
    let mut client = Client::connect(&server);
    for name in &names {
        assert!(ask(&mut client, "GET", format!("/{name}")).body == old, "{name}");
    }
    // The last response is dropped before the next request is read.
    assert_eq!(ask(&mut client, "GET", "/nothing").status, 404);
    let open = tree.open_files();
    names.iter().for_each(|name| tree.replace(name, &new));
    let in_memory = names.iter().filter(|name| {
        let body = ask(&mut client, "GET", format!("/{name}")).body;
        assert!(body == old || body == new, "{name}");
        body == old
    });
    let in_memory = in_memory.count();
    stop(server);
    (open, in_memory)
}

/// Name, settings, and how many of ten files are cached as open files and in memory.
type Limited = (&'static str, fn(&mut DirectorySettings), (usize, usize));

/// Runs all cases concurrently, because each must wait until its files are old enough to be cached.
fn assert_cached_of_ten(cases: &[Limited], prepare: fn(&Tree)) {
    thread::scope(|scope| {
        let counts = cases.iter().map(|(name, change, expected)| {
            let cached = scope.spawn(move || {
                let mut settings = revalidating(NEVER);
                change(&mut settings);
                let tree = Tree::new();
                prepare(&tree);
                cached_of_ten(&tree, settings)
            });
            (name, expected, cached)
        });
        for (name, expected, cached) in counts.collect::<Vec<_>>() {
            assert_eq!(cached.join().unwrap(), *expected, "{name}");
        }
    });
}

#[test]
fn cache_obeys_its_limits() {
    let cases: [Limited; _] = [
        ("all", |_| (), (0, 10)),
        ("entries", |s| s.max_cached_entries = 3, (0, 3)),
        ("no entries", |s| s.max_cached_entries = 0, (0, 0)),
        ("bytes", |s| s.max_cached_bytes = 3_999, (0, 3)),
        ("exactly the byte limit", |s| s.max_cached_bytes = 4_000, (0, 4)),
        ("no bytes, so that files are cached as open files", |s| s.max_cached_bytes = 0, (10, 0)),
        ("files in memory use no descriptors", |s| s.max_cached_descriptors = 0, (0, 10)),
        ("files of the maximum size", |s| s.max_cached_file_bytes = 1_000, (0, 10)),
        ("larger files", |s| s.max_cached_file_bytes = 999, (10, 0)),
        ("descriptors", |s| (s.max_cached_descriptors, s.max_cached_file_bytes) = (3, 999), (3, 0)),
        (
            "open files count as entries",
            |s| (s.max_cached_entries, s.max_cached_file_bytes) = (4, 0),
            (4, 0),
        ),
        (
            "no descriptors",
            |s| (s.max_cached_descriptors, s.max_cached_file_bytes) = (0, 0),
            (0, 0),
        ),
        (
            "open files do not count as bytes",
            |s| (s.max_cached_bytes, s.max_cached_file_bytes) = (0, 0),
            (10, 0),
        ),
    ];
    assert_cached_of_ten(&cases, |_| ());
}

#[test]
fn precompressed_files_count_towards_the_limits() {
    let cases: [Limited; _] = [
        ("all", |_| (), (0, 10)),
        ("entries", |s| s.max_cached_entries = 3, (0, 3)),
        ("bytes", |s| s.max_cached_bytes = 6_000, (0, 2)),
        ("descriptors", |s| (s.max_cached_descriptors, s.max_cached_file_bytes) = (7, 0), (6, 0)),
    ];
    assert_cached_of_ten(&cases, |tree| {
        for name in (0..10).flat_map(|i| ["gz", "br"].map(|coding| format!("{i}.css.{coding}"))) {
            tree.write(&name, letters(b'x', 1_000));
            // The originals are written later and must not be newer than their compressed files.
            let file = File::options().write(true).open(tree.path(&name)).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
        }
    });
}

#[test]
fn compressed_forms_count_towards_the_limits() {
    for (fields, is_cached) in [("", true), ("Accept-Encoding: gzip", false)] {
        let tree = Tree::new();
        tree.write("a.txt", letters(b'a', 2_000));
        tree.write("b.txt", letters(b'b', 2_000));
        tree.settle();
        let settings = DirectorySettings { max_cached_bytes: 4_000, ..revalidating(NEVER) };
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        let mut ask = |target: &str, fields: &str| {
            send_request_with_fields(&mut client, "GET", target, fields)
        };
        assert_eq!(ask("/a.txt", fields).header("content-encoding").is_some(), !is_cached);
        assert_eq!(ask("/b.txt", "").body, letters(b'b', 2_000));
        tree.replace("b.txt", "new");
        assert_eq!(ask("/b.txt", "").text() != "new", is_cached, "{fields}");
        // There may be no room to cache this compressed form. Without the cache, each request would
        // compress the file again, and each slow client would hold a form of its own.
        for _ in 0..2 {
            let response = ask("/a.txt", "Accept-Encoding: zstd");
            assert_eq!(response.header("content-encoding"), None);
            assert_eq!(response.body, letters(b'a', 2_000));
        }
        stop(server);
    }
}

#[test]
fn serves_more_files_than_cached_descriptors() {
    const FILES: usize = 200;
    let tree = Tree::new();
    for i in 0..FILES {
        tree.write(format!("{i}"), format!("{i}, and some more"));
    }
    for interval in [OFTEN, NEVER] {
        let settings = DirectorySettings { max_cached_descriptors: 7, ..revalidating(interval) };
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        for round in 0..3 {
            for i in 0..FILES {
                let response = ask(&mut client, "GET", format!("/{i}"));
                assert_eq!(response.text(), format!("{i}, and some more"), "{round}");
                // One more may be open while it is being evicted.
                let open = tree.open_files();
                assert!(open <= 8, "{open} files are open");
            }
        }
        until("open files are within the limit", || tree.open_files() <= 7);
        stop(server);
        assert_eq!(tree.open_files(), 0);
    }
}

#[test]
fn closes_unused_files() {
    let tree = Tree::new();
    (0..20).for_each(|i| tree.write(format!("{i}"), pattern(100_000)));
    let settings = DirectorySettings {
        evict_after: Duration::from_millis(200),
        ..DirectorySettings::default()
    };
    let server = tree.serve_with(settings);
    let mut client = Client::connect(&server);
    // Twice, so that the files are opened again.
    for _ in 0..2 {
        for i in 0..20 {
            assert!(ask(&mut client, "GET", format!("/{i}")).body == pattern(100_000), "{i}");
        }
        until("all files are closed", || tree.open_files() == 0);
    }
    let other_tree = Tree::with_files(&[("a", "a")]);
    let other_server = other_tree.serve_with(revalidating(NEVER));
    ask(&mut Client::connect(&other_server), "GET", "/a");
    assert_eq!(other_tree.open_files(), 1, "with a long `unused` the file stays open");
    stop(other_server);
    stop(server);
}

#[test]
fn missing_paths_do_not_evict_files() {
    let tree = Tree::new();
    let names: Vec<_> = (0..10).map(|i| format!("{i}.bin")).collect();
    names.iter().for_each(|name| tree.write(name, pattern(100_000)));
    let settings = DirectorySettings { max_cached_entries: 16, ..revalidating(OFTEN) };
    let server = tree.serve_with(settings);
    let mut client = Client::connect(&server);
    for name in &names {
        assert_eq!(ask(&mut client, "GET", format!("/{name}")).status, 200);
    }
    assert_eq!(tree.open_files(), 10);
    // So many requests that entries are revalidated more than once meanwhile.
    for i in 0..5_000 {
        assert_eq!(ask(&mut client, "GET", format!("/missing-{i}")).status, 404);
    }
    assert_eq!(tree.open_files(), 10, "existing files were evicted");
    stop(server);
}

#[test]
fn limits_cached_missing_paths() {
    let tree = Tree::new();
    let long = |i: usize| format!("{}-{i}", "long".repeat(60));
    let longest = |i: usize| format!("{}/{}-{i}", "long".repeat(60), "n".repeat(200));
    let all = |name: &dyn Fn(usize) -> String| (0..50).map(name).collect::<Vec<_>>();
    for (names, expected) in [
        (all(&|i| format!("{i}")), 4),
        (all(&|i| format!("folder/deep/{i}")), 4),
        (all(&long), 4),
        // Longer than 256 bytes: never cached.
        (all(&longest), 0),
    ] {
        let settings = DirectorySettings { max_cached_entries: 16, ..revalidating(NEVER) };
        // The error page for 404 would be one of the cached missing paths.
        let settings = DirectorySettings { error_pages: Vec::new(), ..settings };
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        for name in &names {
            assert_eq!(ask(&mut client, "GET", format!("/{name}")).status, 404);
        }
        names.iter().for_each(|name| tree.write(name, "here"));
        let status = |name: &String| ask(&mut client, "GET", format!("/{name}")).status;
        let statuses: Vec<_> = names.iter().map(status).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 404).count(), expected);
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 50 - expected);
        stop(server);
    }
}

#[test]
fn caches_at_most_1024_missing_paths_by_default() {
    const PATHS: usize = 1_200;
    let tree = Tree::new();
    // The error page for 404 would be one of the cached missing paths.
    let settings = DirectorySettings { error_pages: Vec::new(), ..revalidating(NEVER) };
    let server = tree.serve_with(settings);
    let mut client = Client::connect(&server);
    let mut status = |number| ask(&mut client, "GET", format!("/{number}.bin")).status;
    assert!((0..PATHS).all(|number| status(number) == 404));
    (0..PATHS).for_each(|number| tree.write(format!("{number}.bin"), "here"));
    let cached = (0..PATHS).filter(|&number| status(number) == 404).count();
    assert_eq!(cached, 1_024);
    stop(server);
}

#[test]
fn serves_a_directory_of_ten_thousand_files() {
    const FILES: usize = 10_000;
    let tree = Tree::new();
    let odd: [&[u8]; 8] = [
        b"two words",
        b"100%",
        b"%41",
        b"\"quo'ted\"",
        "días".as_bytes(),
        "日本語".as_bytes(),
        b"\xff\xfe",
        b"a\nb",
    ];
    let name = |i: usize| [odd[i % odd.len()], format!("-{i}.txt").as_bytes()].concat();
    for i in 0..FILES {
        tree.write([b"folder/", &name(i)[..]].concat(), format!("{i}"));
    }
    let server = tree.serve();
    let mut client = Client::connect(&server);
    let mut check = |i: usize| {
        let encode = |b: &u8| format!("%{b:02x}");
        let target: String = name(i).iter().map(encode).collect();
        let response = ask(&mut client, "GET", format!("/folder/{target}"));
        assert_eq!((response.status, response.text()), (200, &*format!("{i}")), "{target}");
        let other = ask(&mut client, "GET", format!("/folder/x{target}"));
        assert_eq!(other.status, 404);
    };
    (0..FILES).step_by(3).for_each(&mut check);
    (0..FILES).step_by(101).for_each(&mut check);
    let max_open = DirectorySettings::default().max_cached_descriptors;
    let open = tree.open_files();
    assert!(open <= max_open, "{open} files are open");
    stop(server);
}

#[test]
fn each_worker_has_its_own_file_cache() {
    let tree = Tree::new();
    tree.write("a.bin", pattern(100_000));
    let directory = Directory::with_settings(tree.root(), revalidating(OFTEN)).unwrap();
    let server = Server::new(directory).workers(3).listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut clients: Vec<_> = (0..9).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        assert!(ask(client, "GET", "/a.bin").body == pattern(100_000));
    }
    assert_eq!(tree.open_files(), 3);
    tree.replace("a.bin", "new");
    for client in &mut clients {
        until("the change is detected", || ask(client, "GET", "/a.bin").body == b"new");
    }
    stop(server);
}

// -- files that are not in the page cache

const COLD_BYTES: usize = 16 << 20;

/// A tree whose files are not in the page cache; `None` if the file system does not support that.
fn cold_tree(files: &[(&str, &[u8])]) -> Option<Tree> {
    let tree = Tree::new();
    for (name, contents) in files {
        tree.write(name, contents);
        evict_from_page_cache(&tree.path(name));
    }
    if files.iter().all(|(name, _)| is_cold(&tree.path(name))) {
        return Some(tree);
    }
    let skipped = b"SKIPPED: this file system cannot evict files from the page cache\n";
    std::io::stderr().write_all(skipped).unwrap();
    None
}

#[cfg(target_os = "linux")]
fn evict_from_page_cache(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[cfg(target_os = "linux")]
fn is_cold(path: &Path) -> bool {
    use rustix::io::{Errno, ReadWriteFlags};
    let file = File::open(path).unwrap();
    let mut byte = [0];
    let slices = &mut [std::io::IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(&file, slices, 0, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN)
}

#[cfg(not(target_os = "linux"))]
fn evict_from_page_cache(_path: &Path) {}

/// Returns false: the call that tells exists on Linux only.
#[cfg(not(target_os = "linux"))]
fn is_cold(_path: &Path) -> bool {
    false
}

/// Sends a request to a stream and reads to the end. Calls `meanwhile` after the first bytes were
/// received.
fn exchange(mut stream: impl Read + Write, request: &[u8], meanwhile: impl FnOnce()) -> Vec<u8> {
    stream.write_all(request).unwrap();
    let mut received = vec![0; 4_096];
    let first = stream.read(&mut received).unwrap();
    received.truncate(first);
    meanwhile();
    // A truncated response ends in a reset.
    if let Err(error) = stream.read_to_end(&mut received) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "after {} bytes", received.len());
    }
    received
}

/// Kinds of connection: over TCP and Unix sockets files are sent with `sendfile`, over any other
/// stream they are copied.
const CONNECTIONS: [&str; 3] = ["TCP", "Unix", "stream"];

fn fetch_over(connection: &str, tree: &Tree, request: &[u8], meanwhile: impl FnOnce()) -> Vec<u8> {
    let directory = Directory::with_settings(tree.root(), revalidating(OFTEN)).unwrap();
    match connection {
        "TCP" => {
            let server = serve(directory);
            let stream = TcpStream::connect(address(&server)).unwrap();
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            let received = exchange(stream, request, meanwhile);
            stop(server);
            received
        }
        "Unix" => {
            let socket = format!("unix:{}", tree.outer.path().join("socket").display());
            let server = Server::new(directory).workers(1).listen(&socket).unwrap();
            let server = server.start().unwrap();
            let LocalAddress::Unix(path) = &server.addresses()[0] else {
                panic!("not a Unix socket")
            };
            let stream = UnixStream::connect(path).unwrap();
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            let received = exchange(stream, request, meanwhile);
            stop(server);
            received
        }
        _ => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let (mut client, server) = tokio::io::duplex(50_000);
                let engine = Server::new(directory);
                let exchange = async {
                    client.write_all(request).await.unwrap();
                    let mut received = vec![0; 4_096];
                    let first = client.read(&mut received).await.unwrap();
                    received.truncate(first);
                    meanwhile();
                    let _ = client.read_to_end(&mut received).await;
                    received
                };
                let both = async { tokio::join!(engine.serve_connection(server), exchange) };
                tokio::time::timeout(TEST_TIMEOUT, both)
                    .await
                    .expect("the connection ends in time")
                    .1
            })
        }
    }
}

fn closing(target: &str, fields: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n").into_bytes()
}

#[test]
fn serves_uncached_files_completely_and_in_ranges() {
    let (large, small) = (pattern(COLD_BYTES), pattern(20_000));
    let Some(tree) = cold_tree(&[("large", &large), ("small", &small)]) else { return };
    let last = COLD_BYTES - 1;
    for connection in CONNECTIONS {
        for (name, contents, first, last) in [
            ("large", &large, 0, last),
            ("large", &large, 1, 1),
            ("large", &large, 131_071, 131_072),
            ("large", &large, 5_000_000, 7_654_321),
            ("large", &large, last, last),
            ("small", &small, 0, 19_999),
            ("small", &small, 19_000, 19_999),
        ] {
            evict_from_page_cache(&tree.path(name));
            let is_complete = last - first + 1 == contents.len();
            let range = format!("Range: bytes={first}-{last}\r\n");
            let fields = if is_complete { "" } else { &range };
            let received =
                fetch_over(connection, &tree, &closing(&format!("/{name}"), fields), || ());
            let response = Response::parse(&received, false).expect("a complete response");
            let status = if is_complete { 200 } else { 206 };
            assert_eq!(response.status, status, "{connection} {name} {range}");
            assert!(response.body == contents[first..=last], "{connection} {name} {range}");
            assert_eq!(
                response.length,
                received.len(),
                "{connection} {name} {range}: received more bytes"
            );
        }
        // Several ranges.
        evict_from_page_cache(&tree.path("large"));
        let fields = "Range: bytes=0-9,9000000-9000999,-5\r\n";
        let received = fetch_over(connection, &tree, &closing("/large", fields), || ());
        let response = Response::parse(&received, false).expect("a complete response");
        assert_eq!((response.status, response.length), (206, received.len()), "{connection}");
        let rest = large.len() - 5;
        for part in [&large[..10], &large[9_000_000..9_001_000], &large[rest..]] {
            let is_found = response.body.windows(part.len()).any(|bytes| bytes == part);
            assert!(is_found, "{connection}: a range is missing");
        }
    }
}

#[test]
fn handles_uncached_files_that_change_while_sending() {
    let large = pattern(COLD_BYTES);
    let Some(tree) = cold_tree(&[("large", &large)]) else { return };
    for connection in CONNECTIONS {
        // A file that grows is sent with its original length.
        let grow = || {
            let mut file = File::options().append(true).open(tree.path("large")).unwrap();
            file.write_all(&letters(b'x', 100_000)).unwrap();
        };
        evict_from_page_cache(&tree.path("large"));
        let received = fetch_over(connection, &tree, &closing("/large", ""), grow);
        let response = Response::parse(&received, false).expect("a complete response");
        assert!(
            response.body == large,
            "{connection}: received {} other bytes",
            response.body.len()
        );
        assert_eq!(response.length, received.len(), "{connection}: received more bytes");

        // A file that shrinks gives an incomplete response.
        tree.write("large", &large);
        evict_from_page_cache(&tree.path("large"));
        let shrink = || {
            let file = File::options().write(true).open(tree.path("large")).unwrap();
            file.set_len(1 << 20).unwrap();
        };
        let received = fetch_over(connection, &tree, &closing("/large", ""), shrink);
        assert!(
            Response::parse(&received, false).is_none(),
            "{connection}: the response must be incomplete"
        );
        let head = received.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let length = format!("\r\ncontent-length: {COLD_BYTES}\r\n");
        assert!(String::from_utf8_lossy(&received[..head]).contains(&length), "{connection}");
        assert!(
            large.starts_with(&received[head..]),
            "{connection}: received bytes that are not of the file"
        );
        tree.write("large", &large);
    }
}

#[test]
fn serves_many_uncached_files_concurrently_with_cached_ones() {
    const FILES: usize = 40;
    let names: Vec<_> = (0..FILES).map(|i| format!("{i}")).collect();
    let contents = |i: usize| letters(i as u8, 300_000);
    let files: Vec<_> = (0..FILES).map(contents).collect();
    let files: Vec<_> = names.iter().map(|n| &**n).zip(files.iter().map(|c| &**c)).collect();
    let Some(tree) = cold_tree(&files) else { return };
    tree.write("warm", "warm");
    let server = tree.serve_with(revalidating(OFTEN));
    let mut warm = Client::connect(&server);
    let mut clients: Vec<_> = (0..FILES)
        .map(|i| {
            let client = Client::connect_and_send(&server, request("GET", format!("/{i}")));
            assert_eq!(ask(&mut warm, "GET", "/warm").text(), "warm");
            client
        })
        .collect();
    for (i, client) in clients.iter_mut().enumerate() {
        assert!(client.response().body == contents(i), "{i}");
    }
    stop(server);
}
