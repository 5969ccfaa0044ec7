//! The walk compared with `openat2(2)`: random trees and paths, and renames meanwhile.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::fs::{ResolveFlags, mkfifoat, openat2};
use tempfile::TempDir;

use super::*;

const READ_FLAGS: OFlags = crate::sys::system::READ_FLAGS;

/// Number of compared paths. `WEFT_WALKS=100000` sets another one.
fn walks() -> usize {
    std::env::var("WEFT_WALKS").map_or(5_000, |walks| walks.parse().expect("a number"))
}

/// A generator of numbers (xorshift), which repeats for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    /// Returns a path of names, dot segments and slashes, sometimes absolute.
    fn path(&mut self, root: &Path) -> String {
        let start = match self.below(20) {
            0 => "/".to_owned(),
            1 => format!("{}/", root.display()),
            _ => String::new(),
        };
        let names = ["a", "b", "c", "d", "a", "b", "c", "..", ".", "no", ""];
        let count = 1 + self.below(5);
        let segments: Vec<&str> = (0..count).map(|_| names[self.below(names.len())]).collect();
        let end = if self.below(8) == 0 { "/" } else { "" };
        match start + &segments.join("/") + end {
            path if path.is_empty() => ".".to_owned(),
            path => path,
        }
    }
}

/// Fills a folder with random entries.
fn plant(random: &mut Random, root: &Path, folder: &Path, depth: usize) {
    for name in ["a", "b", "c", "d"] {
        let path = folder.join(name);
        match random.below(12) {
            0..4 if depth > 0 => {
                fs::create_dir(&path).unwrap();
                plant(random, root, &path, depth - 1);
            }
            4..6 => fs::write(&path, "").unwrap(),
            6 if depth == 0 => {
                mkfifoat(CWD, &path, Mode::RUSR).unwrap();
            }
            7 if depth == 0 => drop(UnixListener::bind(&path)),
            8..12 => symlink(random.path(root), &path).unwrap(),
            _ => {}
        }
    }
}

fn open_by_kernel(root: &OwnedFd, path: &[u8], links: Links) -> Result<OwnedFd> {
    let resolve = match links {
        Links::Refused => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Links::Beneath => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Links::Anywhere => ResolveFlags::NO_MAGICLINKS,
    };
    loop {
        match openat2(root, path, READ_FLAGS, Mode::empty(), resolve) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            opened => return opened,
        }
    }
}

fn identity(opened: OwnedFd) -> (u64, u64) {
    let stat = fstat(opened).unwrap();
    (stat.st_dev, stat.st_ino)
}

fn directory(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

#[test]
fn random_paths_lead_to_the_file_that_the_kernel_finds() {
    const PATHS_PER_TREE: usize = 250;
    let mut random = Random(0x5eed);
    let (mut found, mut refused) = (0, 0);
    for _ in 0..walks().div_ceil(PATHS_PER_TREE) {
        let tree = TempDir::new().unwrap();
        let root = tree.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(tree.path().join("a"), "").unwrap();
        plant(&mut random, &root, &root, 3);
        let descriptor = directory(&root);
        for _ in 0..PATHS_PER_TREE {
            let path = random.path(&root);
            let links = [Links::Refused, Links::Beneath, Links::Anywhere][random.below(3)];
            let kernel = open_by_kernel(&descriptor, path.as_bytes(), links).map(identity);
            let walk = open(descriptor.as_fd(), path.as_bytes(), links).map(identity);
            assert_eq!(
                walk,
                kernel,
                "{path:?} with {links:?} beneath {}",
                tree.keep_on_failure(walk != kernel)
            );
            let stat = stat(descriptor.as_fd(), path.as_bytes(), links);
            let stat = stat.map(|stat| (stat.st_dev, stat.st_ino));
            // A socket has attributes, but cannot be opened.
            if kernel != Err(Errno::NXIO) {
                assert_eq!(stat, kernel, "attributes of {path:?} with {links:?}");
            }
            match kernel {
                Ok(_) => found += 1,
                Err(Errno::XDEV | Errno::LOOP) => refused += 1,
                Err(_) => {}
            }
        }
    }
    assert!(found * 20 > walks() && refused * 20 > walks(), "{found} found, {refused} refused");
}

/// Shows where a failed case is.
trait KeepOnFailure {
    fn keep_on_failure(&self, failed: bool) -> String;
}

impl KeepOnFailure for TempDir {
    fn keep_on_failure(&self, failed: bool) -> String {
        if failed {
            let list = std::process::Command::new("ls").arg("-lR").arg(self.path()).output();
            return String::from_utf8_lossy(&list.unwrap().stdout).into_owned();
        }
        String::new()
    }
}

/// Ends the renames, also if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn renames_meanwhile_lead_to_no_file_outside() {
    let tree = TempDir::new().unwrap();
    let (root, outside) = (tree.path().join("root"), tree.path().join("outside"));
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir_all(outside.join("b")).unwrap();
    for secret in ["secret", "b/secret"] {
        fs::write(outside.join(secret), "").unwrap();
    }
    let secrets = ["secret", "b/secret"].map(|path| identity(directory(&outside.join(path))));
    fs::write(root.join("a/b/c/file"), "").unwrap();
    symlink("../../../secret", root.join("a/b/c/up")).unwrap();
    symlink("../secret", root.join("a/b/up")).unwrap();
    symlink("../outside/secret", root.join("out")).unwrap();
    let descriptor = directory(&root);
    let stopped = AtomicBool::new(false);
    let (mut found, mut failed) = (0, 0);
    // On a busy machine, one thread may make many steps without the other one.
    let deadline = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        let _stops = StopOnDrop(&stopped);
        scope.spawn(|| {
            let moves: [(PathBuf, PathBuf); 3] = [
                (root.join("a/b"), outside.join("moved")),
                (root.join("a"), outside.join("a")),
                (root.join("a/b/c"), root.join("c")),
            ];
            while !stopped.load(Relaxed) {
                for (inside, moved) in &moves {
                    fs::rename(inside, moved).unwrap();
                    fs::rename(moved, inside).unwrap();
                }
                // A folder takes turns with a link out of the root.
                fs::rename(root.join("a"), root.join("real")).unwrap();
                symlink("../outside", root.join("a")).unwrap();
                fs::remove_file(root.join("a")).unwrap();
                fs::rename(root.join("real"), root.join("a")).unwrap();
            }
        });
        for index in 0.. {
            if index >= walks() && (found > 0 && failed > 0 || Instant::now() > deadline) {
                break;
            }
            let path =
                ["a/b/c/up", "a/b/up", "a/b/secret", "a/secret", "out", "a/b/c/file"][index % 6];
            match open(descriptor.as_fd(), path.as_bytes(), Links::Beneath).map(identity) {
                Ok(opened) => {
                    assert!(!secrets.contains(&opened), "{path} led outside");
                    found += 1;
                }
                Err(_) => failed += 1,
            }
        }
    });
    assert!(found > 0 && failed > 0, "{found} found, {failed} failed");
}

