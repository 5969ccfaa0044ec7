//! The head of the forwarded request as fields of HTTP/2 (RFC 9113 §8.3.1). Pure.

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use weft::{Error, ErrorKind, Request};

use crate::head::forwarded_request::{
    Destination, ForwardedRequest, accepts_trailers, needs_zero_length,
};

/// Composes the head of a request.
pub(crate) fn compose(
    request: &Request,
    body_length: Option<u64>,
    to: &Destination<'_>,
) -> Result<http::Request<()>, Error> {
    let forwarded = ForwardedRequest::new(request, *to);
    let mut target = Vec::new();
    forwarded.push_target(&mut target)?;
    let scheme = if to.upstream.is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
    let path = PathAndQuery::from_maybe_shared(Bytes::from(encode_target(target)));
    let authority = Authority::try_from(forwarded.host()).map_err(malformed)?;
    let uri = Uri::builder().scheme(scheme).authority(authority);
    let uri = uri.path_and_query(path.map_err(malformed)?).build().map_err(malformed)?;
    // The lines of HTTP/1 are the form in which fields are selected and added.
    let mut lines = Vec::with_capacity(512);
    forwarded.push_request_fields(&mut lines);
    forwarded.push_client_fields(&mut lines);
    let mut fields = parse_lines(lines.into())?;
    match body_length {
        Some(0) if !needs_zero_length(request) => {}
        Some(length) => drop(fields.insert(http::header::CONTENT_LENGTH, length.into())),
        None => {}
    }
    if accepts_trailers(request.headers()) {
        fields.insert(http::header::TE, HeaderValue::from_static("trailers"));
    }
    let mut composed = http::Request::new(());
    *composed.method_mut() = request.method().clone();
    *composed.uri_mut() = uri;
    *composed.headers_mut() = fields;
    Ok(composed)
}

fn malformed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let reason = "the request cannot be forwarded over HTTP/2";
    Error::new(ErrorKind::Malformed, reason).with_source(error)
}

/// Encodes the bytes that no URI may contain (RFC 3986 §2), although browsers send them.
fn encode_target(target: Vec<u8>) -> Vec<u8> {
    let is_permitted =
        |b: &u8| b.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=%|\"{}\\^".contains(b);
    if target.iter().all(is_permitted) {
        return target;
    }
    let mut encoded = Vec::with_capacity(target.len() + 16);
    for b in target {
        match is_permitted(&b) {
            true => encoded.push(b),
            false => encoded.extend_from_slice(format!("%{b:02X}").as_bytes()),
        }
    }
    encoded
}

/// Converts field lines. The values share the buffer of the lines.
fn parse_lines(lines: Bytes) -> Result<HeaderMap, Error> {
    let mut fields = HeaderMap::with_capacity(16);
    let mut start = 0;
    while start < lines.len() {
        let line = &lines[start..];
        let separator = line.windows(2).position(|pair| pair == b": ").unwrap_or(0);
        let end = line.windows(2).position(|pair| pair == b"\r\n").unwrap_or(line.len());
        let name = HeaderName::from_bytes(&line[..separator]).map_err(malformed)?;
        let value = lines.slice(start + separator + 2..start + end);
        fields.append(name, HeaderValue::from_maybe_shared(value).map_err(malformed)?);
        start += end + 2;
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::hops::Via;
    use crate::settings::proxy_settings::ProxySettings;
    use crate::url::upstream_url::UpstreamUrl;
    use weft::testing;

    fn composed(line: &str, fields: &str, body_length: Option<u64>) -> String {
        let request =
            testing::request(format!("{line} HTTP/1.1\r\nHost: site.example\r\n{fields}\r\n"));
        let upstream: UpstreamUrl = "h2c://127.0.0.1:50051/base".parse().unwrap();
        let (settings, via) = (ProxySettings::default(), Via::new("weft"));
        let to = Destination { upstream: &upstream, settings: &settings, via: via.as_ref() };
        let composed = compose(&request, body_length, &to).unwrap();
        let is_shown = |name: &HeaderName| {
            !name.as_str().starts_with("x-forwarded") && name != "forwarded" && name != "via"
        };
        let fields = composed.headers().iter().filter(|(name, _)| is_shown(name));
        let fields = fields.map(|(name, value)| format!(" {name}={}", value.to_str().unwrap()));
        format!("{} {}{}", composed.method(), composed.uri(), fields.collect::<String>())
    }

    #[test]
    fn composes_fields_without_those_of_the_connection() {
        for (line, fields, body_length, expected) in [
            ("GET /a?b=c", "", Some(0), "GET http://site.example/base/a?b=c"),
            (
                "GET /a|b\"<c>`{d}?<e>",
                "",
                Some(0),
                "GET http://site.example/base/a|b\"%3Cc%3E%60{d}?%3Ce%3E",
            ),
            (
                "POST /",
                "Content-Length: 3\r\nTE: trailers, gzip\r\nConnection: te, X-Mine\r\nX-Mine: 1\r\n",
                Some(3),
                "POST http://site.example/base/ content-length=3 te=trailers",
            ),
            (
                "POST /",
                "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\nContent-Type: a/b\r\n",
                None,
                "POST http://site.example/base/ content-type=a/b",
            ),
            (
                "GET /",
                "Upgrade: websocket\r\nConnection: upgrade\r\nCookie: a=b; c=d\r\nX-Empty:\r\n",
                Some(0),
                "GET http://site.example/base/ cookie=a=b; c=d x-empty=",
            ),
        ] {
            assert_eq!(composed(line, fields, body_length), expected, "{line} {fields}");
        }
    }
}
