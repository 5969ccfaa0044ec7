//! `Forwarded`, `X-Forwarded-*` and `Client-Cert`: the fields that describe the client to the
//! upstream. Pure.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use bytes::Bytes;
use weft::header::Headers;
use weft_proto::http1::scan;

use super::client_certificate::byte_sequence;
use super::field_filter::push_field;
use super::request_fields::RequestFields;
use crate::base::decimal::{push_address, push_ipv4};
use crate::settings::proxy_settings::ClientCert;

/// The client, and the fields it sent.
pub(crate) struct ForwardedClient<'a> {
    /// `None` for a client on a Unix socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) scheme: &'static str,
    pub(crate) authority: Option<&'a [u8]>,
    /// The client is a trusted proxy, so its `Forwarded` and `X-Forwarded-*` fields are kept.
    pub(crate) is_trusted: bool,
    pub(crate) headers: &'a Headers,
    /// Changes of the route, which replace the generated fields, too.
    pub(crate) changes: Option<&'a RequestFields>,
}

impl ForwardedClient<'_> {
    /// Returns true if the route sets or removes the field. `name` ends in a colon and a space.
    fn is_replaced(&self, name: &str) -> bool {
        let name = name.trim_end_matches(": ").as_bytes();
        self.changes.is_some_and(|changes| changes.replaces(name))
    }
}

/// Appends `Forwarded` (RFC 7239) and the older `X-Forwarded-*` fields.
pub(crate) fn push(out: &mut Vec<u8>, client: &ForwardedClient<'_>) {
    // Range of the formatted address in `out`, which is used twice.
    let (mut address_range, mut is_ipv6) = (0..0, false);
    push_list_field(out, client, "x-forwarded-for: ", |out| {
        if let Some(address) = &client.address {
            let start = out.len();
            is_ipv6 = push_peer_address(out, address);
            address_range = start..out.len();
        }
    });
    push_single_field(out, client, "x-forwarded-proto: ", client.scheme.as_bytes());
    push_single_field(out, client, "x-forwarded-host: ", client.authority.unwrap_or_default());
    push_list_field(out, client, "forwarded: ", |out| {
        if client.is_trusted && client.headers.get("forwarded").is_none() {
            push_received_nodes(out, client.headers);
        }
        push_node(out, address_range, is_ipv6);
        push_host_and_proto(out, Some(client.scheme), client.authority);
    });
}

/// Appends `Client-Cert` and `Client-Cert-Chain` (RFC 9440 §2). The first of `certificates`, in
/// DER, is the certificate of the client.
pub(crate) fn push_certificates(out: &mut Vec<u8>, certificates: &[Bytes], which: ClientCert) {
    let Some((leaf, chain)) = certificates.split_first().filter(|_| which != ClientCert::None)
    else {
        return;
    };
    push_field(out, "client-cert", byte_sequence(leaf).as_bytes());
    if which == ClientCert::Chain && !chain.is_empty() {
        let chain: Vec<String> = chain.iter().map(|it| byte_sequence(it)).collect();
        push_field(out, "client-cert-chain", chain.join(", ").as_bytes());
    }
}

