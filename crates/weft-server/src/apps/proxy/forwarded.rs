//! What an upstream is told of the client and of the way that a request has come. Pure.

use std::fmt::Write;
use std::net::IpAddr;

use hyper::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue, VIA};
use weft::{Headers, Version};

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What is known of the client, and what it says itself.
pub(super) struct Client<'a> {
    /// `None` for a client on a Unix socket.
    pub(super) address: Option<IpAddr>,
    pub(super) scheme: &'static str,
    pub(super) authority: Option<&'a str>,
    /// Whether it is a proxy that is believed what it says of its own client.
    pub(super) is_trusted: bool,
    pub(super) headers: &'a Headers,
}

/// Sets `Forwarded` (RFC 7239) and its older sisters.
pub(super) fn set(fields: &mut HeaderMap, client: &Client<'_>) {
    let address = client.address.map(|address| address.to_canonical());
    let before = |name: &HeaderName| match client.is_trusted {
        true => join(client.headers, name.as_str()),
        false => Vec::new(),
    };
    let mut put = |name: HeaderName, value: Vec<u8>| {
        if !value.is_empty()
            && let Ok(value) = HeaderValue::try_from(value)
        {
            fields.insert(name, value);
        }
    };
    let addresses = before(&X_FORWARDED_FOR);
    put(X_FORWARDED_FOR, with(addresses, address.map(|address| address.to_string())));
    for (name, value) in
        [(X_FORWARDED_PROTO, Some(client.scheme)), (X_FORWARDED_HOST, client.authority)]
    {
        // There is one client, and its proxy knows better how it has asked.
        let said = before(&name);
        put(name, if said.is_empty() { value.unwrap_or_default().into() } else { said });
    }
    let element = element(address, client.scheme, client.authority);
    put(FORWARDED, with(before(&FORWARDED), Some(element)));
}

/// `for=…;host=…;proto=…` (RFC 7239 §4).
fn element(address: Option<IpAddr>, scheme: &str, authority: Option<&str>) -> String {
    let mut element = String::with_capacity(96);
    element.push_str("for=");
    // Writing to a string cannot fail.
    let _ = match address {
        Some(IpAddr::V4(address)) => write!(element, "{address}"),
        // §6: in brackets, and these need quotes.
        Some(IpAddr::V6(address)) => write!(element, "\"[{address}]\""),
        None => write!(element, "unknown"),
    };
    if let Some(authority) = authority {
        element.push_str(";host=\"");
        for letter in authority.chars() {
            if matches!(letter, '\\' | '"') {
                element.push('\\');
            }
            element.push(letter);
        }
        element.push('"');
    }
    element.push_str(";proto=");
    element.push_str(scheme);
    element
}

/// Adds our own name to `Via` (RFC 9110 §7.6.3).
pub(super) fn add_via(fields: &mut HeaderMap, received: Version, name: &str) {
    let version = match received {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    if let Ok(value) = HeaderValue::try_from(format!("{version} {name}")) {
        fields.append(VIA, value);
    }
}

/// All fields of that name as one list.
fn join(headers: &Headers, name: &str) -> Vec<u8> {
    let lines: Vec<&[u8]> = headers.get_all(name).filter(|line| !line.is_empty()).collect();
    lines.join(&b", "[..])
}

/// A list with one more member.
fn with(mut list: Vec<u8>, member: Option<String>) -> Vec<u8> {
    if let Some(member) = member {
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(member.as_bytes());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n\
        X-Forwarded-Proto: https\r\nX-Forwarded-Host: said\r\nForwarded: for=192.0.2.3\r\n";

    #[test]
    fn what_the_upstream_is_told() {
        let four = Some("198.51.100.7".parse().unwrap());
        let six = Some("2001:db8::1".parse().unwrap());
        let mapped = Some("::ffff:198.51.100.7".parse().unwrap());
        for (said, is_trusted, address, expected) in [
            ("", false, four, ["198.51.100.7", "http", "h:8", "for=198.51.100.7"]),
            ("", true, four, ["198.51.100.7", "http", "h:8", "for=198.51.100.7"]),
            ("", false, mapped, ["198.51.100.7", "http", "h:8", "for=198.51.100.7"]),
            ("", false, six, ["2001:db8::1", "http", "h:8", "for=\"[2001:db8::1]\""]),
            ("", false, None, ["-", "http", "h:8", "for=unknown"]),
            (SAID, false, four, ["198.51.100.7", "http", "h:8", "for=198.51.100.7"]),
            (SAID, false, None, ["-", "http", "h:8", "for=unknown"]),
            (
                SAID,
                true,
                four,
                [
                    "192.0.2.1, 192.0.2.2, 198.51.100.7",
                    "https",
                    "said",
                    "for=192.0.2.3, for=198.51.100.7",
                ],
            ),
            (
                SAID,
                true,
                None,
                ["192.0.2.1, 192.0.2.2", "https", "said", "for=192.0.2.3, for=unknown"],
            ),
        ] {
            let request =
                weft::testing::request(format!("GET / HTTP/1.1\r\nHost: h:8\r\n{said}\r\n"));
            let mut fields = HeaderMap::new();
            let client = Client {
                address,
                scheme: "http",
                authority: request.authority(),
                is_trusted,
                headers: request.headers(),
            };
            set(&mut fields, &client);
            let get = |name: HeaderName| {
                fields.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned()
            };
            let found = [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, FORWARDED].map(get);
            let mut expected = expected.map(str::to_owned);
            expected[3].push_str(";host=\"h:8\";proto=http");
            assert_eq!(found, expected, "{said:?} {is_trusted} {address:?}");
        }
    }

    #[test]
    fn what_a_client_writes_cannot_leave_its_quotes() {
        let element = element(None, "http", Some("a\";for=\"\\"));
        assert_eq!(element, r#"for=unknown;host="a\";for=\"\\";proto=http"#);
    }
}
