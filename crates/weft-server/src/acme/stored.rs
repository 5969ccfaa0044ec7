//! A stored certificate, and when there is something to do about it.

use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, SystemTime};

use super::registry::CertificateInfo;
use super::renewal::Lifetime;
use super::settings::Name;
use super::store::{NameState, Store};
use crate::certificate::{self, Validity};

/// The stored certificate of a name, and the state of its renewal.
pub(crate) struct StoredCertificate {
    /// The first certificate of the chain, in DER; `None` if there is none.
    pub(super) der: Option<Vec<u8>>,
    pub(super) lifetime: Option<Lifetime>,
    pub(super) state: NameState,
}

impl StoredCertificate {
    pub(crate) fn read(store: &Store, name: &Name) -> StoredCertificate {
        let state = store.state(name);
        let der = certificate::read(&store.certificate_path(name)).map(|der| der.to_vec());
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let lifetime = der.as_deref().and_then(certificate::validity);
        let lifetime = lifetime.map(|Validity { not_before, not_after }| Lifetime {
            not_before,
            not_after,
            window: state.window.map(|(start, end)| (at(start), at(end))),
        });
        StoredCertificate { der, lifetime, state }
    }

    /// Time of the renewal, also if it is in the past.
    pub(super) fn renewal(&self) -> SystemTime {
        let lifetime = self.lifetime;
        lifetime.map_or(SystemTime::UNIX_EPOCH, |lifetime| lifetime.renewal_time(self.jitter()))
    }

    /// Time at which there is something to do: a renewal, a retry, or a question to the authority.
    pub(super) fn due(&self) -> SystemTime {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let next = match self.state.ask_at {
            0 => self.renewal(),
            ask_at => self.renewal().min(at(ask_at)),
        };
        next.max(at(self.state.retry_at))
    }

    /// Returns a number from 0 to 1, the same for a certificate at each call.
    pub(super) fn jitter(&self) -> f64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.der.as_deref().unwrap_or_default());
        hasher.finish() as f64 / u64::MAX as f64
    }

    pub(crate) fn info(&self) -> CertificateInfo {
        CertificateInfo {
            not_after: self.lifetime.map(|lifetime| lifetime.not_after),
            next_order: Some(self.due()),
            failures: self.state.failures,
            last_error: self.state.last_error.clone(),
        }
    }
}
