//! The keys of `[acme]`.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use weft_acme::{AcmeSettings, ChallengeKind, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, Name};
use weft_config::{
    ConfigResult, Key, Located, ValueKind, quoted, quoted_list, quoted_path, quoted_texts,
    show_time,
};

use super::on_demand::{
    ON_DEMAND, ON_DEMAND_ASK, ON_DEMAND_ASK_CA, ON_DEMAND_NAMES, ON_DEMAND_RATE, ON_DEMAND_TIMEOUT,
    OnDemandConfig,
};
use crate::apps::proxy::UpstreamUrl;

/// Values of `[acme]`.
#[derive(Debug)]
pub(crate) struct AcmeConfig {
    pub(crate) domains: Vec<Located<String>>,
    pub(crate) directories: Vec<Located<String>>,
    pub(crate) staging: Option<Located<String>>,
    pub(crate) eab_key_id: Option<Located<String>>,
    pub(crate) eab_key: Option<Located<PathBuf>>,
    pub(crate) email: Option<Located<String>>,
    pub(crate) ca: Option<Located<PathBuf>>,
    pub(crate) state: Option<Located<PathBuf>>,
    pub(crate) allows_ephemeral_state: bool,
    pub(crate) has_placeholder: bool,
    /// Empty: the default.
    pub(crate) challenges: Vec<Located<ChallengeKind>>,
    pub(crate) dns: DnsConfig,
    pub(crate) profile: Option<Located<String>>,
    pub(crate) on_demand: OnDemandConfig,
    pub(crate) retry_delay: Duration,
    pub(crate) order_timeout: Duration,
}

/// Keys about changes of the DNS. At most one of the ways is set.
#[derive(Debug)]
pub(crate) struct DnsConfig {
    pub(crate) program: Option<Located<PathBuf>>,
    pub(crate) server: Option<Located<String>>,
    pub(crate) key: Option<Located<PathBuf>>,
    pub(crate) acme_dns: Option<Located<String>>,
    pub(crate) acme_dns_accounts: Option<Located<PathBuf>>,
    pub(crate) delay: Duration,
}

impl Default for DnsConfig {
    fn default() -> DnsConfig {
        DnsConfig {
            program: None,
            server: None,
            key: None,
            acme_dns: None,
            acme_dns_accounts: None,
            delay: Duration::from_secs(5),
        }
    }
}

impl DnsConfig {
    pub(crate) fn is_set(&self) -> bool {
        self.program.is_some() || self.server.is_some() || self.acme_dns.is_some()
    }
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
    /// Returns true if certificates are ordered, apart from those of the hosts.
    pub(crate) fn orders_certificates(&self) -> bool {
        let OnDemandConfig { patterns, ask, .. } = &self.on_demand;
        !self.domains.is_empty() || !patterns.is_empty() || ask.is_some()
    }

    /// URLs of the directories, or that of the default authority.
    pub(crate) fn directory_urls(&self) -> Vec<String> {
        match self.directories.is_empty() {
            true => vec![LETS_ENCRYPT.to_owned()],
            false => self.directories.iter().map(|url| url.value.clone()).collect(),
        }
    }

    /// URL of the authority for rehearsals; that of the default authority only for that.
    pub(crate) fn staging_url(&self) -> Option<String> {
        match (&self.staging, self.directories.is_empty()) {
            (Some(url), _) => Some(url.value.clone()),
            (None, true) => Some(LETS_ENCRYPT_STAGING.to_owned()),
            (None, false) => None,
        }
    }

