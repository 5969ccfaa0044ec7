//! What an upstream is told of the client and of the way that a request has come. Pure.

use std::io::Write;
use std::net::IpAddr;
use std::ops::Range;

use weft::Headers;

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

/// Appends `Forwarded` (RFC 7239) and its older sisters.
pub(super) fn push(out: &mut Vec<u8>, client: &Client<'_>) {
    let address = client.address.map(|address| address.to_canonical());
    // Where its text is, which is needed twice.
    let mut text = 0..0;
    push_list(out, client, "x-forwarded-for", |out| {
        if let Some(address) = address {
            let start = out.len();
            push_address(out, address);
            text = start..out.len();
        }
    });
    push_one(out, client, "x-forwarded-proto", client.scheme);
    push_one(out, client, "x-forwarded-host", client.authority.unwrap_or_default());
    push_list(out, client, "forwarded", |out| {
        let is_v6 = address.is_some_and(|address| address.is_ipv6());
        push_node(out, text, is_v6);
        push_rest(out, client.scheme, client.authority);
    });
}

/// A field to whose list everybody on the way adds a member.
fn push_list(
    out: &mut Vec<u8>,
    client: &Client<'_>,
    name: &str,
    push_member: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    let was_said = begin(out, client, name);
    if was_said {
        out.extend_from_slice(b", ");
    }
    let before = out.len();
    push_member(out);
    match (out.len() > before, was_said) {
        (true, _) => {}
        (false, true) => out.truncate(before - 2),
        (false, false) => return out.truncate(start),
    }
    out.extend_from_slice(b"\r\n");
}

/// A field with one value: there is one client, and its proxy knows better how it has asked.
fn push_one(out: &mut Vec<u8>, client: &Client<'_>, name: &str, value: &str) {
    let start = out.len();
    match begin(out, client, name) {
        true => {}
        false if value.is_empty() => return out.truncate(start),
        false => out.extend_from_slice(value.as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
}

/// Begins the line of a field with what was said before, by those who are believed; whether that
/// is anything.
fn begin(out: &mut Vec<u8>, client: &Client<'_>, name: &str) -> bool {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    if !client.is_trusted {
        return false;
    }
    let mut was_said = false;
    for line in client.headers.get_all(name).filter(|line| !line.is_empty()) {
        if std::mem::replace(&mut was_said, true) {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(line);
    }
    was_said
}

/// `for=…` (RFC 7239 §5.2), the address of which stands there in what is written.
fn push_node(out: &mut Vec<u8>, text: Range<usize>, is_v6: bool) {
    match (text.is_empty(), is_v6) {
        (true, _) => out.extend_from_slice(b"for=unknown"),
        (false, false) => {
            out.extend_from_slice(b"for=");
            out.extend_from_within(text);
        }
        // §6: in brackets, and these need quotes.
        (false, true) => {
            out.extend_from_slice(b"for=\"[");
            out.extend_from_within(text);
            out.extend_from_slice(b"]\"");
        }
    }
}

/// `;host=…;proto=…` (RFC 7239 §5).
fn push_rest(out: &mut Vec<u8>, scheme: &str, authority: Option<&str>) {
    if let Some(authority) = authority {
        out.extend_from_slice(b";host=\"");
        for piece in authority.as_bytes().split_inclusive(|b| matches!(b, b'\\' | b'"')) {
            match piece {
                [plain @ .., quoted @ (b'\\' | b'"')] => {
                    out.extend_from_slice(plain);
                    out.extend_from_slice(&[b'\\', *quoted]);
                }
                plain => out.extend_from_slice(plain),
            }
        }
        out.push(b'"');
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme.as_bytes());
}

/// To format an address takes 1,300 instructions, for each request. Nearly all are of IPv4.
fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        // Writing to a vector cannot fail.
        let _ = write!(out, "{address}");
        return;
    };
    for (place, octet) in address.octets().into_iter().enumerate() {
        if place > 0 {
            out.push(b'.');
        }
        let digits = [b'0' + octet / 100, b'0' + octet / 10 % 10, b'0' + octet % 10];
        let leading = match octet {
            100.. => 0,
            10.. => 1,
            _ => 2,
        };
        out.extend_from_slice(&digits[leading..]);
    }
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
            let mut out = Vec::new();
            let client = Client {
                address,
                scheme: "http",
                authority: request.authority(),
                is_trusted,
                headers: request.headers(),
            };
            push(&mut out, &client);
            let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
            let lines = names.iter().zip(expected).filter(|(_, value)| *value != "-");
            let lines: String = lines.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let lines = lines.trim_end().to_owned() + ";host=\"h:8\";proto=http\r\n";
            assert_eq!(str::from_utf8(&out), Ok(&*lines), "{said:?} {is_trusted} {address:?}");
        }
    }

    #[test]
    fn addresses_are_written_as_everywhere() {
        for text in ["0.0.0.0", "1.20.99.100", "101.199.250.255", "::", "2001:db8::1:0:0:1"] {
            let mut out = Vec::new();
            push_address(&mut out, text.parse().unwrap());
            assert_eq!(str::from_utf8(&out), Ok(text));
        }
    }

    #[test]
    fn what_a_client_writes_cannot_leave_its_quotes() {
        let mut out = Vec::new();
        push_rest(&mut out, "http", Some("a\";for=\"\\"));
        assert_eq!(out, br#";host="a\";for=\"\\";proto=http"#);
    }
}
