//! Unix sockets of upstreams that the user of the server may not open.

use std::path::Path;

use weft_upstream::ProxySettings;

use crate::base::sys::{
    FileAccess, can_access, effective_user, group_name, is_denied, is_socket, owner_and_mode,
    user_name,
};

/// Returns a message for each socket that cannot be used. A missing one is no problem: the upstream
/// may start later.
pub(super) fn unusable_sockets(settings: &ProxySettings) -> impl Iterator<Item = String> {
    let paths = settings.upstreams.iter().filter_map(|member| member.url.socket_path());
    paths.filter_map(problem)
}

fn problem(path: &Path) -> Option<String> {
    let shown = path.display();
    let found = std::fs::metadata(path);
    if found.as_ref().is_ok_and(|found| !is_socket(found)) {
        return Some(format!("{shown} is no socket, and the upstream cannot be reached by it"));
    }
    // A connection needs the permission to write.
    if !can_access(path, FileAccess::Write).is_err_and(|error| is_denied(&error)) {
        return None;
    }
    let user = user_name(effective_user());
    let reason = match found {
        Err(_) => "it may not enter the folder of the socket".to_owned(),
        Ok(found) => {
            let (owner, group, mode) = owner_and_mode(&found);
            format!(
                "its owner is {}:{} and its mode {mode:04o}; make the user a member of that group, \
                 or let the upstream create the socket for it (`listen.owner` of PHP-FPM)",
                user_name(owner),
                group_name(group),
            )
        }
    };
    Some(format!("the user {user} may not open the socket {shown}: {reason}"))
}
