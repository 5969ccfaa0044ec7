//! The section `[acme]`: certificates that are ordered from an authority (`weft_acme`), by the
//! client of the proxy.

mod client; // requests to authorities
mod dns; // changes of the DNS, and their keys
mod on_demand; // certificates on demand, and their keys
mod orders; // names of the certificates, and the settings of their orders
mod permission; // permission of orders by a resource

use std::path::PathBuf;
use std::time::Duration;

use weft_acme::{AcmeSettings, ChallengeKind, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, Name};
use weft_config::{
    ConfigResult, Key, Located, ValueKind, quoted, quoted_list, quoted_path, show_time,
};

use self::dns::DnsConfig;
pub(crate) use self::on_demand::OnDemandConfig;
pub(crate) use self::orders::can_order;

/// Values of `[acme]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcmeConfig {
    /// Names for which certificates are ordered. In a plan they are sorted, and include the names
    /// of the hosts.
    pub(crate) domains: Vec<Located<Name>>,
    /// URLs of the directories of authorities. Empty: the default.
    pub(crate) directories: Vec<Located<String>>,
    pub(crate) staging: Option<Located<String>>,
    pub(crate) eab_key_id: Option<Located<String>>,
    pub(crate) eab_key: Option<Located<PathBuf>>,
    pub(crate) email: Option<Located<String>>,
    /// File of the certificate authorities that are trusted in connections to the directories.
    /// `None`: the authorities of the system.
    pub(crate) ca: Option<Located<PathBuf>>,
    /// Directory of accounts and certificates. `None`: the default directory.
    pub(crate) state: Option<Located<PathBuf>>,
    pub(crate) allows_ephemeral_state: bool,
    /// A self-signed certificate serves names without a certificate.
    pub(crate) has_placeholder: bool,
    /// Empty: the default.
    pub(crate) challenges: Vec<Located<ChallengeKind>>,
    pub(crate) dns: DnsConfig,
    pub(crate) profile: Option<Located<String>>,
    pub(crate) on_demand: OnDemandConfig,
    pub(crate) retry_delay: Duration,
    pub(crate) order_timeout: Duration,
}

impl Default for AcmeConfig {
    fn default() -> AcmeConfig {
        let AcmeSettings { retry_delay, order_timeout, .. } = AcmeSettings::default();
        AcmeConfig {
            domains: Vec::new(),
            directories: Vec::new(),
            staging: None,
            eab_key_id: None,
            eab_key: None,
            email: None,
            ca: None,
            state: None,
            allows_ephemeral_state: false,
            has_placeholder: true,
            challenges: Vec::new(),
            dns: DnsConfig::default(),
            profile: None,
            on_demand: OnDemandConfig::default(),
            retry_delay,
            order_timeout,
        }
    }
}

impl AcmeConfig {
    /// Returns true if certificates are ordered apart from the certificates of the hosts.
    pub(crate) fn orders_certificates(&self) -> bool {
        !self.domains.is_empty() || self.on_demand.is_enabled()
    }

    /// Returns the URLs of the directories, or the URL of the default authority.
    fn directory_urls(&self) -> Vec<String> {
        match self.directories.is_empty() {
            true => vec![LETS_ENCRYPT.to_owned()],
            false => self.directories.iter().map(|url| url.value.clone()).collect(),
        }
    }

    /// Returns the URL of the authority for rehearsals. The default is only for the default
    /// authority.
    fn staging_url(&self) -> Option<String> {
        match (&self.staging, self.directories.is_empty()) {
            (Some(url), _) => Some(url.value.clone()),
            (None, true) => Some(LETS_ENCRYPT_STAGING.to_owned()),
            (None, false) => None,
        }
    }

