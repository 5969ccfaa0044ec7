//! Decoder for field sections (RFC 9204 §4.5).

use crate::field_coding::field_class::{FieldClass, Name};
use crate::field_coding::{
    DecodeError, Field, MAX_RETAINED_BYTES, Malformed, integer, read_string,
};
use crate::http3::qpack::static_table;

/// Decoder for field sections without references to a dynamic table.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Buffer for a literal.
    text: Vec<u8>,
}

impl Decoder {
    /// Calls `take` with each field of a section, until it returns false.
    ///
    /// # Errors
    /// [`Malformed`](DecodeError::Malformed) if the section is not valid QPACK or refers to the
    /// dynamic table, and [`Stopped`](DecodeError::Stopped) if `take` returned false.
    pub fn decode(
        &mut self,
        mut section: &[u8],
        mut take: impl FnMut(Field<'_>) -> bool,
    ) -> Result<(), DecodeError> {
        // The required insert count, and the base, which has no meaning without insertions.
        if integer::read(&mut section, 8)? != 0 {
            return Err(DecodeError::Malformed);
        }
        integer::read(&mut section, 7)?;
        while let Some(&first) = section.first() {
            let continues = match first {
                0xc0.. => {
                    let index = integer::read(&mut section, 6)?;
                    let (name, value, class) = static_table::get(index).ok_or(Malformed)?;
                    take(Field { name: name.as_bytes(), value: value.as_bytes(), class })
                }
                0x20..0x80 => self.literal(first, &mut section, &mut take)?,
                // The dynamic table is empty.
                _ => return Err(DecodeError::Malformed),
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

    /// Reads a literal whose name is in the static table (§4.5.4) or is a literal, too (§4.5.6).
    fn literal(
        &mut self,
        first: u8,
        section: &mut &[u8],
        take: &mut impl FnMut(Field<'_>) -> bool,
    ) -> Result<bool, Malformed> {
        self.text.clear();
        let known = if first & 0x40 != 0 {
            if first & 0x10 == 0 {
                return Err(Malformed);
            }
            let index = integer::read(section, 4)?;
            let (name, _, class) = static_table::get(index).ok_or(Malformed)?;
            self.text.extend_from_slice(name.as_bytes());
            Some(class.name)
        } else {
            read_string(section, 3, &mut self.text)?;
            None
        };
        let name_length = self.text.len();
        read_string(section, 7, &mut self.text)?;
        let (name, value) = self.text.split_at(name_length);
        let class = FieldClass::new(known.unwrap_or_else(|| Name::of(name)), value);
        Ok(take(Field { name, value, class }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(section: &[u8]) -> Result<Vec<String>, DecodeError> {
        let mut fields = Vec::new();
        Decoder::default().decode(section, |Field { name, value, .. }| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            fields.push(format!("{}: {}", text(name), text(value)));
            true
        })?;
        Ok(fields)
    }

    #[test]
    fn decodes_all_forms_of_the_static_table() {
        for (section, fields) in [
            // RFC 9204 §B.1
            (&b"\0\0\x51\x0b/index.html"[..], &[":path: /index.html"][..]),
            (b"\0\0\xd1\xd7\xc1", &[":method: GET", ":scheme: https", ":path: /"]),
            (b"\0\0\xff\x23", &["x-frame-options: sameorigin"]),
            (b"\0\0\x5f\x39\x02en", &["accept-language: en"]),
            (b"\0\0\x27\x03custom-key\x03abc", &["custom-key: abc"]),
            (b"\0\0\x37\x03custom-key\x00", &["custom-key: "]),
            // Huffman-coded: RFC 7541 §C.4.1
            (
                b"\0\0\x50\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
                &[":authority: www.example.com"],
            ),
            (b"\0\0", &[]),
            (b"\0\x80\xc1", &[":path: /"]),
        ] {
            assert_eq!(decoded(section).unwrap(), fields, "{section:?}");
        }
    }

    #[test]
    fn rejects_references_to_the_dynamic_table_and_truncated_sections() {
        for section in [
            &b""[..],
            b"\0",
            b"\x01\0",        // a required insert count
            b"\0\0\x80",      // an index of the dynamic table
            b"\0\0\x10",      // an index behind the base
            b"\0\0\x40\x01a", // a name of the dynamic table
            b"\0\0\x00\x01a", // a name behind the base
            b"\0\0\xff\x24",  // behind the end of the static table
            b"\0\0\x51",
            b"\0\0\x51\x02a",
            b"\0\0\x23ab",
        ] {
            assert_eq!(decoded(section), Err(DecodeError::Malformed), "{section:?}");
        }
    }
}
