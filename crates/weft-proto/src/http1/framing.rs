//! Message framing: body length, connection persistence, request target and Host (RFC 9112 §3, §6
//! and §9.3), for requests and responses. Pure.
//!
//! ```
//! use weft_proto::http1::framing::{self, Length};
//! use weft_proto::http1::parse::{Limits, ParsedHead};
//!
//! let limits = Limits { request_line: 8_192, head: 16_384, fields: 100 };
//! let input = b"POST / HTTP/1.1\r\nHost: example.org\r\nContent-Length: 5\r\n\r\nhello";
//! let mut head = ParsedHead::new();
//! let length = head.read(input, &limits)?.expect("the head is complete");
//! let framing = framing::request(&head, &input[..length])?;
//! assert_eq!((framing.length, framing.keep_alive), (Length::Sized(5), true));
//! # Ok::<(), weft_proto::Error>(())
//! ```

use http::{Method, StatusCode, Version};

use crate::http1::parse::{KnownFields, Occurrence, ParsedHead, Span};
use crate::http1::scan;
use crate::list::list_members;
use crate::{Error, ErrorKind, Result};

/// The framing of a request, and the parts of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFraming {
    /// The length of the body.
    pub length: Length,
    /// Set if the client permits another request on the connection (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Set if the client waits for a 100 before it sends the body (RFC 9110 §10.1.1).
    pub expects_continue: bool,
    /// The authority of the target, in absolute-form and authority-form, otherwise the value of
    /// `Host` (RFC 9112 §3.3).
    pub authority: Option<Span>,
    /// Path and query of the target. Empty in authority-form.
    pub local: Span,
}

/// The length of a request's body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// This many bytes.
    Sized(u64),
    /// The body uses the chunked transfer coding.
    Chunked,
}

/// Determines the framing of a request, or rejects the request. `text` is the head.
///
/// # Errors
/// [`Malformed`](ErrorKind::Malformed) for an ambiguous length, an invalid target, and a `Host`
/// that is missing in HTTP/1.1, repeated or invalid; [`NotImplemented`](ErrorKind::NotImplemented)
/// for an unsupported transfer coding; [`ExpectationFailed`](ErrorKind::ExpectationFailed) for an
/// unknown expectation.
// Inlined: its result has seven words, and the caller uses each once.
#[inline(always)]
pub fn request(head: &ParsedHead, text: &[u8]) -> Result<RequestFraming> {
    let KnownFields { host, connection, expect, .. } = head.known;
    let http_10 = head.version == Version::HTTP_10;
    let length = request_length(&head.known, text, http_10)?;
    let (authority, local) = target(&head.method, head.target, text)?;
    let host = match host {
        Occurrence::Once(host) if is_plain_authority(host, text) => Some(host),
        Occurrence::Once(host) => check_authority(host.of(text)).map(|()| Some(host))?,
        Occurrence::Repeated => return Err(Error::malformed("more than one Host")),
        Occurrence::Absent if http_10 => None,
        Occurrence::Absent => return Err(Error::malformed("no Host")),
    };
    let keep_alive = match connection {
        Occurrence::Absent => !http_10,
        // The field of all browsers, without a search for members.
        Occurrence::Once(value) if value.of(text) == b"keep-alive" => true,
        Occurrence::Once(value) => keep_alive(list_members(value.of(text)), http_10),
        Occurrence::Repeated => keep_alive(
            head.fields
                .iter()
                .filter(|field| field.name.of(text).eq_ignore_ascii_case(b"connection"))
                .flat_map(|field| list_members(field.value.of(text))),
            http_10,
        ),
    };
    let expects_continue = match expect {
        Occurrence::Absent => false,
        _ if http_10 => false, // RFC 9110 §10.1.1: such an expectation is ignored
        Occurrence::Once(value) if value.of(text).eq_ignore_ascii_case(b"100-continue") => true,
        _ => return Err(Error::new(ErrorKind::ExpectationFailed, "an unknown expectation")),
    };
    let authority = authority.or(host);
    Ok(RequestFraming { length, keep_alive, expects_continue, authority, local })
}

