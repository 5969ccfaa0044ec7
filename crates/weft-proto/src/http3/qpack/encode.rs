//! Encoder for field sections (RFC 9204 §4.5).
//!
//! Strings are not Huffman-coded: the CPU time is worth more than the bytes of a response's head.

use http::StatusCode;

use crate::field_coding::integer;
use crate::http1::compose::decimal;
use crate::http3::qpack::static_table;

/// Encoder for the field sections of responses. It has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encoder;

impl Encoder {
    /// Begins a section: no entry of the dynamic table is required.
    #[inline]
    pub fn begin(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, 0]);
    }

    /// Appends the `:status` pseudo-header field.
    #[inline]
    pub fn status(self, out: &mut Vec<u8>, status: StatusCode) {
        let index = match status.as_u16() {
            103 => 24,
            200 => 25,
            304 => 26,
            404 => 27,
            503 => 28,
            100 => 63,
            204 => 64,
            206 => 65,
            302 => 66,
            400 => 67,
            403 => 68,
            421 => 69,
            425 => 70,
            500 => 71,
            _ => {
                integer::write(out, 4, NAMED, 24);
                return string(out, status.as_str().as_bytes());
            }
        };
        integer::write(out, 6, INDEXED, index);
    }

    /// Appends `content-length`.
    #[inline]
    pub fn content_length(self, out: &mut Vec<u8>, length: u64) {
        integer::write(out, 4, NAMED, 4);
        let mut digits = [0; 20];
        let start = decimal(&mut digits, length);
        string(out, &digits[start..]);
    }

    /// Appends a field: its name in lowercase, and its value. A `secret` field is never indexed,
    /// also not by intermediaries (§4.5.4).
    pub fn field(self, out: &mut Vec<u8>, (name, value): (&[u8], &[u8]), secret: bool) {
        let never = if secret { NEVER } else { 0 };
        let Some(indices) = static_table::indices(name) else {
            // The flag of a literal name is one bit lower.
            integer::write(out, 3, LITERAL | never >> 1, name.len());
            out.extend_from_slice(name);
            return string(out, value);
        };
        let is_same = |index: &usize| {
            static_table::get(*index).is_some_and(|(_, known, _)| known.as_bytes() == value)
        };
        match indices.clone().find(is_same) {
            Some(index) => integer::write(out, 6, INDEXED, index),
            None => {
                integer::write(out, 4, NAMED | never, indices.start);
                string(out, value);
            }
        }
    }
}

/// An index of the static table (§4.5.2).
const INDEXED: u8 = 0xc0;
/// A literal value with a name of the static table (§4.5.4).
const NAMED: u8 = 0x50;
/// A literal name and a literal value (§4.5.6).
const LITERAL: u8 = 0x20;
/// The flag of a field that is never indexed, in [`NAMED`].
const NEVER: u8 = 0x20;

#[inline]
fn string(out: &mut Vec<u8>, text: &[u8]) {
    integer::write(out, 7, 0, text.len());
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http3::qpack::{Decoded, Decoder};

    #[test]
    fn encoded_fields_are_decoded() {
        let fields: [(&str, &str, bool); 9] = [
            ("content-type", "text/plain", false),
            ("content-type", "text/x-own", false),
            ("set-cookie", "a=1", true),
            ("x-own", "something", false),
            ("x-secret-of-fourteen-bytes", "", true),
            ("vary", "accept-encoding", false),
            ("access-control-allow-headers", "*", false),
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT", false),
            ("server", "", false),
        ];
        for status in [100, 103, 200, 201, 204, 206, 302, 304, 404, 421, 500, 503, 599] {
            let mut section = Vec::new();
            let status = StatusCode::from_u16(status).unwrap();
            Encoder.begin(&mut section);
            Encoder.status(&mut section, status);
            for (name, value, secret) in fields {
                Encoder.field(&mut section, (name.as_bytes(), value.as_bytes()), secret);
            }
            Encoder.content_length(&mut section, 1_234);
            let mut decoded = Vec::new();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let all = Decoder::default().decode(0, &section, |field| {
                decoded.push((text(field.name), text(field.value)));
                true
            });
            assert_eq!(all, Ok(Decoded::Complete));
            let expected: Vec<(String, String)> = [(":status", status.as_str())]
                .into_iter()
                .chain(fields.map(|(name, value, _)| (name, value)))
                .chain([("content-length", "1234")])
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            assert_eq!(decoded, expected);
        }
    }

    #[test]
    fn secrets_are_never_indexed() {
        for (name, first) in [("set-cookie", 0x70), ("x-a", 0x30)] {
            let mut section = Vec::new();
            Encoder.field(&mut section, (name.as_bytes(), b"secret"), true);
            assert_eq!(section[0] & 0xf0, first, "{name}");
        }
    }
}
