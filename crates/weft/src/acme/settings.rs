//! What to order, and from which authority. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::dns::DnsSettings;
use super::on_demand::OnDemandPlan;

/// Validated `[acme]` section, with the names of the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcmePlan {
    /// Sorted.
    pub(crate) names: Vec<Name>,
    /// The names of the hosts are among them.
    pub(crate) includes_hosts: bool,
    /// URLs of the directories of authorities. After a failure the next one is asked.
    pub(crate) directories: Vec<String>,
    /// Authority that is asked first after a failure, whose certificates are not used.
    pub(crate) staging: Option<String>,
    /// Binds new accounts to accounts that authorities have created in another way.
    pub(crate) eab: Option<EabKey>,
    /// Address that the authority may send warnings to.
    pub(crate) email: Option<String>,
    /// Certificate authorities of the directories' own certificates; `None`: those of the system.
    pub(crate) ca: Option<PathBuf>,
    /// `None`: the default of the platform.
    pub(crate) state: Option<PathBuf>,
    pub(crate) allows_ephemeral_state: bool,
    /// A self-signed certificate serves names without a certificate.
    pub(crate) has_placeholder: bool,
    /// In the order of preference. After a failure the next one is tried.
    pub(crate) challenges: Vec<ChallengeKind>,
    /// Change of the DNS, for `dns-01`.
    pub(crate) dns: Option<DnsSettings>,
    /// Profile of the certificates, such as `shortlived`.
    pub(crate) profile: Option<String>,
    /// Certificates that are ordered when a client sends a name; `None`: none are.
    pub(crate) on_demand: Option<Arc<OnDemandPlan>>,
    /// Delay after the first failure; it grows with each further one.
    pub(crate) retry_delay: Duration,
    /// Time limit for an order, with all validations.
    pub(crate) order_timeout: Duration,
}

/// Key of an external account binding (RFC 8555 §7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EabKey {
    pub(crate) id: String,
    /// Path of a file with the key in base64.
    pub(crate) key: PathBuf,
}

impl AcmePlan {
    /// Returns the validations that are possible for a name.
    pub(super) fn challenges_for(&self, name: &Name) -> Vec<ChallengeKind> {
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
pub(crate) enum ChallengeKind {
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
    pub(crate) const ALL: [ChallengeKind; 4] = [
        ChallengeKind::TlsAlpn01,
        ChallengeKind::Http01,
        ChallengeKind::Dns01,
        ChallengeKind::DnsPersist01,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            ChallengeKind::Http01 => "http-01",
            ChallengeKind::TlsAlpn01 => "tls-alpn-01",
            ChallengeKind::Dns01 => "dns-01",
            ChallengeKind::DnsPersist01 => "dns-persist-01",
        }
    }

    /// Port that the authority connects to, if it does.
    pub(crate) fn port(self) -> Option<u16> {
        match self {
            ChallengeKind::Http01 => Some(80),
            ChallengeKind::TlsAlpn01 => Some(443),
            ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => None,
        }
    }

    /// Returns true unless the RFCs rule the validation out: that of a wildcard by a connection
    /// (RFC 8555 §7.1.3), and that of an address by the DNS (RFC 8738 §7).
    pub(crate) fn can_validate(self, name: &Name) -> bool {
        match self {
            ChallengeKind::Http01 | ChallengeKind::TlsAlpn01 => !name.is_wildcard(),
            ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => name.ip().is_none(),
        }
    }
}

/// A domain name, also a wildcard such as `*.example.org`, or an IP address; in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(String);

/// Maximum length of a domain name (RFC 1035 §2.3.4).
const MAX_NAME_BYTES: usize = 253;

impl Name {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }

    pub(crate) fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// Returns the domain name, of a wildcard the one whose subdomains it stands for.
    pub(super) fn domain(&self) -> &str {
        self.0.strip_prefix("*.").unwrap_or(&self.0)
    }

    /// Returns the server name of a validation by TLS: for an IP address its reverse name (RFC 8738
    /// §6).
    pub(crate) fn server_name(&self) -> String {
        match self.ip() {
            None => self.0.clone(),
            Some(IpAddr::V4(address)) => {
                let [a, b, c, d] = Ipv4Addr::octets(&address);
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            Some(IpAddr::V6(address)) => {
                let nibbles = Ipv6Addr::octets(&address).into_iter().flat_map(|b| [b >> 4, b & 15]);
                let mut labels: Vec<_> = nibbles.map(|nibble| format!("{nibble:x}")).collect();
                labels.reverse();
                format!("{}.ip6.arpa", labels.join("."))
            }
        }
    }

    /// Returns true for names that no public authority can validate: they never leave the machine.
    pub(crate) fn is_local(&self) -> bool {
        match self.ip() {
            Some(address) => address.is_loopback(),
            None => self.0 == "localhost" || self.0.ends_with(".localhost"),
        }
    }
}

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Name, &'static str> {
        let text = text.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Name(address.to_string()));
        }
        let is_label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        let domain = text.strip_prefix("*.").unwrap_or(&text);
        match text.len() <= MAX_NAME_BYTES && domain.split('.').all(is_label) {
            true => Ok(Name(text)),
            false => Err("it is neither a domain name nor an IP address"),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names() {
        for (text, expected) in [
            ("Example.org", Some(("example.org", "example.org"))),
            ("a_b.c-d.example", Some(("a_b.c-d.example", "a_b.c-d.example"))),
            ("192.0.2.1", Some(("192.0.2.1", "1.2.0.192.in-addr.arpa"))),
            (
                "[2001:DB8::1]",
                Some((
                    "2001:db8::1",
                    "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa",
                )),
            ),
            ("*.Example.org", Some(("*.example.org", "*.example.org"))),
            ("*", None),
            ("*.", None),
            ("*.*.example.org", None),
            ("a.*.example.org", None),
            ("", None),
            ("a..b", None),
            (".", None),
            ("../x", None),
            ("a/b", None),
            ("a:80", None),
        ] {
            let name = text.parse::<Name>().ok();
            let found = name.as_ref().map(|name| (name.as_str().to_owned(), name.server_name()));
            let expected = expected.map(|(name, server)| (name.to_owned(), server.to_owned()));
            assert_eq!(found, expected, "{text}");
        }
        let long = format!("{}.example", "a".repeat(64));
        assert!(long.parse::<Name>().is_err());
        assert!(["a."; 130].concat().trim_end_matches('.').parse::<Name>().is_err());
    }

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

    #[test]
    fn local_names_are_not_ordered() {
        for (text, expected) in [
            ("localhost", true),
            ("a.localhost", true),
            ("127.0.0.2", true),
            ("::1", true),
            ("mylocalhost", false),
            ("192.0.2.1", false),
        ] {
            assert_eq!(text.parse::<Name>().unwrap().is_local(), expected, "{text}");
        }
    }
}
