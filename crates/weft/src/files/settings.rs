//! The settings of a directory.

use std::path::Path;
use std::time::Duration;

use http::header::{CACHE_CONTROL, VARY};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::compression;
use crate::error::{Error, ErrorKind, Result};
use weft_proto::semantics::mime;

/// The settings of a [`Directory`](crate::files::Directory): the files it serves, their header
/// fields, and the limits of its cache.
///
/// ```
/// use weft::files::{Directory, DirectorySettings, HeaderRule};
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
    /// The names of index files: the first that exists is served for its folder.
    ///
    /// Default `index.html`.
    pub index: Vec<String>,

    /// Serves a listing for a folder without an index file: HTML, or JSON if the client prefers
    /// `application/json`. If false, the response is 404. A listing is cached for
    /// [`revalidate_after`](DirectorySettings::revalidate_after).
    ///
    /// Default false: names of files are not disclosed unless this is enabled.
    pub listing: bool,

    /// The name of the directory in the titles of its listings, as in `Downloads: /docs/`.
    ///
    /// Default none: `Index of /docs/`.
    pub listing_title: Option<String>,

    /// The maximum number of entries in a listing. A longer listing is marked as truncated.
    ///
    /// Default 20,000: a page of about 4 MB.
    pub max_listed_entries: usize,

    /// The file, by its path in the directory, that is served if no file is found: the page of
    /// a single-page application.
    ///
    /// Default none.
    pub fallback: Option<String>,

    /// The paths that get the fallback.
    ///
    /// Default [`FallbackPaths::All`].
    pub fallback_for: FallbackPaths,

    /// The files, by their paths in the directory, that are the pages for a status of 400
    /// and above. If the file does not exist, a small built-in page is served.
    ///
    /// Default `404.html` for 404.
    pub error_pages: Vec<(StatusCode, String)>,

    /// Header fields for files by pattern. If several rules set one field of a file, the last
    /// one applies.
    ///
    /// Default none.
    pub headers: Vec<HeaderRule>,

    /// Media types by file name extension, without the dot. They take precedence over the
    /// built-in table.
    ///
    /// Default none.
    pub media_types: Vec<(String, HeaderValue)>,

    /// The languages (tags as in RFC 5646) of the variants: a page `about.html` in `ja` is the
    /// file `about.html.ja`. `Accept-Language` selects the variant; `about.html` itself is the
    /// default and has to exist.
    ///
    /// Default none.
    pub languages: Vec<String>,

    /// The policy for symbolic links.
    ///
    /// Default [`Symlinks::Inside`].
    pub symlinks: Symlinks,

    /// Called with the path of the directory and the path of a file beneath it that is not served
    /// with [`Symlinks::Inside`], because a link on its path is absolute or leads out of the
    /// directory. It must not block.
    ///
    /// Default `None`.
    pub on_refused_link: Option<fn(&Path, &Path)>,

    /// Serves files and folders with names that begin with a dot. If false, they are treated as
    /// nonexistent, except for `/.well-known` (RFC 8615).
    ///
    /// Default false: such files are mostly left in the directory by mistake.
    pub dot_files: bool,

    /// The patterns, as of [`HeaderRule::new`] but in lower case, of files that are not served,
    /// such as `*.php` for scripts whose text must not be sent: the response is 403. Case is
    /// ignored, because the file system may ignore it, too. Listings have these files.
    ///
    /// Default none.
    pub excluded: Vec<String>,

    /// Serves the precompressed file beside a file of a compressible type to a client that
    /// accepts its coding: `style.css.br`, `.zst` or `.gz` beside `style.css`. A precompressed
    /// file that was modified before the original is ignored.
    ///
    /// Default true.
    pub precompressed: bool,

    /// Compresses listings, and a file of a compressible type on request, if there is no
    /// precompressed file and the cache has room for the result, which is cached in memory with the
    /// file. A file that is requested often is compressed again in the background with more effort.
    /// All directories of a process share one budget of threads for this.
    ///
    /// Default true.
    pub compress: bool,

    /// The smallest and the largest file that is compressed, in bytes.
    ///
    /// Default 1,024 (anything smaller fits a packet) to 4 MiB (which takes a thread 10 to 50 ms
    /// at the first request).
    pub min_compressed_bytes: u64,
    /// See [`min_compressed_bytes`](DirectorySettings::min_compressed_bytes).
    pub max_compressed_bytes: u64,

    /// The largest file that each worker caches in memory, in bytes. For larger files it keeps
    /// the descriptor open; also for files from 24 KiB on, as long as less than half of the
    /// descriptors are in use, because sending them from the page cache is cheaper.
    ///
    /// Default 64 KiB.
    pub max_cached_file_bytes: u64,

    /// The maximum size of all file contents that each worker caches in memory, in bytes, with
    /// their compressed forms. While a file is compressed, its size is reserved for the result.
    ///
    /// Default 32 MiB.
    pub max_cached_bytes: usize,

    /// The maximum number of paths with a file in the cache of each worker. In addition, a
    /// quarter of this number of paths without a file may be cached, but at most 1,024.
    ///
    /// Default 16,384: besides its contents, an entry takes about 1.4 KiB.
    pub max_cached_entries: usize,

    /// The maximum number of file descriptors that the cache of each worker keeps open.
    ///
    /// Default 256: with 16,384 connections and some workers, still below the usual limit of
    /// 20,000.
    pub max_cached_descriptors: usize,

    /// Time after which a cached file is revalidated by a lookup (nginx:
    /// `open_file_cache_valid`).
    ///
    /// Default 1 s.
    pub revalidate_after: Duration,

    /// Time after which a cached file that is not requested is evicted (nginx: `inactive` of
    /// `open_file_cache`). A file that was compressed with more effort is kept 30 times as long.
    ///
    /// Default 10 s.
    pub evict_after: Duration,
}

