//! The Huffman code (RFC 7541 §5.2 and appendix B).
//!
//! The code is canonical: codes of the same length are consecutive numbers in the order of their
//! symbols, and follow all shorter ones. All tables are therefore derived from the lengths.

use crate::field_coding::Malformed;

/// Code length of each symbol in bits. The last symbol is EOS, which is never sent.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const SYMBOLS: usize = 257;
const EOS: u16 = 256;
const MAX_CODE_BITS: usize = 30;

/// Maximum length of codes that are decoded with a single table lookup. Nearly all text has such
/// codes.
const FAST_BITS: u32 = 8;

/// Maps the next eight bits to a symbol and its code length; the length is 0 for longer codes.
static FAST: [(u8, u8); 1 << FAST_BITS] = {
    let mut fast = [(0, 0); 1 << FAST_BITS];
    let mut at = 0;
    while at < SORTED.symbols.len() {
        let symbol = SORTED.symbols[at];
        let length = LENGTHS[symbol as usize] as u32;
        if length <= FAST_BITS {
            let code = SORTED.codes[at] << (FAST_BITS - length);
            let mut below = 0;
            while below < 1 << (FAST_BITS - length) {
                fast[(code + below) as usize] = (symbol as u8, length as u8);
                below += 1;
            }
        }
        at += 1;
    }
    fast
};

/// The symbols in the order of their codes, with lookup data per code length.
struct Sorted {
    symbols: [u16; SYMBOLS],
    codes: [u32; SYMBOLS],
    /// For each length: the last code plus 1, left-aligned in 32 bits.
    limits: [u64; MAX_CODE_BITS + 1],
    /// For each length: the index of its first code.
    starts: [usize; MAX_CODE_BITS + 1],
}

static SORTED: Sorted = {
    let mut sorted = Sorted {
        symbols: [0; SYMBOLS],
        codes: [0; SYMBOLS],
        limits: [0; MAX_CODE_BITS + 1],
        starts: [0; MAX_CODE_BITS + 1],
    };
    let (mut at, mut code, mut length) = (0, 0, 1);
    while length <= MAX_CODE_BITS {
        code <<= 1;
        sorted.starts[length] = at;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                sorted.symbols[at] = symbol as u16;
                sorted.codes[at] = code;
                at += 1;
                code += 1;
            }
            symbol += 1;
        }
        sorted.limits[length] = (code as u64) << (32 - length);
        length += 1;
    }
    sorted
};

/// Decodes a string and appends it to `out`.
pub(crate) fn decode(mut text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    // The shortest code has five bits.
    out.reserve(text.len() * 8 / 5);
    // Input bits, left-aligned, and the number of valid ones.
    let (mut window, mut bits) = (0u64, 0u32);
    loop {
        if bits < 32 {
            match text.split_first_chunk() {
                Some((four, rest)) => {
                    window |= u64::from(u32::from_be_bytes(*four)) << (32 - bits);
                    bits += 32;
                    text = rest;
                }
                None => {
                    while bits <= 56
                        && let Some((&byte, rest)) = text.split_first()
                    {
                        window |= u64::from(byte) << (56 - bits);
                        bits += 8;
                        text = rest;
                    }
                }
            }
        }
        let (mut symbol, mut length) = FAST[(window >> (64 - FAST_BITS)) as usize];
        if length == 0 {
            (symbol, length) = decode_long(window).unwrap_or((0, u8::MAX));
        }
        if u32::from(length) > bits {
            break;
        }
        out.push(symbol);
        window <<= length;
        bits -= u32::from(length);
    }
    // §5.2: the padding is shorter than a byte and consists of the first bits of EOS, all set.
    let is_padding = bits < 8 && window == !(u64::MAX >> bits);
    if is_padding { Ok(()) } else { Err(Malformed) }
}

/// Decodes a code of more than eight bits: the symbol and its length, or `None` for EOS.
#[cold]
fn decode_long(window: u64) -> Option<(u8, u8)> {
    let code = window >> 32;
    let length = (FAST_BITS as usize + 1..=MAX_CODE_BITS).find(|&l| code < SORTED.limits[l])?;
    let start = SORTED.starts[length];
    let index = start + ((code >> (32 - length)) as u32 - SORTED.codes[start]) as usize;
    let symbol = SORTED.symbols[index];
    (symbol != EOS).then_some((symbol as u8, length as u8))
}

/// Encodes a string.
#[cfg(test)]
pub(crate) fn encode(text: &[u8]) -> Vec<u8> {
    let mut bits = String::new();
    for &b in text {
        let index = SORTED.symbols.iter().position(|&s| s == u16::from(b)).unwrap();
        let width = LENGTHS[b as usize] as usize;
        bits += &format!("{:0width$b}", SORTED.codes[index]);
    }
    while !bits.len().is_multiple_of(8) {
        bits.push('1');
    }
    let byte = |at: usize| u8::from_str_radix(&bits[at..at + 8], 2).unwrap();
    (0..bits.len()).step_by(8).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::new();
        decode(text, &mut out).map(|()| out)
    }

    #[test]
    fn decodes_rfc_examples() {
        // RFC 7541 §C.4 and §C.6
        for (code, text) in [
            (&b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..], "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (b"\x64\x02", "302"),
            (
                b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3",
                "https://www.example.com",
            ),
            (b"", ""),
        ] {
            assert_eq!(decoded(code).unwrap(), text.as_bytes());
            assert_eq!(encode(text.as_bytes()), code);
        }
    }

    #[test]
    fn round_trips_every_pair_of_symbols() {
        for a in 0..=255 {
            for b in 0..=255 {
                let text = [a, b, a];
                assert_eq!(decoded(&encode(&text)).unwrap(), text);
            }
        }
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        assert_eq!(decoded(&encode(&all)).unwrap(), all);
        assert_eq!(loona_hpack::huffman::HuffmanDecoder::new().decode(&encode(&all)).unwrap(), all);
    }

    #[test]
    fn rejects_invalid_codes_and_padding() {
        for code in [
            &b"\x00"[..], // "0" and three zero bits of padding
            b"\x07\xfe",  // the last bit of the padding is 0
            b"\xff",      // a whole byte of padding
            b"\x07\xff",  // "0" and more than seven bits of padding
            b"\x1f\xff",
            b"\xff\xff\xff\xff",     // EOS
            b"\x07\xff\xff\xff\xff", // EOS after a symbol
            b"\xff\xff\xff",         // truncated code
        ] {
            assert_eq!(decoded(code), Err(Malformed), "{code:x?}");
        }
        assert_eq!(decoded(b"\x07").unwrap(), b"0");
    }
}
