//! How far a request has come, and how far it may go. Pure.

use weft::{HeaderValue, Method, Request, Response, StatusCode, Version};

pub(super) const MAX_FORWARDS: &str = "max-forwards";

/// How often a request may come by: several of us may stand one behind the other under one name.
const MOST_PASSES: usize = 8;

/// Our own name in `Via` (RFC 9110 §7.6.3), with each version that is received.
pub(super) struct Via {
    http_10: HeaderValue,
    http_11: HeaderValue,
    http_2: HeaderValue,
}

impl Via {
    /// `None` if we have no name.
    pub(super) fn new(name: &str) -> Option<Via> {
        let with = |version| HeaderValue::from_str(&format!("{version} {name}")).ok();
        if name.is_empty() {
            return None;
        }
        Some(Via { http_10: with("1.0")?, http_11: with("1.1")?, http_2: with("2")? })
    }

    /// What is to be added.
    pub(super) fn value(&self, received: Version) -> &HeaderValue {
        match received {
            Version::HTTP_10 => &self.http_10,
            Version::HTTP_2 => &self.http_2,
            _ => &self.http_11,
        }
    }
}

/// Answers what is not to be passed on: a request that was to come here and no further, and one
/// that goes in circles, which our own name in `Via` tells.
pub(super) fn turn_back(request: &Request, via: Option<&Via>) -> Option<Response> {
    let ours = via.and_then(|via| received_by(via.http_11.as_bytes()));
    let is_ours = |member: &&[u8]| {
        received_by(member).zip(ours).is_some_and(|(name, ours)| name.eq_ignore_ascii_case(ours))
    };
    if request.headers().list("via").filter(is_ours).count() >= MOST_PASSES {
        return Some(StatusCode::LOOP_DETECTED.into());
    }
    match forwards(request) {
        // RFC 9110 §9.3.7: of us there is nothing to be told.
        Some(0) if *request.method() == Method::OPTIONS => Some(Response::new(StatusCode::OK)),
        // §9.3.8: what came is not sent back, for it may hold what a script must not see.
        Some(0) => Some(StatusCode::NOT_IMPLEMENTED.into()),
        _ => None,
    }
}

/// Who has passed it on, in a member of `Via`: the second word.
fn received_by(member: &[u8]) -> Option<&[u8]> {
    member.split(|&b| b == b' ' || b == b'\t').filter(|word| !word.is_empty()).nth(1)
}

/// How often a request may still be passed on, by those who come after us.
pub(super) fn left(request: &Request) -> Option<u64> {
    forwards(request).map(|forwards| forwards.saturating_sub(1))
}

/// `Max-Forwards` of a method for which it is more than an offer (RFC 9110 §7.6.2).
fn forwards(request: &Request) -> Option<u64> {
    let is_heeded = matches!(*request.method(), Method::OPTIONS | Method::TRACE);
    is_heeded.then(|| request.headers().get(MAX_FORWARDS)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::testing::request;

    #[test]
    fn who_is_turned_back() {
        let ours = "1.1 weft";
        let often = |times| format!("Via: {}", [ours].repeat(times).join(", "));
        for (line, fields, expected) in [
            ("GET /", String::new(), None),
            ("GET /", often(7), None),
            ("GET /", often(8), Some(508)),
            ("GET /", format!("{}\r\nVia: HTTP/1.1  WEFT (x)", often(7)), Some(508)),
            ("GET /", format!("{}\r\nVia: 1.1 weft2, weft, 1.1 a weft", often(7)), None),
            ("OPTIONS *", "Max-Forwards: 0".to_owned(), Some(200)),
            ("OPTIONS *", "Max-Forwards: 1".to_owned(), None),
            ("TRACE /", "Max-Forwards: 0".to_owned(), Some(501)),
            ("GET /", "Max-Forwards: 0".to_owned(), None),
            ("OPTIONS *", "Max-Forwards: x".to_owned(), None),
        ] {
            let end = if fields.is_empty() { "" } else { "\r\n" };
            let request = request(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}{end}\r\n"));
            let response = turn_back(&request, Via::new("weft").as_ref());
            let status = response.map(|response| response.status().as_u16());
            assert_eq!(status, expected, "{line} {fields}");
            let nameless = turn_back(&request, Via::new("").as_ref());
            assert!(nameless.is_none_or(|response| response.status() != 508), "{fields}");
        }
    }
}
