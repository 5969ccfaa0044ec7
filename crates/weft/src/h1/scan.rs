//! Where does a run of allowed bytes end? Pure.
//!
//! Sixteen bytes are first asked together whether one of them stops the run: a
//! loop without branches, which the compiler turns into vector instructions. The
//! stop is then found eight bytes at a time within a 64-bit word, by tricks that
//! are exact for each byte: none borrows from its neighbour.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The length of the run that may stand in a field value: everything but the
/// controls other than HTAB, and DEL (RFC 9110 §5.5).
pub(super) fn field_value(bytes: &[u8]) -> usize {
    run(
        bytes,
        |b| (b < b' ' && b != b'\t') | (b == 0x7f),
        |word| (less(word, b' ') & !equal(word, b'\t')) | equal(word, 0x7f),
    )
}

/// The length of the run that may stand in a request target: everything visible
/// and all bytes above ASCII, but no `#` (RFC 9112 §3.2 has no fragment).
pub(super) fn target(bytes: &[u8]) -> usize {
    run(
        bytes,
        |b| (b <= b' ') | (b == 0x7f) | (b == b'#'),
        |word| less(word, b'!') | equal(word, 0x7f) | equal(word, b'#'),
    )
}

/// The length of the token at the start (RFC 9110 §5.6.2).
///
/// Nearly all field names are letters, digits and hyphens: those go eight at a
/// time, and the table is asked about the byte that ended them.
pub(super) fn token(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        while let Some(word) = word(bytes, at) {
            let stops = !letter_digit_or_hyphen(word) & HIGH;
            if stops != 0 {
                at += first(stops);
                break;
            }
            at += 8;
        }
        match bytes.get(at) {
            Some(&b) if is_token(b) => at += 1,
            _ => return at,
        }
    }
}

/// Whether the byte may stand in a token.
pub(super) fn is_token(b: u8) -> bool {
    TOKEN[b as usize]
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
};

#[inline(always)]
fn run(bytes: &[u8], stop: impl Fn(u8) -> bool, stops: impl Fn(u64) -> u64) -> usize {
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        if chunk.iter().fold(false, |any, &b| any | stop(b)) {
            break;
        }
        at += 16;
    }
    while let Some(word) = word(bytes, at) {
        let found = stops(word);
        if found != 0 {
            return at + first(found);
        }
        at += 8;
    }
    while at < bytes.len() && !stop(bytes[at]) {
        at += 1;
    }
    at
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|eight| u64::from_le_bytes(*eight))
}

#[inline(always)]
fn first(found: u64) -> usize {
    found.trailing_zeros() as usize / 8
}

#[inline(always)]
fn equal(word: u64, b: u8) -> u64 {
    less(word ^ (ONES * b as u64), 1)
}

/// Marks the bytes below `b`, which is at most 0x80.
#[inline(always)]
fn less(word: u64, b: u8) -> u64 {
    !at_least(word & !HIGH, b) & !word & HIGH
}

/// Marks, in a word of ASCII, the bytes from `b` on: no byte can carry into the next.
#[inline(always)]
fn at_least(ascii: u64, b: u8) -> u64 {
    ascii + ONES * (0x80 - b as u64)
}

#[inline(always)]
fn letter_digit_or_hyphen(word: u64) -> u64 {
    let ascii = word & !HIGH;
    let lower = ascii | (ONES * 0x20);
    let letter = at_least(lower, b'a') & !at_least(lower, b'z' + 1);
    let digit = at_least(ascii, b'0') & !at_least(ascii, b'9' + 1);
    let hyphen = !at_least(ascii ^ (ONES * b'-' as u64), 1);
    (letter | digit | hyphen) & !word & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;

    type Scan = (fn(&[u8]) -> usize, fn(u8) -> bool);

    const SCANS: [Scan; 3] = [
        (field_value, |b| b == b'\t' || (b >= b' ' && b != 0x7f)),
        (target, |b| b > b' ' && b != 0x7f && b != b'#'),
        (token, |b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)),
    ];

    /// Neighbours must not hide each other, as they do where a trick borrows.
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
