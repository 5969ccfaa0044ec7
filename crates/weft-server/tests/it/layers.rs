//! The direction of imports inside of the program, as ARCHITECTURE.md draws it.

use std::path::Path;

#[path = "../../../weft/tests/it/imports.rs"]
mod imports;

/// The modules directly beneath `src/`. Each may import those that stand before it, so that there is no
/// cycle.
const LAYERS: &[&str] = &[
    "base",
    "template",
    "apps",
    "route",
    "sections",
    "options",
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
    let position = |layer: &str| LAYERS.iter().position(|it| *it == layer);
    let mut wrong = Vec::new();
    for source in imports::sources(Path::new(env!("CARGO_MANIFEST_DIR")), 200) {
        let (file, layer) = (&source.file, &source.layer);
        let Some(own) = position(layer) else { panic!("{file}: `{layer}` is not in the list") };
        let against = |used: &&String| position(used).is_none_or(|used| used > own);
        let imports = source.imports.iter().filter(against);
        wrong.extend(imports.map(|used| format!("{file} imports crate::{used}")));
    }
    assert!(wrong.is_empty(), "imports against the direction: {wrong:#?}");
}
