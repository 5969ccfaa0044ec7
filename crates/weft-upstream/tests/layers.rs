//! The direction of imports among the folders of the crate, as ARCHITECTURE.md draws it.

/// The modules directly beneath `src/`. Each may import the modules that stand before it, so that
/// there is no cycle.
const LAYERS: &[&str] = &[
    "sys",
    "base",
    "gateway_error",
    "retry_reason",
    "attempt_hooks",
    "url",
    "dns",
    "tls",
    "settings",
    "health",
    "head",
    "connect",
    "copy",
    "client",
    "check",
    "script",
    "balance",
    "pool",
    "spool",
    "exchange",
    "http1",
    "http2",
    "proxy",
];

#[test]
fn imports_follow_the_layers() {
    let crates = weft_structure::crates("crates/weft-upstream");
    let library = crates.iter().find(|it| it.files.len() > 50).expect("the files are found");
    assert_eq!(library.entries(""), LAYERS.iter().copied().collect());
    let position = |layer: &str| LAYERS.iter().position(|it| *it == layer);
    let uses = library.uses_beneath("");
    let wrong: Vec<_> =
        uses.iter().filter(|(user, used)| position(user) < position(used)).collect();
    assert!(wrong.is_empty(), "imports against the direction: {wrong:?}");
}
