//! Self-signed certificates.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use weft::Result;
use weft::tls::Identity;

use crate::invalid_setting::invalid;

/// Generates a self-signed certificate for domain names and IP addresses, which no client trusts: for
/// development, and until the first order of a certificate has ended.
///
/// # Errors
/// [`InvalidSetting`](weft::ErrorKind::InvalidSetting) if a name has characters other than ASCII.
pub fn self_signed(names: impl IntoIterator<Item = impl Into<String>>) -> Result<Identity> {
    let names: Vec<String> = names.into_iter().map(Into::into).collect();
    let made = generate_simple_self_signed(names);
    let CertifiedKey { cert, signing_key } = made
        .map_err(|error| invalid("cannot generate a self-signed certificate").with_source(error))?;
    Ok(Identity::pem(cert.pem(), signing_key.serialize_pem()))
}
