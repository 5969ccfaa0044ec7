//! The certificates of all names in memory: for TLS, for the manager, and for metrics.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use weft::tls::{Identity, NamedIdentities};

use crate::name::Name;
use crate::store::store_entries::{NameVersions, StoreEntries};
use crate::store::stored_certificate::{CertificateInfo, StoredCertificate};

/// Time for which a name is not ordered if its files cannot be read.
const UNREAD_TIME: Duration = Duration::from_secs(60);

/// The certificates of all names. Their files are read when a name is added, after an order, and
/// when another process has changed them.
#[derive(Debug)]
pub(crate) struct Registry {
    names: Mutex<BTreeMap<Name, Entry>>,
    /// The last read has failed.
    is_unreadable: AtomicBool,
    /// The certificates with their keys, for TLS.
    pub(crate) identities: NamedIdentities,
}

#[derive(Debug)]
struct Entry {
    info: CertificateInfo,
    /// Time of the next order, or of the next question to the authority.
    due: SystemTime,
    /// The files that were read.
    versions: NameVersions,
    origin: Origin,
}

/// Reason for the certificate of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Configured,
    /// A client has sent the name in a handshake.
    OnDemand,
}

impl Registry {
    pub(crate) fn new(identities: NamedIdentities) -> Registry {
        Registry { names: Mutex::default(), is_unreadable: AtomicBool::new(false), identities }
    }

    /// Reads the files of the configured names that are not known yet.
    pub(crate) fn add(&self, store: &StoreEntries, names: &[Name]) {
        let unknown: Vec<&Name> = {
            let mut known = self.names();
            let is_unknown = |name: &&Name| match known.get_mut(*name) {
                Some(entry) => {
                    entry.origin = Origin::Configured;
                    false
                }
                None => true,
            };
            names.iter().filter(is_unknown).collect()
        };
        unknown.into_iter().for_each(|name| self.read(store, name, Origin::Configured));
    }

    /// Reads the files of a name. A certificate in them is used for the next handshakes.
    pub(crate) fn read(&self, store: &StoreEntries, name: &Name, origin: Origin) {
        // Read before the files, so that a change during the read is found later.
        let versions = store.versions(name);
        let stored = match StoredCertificate::read(store, name) {
            Ok(stored) => stored,
            Err(error) => return self.keep_unread(name, origin, &error),
        };
        self.is_unreadable.store(false, Relaxed);
        match &stored.pem {
            Some(pem) if stored.der.is_some() => {
                let identity = Identity::pem(pem.clone(), pem.clone());
                if let Err(error) = self.identities.insert(name.as_str(), &identity) {
                    log::error!("cannot use the stored certificate for {name}: {error}");
                }
            }
            _ => self.identities.remove(name.as_str()),
        }
        let due = stored.due(SystemTime::now());
        let mut names = self.names();
        let is_configured = names.get(name).is_some_and(|it| it.origin == Origin::Configured);
        let origin = if is_configured { Origin::Configured } else { origin };
        let entry = Entry { info: stored.into_info(due), due, versions, origin };
        names.insert(name.clone(), entry);
    }

    /// Handles a failure to read the files of a name. The certificate in memory stays in use.
    fn keep_unread(&self, name: &Name, origin: Origin, error: &io::Error) {
        // One line until a file can be read.
        if !self.is_unreadable.swap(true, Relaxed) {
            log::error!("cannot read the files of {name}: {error}");
        }
        let mut names = self.names();
        let entry = names.entry(name.clone()).or_insert_with(|| Entry {
            info: CertificateInfo::default(),
            due: SystemTime::UNIX_EPOCH,
            versions: NameVersions::default(),
            origin,
        });
        entry.due = entry.due.max(SystemTime::now() + UNREAD_TIME);
    }

    /// Reads the files that have changed since they were read.
    pub(crate) fn read_changed(&self, store: &StoreEntries) {
        for (name, versions, origin) in self.known() {
            if store.versions(&name) != versions {
                self.read(store, &name, origin);
            }
        }
    }

