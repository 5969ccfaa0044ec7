//! [`TlsPlan`] → [`Tls`], with a self-signed certificate if none is configured.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use weft::Address;
use weft::tls::{ClientAuth, Identity, Roots, Settings, Tls, Version};

use crate::plan::TlsPlan;

pub(crate) fn set_up(plan: &TlsPlan) -> Result<Tls, String> {
    let pairs = plan.certificates.iter().map(|pair| &pair.value);
    let mut identities: Vec<Identity> =
        pairs.map(|pair| Identity::files(&pair.certificate, &pair.key)).collect();
    if identities.is_empty() {
        identities.push(self_signed(&plan.listen.list)?);
    }
    let client_auth = match &plan.client_ca {
        Some(path) => ClientAuth::Required(Roots::file(path)),
        None => ClientAuth::None,
    };
    let ticket_keys = plan.tickets.clone();
    let min_version = if plan.only_1_3 { Version::Tls13 } else { Version::Tls12 };
    let settings =
        Settings { identities, client_auth, ticket_keys, min_version, ..Settings::default() };
    Tls::new(settings).map_err(|error| error.to_string())
}

/// Generates a self-signed certificate for `localhost`, the loopback addresses and the hosts of the
/// listening addresses.
fn self_signed(listen: &[String]) -> Result<Identity, String> {
    let mut names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    for address in listen {
        if let Ok(Address::Host(host)) = address.parse() {
            let name = host.rsplit_once(':').map_or(&*host, |(name, _)| name);
            let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let made = generate_simple_self_signed(names);
    let CertifiedKey { cert, signing_key } =
        made.map_err(|error| format!("cannot generate a self-signed certificate: {error}"))?;
    Ok(Identity::pem(cert.pem(), signing_key.serialize_pem()))
}
