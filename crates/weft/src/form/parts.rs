//! Parser for `multipart` bodies (RFC 2046 §5.1). Pure.
//!
//! The input is pushed in chunks; the output is a sequence of heads, data and ends of parts. Data
//! are slices of the chunks. The parser buffers at most the head of a part, or the bytes that may
//! be the beginning of a boundary.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use memchr::memmem::Finder;

use crate::error::{Error, Result};
use crate::form::rejection::{MAX_PART_FIELDS, too_large};
use weft_proto::headers::Headers;
use weft_proto::http1::parse::{FieldSection, Limits, MAX_HEAD_BYTES};

/// Maximum length of a boundary (RFC 2046 §5.1.1), in bytes.
const MAX_BOUNDARY_BYTES: usize = 70;

/// Parser state.
#[derive(Debug)]
pub(super) struct Parser {
    /// Delimiter: CRLF, two hyphens and the boundary.
    delimiter: Finder<'static>,
    max_head_bytes: usize,
    max_head_fields: usize,
    state: State,
    /// The head that is being parsed.
    head: FieldSection,
    /// Bytes of that head in which the ends of lines were searched for.
    searched: usize,
    /// Input that was not consumed.
    rest: Bytes,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Preamble,
    /// After a delimiter and a number of bytes of white space.
    Delimiter(usize),
    Head,
    Data,
    End,
}

/// Output of one parser step.
#[derive(Debug)]
pub(super) enum Step {
    /// More input is required.
    Wait,
    Head(Headers),
    Data(Bytes),
    /// End of a part.
    PartEnd,
    /// End of all parts. The rest of the body is ignored.
    End,
}

impl Parser {
    pub(super) fn new(
        boundary: &[u8],
        max_head_bytes: usize,
        max_head_fields: usize,
    ) -> Result<Parser> {
        let is_valid = |b: &u8| matches!(b, b' '..=b'~');
        if !(1..=MAX_BOUNDARY_BYTES).contains(&boundary.len()) || !boundary.iter().all(is_valid) {
            return Err(Error::malformed("the boundary of the form is not 1 to 70 characters"));
        }
        let delimiter = [b"\r\n--", boundary].concat();
        Ok(Parser {
            delimiter: Finder::new(&delimiter).into_owned(),
            max_head_bytes: max_head_bytes.min(MAX_HEAD_BYTES),
            max_head_fields,
            state: State::Preamble,
            head: FieldSection::default(),
            searched: 0,
            // The body may begin with the first delimiter, without a CRLF before it.
            rest: Bytes::from_static(b"\r\n"),
        })
    }

    /// Appends a chunk to the input.
    pub(super) fn push(&mut self, chunk: Bytes) {
        if self.rest.is_empty() {
            self.rest = chunk;
            return;
        }
        // Appended in place where nothing else refers to the rest: a head that arrives byte by byte
        // would otherwise be copied once for each byte.
        let mut both = std::mem::take(&mut self.rest).try_into_mut().unwrap_or_else(|rest| {
            let mut both = BytesMut::with_capacity(rest.len() + chunk.len());
            both.extend_from_slice(&rest);
            both
        });
        both.extend_from_slice(&chunk);
        self.rest = both.freeze();
    }

    /// Parses the next step from the input.
    pub(super) fn step(&mut self) -> Result<Step> {
        loop {
            match self.state {
                State::Preamble => match self.data() {
                    Step::PartEnd => self.state = State::Delimiter(0),
                    Step::Data(_) => {}
                    step => return Ok(step),
                },
                State::Data => {
                    let step = self.data();
                    if let Step::PartEnd = step {
                        self.state = State::Delimiter(0);
                    }
                    return Ok(step);
                }
                State::Delimiter(space) => {
                    self.state = self.line_end(space)?;
                    if let State::Delimiter(_) = self.state {
                        return Ok(Step::Wait);
                    }
                }
                State::Head => return self.head(),
                State::End => return Ok(Step::End),
            }
        }
    }

    /// Returns the data before the next delimiter, or `PartEnd` at a delimiter.
    fn data(&mut self) -> Step {
        let delimiter = self.delimiter.needle();
        let length = match self.delimiter.find(&self.rest) {
            Some(0) => {
                self.rest.advance(delimiter.len());
                return Step::PartEnd;
            }
            Some(length) => length,
            None => self.rest.len() - partial_delimiter_len(&self.rest, delimiter),
        };
        if length == 0 { Step::Wait } else { Step::Data(self.rest.split_to(length)) }
    }

