//! The section `[response_cache]`: the store of the responses that all routes with the option
//! `response_cache` share.

use weft::cache::Store;
use weft_config::{Key, ValueKind, quoted, show_size};

/// Values of `[response_cache]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreSettings {
    memory: u64,
    entries: u64,
}

impl Default for StoreSettings {
    fn default() -> StoreSettings {
        StoreSettings { memory: 64 << 20, entries: 100_000 }
    }
}

impl StoreSettings {
    /// Creates an empty store.
    pub(crate) fn open(&self) -> Store {
        // The ranges of both keys are within the range of `usize`.
        Store::new().max_bytes(self.memory as usize).max_entries(self.entries as usize)
    }
}

pub(crate) static RESPONSE_CACHE: [Key<StoreSettings>; 2] = [
    Key {
        name: "memory",
        help: "maximum memory of stored responses, with their fields and keys; the least used ones \
               leave first, and contents on their way to clients have as much again",
        kind: ValueKind::Size(1 << 20..=1 << 40, |store, bytes| store.memory = bytes),
        show: |store| quoted(&show_size(store.memory)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "entries",
        help: "maximum number of stored responses",
        kind: ValueKind::Count(1..=100_000_000, |store, count| store.entries = count),
        show: |store| store.entries.to_string(),
        ..Key::FILE_ONLY
    },
];
