//! Which certificate a client gets.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::net::tls::identity::Loaded;

#[derive(Debug)]
pub(super) struct Resolver {
    keys: Vec<Arc<CertifiedKey>>,
    /// Which of them are for a name, in lower case; or for `*.` and the rest of one.
    names: HashMap<String, Vec<usize>>,
}

impl Resolver {
    /// There is at least one identity.
    pub(super) fn new(identities: Vec<Loaded>) -> Resolver {
        let mut resolver = Resolver { keys: Vec::new(), names: HashMap::new() };
        for (number, Loaded { key, names }) in identities.into_iter().enumerate() {
            resolver.keys.push(key);
            for name in names {
                resolver.names.entry(name).or_default().push(number);
            }
        }
        resolver
    }

    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> &Arc<CertifiedKey> {
        let fits = |number: &usize| self.keys[*number].key.choose_scheme(schemes).is_some();
        let named = name.map_or(&[][..], |name| self.named(name));
        let number = match named.iter().copied().find(fits).or(named.first().copied()) {
            Some(number) => number,
            None => (0..self.keys.len()).find(fits).unwrap_or(0),
        };
        &self.keys[number]
    }

    /// Those that are for a name.
    fn named(&self, name: &str) -> &[usize] {
        let name = name.to_ascii_lowercase();
        // RFC 9525 §6.3: the asterisk is one label, the first.
        let wildcard = || name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let exact = self.names.get(&name);
        exact.or_else(|| self.names.get(&wildcard()?)).map_or(&[], Vec::as_slice)
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.choose(hello.server_name(), hello.signature_schemes()).clone())
    }
}
