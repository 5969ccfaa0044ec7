//! Reads the visible entries of a folder.
//!
//! A listing shows only files and folders that a request would find. So a symbolic link is shown
//! as its target, if that is beneath the root, and pipes and devices are not shown.

use std::collections::BTreeMap;

use crate::disk::File;
use crate::files::listing::entries::{Entry, Listing};
use crate::sys::{AsFd, EntryKind, Errno, FileStat, FolderEntries, Links, OwnedFd, stat_beneath};

/// The location of a folder, for the resolution of its symbolic links.
pub(crate) struct Folder<'a> {
    pub(crate) root: &'a OwnedFd,
    /// The path beneath the root, decoded, without slashes at its ends; empty for the root.
    pub(crate) path: Vec<u8>,
    /// The policy for symbolic links.
    pub(crate) links: Links,
}

impl Folder<'_> {
    /// Reads the entries of this folder, which is open for reading: at most `limit` entries, and
    /// only names for which `is_shown` returns true.
    ///
    /// Blocks for one `stat` of each entry, so it has to run on a thread that may block.
    ///
    /// # Errors
    /// Errors of the system, if the folder cannot be read, or if descriptors or memory are
    /// exhausted. An entry that cannot be reached, or was removed meanwhile, is omitted.
    pub(crate) fn read(
        self,
        open: impl AsFd,
        limit: usize,
        is_shown: impl Fn(&[u8]) -> bool,
    ) -> Result<Listing, Errno> {
        let mut names = FolderEntries::read(open)?;
        let (mut entries, mut truncated) = (Vec::new(), false);
        while let Some(name) = names.next_name() {
            let name = name?;
            if !is_shown(&name) {
                continue;
            }
            let stat = match names.stat(&name) {
                Ok(stat) if stat.kind == EntryKind::Symlink => self.stat_target(&name),
                stat => stat,
            };
            let Some(entry) = to_entry(name, stat)? else { continue };
            if entries.len() == limit {
                truncated = true;
                break;
            }
            entries.push(entry);
        }
        Ok(Listing { path: self.path, mount: Vec::new(), entries, truncated })
    }

    /// Returns the metadata of a symbolic link's target. The link is resolved from the root,
    /// because the kernel can confine a path only to the directory it starts from, and a link may
    /// lead up from this folder. If the folder was moved since it was opened, this finds another
    /// link or none, but never a target outside of the root.
    fn stat_target(&self, name: &[u8]) -> Result<FileStat, Errno> {
        let path = match &self.path[..] {
            b"" => name.into(),
            folder => [folder, b"/", name].concat(),
        };
        stat_beneath(self.root, &path, self.links)
    }
}

