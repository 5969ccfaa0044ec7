//! Prefix-coded integers (RFC 7541 §5.1).

use crate::field_coding::Malformed;

/// Largest accepted value, an implementation limit as §5.1 requires: no size or index is larger.
const MAX_VALUE: usize = 1 << 24;

/// Maximum number of bytes behind the prefix.
const MAX_REST_BYTES: usize = 4;

/// Reads an integer with a prefix of `bits` bits from the start of `input`, and advances `input`.
pub(crate) fn read(input: &mut &[u8], bits: u32) -> Result<usize, Malformed> {
    let (&first, rest) = input.split_first().ok_or(Malformed)?;
    *input = rest;
    let prefix_max = (1 << bits) - 1;
    let value = usize::from(first) & prefix_max;
    if value < prefix_max { Ok(value) } else { read_rest(input, value) }
}

fn read_rest(input: &mut &[u8], mut value: usize) -> Result<usize, Malformed> {
    for shift in (0..MAX_REST_BYTES).map(|at| 7 * at) {
        let (&byte, rest) = input.split_first().ok_or(Malformed)?;
        *input = rest;
        value += usize::from(byte & 0x7f) << shift;
        if value > MAX_VALUE {
            return Err(Malformed);
        }
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Reads an integer like [`read`]. Returns `None` if more input is needed.
pub(crate) fn read_partial(input: &mut &[u8], bits: u32) -> Result<Option<usize>, Malformed> {
    if is_incomplete(input, bits) { Ok(None) } else { read(input, bits).map(Some) }
}

/// Returns true if more bytes can complete the integer at the start of `input`.
fn is_incomplete(input: &[u8], bits: u32) -> bool {
    let Some((first, rest)) = input.split_first() else { return true };
    let prefix_max: usize = (1 << bits) - 1;
    usize::from(*first) & prefix_max == prefix_max
        && rest.len() < MAX_REST_BYTES
        && rest.iter().all(|byte| *byte >= 0x80)
}

/// Appends an integer with a prefix of `bits` bits. `first` holds the other bits of the first byte.
pub(crate) fn write(out: &mut Vec<u8>, bits: u32, first: u8, value: usize) {
    write_u64(out, bits, first, value as u64);
}

/// Appends an integer like [`write`]: a stream identifier.
pub(crate) fn write_u64(out: &mut Vec<u8>, bits: u32, first: u8, value: u64) {
    let prefix_max = (1 << bits) - 1;
    if value < prefix_max {
        return out.push(first | value as u8);
    }
    out.push(first | prefix_max as u8);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip() {
        // RFC 7541 §C.1, and boundary values.
        for (bits, first, value, bytes) in [
            (5, 0xa0, 10, &[0xaa][..]),
            (5, 0, 1_337, &[31, 154, 10]),
            (8, 0, 42, &[42]),
            (5, 0, 30, &[30]),
            (5, 0, 31, &[31, 0]),
            (7, 0x80, 127, &[0xff, 0]),
            (7, 0x80, 254, &[0xff, 127]),
            (7, 0x80, 255, &[0xff, 128, 1]),
            (4, 0, MAX_VALUE, &[15, 241, 255, 255, 7]),
        ] {
            let mut out = Vec::new();
            write(&mut out, bits, first, value);
            assert_eq!(out, bytes, "{value}");
            out.push(7);
            let mut input = &out[..];
            assert_eq!(read(&mut input, bits), Ok(value));
            assert_eq!(input, [7]);
            let mut input = &out[..];
            assert_eq!(read_partial(&mut input, bits), Ok(Some(value)));
            assert_eq!(input, [7]);
            for end in 0..bytes.len() {
                assert_eq!(read(&mut &bytes[..end], bits), Err(Malformed), "{value}");
                assert_eq!(read_partial(&mut &bytes[..end], bits), Ok(None), "{value}");
            }
        }
    }

    #[test]
    fn rejects_integers_above_the_limit() {
        for bytes in [
            &[15, 242, 255, 255, 7][..],
            &[15, 255, 255, 255, 255, 0],
            &[15, 128, 128, 128, 128, 0],
            &[15, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255],
        ] {
            assert_eq!(read(&mut &bytes[..], 4), Err(Malformed), "{bytes:?}");
            assert_eq!(read_partial(&mut &bytes[..], 4), Err(Malformed), "{bytes:?}");
        }
    }
}
