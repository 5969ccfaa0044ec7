//! The client side of an exchange that has a connection of its own: a request and its response,
//! both in memory.

use bytes::BytesMut;
use http::{Method, Response, StatusCode};

use crate::http1::client::{BodyPiece, BodyReader, HeadReader, ResponseHead};

/// Maximum size of the head of a response, in bytes.
pub const MAX_HEAD_BYTES: usize = 32 << 10;

/// Composes a request that asks the server to close the connection after the response. `fields`
/// must contain neither `Host` nor a field that frames the message.
pub fn compose_request<'a>(
    (method, target): (&Method, &str),
    host: &str,
    fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    body: &[u8],
) -> Vec<u8> {
    let mut out = format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    for (name, value) in fields {
        out.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    if !body.is_empty() {
        out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"connection: close\r\n\r\n");
    out.extend_from_slice(body);
    out
}

/// Incremental parser for a response with its body. Errors are the reason, in words for a log.
///
/// ```
/// use bytes::BytesMut;
/// use http::Method;
/// use weft_proto::http1::single_exchange::ResponseReader;
///
/// let mut input = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
/// let mut reader = ResponseReader::new(&Method::GET, 1 << 20);
/// assert!(!reader.read(&mut input, false)?);
/// input.extend_from_slice(b"lo");
/// assert!(reader.read(&mut input, false)?);
/// let response = reader.into_response()?;
/// assert_eq!((response.status().as_u16(), &**response.body()), (200, &b"hello"[..]));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug)]
pub struct ResponseReader {
    method: Method,
    head_reader: HeadReader,
    max_bytes: usize,
    response: Option<(ResponseHead, BodyReader)>,
    body: Vec<u8>,
}

impl ResponseReader {
    /// Creates a parser for the response to a request with `method`. The body has at most
    /// `max_bytes`. The head has at most 32 KiB, including interim responses before it.
    pub fn new(method: &Method, max_bytes: usize) -> ResponseReader {
        ResponseReader {
            method: method.clone(),
            head_reader: HeadReader::new(MAX_HEAD_BYTES),
            max_bytes,
            response: None,
            body: Vec::new(),
        }
    }

    /// Accepts the errors of old servers that [`HeadReader::lenient`] describes.
    pub fn lenient(mut self, is_lenient: bool) -> ResponseReader {
        self.head_reader = self.head_reader.lenient(is_lenient);
        self
    }

    /// Takes `input`. Returns true if the response is complete, and false if more input is needed.
    /// `is_at_end` is true if the connection has ended behind `input`.
    ///
    /// # Errors
    /// If the response is malformed, if its head or its body exceeds the limit, or if the
    /// connection has ended before the response is complete. The parser must not be used after an
    /// error.
    pub fn read(&mut self, input: &mut BytesMut, is_at_end: bool) -> Result<bool, String> {
        match self.read_pieces(input, is_at_end)? {
            false if is_at_end => Err("the connection closed".to_owned()),
            is_complete => Ok(is_complete),
        }
    }

    fn read_pieces(&mut self, input: &mut BytesMut, is_at_end: bool) -> Result<bool, String> {
        let reason = |error: crate::Error| error.reason().to_owned();
        loop {
            let Some((_, reader)) = &mut self.response else {
                match self.head_reader.read(input, &self.method).map_err(reason)? {
                    Some(head) if head.status.is_informational() => {}
                    Some(head) => {
                        let reader = BodyReader::new(head.length);
                        self.response = Some((head, reader));
                    }
                    None => return Ok(false),
                }
                continue;
            };
            match reader.read(input).map_err(reason)? {
                BodyPiece::Data(data) => push_within(&mut self.body, &data, self.max_bytes)?,
                BodyPiece::Trailers(_) => {}
                BodyPiece::End => return Ok(true),
                BodyPiece::Wait => return Ok(is_at_end && reader.may_end_at_eof()),
            }
        }
    }

    /// Returns the status, once the head is complete.
    pub fn status(&self) -> Option<StatusCode> {
        self.response.as_ref().map(|(head, _)| head.status)
    }

    /// Returns the received part of the body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the response with the received part of its body.
    ///
    /// # Errors
    /// If the head is not complete.
    pub fn into_response(self) -> Result<Response<Vec<u8>>, String> {
        let (head, _) = self.response.ok_or("the connection closed")?;
        let mut response = Response::builder().status(head.status);
        for (name, value) in head.headers.iter() {
            response = response.header(name, value);
        }
        response.body(self.body).map_err(|error| error.to_string())
    }
}

/// Appends a piece to a body of at most `max_bytes`. If the piece is too long, its beginning is
/// appended.
///
/// # Errors
/// If the piece is too long.
pub fn push_within(body: &mut Vec<u8>, piece: &[u8], max_bytes: usize) -> Result<(), String> {
    let room = max_bytes - body.len();
    body.extend_from_slice(&piece[..piece.len().min(room)]);
    match piece.len() <= room {
        true => Ok(()),
        false => Err(format!("it is larger than {max_bytes} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the body after its status.
    fn read(text: &str, piece: usize) -> Result<String, String> {
        let (mut input, mut pieces) = (BytesMut::new(), text.as_bytes().chunks(piece));
        let mut reader = ResponseReader::new(&Method::GET, 6);
        loop {
            let next = pieces.next();
            input.extend_from_slice(next.unwrap_or_default());
            if reader.read(&mut input, next.is_none())? {
                let response = reader.into_response()?;
                let body = String::from_utf8_lossy(response.body());
                return Ok(format!("{} {body}", response.status().as_u16()));
            }
            assert!(next.is_some(), "{text:?}");
        }
    }

    #[test]
    fn reads_heads_and_bodies_within_their_limits() {
        let long = |bytes| format!("HTTP/1.1 204 No\r\na: {}\r\n\r\n", "a".repeat(bytes));
        let overhead = long(0).len();
        for (text, expected) in [
            (&*long(MAX_HEAD_BYTES - overhead), "204 "),
            (&long(MAX_HEAD_BYTES - overhead + 1), "the head is too large"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef", "200 abcdef"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nabcdefg", "it is larger than 6 bytes"),
            (
                "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\na: b\r\n\r\n",
                "404 abc",
            ),
            ("HTTP/1.1 200 OK\r\n\r\nabcdef", "200 abcdef"),
            ("HTTP/1.1 200 OK\r\n\r\nabcdefg", "it is larger than 6 bytes"),
            ("HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 204 No\r\n\r\n", "204 "),
            ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcde", "the connection closed"),
            ("HTTP/1.1 200 OK\r\n", "the connection closed"),
            ("", "the connection closed"),
            ("SSH-2.0", "the response does not start with HTTP/1.0 or HTTP/1.1"),
        ] {
            for piece in [1, 1_000] {
                let found = read(text, piece).unwrap_or_else(|reason| reason);
                assert_eq!(found, expected, "{text:?}");
            }
        }
    }
}
