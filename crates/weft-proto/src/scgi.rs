//! SCGI, the side of a web server: composes the head of a request.
//!
//! The body follows the head as it is. The response has the form of CGI (RFC 3875 §6), up to the
//! end of the connection.
//!
//! ```
//! use weft_proto::scgi;
//!
//! let mut request = Vec::new();
//! scgi::head(&mut request, 5, [(&b"REQUEST_METHOD"[..], &b"POST"[..])])?;
//! request.extend_from_slice(b"hello");
//! let expected = b"44:CONTENT_LENGTH\x005\x00SCGI\x001\x00REQUEST_METHOD\x00POST\x00,hello";
//! assert_eq!(request, expected);
//! # Ok::<(), weft_proto::Error>(())
//! ```

use crate::{Error, Result};

/// First variables of each head. Variables of the request with these names are left out.
const LENGTH: &[u8] = b"CONTENT_LENGTH";
const PROTOCOL: &[u8] = b"SCGI";

/// Appends the head of a request whose body has `body_length` bytes: a netstring of variables.
///
/// # Errors
/// [`Malformed`](crate::ErrorKind::Malformed) if a variable contains NUL, which separates them.
pub fn head<'a>(
    out: &mut Vec<u8>,
    body_length: u64,
    variables: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<()> {
    let mut text = Vec::with_capacity(1 << 10);
    let length = body_length.to_string();
    push(&mut text, LENGTH, length.as_bytes());
    push(&mut text, PROTOCOL, b"1");
    for (name, value) in variables {
        if name.contains(&0) || value.contains(&0) {
            return Err(Error::malformed("a variable of a script contains NUL"));
        }
        if name != LENGTH && name != PROTOCOL {
            push(&mut text, name, value);
        }
    }
    out.extend_from_slice(text.len().to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(&text);
    out.push(b',');
    Ok(())
}

fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, value] {
        out.extend_from_slice(part);
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_begin_with_length_and_protocol() {
        type Variables<'a> = &'a [(&'a str, &'a str)];
        let cases: [(u64, Variables<'_>, Option<&str>); 6] = [
            (0, &[], Some("24:CONTENT_LENGTH\x000\x00SCGI\x001\x00,")),
            (10, &[], Some("25:CONTENT_LENGTH\x0010\x00SCGI\x001\x00,")),
            (0, &[("A", "")], Some("27:CONTENT_LENGTH\x000\x00SCGI\x001\x00A\x00\x00,")),
            (
                0,
                &[("SCGI", "2"), ("CONTENT_LENGTH", "9")],
                Some("24:CONTENT_LENGTH\x000\x00SCGI\x001\x00,"),
            ),
            // It would be a variable of the client's choice.
            (0, &[("A", "b\x00REMOTE_USER\x00root")], None),
            (0, &[("A\x00B", "")], None),
        ];
        for (length, variables, expected) in cases {
            let mut out = b"x".to_vec();
            let bytes = variables.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let done = head(&mut out, length, bytes);
            match expected {
                Some(expected) => assert_eq!(out, [b"x", expected.as_bytes()].concat()),
                None => assert!(done.is_err() && out == b"x", "{variables:?}"),
            }
        }
    }
}
