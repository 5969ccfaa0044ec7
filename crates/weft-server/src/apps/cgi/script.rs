//! The path of a request → a script, and what is left of the path.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use weft::path::decode;

/// Where scripts are looked for.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// Absolute, since a script runs in a folder of its own.
    folder: PathBuf,
    /// The only script, which answers for all paths.
    single: Option<PathBuf>,
    index: Option<String>,
}

/// A file that can be run, by what a request has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// Its absolute path.
    pub(super) file: PathBuf,
    /// The path beneath which it was looked for.
    pub(super) root: PathBuf,
    /// The part of the request's path that names it, decoded: behind the mount, from a slash
    /// on. Empty for the only script of a route.
    pub(super) name: Vec<u8>,
    /// What follows that, decoded.
    pub(super) path_info: Vec<u8>,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum Absent {
    NotFound,
    /// It may not be run.
    Forbidden,
    Io(io::Error),
}

impl Root {
    /// # Errors
    /// If there is neither a folder nor a file.
    pub(super) fn open(path: &Path, index: Option<String>) -> io::Result<Root> {
        let metadata = path.metadata()?;
        if metadata.is_dir() {
            // Without a slash at its end, as paths are appended.
            let folder = std::path::absolute(path)?.components().collect();
            return Ok(Root { folder, single: None, index });
        }
        // Who names a script by a link means what that leads to.
        let file = path.canonicalize()?;
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        Ok(Root { folder: folder.to_owned(), single: Some(name.into()), index })
    }

    /// The first file that the segments of a path lead to, through folders. Waits for the disk.
    pub(super) fn find(&self, path: &str) -> Result<Script, Absent> {
        let segments = segments(path).ok_or(Absent::NotFound)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Each time anew: it may have been renamed, and another put in its place.
        let root = rustix::fs::open(&self.folder, flags, Mode::empty()).map_err(Absent::from)?;
        if let Some(single) = &self.single {
            return match look(&root, single)? {
                Kind::Script => Ok(self.script(single, Vec::new(), &segments)),
                Kind::Folder => Err(Absent::NotFound),
            };
        }
        let mut place = PathBuf::new();
        for (i, segment) in segments.iter().enumerate() {
            match (&**segment, &self.index) {
                // The folder itself is asked for.
                (b"", Some(index)) => place.push(index),
                (b"" | [b'.', ..], _) => return Err(Absent::NotFound),
                (name, _) => place.push(OsStr::from_bytes(name)),
            }
            if let Kind::Script = look(&root, &place)? {
                let name = [b"/", place.as_os_str().as_bytes()].concat();
                return Ok(self.script(&place, name, &segments[i + 1..]));
            }
        }
        Err(Absent::NotFound)
    }

    fn script(&self, place: &Path, name: Vec<u8>, rest: &[Cow<'_, [u8]>]) -> Script {
        let path_info = rest.iter().flat_map(|segment| [b"/", &**segment].concat()).collect();
        Script { file: self.folder.join(place), root: self.folder.clone(), name, path_info }
    }
}

/// The segments of a path, decoded. `None` for what can be no path of a file system: it could
/// lead elsewhere than it says, as `PATH_INFO` too.
fn segments(path: &str) -> Option<Vec<Cow<'_, [u8]>>> {
    let segments = path.strip_prefix('/')?.split('/');
    let is_sound = |segment: &[u8]| {
        !matches!(segment, b"." | b"..") && !segment.iter().any(|b| b"/\0".contains(b))
    };
    let decoded = segments.map(|segment| decode(segment.as_bytes()));
    decoded.map(|segment| is_sound(&segment).then_some(segment)).collect()
}

enum Kind {
    Script,
    Folder,
}

/// What there is at a place beneath the root. The kernel sees to it that no link leads out.
fn look(root: &OwnedFd, place: &Path) -> Result<Kind, Absent> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 0;
    let file = loop {
        match openat2(root, place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::INTR) => {}
            // Something was renamed on the way: whether it lies beneath must be seen anew.
            Err(Errno::AGAIN) if tries < 8 => tries += 1,
            opened => break opened?,
        }
    };
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(Kind::Folder),
        // Whether the server itself may run it, it learns when it tries.
        FileType::RegularFile if Mode::from_raw_mode(stat.st_mode).intersects(ANY_EXECUTES) => {
            Ok(Kind::Script)
        }
        FileType::RegularFile => Err(Absent::Forbidden),
        _ => Err(Absent::NotFound),
    }
}

