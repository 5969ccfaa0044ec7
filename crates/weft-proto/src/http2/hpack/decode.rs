//! Decoder for field blocks (RFC 7541 §6).

use crate::field_coding::dynamic_table::DynamicTable;
use crate::field_coding::field_class::{FieldClass, Name};
use crate::field_coding::{
    DecodeError, Field, MAX_RETAINED_BYTES, Malformed, integer, read_string,
};
use crate::http2::hpack::table::{self, MAX_TABLE_BYTES};

/// Decoder for the peer's field blocks. It must process all field blocks in order, including the
/// blocks of rejected requests, to keep the dynamic tables of both sides in sync.
///
/// ```
/// use weft_proto::http2::hpack::{DecodeError, Decoder, Name};
///
/// let mut names = Vec::new();
/// let block = b"\x82\x84\x41\x0bexample.org"; // RFC 7541 §6.1 and §6.2.1
/// Decoder::new().decode(block, |field| {
///     names.push(field.class.name);
///     field.class.is_valid_value
/// })?;
/// assert_eq!(names, [Name::Method, Name::Path, Name::Authority]);
/// assert_eq!(Decoder::new().decode(b"\x80", |_| true), Err(DecodeError::Malformed));
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable<FieldClass>,
    /// Buffer for a literal.
    text: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    /// Creates a decoder with an empty dynamic table of at most 4,096 bytes, the initial value of
    /// SETTINGS_HEADER_TABLE_SIZE.
    pub fn new() -> Decoder {
        Decoder { table: DynamicTable::new(MAX_TABLE_BYTES), text: Vec::new() }
    }

    /// Calls `take` with each field of a block, until it returns false.
    ///
    /// # Errors
    /// [`Malformed`](DecodeError::Malformed) if the block is not valid HPACK, and
    /// [`Stopped`](DecodeError::Stopped) if `take` returned false. The decoder must not be used
    /// after an error.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        mut take: impl FnMut(Field<'_>) -> bool,
    ) -> Result<(), DecodeError> {
        self.resize(&mut block)?;
        while let Some(&first) = block.first() {
            let continues = if first >= 0x80 {
                let index = integer::read(&mut block, 7)?;
                let (name, value, class) = table::get(&self.table, index).ok_or(Malformed)?;
                take(Field { name, value, class })
            } else {
                let is_indexed = first & 0x40 != 0;
                // §4.2: size updates are allowed at the beginning of a block only.
                if !is_indexed && first & 0x20 != 0 {
                    return Err(DecodeError::Malformed);
                }
                self.literal(&mut block, is_indexed, &mut take)?
            };
            if !continues {
                return Err(DecodeError::Stopped);
            }
        }
        if self.text.capacity() > MAX_RETAINED_BYTES {
            self.text = Vec::new();
        }
        Ok(())
    }

    /// Reads dynamic table size updates (§6.3).
    fn resize(&mut self, block: &mut &[u8]) -> Result<(), Malformed> {
        while let [0x20..=0x3f, ..] = block {
            let max_size = integer::read(block, 5)?;
            if max_size > MAX_TABLE_BYTES {
                return Err(Malformed);
            }
            self.table.resize(max_size);
        }
        Ok(())
    }

    /// Reads a literal (§6.2) and inserts it into the table if it is indexed.
    fn literal(
        &mut self,
        block: &mut &[u8],
        is_indexed: bool,
        take: &mut impl FnMut(Field<'_>) -> bool,
    ) -> Result<bool, Malformed> {
        self.text.clear();
        let known = match integer::read(block, if is_indexed { 6 } else { 4 })? {
            0 => {
                read_string(block, 7, &mut self.text)?;
                None
            }
            index => {
                let (name, _, class) = table::get(&self.table, index).ok_or(Malformed)?;
                self.text.extend_from_slice(name);
                Some(class.name)
            }
        };
        let name_length = self.text.len();
        read_string(block, 7, &mut self.text)?;
        let (name, value) = self.text.split_at(name_length);
        let class = FieldClass::new(known.unwrap_or_else(|| Name::of(name)), value);
        let continues = take(Field { name, value, class });
        if is_indexed {
            self.table.insert(name, value, class);
        }
        Ok(continues)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, DecodeError> {
        let mut fields = Vec::new();
        decoder.decode(block, |Field { name, value, .. }| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            fields.push(format!("{}: {}", text(name), text(value)));
            true
        })?;
        Ok(fields)
    }

    fn hex(text: &str) -> Vec<u8> {
        let text: String = text.split_whitespace().collect();
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn decodes_rfc_examples_of_single_fields() {
        // RFC 7541 §C.2
        for (block, field, size) in [
            (
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                "custom-key: custom-header",
                55,
            ),
            ("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path", 0),
            ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", 0),
            ("82", ":method: GET", 0),
        ] {
            let mut decoder = Decoder::new();
            assert_eq!(decoded(&mut decoder, &hex(block)).unwrap(), [field]);
            assert_eq!(decoder.table.show().1, size);
        }
    }

    const REQUESTS: [(&[&str], &[&str], usize); 3] = [
        (
            &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
            &[":authority: www.example.com"],
            57,
        ),
        (
            &[
                ":method: GET",
                ":scheme: http",
                ":path: /",
                ":authority: www.example.com",
                "cache-control: no-cache",
            ],
            &["cache-control: no-cache", ":authority: www.example.com"],
            110,
        ),
        (
            &[
                ":method: GET",
                ":scheme: https",
                ":path: /index.html",
                ":authority: www.example.com",
                "custom-key: custom-value",
            ],
            &["custom-key: custom-value", "cache-control: no-cache", ":authority: www.example.com"],
            164,
        ),
    ];

    #[test]
    fn decodes_rfc_examples_of_requests() {
        // RFC 7541 §C.3 and, with the Huffman code, §C.4
        for blocks in [
            [
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ],
            [
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                "8286 84be 5886 a8eb 1064 9cbf",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ],
        ] {
            let mut decoder = Decoder::new();
            for (block, (fields, entries, size)) in blocks.into_iter().zip(REQUESTS) {
                assert_eq!(decoded(&mut decoder, &hex(block)).unwrap(), fields);
                let (table, bytes) = decoder.table.show();
                assert_eq!((&table[..], bytes), (&entries.map_strings()[..], size));
            }
        }
    }

    trait MapStrings {
        fn map_strings(&self) -> Vec<String>;
    }

    impl MapStrings for &[&str] {
        fn map_strings(&self) -> Vec<String> {
            self.iter().map(|text| (*text).to_owned()).collect()
        }
    }

    #[test]
    fn evicts_oldest_entries_when_table_is_full() {
        // RFC 7541 §C.6, in a table of 256 bytes.
        let mut decoder = Decoder::new();
        assert_eq!(decoded(&mut decoder, &hex("3fe101")).unwrap(), [""; 0]);
        let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
        for (block, fields, entries, size) in [
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
                 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                &[
                    ":status: 302",
                    "cache-control: private",
                    date,
                    "location: https://www.example.com",
                ][..],
                4,
                222,
            ),
            (
                "4883 640e ffc1 c0bf",
                &[
                    ":status: 307",
                    "cache-control: private",
                    date,
                    "location: https://www.example.com",
                ],
                4,
                222,
            ),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
                 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
                 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                &[
                    ":status: 200",
                    "cache-control: private",
                    "date: Mon, 21 Oct 2013 20:13:22 GMT",
                    "location: https://www.example.com",
                    "content-encoding: gzip",
                    "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                ],
                3,
                215,
            ),
        ] {
            assert_eq!(decoded(&mut decoder, &hex(block)).unwrap(), fields);
            let (table, bytes) = decoder.table.show();
            assert_eq!((table.len(), bytes), (entries, size));
        }
        // An entry larger than the table empties it, and so does a size of 0.
        let large = [&[0x40, 1, b'x', 0x7f, 0x81, 1][..], &[b'y'; 256]].concat();
        assert_eq!(decoded(&mut decoder, &large).unwrap().len(), 1);
        assert_eq!(decoder.table.show(), (vec![], 0));
        decoded(&mut decoder, &hex("4001 6101 62")).unwrap();
        assert_eq!(decoder.table.show().1, 34);
        decoded(&mut decoder, &hex("20 3fe11f")).unwrap();
        assert_eq!(decoder.table.show().1, 0);
    }

    #[test]
    fn insertion_may_evict_the_entry_with_its_name() {
        // RFC 7541 §4.4
        let mut decoder = Decoder::new();
        decoded(&mut decoder, &hex("3f09 4001 6101 62")).unwrap();
        assert_eq!(decoded(&mut decoder, &hex("7e01 63")).unwrap(), ["a: c"]);
        assert_eq!(decoder.table.show(), (vec!["a: c".to_owned()], 34));
    }

    #[test]
    fn rejects_malformed_blocks() {
        for block in [
            "80", // index 0
            "be", // index of an empty slot
            "ff80 8080 8000",
            "7f00 0161", // name index out of range
            "40",        // literal without name and value
            "4001 61",   // literal without value
            "4002 61",   // truncated name
            "0001 6102 62",
            "0001 6181 00", // invalid Huffman code
            "3fe21f",       // table size of 4,097 bytes
            "8220",         // size update after a field
        ] {
            let mut decoder = Decoder::new();
            let result = decoded(&mut decoder, &hex(block));
            assert_eq!(result, Err(DecodeError::Malformed), "{block}");
        }
    }

    #[test]
    fn callback_can_stop_decoding() {
        let mut taken = 0;
        let stopped = Decoder::new().decode(&[0x82; 10], |_| {
            taken += 1;
            taken < 3
        });
        assert_eq!((stopped, taken), (Err(DecodeError::Stopped), 3));
    }
}
