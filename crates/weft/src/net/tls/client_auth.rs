//! Certificates of clients: whether they are asked for, and who may have signed them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::error::Result;
use crate::net::tls::identity::{Text, certificates, read};
use crate::net::tls::invalid;

/// Whether clients are asked for a certificate. Applications see it by
/// [`Session::peer_certificates`](super::Session::peer_certificates).
#[derive(Clone, Debug, Default)]
pub enum ClientAuth {
    /// They are not.
    #[default]
    None,
    /// They are, and may go on without. Who shows one that these have not signed may not.
    Optional(Roots),
    /// They are, and must show one that these have signed.
    Required(Roots),
}

/// The authorities whose signature on a client's certificate counts.
#[derive(Clone, Debug)]
pub struct Roots(Source);

#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    Pem(Arc<[u8]>),
}

/// How clients are verified.
pub(super) struct Loaded {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) rule: Rule,
}

/// Stands for all that is demanded of a client.
pub(super) type Rule = [u8; 32];

impl Roots {
    /// Certificates in a PEM file, which is read anew when it changes.
    pub fn file(path: impl Into<PathBuf>) -> Roots {
        Roots(Source::File(path.into()))
    }

    /// Certificates in PEM.
    pub fn pem(certificates: impl Into<Vec<u8>>) -> Roots {
        Roots(Source::Pem(certificates.into().into()))
    }

    fn text(&self) -> Text<'_> {
        match &self.0 {
            Source::File(path) => Text::File(path),
            Source::Pem(pem) => Text::Memory(pem),
        }
    }

    fn load(&self) -> Result<Vec<CertificateDer<'static>>> {
        certificates(&read(self.text())?, self.text())
    }
}

impl ClientAuth {
    /// The file that is read.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            ClientAuth::Optional(Roots(Source::File(path)))
            | ClientAuth::Required(Roots(Source::File(path))) => Some(path),
            _ => None,
        }
    }

    pub(super) fn load(&self, provider: &Arc<CryptoProvider>) -> Result<Loaded> {
        let (roots, is_required) = match self {
            ClientAuth::None => {
                let verifier = WebPkiClientVerifier::no_client_auth();
                return Ok(Loaded { verifier, rule: rule(0, &[]) });
            }
            ClientAuth::Optional(roots) => (roots, false),
            ClientAuth::Required(roots) => (roots, true),
        };
        let certificates = roots.load()?;
        let unusable = |place| invalid(format!("the authorities in {place} cannot be used"));
        let mut store = RootCertStore::empty();
        for certificate in &certificates {
            let added = store.add(certificate.clone());
            added.map_err(|error| unusable(roots.text()).because(error))?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider.clone());
        let builder = if is_required { builder } else { builder.allow_unauthenticated() };
        let verifier = builder.build();
        let verifier = verifier.map_err(|error| unusable(roots.text()).because(error))?;
        Ok(Loaded { verifier, rule: rule(1 + u8::from(is_required), &certificates) })
    }
}

fn rule(mode: u8, roots: &[CertificateDer<'_>]) -> Rule {
    let mut digest = Context::new(&SHA256);
    digest.update(&[mode]);
    for root in roots {
        // With its length, so that no two lists look the same.
        digest.update(&root.len().to_be_bytes());
        digest.update(root);
    }
    digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}
