//! What the program may do: as whom it runs once it listens, and what others may do with the
//! files that it makes.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::unistd::{self, Gid, Group, Uid, User};
use rustix::fs::{Mode, OFlags};

use crate::plan::Identity;

/// Becomes another user for good, with that one's groups and no others.
///
/// To be called while there is one thread.
pub(crate) fn become_user(identity: &Identity) -> Result<(), String> {
    let (user, group) = (look_up_user(identity)?, look_up_group(identity)?);
    let Some(User { name, uid, gid, .. }) = user else { return Ok(()) };
    if !Uid::effective().is_root() {
        // Who follows a process that has become that user is it already.
        return match uid == Uid::effective() {
            true => Ok(()),
            false => Err("only root can become another user; start it as root".to_owned()),
        };
    }
    let gid = group.unwrap_or(gid);
    let change = || {
        unistd::initgroups(&CString::new(name)?, gid)?;
        unistd::setresgid(gid, gid, gid)?;
        unistd::setresuid(uid, uid, uid)?;
        Ok::<_, io::Error>(())
    };
    change().map_err(|error| format!("cannot become another user: {error}"))?;
    match uid.is_root() || unistd::seteuid(Uid::from_raw(0)).is_err() {
        true => Ok(()),
        false => Err("could become root again".to_owned()),
    }
}

fn look_up_user(identity: &Identity) -> Result<Option<User>, String> {
    let Some(name) = &identity.user else {
        return match &identity.group {
            None => Ok(None),
            Some(_) => Err("`group` needs `user`, too".to_owned()),
        };
    };
    let found = match name.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(name),
    };
    match found {
        Ok(Some(user)) => Ok(Some(user)),
        Ok(None) => Err(format!("there is no user `{name}`")),
        Err(error) => Err(format!("cannot look up the user `{name}`: {error}")),
    }
}

fn look_up_group(identity: &Identity) -> Result<Option<Gid>, String> {
    let Some(name) = &identity.group else { return Ok(None) };
    if let Ok(number) = name.parse() {
        return Ok(Some(Gid::from_raw(number)));
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(Some(group.gid)),
        Ok(None) => Err(format!("there is no group `{name}`")),
        Err(error) => Err(format!("cannot look up the group `{name}`: {error}")),
    }
}

/// Whether the identity can be had at all.
pub(crate) fn check(identity: &Identity) -> Result<(), String> {
    look_up_user(identity)?;
    look_up_group(identity).map(|_| ())
}

/// Takes permissions away from the files that are made from now on.
pub(crate) fn set_umask(mask: Option<u32>) {
    if let Some(mask) = mask {
        rustix::process::umask(Mode::from_raw_mode(mask));
    }
}

/// The file with the number of this process.
pub(crate) struct PidFile {
    file: File,
    path: PathBuf,
}

impl PidFile {
    /// Opens the file, whosever number it has. That is done as the user that the program was
    /// started by; from then on the file belongs to the user that it becomes.
    pub(crate) fn open(path: &Path, identity: &Identity) -> Result<PidFile, String> {
        let open = || {
            // A link that somebody has put there must not lead to another file.
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?);
            if Uid::effective().is_root()
                && let Ok(Some(user)) = look_up_user(identity)
            {
                let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
                std::os::unix::fs::fchown(file.as_fd(), Some(uid), Some(gid))?;
            }
            Ok::<_, io::Error>(file)
        };
        let file = open().map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(PidFile { file, path: path.to_owned() })
    }

    /// Writes this process's number, in place of its predecessor's.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all(format!("{}\n", std::process::id()).as_bytes())
    }

    /// Removes the file, or empties it where this user may not do that.
    pub(crate) fn remove(self) {
        if std::fs::remove_file(&self.path).is_err() {
            // What stays is a file that names nobody.
            let _ = self.file.set_len(0);
        }
    }
}
