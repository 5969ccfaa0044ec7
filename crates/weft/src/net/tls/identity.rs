//! A certificate and its private key.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};
use webpki::EndEntityCert;

use crate::error::{Error, Result};

/// A certificate, its intermediate certificates, and its private key, all in PEM. The key may be
/// RSA, ECDSA or Ed25519, in PKCS #8, PKCS #1 or SEC 1 format; it must not be encrypted.
#[derive(Clone)]
pub struct Identity(Source);

#[derive(Clone)]
enum Source {
    Files { certificate: PathBuf, key: PathBuf },
    Pem { certificate: Arc<[u8]>, key: Arc<[u8]> },
}

/// An identity after loading.
#[derive(Debug)]
pub(super) struct LoadedIdentity {
    pub(super) key: Arc<CertifiedKey>,
    /// DNS names in the certificate.
    pub(super) names: Vec<String>,
}

impl Identity {
    /// An identity in files, which are reloaded when they change. Both may be the same file.
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Identity {
        Identity(Source::Files { certificate: certificate.into(), key: key.into() })
    }

    /// An identity in memory. The texts are copied.
    pub fn pem(certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Identity {
        let (certificate, key) = (certificate.as_ref().into(), key.as_ref().into());
        Identity(Source::Pem { certificate, key })
    }

    /// Paths of its files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = match &self.0 {
            Source::Files { certificate, key } => [Some(&**certificate), Some(&**key)],
            Source::Pem { .. } => [None, None],
        };
        paths.into_iter().flatten()
    }

    pub(super) fn load(&self, provider: &CryptoProvider) -> Result<LoadedIdentity> {
        let (chain, key) = self.read_chain_and_key()?;
        let (certificate, key_source) = (self.certificate(), self.key());
        let names = names(&chain[0], certificate)?;
        let certified = CertifiedKey::from_der(chain, key, provider);
        let certified = certified.map_err(|error| match error {
            TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                Error::invalid_setting(format!(
                    "the key in {key_source} does not belong to the certificate in {certificate}"
                ))
            }
            error => Error::invalid_setting(format!("cannot use the key in {key_source}"))
                .with_source(error),
        })?;
        Ok(LoadedIdentity { key: Arc::new(certified), names })
    }

    /// Loads the identity without parsing its certificate, which may have critical extensions that
    /// servers do not have.
    pub(super) fn load_unparsed(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>> {
        let (chain, key) = self.read_chain_and_key()?;
        let key = provider.key_provider.load_private_key(key);
        let unusable = |error| {
            Error::invalid_setting(format!("cannot use the key in {}", self.key()))
                .with_source(error)
        };
        Ok(Arc::new(CertifiedKey::new(chain, key.map_err(unusable)?)))
    }

    fn read_chain_and_key(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let (certificate, key) = (self.certificate(), self.key());
        Ok((certificates(&read(certificate)?, certificate)?, private_key(&read(key)?, key)?))
    }

    fn certificate(&self) -> DataSource<'_> {
        match &self.0 {
            Source::Files { certificate, .. } => DataSource::File(certificate),
            Source::Pem { certificate, .. } => DataSource::Memory(certificate),
        }
    }

    fn key(&self) -> DataSource<'_> {
        match &self.0 {
            Source::Files { key, .. } => DataSource::File(key),
            Source::Pem { key, .. } => DataSource::Memory(key),
        }
    }
}

/// Does not show the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} and {})", self.certificate(), self.key())
    }
}

/// Source of PEM text or key bytes; displayed as the path, or as `memory`.
#[derive(Clone, Copy)]
pub(super) enum DataSource<'a> {
    File(&'a Path),
    Memory(&'a [u8]),
}

impl fmt::Display for DataSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSource::File(path) => path.display().fmt(f),
            DataSource::Memory(_) => f.write_str("memory"),
        }
    }
}

pub(super) fn read(source: DataSource<'_>) -> Result<Vec<u8>> {
    match source {
        DataSource::Memory(bytes) => Ok(bytes.to_vec()),
        DataSource::File(path) => std::fs::read(path).map_err(|error| {
            Error::invalid_setting(format!("cannot read {}", path.display())).with_source(error)
        }),
    }
}

/// Returns all certificates of a PEM text; at least one.
pub(super) fn certificates(
    pem: &[u8],
    source: DataSource<'_>,
) -> Result<Vec<CertificateDer<'static>>> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(Error::invalid_setting(format!("{source} contains no certificate"))),
        Err(error) => {
            Err(Error::invalid_setting(format!("{source} is not valid PEM")).with_source(error))
        }
    }
}

fn private_key(pem: &[u8], source: DataSource<'_>) -> Result<PrivateKeyDer<'static>> {
    // The word occurs in the label of PKCS #8, or in a header line of the older OpenSSL format.
    let is_encrypted = pem.windows(9).any(|window| window == b"ENCRYPTED");
    match PrivateKeyDer::from_pem_slice(pem) {
        _ if is_encrypted => Err(Error::invalid_setting(format!(
            "the key in {source} is encrypted: decrypt it, passwords are not supported"
        ))),
        Ok(key) => Ok(key),
        Err(rustls::pki_types::pem::Error::NoItemsFound) => {
            Err(Error::invalid_setting(format!("{source} contains no private key")))
        }
        Err(error) => {
            Err(Error::invalid_setting(format!("{source} is not valid PEM")).with_source(error))
        }
    }
}

fn names(certificate: &CertificateDer<'_>, source: DataSource<'_>) -> Result<Vec<String>> {
    let parsed = EndEntityCert::try_from(certificate).map_err(|error| match error {
        webpki::Error::UnsupportedCertVersion => Error::invalid_setting(format!(
            "the certificate in {source} is of X.509 version 1, which has no names; create one of \
             version 3, with subjectAltName"
        )),
        error => Error::invalid_setting(format!("cannot parse the certificate in {source}"))
            .with_source(error),
    })?;
    Ok(parsed.valid_dns_names().map(str::to_ascii_lowercase).collect())
}
