//! Identities by server name, which change while the server runs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::sign::CertifiedKey;

use crate::error::Result;
use crate::net::tls::crypto::default_provider;
use crate::net::tls::identity::Identity;

/// Identities by server name, which may be added, replaced and removed while the server runs. They
/// precede the identities of [`TlsSettings::identities`](crate::tls::TlsSettings::identities).
///
/// Clones share their identities. A change takes effect for the next handshake.
#[derive(Clone, Default)]
pub struct NamedIdentities(Arc<Inner>);

#[derive(Default)]
struct Inner {
    keys: RwLock<Keys>,
    source: Option<Box<dyn IdentitySource>>,
}

#[derive(Default)]
struct Keys {
    /// Identities by domain name in lower case; a wildcard has the form `*.example.org`.
    names: HashMap<String, Arc<CertifiedKey>>,
    /// A client that connects to an address sends no server name (RFC 6066 §3).
    addresses: BTreeMap<IpAddr, Arc<CertifiedKey>>,
}

/// Source of identities for names that have none when a client sends them.
pub trait IdentitySource: Send + Sync + 'static {
    /// Starts to obtain the identity for a server name, and to insert it into the
    /// [`NamedIdentities`]. The handshake waits for the future, at most for the rest of
    /// [`head_timeout`](crate::Settings::head_timeout). `None`: there will be none, and the
    /// handshake continues with the identity for all other names.
    ///
    /// Called by a worker for each handshake with such a name, so it must not block. An error,
    /// which is the reason, ends the handshake. `client` is the address of the peer, for limits with
    /// a share per client. It is `None` on Unix sockets.
    fn obtain(&self, name: &str, client: Option<IpAddr>) -> Option<ObtainIdentity>;
}

/// Future of [`IdentitySource::obtain`].
pub type ObtainIdentity = Pin<Box<dyn Future<Output = std::result::Result<(), String>> + Send>>;

impl NamedIdentities {
    /// Creates an empty collection. A handshake with a name that has no identity calls `source`.
    pub fn with_source(source: impl IdentitySource) -> NamedIdentities {
        let source: Option<Box<dyn IdentitySource>> = Some(Box::new(source));
        NamedIdentities(Arc::new(Inner { keys: RwLock::default(), source }))
    }

    /// Sets the identity for a name: a domain name, `*.example.org` for its subdomains of one
    /// label, or an IP address. Clients that send no server name get the identity of the first
    /// address.
    ///
    /// # Errors
    /// [`InvalidSetting`](crate::ErrorKind::InvalidSetting) if a file cannot be read, or if
    /// certificate or key is unusable.
    pub fn insert(&self, name: &str, identity: &Identity) -> Result<()> {
        let key = identity.load(&default_provider())?.key;
        let mut keys = self.0.keys.write().unwrap_or_else(PoisonError::into_inner);
        match name.parse() {
            Ok(address) => keys.addresses.insert(address, key),
            Err(_) => keys.names.insert(name.to_ascii_lowercase(), key),
        };
        Ok(())
    }

    /// Removes the identity for a name.
    pub fn remove(&self, name: &str) {
        let mut keys = self.0.keys.write().unwrap_or_else(PoisonError::into_inner);
        match name.parse() {
            Ok(address) => keys.addresses.remove(&address),
            Err(_) => keys.names.remove(&name.to_ascii_lowercase()),
        };
    }

    /// Returns the key for a server name, or for a client that sends none.
    pub(super) fn get(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let keys = self.0.keys.read().unwrap_or_else(PoisonError::into_inner);
        let Some(name) = name else { return keys.addresses.values().next().cloned() };
        find_by_name(&keys.names, name).cloned()
    }

    pub(super) fn obtain(&self, name: &str, client: Option<IpAddr>) -> Option<ObtainIdentity> {
        self.0.source.as_ref()?.obtain(name, client)
    }
}

/// Returns the value for a server name: the value of the name itself, or of the wildcard that
/// matches it. The keys are in lower case; a wildcard has the form `*.example.org`.
pub(super) fn find_by_name<'a, T>(names: &'a HashMap<String, T>, name: &str) -> Option<&'a T> {
    let name = name.to_ascii_lowercase();
    // RFC 9525 §6.3: the asterisk is one label, the first.
    let wildcard = || name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
    names.get(&name).or_else(|| names.get(&wildcard()?))
}

/// Shows the names only.
impl fmt::Debug for NamedIdentities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.keys.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(keys.names.keys()).entries(keys.addresses.keys()).finish()
    }
}