/// Determines the length of a request's body (RFC 9112 §6.3), without the RFC's leniencies: each
/// of them allows two servers to disagree about the end of a request (request smuggling).
#[inline]
fn request_length(known: &KnownFields, text: &[u8], http_10: bool) -> Result<Length> {
    use Occurrence::{Absent, Once, Repeated};
    match (known.transfer_encoding, known.content_length) {
        (Absent, Absent) => Ok(Length::Sized(0)),
        (Absent, Once(value)) => match content_length(value.of(text)) {
            Some(length) => Ok(Length::Sized(length)),
            None => Err(Error::malformed("Content-Length is not one decimal number")),
        },
        (Absent, Repeated) => Err(Error::malformed("more than one Content-Length")),
        (_, Once(_) | Repeated) => {
            Err(Error::malformed("both Content-Length and Transfer-Encoding"))
        }
        _ if http_10 => Err(Error::malformed("Transfer-Encoding in HTTP/1.0")),
        (Once(value), Absent) if value.of(text).eq_ignore_ascii_case(b"chunked") => {
            Ok(Length::Chunked)
        }
        _ => Err(Error::new(
            ErrorKind::NotImplemented,
            "unsupported transfer coding (only a single chunked is supported)",
        )),
    }
}

/// Parses the value of `Content-Length`: digits only, within 64 bits.
pub fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |length, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        length.checked_mul(10)?.checked_add(digit)
    })
}

/// Returns true if the connection persists after this message (RFC 9112 §9.3). `close` takes
/// precedence over `keep-alive`.
pub(super) fn keep_alive<'a>(options: impl Iterator<Item = &'a [u8]>, http_10: bool) -> bool {
    let mut keep = !http_10;
    for option in options {
        if option.eq_ignore_ascii_case(b"close") {
            return false;
        }
        keep |= option.eq_ignore_ascii_case(b"keep-alive");
    }
    keep
}

/// Splits the request target into its authority, and its path with the query (RFC 9112 §3.2).
/// `whole` is the position of the target in `text`.
///
/// # Errors
/// [`Malformed`](ErrorKind::Malformed) if the target has none of the four forms.
pub fn target(method: &Method, whole: Span, text: &[u8]) -> Result<(Option<Span>, Span)> {
    let target = whole.of(text);
    if !target.is_ascii() && std::str::from_utf8(target).is_err() {
        return Err(Error::malformed("the request target is not valid UTF-8"));
    }
    if method == Method::CONNECT {
        check_authority(target)?;
        // RFC 9110 §9.3.6: there is no default port.
        if !target.last().is_some_and(u8::is_ascii_digit) || !target.contains(&b':') {
            return Err(Error::malformed("the target of CONNECT is not host:port"));
        }
        return Ok((Some(whole), whole.slice(0, 0)));
    }
    match target {
        [b'/', ..] => Ok((None, whole)),
        b"*" if method == Method::OPTIONS => Ok((None, whole)),
        _ => {
            let scheme = [&b"http://"[..], b"https://"].into_iter().find(|scheme| {
                target.get(..scheme.len()).is_some_and(|t| t.eq_ignore_ascii_case(scheme))
            });
            let Some(scheme) = scheme else {
                return Err(Error::malformed("the request target has none of the four forms"));
            };
            let start = scheme.len();
            let length = target[start..].iter().position(|b| matches!(b, b'/' | b'?'));
            let end = length.map_or(target.len(), |length| start + length);
            check_authority(&target[start..end])?;
            if start == end {
                return Err(Error::malformed("the request target has no authority"));
            }
            Ok((Some(whole.slice(start, end)), whole.slice(end, target.len())))
        }
    }
}

/// Returns true if the authority consists of letters, digits, hyphens and dots, and an optional
/// port, as nearly all do. The scan includes the bytes after it, because a full chunk of 16 bytes
/// costs less than a shorter one.
#[inline]
fn is_plain_authority(authority: Span, text: &[u8]) -> bool {
    let length = authority.of(text).len();
    let end = scan::host(authority.with_rest(text));
    (1..=length).contains(&end) && is_port(&authority.of(text)[end..])
}

/// Checks `host [":" port]` (RFC 3986 §3.2 without userinfo, RFC 9110 §7.2); may be empty.
///
/// ```
/// use weft_proto::http1::framing::check_authority;
///
/// assert!(check_authority(b"[2001:db8::1]:8080").is_ok());
/// assert!(check_authority(b"user@example.org").is_err());
/// ```
///
/// # Errors
/// [`Malformed`](ErrorKind::Malformed) if it is invalid.
pub fn check_authority(authority: &[u8]) -> Result<()> {
    let is_valid = match authority {
        [] => true,
        [b'[', rest @ ..] => rest
            .iter()
            .position(|&b| b == b']')
            .is_some_and(|end| is_ipv6(&rest[..end]) && is_port(&rest[end + 1..])),
        _ => {
            let (host, port) = authority.split_at(reg_name(authority));
            !host.is_empty() && is_port(port)
        }
    };
    if is_valid { Ok(()) } else { Err(Error::malformed("not a valid host and port")) }
}

