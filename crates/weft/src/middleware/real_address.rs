//! Who the client is that a trusted proxy asks for.

use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::request_id::trusts;
use crate::proto::proxy_protocol::Network;

/// Sets the [peer](Request::peer) of a request to the client that trusted proxies name, in
/// `Forwarded` (RFC 7239) or in `X-Forwarded-For`.
///
/// ```
/// use weft::middleware::RealAddress;
/// use weft::{Application, Network, Request, Response, testing};
///
/// async fn who(request: Request) -> Response {
///     Response::text(request.peer().address().unwrap().ip().to_string())
/// }
///
/// let proxies: Network = "10.0.0.0/8".parse()?;
/// let app = who.with(RealAddress::x_forwarded_for([proxies]));
/// let fields = "X-Forwarded-For: 192.0.2.66, 198.51.100.7, 10.0.0.2";
/// let mut request = testing::request(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
/// request.set_peer("10.0.0.1:1234".parse().unwrap());
/// testing::call(app, request).assert_text("198.51.100.7");
/// # Ok::<(), weft::Error>(())
/// ```
///
/// Each proxy adds on the right who asked it. So the list is read from the right, as long as
/// those who speak are trusted: the client is the first who is not, or the one on the left
/// if all are. What stands further left may be made up by the client and is not looked at.
///
/// The peer stays what it is if it is not trusted itself, if there is no such field, and if a
/// name that is needed is none of an address: malformed, `unknown` or hidden (`_name`). Where
/// no port is named it is 0. Peers on Unix sockets are trusted if any network is.
///
/// It has to be said which of the two fields the proxies write, since they let the other
/// pass as the client sent it. For the PROXY protocol there is
/// [`Settings::proxies`](crate::Settings::proxies).
#[derive(Clone, Debug)]
pub struct RealAddress {
    field: Field,
    trusted: Vec<Network>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Forwarded,
    XForwardedFor,
}

impl RealAddress {
    /// Believes the proxies in these networks what they say in `Forwarded` (RFC 7239).
    pub fn forwarded(proxies: impl Into<Vec<Network>>) -> RealAddress {
        RealAddress { field: Field::Forwarded, trusted: proxies.into() }
    }

    /// Believes the proxies in these networks what they say in `X-Forwarded-For`.
    pub fn x_forwarded_for(proxies: impl Into<Vec<Network>>) -> RealAddress {
        RealAddress { field: Field::XForwardedFor, trusted: proxies.into() }
    }

    /// The client, if it is another than the peer.
    fn client(&self, request: &Request) -> Option<SocketAddr> {
        if !trusts(&self.trusted, request.peer()) {
            return None;
        }
        let lines = request.headers().get_all(self.field.name());
        let lines: SmallVec<[&[u8]; 4]> = lines.collect();
        let mut client = None;
        for member in lines.iter().rev().flat_map(|line| members_backwards(line)) {
            let named = self.field.address(member)?;
            client = Some(named);
            if !self.trusted.iter().any(|network| network.contains(named.ip())) {
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

impl Field {
    fn name(self) -> &'static str {
        match self {
            Field::Forwarded => "forwarded",
            Field::XForwardedFor => "x-forwarded-for",
        }
    }

    /// Whom a member of the list names.
    fn address(self, member: &[u8]) -> Option<SocketAddr> {
        match self {
            Field::Forwarded => address(forwarded_for(member)?),
            Field::XForwardedFor => address(member),
        }
    }
}

/// The members of a comma-separated list, the last first. Read backwards, what a client wrote
/// on the left, such as a quote that is not closed, has no say in what proxies added.
fn members_backwards(line: &[u8]) -> impl Iterator<Item = &[u8]> {
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

/// Whether an odd number of backslashes stands before a byte.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

/// The value of `for` in an element `name=value;name="value"` (RFC 7239 §4), if it is there
/// once and the element is well-formed.
fn forwarded_for(element: &[u8]) -> Option<&[u8]> {
    let mut found = None;
    let mut rest = element;
    while !rest.is_empty() {
        let equals = rest.iter().position(|&b| b == b'=')?;
        let name = rest[..equals].trim_ascii();
        let value = &rest[equals + 1..];
        let (value, behind) = match value.strip_prefix(b"\"") {
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
        rest = match behind.trim_ascii() {
            b"" => b"",
            behind => behind.strip_prefix(b";")?,
        };
    }
    found
}

/// The address that a node has (RFC 7239 §6): `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`,
/// `[2001:db8::1]:80`, and `2001:db8::1` as `X-Forwarded-For` has it.
fn address(node: &[u8]) -> Option<SocketAddr> {
    let node = std::str::from_utf8(node.trim_ascii()).ok()?;
    if let Ok(address) = node.parse::<SocketAddr>() {
        return Some(SocketAddr::new(address.ip().to_canonical(), address.port()));
    }
    let bare = match node.strip_prefix('[') {
        Some(six) => six.strip_suffix(']').filter(|six| six.contains(':'))?,
        None => node,
    };
    Some(SocketAddr::new(bare.parse::<IpAddr>().ok()?.to_canonical(), 0))
}

#[cfg(test)]
mod tests {
    use super::Field::*;
    use super::*;
    use crate::testing;

    const TRUSTED: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];

    fn peer(field: Field, fields: &str, peer: &str) -> String {
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
    fn x_forwarded_for() {
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
            // What the client wrote is not looked at.
            (&["nonsense, \"192.0.2.66, 192.0.2.1"], "192.0.2.1:0"),
            (&["\", 192.0.2.1, 10.1.1.1"], "192.0.2.1:0"),
            // A name that is needed is none.
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
    fn forwarded() {
        for (lines, client) in [
            (&["for=192.0.2.1"][..], "192.0.2.1:0"),
            (&["For=\"192.0.2.1:99\""], "192.0.2.1:99"),
            (&["for=\"[2001:db8::1]:99\""], "[2001:db8::1]:99"),
            (&["proto=https;for=192.0.2.1; by=10.0.0.1"], "192.0.2.1:0"),
            (&["for=192.0.2.66, for=192.0.2.1, for=10.1.1.1;by=\"_a,b\""], "192.0.2.1:0"),
            (&["for=192.0.2.66", "for=192.0.2.1", "for=10.1.1.1"], "192.0.2.1:0"),
            // What the client has chosen is within quotes.
            (&["for=192.0.2.1;host=\"a,for=192.0.2.66\""], "192.0.2.1:0"),
            (&["for=192.0.2.1;host=\"a;for=192.0.2.66\""], "192.0.2.1:0"),
            (&["for=192.0.2.1;host=\"a\\\",for=192.0.2.66\""], "192.0.2.1:0"),
            (&["for=\"192.0.2.66, for=192.0.2.1"], "192.0.2.1:0"),
            (&["for=\"\\, for=192.0.2.1"], "192.0.2.1:0"),
            // A name that is needed is none.
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
    fn who_is_believed() {
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
        let nobody = RealAddress::x_forwarded_for([]);
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{both}\r\n");
        assert_eq!(nobody.client(&testing::request(request)), None);
    }
}
