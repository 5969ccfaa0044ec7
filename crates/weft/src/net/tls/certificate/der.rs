//! Elements of the Distinguished Encoding Rules (X.690). Pure.

/// Splits a DER element off: its tag, its contents, and the rest.
pub(super) fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match usize::from(first) {
        short @ 0..0x80 => (short, rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(long - 0x80)?;
            let length = bytes.iter().try_fold(0usize, |length, &byte| {
                length.checked_mul(256)?.checked_add(byte.into())
            })?;
            (length, rest)
        }
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}
