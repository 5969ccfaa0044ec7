//! Fields that the engine sets itself, and the syntax of `Host`.

use weft::header::HeaderName;

/// Fields that the engine sets itself.
const ENGINE_FIELDS: [HeaderName; 5] = [
    weft::header::CONNECTION,
    weft::header::CONTENT_LENGTH,
    weft::header::DATE,
    weft::header::SERVER,
    weft::header::TRANSFER_ENCODING,
];

/// Returns true for a host with or without a port, such as `app.internal:8080`.
pub(crate) fn is_host(value: &[u8]) -> bool {
    let is_permitted = |b: &u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(b);
    !value.is_empty() && value.iter().all(is_permitted)
}

/// Returns true if the engine sets the field itself.
pub(crate) fn engine_sets(name: &HeaderName) -> bool {
    ENGINE_FIELDS.contains(name)
}
