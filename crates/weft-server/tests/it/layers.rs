//! The direction of imports inside of the program, as ARCHITECTURE.md draws it.

/// The modules directly beneath `src/`. Each may import those that stand before it, so that there is no
/// cycle.
const LAYERS: &[&str] = &[
    "base",
    "template",
    "sections",
    "options",
    "apps",
    "route",
    "config",
    "config_change",
    "plan",
    "import",
    "cli",
    "logs",
    "router",
    "stream",
    "sockets",
    "open",
    "application",
    "stream_server",
    "status",
    "lifecycle",
];

#[test]
fn imports_follow_the_layers() {
    let crates = weft_structure::crates("crates/weft-server");
    let program = crates.iter().find(|it| it.files.len() > 100).expect("the files are found");
    assert_eq!(program.entries(""), LAYERS.iter().copied().collect());
    let position = |layer: &str| LAYERS.iter().position(|it| *it == layer);
    let uses = program.uses_beneath("");
    let wrong: Vec<_> =
        uses.iter().filter(|(user, used)| position(user) < position(used)).collect();
    assert!(wrong.is_empty(), "imports against the direction: {wrong:?}");
}
