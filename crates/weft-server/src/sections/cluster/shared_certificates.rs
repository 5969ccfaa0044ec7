//! Accounts, certificates and validations in the store of the cluster, with a copy in files.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use weft_acme::{CertificateStore, Lease, SharedValidations, ValidationFuture, Version};
use weft_cluster::{Cluster, Expected, NewValue, SharedValues, StoreError, ValueVersion};

/// Message to the other machines about a new certificate.
pub(super) const CHANGED: &[u8] = b"{\"certificates\":\"changed\"}";

/// Folder of the certificates.
const CERTIFICATES: &str = "certificates/";

/// Folder of pending validations.
const CHALLENGES: &str = "challenges/";

/// Time for which the versions of the certificates are kept: a check of all names is one call.
const LISTED_TIME: Duration = Duration::from_secs(2);

/// Certificates of all machines of a cluster.
///
/// Entries are values of the store. Accounts, certificates and their states have a copy in the
/// files of this machine, which is used while the store is away. Then there are no leases, so that
/// nothing is ordered. Accounts and certificates that only the files have are put into the store:
/// they are older than the cluster, or the store has lost its values.
pub(super) struct SharedCertificates {
    values: Arc<SharedValues>,
    copy: Arc<dyn CertificateStore>,
    cluster: Weak<Cluster>,
    /// Number of changes that other machines have reported.
    changes: Arc<AtomicU64>,
    listed: Mutex<Option<Listed>>,
}

/// Versions of the entries of all certificates.
struct Listed {
    at: Instant,
    change: u64,
    versions: HashMap<String, Version>,
}

impl SharedCertificates {
    pub(super) fn new(
        values: Arc<SharedValues>,
        copy: Arc<dyn CertificateStore>,
        cluster: &Arc<Cluster>,
        changes: Arc<AtomicU64>,
    ) -> SharedCertificates {
        let cluster = Arc::downgrade(cluster);
        SharedCertificates { values, copy, cluster, changes, listed: Mutex::default() }
    }

    /// Puts an entry of the files into the store, unless another machine has done so. Returns the
    /// entry of the store.
    fn adopt(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        if !is_adopted(key) {
            return Ok(None);
        }
        let Some(value) = self.copy.get(key)? else { return Ok(None) };
        if self.put_value(key, &value, Expected::Absent)?.is_some() {
            return Ok(Some(value));
        }
        Ok(self.values.get(key).map_err(io::Error::other)?.map(|stored| stored.value))
    }

    fn put_value(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> io::Result<Option<ValueVersion>> {
        let new = NewValue { key: key.to_owned(), value: value.to_vec(), expected, lifetime: None };
        let put = self.values.put(new).map_err(io::Error::other)?;
        let mut listed = self.listed();
        match (put, &mut *listed) {
            (Some(version), Some(known)) => {
                known.versions.insert(key.to_owned(), Version::new(version.0));
            }
            // Another machine has changed it.
            (None, listed) => *listed = None,
            (Some(_), None) => {}
        }
        drop(listed);
        if put.is_some() {
            self.copy(key, value);
            if key.ends_with(CERTIFICATE)
                && let Some(cluster) = self.cluster.upgrade()
            {
                // Otherwise they find it within 10 s.
                cluster.publish_later(CHANGED);
            }
        }
        Ok(put)
    }

    /// Changes the copy in the files.
    fn copy(&self, key: &str, value: &[u8]) {
        if !has_copy(key) || matches!(self.copy.get(key), Ok(Some(known)) if known == value) {
            return;
        }
        if let Err(error) = self.copy.put(key, value) {
            log::error!("cannot write the copy of {key} from the store of the cluster: {error}");
        }
    }

    /// Returns the entry of the files, because the store has failed.
    fn copied(&self, key: &str, error: StoreError) -> io::Result<Option<Vec<u8>>> {
        let copy = match has_copy(key) {
            true => self.copy.get(key)?,
            false => None,
        };
        match error {
            StoreError::Away(_) if has_copy(key) => Ok(copy),
            error if copy.is_some() => {
                log::error!("{error}; its copy in the files of this machine is used");
                Ok(copy)
            }
            error => Err(io::Error::other(error)),
        }
    }

    fn listed(&self) -> MutexGuard<'_, Option<Listed>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists all versions again if they are not from now, or if other machines have changed some.
    fn list_versions<'a>(&self, listed: &'a mut Option<Listed>) -> Result<&'a Listed, StoreError> {
        let change = self.changes.load(Relaxed);
        let is_current = |it: &Listed| it.at.elapsed() < LISTED_TIME && it.change == change;
        if !listed.as_ref().is_some_and(is_current) {
            let versions = match (self.values.list(CERTIFICATES), listed.take()) {
                (Ok(found), _) => {
                    let version =
                        |(key, version): (_, ValueVersion)| (key, Version::new(version.0));
                    found.into_iter().map(version).collect()
                }
                // Nothing has changed while the store is away.
                (Err(StoreError::Away(_)), Some(known)) => known.versions,
                (Err(error), _) => return Err(error),
            };
            *listed = Some(Listed { at: Instant::now(), change, versions });
        }
        Ok(listed.as_ref().expect("it was set"))
    }
}

