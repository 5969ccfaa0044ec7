//! A temporary directory tree, served over real sockets.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use weft::Server;
use weft::files::{Directory, DirectorySettings};
use weft::server::ServerHandle;

use super::{Client, Response, until};

/// A root directory inside another directory: files beside the root must never be served.
pub struct Tree {
    pub outer: TempDir,
}

impl Tree {
    pub fn new() -> Tree {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("root")).unwrap();
        fs::write(outer.path().join("secret.txt"), SECRET).unwrap();
        fs::create_dir(outer.path().join("root-secret")).unwrap();
        fs::write(outer.path().join("root-secret/index.html"), SECRET).unwrap();
        Tree { outer }
    }

    /// Creates a tree with `files`, pairs of path and contents.
    pub fn with_files(files: &[(&str, &str)]) -> Tree {
        let tree = Tree::new();
        for (path, contents) in files {
            tree.write(path, contents);
        }
        tree
    }

    pub fn root(&self) -> PathBuf {
        self.outer.path().join("root")
    }

    pub fn path(&self, name: impl AsRef<[u8]>) -> PathBuf {
        self.root().join(OsStr::from_bytes(name.as_ref()))
    }

    /// Writes a file and creates its parent directories.
    pub fn write(&self, name: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    pub fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.path(name)).unwrap();
    }

    pub fn create_fifo(&self, name: &str) {
        // By the program, because macOS has no `mkfifoat`.
        let made = std::process::Command::new("mkfifo").arg(self.path(name)).status().unwrap();
        assert!(made.success());
    }

    /// Replaces a file atomically, by `rename`.
    pub fn replace(&self, name: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) {
        let new = self.outer.path().join("new");
        fs::write(&new, contents).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// Sets a file's modification time to `seconds` ago.
    pub fn set_age(&self, name: impl AsRef<[u8]>, seconds: u64) {
        let file = fs::File::options().write(true).open(self.path(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    /// Waits until no file has changed recently: the server caches contents in memory only if
    /// the file has not changed within the last two seconds.
    #[track_caller]
    pub fn settle(&self) {
        let mut newest = 0;
        let mut folders = vec![self.root()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let metadata = entry.metadata().unwrap();
                newest = newest.max(metadata.ctime());
                folders.extend(metadata.is_dir().then(|| entry.path()));
            }
        }
        let settled = UNIX_EPOCH + Duration::from_secs(newest as u64 + 3);
        until("all files are older than 3 s", || SystemTime::now() >= settled);
    }

    /// Number of files below the root that this process has open.
    pub fn open_files(&self) -> usize {
        let open = fs::read_dir("/proc/self/fd").unwrap();
        let paths = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        paths.filter(|path| path.starts_with(self.root()) && *path != self.root()).count()
    }

    /// Makes the tree readable by every user, except `names`, which get mode 000.
    pub fn deny_access(&self, names: &[&str]) {
        let set = |path: PathBuf, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        set(self.outer.path().to_owned(), 0o755).unwrap();
        names.iter().for_each(|name| set(self.path(name), 0o000).unwrap());
    }

    /// Request targets that attempt path traversal out of the root. The tree must have a directory
    /// `folder/deep`.
    pub fn traversal_targets(&self) -> Vec<String> {
        let absolute = self.outer.path().join("secret.txt");
        let absolute = absolute.to_str().unwrap();
        let steps = "../".repeat(30);
        let encoded_steps = "%2e%2e/".repeat(30);
        let targets = [
            "/../secret.txt",
            "/folder/../../secret.txt",
            "/folder/deep/../../../secret.txt",
            "/folder/..",
            "/..",
            "/../",
            "/../root-secret/",
            "/../root/index.html",
            "/%2e%2e/secret.txt",
            "/%2E%2E/secret.txt",
            "/.%2e/secret.txt",
            "/%2e./secret.txt",
            "/..%2fsecret.txt",
            "/..%2Fsecret.txt",
            "/%2e%2e%2fsecret.txt",
            "/folder%2f..%2f..%2fsecret.txt",
            // Encoded twice: decoded once, this is the name of a file that does not exist.
            "/%252e%252e/secret.txt",
            "/%252e%252e%252fsecret.txt",
            "/..%252fsecret.txt",
            "/%25252e%25252e/secret.txt",
            "/..\\secret.txt",
            "/..%5csecret.txt",
            "/..%5Csecret.txt",
            "/folder\\..\\..\\secret.txt",
            "/folder/..\\../secret.txt",
            "/%5c../secret.txt",
            "/..%00/secret.txt",
            "/../secret.txt%00.html",
            "/%00/../secret.txt",
            "/..;/secret.txt",
            "/..%3b/secret.txt",
            "/..%20/secret.txt",
            "/..%0d%0a/secret.txt",
            // Overlong UTF-8 and other encodings of a dot or a slash.
            "/%c0%ae%c0%ae/secret.txt",
            "/%c0%ae%c0%ae%c0%afsecret.txt",
            "/%e0%80%ae%e0%80%ae/secret.txt",
            "/%f0%80%80%ae%f0%80%80%ae/secret.txt",
            "/..%c0%afsecret.txt",
            "/..%e0%80%afsecret.txt",
            "/..%c1%9csecret.txt",
            "/..%ef%bc%8fsecret.txt",
            "/%ef%bc%8e%ef%bc%8e/secret.txt",
            "/%u002e%u002e/secret.txt",
            "/....//secret.txt",
            "/...//../secret.txt",
            "//../secret.txt",
            "///../../secret.txt",
            "/%2f../secret.txt",
            "/%2f%2e%2e%2fsecret.txt",
            "/.well-known/../../secret.txt",
            "/.well-known%2f..%2f..%2fsecret.txt",
            "http://a/../secret.txt",
            "http://a/%2e%2e/secret.txt",
            &format!("/{steps}etc/passwd"),
            &format!("/{encoded_steps}etc/passwd"),
            &format!("/{absolute}"),
            &format!("/{}", absolute.replace('/', "%2f")),
            "/proc/self/environ",
            "/%2fproc%2fself%2fenviron",
        ];
        targets.map(str::to_owned).into()
    }

    pub fn serve(&self) -> ServerHandle {
        self.serve_with(DirectorySettings::default())
    }

    pub fn serve_with(&self, settings: DirectorySettings) -> ServerHandle {
        serve(Directory::with_settings(self.root(), settings).unwrap())
    }
}

/// Serves a directory with one worker.
pub fn serve(directory: Directory) -> ServerHandle {
    let server = Server::new(directory).workers(1);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// Contents of the files outside of the root.
pub const SECRET: &str = "SECRET";

/// Sends a request and reads the response.
pub fn ask(client: &mut Client, method: &str, target: impl AsRef<[u8]>) -> Response {
    client.send(request(method, target));
    if method == "HEAD" { client.head() } else { client.response() }
}

/// Sends a request with additional field lines, separated by CRLF, and reads the response.
#[track_caller]
pub fn send_request_with_fields(
    client: &mut Client,
    method: &str,
    target: impl AsRef<[u8]>,
    fields: &str,
) -> Response {
    let mut bytes = request(method, target);
    if !fields.is_empty() {
        bytes.truncate(bytes.len() - 2);
        bytes.extend_from_slice(format!("{fields}\r\n\r\n").as_bytes());
    }
    client.send(bytes);
    if method == "HEAD" { client.head() } else { client.response() }
}

pub fn request(method: &str, target: impl AsRef<[u8]>) -> Vec<u8> {
    [method.as_bytes(), b" ", target.as_ref(), b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat()
}

/// Sends a GET request for each target on one connection and asserts the status codes.
#[track_caller]
pub fn assert_statuses(server: &ServerHandle, cases: &[(&str, u16)]) {
    let mut client = Client::connect(server);
    for (target, status) in cases {
        let response = ask(&mut client, "GET", target);
        assert_eq!(response.status, *status, "{target}: {}", response.text());
        assert!(!response.text().contains(SECRET), "{target} escaped the root");
    }
}

/// Sends a GET request for each target on one connection and asserts a 200 with the given body.
#[track_caller]
pub fn assert_bodies<T: AsRef<[u8]>>(server: &ServerHandle, cases: &[(T, &str)]) {
    let mut client = Client::connect(server);
    for (target, body) in cases {
        let response = ask(&mut client, "GET", target);
        let target = target.as_ref().escape_ascii();
        assert_eq!((response.status, response.text()), (200, *body), "{target}");
    }
}

/// `length` bytes whose period (251) is not a power of two.
pub fn pattern(length: usize) -> Vec<u8> {
    // Tests are not optimized: a call for each byte of some megabytes takes a second.
    let period: Vec<u8> = (0..251).collect();
    let mut bytes = period.repeat(length.div_ceil(period.len()));
    bytes.truncate(length);
    bytes
}

/// The fields except `Date`, which may differ between two requests.
pub fn fields_without_date(response: &Response) -> Vec<(String, String)> {
    response.headers.iter().filter(|(name, _)| name != "date").cloned().collect()
}

/// Runs `work` in a thread with the user id of `nobody` if the test runs as root, because file
/// permissions do not restrict root.
pub fn as_nobody(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Applies to this thread and the threads it starts. Fails unless run as root.
            #[cfg(target_os = "linux")]
            {
                let nobody = rustix::process::Uid::from_raw(65_534);
                let _ = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
            }
            match rustix::process::geteuid().is_root() {
                false => work(),
                // The test harness captures the output of `print!` and `eprintln!` in tests that
                // pass, but not writes to the stderr handle.
                true => {
                    std::io::stderr().write_all(b"SKIPPED: cannot drop root privileges\n").unwrap()
                }
            }
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The body, decoded from its content coding.
#[cfg(all(feature = "brotli", feature = "gzip", feature = "zstd"))]
pub fn decoded(response: &Response) -> Vec<u8> {
    use std::io::Read;
    let (mut out, body) = (Vec::new(), &response.body[..]);
    match response.header("content-encoding") {
        None => out.extend_from_slice(body),
        Some("br") => drop(brotli::Decompressor::new(body, 4_096).read_to_end(&mut out).unwrap()),
        Some("zstd") => drop(zstd::Decoder::new(body).unwrap().read_to_end(&mut out).unwrap()),
        Some("gzip") => drop(flate2::read::GzDecoder::new(body).read_to_end(&mut out).unwrap()),
        Some(other) => panic!("unexpected content coding {other}"),
    }
    out
}
