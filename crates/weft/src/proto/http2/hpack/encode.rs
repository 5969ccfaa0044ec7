//! Fields → a block (RFC 7541 §6).
//!
//! A field that is sent a second time goes into the client's table, and is a byte or two from
//! then on; one that never comes again leaves no trace there. Nothing is sent in the Huffman
//! code: what comes often is short already.

use std::collections::VecDeque;

use http::StatusCode;

use crate::proto::http1::compose::decimal;
use crate::proto::http2::hpack::integer;
use crate::proto::http2::hpack::table::{ENTRY_BYTES, MOST_BYTES, STATIC};

/// What the blocks of responses are made with.
pub(crate) struct Encoder {
    /// What the client's table has; the newest is the first.
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
    /// The smallest size that the table has had since the client was last told of one.
    shrunk: Option<usize>,
    /// Marks of fields that were sent lately and are not in the table.
    seen: [u32; SEEN],
    next_seen: usize,
}

struct Entry {
    mark: u32,
    text: Box<[u8]>,
    name_length: usize,
}

/// How many fields are remembered until they come again.
const SEEN: usize = 16;

/// Whether a field goes into the client's table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    AtOnce,
    /// When it comes a second time.
    Again,
    Never,
}

impl Encoder {
    pub(crate) fn new() -> Encoder {
        Encoder {
            entries: VecDeque::new(),
            size: 0,
            most: MOST_BYTES,
            shrunk: None,
            seen: [0; SEEN],
            next_seen: 0,
        }
    }

    /// The client's table may have so many bytes (RFC 9113 §4.3.1).
    pub(crate) fn resize(&mut self, most: usize) {
        let most = most.min(MOST_BYTES);
        if most != self.most {
            self.shrunk = Some(self.shrunk.unwrap_or(most).min(most));
            self.most = most;
            self.shrink(most);
        }
    }

    /// Begins a block: with the table's size, if that has changed (RFC 7541 §4.2).
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        let Some(least) = self.shrunk.take() else { return };
        if least < self.most {
            integer::write(out, 5, 0x20, least);
        }
        integer::write(out, 5, 0x20, self.most);
    }

    pub(crate) fn status(&mut self, out: &mut Vec<u8>, status: StatusCode) {
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
                return self.field(out, (b":status", digits), Keep::Again);
            }
        });
    }

    /// It is another one nearly every time: the table would be full of them.
    pub(crate) fn content_length(&mut self, out: &mut Vec<u8>, length: u64) {
        const LITERAL: [u8; 2] = [0x0f, 28 - 0x0f];
        out.extend_from_slice(&LITERAL);
        let mut digits = [0; 20];
        let start = decimal(&mut digits, length);
        string(out, &digits[start..]);
    }

    /// Appends a field.
    pub(crate) fn field(&mut self, out: &mut Vec<u8>, (name, value): (&[u8], &[u8]), keep: Keep) {
        if keep == Keep::Never {
            return literal(out, (4, 0x10), name, value);
        }
        let mark = mark(name, value);
        let is_it = |entry: &Entry| {
            entry.mark == mark && entry.text.split_at(entry.name_length) == (name, value)
        };
        if let Some(place) = self.entries.iter().position(is_it) {
            return integer::write(out, 7, 0x80, STATIC.len() + 1 + place);
        }
        if keep == Keep::AtOnce || self.was_seen(mark) {
            literal(out, (6, 0x40), name, value);
            self.insert(mark, name, value);
        } else {
            literal(out, (4, 0), name, value);
        }
    }

    fn was_seen(&mut self, mark: u32) -> bool {
        let was_seen = self.seen.contains(&mark);
        if !was_seen {
            self.seen[self.next_seen] = mark;
            self.next_seen = (self.next_seen + 1) % SEEN;
        }
        was_seen
    }

    /// Does what the client's decoder does (RFC 7541 §4.4).
    fn insert(&mut self, mark: u32, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + ENTRY_BYTES;
        self.shrink(self.most.saturating_sub(size));
        if size <= self.most {
            self.size += size;
            let (text, name_length) = ([name, value].concat().into(), name.len());
            self.entries.push_front(Entry { mark, text, name_length });
        }
    }

    fn shrink(&mut self, most: usize) {
        while self.size > most
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.text.len() + ENTRY_BYTES;
        }
    }
}

/// Appends a literal (§6.2), of the form that these bits and their number stand for.
fn literal(out: &mut Vec<u8>, (bits, form): (u32, u8), name: &[u8], value: &[u8]) {
    match STATIC.iter().position(|(known, _)| known.as_bytes() == name) {
        Some(place) => integer::write(out, bits, form, place + 1),
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

/// A number that few other fields have, of the lengths and of the last bytes, which differ the
/// most.
fn mark(name: &[u8], value: &[u8]) -> u32 {
    let last = |text: &[u8]| match text.last_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => text.iter().fold(0, |number, &b| number << 8 | u64::from(b)),
    };
    let lengths = (name.len() << 16 ^ value.len()) as u64;
    let mixed = (last(name).rotate_left(31) ^ last(value) ^ lengths.rotate_left(48))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // None is 0, which stands for nothing that was seen.
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
    fn what_comes_again_becomes_short() {
        let (mut encoder, mut decoder) = (Encoder::new(), loona_hpack::Decoder::new());
        let fields = [
            ("date", "Mon, 21 Oct 2013 20:13:21 GMT", Keep::AtOnce),
            ("content-type", "text/plain", Keep::Again),
            ("set-cookie", "a=1", Keep::Never),
            ("x-own", "something of one's own", Keep::Again),
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

    /// Whatever goes in and out of the table: an independent decoder always reads what was sent.
    #[test]
    fn both_tables_stay_the_same() {
        let (mut encoder, mut decoder) = (Encoder::new(), loona_hpack::Decoder::new());
        let mut own = crate::proto::http2::hpack::Decoder::new();
        let mut number = 7u32;
        let mut next = |most: u32| {
            number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            (number >> 16) % most
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
                let keep = [Keep::AtOnce, Keep::Again, Keep::Never][next(3) as usize];
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
