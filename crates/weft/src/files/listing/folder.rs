//! A folder that is read, as far as its entries may be seen.
//!
//! A listing shows what a request would find. So a link is what it leads to, if it leads to
//! anything beneath the root; and what would not be served, a pipe or a device, is not there.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::fs::{fstat, openat2, statat};
use rustix::io::{Errno, Result};

use crate::disk::File;
use crate::files::listing::{Entry, Listing};

/// Where a folder is, which its links are resolved from.
pub(crate) struct Folder<'a> {
    pub(crate) root: BorrowedFd<'a>,
    /// Beneath the root, decoded, without slashes at its ends; the root's is empty.
    pub(crate) path: Vec<u8>,
    /// How links are followed. They stay beneath the root only if this says so.
    pub(crate) resolve: ResolveFlags,
}

impl Folder<'_> {
    /// The entries of this folder, which is open for reading: those whose names are to be
    /// shown, and at most so many.
    ///
    /// This blocks while the disk is asked about each of them, so it is for a thread that
    /// may wait.
    ///
    /// # Errors
    /// Those of the system, if the folder cannot be read, or for want of descriptors or
    /// memory. An entry that cannot be reached, or has vanished meanwhile, is left out.
    pub(crate) fn read(
        self,
        open: impl AsFd,
        limit: usize,
        is_shown: impl Fn(&[u8]) -> bool,
    ) -> Result<Listing> {
        let mut names = Dir::read_from(open)?;
        let (mut entries, mut truncated) = (Vec::new(), false);
        while let Some(found) = names.read() {
            let found = found?;
            let name = found.file_name().to_bytes();
            if matches!(name, b"." | b"..") || !is_shown(name) {
                continue;
            }
            let seen = match statat(names.fd()?, found.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if file_type(&stat) == FileType::Symlink => self.follow(name),
                seen => seen,
            };
            let Some(entry) = entry(name, seen)? else { continue };
            if entries.len() == limit {
                truncated = true;
                break;
            }
            entries.push(entry);
        }
        Ok(Listing { path: self.path, entries, truncated })
    }

    /// What a link leads to. It is looked up from the root, which alone the kernel can hold
    /// it beneath: from here it may well go up. If the folder was moved since it was opened,
    /// that is another link or none, but none that leads out.
    fn follow(&self, name: &[u8]) -> Result<Stat> {
        let path = match &self.path[..] {
            b"" => name.into(),
            folder => [folder, b"/", name].concat(),
        };
        // This opens nothing but the place: no pipe waits for its writer, no device starts.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        fstat(openat2(self.root, path, flags, Mode::empty(), self.resolve)?)
    }
}

/// The entries of a folder of files that are all in memory, by their paths.
pub(crate) fn among(
    files: &BTreeMap<Vec<u8>, File>,
    path: Vec<u8>,
    limit: usize,
    is_shown: impl Fn(&[u8]) -> bool,
) -> Listing {
    let within = if path.is_empty() { Vec::new() } else { [&path[..], b"/"].concat() };
    let mut listing = Listing { path, entries: Vec::new(), truncated: false };
    let inner = files.range(within.clone()..).take_while(|(path, _)| path.starts_with(&within));
    for (path, file) in inner {
        let mut rest = path[within.len()..].splitn(2, |&b| b == b'/');
        let (name, is_folder) = (rest.next().unwrap_or_default(), rest.next().is_some());
        // All that is in one folder comes together.
        let is_known =
            listing.entries.last().is_some_and(|last| last.is_folder && last.name == name);
        if is_known || !is_shown(name) {
            continue;
        }
        if listing.entries.len() == limit {
            listing.truncated = true;
            break;
        }
        let length = if is_folder { 0 } else { file.length };
        listing.entries.push(Entry { name: name.to_vec(), is_folder, length, modified: None });
    }
    listing
}

