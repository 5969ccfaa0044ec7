//! HTTP/2 frames (RFC 9113 §4 and §6): parsing of frame headers, serialization of frames. Pure.
//!
//! ```
//! use weft_proto::http2::frame::{self, ErrorCode, FrameHeader, kind};
//!
//! let mut out = Vec::new();
//! frame::rst_stream(&mut out, 3, ErrorCode::CANCEL);
//!
//! let (header, payload) = out.split_first_chunk().expect("at least nine bytes");
//! let header = FrameHeader::read(header);
//! assert_eq!((header.kind, header.stream, header.length), (kind::RST_STREAM, 3, 4));
//! assert_eq!(payload, ErrorCode::CANCEL.0.to_be_bytes());
//! ```

/// Length of a frame header: length, type, flags, stream identifier (§4.1).
pub const FRAME_HEADER_LEN: usize = 9;

/// The initial SETTINGS_MAX_FRAME_SIZE, which every endpoint must accept (§4.2). Larger frames are
/// neither accepted nor sent.
pub const MAX_FRAME_PAYLOAD: usize = 16_384;

/// The client connection preface (§3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Initial flow-control window of each stream and of the connection (§6.9.2).
pub const DEFAULT_INITIAL_WINDOW: i64 = 65_535;

/// Frame types (§6).
pub mod kind {
    /// Bytes of a body (§6.1).
    pub const DATA: u8 = 0;
    /// A field block, or its start (§6.2).
    pub const HEADERS: u8 = 1;
    /// Deprecated priority of a stream (§6.3).
    pub const PRIORITY: u8 = 2;
    /// Abrupt end of a stream (§6.4).
    pub const RST_STREAM: u8 = 3;
    /// Parameters of the connection (§6.5).
    pub const SETTINGS: u8 = 4;
    /// Announcement of a server push (§6.6).
    pub const PUSH_PROMISE: u8 = 5;
    /// Measurement of the round trip (§6.7).
    pub const PING: u8 = 6;
    /// Start of the shutdown of the connection (§6.8).
    pub const GOAWAY: u8 = 7;
    /// Credit for sending (§6.9).
    pub const WINDOW_UPDATE: u8 = 8;
    /// Continuation of a field block (§6.10).
    pub const CONTINUATION: u8 = 9;
}

/// Frame flags (§6).
pub mod flag {
    /// Acknowledgment, in SETTINGS and PING.
    pub const ACK: u8 = 1;
    /// Last frame of a message, in DATA and HEADERS.
    pub const END_STREAM: u8 = 1;
    /// End of the field block, in HEADERS, PUSH_PROMISE and CONTINUATION.
    pub const END_HEADERS: u8 = 4;
    /// Padding, in DATA, HEADERS and PUSH_PROMISE.
    pub const PADDED: u8 = 8;
    /// Deprecated priority fields, in HEADERS.
    pub const PRIORITY: u8 = 32;
}

/// Identifiers of SETTINGS parameters (§6.5.2, RFC 8441 §3).
pub mod setting {
    /// Maximum size of the dynamic table of the peer's encoder in bytes.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Permission for server push: 0 or 1.
    pub const ENABLE_PUSH: u16 = 2;
    /// Maximum number of streams that the peer may have open.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Initial flow-control window of each stream in bytes.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Largest frame payload that the sender of the parameter accepts, in bytes.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Largest field section that the sender of the parameter accepts, in bytes.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// Permission for extended CONNECT (RFC 8441): 0 or 1.
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// Error codes of RST_STREAM and GOAWAY (§7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// Graceful shutdown.
    pub const NO_ERROR: ErrorCode = ErrorCode(0);
    /// A violation that no other code describes.
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(1);
    /// A failure of the endpoint itself.
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(2);
    /// A violation of flow control.
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(3);
    /// A frame for a stream that is closed.
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(5);
    /// A frame with an invalid length.
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(6);
    /// A request that was not processed: it can be repeated safely.
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(7);
    /// A stream that is no longer needed.
    pub const CANCEL: ErrorCode = ErrorCode(8);
    /// A failure of HPACK, which cannot be recovered from.
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(9);
    /// Excessive load caused by the peer.
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(11);
}

/// A frame header (§4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes: 24 bits.
    pub length: usize,
    /// The [type](kind) of the frame.
    pub kind: u8,
    /// The [flags](flag) of the frame.
    pub flags: u8,
    /// The stream identifier: 31 bits, 0 for the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Parses a frame header. The reserved bit is ignored.
    #[inline]
    pub fn read(bytes: &[u8; FRAME_HEADER_LEN]) -> FrameHeader {
        let [a, b, c, kind, flags, s, t, u, v] = *bytes;
        FrameHeader {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: read_u31([s, t, u, v]),
        }
    }

    /// Serializes the frame header.
    #[inline]
    pub fn bytes(self) -> [u8; FRAME_HEADER_LEN] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s, t, u, v]
    }

    /// Returns true if a [flag] is set.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the payload without its padding (§6.1), or `None` if the padding exceeds the
    /// payload.
    #[inline]
    pub fn unpadded(self, payload: &[u8]) -> Option<&[u8]> {
        if !self.has(flag::PADDED) {
            return Some(payload);
        }
        let (&padding, rest) = payload.split_first()?;
        rest.get(..rest.len().checked_sub(padding.into())?)
    }
}