fn is_ipv6(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}

/// Returns true if this is a port with its colon, or no port. An empty port is valid (RFC 3986
/// §3.2.3).
#[inline]
fn is_port(text: &[u8]) -> bool {
    match text {
        [] | [b':'] => true,
        [b':', digits @ ..] => {
            let mut port = 0;
            for &b in digits {
                port = (port * 10 + u32::from(b.wrapping_sub(b'0'))).min(65_536);
                if !b.is_ascii_digit() {
                    return false;
                }
            }
            port <= 65_535
        }
        _ => false,
    }
}

/// Returns the length of the reg-name at the start: unreserved / pct-encoded / sub-delims (RFC 3986
/// §3.2.2), except for the comma. A comma occurs where a gateway has joined two `Host` fields (RFC
/// 9110 §5.3). Some servers take the first, some the second.
fn reg_name(text: &[u8]) -> usize {
    let mut end = scan::host(text);
    loop {
        match text[end..] {
            [b'%', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => end += 3,
            [b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')', ..] => end += 1,
            [b'*' | b'+' | b';' | b'=', ..] => end += 1,
            _ => return end,
        }
        end += scan::host(&text[end..]);
    }
}

/// The framing of a response (RFC 9112 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No body, because of the status or the request's method, and no field with a length.
    Bodiless,
    /// `Content-Length`.
    Sized(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The end of the connection ends the body: the only framing of HTTP/1.0 for an unknown length.
    UntilClose,
}

/// Determines the framing of a response. `length` is the length of its payload, if known.
#[inline]
pub fn response(version: Version, status: StatusCode, length: Option<u64>) -> ResponseFraming {
    match length {
        _ if is_bodiless(status) => ResponseFraming::Bodiless,
        Some(length) => ResponseFraming::Sized(length),
        None if version == Version::HTTP_10 => ResponseFraming::UntilClose,
        None => ResponseFraming::Chunked,
    }
}

/// Returns true if a response with this status never has a body (RFC 9112 §6.3).
#[inline]
pub fn is_bodiless(status: StatusCode) -> bool {
    status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_content_length_as_decimal_digits_only() {
        for (value, length) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("+1", None),
            ("-1", None),
            ("1 ", None),
            ("1,1", None),
            ("0x1", None),
            ("1e3", None),
        ] {
            assert_eq!(content_length(value.as_bytes()), length, "{value:?}");
        }
    }

    /// The fast path must not accept an authority that the full check rejects.
    #[test]
    fn accepts_only_valid_authorities() {
        let looks_plain = |authority: &str| {
            let text = format!("{authority}\r\nb: c\r\n\r\n");
            is_plain_authority(Span::new(0, authority.len()), text.as_bytes())
        };
        for plain in ["a", "a.b:80", "a:", "127.0.0.1:1", "a-long-name-of-a-host.example:65535"] {
            assert!(looks_plain(plain), "{plain:?}");
        }
        for good in
            ["", "a", "a.b", "a:80", "a:", "127.0.0.1:1", "[::1]", "[::1]:65535", "a_b", "a%20b"]
        {
            assert!(check_authority(good.as_bytes()).is_ok(), "{good:?}");
        }
        for bad in [
            "a b", "a/b", "u@a", ":80", "a:b", "a:65536", "a:1:2", "[::1", "::1", "[x]", "[::1]x",
            "a%2", "%zz", "a,b", "a, b", ",a", "a:1,a:1",
        ] {
            assert!(check_authority(bad.as_bytes()).is_err(), "{bad:?}");
            assert!(!looks_plain(bad), "{bad:?}");
        }
    }

    #[test]
    fn responses_are_framed_by_version_status_and_length() {
        use ResponseFraming::*;
        for (version, status, length, framing) in [
            (Version::HTTP_11, 200, Some(5), Sized(5)),
            (Version::HTTP_11, 200, None, Chunked),
            (Version::HTTP_10, 200, None, UntilClose),
            (Version::HTTP_10, 200, Some(0), Sized(0)),
            (Version::HTTP_11, 204, Some(0), Bodiless),
            (Version::HTTP_11, 304, None, Bodiless),
            (Version::HTTP_11, 103, None, Bodiless),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(response(version, status, length), framing, "{version:?} {status}");
        }
    }
}