#[test]
fn limits_hold() {
    let tree = TempDir::new().unwrap();
    let root = directory(tree.path());
    let open = |path: &str, links| open(root.as_fd(), path.as_bytes(), links).map(drop);
    fs::write(tree.path().join("file"), "").unwrap();
    symlink("file", tree.path().join("0")).unwrap();
    for link in 1..=MAX_LINKS {
        symlink(format!("{}", link - 1), tree.path().join(link.to_string())).unwrap();
    }
    assert_eq!(open(&(MAX_LINKS - 1).to_string(), Links::Beneath), Ok(()));
    assert_eq!(open(&MAX_LINKS.to_string(), Links::Beneath), Err(Errno::LOOP));
    assert_eq!(open("0", Links::Refused), Err(Errno::LOOP));

    let deep = vec!["d"; MAX_PARENTS + 1].join("/");
    fs::create_dir_all(tree.path().join(&deep)).unwrap();
    assert_eq!(open(&deep, Links::Beneath), Ok(()), "a path down has no limit of its own");
    let up = |count: usize| format!("{deep}/{}file", "../".repeat(count));
    assert_eq!(open(&up(MAX_PARENTS - 1), Links::Beneath), Err(Errno::NOENT));
    assert_eq!(open(&up(MAX_PARENTS + 1), Links::Beneath), Err(Errno::XDEV));
    assert_eq!(open(&up(MAX_PARENTS + 1), Links::Anywhere), Ok(()));

    let path_of = |bytes: usize| "./".repeat(bytes / 2 - 2) + "file";
    assert_eq!(path_of(MAX_PATH_BYTES - 2).len(), MAX_PATH_BYTES - 2);
    assert_eq!(open(&path_of(MAX_PATH_BYTES - 2), Links::Beneath), Ok(()));
    assert_eq!(open(&path_of(MAX_PATH_BYTES), Links::Beneath), Err(Errno::NAMETOOLONG));
    assert_eq!(open("fi\0le", Links::Beneath), Err(Errno::INVAL));
    assert_eq!(open("", Links::Beneath), Err(Errno::NOENT));
}

#[test]
fn links_of_proc_are_not_followed() {
    let root = directory(Path::new("/"));
    for path in ["proc/self/cwd", "proc/self/fd/0", "proc/self/root/etc"] {
        for links in [Links::Beneath, Links::Anywhere] {
            let walk = open(root.as_fd(), path.as_bytes(), links).map(drop);
            assert_eq!(walk, Err(Errno::LOOP), "{path}");
        }
    }
    assert_eq!(open(root.as_fd(), b"proc/uptime", Links::Beneath).map(drop), Ok(()));
}

#[test]
fn links_of_other_users_in_shared_folders_are_refused() {
    let (tree, user) = (TempDir::new().unwrap(), rustix::process::Uid::from_raw(4321));
    let folder = tree.path().join("shared");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), "").unwrap();
    for name in ["own", "foreign"] {
        symlink("file", folder.join(name)).unwrap();
    }
    let foreign = folder.join("foreign");
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    if rustix::fs::chownat(CWD, &foreign, Some(user), None, flags).is_err() {
        return println!("SKIPPED: only root can give a link to another user");
    }
    let root = directory(tree.path());
    for (mode, is_followed) in [(0o755, true), (0o777, true), (0o1777, false)] {
        rustix::fs::chmod(&folder, Mode::from_raw_mode(mode)).unwrap();
        let open = |path: &[u8]| open(root.as_fd(), path, Links::Beneath).map(drop);
        assert_eq!(open(b"shared/foreign").is_ok(), is_followed, "{mode:o}");
        assert_eq!(open(b"shared/own"), Ok(()), "{mode:o}");
    }
}
