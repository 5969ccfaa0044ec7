//! Client address from `Forwarded` or `X-Forwarded-For`, set by trusted proxies.

use std::net::{IpAddr, SocketAddr};

use http::HeaderName;
use smallvec::SmallVec;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::middleware::fields::request_id::is_trusted;
use weft_proto::proxy_protocol::IpNetwork;

/// Sets the [peer](Request::peer) of a request to the client address that trusted proxies send in
/// `Forwarded` (RFC 7239) or in `X-Forwarded-For`.
///
/// ```
/// use weft::middleware::RealAddress;
/// use weft::net::IpNetwork;
/// use weft::{Application, Request, Response, testing};
///
/// async fn address(request: Request) -> Response {
///     Response::text(request.peer().address().unwrap().ip().to_string())
/// }
///
/// let proxies: IpNetwork = "10.0.0.0/8".parse()?;
/// let app = address.wrap(RealAddress::x_forwarded_for([proxies]));
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
/// The field that the proxies set has to be configured, because they pass on the others as
/// sent by the client. A field with more than 64 entries of trusted proxies at its end is not
/// evaluated. For the PROXY protocol see
/// [`Settings::proxy_protocol`](crate::Settings::proxy_protocol).
///
/// The hooks get the client as the peer of the [`Record`](crate::hooks::Record), and
/// [`Request::connection_peer`] remains the proxy.
#[derive(Clone, Debug)]
pub struct RealAddress {
    field: ProxyField,
    trusted: Vec<IpNetwork>,
    sets_scheme: bool,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

#[derive(Clone, Debug, PartialEq, Eq)]
enum ProxyField {
    Forwarded,
    /// A list of addresses, such as `X-Forwarded-For`.
    Addresses(HeaderName),
}

/// The client that trusted proxies describe.
#[derive(Clone, Copy, Debug)]
struct ForwardedClient {
    address: SocketAddr,
    /// Number of entries of trusted proxies to the right of the address.
    hop: usize,
}

/// Maximum number of entries that are evaluated: far more than there are proxies in a row.
const MAX_ENTRIES: usize = 64;

impl RealAddress {
    /// Trusts `Forwarded` (RFC 7239) from proxies in these networks.
    pub fn forwarded(proxies: impl Into<Vec<IpNetwork>>) -> RealAddress {
        RealAddress::new(ProxyField::Forwarded, proxies.into())
    }

    /// Trusts `X-Forwarded-For` from proxies in these networks.
    pub fn x_forwarded_for(proxies: impl Into<Vec<IpNetwork>>) -> RealAddress {
        RealAddress::header(X_FORWARDED_FOR, proxies)
    }

    /// Trusts a field of another name with a list of addresses, or with a single one, from proxies
    /// in these networks: `X-Real-IP`, `CF-Connecting-IP`.
    pub fn header(name: HeaderName, proxies: impl Into<Vec<IpNetwork>>) -> RealAddress {
        RealAddress::new(ProxyField::Addresses(name), proxies.into())
    }

    fn new(field: ProxyField, trusted: Vec<IpNetwork>) -> RealAddress {
        RealAddress { field, trusted, sets_scheme: false }
    }

    /// Also sets the [scheme](Request::scheme) that the client used: `proto` in the element of
    /// `Forwarded` with the client address, or the value of `X-Forwarded-Proto` at the same place
    /// from the right as the client address in the list of addresses. If `X-Forwarded-Proto` has
    /// fewer values, the leftmost value applies; without a client address the rightmost value.
    ///
    /// Only for proxies that set the scheme; others pass it on as sent by the client. Any value
    /// other than `https` and `http` is ignored.
    ///
    /// ```
    /// use weft::middleware::RealAddress;
    /// use weft::net::IpNetwork;
    /// use weft::{Application, Request, Response, testing};
    ///
    /// async fn scheme(request: Request) -> Response { Response::text(request.scheme()) }
    ///
    /// let proxies: IpNetwork = "10.0.0.0/8".parse()?;
    /// let app = scheme.wrap(RealAddress::forwarded([proxies]).scheme());
    /// let fields = "Forwarded: for=198.51.100.7;proto=https";
    /// let mut request = testing::request(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
    /// request.set_peer("10.0.0.1:1234".parse().unwrap());
    /// testing::call(app, request).assert_text("https");
    /// # Ok::<(), weft::Error>(())
    /// ```
    pub fn scheme(self) -> RealAddress {
        RealAddress { sets_scheme: true, ..self }
    }