/// Appends a list field, to which each proxy on the path adds a member. `name` ends in a colon and
/// a space.
fn push_list_field(
    out: &mut Vec<u8>,
    client: &ForwardedClient<'_>,
    name: &'static str,
    push_member: impl FnOnce(&mut Vec<u8>),
) {
    if client.is_replaced(name) {
        return;
    }
    let start = out.len();
    let has_received_values = begin_field(out, client, name);
    if has_received_values {
        out.extend_from_slice(b", ");
    }
    let member_start = out.len();
    push_member(out);
    match (out.len() > member_start, has_received_values) {
        (true, _) => {}
        (false, true) => out.truncate(member_start - 2),
        (false, false) => return out.truncate(start),
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a field with a single value. A trusted proxy's value is kept: it describes the original
/// request.
fn push_single_field(
    out: &mut Vec<u8>,
    client: &ForwardedClient<'_>,
    name: &'static str,
    value: &[u8],
) {
    if client.is_replaced(name) {
        return;
    }
    let start = out.len();
    match begin_field(out, client, name) {
        true => {}
        false if value.is_empty() => return out.truncate(start),
        false => out.extend_from_slice(value),
    }
    out.extend_from_slice(b"\r\n");
}

/// Starts a field line with the values received from a trusted proxy. Returns true if there are
/// any.
fn begin_field(out: &mut Vec<u8>, client: &ForwardedClient<'_>, name: &'static str) -> bool {
    out.extend_from_slice(name.as_bytes());
    if !client.is_trusted {
        return false;
    }
    let name = name.trim_end_matches(": ");
    let mut has_received_values = false;
    for line in client.headers.get_all(name).filter(|line| !line.is_empty()) {
        if std::mem::replace(&mut has_received_values, true) {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(line);
    }
    has_received_values
}

/// Appends `for=…` (RFC 7239 §5.2), with the address copied from its range in `out`.
fn push_node(out: &mut Vec<u8>, address_range: Range<usize>, is_ipv6: bool) {
    match (address_range.is_empty(), is_ipv6) {
        (true, _) => out.extend_from_slice(b"for=unknown"),
        (false, false) => {
            out.extend_from_slice(b"for=");
            out.extend_from_within(address_range);
        }
        // RFC 7239 §6: IPv6 addresses are in brackets, and brackets require quotes.
        (false, true) => {
            out.extend_from_slice(b"for=\"[");
            out.extend_from_within(address_range);
            out.extend_from_slice(b"]\"");
        }
    }
}

/// Maximum number of addresses that are converted: far more than there are proxies in a row. The
/// client can send any number of them.
const MAX_RECEIVED_NODES: usize = 64;

/// Appends the addresses that a trusted proxy has sent in `X-Forwarded-For` (RFC 7239 §7.4), with
/// host and scheme of the original request at the client, which is the first of them.
fn push_received_nodes(out: &mut Vec<u8>, headers: &Headers) {
    let entries = || {
        let lines = headers.get_all("x-forwarded-for");
        let entries = lines.flat_map(|line| line.split(|&b| b == b','));
        entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty())
    };
    let count = entries().count();
    let surplus = count.saturating_sub(MAX_RECEIVED_NODES);
    for (index, entry) in entries().enumerate().skip(surplus) {
        match parse_address(entry).map(|address| address.to_canonical()) {
            None => out.extend_from_slice(b"for=unknown"),
            Some(address @ IpAddr::V4(_)) => {
                out.extend_from_slice(b"for=");
                push_address(out, address);
            }
            Some(address @ IpAddr::V6(_)) => {
                out.extend_from_slice(b"for=\"[");
                push_address(out, address);
                out.extend_from_slice(b"]\"");
            }
        }
        if index == 0 {
            let scheme = scheme_of_entry(headers, count);
            let host = headers.get("x-forwarded-host").filter(|host| !host.is_empty());
            push_host_and_proto(out, scheme, host.map(str::as_bytes));
        }
        out.extend_from_slice(b", ");
    }
}

/// Returns the value of `X-Forwarded-Proto` at place `place` from the right, or the leftmost value
/// if there are fewer.
fn scheme_of_entry(headers: &Headers, place: usize) -> Option<&'static str> {
    let values: Vec<&[u8]> = headers.list("x-forwarded-proto").collect();
    let value = values.get(values.len().saturating_sub(place))?;
    ["https", "http"].into_iter().find(|name| value.eq_ignore_ascii_case(name.as_bytes()))
}

/// Parses an address, which may have a port.
fn parse_address(entry: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(entry).ok()?;
    let without_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    text.parse().ok().or_else(with_port).or_else(without_brackets)
}

/// Appends `;host=…;proto=…` (RFC 7239 §5).
fn push_host_and_proto(out: &mut Vec<u8>, scheme: Option<&str>, authority: Option<&[u8]>) {
    if let Some(authority) = authority {
        out.extend_from_slice(b";host=\"");
        match scan::plain(authority) == authority.len() {
            true => out.extend_from_slice(authority),
            false => push_escaped(out, authority),
        }
        out.push(b'"');
    }
    if let Some(scheme) = scheme {
        out.extend_from_slice(b";proto=");
        out.extend_from_slice(scheme.as_bytes());
    }
}

/// Appends the content of a quoted string (RFC 9110 §5.6.4).
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for &b in text {
        if matches!(b, b'\\' | b'"') {
            out.push(b'\\');
        }
        out.push(b);
    }
}

