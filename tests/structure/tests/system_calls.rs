//! The system's interfaces: only the folders `sys` may use them, or depend on the target.

use std::fs;
use std::path::{Path, PathBuf};

/// Source files outside of `sys`, without their tests, which begin at the first `cfg(test)`.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("sys") {
                found.extend(sources(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
            found.push((path, code));
        }
    }
    found
}

/// Lines of code that contain one of the words.
fn uses(krate: &str, words: &[&str]) -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    let sources = sources(&crates.join(krate).join("src"));
    assert!(!sources.is_empty());
    let mut lines = Vec::new();
    for (path, code) in sources {
        let code = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let wrong = code.filter(|line| words.iter().any(|word| line.contains(word)));
        lines.extend(wrong.map(|line| format!("{}: {line}", path.display())));
    }
    lines
}

/// The crates of the engine and of the program.
const CRATES: [&str; 8] = [
    "weft",
    "weft-acme",
    "weft-cluster",
    "weft-config",
    "weft-import",
    "weft-proto",
    "weft-server",
    "weft-upstream",
];

#[test]
fn only_the_folders_sys_call_the_system() {
    for krate in CRATES {
        let found = uses(krate, &["rustix::", "nix::unistd", "nix::sys", "std::os::", "\"/proc"]);
        assert!(found.is_empty(), "outside of sys: {found:#?}");
    }
}

#[test]
fn only_the_folders_sys_depend_on_the_system() {
    for krate in CRATES {
        let found = uses(krate, &["target_os", "target_vendor", "weft_portable"]);
        assert!(found.is_empty(), "outside of sys: {found:#?}");
    }
}