    /// Returns the validations. The default is a validation by the DNS if the DNS can be changed.
    pub(crate) fn challenge_kinds(&self) -> Vec<ChallengeKind> {
        match (self.challenges.is_empty(), self.dns.is_set()) {
            (true, true) => vec![ChallengeKind::Dns01],
            (true, false) => vec![ChallengeKind::TlsAlpn01, ChallengeKind::Http01],
            (false, _) => self.challenges.iter().map(|kind| kind.value).collect(),
        }
    }
}

pub(crate) static ACME: [Key<AcmeConfig>; 26] = [
    Key {
        name: "domains",
        flag: "domain",
        argument: "NAME",
        help: "name for which a certificate is ordered, besides the names of the hosts if \
               `certificates` is \"auto\"; listens on ports 80 and 443 by default",
        kind: ValueKind::Texts(|acme, names| {
            let parse = |name: Located<String>| {
                let parsed = name.value.parse::<Name>();
                let invalid = |reason| name.problem(format!("{:?}: {reason}", name.value));
                Ok(Located { value: parsed.map_err(invalid)?, location: name.location })
            };
            acme.domains = names.into_iter().map(parse).collect::<ConfigResult<_>>()?;
            Ok(())
        }),
        show: |acme| quoted_list(acme.domains.iter().map(|name| name.value.as_str())),
    },
    Key {
        name: "directories",
        flag: "acme-directory",
        argument: "URL",
        help: "directory of a certificate authority (RFC 8555); if one fails, the next is asked",
        kind: ValueKind::Texts(|acme, urls| {
            urls.iter().try_for_each(check_directory)?;
            acme.directories = urls;
            Ok(())
        }),
        show: |acme| quoted_list(acme.directory_urls().into_iter()),
    },
    Key {
        name: "staging",
        flag: "acme-staging",
        argument: "URL",
        help: "directory of an authority that is tried first after a failure, without use of its \
               certificates; by default the staging directory of Let's Encrypt, unless \
               `directories` is set",
        kind: ValueKind::Text(|acme, url| {
            check_directory(&url)?;
            acme.staging = Some(url);
            Ok(())
        }),
        show: |acme| acme.staging.as_ref().map_or_else(String::new, |url| quoted(&url.value)),
    },
    Key {
        name: "eab_key_id",
        flag: "acme-eab-key-id",
        argument: "TEXT",
        help: "identifier of an external account, to which new accounts are bound",
        kind: ValueKind::Text(|acme, id| {
            acme.eab_key_id = Some(id);
            Ok(())
        }),
        show: |acme| acme.eab_key_id.as_ref().map_or_else(String::new, |id| quoted(&id.value)),
    },
    Key {
        name: "eab_key",
        flag: "acme-eab-key",
        argument: "FILE",
        help: "key of the external account in base64",
        kind: ValueKind::Path(|acme, path| acme.eab_key = Some(path)),
        show: |acme| quoted_path(acme.eab_key.as_ref()),
    },
    Key {
        name: "email",
        flag: "acme-email",
        argument: "ADDRESS",
        help: "address that the authority may send warnings to",
        kind: ValueKind::Text(|acme, address| {
            let is_address = |text: &str| {
                text.contains('@')
                    && !text.contains(|c: char| c.is_whitespace() || ",?:".contains(c))
            };
            if !is_address(&address.value) {
                return Err(address.problem("expected an address such as admin@example.org"));
            }
            acme.email = Some(address);
            Ok(())
        }),
        show: |acme| acme.email.as_ref().map_or_else(String::new, |email| quoted(&email.value)),
    },
    Key {
        name: "challenges",
        flag: "acme-challenge",
        argument: "KIND",
        help: "validations in the order of preference: tls-alpn-01 (on port 443), http-01 (on \
               port 80), dns-01, which is the default if one of the keys for it is set, and \
               dns-persist-01; if one fails, the next is tried",
        kind: ValueKind::Texts(|acme, kinds| {
            acme.challenges = kinds.iter().map(challenge).collect::<ConfigResult<Vec<_>>>()?;
            Ok(())
        }),
        show: |acme| quoted_list(acme.challenge_kinds().into_iter().map(ChallengeKind::name)),
    },
    dns::PROGRAM,
    dns::SERVER,
    dns::KEY,
    dns::ACME_DNS,
    dns::ACME_DNS_ACCOUNTS,
    dns::DELAY,
    Key {
        name: "profile",
        flag: "acme-profile",
        argument: "NAME",
        help: "profile of the certificates that the authority offers, such as shortlived",
        kind: ValueKind::Text(|acme, profile| {
            acme.profile = Some(profile);
            Ok(())
        }),
        show: |acme| acme.profile.as_ref().map_or_else(String::new, |it| quoted(&it.value)),
    },
    Key {
        name: "ca",
        flag: "acme-ca",
        argument: "FILE",
        help: "CA certificates in PEM for connections to the authority, in place of the \
               certificates of the system",
        kind: ValueKind::Path(|acme, path| acme.ca = Some(path)),
        show: |acme| quoted_path(acme.ca.as_ref()),
    },
    Key {
        name: "state",
        flag: "acme-state",
        argument: "DIR",
        help: "directory of accounts and certificates; by default the directory of the service \
               manager, /var/lib/weft/acme for root, or ~/.local/state/weft/acme",
        kind: ValueKind::Path(|acme, path| acme.state = Some(path)),
        show: |acme| quoted_path(acme.state.as_ref()),
    },
    Key {
        name: "ephemeral_state",
        flag: "acme-ephemeral-state",
        argument: "",
        help: "permit a directory that does not survive a restart, such as one of a container",
        kind: ValueKind::Bool(|acme, switch| acme.allows_ephemeral_state = switch),
        show: |acme| acme.allows_ephemeral_state.to_string(),
    },
    Key {
        name: "placeholder",
        flag: "acme-placeholder",
        argument: "",
        help: "present a self-signed certificate while there is no other; otherwise such handshakes \
               fail",
        kind: ValueKind::Bool(|acme, switch| acme.has_placeholder = switch),
        show: |acme| acme.has_placeholder.to_string(),
    },
    on_demand::ON_DEMAND,
    on_demand::ON_DEMAND_ASK,
    on_demand::ON_DEMAND_ASK_CA,
    on_demand::ON_DEMAND_RATE,
    on_demand::ON_DEMAND_NAMES,
    on_demand::ON_DEMAND_TIMEOUT,
    Key {
        name: "retry_delay",
        flag: "acme-retry-delay",
        argument: "TIME",
        help: "delay after a failure; after each further one it is four times as long, up to 6h",
        kind: ValueKind::Time(|acme, time| acme.retry_delay = time),
        show: |acme| quoted(&show_time(acme.retry_delay)),
    },
    Key {
        name: "order_timeout",
        flag: "acme-order-timeout",
        argument: "TIME",
        help: "time limit for an order, with all validations; then it has failed",
        kind: ValueKind::Time(|acme, time| acme.order_timeout = time),
        show: |acme| quoted(&show_time(acme.order_timeout)),
    },
];

fn check_directory(url: &Located<String>) -> ConfigResult {
    let is_url = url.value.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some());
    match is_url && url.value.starts_with("https://") {
        true => Ok(()),
        false => Err(url.problem(format!(
            "expected the URL of a directory such as {LETS_ENCRYPT:?}, found {:?}",
            url.value
        ))),
    }
}

fn challenge(kind: &Located<String>) -> ConfigResult<Located<ChallengeKind>> {
    let known = ChallengeKind::ALL.into_iter().find(|known| known.name() == kind.value);
    let value = known.ok_or_else(|| {
        kind.problem(format!(
            "expected tls-alpn-01, http-01, dns-01 or dns-persist-01, found {:?}",
            kind.value
        ))
    })?;
    Ok(Located { value, location: kind.location.clone() })
}
