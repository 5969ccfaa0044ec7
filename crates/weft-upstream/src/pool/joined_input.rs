//! The input of a connection. DATA frames of a stream that follow each other are joined.
//!
//! A call of gRPC has a frame for each of its small messages. The crate `h2` takes several times as
//! long for a frame as for its content: it locks the connection, finds the stream, keeps an entry
//! for the frame and grants its window. Therefore the frames of a stream that one read returns are
//! joined in place before `h2` reads them. No frame waits for another one: the last frame of a read
//! is passed on as far as it was received.

use std::io;

use bytes::buf::Limit;
use bytes::{Buf, BufMut, BytesMut};
use tokio::io::ReadBuf;
use weft_proto::http2::frame::{FRAME_HEADER_LEN, FrameHeader, MAX_FRAME_PAYLOAD, flag, kind};

/// Size of a read, in bytes.
const READ_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct JoinedInput {
    buffer: BytesMut,
    /// Number of bytes at the beginning of `buffer` that can be taken.
    ready: usize,
    /// Number of bytes that are missing from the last frame.
    missing: usize,
}

impl JoinedInput {
    /// Returns the space for a read. After the read, `on_received` has to be called.
    pub(crate) fn space(&mut self) -> Limit<&mut BytesMut> {
        self.buffer.reserve(READ_BYTES);
        (&mut self.buffer).limit(READ_BYTES)
    }

    /// Returns true if there is nothing to take.
    pub(crate) fn is_taken(&self) -> bool {
        self.ready == 0
    }

    /// Moves bytes to `buf`.
    pub(crate) fn take(&mut self, buf: &mut ReadBuf<'_>) {
        let length = self.ready.min(buf.remaining());
        buf.put_slice(&self.buffer[..length]);
        self.buffer.advance(length);
        self.ready -= length;
    }

