//! Request path → path beneath the root. Pure.

use std::borrow::Cow;

use weft_proto::semantics::path::{decode, encode};

/// A path beneath the root, percent-decoded, without a leading slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PathInRoot<'a>(Cow<'a, [u8]>);

impl<'a> PathInRoot<'a> {
    /// Decodes and normalizes the path of a request, so that equivalent paths become equal.
    /// Returns `None` if no file can have the path, or if the path is not served (dot files).
    pub(super) fn from_request(path: &'a str, dot_files: bool) -> Option<PathInRoot<'a>> {
        let path = path.strip_prefix('/')?;
        if is_normalized(path.as_bytes()) {
            return Some(PathInRoot(Cow::Borrowed(path.as_bytes())));
        }
        let mut decoded = Vec::with_capacity(path.len());
        let mut segments = path.split('/').peekable();
        while let Some(segment) = segments.next() {
            let segment = decode(segment.as_bytes());
            let first = decoded.is_empty();
            let is_allowed = match &*segment {
                b"." | b".." => false,
                [b'.', ..] => dot_files || (first && &*segment == b".well-known"),
                _ => true,
            };
            if !is_allowed || segment.iter().any(|b| matches!(b, b'/' | 0)) {
                return None;
            }
            decoded.extend_from_slice(&segment);
            if !segment.is_empty() && segments.peek().is_some() {
                decoded.push(b'/');
            }
        }
        Some(PathInRoot(Cow::Owned(decoded)))
    }

    /// Makes the path from a setting, which is not percent-encoded.
    pub(super) fn from_setting(path: &str) -> PathInRoot<'_> {
        PathInRoot(Cow::Borrowed(path.trim_start_matches('/').as_bytes()))
    }

    /// The key in the file cache: the path, with a slash at its end for a folder.
    pub(super) fn cache_key(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the path is the root or ends in a slash.
    pub(super) fn is_folder(&self) -> bool {
        self.0.is_empty() || self.0.ends_with(b"/")
    }

    /// The path without slashes at its ends; empty for the root.
    pub(super) fn path(&self) -> &[u8] {
        self.0.strip_suffix(b"/").unwrap_or(&self.0)
    }

    /// The path of an entry of this folder.
    pub(super) fn join(&self, name: &str) -> Vec<u8> {
        [&self.0, name.as_bytes()].concat()
    }

    /// The path-absolute reference (RFC 3986 §4.2) to this path as a folder. It begins with
    /// exactly one slash: after two, the first segment would be the authority of another host.
    pub(super) fn folder_reference(&self) -> String {
        let mut reference = String::from("/");
        encode(&mut reference, self.path());
        reference.push('/');
        reference
    }

    pub(super) fn into_owned(self) -> PathInRoot<'static> {
        PathInRoot(Cow::Owned(self.0.into_owned()))
    }
}

/// Returns true if a path, without its leading slash, needs no decoding and no normalization.
/// Most paths are of this form.
fn is_normalized(path: &[u8]) -> bool {
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
    fn decodes_and_normalizes_request_paths() {
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
            let found = PathInRoot::from_request(path, false);
            let expected = expected.map(|path| PathInRoot(Cow::Borrowed(path.as_bytes())));
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn accepts_dot_files_if_they_are_allowed() {
        for (path, expected) in [
            ("/.hidden", Some(".hidden")),
            ("/a/%2egit/x", Some("a/.git/x")),
            ("/a/../x", None),
            ("/./x", None),
            ("/%2e%2E", None),
        ] {
            let found = PathInRoot::from_request(path, true);
            assert_eq!(
                found.as_ref().map(PathInRoot::cache_key),
                expected.map(str::as_bytes),
                "{path}"
            );
        }
    }

    #[test]
    fn folder_reference_stays_on_its_host() {
        for (path, location) in
            [("/a", "/a/"), ("//evil.example", "/evil.example/"), ("/d í", "/d%20%C3%AD/")]
        {
            assert_eq!(PathInRoot::from_request(path, false).unwrap().folder_reference(), location);
        }
    }
}
