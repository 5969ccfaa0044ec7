//! Privileges: the user and group of the process after its sockets are bound, the umask, and the
//! pid file.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use weft_config::Problem;

use crate::base::sys::{
    self, Gid, Group, Uid, User, can_become_root, create_file_with_mode, effective_user,
    open_for_pid, owner_and_mode, set_groups_of, set_ids,
};
use crate::sections::top::RunAs;

/// Changes to another user permanently, with the groups of that user only.
///
/// Must be called while there is only one thread.
pub(crate) fn become_user(run_as: &RunAs) -> Result<(), String> {
    let (user, group) = (look_up_user(run_as)?, look_up_group(run_as)?);
    let Some(User { name, uid, gid, .. }) = user else { return Ok(()) };
    if !effective_user().is_root() {
        // A successor of a process that has changed its user already runs as that user.
        return match uid == effective_user() {
            true => Ok(()),
            false => {
                Err("cannot change the user: only root can; start weft as root, or omit `user`"
                    .to_owned())
            }
        };
    }
    let gid = group.unwrap_or(gid);
    let change = || {
        set_groups_of(&CString::new(&*name)?, gid)?;
        set_ids(uid, gid)?;
        Ok::<_, io::Error>(())
    };
    change().map_err(|error| format!("cannot change to the user `{name}`: {error}"))?;
    match uid.is_root() || !can_become_root() {
        true => Ok(()),
        false => Err("cannot drop privileges: the process can still become root".to_owned()),
    }
}

/// Logs a warning if the process runs as root, and no setting says so.
pub(super) fn warn_of_root(run_as: &RunAs) {
    if run_as.user.is_none() && effective_user().is_root() {
        log::warn!(
            "the server runs as root, and so do its scripts: set `user`, or start it as another user"
        );
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

/// Checks that the user and the group exist. Root becomes that user, so that later checks have its
/// permissions.
pub(crate) fn check(run_as: &RunAs) -> Result<(), Vec<Problem>> {
    let checked = match effective_user().is_root() {
        true => become_user(run_as),
        false => look_up_user(run_as).and_then(|_| look_up_group(run_as)).map(|_| ()),
    };
    checked.map_err(|message| vec![Problem::without_location(message)])
}

/// Sets the umask, if there is one, for files that are created from now on.
pub(crate) fn set_umask(mask: Option<u32>) {
    if let Some(mask) = mask {
        sys::set_umask(mask);
    }
}

/// The file with the PID of this process.
///
/// If root changes to another user, the file belongs to root and is not kept open, so that the
/// process cannot change it any more: root sends signals to the PID that the file contains, and a
/// user who could write the file would choose the process that receives them.
pub(crate) struct PidFile {
    path: PathBuf,
    access: PidFileAccess,
}

enum PidFileAccess {
    /// The process can write the file. It does so when it serves.
    Writable(File),
    /// Root has written the file before the user was changed.
    Written,
    /// The file belongs to root: this is the successor of the process that has written it.
    Denied(io::Error),
}

impl PidFile {
    /// Opens or creates the file, also if it has the PID of another process. Must be called before
    /// the user is changed, in which case the PID is written here.
    pub(crate) fn open(path: &Path, run_as: &RunAs) -> Result<PidFile, String> {
        let new_user = look_up_user(run_as)?.filter(|user| !user.uid.is_root());
        let access = match (effective_user().is_root(), new_user) {
            (true, Some(_)) => write_as_root(path).map(|()| PidFileAccess::Written),
            (false, Some(_)) => match open_for_pid(path) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    Ok(PidFileAccess::Denied(error))
                }
                opened => opened.map(PidFileAccess::Writable),
            },
            (_, None) => open_for_pid(path).map(PidFileAccess::Writable),
        };
        let access = access.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(PidFile { path: path.to_owned(), access })
    }

    /// Writes the PID of this process, which replaces the PID of its predecessor. Logs a warning if
    /// the file belongs to root and so keeps the PID of the predecessor.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        match &mut self.access {
            PidFileAccess::Writable(file) => write_pid(file),
            PidFileAccess::Written => Ok(()),
            PidFileAccess::Denied(error) => {
                log::warn!(
                    "the pid file {} keeps the PID of the process before the upgrade, because it \
                     belongs to root: {error}; the PID of this process is {}",
                    self.path.display(),
                    std::process::id(),
                );
                Ok(())
            }
        }
    }

    /// Removes the file, or truncates it if this user has no permission to remove it. A file of
    /// root in a directory of root remains.
    pub(crate) fn remove(self) {
        let Err(error) = std::fs::remove_file(&self.path) else { return };
        match self.access {
            // An empty pid file names no process.
            PidFileAccess::Writable(file) => drop(file.set_len(0)),
            PidFileAccess::Written | PidFileAccess::Denied(_) => {
                log::info!("the pid file {} remains: {error}", self.path.display());
            }
        }
    }
}

/// Writes the file as root, for root only.
fn write_as_root(path: &Path) -> io::Result<()> {
    let mut file = open_for_pid(path)?;
    let (owner, _, mode) = owner_and_mode(&file.metadata()?);
    let others_may_write = !owner.is_root() || mode & 0o022 != 0;
    if others_may_write {
        // Replaced, because another user may also have it open.
        std::fs::remove_file(path)?;
        file = create_file_with_mode(path, 0o644)?;
    }
    write_pid(&mut file)
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}
