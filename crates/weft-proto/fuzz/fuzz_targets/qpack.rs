//! QPACK: the decoder returns the fields that encoders were given, in any order of arrival. Any
//! other input gives the same result in pieces as at once.
#![no_main]

#[path = "../../tests/qpack/reference_encoder.rs"]
mod reference_encoder;

use libfuzzer_sys::fuzz_target;
use weft_proto::http3::qpack::{Decoded, Decoder, Encoder, TableWork};

use self::reference_encoder::ReferenceEncoder;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Capacity of the table, and sections: their fields, choices of the encoder, and the number of
/// bytes of the encoder stream that arrive behind them.
type Valid = (u8, Vec<(Vec<(u8, u8)>, Vec<u8>, u8)>);

/// Pieces of an encoder stream, each followed by a section.
type Other = (u16, Vec<(Vec<u8>, Vec<u8>)>);

fuzz_target!(|input: (Valid, Fields, Other)| {
    let (valid, response, other) = input;
    round_trip(&valid);
    round_trip_of_responses(&response);
    compare_with_pieces(&other);
});

fn decode(decoder: &mut Decoder, stream: u64, section: &[u8]) -> Option<(Decoded, Fields)> {
    let mut fields = Fields::new();
    let decoded = decoder.decode(stream, section, |field| {
        fields.push((field.name.to_vec(), field.value.to_vec()));
        true
    });
    decoded.ok().map(|decoded| (decoded, fields))
}

fn round_trip((capacity, sections): &Valid) {
    let capacity = usize::from(*capacity) * 8;
    let (mut encoder, mut stream_bytes) = ReferenceEncoder::new(2_040, capacity);
    let mut decoder = Decoder::new(2_040, sections.len());
    let mut blocked = Vec::new();
    for (stream, (fields, choices, arriving)) in (0..).zip(sections) {
        // Few names and values, so that they are repeated.
        let text = |byte: u8| vec![b'a' + byte % 4; usize::from(byte / 4)];
        let fields: Fields = fields.iter().map(|(n, v)| (text(*n), text(*v))).collect();
        let mut choices = choices.iter();
        let choose = || choices.next().copied().unwrap_or(0);
        let (instructions, section) = encoder.encode(stream, &fields, choose);
        stream_bytes.extend(instructions);
        match decode(&mut decoder, stream, &section).expect("the section is valid") {
            (Decoded::Complete, decoded) => {
                assert_eq!(decoded, fields);
                encoder.on_acknowledged(stream);
            }
            (Decoded::Blocked, _) => blocked.push((stream, section, fields)),
        }
        let arriving = usize::from(*arriving).min(stream_bytes.len());
        let piece: Vec<u8> = stream_bytes.drain(..arriving).collect();
        deliver(&mut decoder, &mut encoder, &piece, &mut blocked);
    }
    deliver(&mut decoder, &mut encoder, &stream_bytes, &mut blocked);
    assert!(blocked.is_empty());
}

fn deliver(
    decoder: &mut Decoder,
    encoder: &mut ReferenceEncoder,
    piece: &[u8],
    blocked: &mut Vec<(u64, Vec<u8>, Fields)>,
) {
    decoder.read_encoder_stream(piece).expect("the instructions are valid");
    while let Some(stream) = decoder.next_unblocked() {
        let at = blocked.iter().position(|(other, ..)| *other == stream).expect("it was blocked");
        let (_, section, fields) = blocked.swap_remove(at);
        let decoded = decode(decoder, stream, &section);
        assert_eq!(decoded, Some((Decoded::Complete, fields)));
        encoder.on_acknowledged(stream);
    }
}

fn round_trip_of_responses(fields: &Fields) {
    let mut section = Vec::new();
    Encoder.begin(&mut section);
    for (name, value) in fields {
        Encoder.field(&mut section, (name, value), value.len() % 2 == 0);
    }
    let decoded = decode(&mut Decoder::default(), 0, &section);
    assert_eq!(decoded, Some((Decoded::Complete, fields.clone())));
}

fn compare_with_pieces((capacity, steps): &Other) {
    let capacity = usize::from(*capacity);
    let mut whole = Decoder::new(capacity, 4);
    let mut pieces = Decoder::new(capacity, 4);
    for (stream, (instructions, section)) in (0..).zip(steps) {
        let work = whole.read_encoder_stream(instructions);
        let mut work_in_pieces = Ok(TableWork::default());
        for byte in instructions {
            work_in_pieces = work_in_pieces.and_then(|mut sum: TableWork| {
                sum += pieces.read_encoder_stream(&[*byte])?;
                Ok(sum)
            });
        }
        assert_eq!(work, work_in_pieces);
        if work.is_err() {
            return;
        }
        let decoded = decode(&mut whole, stream, section);
        assert_eq!(decoded, decode(&mut pieces, stream, section));
        if decoded.is_none() {
            return;
        }
        loop {
            let unblocked = whole.next_unblocked();
            assert_eq!(unblocked, pieces.next_unblocked());
            if unblocked.is_none() {
                break;
            }
        }
        let feedback = whole.feedback().map(<[u8]>::to_vec);
        assert_eq!(feedback, pieces.feedback().map(<[u8]>::to_vec));
        let Ok(feedback) = feedback else { return };
        assert!(feedback.len() <= 8 << 10);
    }
}
