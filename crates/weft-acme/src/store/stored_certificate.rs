//! A stored certificate, and when there is something to do about it.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use weft::tls::certificate::{Validity, validity};

use super::renewal::{Lifetime, MAX_WAIT};
use super::store_entries::{NameState, StoreEntries};
use crate::name::Name;

/// The certificate of a name, and the state of its renewal.
pub(crate) struct StoredCertificate {
    /// The private key and the chain; `None` if there is no certificate.
    pub(crate) pem: Option<Vec<u8>>,
    /// The first certificate of the chain, in DER; `None` if the chain is not valid.
    pub(crate) der: Option<Vec<u8>>,
    pub(crate) lifetime: Option<Lifetime>,
    pub(crate) state: NameState,
    /// A number from 0 to 1, which depends on the name and the certificate only.
    pub(crate) jitter: f64,
}

/// State of the certificate of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateInfo {
    /// End of its validity. `None`: there is no certificate yet.
    pub not_after: Option<SystemTime>,
    /// Time of the next order, or of the next question to the authority about the certificate. It
    /// may be in the past.
    pub next_order: Option<SystemTime>,
    /// Failures since the last success.
    pub failures: u32,
    /// Reason of the last failure. If the authority stated the reason, these are its words.
    pub last_error: Option<String>,
}

impl StoredCertificate {
    pub(crate) fn read(store: &StoreEntries, name: &Name) -> io::Result<StoredCertificate> {
        Ok(StoredCertificate::new(name, store.certificate(name)?, store.state(name)?))
    }

    pub(crate) fn new(name: &Name, pem: Option<Vec<u8>>, state: NameState) -> StoredCertificate {
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
        StoredCertificate { pem, der, lifetime, state, jitter }
    }

    /// Returns true if the certificate has not expired.
    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        self.lifetime.is_some_and(|lifetime| lifetime.not_after > now)
    }

    /// Returns the time of the renewal, which may be in the past.
    pub(crate) fn renewal(&self) -> SystemTime {
        let lifetime = self.lifetime;
        lifetime.map_or(SystemTime::UNIX_EPOCH, |lifetime| lifetime.renewal_time(self.jitter))
    }

    /// Returns the time of the next renewal, retry, or question to the authority.
    ///
    /// A retry or a question is ignored if it is further away than any delay: the clock has been
    /// set back since it was scheduled.
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

    /// Returns true if a certificate is due on a day. The certificate is valid from day 100 to day
    /// 190, and is renewed after day 160.
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
        let store = StoreEntries(Arc::new(FileStore::new(folder.path())));
        let read = |name: &str| StoredCertificate::read(&store, &name.parse().unwrap()).unwrap();
        let jitter = |name: &str| read(name).jitter;
        assert_ne!(jitter("a.example"), jitter("b.example"));
        assert_eq!(jitter("a.example"), jitter("a.example"));
        assert!((0.0..=1.0).contains(&jitter("a.example")));
    }
}
