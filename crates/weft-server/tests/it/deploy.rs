//! The files in `deploy/`, checked by the validators of their formats.

use std::fs;
use std::process::Command;

use crate::common::{Program, has_tool, repository, run};

/// Runs a validator, asserts that it succeeds, and returns its output.
#[track_caller]
fn validate(command: &mut Command) -> String {
    let output = Program::start(command).wait_with_output();
    assert_eq!(output.status, Ok(0), "{}{}", output.stdout, output.stderr);
    output.stdout + &output.stderr
}

#[test]
fn systemd_units_are_valid() {
    if !has_tool("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("systemd-analyze");
    command.arg("verify");
    for name in ["weft.service", "weft.socket", "weft-tls.socket"] {
        let unit = fs::read_to_string(repository("deploy").join(name)).unwrap();
        // systemd-analyze requires that the program of a unit exists.
        let unit = unit.replace("/usr/local/bin/weft", env!("CARGO_BIN_EXE_weft"));
        fs::write(folder.path().join(name), unit).unwrap();
        command.arg(folder.path().join(name));
    }
    // Warnings about other units of the machine are ignored.
    let report = validate(&mut command);
    assert!(!report.contains("weft"), "{report}");
}

#[test]
fn container_file_is_valid() {
    if has_tool("hadolint") {
        validate(Command::new("hadolint").arg(repository("deploy/Containerfile")));
    }
}

#[test]
fn kubernetes_manifests_are_valid() {
    if has_tool("kubernetes-validate") {
        let report = validate(
            Command::new("kubernetes-validate")
                .arg("--strict")
                .arg(repository("deploy/kubernetes.yaml")),
        );
        assert_eq!(report.matches(" passed ").count(), 4, "{report}");
    }
}

#[test]
fn configuration_in_the_manifests_is_valid() {
    let manifests = fs::read_to_string(repository("deploy/kubernetes.yaml")).unwrap();
    let (_, config) = manifests.split_once("  weft.toml: |\n").expect("a configuration");
    let (config, _) = config.split_once("---\n").unwrap();
    let config: String = config.lines().map(|line| line.trim_start().to_owned() + "\n").collect();
    let folder = tempfile::tempdir().unwrap();
    // The directory exists in the container only.
    let config = config.replace("/srv/www", folder.path().to_str().unwrap());
    let file = folder.path().join("weft.toml");
    fs::write(&file, config).unwrap();
    let output = run(["check", file.to_str().unwrap()]);
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
}
