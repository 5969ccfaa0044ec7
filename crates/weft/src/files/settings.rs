//! What a directory's files are served with.

use std::time::Duration;

use http::header::CACHE_CONTROL;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::error::{Error, ErrorKind, Result};

/// What [`Directory`](crate::Directory) serves, and with what.
///
/// ```
/// use weft::{Directory, DirectorySettings, HeaderRule};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let settings = DirectorySettings {
///     listing: true,
///     headers: vec![HeaderRule::cache("*.{css,js}=1h")?],
///     ..DirectorySettings::default()
/// };
/// let files = Directory::with_settings(folder.path(), settings)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DirectorySettings {
    /// The names of the file that stands for its folder, the first that is there.
    ///
    /// Default `index.html`.
    pub index: Vec<String>,

    /// Whether a folder that has no index is answered with a list of what is in it: HTML, or
    /// JSON to whom prefers that. Otherwise it is not found.
    ///
    /// Default false: what lies there is nobody's business unless said otherwise.
    pub listing: bool,

    /// The most entries in a list; of more, the list says that it is cut.
    ///
    /// Default 20,000: a page of some 4 MB.
    pub max_listed: usize,

    /// The file, by its path in the directory, that is served in place of what is not found:
    /// the page of an application that routes in the browser. What has the name of a file
    /// with a known type other than HTML is not found all the same.
    ///
    /// Default none.
    pub fallback: Option<String>,

    /// The files, by their paths in the directory, that are the pages for a status of 400
    /// and above. One that is not there is replaced by a small page.
    ///
    /// Default `404.html` for 404.
    pub error_pages: Vec<(StatusCode, String)>,

    /// Fields for files by pattern. Of several rules for one field and one file the last counts.
    ///
    /// Default none.
    pub headers: Vec<HeaderRule>,

    /// The media type by the end of the name behind its last dot, before the table that is
    /// built in.
    ///
    /// Default none.
    pub media_types: Vec<(String, HeaderValue)>,

    /// The languages (tags as in RFC 5646) that there are variants in: a page `about.html` in
    /// `ja` is the file `about.html.ja`. Which one is served is decided by `Accept-Language`;
    /// `about.html` itself is for everybody else, and has to be there.
    ///
    /// Default none.
    pub languages: Vec<String>,

    /// How far symbolic links are followed.
    ///
    /// Default [`Links::Inside`].
    pub links: Links,

    /// Whether names that begin with a dot exist. `/.well-known` does in any case (RFC 8615).
    ///
    /// Default false: they are mostly left behind by mistake.
    pub dot_files: bool,

    /// Whether a file of a compressible type is served by its compressed neighbour to a
    /// client that accepts that: `style.css.br`, `.zst` or `.gz` beside `style.css`. A
    /// neighbour that was modified before the file itself is passed over.
    ///
    /// Default true.
    pub precompressed: bool,

    /// Whether a file of a compressible type that has no such neighbour is compressed when
    /// it is asked for. The result is kept in memory with the file.
    ///
    /// Default true.
    pub compress: bool,

    /// The smallest and the largest file that is compressed, in bytes.
    ///
    /// Default 1,024, below which everything fits a packet, to 4 MiB, which takes about a
    /// second of a thread of the pool's.
    pub min_compressed_bytes: u64,
    /// See [`min_compressed_bytes`](DirectorySettings::min_compressed_bytes).
    pub max_compressed_bytes: u64,

    /// The largest file whose contents each worker keeps in memory, in bytes. Of larger ones it
    /// keeps the descriptor; from 24 KiB on also of these, as long as less than half of the
    /// descriptors are in use, because to send them from the page cache is cheaper.
    ///
    /// Default 64 KiB.
    pub max_kept_file_bytes: u64,

    /// The most contents that each worker keeps in memory, in bytes.
    ///
    /// Default 32 MiB.
    pub max_kept_bytes: usize,

    /// The most paths that each worker knows the files of. A quarter more may be known
    /// to have none.
    ///
    /// Default 4,096.
    pub max_kept_entries: usize,

    /// The most descriptors of files that each worker keeps open.
    ///
    /// Default 256: with 16,384 connections and some workers, still below the usual limit of
    /// 20,000.
    pub max_kept_descriptors: usize,

    /// How long what is kept is believed without a look at the file.
    ///
    /// Default 1 s.
    pub trust: Duration,

    /// How long what nobody asks for is kept.
    ///
    /// Default 10 s.
    pub unused: Duration,
}

impl Default for DirectorySettings {
    fn default() -> DirectorySettings {
        DirectorySettings {
            index: vec!["index.html".to_owned()],
            listing: false,
            max_listed: 20_000,
            fallback: None,
            error_pages: vec![(StatusCode::NOT_FOUND, "404.html".to_owned())],
            headers: Vec::new(),
            media_types: Vec::new(),
            languages: Vec::new(),
            links: Links::default(),
            dot_files: false,
            precompressed: true,
            compress: true,
            min_compressed_bytes: 1 << 10,
            max_compressed_bytes: 4 << 20,
            max_kept_file_bytes: 64 << 10,
            max_kept_bytes: 32 << 20,
            max_kept_entries: 4_096,
            max_kept_descriptors: 256,
            trust: Duration::from_secs(1),
            unused: Duration::from_secs(10),
        }
    }
}

