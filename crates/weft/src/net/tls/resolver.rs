//! Selection of the certificate for a client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::net::tls::alpn_challenge::{ACME_TLS, AlpnChallenges};
use crate::net::tls::identity::LoadedIdentity;
use crate::net::tls::named_identities::{NamedIdentities, ObtainIdentity, find_by_name};

#[derive(Debug)]
pub(super) struct Resolver {
    keys: Vec<Arc<CertifiedKey>>,
    /// Indexes of the keys for each name, in lower case; a wildcard has the form `*.example.org`.
    names: HashMap<String, Vec<usize>>,
    /// The clients that get one of the keys without a key for their name.
    fallback: Fallback,
    /// Identities that precede `keys`.
    named: Option<NamedIdentities>,
    challenges: Option<AlpnChallenges>,
}

/// The clients that get one of the keys without a key for their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fallback {
    All,
    /// A key is missing, to which their name may belong.
    WithoutName,
    /// The first key is missing, or all are.
    None,
}

impl Resolver {
    pub(super) fn new(
        identities: &[Option<Arc<LoadedIdentity>>],
        named: Option<NamedIdentities>,
        challenges: Option<AlpnChallenges>,
    ) -> Resolver {
        let fallback = match identities {
            [] | [None, ..] => Fallback::None,
            all if all.iter().all(Option::is_some) => Fallback::All,
            _ => Fallback::WithoutName,
        };
        let (keys, names) = (Vec::new(), HashMap::new());
        let mut resolver = Resolver { keys, names, fallback, named, challenges };
        for (index, identity) in identities.iter().flatten().enumerate() {
            resolver.keys.push(identity.key.clone());
            for name in &identity.names {
                resolver.names.entry(name.clone()).or_default().push(index);
            }
        }
        resolver
    }

    /// Returns true if there is a key for the client's server name, or if a certificate authority
    /// validates the name.
    pub(super) fn has_key(&self, hello: &ClientHello<'_>) -> bool {
        let name = hello.server_name();
        self.named.as_ref().is_some_and(|named| named.get(name).is_some())
            || name.is_some_and(|name| !self.key_indexes(name).is_empty())
            || self.challenges.is_some() && is_validation(hello)
    }

    /// Returns true if there is a key for a client without a key for its name.
    pub(super) fn has_fallback(&self, name: Option<&str>) -> bool {
        match self.fallback {
            Fallback::All => true,
            Fallback::WithoutName => name.is_none(),
            Fallback::None => false,
        }
    }

    /// Starts to obtain an identity for a name.
    pub(super) fn obtain(&self, name: &str, client: Option<IpAddr>) -> Option<ObtainIdentity> {
        self.named.as_ref()?.obtain(name, client)
    }

    /// Starts to obtain the certificate for the validation of a name by a certificate authority.
    pub(super) fn obtain_validation(
        &self,
        hello: &ClientHello<'_>,
        client: Option<IpAddr>,
    ) -> Option<ObtainIdentity> {
        let challenges = self.challenges.as_ref().filter(|_| is_validation(hello))?;
        challenges.obtain(hello.server_name()?, client)
    }

    fn choose(
        &self,
        name: Option<&str>,
        schemes: &[SignatureScheme],
    ) -> Option<&Arc<CertifiedKey>> {
        let is_supported = |index: &usize| self.keys[*index].key.choose_scheme(schemes).is_some();
        let indexes = name.map_or(&[][..], |name| self.key_indexes(name));
        let index = match indexes.iter().copied().find(is_supported).or(indexes.first().copied()) {
            Some(index) => index,
            None if !self.has_fallback(name) => return None,
            None => (0..self.keys.len()).find(is_supported).unwrap_or(0),
        };
        self.keys.get(index)
    }

    /// Returns the indexes of the keys for a name.
    fn key_indexes(&self, name: &str) -> &[usize] {
        find_by_name(&self.names, name).map_or(&[], Vec::as_slice)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let Some(challenges) = &self.challenges
            && is_validation(&hello)
        {
            return challenges.get(hello.server_name()?);
        }
        let name = hello.server_name();
        let named = self.named.as_ref().and_then(|named| named.get(name));
        named.or_else(|| self.choose(name, hello.signature_schemes()).cloned())
    }
}

/// Returns true if a certificate authority makes the handshake to validate a name (RFC 8737 §3).
fn is_validation(hello: &ClientHello<'_>) -> bool {
    let mut protocols = hello.alpn().into_iter().flatten();
    protocols.next() == Some(ACME_TLS.as_bytes()) && protocols.next().is_none()
}
