//! Certificates for validations of domain names by `tls-alpn-01` (RFC 8737).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::sign::CertifiedKey;

use crate::error::Result;
use crate::net::tls::crypto::default_provider;
use crate::net::tls::identity::Identity;

/// Protocol that a certificate authority negotiates for a validation (RFC 8737 §6.2).
pub(super) const ACME_TLS: &str = "acme-tls/1";

/// Certificates for authorities that validate domain names by `tls-alpn-01` (RFC 8737). Other
/// clients do not get them.
///
/// Clones share their certificates. A change takes effect for the next handshake.
#[derive(Clone, Debug, Default)]
pub struct AlpnChallenges(Arc<RwLock<HashMap<String, Arc<CertifiedKey>>>>);

impl AlpnChallenges {
    /// Sets the certificate for a name, which is the server name (SNI) of the handshake: a domain
    /// name, or the reverse name of an IP address (RFC 8738 §6).
    ///
    /// # Errors
    /// [`InvalidSetting`](crate::ErrorKind::InvalidSetting) if certificate or key is unusable.
    pub fn insert(&self, name: &str, identity: &Identity) -> Result<()> {
        let key = identity.load_unparsed(&default_provider())?;
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.to_ascii_lowercase(), key);
        Ok(())
    }

    /// Removes the certificate for a name.
    pub fn remove(&self, name: &str) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        names.remove(&name.to_ascii_lowercase());
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.get(&name.to_ascii_lowercase()).cloned()
    }
}
