//! Self-signed certificates.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use weft::tls::Identity;
use weft::{Error, ErrorKind, Result};

/// Generates a self-signed certificate for domain names and IP addresses. No client trusts it. It
/// is for development, and for the time until the first order has ended.
///
/// # Errors
/// [`InvalidSetting`](weft::ErrorKind::InvalidSetting) if a name has characters other than ASCII.
pub fn self_signed(names: impl IntoIterator<Item = impl Into<String>>) -> Result<Identity> {
    let names: Vec<String> = names.into_iter().map(Into::into).collect();
    let generated = generate_simple_self_signed(names).map_err(|error| {
        let reason = "cannot generate a self-signed certificate";
        Error::new(ErrorKind::InvalidSetting, reason).with_source(error)
    });
    let CertifiedKey { cert, signing_key } = generated?;
    Ok(Identity::pem(cert.pem(), signing_key.serialize_pem()))
}
