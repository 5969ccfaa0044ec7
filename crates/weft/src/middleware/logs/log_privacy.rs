//! Parts of log lines that identify a client or give access.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parts of access log lines that are withheld; by default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogPrivacy {
    /// Addresses of clients are logged as their networks: the last 8 bits of IPv4 and the last 80
    /// bits of IPv6 are 0. Fields of requests that have such addresses, such as `X-Forwarded-For`,
    /// are not logged.
    pub mask_addresses: bool,

    /// Names of parameters of the query whose values are logged as `***`, in the target, in the
    /// query and in `Referer`. Their case does not matter.
    pub redacted_parameters: Vec<String>,
}

/// Value in place of a redacted one.
const REDACTED: &[u8] = b"***";

/// Fields of requests that have addresses of clients.
const ADDRESS_FIELDS: [&str; 5] =
    ["x-forwarded-for", "x-real-ip", "forwarded", "cf-connecting-ip", "true-client-ip"];

impl LogPrivacy {
    /// Returns true if the value of a parameter is withheld. The name may be percent-encoded.
    pub fn redacts(&self, name: &[u8]) -> bool {
        let is_same = |known: &String| {
            decoded(name)
                .map(|byte| byte.to_ascii_lowercase())
                .eq(known.to_ascii_lowercase().bytes())
        };
        self.redacted_parameters.iter().any(is_same)
    }

    pub(crate) fn address(&self, address: IpAddr) -> IpAddr {
        if self.mask_addresses { network(address) } else { address }
    }

    /// Returns true if a field of the request is withheld.
    pub(crate) fn withholds_field(&self, name: &str) -> bool {
        self.mask_addresses && ADDRESS_FIELDS.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Redacts the query of a target or of a URI, which may be followed by a space and other text.
    pub(crate) fn target<'a>(&self, target: &'a [u8]) -> Cow<'a, [u8]> {
        if self.redacted_parameters.is_empty() {
            return target.into();
        }
        let Some(at) = target.iter().position(|b| *b == b'?') else { return target.into() };
        let (path, query) = target.split_at(at + 1);
        match self.query(query) {
            Cow::Borrowed(_) => target.into(),
            Cow::Owned(redacted) => [path, &redacted].concat().into(),
        }
    }

    /// Redacts the queries of all targets and URIs in a text, which end at spaces.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.redacted_parameters.is_empty() || !text.contains('?') {
            return text.into();
        }
        let words: Vec<_> = text.split(' ').map(|word| self.target(word.as_bytes())).collect();
        String::from_utf8_lossy(&words.join(&b' ')).into_owned().into()
    }

    /// Redacts a query, up to a fragment or a space.
    pub(crate) fn query<'a>(&self, query: &'a [u8]) -> Cow<'a, [u8]> {
        if self.redacted_parameters.is_empty() {
            return query.into();
        }
        let is_end = |b: &u8| matches!(b, b'#' | b' ');
        let end = query.iter().position(is_end).unwrap_or(query.len());
        let (parameters, rest) = query.split_at(end);
        let mut redacted = Vec::with_capacity(query.len());
        let mut has_any = false;
        for part in parameters.split_inclusive(|b| matches!(b, b'&' | b';')) {
            let separator = part.iter().rposition(|b| matches!(b, b'&' | b';'));
            let (parameter, separator) = part.split_at(separator.unwrap_or(part.len()));
            match parameter.iter().position(|b| *b == b'=') {
                Some(at) if self.redacts(&parameter[..at]) => {
                    has_any = true;
                    redacted.extend_from_slice(&parameter[..=at]);
                    redacted.extend_from_slice(REDACTED);
                }
                _ => redacted.extend_from_slice(parameter),
            }
            redacted.extend_from_slice(separator);
        }
        match has_any {
            true => {
                redacted.extend_from_slice(rest);
                redacted.into()
            }
            false => query.into(),
        }
    }
}

/// Returns the network of a client: a /24 of IPv4, or a /48 of IPv6.
pub fn client_network(address: IpAddr) -> IpAddr {
    network(address)
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Ipv4Addr::new(a, b, c, 0).into()
        }
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into()
        }
    }
}

/// Decodes percent-encoded bytes, and `+` as a space. An invalid sequence stands for itself.
fn decoded(text: &[u8]) -> impl Iterator<Item = u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut at = 0;
    std::iter::from_fn(move || {
        let byte = *text.get(at)?;
        let encoded = digit(text.get(at + 1)).zip(digit(text.get(at + 2)));
        match (byte, encoded) {
            (b'%', Some((high, low))) => {
                at += 3;
                Some((high * 16 + low) as u8)
            }
            (b'+', _) => {
                at += 1;
                Some(b' ')
            }
            (byte, _) => {
                at += 1;
                Some(byte)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacts_values_of_parameters() {
        let names = ["token", "api key"].map(str::to_owned).to_vec();
        let privacy = LogPrivacy { redacted_parameters: names, ..LogPrivacy::default() };
        for (target, expected) in [
            ("/a", "/a"),
            ("/a?b=c", "/a?b=c"),
            ("/a?token=x", "/a?token=***"),
            ("/a?b=c&token=x&d=e", "/a?b=c&token=***&d=e"),
            ("/a?TOKEN=x;token=;a", "/a?TOKEN=***;token=***;a"),
            ("/a?t%6Fken=x&api+key=1&api%20KEY=2", "/a?t%6Fken=***&api+key=***&api%20KEY=***"),
            ("/token=x?tokens=1&atoken=2&token", "/token=x?tokens=1&atoken=2&token"),
            ("/a?token=x?y=z#token=b", "/a?token=***#token=b"),
            ("/a?tok%en=x&%=1&token%=2", "/a?tok%en=x&%=1&token%=2"),
            // The start of the line of an invalid request.
            ("GET /a?token=x HTTP/9", "GET /a?token=*** HTTP/9"),
            ("/?", "/?"),
        ] {
            assert_eq!(privacy.target(target.as_bytes()).escape_ascii().to_string(), expected);
        }
        for (text, expected) in [
            (
                "a? b (GET /a?b=\u{ed}&token=x of token=y)",
                "a? b (GET /a?b=\u{ed}&token=*** of token=y)",
            ),
            ("/a?token=x /b?token=y", "/a?token=*** /b?token=***"),
        ] {
            assert_eq!(privacy.redact_text(text), expected);
        }
        let none = LogPrivacy::default();
        assert_eq!(&*none.target(b"/a?token=x"), b"/a?token=x");
    }

    #[test]
    fn masks_addresses() {
        for (address, expected) in [
            ("192.0.2.255", "192.0.2.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
            ("::ffff:192.0.2.255", "192.0.2.0"),
        ] {
            assert_eq!(client_network(address.parse().unwrap()).to_string(), expected);
        }
    }
}
