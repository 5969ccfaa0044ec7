//! [`TlsConfig`] → [`Tls`], with a self-signed certificate in place of those that are missing.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use weft::Address;
use weft::date::rfc3339;
use weft::tls::certificate::{Validity, validity};
use weft::tls::{ClientAuth, Identity, Roots, Tls, TlsSettings, Version};
use weft_acme::{Acme, AcmeSettings};
use weft_config::Problem;

use super::{ClientAuthMode, TlsConfig, TlsProfile};
use crate::sections::acme::AcmeConfig;

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
}

/// Interval at which the files are checked for changes. A check costs a `stat(2)` call per file.
/// Long enough that a key written after its certificate is usually found with it.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(2);

impl OpenedTls {
    /// Reads the certificates of a plan. The self-signed certificate of `former` is kept, because
    /// clients may have stored an exception for it.
    pub(crate) fn open(
        tls: &TlsConfig,
        acme: Option<&AcmeConfig>,
        former: Option<&OpenedTls>,
    ) -> Result<OpenedTls, String> {
        let pairs = tls.pairs().iter().map(|pair| &pair.value);
        let mut identities: Vec<Identity> =
            pairs.map(|pair| Identity::files(&pair.certificate, &pair.key)).collect();
        let former_acme = former.and_then(|former| former.acme.clone());
        let acme_settings = acme.map(AcmeConfig::settings).transpose()?;
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
                Some(existing.map_or_else(|| self_signed(tls.listen.texts()), Ok)?)
            }
            false => None,
        };
        identities.extend(self_signed.clone());
        let client_auth = match (&tls.client_ca, tls.client_auth) {
            (Some(path), ClientAuthMode::Required) => {
                ClientAuth::Required(Roots::file(&path.value))
            }
            (Some(path), ClientAuthMode::Optional) => {
                ClientAuth::Optional(Roots::file(&path.value))
            }
            (None, _) => ClientAuth::None,
        };
        let ticket_keys = tls.tickets.clone().map(|path| path.value);
        let min_version = match tls.profile {
            TlsProfile::Modern => Version::Tls13,
            TlsProfile::Intermediate => Version::Tls12,
        };
        let settings = TlsSettings {
            identities,
            named_identities: automatic
                .as_ref()
                .filter(|_| acme.is_some())
                .map(|acme| acme.identities()),
            client_auth,
            ticket_keys,
            min_version,
            check_files_every: CHECK_INTERVAL,
            alpn_challenges: automatic.as_ref().map(|acme| acme.alpn_challenges()),
        };
        let tls = Tls::new(settings).map_err(|error| error.to_string())?;
        Ok(OpenedTls { tls, self_signed, acme: automatic, acme_settings })
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
            let reason = invalidity(path)?;
            Some(pair.problem(format!("the certificate {} {reason}", path.display())))
        })
    }
}

/// Returns the reason why clients reject the first certificate of a file today: `has expired …` or
/// `is not valid before …`.
fn invalidity(path: &Path) -> Option<String> {
    let certificate = CertificateDer::from_pem_file(path).ok()?;
    let Validity { not_before, not_after } = validity(&certificate)?;
    match SystemTime::now() {
        now if now > not_after => Some(format!("has expired: {}", rfc3339(not_after))),
        now if now < not_before => Some(format!("is not valid before {}", rfc3339(not_before))),
        _ => None,
    }
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
