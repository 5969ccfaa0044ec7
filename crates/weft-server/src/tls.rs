//! [`TlsPlan`] → [`Tls`], with a self-signed certificate if none is configured.

use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use weft::Address;
use weft::tls::{ClientAuth, Identity, Roots, Tls, TlsSettings, Version};

use crate::config::ClientAuthMode;
use crate::plan::TlsPlan;

/// The TLS configuration that the sockets share.
#[derive(Clone)]
pub(crate) struct OpenedTls {
    pub(crate) tls: Tls,
    /// The generated certificate, if none is configured.
    self_signed: Option<Identity>,
}

/// Interval at which the files are checked for changes. A check costs a `stat(2)` call per file. Long
/// enough that a key written after its certificate is usually found with it.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

impl OpenedTls {
    /// Reads the certificates of a plan. The self-signed certificate of `former` is kept, because
    /// clients may have stored an exception for it.
    pub(crate) fn open(plan: &TlsPlan, former: Option<&OpenedTls>) -> Result<OpenedTls, String> {
        let TlsPlan { listen, certificates, tickets, client_ca, client_auth, only_1_3 } = plan;
        let pairs = certificates.iter().map(|pair| &pair.value);
        let mut identities: Vec<Identity> =
            pairs.map(|pair| Identity::files(&pair.certificate, &pair.key)).collect();
        let self_signed = match identities.is_empty() {
            true => {
                let existing = former.and_then(|former| former.self_signed.clone());
                Some(existing.map_or_else(|| self_signed(&listen.list), Ok)?)
            }
            false => None,
        };
        identities.extend(self_signed.clone());
        let client_auth = match (client_ca, client_auth) {
            (Some(path), ClientAuthMode::Required) => ClientAuth::Required(Roots::file(path)),
            (Some(path), ClientAuthMode::Optional) => ClientAuth::Optional(Roots::file(path)),
            (None, _) => ClientAuth::None,
        };
        let ticket_keys = tickets.clone();
        let min_version = if *only_1_3 { Version::Tls13 } else { Version::Tls12 };
        let settings = TlsSettings {
            identities,
            client_auth,
            ticket_keys,
            min_version,
            check_files_every: CHECK_INTERVAL,
        };
        let tls = Tls::new(settings).map_err(|error| error.to_string())?;
        Ok(OpenedTls { tls, self_signed })
    }
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
