//! The reader of a request stream (RFC 9114 §4.1).

use bytes::{Buf, Bytes, BytesMut};

use crate::http3::ErrorCode;
use crate::http3::frame::{FrameHead, MAX_HEAD_BYTES, kind};

/// Reader of the frames of a request stream. Memory: one field section, up to the limit that
/// [`new`](RequestReader::new) gets. Data is not copied.
#[derive(Debug)]
pub struct RequestReader {
    state: State,
    /// The head of a frame or a field section that is incomplete.
    buffer: BytesMut,
    max_section_bytes: usize,
    phase: Phase,
    /// Number of frames without content, not yet accounted for.
    idle_frames: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    FrameHead,
    /// Remaining bytes of a DATA frame.
    Data(u64),
    /// Size of a field section.
    Section(usize),
    /// Remaining bytes of a frame of an unknown type.
    Skipped(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    AwaitingHead,
    Content,
    Ended,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestPart {
    /// The encoded field section of the head.
    Head(Bytes),
    /// A piece of the content. It is not empty.
    Data(Bytes),
    /// The encoded field section of the trailers.
    Trailers(Bytes),
}

impl RequestReader {
    /// Creates a reader that accepts encoded field sections of this size.
    pub fn new(max_section_bytes: usize) -> RequestReader {
        RequestReader {
            state: State::FrameHead,
            buffer: BytesMut::new(),
            max_section_bytes,
            phase: Phase::AwaitingHead,
            idle_frames: 0,
        }
    }

    /// Takes the number of frames received since the last call that are part of no message: empty
    /// DATA frames, and frames of unknown types.
    pub fn take_idle_frame_count(&mut self) -> usize {
        std::mem::take(&mut self.idle_frames)
    }

    /// Reads the next part. Returns `None` when `input` is used up.
    ///
    /// # Errors
    /// The code with which the connection must be closed.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<RequestPart>, ErrorCode> {
        while !input.is_empty() {
            match self.state {
                State::FrameHead => self.read_head(input)?,
                State::Data(remaining) => {
                    let length = remaining.min(input.len() as u64) as usize;
                    self.state = match remaining - length as u64 {
                        0 => State::FrameHead,
                        rest => State::Data(rest),
                    };
                    return Ok(Some(RequestPart::Data(input.split_to(length))));
                }
                State::Skipped(remaining) => {
                    let length = remaining.min(input.len() as u64);
                    input.advance(length as usize);
                    self.state = match remaining - length {
                        0 => State::FrameHead,
                        rest => State::Skipped(rest),
                    };
                }
                State::Section(size) => {
                    if let Some(section) = self.read_section(size, input) {
                        return Ok(Some(self.on_section(section)));
                    }
                }
            }
        }
        Ok(None)
    }

    fn read_head(&mut self, input: &mut Bytes) -> Result<(), ErrorCode> {
        let before = self.buffer.len();
        let head = if before == 0 {
            FrameHead::read(input)
        } else {
            let missing = MAX_HEAD_BYTES - before;
            self.buffer.extend_from_slice(&input[..missing.min(input.len())]);
            FrameHead::read(&self.buffer)
        };
        let Some((head, length)) = head else {
            if before == 0 {
                self.buffer.extend_from_slice(input);
            }
            input.clear();
            return Ok(());
        };
        input.advance(length - before);
        self.buffer.clear();
        self.state = self.begin(head)?;
        if matches!(self.state, State::FrameHead | State::Skipped(_)) {
            self.idle_frames += 1;
        }
        Ok(())
    }

    /// Checks the head of a frame.
    fn begin(&self, head: FrameHead) -> Result<State, ErrorCode> {
        let unless_empty = |state| if head.length == 0 { State::FrameHead } else { state };
        match head.kind {
            kind::DATA if self.phase == Phase::Content => {
                Ok(unless_empty(State::Data(head.length)))
            }
            // An empty field section is not valid: it has a prefix of two bytes.
            kind::HEADERS if self.phase != Phase::Ended && head.length < 2 => {
                Err(ErrorCode::QPACK_DECOMPRESSION_FAILED)
            }
            kind::HEADERS if self.phase != Phase::Ended => match usize::try_from(head.length) {
                Ok(length) if length <= self.max_section_bytes => Ok(State::Section(length)),
                _ => Err(ErrorCode::EXCESSIVE_LOAD),
            },
            kind::DATA
            | kind::HEADERS
            | kind::CANCEL_PUSH
            | kind::SETTINGS
            | kind::PUSH_PROMISE
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH => Err(ErrorCode::FRAME_UNEXPECTED),
            other if kind::is_of_http2(other) => Err(ErrorCode::FRAME_UNEXPECTED),
            _ => Ok(unless_empty(State::Skipped(head.length))),
        }
    }

    /// Reads a field section, without a copy if the input has all of it.
    fn read_section(&mut self, size: usize, input: &mut Bytes) -> Option<Bytes> {
        if self.buffer.is_empty() && input.len() >= size {
            return Some(input.split_to(size));
        }
        let part = input.split_to((size - self.buffer.len()).min(input.len()));
        self.buffer.extend_from_slice(&part);
        (self.buffer.len() == size).then(|| std::mem::take(&mut self.buffer).freeze())
    }

    fn on_section(&mut self, section: Bytes) -> RequestPart {
        self.state = State::FrameHead;
        match self.phase {
            Phase::AwaitingHead => {
                self.phase = Phase::Content;
                RequestPart::Head(section)
            }
            Phase::Content | Phase::Ended => {
                self.phase = Phase::Ended;
                RequestPart::Trailers(section)
            }
        }
    }

    /// Number of bytes of an incomplete field section that are held.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Returns true if the head was read.
    pub fn has_head(&self) -> bool {
        self.phase != Phase::AwaitingHead
    }

    /// Processes the end of the stream.
    ///
    /// # Errors
    /// [`FRAME_ERROR`](ErrorCode::FRAME_ERROR) closes the connection: the stream ended within a
    /// frame (§7.1). [`REQUEST_INCOMPLETE`](ErrorCode::REQUEST_INCOMPLETE) ends the stream: it has
    /// no head.
    pub fn end(&self) -> Result<(), ErrorCode> {
        if self.state != State::FrameHead || !self.buffer.is_empty() {
            return Err(ErrorCode::FRAME_ERROR);
        }
        if self.has_head() { Ok(()) } else { Err(ErrorCode::REQUEST_INCOMPLETE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a stream in pieces of `size` bytes; adjacent data is joined.
    fn parts(input: &[u8], size: usize) -> Result<Vec<RequestPart>, ErrorCode> {
        let (mut reader, mut parts) = (RequestReader::new(100), Vec::new());
        for piece in input.chunks(size) {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(part) = reader.next(&mut piece)? {
                match (parts.last_mut(), part) {
                    (Some(RequestPart::Data(last)), RequestPart::Data(data)) => {
                        *last = [&last[..], &data].concat().into();
                    }
                    (_, part) => parts.push(part),
                }
            }
        }
        reader.end().map(|()| parts)
    }

    #[test]
    fn reads_requests_in_pieces_of_any_size() {
        let input = [
            &[0x21, 2, 0, 0][..], // a reserved type
            b"\x01\x04head",
            b"\x00\x05hello\x40\x21\x00", // a reserved type in a longer form
            b"\x00\x00\x00\x40\x06 world",
            b"\x01\x08trailers",
            &[0x21, 1, 7],
        ]
        .concat();
        let expected = [
            RequestPart::Head(Bytes::from_static(b"head")),
            RequestPart::Data(Bytes::from_static(b"hello world")),
            RequestPart::Trailers(Bytes::from_static(b"trailers")),
        ];
        for size in 1..=input.len() {
            assert_eq!(parts(&input, size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn rejects_frames_that_are_not_permitted() {
        for (input, code) in [
            (&b"\x00\x01a"[..], ErrorCode::FRAME_UNEXPECTED),
            (b"\x01\x02ab\x01\x02cd\x00\x01a", ErrorCode::FRAME_UNEXPECTED),
            (b"\x01\x02ab\x01\x02cd\x01\x02ef", ErrorCode::FRAME_UNEXPECTED),
            (b"\x01\x02ab\x04\x00", ErrorCode::FRAME_UNEXPECTED),
            (b"\x01\x02ab\x05\x00", ErrorCode::FRAME_UNEXPECTED),
            (b"\x01\x02ab\x08\x00", ErrorCode::FRAME_UNEXPECTED),
            (b"\x07\x01\x00", ErrorCode::FRAME_UNEXPECTED),
            (b"\x01\x00", ErrorCode::QPACK_DECOMPRESSION_FAILED),
            (b"\x01\x40\x65", ErrorCode::EXCESSIVE_LOAD),
            (b"\x01\xff\xff\xff\xff\xff\xff\xff\xff", ErrorCode::EXCESSIVE_LOAD),
            (b"\x01\x02a", ErrorCode::FRAME_ERROR),
            (b"\x01\x02ab\x00\x02a", ErrorCode::FRAME_ERROR),
            (b"\x01\x02ab\x00", ErrorCode::FRAME_ERROR),
            (b"\x21\x02a", ErrorCode::FRAME_ERROR),
            (b"\x21\x01a", ErrorCode::REQUEST_INCOMPLETE),
            (b"", ErrorCode::REQUEST_INCOMPLETE),
        ] {
            assert_eq!(parts(input, 1), Err(code), "{input:?}");
            assert_eq!(parts(input, 100), Err(code), "{input:?}");
        }
        let largest = [&[1, 0x40, 100][..], &[7; 100]].concat();
        assert_eq!(parts(&largest, 9).unwrap().len(), 1);
    }
}
