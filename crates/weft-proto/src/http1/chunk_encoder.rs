//! Encoder of the chunked transfer coding (RFC 9112 §7.1). Pure. `chunked` has the decoder.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use crate::http1::compose::{FRAMING_FIELDS, field};
use crate::write_buffer::WriteBuffer;

/// Appends a chunk. Appends nothing if `data` is empty, because an empty chunk ends the body.
pub fn chunk(out: &mut WriteBuffer, data: Bytes) {
    if !data.is_empty() {
        size_line(out.tail(), data.len());
        out.push(data);
        out.tail().extend_from_slice(b"\r\n");
    }
}

/// Appends the last chunk and the trailer section (RFC 9112 §7.1.2). Framing fields are omitted:
/// they are not allowed in trailers (RFC 9110 §6.5.1).
pub fn last_chunk<'a>(
    out: &mut WriteBuffer,
    trailers: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>,
) {
    let out = out.tail();
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        if !FRAMING_FIELDS.contains(name) {
            field(out, name, value);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the size line of a chunk.
fn size_line(out: &mut Vec<u8>, size: usize) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[size >> (4 * digit) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;
    use http::HeaderMap;

    #[test]
    fn writes_sizes_in_hexadecimal() {
        for size in [0, 1, 9, 10, 15, 16, 255, 256, 0xfff, 0x1000, 65_536, usize::MAX] {
            let mut out = Vec::new();
            size_line(&mut out, size);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{size:x}\r\n"));
        }
    }

    /// Encodes a body, with pieces from 16 bytes on kept by reference.
    fn encoded(pieces: &[&'static str], trailers: &[(&'static str, &'static str)]) -> String {
        let mut out = WriteBuffer::new(16, 1_000);
        for piece in pieces {
            chunk(&mut out, Bytes::from_static(piece.as_bytes()));
        }
        let trailers: HeaderMap = trailers
            .iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        last_chunk(&mut out, &trailers);
        String::from_utf8(out.copy_to_bytes(out.remaining()).to_vec()).unwrap()
    }

    #[test]
    fn encodes_bodies_and_trailers() {
        for (pieces, trailers, expected) in [
            (&[][..], &[][..], "0\r\n\r\n"),
            (&["", "abc", ""], &[], "3\r\nabc\r\n0\r\n\r\n"),
            (
                &["abcdefghijklmnopq", "r", "abcdefghijklmnop"],
                &[],
                "11\r\nabcdefghijklmnopq\r\n1\r\nr\r\n10\r\nabcdefghijklmnop\r\n0\r\n\r\n",
            ),
            (
                &["a"],
                &[("etag", "\"1\""), ("content-length", "1"), ("connection", "close")],
                "1\r\na\r\n0\r\netag: \"1\"\r\n\r\n",
            ),
        ] {
            assert_eq!(encoded(pieces, trailers), expected);
        }
    }
}
