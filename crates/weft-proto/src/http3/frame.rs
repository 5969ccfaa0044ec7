//! Frames (RFC 9114 §7) and the integers that they consist of (RFC 9000 §16).
//!
//! ```
//! use weft_proto::http3::frame::{self, FrameHead, kind};
//!
//! let mut out = Vec::new();
//! frame::head(&mut out, kind::DATA, 300);
//! assert_eq!(out, [0, 0x41, 0x2c]);
//! assert_eq!(FrameHead::read(&out), Some((FrameHead { kind: kind::DATA, length: 300 }, 3)));
//! assert_eq!(FrameHead::read(&out[..2]), None);
//! ```

/// Frame types (RFC 9114 §7.2, RFC 9218 §7.2).
pub mod kind {
    /// Bytes of a body.
    pub const DATA: u64 = 0;
    /// A field section.
    pub const HEADERS: u64 = 1;
    /// Cancellation of a server push.
    pub const CANCEL_PUSH: u64 = 3;
    /// Parameters of the connection.
    pub const SETTINGS: u64 = 4;
    /// Announcement of a server push.
    pub const PUSH_PROMISE: u64 = 5;
    /// Start of the shutdown of the connection.
    pub const GOAWAY: u64 = 7;
    /// Limit of server pushes.
    pub const MAX_PUSH_ID: u64 = 13;
    /// Priority of a request.
    pub const PRIORITY_UPDATE: u64 = 0xf_0700;
    /// Priority of a push.
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;

    /// Returns true for the types of HTTP/2 that must not be used (RFC 9114 §7.2.8).
    pub fn is_of_http2(kind: u64) -> bool {
        matches!(kind, 2 | 6 | 8 | 9)
    }
}

/// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub mod stream {
    /// The control stream.
    pub const CONTROL: u64 = 0;
    /// A push stream, which only servers open.
    pub const PUSH: u64 = 1;
    /// Instructions of the QPACK encoder.
    pub const QPACK_ENCODER: u64 = 2;
    /// Instructions of the QPACK decoder.
    pub const QPACK_DECODER: u64 = 3;
}

/// Identifiers of SETTINGS parameters (RFC 9114 §7.2.4.1, RFC 9204 §5, RFC 9220 §3).
pub mod setting {
    /// Maximum capacity of the dynamic table of the peer's encoder in bytes.
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 1;
    /// Largest field section that the sender of the parameter accepts, in bytes.
    pub const MAX_FIELD_SECTION_SIZE: u64 = 6;
    /// Maximum number of streams that may wait for the dynamic table.
    pub const QPACK_BLOCKED_STREAMS: u64 = 7;
    /// Permission for extended CONNECT: 0 or 1.
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 8;

    /// Returns true for the identifiers of HTTP/2 that must not be used (RFC 9114 §7.2.4.1).
    pub fn is_of_http2(id: u64) -> bool {
        matches!(id, 0 | 2 | 3 | 4 | 5)
    }
}

/// Maximum length of the head of a frame: two integers.
pub const MAX_HEAD_BYTES: usize = 16;

/// Reads an integer of 1, 2, 4 or 8 bytes. Returns it with its length; `None` if it is incomplete.
#[inline]
pub fn varint(input: &[u8]) -> Option<(u64, usize)> {
    let first = *input.first()?;
    let length = 1 << (first >> 6);
    let bytes = input.get(..length)?;
    let value = bytes[1..]
        .iter()
        .fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// Appends an integer in its shortest form. The value must be less than 2^62.
#[inline]
pub fn write_varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend_from_slice(&(0x4000 | value as u16).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend_from_slice(&(0x8000_0000 | value as u32).to_be_bytes()),
        _ => out.extend_from_slice(&(0b11 << 62 | value).to_be_bytes()),
    }
}

/// The head of a frame: its type and the length of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The [type](kind).
    pub kind: u64,
    /// Length of the payload in bytes.
    pub length: u64,
}

impl FrameHead {
    /// Parses a head. Returns it with its length; `None` if it is incomplete.
    #[inline]
    pub fn read(input: &[u8]) -> Option<(FrameHead, usize)> {
        let (kind, kind_length) = varint(input)?;
        let (length, length_length) = varint(&input[kind_length..])?;
        Some((FrameHead { kind, length }, kind_length + length_length))
    }
}

/// Appends the head of a frame.
#[inline]
pub fn head(out: &mut Vec<u8>, kind: u64, length: u64) {
    write_varint(out, kind);
    write_varint(out, length);
}

/// Appends a SETTINGS frame (§7.2.4).
pub fn settings(out: &mut Vec<u8>, parameters: &[(u64, u64)]) {
    let mut payload = Vec::new();
    for (id, value) in parameters {
        write_varint(&mut payload, *id);
        write_varint(&mut payload, *value);
    }
    head(out, kind::SETTINGS, payload.len() as u64);
    out.extend_from_slice(&payload);
}

/// Appends a GOAWAY frame with the first request that is not processed (§5.2).
pub fn goaway(out: &mut Vec<u8>, stream: u64) {
    let mut payload = Vec::new();
    write_varint(&mut payload, stream);
    head(out, kind::GOAWAY, payload.len() as u64);
    out.extend_from_slice(&payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip() {
        // RFC 9000 §A.1, and boundary values.
        for (value, bytes) in [
            (151_288_809_941_952_652, &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..]),
            (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
            (15_293, &[0x7b, 0xbd]),
            (37, &[0x25]),
            (0, &[0]),
            (0x3f, &[0x3f]),
            (0x40, &[0x40, 0x40]),
            (0x3fff, &[0x7f, 0xff]),
            (0x4000, &[0x80, 0, 0x40, 0]),
            (0x3fff_ffff, &[0xbf, 0xff, 0xff, 0xff]),
            (0x4000_0000, &[0xc0, 0, 0, 0, 0x40, 0, 0, 0]),
            ((1 << 62) - 1, &[0xff; 8]),
        ] {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(varint(&out), Some((value, bytes.len())));
            for end in 0..bytes.len() {
                assert_eq!(varint(&bytes[..end]), None, "{value}");
            }
        }
        // A longer form than necessary is valid, too.
        assert_eq!(varint(&[0x40, 0x25]), Some((37, 2)));
    }
}
