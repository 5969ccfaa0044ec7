//! The direction of imports inside of the library, as ARCHITECTURE.md draws it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::imports::sources;

/// Each module directly beneath `src/`, and the modules that it may import. Modules stand below
/// all modules that they import, so the table has no cycle.
const LAYERS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("exclusive", &[]),
    ("panic", &["error"]),
    ("stream", &[]),
    ("sync", &[]),
    ("peer", &[]),
    ("random", &[]),
    ("settings", &[]),
    ("clock", &["settings"]),
    ("runtime", &["clock"]),
    ("compression", &[]),
    ("disk", &["error", "exclusive"]),
    ("message", &["clock", "disk", "error", "exclusive", "panic", "peer", "random", "stream"]),
    ("app", &["message"]),
    ("hooks", &["error", "message", "peer"]),
    ("net", &["clock", "disk", "error", "panic", "peer", "settings", "stream", "sync"]),
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
        ],
    ),
    ("testing", &["app", "disk", "error", "hooks", "message", "net", "peer", "server"]),
    ("files", &["app", "clock", "compression", "disk", "error", "message"]),
    (
        "middleware",
        &[
            "app",
            "clock",
            "compression",
            "error",
            "hooks",
            "message",
            "panic",
            "peer",
            "random",
            "sync",
        ],
    ),
    ("tower", &["app", "clock", "error", "message", "random", "runtime"]),
    ("axum", &["app", "error", "message", "net", "peer", "server", "settings", "tower"]),
    ("websocket", &["error", "message", "peer"]),
    ("sse", &["error", "message"]),
    ("form", &["disk", "error", "message"]),
    ("cookie", &["message"]),
];

#[test]
fn imports_follow_the_layers() {
    let allowed: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let mut wrong = BTreeSet::new();
    for source in sources(Path::new(env!("CARGO_MANIFEST_DIR")), 80) {
        let (file, layer) = (&source.file, &source.layer);
        let Some(allowed) = allowed.get(&**layer) else {
            panic!("{file}: `{layer}` has no line in the table of layers");
        };
        for used in source.imports {
            if !allowed.contains(&&*used) {
                wrong.insert(format!("{file} imports crate::{used}, which {layer} must not"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
