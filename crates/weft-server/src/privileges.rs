//! Privileges: the user and group of the process after its sockets are bound, the umask, and the
//! pid file.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::unistd::{self, Gid, Group, Uid, User};
use rustix::fs::{Mode, OFlags};

use crate::plan::RunAs;

/// Changes to another user permanently, with the groups of that user only.
///
/// Must be called while there is only one thread.
pub(crate) fn become_user(run_as: &RunAs) -> Result<(), String> {
    let (user, group) = (look_up_user(run_as)?, look_up_group(run_as)?);
    let Some(User { name, uid, gid, .. }) = user else { return Ok(()) };
    if !Uid::effective().is_root() {
        // A successor of a process that has changed its user already runs as that user.
        return match uid == Uid::effective() {
            true => Ok(()),
            false => {
                Err("cannot change the user: only root can; start weft as root, or omit `user`"
                    .to_owned())
            }
        };
    }
    let gid = group.unwrap_or(gid);
    let change = || {
        unistd::initgroups(&CString::new(&*name)?, gid)?;
        unistd::setresgid(gid, gid, gid)?;
        unistd::setresuid(uid, uid, uid)?;
        Ok::<_, io::Error>(())
    };
    change().map_err(|error| format!("cannot change to the user `{name}`: {error}"))?;
    match uid.is_root() || unistd::seteuid(Uid::from_raw(0)).is_err() {
        true => Ok(()),
        false => Err("cannot drop privileges: the process can still become root".to_owned()),
    }
}

fn look_up_user(run_as: &RunAs) -> Result<Option<User>, String> {
    let Some(name) = &run_as.user else {
        return match &run_as.group {
            None => Ok(None),
            Some(_) => Err("`group` requires `user`".to_owned()),
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

fn look_up_group(run_as: &RunAs) -> Result<Option<Gid>, String> {
    let Some(name) = &run_as.group else { return Ok(None) };
    if let Ok(number) = name.parse() {
        return Ok(Some(Gid::from_raw(number)));
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(Some(group.gid)),
        Ok(None) => Err(format!("there is no group `{name}`")),
        Err(error) => Err(format!("cannot look up the group `{name}`: {error}")),
    }
}

/// Checks that the user and the group exist.
pub(crate) fn check(run_as: &RunAs) -> Result<(), String> {
    look_up_user(run_as)?;
    look_up_group(run_as).map(|_| ())
}

/// Sets the umask, if there is one, for files that are created from now on.
pub(crate) fn set_umask(mask: Option<u32>) {
    if let Some(mask) = mask {
        rustix::process::umask(Mode::from_raw_mode(mask));
    }
}

/// The file with the PID of this process.
pub(crate) struct PidFile {
    file: File,
    path: PathBuf,
}

impl PidFile {
    /// Opens or creates the file, also if it has the PID of another process. Must be called before
    /// the user is changed. The file is given to the new user, who writes it later.
    pub(crate) fn open(path: &Path, run_as: &RunAs) -> Result<PidFile, String> {
        let open = || {
            // `NOFOLLOW`: a symbolic link must not redirect the write to another file.
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?);
            if Uid::effective().is_root()
                && let Ok(Some(user)) = look_up_user(run_as)
            {
                let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
                std::os::unix::fs::fchown(file.as_fd(), Some(uid), Some(gid))?;
            }
            Ok::<_, io::Error>(file)
        };
        let file = open().map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(PidFile { file, path: path.to_owned() })
    }

    /// Writes the PID of this process, which replaces that of its predecessor.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all(format!("{}\n", std::process::id()).as_bytes())
    }

    /// Removes the file, or truncates it if this user has no permission to remove it.
    pub(crate) fn remove(self) {
        if std::fs::remove_file(&self.path).is_err() {
            // An empty pid file names no process.
            let _ = self.file.set_len(0);
        }
    }
}
