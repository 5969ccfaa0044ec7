//! Scanners that return the length of the longest prefix of allowed bytes. Pure.
//!
//! They classify 16 bytes at a time with the SIMD instructions of the target's baseline.
//!
//! ```
//! use weft_proto::http1::scan;
//!
//! assert_eq!(scan::token(b"content-type: text/html"), 12);
//! assert_eq!(scan::target(b"/a?b HTTP/1.1"), 4);
//! ```

use wide::u8x16;

/// Returns the length of the prefix that is valid in a field value: all bytes except DEL and the
/// control characters other than HTAB (RFC 9110 §5.5).
#[inline(always)]
pub fn field_value(bytes: &[u8]) -> usize {
    run(bytes, not_in_value)
}

/// Returns the length of the prefix that is valid in a request target: visible ASCII without `#`
/// (RFC 9112 §3.2 has no fragment), and all bytes above ASCII.
#[inline(always)]
pub fn target(bytes: &[u8]) -> usize {
    run(bytes, not_in_target)
}

/// Returns the length of the prefix of letters, digits and hyphens, the bytes of nearly all field
/// names.
#[inline(always)]
pub(super) fn plain_name(bytes: &[u8]) -> usize {
    run(bytes, not_in_name)
}

/// Returns the length of the token at the start (RFC 9110 §5.6.2).
///
/// The table is consulted only for a byte that ends a run of letters, digits and hyphens.
pub fn token(bytes: &[u8]) -> usize {
    let mut length = plain_name(bytes);
    while bytes.get(length).is_some_and(|&b| is_token(b)) {
        length += 1 + run(&bytes[length + 1..], not_in_name);
    }
    length
}

/// Returns the length of the prefix of letters, digits, hyphens and dots, the bytes of nearly all
/// host names.
#[inline(always)]
pub(super) fn host(bytes: &[u8]) -> usize {
    run(bytes, not_in_host)
}

/// Returns the length of the prefix that needs no escaping in a quoted string, in JSON and on a
/// terminal: printable ASCII except quotes and backslashes.
#[inline(always)]
pub fn plain(bytes: &[u8]) -> usize {
    run(bytes, not_plain)
}

/// Returns the length of the prefix of a path before the first percent sign, backslash or
/// semicolon, which servers read in different ways, or NUL.
#[inline(always)]
pub fn plain_path(bytes: &[u8]) -> usize {
    run(bytes, not_in_plain_path)
}

/// Sixteen bytes, or a mask with all bits of a byte set or cleared.
pub(crate) type Chunk = u8x16;

pub(crate) const CHUNK: usize = 16;

#[inline(always)]
pub(crate) fn all(b: u8) -> Chunk {
    Chunk::splat(b)
}

#[inline(always)]
fn between(chunk: Chunk, first: u8, last: u8) -> Chunk {
    (chunk - all(first)).simd_le(all(last - first))
}

#[inline(always)]
fn not_in_value(chunk: Chunk) -> Chunk {
    let control = chunk.simd_le(all(0x1f)) & chunk.simd_ne(all(b'\t'));
    control | chunk.simd_eq(all(0x7f))
}

#[inline(always)]
fn not_in_target(chunk: Chunk) -> Chunk {
    chunk.simd_le(all(b' ')) | chunk.simd_eq(all(0x7f)) | chunk.simd_eq(all(b'#'))
}

/// Sets the mask of each ASCII letter.
#[inline(always)]
pub(crate) fn letters(chunk: Chunk) -> Chunk {
    between(chunk | all(0x20), b'a', b'z')
}

/// Sets the mask of each letter, digit and hyphen.
#[inline(always)]
pub(crate) fn in_name(chunk: Chunk) -> Chunk {
    letters(chunk) | between(chunk, b'0', b'9') | chunk.simd_eq(all(b'-'))
}

#[inline(always)]
fn not_in_name(chunk: Chunk) -> Chunk {
    !in_name(chunk)
}

#[inline(always)]
fn not_in_host(chunk: Chunk) -> Chunk {
    !(in_name(chunk) | chunk.simd_eq(all(b'.')))
}

