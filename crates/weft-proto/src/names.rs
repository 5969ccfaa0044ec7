//! Comparison and conversion of field names without regard to case, several bytes at a time. Pure.

use crate::http1::scan::{CHUNK, Chunk, all, in_name, letters};

/// Compares two names of fields without regard to the case of ASCII letters, like
/// [`eq_ignore_ascii_case`](slice::eq_ignore_ascii_case), which takes eight instructions for each
/// byte of a short name.
///
/// ```
/// use weft_proto::names::is_same_name;
///
/// assert!(is_same_name(b"Content-Length", b"content-length"));
/// assert!(!is_same_name(b"content-length", b"content-lengths"));
/// ```
#[inline]
pub fn is_same_name(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && has_same_words(a, b)
}

/// Compares names of the same length. The last word overlaps the one before it.
#[inline]
fn has_same_words(a: &[u8], b: &[u8]) -> bool {
    let words = |bytes: &[u8]| (bytes.first_chunk().copied(), bytes.last_chunk().copied());
    if let ((Some(a_start), Some(a_end)), (Some(b_start), Some(b_end))) = (words(a), words(b)) {
        return is_same_word(a_start, b_start)
            && is_same_word(a_end, b_end)
            && (a.len() <= 2 * WORD || has_same_middle(a, b));
    }
    let halves = |bytes: &[u8]| Some([*bytes.first_chunk()?, *bytes.last_chunk::<4>()?]);
    match (halves(a), halves(b)) {
        (Some(a), Some(b)) => is_same_word(join(a), join(b)),
        _ => a.eq_ignore_ascii_case(b),
    }
}

/// Compares the words between the first and the last one.
fn has_same_middle(a: &[u8], b: &[u8]) -> bool {
    let middle = WORD..a.len() - WORD;
    a[middle.clone()].eq_ignore_ascii_case(&b[middle])
}

const WORD: usize = 8;

/// The bit in which the two cases of a letter differ.
const CASE: u8 = 0x20;

fn join([[a, b, c, d], [e, f, g, h]]: [[u8; 4]; 2]) -> [u8; WORD] {
    [a, b, c, d, e, f, g, h]
}

#[inline]
fn is_same_word(a: [u8; WORD], b: [u8; WORD]) -> bool {
    const fn all(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; WORD])
    }
    const CASES: u64 = all(CASE);
    const HIGH: u64 = all(0x80);
    let (a, b) = (u64::from_ne_bytes(a), u64::from_ne_bytes(b));
    let differences = a ^ b;
    if differences & !CASES != 0 {
        return false;
    }
    // The high bit of each byte: it is at least `a`, and it is beyond `z`. Without the high bit,
    // the sums do not carry into the next byte.
    let lower_case = (a | CASES) & !HIGH;
    let from_a = lower_case + all(0x80 - b'a');
    let beyond_z = lower_case + all(0x80 - b'z' - 1);
    let letters = from_a & !beyond_z & !a & HIGH;
    differences & !(letters >> 2) == 0
}

/// Appends a name in lower case if it has letters, digits and hyphens only, as nearly all names
/// have. Otherwise returns false, and appends nothing.
///
/// ```
/// use weft_proto::names::push_lower_case;
///
/// let mut out = b"GET / HTTP/1.1\r\n".to_vec();
/// assert!(push_lower_case(&mut out, b"User-Agent"));
/// assert!(!push_lower_case(&mut out, b"user_agent"));
/// assert_eq!(out, b"GET / HTTP/1.1\r\nuser-agent");
/// ```
#[inline]
pub fn push_lower_case(out: &mut Vec<u8>, name: &[u8]) -> bool {
    let start = out.len();
    let is_plain = match (name.first_chunk(), name.last_chunk()) {
        (Some(first), Some(last)) if name.len() <= CHUNK => push_words(out, name, [*first, *last]),
        _ => push_chunks(out, name),
    };
    if !is_plain {
        out.truncate(start);
    }
    is_plain
}

/// Appends a name of one or two words in lower case. The last word may overlap the first one.
#[inline]
fn push_words(out: &mut Vec<u8>, name: &[u8], words: [[u8; WORD]; 2]) -> bool {
    let [first, last] = words.map(|word| u128::from(u64::from_le_bytes(word)));
    let (lower_case, is_plain) = to_lower_case((first | last << 64).to_le_bytes());
    let (first, last) = lower_case.split_at(WORD);
    let end = out.len() + name.len();
    out.extend_from_slice(first);
    out.truncate(end - WORD);
    out.extend_from_slice(last);
    is_plain
}

/// Appends a name that is shorter than a word or longer than two in lower case.
fn push_chunks(out: &mut Vec<u8>, name: &[u8]) -> bool {
    let (chunks, rest) = name.as_chunks();
    let mut is_plain = true;
    for chunk in chunks {
        let (lower_case, is_chunk_plain) = to_lower_case(*chunk);
        out.extend_from_slice(&lower_case);
        is_plain &= is_chunk_plain;
    }
    let mut padded = [b'-'; CHUNK];
    padded[..rest.len()].copy_from_slice(rest);
    let (lower_case, is_rest_plain) = to_lower_case(padded);
    out.extend_from_slice(&lower_case[..rest.len()]);
    is_plain & is_rest_plain
}

/// Returns the bytes in lower case, and true if all are letters, digits and hyphens.
#[inline(always)]
fn to_lower_case(bytes: [u8; CHUNK]) -> ([u8; CHUNK], bool) {
    let chunk = Chunk::new(bytes);
    let lower_case = chunk | letters(chunk) & all(CASE);
    (lower_case.to_array(), in_name(chunk).to_bitmask() == 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_all_pairs_of_bytes_at_all_positions() {
        for length in [1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 33] {
            let name = vec![b'-'; length];
            for at in 0..length {
                for (a, b) in (0..=255).flat_map(|a| (0..=255).map(move |b| (a, b))) {
                    let (mut one, mut other) = (name.clone(), name.clone());
                    (one[at], other[at]) = (a, b);
                    let expected = a.eq_ignore_ascii_case(&b);
                    assert_eq!(is_same_name(&one, &other), expected, "{length} {at} {a} {b}");
                }
            }
        }
    }

    #[test]
    fn converts_all_bytes_at_all_positions() {
        for length in 0..50 {
            let name = vec![b'A'; length];
            for (at, b) in (0..length).flat_map(|at| (0..=255).map(move |b| (at, b))) {
                let mut name = name.clone();
                name[at] = b;
                let mut out = b"before".to_vec();
                let is_plain = push_lower_case(&mut out, &name);
                assert_eq!(is_plain, b.is_ascii_alphanumeric() || b == b'-', "{length} {at} {b}");
                let expected = if is_plain { name.to_ascii_lowercase() } else { Vec::new() };
                assert_eq!(out, [b"before", &*expected].concat(), "{length} {at} {b}");
            }
        }
    }

    #[test]
    fn compares_lengths() {
        for (a, b) in [("", "a"), ("te", "tee"), ("x-forwarded", "x-forwarded-for")] {
            assert!(
                !is_same_name(a.as_bytes(), b.as_bytes())
                    && is_same_name(a.as_bytes(), a.as_bytes())
            );
        }
    }
}
