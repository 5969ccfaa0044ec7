//! Compiler errors for incorrect use: each file in `ui` must fail to compile, with errors that
//! contain the texts after its `//~` markers. Only these texts are compared, because the rest of
//! the output differs between compiler versions.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn incorrect_use_has_helpful_errors() {
    let library = library();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        let expected: Vec<_> = source.lines().filter_map(|line| line.split_once("//~ ")).collect();
        assert!(!expected.is_empty(), "{} has no expected text", file.display());
        let output = errors(&file, &library);
        for (_, text) in expected {
            assert!(output.contains(text), "{}: missing: {text}\n\n{output}", file.display());
        }
    }
}

/// Compiles `file`, which must fail, and returns the errors.
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

/// Path of the library built for this test. Other builds of the library may exist in the same
/// directory, and only Cargo can identify the current one.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = if cfg!(debug_assertions) { "test" } else { "release" };
    let built = Command::new(env!("CARGO"))
        // The dependencies have the same features as in `cargo test --workspace`, so that nothing
        // is built again: an example selects the features of the dev-dependencies.
        .args(["build", "--quiet", "--workspace", "--lib", "--example=hello"])
        .arg("--message-format=json")
        .args(["--profile", profile, "--target-dir"])
        // target/debug/deps/it-…
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
