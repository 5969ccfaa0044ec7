//! The folder of the response cache: the ends of a process, a full disk, and purges.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

use crate::common::{Client, Signal, Weft, raw_upstream, read_head, until, weft};
use crate::config::run_in;

/// More responses than 1 MiB of memory holds.
const COUNT: usize = 300;

/// An upstream, a folder, and a server with a cache of 1 MiB in memory.
struct Site {
    requests: Arc<AtomicUsize>,
    folder: TempDir,
    server: Weft,
    address: SocketAddr,
}

impl Site {
    fn start() -> Site {
        Site::start_with(weft(["-c", "weft.toml", "--no-log"]))
    }

    #[track_caller]
    fn start_with(mut command: Command) -> Site {
        let requests = Arc::<AtomicUsize>::default();
        let counter = requests.clone();
        let origin = raw_upstream(move |_, mut stream| {
            while let Some(head) = read_head(&mut stream) {
                counter.fetch_add(1, Relaxed);
                let path = head.split(' ').nth(1).unwrap();
                let body = content(path);
                let length = body.len();
                let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: ";
                let _ = stream.write_all(format!("{head}{length}\r\n\r\n{body}").as_bytes());
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 2\npid_file = \"weft.pid\"\n\
             [status]\nlisten = \"unix:status\"\ncache_purge = \"unix\"\n\
             [response_cache]\nmemory = \"1MiB\"\nfolder = \"responses\"\n\
             [hosts.\"*\"]\n\"/\" = {{ proxy = \"http://{origin}/\", response_cache = true }}\n"
        );
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let server = Weft::start(command.current_dir(folder.path()));
        let address = server.address();
        Site { requests, folder, server, address }
    }

    /// Requests all responses. Returns the number of requests that the upstream gets for them.
    #[track_caller]
    fn get_all(&self) -> usize {
        let former = self.requests.load(Relaxed);
        let mut client = Client::tcp(self.address);
        for number in 0..COUNT {
            let path = format!("/{number}");
            let response = client.get(&path);
            assert_eq!(response.status, 200, "{path}");
            assert!(response.body == content(&path).as_bytes(), "{path}: another content");
        }
        self.requests.load(Relaxed) - former
    }

    /// Requests all responses until each is kept: a slow disk makes the server skip some of them.
    #[track_caller]
    fn keep_all(&self) {
        until("all responses are kept", || self.get_all() == 0);
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.folder.path().join("weft.pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    /// Starts another server over the folder.
    fn start_again(&mut self) {
        let mut command = weft(["-c", "weft.toml", "--no-log"]);
        self.server = Weft::start(command.current_dir(self.folder.path()));
        self.address = self.server.address();
        self.wait_for_scan();
    }

    fn wait_for_scan(&self) {
        until("the files are found", || self.status().contains("\"is_scanned\":true"));
    }

    fn status(&self) -> String {
        let response = Client::unix(&self.folder.path().join("status")).get("/cache");
        String::from_utf8(response.body).unwrap()
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("responses")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.file_name().unwrap().len() == 16).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A successor is no child of this process.
        if let Some(pid) =
            self.pid().filter(|pid| pid.as_raw_nonzero().get() != self.server.id() as i32)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The content of a path: 6,000 bytes.
fn content(path: &str) -> String {
    format!("{path:>60}").repeat(100)
}

#[test]
fn responses_survive_a_stop() {
    let mut site = Site::start();
    assert_eq!(site.get_all(), COUNT);
    site.keep_all();
    assert!(!site.files().is_empty(), "what does not fit into memory");
    site.server.signal(Signal::TERM);
    assert!(site.server.wait().success(), "{}", site.server.stderr());
    assert_eq!(site.files().len(), COUNT);
    site.start_again();
    assert_eq!(site.get_all(), 0);
}

/// A process that is killed while it writes loses responses, but never serves a wrong one.
#[test]
fn files_survive_a_kill() {
    let mut site = Site::start();
    site.get_all();
    site.server.signal(Signal::KILL);
    site.server.wait();
    let files = site.files().len();
    assert!(files > 0);
    site.start_again();
    let requests = site.get_all();
    assert!(requests <= COUNT - files, "{requests} requests with {files} files");
}

#[test]
fn responses_survive_an_upgrade() {
    let mut site = Site::start();
    site.keep_all();
    let former = site.pid().unwrap();
    kill_process(former, Signal::USR2).unwrap();
    assert!(site.server.wait().success(), "{}", site.server.stderr());
    until("the successor serves", || site.pid().is_some_and(|pid| pid != former));
    site.wait_for_scan();
    assert_eq!(site.get_all(), 0);
}

#[test]
fn purges_remove_files() {
    let mut site = Site::start();
    site.keep_all();
    let purge = ["cache", "purge", "--prefix", "http://a/1", "weft.toml"];
    let output = run_in(site.folder.path(), &purge);
    // 1, 10 to 19, and 100 to 199.
    assert_eq!(output.stdout, "111 responses removed\n", "{}", output.stderr);
    site.server.signal(Signal::TERM);
    assert!(site.server.wait().success());
    assert_eq!(site.files().len(), COUNT - 111);
    let output = run_in(site.folder.path(), &["cache", "status", "weft.toml"]);
    assert!(output.stderr.contains("no response of the status endpoint"), "{}", output.stderr);
}

/// The disk is full for every file over 4 KiB: nothing is kept, requests do not notice, and the log
/// has one line.
#[test]
fn full_disk_only_ends_the_keeping() {
    let program = weft(["-c", "weft.toml", "--no-log"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\""]);
    shell.arg(program.get_program()).args(program.get_args());
    let site = Site::start_with(shell);
    assert_eq!(site.get_all(), COUNT);
    until("a write has failed", || site.server.stderr().contains("response cache: "));
    site.get_all();
    let log = site.server.stderr();
    assert_eq!(log.matches("response cache: cannot write a file in ").count(), 1, "{log}");
    assert_eq!(site.files(), Vec::<PathBuf>::new());
    let status = site.status();
    assert!(status.contains("\"responses\":0") && !status.contains("\"skipped\":0"), "{status}");
}

/// Anybody could put responses into it. With `strict_start` the server does not start.
#[test]
fn folder_that_others_may_change_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let responses = folder.path().join("responses");
    fs::create_dir(&responses).unwrap();
    for (mode, strict, starts, expected) in [
        (0o777, true, false, "of [response_cache]: other users may write to it"),
        (0o777, false, true, "expected the mode 0700; responses are in memory only"),
        (0o700, true, true, ""),
    ] {
        fs::set_permissions(&responses, fs::Permissions::from_mode(mode)).unwrap();
        let config = format!(
            "listen = \"127.0.0.1:0\"\nstrict_start = {strict}\n[response_cache]\n\
             folder = \"responses\"\n[hosts.\"*\"]\n\"/\" = {{ respond = \"a\" }}\n"
        );
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let mut command = weft(["-c", "weft.toml", "--no-log"]);
        let command = command.current_dir(folder.path());
        let log = match starts {
            true => {
                let server = Weft::start(command);
                until("the message is logged", || server.stderr().contains(expected));
                server.stop().stderr
            }
            false => run_in(folder.path(), &["-c", "weft.toml"]).stderr,
        };
        assert!(log.contains(expected), "{mode:o}, {strict}: {log}");
        assert_eq!(responses.join("lock").exists(), mode == 0o700);
    }
}
