//! Which certificates of upstreams are believed.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Those that an authority of this file has signed, or one that the system knows: an upstream is
/// often the administrator's own, and so is its authority, which a list that is compiled in
/// could not have.
pub(super) fn config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let certificates = CertificateDer::pem_file_iter(path);
            for certificate in certificates.map_err(|error| wrong(&error))? {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
            if roots.is_empty() {
                return Err(wrong(&"there is no certificate in it"));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                return Err("the system has no authorities to believe certificates by".to_owned());
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
