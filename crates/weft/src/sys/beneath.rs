//! Opens a path beneath a directory, one component at a time, without leaving the directory.
//!
//! The walk does what `openat2(2)` does with `RESOLVE_BENEATH`. It serves systems that do not have
//! this call, Linux before 5.6, and containers whose seccomp profile refuses it.
//!
//! No call follows a symbolic link. The walk reads each link and continues with the text. A rename
//! meanwhile cannot lead it out: it holds the directories that it came through, and `..` returns to
//! the directory it holds. If the result differs from the result of `openat2(2)`, it is an error:
//! - a path that goes up by more than [`MAX_PARENTS`] directories;
//! - links in `/proc`, which the kernel does not resolve by their text;
//! - links that another user made in a folder where everybody may write, such as `/tmp`: the kernel
//!   refuses them unless `fs.protected_symlinks` is 0.

use std::collections::VecDeque;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::{Errno, Result, retry_on_intr};

use super::system::{DIRECTORY_FLAGS, READ_FLAGS, refuses_links};
use super::types::{AsFd, BorrowedFd, Links, OwnedFd};

/// Maximum number of links on a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Maximum number of bytes of a path with its NUL, as in the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// Maximum number of directories that are held for `..`, so that a path occupies few descriptors.
const MAX_PARENTS: usize = 32;

/// Opens a path beneath `root` for reading.
pub(super) fn open(root: BorrowedFd<'_>, path: &[u8], links: Links) -> Result<OwnedFd> {
    walk(root, path, links, |directory, name, is_folder| {
        let folder = if is_folder { OFlags::DIRECTORY } else { OFlags::empty() };
        let flags = READ_FLAGS | OFlags::NOFOLLOW | folder;
        open_entry(directory, name, flags)
    })
}

/// Opens an entry of a directory. A signal interrupts the call on some file systems.
fn open_entry(directory: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd> {
    retry_on_intr(|| openat(directory, name, flags, Mode::empty()))
}

/// Returns the attributes of the entry at a path beneath `root`. Does not open the entry: no pipe
/// waits for its writer, no device starts.
pub(super) fn stat(root: BorrowedFd<'_>, path: &[u8], links: Links) -> Result<Stat> {
    walk(root, path, links, |directory, name, is_folder| {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => Err(Errno::LOOP),
            FileType::Directory => Ok(stat),
            _ if is_folder => Err(Errno::NOTDIR),
            _ => Ok(stat),
        }
    })
}

/// Walks to the directory of the last component, and calls `last` with the directory, the name and
/// true if the name must be a folder. `last` fails with one of the [errors](is_link_error) if the
/// name is a link.
fn walk<T>(
    root: BorrowedFd<'_>,
    path: &[u8],
    links: Links,
    mut last: impl FnMut(BorrowedFd<'_>, &[u8], bool) -> Result<T>,
) -> Result<T> {
    let mut position = Position::new(root, links);
    let mut rest = Rest::new(path)?;
    position.start(&rest)?;
    loop {
        let component = rest.next();
        let found = match (&component.name[..], component.is_last) {
            (b".", true) => return last(position.directory(), b".", true),
            (b".", false) => continue,
            (b"..", is_last) => {
                position.ascend()?;
                match is_last {
                    true => return last(position.directory(), b".", true),
                    false => continue,
                }
            }
            (name, true) => match last(position.directory(), name, component.must_be_folder) {
                Ok(found) => return Ok(found),
                Err(error) => Err(error),
            },
            (name, false) => position.descend(name),
        };
        if let Err(error) = found {
            let target = position.read_link(&component.name, error)?;
            rest.follow(&target, &component)?;
            position.start(&rest)?;
        }
    }
}

/// Returns true if opening a link without following it may fail with this error. The systems
/// differ, and a link is no folder either.
fn is_link_error(error: Errno) -> bool {
    matches!(error, Errno::LOOP | Errno::NOTDIR | Errno::MLINK)
}

/// The components of a path that the walk has not reached, in which links are replaced by their
/// targets.
struct Rest {
    path: Vec<u8>,
    at: usize,
    followed_links: usize,
}

struct Component {
    name: Vec<u8>,
    is_last: bool,
    /// A slash follows the name.
    must_be_folder: bool,
}

impl Rest {
    fn new(path: &[u8]) -> Result<Rest> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.contains(&0) {
            return Err(Errno::INVAL);
        }
        if path.len() >= MAX_PATH_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(Rest { path: path.to_vec(), at: 0, followed_links: 0 })
    }

    fn is_absolute(&self) -> bool {
        self.path.get(self.at) == Some(&b'/')
    }

    /// Returns the next component; `.` after all others. Empty components do not count.
    fn next(&mut self) -> Component {
        let skip_slashes = |mut at: usize| {
            while self.path.get(at) == Some(&b'/') {
                at += 1;
            }
            at
        };
        let start = skip_slashes(self.at);
        let rest = &self.path[start..];
        let length = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let name = if length == 0 { b"." } else { &rest[..length] };
        let end = skip_slashes(start + length);
        let component = Component {
            name: name.to_vec(),
            is_last: end == self.path.len(),
            must_be_folder: end > start + length,
        };
        self.at = end;
        component
    }

    /// Replaces a component, which is a link, by the target of the link.
    fn follow(&mut self, target: &[u8], link: &Component) -> Result<()> {
        self.followed_links += 1;
        if self.followed_links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        let slash: &[u8] = if link.must_be_folder { b"/" } else { b"" };
        self.path = [target, slash, &self.path[self.at..]].concat();
        self.at = 0;
        Ok(())
    }
}

