//! The pure half of a client of HTTP/1: what a server answers, from bytes.
//!
//! For applications that pass requests on and have a connection of their own to a server. Nothing
//! here knows a socket or a clock: bytes come in a buffer, and heads, pieces of bodies and
//! trailers are cut from it without being copied. What has more than one reading is refused, as
//! it is in requests: two that disagree about where a response ends can be made to take one
//! client's response for another's.
//!
//! ```
//! use bytes::BytesMut;
//! use weft::client::{BodyReader, HeadReader, Length, Piece};
//! use weft::Method;
//!
//! let mut input = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
//! let mut heads = HeadReader::new(16 << 10);
//! let head = heads.read(&mut input, &Method::GET)?.expect("all of it is here");
//! assert_eq!((head.status.as_u16(), head.length), (200, Length::Sized(5)));
//! assert!(head.keep_alive);
//!
//! let mut body = BodyReader::new(head.length);
//! let Piece::Data(data) = body.read(&mut input)? else { panic!("a piece of the body") };
//! assert_eq!(data, "hello");
//! assert!(matches!(body.read(&mut input)?, Piece::End));
//! # Ok::<(), weft::Error>(())
//! ```

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, StatusCode, Version};

use crate::error::{Error, ErrorKind, Result};
use crate::proto::headers::Headers;
use crate::proto::http1::chunked::{Decoder, Step};
use crate::proto::http1::framing::{self, content_length, keep_alive};
use crate::proto::http1::parse::{
    Fields, Known, Limits, Line, MOST_BYTES, Occurrence, field_line, head_too_large,
};
use crate::proto::http1::scan;

/// The most fields that a head or a trailer section may have.
const MOST_FIELDS: usize = 256;

/// The longest trailer section, in bytes.
const MOST_TRAILER_BYTES: usize = 16 << 10;

/// The head of a response.
#[derive(Clone, Debug)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    /// The version in which the server has answered: 1.1 or 1.0.
    pub version: Version,
    /// The fields, as they came.
    pub headers: Headers,
    /// How long the body is.
    pub length: Length,
    /// Whether the connection can be used again, once the body was read to its end. The head
    /// does not know what is behind that: if anything is, it cannot.
    pub keep_alive: bool,
}

/// The length of a response's body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many bytes. Where there is no body, whatever the fields say, it is 0.
    Sized(u64),
    /// It is chunked.
    Chunked,
    /// All that comes before the connection ends.
    UntilClose,
}

/// Reads the head of a response as it comes, and the interim ones before it.
#[derive(Debug)]
pub struct HeadReader {
    limits: Limits,
    status: Option<(StatusCode, Version)>,
    fields: Fields,
    known: Known,
    /// Where the first line begins that was not whole, and how far it was looked at.
    line: usize,
    seen: usize,
}

impl HeadReader {
    /// A reader of a head that has at most so many bytes, together with interim ones that come
    /// before it; 65,535 is the highest limit. It may have 256 fields.
    pub fn new(max_bytes: usize) -> HeadReader {
        let head = max_bytes.min(MOST_BYTES);
        HeadReader {
            limits: Limits { request_line: head, head, fields: MOST_FIELDS },
            status: None,
            fields: Fields::new(),
            known: Known::default(),
            line: 0,
            seen: 0,
        }
    }

    /// Takes a head off the start of what has come, if it is whole; `None` asks for more. The
    /// method is that of the request.
    ///
    /// Interim heads (1xx) are heads, too: after one of those the next is read in the same way,
    /// unless it was 101.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) if it is none, or does not say clearly where
    /// its body ends, [`HeadTooLarge`](ErrorKind::HeadTooLarge) beyond the limits.
    pub fn read(&mut self, input: &mut BytesMut, method: &Method) -> Result<Option<Head>> {
        let Some((length, status, version)) = self.find_end(input)? else { return Ok(None) };
        let text = input.split_to(length).freeze();
        let (fields, known) = (std::mem::take(&mut self.fields), std::mem::take(&mut self.known));
        self.limits.head -= length;
        (self.status, self.line, self.seen) = (None, 0, 0);
        let said = body_length(&known, &text, version)?;
        let (length, is_clear) = match status {
            // Its fields speak of what another request would have got.
            _ if *method == Method::HEAD => (Length::Sized(0), true),
            StatusCode::NOT_MODIFIED => (Length::Sized(0), true),
            // Who speaks of a body that there cannot be may send one all the same.
            status if framing::is_bodiless(status) => {
                (Length::Sized(0), matches!(said, Length::UntilClose | Length::Sized(0)))
            }
            _ => (said, true),
        };
        let headers = Headers::new(text, fields);
        let http_10 = version == Version::HTTP_10;
        let keep_alive = match known.connection {
            _ if !is_clear || length == Length::UntilClose => false,
            Occurrence::Never => !http_10,
            _ => keep_alive(headers.list("connection"), http_10),
        };
        Ok(Some(Head { status, version, headers, length, keep_alive }))
    }