impl Default for DirectorySettings {
    fn default() -> DirectorySettings {
        DirectorySettings {
            index: vec!["index.html".to_owned()],
            listing: false,
            listing_title: None,
            max_listed_entries: 20_000,
            fallback: None,
            fallback_for: FallbackPaths::default(),
            error_pages: vec![(StatusCode::NOT_FOUND, "404.html".to_owned())],
            headers: Vec::new(),
            media_types: Vec::new(),
            languages: Vec::new(),
            symlinks: Symlinks::default(),
            on_refused_link: None,
            dot_files: false,
            excluded: Vec::new(),
            precompressed: true,
            compress: true,
            min_compressed_bytes: 1 << 10,
            max_compressed_bytes: 4 << 20,
            max_cached_file_bytes: 64 << 10,
            max_cached_bytes: 32 << 20,
            max_cached_entries: 16_384,
            max_cached_descriptors: 256,
            revalidate_after: Duration::from_secs(1),
            evict_after: Duration::from_secs(10),
        }
    }
}

impl DirectorySettings {
    /// Returns true if compressible content of this length may be compressed.
    pub(super) fn may_compress(&self, length: u64) -> bool {
        let sizes = self.min_compressed_bytes..=self.max_compressed_bytes;
        self.compress && sizes.contains(&length) && !compression::available().is_empty()
    }

    /// Returns the media type of a file, by its name.
    pub(super) fn media_type(&self, path: &[u8]) -> HeaderValue {
        let mut types = self.media_types.iter();
        let custom = types.find(|(extension, _)| mime::has_extension(path, extension.as_bytes()));
        match custom {
            Some((_, media_type)) => media_type.clone(),
            None => HeaderValue::from_static(mime::from_file_name(path)),
        }
    }

    /// Returns true if a content coding makes a file of this name smaller.
    pub(super) fn is_compressible(&self, path: &[u8]) -> bool {
        mime::coding_of_file_name(path).is_none()
            && compression::is_compressible(self.media_type(path).as_bytes())
    }

    /// Returns true if the file at a path is not served.
    pub(super) fn is_excluded(&self, path: &[u8]) -> bool {
        if self.excluded.is_empty() {
            return false;
        }
        let path = path.to_ascii_lowercase();
        self.excluded.iter().any(|pattern| matches(pattern, &path))
    }

