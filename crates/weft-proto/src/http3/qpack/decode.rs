//! Decoder for field sections (RFC 9204 §4.5), with the streams of both sides that belong to it.

use crate::field_coding::field_class::{FieldClass, Name};
use crate::field_coding::{
    DecodeError, Field, MAX_RETAINED_BYTES, Malformed, integer, read_string,
};
use crate::http3::ErrorCode;
use crate::http3::qpack::encoder_stream::{EncoderStream, TableWork};
use crate::http3::qpack::feedback::Feedback;
use crate::http3::qpack::static_table;
use crate::http3::qpack::table::DecoderTable;

/// Decoder for the peer's field sections. Its default has no dynamic table: no section is blocked,
/// and no feedback is sent.
///
/// With a dynamic table, a section may arrive before the insertions that it refers to. The caller
/// then keeps the section, stops to read its stream, and decodes the section again when
/// [`next_unblocked`](Decoder::next_unblocked) returns the stream.
///
/// ```
/// use weft_proto::http3::qpack::{Decoded, Decoder};
///
/// // RFC 9204 §B.2: the section arrives first, then the insertions.
/// let mut decoder = Decoder::new(220, 16);
/// let section = b"\x03\x81\x10\x11";
/// assert_eq!(decoder.decode(4, section, |_| true), Ok(Decoded::Blocked));
/// decoder.read_encoder_stream(b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path").unwrap();
/// assert_eq!(decoder.next_unblocked(), Some(4));
///
/// let mut values = Vec::new();
/// let decoded = decoder.decode(4, section, |field| {
///     values.push(field.value.to_vec());
///     true
/// });
/// assert_eq!(decoded, Ok(Decoded::Complete));
/// assert_eq!(values, [&b"www.example.com"[..], b"/sample/path"]);
///
/// // The acknowledgment of the section, for the decoder stream.
/// assert_eq!(decoder.feedback().unwrap(), b"\x84");
/// decoder.on_feedback_sent(1);
/// ```
#[derive(Debug)]
pub struct Decoder {
    table: DecoderTable,
    encoder_stream: EncoderStream,
    feedback: Feedback,
    blocked: Vec<BlockedStream>,
    max_blocked_streams: usize,
    /// Buffer for a literal.
    text: Vec<u8>,
}

/// A stream whose section waits for insertions.
#[derive(Debug)]
struct BlockedStream {
    stream: u64,
    required: u64,
}

/// The result of decoding a section without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// All fields were passed to the callback.
    Complete,
    /// The section waits for insertions. No field was passed to the callback.
    Blocked,
}

/// The prefix of a section (§4.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prefix {
    /// The Required Insert Count: all references are below it.
    required: u64,
    base: u64,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new(0, 0)
    }
}

impl Decoder {
    /// Creates a decoder with the values of SETTINGS_QPACK_MAX_TABLE_CAPACITY (bytes) and
    /// SETTINGS_QPACK_BLOCKED_STREAMS (§5). Both limit the memory: entries and one incomplete
    /// instruction take up to three times the capacity; the sections of blocked streams are kept by
    /// the caller.
    pub fn new(max_capacity: usize, max_blocked_streams: usize) -> Decoder {
        Decoder {
            table: DecoderTable::new(max_capacity),
            encoder_stream: EncoderStream::default(),
            feedback: Feedback::default(),
            blocked: Vec::new(),
            max_blocked_streams,
            text: Vec::new(),
        }
    }

