//! The path of a request → a place beneath the root. Pure.

use std::borrow::Cow;

use crate::proto::semantics::path::{decode, encode};

/// A place beneath the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place<'a>(Cow<'a, [u8]>);

impl<'a> Place<'a> {
    /// The place that the path of a request means, decoded. Different paths of one place
    /// become the same. `None` for what cannot be a file's path, or shall not be one.
    pub(super) fn of(path: &'a str, dot_files: bool) -> Option<Place<'a>> {
        let path = path.strip_prefix('/')?;
        if is_plain(path.as_bytes()) {
            return Some(Place(Cow::Borrowed(path.as_bytes())));
        }
        let mut place = Vec::with_capacity(path.len());
        let mut segments = path.split('/').peekable();
        while let Some(segment) = segments.next() {
            let segment = decode(segment.as_bytes());
            let first = place.is_empty();
            let exists = match &*segment {
                b"." | b".." => false,
                [b'.', ..] => dot_files || (first && &*segment == b".well-known"),
                _ => true,
            };
            if !exists || segment.iter().any(|b| matches!(b, b'/' | 0)) {
                return None;
            }
            place.extend_from_slice(&segment);
            if !segment.is_empty() && segments.peek().is_some() {
                place.push(b'/');
            }
        }
        Some(Place(Cow::Owned(place)))
    }

    /// The place with this path beneath the root, as a setting says it.
    pub(super) fn at(path: &str) -> Place<'_> {
        Place(Cow::Borrowed(path.trim_start_matches('/').as_bytes()))
    }

    /// What stands for the place in a cache: the path, which for a folder ends in a slash.
    pub(super) fn key(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is asked for as a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.0.is_empty() || self.0.ends_with(b"/")
    }

    /// The path without slashes at its ends; empty for the root.
    pub(super) fn path(&self) -> &[u8] {
        self.0.strip_suffix(b"/").unwrap_or(&self.0)
    }

    /// The path of something in this folder.
    pub(super) fn join(&self, name: &str) -> Vec<u8> {
        [&self.0, name.as_bytes()].concat()
    }

    /// The reference that leads to this place as to a folder. It begins with exactly one
    /// slash: two would begin the name of another host.
    pub(super) fn folder_reference(&self) -> String {
        let mut reference = String::from("/");
        encode(&mut reference, self.path());
        reference.push('/');
        reference
    }

    pub(super) fn into_owned(self) -> Place<'static> {
        Place(Cow::Owned(self.0.into_owned()))
    }
}

/// Whether a path, without its first slash, stands for itself: most do.
fn is_plain(path: &[u8]) -> bool {
    let mut before = b'/';
    for &b in path {
        match b {
            b'%' | 0 => return false,
            b'/' | b'.' if before == b'/' => return false,
            _ => before = b,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        for (path, expected) in [
            ("/", Some("")),
            ("//", Some("")),
            ("/a", Some("a")),
            ("/a/", Some("a/")),
            ("/a//", Some("a/")),
            ("/a/b.html", Some("a/b.html")),
            ("//a//b", Some("a/b")),
            ("/d%C3%ADas", Some("días")),
            ("/%61/%2e.x/", None),
            ("/%2561", Some("%61")),
            ("/.well-known/x", Some(".well-known/x")),
            ("//.well-known/x", Some(".well-known/x")),
            ("/a/.well-known/x", None),
            ("/.hidden", None),
            ("/a/..", None),
            ("/%2e%2e/x", None),
            ("/.%2e/x", None),
            ("/a%2fb", None),
            ("/a%00b", None),
            ("*", None),
            ("", None),
        ] {
            let place = Place::of(path, false);
            let expected = expected.map(|path| Place(Cow::Borrowed(path.as_bytes())));
            assert_eq!(place, expected, "{path}");
        }
    }

    #[test]
    fn names_with_a_dot_if_they_are_allowed() {
        for (path, expected) in [
            ("/.hidden", Some(".hidden")),
            ("/a/%2egit/x", Some("a/.git/x")),
            ("/a/../x", None),
            ("/./x", None),
            ("/%2e%2E", None),
        ] {
            let place = Place::of(path, true);
            assert_eq!(place.as_ref().map(Place::key), expected.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn a_redirect_stays_on_its_host() {
        for (path, location) in
            [("/a", "/a/"), ("//evil.example", "/evil.example/"), ("/d í", "/d%20%C3%AD/")]
        {
            assert_eq!(Place::of(path, false).unwrap().folder_reference(), location);
        }
    }
}