/// An entry as it was seen; `None` if it is not one to be listed.
fn entry(name: &[u8], seen: Result<Stat>) -> Result<Option<Entry>> {
    let stat = match seen {
        Ok(stat) => stat,
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(error),
        Err(_) => return Ok(None),
    };
    let (is_folder, length) = match file_type(&stat) {
        FileType::Directory => (true, 0),
        FileType::RegularFile => (false, u64::try_from(stat.st_size).unwrap_or(0)),
        _ => return Ok(None),
    };
    Ok(Some(Entry { name: name.into(), is_folder, length, modified: Some(stat.st_mtime) }))
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};

    use rustix::fs::{CWD, mkfifoat};
    use tempfile::TempDir;

    use super::*;

    const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

    fn open(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    /// The names in a folder of a root, in order, with a slash behind those of folders.
    fn names(root: &Path, path: &str, resolve: ResolveFlags) -> Vec<String> {
        let descriptor = open(root);
        let folder = Folder { root: descriptor.as_fd(), path: path.into(), resolve };
        let listing = folder.read(open(&root.join(path)), 100, |_| true).unwrap();
        assert_eq!((listing.path, listing.truncated), (path.into(), false));
        let mut names: Vec<String> = listing
            .entries
            .iter()
            .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
            .zip(&listing.entries)
            .map(|(name, entry)| name + if entry.is_folder { "/" } else { "" })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_could_be_served_is_there() {
        let tree = TempDir::new().unwrap();
        let root = tree.path().join("root");
        let inner = root.join("a/b");
        fs::create_dir_all(inner.join("folder")).unwrap();
        fs::write(tree.path().join("secret"), "").unwrap();
        fs::write(root.join("top"), "").unwrap();
        fs::write(inner.join("file"), "").unwrap();
        mkfifoat(CWD, inner.join("pipe"), Mode::RUSR).unwrap();
        let _socket = UnixListener::bind(inner.join("socket")).unwrap();
        for (name, target) in [
            ("link to a file", "file"),
            ("link to a folder", "folder"),
            ("link to a link", "link to a file"),
            ("link upwards", "../../top"),
            ("link to the root", "../.."),
            ("link to a pipe", "pipe"),
            ("link to a socket", "socket"),
            ("link to nothing", "nothing"),
            ("link to itself", "link to itself"),
            ("link out of the root", "../../../secret"),
            ("link out and in again", "../../../root/top"),
            ("link to a device", "/dev/null"),
            ("absolute link", root.join("top").to_str().unwrap()),
            ("magic link", "/proc/self/cwd"),
        ] {
            symlink(target, inner.join(name)).unwrap();
        }

        let expected = [
            "file",
            "folder/",
            "link to a file",
            "link to a folder/",
            "link to a link",
            "link to the root/",
            "link upwards",
        ];
        assert_eq!(names(&root, "a/b", BENEATH), expected);
        assert_eq!(names(&inner, "", BENEATH), expected[..5]);
        assert_eq!(names(&root, "a/b", BENEATH | ResolveFlags::NO_SYMLINKS), expected[..2]);
        assert_eq!(names(&root, "a/b/folder", BENEATH), [""; 0]);
    }

    #[test]
    fn entries_as_they_are() {
        let root = TempDir::new().unwrap();
        let name = b"\xff\n<b>";
        let file = File::create(root.path().join(OsStr::from_bytes(name))).unwrap();
        file.set_len(5 << 30).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_795_258_261)).unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();

        let descriptor = open(root.path());
        let folder = Folder { root: descriptor.as_fd(), path: vec![], resolve: BENEATH };
        let mut entries = folder.read(open(root.path()), 2, |_| true).unwrap().entries;
        entries.sort_by_key(|entry| entry.is_folder);
        let (length, modified) = (5 << 30, Some(1_795_258_261));
        assert_eq!(entries[0], Entry { name: name.into(), is_folder: false, length, modified });
        assert_eq!((entries[1].is_folder, entries[1].length), (true, 0));
    }

    #[test]
    fn what_is_hidden_or_vanishes_is_left_out() {
        let root = TempDir::new().unwrap();
        for name in [".hidden", "gone", "here"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        symlink(".hidden", root.path().join("link gone")).unwrap();
        let descriptor = open(root.path());
        let folder = Folder { root: descriptor.as_fd(), path: vec![], resolve: BENEATH };
        let listing = folder.read(open(root.path()), 1, |name| {
            // Its name was read already.
            if name.ends_with(b"gone") {
                fs::remove_file(root.path().join(OsStr::from_bytes(name))).unwrap();
            }
            !name.starts_with(b".")
        });
        let listing = listing.unwrap();
        assert_eq!(listing.entries.len(), 1);
        assert_eq!(listing.entries[0].name, b"here");
        assert!(!listing.truncated, "what is left out does not count");
    }

    #[test]
    fn what_is_in_memory_has_folders_too() {
        let paths = ["a", "a.b", "b/c", "b/d/e", "b/d/f", "b/.h", "bc"];
        let files = paths.map(|path| (path.as_bytes().to_vec(), crate::File::of_bytes(b"xyz")));
        let files = BTreeMap::from(files);
        for (path, limit, expected) in [
            ("", 9, "a 3, a.b 3, b 0, bc 3"),
            ("", 2, "a 3, a.b 3 …"),
            ("b", 9, "c 3, d 0"),
            ("b/d", 9, "e 3, f 3"),
        ] {
            let listing = among(&files, path.into(), limit, |name| !name.starts_with(b"."));
            let name = |entry: &Entry| String::from_utf8_lossy(&entry.name).into_owned();
            let entries = listing.entries.iter();
            let entries = entries.map(|entry| format!("{} {}", name(entry), entry.length));
            let mut seen = entries.collect::<Vec<_>>().join(", ");
            seen.push_str(if listing.truncated { " …" } else { "" });
            assert_eq!(seen, expected, "{path}");
        }
    }

    #[test]
    fn ten_thousand_files() {
        let root = TempDir::new().unwrap();
        for number in 0..10_000 {
            File::create(root.path().join(format!("{number}"))).unwrap();
        }
        for (limit, shown, truncated) in
            [(0, 0, true), (9_999, 9_999, true), (10_000, 10_000, false), (20_000, 10_000, false)]
        {
            let descriptor = open(root.path());
            let folder = Folder { root: descriptor.as_fd(), path: vec![], resolve: BENEATH };
            let listing = folder.read(open(root.path()), limit, |_| true).unwrap();
            assert_eq!((listing.entries.len(), listing.truncated), (shown, truncated), "{limit}");
        }
    }

    #[test]
    fn what_is_no_folder_cannot_be_read() {
        let root = TempDir::new().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let descriptor = open(root.path());
        let folder = Folder { root: descriptor.as_fd(), path: vec![], resolve: BENEATH };
        assert_eq!(folder.read(open(&file), 1, |_| true).unwrap_err(), Errno::NOTDIR);
    }
}
