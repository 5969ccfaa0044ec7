//! Certificates for validations of domain names by `tls-alpn-01` (RFC 8737).

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::sign::CertifiedKey;

use crate::error::Result;
use crate::net::tls::crypto::default_provider;
use crate::net::tls::identity::Identity;
use crate::net::tls::named_identities::{IdentitySource, ObtainIdentity};

/// Protocol that a certificate authority negotiates for a validation (RFC 8737 §6.2).
pub(super) const ACME_TLS: &str = "acme-tls/1";

/// Certificates for authorities that validate domain names by `tls-alpn-01` (RFC 8737). Other
/// clients do not get them.
///
/// Clones share their certificates. A change takes effect for the next handshake.
#[derive(Clone, Default)]
pub struct AlpnChallenges(Arc<Inner>);

#[derive(Default)]
struct Inner {
    keys: RwLock<HashMap<String, Arc<CertifiedKey>>>,
    source: Option<Box<dyn IdentitySource>>,
}

impl AlpnChallenges {
    /// Creates an empty collection. A validation of a name without a certificate calls `source`,
    /// which may insert one.
    pub fn with_source(source: impl IdentitySource) -> AlpnChallenges {
        let source: Option<Box<dyn IdentitySource>> = Some(Box::new(source));
        AlpnChallenges(Arc::new(Inner { keys: RwLock::default(), source }))
    }

    /// Sets the certificate for a name, which is the server name (SNI) of the handshake: a domain
    /// name, or the reverse name of an IP address (RFC 8738 §6).
    ///
    /// # Errors
    /// [`InvalidSetting`](crate::ErrorKind::InvalidSetting) if certificate or key is unusable.
    pub fn insert(&self, name: &str, identity: &Identity) -> Result<()> {
        let key = identity.load_unparsed(&default_provider())?;
        let mut names = self.0.keys.write().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.to_ascii_lowercase(), key);
        Ok(())
    }

    /// Removes the certificate for a name.
    pub fn remove(&self, name: &str) {
        let mut names = self.0.keys.write().unwrap_or_else(PoisonError::into_inner);
        names.remove(&name.to_ascii_lowercase());
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let names = self.0.keys.read().unwrap_or_else(PoisonError::into_inner);
        names.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Starts to obtain the certificate for the validation of a name that has none.
    pub(super) fn obtain(&self, name: &str, client: Option<IpAddr>) -> Option<ObtainIdentity> {
        match self.get(name) {
            Some(_) => None,
            None => self.0.source.as_ref()?.obtain(name, client),
        }
    }
}

impl fmt::Debug for AlpnChallenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.keys.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(keys.keys()).finish()
    }
}
