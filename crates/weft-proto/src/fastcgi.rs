//! FastCGI 1.0, the side of a web server: composes the records of a request, and parses the records
//! of its response.
//!
//! A connection carries one request at a time, whose ID is always 1: no application that is in use
//! multiplexes requests.
//!
//! ```
//! use bytes::BytesMut;
//! use weft_proto::fastcgi::{self, Completion, RecordReader, ResponsePart};
//!
//! let mut request = Vec::new();
//! fastcgi::begin_request(&mut request, false);
//! fastcgi::params(&mut request, [(&b"REQUEST_METHOD"[..], &b"GET"[..])]);
//! fastcgi::end_of_stdin(&mut request);
//!
//! let mut input = BytesMut::from(
//!     &b"\x01\x06\0\x01\0\x05\x03\0hello\0\0\0\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0"[..],
//! );
//! let mut records = RecordReader::default();
//! assert_eq!(records.read(&mut input)?, ResponsePart::Stdout("hello".into()));
//! let end = ResponsePart::End { status: 0, completion: Completion::Complete };
//! assert_eq!(records.read(&mut input)?, end);
//! # Ok::<(), weft_proto::Error>(())
//! ```

use bytes::{Buf, Bytes, BytesMut};

use crate::write_buffer::WriteBuffer;
use crate::{Error, Result};

const VERSION: u8 = 1;
const REQUEST_ID: u16 = 1;
const HEADER_BYTES: usize = 8;

/// Maximum size of the content of a record that is sent, in bytes: the largest one that needs no
/// padding to end at a multiple of 8.
const MAX_CONTENT_BYTES: usize = 65_528;

/// Space for the parameters of most requests, in bytes.
const USUAL_PARAMS_BYTES: usize = 1 << 10;

// Types of records.
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// The role of an application that responds to requests.
const RESPONDER: u8 = 1;

/// Flag of a request: the application does not close the connection after the response.
const KEEP_CONN: u8 = 1;

/// Appends the record that begins a request. Unless the connection is kept, the application closes
/// it after the response.
pub fn begin_request(out: &mut Vec<u8>, keep_connection: bool) {
    header(out, BEGIN_REQUEST, 8);
    let flags = if keep_connection { KEEP_CONN } else { 0 };
    out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
}

/// Appends all parameters of a request, pairs of name and value, and the end of their stream.
pub fn params<'a>(out: &mut Vec<u8>, pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
    let start = begin_params(out);
    for (name, value) in pairs {
        pair(out, name.len(), |out| {
            out.extend_from_slice(name);
            out.extend_from_slice(value);
        });
    }
    end_params(out, start);
}

/// Appends the beginning of the parameters of a request, and returns its position for
/// [`end_params`]. Pairs are appended by [`pair`].
pub fn begin_params(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.reserve(USUAL_PARAMS_BYTES);
    header(out, PARAMS, 0);
    start
}

/// Completes the parameters that begin at `start`, and appends the end of their stream.
pub fn end_params(out: &mut Vec<u8>, start: usize) {
    match out.len() - start - HEADER_BYTES {
        // An empty record would be the end.
        0 => out.truncate(start),
        length @ 1..=MAX_CONTENT_BYTES => {
            let [.., high, low] = length.to_be_bytes();
            out[start + 4..start + 6].copy_from_slice(&[high, low]);
        }
        _ => {
            let content = out.split_off(start + HEADER_BYTES);
            out.truncate(start);
            for piece in content.chunks(MAX_CONTENT_BYTES) {
                header(out, PARAMS, piece.len());
                out.extend_from_slice(piece);
            }
        }
    }
    header(out, PARAMS, 0);
}

/// Appends a pair of name and value. `write` appends both: the name, which has `name_length` bytes,
/// and the value behind it.
pub fn pair(out: &mut Vec<u8>, name_length: usize, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    pair_length(out, name_length);
    let at = out.len();
    out.push(0);
    write(out);
    match u8::try_from(out.len() - at - 1 - name_length) {
        Ok(short @ 0..=127) => out[at] = short,
        _ => {
            let parts = out.split_off(at + 1);
            out.truncate(start);
            pair_length(out, name_length);
            pair_length(out, parts.len() - name_length);
            out.extend_from_slice(&parts);
        }
    }
}

