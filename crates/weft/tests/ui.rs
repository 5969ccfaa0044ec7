//! What the compiler says of wrong use: each file in `ui` must fail to compile, with a message
//! that has the texts behind its `//~`. Only those are compared, since the rest is the
//! compiler's own and differs from version to version.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn wrong_use_is_explained() {
    let library = library();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        let wanted: Vec<_> = source.lines().filter_map(|line| line.split_once("//~ ")).collect();
        assert!(!wanted.is_empty(), "{} expects nothing", file.display());
        let said = errors(&file, &library);
        for (_, text) in wanted {
            assert!(said.contains(text), "{}: not said: {text}\n\n{said}", file.display());
        }
    }
}

/// What the compiler says of a file that it does not accept.
fn errors(file: &Path, library: &Path) -> String {
    let out = tempfile::tempdir().unwrap();
    let compiled = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition=2024", "--emit=metadata", "--diagnostic-width=200", "--out-dir"])
        .arg(out.path())
        .arg(format!("--extern=weft={}", library.display()))
        .arg(format!("-L{}", library.parent().unwrap().display()))
        .arg(file)
        .output()
        .unwrap();
    assert!(!compiled.status.success(), "{} compiles", file.display());
    String::from_utf8(compiled.stderr).unwrap()
}

/// The library as it was built for this test. There may be others beside it, of which only
/// Cargo can tell it.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package=weft-http", "--lib", "--message-format=json"])
        .args(["--profile", profile, "--target-dir"])
        // target/debug/deps/ui-…
        .arg(test.ancestors().nth(3).unwrap())
        .output()
        .unwrap();
    let artifacts = String::from_utf8(built.stdout).unwrap();
    let ours = artifacts.lines().find_map(|line| {
        let artifact: serde_json::Value = serde_json::from_str(line).unwrap();
        let files = artifact["filenames"].as_array()?;
        let mut names = files.iter().filter_map(|file| file.as_str());
        let is_ours = artifact["target"]["name"] == "weft";
        names.find(|name| is_ours && name.ends_with(".rmeta")).map(PathBuf::from)
    });
    ours.unwrap_or_else(|| panic!("not built: {}", String::from_utf8_lossy(&built.stderr)))
}
