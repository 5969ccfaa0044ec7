//! What lies under `deploy/`, judged by the tools of those who read it.

mod common;

use std::fs;
use std::process::Command;

use common::{Program, repository, run, tool};

/// Runs a tool to its end, which must be good.
#[track_caller]
fn judge(command: &mut Command) -> String {
    let ended = Program::start(command).end();
    assert_eq!(ended.status, Ok(0), "{}{}", ended.stdout, ended.stderr);
    ended.stdout + &ended.stderr
}

#[test]
fn the_units_are_good() {
    if !tool("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("systemd-analyze");
    command.arg("verify");
    for name in ["weft.service", "weft.socket", "weft-tls.socket"] {
        let unit = fs::read_to_string(repository("deploy").join(name)).unwrap();
        // The program must be where the unit says.
        let unit = unit.replace("/usr/local/bin/weft", env!("CARGO_BIN_EXE_weft"));
        fs::write(folder.path().join(name), unit).unwrap();
        command.arg(folder.path().join(name));
    }
    // It may warn of units of the machine, but not of ours.
    let said = judge(&mut command);
    assert!(!said.contains("weft"), "{said}");
}

#[test]
fn the_container_file_is_good() {
    if tool("hadolint") {
        judge(Command::new("hadolint").arg(repository("deploy/Containerfile")));
    }
}

#[test]
fn the_manifests_are_good() {
    if tool("kubernetes-validate") {
        let said = judge(
            Command::new("kubernetes-validate")
                .arg("--strict")
                .arg(repository("deploy/kubernetes.yaml")),
        );
        assert_eq!(said.matches(" passed ").count(), 4, "{said}");
    }
}

#[test]
fn the_configuration_of_the_manifests_is_good() {
    let manifests = fs::read_to_string(repository("deploy/kubernetes.yaml")).unwrap();
    let (_, config) = manifests.split_once("  weft.toml: |\n").expect("a configuration");
    let (config, _) = config.split_once("---\n").unwrap();
    let config: String = config.lines().map(|line| line.trim_start().to_owned() + "\n").collect();
    let folder = tempfile::tempdir().unwrap();
    // The folder is there in the container.
    let config = config.replace("/srv/www", folder.path().to_str().unwrap());
    let file = folder.path().join("weft.toml");
    fs::write(&file, config).unwrap();
    let ended = run(["check", file.to_str().unwrap()]);
    assert_eq!((ended.status, &*ended.stderr), (Ok(0), ""));
}
