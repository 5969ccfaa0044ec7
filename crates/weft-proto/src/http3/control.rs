//! The reader of a client's control stream (RFC 9114 §6.2.1, §7.2).

use bytes::{Buf, Bytes};

use crate::http3::ErrorCode;
use crate::http3::frame::{self, FrameHead, MAX_HEAD_BYTES, kind, setting};

/// Reader of the frames of a control stream, behind the type of the stream. Memory: one frame of at
/// most 4 KiB.
#[derive(Debug, Default)]
pub struct ControlReader {
    buffer: Vec<u8>,
    /// Number of bytes of an unknown frame that are not skipped yet.
    skipped: u64,
    has_settings: bool,
    /// The identifier of the last GOAWAY, which must not increase.
    goaway: Option<u64>,
    max_push_id: Option<u64>,
    /// Number of frames that were received, not yet accounted for.
    frames: usize,
}

/// A frame of a control stream that has an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlFrame {
    /// The parameters of the client, as identifiers and values.
    Settings(Vec<(u64, u64)>),
    /// The client opens no more pushes, and ends the connection.
    GoAway,
    /// The priority of a request: the identifier of its stream, and a priority field value
    /// (RFC 9218 §7.2).
    PriorityUpdate(u64, Vec<u8>),
}

/// Maximum size of a frame that is not skipped.
const MAX_FRAME_BYTES: usize = 4 << 10;

/// Maximum number of parameters.
const MAX_SETTINGS: usize = 64;

impl ControlReader {
    /// Reads the next frame that has an effect. Returns `None` when `input` is used up.
    ///
    /// # Errors
    /// The code with which the connection must be closed.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<ControlFrame>, ErrorCode> {
        loop {
            let skipped = self.skipped.min(input.len() as u64);
            input.advance(skipped as usize);
            self.skipped -= skipped;
            if input.is_empty() {
                return Ok(None);
            }
            let Some((head, payload)) = self.take_frame(input)? else { continue };
            if let Some(frame) = self.on_frame(head, &payload)? {
                return Ok(Some(frame));
            }
        }
    }

    /// Takes the number of frames received since the last call, including frames without
    /// effect.
    pub fn take_frame_count(&mut self) -> usize {
        std::mem::take(&mut self.frames)
    }

    /// Moves input to the buffer until it holds one frame. Returns `None` if more input is needed,
    /// or the frame is skipped.
    fn take_frame(&mut self, input: &mut Bytes) -> Result<Option<(FrameHead, Vec<u8>)>, ErrorCode> {
        let length = match FrameHead::read(&self.buffer) {
            None => {
                let missing = MAX_HEAD_BYTES - self.buffer.len();
                let before = self.buffer.len();
                self.buffer.extend_from_slice(&input[..missing.min(input.len())]);
                let Some((head, length)) = FrameHead::read(&self.buffer) else {
                    input.clear();
                    return Ok(None);
                };
                input.advance(length - before);
                self.buffer.truncate(length);
                if self.begin(head)? {
                    return Ok(None);
                }
                length
            }
            Some((_, length)) => length,
        };
        let Some((head, _)) = FrameHead::read(&self.buffer) else { return Ok(None) };
        let missing = length + head.length as usize - self.buffer.len();
        let part = input.split_to(missing.min(input.len()));
        self.buffer.extend_from_slice(&part);
        if part.len() < missing {
            return Ok(None);
        }
        let payload = self.buffer.split_off(length);
        self.buffer.clear();
        Ok(Some((head, payload)))
    }

    /// Checks the head of a frame. Returns true if the frame is skipped.
    fn begin(&mut self, head: FrameHead) -> Result<bool, ErrorCode> {
        self.frames += 1;
        if !self.has_settings && head.kind != kind::SETTINGS {
            return Err(ErrorCode::MISSING_SETTINGS);
        }
        match head.kind {
            kind::SETTINGS if self.has_settings => Err(ErrorCode::FRAME_UNEXPECTED),
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => Err(ErrorCode::FRAME_UNEXPECTED),
            other if kind::is_of_http2(other) => Err(ErrorCode::FRAME_UNEXPECTED),
            // No push was promised that could have a priority (RFC 9218 §7.2).
            kind::PRIORITY_UPDATE_PUSH => Err(ErrorCode::ID_ERROR),
            kind::SETTINGS
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::CANCEL_PUSH
            | kind::PRIORITY_UPDATE => match head.length > MAX_FRAME_BYTES as u64 {
                true => Err(ErrorCode::EXCESSIVE_LOAD),
                false => Ok(false),
            },
            _ => {
                self.buffer.clear();
                self.skipped = head.length;
                Ok(true)
            }
        }
    }

    fn on_frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<ControlFrame>, ErrorCode> {
        match head.kind {
            kind::SETTINGS => {
                self.has_settings = true;
                Ok(Some(ControlFrame::Settings(settings(payload)?)))
            }
            kind::GOAWAY => {
                let id = only_varint(payload)?;
                if self.goaway.is_some_and(|last| id > last) {
                    return Err(ErrorCode::ID_ERROR);
                }
                self.goaway = Some(id);
                Ok(Some(ControlFrame::GoAway))
            }
            kind::MAX_PUSH_ID => {
                let id = only_varint(payload)?;
                if self.max_push_id.is_some_and(|last| id < last) {
                    return Err(ErrorCode::ID_ERROR);
                }
                self.max_push_id = Some(id);
                Ok(None)
            }
            // No push was promised that could be cancelled.
            kind::CANCEL_PUSH => only_varint(payload).and(Err(ErrorCode::ID_ERROR)),
            _ => {
                let (stream, length) = frame::varint(payload).ok_or(ErrorCode::FRAME_ERROR)?;
                // Only requests have a priority (RFC 9218 §7.2).
                if stream % 4 != 0 {
                    return Err(ErrorCode::ID_ERROR);
                }
                Ok(Some(ControlFrame::PriorityUpdate(stream, payload[length..].to_vec())))
            }
        }
    }
}