    /// Sets the peer of a request, and its scheme, as the middleware does. For a router that does
    /// so by its own rules.
    pub fn apply(&self, request: &mut Request) {
        if !is_trusted(&self.trusted, request.peer()) {
            return;
        }
        let client = self.client(request);
        if self.sets_scheme
            && let Some(is_secure) = self.is_secure(request, client.map_or(0, |client| client.hop))
        {
            request.set_secure(is_secure);
        }
        if let Some(client) = client {
            request.set_peer(client.address);
        }
    }

    /// Client address; `None` to keep the peer.
    fn client(&self, request: &Request) -> Option<ForwardedClient> {
        let lines = field_lines(request, self.field.name());
        let mut client = None;
        for (hop, member) in lines.iter().rev().flat_map(|line| members_rev(line)).enumerate() {
            if hop == MAX_ENTRIES {
                return None;
            }
            let address = self.field.parse_address(member)?;
            client = Some(ForwardedClient { address, hop });
            if !self.trusted.iter().any(|network| network.contains(address.ip())) {
                break;
            }
        }
        client
    }

    /// Returns true if the client connected with HTTPS to the proxy that is `hop` proxies before
    /// the nearest one; `None` to keep the scheme.
    fn is_secure(&self, request: &Request, hop: usize) -> Option<bool> {
        let lines = field_lines(request, self.field.scheme_name());
        let members = lines.iter().rev().flat_map(|line| members_rev(line));
        // `hop` is less than the limit of entries. The last of these members is that of the hop, or
        // the leftmost one: many proxies replace the field or pass it on, and add no value.
        let member = members.take(hop + 1).last()?;
        let scheme = match self.field {
            ProxyField::Forwarded => forwarded_value(member, b"proto")?.trim_ascii(),
            ProxyField::Addresses(_) => member,
        };
        let is = |name: &[u8]| scheme.eq_ignore_ascii_case(name).then_some(name == b"https");
        is(b"https").or_else(|| is(b"http"))
    }
}

/// The lines of a field, in their order.
fn field_lines<'a>(request: &'a Request, name: &'a str) -> SmallVec<[&'a [u8]; 4]> {
    request.headers().get_all(name).collect()
}

impl Middleware for RealAddress {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        self.apply(&mut request);
        next.call(request).await
    }
}

impl ProxyField {
    fn name(&self) -> &str {
        match self {
            ProxyField::Forwarded => "forwarded",
            ProxyField::Addresses(name) => name.as_str(),
        }
    }