    /// The length of the head, once it is whole.
    fn find_end(&mut self, input: &[u8]) -> Result<Option<(usize, StatusCode, Version)>> {
        // A line that was not whole is looked at again only when it may end.
        let is_new = |b: &u8| matches!(b, b'\r' | b'\n');
        if self.seen > self.line && !input[self.seen - 1..].iter().any(is_new) {
            return self.wait(input);
        }
        let (status, version) = match self.status {
            Some(found) => found,
            None => match status_line(input)? {
                None => return self.wait(input),
                Some((status, version, length)) => {
                    self.line = length;
                    *self.status.insert((status, version))
                }
            },
        };
        loop {
            match field_line(input, self.line, self.limits.head)? {
                Line::Field(field, name, next) => {
                    if self.fields.len() == self.limits.fields {
                        return Err(too_many_fields());
                    }
                    self.known.note(name, field.value);
                    self.fields.push(field);
                    self.line = next;
                }
                Line::End(length) if length <= self.limits.head => {
                    return Ok(Some((length, status, version)));
                }
                Line::End(_) => return Err(head_too_large().into()),
                Line::Partial => return self.wait(input),
            }
        }
    }

    fn wait<T>(&mut self, input: &[u8]) -> Result<Option<T>> {
        self.seen = input.len();
        if input.len() >= self.limits.head { Err(head_too_large().into()) } else { Ok(None) }
    }
}

fn too_many_fields() -> Error {
    Error::new(ErrorKind::HeadTooLarge, "too many fields")
}

/// `HTTP/1.x SP status [SP reason] CRLF` (RFC 9112 §4), and the length of the line. Many leave
/// the second space out where there is no reason.
fn status_line(input: &[u8]) -> Result<Option<(StatusCode, Version, usize)>> {
    const START: &[u8; 9] = b"HTTP/1.1 ";
    let malformed = |reason| Err(Error::malformed(reason));
    let version = match input.first_chunk() {
        Some(START) => Version::HTTP_11,
        Some(&[b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' '])
            if minor.is_ascii_digit() =>
        {
            if minor == b'0' {
                Version::HTTP_10
            } else {
                Version::HTTP_11
            }
        }
        Some(_) => return malformed("it does not begin with HTTP/1.1"),
        None => {
            let fits = |(at, &b): (usize, &u8)| b == START[at] || (at == 7 && b.is_ascii_digit());
            let may_be_one = input.iter().enumerate().all(fits);
            return if may_be_one {
                Ok(None)
            } else {
                malformed("it does not begin with HTTP/1.1")
            };
        }
    };
    let Some((status, rest)) = input[START.len()..].split_first_chunk::<3>() else {
        return Ok(None);
    };
    let Ok(status) = StatusCode::from_bytes(status) else { return malformed("its status is none") };
    let reason = match rest {
        [b' ', ..] => scan::field_value(rest),
        _ => 0,
    };
    match rest[reason..] {
        [b'\r', b'\n', ..] => Ok(Some((status, version, START.len() + 3 + reason + 2))),
        [] | [b'\r'] => Ok(None),
        _ => malformed("its status line does not end in CRLF"),
    }
}

/// What the fields say of the body (RFC 9112 §6.3), without the RFC's leniencies.
fn body_length(known: &Known, text: &[u8], version: Version) -> Result<Length> {
    use Occurrence::{Never, Once, Repeated};
    let malformed = |reason| Err(Error::malformed(reason));
    match (known.transfer_encoding, known.content_length) {
        (Never, Never) => Ok(Length::UntilClose),
        (Never, Once(value)) => match content_length(value.of(text)) {
            Some(length) => Ok(Length::Sized(length)),
            None => malformed("its Content-Length is not one decimal number"),
        },
        (Never, Repeated) => malformed("it has more than one Content-Length"),
        // §6.1: an attempt to smuggle something, perhaps.
        (_, Once(_) | Repeated) => malformed("it has a Content-Length and a Transfer-Encoding"),
        _ if version == Version::HTTP_10 => malformed("it has a Transfer-Encoding in HTTP/1.0"),
        (Once(value), Never) if value.of(text).eq_ignore_ascii_case(b"chunked") => {
            Ok(Length::Chunked)
        }
        _ => malformed("its transfer coding is another than chunked"),
    }
}

