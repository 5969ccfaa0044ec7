//! The keys of `[acme]`.

use std::path::PathBuf;
use std::time::Duration;

use super::key::{Key, ValueKind};
use super::keys::{quoted, quoted_addresses, quoted_list, quoted_path};
use super::location::{ConfigResult, Located};
use super::on_demand::{
    ON_DEMAND, ON_DEMAND_ASK, ON_DEMAND_NAMES, ON_DEMAND_RATE, ON_DEMAND_TIMEOUT, OnDemandConfig,
};
use super::units::show_time;
use crate::acme::{ChallengeKind, Name};

/// Values of `[acme]`.
#[derive(Debug)]
pub(crate) struct AcmeConfig {
    pub(crate) domains: Vec<Located<String>>,
    pub(crate) directories: Vec<Located<String>>,
    pub(crate) email: Option<Located<String>>,
    pub(crate) ca: Option<Located<PathBuf>>,
    pub(crate) state: Option<Located<PathBuf>>,
    pub(crate) allows_ephemeral_state: bool,
    pub(crate) has_placeholder: bool,
    pub(crate) challenges: Vec<ChallengeKind>,
    pub(crate) profile: Option<Located<String>>,
    pub(crate) on_demand: OnDemandConfig,
    pub(crate) retry_delay: Duration,
}

/// The directory of Let's Encrypt.
const DEFAULT_DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

impl Default for AcmeConfig {
    fn default() -> AcmeConfig {
        AcmeConfig {
            domains: Vec::new(),
            directories: Vec::new(),
            email: None,
            ca: None,
            state: None,
            allows_ephemeral_state: false,
            has_placeholder: true,
            challenges: ChallengeKind::ALL.to_vec(),
            profile: None,
            on_demand: OnDemandConfig::default(),
            retry_delay: Duration::from_secs(60),
        }
    }
}

impl AcmeConfig {
    /// Returns true if certificates are ordered, apart from those of the hosts.
    pub(crate) fn orders_certificates(&self) -> bool {
        let OnDemandConfig { patterns, ask, .. } = &self.on_demand;
        !self.domains.is_empty() || !patterns.is_empty() || ask.is_some()
    }

    /// URLs of the directories, or that of the default authority.
    pub(crate) fn directory_urls(&self) -> Vec<String> {
        match self.directories.is_empty() {
            true => vec![DEFAULT_DIRECTORY.to_owned()],
            false => self.directories.iter().map(|url| url.value.clone()).collect(),
        }
    }
}

pub(crate) static ACME: [Key<AcmeConfig>; 15] = [
    Key {
        name: "domains",
        flag: "domain",
        argument: "NAME",
        help: "name for which a certificate is ordered, besides those of the hosts if \
               `certificates` is \"auto\"; listens on ports 80 and 443 by default",
        kind: ValueKind::Texts(|acme, names| {
            for name in &names {
                let parsed = name.value.parse::<Name>();
                parsed.map_err(|reason| name.problem(format!("{:?}: {reason}", name.value)))?;
            }
            acme.domains = names;
            Ok(())
        }),
        show: |acme| quoted_addresses(&acme.domains),
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
        help: "validations in the order of preference: tls-alpn-01 (on port 443) and http-01 (on \
               port 80); if one fails, the next is tried",
        kind: ValueKind::Texts(|acme, kinds| {
            acme.challenges = kinds.iter().map(challenge).collect::<ConfigResult<Vec<_>>>()?;
            Ok(())
        }),
        show: |acme| quoted_list(acme.challenges.iter().map(|kind| kind.name().to_owned())),
    },
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
        help: "CA certificates in PEM for connections to the authority, in place of those of the \
               system",
        kind: ValueKind::Path(|acme, path| acme.ca = Some(path)),
        show: |acme| quoted_path(acme.ca.as_ref()),
    },
    Key {
        name: "state",
        flag: "acme-state",
        argument: "DIR",
        help: "directory of accounts and certificates; by default that of the service manager, \
               /var/lib/weft/acme for root, or ~/.local/state/weft/acme",
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
    ON_DEMAND,
    ON_DEMAND_ASK,
    ON_DEMAND_RATE,
    ON_DEMAND_NAMES,
    ON_DEMAND_TIMEOUT,
    Key {
        name: "retry_delay",
        flag: "acme-retry-delay",
        argument: "TIME",
        help: "delay after a failure; after each further one it is four times as long, up to 6h",
        kind: ValueKind::Time(|acme, time| acme.retry_delay = time),
        show: |acme| quoted(&show_time(acme.retry_delay)),
    },
];

fn check_directory(url: &Located<String>) -> ConfigResult {
    let is_url = url.value.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some());
    match is_url && url.value.starts_with("https://") {
        true => Ok(()),
        false => Err(url.problem(format!(
            "expected the URL of a directory such as {DEFAULT_DIRECTORY:?}, found {:?}",
            url.value
        ))),
    }
}

fn challenge(kind: &Located<String>) -> ConfigResult<ChallengeKind> {
    let known = ChallengeKind::ALL.into_iter().find(|known| known.name() == kind.value);
    known.ok_or_else(|| {
        kind.problem(format!("expected tls-alpn-01 or http-01, found {:?}", kind.value))
    })
}
