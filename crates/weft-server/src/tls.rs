//! The arguments for TLS → [`Tls`]; a certificate where there is none.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use weft::Address;
use weft::tls::{ClientAuth, Identity, Roots, Settings, Tls};

use crate::args::TlsArgs;

pub(crate) fn set_up(args: &TlsArgs) -> Result<Tls, String> {
    let files = args.files.iter().map(|(certificate, key)| Identity::files(certificate, key));
    let mut identities: Vec<Identity> = files.collect();
    if identities.is_empty() {
        identities.push(self_signed(&args.listen)?);
    }
    let client_auth = match &args.client_ca {
        Some(path) => ClientAuth::Required(Roots::file(path)),
        None => ClientAuth::None,
    };
    let ticket_keys = args.tickets.clone();
    Tls::new(Settings { identities, client_auth, ticket_keys, ..Settings::default() })
        .map_err(|error| error.to_string())
}

/// A certificate for this machine, by whatever it may be called here.
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
        made.map_err(|error| format!("cannot make a certificate: {error}"))?;
    Ok(Identity::pem(cert.pem(), signing_key.serialize_pem()))
}
