//! Limits on forwarding: loop detection by `Via`, and `Max-Forwards`. Pure.

use weft::header::HeaderValue;
use weft::message::Version;
use weft::{Method, Request, Response, StatusCode};

use crate::gateway_error::method_not_allowed;

pub(crate) const MAX_FORWARDS: &str = "max-forwards";

/// Number of passes from which a request counts as looping: several proxies of the same name may be
/// chained.
const MAX_PASSES: usize = 8;

/// Values of the `Via` field that this proxy adds (RFC 9110 §7.6.3), one per received version.
pub(crate) struct Via {
    /// The received-by part of the values.
    name: Box<[u8]>,
    http_10: HeaderValue,
    http_11: HeaderValue,
    http_2: HeaderValue,
    http_3: HeaderValue,
}

impl Via {
    /// Returns `None` if `name` is empty.
    pub(crate) fn new(name: &str) -> Option<Via> {
        let with = |version| HeaderValue::from_str(&format!("{version} {name}")).ok();
        if name.is_empty() {
            return None;
        }
        let (http_10, http_11) = (with("1.0")?, with("1.1")?);
        let (http_2, http_3) = (with("2")?, with("3")?);
        let name = received_by(http_11.as_bytes())?.into();
        Some(Via { name, http_10, http_11, http_2, http_3 })
    }

    /// Returns true if a proxy of this name has added the member of a received `Via`.
    fn is_own(&self, member: &[u8]) -> bool {
        received_by(member).is_some_and(|name| name.eq_ignore_ascii_case(&self.name))
    }

    /// Returns the value to add for a message of the `received` version.
    pub(crate) fn value(&self, received: Version) -> &HeaderValue {
        match received {
            Version::HTTP_10 => &self.http_10,
            Version::HTTP_2 => &self.http_2,
            Version::HTTP_3 => &self.http_3,
            _ => &self.http_11,
        }
    }
}

/// Responds to a request that must not be forwarded: `CONNECT`, `TRACE`, a request with
/// `Max-Forwards: 0`, or a request that loops. The number of `Via` members with the name of this
/// proxy shows a loop.
pub(crate) fn respond_locally(request: &Request, via: Option<&Via>) -> Option<Response> {
    match *request.method() {
        // RFC 9110 §9.3.6: CONNECT is meant for a forward proxy; this is a reverse proxy.
        Method::CONNECT => return Some(StatusCode::NOT_IMPLEMENTED.into()),
        Method::TRACE => return Some(method_not_allowed()),
        _ => {}
    }
    if let Some(via) = via
        && request.headers().contains("via")
        && request.headers().list("via").filter(|member| via.is_own(member)).count() >= MAX_PASSES
    {
        return Some(StatusCode::LOOP_DETECTED.into());
    }
    // RFC 9110 §9.3.7: there are no communication options to report.
    (max_forwards(request) == Some(0)).then(|| Response::new(StatusCode::OK))
}

/// Returns the received-by part of a member of `Via`: its second word.
fn received_by(member: &[u8]) -> Option<&[u8]> {
    member.split(|&b| b == b' ' || b == b'\t').filter(|word| !word.is_empty()).nth(1)
}

/// Returns the value of `Max-Forwards` for the forwarded request, if it has to be updated.
pub(crate) fn decremented_max_forwards(request: &Request) -> Option<u64> {
    max_forwards(request).map(|forwards| forwards.saturating_sub(1))
}

/// Parses `Max-Forwards` of `OPTIONS`, which must respect it (RFC 9110 §7.6.2). So must `TRACE`,
/// which is never forwarded.
fn max_forwards(request: &Request) -> Option<u64> {
    let is_required = *request.method() == Method::OPTIONS;
    is_required.then(|| request.headers().get(MAX_FORWARDS)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::testing::request;

    #[test]
    fn responds_to_loops_and_exhausted_max_forwards() {
        let member = "1.1 weft";
        let via_times = |times| format!("Via: {}", [member].repeat(times).join(", "));
        for (line, fields, expected) in [
            ("GET /", String::new(), None),
            ("GET /", via_times(7), None),
            ("GET /", via_times(8), Some(508)),
            ("GET /", format!("{}\r\nVia: HTTP/1.1  WEFT (x)", via_times(7)), Some(508)),
            ("GET /", format!("{}\r\nVia: 1.1 weft2, weft, 1.1 a weft", via_times(7)), None),
            ("OPTIONS *", "Max-Forwards: 0".to_owned(), Some(200)),
            ("OPTIONS *", "Max-Forwards: 1".to_owned(), None),
            ("TRACE /", "Max-Forwards: 0".to_owned(), Some(405)),
            ("TRACE /", String::new(), Some(405)),
            ("GET /", "Max-Forwards: 0".to_owned(), None),
            ("OPTIONS *", "Max-Forwards: x".to_owned(), None),
        ] {
            let end = if fields.is_empty() { "" } else { "\r\n" };
            let request = request(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}{end}\r\n"));
            let response = respond_locally(&request, Via::new("weft").as_ref());
            let status = response.map(|response| response.status().as_u16());
            assert_eq!(status, expected, "{line} {fields}");
            let without_name = respond_locally(&request, Via::new("").as_ref());
            assert!(without_name.is_none_or(|response| response.status() != 508), "{fields}");
        }
    }
}
