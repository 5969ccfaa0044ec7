//! Doubled slashes of a target, which the router has removed from the path. Pure.

/// Returns the part of the target of a request behind `mount` as the client has sent it, with
/// doubled slashes. `path` is the whole path after it was normalized. `None`: the target has no
/// others, or the path differs in more than slashes, such as in segments `..`.
pub(super) fn received_path<'a>(target: &'a str, path: &str, mount: &str) -> Option<&'a str> {
    let received = target.split('?').next().filter(|received| received.starts_with('/'))?;
    // Nearly all paths are normalized.
    if received.len() == path.len() {
        return None;
    }
    let mut rest = received.bytes().enumerate().peekable();
    let mut mount_end = if mount.is_empty() { Some(0) } else { None };
    for (index, expected) in path.bytes().enumerate() {
        if index == mount.len() && index > 0 {
            mount_end = rest.peek().map(|(at, _)| *at);
        }
        if rest.next().is_none_or(|(_, found)| found != expected) {
            return None;
        }
        while expected == b'/' && rest.next_if(|(_, next)| *next == b'/').is_some() {}
    }
    if rest.next().is_some() {
        return None;
    }
    mount_end.map(|at| &received[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_doubled_slashes() {
        for (target, path, mount, expected) in [
            ("/a//b", "/a/b", "", Some("/a//b")),
            ("//a///b//?c//d", "/a/b/", "", Some("//a///b//")),
            ("//", "/", "", Some("//")),
            ("/img//http://x/y", "/img/http:/x/y", "/img", Some("//http://x/y")),
            ("//img/a//b", "/img/a/b", "/img", Some("/a//b")),
            // There is nothing to keep, or the path is another one.
            ("/a/b", "/a/b", "", None),
            ("/a//../b", "/b", "", None),
            ("/a//./b", "/a/b", "", None),
            ("/a//b", "/c", "", None),
            ("/a//b", "/a/b/c", "", None),
            ("/a//bc", "/a/b", "", None),
            ("http://h//a", "/a", "", None),
            ("*", "*", "", None),
            ("", "/", "", None),
        ] {
            assert_eq!(received_path(target, path, mount), expected, "{target}");
        }
    }
}