/// What the next bytes of a body are.
#[derive(Debug)]
pub enum Piece {
    /// A part of it.
    Data(Bytes),
    /// The trailer fields (RFC 9110 §6.5). Behind them it ends.
    Trailers(Headers),
    /// It has ended.
    End,
    /// Not to be told before more has come.
    Wait,
}

/// Reads the body of a response as it comes. Chunked coding is taken off.
#[derive(Debug)]
pub struct BodyReader(State);

#[derive(Debug)]
enum State {
    Framed(Decoder),
    UntilClose,
}

impl BodyReader {
    /// The reader of a body of this length.
    pub fn new(length: Length) -> BodyReader {
        BodyReader(match length {
            Length::Sized(bytes) => State::Framed(Decoder::new(framing::Length::Sized(bytes))),
            Length::Chunked => State::Framed(Decoder::new(framing::Length::Chunked)),
            Length::UntilClose => State::UntilClose,
        })
    }

    /// Takes the next piece off the start of what has come. A trailer section may have 16 KiB and
    /// 256 fields.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) for bad chunked coding. After an error there
    /// is no more to read.
    pub fn read(&mut self, input: &mut BytesMut) -> Result<Piece> {
        let decoder = match &mut self.0 {
            State::Framed(decoder) => decoder,
            State::UntilClose if input.is_empty() => return Ok(Piece::Wait),
            State::UntilClose => return Ok(Piece::Data(input.split().freeze())),
        };
        let limits = Limits { request_line: 0, head: MOST_TRAILER_BYTES, fields: MOST_FIELDS };
        loop {
            match decoder.step(input, &limits)? {
                Step::Skip(bytes) => input.advance(bytes),
                Step::Data(bytes) => return Ok(Piece::Data(input.split_to(bytes).freeze())),
                Step::Trailers(fields, bytes) => {
                    let text = input.split_to(bytes).freeze();
                    if !fields.is_empty() {
                        return Ok(Piece::Trailers(Headers::new(text, fields)));
                    }
                }
                Step::End => return Ok(Piece::End),
                Step::Wait => return Ok(Piece::Wait),
            }
        }
    }

    /// How many bytes are still to come, if that is known: 0 at the end.
    pub fn length(&self) -> Option<u64> {
        match &self.0 {
            State::Framed(decoder) => decoder.length(),
            State::UntilClose => None,
        }
    }

