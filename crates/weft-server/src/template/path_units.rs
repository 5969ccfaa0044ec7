//! Decoded bytes of a path, with their positions in it. Pure.

/// A decoded byte of a path.
pub(crate) struct Unit {
    /// Position in the path.
    pub(crate) at: usize,
    pub(crate) byte: u8,
    pub(crate) is_encoded: bool,
}

/// Returns the bytes of a path, decoded as [`weft::path::decode`] does.
pub(crate) fn units(path: &str) -> impl Iterator<Item = Unit> {
    let (bytes, mut next) = (path.as_bytes(), 0);
    std::iter::from_fn(move || {
        let (at, byte) = (next, *bytes.get(next)?);
        let decoded = match byte {
            b'%' => bytes.get(at..at + 3).map(weft::path::decode),
            _ => None,
        };
        match decoded.as_deref() {
            Some(&[byte]) => {
                next += 3;
                Some(Unit { at, byte, is_encoded: true })
            }
            _ => {
                next += 1;
                Some(Unit { at, byte, is_encoded: false })
            }
        }
    })
}