/// Appends the length of a name or a value: one byte if it is below 128, otherwise four.
fn pair_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short @ 0..=127) => out.push(short),
        // Longer ones than 2 GiB do not fit into memory that a request may have.
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// Returns the names and values of pairs that [`pair`] has appended.
pub fn pairs(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let (name_length, value_length) = (take_length(&mut bytes)?, take_length(&mut bytes)?);
        let (name, rest) = bytes.split_at_checked(name_length)?;
        let (value, rest) = rest.split_at_checked(value_length)?;
        bytes = rest;
        Some((name, value))
    })
}

/// Takes the length of a name or a value off the start of `bytes`.
fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    let (length, rest) = match *bytes {
        [short @ 0..=127, rest @ ..] => (u32::from(*short), rest),
        _ => {
            let (length, rest) = bytes.split_first_chunk()?;
            (u32::from_be_bytes(*length) & !(1 << 31), rest)
        }
    };
    *bytes = rest;
    Some(length as usize)
}

/// Appends a part of the request's body. An empty part appends nothing: it would end the body.
pub fn stdin(out: &mut WriteBuffer, mut data: Bytes) {
    while !data.is_empty() {
        let piece = data.split_to(data.len().min(MAX_CONTENT_BYTES));
        header(out.tail(), STDIN, piece.len());
        out.push(piece);
    }
}

/// Appends the end of the request's body, which every request has.
pub fn end_of_stdin(out: &mut Vec<u8>) {
    header(out, STDIN, 0);
}

fn header(out: &mut Vec<u8>, kind: u8, content_length: usize) {
    let [id_high, id_low] = REQUEST_ID.to_be_bytes();
    let [.., high, low] = content_length.to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, id_high, id_low, high, low, 0, 0]);
}

/// The next part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponsePart {
    /// A part of the response, which has the form of a CGI response (RFC 3875 §6).
    Stdout(Bytes),
    /// A part of the text that the application writes to its standard error.
    Stderr(Bytes),
    /// The end of the response.
    End {
        /// The exit status of a script; 0 stands for success.
        status: u32,
        /// The outcome of the request.
        completion: Completion,
    },
    /// More input is needed.
    Wait,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The response is complete.
    Complete,
    /// The application rejects the request, because it has another one on this connection.
    CannotMultiplex,
    /// The application rejects the request, because it has no resources for it.
    Overloaded,
    /// The application is no responder.
    UnknownRole,
}

/// Incremental parser for the records of a response. It holds no bytes itself: a part of a record
/// is returned as it arrives.
#[derive(Debug, Default)]
pub struct RecordReader {
    stream: Stream,
    /// Number of bytes of content that remain in the current record.
    content: usize,
    /// Number of bytes of padding behind it.
    padding: usize,
}

/// The stream that the current record belongs to.
#[derive(Clone, Copy, Debug, Default)]
enum Stream {
    #[default]
    Stdout,
    Stderr,
}

impl RecordReader {
    /// Splits the next part off the start of `input`. After the end of a response the reader is
    /// ready for the response to the next request on the connection.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) for a record that has no place in a response. The
    /// record stays in `input`, so that further calls return the same error.
    pub fn read(&mut self, input: &mut BytesMut) -> Result<ResponsePart> {
        loop {
            if self.content > 0 {
                let length = self.content.min(input.len());
                if length == 0 {
                    return Ok(ResponsePart::Wait);
                }
                self.content -= length;
                let data = input.split_to(length).freeze();
                return Ok(match self.stream {
                    Stream::Stdout => ResponsePart::Stdout(data),
                    Stream::Stderr => ResponsePart::Stderr(data),
                });
            }
            let padding = self.padding.min(input.len());
            input.advance(padding);
            self.padding -= padding;
            let Some(header) = input.first_chunk::<HEADER_BYTES>() else {
                return Ok(ResponsePart::Wait);
            };
            let &[version, kind, id_high, id_low, high, low, padding, _] = header;
            let content = usize::from(u16::from_be_bytes([high, low]));
            if version != VERSION {
                return Err(Error::malformed("a record is not of FastCGI 1"));
            }
            if u16::from_be_bytes([id_high, id_low]) != REQUEST_ID {
                return Err(Error::malformed("a record belongs to another request"));
            }
            let stream = match kind {
                STDOUT => Stream::Stdout,
                STDERR => Stream::Stderr,
                END_REQUEST => return end(input, content, padding.into()),
                _ => return Err(Error::malformed("a record of an unexpected type")),
            };
            input.advance(HEADER_BYTES);
            *self = RecordReader { stream, content, padding: padding.into() };
        }
    }
}

