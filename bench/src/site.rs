//! The served files and the certificate, created in a temporary folder for each run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Result;

pub struct Site {
    /// The folder for all files of a run. Removed at its end.
    pub run: PathBuf,
    /// The served folder.
    pub folder: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The certificate and the key in one file.
    pub pem: PathBuf,
    /// The root of some servers, which contains all of these files.
    pub root: Option<PathBuf>,
}

pub const PAGE: &str = include_str!("../site/index.html");

/// Files of the same size, which some workloads need.
pub struct FileSet {
    /// The folder in the served folder.
    pub folder: &'static str,
    pub count: u64,
    pub bytes: usize,
}

impl FileSet {
    pub fn path(&self, number: u64) -> String {
        format!("/{}/{number}.bin", self.folder)
    }
}

const BINARY: [(&str, usize); 4] =
    [("16k.bin", 16 << 10), ("128k.bin", 128 << 10), ("1m.bin", 1 << 20), ("100m.bin", 100 << 20)];

/// Weft caches only files that have not changed recently; this delay makes the first round equal to
/// the others.
const SETTLED: Duration = Duration::from_secs(3);

impl Site {
    /// Creates the files of all workloads, and sets that only some of them need.
    pub fn new(sets: &[&FileSet], root: Option<&Path>) -> Result<Site> {
        let temporary = root.map_or(std::env::temp_dir(), |root| root.join("tmp"));
        let run = temporary.join(format!("weft-bench-{}", std::process::id()));
        let folder = run.join("site");
        let [certificate_path, key, pem] =
            ["cert.pem", "key.pem", "both.pem"].map(|name| run.join(name));
        let root = root.map(Path::to_owned);
        let site = Site { certificate: certificate_path, key, pem, folder, run, root };
        site.write(sets).map_err(|error| format!("{}: {error}", site.run.display()))?;
        certificate(&site.certificate, &site.key)?;
        let both = [&site.certificate, &site.key].map(fs::read_to_string);
        let [Ok(certificate), Ok(key)] = both else { return Err("no certificate".into()) };
        fs::write(&site.pem, certificate + &key).map_err(|error| error.to_string())?;
        Ok(site)
    }

    fn write(&self, sets: &[&FileSet]) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::write(self.folder.join("index.html"), PAGE)?;
        for (name, size) in BINARY {
            fs::write(self.folder.join(name), noise(size))?;
        }
        fs::write(self.folder.join("text.txt"), text(100 << 10))?;
        for set in sets {
            fs::create_dir_all(self.folder.join(set.folder))?;
            let content = noise(set.bytes);
            for number in 0..set.count {
                fs::write(self.folder.join(&set.path(number)[1..]), &content)?;
            }
        }
        std::thread::sleep(SETTLED);
        Ok(())
    }

    /// Returns the expected response body for a path, which is the same for all servers.
    pub fn expected(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.file(path);
        fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Returns the file with the expected response body for a path.
    pub fn file(&self, path: &str) -> PathBuf {
        let path = path.strip_prefix("/proxy").unwrap_or(path);
        let path = path.strip_prefix("/level-3").unwrap_or(path);
        let name = match path {
            "/" | "/memory" | "/slow" | "/fastcgi" => "index.html",
            file => file.trim_start_matches('/'),
        };
        self.folder.join(name)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // On failure, the files remain in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.run);
    }
}

/// Returns incompressible bytes, the same on each call.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..size.div_ceil(8)).flat_map(|_| next()).take(size).collect()
}

/// Returns text that compresses like natural language.
fn text(size: usize) -> String {
    const WORDS: [&str; 16] = [
        "weft", "warp", "thread", "loom", "of", "the", "a", "cloth", "and", "shuttle", "reed",
        "across", "pattern", "in", "selvage", "draws",
    ];
    let noise = noise(size);
    let mut text: String =
        noise.iter().flat_map(|byte| [WORDS[usize::from(byte & 15)], " "]).collect();
    text.truncate(size);
    text
}

fn certificate(certificate: &Path, key: &Path) -> Result<()> {
    let status = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "30", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .arg("-out")
        .arg(certificate)
        .arg("-keyout")
        .arg(key)
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err("openssl could not create a certificate".into()),
    }
}
