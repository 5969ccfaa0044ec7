//! Users and groups.

use nix::unistd::seteuid;
pub(crate) use nix::unistd::{Gid, Group, Uid, User};

/// Returns the user whose permissions the process has.
pub(crate) fn effective_user() -> Uid {
    Uid::effective()
}

/// Returns true if the process has become root. Only root can, and a process that could become root
/// before.
pub(crate) fn can_become_root() -> bool {
    seteuid(Uid::from_raw(0)).is_ok()
}

/// Returns the name of a user, or the number of a user without a name.
pub(crate) fn user_name(id: Uid) -> String {
    let user = User::from_uid(id).ok().flatten();
    user.map_or_else(|| id.to_string(), |user| user.name)
}

/// Returns the name of a group, or the number of a group without a name.
pub(crate) fn group_name(id: Gid) -> String {
    let group = Group::from_gid(id).ok().flatten();
    group.map_or_else(|| id.to_string(), |group| group.name)
}
