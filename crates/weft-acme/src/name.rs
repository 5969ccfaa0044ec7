//! Names of certificates, and patterns of names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use weft::{Error, ErrorKind, Result};

/// A domain name, also a wildcard such as `*.example.org`, or an IP address; in lower case. A
/// domain name has at most 253 bytes, and ASCII labels: international ones are in their encoded
/// form.
///
/// ```
/// let name: weft_acme::Name = "Example.org".parse()?;
/// assert_eq!(name.as_str(), "example.org");
/// # Ok::<(), weft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Maximum length of a domain name (RFC 1035 §2.3.4).
const MAX_NAME_BYTES: usize = 253;

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the IP address, if the name is an address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }

    /// Returns true if the name is a wildcard such as `*.example.org`.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// Returns the domain name. For the wildcard `*.example.org` it is `example.org`.
    pub(crate) fn domain(&self) -> &str {
        self.0.strip_prefix("*.").unwrap_or(&self.0)
    }

    /// Returns the server name of a validation by TLS. For an IP address it is the reverse name
    /// (RFC 8738 §6).
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

    /// Returns true if the name is a loopback name or address, which no public authority can
    /// validate.
    pub fn is_local(&self) -> bool {
        match self.ip() {
            Some(address) => address.is_loopback(),
            None => self.0 == "localhost" || self.0.ends_with(".localhost"),
        }
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Name> {
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
            false => {
                let reason = "it is neither a domain name nor an IP address";
                Err(Error::new(ErrorKind::InvalidSetting, reason))
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name, or `*.example.org` for all of its subdomains, in lower case. There is no pattern for all
/// names.
///
/// ```
/// let pattern: weft_acme::NamePattern = "*.example.org".parse()?;
/// assert!(pattern.matches("a.b.example.org") && !pattern.matches("example.org"));
/// # Ok::<(), weft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// Returns true if the pattern permits `name`, which is in lower case.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_prefix('*') {
            Some(suffix) => name.len() > suffix.len() && name.ends_with(suffix),
            None => name == self.0,
        }
    }
}

impl FromStr for NamePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<NamePattern> {
        let text = text.to_ascii_lowercase();
        let name = text.strip_prefix("*.").unwrap_or(&text);
        let reason = match name.parse::<Name>() {
            Ok(name) if name.ip().is_some() => "clients that connect to an address send no name",
            Ok(name) if !name.is_wildcard() => return Ok(NamePattern(text)),
            _ if name == "*" => "all names cannot be permitted by a pattern",
            _ => "expected a name, or *.example.org for its subdomains",
        };
        Err(Error::new(ErrorKind::InvalidSetting, reason))
    }
}

impl fmt::Display for NamePattern {
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

    #[test]
    fn patterns_match_a_name_or_its_subdomains() {
        for (pattern, name, expected) in [
            ("example.org", "example.org", true),
            ("Example.org", "example.org", true),
            ("example.org", "a.example.org", false),
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "a.b.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "badexample.org", false),
        ] {
            let parsed: NamePattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(name), expected, "{pattern} {name}");
        }
        for invalid in ["*", "", "*.", "a.*.b", "*example.org", "192.0.2.1", "*.192.0.2.1", "a/b"] {
            assert!(invalid.parse::<NamePattern>().is_err(), "{invalid}");
        }
    }
}