/// End of the keys of certificates.
const CERTIFICATE: &str = "/certificate.pem";

/// Returns true if the files of this machine have a copy of the entry.
fn has_copy(key: &str) -> bool {
    is_adopted(key) || key.starts_with(CERTIFICATES) && key.ends_with("/state.json")
}

/// Returns true if an entry that only the files have is put into the store.
fn is_adopted(key: &str) -> bool {
    key.ends_with(CERTIFICATE) || key.starts_with("accounts/")
}

impl CertificateStore for SharedCertificates {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        match self.values.get(key) {
            Ok(Some(stored)) => {
                self.copy(key, &stored.value);
                Ok(Some(stored.value))
            }
            Ok(None) => self.adopt(key),
            Err(error) => self.copied(key, error),
        }
    }

    fn version(&self, key: &str) -> io::Result<Option<Version>> {
        if !key.starts_with(CERTIFICATES) {
            let stored = self.values.get(key).map_err(io::Error::other)?;
            return Ok(stored.map(|stored| Version::new(stored.version.0)));
        }
        let mut listed = self.listed();
        match self.list_versions(&mut listed) {
            Ok(listed) => Ok(listed.versions.get(key).copied()),
            Err(StoreError::Away(_)) => self.copy.version(key),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn put(&self, key: &str, contents: &[u8]) -> io::Result<()> {
        self.put_value(key, contents, Expected::Any).map(drop)
    }

    fn put_if(&self, key: &str, contents: &[u8], version: Option<Version>) -> io::Result<bool> {
        let expected = match version {
            None => Expected::Absent,
            Some(version) => match self.values.get(key).map_err(io::Error::other)? {
                Some(it) if Version::new(it.version.0) == version => Expected::Version(it.version),
                _ => {
                    *self.listed() = None;
                    return Ok(false);
                }
            },
        };
        Ok(self.put_value(key, contents, expected)?.is_some())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{folder}/");
        match self.values.list(&prefix) {
            Ok(found) => {
                let rest = found.iter().filter_map(|(key, _)| key.strip_prefix(&prefix));
                let names = rest.filter_map(|rest| rest.split('/').next());
                let mut names: Vec<String> = names.map(str::to_owned).collect();
                names.sort();
                names.dedup();
                Ok(names)
            }
            Err(StoreError::Away(_)) => self.copy.list(folder),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn remove(&self, folder: &str) -> io::Result<()> {
        for (key, _) in self.values.list(&format!("{folder}/")).map_err(io::Error::other)? {
            self.values.delete(&key).map_err(io::Error::other)?;
        }
        *self.listed() = None;
        self.copy.remove(folder)
    }

    fn lease(&self, folder: &str) -> io::Result<Option<Lease>> {
        let held = self.values.lease(folder).map_err(|error| {
            io::Error::other(format!("the store of the cluster cannot be used: {error}"))
        })?;
        // The former holder may have changed the entries a moment ago.
        *self.listed() = None;
        Ok(held.map(Lease::new))
    }
}

impl SharedValidations for SharedCertificates {
    fn publish<'a>(
        &'a self,
        key: &'a str,
        value: &'a str,
        lifetime: Duration,
    ) -> ValidationFuture<'a, ()> {
        Box::pin(async move {
            let new = NewValue {
                key: format!("{CHALLENGES}{key}"),
                value: value.as_bytes().to_vec(),
                expected: Expected::Any,
                lifetime: Some(lifetime),
            };
            self.values.put_async(new).await.map(drop).map_err(|error| error.to_string())
        })
    }

    fn withdraw(&self, key: &str) {
        self.values.delete_later(&format!("{CHALLENGES}{key}"));
    }

    fn pending(&self) -> ValidationFuture<'_, Vec<(String, String)>> {
        Box::pin(async move {
            let read = self.values.read_all_async(CHALLENGES).await;
            let read = read.map_err(|error| error.to_string())?;
            let text = |(key, value): (String, Vec<u8>)| {
                Some((key.strip_prefix(CHALLENGES)?.to_owned(), String::from_utf8(value).ok()?))
            };
            Ok(read.into_iter().filter_map(text).collect())
        })
    }
}

impl fmt::Debug for SharedCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCertificates").field("copy", &self.copy).finish_non_exhaustive()
    }
}
