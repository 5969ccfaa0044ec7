//! Instructions of the peer's encoder (RFC 9204 §4.3).

use crate::field_coding::field_class::{FieldClass, Name};
use crate::field_coding::{MAX_RETAINED_BYTES, Malformed, integer, read_string};
use crate::http3::qpack::static_table;
use crate::http3::qpack::table::DecoderTable;

/// The work that instructions have caused, which is no function of their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableWork {
    /// Number of instructions.
    pub instructions: usize,
    /// Number of bytes that were copied from other entries of the table.
    pub copied_bytes: usize,
}

impl std::ops::AddAssign for TableWork {
    fn add_assign(&mut self, other: TableWork) {
        self.instructions += other.instructions;
        self.copied_bytes += other.copied_bytes;
    }
}

/// Reader of the peer's encoder stream. Memory: one instruction, whose strings are no longer than
/// the table.
#[derive(Debug, Default)]
pub(super) struct EncoderStream {
    /// Input whose last instruction is incomplete.
    incomplete: Vec<u8>,
    /// Buffer for an entry.
    text: Vec<u8>,
}

impl EncoderStream {
    /// Applies the instructions of `input` to the table. An instruction may continue in the next
    /// input.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        table: &mut DecoderTable,
    ) -> Result<TableWork, Malformed> {
        if self.incomplete.is_empty() {
            let (used, work) = self.apply_all(input, table)?;
            self.incomplete.extend_from_slice(&input[used..]);
            return Ok(work);
        }
        let mut buffer = std::mem::take(&mut self.incomplete);
        buffer.extend_from_slice(input);
        let (used, work) = self.apply_all(&buffer, table)?;
        buffer.drain(..used);
        if buffer.capacity() > MAX_RETAINED_BYTES && buffer.is_empty() {
            buffer = Vec::new();
        }
        self.incomplete = buffer;
        Ok(work)
    }

    /// Applies the complete instructions at the start of `input`. Returns their length and their
    /// work.
    fn apply_all(
        &mut self,
        input: &[u8],
        table: &mut DecoderTable,
    ) -> Result<(usize, TableWork), Malformed> {
        let (mut rest, mut work) = (input, TableWork::default());
        while let Some(length) = instruction_length(rest, table.max_capacity())? {
            let (instruction, behind) = rest.split_at(length);
            let copied_bytes = self.apply(instruction, table)?;
            work += TableWork { instructions: 1, copied_bytes };
            rest = behind;
        }
        if self.text.capacity() > MAX_RETAINED_BYTES {
            self.text = Vec::new();
        }
        Ok((input.len() - rest.len(), work))
    }

    /// Applies one instruction. Returns the number of copied bytes.
    fn apply(
        &mut self,
        mut instruction: &[u8],
        table: &mut DecoderTable,
    ) -> Result<usize, Malformed> {
        let input = &mut instruction;
        match input.first().ok_or(Malformed)? {
            0x80.. => self.insert_with_name(input, table),
            0x40.. => {
                self.text.clear();
                read_string(input, 5, &mut self.text)?;
                self.insert_value(input, table, None).map(|()| 0)
            }
            0x20.. => table.set_capacity(integer::read(input, 5)?).map(|()| 0),
            _ => self.duplicate(integer::read(input, 5)?, table),
        }
    }

    /// Inserts an entry with the name of another one (§4.3.2).
    fn insert_with_name(
        &mut self,
        input: &mut &[u8],
        table: &mut DecoderTable,
    ) -> Result<usize, Malformed> {
        let is_static = input.first().is_some_and(|first| first & 0x40 != 0);
        let index = integer::read(input, 6)?;
        self.text.clear();
        if is_static {
            let (name, _, class) = static_table::get(index).ok_or(Malformed)?;
            self.text.extend_from_slice(name.as_bytes());
            return self.insert_value(input, table, Some(class.name)).map(|()| 0);
        }
        // The entry itself may be evicted by the insertion (§3.2.2).
        let entry = table.newest(index).ok_or(Malformed)?;
        let (name, _) = entry.field();
        self.text.extend_from_slice(name);
        let (class, copied) = (entry.data.name, name.len());
        self.insert_value(input, table, Some(class)).map(|()| copied)
    }

    /// Inserts an entry whose name is in `text`, and whose value is the next string of the input.
    fn insert_value(
        &mut self,
        input: &mut &[u8],
        table: &mut DecoderTable,
        name_class: Option<Name>,
    ) -> Result<(), Malformed> {
        let name_length = self.text.len();
        read_string(input, 7, &mut self.text)?;
        let (name, value) = self.text.split_at(name_length);
        let class = FieldClass::new(name_class.unwrap_or_else(|| Name::of(name)), value);
        table.insert(name, value, class)
    }

    /// Inserts a copy of an entry (§4.3.4).
    fn duplicate(&mut self, index: usize, table: &mut DecoderTable) -> Result<usize, Malformed> {
        let entry = table.newest(index).ok_or(Malformed)?;
        let (name, value) = entry.field();
        let (class, size, name_length) = (entry.data, entry.size(), name.len());
        self.text.clear();
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        let (name, value) = self.text.split_at(name_length);
        table.insert(name, value, class).map(|()| size)
    }
}

/// Returns the length of the instruction at the start of `input`, or `None` if it is incomplete.
/// Strings may have `max_string` bytes.
fn instruction_length(input: &[u8], max_string: usize) -> Result<Option<usize>, Malformed> {
    let Some(first) = input.first() else { return Ok(None) };
    let mut rest = input;
    let is_complete = match first {
        0x80.. => integer::read_partial(&mut rest, 6)?.is_some() && skip(&mut rest, 7, max_string)?,
        0x40.. => skip(&mut rest, 5, max_string)? && skip(&mut rest, 7, max_string)?,
        _ => integer::read_partial(&mut rest, 5)?.is_some(),
    };
    Ok(is_complete.then(|| input.len() - rest.len()))
}

/// Skips a string. Returns false if it is incomplete.
fn skip(input: &mut &[u8], bits: u32, max_length: usize) -> Result<bool, Malformed> {
    let Some(length) = integer::read_partial(input, bits)? else { return Ok(false) };
    if length > max_length {
        return Err(Malformed);
    }
    let Some(rest) = input.get(length..) else { return Ok(false) };
    *input = rest;
    Ok(true)
}