const ANY_EXECUTES: Mode = Mode::XUSR.union(Mode::XGRP).union(Mode::XOTH);

impl From<Errno> for Absent {
    fn from(error: Errno) -> Absent {
        match error {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Absent::NotFound,
            // A link that leads out, or in a circle.
            Errno::XDEV | Errno::LOOP => Absent::NotFound,
            Errno::ACCESS | Errno::PERM => Absent::Forbidden,
            error => Absent::Io(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().join("root");
        fs::create_dir_all(root.join("in/deep")).unwrap();
        for (name, mode) in [
            ("../outside", 0o755),
            ("a.cgi", 0o755),
            ("a b", 0o755),
            ("text", 0o644),
            (".hidden", 0o755),
            ("in/index.cgi", 0o755),
            ("in/deep/b.cgi", 0o700),
        ] {
            fs::write(root.join(name), "").unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("in/deep/b.cgi", root.join("inner")).unwrap();
        symlink("../outside", root.join("outer")).unwrap();
        symlink("/bin/sh", root.join("sh")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        symlink("..", root.join("in/up")).unwrap();
        let pipe = root.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        tree
    }

    fn found(root: &Root, path: &str) -> String {
        match root.find(path) {
            Ok(Script { name, path_info, .. }) => {
                format!("{} + {}", name.escape_ascii(), path_info.escape_ascii())
            }
            Err(Absent::NotFound) => "404".to_owned(),
            Err(Absent::Forbidden) => "403".to_owned(),
            Err(Absent::Io(error)) => error.to_string(),
        }
    }

    #[test]
    fn paths_and_scripts() {
        let tree = tree();
        let root = Root::open(&tree.path().join("root"), Some("index.cgi".into())).unwrap();
        for (path, expected) in [
            ("/a.cgi", "/a.cgi + "),
            ("/a.cgi/", "/a.cgi + /"),
            ("/a.cgi/x/y%20z", "/a.cgi + /x/y z"),
            ("/a.cgi/.git/%c3", "/a.cgi + /.git/\\xc3"),
            ("/%61%2ecgi/x", "/a.cgi + /x"),
            ("/a%20b", "/a b + "),
            ("/in/deep/b.cgi/c", "/in/deep/b.cgi + /c"),
            ("/in/", "/in/index.cgi + "),
            ("/inner/x", "/inner + /x"),
            ("/in/up/a.cgi", "/in/up/a.cgi + "),
            // A folder without the slash, or without such a script.
            ("/in", "404"),
            ("/in/deep/", "404"),
            ("/", "404"),
            ("/none", "404"),
            ("/in/none/a.cgi", "404"),
            ("/text", "403"),
            ("/text/x", "403"),
            ("/.hidden", "404"),
            ("/pipe", "404"),
            // What leads out, or could.
            ("/outer", "404"),
            ("/sh", "404"),
            ("/circle", "404"),
            ("/../outside", "404"),
            ("/in/../../outside", "404"),
            ("/%2e%2e/outside", "404"),
            ("/in%2fdeep/b.cgi", "404"),
            ("/a.cgi/x%2fy", "404"),
            ("/a.cgi/../x", "404"),
            ("/a.cgi/%2e%2E", "404"),
            ("/a.cgi%00", "404"),
            ("/a.cgi/x%00", "404"),
            ("*", "404"),
            ("", "404"),
        ] {
            assert_eq!(found(&root, path), expected, "{path}");
        }
        let with_slash = Root::open(&tree.path().join("root/"), None).unwrap();
        let script = with_slash.find("/in/deep/b.cgi/c").unwrap();
        assert_eq!(script.file, tree.path().join("root/in/deep/b.cgi"));
        assert_eq!(script.root.as_os_str(), tree.path().join("root").as_os_str());
        let without_index = Root::open(&tree.path().join("root"), None).unwrap();
        assert_eq!(found(&without_index, "/in/"), "404");
    }

    #[test]
    fn one_script_for_all_paths() {
        let tree = tree();
        for (file, path, expected) in [
            ("root/a.cgi", "/", " + /"),
            ("root/a.cgi", "/in/x", " + /in/x"),
            ("root/outer", "/x", " + /x"),
            ("root/text", "/x", "403"),
            ("root/a.cgi", "/..", "404"),
        ] {
            let root = Root::open(&tree.path().join(file), None).unwrap();
            assert_eq!(found(&root, path), expected, "{file} {path}");
        }
        assert!(Root::open(&tree.path().join("none"), None).is_err());
    }
}