    /// Whether the end of the connection is the end of the body, if it comes now.
    pub fn may_end(&self) -> bool {
        matches!(self.0, State::UntilClose | State::Framed(Decoder::Done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, length (`~` for until-close, `*` for chunked), `k` if it can be used again; or `!`
    /// for a refusal, `?` if more is wanted.
    fn read(text: &[u8], method: &Method, piece: usize) -> String {
        let (mut input, mut heads) = (BytesMut::new(), HeadReader::new(120));
        let mut found = String::new();
        for piece in text.chunks(piece) {
            input.extend_from_slice(piece);
            loop {
                match heads.read(&mut input, method) {
                    Err(_) => return found + "!",
                    Ok(None) => break,
                    Ok(Some(head)) => {
                        found += head.status.as_str();
                        found += &match head.length {
                            Length::Sized(bytes) => format!(" {bytes}"),
                            Length::Chunked => " *".to_owned(),
                            Length::UntilClose => " ~".to_owned(),
                        };
                        found += if head.keep_alive { "k " } else { " " };
                        if !head.status.is_informational() {
                            return found;
                        }
                    }
                }
            }
        }
        found + "?"
    }

    #[test]
    fn heads_whole_and_in_pieces() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(96));
        let too_long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(97));
        let flood = "HTTP/1.1 102 A\r\n\r\n".repeat(7);
        let (get, head) = (Method::GET, Method::HEAD);
        for (method, text, expected) in [
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200 5k "),
            (&get, "HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", "200 0k "),
            (&get, "HTTP/1.1 200 \r\ncontent-length:0 \r\n\r\n", "200 0k "),
            (&get, "HTTP/1.9 999 a\tb \u{ff}\r\nContent-Length: 5\r\n\r\n", "999 5k "),
            (&get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", "200 *k "),
            (&get, "HTTP/1.1 200 OK\r\n\r\n", "200 ~ "),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Close\r\n\r\n", "200 1 "),
            (&get, "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", "200 1 "),
            (
                &get,
                "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n",
                "200 1k ",
            ),
            // What has no body, whatever the fields say.
            (&get, "HTTP/1.1 204 No\r\n\r\n", "204 0k "),
            (&get, "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", "204 0 "),
            (&get, "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", "204 0 "),
            (&get, "HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", "304 0k "),
            (&head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200 0k "),
            (&head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 0k "),
            (&head, "HTTP/1.1 200 OK\r\n\r\n", "200 0k "),
            // What comes before.
            (
                &get,
                "HTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
                "103 0k 100 0k 204 0k ",
            ),
            (&get, &flood, "102 0k 102 0k 102 0k 102 0k 102 0k 102 0k !"),
            (&get, &long, "200 ~ "),
            (&get, &too_long, "!"),
            // Lengths that have more than one reading.
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n", "!"),
            (&head, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "!"),
            (
                &get,
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "!",
            ),
            (&get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", "!"),
            (
                &get,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                "!",
            ),
            (&get, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "!"),
            // What is no head.
            (&get, "HTTP/2.0 200 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 2000 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 20 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 099 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1  200 OK\r\n\r\n", "!"),
            (&get, "\r\nHTTP/1.1 200 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\n\r\n", "!"),
            (&get, "HTTP/1.1 200 O\0K\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA: b\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA\r\n\r\n", "!"),
            (&get, "ICY 200 OK\r\n\r\n", "!"),
            (&get, "HTTP/1.1 200 OK\r\nA: b\r\n\r", "?"),
            (&get, "HTTP/1.1 2", "?"),
            (&get, "", "?"),
        ] {
            // A letter stands for its byte.
            let bytes: Vec<u8> = text.chars().map(|letter| letter as u8).collect();
            for piece in 1..=bytes.len().max(1) {
                assert_eq!(read(&bytes, method, piece), expected, "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn a_head_has_so_many_fields_and_no_more() {
        for (count, expected) in [(MOST_FIELDS, "200 ~ "), (MOST_FIELDS + 1, "!")] {
            let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a:b\r\n".repeat(count));
            let mut heads = HeadReader::new(1 << 20);
            let found = heads.read(&mut BytesMut::from(&*text), &Method::GET);
            assert_eq!(found.is_ok(), expected != "!", "{count}");
        }
    }

    #[test]
    fn bodies() {
        use Length::*;
        for (length, input, expected, is_whole) in [
            (Sized(0), "x", "$", true),
            (Sized(2), "abx", "ab$", true),
            (Sized(3), "ab", "ab?", false),
            (UntilClose, "", "?", true),
            (UntilClose, "ab", "ab?", true),
            (Chunked, "2;x=y\r\nab\r\n0\r\n\r\nx", "ab$", true),
            (Chunked, "2\r\nab\r\n0\r\nX: y\r\n\r\n", "ab[x]$", true),
            (Chunked, "2\r\nab\r\n0\r\nX: y\r\n", "ab?", false),
            (Chunked, "FFFFFFFFFFFFFFFF\r\nab", "ab?", false),
            (Chunked, "10000000000000000\r\nab", "!", false),
            (Chunked, "2\r\nabc\r\n", "ab!", false),
        ] {
            let (mut input, mut body) = (BytesMut::from(input), BodyReader::new(length));
            let mut found = String::new();
            loop {
                match body.read(&mut input) {
                    Ok(Piece::Data(data)) => found += std::str::from_utf8(&data).unwrap(),
                    Ok(Piece::Trailers(trailers)) => {
                        let names = trailers.iter().map(|(name, _)| name.to_ascii_lowercase());
                        found += &format!("[{}]", names.collect::<String>());
                    }
                    Ok(Piece::End) => break found.push('$'),
                    Ok(Piece::Wait) => break found.push('?'),
                    Err(_) => break found.push('!'),
                }
            }
            assert_eq!(found, expected, "{length:?}");
            assert_eq!(body.may_end() && !found.ends_with('!'), is_whole, "{length:?} {found}");
        }
    }
}
