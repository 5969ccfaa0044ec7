//! The direction of imports inside of the library, as ARCHITECTURE.md draws it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

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
    ("acme", &["app", "error", "message", "middleware", "net", "server"]),
    ("tower", &["app", "clock", "error", "message", "random"]),
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
    for (file, layer, code) in sources() {
        let Some(allowed) = allowed.get(&*layer) else {
            panic!("{file}: `{layer}` has no line in the table of layers");
        };
        for used in used_modules(&code) {
            if used != layer && !allowed.contains(&&*used) {
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

#[test]
fn imports_against_the_layers_are_found() {
    let code = "use crate::{app::Application, net};\nfn f() { crate::server::run(); }\n";
    let used: Vec<_> = used_modules(code).into_iter().collect();
    assert_eq!(used, ["app", "net", "server"]);
}

/// All source files but `lib.rs`: path, layer, and code without tests and comments.
fn sources() -> Vec<(String, String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let local = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if local.ends_with(".rs") && local != "lib.rs" {
                let layer = local.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
                let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
                sources.push((local, layer, lines.collect::<Vec<_>>().join("\n")));
            }
        }
    }
    assert!(sources.len() > 80, "only {} files in {}", sources.len(), root.display());
    sources
}

/// The modules beneath the root of the crate that `code` names, in `use` lines and in paths.
fn used_modules(code: &str) -> BTreeSet<String> {
    let ident = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let mut used = BTreeSet::new();
    for (at, prefix) in code.match_indices("crate::") {
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            used.insert(ident(rest));
            continue;
        };
        let mut depth = 0;
        let mut start = 0;
        for (end, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' | ',' if depth == 0 => {
                    used.insert(ident(group[start..end].trim_start()));
                    start = end + 1;
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    used.remove("");
    used
}
