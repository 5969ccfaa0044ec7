//! Client address from `Forwarded` or `X-Forwarded-For`, set by trusted proxies.

use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::request_id::is_trusted;
use weft_proto::proxy_protocol::Network;

/// Sets the [peer](Request::peer) of a request to the client address that trusted proxies send in
/// `Forwarded` (RFC 7239) or in `X-Forwarded-For`.
///
/// ```
/// use weft::middleware::RealAddress;
/// use weft::{Application, Network, Request, Response, testing};
///
/// async fn address(request: Request) -> Response {
///     Response::text(request.peer().address().unwrap().ip().to_string())
/// }
///
/// let proxies: Network = "10.0.0.0/8".parse()?;
/// let app = address.with(RealAddress::x_forwarded_for([proxies]));
/// let fields = "X-Forwarded-For: 192.0.2.66, 198.51.100.7, 10.0.0.2";
/// let mut request = testing::request(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
/// request.set_peer("10.0.0.1:1234".parse().unwrap());
/// testing::call(app, request).assert_text("198.51.100.7");
/// # Ok::<(), weft::Error>(())
/// ```
///
/// Each proxy appends the address of its peer on the right. So the list is evaluated from the
/// right as long as the addresses are trusted proxies: the client is the first address that is
/// not trusted, or the leftmost one if all are. Entries further left can be forged by the client
/// and are ignored.
///
/// The peer is left unchanged if it is not trusted itself, if the field is missing, and if an
/// entry that has to be evaluated is not an address: malformed, `unknown` or obfuscated
/// (`_name`). The port is 0 if the entry has none. Peers on Unix sockets are trusted if the list
/// of networks is not empty.
///
/// The field that the proxies set has to be configured, because they pass on the other one as
/// sent by the client. For the PROXY protocol see
/// [`Settings::proxies`](crate::Settings::proxies).
#[derive(Clone, Debug)]
pub struct RealAddress {
    field: ProxyField,
    trusted: Vec<Network>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyField {
    Forwarded,
    XForwardedFor,
}

impl RealAddress {
    /// Trusts `Forwarded` (RFC 7239) from proxies in these networks.
    pub fn forwarded(proxies: impl Into<Vec<Network>>) -> RealAddress {
        RealAddress { field: ProxyField::Forwarded, trusted: proxies.into() }
    }

    /// Trusts `X-Forwarded-For` from proxies in these networks.
    pub fn x_forwarded_for(proxies: impl Into<Vec<Network>>) -> RealAddress {
        RealAddress { field: ProxyField::XForwardedFor, trusted: proxies.into() }
    }

    /// Address of the client; `None` to keep the peer.
    fn client(&self, request: &Request) -> Option<SocketAddr> {
        if !is_trusted(&self.trusted, request.peer()) {
            return None;
        }
        let lines = request.headers().get_all(self.field.name());
        let lines: SmallVec<[&[u8]; 4]> = lines.collect();
        let mut client = None;
        for member in lines.iter().rev().flat_map(|line| members_rev(line)) {
            let address = self.field.parse_address(member)?;
            client = Some(address);
            if !self.trusted.iter().any(|network| network.contains(address.ip())) {
                break;
            }
        }
        client
    }
}

impl Middleware for RealAddress {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        if let Some(client) = self.client(&request) {
            request.set_peer(client);
        }
        next.call(request).await
    }
}

impl ProxyField {
    fn name(self) -> &'static str {
        match self {
            ProxyField::Forwarded => "forwarded",
            ProxyField::XForwardedFor => "x-forwarded-for",
        }
    }

    /// Parses the address in a member of the list.
    fn parse_address(self, member: &[u8]) -> Option<SocketAddr> {
        match self {
            ProxyField::Forwarded => parse_address(forwarded_for(member)?),
            ProxyField::XForwardedFor => parse_address(member),
        }
    }
}

