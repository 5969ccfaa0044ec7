//! Media types of files by their names. Pure.

/// Returns the `Content-Type` of a file by its extension. Text has `charset=utf-8`.
///
/// ```
/// use weft_proto::semantics::mime::from_file_name;
///
/// assert_eq!(from_file_name(b"index.html"), "text/html; charset=utf-8");
/// assert_eq!(from_file_name(b"logo.PNG"), "image/png");
/// assert_eq!(from_file_name(b"Makefile"), "application/octet-stream");
/// ```
pub fn from_file_name(name: &[u8]) -> &'static str {
    let Some(extension) = extension(name).filter(|extension| extension.len() <= 11) else {
        return UNKNOWN;
    };
    let lower = extension.to_ascii_lowercase();
    let found = TYPES.binary_search_by_key(&&lower[..], |(extension, _)| extension.as_bytes());
    found.map_or(UNKNOWN, |at| TYPES[at].1)
}

/// Returns true if a name ends in this extension. The comparison ignores case.
pub fn has_extension(name: &[u8], expected: &[u8]) -> bool {
    extension(name).is_some_and(|extension| extension.eq_ignore_ascii_case(expected))
}

/// Returns true if this is the type of HTML pages or the default of unknown extensions.
pub fn is_page_or_unknown(media_type: &[u8]) -> bool {
    media_type.starts_with(b"text/html") || media_type == UNKNOWN.as_bytes()
}

fn extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|&b| matches!(b, b'.' | b'/'))?;
    if name[dot] == b'.' { Some(&name[dot + 1..]) } else { None }
}

const UNKNOWN: &str = "application/octet-stream";

/// Extensions and media types, sorted by extension.
const TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("log", "text/plain; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mkv", "video/matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("rs", "text/plain; charset=utf-8"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted() {
        assert!(TYPES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn finds_types_by_extension() {
        for (name, media_type) in [
            ("index.html", "text/html; charset=utf-8"),
            ("A.JPG", "image/jpeg"),
            ("a.tar.gz", "application/gzip"),
            ("app.webmanifest", "application/manifest+json"),
            ("días.css", "text/css; charset=utf-8"),
            ("README", UNKNOWN),
            ("a.", UNKNOWN),
            ("a.unheard-of", UNKNOWN),
        ] {
            assert_eq!(from_file_name(name.as_bytes()), media_type, "{name}");
        }
    }
}
