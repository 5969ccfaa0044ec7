//! Parts of the server that the program sets while it runs, rather than a configuration:
//! certificates and endpoints of a cluster.

use weft::tls::NamedIdentities;
use weft_upstream::LocalServices;

/// Certificates and endpoints that change without a reload. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProvidedParts {
    /// Certificates by server name; `None` without a cluster.
    pub(crate) identities: Option<NamedIdentities>,
    /// Endpoints of services.
    pub(crate) services: LocalServices,
}

/// A process has one collection, so that plans do not differ in it.
impl PartialEq for ProvidedParts {
    fn eq(&self, _: &ProvidedParts) -> bool {
        true
    }
}

impl Eq for ProvidedParts {}
