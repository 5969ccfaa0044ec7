//! The frames of HTTP/2 (RFC 9113 §4 and §6): bytes → head, and what is sent → bytes. Pure.

/// The head of a frame: length, type, flags, stream (§4.1).
pub(crate) const HEAD_BYTES: usize = 9;

/// The largest payload that every side takes without having said so (§4.2). Nothing larger is
/// taken here, or sent.
pub(crate) const MOST_PAYLOAD_BYTES: usize = 16_384;

/// What each client begins with (§3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The window that each stream and the connection begin with (§6.9.2).
pub(crate) const FIRST_WINDOW: i64 = 65_535;

/// The types of frames (§6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Their flags.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// The parameters of SETTINGS (§6.5.2, RFC 8441 §3).
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// Why a stream or a connection ends (§7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const NO_ERROR: Code = Code(0);
    pub(crate) const PROTOCOL_ERROR: Code = Code(1);
    pub(crate) const INTERNAL_ERROR: Code = Code(2);
    pub(crate) const FLOW_CONTROL_ERROR: Code = Code(3);
    pub(crate) const STREAM_CLOSED: Code = Code(5);
    pub(crate) const FRAME_SIZE_ERROR: Code = Code(6);
    pub(crate) const REFUSED_STREAM: Code = Code(7);
    pub(crate) const CANCEL: Code = Code(8);
    pub(crate) const COMPRESSION_ERROR: Code = Code(9);
    pub(crate) const ENHANCE_YOUR_CALM: Code = Code(11);
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    pub(crate) fn read(bytes: &[u8; HEAD_BYTES]) -> Head {
        let [a, b, c, kind, flags, s, t, u, v] = *bytes;
        Head {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            // The first bit is reserved and not looked at.
            stream: u32::from_be_bytes([s & 0x7f, t, u, v]),
        }
    }

    pub(crate) fn bytes(self) -> [u8; HEAD_BYTES] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s, t, u, v]
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without its padding (§6.1); `None` if there is more of that than payload.
    pub(crate) fn unpadded(self, payload: &[u8]) -> Option<&[u8]> {
        if !self.has(flag::PADDED) {
            return Some(payload);
        }
        let (&padding, rest) = payload.split_first()?;
        rest.get(..rest.len().checked_sub(padding.into())?)
    }
}

/// A number of four bytes without its reserved first bit: a stream, or a window's increment.
pub(crate) fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

/// Appends a frame.
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&Head { length: payload.len(), kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

pub(crate) fn settings(out: &mut Vec<u8>, parameters: &[(u16, u32)]) {
    let length = parameters.len() * 6;
    let head = Head { length, kind: kind::SETTINGS, flags: 0, stream: 0 };
    out.extend_from_slice(&head.bytes());
    for (id, value) in parameters {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(crate) fn reset(out: &mut Vec<u8>, stream: u32, code: Code) {
    write(out, kind::RST_STREAM, 0, stream, &code.0.to_be_bytes());
}

pub(crate) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

pub(crate) fn goaway(out: &mut Vec<u8>, last: u32, code: Code) {
    let [a, b, c, d] = last.to_be_bytes();
    let [e, f, g, h] = code.0.to_be_bytes();
    write(out, kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_there_and_back() {
        for (bytes, length, kind, flags, stream) in [
            ([0; 9], 0, 0, 0, 0),
            ([0, 0x40, 1, 1, 5, 0, 0, 0, 3], 16_385, 1, 5, 3),
            ([0xff, 0xff, 0xff, 9, 0xff, 0x7f, 0xff, 0xff, 0xff], 0xff_ffff, 9, 0xff, u32::MAX / 2),
        ] {
            let head = Head { length, kind, flags, stream };
            assert_eq!(Head::read(&bytes), head);
            assert_eq!(head.bytes(), bytes);
        }
        assert_eq!(Head::read(&[0, 0, 0, 0, 0, 0x80, 0, 0, 1]).stream, 1);
    }

    #[test]
    fn padding() {
        for (flags, payload, expected) in [
            (0, &b"\x02ab"[..], Some(&b"\x02ab"[..])),
            (flag::PADDED, b"\x02abcd", Some(b"ab")),
            (flag::PADDED, b"\x00abcd", Some(b"abcd")),
            (flag::PADDED, b"\x04abcd", Some(b"")),
            (flag::PADDED, b"\x05abcd", None),
            (flag::PADDED, b"\x00", Some(b"")),
            (flag::PADDED, b"", None),
        ] {
            let head = Head { length: payload.len(), kind: kind::DATA, flags, stream: 1 };
            assert_eq!(head.unpadded(payload), expected, "{payload:?}");
        }
    }

    #[test]
    fn what_is_sent() {
        let mut out = Vec::new();
        settings(&mut out, &[(setting::MAX_FRAME_SIZE, 0x4000)]);
        reset(&mut out, 5, Code::CANCEL);
        window_update(&mut out, 0, 0x102);
        goaway(&mut out, 7, Code::NO_ERROR);
        let expected = [
            &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0x40, 0][..],
            &[0, 0, 4, 3, 0, 0, 0, 0, 5, 0, 0, 0, 8],
            &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }
}
