//! A store in memory, as an application could implement one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use weft_acme::{CertificateStore, Lease, Version};

/// Clones of the `Arc` stand for processes.
#[derive(Debug, Default)]
pub struct MemoryStore {
    entries: Mutex<BTreeMap<String, Vec<u8>>>,
    leased: Arc<Mutex<BTreeSet<String>>>,
}

impl MemoryStore {
    pub fn keys(&self) -> Vec<String> {
        self.entries.lock().unwrap().keys().cloned().collect()
    }
}

impl CertificateStore for MemoryStore {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.entries.lock().unwrap().get(key).cloned())
    }

    fn version(&self, key: &str) -> io::Result<Option<Version>> {
        Ok(self.entries.lock().unwrap().get(key).map(Version::new))
    }

    fn put(&self, key: &str, contents: &[u8]) -> io::Result<()> {
        self.entries.lock().unwrap().insert(key.to_owned(), contents.to_vec());
        Ok(())
    }

    fn put_if(&self, key: &str, contents: &[u8], version: Option<Version>) -> io::Result<bool> {
        let mut entries = self.entries.lock().unwrap();
        let is_expected = entries.get(key).map(Version::new) == version;
        if is_expected {
            entries.insert(key.to_owned(), contents.to_vec());
        }
        Ok(is_expected)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let keys = self.keys();
        let below = keys.iter().filter_map(|key| key.strip_prefix(folder)?.strip_prefix('/'));
        let names: BTreeSet<_> = below.filter_map(|rest| rest.split('/').next()).collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    fn remove(&self, folder: &str) -> io::Result<()> {
        self.entries.lock().unwrap().retain(|key, _| !key.starts_with(&format!("{folder}/")));
        Ok(())
    }

    fn lease(&self, folder: &str) -> io::Result<Option<Lease>> {
        let is_free = self.leased.lock().unwrap().insert(folder.to_owned());
        let lease =
            || Lease::new(MemoryLease { folder: folder.to_owned(), of: self.leased.clone() });
        Ok(is_free.then(lease))
    }
}

struct MemoryLease {
    folder: String,
    of: Arc<Mutex<BTreeSet<String>>>,
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.of.lock().unwrap().remove(&self.folder);
    }
}
