//! The dynamic table of a decoder, with absolute indices (RFC 9204 §3.2).

use crate::field_coding::Malformed;
use crate::field_coding::dynamic_table::{DynamicTable, ENTRY_OVERHEAD, Entry, entry_size};
use crate::field_coding::field_class::FieldClass;

/// The table that the peer's encoder fills.
#[derive(Debug)]
pub(super) struct DecoderTable {
    entries: DynamicTable<FieldClass>,
    /// Number of insertions so far. The newest entry has the absolute index before it.
    insert_count: u64,
    max_capacity: usize,
}

impl DecoderTable {
    /// Creates a table without capacity, which the encoder may raise to `max_capacity`.
    pub(super) fn new(max_capacity: usize) -> DecoderTable {
        DecoderTable { entries: DynamicTable::new(0), insert_count: 0, max_capacity }
    }

    pub(super) fn max_capacity(&self) -> usize {
        self.max_capacity
    }

    pub(super) fn insert_count(&self) -> u64 {
        self.insert_count
    }

    /// Maximum number of entries at the same time (§4.5.1.1).
    pub(super) fn max_entries(&self) -> u64 {
        (self.max_capacity / ENTRY_OVERHEAD) as u64
    }

    /// Sets the capacity, and evicts entries that exceed it (§4.3.1).
    pub(super) fn set_capacity(&mut self, capacity: usize) -> Result<(), Malformed> {
        if capacity > self.max_capacity {
            return Err(Malformed);
        }
        self.entries.resize(capacity);
        Ok(())
    }

    /// Inserts an entry that fits into the table (§3.2.2).
    pub(super) fn insert(
        &mut self,
        name: &[u8],
        value: &[u8],
        class: FieldClass,
    ) -> Result<(), Malformed> {
        if entry_size(name.len() + value.len()) > self.entries.max_size() {
            return Err(Malformed);
        }
        self.entries.insert(name, value, class);
        self.insert_count += 1;
        Ok(())
    }

    /// Returns the entry at an index relative to the newest one, as in instructions (§3.2.5).
    pub(super) fn newest(&self, relative: usize) -> Option<&Entry<FieldClass>> {
        self.entries.get(relative)
    }

    /// Returns the entry at an absolute index (§3.2.4).
    pub(super) fn absolute(&self, index: u64) -> Option<&Entry<FieldClass>> {
        let position = self.insert_count.checked_sub(index.checked_add(1)?)?;
        self.entries.get(usize::try_from(position).ok()?)
    }

    #[cfg(test)]
    pub(super) fn show(&self) -> (Vec<String>, usize) {
        self.entries.show()
    }
}
