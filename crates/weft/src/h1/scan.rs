//! Where does a run of allowed bytes end? Pure.
//!
//! Sixteen bytes are judged at a time, by loops without branches that the compiler turns
//! into a few vector instructions; the marks they leave are then looked at as numbers.

/// The length of the run that may stand in a field value: everything but the
/// controls other than HTAB, and DEL (RFC 9110 §5.5).
#[inline(always)]
pub(super) fn field_value(bytes: &[u8]) -> usize {
    run(bytes, value_marks)
}

/// The length of the run that may stand in a request target: everything visible
/// and all bytes above ASCII, but no `#` (RFC 9112 §3.2 has no fragment).
#[inline(always)]
pub(super) fn target(bytes: &[u8]) -> usize {
    run(bytes, target_marks)
}

/// The length of the token at the start (RFC 9110 §5.6.2).
///
/// Nearly all field names are letters, digits and hyphens; the table is asked about the
/// byte that ends them.
#[inline(always)]
pub(super) fn token(bytes: &[u8]) -> usize {
    let mut length = run(bytes, name_marks);
    while bytes.get(length).is_some_and(|&b| is_token(b)) {
        length += 1 + run(&bytes[length + 1..], name_marks);
    }
    length
}

/// The length of the run that nearly all names of hosts are: letters, digits, hyphens and dots.
#[inline(always)]
pub(super) fn host(bytes: &[u8]) -> usize {
    run(bytes, host_marks)
}

/// The length of the run that means nothing but itself within quotes, in JSON and on a terminal:
/// printable ASCII but for quotes and backslashes.
#[inline(always)]
pub(crate) fn plain(bytes: &[u8]) -> usize {
    run(bytes, plain_marks)
}

fn not_in_value(b: u8) -> bool {
    ((b < b' ') & (b != b'\t')) | (b == 0x7f)
}

fn not_in_target(b: u8) -> bool {
    (b <= b' ') | (b == 0x7f) | (b == b'#')
}

fn not_in_name(b: u8) -> bool {
    let letter = (b | 0x20).wrapping_sub(b'a') < 26;
    !(letter | (b.wrapping_sub(b'0') < 10) | (b == b'-'))
}

fn not_in_host(b: u8) -> bool {
    not_in_name(b) & (b != b'.')
}

fn not_plain(b: u8) -> bool {
    (b.wrapping_sub(b' ') > b'~' - b' ') | (b == b'"') | (b == b'\\')
}

// Each of these stands alone, for then the compiler makes vector instructions of it
// wherever it is called.

#[inline(never)]
fn value_marks(chunk: &[u8; CHUNK]) -> [u8; CHUNK] {
    marks(chunk, not_in_value)
}

#[inline(never)]
fn target_marks(chunk: &[u8; CHUNK]) -> [u8; CHUNK] {
    marks(chunk, not_in_target)
}

#[inline(never)]
fn name_marks(chunk: &[u8; CHUNK]) -> [u8; CHUNK] {
    marks(chunk, not_in_name)
}

#[inline(never)]
fn host_marks(chunk: &[u8; CHUNK]) -> [u8; CHUNK] {
    marks(chunk, not_in_host)
}

#[inline(never)]
fn plain_marks(chunk: &[u8; CHUNK]) -> [u8; CHUNK] {
    marks(chunk, not_plain)
}

const CHUNK: usize = 16;

/// All bits of the bytes that stop a run.
#[inline(always)]
fn marks(chunk: &[u8; CHUNK], stops: impl Fn(u8) -> bool) -> [u8; CHUNK] {
    chunk.map(|b| if stops(b) { 0xff } else { 0 })
}

/// The length of the run before the first byte that stops it.
#[inline(always)]
fn run(bytes: &[u8], marks: impl Fn(&[u8; CHUNK]) -> [u8; CHUNK]) -> usize {
    let mut length = 0;
    let mut rest = bytes;
    loop {
        let Some((chunk, behind)) = rest.split_first_chunk() else {
            // NUL stops every run, so what fills the last chunk up is no part of it.
            let mut last = [0; CHUNK];
            last[..rest.len()].copy_from_slice(rest);
            return length + first(marks(&last)).unwrap_or(0);
        };
        if let Some(place) = first(marks(chunk)) {
            return length + place;
        }
        length += CHUNK;
        rest = behind;
    }
}

/// The place of the first mark.
#[inline(always)]
fn first(marks: [u8; CHUNK]) -> Option<usize> {
    match u128::from_le_bytes(marks) {
        0 => None,
        marks => Some(marks.trailing_zeros() as usize / 8),
    }
}

/// Whether the byte may stand in a token.
pub(super) fn is_token(b: u8) -> bool {
    TOKEN[b as usize]
}

static TOKEN: [bool; 256] = letters_digits_and(b"!#$%&'*+-.^_`|~");

/// A table of the bytes that are ASCII letters, digits, or one of these.
pub(super) const fn letters_digits_and(others: &[u8]) -> [bool; 256] {
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
