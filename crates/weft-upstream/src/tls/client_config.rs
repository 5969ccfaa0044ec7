//! TLS configuration for connections to upstreams.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::key_pin::{KeyPin, PinVerifier};
use crate::base::crypto::default_provider;
use crate::url::http_version::HttpVersion;

/// Certificate of the proxy for upstreams that request a client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientIdentity {
    /// PEM file with the certificate and the intermediate ones.
    pub certificate: PathBuf,
    /// PEM file with its private key.
    pub key: PathBuf,
}

/// Creates a configuration that trusts the authorities in the file `ca`, or the authorities of the
/// system. If there are `pins`, certificates must have one of these keys. A compiled-in list would
/// not do: upstreams are often the administrator's own, with certificates of an own authority.
///
/// # Errors
/// If a file cannot be read, or has no valid certificate or key.
pub fn client_config(
    ca: Option<&Path>,
    own: Option<&ClientIdentity>,
    pins: &[KeyPin],
    http_version: HttpVersion,
) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in read_certificates(path)? {
                roots.add(certificate).map_err(|error| with_path(path, &error))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                return Err(
                    "the system has no trusted certificate authorities; name a file with `ca`"
                        .to_owned(),
                );
            }
        }
    }
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let builder = match pins {
        [] => builder.with_root_certificates(roots),
        pins => {
            let inner = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
            let inner = inner.build().map_err(|error| error.to_string())?;
            let verifier = PinVerifier { inner, pins: pins.to_vec() };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let mut config = match own {
        Some(own) => {
            let (chain, key) = own.read()?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| with_path(&own.certificate, &error))?
        }
        None => builder.with_no_client_auth(),
    };
    let protocols: &[&[u8]] = match http_version {
        HttpVersion::Http1 => &[b"http/1.1"],
        HttpVersion::Http2 => &[b"h2"],
        HttpVersion::Negotiated => &[b"h2", b"http/1.1"],
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

impl ClientIdentity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let chain = read_certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        Ok((chain, key.map_err(|error| with_path(&self.key, &error))?))
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certificates.map_err(|error| with_path(path, &error))? {
        none if none.is_empty() => Err(with_path(path, &"the file contains no certificate")),
        certificates => Ok(certificates),
    }
}

fn with_path(path: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", path.display())
}

/// Creates a configuration for upstreams without HTTP, which do not negotiate a protocol.
///
/// # Errors
/// If the file cannot be read, or has no certificate.
pub fn client_config_without_alpn(ca: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut config = Arc::unwrap_or_clone(client_config(ca, None, &[], HttpVersion::Http1)?);
    config.alpn_protocols.clear();
    Ok(Arc::new(config))
}
