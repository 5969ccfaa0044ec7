//! Imports among the modules of a crate, read from its source files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A source file.
pub struct Source {
    /// Path beneath `src/`.
    pub file: String,
    /// Module directly beneath the root of the crate that the file belongs to.
    pub layer: String,
    /// Other modules directly beneath the root that its code names, without its tests.
    pub imports: BTreeSet<String>,
}

/// Reads the source files of a crate but the root, of which there are at least `min`.
pub fn sources(manifest_dir: &Path, min: usize) -> Vec<Source> {
    let root = manifest_dir.join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let file = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if file.ends_with(".rs") && !["lib.rs", "main.rs"].contains(&&*file) {
                sources.push(source(file, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(sources.len() >= min, "only {} files in {}", sources.len(), root.display());
    sources
}

fn source(file: String, text: &str) -> Source {
    let layer = file.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut imports = used_modules(&lines.collect::<Vec<_>>().join("\n"));
    imports.remove(&layer);
    Source { file, layer, imports }
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

#[test]
fn imports_against_the_layers_are_found() {
    let code = "use crate::{app::Application, net};\nfn f() { crate::server::run(); }\n";
    let used: Vec<_> = used_modules(code).into_iter().collect();
    assert_eq!(used, ["app", "net", "server"]);
}
