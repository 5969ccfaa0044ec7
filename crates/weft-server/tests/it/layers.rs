//! The direction of imports inside of the program, as ARCHITECTURE.md draws it, and the files that
//! name a key.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The modules directly beneath `src/`. Each may import the modules before it, so that there is no
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

/// Folders of slices: each file, or folder, has one family of keys.
const SLICES: &[&str] = &["options"];

/// Files that have the name of a key of a slice, too.
const OTHER_USES: &[(&str, &[&str])] = &[
    // Keys of other sections with the same name.
    ("access_log", &["sections/streams/mod.rs"]),
    ("allow", &["sections/streams/mod.rs"]),
    ("allow_file", &["sections/streams/mod.rs"]),
    ("compress", &["apps/files/keys.rs"]),
    ("deny", &["sections/streams/mod.rs"]),
    ("deny_file", &["sections/streams/mod.rs"]),
    ("max_body_bytes", &["sections/limits.rs"]),
    // A section, and a value of log lines and templates.
    ("tracing", &["config/section.rs", "sections/tracing/mod.rs"]),
    (
        "request_id",
        &[
            "base/request_notes/mod.rs",
            "logs/route.rs",
            "sections/log/format.rs",
            "template/names.rs",
        ],
    ),
    // Help texts and messages that refer to the key.
    ("allow", &["config/mod.rs", "options/authentication/mod.rs"]),
    ("client_cert_required", &["sections/tls/mod.rs"]),
    ("deny", &["options/authentication/mod.rs"]),
    ("response_headers", &["template/mod.rs"]),
];

#[test]
fn keys_are_named_in_one_slice() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let crates = weft_structure::crates("crates/weft-server");
    let program = crates.iter().find(|it| it.files.len() > 100).expect("the files are found");
    // Without tests.
    let files = program.files.iter().map(|(file, _)| file);
    let sources: Vec<(String, &String)> = files.map(|it| (code(&root.join(it)), it)).collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for (own_code, own) in &sources {
        let Some(slice) = slice(own) else { continue };
        for name in keys(own_code) {
            count += 1;
            let others = sources.iter().filter(|(_, file)| !file.starts_with(slice));
            let naming =
                others.filter(|(code, _)| names(code, name)).map(|(_, file)| file.as_str());
            let permitted = OTHER_USES.iter().filter(|(known, _)| *known == name);
            let permitted: BTreeSet<&str> =
                permitted.flat_map(|(_, files)| files.iter().copied()).collect();
            let naming: BTreeSet<&str> = naming.collect();
            if naming != permitted {
                wrong.push(format!("`{name}` of {slice}: {naming:?}, permitted: {permitted:?}"));
            }
        }
    }
    assert!(count > 50, "only {count} keys");
    assert!(wrong.is_empty(), "keys that other files name: {wrong:#?}");
}

/// Returns the text of a file without comments and tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the beginning of the paths of a slice: `options/rate.` or `options/jwt/`.
fn slice(file: &str) -> Option<&str> {
    let folder = file.split('/').next().filter(|folder| SLICES.contains(folder))?;
    let name = file[folder.len() + 1..].find(['/', '.'])?;
    Some(&file[..folder.len() + 1 + name + 1])
}

/// Returns the keys of a slice, without the keys of tables in their values.
fn keys(code: &str) -> impl Iterator<Item = &str> {
    let list = code.split_once("const KEYS: ").map_or("", |(_, list)| list);
    let list = list.split_once("];\n").map_or("", |(list, _)| list);
    list.split("name: \"").skip(1).filter_map(|rest| rest.split('"').next())
}

/// Returns true if `code` has a text that is the name, or that has it in backticks.
fn names(code: &str, name: &str) -> bool {
    [format!("\"{name}\""), format!("`{name}`"), format!("`{name} =")]
        .iter()
        .any(|text| code.contains(text))
}