    /// Adds the fields of the header rules that match the path of a file.
    pub(super) fn apply_header_rules(
        &self,
        path: &[u8],
        fields: &mut Vec<(HeaderName, HeaderValue)>,
    ) {
        for rule in self.headers.iter().filter(|rule| rule.matches(path)) {
            match fields.iter_mut().find(|(name, _)| *name == rule.name) {
                // A rule extends Vary: the response still depends on the negotiated fields.
                Some((name, value)) if *name == VARY => {
                    let both = [value.as_bytes(), b", ", rule.value.as_bytes()].concat();
                    *value = both.try_into().unwrap_or_else(|_| value.clone());
                }
                Some((_, value)) => *value = rule.value.clone(),
                None => fields.push((rule.name.clone(), rule.value.clone())),
            }
        }
    }
}

/// The policy for symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Symlinks {
    /// Symbolic links are not followed.
    Never,
    /// Relative links are followed if their targets are within the directory.
    #[default]
    Inside,
    /// All symbolic links are followed.
    Anywhere,
}

/// The paths without a file that get the [fallback](DirectorySettings::fallback).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FallbackPaths {
    /// All paths.
    #[default]
    All,
    /// Paths with the extension of HTML, of no known type, or of none. A missing style sheet or
    /// image gets 404.
    Pages,
}

/// A header field for the files that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderRule {
    pattern: String,
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
}

impl HeaderRule {
    /// Makes a rule from a glob pattern: `*` matches any part of a name, `**` any part of a path,
    /// `?` one byte, `[a-z]` one byte of a set, `{css,js}` one of several alternatives.
    /// A pattern without a slash is matched against the file's name, any other against its path
    /// in the directory.
    ///
    /// ```
    /// use weft::files::HeaderRule;
    /// use weft::header::{self, HeaderValue};
    ///
    /// let frame = HeaderValue::from_static("DENY");
    /// HeaderRule::new("/admin/**", header::X_FRAME_OPTIONS, frame);
    /// ```
    pub fn new(pattern: impl Into<String>, name: HeaderName, value: HeaderValue) -> HeaderRule {
        HeaderRule { pattern: pattern.into(), name, value }
    }

    /// Name of the field.
    pub fn name(&self) -> &HeaderName {
        &self.name
    }

    /// Parses a rule for `Cache-Control` (RFC 9111 §5.2) in short form: `PATTERN=VALUE`, or a
    /// value for all files. The value is a time (`90s`, `5m`, `1h`, `7d`), `immutable` (one year,
    /// without revalidation on reload), or the value of the field.
    ///
    /// ```
    /// use weft::files::HeaderRule;
    ///
    /// HeaderRule::cache("1h").unwrap();
    /// HeaderRule::cache("*.html=no-cache").unwrap();
    /// HeaderRule::cache("/assets/**=immutable").unwrap();
    /// HeaderRule::cache("private, max-age=60").unwrap();
    /// HeaderRule::cache("one hour\n").unwrap_err();
    /// ```
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if the value is not a valid `Cache-Control`.
    pub fn cache(rule: &str) -> Result<HeaderRule> {
        // A directive is a token; a pattern usually contains one of these characters.
        let is_pattern = |text: &str| text.contains(['*', '/', '.', '?', '[', '{']);
        let (pattern, value) = match rule.split_once('=') {
            Some((pattern, value)) if is_pattern(pattern) => (pattern, value.trim()),
            _ => ("*", rule.trim()),
        };
        let text = match (value, parse_seconds(value)) {
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

    /// Returns true if the pattern matches the file at this path in the directory.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        matches(&self.pattern, path)
    }
}

/// Returns true if a pattern matches the name of a file or, with a slash, its path.
fn matches(pattern: &str, path: &[u8]) -> bool {
    if pattern.contains('/') {
        return fast_glob::glob_match(pattern.strip_prefix('/').unwrap_or(pattern), path);
    }
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
    fast_glob::glob_match(pattern, name)
}

/// Returns true if `text` has the form of a `Cache-Control` directive.
fn is_directive(text: &str) -> bool {
    let name = text.split_once('=').map_or(text, |(name, _)| name).trim();
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Parses `90s`, `5m`, `1h` or `7d` to seconds.
fn parse_seconds(text: &str) -> Option<u64> {
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
    fn parses_short_cache_rules() {
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
    fn matches_patterns() {
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
