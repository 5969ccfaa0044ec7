//! Building the peers, and checking for missing packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;
use crate::machine::first_output_line;
use crate::peer::{Origin, Peer};

/// The programs available for the measurement.
pub struct Programs {
    /// The folder with the programs of this workspace.
    pub bin: PathBuf,
    pub weft: PathBuf,
    /// The available peers, with their versions.
    pub versions: BTreeMap<&'static str, String>,
    /// The unavailable peers, with the reasons.
    pub missing: Vec<(&'static str, String)>,
}

const PACKAGES: &[&str] = &[
    "nginx",
    "h2o",
    "haproxy",
    "caddy",
    "lighttpd",
    "lighttpd-mod-openssl",
    "wrk",
    "nghttp2-client",
    "curl",
    "openssl",
    "strace",
    "ghc",
    "libghc-warp-dev",
    "libghc-wai-dev",
];

/// The required tools and their packages.
const TOOLS: &[(&str, &str)] = &[
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("taskset", "util-linux"),
];

impl Programs {
    pub fn has(&self, name: &str) -> bool {
        self.versions.contains_key(name)
    }

    /// Reads the template of a configuration file.
    pub fn config(&self, name: &str) -> Result<String> {
        let path = bench().join("configs").join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }
}

pub fn install() -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "--no-install-recommends"]).args(PACKAGES);
    run(command.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Builds these peers, or finds their programs. A peer without a program is not measured.
pub fn programs(peers: &[&Peer], root: Option<&Path>) -> Result<Programs> {
    for (tool, package) in TOOLS {
        if !is_installed(tool) {
            return Err(format!(
                "{tool} is not installed: run apt-get install {package}, or use --install for all tools"
            ));
        }
    }
    let bin = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
    let bin = bin.ok_or("cannot determine the path of this program")?;
    let weft = target()?.join("dist/weft");
    let lock = fs::read_to_string(bench().join("Cargo.lock")).unwrap_or_default();
    let mut programs = Programs { bin, weft, versions: BTreeMap::new(), missing: Vec::new() };
    for peer in peers {
        match prepare(peer, &programs.bin, &lock, root) {
            Ok(version) => drop(programs.versions.insert(peer.name, version)),
            Err(error) => programs.missing.push((peer.name, error)),
        }
    }
    programs
        .missing
        .iter()
        .for_each(|(name, reason)| eprintln!("{name} is not measured: {reason}"));
    Ok(programs)
}

/// Builds a peer or finds its program. Returns its version.
fn prepare(peer: &Peer, bin: &Path, lock: &str, root: Option<&Path>) -> Result<String> {
    match peer.origin {
        Origin::Weft => {
            run(cargo(&bench().join(".."), "dist").args(["--package", "weft-server"]))?;
            Ok(commit())
        }
        Origin::Crate(package, subject) => {
            // The peers are built into the target folder of this program.
            let target = bin.parent().ok_or("this program is not in a target folder of cargo")?;
            let mut cargo = cargo(&bench(), "release");
            run(cargo.args(["--package", package, "--target-dir"]).arg(target))?;
            Ok(match subject {
                "weft-http" => commit(),
                subject => format!("{subject} {}", locked(lock, subject).unwrap_or("?")),
            })
        }
        Origin::Debian(package, program, version) => first_output_line(program, &[version])
            .ok_or(format!("{program} is not installed: run apt-get install {package}")),
        Origin::Root(program, version) => {
            build_http3_load(bin)?;
            let root = root.ok_or("it needs --root")?.display().to_string();
            first_output_line("chroot", &[&root, program, version])
                .ok_or(format!("{program} is not installed in the root: run bench/debian-root.sh"))
        }
        Origin::Haskell => build_warp(bin),
    }
}

fn build_http3_load(bin: &Path) -> Result<()> {
    let target = bin.parent().ok_or("this program is not in a target folder of cargo")?;
    let mut cargo = cargo(&bench(), "release");
    run(cargo.args(["--package", "weft-bench-http3", "--target-dir"]).arg(target))
}

/// Returns the target folder of Weft's own workspace.
fn target() -> Result<PathBuf> {
    let mut metadata = Command::new("cargo");
    metadata
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(bench().join(".."));
    let output = metadata.output().map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, rest) = text
        .split_once("\"target_directory\":\"")
        .ok_or("no target_directory in the output of cargo metadata")?;
    let (folder, _) =
        rest.split_once('"').ok_or("no target_directory in the output of cargo metadata")?;
    Ok(folder.into())
}

fn build_warp(bin: &Path) -> Result<String> {
    let version = first_output_line("ghc", &["--numeric-version"]);
    let version = version
        .ok_or("ghc is not installed: run apt-get install ghc libghc-warp-dev libghc-wai-dev")?;
    let objects = bin.join("warp-objects");
    let mut ghc = Command::new("ghc");
    ghc.args(["-v0", "-O2", "-threaded", "-rtsopts", "-outputdir"]).arg(objects);
    run(ghc.arg("-o").arg(bin.join("warp")).arg(bench().join("peers/warp/Main.hs")))?;
    let warp = first_output_line("ghc-pkg", &["field", "warp", "version", "--simple-output"])
        .unwrap_or_default();
    Ok(format!("warp {warp}, GHC {version}"))
}

fn cargo(folder: &Path, profile: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(["build", "--profile", profile, "--quiet"]).current_dir(folder);
    command
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn commit() -> String {
    let root = bench().join("..").display().to_string();
    let hash = first_output_line("git", &["-C", &root, "describe", "--always", "--dirty"]);
    format!("commit {}", hash.as_deref().unwrap_or("unknown"))
}

/// Returns the version of a package in a lock file.
fn locked<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    rest.split('"').next()
}

fn bench() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[cfg(test)]
mod tests {
    use super::locked;

    #[test]
    fn finds_version_in_lock_file() {
        let lock =
            "name = \"tokio-util\"\nversion = \"0.7.1\"\n\nname = \"tokio\"\nversion = \"1.2.3\"\n";
        assert_eq!(locked(lock, "tokio"), Some("1.2.3"));
        assert_eq!(locked(lock, "hyper"), None);
    }
}
