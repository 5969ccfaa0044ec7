//! Bytes of attacks over HTTP/3: frames (RFC 9114) and QPACK (RFC 9204).

// Frame types (RFC 9114 §7.2, RFC 9218 §7.2).
pub const DATA: u64 = 0;
pub const HEADERS: u64 = 1;
pub const SETTINGS: u64 = 4;
pub const MAX_PUSH_ID: u64 = 13;
pub const PRIORITY_UPDATE: u64 = 0xf0700;

/// A frame type without a meaning.
pub const UNKNOWN: u64 = 0x21;

// Stream types (RFC 9114 §6.2, RFC 9204 §4.2).
pub const CONTROL: u64 = 0;
pub const ENCODER: u64 = 2;

/// Returns an integer with a length of its own (RFC 9000 §16).
pub fn varint(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (0x4000 | value as u16).to_be_bytes().to_vec(),
        _ => (0x8000_0000 | u32::try_from(value).expect("30 bits")).to_be_bytes().to_vec(),
    }
}

pub fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [&varint(kind)[..], &varint(payload.len() as u64), payload].concat()
}

/// Returns an integer with a prefix of `bits` bits in `first` (RFC 7541 §5.1).
pub fn integer(first: u8, bits: u8, mut value: usize) -> Vec<u8> {
    let limit = (1 << bits) - 1;
    if value < limit {
        return vec![first | value as u8];
    }
    let mut bytes = vec![first | limit as u8];
    value -= limit;
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Returns a field line with a literal name (RFC 9204 §4.5.6).
pub fn line(name: &str, value: &str) -> Vec<u8> {
    let (length, value_length) = (integer(0x20, 3, name.len()), integer(0, 7, value.len()));
    [&length, name.as_bytes(), &value_length, value.as_bytes()].concat()
}

/// Returns the HEADERS of a request.
pub fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "https"), (":authority", "a"), (":path", path)];
    let lines = pseudo.iter().chain(fields).flat_map(|(name, value)| line(name, value));
    frame(HEADERS, &[0, 0].into_iter().chain(lines).collect::<Vec<u8>>())
}

pub fn get(path: &str) -> Vec<u8> {
    request("GET", path, &[])
}

/// Returns the status in the payload of a HEADERS frame: its first field, indexed or as a literal
/// (RFC 9204 §4.5, Appendix A).
pub fn status(section: &[u8]) -> Option<u16> {
    const INDEXED: [u16; 5] = [103, 200, 304, 404, 503];
    const FURTHER: [u16; 9] = [100, 204, 206, 302, 400, 403, 421, 425, 500];
    match section.get(2..)? {
        [index @ 0xd8..=0xdc, ..] => Some(INDEXED[usize::from(index - 0xd8)]),
        [0xff, index @ 0..=8, ..] => Some(FURTHER[usize::from(*index)]),
        [0x50..=0x7f, rest @ ..] => {
            let digits = rest.windows(3).find(|digits| digits.iter().all(u8::is_ascii_digit))?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// Returns the name of an error code (RFC 9114 §8.1, RFC 9204 §6).
pub fn error_name(code: u64) -> String {
    const ERRORS: [&str; 17] = [
        "H3_NO_ERROR",
        "H3_GENERAL_PROTOCOL_ERROR",
        "H3_INTERNAL_ERROR",
        "H3_STREAM_CREATION_ERROR",
        "H3_CLOSED_CRITICAL_STREAM",
        "H3_FRAME_UNEXPECTED",
        "H3_FRAME_ERROR",
        "H3_EXCESSIVE_LOAD",
        "H3_ID_ERROR",
        "H3_SETTINGS_ERROR",
        "H3_MISSING_SETTINGS",
        "H3_REQUEST_REJECTED",
        "H3_REQUEST_CANCELLED",
        "H3_REQUEST_INCOMPLETE",
        "H3_MESSAGE_ERROR",
        "H3_CONNECT_ERROR",
        "H3_VERSION_FALLBACK",
    ];
    let name = code.checked_sub(0x100).and_then(|index| ERRORS.get(index as usize));
    match (name, code) {
        (Some(name), _) => (*name).to_owned(),
        (None, 0x200..=0x202) => "QPACK error".to_owned(),
        (None, _) => format!("error {code:#x}"),
    }
}
