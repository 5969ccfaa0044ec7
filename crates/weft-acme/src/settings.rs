//! Settings of orders. Pure.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weft::{Error, ErrorKind, Result};

use crate::client::http_client::HttpClient;
use crate::client::tls_client::TlsClient;
use crate::name::Name;
use crate::on_demand::on_demand_settings::OnDemandSettings;
use crate::store::certificate_store::CertificateStore;
use crate::store::file_store::FileStore;
use crate::validation::challenge_kind::ChallengeKind;
use crate::validation::dns_provider::DnsSettings;
use crate::validation::shared_validations::SharedValidations;

/// Directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Directory of Let's Encrypt's staging authority. No client trusts its certificates, and its
/// limits are higher.
pub const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// Settings of orders: names, authorities and the store. All fields have a default.
///
/// ```
/// use weft_acme::AcmeSettings;
///
/// let settings = AcmeSettings {
///     names: vec!["example.org".parse()?],
///     email: Some("admin@example.org".to_owned()),
///     ..AcmeSettings::default()
/// };
/// # Ok::<(), weft::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// Names. Each has a certificate of its own.
    ///
    /// Default empty.
    pub names: Vec<Name>,

    /// URLs of the directories of authorities (RFC 8555 §7.1.1), at least one. After a failure the
    /// next authority is asked.
    ///
    /// Default [`LETS_ENCRYPT`].
    pub directories: Vec<String>,

    /// Directory of an authority for rehearsals. After a failure it is asked first, and its
    /// certificates are not used. Repeated failures thus do not count against the limits of the
    /// other authorities.
    ///
    /// Default [`LETS_ENCRYPT_STAGING`].
    pub staging: Option<String>,

    /// Account to which new accounts are bound (RFC 8555 §7.3.4).
    ///
    /// Default `None`.
    pub external_account: Option<ExternalAccount>,

    /// Address that the authority may send warnings to.
    ///
    /// Default `None`.
    pub email: Option<String>,

    /// HTTP client for requests to the authorities.
    ///
    /// Default a [`TlsClient`] that trusts the certificate authorities of the system.
    pub client: Arc<dyn HttpClient>,

    /// Store of accounts and certificates.
    ///
    /// Default a [`FileStore`] in its default directory.
    pub store: Arc<dyn CertificateStore>,

    /// Pending validations of several servers, so that an authority may reach any of them. The
    /// other servers share the store as well.
    ///
    /// Default `None`.
    pub validations: Option<Arc<dyn SharedValidations>>,

    /// Validations in the order of preference, at least one. After a failure the next validation is
    /// tried.
    ///
    /// Default `tls-alpn-01`, then `http-01`.
    pub challenges: Vec<ChallengeKind>,

    /// Change of the DNS, for `dns-01`.
    ///
    /// Default `None`.
    pub dns: Option<DnsSettings>,

    /// Profile of the certificates that the authority offers, such as `shortlived`.
    ///
    /// Default `None`: the default of the authority.
    pub profile: Option<String>,

    /// Orders of certificates when a client sends a name in its handshake.
    ///
    /// Default `None`.
    pub on_demand: Option<OnDemandSettings>,

    /// Delay after the first failure. Each further failure makes it four times as long, up to 6
    /// hours.
    ///
    /// Default 60 s: Let's Encrypt permits 5 failures an hour for a name.
    pub retry_delay: Duration,

    /// Time limit for an order, with all validations.
    ///
    /// Default 5 min.
    pub order_timeout: Duration,
}

/// An account that an authority has created in another way (RFC 8555 §7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Identifier of the account's key.
    pub id: String,
    /// Path of a file with the key in base64 or base64url. It is read for each new account.
    pub key: PathBuf,
}

impl Default for AcmeSettings {
    fn default() -> AcmeSettings {
        AcmeSettings {
            names: Vec::new(),
            directories: vec![LETS_ENCRYPT.to_owned()],
            staging: Some(LETS_ENCRYPT_STAGING.to_owned()),
            external_account: None,
            email: None,
            client: Arc::new(TlsClient::default()),
            store: Arc::new(FileStore::default()),
            validations: None,
            challenges: vec![ChallengeKind::TlsAlpn01, ChallengeKind::Http01],
            dns: None,
            profile: None,
            on_demand: None,
            retry_delay: Duration::from_secs(60),
            order_timeout: Duration::from_secs(300),
        }
    }
}

impl AcmeSettings {
    /// Returns the settings with their names in order.
    ///
    /// # Errors
    /// If the settings are incomplete.
    pub(crate) fn validated(mut self) -> Result<AcmeSettings> {
        let invalid = |reason| Err(Error::new(ErrorKind::InvalidSetting, reason));
        if self.directories.is_empty() {
            return invalid("there is no directory of an authority");
        }
        if self.challenges.is_empty() {
            return invalid("there is no kind of validation");
        }
        if self.challenges.contains(&ChallengeKind::Dns01) && self.dns.is_none() {
            return invalid("dns-01 needs a DNS provider");
        }
        self.names.sort();
        self.names.dedup();
        Ok(self)
    }

    /// Returns the validations that are possible for a name.
    pub(crate) fn challenges_for(&self, name: &Name) -> Vec<ChallengeKind> {
        let possible = self.challenges.iter().copied().filter(|kind| kind.can_validate(name));
        match possible.collect::<Vec<_>>() {
            // No validation is possible: the authority refuses the order.
            none if none.is_empty() => self.challenges.clone(),
            possible => possible,
        }
    }
}
