//! A folder in the file system, served over real sockets.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Uid;
use tempfile::TempDir;
use weft::{Directory, DirectorySettings, Running, Server};

use super::{Client, Response, until};

/// A folder in a folder: what lies beside the root must never be served.
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

    /// A tree with files: path and contents.
    pub fn with(files: &[(&str, &str)]) -> Tree {
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

    /// Writes a file, and makes its folders.
    pub fn write(&self, name: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    pub fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.path(name)).unwrap();
    }

    pub fn pipe(&self, name: &str) {
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, self.path(name), FileType::Fifo, mode, 0).unwrap();
    }

    /// Puts another file in the place of one, as careful programs do.
    pub fn replace(&self, name: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) {
        let new = self.outer.path().join("new");
        fs::write(&new, contents).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// Has a file modified so many seconds ago.
    pub fn age(&self, name: impl AsRef<[u8]>, seconds: u64) {
        let file = fs::File::options().write(true).open(self.path(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    /// Waits until no file has changed just now: only then are contents kept in memory.
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
        until("the files have settled", || SystemTime::now() >= settled);
    }

    /// How many files beneath the root this process has open.
    pub fn open_files(&self) -> usize {
        let open = fs::read_dir("/proc/self/fd").unwrap();
        let paths = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        paths.filter(|path| path.starts_with(self.root()) && *path != self.root()).count()
    }

    /// Lets everybody read the tree, but for these.
    pub fn close(&self, names: &[&str]) {
        let set = |path: PathBuf, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        set(self.outer.path().to_owned(), 0o755).unwrap();
        names.iter().for_each(|name| set(self.path(name), 0o000).unwrap());
    }

    /// Targets that shall lead out of the root, and must not. There is a folder `folder/deep`.
    pub fn ways_out(&self) -> Vec<String> {
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
            // Encoded twice, it is the name of a file that is not there.
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
            // Overlong UTF-8 and other ways to write a dot or a slash.
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

    pub fn serve(&self) -> Running {
        self.serve_with(DirectorySettings::default())
    }

    pub fn serve_with(&self, settings: DirectorySettings) -> Running {
        serve(Directory::with_settings(self.root(), settings).unwrap())
    }
}

/// Serves a directory with one worker.
pub fn serve(directory: Directory) -> Running {
    let server = Server::new(directory).workers(1);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// What lies outside of the root.
pub const SECRET: &str = "SECRET";

pub fn ask(client: &mut Client, method: &str, target: impl AsRef<[u8]>) -> Response {
    client.send(request(method, target));
    if method == "HEAD" { client.head() } else { client.response() }
}

/// Asks with more fields, whose lines are parted by CRLF; none if there is nothing.
#[track_caller]
pub fn ask_with(
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

/// Asks for each target on one connection, and compares statuses.
#[track_caller]
pub fn assert_statuses(server: &Running, cases: &[(&str, u16)]) {
    let mut client = Client::connect(server);
    for (target, status) in cases {
        let response = ask(&mut client, "GET", target);
        assert_eq!(response.status, *status, "{target}: {}", response.text());
        assert!(!response.text().contains(SECRET), "{target} went out of the root");
    }
}

/// Asks for each target on one connection; each is found and has this body.
#[track_caller]
pub fn assert_bodies<T: AsRef<[u8]>>(server: &Running, cases: &[(T, &str)]) {
    let mut client = Client::connect(server);
    for (target, body) in cases {
        let response = ask(&mut client, "GET", target);
        let target = target.as_ref().escape_ascii();
        assert_eq!((response.status, response.text()), (200, *body), "{target}");
    }
}

/// Bytes that do not repeat with any power of two.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// `Date` may change between two requests; all else shall not.
pub fn fields_but_date(response: &Response) -> Vec<(String, String)> {
    response.headers.iter().filter(|(name, _)| name != "date").cloned().collect()
}

/// As a user whom permissions bind, if the test is run by one whom they do not.
pub fn as_nobody(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Of this thread, and of those that it starts. It fails for who is not root.
            let nobody = Uid::from_raw(65_534);
            let _ = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
            match rustix::process::geteuid().is_root() {
                false => work(),
                // The test harness hides what a test that passes prints, but not what it writes.
                true => std::io::stderr().write_all(b"SKIPPED: root cannot leave\n").unwrap(),
            }
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}