/// How far symbolic links are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Not at all.
    Never,
    /// If they are relative and lead nowhere outside of the directory.
    #[default]
    Inside,
    /// Wherever they lead.
    Anywhere,
}

/// A field for the files that a pattern matches.
#[derive(Clone, Debug)]
pub struct HeaderRule {
    pattern: String,
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
}

impl HeaderRule {
    /// A rule of this pattern: `*` stands for any part of a name, `**` for any part of a path,
    /// `?` for one byte, `[a-z]` for one of several, `{css,js}` for one of several texts.
    /// Without a slash it is about the file's name, otherwise about its path beneath the
    /// directory.
    ///
    /// ```
    /// use weft::{HeaderRule, HeaderValue, header};
    ///
    /// let frame = HeaderValue::from_static("DENY");
    /// HeaderRule::new("/admin/**", header::X_FRAME_OPTIONS, frame);
    /// ```
    pub fn new(pattern: impl Into<String>, name: HeaderName, value: HeaderValue) -> HeaderRule {
        HeaderRule { pattern: pattern.into(), name, value }
    }

    /// A rule for `Cache-Control` (RFC 9111 §5.2), in short: `PATTERN=VALUE`, or a value for all
    /// files. The value is a time (`90s`, `5m`, `1h`, `7d`), `immutable` for a year that no
    /// reload shortens, or what the field shall say.
    ///
    /// ```
    /// use weft::HeaderRule;
    ///
    /// HeaderRule::cache("1h").unwrap();
    /// HeaderRule::cache("*.html=no-cache").unwrap();
    /// HeaderRule::cache("/assets/**=immutable").unwrap();
    /// HeaderRule::cache("private, max-age=60").unwrap();
    /// HeaderRule::cache("one hour\n").unwrap_err();
    /// ```
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if the value is none that a field can have.
    pub fn cache(rule: &str) -> Result<HeaderRule> {
        // A directive is a token, a pattern hardly one without any of these.
        let is_pattern = |text: &str| text.contains(['*', '/', '.', '?', '[', '{']);
        let (pattern, value) = match rule.split_once('=') {
            Some((pattern, value)) if is_pattern(pattern) => (pattern, value.trim()),
            _ => ("*", rule.trim()),
        };
        let text = match (value, seconds(value)) {
            ("immutable", _) => "max-age=31536000, immutable".to_owned(),
            (_, Some(seconds)) => format!("max-age={seconds}"),
            _ => value.to_owned(),
        };
        match HeaderValue::from_str(&text) {
            Ok(value) if text.split(',').all(is_directive) => {
                Ok(HeaderRule::new(pattern, CACHE_CONTROL, value))
            }
            _ => Err(Error::new(
                ErrorKind::InvalidSetting,
                format!("{value:?} is no time such as 90s, 5m, 1h or 7d, and no Cache-Control"),
            )),
        }
    }

    /// Whether the rule is for the file at this path beneath the directory.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        if self.pattern.contains('/') {
            let pattern = self.pattern.strip_prefix('/').unwrap_or(&self.pattern);
            return fast_glob::glob_match(pattern, path);
        }
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        fast_glob::glob_match(&self.pattern, name)
    }
}

/// Whether this may be a directive of Cache-Control.
fn is_directive(text: &str) -> bool {
    let name = text.split_once('=').map_or(text, |(name, _)| name).trim();
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// `90s`, `5m`, `1h` or `7d` in seconds.
fn seconds(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_rules() {
        for (rule, pattern, value) in [
            ("90s", "*", "max-age=90"),
            ("5m", "*", "max-age=300"),
            ("*.css=1h", "*.css", "max-age=3600"),
            ("/a/**=7d", "/a/**", "max-age=604800"),
            ("index.html=no-cache", "index.html", "no-cache"),
            ("*=immutable", "*", "max-age=31536000, immutable"),
            ("max-age=60", "*", "max-age=60"),
            ("*.js=private, max-age=60", "*.js", "private, max-age=60"),
        ] {
            let parsed = HeaderRule::cache(rule).unwrap();
            assert_eq!((&*parsed.pattern, parsed.value.to_str().unwrap()), (pattern, value));
        }
        for rule in ["", "*.css=", "1w", "60", "a\nb", "99999999999999999999d"] {
            assert!(HeaderRule::cache(rule).is_err(), "{rule}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, path, expected) in [
            ("*", "a", true),
            ("*", "a/b/c.css", true),
            ("*.css", "a/b.css", true),
            ("*.css", "a.css/b", false),
            ("*.{css,js}", "a/b.js", true),
            ("/a/*", "a/b", true),
            ("/a/*", "a/b/c", false),
            ("/a/**", "a/b/c", true),
            ("a/**", "b/a/c", false),
            ("b?d.css", "a/bad.css", true),
        ] {
            let rule = HeaderRule::new(pattern, CACHE_CONTROL, HeaderValue::from_static("x"));
            assert_eq!(rule.matches(path.as_bytes()), expected, "{pattern} {path}");
        }
    }
}