/// The directory that a walk has reached.
struct Position<'a> {
    root: BorrowedFd<'a>,
    links: Links,
    /// The directories between the root, which is not among them, and this one.
    path: VecDeque<OwnedFd>,
    /// Directories between the root and the first one of `path`, which are no longer held.
    released: usize,
    /// True after a step outside of the root, which only [`Links::Anywhere`] permits.
    is_outside: bool,
}

impl<'a> Position<'a> {
    fn new(root: BorrowedFd<'a>, links: Links) -> Position<'a> {
        Position { root, links, path: VecDeque::new(), released: 0, is_outside: false }
    }

    fn directory(&self) -> BorrowedFd<'_> {
        self.path.back().map_or(self.root, |directory| directory.as_fd())
    }

    /// Moves to the root of the file system if the path is absolute.
    fn start(&mut self, rest: &Rest) -> Result<()> {
        if rest.is_absolute() {
            if self.links != Links::Anywhere {
                return Err(Errno::XDEV);
            }
            self.leave(open_entry(CWD, b"/", DIRECTORY_FLAGS)?);
        }
        Ok(())
    }

    /// Moves to a directory outside of the root.
    fn leave(&mut self, directory: OwnedFd) {
        self.path.clear();
        self.path.push_back(directory);
        (self.released, self.is_outside) = (0, true);
    }

    fn descend(&mut self, name: &[u8]) -> Result<()> {
        let flags = DIRECTORY_FLAGS | OFlags::NOFOLLOW;
        let directory = open_entry(self.directory(), name, flags)?;
        if self.path.len() == MAX_PARENTS {
            self.path.pop_front();
            self.released += 1;
        }
        self.path.push_back(directory);
        Ok(())
    }

    fn ascend(&mut self) -> Result<()> {
        // The parent at this time may be another one. It is opened for the permission only.
        let parent = open_entry(self.directory(), b"..", DIRECTORY_FLAGS)?;
        match self.path.len() {
            _ if self.links == Links::Anywhere => self.leave(parent),
            0 => return Err(Errno::XDEV),
            1 if self.released > 0 => return Err(Errno::XDEV),
            _ => drop(self.path.pop_back()),
        }
        Ok(())
    }

    /// Returns the target of the link `name`, which could not be opened because of `error`. Returns
    /// that error if the name is no link.
    fn read_link(&self, name: &[u8], error: Errno) -> Result<Vec<u8>> {
        if !is_link_error(error) {
            return Err(error);
        }
        let directory = self.directory();
        let target = match readlinkat(directory, name, Vec::new()) {
            Ok(target) => target.into_bytes(),
            Err(Errno::INVAL) => return Err(error),
            Err(error) => return Err(error),
        };
        if self.links == Links::Refused || refuses_links(directory)? {
            return Err(Errno::LOOP);
        }
        self.check_owner(name)?;
        Ok(target)
    }

    /// Refuses links of other users in a folder where everybody may write.
    fn check_owner(&self, name: &[u8]) -> Result<()> {
        const SHARED: Mode = Mode::SVTX.union(Mode::WOTH);
        let folder = fstat(self.directory())?;
        if !Mode::from_raw_mode(folder.st_mode).contains(SHARED) {
            return Ok(());
        }
        let link = statat(self.directory(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_own = link.st_uid == rustix::process::geteuid().as_raw();
        match is_own || link.st_uid == folder.st_uid {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