    /// Name of the field with the scheme.
    fn scheme_name(&self) -> &'static str {
        match self {
            ProxyField::Forwarded => "forwarded",
            ProxyField::Addresses(_) => "x-forwarded-proto",
        }
    }

    /// Parses the address in a member of the list.
    fn parse_address(&self, member: &[u8]) -> Option<SocketAddr> {
        match self {
            ProxyField::Forwarded => parse_address(forwarded_value(member, b"for")?),
            ProxyField::Addresses(_) => parse_address(member),
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

/// Returns true if an odd number of backslashes precedes a byte.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

/// The value of a parameter in an element `name=value;name="value"` (RFC 7239 §4); `None` unless
/// it occurs exactly once and the element is well-formed.
fn forwarded_value<'a>(element: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
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
        if name.eq_ignore_ascii_case(wanted) && found.replace(value).is_some() {
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
        let former = request.peer().address();
        RealAddress::new(field, trusted).apply(&mut request);
        let client = request.peer().address().filter(|_| request.peer().address() != former);
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
            let field = Addresses(X_FORWARDED_FOR);
            assert_eq!(peer(field, &fields, "10.0.0.1:80"), client, "{lines:?}");
        }
    }

    #[test]
    fn evaluates_a_bounded_number_of_entries() {
        for (proxies, client) in [(63, "192.0.2.1:0"), (64, "-"), (500, "-")] {
            let proxies = ", 10.1.1.1".repeat(proxies);
            let fields = format!("X-Forwarded-For: 192.0.2.1{proxies}\r\n");
            let found = peer(Addresses(X_FORWARDED_FOR), &fields, "10.0.0.1:80");
            assert_eq!(found, client, "{}", proxies.len());
        }
        let field = Addresses(HeaderName::from_static("x-real-ip"));
        let fields = "X-Forwarded-For: 192.0.2.66\r\nX-Real-IP: 192.0.2.1\r\n";
        assert_eq!(peer(field, fields, "10.0.0.1:80"), "192.0.2.1:0");
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
            (Addresses(X_FORWARDED_FOR), "10.0.0.1:80", "192.0.2.1:0"),
            (Forwarded, "10.0.0.1:80", "192.0.2.2:0"),
            (Addresses(X_FORWARDED_FOR), "[fd00::1]:80", "192.0.2.1:0"),
            (Addresses(X_FORWARDED_FOR), "[::ffff:10.0.0.1]:80", "192.0.2.1:0"),
            (Addresses(X_FORWARDED_FOR), "", "192.0.2.1:0"),
            (Addresses(X_FORWARDED_FOR), "11.0.0.1:80", "-"),
            (Forwarded, "11.0.0.1:80", "-"),
        ] {
            let name = format!("{field:?}");
            assert_eq!(peer(field, both, from), client, "{name} from {from}");
        }
        let untrusting = RealAddress::x_forwarded_for([]);
        let mut request = testing::request(format!("GET / HTTP/1.1\r\nHost: a\r\n{both}\r\n"));
        untrusting.apply(&mut request);
        assert_eq!(request.peer().address(), None);
    }

    const TWO_HOPS: &str = "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: https, http";
    const TWO_HOPS_IN_LINES: &str = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 10.0.0.2\r\n\
        X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http";
    const ONE_VALUE: &str = "X-Forwarded-For: 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: https";
    const FORGED_VALUE: &str =
        "X-Forwarded-For: 192.0.2.66, 192.0.2.1, 10.0.0.2\r\nX-Forwarded-Proto: https, http, https";
    const MALFORMED_ADDRESS: &str =
        "X-Forwarded-For: 192.0.2.1, unknown\r\nX-Forwarded-Proto: https, http";
    const TWO_ELEMENTS: &str =
        "Forwarded: for=192.0.2.1;proto=https, for=10.0.0.2;by=\"_a,b\";proto=http";
    const ELEMENT_WITHOUT_PROTO: &str = "Forwarded: for=192.0.2.1, for=10.0.0.2;proto=https";

    #[test]
    fn scheme_is_that_of_the_hop_of_the_address_if_enabled() {
        let trusted = || TRUSTED.map(|network| network.parse().unwrap());
        let forwarded = || RealAddress::forwarded(trusted()).scheme();
        let x_forwarded = || RealAddress::x_forwarded_for(trusted()).scheme();
        for (middleware, fields, from, scheme) in [
            (forwarded(), "Forwarded: for=192.0.2.1;proto=HTTPS", "10.0.0.1:80", "https"),
            (forwarded(), "Forwarded: proto=https, proto=\"http\"", "10.0.0.1:80", "http"),
            (forwarded(), "Forwarded: proto=https, for=192.0.2.1", "10.0.0.1:80", "http"),
            (forwarded(), "Forwarded: proto=https;proto=https", "10.0.0.1:80", "http"),
            (forwarded(), "Forwarded: proto=https", "11.0.0.1:80", "http"),
            (forwarded(), "X-Forwarded-Proto: https", "10.0.0.1:80", "http"),
            (x_forwarded(), "X-Forwarded-Proto: https", "10.0.0.1:80", "https"),
            (x_forwarded(), "X-Forwarded-Proto: http, https", "10.0.0.1:80", "https"),
            (x_forwarded(), TWO_HOPS, "10.0.0.1:80", "https"),
            (x_forwarded(), TWO_HOPS_IN_LINES, "10.0.0.1:80", "https"),
            (x_forwarded(), ONE_VALUE, "10.0.0.1:80", "https"),
            // The client has sent the values on the left.
            (x_forwarded(), FORGED_VALUE, "10.0.0.1:80", "http"),
            (x_forwarded(), MALFORMED_ADDRESS, "10.0.0.1:80", "http"),
            (forwarded(), TWO_ELEMENTS, "10.0.0.1:80", "https"),
            (forwarded(), ELEMENT_WITHOUT_PROTO, "10.0.0.1:80", "http"),
            (x_forwarded(), "X-Forwarded-Proto: wss", "10.0.0.1:80", "http"),
            (x_forwarded(), "X-Forwarded-Proto: https", "11.0.0.1:80", "http"),
            (
                RealAddress::x_forwarded_for(trusted()),
                "X-Forwarded-Proto: https",
                "10.0.0.1:80",
                "http",
            ),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
            let mut request = testing::request(text);
            request.set_peer(from.parse().unwrap());
            let app = async |request: Request| Response::text(request.scheme());
            testing::call(app.wrap(middleware), request).assert_text(scheme);
        }
    }
}
