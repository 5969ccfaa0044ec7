//! Distinguished names as text (RFC 4514). Pure.

use super::der::element;

const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const BMP_STRING: u8 = 0x1e;

/// Attribute types by their OID in DER, with their short names (RFC 4514 §3) and two that OpenSSL
/// adds.
const TYPES: [(&[u8], &str); 11] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

/// Formats the contents of a name: its sets of attributes from the last to the first, as nginx and
/// Apache do. All but printable ASCII is escaped.
pub(super) fn to_text(mut name: &[u8]) -> Option<String> {
    let mut sets = Vec::new();
    while !name.is_empty() {
        let (_, mut set, rest) = element(name)?;
        let mut attributes = Vec::new();
        while !set.is_empty() {
            let (_, attribute, others) = element(set)?;
            attributes.push(attribute_text(attribute)?);
            set = others;
        }
        sets.push(attributes.join("+"));
        name = rest;
    }
    sets.reverse();
    Some(sets.join(","))
}

fn attribute_text(attribute: &[u8]) -> Option<String> {
    let (_, oid, value) = element(attribute)?;
    let (tag, contents, _) = element(value)?;
    let known = TYPES.iter().find(|(known, _)| *known == oid);
    match (known, string(tag, contents)) {
        (Some((_, name)), Some(text)) => Some(format!("{name}={}", escape(&text))),
        // The encoded value (RFC 4514 §2.4), for which the type may be unknown.
        (known, _) => {
            let name = known.map_or_else(|| dotted(oid), |(_, name)| (*name).to_owned());
            let encoded = &value[..value.len() - element(value)?.2.len()];
            let digits: String = encoded.iter().map(|byte| format!("{byte:02X}")).collect();
            Some(format!("{name}=#{digits}"))
        }
    }
}

/// Decodes a string; `None` if it is none.
fn string(tag: u8, contents: &[u8]) -> Option<String> {
    match tag {
        UTF8_STRING => String::from_utf8(contents.to_vec()).ok(),
        PRINTABLE_STRING | IA5_STRING | TELETEX_STRING => {
            Some(contents.iter().map(|&byte| char::from(byte)).collect())
        }
        BMP_STRING => {
            let (units, []) = contents.as_chunks::<2>() else { return None };
            let units = units.iter().map(|unit| u16::from_be_bytes(*unit));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        _ => None,
    }
}

/// Escapes a value (RFC 4514 §2.4).
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        let is_outer_space = byte == b' ' && (at == 0 || at == last);
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => escaped.push('\\'),
            b'#' if at == 0 => escaped.push('\\'),
            b' ' if is_outer_space => escaped.push('\\'),
            b' '..=b'~' => {}
            _ => {
                escaped.push_str(&format!("\\{byte:02X}"));
                continue;
            }
        }
        escaped.push(char::from(byte));
    }
    escaped
}

/// Formats an OID. Its first byte has two numbers; the first is at most 2.
fn dotted(oid: &[u8]) -> String {
    let mut numbers: Vec<String> = Vec::new();
    let mut number = 0u64;
    for &byte in oid {
        number = number.wrapping_mul(128) + u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if numbers.is_empty() {
            let first = (number / 40).min(2);
            numbers.push(first.to_string());
            number -= first * 40;
        }
        numbers.push(number.to_string());
        number = 0;
    }
    numbers.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes an element of fewer than 128 bytes.
    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(contents.len()).unwrap()], contents].concat()
    }

    fn attribute(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(0x30, &[der(0x06, oid), der(tag, value)].concat())
    }

    #[test]
    fn formats_attributes() {
        const CN: &[u8] = &[0x55, 4, 3];
        for (oid, tag, value, expected) in [
            (CN, UTF8_STRING, &b"a b"[..], "CN=a b"),
            (CN, UTF8_STRING, b" a\\\"b+c,d;e<f>g ", "CN=\\ a\\\\\\\"b\\+c\\,d\\;e\\<f\\>g\\ "),
            (CN, UTF8_STRING, b"#a#", "CN=\\#a#"),
            (CN, UTF8_STRING, b"a\r\n\0\x7f", "CN=a\\0D\\0A\\00\\7F"),
            (CN, UTF8_STRING, "ß".as_bytes(), "CN=\\C3\\9F"),
            (CN, TELETEX_STRING, b"\xdf", "CN=\\C3\\9F"),
            (CN, BMP_STRING, b"\0a\x20\xac", "CN=a\\E2\\82\\AC"),
            (CN, UTF8_STRING, b"", "CN="),
            (CN, UTF8_STRING, b" ", "CN=\\ "),
            // No strings.
            (CN, BMP_STRING, b"\0", "CN=#1E0100"),
            (CN, UTF8_STRING, b"\xff", "CN=#0C01FF"),
            (CN, 0x02, b"\x05", "CN=#020105"),
            (
                &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
                IA5_STRING,
                b"a@b",
                "emailAddress=a@b",
            ),
            (&[0x2a, 0x03, 0x84, 0x00], UTF8_STRING, b"x", "1.2.3.512=#0C0178"),
            (&[0x88, 0x37], UTF8_STRING, b"", "2.999=#0C00"),
        ] {
            let set = der(0x31, &attribute(oid, tag, value));
            assert_eq!(to_text(&set).as_deref(), Some(expected));
        }
    }

    #[test]
    fn orders_sets_from_the_last_to_the_first() {
        let c = attribute(&[0x55, 4, 6], PRINTABLE_STRING, b"DE");
        let o = attribute(&[0x55, 4, 10], UTF8_STRING, b"A");
        let cn = attribute(&[0x55, 4, 3], UTF8_STRING, b"B");
        let name = [der(0x31, &c), der(0x31, &[o, cn].concat())].concat();
        assert_eq!(to_text(&name).unwrap(), "O=A+CN=B,C=DE");
        assert_eq!(to_text(b"").unwrap(), "");
    }
}
