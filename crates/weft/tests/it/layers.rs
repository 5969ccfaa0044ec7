//! The direction of imports inside of the library, as ARCHITECTURE.md draws it: between the modules
//! beneath the root, between the files of the server, and within each folder.

use std::collections::{BTreeMap, BTreeSet};

use weft_structure::Crate;

/// Each module directly beneath `src/`, and the modules that it may import. Modules stand below
/// all modules that they import, so the table has no cycle.
const LAYERS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("exclusive", &[]),
    ("panic", &["error"]),
    ("stream", &[]),
    ("sync", &[]),
    ("sys", &[]),
    ("peer", &[]),
    ("random", &[]),
    ("settings", &[]),
    ("clock", &["settings", "sys"]),
    ("runtime", &["clock"]),
    ("compression", &[]),
    ("disk", &["error", "exclusive", "sys"]),
    ("message", &["clock", "disk", "error", "exclusive", "panic", "peer", "random", "stream"]),
    ("app", &["message"]),
    ("stack", &["app", "message"]),
    ("trace", &["clock", "error", "message", "peer"]),
    ("hooks", &["error", "message", "peer", "trace"]),
    (
        "net",
        &["clock", "disk", "error", "panic", "peer", "random", "settings", "stream", "sync", "sys"],
    ),
    (
        "server",
        &[
            "app",
            "clock",
            "disk",
            "error",
            "exclusive",
            "hooks",
            "message",
            "net",
            "panic",
            "peer",
            "random",
            "runtime",
            "settings",
            "stream",
            "sync",
            "sys",
            "trace",
        ],
    ),
    (
        "testing",
        &["app", "error", "hooks", "message", "net", "peer", "server", "settings", "trace"],
    ),
    ("files", &["app", "client_limit", "clock", "compression", "disk", "error", "message", "sys"]),
    ("client_limit", &["message", "sync"]),
    (
        "middleware",
        &[
            "app",
            "client_limit",
            "clock",
            "compression",
            "disk",
            "error",
            "hooks",
            "message",
            "panic",
            "peer",
            "random",
            "sync",
        ],
    ),
    ("tls", &["net"]),
    ("tower", &["app", "clock", "error", "message", "random", "runtime"]),
    (
        "axum",
        &["app", "error", "hooks", "message", "net", "peer", "server", "settings", "sys", "tower"],
    ),
    ("websocket", &["error", "message", "peer"]),
    ("sse", &["error", "message"]),
    ("form", &["disk", "error", "message"]),
    ("cache", &["app", "client_limit", "clock", "disk", "error", "message", "sys"]),
    ("cookie", &["message"]),
    ("json", &["error", "message"]),
];

/// The files and folders of `server/`, each above all files and folders that it uses.
const SERVER: &[&str] = &[
    "blocking",
    "error_response",
    "handshake_semaphore",
    "head_buffers",
    "linger",
    "upgraded",
    "connection",
    "worker_context",
    "inbound",
    "exchange",
    "multiplex",
    "h1",
    "h2",
    "tls_handshake",
    "connection_life",
    "h3",
    "worker",
    "threads",
    "acceptors",
    "handle",
    "mod",
    "tls",
];

fn library() -> Crate {
    let library = weft_structure::crates("crates/weft").into_iter().find(|it| it.files.len() > 150);
    library.expect("the files of the library are found")
}

#[test]
fn imports_follow_the_layers() {
    let allowed: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let library = library();
    let is_wrong = |(layer, used): &(&str, &str)| {
        let allowed = allowed.get(layer);
        let allowed = allowed.unwrap_or_else(|| panic!("`{layer}` is not in the table of layers"));
        !allowed.contains(used)
    };
    let wrong: Vec<_> = library.uses_beneath("").into_iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "imports that the table does not permit: {wrong:?}");
    let modules: BTreeSet<_> = LAYERS.iter().map(|(layer, _)| *layer).collect();
    assert_eq!(library.entries(""), modules);
}

#[test]
fn files_of_the_server_import_only_those_beneath() {
    let library = library();
    let position =
        |name: &str| SERVER.iter().position(|it| *it == name).expect("all entries are in the list");
    assert_eq!(library.entries("server/"), SERVER.iter().copied().collect());
    let uses = library.uses_beneath("server/");
    assert!(uses.len() > 20, "{uses:?}");
    let wrong: Vec<_> =
        uses.iter().filter(|(user, used)| position(user) <= position(used)).collect();
    assert!(wrong.is_empty(), "against the direction: {wrong:?}");
}

#[test]
fn files_and_folders_form_no_circles() {
    let library = library();
    let (files, folders) = (library.circles(), library.folder_circles());
    assert!(files.is_empty() && folders.is_empty(), "{files:#?} {folders:#?}");
}

#[test]
fn the_table_of_layers_has_no_cycle() {
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    while placed.len() < LAYERS.len() {
        let ready = |(layer, imports): &&(&'static str, &[&str])| {
            !placed.contains(layer) && imports.iter().all(|import| placed.contains(import))
        };
        let next: Vec<_> = LAYERS.iter().filter(ready).map(|(layer, _)| *layer).collect();
        assert!(!next.is_empty(), "a cycle among all but {placed:?}");
        placed.extend(next);
    }
}