    /// The validations, or those of the default: by the DNS if it can be changed.
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
        show: |acme| quoted_texts(&acme.domains),
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
        help: "directory of an authority that is asked first after a failure, whose certificates are \
               not used; by default that of Let's Encrypt, unless `directories` is set",
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
    Key {
        name: "dns_program",
        flag: "acme-dns-program",
        argument: "FILE",
        help: "program that adds and removes the TXT record of a validation by dns-01; its \
               arguments are the name and the value",
        kind: ValueKind::Path(|acme, path| acme.dns.program = Some(path)),
        show: |acme| quoted_path(acme.dns.program.as_ref()),
    },
    Key {
        name: "dns_server",
        flag: "acme-dns-server",
        argument: "ADDRESS",
        help: "server of the zones, which accepts dynamic updates (RFC 2136) for dns-01 over TCP; \
               the default port is 53",
        kind: ValueKind::Text(|acme, server| {
            check_server(&server)?;
            acme.dns.server = Some(server);
            Ok(())
        }),
        show: |acme| {
            acme.dns.server.as_ref().map_or_else(String::new, |server| quoted(&server.value))
        },
    },
    Key {
        name: "dns_key",
        flag: "acme-dns-key",
        argument: "FILE",
        help: "key that signs the updates (TSIG with hmac-sha256), as written by tsig-keygen",
        kind: ValueKind::Path(|acme, path| acme.dns.key = Some(path)),
        show: |acme| quoted_path(acme.dns.key.as_ref()),
    },
    Key {
        name: "acme_dns",
        flag: "acme-dns",
        argument: "URL",
        help: "acme-dns server, to which _acme-challenge.NAME is delegated by CNAME, for dns-01",
        kind: ValueKind::Text(|acme, url| {
            url.value.parse::<UpstreamUrl>().map_err(|reason| url.problem(reason))?;
            acme.dns.acme_dns = Some(url);
            Ok(())
        }),
        show: |acme| acme.dns.acme_dns.as_ref().map_or_else(String::new, |url| quoted(&url.value)),
    },
    Key {
        name: "acme_dns_accounts",
        flag: "acme-dns-accounts",
        argument: "FILE",
        help: "JSON object of the accounts of the acme-dns server by domain name",
        kind: ValueKind::Path(|acme, path| acme.dns.acme_dns_accounts = Some(path)),
        show: |acme| quoted_path(acme.dns.acme_dns_accounts.as_ref()),
    },
    Key {
        name: "dns_delay",
        flag: "acme-dns-delay",
        argument: "TIME",
        help: "delay between the change of the DNS and the validation, for all of its servers to \
               have the change",
        kind: ValueKind::Time(|acme, time| acme.dns.delay = time),
        show: |acme| quoted(&show_time(acme.dns.delay)),
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
    ON_DEMAND_ASK_CA,
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

/// Splits a host from its port, which is 53 by default.
pub(crate) fn dns_server_address(text: &str) -> String {
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    match (has_port, text.parse::<Ipv6Addr>()) {
        (_, Ok(address)) => format!("[{address}]:53"),
        (true, _) => text.to_owned(),
        (false, _) => format!("{text}:53"),
    }
}

fn check_server(server: &Located<String>) -> ConfigResult {
    let is_server =
        dns_server_address(&server.value).parse::<http::uri::Authority>().is_ok_and(|it| {
            !it.host().is_empty() && it.port_u16().is_some() && !it.as_str().contains('@')
        });
    match is_server {
        true => Ok(()),
        false => Err(server.problem(format!(
            "expected an address such as ns.example.org or 192.0.2.1:53, found {:?}",
            server.value
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_servers_have_port_53_by_default() {
        for (text, expected) in [
            ("ns.example.org", Some("ns.example.org:53")),
            ("ns.example.org:5353", Some("ns.example.org:5353")),
            ("192.0.2.1", Some("192.0.2.1:53")),
            ("2001:db8::1", Some("[2001:db8::1]:53")),
            ("[2001:db8::1]", Some("[2001:db8::1]:53")),
            ("[2001:db8::1]:54", Some("[2001:db8::1]:54")),
            ("", None),
            ("a b", None),
            ("a:x", None),
            ("a:70000", None),
            ("key@a", None),
        ] {
            let server =
                Located { value: text.to_owned(), location: weft_config::ConfigLocation::Unknown };
            let found = check_server(&server).ok().map(|()| dns_server_address(text));
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
