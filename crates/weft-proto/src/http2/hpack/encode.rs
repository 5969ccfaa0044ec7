//! Encoder for field blocks (RFC 7541 §6).
//!
//! A field is inserted into the client's dynamic table when it is sent for the second time, and
//! takes one or two bytes from then on; fields that are not repeated do not occupy the table.
//! Strings are not Huffman-coded: repeated fields are short already.

use http::StatusCode;

use crate::field_coding::dynamic_table::{DynamicTable, Entry};
use crate::field_coding::integer;
use crate::http1::compose::decimal;
use crate::http2::hpack::table::{self, MAX_TABLE_BYTES, STATIC};

/// Encoder for the field blocks of responses.
#[derive(Debug)]
pub struct Encoder {
    /// Copy of the client's dynamic table, with the hash of each field.
    table: DynamicTable<u32>,
    /// Smallest table size since the last size update was sent.
    min_size: Option<usize>,
    /// Hashes of recently sent fields that are not in the table, as a ring buffer.
    recent: [u32; RECENT_FIELDS],
    next_recent: usize,
}

/// Number of recently sent fields that are checked for repetition.
const RECENT_FIELDS: usize = 16;

/// Indexing of a field in the client's dynamic table (RFC 7541 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// Inserted when first sent.
    Immediate,
    /// Inserted when sent for the second time.
    OnRepeat,
    /// Never indexed, also not by intermediaries (§6.2.3).
    Never,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// Creates an encoder with an empty dynamic table of at most 4,096 bytes.
    pub fn new() -> Encoder {
        Encoder {
            table: DynamicTable::new(MAX_TABLE_BYTES),
            min_size: None,
            recent: [0; RECENT_FIELDS],
            next_recent: 0,
        }
    }

    /// Applies the client's SETTINGS_HEADER_TABLE_SIZE (RFC 9113 §4.3.1).
    pub fn resize(&mut self, max_size: usize) {
        let max_size = max_size.min(MAX_TABLE_BYTES);
        if max_size != self.table.max_size() {
            self.min_size = Some(self.min_size.unwrap_or(max_size).min(max_size));
            self.table.resize(max_size);
        }
    }

    /// Begins a block. Appends size updates if the table size has changed (RFC 7541 §4.2).
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        let Some(min_size) = self.min_size.take() else { return };
        let max_size = self.table.max_size();
        if min_size < max_size {
            integer::write(out, 5, 0x20, min_size);
        }
        integer::write(out, 5, 0x20, max_size);
    }

    /// Appends the `:status` pseudo-header field.
    pub fn status(&mut self, out: &mut Vec<u8>, status: StatusCode) {
        out.push(match status.as_u16() {
            200 => 0x88,
            204 => 0x89,
            206 => 0x8a,
            304 => 0x8b,
            400 => 0x8c,
            404 => 0x8d,
            500 => 0x8e,
            _ => {
                let digits = status.as_str().as_bytes();
                return self.field(out, (b":status", digits), Indexing::OnRepeat);
            }
        });
    }

    /// Appends `content-length`. It is not indexed: the values differ, and would fill the table.
    pub fn content_length(&mut self, out: &mut Vec<u8>, length: u64) {
        const LITERAL: [u8; 2] = [0x0f, 28 - 0x0f];
        out.extend_from_slice(&LITERAL);
        let mut digits = [0; 20];
        let start = decimal(&mut digits, length);
        string(out, &digits[start..]);
    }

    /// Appends a field: its name in lowercase, and its value.
    pub fn field(&mut self, out: &mut Vec<u8>, (name, value): (&[u8], &[u8]), keep: Indexing) {
        if keep == Indexing::Never {
            return literal(out, (4, 0x10), name, value);
        }
        let hash = hash(name, value);
        let is_same = |entry: &Entry<u32>| entry.data == hash && entry.field() == (name, value);
        if let Some(index) = table::position(&self.table, is_same) {
            return integer::write(out, 7, 0x80, index);
        }
        if keep == Indexing::Immediate || self.is_repeated(hash) {
            literal(out, (6, 0x40), name, value);
            self.table.insert(name, value, hash);
        } else {
            literal(out, (4, 0), name, value);
        }
    }

    /// Returns true if the field was sent recently; otherwise records it.
    fn is_repeated(&mut self, hash: u32) -> bool {
        let is_repeated = self.recent.contains(&hash);
        if !is_repeated {
            self.recent[self.next_recent] = hash;
            self.next_recent = (self.next_recent + 1) % RECENT_FIELDS;
        }
        is_repeated
    }
}