    /// Parses the rest of a delimiter line: two hyphens after the last part, otherwise white space
    /// and CRLF. White space is consumed, so that it is read once even if it arrives byte by byte.
    fn line_end(&mut self, consumed: usize) -> Result<State> {
        let more = self.rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        self.rest.advance(more);
        let space = consumed + more;
        if space > self.max_head_bytes {
            return Err(self.head_too_large());
        }
        match self.rest[..] {
            [b'-', b'-', ..] if space == 0 => Ok(State::End),
            [b'\r', b'\n', ..] => {
                self.rest.advance(2);
                Ok(State::Head)
            }
            [] | [b'\r'] => Ok(State::Delimiter(space)),
            [b'-'] if space == 0 => Ok(State::Delimiter(space)),
            _ => Err(Error::malformed("something follows a boundary of the form on its line")),
        }
    }

    /// Parses a head once another line of it is complete: a line that arrives byte by byte is not
    /// parsed once for each byte.
    fn head(&mut self) -> Result<Step> {
        let limits = Limits { request_line: 0, head: usize::MAX, fields: usize::MAX };
        let window = &self.rest[..self.rest.len().min(self.max_head_bytes)];
        let is_too_large = window.len() == self.max_head_bytes;
        let has_line = memchr(b'\n', &window[self.searched..]).is_some();
        self.searched = window.len();
        let length = match has_line || is_too_large {
            true => self.head.read(window, &limits)?,
            false => None,
        };
        if self.head.fields.len() > self.max_head_fields {
            let max = self.max_head_fields;
            return Err(too_large(
                MAX_PART_FIELDS,
                format!("the head of a part has more than {max} fields"),
            ));
        }
        let Some(length) = length else {
            return if is_too_large { Err(self.head_too_large()) } else { Ok(Step::Wait) };
        };
        (self.state, self.searched) = (State::Data, 0);
        let fields = std::mem::take(&mut self.head).fields;
        Ok(Step::Head(Headers::new(self.rest.split_to(length), fields)))
    }

    fn head_too_large(&self) -> Error {
        let reason = format!("the head of a part is larger than {} bytes", self.max_head_bytes);
        too_large("FormSettings::max_part_head_bytes", reason)
    }
}

