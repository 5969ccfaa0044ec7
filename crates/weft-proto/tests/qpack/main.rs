//! QPACK against other encoders: vectors of ls-qpack, and random sections of an encoder that
//! chooses all representations.

mod reference_encoder;

use std::collections::VecDeque;

use self::reference_encoder::ReferenceEncoder;
use weft_proto::http3::qpack::{Decoded, Decoder, Encoder};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut Decoder, stream: u64, section: &[u8]) -> Option<Fields> {
    let mut fields = Fields::new();
    let decoded = decoder.decode(stream, section, |field| {
        fields.push((field.name.to_vec(), field.value.to_vec()));
        true
    });
    match decoded.unwrap_or_else(|error| panic!("{error} in stream {stream}: {section:x?}")) {
        Decoded::Complete => Some(fields),
        Decoded::Blocked => None,
    }
}

#[test]
fn decodes_requests_that_ls_qpack_has_encoded() {
    let mut sections = 0;
    for connection in include_str!("ls-qpack.txt").split("\n== ").skip(1) {
        let mut lines = connection.lines();
        let name = lines.next().unwrap();
        let mut decoder = Decoder::default();
        let mut pending: Option<(u64, Vec<u8>)> = None;
        let (mut expected, mut decoded) = (Fields::new(), Fields::new());
        for line in lines.chain(["end"]) {
            let mut words = line.split(' ');
            let word = words.next().unwrap();
            if !["table", "encoder", "section", "blocked", "end"].contains(&word) {
                let (name, value) = line[1..].split_once(": ").unwrap();
                expected.push((unescape(&format!("{}{name}", &line[..1])), unescape(value)));
                continue;
            }
            if word != "encoder" {
                assert_eq!(decoded, expected, "{name}");
                expected.clear();
                decoded.clear();
            }
            match word {
                "table" => {
                    let mut number = || words.next().unwrap().parse().unwrap();
                    decoder = Decoder::new(number(), number());
                }
                "encoder" => {
                    // In pieces: instructions cross their borders.
                    for piece in hex(words.next().unwrap()).chunks(7) {
                        decoder.read_encoder_stream(piece).unwrap();
                    }
                    assert_eq!(decoder.next_unblocked(), pending.as_ref().map(|(id, _)| *id));
                    if let Some((stream, section)) = pending.take() {
                        decoded = decode(&mut decoder, stream, &section).unwrap();
                    }
                }
                "end" => {}
                _ => {
                    let stream = words.next().unwrap().parse().unwrap();
                    let section = hex(words.next().unwrap());
                    sections += 1;
                    match decode(&mut decoder, stream, &section) {
                        Some(fields) => decoded = fields,
                        None => pending = Some((stream, section)),
                    }
                    assert_eq!(pending.is_some(), word == "blocked", "{name}");
                }
            }
        }
    }
    assert_eq!(sections, 41);
}

fn hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Replaces `\xNN` by the byte.
fn unescape(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.extend(hex(&part[..2]));
        bytes.extend(&part.as_bytes()[2..]);
    }
    bytes
}

/// The peer of a decoder under test. Sections and the encoder stream arrive in a random order.
struct Peer {
    encoder: ReferenceEncoder,
    decoder: Decoder,
    /// Output of the encoder stream that has not arrived.
    instructions: VecDeque<u8>,
    blocked: Vec<(u64, Vec<u8>, Fields)>,
    inserted: u64,
    decoded: usize,
}

impl Peer {
    fn new(capacity: usize) -> Peer {
        let (encoder, instructions) = ReferenceEncoder::new(4_096, capacity);
        Peer {
            encoder,
            decoder: Decoder::new(4_096, 1_000),
            instructions: instructions.into(),
            blocked: Vec::new(),
            inserted: 0,
            decoded: 0,
        }
    }

    fn send(&mut self, stream: u64, fields: Fields, choose: impl FnMut() -> u8) {
        let (instructions, section) = self.encoder.encode(stream, &fields, choose);
        self.instructions.extend(instructions);
        match decode(&mut self.decoder, stream, &section) {
            Some(decoded) => {
                assert_eq!(decoded, fields);
                self.decoded += 1;
            }
            None => self.blocked.push((stream, section, fields)),
        }
    }

    /// Passes some bytes of the encoder stream to the decoder, and its feedback to the encoder.
    fn deliver(&mut self, bytes: usize) {
        let bytes = bytes.min(self.instructions.len());
        let piece: Vec<u8> = self.instructions.drain(..bytes).collect();
        self.decoder.read_encoder_stream(&piece).unwrap();
        while let Some(stream) = self.decoder.next_unblocked() {
            let at = self.blocked.iter().position(|(blocked, ..)| *blocked == stream).unwrap();
            let (_, section, fields) = self.blocked.swap_remove(at);
            assert_eq!(decode(&mut self.decoder, stream, &section), Some(fields));
            self.decoded += 1;
        }
        let feedback = self.decoder.feedback().unwrap().to_vec();
        self.decoder.on_feedback_sent(feedback.len());
        let mut feedback = &feedback[..];
        while let Some(first) = feedback.first() {
            match first {
                0x80.. => self.encoder.on_acknowledged(integer(&mut feedback, 7)),
                0x40.. => panic!("no stream was cancelled"),
                _ => self.inserted += integer(&mut feedback, 6),
            }
        }
    }
}

fn integer(input: &mut &[u8], bits: u32) -> u64 {
    let max = (1 << bits) - 1;
    let mut value = u64::from(input[0]) & max;
    let mut length = 1;
    if value == max {
        loop {
            value += u64::from(input[length] & 0x7f) << (7 * (length - 1));
            length += 1;
            if input[length - 1] < 0x80 {
                break;
            }
        }
    }
    *input = &input[length..];
    value
}

#[test]
fn decodes_random_sections_in_any_order_of_arrival() {
    let mut number = 5u32;
    let mut next = move |bound: u32| {
        number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        (number >> 16) % bound
    };
    for capacity in [0, 40, 100, 500, 4_096] {
        let mut peer = Peer::new(capacity);
        for stream in 0..2_000 {
            let fields = (0..next(8)).map(|_| {
                let name = ["a", "user-agent", "x-bcd", "cookie"][next(4) as usize];
                let value = "v".repeat(next(60) as usize / 20 * 10) + &next(6).to_string();
                (name.as_bytes().to_vec(), value.into_bytes())
            });
            let fields = fields.collect();
            peer.send(4 * stream, fields, || next(256) as u8);
            peer.deliver(next(60) as usize);
            if stream % 16 == 0 {
                peer.deliver(usize::MAX);
            }
        }
        peer.deliver(usize::MAX);
        assert_eq!((peer.decoded, peer.blocked.len()), (2_000, 0), "table of {capacity}");
    }
}

/// The decoder reads the fields that the encoder of responses has written.
#[test]
fn fields_of_the_encoder_are_decoded() {
    let names =
        [":method", ":status", "a", "content-type", "vary", "x-frame-options", "set-cookie"];
    let values = ["", "GET", "deny", "text/plain", "origin", "accept-encoding", "200"];
    for name in names {
        for value in values {
            for secret in [false, true] {
                let mut section = Vec::new();
                Encoder.begin(&mut section);
                Encoder.field(&mut section, (name.as_bytes(), value.as_bytes()), secret);
                let decoded = decode(&mut Decoder::default(), 0, &section).unwrap();
                assert_eq!(decoded, [(name.as_bytes().to_vec(), value.as_bytes().to_vec())]);
            }
        }
    }
}