#[inline(always)]
fn not_plain(chunk: Chunk) -> Chunk {
    let quote = chunk.simd_eq(all(b'"')) | chunk.simd_eq(all(b'\\'));
    !between(chunk, b' ', b'~') | quote
}

#[inline(always)]
fn not_in_plain_path(chunk: Chunk) -> Chunk {
    let separator = chunk.simd_eq(all(b'\\')) | chunk.simd_eq(all(b';'));
    chunk.simd_eq(all(b'%')) | separator | chunk.simd_eq(all(0))
}

/// Returns the length of the prefix before the first byte for which `stops` sets the mask.
#[inline(always)]
fn run(bytes: &[u8], stops: impl Fn(Chunk) -> Chunk) -> usize {
    let mut length = 0;
    let mut rest = bytes;
    loop {
        let Some((chunk, tail)) = rest.split_first_chunk::<CHUNK>() else {
            // NUL stops every scan, so the padding of the last chunk is never counted.
            let mut last = [0; CHUNK];
            last[..rest.len()].copy_from_slice(rest);
            return length + stops(Chunk::new(last)).to_bitmask().trailing_zeros() as usize;
        };
        let stops = stops(Chunk::new(*chunk)).to_bitmask();
        if stops != 0 {
            return length + stops.trailing_zeros() as usize;
        }
        length += CHUNK;
        rest = tail;
    }
}

/// Returns true if the byte is allowed in a token (RFC 9110 §5.6.2).
pub(super) fn is_token(b: u8) -> bool {
    TOKEN[b as usize]
}

static TOKEN: [bool; 256] = letters_digits_and(b"!#$%&'*+-.^_`|~");

/// Builds a lookup table of the ASCII letters, the digits and `others`.
///
/// ```
/// use weft_proto::http1::scan::letters_digits_and;
///
/// static UNRESERVED: [bool; 256] = letters_digits_and(b"-._~");
/// assert!(UNRESERVED[usize::from(b'a')] && !UNRESERVED[usize::from(b'/')]);
/// ```
pub const fn letters_digits_and(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    type Scan = (fn(&[u8]) -> usize, fn(u8) -> bool);

    const SCANS: [Scan; 6] = [
        (field_value, |b| b == b'\t' || (b >= b' ' && b != 0x7f)),
        (target, |b| b > b' ' && b != 0x7f && b != b'#'),
        (token, |b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)),
        (host, |b| b.is_ascii_alphanumeric() || b"-.".contains(&b)),
        (plain_path, |b| !b"%\\;\0".contains(&b)),
        (plain, |b| (b.is_ascii_graphic() || b == b' ') && b != b'"' && b != b'\\'),
    ];

    /// A byte must not affect the classification of its neighbor.
    #[test]
    fn classifies_adjacent_bytes_independently() {
        for (scan, allowed) in SCANS {
            for pair in 0..=u16::MAX {
                let [a, b] = pair.to_le_bytes();
                let bytes = [b'a', a, b, b'a', b'a', b'a', b'a', b'a', b'a', b'a'];
                let end = bytes.iter().position(|&b| !allowed(b)).unwrap_or(bytes.len());
                assert_eq!(scan(&bytes), end, "{bytes:?}");
            }
        }
    }

    /// Tests each byte, at each of the first 40 offsets, for each scanner.
    #[test]
    fn scans_end_at_first_disallowed_byte_at_any_offset() {
        for (scan, allowed) in SCANS {
            for b in 0..=255u8 {
                for offset in 0..40 {
                    for tail in [0, 1, 9, 30] {
                        let mut bytes = vec![b'a'; offset];
                        bytes.push(b);
                        bytes.extend(std::iter::repeat_n(b'-', tail));
                        let end = if allowed(b) { bytes.len() } else { offset };
                        assert_eq!(
                            scan(&bytes),
                            end,
                            "byte {b:#x} at offset {offset}, {tail} bytes after it"
                        );
                    }
                }
            }
        }
    }
}
