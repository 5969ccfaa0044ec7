//! Unix sockets of upstreams that the user of the server may not open.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use weft_upstream::ProxySettings;

/// Returns a message for each socket that cannot be used. A missing one is no problem: the upstream
/// may start later.
pub(super) fn unusable_sockets(settings: &ProxySettings) -> impl Iterator<Item = String> {
    let paths = settings.upstreams.iter().filter_map(|member| member.url.socket_path());
    paths.filter_map(problem)
}

fn problem(path: &Path) -> Option<String> {
    let shown = path.display();
    let found = std::fs::metadata(path);
    if found.as_ref().is_ok_and(|found| !found.file_type().is_socket()) {
        return Some(format!("{shown} is no socket, and the upstream cannot be reached by it"));
    }
    // A connection needs the permission to write.
    match accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS) => {}
        _ => return None,
    }
    let user = user_name(Uid::effective());
    let reason = match found {
        Err(_) => "it may not enter the folder of the socket".to_owned(),
        Ok(found) => format!(
            "its owner is {}:{} and its mode {:04o}; make the user a member of that group, or \
             let the upstream create the socket for it (`listen.owner` of PHP-FPM)",
            user_name(Uid::from_raw(found.uid())),
            group_name(Gid::from_raw(found.gid())),
            found.mode() & 0o7777,
        ),
    };
    Some(format!("the user {user} may not open the socket {shown}: {reason}"))
}

fn user_name(id: Uid) -> String {
    let user = User::from_uid(id).ok().flatten();
    user.map_or_else(|| id.to_string(), |user| user.name)
}

fn group_name(id: Gid) -> String {
    let group = Group::from_gid(id).ok().flatten();
    group.map_or_else(|| id.to_string(), |group| group.name)
}