    /// Calls `take` with each field of a section of a stream, until it returns false. A complete
    /// section that refers to the dynamic table is acknowledged (§4.4.1).
    ///
    /// # Errors
    /// [`Malformed`](DecodeError::Malformed) if the section is not valid QPACK, or if more streams
    /// are blocked than permitted (§2.1.2); the connection is closed with
    /// [`QPACK_DECOMPRESSION_FAILED`](ErrorCode::QPACK_DECOMPRESSION_FAILED).
    /// [`Stopped`](DecodeError::Stopped) if `take` returned false.
    pub fn decode(
        &mut self,
        stream: u64,
        mut section: &[u8],
        mut take: impl FnMut(Field<'_>) -> bool,
    ) -> Result<Decoded, DecodeError> {
        let prefix = self.prefix(&mut section)?;
        if prefix.required > self.table.insert_count() {
            self.block(stream, prefix.required)?;
            return Ok(Decoded::Blocked);
        }
        while let Some(&first) = section.first() {
            if !self.line(first, &mut section, prefix, &mut take)? {
                return Err(DecodeError::Stopped);
            }
        }
        if self.text.capacity() > MAX_RETAINED_BYTES {
            self.text = Vec::new();
        }
        if prefix.required > 0 {
            self.feedback.acknowledge(stream, prefix.required);
        }
        Ok(Decoded::Complete)
    }

    /// Reads the prefix of a section (§4.5.1).
    fn prefix(&self, section: &mut &[u8]) -> Result<Prefix, Malformed> {
        let encoded = integer::read(section, 8)?;
        let is_negative = section.first().is_some_and(|first| first & 0x80 != 0);
        let delta = integer::read(section, 7)? as u64;
        let required = self.required_insert_count(encoded as u64)?;
        let base = match is_negative {
            false => required + delta,
            true => required.checked_sub(delta + 1).ok_or(Malformed)?,
        };
        Ok(Prefix { required, base })
    }

    /// Decodes the Required Insert Count, which is sent modulo twice the number of entries
    /// (§4.5.1.1).
    fn required_insert_count(&self, encoded: u64) -> Result<u64, Malformed> {
        let max_entries = self.table.max_entries();
        let full_range = 2 * max_entries;
        let Some(offset) = encoded.checked_sub(1) else { return Ok(0) };
        if encoded > full_range {
            return Err(Malformed);
        }
        let max_value = self.table.insert_count() + max_entries;
        let required = max_value / full_range * full_range + offset;
        if required <= max_value {
            return if required > 0 { Ok(required) } else { Err(Malformed) };
        }
        required.checked_sub(full_range).filter(|required| *required > 0).ok_or(Malformed)
    }

    fn block(&mut self, stream: u64, required: u64) -> Result<(), Malformed> {
        if let Some(blocked) = self.blocked.iter_mut().find(|blocked| blocked.stream == stream) {
            blocked.required = required;
            return Ok(());
        }
        if self.blocked.len() >= self.max_blocked_streams {
            return Err(Malformed);
        }
        self.blocked.push(BlockedStream { stream, required });
        Ok(())
    }

    /// Reads a field line (§4.5.2 to §4.5.6). Returns the result of `take`.
    fn line(
        &mut self,
        first: u8,
        section: &mut &[u8],
        prefix: Prefix,
        take: &mut impl FnMut(Field<'_>) -> bool,
    ) -> Result<bool, Malformed> {
        match first {
            0xc0.. => {
                let (name, value, class) =
                    static_table::get(integer::read(section, 6)?).ok_or(Malformed)?;
                return Ok(take(Field { name: name.as_bytes(), value: value.as_bytes(), class }));
            }
            0x80.. => {
                let index = prefix.relative(integer::read(section, 6)?)?;
                return Ok(take(self.indexed(index)?));
            }
            0x10..0x20 => {
                let index = prefix.post_base(integer::read(section, 4)?)?;
                return Ok(take(self.indexed(index)?));
            }
            _ => {}
        }
        self.text.clear();
        let known = match first {
            0x40.. if first & 0x10 != 0 => {
                let (name, _, class) =
                    static_table::get(integer::read(section, 4)?).ok_or(Malformed)?;
                self.text.extend_from_slice(name.as_bytes());
                Some(class.name)
            }
            0x40.. => Some(self.take_name(prefix.relative(integer::read(section, 4)?)?)?),
            0x20.. => {
                read_string(section, 3, &mut self.text)?;
                None
            }
            _ => Some(self.take_name(prefix.post_base(integer::read(section, 3)?)?)?),
        };
        let name_length = self.text.len();
        read_string(section, 7, &mut self.text)?;
        let (name, value) = self.text.split_at(name_length);
        let class = FieldClass::new(known.unwrap_or_else(|| Name::of(name)), value);
        Ok(take(Field { name, value, class }))
    }

    /// Returns the field at an absolute index of the dynamic table.
    fn indexed(&self, index: u64) -> Result<Field<'_>, Malformed> {
        let entry = self.table.absolute(index).ok_or(Malformed)?;
        let (name, value) = entry.field();
        Ok(Field { name, value, class: entry.data })
    }

    /// Copies the name at an absolute index to `text`.
    fn take_name(&mut self, index: u64) -> Result<Name, Malformed> {
        let entry = self.table.absolute(index).ok_or(Malformed)?;
        self.text.extend_from_slice(entry.field().0);
        Ok(entry.data.name)
    }

    // -- streams of QPACK

    /// Processes input of the peer's encoder stream (§4.3), in pieces of any size. Returns the work
    /// of the instructions, for a flood limit: some of them are much shorter than their effect.
    ///
    /// # Errors
    /// [`QPACK_ENCODER_STREAM_ERROR`](ErrorCode::QPACK_ENCODER_STREAM_ERROR) closes the connection:
    /// an instruction is invalid, a capacity exceeds the maximum, or a string is longer than it.
    pub fn read_encoder_stream(&mut self, input: &[u8]) -> Result<TableWork, ErrorCode> {
        self.encoder_stream
            .read(input, &mut self.table)
            .map_err(|Malformed| ErrorCode::QPACK_ENCODER_STREAM_ERROR)
    }

    /// Removes and returns a stream whose section no longer waits for insertions.
    pub fn next_unblocked(&mut self) -> Option<u64> {
        let insert_count = self.table.insert_count();
        let index = self.blocked.iter().position(|blocked| blocked.required <= insert_count)?;
        Some(self.blocked.swap_remove(index).stream)
    }

    /// Processes a stream that was reset, or is no longer read, before all of its sections were
    /// decoded (§2.2.2.2).
    pub fn cancel(&mut self, stream: u64) {
        self.blocked.retain(|blocked| blocked.stream != stream);
        // Without a table, the encoder has no references to release.
        if self.table.max_capacity() > 0 {
            self.feedback.cancel(stream);
        }
    }

    /// Returns the unsent output of the decoder stream: acknowledgments of sections, cancellations,
    /// and the number of new insertions (§4.4).
    ///
    /// # Errors
    /// [`EXCESSIVE_LOAD`](ErrorCode::EXCESSIVE_LOAD) closes the connection: more than 8 KiB are
    /// unsent, because the peer does not read the stream.
    pub fn feedback(&mut self) -> Result<&[u8], ErrorCode> {
        self.feedback.unsent(self.table.insert_count())
    }

    /// Removes the first bytes of the [feedback](Decoder::feedback).
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn on_feedback_sent(&mut self, bytes: usize) {
        self.feedback.on_sent(bytes);
    }
}

impl Prefix {
    /// Returns the absolute index of a relative one (§3.2.5).
    fn relative(self, index: usize) -> Result<u64, Malformed> {
        let absolute = self.base.checked_sub(index as u64 + 1).ok_or(Malformed)?;
        self.required_index(absolute)
    }

    /// Returns the absolute index of an index behind the base (§3.2.6).
    fn post_base(self, index: usize) -> Result<u64, Malformed> {
        self.required_index(self.base + index as u64)
    }

    /// Checks that the Required Insert Count includes an index (§2.2.3).
    fn required_index(self, absolute: u64) -> Result<u64, Malformed> {
        if absolute < self.required { Ok(absolute) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests;
