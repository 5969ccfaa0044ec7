//! TLS settings of the plan.

use std::path::PathBuf;

use weft_config::{ConfigLocation, ConfigResult, Located, Problem};

use super::Addresses;
use crate::acme::AcmePlan;
use crate::config::{CertificatePair, Certificates, ClientAuthMode, TlsConfig, TlsProfile};

/// Validated `[tls]` section.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TlsPlan {
    pub(crate) listen: Addresses,
    /// Empty: they are ordered, or a self-signed certificate is generated at startup.
    pub(crate) certificates: Vec<Located<CertificatePair>>,
    pub(crate) tickets: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_auth: ClientAuthMode,
    pub(crate) profile: TlsProfile,
    /// Certificates that are ordered, if any.
    pub(crate) acme: Option<AcmePlan>,
}

/// Validates `[tls]`. Returns `None` if TLS is not configured. A missing value is an error only if
/// the configuration is complete. With streams that use the certificates, there is no default address.
pub(super) fn plan_tls(
    tls: TlsConfig,
    acme: Option<AcmePlan>,
    has_tls_streams: bool,
    is_complete: bool,
) -> ConfigResult<Option<TlsPlan>> {
    let TlsConfig { listen, certificates, self_signed, tickets, client_ca, .. } = tls;
    let TlsConfig { client_auth, profile, .. } = tls;
    let certificates = match certificates {
        Certificates::Automatic => Vec::new(),
        Certificates::Pairs(pairs) => pairs,
    };
    if let (Some(first), true) = (certificates.first(), self_signed) {
        return Err(match first.location.is_in_file() {
            true => first.problem("`self_signed` cannot be combined with `certificates`"),
            false => first.problem("--tls-self-signed cannot be combined with --tls-cert"),
        });
    }
    if certificates.is_empty() && acme.is_none() && !self_signed {
        // Keys that have no effect without a certificate.
        let paths = [&tickets, &client_ca].into_iter().flatten().map(|path| &path.location);
        let mut locations =
            listen.first().map(|address| &address.location).into_iter().chain(paths);
        return match locations.next() {
            _ if !is_complete => Ok(None),
            None => Ok(None),
            Some(ConfigLocation::Option(option)) => Err(Problem {
                location: ConfigLocation::Unknown,
                message: format!("{option} needs --tls-cert or --tls-self-signed"),
            }),
            Some(location) => Err(Problem {
                location: location.clone(),
                message:
                    "this needs `certificates` in [tls], which may be \"auto\", or `self_signed`"
                        .to_owned(),
            }),
        };
    }
    let default_listen = match (acme.is_some(), has_tls_streams) {
        (true, _) => Some("[::]:443"),
        (false, false) => Some("127.0.0.1:8443"),
        (false, true) => None,
    };
    let listen = Addresses::new(listen, default_listen);
    let [tickets, client_ca] = [tickets, client_ca].map(|path| path.map(|path| path.value));
    Ok(Some(TlsPlan { listen, certificates, tickets, client_ca, client_auth, profile, acme }))
}
