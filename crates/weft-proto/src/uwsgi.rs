//! uwsgi, the side of a web server: composes the head of a request.
//!
//! The body follows the head as it is. The response has the form of HTTP/1 with a status line, or
//! of CGI (RFC 3875 §6), up to the end of the connection.
//!
//! ```
//! use weft_proto::uwsgi;
//!
//! let mut request = Vec::new();
//! uwsgi::head(&mut request, [(&b"A"[..], &b"bc"[..])])?;
//! assert_eq!(request, b"\x00\x07\x00\x00\x01\x00A\x02\x00bc");
//! # Ok::<(), weft_proto::Error>(())
//! ```

use crate::{Error, ErrorKind, Result};

/// Maximum size of all variables of a request, each with four bytes for its lengths.
pub const MAX_BYTES: usize = u16::MAX as usize;

/// Appends the head of a request: its variables, for an application of WSGI, Rack or PSGI
/// (`modifier1` 0).
///
/// # Errors
/// [`HeadTooLarge`](ErrorKind::HeadTooLarge) if the variables have more than [`MAX_BYTES`] bytes,
/// which the format cannot express.
pub fn head<'a>(
    out: &mut Vec<u8>,
    variables: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<()> {
    let start = out.len();
    let modifiers_and_size = [0; 4];
    out.extend_from_slice(&modifiers_and_size);
    for text in variables.into_iter().flat_map(|(name, value)| [name, value]) {
        // A text that is longer makes all of them too long.
        out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(text);
    }
    let Ok(size) = u16::try_from(out.len() - start - modifiers_and_size.len()) else {
        out.truncate(start);
        let reason = "more variables than 65,535 bytes, the maximum of uwsgi";
        return Err(Error::new(ErrorKind::HeadTooLarge, reason));
    };
    out[start + 1..start + 3].copy_from_slice(&size.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_lengths_with_the_low_byte_first() {
        let long = "v".repeat(0x0102);
        let expected_long = [b"\x00\x07\x01\x00\x01\x00A\x02\x01", long.as_bytes()].concat();
        type Variables<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Variables<'_>, &[u8]); 4] = [
            (&[], b"\x00\x00\x00\x00"),
            (&[("A", "")], b"\x00\x05\x00\x00\x01\x00A\x00\x00"),
            (
                &[("A", "b\x00"), ("C", "")],
                b"\x00\x0c\x00\x00\x01\x00A\x02\x00b\x00\x01\x00C\x00\x00",
            ),
            (&[("A", &long)], &expected_long),
        ];
        for (variables, expected) in cases {
            let mut out = b"x".to_vec();
            let bytes = variables.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            head(&mut out, bytes).unwrap();
            assert_eq!(out, [b"x", expected].concat(), "{variables:?}");
        }
    }

    #[test]
    fn heads_have_up_to_65535_bytes() {
        for (length, is_allowed) in
            [(MAX_BYTES - 5, true), (MAX_BYTES - 4, false), (MAX_BYTES, false), (1 << 20, false)]
        {
            let (mut out, value) = (b"x".to_vec(), vec![b'v'; length]);
            let done = head(&mut out, [(&b"A"[..], &value[..])]);
            assert_eq!(done.is_ok(), is_allowed, "{length}");
            assert_eq!(out.len(), if is_allowed { 1 + 4 + MAX_BYTES } else { 1 }, "{length}");
        }
    }
}
