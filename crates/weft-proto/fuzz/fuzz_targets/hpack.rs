//! HPACK: the decoder and a second decoder return the fields that the encoder was given. If both
//! accept any other block, they decode it to the same fields.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_proto::http2::hpack::{Decoder, Encoder, Indexing};

/// A new table size before the block, and its fields: indexing, name and value.
type Block = (Option<u16>, Vec<(u8, Vec<u8>, Vec<u8>)>);

fuzz_target!(|input: (Vec<Block>, Vec<Vec<u8>>)| {
    let (blocks, other_blocks) = input;
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let mut second = loona_hpack::Decoder::new();
    let mut bytes = Vec::new();
    for (table_size, fields) in &blocks {
        if let Some(size) = table_size {
            encoder.resize(usize::from(*size));
        }
        // The second decoder rejects a block that has a new table size only.
        if fields.is_empty() {
            continue;
        }
        bytes.clear();
        encoder.begin(&mut bytes);
        for (indexing, name, value) in fields {
            let indexing = match indexing % 3 {
                0 => Indexing::Immediate,
                1 => Indexing::OnRepeat,
                _ => Indexing::Never,
            };
            encoder.field(&mut bytes, (name, value), indexing);
        }
        let decoded = decode(&mut decoder, &bytes).expect("the encoder's block is valid");
        let fields = fields.iter().map(|(_, name, value)| (name.clone(), value.clone()));
        assert_eq!(decoded, fields.collect::<Vec<_>>());
        assert_eq!(decode_again(&mut second, &bytes).as_ref(), Some(&decoded));
    }
    for block in &other_blocks {
        // After an error the tables may differ.
        let (Some(fields), Some(second)) =
            (decode(&mut decoder, block), decode_again(&mut second, block))
        else {
            break;
        };
        assert_eq!(fields, second);
    }
});

/// Returns the names and values of a block, or `None` if it is malformed.
fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut fields = Vec::new();
    let decoded = decoder.decode(block, |field| {
        fields.push((field.name.to_vec(), field.value.to_vec()));
        true
    });
    decoded.is_ok().then_some(fields)
}

/// Like [`decode`], with another implementation.
fn decode_again(
    decoder: &mut loona_hpack::Decoder<'static>,
    block: &[u8],
) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    decoder.decode(block).ok()
}