/// Parses the record that ends a response, when it has arrived with its padding.
fn end(input: &mut BytesMut, content: usize, padding: usize) -> Result<ResponsePart> {
    if content != 8 {
        return Err(Error::malformed("the end of the response has a wrong length"));
    }
    let length = content + padding;
    if input.len() < HEADER_BYTES + length {
        return Ok(ResponsePart::Wait);
    }
    let mut body = &input[HEADER_BYTES..];
    let status = body.get_u32();
    let completion = match body.get_u8() {
        0 => Completion::Complete,
        1 => Completion::CannotMultiplex,
        2 => Completion::Overloaded,
        3 => Completion::UnknownRole,
        _ => return Err(Error::malformed("the end of the response has an unknown status")),
    };
    input.advance(HEADER_BYTES + length);
    Ok(ResponsePart::End { status, completion })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composes_requests() {
        let mut out = Vec::new();
        begin_request(&mut out, false);
        params(&mut out, [(&b"A"[..], &b"bc"[..]), (b"EMPTY", b"")]);
        end_of_stdin(&mut out);
        let expected = [
            &b"\x01\x01\0\x01\0\x08\0\0\0\x01\0\0\0\0\0\0"[..],
            b"\x01\x04\0\x01\0\x0c\0\0\x01\x02Abc\x05\0EMPTY",
            b"\x01\x04\0\x01\0\0\0\0",
            b"\x01\x05\0\x01\0\0\0\0",
        ];
        assert_eq!(out, expected.concat());
        let mut kept = Vec::new();
        begin_request(&mut kept, true);
        assert_eq!(kept[8..11], [0, RESPONDER, KEEP_CONN]);
    }

    #[test]
    fn encodes_lengths_in_one_or_four_bytes() {
        for (length, expected) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[128, 0, 0, 128]),
            (256, &[128, 0, 1, 0]),
            (70_000, &[128, 1, 0x11, 0x70]),
        ] {
            let mut out = Vec::new();
            pair_length(&mut out, length);
            assert_eq!(out, expected, "{length}");
        }
    }

    #[test]
    fn pairs_are_read_as_they_were_written() {
        for (name_length, value_length) in
            [(0, 0), (1, 127), (127, 128), (128, 1), (300, 70_000), (0, 200)]
        {
            let (name, value) = (vec![b'n'; name_length], vec![b'v'; value_length]);
            let mut out = Vec::new();
            for _ in 0..2 {
                pair(&mut out, name_length, |out| {
                    out.extend_from_slice(&name);
                    out.extend_from_slice(&value);
                });
            }
            assert!(pairs(&out).eq([(&*name, &*value); 2]), "{name_length} {value_length}");
            let mut expected = Vec::new();
            pair_length(&mut expected, name_length);
            pair_length(&mut expected, value_length);
            expected.extend([&*name, &value].concat());
            assert!(out == [&*expected, &expected].concat(), "{name_length} {value_length}");
        }
        assert_eq!(pairs(b"\x01\x02ab").count(), 0);
    }

    /// Removes the headers of records of one type.
    fn contents(mut records: &[u8], kind: u8) -> Vec<Vec<u8>> {
        let mut contents = Vec::new();
        while let Some((header, rest)) = records.split_first_chunk::<HEADER_BYTES>() {
            assert_eq!((header[1], header[6]), (kind, 0));
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            contents.push(rest[..length].to_vec());
            records = &rest[length..];
        }
        assert_eq!(records, b"");
        contents
    }

    #[test]
    fn splits_large_streams_into_records() {
        let lengths = |contents: Vec<Vec<u8>>| contents.iter().map(Vec::len).collect::<Vec<_>>();
        for (length, expected) in [
            (0, &[][..]),
            (1, &[1]),
            (MAX_CONTENT_BYTES, &[MAX_CONTENT_BYTES]),
            (MAX_CONTENT_BYTES + 1, &[MAX_CONTENT_BYTES, 1]),
            (150_000, &[MAX_CONTENT_BYTES, MAX_CONTENT_BYTES, 150_000 - 2 * MAX_CONTENT_BYTES]),
        ] {
            let data: Bytes = (0..length).map(|i| i as u8).collect();
            let mut out = WriteBuffer::new(32 << 10, 64 << 10);
            stdin(&mut out, data.clone());
            let records = contents(&out.copy_to_bytes(out.remaining()), STDIN);
            assert_eq!(records.concat(), data);
            assert_eq!(lengths(records), expected);
        }
        let value = vec![b'x'; 100_000];
        let mut out = Vec::new();
        params(&mut out, [(&b"A"[..], &*value)]);
        let records = contents(&out, PARAMS);
        assert_eq!(records.concat(), [&b"\x01\x80\x01\x86\xa0A"[..], &value].concat());
        assert_eq!(lengths(records), [MAX_CONTENT_BYTES, 100_006 - MAX_CONTENT_BYTES, 0]);
    }

    /// Reads all parts of a response that arrives in pieces, and joins the parts of each stream.
    fn read(bytes: &[u8], piece: usize) -> Result<String> {
        let (mut input, mut reader) = (BytesMut::new(), RecordReader::default());
        let (mut stdout, mut stderr, mut ends) = (Vec::new(), Vec::new(), String::new());
        for piece in bytes.chunks(piece) {
            input.extend_from_slice(piece);
            loop {
                match reader.read(&mut input)? {
                    ResponsePart::Stdout(data) => stdout.extend_from_slice(&data),
                    ResponsePart::Stderr(data) => stderr.extend_from_slice(&data),
                    ResponsePart::End { status, completion } => {
                        ends.push_str(&format!(" {completion:?} {status}"));
                    }
                    ResponsePart::Wait => break,
                }
            }
        }
        let (stdout, stderr) = (stdout.escape_ascii(), stderr.escape_ascii());
        Ok(format!("{stdout}|{stderr}|{ends}|{}", input.escape_ascii()))
    }

    #[test]
    fn parses_responses_in_pieces_of_any_size() {
        const END: &[u8] = b"\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";
        for (bytes, expected) in [
            (&[&b""[..]][..], "|||"),
            (&[END], "|| Complete 0|"),
            (&[b"\x01\x06\0\x01\0\x02\0\0ab", END], "ab|| Complete 0|"),
            (
                &[b"\x01\x06\0\x01\0\x02\x03\0ab\0\0\0", b"\x01\x07\0\x01\0\x01\0\0e", END],
                "ab|e| Complete 0|",
            ),
            (&[b"\x01\x06\0\x01\0\0\x01\0\0\x01\x06\0\x01\0\x01\0\0a", END], "a|| Complete 0|"),
            (&[b"\x01\x03\0\x01\0\x08\x02\0\0\0\0\x05\0\0\0\0__"], "|| Complete 5|"),
            (&[b"\x01\x03\0\x01\0\x08\0\0\0\0\0\0\x02\0\0\0"], "|| Overloaded 0|"),
            (&[END, END], "|| Complete 0 Complete 0|"),
            (&[END, b"\x01\x06\0"], "|| Complete 0|\\x01\\x06\\x00"),
        ] {
            let bytes = bytes.concat();
            for piece in 1..=bytes.len().max(1) {
                assert_eq!(read(&bytes, piece).as_deref(), Ok(expected), "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn rejects_invalid_records() {
        for (bytes, expected) in [
            (&b"\x02\x06\0\x01\0\0\0\0"[..], "a record is not of FastCGI 1"),
            (b"HTTP/1.1 200 OK", "a record is not of FastCGI 1"),
            (b"\x01\x06\0\x02\0\0\0\0", "a record belongs to another request"),
            (b"\x01\x0a\0\x01\0\0\0\0", "a record of an unexpected type"),
            (b"\x01\x03\0\x01\0\x07\0\0", "the end of the response has a wrong length"),
            (
                b"\x01\x03\0\x01\0\x08\0\0\0\0\0\0\x04\0\0\0",
                "the end of the response has an unknown status",
            ),
        ] {
            let error = read(bytes, bytes.len()).unwrap_err();
            assert_eq!(error.reason(), expected);
        }
    }
}
