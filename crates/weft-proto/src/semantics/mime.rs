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
    let Some(extension) = extension(name).filter(|extension| extension.len() <= MAX_EXTENSION)
    else {
        return UNKNOWN;
    };
    let lower = extension.to_ascii_lowercase();
    let found = TYPES.binary_search_by_key(&&lower[..], |(extension, _)| extension.as_bytes());
    found.map_or(UNKNOWN, |at| TYPES[at].1)
}

/// Returns the content coding of a file by its extension, for types that are files in a coding:
/// an `.svgz` is an SVG image that is compressed by gzip.
///
/// ```
/// use weft_proto::semantics::mime::{coding_of_file_name, from_file_name};
///
/// assert_eq!(from_file_name(b"plan.svgz"), "image/svg+xml");
/// assert_eq!(coding_of_file_name(b"plan.svgz"), Some("gzip"));
/// assert_eq!(coding_of_file_name(b"plan.svg"), None);
/// ```
pub fn coding_of_file_name(name: &[u8]) -> Option<&'static str> {
    has_extension(name, b"svgz").then_some("gzip")
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

/// Length of the longest extension in the table.
const MAX_EXTENSION: usize = 12;

const UNKNOWN: &str = "application/octet-stream";

/// Extensions and media types, sorted by extension.
const TYPES: &[(&str, &str)] = &[
    ("3g2", "video/3gpp2"),
    ("3gp", "video/3gpp"),
    ("3mf", "model/3mf"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("aif", "audio/aiff"),
    ("aiff", "audio/aiff"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("appcache", "text/cache-manifest; charset=utf-8"),
    ("appinstaller", "application/appinstaller"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("avifs", "image/avif"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("crl", "application/pkix-crl"),
    ("crt", "application/x-x509-ca-cert"),
    ("crx", "application/x-chrome-extension"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("cur", "image/vnd.microsoft.icon"),
    ("deb", "application/vnd.debian.binary-package"),
    ("der", "application/x-x509-ca-cert"),
    ("diff", "text/x-diff; charset=utf-8"),
    ("djvu", "image/vnd.djvu"),
    ("dmg", "application/x-apple-diskimage"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("dtd", "application/xml-dtd"),
    ("eml", "message/rfc822"),
    ("eot", "application/vnd.ms-fontobject"),
    ("eps", "application/postscript"),
    ("epub", "application/epub+zip"),
    ("exe", "application/vnd.microsoft.portable-executable"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gpx", "application/gpx+xml"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jar", "application/java-archive"),
    ("jfif", "image/jpeg"),
    ("jp2", "image/jp2"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("json5", "application/json5"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("log", "text/plain; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4b", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mka", "audio/matroska"),
    ("mkv", "video/matroska"),
    ("mobi", "application/x-mobipocket-ebook"),
    ("mobileconfig", "application/x-apple-aspen-config"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("msi", "application/x-msi"),
    ("mtl", "model/mtl"),
    ("ndjson", "application/x-ndjson"),
    ("obj", "model/obj"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("p12", "application/x-pkcs12"),
    ("parquet", "application/vnd.apache.parquet"),
    ("patch", "text/x-diff; charset=utf-8"),
    ("pdf", "application/pdf"),
    ("pem", "application/x-x509-ca-cert"),
    ("pfx", "application/x-pkcs12"),
    ("pkpass", "application/vnd.apple.pkpass"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("psd", "image/vnd.adobe.photoshop"),
    ("rar", "application/vnd.rar"),
    ("rdf", "application/rdf+xml"),
    ("rpm", "application/x-rpm"),
    ("rs", "text/plain; charset=utf-8"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("sqlite", "application/vnd.sqlite3"),
    ("srt", "application/x-subrip"),
    ("step", "model/step"),
    ("stl", "model/stl"),
    ("stp", "model/step"),
    ("svg", "image/svg+xml"),
    ("svgz", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("topojson", "application/json"),
    ("torrent", "application/x-bittorrent"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vcard", "text/vcard; charset=utf-8"),
    ("vcf", "text/vcard; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("wma", "audio/x-ms-wma"),
    ("wmv", "video/x-ms-wmv"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xpi", "application/x-xpinstall"),
    ("xsd", "application/xml"),
    ("xsl", "application/xslt+xml"),
    ("xslt", "application/xslt+xml"),
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
        assert_eq!(TYPES.iter().map(|(extension, _)| extension.len()).max(), Some(MAX_EXTENSION));
    }

    #[test]
    fn finds_types_by_extension() {
        for (name, media_type) in [
            ("index.html", "text/html; charset=utf-8"),
            ("A.JPG", "image/jpeg"),
            ("a.tar.gz", "application/gzip"),
            ("app.webmanifest", "application/manifest+json"),
            ("a.heic", "image/heic"),
            ("a.apk", "application/vnd.android.package-archive"),
            ("a.svgz", "image/svg+xml"),
            ("a.glb", "model/gltf-binary"),
            ("a.vcf", "text/vcard; charset=utf-8"),
            ("a.mobileconfig", "application/x-apple-aspen-config"),
            ("días.css", "text/css; charset=utf-8"),
            ("README", UNKNOWN),
            ("a.", UNKNOWN),
            ("a.unheard-of", UNKNOWN),
        ] {
            assert_eq!(from_file_name(name.as_bytes()), media_type, "{name}");
        }
    }
}