/// The members of a comma-separated list, last first. Parsing backwards prevents input of the
/// client on the left, such as an unclosed quote, from affecting the members added by proxies.
fn members_rev(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let list = rest?;
        let mut quoted = false;
        for (at, &b) in list.iter().enumerate().rev() {
            match b {
                b'"' if !is_escaped(list, at) => quoted = !quoted,
                b',' if !quoted => {
                    rest = Some(&list[..at]);
                    return Some(&list[at + 1..]);
                }
                _ => {}
            }
        }
        rest = None;
        Some(list)
    })
    .map(<[u8]>::trim_ascii)
    .filter(|member| !member.is_empty())
}

/// Returns whether an odd number of backslashes precedes a byte.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

/// The value of `for` in an element `name=value;name="value"` (RFC 7239 §4); `None` unless it
/// occurs exactly once and the element is well-formed.
fn forwarded_for(element: &[u8]) -> Option<&[u8]> {
    let mut found = None;
    let mut rest = element;
    while !rest.is_empty() {
        let equals_at = rest.iter().position(|&b| b == b'=')?;
        let name = rest[..equals_at].trim_ascii();
        let value = &rest[equals_at + 1..];
        let (value, after) = match value.strip_prefix(b"\"") {
            Some(quoted) => {
                let closes = |&at: &usize| quoted[at] == b'"' && !is_escaped(quoted, at);
                let end = (0..quoted.len()).find(closes)?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => value.split_at(value.iter().position(|&b| b == b';').unwrap_or(value.len())),
        };
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
        rest = match after.trim_ascii() {
            b"" => b"",
            after => after.strip_prefix(b";")?,
        };
    }
    found
}

/// Parses the address of a node (RFC 7239 §6): `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`,
/// `[2001:db8::1]:80`, and `2001:db8::1`, the form used in `X-Forwarded-For`.
fn parse_address(node: &[u8]) -> Option<SocketAddr> {
    let node = std::str::from_utf8(node.trim_ascii()).ok()?;
    if let Ok(address) = node.parse::<SocketAddr>() {
        return Some(SocketAddr::new(address.ip().to_canonical(), address.port()));
    }
    let host = match node.strip_prefix('[') {
        Some(six) => six.strip_suffix(']').filter(|six| six.contains(':'))?,
        None => node,
    };
    Some(SocketAddr::new(host.parse::<IpAddr>().ok()?.to_canonical(), 0))
}

#[cfg(test)]
mod tests {
    use super::ProxyField::*;
    use super::*;
    use crate::testing;

    const TRUSTED: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];

    fn peer(field: ProxyField, fields: &str, peer: &str) -> String {
        let trusted = TRUSTED.map(|network| network.parse().unwrap()).into();
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut request = testing::request(text);
        if !peer.is_empty() {
            request.set_peer(peer.parse().unwrap());
        }
        let client = RealAddress { field, trusted }.client(&request);
        client.map_or("-".to_owned(), |client| client.to_string())
    }

    #[test]
    fn reads_x_forwarded_for() {
        for (lines, client) in [
            (&["192.0.2.1"][..], "192.0.2.1:0"),
            (&["192.0.2.1:99"], "192.0.2.1:99"),
            (&["2001:db8::1"], "[2001:db8::1]:0"),
            (&["[2001:db8::1]"], "[2001:db8::1]:0"),
            (&["[2001:db8::1]:99"], "[2001:db8::1]:99"),
            (&["::ffff:192.0.2.1"], "192.0.2.1:0"),
            (&["192.0.2.66, 192.0.2.1"], "192.0.2.1:0"),
            (&["192.0.2.66, 192.0.2.1, 10.1.1.1 ,fd00::7"], "192.0.2.1:0"),
            (&["192.0.2.66", "192.0.2.1,10.1.1.1", "10.1.1.2"], "192.0.2.1:0"),
            (&["10.1.1.1, 10.1.1.2"], "10.1.1.1:0"),
            (&["192.0.2.1, , ,10.1.1.1,"], "192.0.2.1:0"),
            // Input of the client is ignored.
            (&["nonsense, \"192.0.2.66, 192.0.2.1"], "192.0.2.1:0"),
            (&["\", 192.0.2.1, 10.1.1.1"], "192.0.2.1:0"),
            // A required entry is not an address.
            (&[], "-"),
            (&[""], "-"),
            (&[","], "-"),
            (&["unknown"], "-"),
            (&["192.0.2.1, unknown, 10.1.1.1"], "-"),
            (&["192.0.2.1:65536"], "-"),
            (&["192.0.2.256"], "-"),
            (&["[192.0.2.1]"], "-"),
            (&["[2001:db8::1"], "-"),
            (&["\"192.0.2.1\""], "-"),
            (&["for=192.0.2.1"], "-"),
        ] {
            let fields: String =
                lines.iter().map(|line| format!("X-Forwarded-For: {line}\r\n")).collect();
            assert_eq!(peer(XForwardedFor, &fields, "10.0.0.1:80"), client, "{lines:?}");
        }
    }

    #[test]
    fn reads_forwarded() {
        for (lines, client) in [
            (&["for=192.0.2.1"][..], "192.0.2.1:0"),
            (&["For=\"192.0.2.1:99\""], "192.0.2.1:99"),
            (&["for=\"[2001:db8::1]:99\""], "[2001:db8::1]:99"),
            (&["proto=https;for=192.0.2.1; by=10.0.0.1"], "192.0.2.1:0"),
            (&["for=192.0.2.66, for=192.0.2.1, for=10.1.1.1;by=\"_a,b\""], "192.0.2.1:0"),
            (&["for=192.0.2.66", "for=192.0.2.1", "for=10.1.1.1"], "192.0.2.1:0"),
            // The client can only control quoted text.
            (&["for=192.0.2.1;host=\"a,for=192.0.2.66\""], "192.0.2.1:0"),
            (&["for=192.0.2.1;host=\"a;for=192.0.2.66\""], "192.0.2.1:0"),
            (&["for=192.0.2.1;host=\"a\\\",for=192.0.2.66\""], "192.0.2.1:0"),
            (&["for=\"192.0.2.66, for=192.0.2.1"], "192.0.2.1:0"),
            (&["for=\"\\, for=192.0.2.1"], "192.0.2.1:0"),
            // A required entry is not an address.
            (&["for=unknown"], "-"),
            (&["for=_hidden"], "-"),
            (&["proto=https"], "-"),
            (&["for=192.0.2.1;for=192.0.2.2"], "-"),
            (&["for=\"192.0.2.1"], "-"),
            (&["for=192.0.2.1;x"], "-"),
            (&["for=\"192.0.2.1\"x"], "-"),
            (&["192.0.2.1"], "-"),
        ] {
            let fields: String =
                lines.iter().map(|line| format!("Forwarded: {line}\r\n")).collect();
            assert_eq!(peer(Forwarded, &fields, "10.0.0.1:80"), client, "{lines:?}");
        }
    }

    #[test]
    fn trusts_only_configured_peers() {
        let both = "X-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.2\r\n";
        for (field, from, client) in [
            (XForwardedFor, "10.0.0.1:80", "192.0.2.1:0"),
            (Forwarded, "10.0.0.1:80", "192.0.2.2:0"),
            (XForwardedFor, "[fd00::1]:80", "192.0.2.1:0"),
            (XForwardedFor, "[::ffff:10.0.0.1]:80", "192.0.2.1:0"),
            (XForwardedFor, "", "192.0.2.1:0"),
            (XForwardedFor, "11.0.0.1:80", "-"),
            (Forwarded, "11.0.0.1:80", "-"),
        ] {
            assert_eq!(peer(field, both, from), client, "{field:?} from {from}");
        }
        let untrusting = RealAddress::x_forwarded_for([]);
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{both}\r\n");
        assert_eq!(untrusting.client(&testing::request(request)), None);
    }
}