    /// Reads all files again.
    pub(crate) fn read_all(&self, store: &StoreEntries) {
        self.known().into_iter().for_each(|(name, _, origin)| self.read(store, &name, origin));
    }

    fn known(&self) -> Vec<(Name, NameVersions, Origin)> {
        let names = self.names();
        let known = names.iter();
        known.map(|(name, entry)| (name.clone(), entry.versions, entry.origin)).collect()
    }

    /// Returns the origin of a name and the end of the validity of its certificate. Returns `None`
    /// if there is no certificate.
    pub(crate) fn find(&self, name: &Name) -> Option<(Origin, SystemTime)> {
        let names = self.names();
        let entry = names.get(name)?;
        Some((entry.origin, entry.info.not_after?))
    }

    pub(crate) fn remove(&self, name: &Name) {
        self.names().remove(name);
        self.identities.remove(name.as_str());
    }

    /// Delays the renewal of a name.
    pub(crate) fn postpone(&self, name: &Name, until: SystemTime) {
        if let Some(entry) = self.names().get_mut(name) {
            entry.due = entry.due.max(until);
        }
    }

    /// Keeps the names that are configured, and the names that clients may request.
    pub(crate) fn retain(&self, names: &[Name], may_be_on_demand: impl Fn(&Name) -> bool) {
        self.names().retain(|name, entry| {
            let is_kept = match entry.origin {
                Origin::Configured => names.binary_search(name).is_ok(),
                // Without a certificate, the name is ordered again only when a client sends it.
                Origin::OnDemand => entry.info.not_after.is_some() && may_be_on_demand(name),
            };
            if !is_kept {
                self.identities.remove(name.as_str());
            }
            is_kept
        });
    }

    /// Returns up to `max` names that are due and for which `is_free` returns true. The names that
    /// have waited longest are first. Also returns the time at which the next name is due.
    pub(crate) fn due(
        &self,
        now: SystemTime,
        max: usize,
        is_free: impl Fn(&Name) -> bool,
    ) -> (Vec<Name>, Option<SystemTime>) {
        let names = self.names();
        let next = names.values().map(|entry| entry.due).filter(|due| *due > now).min();
        let is_due = |(name, entry): &(&Name, &Entry)| entry.due <= now && is_free(name);
        let mut due: Vec<_> = names.iter().filter(is_due).collect();
        due.sort_by_key(|(_, entry)| entry.due);
        (due.into_iter().take(max).map(|(name, _)| name.clone()).collect(), next)
    }

    pub(crate) fn all(&self) -> Vec<(Name, CertificateInfo)> {
        self.names().iter().map(|(name, entry)| (name.clone(), entry.info.clone())).collect()
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<Name, Entry>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::certificate_store::{CertificateStore, Lease, Version};
    use crate::store::file_store::FileStore;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn files_are_read_again_after_a_change_only() {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreEntries(Arc::new(FileStore::new(folder.path()).ephemeral_state()));
        let name: Name = "a.example".parse().unwrap();
        let registry = Registry::new(NamedIdentities::default());
        let failures = || registry.all()[0].1.failures;
        let write = |failures| {
            let state = crate::store::store_entries::NameState { failures, ..Default::default() };
            store.write_state(&name, &state).unwrap();
        };
        write(1);
        registry.add(&store, std::slice::from_ref(&name));
        assert_eq!(failures(), 1);
        write(2);
        registry.add(&store, std::slice::from_ref(&name));
        assert_eq!(failures(), 1, "the name is known");
        registry.read_changed(&store);
        assert_eq!(failures(), 2);
        registry.names().get_mut(&name).unwrap().info.failures = 3;
        registry.read_changed(&store);
        assert_eq!(failures(), 3, "the files have not changed");
        registry.retain(&[], |_| true);
        assert_eq!(registry.all(), []);
    }

    /// A store whose only entry may be missing, and which may fail.
    #[derive(Debug, Default)]
    struct FailingStore {
        certificate: Mutex<Option<Vec<u8>>>,
        is_failing: AtomicBool,
    }

    impl CertificateStore for FailingStore {
        fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
            match self.is_failing.load(Relaxed) {
                true => Err(io::ErrorKind::TimedOut.into()),
                false if key.ends_with(".pem") => Ok(self.certificate.lock().unwrap().clone()),
                false => Ok(None),
            }
        }

        fn version(&self, key: &str) -> io::Result<Option<Version>> {
            Ok(self.get(key)?.map(Version::new))
        }

        fn put(&self, _: &str, _: &[u8]) -> io::Result<()> {
            unreachable!("the registry only reads");
        }

        fn put_if(&self, _: &str, _: &[u8], _: Option<Version>) -> io::Result<bool> {
            unreachable!("the registry only reads");
        }

        fn list(&self, _: &str) -> io::Result<Vec<String>> {
            unreachable!("the registry only reads known names");
        }

        fn remove(&self, _: &str) -> io::Result<()> {
            unreachable!("the registry only reads");
        }

        fn lease(&self, _: &str) -> io::Result<Option<Lease>> {
            unreachable!("the registry only reads");
        }
    }