/// Reads a payload that is one integer.
fn only_varint(payload: &[u8]) -> Result<u64, ErrorCode> {
    match frame::varint(payload) {
        Some((value, length)) if length == payload.len() => Ok(value),
        _ => Err(ErrorCode::FRAME_ERROR),
    }
}

/// Reads the parameters of a SETTINGS frame (§7.2.4).
fn settings(mut payload: &[u8]) -> Result<Vec<(u64, u64)>, ErrorCode> {
    let mut parameters: Vec<(u64, u64)> = Vec::new();
    let mut next = || -> Option<u64> {
        let (value, length) = frame::varint(payload)?;
        payload = &payload[length..];
        Some(value)
    };
    while let Some(id) = next() {
        let value = next().ok_or(ErrorCode::FRAME_ERROR)?;
        let is_repeated = parameters.iter().any(|(other, _)| *other == id);
        if is_repeated || setting::is_of_http2(id) {
            return Err(ErrorCode::SETTINGS_ERROR);
        }
        if id == setting::ENABLE_CONNECT_PROTOCOL && value > 1 {
            return Err(ErrorCode::SETTINGS_ERROR);
        }
        if parameters.len() == MAX_SETTINGS {
            return Err(ErrorCode::EXCESSIVE_LOAD);
        }
        parameters.push((id, value));
    }
    if payload.is_empty() { Ok(parameters) } else { Err(ErrorCode::FRAME_ERROR) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a control stream in pieces of `size` bytes.
    fn frames(input: &[u8], size: usize) -> Result<Vec<ControlFrame>, ErrorCode> {
        let (mut reader, mut frames) = (ControlReader::default(), Vec::new());
        for piece in input.chunks(size) {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(frame) = reader.next(&mut piece)? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn reads_frames_in_pieces_of_any_size() {
        let settings = ControlFrame::Settings(vec![(6, 300), (1, 0)]);
        let priority = ControlFrame::PriorityUpdate(4, b"u=3, i".to_vec());
        let input = [
            &[4, 5, 6, 0x41, 0x2c, 1, 0][..],
            &[0x21, 3, 1, 2, 3],   // a reserved type
            &[0x40, 0x21, 0],      // another one, in a longer form
            &[13, 1, 7, 13, 1, 7], // MAX_PUSH_ID
            &[0x80, 0x0f, 0x07, 0, 7, 4],
            b"u=3, i",
            &[7, 1, 8, 7, 1, 4],
        ]
        .concat();
        let expected = [settings, priority, ControlFrame::GoAway, ControlFrame::GoAway];
        for size in 1..=input.len() {
            assert_eq!(frames(&input, size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn frames_without_effect_are_counted() {
        let mut reader = ControlReader::default();
        for (input, count) in
            [(&b"\x04\0\x21\x01"[..], 2), (b"a\x21\0\x0d\x01", 2), (b"\x01\x21\0", 1), (b"", 0)]
        {
            let mut input = Bytes::from_static(input);
            while reader.next(&mut input).unwrap().is_some() {}
            assert_eq!(reader.take_frame_count(), count, "{input:?}");
        }
    }

    #[test]
    fn rejects_frames_that_are_not_permitted() {
        let settings = [4, 0];
        for (frame, code) in [
            (&[4, 0][..], ErrorCode::FRAME_UNEXPECTED),
            (&[0, 0], ErrorCode::FRAME_UNEXPECTED),
            (&[1, 0], ErrorCode::FRAME_UNEXPECTED),
            (&[5, 1, 0], ErrorCode::FRAME_UNEXPECTED),
            (&[2, 0], ErrorCode::FRAME_UNEXPECTED),
            (&[9, 0], ErrorCode::FRAME_UNEXPECTED),
            (&[7, 0], ErrorCode::FRAME_ERROR),
            (&[7, 2, 1, 1], ErrorCode::FRAME_ERROR),
            (&[7, 1, 4, 7, 1, 8], ErrorCode::ID_ERROR),
            (&[13, 1, 4, 13, 1, 3], ErrorCode::ID_ERROR),
            (&[3, 1, 0], ErrorCode::ID_ERROR),
            (&[7, 0x50, 1], ErrorCode::EXCESSIVE_LOAD),
            (&[0x80, 0x0f, 0x07, 0, 1, 5], ErrorCode::ID_ERROR),
            (&[0x80, 0x0f, 0x07, 0, 0], ErrorCode::FRAME_ERROR),
            (&[0x80, 0x0f, 0x07, 1, 1, 4], ErrorCode::ID_ERROR),
        ] {
            let input = [&settings, frame].concat();
            assert_eq!(frames(&input, 1), Err(code), "{frame:?}");
            assert_eq!(frames(&input, 100), Err(code), "{frame:?}");
        }
    }

    #[test]
    fn rejects_invalid_settings() {
        for (input, code) in [
            (&[7, 1, 0][..], ErrorCode::MISSING_SETTINGS),
            (&[0x21, 0], ErrorCode::MISSING_SETTINGS),
            (&[4, 1, 6], ErrorCode::FRAME_ERROR),
            (&[4, 2, 6, 0x41], ErrorCode::FRAME_ERROR),
            (&[4, 4, 6, 1, 6, 1], ErrorCode::SETTINGS_ERROR),
            (&[4, 2, 2, 1], ErrorCode::SETTINGS_ERROR),
            (&[4, 2, 8, 2], ErrorCode::SETTINGS_ERROR),
        ] {
            assert_eq!(frames(input, 1), Err(code), "{input:?}");
        }
        let many: Vec<u8> = (0..65u8).flat_map(|id| [0x40, 0x40 + id, 1]).collect();
        let frame = |payload: &[u8]| {
            let mut out = Vec::new();
            frame::head(&mut out, kind::SETTINGS, payload.len() as u64);
            [out, payload.to_vec()].concat()
        };
        assert_eq!(frames(&frame(&many), 7), Err(ErrorCode::EXCESSIVE_LOAD));
        assert!(frames(&frame(&many[..64 * 3]), 7).is_ok());
    }
}
