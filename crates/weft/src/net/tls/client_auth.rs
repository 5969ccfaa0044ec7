//! Client authentication by certificate, and the trusted certificate authorities.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::error::{Error, Result};
use crate::net::tls::crypto::sha256;
use crate::net::tls::identity::{DataSource, certificates, read};

/// Authentication of clients by certificate. Applications read the certificate with
/// [`TlsSession::peer_certificates`](crate::net::TlsSession::peer_certificates).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ClientAuth {
    /// No certificate is requested.
    #[default]
    None,
    /// A certificate is requested. Clients without one are accepted; clients with a
    /// certificate that these authorities have not signed are rejected.
    Optional(Roots),
    /// A certificate that these authorities have signed is required.
    Required(Roots),
}

/// Certificate authorities trusted to sign client certificates.
#[derive(Clone, Debug)]
pub struct Roots(Source);

#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    Pem(Arc<[u8]>),
}

/// Verifier of client certificates.
#[derive(Clone)]
pub(super) struct LoadedClientAuth {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) digest: ClientAuthDigest,
}

/// SHA-256 digest of the client authentication settings.
pub(super) type ClientAuthDigest = [u8; 32];

impl Roots {
    /// Certificates in a PEM file, which is reloaded when it changes.
    pub fn file(path: impl Into<PathBuf>) -> Roots {
        Roots(Source::File(path.into()))
    }

    /// Certificates in PEM, in memory.
    pub fn pem(certificates: impl Into<Vec<u8>>) -> Roots {
        Roots(Source::Pem(certificates.into().into()))
    }

    fn source(&self) -> DataSource<'_> {
        match &self.0 {
            Source::File(path) => DataSource::File(path),
            Source::Pem(pem) => DataSource::Memory(pem),
        }
    }

    fn load(&self) -> Result<Vec<CertificateDer<'static>>> {
        certificates(&read(self.source())?, self.source())
    }
}

impl ClientAuth {
    /// Path of the file that is read.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            ClientAuth::Optional(Roots(Source::File(path)))
            | ClientAuth::Required(Roots(Source::File(path))) => Some(path),
            _ => None,
        }
    }

    pub(super) fn load(&self, provider: &Arc<CryptoProvider>) -> Result<LoadedClientAuth> {
        let (roots, is_required) = match self {
            ClientAuth::None => {
                let verifier = WebPkiClientVerifier::no_client_auth();
                return Ok(LoadedClientAuth { verifier, digest: digest(0, &[]) });
            }
            ClientAuth::Optional(roots) => (roots, false),
            ClientAuth::Required(roots) => (roots, true),
        };
        let certificates = roots.load()?;
        let unusable = |source| {
            Error::invalid_setting(format!("cannot use the certificate authorities in {source}"))
        };
        let mut store = RootCertStore::empty();
        for certificate in &certificates {
            let added = store.add(certificate.clone());
            added.map_err(|error| unusable(roots.source()).with_source(error))?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider.clone());
        let builder = if is_required { builder } else { builder.allow_unauthenticated() };
        let verifier = builder.build();
        let verifier = verifier.map_err(|error| unusable(roots.source()).with_source(error))?;
        Ok(LoadedClientAuth { verifier, digest: digest(1 + u8::from(is_required), &certificates) })
    }
}

fn digest(mode: u8, roots: &[CertificateDer<'_>]) -> ClientAuthDigest {
    let mode = [mode];
    // With the lengths, so that different lists have different digests.
    let lengths: Vec<_> = roots.iter().map(|root| root.len().to_be_bytes()).collect();
    let roots = roots.iter().zip(&lengths).flat_map(|(root, length)| [&length[..], root]);
    sha256([&mode[..]].into_iter().chain(roots))
}