/// Lists a folder of embedded files, given by their paths.
pub(crate) fn list_embedded(
    files: &BTreeMap<Vec<u8>, File>,
    path: Vec<u8>,
    limit: usize,
    is_shown: impl Fn(&[u8]) -> bool,
) -> Listing {
    let prefix = if path.is_empty() { Vec::new() } else { [&path[..], b"/"].concat() };
    let mut listing = Listing { path, mount: Vec::new(), entries: Vec::new(), truncated: false };
    let inner = files.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
    for (path, file) in inner {
        let mut rest = path[prefix.len()..].splitn(2, |&b| b == b'/');
        let (name, is_folder) = (rest.next().unwrap_or_default(), rest.next().is_some());
        // The paths of one subfolder are adjacent in the map.
        let is_duplicate =
            listing.entries.last().is_some_and(|last| last.is_folder && last.name == name);
        if is_duplicate || !is_shown(name) {
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

/// Makes an entry from the result of `stat`; `None` if it is not to be listed.
fn to_entry(name: Vec<u8>, stat: Result<FileStat, Errno>) -> Result<Option<Entry>, Errno> {
    let stat = match stat {
        Ok(stat) => stat,
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(error),
        Err(_) => return Ok(None),
    };
    let (is_folder, length) = match stat.kind {
        EntryKind::Folder => (true, 0),
        EntryKind::File => (false, stat.length),
        EntryKind::Symlink | EntryKind::Other => return Ok(None),
    };
    Ok(Some(Entry { name, is_folder, length, modified: Some(stat.modified.0) }))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};

    use tempfile::TempDir;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    /// The sorted names in a folder beneath a root, with a slash after the names of folders.
    fn names(root: &Path, path: &str, links: Links) -> Vec<String> {
        let descriptor = open(root);
        let folder = Folder { root: &descriptor, path: path.into(), links };
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
    fn lists_only_files_and_folders_that_could_be_served() {
        let tree = TempDir::new().unwrap();
        let root = tree.path().join("root");
        let inner = root.join("a/b");
        fs::create_dir_all(inner.join("folder")).unwrap();
        fs::write(tree.path().join("secret"), "").unwrap();
        fs::write(root.join("top"), "").unwrap();
        fs::write(inner.join("file"), "").unwrap();
        let made = std::process::Command::new("mkfifo").arg(inner.join("pipe")).status().unwrap();
        assert!(made.success());
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
        assert_eq!(names(&root, "a/b", Links::Beneath), expected);
        assert_eq!(names(&inner, "", Links::Beneath), expected[..5]);
        assert_eq!(names(&root, "a/b", Links::Refused), expected[..2]);
        assert_eq!(names(&root, "a/b/folder", Links::Beneath), [""; 0]);
    }

    #[test]
    fn entries_have_raw_names_lengths_and_times() {
        let root = TempDir::new().unwrap();
        let name = b"\xff\n<b>";
        let file = File::create(root.path().join(OsStr::from_bytes(name))).unwrap();
        file.set_len(5 << 30).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_795_258_261)).unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();

        let descriptor = open(root.path());
        let folder = Folder { root: &descriptor, path: vec![], links: Links::Beneath };
        let mut entries = folder.read(open(root.path()), 2, |_| true).unwrap().entries;
        entries.sort_by_key(|entry| entry.is_folder);
        let (length, modified) = (5 << 30, Some(1_795_258_261));
        assert_eq!(entries[0], Entry { name: name.into(), is_folder: false, length, modified });
        assert_eq!((entries[1].is_folder, entries[1].length), (true, 0));
    }

    #[test]
    fn omits_hidden_and_removed_entries() {
        let root = TempDir::new().unwrap();
        for name in [".hidden", "removed", "present"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        symlink(".hidden", root.path().join("link removed")).unwrap();
        let descriptor = open(root.path());
        let folder = Folder { root: &descriptor, path: vec![], links: Links::Beneath };
        let listing = folder.read(open(root.path()), 1, |name| {
            // Removed after its name was read.
            if name.ends_with(b"removed") {
                fs::remove_file(root.path().join(OsStr::from_bytes(name))).unwrap();
            }
            !name.starts_with(b".")
        });
        let listing = listing.unwrap();
        assert_eq!(listing.entries.len(), 1);
        assert_eq!(listing.entries[0].name, b"present");
        assert!(!listing.truncated, "omitted entries do not count");
    }

    #[test]
    fn lists_folders_of_embedded_files() {
        let paths = ["a", "a.b", "b/c", "b/d/e", "b/d/f", "b/.h", "bc"];
        let files = paths.map(|path| (path.as_bytes().to_vec(), crate::File::from_static(b"xyz")));
        let files = BTreeMap::from(files);
        for (path, limit, expected) in [
            ("", 9, "a 3, a.b 3, b 0, bc 3"),
            ("", 2, "a 3, a.b 3 …"),
            ("b", 9, "c 3, d 0"),
            ("b/d", 9, "e 3, f 3"),
        ] {
            let listing = list_embedded(&files, path.into(), limit, |name| !name.starts_with(b"."));
            let name = |entry: &Entry| String::from_utf8_lossy(&entry.name).into_owned();
            let entries = listing.entries.iter();
            let entries = entries.map(|entry| format!("{} {}", name(entry), entry.length));
            let mut found = entries.collect::<Vec<_>>().join(", ");
            found.push_str(if listing.truncated { " …" } else { "" });
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn truncates_ten_thousand_files_at_the_limit() {
        let root = TempDir::new().unwrap();
        for number in 0..10_000 {
            File::create(root.path().join(format!("{number}"))).unwrap();
        }
        for (limit, shown, truncated) in
            [(0, 0, true), (9_999, 9_999, true), (10_000, 10_000, false), (20_000, 10_000, false)]
        {
            let descriptor = open(root.path());
            let folder = Folder { root: &descriptor, path: vec![], links: Links::Beneath };
            let listing = folder.read(open(root.path()), limit, |_| true).unwrap();
            assert_eq!((listing.entries.len(), listing.truncated), (shown, truncated), "{limit}");
        }
    }

    #[test]
    fn rejects_a_file_as_a_folder() {
        let root = TempDir::new().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let descriptor = open(root.path());
        let folder = Folder { root: &descriptor, path: vec![], links: Links::Beneath };
        assert_eq!(folder.read(open(&file), 1, |_| true).unwrap_err(), Errno::NOTDIR);
    }
}