/// Returns how many bytes at the end may be the beginning of a delimiter.
fn partial_delimiter_len(bytes: &[u8], delimiter: &[u8]) -> usize {
    let max = bytes.len().min(delimiter.len() - 1);
    (1..=max).rev().find(|&length| bytes.ends_with(&delimiter[..length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    /// Parses chunks and formats the steps: `[name: value|…]` for a head, data as is, `/` for the
    /// end of a part, `.` for the end of all parts, `?` for missing input, `!` for an error.
    fn parse_all<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut parts = Parser::new(b"b-b", 40, 3).unwrap();
        let mut output = Vec::new();
        for chunk in chunks {
            parts.push(Bytes::copy_from_slice(chunk));
            loop {
                match parts.step() {
                    Ok(Step::Wait) => break,
                    Ok(Step::Head(head)) => {
                        let fields = head.iter().map(|(name, value)| {
                            format!("{name}: {}|", String::from_utf8_lossy(value))
                        });
                        output.extend(format!("[{}]", fields.collect::<String>()).bytes());
                    }
                    Ok(Step::Data(data)) => {
                        assert!(!data.is_empty());
                        output.extend(data);
                    }
                    Ok(Step::PartEnd) => output.push(b'/'),
                    Ok(Step::End) => {
                        output.push(b'.');
                        return String::from_utf8(output).unwrap();
                    }
                    Err(_) => {
                        output.push(b'!');
                        return String::from_utf8(output).unwrap();
                    }
                }
            }
        }
        output.push(b'?');
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn parses_bodies_split_at_every_byte() {
        for (body, expected) in [
            ("--b-b--", "."),
            ("--b-b--\r\n", "."),
            ("--b-b\r\n\r\n\r\n--b-b--", "[]/."),
            ("--b-b\r\na: 1\r\n\r\nx\r\n--b-b--", "[a: 1|]x/."),
            (
                "--b-b\r\na:1\r\nb:2\r\n\r\nx\r\n--b-b\r\nc:3\r\n\r\n\r\n--b-b--",
                "[a: 1|b: 2|]x/[c: 3|]/.",
            ),
            ("preamble\r\n--b-b \t\r\n\r\nx\r\n--b-b--epilogue", "[]x/."),
            ("\r\n--b-b\r\n\r\nx\r\n--b-b--", "[]x/."),
            ("--b-b\r\na:\r\nb:\r\nc:\r\n\r\nx\r\n--b-b--", "[a: |b: |c: |]x/."),
            ("--b-b\r\na:\r\nb:\r\nc:\r\nd:\r\n\r\nx\r\n--b-b--", "!"),
            ("--b-b --", "!"),
            // Data similar to a delimiter.
            (
                "--b-b\r\n\r\n--b-b\r--b-b\n--b-b--\r\n--b-\r\n-\r\n\r\n\r\r\n--b-b--",
                "[]--b-b\r--b-b\n--b-b--\r\n--b-\r\n-\r\n\r\n\r/.",
            ),
            ("--b-b\r\n\r\n\r\n--b\r\n--b-b\r\n--b-b--", "[]\r\n--b/?"),
            // Incomplete.
            ("", "?"),
            ("no boundary", "?"),
            ("x--b-b--", "?"),
            ("--b-b", "?"),
            ("--b-b-", "?"),
            ("--b-b\r", "?"),
            ("--b-b\r\na: 1\r\n", "?"),
            ("--b-b\r\n\r\nx\r\n--b-", "[]x?"),
            ("--b-b\r\n\r\nx\r\n--b-b", "[]x/?"),
            // Malformed.
            ("--b-bx\r\n\r\n\r\n--b-b--", "!"),
            ("--b-b -", "!"),
            ("--b-b-x", "!"),
            ("--b-b\n\nx\r\n--b-b--", "!"),
            ("--b-b\r\na b\r\n\r\nx\r\n--b-b--", "!"),
            ("--b-b\r\na: \0\r\n\r\nx\r\n--b-b--", "!"),
            ("--b-b\r\na: 34567890123456789012345678901234567\r\n\r\nx\r\n--b-b--", "!"),
            (
                "--b-b\r\na: 345678901234567890123456789012\r\n\r\nx\r\n--b-b--",
                "[a: 345678901234567890123456789012|]x/.",
            ),
        ] {
            let bytes = body.as_bytes();
            assert_eq!(parse_all([bytes]), expected, "{body:?}");
            for at in 0..=bytes.len() {
                assert_eq!(parse_all([&bytes[..at], &bytes[at..]]), expected, "{body:?} at {at}");
            }
            assert_eq!(parse_all(bytes.chunks(1)), expected, "{body:?} byte by byte");
        }
    }

    #[test]
    fn rejects_endless_heads_and_delimiter_lines() {
        for begin in ["--b-b", "--b-b\r\na: ", "--b-b\r\n"] {
            for filler in [" ", "a:\r\n"] {
                let filler = filler.repeat(100);
                assert_eq!(parse_all([begin.as_bytes(), filler.as_bytes()]), "!", "{begin}");
            }
        }
        let mut parts = Parser::new(b"b", 40, 3).unwrap();
        parts.push(Bytes::from(vec![b'\r'; 1_000]));
        assert!(matches!(parts.step().unwrap(), Step::Wait));
        assert!(parts.rest.len() <= 1);
    }

    /// CPU time of this thread. Other processes do not add to it.
    fn cpu_time() -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Returns the CPU time for a body that arrives byte by byte.
    fn time_of_trickle(body: &[u8]) -> Duration {
        let mut parts = Parser::new(b"b-b", MAX_HEAD_BYTES, usize::MAX).unwrap();
        let start = cpu_time();
        for &b in body {
            parts.push(Bytes::copy_from_slice(&[b]));
            while !matches!(parts.step().unwrap(), Step::Wait) {}
        }
        cpu_time() - start
    }

    /// Eight times the bytes take eight times as long, and 64 times if the cost is quadratic. A
    /// disturbed measurement is repeated; a measurement that shows linear cost is sufficient.
    #[test]
    fn cost_is_linear_in_bytes_that_arrive_one_by_one() {
        const BYTES: usize = 8_000;
        for (case, before, filler) in [
            ("delimiter line", "--b-b", " "),
            ("long field", "--b-b\r\na: ", "x"),
            ("many fields", "--b-b\r\n", "a:\r\n"),
            ("incomplete lines", "--b-b\r\n", "aaaaaaa:\r\n"),
            ("data", "--b-b\r\n\r\n", "x"),
            ("partial delimiters", "--b-b\r\n\r\n", "\r\n--b-"),
            ("preamble", "", "\r\n--b-"),
        ] {
            let body = |bytes: usize| [before, &filler.repeat(bytes / filler.len())].concat();
            let (short, long) = (body(BYTES), body(8 * BYTES));
            let ratio = || {
                let short = time_of_trickle(short.as_bytes()).as_secs_f64();
                time_of_trickle(long.as_bytes()).as_secs_f64() / short
            };
            let ratios: Vec<f64> = (0..10).map(|_| ratio()).take_while(|it| *it > 20.0).collect();
            assert!(ratios.len() < 10, "{case}: 8 times the bytes take {ratios:?} times as long");
        }
    }

    #[test]
    fn validates_boundaries() {
        for (boundary, is_valid) in [
            (&b"a"[..], true),
            (b"----WebKitFormBoundary7MA4YWxkTrZu0gW", true),
            (b"a b'()+_,-./:=?", true),
            (&[b'x'; 70], true),
            (&[b'x'; 71], false),
            (b"", false),
            (b"a\nb", false),
            (b"\xff", false),
        ] {
            assert_eq!(
                Parser::new(boundary, 40, 3).is_ok(),
                is_valid,
                "{}",
                boundary.escape_ascii()
            );
        }
    }
}
