//! A response with its body in memory, for the few requests of a server's own.

use bytes::BytesMut;
use http::Method;

use crate::http1::client::{BodyPiece, BodyReader, HeadReader, ResponseHead};
use crate::{Error, ErrorKind, Result};

/// Incremental parser for a response with its whole body.
///
/// ```
/// use bytes::BytesMut;
/// use http::Method;
/// use weft_proto::http1::whole_response::ResponseReader;
///
/// let mut input = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
/// let mut reader = ResponseReader::new(&Method::GET, 16 << 10, 1 << 20);
/// assert!(reader.read(&mut input, false)?.is_none());
/// input.extend_from_slice(b"lo");
/// let (head, body) = reader.read(&mut input, false)?.expect("the response is complete");
/// assert_eq!((head.status.as_u16(), &*body), (200, &b"hello"[..]));
/// # Ok::<(), weft_proto::Error>(())
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
    /// Creates a parser for the response to a request with `method`. The head, with interim
    /// responses before it, has at most `max_head_bytes`, and the body at most `max_bytes`.
    pub fn new(method: &Method, max_head_bytes: usize, max_bytes: usize) -> ResponseReader {
        ResponseReader {
            method: method.clone(),
            head_reader: HeadReader::new(max_head_bytes),
            max_bytes,
            response: None,
            body: Vec::new(),
        }
    }

    /// Takes `input`, and returns the response when it is complete; `None` means that more input is
    /// needed. `is_at_end` is true if the connection has ended behind `input`.
    ///
    /// # Errors
    /// [`BodyTooLarge`](ErrorKind::BodyTooLarge) if the body exceeds its limit, and
    /// [`Malformed`](ErrorKind::Malformed) also for a response that is incomplete at the end. The
    /// parser must not be used after an error, or after the response.
    pub fn read(
        &mut self,
        input: &mut BytesMut,
        is_at_end: bool,
    ) -> Result<Option<(ResponseHead, Vec<u8>)>> {
        let may_end = loop {
            let Some((_, reader)) = &mut self.response else {
                match self.head_reader.read(input, &self.method)? {
                    Some(head) if head.status.is_informational() => {}
                    Some(head) => {
                        let reader = BodyReader::new(head.length);
                        self.response = Some((head, reader));
                    }
                    None => break false,
                }
                continue;
            };
            match reader.read(input)? {
                BodyPiece::Data(data) if data.len() > self.max_bytes - self.body.len() => {
                    return Err(Error::new(ErrorKind::BodyTooLarge, "the body is too large"));
                }
                BodyPiece::Data(data) => self.body.extend_from_slice(&data),
                BodyPiece::Trailers(_) => {}
                BodyPiece::End => break true,
                BodyPiece::Wait if is_at_end && reader.may_end_at_eof() => break true,
                BodyPiece::Wait => break false,
            }
        };
        match (may_end, is_at_end) {
            (true, _) => {
                Ok(self.response.take().map(|(head, _)| (head, std::mem::take(&mut self.body))))
            }
            (false, true) => Err(Error::malformed("the connection closed")),
            (false, false) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the body after its status, or the reason of an error.
    fn read(text: &str, piece: usize) -> String {
        let (mut input, mut pieces) = (BytesMut::new(), text.as_bytes().chunks(piece));
        let mut reader = ResponseReader::new(&Method::GET, 100, 6);
        loop {
            let next = pieces.next();
            input.extend_from_slice(next.unwrap_or_default());
            match reader.read(&mut input, next.is_none()) {
                Ok(None) => assert!(next.is_some(), "{text:?}"),
                Ok(Some((head, body))) => {
                    return format!("{} {}", head.status.as_u16(), String::from_utf8_lossy(&body));
                }
                Err(error) => return error.reason().to_owned(),
            }
        }
    }

    #[test]
    fn reads_bodies_within_their_limit() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef", "200 abcdef"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nabcdefg", "the body is too large"),
            (
                "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\na: b\r\n\r\n",
                "404 abc",
            ),
            ("HTTP/1.1 200 OK\r\n\r\nabcdef", "200 abcdef"),
            ("HTTP/1.1 200 OK\r\n\r\nabcdefg", "the body is too large"),
            ("HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 204 No\r\n\r\n", "204 "),
            ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcde", "the connection closed"),
            ("HTTP/1.1 200 OK\r\n", "the connection closed"),
            ("", "the connection closed"),
            ("SSH-2.0", "the response does not start with HTTP/1.0 or HTTP/1.1"),
        ] {
            for piece in [1, 1_000] {
                assert_eq!(read(text, piece), expected, "{text:?}");
            }
        }
    }
}
