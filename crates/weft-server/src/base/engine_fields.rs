//! Fields of responses that the engine sets itself.

use weft::header::HeaderName;

/// Fields that the engine sets itself.
const ENGINE_FIELDS: [HeaderName; 5] = [
    weft::header::CONNECTION,
    weft::header::CONTENT_LENGTH,
    weft::header::DATE,
    weft::header::SERVER,
    weft::header::TRANSFER_ENCODING,
];

/// Returns true if the engine sets the field itself.
pub(crate) fn engine_sets(name: &HeaderName) -> bool {
    ENGINE_FIELDS.contains(name)
}
