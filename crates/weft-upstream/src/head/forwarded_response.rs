//! The head of the response for the client, without the hop-by-hop fields of the upstream's
//! response. Pure.

use std::time::Duration;

use weft::header::{HeaderMap, VIA};
use weft::header::{HeaderName, HeaderValue, Headers};
use weft::{Response, StatusCode};
use weft_proto::http1::client::ResponseHead;

use super::field_filter::{HopByHopFields, is_allowed_in_trailers};
use super::hops::Via;

/// Applies the status and fields of the upstream's response to `response`, which has its body.
pub(crate) fn apply_head(head: ResponseHead, response: Response, via: Option<&Via>) -> Response {
    let via = via.map(|via| via.value(head.version).clone());
    let response = response.with_status(head.status).with_headers(forwarded_fields(head));
    match via {
        Some(via) => response.with_appended_header(VIA, via),
        None => response,
    }
}

/// Converts an interim response.
pub(crate) fn interim(head: ResponseHead) -> Response {
    Response::new(head.status).with_headers(forwarded_fields(head))
}

/// Returns the idle time after which the connection is not used again. `None`: the upstream has not
/// sent a time (`Keep-Alive: timeout=N`). The result is shorter than the time of the upstream,
/// because a request that is sent while the upstream closes the connection would be lost.
pub(crate) fn idle_limit(head: &ResponseHead) -> Option<Duration> {
    const MARGIN: Duration = Duration::from_secs(1);
    let parameters = head.headers.get_bytes("keep-alive")?.split(|&b| b == b',');
    let timeout = parameters.map(<[u8]>::trim_ascii).find_map(|parameter| {
        let (name, value) = parameter.split_at_checked("timeout=".len())?;
        let number =
            std::str::from_utf8(value).ok().filter(|_| name.eq_ignore_ascii_case(b"timeout="));
        number?.parse().ok()
    });
    let timeout = Duration::from_secs(timeout.map(u32::into)?);
    Some(timeout - MARGIN.min(timeout / 2))
}

fn forwarded_fields(head: ResponseHead) -> Headers {
    let ResponseHead { status, mut headers, .. } = head;
    // RFC 9110 §8.6: a 204 must not have Content-Length.
    let has_no_length = status == StatusCode::NO_CONTENT;
    let is_forwarded = |name: &[u8], hop_by_hop: &HopByHopFields<'_>| {
        let is_dropped = has_no_length && name.eq_ignore_ascii_case(b"content-length");
        !is_dropped && !hop_by_hop.contains(name)
    };
    if headers.contains("connection") {
        // The names that it lists are in the list itself.
        let hop_by_hop = HopByHopFields::new(&headers);
        return headers.filter(|name, _| is_forwarded(name, &hop_by_hop));
    }
    headers.retain(|name, _| is_forwarded(name, &HopByHopFields::default()));
    headers
}

/// Converts trailers, without fields that are not allowed there.
pub(crate) fn trailers(trailers: &Headers) -> HeaderMap {
    let kept = trailers.iter_bytes().filter(|(name, _)| is_allowed_in_trailers(name));
    let parsed = kept.map(|(name, value)| {
        Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
    });
    parsed.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use weft::Method;
    use weft_proto::http1::client::HeadReader;

    fn head(status: u16, fields: &str) -> ResponseHead {
        let mut text = BytesMut::from(&*format!("HTTP/1.1 {status} X\r\n{fields}\r\n"));
        HeadReader::new(4096).read(&mut text, &Method::GET).unwrap().expect("a whole head")
    }

    #[test]
    fn upstreams_limit_the_time_of_idle_connections() {
        for (fields, expected) in [
            ("", None),
            ("Keep-Alive: timeout=5\r\n", Some(4_000)),
            ("Keep-Alive: max=100, Timeout=75\r\n", Some(74_000)),
            ("keep-alive: timeout=1,max=1\r\n", Some(500)),
            ("keep-alive: timeout=0\r\n", Some(0)),
            ("keep-alive: timeout=4294967295\r\n", Some(4_294_967_294_000)),
            ("keep-alive: timeout=4294967296\r\n", None),
            ("keep-alive: timeout=-1\r\n", None),
            ("keep-alive: timeout\r\n", None),
            ("keep-alive: timeouts=1\r\n", None),
            ("keep-alive: \r\n", None),
        ] {
            let limit = idle_limit(&head(200, fields)).map(|limit| limit.as_millis());
            assert_eq!(limit, expected, "{fields:?}");
        }
    }

    #[test]
    fn drops_hop_by_hop_fields_and_adds_via() {
        for (status, fields, expected) in [
            (200, "Content-Type: text/html\r\n", "content-type: text/html, via: 1.1 w"),
            (
                200,
                "set-cookie: a=1\r\nset-cookie: b=2\r\nserver: up\r\n",
                "set-cookie: a=1, set-cookie: b=2, server: up, via: 1.1 w",
            ),
            (
                200,
                "Connection: close, X-Mine\r\nconnection: x-too\r\nX-Mine: 1\r\nX-Too: 1\r\n\
                 Keep-Alive: timeout=5\r\nProxy-Authenticate: x\r\nUpgrade: h2c\r\nVia: 1.0 up\r\n",
                "via: 1.0 up, via: 1.1 w",
            ),
            (204, "Content-Length: 0\r\n", "via: 1.1 w"),
            (
                304,
                "content-length: 5\r\netag: \"e\"\r\n",
                "content-length: 5, etag: \"e\", via: 1.1 w",
            ),
        ] {
            let head = head(status, fields);
            let response = apply_head(head, Response::new(StatusCode::OK), Via::new("w").as_ref());
            let lines = response.headers().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()));
            assert_eq!(response.status(), status);
            assert_eq!(lines.collect::<Vec<_>>().join(", "), expected, "{fields:?}");
        }
    }
}
