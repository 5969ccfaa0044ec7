//! The section `[response_cache]`: the store of the responses that all routes with the option
//! `response_cache` share.

mod purge_request; // purges, by clients and by other machines

use std::path::PathBuf;

use weft::cache::{DiskSettings, Store};
use weft_config::{Key, ValueKind, quoted, quoted_path, show_size};

pub(crate) use self::purge_request::PurgeRequest;

/// Values of `[response_cache]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreSettings {
    memory: u64,
    entries: u64,
    /// `None`: responses are in memory only.
    folder: Option<PathBuf>,
    disk: u64,
    disk_index: u64,
}

impl Default for StoreSettings {
    fn default() -> StoreSettings {
        StoreSettings {
            memory: 64 << 20,
            entries: 100_000,
            folder: None,
            disk: 1 << 30,
            disk_index: 32 << 20,
        }
    }
}

/// Number of descriptors for open files and for reads.
const FILE_DESCRIPTORS: usize = 256 + 64 + 2;

impl StoreSettings {
    /// Number of descriptors that the store may open.
    pub(crate) fn descriptors(&self) -> usize {
        if self.folder.is_some() { FILE_DESCRIPTORS } else { 0 }
    }

    /// Creates a store without files.
    pub(crate) fn memory_store(&self) -> Store {
        // The ranges of the keys are within the range of `usize`.
        Store::new().max_bytes(self.memory as usize).max_entries(self.entries as usize)
    }

    /// Opens a store.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(crate) fn open(&self) -> Result<Store, String> {
        let store = self.memory_store();
        let Some(folder) = &self.folder else { return Ok(store) };
        let disk = DiskSettings::new(folder)
            .max_bytes(self.disk)
            .max_index_bytes(self.disk_index as usize)
            .on_failure(|message| log::error!("response cache: {message}"));
        store.disk(&disk).map_err(|error| {
            format!("cannot use the folder {} of [response_cache]: {error}", folder.display())
        })
    }
}

pub(crate) static RESPONSE_CACHE: [Key<StoreSettings>; 5] = [
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
    Key {
        name: "folder",
        help: "folder for responses that leave the memory, also at the end of the process; it is created \
               for its owner only, and belongs to one process at a time",
        kind: ValueKind::Path(|store, path| store.folder = Some(path.value)),
        show: |store| quoted_path(store.folder.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "disk",
        help: "maximum size of all files in `folder`; the ones used longest ago leave first",
        kind: ValueKind::Size(1 << 20..=1 << 50, |store, bytes| store.disk = bytes),
        show: |store| quoted(&show_size(store.disk)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "disk_index",
        help: "maximum memory of the index of these files: 256 bytes for each, with its URL and its tags",
        kind: ValueKind::Size(1 << 20..=1 << 40, |store, bytes| store.disk_index = bytes),
        show: |store| quoted(&show_size(store.disk_index)),
        ..Key::FILE_ONLY
    },
];
