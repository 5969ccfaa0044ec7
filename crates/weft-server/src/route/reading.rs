//! The readings of a path by different servers. Pure.
//!
//! The router splits a path at its slashes and then decodes each segment (RFC 3986 §2.4). Other
//! servers read the same path differently, and the upstream of a route may be one of them:
//!
//! - They decode the path first, so that `%2F` separates segments (nginx, Caddy, WSGI, PHP).
//! - A backslash, encoded or not, separates segments (URLs of the WHATWG, Windows).
//! - A path parameter, from `;` to the end of its segment, is removed before or after decoding
//!   (servlet containers).
//! - Empty segments and single dots are removed, or are not.
//!
//! A path that belongs to one route here and to another one in some reading would reach an upstream
//! past the route that restricts it. The router rejects such a path, and it never has to determine
//! the reading of an upstream.

use weft::path::decode;
use weft_proto::http1::scan;

use super::variants::ENCODED_SLASH;

/// A path in the readings that decide about its route, each decoded and with a slash before each
/// segment.
///
/// Prefixes of routes contain none of the characters that separate segments in some reading only.
/// If one reading splits a path at more places than another, the segments that can match a prefix
/// are therefore the same or more, so that the two extreme readings decide for all between them.
#[derive(Debug)]
pub(crate) struct Readings {
    /// Reading of the router: split at slashes, then decoded.
    pub(crate) by_segment: Vec<u8>,
    /// Decoded, then split at all separators, without parameters.
    pub(crate) split_after_decoding: Vec<u8>,
    /// As `split_after_decoding`, but parameters are removed before decoding, with the encoded
    /// slashes in them. `None` if the path has none.
    pub(crate) without_parameters: Option<Vec<u8>>,
}

/// Reason to reject a path, independent of the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidPath {
    /// The path contains `%00`, at which programs in C end a string.
    Nul,
    /// In some reading a segment is `..` that is not one for the router. Its target depends on
    /// the upstream.
    HiddenParent,
}

/// Returns true if all servers read the path in the same way, as they do nearly all paths.
pub(crate) fn has_one_reading(path: &str) -> bool {
    scan::plain_path(path.as_bytes()) == path.len()
}

impl Readings {
    /// Reads a path that does not have [one reading](has_one_reading).
    pub(crate) fn new(path: &str) -> Result<Readings, InvalidPath> {
        let has_parameters = path.contains(';');
        let mut readings = Readings {
            by_segment: Vec::with_capacity(path.len()),
            split_after_decoding: Vec::with_capacity(path.len()),
            without_parameters: has_parameters.then(|| Vec::with_capacity(path.len())),
        };
        for (index, segment) in path.split('/').enumerate() {
            let decoded = decode(segment.as_bytes());
            if decoded.contains(&0) {
                return Err(InvalidPath::Nul);
            }
            if index > 0 {
                readings.by_segment.push(b'/');
            }
            let mask = |&b: &u8| if b == b'/' { ENCODED_SLASH } else { b };
            readings.by_segment.extend(decoded.iter().map(mask));
            push_split(&mut readings.split_after_decoding, &decoded)?;
            if let Some(without_parameters) = &mut readings.without_parameters {
                let name = segment.split(';').next().unwrap_or_default();
                push_split(without_parameters, &decode(name.as_bytes()))?;
            }
        }
        Ok(readings)
    }

    /// Returns the readings of other servers.
    pub(crate) fn of_others(&self) -> impl Iterator<Item = &[u8]> {
        let others = [Some(&self.split_after_decoding), self.without_parameters.as_ref()];
        others.into_iter().flatten().map(Vec::as_slice)
    }
}

/// Splits a decoded segment at slashes and backslashes, and appends the parts without parameters.
fn push_split(reading: &mut Vec<u8>, segment: &[u8]) -> Result<(), InvalidPath> {
    for part in segment.split(|&b| b == b'/' || b == b'\\') {
        match part.split(|&b| b == b';').next().unwrap_or_default() {
            b"" | b"." => {}
            b".." => return Err(InvalidPath::HiddenParent),
            name => {
                reading.push(b'/');
                reading.extend_from_slice(name);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths_as_other_servers_do() {
        for (path, expected) in [
            ("/a/b", "-"),
            ("*", "-"),
            ("", "-"),
            ("/%61/b%2Fc", r"/a/b\xffc | /a/b/c"),
            ("/a%5cb\\c", r"/a\\b\\c | /a/b/c"),
            ("/a;x=1/b", "/a;x=1/b | /a/b | /a/b"),
            ("/a%3Bx/b", "/a;x/b | /a/b"),
            // A parameter ends at the next slash: the encoded one, or the one in the path.
            ("/a;%2Fb/c", r"/a;\xffb/c | /a/b/c | /a/c"),
            ("/%2f%2Fa%2f.%2fb/", r"/\xff\xffa\xff.\xffb/ | /a/b"),
            ("/a/.;x/b", "/a/.;x/b | /a/b | /a/b"),
            // Decoded once.
            ("/a%252Fb%25002e", "/a%2Fb%002e | /a%2Fb%002e"),
            // Ordinary bytes: invalid UTF-8, and dots and spaces at the end of a name.
            ("/%ff%c0%af", r"/\xff\xc0\xaf | /\xff\xc0\xaf"),
            ("/a.%20/...%2f..b", r"/a. /...\xff..b | /a. /.../..b"),
            ("/a%00", "Nul"),
            ("/%00%2f..", "Nul"),
            ("/..%2fa", "HiddenParent"),
            ("/a%2F..", "HiddenParent"),
            ("/a%2f%2e%2E%2fb", "HiddenParent"),
            ("/a\\..", "HiddenParent"),
            ("/..%5Ca", "HiddenParent"),
            ("/a/..;/b", "HiddenParent"),
            ("/a/..%3b/b", "HiddenParent"),
            ("/a;%2f../b", "HiddenParent"),
        ] {
            let found = match Readings::new(path) {
                _ if has_one_reading(path) => "-".to_owned(),
                Ok(readings) => {
                    let all = std::iter::once(&*readings.by_segment).chain(readings.of_others());
                    let shown: Vec<String> = all.map(|it| it.escape_ascii().to_string()).collect();
                    shown.join(" | ")
                }
                Err(invalid) => format!("{invalid:?}"),
            };
            assert_eq!(found, expected, "{path}");
        }
    }
}
