//! Orders: which certificates, from which authority. Pure.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::certificate_store::CertificateStore;
use crate::dns::DnsSettings;
use crate::file_store::FileStore;
use crate::http_client::HttpClient;
use crate::invalid_setting::invalid;
use crate::name::Name;
use crate::on_demand::OnDemandSettings;
use crate::tls_client::TlsClient;
use weft::Result;

/// Directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Directory of Let's Encrypt's staging authority, whose certificates no client trusts, and whose
/// limits are higher.
pub const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// Orders: which certificates, from which authority, and where they are stored. All fields have a
/// default.
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
    /// Names, each of which has a certificate of its own.
    ///
    /// Default empty.
    pub names: Vec<Name>,

    /// URLs of the directories of authorities (RFC 8555 §7.1.1), at least one. After a failure the next
    /// one is asked.
    ///
    /// Default [`LETS_ENCRYPT`].
    pub directories: Vec<String>,

    /// Directory of an authority that is asked first after a failure, and whose certificates are not
    /// used, so that repeated failures do not count against the limits of the others.
    ///
    /// Default [`LETS_ENCRYPT_STAGING`].
    pub staging: Option<String>,

    /// Binds new accounts to one that the authority has created in another way (RFC 8555 §7.3.4).
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

    /// Validations in the order of preference, at least one. After a failure the next one is tried.
    ///
    /// Default `tls-alpn-01`, then `http-01`.
    pub challenges: Vec<ChallengeKind>,

    /// Change of the DNS, for `dns-01`.
    ///
    /// Default `None`.
    pub dns: Option<DnsSettings>,

    /// Profile of the certificates, one of those that the authority offers, such as `shortlived`.
    ///
    /// Default `None`: that of the authority.
    pub profile: Option<String>,

    /// Certificates that are ordered when a client sends a name in its handshake.
    ///
    /// Default `None`.
    pub on_demand: Option<OnDemandSettings>,

    /// Delay after the first failure; four times as long after each further one, up to 6 hours.
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
    /// Identifier of its key.
    pub id: String,
    /// Path of a file with the key in base64 or base64url, which is read for each new account.
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
    /// If they are incomplete.
    pub(crate) fn validated(mut self) -> Result<AcmeSettings> {
        if self.directories.is_empty() {
            return Err(invalid("there is no directory of an authority"));
        }
        if self.challenges.is_empty() {
            return Err(invalid("there is no kind of validation"));
        }
        if self.challenges.contains(&ChallengeKind::Dns01) && self.dns.is_none() {
            return Err(invalid("dns-01 needs a DNS provider"));
        }
        self.names.sort();
        self.names.dedup();
        Ok(self)
    }

    /// Returns the validations that are possible for a name.
    pub(crate) fn challenges_for(&self, name: &Name) -> Vec<ChallengeKind> {
        let possible = self.challenges.iter().copied().filter(|kind| kind.can_validate(name));
        match possible.collect::<Vec<_>>() {
            // The authority refuses the order.
            none if none.is_empty() => self.challenges.clone(),
            possible => possible,
        }
    }
}

/// A kind of validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// RFC 8555 §8.3: over HTTP, on port 80.
    Http01,
    /// RFC 8737: in a TLS handshake, on port 443.
    TlsAlpn01,
    /// RFC 8555 §8.4: by a TXT record.
    Dns01,
    /// draft-ietf-acme-dns-persist: by a TXT record that stays.
    DnsPersist01,
}

impl ChallengeKind {
    /// All kinds.
    pub const ALL: [ChallengeKind; 4] = [
        ChallengeKind::TlsAlpn01,
        ChallengeKind::Http01,
        ChallengeKind::Dns01,
        ChallengeKind::DnsPersist01,
    ];

    /// Returns the name in the registry of the IANA, such as `http-01`.
    pub fn name(self) -> &'static str {
        match self {
            ChallengeKind::Http01 => "http-01",
            ChallengeKind::TlsAlpn01 => "tls-alpn-01",
            ChallengeKind::Dns01 => "dns-01",
            ChallengeKind::DnsPersist01 => "dns-persist-01",
        }
    }

    /// Returns the port that the authority connects to, if it does.
    pub fn port(self) -> Option<u16> {
        match self {
            ChallengeKind::Http01 => Some(80),
            ChallengeKind::TlsAlpn01 => Some(443),
            ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => None,
        }
    }

    /// Returns true unless the RFCs rule the validation out: that of a wildcard by a connection
    /// (RFC 8555 §7.1.3), and that of an address by the DNS (RFC 8738 §7).
    pub fn can_validate(self, name: &Name) -> bool {
        match self {
            ChallengeKind::Http01 | ChallengeKind::TlsAlpn01 => !name.is_wildcard(),
            ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => name.ip().is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_need_the_dns_and_addresses_a_connection() {
        for (text, expected) in [
            ("example.org", ["tls-alpn-01", "http-01", "dns-01", "dns-persist-01"].as_slice()),
            ("*.example.org", &["dns-01", "dns-persist-01"]),
            ("192.0.2.1", &["tls-alpn-01", "http-01"]),
        ] {
            let name: Name = text.parse().unwrap();
            let kinds = ChallengeKind::ALL.into_iter().filter(|kind| kind.can_validate(&name));
            assert_eq!(kinds.map(ChallengeKind::name).collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
