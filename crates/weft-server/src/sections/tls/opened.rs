//! [`TlsConfig`] → [`Tls`], with a self-signed certificate in place of those that are missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use weft::date::rfc3339;
use weft::net::Address;
use weft::tls::certificate::{Validity, validity};
use weft::tls::{
    ClientAuth, Identity, NamedIdentities, Roots, Tls, TlsSettings, UsedCertificate, Version,
};
use weft_acme::{Acme, AcmeSettings};
use weft_config::{ConfigLocation, Located, Problem};

use super::{CertificatePair, ClientAuthMode, TlsConfig, TlsProfile};
use crate::sections::acme::AcmeConfig;
use crate::sections::cluster::OpenedCluster;

/// The TLS configuration that the sockets share.
#[derive(Clone)]
pub(crate) struct OpenedTls {
    pub(crate) tls: Tls,
    /// The generated certificate, if none is configured. It serves all names without another one.
    self_signed: Option<Identity>,
    /// Orders of certificates, which a reload continues.
    pub(crate) acme: Option<Arc<Acme>>,
    /// `None`: no certificates are ordered.
    acme_settings: Option<AcmeSettings>,
    /// The locations of certificates, by their files.
    locations: Vec<(PathBuf, ConfigLocation)>,
}

/// Interval at which the files are checked for changes. A check costs a `stat(2)` call per file.
/// Long enough that a key written after its certificate is usually found with it.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(2);

impl OpenedTls {
    /// Reads the certificates of a plan. `provided` are set by the process itself. The self-signed
    /// certificate of `former` is kept, because clients may have stored an exception for it.
    pub(crate) fn open(
        tls_config: &TlsConfig,
        acme: Option<&AcmeConfig>,
        (cluster, provided): (Option<&OpenedCluster>, Option<&NamedIdentities>),
        former: Option<&OpenedTls>,
    ) -> Result<OpenedTls, String> {
        let pairs = tls_config.pairs().iter().map(|pair| &pair.value);
        let mut identities: Vec<Identity> =
            pairs.map(|pair| Identity::files(&pair.certificate, &pair.key)).collect();
        let former_acme = former.and_then(|former| former.acme.clone());
        let acme_settings = acme.map(AcmeConfig::settings).transpose()?;
        let acme_settings = acme_settings.map(|settings| match cluster {
            Some(cluster) => cluster.share_certificates(settings),
            None => settings,
        });
        let automatic = match &acme_settings {
            Some(settings) => Some(former_acme.unwrap_or_else(|| Arc::new(Acme::new(settings)))),
            None => former_acme,
        };
        if let (Some(settings), Some(automatic)) = (&acme_settings, &automatic) {
            automatic.load(settings);
        }
        let has_placeholder = acme.is_none_or(|acme| acme.has_placeholder);
        let self_signed = match identities.is_empty() && has_placeholder {
            true => {
                let existing = former.and_then(|former| former.self_signed.clone());
                Some(existing.map_or_else(|| self_signed(tls_config.listen.texts()), Ok)?)
            }
            false => None,
        };
        identities.extend(self_signed.clone());
        let client_auth = match (&tls_config.client_ca, tls_config.client_auth) {
            (Some(path), ClientAuthMode::Required) => {
                ClientAuth::Required(Roots::file(&path.value))
            }
            (Some(path), ClientAuthMode::Optional) => {
                ClientAuth::Optional(Roots::file(&path.value))
            }
            (None, _) => ClientAuth::None,
        };
        let ticket_keys = tls_config.tickets.clone().map(|path| path.value);
        let min_version = match tls_config.profile {
            TlsProfile::Modern => Version::Tls13,
            TlsProfile::Intermediate => Version::Tls12,
        };
        let settings = TlsSettings {
            identities,
            require_all: false,
            named_identities: automatic
                .as_ref()
                .filter(|_| acme.is_some())
                .map(|acme| acme.identities())
                .or_else(|| provided.cloned()),
            client_auth,
            ticket_keys,
            early_data: tls_config.early_data,
            ticket_secrets: cluster.map(OpenedCluster::ticket_secrets).unwrap_or_default(),
            min_version,
            check_files_every: CHECK_INTERVAL,
            alpn_challenges: automatic.as_ref().map(|acme| acme.alpn_challenges()),
        };
        let tls = match former {
            Some(former) => former.tls.with_settings(settings),
            None => Tls::new(settings),
        };
        let tls = tls.map_err(|error| error.to_string())?;
        let location = |pair: &Located<CertificatePair>| {
            (pair.value.certificate.clone(), pair.location.clone())
        };
        let locations = tls_config.pairs().iter().map(location).collect();
        Ok(OpenedTls { tls, self_signed, acme: automatic, acme_settings, locations })
    }