    /// Frees the buffer if it is empty: a connection that waits owns none.
    pub(crate) fn free_memory(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// Makes the rest of the input available at its end, though it is no frame.
    pub(crate) fn on_end(&mut self) {
        self.ready = self.buffer.len();
    }

    /// Joins the frames that were received after everything was taken. The header of a frame is
    /// kept until it is complete. Calls `on_frame` with each header.
    ///
    /// # Errors
    /// Of `on_frame`: nothing more can be taken.
    pub(crate) fn on_received(
        &mut self,
        mut on_frame: impl FnMut(FrameHeader) -> io::Result<()>,
    ) -> io::Result<()> {
        let input = &mut self.buffer[..];
        let mut read = self.missing.min(input.len());
        self.missing -= read;
        let mut written = read;
        // The position of the last header that was written, if its frame can be continued.
        let mut last: Option<(usize, FrameHeader)> = None;
        while let Some(header) = input[read..].first_chunk() {
            let header = FrameHeader::read(header);
            on_frame(header)?;
            let end = read + FRAME_HEADER_LEN + header.length;
            let is_complete = end <= input.len();
            let joined = last.and_then(|(at, last)| Some((at, join(last, header)?)));
            let start = match joined.filter(|_| is_complete) {
                Some((at, joined)) => {
                    input[at..at + FRAME_HEADER_LEN].copy_from_slice(&joined.bytes());
                    last = may_continue(joined).then_some((at, joined));
                    read + FRAME_HEADER_LEN
                }
                None => {
                    last = (is_complete && may_continue(header)).then_some((written, header));
                    read
                }
            };
            read = end.min(input.len());
            self.missing = end - read;
            written = move_to(input, start, read, written);
        }
        let kept = input.len() - read;
        move_to(input, read, input.len(), written);
        self.buffer.truncate(written + kept);
        self.ready = written;
        Ok(())
    }
}

/// Returns true if the content of another frame can be appended.
fn may_continue(header: FrameHeader) -> bool {
    header.kind == kind::DATA && header.flags == 0 && header.length > 0
}

/// Returns the header of the content of two frames, unless they have to remain two. Empty frames
/// remain, because `h2` counts them, and so does padding, which the window includes.
fn join(first: FrameHeader, second: FrameHeader) -> Option<FrameHeader> {
    let length = first.length + second.length;
    let is_end = second.flags == flag::END_STREAM;
    let is_content = second.kind == kind::DATA && (may_continue(second) || is_end);
    let is_same_stream = first.stream == second.stream;
    (is_content && is_same_stream && length <= MAX_FRAME_PAYLOAD).then_some(FrameHeader {
        length,
        flags: second.flags,
        ..first
    })
}

/// Moves `input[start..end]` to the position `to`, and returns the end there.
fn move_to(input: &mut [u8], start: usize, end: usize, to: usize) -> usize {
    if start != to {
        input.copy_within(start..end, to);
    }
    to + end - start
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: u32 = 1;

    type Frames<'a> = &'a [&'a [u8]];

    fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
        let header = FrameHeader { length: content.len(), kind, flags, stream };
        [&header.bytes(), content].concat()
    }

    fn data(content: &[u8]) -> Vec<u8> {
        frame(kind::DATA, 0, STREAM, content)
    }

    /// Returns the output for input that arrives in these reads.
    fn joined(reads: &[&[u8]]) -> Vec<u8> {
        let mut input = JoinedInput::default();
        let mut output = Vec::new();
        let mut take = |input: &mut JoinedInput| {
            while !input.is_taken() {
                let mut bytes = [0; 1_000];
                let mut buf = ReadBuf::new(&mut bytes);
                input.take(&mut buf);
                output.extend_from_slice(buf.filled());
            }
        };
        for read in reads {
            input.space().put_slice(read);
            input.on_received(|_| Ok(())).unwrap();
            take(&mut input);
        }
        input.on_end();
        take(&mut input);
        input.free_memory();
        assert_eq!(input.buffer.capacity(), 0);
        output
    }

    #[test]
    fn joins_data_frames_of_a_stream() {
        let end = flag::END_STREAM;
        let head = frame(kind::HEADERS, 4, STREAM, b"head");
        let trailers = frame(kind::HEADERS, 5, STREAM, b"trailers");
        let other = frame(kind::DATA, 0, 3, b"other");
        let padded = frame(kind::DATA, flag::PADDED, STREAM, b"\x01c\0");
        let reserved = frame(kind::DATA, 0, STREAM | 1 << 31, b"b");
        let cases: &[(Frames, Frames)] = &[
            (&[&data(b"a"), &data(b"bc"), &data(b"d")], &[&data(b"abcd")]),
            (&[&data(b"a"), &reserved], &[&data(b"ab")]),
            (&[&head, &data(b"a"), &data(b"b"), &trailers], &[&head, &data(b"ab"), &trailers]),
            (&[&data(b"a"), &frame(0, end, STREAM, b"b")], &[&frame(0, end, STREAM, b"ab")]),
            (&[&data(b"a"), &frame(0, end, STREAM, b"")], &[&frame(0, end, STREAM, b"a")]),
            // Content behind the end of a stream is an error, which remains.
            (
                &[&data(b"a"), &frame(0, end, STREAM, b"b"), &data(b"c")],
                &[&frame(0, end, STREAM, b"ab"), &data(b"c")],
            ),
            (&[&data(b"a"), &other, &data(b"b")], &[&data(b"a"), &other, &data(b"b")]),
            (&[&data(b"a"), &head, &data(b"b")], &[&data(b"a"), &head, &data(b"b")]),
            (&[&data(b"a"), &padded, &data(b"b")], &[&data(b"a"), &padded, &data(b"b")]),
            (&[&data(b""), &data(b""), &data(b"a")], &[&data(b""), &data(b""), &data(b"a")]),
            (&[&data(b"a"), &data(b""), &data(b"b")], &[&data(b"a"), &data(b""), &data(b"b")]),
            // Frames of the maximum size.
            (
                &[&data(&[1; 10_000]), &data(&[1; 6_384]), &data(b"a"), &data(b"b")],
                &[&data(&[1; 16_384]), &data(b"ab")],
            ),
            (
                &[&data(&[1; 10_000]), &data(&[1; 6_385])],
                &[&data(&[1; 10_000]), &data(&[1; 6_385])],
            ),
        ];
        for (input, output) in cases {
            assert_eq!(joined(&[&input.concat()]), output.concat(), "{input:?}");
        }
    }

    /// The bytes that are no frames reach `h2`, which reports them.
    #[test]
    fn passes_on_whatever_was_received() {
        let frames = [data(b"a"), data(b"b"), data(&[7; 300]), frame(9, 0, 3, b"c")].concat();
        for length in 0..frames.len() {
            let (first, second) = frames.split_at(length);
            // The last frame of a read is not continued.
            let output = joined(&[first, second]);
            let content = |mut bytes: &[u8]| {
                let mut content = Vec::new();
                while let Some((header, rest)) = bytes.split_first_chunk() {
                    let (payload, rest) = rest.split_at(FrameHeader::read(header).length);
                    content.extend_from_slice(payload);
                    bytes = rest;
                }
                content
            };
            assert_eq!(content(&output), content(&frames), "{length}");
            let cut = joined(&[first]);
            assert_eq!(cut.last(), first.last(), "{length}");
        }
        for text in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 100], b"", b"a"] {
            assert_eq!(joined(&[text]), text);
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            assert_eq!(joined(&bytes), text);
        }
    }

    /// The messages of a stream are passed on without a wait for more of them.
    #[test]
    fn a_frame_waits_for_no_other() {
        let mut input = JoinedInput::default();
        for (received, available) in [(&data(b"abc")[..8], 0), (&data(b"abc")[8..], 12)] {
            input.space().put_slice(received);
            input.on_received(|_| Ok(())).unwrap();
            assert_eq!(input.ready, available);
        }
        let mut bytes = [0; 20];
        input.take(&mut ReadBuf::new(&mut bytes));
        assert!(input.is_taken());
        // The part of a frame that was received is available as well.
        input.space().put_slice(&data(b"abc")[..10]);
        input.on_received(|_| Ok(())).unwrap();
        assert_eq!((input.ready, input.missing), (10, 2));
    }
}