/// Appends the address of the other end of a connection, and returns true if it is one of IPv6.
/// Converting it to an `IpAddr` would take 50 instructions.
fn push_peer_address(out: &mut Vec<u8>, address: &SocketAddr) -> bool {
    let six = match address {
        SocketAddr::V4(address) => {
            push_ipv4(out, *address.ip());
            return false;
        }
        SocketAddr::V6(address) => IpAddr::V6(*address.ip()).to_canonical(),
    };
    push_address(out, six);
    six.is_ipv6()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::header::{HeaderName, HeaderValue};

    const RECEIVED: &str = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n\
        X-Forwarded-Proto: https\r\nX-Forwarded-Host: front\r\nForwarded: for=192.0.2.3\r\n";

    #[test]
    fn describes_client_by_trust() {
        let peer = |address: &str| Some(SocketAddr::new(address.parse().unwrap(), 8));
        let four = peer("198.51.100.7");
        let six = peer("2001:db8::1");
        let mapped = peer("::ffff:198.51.100.7");
        for (received, is_trusted, address, expected) in [
            ("", false, four, ["198.51.100.7", "http", "h:8", "for=198.51.100.7"]),
            ("", true, four, ["198.51.100.7", "http", "h:8", "for=198.51.100.7"]),
            ("", false, mapped, ["198.51.100.7", "http", "h:8", "for=198.51.100.7"]),
            ("", false, six, ["2001:db8::1", "http", "h:8", "for=\"[2001:db8::1]\""]),
            ("", false, None, ["-", "http", "h:8", "for=unknown"]),
            (RECEIVED, false, four, ["198.51.100.7", "http", "h:8", "for=198.51.100.7"]),
            (RECEIVED, false, None, ["-", "http", "h:8", "for=unknown"]),
            (
                RECEIVED,
                true,
                four,
                [
                    "192.0.2.1, 192.0.2.2, 198.51.100.7",
                    "https",
                    "front",
                    "for=192.0.2.3, for=198.51.100.7",
                ],
            ),
            (
                RECEIVED,
                true,
                None,
                ["192.0.2.1, 192.0.2.2", "https", "front", "for=192.0.2.3, for=unknown"],
            ),
        ] {
            let request =
                weft::testing::request(format!("GET / HTTP/1.1\r\nHost: h:8\r\n{received}\r\n"));
            let mut out = Vec::new();
            let client = ForwardedClient {
                address,
                scheme: "http",
                authority: request.authority_bytes(),
                is_trusted,
                headers: request.headers(),
                changes: None,
            };
            push(&mut out, &client);
            let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
            let lines = names.iter().zip(expected).filter(|(_, value)| *value != "-");
            let lines: String = lines.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let lines = lines.trim_end().to_owned() + ";host=\"h:8\";proto=http\r\n";
            assert_eq!(str::from_utf8(&out), Ok(&*lines), "{received:?} {is_trusted} {address:?}");
        }
    }

    /// Each row: the fields of a trusted proxy, and what precedes its own node in `Forwarded`.
    #[test]
    fn converts_the_addresses_of_a_trusted_proxy() {
        let many = "X-Forwarded-For: ".to_owned() + &"192.0.2.9,".repeat(100) + "\r\n";
        let last = "for=192.0.2.9, ".repeat(MAX_RECEIVED_NODES);
        for (received, expected) in [
            ("X-Forwarded-Proto: https\r\n", ""),
            ("X-Forwarded-For: 192.0.2.1\r\n", "for=192.0.2.1, "),
            (
                "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: HTTPS\r\nX-Forwarded-Host: a\r\n",
                "for=192.0.2.1;host=\"a\";proto=https, ",
            ),
            (
                "X-Forwarded-For: 192.0.2.1, 10.0.0.1\r\nX-Forwarded-Proto: https, http\r\n",
                "for=192.0.2.1;proto=https, for=10.0.0.1, ",
            ),
            (
                // The client has sent the first value itself.
                "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https, http\r\n",
                "for=192.0.2.1;proto=http, ",
            ),
            (
                "X-Forwarded-For: 2001:db8::1 ,, [2001:db8::2]\r\nX-Forwarded-For: 192.0.2.2:80\r\n\
                 X-Forwarded-Proto: x;y\r\nX-Forwarded-Host: \"\r\n",
                "for=\"[2001:db8::1]\";host=\"\\\"\", for=\"[2001:db8::2]\", for=192.0.2.2, ",
            ),
            ("X-Forwarded-For: [2001:db8::3]:80, ::ffff:192.0.2.3, a;b=c\r\n", {
                "for=\"[2001:db8::3]\", for=192.0.2.3, for=unknown, "
            }),
            (&many, &last),
            // The proxy sends `Forwarded` itself.
            ("X-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.4\r\n", "for=192.0.2.4, "),
        ] {
            let request =
                weft::testing::request(format!("GET / HTTP/1.1\r\nHost: h\r\n{received}\r\n"));
            let address = Some("198.51.100.7:8".parse().unwrap());
            let (authority, headers) = (request.authority_bytes(), request.headers());
            let (scheme, changes) = ("https", None);
            let client =
                ForwardedClient { address, scheme, authority, is_trusted: true, headers, changes };
            let mut out = Vec::new();
            push(&mut out, &client);
            let line = format!("forwarded: {expected}for=198.51.100.7;host=\"h\";proto=https\r\n");
            assert!(out.ends_with(line.as_bytes()), "{line} {}", String::from_utf8_lossy(&out));
        }
    }

    #[test]
    fn changes_of_the_route_replace_generated_fields() {
        let mut request = weft::testing::request("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        RequestFields::set(
            &mut request,
            HeaderName::from_static("x-forwarded-proto"),
            HeaderValue::from_static("https"),
        );
        for name in ["x-forwarded-for", "x-forwarded-host", "forwarded"] {
            RequestFields::remove(&mut request, HeaderName::from_static(name));
            let mut out = Vec::new();
            let client = ForwardedClient {
                address: Some("198.51.100.7:8".parse().unwrap()),
                scheme: "http",
                authority: request.authority_bytes(),
                is_trusted: false,
                headers: request.headers(),
                changes: RequestFields::of(&request),
            };
            push(&mut out, &client);
            let text = String::from_utf8(out).unwrap();
            assert!(!text.contains("x-forwarded-proto") && !text.contains(&format!("{name}: ")));
            assert_eq!(text.is_empty(), name == "forwarded", "{text}");
        }
    }

    #[test]
    fn appends_certificates() {
        let certificates = [b"\0\0\0".as_slice(), b"\xff", b"a"].map(Bytes::from_static);
        for (count, which, expected) in [
            (0, ClientCert::Chain, ""),
            (3, ClientCert::None, ""),
            (3, ClientCert::Leaf, "client-cert: :AAAA:\r\n"),
            (1, ClientCert::Chain, "client-cert: :AAAA:\r\n"),
            (3, ClientCert::Chain, "client-cert: :AAAA:\r\nclient-cert-chain: :/w==:, :YQ==:\r\n"),
        ] {
            let mut out = Vec::new();
            push_certificates(&mut out, &certificates[..count], which);
            assert_eq!(str::from_utf8(&out), Ok(expected), "{count} {which:?}");
        }
    }

    #[test]
    fn escapes_quotes_in_host() {
        let mut out = Vec::new();
        push_host_and_proto(&mut out, Some("http"), Some(b"a\";for=\"\\"));
        assert_eq!(out, br#";host="a\";for=\"\\";proto=http"#);
    }
}