    /// Returns the errors of the certificates that cannot be used.
    pub(crate) fn unusable(&self) -> Vec<Problem> {
        let failures = self.tls.reload_failures().into_iter();
        failures.map(|failure| self.problem(&failure.file, failure.reason)).collect()
    }

    /// Returns warnings about the certificates of files that expire soon or have expired.
    pub(crate) fn expiring(&self) -> Vec<Problem> {
        let of_files = self.tls.certificates().into_iter();
        let warning = |used: UsedCertificate| {
            let (file, reason) = (used.file?, invalidity(used.validity, SystemTime::now())?);
            Some(self.problem(&file, format!("the certificate {} {reason}", file.display())))
        };
        of_files.filter_map(warning).collect()
    }

    fn problem(&self, file: &Path, message: String) -> Problem {
        let location = self.locations.iter().find(|(known, _)| known == file);
        let location = location.map_or(ConfigLocation::Unknown, |(_, location)| location.clone());
        Problem { location, message }
    }

    /// Orders the certificates of the plan from now on.
    pub(crate) fn order_certificates(&self) {
        if let Some(acme) = &self.acme
            && let Err(error) = acme.order(self.acme_settings.clone())
        {
            log::error!("{error}");
        }
    }
}

/// Logs that a file of certificates or keys could not be loaded after it had changed.
pub(crate) fn log_reload_failure(error: &weft::Error) {
    log::error!("cannot reload a certificate, its former version stays in use: {error}");
}

impl TlsConfig {
    /// Returns warnings about certificates that clients reject today. A file that cannot be read is
    /// reported by the code that loads it.
    pub(crate) fn certificate_warnings(&self) -> impl Iterator<Item = Problem> {
        self.pairs().iter().filter_map(|pair| {
            let path = &pair.value.certificate;
            let certificate = CertificateDer::from_pem_file(path).ok()?;
            let reason = invalidity(validity(&certificate)?, SystemTime::now())?;
            Some(pair.problem(format!("the certificate {} {reason}", path.display())))
        })
    }
}

/// Time before the end of a certificate at which a warning begins, if it is valid for long.
const EARLY: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Share of the validity at whose beginning a warning begins, if the validity is short: a
/// certificate for 90 days is renewed 30 days before its end, and reported 15 days before it.
const EARLY_SHARE: u32 = 6;

/// Returns the reason why clients reject a certificate, now or soon: `has expired …`, `expires in
/// …` or `is not valid before …`.
fn invalidity(validity: Validity, now: SystemTime) -> Option<String> {
    let Validity { not_before, not_after } = validity;
    let Ok(rest) = not_after.duration_since(now) else {
        return Some(format!("has expired: {}", rfc3339(not_after)));
    };
    if now < not_before {
        return Some(format!("is not valid before {}", rfc3339(not_before)));
    }
    let whole = not_after.duration_since(not_before).unwrap_or_default();
    let days = rest.as_secs() / (24 * 3_600);
    let is_early = rest > EARLY.min(whole / EARLY_SHARE);
    (!is_early).then(|| match days {
        0 => format!("expires within a day: {}", rfc3339(not_after)),
        1 => format!("expires in a day: {}", rfc3339(not_after)),
        days => format!("expires in {days} days: {}", rfc3339(not_after)),
    })
}

/// Generates a self-signed certificate for `localhost`, the loopback addresses and the hosts of the
/// listening addresses.
fn self_signed<'a>(listen: impl Iterator<Item = &'a String>) -> Result<Identity, String> {
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
    weft_acme::self_signed(names).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_before_certificates_expire() {
        let day = Duration::from_secs(24 * 3_600);
        let start = SystemTime::UNIX_EPOCH + 20_000 * day;
        // Days of the validity, and days since its begin.
        for (whole, now, expected) in [
            (365, 334, None),
            (365, 335, Some("expires in 30 days: ")),
            (90, 74, None),
            (90, 75, Some("expires in 15 days: ")),
            (6, 4, None),
            (6, 5, Some("expires in a day: ")),
            (90, 90, Some("expires within a day: ")),
            (90, 91, Some("has expired: ")),
        ] {
            let validity = Validity { not_before: start, not_after: start + whole * day };
            let reason = invalidity(validity, start + now * day);
            let begins = match (&reason, expected) {
                (Some(reason), Some(expected)) => reason.starts_with(expected),
                (reason, expected) => reason.is_none() && expected.is_none(),
            };
            assert!(begins, "{whole} {now}: {reason:?}");
        }
        let validity = Validity { not_before: start, not_after: start + 9 * day };
        let early = invalidity(validity, start - day).unwrap();
        assert!(early.starts_with("is not valid before "), "{early}");
    }
}
