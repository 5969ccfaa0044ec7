//! Kinds of validations.

use crate::name::Name;

/// A kind of validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

    /// Returns the port to which the authority connects; `None` for a validation by the DNS.
    pub fn port(self) -> Option<u16> {
        match self {
            ChallengeKind::Http01 => Some(80),
            ChallengeKind::TlsAlpn01 => Some(443),
            ChallengeKind::Dns01 | ChallengeKind::DnsPersist01 => None,
        }
    }

    /// Returns true if the RFCs permit this validation for `name`. A connection cannot validate a
    /// wildcard (RFC 8555 §7.1.3), and the DNS cannot validate an address (RFC 8738 §7).
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
