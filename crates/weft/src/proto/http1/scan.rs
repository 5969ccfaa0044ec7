//! Where does a run of allowed bytes end? Pure.
//!
//! Sixteen bytes are judged at a time, by the vector instructions that every processor has.

use wide::u8x16;

/// The length of the run that may stand in a field value: everything but the
/// controls other than HTAB, and DEL (RFC 9110 §5.5).
#[inline(always)]
pub(crate) fn field_value(bytes: &[u8]) -> usize {
    run(bytes, not_in_value)
}

/// The length of the run that may stand in a request target: everything visible
/// and all bytes above ASCII, but no `#` (RFC 9112 §3.2 has no fragment).
#[inline(always)]
pub(crate) fn target(bytes: &[u8]) -> usize {
    run(bytes, not_in_target)
}

/// The length of the token at the start (RFC 9110 §5.6.2).
///
/// Nearly all field names are letters, digits and hyphens; the table is asked about the
/// byte that ends them.
#[inline(always)]
pub(crate) fn token(bytes: &[u8]) -> usize {
    let mut length = run(bytes, not_in_name);
    while bytes.get(length).is_some_and(|&b| is_token(b)) {
        length += 1 + run(&bytes[length + 1..], not_in_name);
    }
    length
}

/// The length of the run that nearly all names of hosts are: letters, digits, hyphens and dots.
#[inline(always)]
pub(super) fn host(bytes: &[u8]) -> usize {
    run(bytes, not_in_host)
}

/// The length of the run that means nothing but itself within quotes, in JSON and on a terminal:
/// printable ASCII but for quotes and backslashes.
#[inline(always)]
pub(crate) fn plain(bytes: &[u8]) -> usize {
    run(bytes, not_plain)
}

/// Sixteen bytes, or a mark for each: all of its bits, or none.
type Chunk = u8x16;

const CHUNK: usize = 16;

fn all(b: u8) -> Chunk {
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

#[inline(always)]
fn in_name(chunk: Chunk) -> Chunk {
    let letter = between(chunk | all(0x20), b'a', b'z');
    letter | between(chunk, b'0', b'9') | chunk.simd_eq(all(b'-'))
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

/// The length of the run before the first byte that stops it.
#[inline(always)]
fn run(bytes: &[u8], stops: impl Fn(Chunk) -> Chunk) -> usize {
    let mut length = 0;
    let mut rest = bytes;
    loop {
        let Some((chunk, behind)) = rest.split_first_chunk::<CHUNK>() else {
            // NUL stops every run, so what fills the last chunk up is no part of it.
            let mut last = [0; CHUNK];
            last[..rest.len()].copy_from_slice(rest);
            return length + stops(Chunk::new(last)).to_bitmask().trailing_zeros() as usize;
        };
        let stops = stops(Chunk::new(*chunk)).to_bitmask();
        if stops != 0 {
            return length + stops.trailing_zeros() as usize;
        }
        length += CHUNK;
        rest = behind;
    }
}

/// Whether the byte may stand in a token.
pub(super) fn is_token(b: u8) -> bool {
    TOKEN[b as usize]
}

static TOKEN: [bool; 256] = letters_digits_and(b"!#$%&'*+-.^_`|~");

/// A table of the bytes that are ASCII letters, digits, or one of these.
pub(crate) const fn letters_digits_and(others: &[u8]) -> [bool; 256] {
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

    const SCANS: [Scan; 5] = [
        (field_value, |b| b == b'\t' || (b >= b' ' && b != 0x7f)),
        (target, |b| b > b' ' && b != 0x7f && b != b'#'),
        (token, |b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)),
        (host, |b| b.is_ascii_alphanumeric() || b"-.".contains(&b)),
        (plain, |b| (b.is_ascii_graphic() || b == b' ') && b != b'"' && b != b'\\'),
    ];

    /// Neighbours must not hide each other.
    #[test]
    fn each_pair_of_bytes_is_judged_byte_by_byte() {
        for (scan, allowed) in SCANS {
            for pair in 0..=u16::MAX {
                let [a, b] = pair.to_le_bytes();
                let bytes = [b'a', a, b, b'a', b'a', b'a', b'a', b'a', b'a', b'a'];
                let end = bytes.iter().position(|&b| !allowed(b)).unwrap_or(bytes.len());
                assert_eq!(scan(&bytes), end, "{bytes:?}");
            }
        }
    }

    /// Each byte, at each of the first 40 places, in a run of each kind.
    #[test]
    fn runs_end_at_the_first_stop_wherever_it_is() {
        for (scan, allowed) in SCANS {
            for b in 0..=255u8 {
                for place in 0..40 {
                    for tail in [0, 1, 9, 30] {
                        let mut bytes = vec![b'a'; place];
                        bytes.push(b);
                        bytes.extend(std::iter::repeat_n(b'-', tail));
                        let end = if allowed(b) { bytes.len() } else { place };
                        assert_eq!(scan(&bytes), end, "byte {b:#x} at {place}, {tail} behind");
                    }
                }
            }
        }
    }
}