    #[test]
    fn certificates_stay_while_their_store_fails() {
        let failing = Arc::new(FailingStore::default());
        let (store, registry) =
            (StoreEntries(failing.clone()), Registry::new(NamedIdentities::default()));
        let name: Name = "a.example".parse().unwrap();
        let certified = rcgen::generate_simple_self_signed([name.to_string()]).unwrap();
        let pem = [certified.signing_key.serialize_pem(), certified.cert.pem()].concat();
        *failing.certificate.lock().unwrap() = Some(pem.into_bytes());
        let is_present = || registry.find(&name).is_some();
        let is_due = || !registry.due(SystemTime::now(), 1, |_| true).0.is_empty();
        failing.is_failing.store(true, Relaxed);
        registry.add(&store, std::slice::from_ref(&name));
        assert_eq!((is_present(), is_due()), (false, false), "it may be in the store");
        failing.is_failing.store(false, Relaxed);
        registry.read_changed(&store);
        assert_eq!((is_present(), is_due()), (true, false));
        failing.is_failing.store(true, Relaxed);
        registry.read_changed(&store);
        assert_eq!((is_present(), is_due()), (true, false), "the store fails");
        failing.is_failing.store(false, Relaxed);
        *failing.certificate.lock().unwrap() = None;
        registry.read_changed(&store);
        assert_eq!((is_present(), is_due()), (false, true), "it was removed");
    }

    /// All of 100 certificates are due after a jump of the clock.
    #[test]
    fn names_are_due_in_the_order_of_their_times() {
        let registry = Registry::new(NamedIdentities::default());
        let name = |number: u64| format!("n{number}.example").parse::<Name>().unwrap();
        for number in 0..100 {
            let (info, versions) = (CertificateInfo::default(), NameVersions::default());
            let (due, origin) = (at(1_000 - number), Origin::Configured);
            let entry = Entry { info, due, versions, origin };
            registry.names().insert(name(number), entry);
        }
        let three_days = 3 * 86_400;
        for (now, max, in_progress, expected, next) in [
            (900, 8, None, vec![], Some(901)),
            (902, 8, None, vec![99, 98], Some(903)),
            (902, 8, Some(99), vec![98], Some(903)),
            (902, 1, None, vec![99], Some(903)),
            (900 + three_days, 8, None, vec![99, 98, 97, 96, 95, 94, 93, 92], None),
            (900 + three_days, 0, None, vec![], None),
        ] {
            let is_free = |it: &Name| in_progress.is_none_or(|number| *it != name(number));
            let (due, then) = registry.due(at(now), max, is_free);
            let expected: Vec<Name> = expected.into_iter().map(name).collect();
            assert_eq!((due, then), (expected, next.map(at)), "{now} {max}");
        }
    }
}
