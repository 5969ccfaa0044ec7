//! The files in `deploy/`, checked by the validators of their formats and against each other.

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

/// All but the GatewayClass, whose definition is no part of Kubernetes.
#[test]
fn manifests_of_the_controller_are_valid() {
    if has_tool("kubernetes-validate") {
        let text = fs::read_to_string(repository("deploy/kubernetes-controller.yaml")).unwrap();
        let is_known = |document: &&str| !document.contains("kind: GatewayClass\n");
        let known: Vec<_> = text.split("\n---\n").filter(is_known).collect();
        let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
        fs::write(&file, known.join("\n---\n")).unwrap();
        let mut command = Command::new("kubernetes-validate");
        let report = validate(command.arg("--strict").arg(file.path()));
        assert_eq!(report.matches(" passed ").count(), 11, "{report}");
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

fn deployed(name: &str) -> String {
    fs::read_to_string(repository("deploy").join(name)).unwrap()
}

/// Returns the values that a text has for a key, each in a line of its own.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().map(str::trim);
    lines.filter_map(|line| Some(line.strip_prefix(key)?.trim())).collect()
}

#[test]
fn configuration_fits_the_service() {
    let (config, service) = (deployed("weft.toml"), deployed("weft.service"));
    // The service manager sets the user and knows the process.
    assert!(!values(&service, "DynamicUser=yes").is_empty());
    for key in ["user =", "group =", "pid_file ="] {
        assert_eq!(values(&config, key), [""; 0], "{key}");
    }
    // Only the directories of the service are writable.
    assert_eq!(values(&service, "LogsDirectory="), ["weft"]);
    assert_eq!(values(&service, "ProtectSystem="), ["strict"]);
    let logs = [values(&config, "access = "), values(&config, "error = ")].concat();
    assert_eq!(logs.len(), 2);
    assert!(logs.iter().all(|path| path.starts_with("\"/var/log/weft/")), "{logs:?}");
    // The time of a stop is longer than the time of the requests in flight.
    let seconds = |text: &str| text.trim_matches('"').trim_end_matches('s').parse::<u32>().unwrap();
    let drain = seconds(values(&config, "drain_timeout = ")[0]);
    let stop = seconds(values(&service, "TimeoutStopSec=")[0]);
    assert!(drain + 5 <= stop, "{drain} s and {stop} s");
    // The start reads the file in the directory of the certificates.
    let paths = values(&service, "ExecStart=");
    assert_eq!(paths.len(), 1);
    assert!(paths.iter().all(|command| command.ends_with(" /etc/weft/weft.toml")), "{paths:?}");
    assert!(config.contains("cert = \"/etc/weft/example.org.crt\""));
    // A reload waits for its result.
    assert_eq!(values(&service, "ExecReload="), ["/usr/local/bin/weft reload --pid $MAINPID"]);
    // Ports below 1024 need the capability, and the sockets have the addresses of the file.
    assert_eq!(values(&service, "AmbientCapabilities="), ["CAP_NET_BIND_SERVICE"]);
    for (socket, address) in [("weft.socket", "[::]:80"), ("weft-tls.socket", "[::]:443")] {
        let port = format!("[::]:{}", values(&deployed(socket), "ListenStream=")[0]);
        assert_eq!(port, address, "{socket}");
        assert!(config.contains(&format!("listen = [\"{address}\"]")), "{address}");
    }
}

#[test]
fn container_fits_the_manifests() {
    let (container, manifests) = (deployed("Containerfile"), deployed("kubernetes.yaml"));
    let image = format!("weft:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(values(&manifests, "image:"), [&*image]);
    assert!(container.contains(&format!(" -t {image} .")), "another name of the image");
    assert_eq!(values(&container, "EXPOSE"), values(&manifests, "containerPort:"));
    assert!(container.contains("\"--config\", \"/etc/weft/weft.toml\""));
    assert!(values(&manifests, "mountPath:").contains(&"/etc/weft"));
    // The user `nonroot` of the base image.
    assert!(container.contains(":nonroot\n"));
    assert_eq!(values(&manifests, "runAsUser:"), ["65532"]);
    let workspace = fs::read_to_string(repository("Cargo.toml")).unwrap();
    let minor = |version: &str| version.split('.').nth(1).unwrap().parse::<u32>().unwrap();
    let required = minor(values(&workspace, "rust-version = ")[0].trim_matches('"'));
    let base = container.split("library/rust:").nth(1).unwrap().split('-').next().unwrap();
    assert!(minor(base) >= required, "rust {base} builds what needs 1.{required}");
}
