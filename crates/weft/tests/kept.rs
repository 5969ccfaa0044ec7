//! What a directory keeps of its files: how fresh that is, how much it may be, when it is let
//! go; and files of which the kernel keeps nothing.

mod common;

use std::fs::{self, File};
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime};

use common::tree::{Tree, ask, ask_with, pattern, request, serve};
use common::{Client, PATIENCE, Response, address, stop, until};
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::{Bound, Directory, DirectorySettings, Server};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// So short that hardly anything is believed.
const SHORT: Duration = Duration::from_millis(10);

/// Nothing is let go of for not being used.
fn trusting(trust: Duration) -> DirectorySettings {
    DirectorySettings { trust, unused: FOR_EVER, ..DirectorySettings::default() }
}

fn letters(letter: u8, length: usize) -> Vec<u8> {
    vec![letter; length]
}

// -- how fresh it is

/// What is served: a status, and a body if that is told.
type Served = (u16, Option<Vec<u8>>);

/// What happens to a file, and what is served in place of its old contents.
struct Change {
    name: &'static str,
    make: fn(&Tree, &str),
    then: fn(Vec<u8>) -> Served,
    /// To the very file: who has it open sees that at once.
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

/// In memory, and as an open file.
const SIZES: [usize; 2] = [1_000, 100_000];

#[test]
fn every_change_of_a_kept_file_is_noticed() {
    let tree = Tree::new();
    let cases = || CHANGES.iter().flat_map(|change| SIZES.map(|size| (change, size)));
    let file = |change: &Change, size: usize| format!("{}-{size}.bin", change.name);
    cases().for_each(|(change, size)| tree.write(file(change, size), pattern(size)));
    tree.settle();
    let server = tree.serve_with(trusting(SHORT));
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
        until("the change is noticed", || {
            let response = ask(&mut client, "GET", &target);
            let is_new = response.status == status
                && body.as_ref().is_none_or(|body| *body == response.body);
            let is_old = response.status == 200 && response.body == old;
            assert!(is_new || is_old, "{name}: {} {}", response.status, response.body.len());
            assert!(is_new || tries > 0 || !(change.in_place && size > 64 << 10), "{name}");
            tries += 1;
            is_new
        });
        assert_eq!(client.came(), b"", "{name}: something came that was not asked for");
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
fn within_the_time_of_trust_there_is_no_look_at_the_file() {
    let tree = Tree::with(&[("folder/x", "x"), ("small", "small"), ("vanishing", "here")]);
    tree.write("large", pattern(100_000));
    tree.settle();
    let server = tree.serve_with(trusting(FOR_EVER));
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
    // An open file that lost its name shows that itself.
    assert_eq!(ask(&mut client, "GET", "/large").text(), "other");
    stop(server);
}

#[test]
fn what_was_not_there_is_found_and_lost_again() {
    let tree = Tree::with(&[("404.html", "none")]);
    let server = tree.serve_with(trusting(SHORT));
    let mut client = Client::connect(&server);
    let mut text = |target: &str| ask(&mut client, "GET", target).text().to_owned();
    for name in ["a.txt", "deep/below/a.txt", "folder/index.html"] {
        let target = format!("/{}", name.strip_suffix("index.html").unwrap_or(name));
        for round in ["first", "second"] {
            assert_eq!(text(&target), "none", "{target}");
            tree.write(name, round);
            until("it is found", || text(&target) == round);
            fs::remove_file(tree.path(name)).unwrap();
            until("it is lost", || text(&target) == "none");
        }
    }
    tree.write("404.html", "another");
    until("the page is another", || text("/nothing") == "another");
    fs::remove_file(tree.path("404.html")).unwrap();
    until("there is no page", || text("/nothing").contains("<h1>404 Not Found</h1>"));
    stop(server);
}

/// How many bytes the `at`th version of a file has; no two have the same number.
fn length_of(at: usize) -> usize {
    at + [10, 1_000, 40_000, 90_000, 300_000][at % 5]
}

/// Contents that can be told from their length.
fn version(length: usize) -> Vec<u8> {
    letters(b'a' + (length % 26) as u8, length)
}

#[test]
fn a_file_that_is_replaced_all_the_time_is_always_one_of_its_versions() {
    const ROUNDS: usize = 300;
    let tree = Tree::new();
    tree.write("f.txt", version(length_of(0)));
    let settings = DirectorySettings { max_kept_file_bytes: 20_000, ..trusting(SHORT) };
    let server = tree.serve_with(settings);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let client = |turn: usize| {
            let mut client = Client::connect(&server);
            let mut etag = "\"none\"".to_owned();
            for round in 0..ROUNDS {
                let fields = match (round + turn) % 4 {
                    0 => String::new(),
                    1 => "Range: bytes=3-9".to_owned(),
                    2 => "Accept-Encoding: gzip".to_owned(),
                    _ => format!("If-None-Match: {etag}"),
                };
                let response = ask_with(&mut client, "GET", "/f.txt", &fields);
                assert_eq!(client.came(), b"", "{fields}: more came");
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
                        // What was compressed has the validator of its file, as a weak one.
                        let strong = |etag: &str| etag.trim_start_matches("W/").to_owned();
                        assert_eq!(response.header("etag").map(strong), Some(strong(&etag)));
                    }
                    (status, range) => {
                        assert_eq!((status, range), (200, None));
                        assert!(body == version(body.len()), "{fields}: a mixture came");
                    }
                }
                etag = response.header("etag").unwrap().to_owned();
            }
        };
        scope.spawn(|| {
            for at in 1.. {
                if done.load(Relaxed) {
                    break;
                }
                tree.replace("f.txt", version(length_of(at)));
            }
        });
        let clients: Vec<_> = (0..3).map(|turn| scope.spawn(move || client(turn))).collect();
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
fn a_file_that_is_written_to_all_the_time_does_not_spoil_the_framing() {
    const ROUNDS: usize = 300;
    const MOST: usize = 400_000;
    let tree = Tree::with(&[("end.txt", "end")]);
    let all = pattern(MOST);
    // What is cut off becomes zero before it is gone, also on its way to a socket.
    let is_of_all = |at: usize, bytes: &[u8]| {
        let all = &all[at..];
        bytes.len() <= all.len() && bytes.iter().zip(all).all(|(b, a)| b == a || *b == 0)
    };
    tree.write("f.txt", &all[..1_000]);
    let server = tree.serve_with(trusting(SHORT));
    let done = AtomicBool::new(false);
    let whole = thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::options().append(true).open(tree.path("f.txt")).unwrap();
            for at in 0.. {
                if done.load(Relaxed) {
                    break;
                }
                // It is always a beginning of all.
                let (less, more) =
                    ([0, 700, 30_000, 65_536][at % 4], [2_000, 65_537, MOST][at % 3]);
                file.set_len(less as u64).unwrap();
                file.write_all(&all[less..more.max(less)]).unwrap();
            }
        });
        let client = |fields: &str| {
            let (mut client, mut whole) = (Client::connect(&server), 0);
            for _ in 0..ROUNDS {
                let ask = format!("GET /f.txt HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
                client.send([ask.as_bytes(), &request("GET", "/end.txt")].concat());
                // Two whole responses, or a connection that is cut within the first.
                let (first, second) = loop {
                    let first = Response::parse(client.came(), false);
                    let rest = first.as_ref().map(|first| &client.came()[first.length..]);
                    let second = rest.and_then(|rest| Response::parse(rest, false));
                    if second.is_some() || client.read() == 0 {
                        break (first, second);
                    }
                };
                match (first, second) {
                    (Some(first), Some(second)) => {
                        assert_eq!(second.text(), "end");
                        assert_eq!(client.came().len(), first.length + second.length);
                        let mut body = first.body;
                        if fields.contains("zstd") && body.starts_with(b"\x28\xb5\x2f\xfd") {
                            body = zstd::decode_all(&body[..]).unwrap();
                        }
                        let at = if first.status == 206 { 100 } else { 0 };
                        assert!(first.status == 416 || is_of_all(at, &body), "{fields}");
                        client.forget();
                        whole += 1;
                    }
                    (None, None) => {
                        let came = client.came();
                        let head = came.windows(4).position(|w| w == b"\r\n\r\n");
                        let body = head.map_or(&b""[..], |head| &came[head + 4..]);
                        let at = if came.starts_with(b"HTTP/1.1 206 ") { 100 } else { 0 };
                        assert!(fields.contains("zstd") || is_of_all(at, body), "{fields}");
                        client = Client::connect(&server);
                    }
                    (first, _) => panic!("{fields}: only the first is whole: {first:?}"),
                }
            }
            whole
        };
        let fields = ["", "Range: bytes=100-\r\n", "Accept-Encoding: zstd\r\n"];
        let clients: Vec<_> = fields.map(|f| scope.spawn(move || client(f))).into();
        let ends: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Relaxed);
        ends.into_iter().map(|end| end.unwrap()).sum::<usize>()
    });
    assert!(whole > ROUNDS / 10, "only {whole} came whole: this shows nothing");
    stop(server);
}