/// Appends a literal (§6.2). `form` is the pattern of its representation, and `bits` the length of
/// the index prefix.
fn literal(out: &mut Vec<u8>, (bits, form): (u32, u8), name: &[u8], value: &[u8]) {
    match STATIC.iter().position(|(static_name, _)| static_name.as_bytes() == name) {
        Some(index) => integer::write(out, bits, form, index + 1),
        None => {
            out.push(form);
            string(out, name);
        }
    }
    string(out, value);
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    integer::write(out, 7, 0, text.len());
    out.extend_from_slice(text);
}

/// Hashes a field by the lengths and the last bytes of name and value, which differ the most.
fn hash(name: &[u8], value: &[u8]) -> u32 {
    let last = |text: &[u8]| match text.last_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => text.iter().fold(0, |number, &b| number << 8 | u64::from(b)),
    };
    let lengths = (name.len() << 16 ^ value.len()) as u64;
    let mixed = (last(name).rotate_left(31) ^ last(value) ^ lengths.rotate_left(48))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Never 0, which marks an empty slot of `recent`.
    (mixed >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(decoder: &mut loona_hpack::Decoder<'_>, block: &[u8]) -> Vec<(String, String)> {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let fields = decoder.decode(block).unwrap().into_iter();
        fields.map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn repeated_fields_are_indexed() {
        let (mut encoder, mut decoder) = (Encoder::new(), loona_hpack::Decoder::new());
        let fields = [
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT", Indexing::Immediate),
            ("content-type", "text/plain", Indexing::OnRepeat),
            ("set-cookie", "a=1", Indexing::Never),
            ("x-own", "something of one's own", Indexing::OnRepeat),
        ];
        let mut lengths = Vec::new();
        for _ in 0..4 {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            encoder.status(&mut block, StatusCode::OK);
            for (name, value, keep) in fields {
                encoder.field(&mut block, (name.as_bytes(), value.as_bytes()), keep);
            }
            encoder.content_length(&mut block, 1_234);
            lengths.push(block.len());
            let expected: Vec<_> = [(":status".to_owned(), "200".to_owned())]
                .into_iter()
                .chain(fields.map(|(name, value, _)| (name.to_owned(), value.to_owned())))
                .chain([("content-length".to_owned(), "1234".to_owned())])
                .collect();
            assert_eq!(decoded(&mut decoder, &block), expected);
        }
        assert_eq!(lengths, [88, 57, 17, 17]);
    }

    /// An independent decoder decodes the same fields after any sequence of insertions and
    /// evictions.
    #[test]
    fn encoder_and_decoder_tables_stay_in_sync() {
        let (mut encoder, mut decoder) = (Encoder::new(), loona_hpack::Decoder::new());
        let mut own = crate::http2::hpack::Decoder::new();
        let mut number = 7u32;
        let mut next = |bound: u32| {
            number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            (number >> 16) % bound
        };
        for round in 0..3_000 {
            if round % 97 == 0 {
                for _ in 0..next(3) {
                    encoder.resize(next(5_000) as usize);
                }
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            let status = StatusCode::from_u16(200 + next(300) as u16).unwrap();
            encoder.status(&mut block, status);
            let mut expected = vec![(":status".to_owned(), status.as_str().to_owned())];
            for _ in 0..next(8) {
                let name = ["server", "etag", "x-a", "x-bcd"][next(4) as usize];
                let value = "v".repeat(next(400) as usize % 130) + &next(5).to_string();
                let keep =
                    [Indexing::Immediate, Indexing::OnRepeat, Indexing::Never][next(3) as usize];
                encoder.field(&mut block, (name.as_bytes(), value.as_bytes()), keep);
                expected.push((name.to_owned(), value));
            }
            assert_eq!(decoded(&mut decoder, &block), expected, "{round}");
            let mut fields = Vec::new();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            own.decode(&block, |field| {
                fields.push((text(field.name), text(field.value)));
                true
            })
            .unwrap();
            assert_eq!(fields, expected, "{round}");
        }
    }
}
