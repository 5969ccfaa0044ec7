//! `weft fmt` and `weft schema`, the helpers for editors of the configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Program, report_missing_tool, repository, run};
use crate::config::{folder_with, run_in};

/// Returns the files of a corpus.
fn corpus(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(kind);
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "the corpus is incomplete");
    files
}

#[test]
fn formatted_files_have_the_same_settings_and_comments() {
    let folder = folder_with(&[
        ("site/a.txt", "A\n"),
        ("site/index.html", ""),
        ("logs/old.log", ""),
        ("networks", "192.0.2.0/24\n"),
    ]);
    let print = || run_in(folder.path(), &["check", "--print", "weft.toml"]).stdout;
    let file = folder.path().join("weft.toml");
    for path in corpus("good") {
        let text = fs::read_to_string(&path).unwrap();
        let untidy = text.replace(" = ", "  =").replace("\n[", "\n\n\n  [");
        fs::write(&file, untidy).unwrap();
        let former = print();
        assert_ne!(former, "", "{path:?}");
        assert_eq!(run_in(folder.path(), &["fmt", "--check", "weft.toml"]).status, Ok(1));
        let output = run_in(folder.path(), &["fmt", "weft.toml"]);
        assert_eq!((output.status, &*output.stderr), (Ok(0), ""), "{path:?}");
        assert_eq!(print(), former, "{path:?}");
        let formatted = fs::read_to_string(&file).unwrap();
        let comments = |text: &str| text.matches('#').count();
        assert_eq!(comments(&formatted), comments(&text), "{path:?}");
        assert_eq!(run_in(folder.path(), &["fmt", "--check", "weft.toml"]).status, Ok(0));
    }
}

#[test]
fn formats_files_of_a_directory() {
    let folder = folder_with(&[("a/x.toml", "a=1"), ("a/y.toml", "a = 1\n"), ("b.toml", "a =")]);
    let output = run_in(folder.path(), &["fmt", "--check", "a", "b.toml"]);
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert_eq!(output.status, Ok(1));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], "weft: a/x.toml is not formatted; `weft fmt` does it");
    assert!(lines[1].starts_with("weft: b.toml:1:4: expected a value"), "{lines:?}");
    let output = run_in(folder.path(), &["fmt", "a"]);
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
    assert_eq!(fs::read_to_string(folder.path().join("a/x.toml")).unwrap(), "a = 1\n");
    assert_eq!(run_in(folder.path(), &["fmt"]).status, Ok(2));
}

#[test]
fn example_configuration_is_formatted() {
    let output = run([Path::new("fmt"), Path::new("--check"), &repository("deploy/weft.toml")]);
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
}

/// Validates files, and prints the paths of the valid ones.
const VALIDATOR: &str = "
import json, sys, tomllib
from jsonschema import Draft7Validator
schema = json.load(open(sys.argv[1]))
Draft7Validator.check_schema(schema)
for path in sys.argv[2:]:
    try:
        value = tomllib.load(open(path, 'rb'))
    except tomllib.TOMLDecodeError:
        continue
    if not list(Draft7Validator(schema).iter_errors(value)):
        print(path)
";

/// Files with an error that a schema can describe: a wrong key, type, word, number or unit. Errors
/// in the contents of texts, and of several keys together, are found by `weft check` only.
const REJECTED: [&str; 11] = [
    "duplicate-key",
    "habits",
    "host-without-quotes",
    "logs",
    "long-forms",
    "misplaced-key",
    "operators",
    "scripts",
    "types",
    "units",
    "unknown-key",
];

#[test]
fn schema_accepts_valid_files_and_rejects_others() {
    let has_validator = Command::new("python3").args(["-c", "import jsonschema, tomllib"]).output();
    if !has_validator.is_ok_and(|output| output.status.success()) {
        return report_missing_tool("python3 with jsonschema");
    }
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.json");
    fs::write(&schema, run(["schema"]).stdout).unwrap();
    let (good, bad) = (corpus("good"), corpus("bad"));
    let example = repository("deploy/weft.toml");
    let mut validator = Command::new("python3");
    validator.args(["-c", VALIDATOR]).arg(schema).args(&good).arg(&example).args(&bad);
    let output = Program::start(&mut validator).wait_with_output();
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
    let valid: Vec<&Path> = output.stdout.lines().map(Path::new).collect();
    for path in good.iter().chain([&example]) {
        assert!(valid.contains(&&**path), "{path:?} does not conform to the schema");
    }
    for name in REJECTED {
        let path = bad.iter().find(|path| path.file_stem().is_some_and(|stem| stem == name));
        assert!(!valid.contains(&&**path.expect(name)), "{name} conforms to the schema");
    }
}