/// Returns the header and the payload of the first frame of `input`, or `None` if the frame is
/// incomplete.
///
/// # Errors
/// [`FRAME_SIZE_ERROR`](ErrorCode::FRAME_SIZE_ERROR) if the payload is longer than
/// [`MAX_FRAME_PAYLOAD`].
#[inline]
pub fn first(input: &[u8]) -> Result<Option<(FrameHeader, &[u8])>, ErrorCode> {
    let Some((header, rest)) = input.split_first_chunk() else { return Ok(None) };
    let header = FrameHeader::read(header);
    if header.length > MAX_FRAME_PAYLOAD {
        return Err(ErrorCode::FRAME_SIZE_ERROR);
    }
    Ok(rest.get(..header.length).map(|payload| (header, payload)))
}

/// Reads a 31-bit number after a reserved bit: a stream identifier or a window increment.
#[inline]
pub fn read_u31(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

/// Appends a frame. The payload is at most [`MAX_FRAME_PAYLOAD`].
#[inline]
pub fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&FrameHeader { length: payload.len(), kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// Appends a SETTINGS frame with these [parameters](setting) and their values (§6.5).
pub fn settings(out: &mut Vec<u8>, parameters: &[(u16, u32)]) {
    let length = parameters.len() * 6;
    let head = FrameHeader { length, kind: kind::SETTINGS, flags: 0, stream: 0 };
    out.extend_from_slice(&head.bytes());
    for (id, value) in parameters {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends an RST_STREAM frame (§6.4).
#[inline]
pub fn rst_stream(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write(out, kind::RST_STREAM, 0, stream, &code.0.to_be_bytes());
}

/// Appends a WINDOW_UPDATE frame (§6.9) for a stream, or for the connection if `stream` is 0.
#[inline]
pub fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends a GOAWAY frame (§6.8). `last` is the last stream that was or may be processed.
pub fn goaway(out: &mut Vec<u8>, last: u32, code: ErrorCode) {
    let [a, b, c, d] = last.to_be_bytes();
    let [e, f, g, h] = code.0.to_be_bytes();
    write(out, kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_headers_round_trip() {
        for (bytes, length, kind, flags, stream) in [
            ([0; 9], 0, 0, 0, 0),
            ([0, 0x40, 1, 1, 5, 0, 0, 0, 3], 16_385, 1, 5, 3),
            ([0xff, 0xff, 0xff, 9, 0xff, 0x7f, 0xff, 0xff, 0xff], 0xff_ffff, 9, 0xff, u32::MAX / 2),
        ] {
            let head = FrameHeader { length, kind, flags, stream };
            assert_eq!(FrameHeader::read(&bytes), head);
            assert_eq!(head.bytes(), bytes);
        }
        assert_eq!(FrameHeader::read(&[0, 0, 0, 0, 0, 0x80, 0, 0, 1]).stream, 1);
    }

    #[test]
    fn removes_padding_and_rejects_excess() {
        for (flags, payload, expected) in [
            (0, &b"\x02ab"[..], Some(&b"\x02ab"[..])),
            (flag::PADDED, b"\x02abcd", Some(b"ab")),
            (flag::PADDED, b"\x00abcd", Some(b"abcd")),
            (flag::PADDED, b"\x04abcd", Some(b"")),
            (flag::PADDED, b"\x05abcd", None),
            (flag::PADDED, b"\x00", Some(b"")),
            (flag::PADDED, b"", None),
        ] {
            let head = FrameHeader { length: payload.len(), kind: kind::DATA, flags, stream: 1 };
            assert_eq!(head.unpadded(payload), expected, "{payload:?}");
        }
    }

    #[test]
    fn serializes_control_frames() {
        let mut out = Vec::new();
        settings(&mut out, &[(setting::MAX_FRAME_SIZE, 0x4000)]);
        rst_stream(&mut out, 5, ErrorCode::CANCEL);
        window_update(&mut out, 0, 0x102);
        goaway(&mut out, 7, ErrorCode::NO_ERROR);
        let expected = [
            &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0x40, 0][..],
            &[0, 0, 4, 3, 0, 0, 0, 0, 5, 0, 0, 0, 8],
            &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }
}
