//! Files, certificates, upstreams and scripts of the configurations.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::external::PhpFpm;
use crate::common::{Weft, run, weft};
use crate::idioms::servers::Upstreams;

pub struct Machine {
    folder: tempfile::TempDir,
    /// Paths of the files below `/srv`, as in a configuration.
    files: Vec<String>,
    upstreams: Upstreams,
    _fpm: PhpFpm,
}

impl Machine {
    /// Writes the files and starts the upstreams; `None` without PHP-FPM.
    pub fn start() -> Option<Machine> {
        let folder = tempfile::tempdir().unwrap();
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/tree.txt");
        let mut files = Vec::new();
        for file in fs::read_to_string(tree).unwrap().split("== ").skip(1) {
            let (name, text) = file.split_once('\n').unwrap();
            if name.starts_with("srv/") {
                files.push(format!("/{name}"));
            }
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        for name in ["run/php", "var/log", "etc/ssl"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        for name in ["example", "other"] {
            let names = vec![format!("{name}.org"), format!("www.{name}.org")];
            let certified = rcgen::generate_simple_self_signed(names).unwrap();
            let file = |end: &str| folder.path().join(format!("etc/ssl/{name}.{end}"));
            fs::write(file("pem"), certified.cert.pem()).unwrap();
            fs::write(file("key"), certified.signing_key.serialize_pem()).unwrap();
        }
        let fpm = PhpFpm::start(&folder.path().join("run/php"))?;
        let machine = Machine { folder, files, upstreams: Upstreams::start(), _fpm: fpm };
        let includes = fs::read_dir(machine.path().join("etc/nginx")).unwrap();
        for file in includes.map(|file| file.unwrap().path()) {
            fs::write(&file, machine.fill(&fs::read_to_string(&file).unwrap())).unwrap();
        }
        Some(machine)
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the paths of the files below `/srv`, as in a configuration.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Replaces the paths and addresses of a configuration by paths and addresses of this machine.
    pub fn fill(&self, text: &str) -> String {
        let paths = ["/srv/", "/etc/", "/run/", "/var/log/"];
        let text = paths.iter().fold(text.to_owned(), |text, path| {
            let own = format!("{}{path}", self.path().display());
            // Not within another path.
            [" ", "\"", ":", "unix/"].iter().fold(text, |text, before| {
                text.replace(&format!("{before}{path}"), &format!("{before}{own}"))
            })
        });
        self.upstreams.at(&text)
    }

    /// Returns the text with the paths of the configuration.
    pub fn restore(&self, text: &str) -> String {
        self.upstreams.restore(&text.replace(&self.path().display().to_string(), ""))
    }

    /// Asserts that a person can read an imported configuration: only the names of sections and
    /// expressions are long.
    pub fn assert_lines_are_short(&self, name: &str, text: &str) {
        let text = self.restore(text);
        let is_long = |line: &&str| line.chars().count() > 140 && !line.starts_with('[');
        let long: Vec<&str> = text.lines().filter(is_long).collect();
        assert!(long.is_empty(), "{name}: {long:#?}");
    }

    /// Checks and starts an imported configuration.
    pub fn start_weft(&self, name: &str, text: &str) -> Weft {
        let file: PathBuf = self.path().join(name).join("weft.toml");
        fs::write(&file, text).unwrap();
        let check = run([Path::new("check"), &file]);
        assert!(matches!(check.status, Ok(0 | 3)), "{name}: {}\n{text}", check.stderr);
        Weft::start(weft([Path::new("--config"), &file]).args(["--workers", "1", "--no-log"]))
    }
}

/// Returns the files of a folder of `tests` with this extension, sorted.
pub fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == extension));
    files.sort();
    files
}
