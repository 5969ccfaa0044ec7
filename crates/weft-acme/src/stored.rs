//! A stored certificate, and when there is something to do about it.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::name::Name;
use crate::registry::CertificateInfo;
use crate::renewal::{Lifetime, MAX_WAIT};
use crate::store::{NameState, Store};
use weft::tls::certificate::{Validity, validity};

/// The stored certificate of a name, and the state of its renewal.
pub(crate) struct StoredCertificate {
    /// The private key and the chain; `None` if there are none.
    pub(crate) pem: Option<Vec<u8>>,
    /// The first certificate of the chain, in DER; `None` if there is none.
    pub(crate) der: Option<Vec<u8>>,
    pub(crate) lifetime: Option<Lifetime>,
    pub(crate) state: NameState,
    /// A number from 0 to 1, the same for a certificate at each call.
    pub(crate) jitter: f64,
}

impl StoredCertificate {
    pub(crate) fn read(store: &Store, name: &Name) -> io::Result<StoredCertificate> {
        let (pem, state) = (store.certificate(name)?, store.state(name)?);
        let first = pem.as_ref().and_then(|pem| CertificateDer::from_pem_slice(pem).ok());
        let der = first.map(|der| der.to_vec());
        let lifetime = der.as_deref().and_then(validity);
        let lifetime = lifetime.map(|Validity { not_before, not_after }| Lifetime {
            not_before,
            not_after,
            window: state.window.map(|(start, end)| (at(start), at(end))),
        });
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_str().as_bytes());
        hasher.write(der.as_deref().unwrap_or_default());
        let jitter = hasher.finish() as f64 / u64::MAX as f64;
        Ok(StoredCertificate { pem, der, lifetime, state, jitter })
    }

    /// Time of the renewal, also if it is in the past.
    pub(crate) fn renewal(&self) -> SystemTime {
        let lifetime = self.lifetime;
        lifetime.map_or(SystemTime::UNIX_EPOCH, |lifetime| lifetime.renewal_time(self.jitter))
    }

    /// Time at which there is something to do: a renewal, a retry, or a question to the authority.
    ///
    /// A retry or a question that is further away than any delay was scheduled by a clock that has
    /// been set back since.
    pub(crate) fn due(&self, now: SystemTime) -> SystemTime {
        let scheduled = |seconds| Some(at(seconds)).filter(|time| *time <= now + MAX_WAIT);
        let ask_at = scheduled(self.state.ask_at).filter(|_| self.state.ask_at > 0);
        let next = ask_at.map_or(self.renewal(), |ask_at| ask_at.min(self.renewal()));
        next.max(scheduled(self.state.retry_at).unwrap_or(SystemTime::UNIX_EPOCH))
    }

    pub(crate) fn into_info(self, due: SystemTime) -> CertificateInfo {
        CertificateInfo {
            not_after: self.lifetime.map(|lifetime| lifetime.not_after),
            next_order: Some(due),
            failures: self.state.failures,
            last_error: self.state.last_error,
        }
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::FileStore;

    const DAY: u64 = 86_400;

    /// Returns true if there is something to do on a day for a certificate from day 100 to day 190,
    /// which is renewed after day 160.
    fn is_due(day: u64, ask_at: u64, retry_at: u64) -> bool {
        let (not_before, not_after) = (at(100 * DAY), at(190 * DAY));
        let lifetime = Some(Lifetime { not_before, not_after, window: None });
        let (ask_at, retry_at) = (ask_at * DAY, retry_at * DAY);
        let state = NameState { ask_at, retry_at, ..NameState::default() };
        let stored = StoredCertificate { pem: None, der: None, lifetime, state, jitter: 0.0 };
        stored.due(at(day * DAY)) <= at(day * DAY)
    }

    #[test]
    fn jumps_of_the_clock_lead_to_renewals_and_never_delay_them() {
        for (case, day, ask_at, retry_at, expected) in [
            ("before the renewal", 159, 0, 0, false),
            ("a jump to its time", 160, 0, 0, true),
            ("a question is due", 120, 120, 0, true),
            ("a jump over a question", 123, 120, 0, true),
            ("a question is not due", 120, 121, 0, false),
            ("a retry is not due", 170, 0, 171, false),
            ("a jump over a retry", 174, 0, 171, true),
            ("a retry of a clock that was 3 days ahead", 170, 0, 173, true),
            ("a question of a clock that was 3 days ahead", 161, 163, 0, true),
            ("such a question is no reason before the renewal", 120, 123, 0, false),
        ] {
            assert_eq!(is_due(day, ask_at, retry_at), expected, "{case}");
        }
    }

    #[test]
    fn names_without_certificate_have_different_jitter() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store(Arc::new(FileStore::new(folder.path())));
        let read = |name: &str| StoredCertificate::read(&store, &name.parse().unwrap()).unwrap();
        let jitter = |name: &str| read(name).jitter;
        assert_ne!(jitter("a.example"), jitter("b.example"));
        assert_eq!(jitter("a.example"), jitter("a.example"));
        assert!((0.0..=1.0).contains(&jitter("a.example")));
    }
}
