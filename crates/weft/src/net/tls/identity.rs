//! A certificate and its key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};
use webpki::EndEntityCert;

use crate::error::Result;
use crate::net::tls::invalid;

/// A certificate, those between it and a root, and its private key, all in PEM. The key may
/// be of RSA, ECDSA or Ed25519, in PKCS #8, PKCS #1 or SEC 1; it must not be encrypted.
#[derive(Clone)]
pub struct Identity(Source);

#[derive(Clone)]
enum Source {
    Files { certificate: PathBuf, key: PathBuf },
    Pem { certificate: Arc<[u8]>, key: Arc<[u8]> },
}

/// An identity that was read.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) key: Arc<CertifiedKey>,
    /// The DNS names in the certificate.
    pub(super) names: Vec<String>,
}

impl Identity {
    /// An identity in files, which are read anew when they change. Both may be the same file.
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Identity {
        Identity(Source::Files { certificate: certificate.into(), key: key.into() })
    }

    /// An identity in memory.
    pub fn pem(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Identity {
        Identity(Source::Pem { certificate: certificate.into().into(), key: key.into().into() })
    }

    /// The files that it is in.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = match &self.0 {
            Source::Files { certificate, key } => [Some(&**certificate), Some(&**key)],
            Source::Pem { .. } => [None, None],
        };
        paths.into_iter().flatten()
    }

    pub(super) fn load(&self, provider: &CryptoProvider) -> Result<Loaded> {
        let certificate = self.certificate();
        let chain = certificates(&read(certificate)?, certificate)?;
        let names = names(&chain[0], certificate)?;
        let key = self.key();
        let key_der = private_key(&read(key)?, key)?;
        let certified = CertifiedKey::from_der(chain, key_der, provider);
        let certified = certified.map_err(|error| match error {
            TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => invalid(format!(
                "the key in {key} does not belong to the certificate in {certificate}"
            )),
            error => invalid(format!("the key in {key} cannot be used")).because(error),
        })?;
        Ok(Loaded { key: Arc::new(certified), names })
    }

    fn certificate(&self) -> Text<'_> {
        match &self.0 {
            Source::Files { certificate, .. } => Text::File(certificate),
            Source::Pem { certificate, .. } => Text::Memory(certificate),
        }
    }

    fn key(&self) -> Text<'_> {
        match &self.0 {
            Source::Files { key, .. } => Text::File(key),
            Source::Pem { key, .. } => Text::Memory(key),
        }
    }
}

/// Without the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} and {})", self.certificate(), self.key())
    }
}

/// Where a text in PEM is; shown as the place that it is in.
#[derive(Clone, Copy)]
pub(super) enum Text<'a> {
    File(&'a Path),
    Memory(&'a [u8]),
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::File(path) => path.display().fmt(f),
            Text::Memory(_) => f.write_str("memory"),
        }
    }
}

pub(super) fn read(text: Text<'_>) -> Result<Vec<u8>> {
    match text {
        Text::Memory(bytes) => Ok(bytes.to_vec()),
        Text::File(path) => std::fs::read(path)
            .map_err(|error| invalid(format!("cannot read {}", path.display())).because(error)),
    }
}

/// All certificates of a text; at least one.
pub(super) fn certificates(pem: &[u8], place: Text<'_>) -> Result<Vec<CertificateDer<'static>>> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(invalid(format!("{place} holds no certificate"))),
        Err(error) => Err(invalid(format!("{place} is not sound PEM")).because(error)),
    }
}

fn private_key(pem: &[u8], place: Text<'_>) -> Result<PrivateKeyDer<'static>> {
    // In the label of PKCS #8, or in a line of what OpenSSL wrote before that.
    let is_encrypted = pem.windows(9).any(|window| window == b"ENCRYPTED");
    match PrivateKeyDer::from_pem_slice(pem) {
        _ if is_encrypted => Err(invalid(format!(
            "the key in {place} is encrypted, and nobody is asked for a password"
        ))),
        Ok(key) => Ok(key),
        Err(rustls::pki_types::pem::Error::NoItemsFound) => {
            Err(invalid(format!("{place} holds no private key")))
        }
        Err(error) => Err(invalid(format!("{place} is not sound PEM")).because(error)),
    }
}

fn names(certificate: &CertificateDer<'_>, place: Text<'_>) -> Result<Vec<String>> {
    let parsed = EndEntityCert::try_from(certificate).map_err(|error| {
        invalid(format!("the certificate in {place} cannot be understood")).because(error)
    })?;
    Ok(parsed.valid_dns_names().map(str::to_ascii_lowercase).collect())
}
