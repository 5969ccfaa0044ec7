//! Comparison of field names without regard to case, several bytes at a time. Pure.

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

fn join([[a, b, c, d], [e, f, g, h]]: [[u8; 4]; 2]) -> [u8; WORD] {
    [a, b, c, d, e, f, g, h]
}

#[inline]
fn is_same_word(a: [u8; WORD], b: [u8; WORD]) -> bool {
    const fn all(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; WORD])
    }
    /// The bit in which the two cases of a letter differ.
    const CASE: u64 = all(0x20);
    const HIGH: u64 = all(0x80);
    let (a, b) = (u64::from_ne_bytes(a), u64::from_ne_bytes(b));
    let differences = a ^ b;
    if differences & !CASE != 0 {
        return false;
    }
    // The high bit of each byte: it is at least `a`, and it is beyond `z`. Without the high bit, the
    // sums do not carry into the next byte.
    let lower_case = (a | CASE) & !HIGH;
    let from_a = lower_case + all(0x80 - b'a');
    let beyond_z = lower_case + all(0x80 - b'z' - 1);
    let letters = from_a & !beyond_z & !a & HIGH;
    differences & !(letters >> 2) == 0
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
    fn compares_lengths() {
        for (a, b) in [("", "a"), ("te", "tee"), ("x-forwarded", "x-forwarded-for")] {
            assert!(
                !is_same_name(a.as_bytes(), b.as_bytes())
                    && is_same_name(a.as_bytes(), a.as_bytes())
            );
        }
    }
}
