//! The state of all names, for metrics and the status page.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::settings::Name;

/// State of the certificate of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateInfo {
    /// `None`: there is no certificate yet.
    pub(crate) not_after: Option<SystemTime>,
    /// Time of the next order.
    pub(crate) next_order: Option<SystemTime>,
    /// Failures since the last success.
    pub(crate) failures: u32,
    pub(crate) last_error: Option<String>,
}

/// The state of all names.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<BTreeMap<Name, CertificateInfo>>);

impl Registry {
    pub(super) fn set(&self, name: &Name, info: CertificateInfo) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.clone(), info);
    }

    /// Removes the names that are not ordered any more.
    pub(super) fn retain(&self, names: &[Name]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| names.binary_search(name).is_ok());
    }

    pub(crate) fn all(&self) -> Vec<(Name, CertificateInfo)> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().map(|(name, info)| (name.clone(), info.clone())).collect()
    }
}