// -- how much it is

/// Asks for ten files; how many are open then, and of how many the contents are in memory:
/// when all are replaced, for those the old ones come.
#[track_caller]
fn kept_of_ten(tree: &Tree, settings: DirectorySettings) -> (usize, usize) {
    let (old, new) = (letters(b'o', 1_000), letters(b'n', 1_001));
    let names: Vec<_> = (0..10).map(|at| format!("{at}.css")).collect();
    names.iter().for_each(|name| tree.write(name, &old));
    tree.settle();
    let server = tree.serve_with(settings);
    let mut client = Client::connect(&server);
    for name in &names {
        assert!(ask(&mut client, "GET", format!("/{name}")).body == old, "{name}");
    }
    // The last response is let go of before the next request is read.
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

/// Settings, and how many of ten files are kept open and in memory.
type Limited = (&'static str, fn(&mut DirectorySettings), (usize, usize));

/// All at the same time, for each has to wait for its files to settle.
fn assert_kept_of_ten(cases: &[Limited], prepare: fn(&Tree)) {
    thread::scope(|scope| {
        let counted = cases.iter().map(|(name, change, expected)| {
            let kept = scope.spawn(move || {
                let mut settings = trusting(FOR_EVER);
                change(&mut settings);
                let tree = Tree::new();
                prepare(&tree);
                kept_of_ten(&tree, settings)
            });
            (name, expected, kept)
        });
        for (name, expected, kept) in counted.collect::<Vec<_>>() {
            assert_eq!(kept.join().unwrap(), *expected, "{name}");
        }
    });
}

#[test]
fn no_more_is_kept_than_the_limits_say() {
    let cases: [Limited; _] = [
        ("all", |_| (), (0, 10)),
        ("entries", |s| s.max_kept_entries = 3, (0, 3)),
        ("no entries", |s| s.max_kept_entries = 0, (0, 0)),
        ("bytes", |s| s.max_kept_bytes = 3_999, (0, 3)),
        ("exactly so many bytes", |s| s.max_kept_bytes = 4_000, (0, 4)),
        ("no bytes, so that they are kept open", |s| s.max_kept_bytes = 0, (10, 0)),
        ("bytes need no descriptors", |s| s.max_kept_descriptors = 0, (0, 10)),
        ("files of that size", |s| s.max_kept_file_bytes = 1_000, (0, 10)),
        ("larger files", |s| s.max_kept_file_bytes = 999, (10, 0)),
        ("descriptors", |s| (s.max_kept_descriptors, s.max_kept_file_bytes) = (3, 999), (3, 0)),
        (
            "open files are entries",
            |s| (s.max_kept_entries, s.max_kept_file_bytes) = (4, 0),
            (4, 0),
        ),
        ("no descriptors", |s| (s.max_kept_descriptors, s.max_kept_file_bytes) = (0, 0), (0, 0)),
        (
            "open files are no bytes",
            |s| (s.max_kept_bytes, s.max_kept_file_bytes) = (0, 0),
            (10, 0),
        ),
    ];
    assert_kept_of_ten(&cases, |_| ());
}

#[test]
fn neighbours_count_too() {
    let cases: [Limited; _] = [
        ("all", |_| (), (0, 10)),
        ("entries", |s| s.max_kept_entries = 3, (0, 3)),
        ("bytes", |s| s.max_kept_bytes = 6_000, (0, 2)),
        ("descriptors", |s| (s.max_kept_descriptors, s.max_kept_file_bytes) = (7, 0), (6, 0)),
    ];
    assert_kept_of_ten(&cases, |tree| {
        for name in (0..10).flat_map(|at| ["gz", "br"].map(|coding| format!("{at}.css.{coding}"))) {
            tree.write(&name, letters(b'x', 1_000));
            // The files are written after them, and must not be newer.
            let file = File::options().write(true).open(tree.path(&name)).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
        }
    });
}

#[test]
fn what_was_compressed_counts_too() {
    for (fields, kept) in [("", true), ("Accept-Encoding: gzip", false)] {
        let tree = Tree::new();
        tree.write("a.txt", letters(b'a', 2_000));
        tree.write("b.txt", letters(b'b', 2_000));
        tree.settle();
        let settings = DirectorySettings { max_kept_bytes: 4_000, ..trusting(FOR_EVER) };
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        let mut ask = |target: &str, fields: &str| ask_with(&mut client, "GET", target, fields);
        assert_eq!(ask("/a.txt", fields).header("content-encoding").is_some(), !kept);
        assert_eq!(ask("/b.txt", "").body, letters(b'b', 2_000));
        tree.replace("b.txt", "new");
        assert_eq!(ask("/b.txt", "").text() != "new", kept, "{fields}");
        // For what is compressed now there is no room, but it is served.
        for _ in 0..2 {
            let response = ask("/a.txt", "Accept-Encoding: zstd");
            assert_eq!(response.header("content-encoding"), Some("zstd"));
            assert_eq!(zstd::decode_all(&response.body[..]).unwrap(), letters(b'a', 2_000));
        }
        stop(server);
    }
}

#[test]
fn more_files_than_descriptors_may_be_kept_are_all_served() {
    const FILES: usize = 200;
    let tree = Tree::new();
    for at in 0..FILES {
        tree.write(format!("{at}"), format!("{at}, and some more"));
    }
    for trust in [SHORT, FOR_EVER] {
        let settings = DirectorySettings { max_kept_descriptors: 7, ..trusting(trust) };
        let server = tree.serve_with(settings);
        let mut client = Client::connect(&server);
        for round in 0..3 {
            for at in 0..FILES {
                let response = ask(&mut client, "GET", format!("/{at}"));
                assert_eq!(response.text(), format!("{at}, and some more"), "{round}");
                // One more may just be let go of.
                let open = tree.open_files();
                assert!(open <= 8, "{open} files are open");
            }
        }
        until("no more are open than may be", || tree.open_files() <= 7);
        stop(server);
        assert_eq!(tree.open_files(), 0);
    }
}

#[test]
fn what_nobody_asks_for_is_closed() {
    let tree = Tree::new();
    (0..20).for_each(|at| tree.write(format!("{at}"), pattern(100_000)));
    let settings =
        DirectorySettings { unused: Duration::from_millis(200), ..DirectorySettings::default() };
    let server = tree.serve_with(settings);
    let mut client = Client::connect(&server);
    // And so it is each time anew.
    for _ in 0..2 {
        for at in 0..20 {
            assert!(ask(&mut client, "GET", format!("/{at}")).body == pattern(100_000), "{at}");
        }
        until("all are closed", || tree.open_files() == 0);
    }
    let tree_of_another = Tree::with(&[("a", "a")]);
    let server_of_another = tree_of_another.serve_with(trusting(FOR_EVER));
    ask(&mut Client::connect(&server_of_another), "GET", "/a");
    assert_eq!(tree_of_another.open_files(), 1, "what is used stays open, or this shows nothing");
    stop(server_of_another);
    stop(server);
}

#[test]
fn what_is_not_there_takes_no_room_from_what_is() {
    let tree = Tree::new();
    let names: Vec<_> = (0..10).map(|at| format!("{at}.bin")).collect();
    names.iter().for_each(|name| tree.write(name, pattern(100_000)));
    let settings = DirectorySettings { max_kept_entries: 16, ..trusting(SHORT) };
    let server = tree.serve_with(settings);
    let mut client = Client::connect(&server);
    for name in &names {
        assert_eq!(ask(&mut client, "GET", format!("/{name}")).status, 200);
    }
    assert_eq!(tree.open_files(), 10);
    // So many that the time of trust is over, and more than once.
    for at in 0..5_000 {
        assert_eq!(ask(&mut client, "GET", format!("/missing-{at}")).status, 404);
    }
    assert_eq!(tree.open_files(), 10, "what is there was pushed out");
    stop(server);
}

#[test]
fn few_paths_are_kept_that_have_no_file() {
    let tree = Tree::new();
    let long = |at: usize| format!("{}-{at}", "long".repeat(60));
    let longest = |at: usize| format!("{}/{}-{at}", "long".repeat(60), "n".repeat(200));
    let all = |name: &dyn Fn(usize) -> String| (0..50).map(name).collect::<Vec<_>>();
    for (names, expected) in [
        (all(&|at| format!("{at}")), 4),
        (all(&|at| format!("folder/deep/{at}")), 4),
        (all(&long), 4),
        // Longer than 256 bytes.
        (all(&longest), 0),
    ] {
        let settings = DirectorySettings { max_kept_entries: 16, ..trusting(FOR_EVER) };
        // The page for what is not found would be one of them.
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
fn a_folder_of_ten_thousand_files_is_served() {
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
    let name = |at: usize| [odd[at % odd.len()], format!("-{at}.txt").as_bytes()].concat();
    for at in 0..FILES {
        tree.write([b"folder/", &name(at)[..]].concat(), format!("{at}"));
    }
    let server = tree.serve();
    let mut client = Client::connect(&server);
    let mut check = |at: usize| {
        let encode = |b: &u8| format!("%{b:02x}");
        let target: String = name(at).iter().map(encode).collect();
        let response = ask(&mut client, "GET", format!("/folder/{target}"));
        assert_eq!((response.status, response.text()), (200, &*format!("{at}")), "{target}");
        let other = ask(&mut client, "GET", format!("/folder/x{target}"));
        assert_eq!(other.status, 404);
    };
    (0..FILES).step_by(3).for_each(&mut check);
    (0..FILES).step_by(101).for_each(&mut check);
    let kept = DirectorySettings::default().max_kept_descriptors;
    let open = tree.open_files();
    assert!(open <= kept, "{open} files are open");
    stop(server);
}

#[test]
fn several_workers_know_their_files_each_for_itself() {
    let tree = Tree::new();
    tree.write("a.bin", pattern(100_000));
    let directory = Directory::with_settings(tree.root(), trusting(SHORT)).unwrap();
    let server = Server::new(directory).workers(3).listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut clients: Vec<_> = (0..9).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        assert!(ask(client, "GET", "/a.bin").body == pattern(100_000));
    }
    assert_eq!(tree.open_files(), 3);
    tree.replace("a.bin", "new");
    for client in &mut clients {
        until("it is noticed", || ask(client, "GET", "/a.bin").body == b"new");
    }
    stop(server);
}

// -- what the kernel has to bring from the disk first

const COLD_BYTES: usize = 16 << 20;

/// A tree on a disk, if there is one from which the kernel lets go of files.
fn cold_tree(files: &[(&str, &[u8])]) -> Option<Tree> {
    let tree = Tree::new();
    for (name, contents) in files {
        tree.write(name, contents);
        chill(&tree.path(name));
    }
    if files.iter().all(|(name, _)| is_cold(&tree.path(name))) {
        return Some(tree);
    }
    let skipped = b"SKIPPED: this file system keeps everything in memory\n";
    std::io::stderr().write_all(skipped).unwrap();
    None
}

fn chill(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

fn is_cold(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    let mut byte = [0];
    let slices = &mut [IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(&file, slices, 0, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN)
}

/// Sends a request to a stream and reads to the end; `meanwhile` is called when the first
/// bytes have come.
fn exchange(mut stream: impl Read + Write, request: &[u8], meanwhile: impl FnOnce()) -> Vec<u8> {
    stream.write_all(request).unwrap();
    let mut came = vec![0; 4_096];
    let first = stream.read(&mut came).unwrap();
    came.truncate(first);
    meanwhile();
    // A response that is cut ends in a reset.
    if let Err(error) = stream.read_to_end(&mut came) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "after {} bytes", came.len());
    }
    came
}

/// The ways to a file's bytes: over TCP and a Unix socket it goes from kernel to kernel,
/// over any other stream it is copied.
const WAYS: [&str; 3] = ["TCP", "Unix", "stream"];

fn over(way: &str, tree: &Tree, request: &[u8], meanwhile: impl FnOnce()) -> Vec<u8> {
    let directory = Directory::with_settings(tree.root(), trusting(SHORT)).unwrap();
    match way {
        "TCP" => {
            let server = serve(directory);
            let stream = TcpStream::connect(address(&server)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let came = exchange(stream, request, meanwhile);
            stop(server);
            came
        }
        "Unix" => {
            let socket = format!("unix:{}", tree.outer.path().join("socket").display());
            let server = Server::new(directory).workers(1).listen(&socket).unwrap();
            let server = server.start().unwrap();
            let Bound::Unix(path) = &server.addresses()[0] else { panic!("it is one") };
            let stream = UnixStream::connect(path).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let came = exchange(stream, request, meanwhile);
            stop(server);
            came
        }
        _ => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let (mut client, server) = tokio::io::duplex(50_000);
                let engine = Server::new(directory);
                let asking = async {
                    client.write_all(request).await.unwrap();
                    let mut came = vec![0; 4_096];
                    let first = client.read(&mut came).await.unwrap();
                    came.truncate(first);
                    meanwhile();
                    let _ = client.read_to_end(&mut came).await;
                    came
                };
                let both = async { tokio::join!(engine.serve_connection(server), asking) };
                tokio::time::timeout(PATIENCE, both).await.expect("it hangs").1
            })
        }
    }
}

fn closing(target: &str, fields: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n").into_bytes()
}

#[test]
fn cold_files_are_right_whole_and_in_ranges() {
    let (large, small) = (pattern(COLD_BYTES), pattern(20_000));
    let Some(tree) = cold_tree(&[("large", &large), ("small", &small)]) else { return };
    let last = COLD_BYTES - 1;
    for way in WAYS {
        for (name, contents, first, last) in [
            ("large", &large, 0, last),
            ("large", &large, 1, 1),
            ("large", &large, 131_071, 131_072),
            ("large", &large, 5_000_000, 7_654_321),
            ("large", &large, last, last),
            ("small", &small, 0, 19_999),
            ("small", &small, 19_000, 19_999),
        ] {
            chill(&tree.path(name));
            let is_whole = last - first + 1 == contents.len();
            let range = format!("Range: bytes={first}-{last}\r\n");
            let fields = if is_whole { "" } else { &range };
            let came = over(way, &tree, &closing(&format!("/{name}"), fields), || ());
            let response = Response::parse(&came, false).expect("a whole response");
            let status = if is_whole { 200 } else { 206 };
            assert_eq!(response.status, status, "{way} {name} {range}");
            assert!(response.body == contents[first..=last], "{way} {name} {range}");
            assert_eq!(response.length, came.len(), "{way} {name} {range}: more came");
        }
        // Several parts.
        chill(&tree.path("large"));
        let fields = "Range: bytes=0-9,9000000-9000999,-5\r\n";
        let came = over(way, &tree, &closing("/large", fields), || ());
        let response = Response::parse(&came, false).expect("a whole response");
        assert_eq!((response.status, response.length), (206, came.len()), "{way}");
        let rest = large.len() - 5;
        for part in [&large[..10], &large[9_000_000..9_001_000], &large[rest..]] {
            let is_there = response.body.windows(part.len()).any(|bytes| bytes == part);
            assert!(is_there, "{way}: a part is missing");
        }
    }
}

#[test]
fn cold_files_that_change_while_they_are_sent() {
    let large = pattern(COLD_BYTES);
    let Some(tree) = cold_tree(&[("large", &large)]) else { return };
    for way in WAYS {
        // One that grows is sent as long as it was.
        let grow = || {
            let mut file = File::options().append(true).open(tree.path("large")).unwrap();
            file.write_all(&letters(b'x', 100_000)).unwrap();
        };
        chill(&tree.path("large"));
        let came = over(way, &tree, &closing("/large", ""), grow);
        let response = Response::parse(&came, false).expect("a whole response");
        assert!(response.body == large, "{way}: other bytes came, {}", response.body.len());
        assert_eq!(response.length, came.len(), "{way}: more came");

        // One that shrinks is cut.
        tree.write("large", &large);
        chill(&tree.path("large"));
        let shrink = || {
            let file = File::options().write(true).open(tree.path("large")).unwrap();
            file.set_len(1 << 20).unwrap();
        };
        let came = over(way, &tree, &closing("/large", ""), shrink);
        assert!(Response::parse(&came, false).is_none(), "{way}: it must not look whole");
        let head = came.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let length = format!("\r\ncontent-length: {COLD_BYTES}\r\n");
        assert!(String::from_utf8_lossy(&came[..head]).contains(&length), "{way}");
        assert!(large.starts_with(&came[head..]), "{way}: something that is not the file's came");
        tree.write("large", &large);
    }
}

#[test]
fn many_cold_files_at_a_time_are_served_and_warm_ones_between_them() {
    const FILES: usize = 40;
    let names: Vec<_> = (0..FILES).map(|at| format!("{at}")).collect();
    let contents = |at: usize| letters(at as u8, 300_000);
    let files: Vec<_> = (0..FILES).map(contents).collect();
    let files: Vec<_> = names.iter().map(|n| &**n).zip(files.iter().map(|c| &**c)).collect();
    let Some(tree) = cold_tree(&files) else { return };
    tree.write("warm", "warm");
    let server = tree.serve_with(trusting(SHORT));
    let mut warm = Client::connect(&server);
    let mut clients: Vec<_> = (0..FILES)
        .map(|at| {
            let client = Client::with(&server, request("GET", format!("/{at}")));
            assert_eq!(ask(&mut warm, "GET", "/warm").text(), "warm");
            client
        })
        .collect();
    for (at, client) in clients.iter_mut().enumerate() {
        assert!(client.response().body == contents(at), "{at}");
    }
    stop(server);
}
