//! The head of the forwarded request: composed from the parsed request, field by field. Pure.

use std::sync::Arc;

use weft::header::{HeaderName, Headers};
use weft::message::Version;
use weft::{Error, ErrorKind, Method, Request};

use super::client_certificate::is_from_trusted_proxy;
use super::client_fields as forwarded;
use super::client_fields::ForwardedClient;
use super::doubled_slashes::received_path;
use super::field_filter::{
    HopByHopFields, RequestFieldFilter, push_any_field, push_field, push_plain_field,
};
use super::hops;
use super::hops::Via;
use super::request_fields::RequestFields;
use crate::settings::proxy_settings::{ForwardedHost, ProxySettings};
use crate::url::upstream_url::UpstreamUrl;

/// Options of a request that concern its connection.
pub(crate) struct RequestOptions {
    /// Protocols that the client offers to switch to.
    pub(crate) upgrade: Option<Vec<u8>>,
    /// The client waits for a 100 (Continue) before it sends the body (RFC 9110 §10.1.1).
    pub(crate) expect_continue: bool,
}

impl RequestOptions {
    pub(crate) fn new(request: &Request, body_length: Option<u64>) -> RequestOptions {
        let headers = request.headers();
        // A request with a body is not upgraded: its unread body would precede the bytes of the
        // tunnel in the input.
        let may_upgrade = body_length == Some(0)
            && headers.contains("upgrade")
            && request.version() != Version::HTTP_10
            && headers.lists("connection", b"upgrade");
        let expect_continue = body_length != Some(0)
            && request.version() != Version::HTTP_10
            && headers.lists("expect", b"100-continue");
        RequestOptions {
            upgrade: may_upgrade.then(|| allowed_protocols(headers)).flatten(),
            expect_continue,
        }
    }
}

/// Returns the offered protocols without other versions of HTTP and TLS: requests in those would
/// reach the upstream uninspected.
fn allowed_protocols(headers: &Headers) -> Option<Vec<u8>> {
    let is_refused = |name: &[u8]| {
        let name = name.to_ascii_lowercase();
        name.starts_with(b"h2") || name.starts_with(b"http") || name.starts_with(b"tls")
    };
    let kept: Vec<&[u8]> = headers.list("upgrade").filter(|name| !is_refused(name)).collect();
    if kept.is_empty() { None } else { Some(kept.join(&b", "[..])) }
}

/// Space for the fields that the proxy generates, in bytes. With a long name of the host they need
/// more, and the buffer grows.
const GENERATED_BYTES: usize = 512;

/// The destination of a forwarded request.
#[derive(Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) upstream: &'a UpstreamUrl,
    pub(crate) settings: &'a ProxySettings,
    pub(crate) via: Option<&'a Via>,
}

impl Destination<'_> {
    /// Returns true if the upstream gets doubled slashes of a path.
    fn keeps_slashes(&self) -> bool {
        self.settings.merge_slashes.map_or(!self.upstream.has_path(), |merges| !merges)
    }
}

/// A request, and the destination that it is forwarded to.
pub(crate) struct ForwardedRequest<'a> {
    request: &'a Request,
    to: Destination<'a>,
    authority: Option<&'a [u8]>,
    /// The other end of the connection is a trusted proxy, which describes its client.
    is_trusted: bool,
}

impl<'a> ForwardedRequest<'a> {
    pub(crate) fn new(request: &'a Request, to: Destination<'a>) -> ForwardedRequest<'a> {
        let is_trusted = is_from_trusted_proxy(request, to.settings.trusted());
        ForwardedRequest { request, to, authority: request.authority_bytes(), is_trusted }
    }

    /// Appends the head of the forwarded request. A body of unknown length is chunked.
    pub(crate) fn compose(
        &self,
        out: &mut Vec<u8>,
        options: &RequestOptions,
        body_length: Option<u64>,
    ) -> Result<(), Error> {
        let headers = self.request.headers();
        out.reserve(headers.text().len() + self.to.upstream.path.len() + GENERATED_BYTES);
        out.extend_from_slice(self.request.method().as_str().as_bytes());
        out.push(b' ');
        self.push_target(out)?;
        out.extend_from_slice(b" HTTP/1.1\r\n");
        push_field(out, "host", self.host());
        self.push_request_fields(out);
        match body_length {
            None => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Some(0) if !needs_zero_length(self.request) => {}
            Some(length) => push_field(out, "content-length", length.to_string().as_bytes()),
        }
        if options.expect_continue {
            out.extend_from_slice(b"expect: 100-continue\r\n");
        }
        push_connection_fields(out, headers, options);
        self.push_client_fields(out);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Appends the request target.
    pub(crate) fn push_target(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let (request, upstream) = (self.request, self.to.upstream);
        let is_route = !request.mount().is_empty() && request.full_path() == request.mount();
        let received = || {
            let (target, path, mount) = (request.target(), request.full_path(), request.mount());
            received_path(target, path, mount).filter(|_| self.to.keeps_slashes())
        };
        let path = match is_route {
            true => upstream.path_of_route(),
            false => received().unwrap_or(request.path()),
        };
        push_target(out, path, request.query(), &upstream.path)
    }

    /// Returns the host and port that the upstream gets.
    pub(crate) fn host(&self) -> &'a [u8] {
        if let Some(host) = RequestFields::of(self.request).and_then(RequestFields::host) {
            return host.as_bytes();
        }
        let host = match &self.to.settings.host {
            ForwardedHost::Client => self.authority.filter(|authority| !authority.is_empty()),
            ForwardedHost::Upstream => None,
            ForwardedHost::Fixed(host) => Some(host.as_bytes()),
        };
        host.unwrap_or(self.to.upstream.authority.as_bytes())
    }

    /// Appends the fields of the client that are forwarded.
    pub(crate) fn push_request_fields(&self, out: &mut Vec<u8>) {
        let hop_by_hop = HopByHopFields::new(self.request.headers());
        let settings = self.to.settings;
        let filter = RequestFieldFilter {
            hop_by_hop,
            names: settings.field_names,
            is_trusted: self.is_trusted,
        };
        push_fields(out, self.request, &filter);
        if !settings.request_trailers.is_empty() {
            push_trailer_names(out, self.request, &settings.request_trailers);
        }
    }

    /// Appends the fields that describe the client, and `Via`.
    pub(crate) fn push_client_fields(&self, out: &mut Vec<u8>) {
        let ForwardedRequest { request, authority, is_trusted, .. } = *self;
        let Destination { settings, via, .. } = self.to;
        // A trusted proxy has described its client, so that its own address is next in the list.
        let sender = if is_trusted { request.connection_peer() } else { request.peer() };
        let address = sender.address();
        let (scheme, headers) = (request.scheme(), request.headers());
        let changes = RequestFields::of(request);
        let client = ForwardedClient { address, scheme, authority, is_trusted, headers, changes };
        forwarded::push(out, &client);
        if let Some(session) = request.peer().tls().filter(|_| !is_trusted) {
            forwarded::push_certificates(out, session.peer_certificates(), settings.client_cert);
        }
        if let Some(via) = via {
            push_field(out, "via", via.value(request.version()).as_bytes());
        }
    }
}

/// Returns the permitted trailers without the names of fields that the program sets or removes: an
/// application may merge trailers into the fields.
pub(crate) fn forwarded_trailers(
    request: &Request,
    permitted: &Arc<[HeaderName]>,
) -> Arc<[HeaderName]> {
    let changes = RequestFields::of(request);
    let is_replaced = |name: &HeaderName| {
        changes.is_some_and(|changes| changes.replaces(name.as_str().as_bytes()))
    };
    match permitted.iter().any(is_replaced) {
        true => permitted.iter().filter(|name| !is_replaced(name)).cloned().collect(),
        false => permitted.clone(),
    }
}

/// Appends the list of trailers (RFC 9110 §6.6.2) with those names that are forwarded.
fn push_trailer_names(out: &mut Vec<u8>, request: &Request, permitted: &Arc<[HeaderName]>) {
    let forwarded = forwarded_trailers(request, permitted);
    let is_listed = |name: &&HeaderName| {
        let mut listed = request.headers().list("trailer");
        listed.any(|it| it.eq_ignore_ascii_case(name.as_str().as_bytes()))
    };
    let names: Vec<&str> = forwarded.iter().filter(is_listed).map(HeaderName::as_str).collect();
    if !names.is_empty() {
        push_field(out, "trailer", names.join(", ").as_bytes());
    }
}

/// Appends the end-to-end fields of the client's request.
fn push_fields(out: &mut Vec<u8>, request: &Request, filter: &RequestFieldFilter<'_>) {
    let max_forwards = hops::decremented_max_forwards(request);
    let changes = RequestFields::of(request);
    for (name, value) in request.headers().iter_bytes() {
        let is_max_forwards =
            || max_forwards.is_some() && name.eq_ignore_ascii_case(hops::MAX_FORWARDS.as_bytes());
        let is_replaced = || changes.is_some_and(|changes| changes.replaces(name));
        if !filter.selects(name) || is_max_forwards() || is_replaced() {
            continue;
        }
        if !push_plain_field(out, name, value) && filter.selects_unusual(name) {
            push_any_field(out, name, value);
        }
    }
    if let Some(max_forwards) = max_forwards {
        push_field(out, hops::MAX_FORWARDS, max_forwards.to_string().as_bytes());
    }
    for (name, value) in changes.into_iter().flat_map(RequestFields::iter) {
        push_field(out, name.as_str(), value.as_bytes());
    }
}

/// Returns true if the length of a request without content is sent: if the client has sent it, or
/// if the method anticipates content (RFC 9110 §8.6).
pub(crate) fn needs_zero_length(request: &Request) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(request.method())
        || request.headers().contains("content-length")
}

/// Returns true if the client accepts trailers.
pub(crate) fn accepts_trailers(headers: &Headers) -> bool {
    headers.lists("te", b"trailers")
}

/// Appends the fields for the connection to the upstream: an upgrade, and `TE: trailers` (RFC 9110
/// §10.1.4).
fn push_connection_fields(out: &mut Vec<u8>, headers: &Headers, options: &RequestOptions) {
    let has_trailers = accepts_trailers(headers);
    if has_trailers {
        out.extend_from_slice(b"te: trailers\r\n");
    }
    if let Some(protocols) = &options.upgrade {
        push_field(out, "upgrade", protocols);
    }
    let connection_options = match (has_trailers, options.upgrade.is_some()) {
        (true, true) => "te, upgrade",
        (true, false) => "te",
        (false, true) => "upgrade",
        (false, false) => return,
    };
    push_field(out, "connection", connection_options.as_bytes());
}

/// Appends the request target: the upstream's path, the path of the request, and its query.
fn push_target(
    out: &mut Vec<u8>,
    path: &str,
    query: Option<&str>,
    prefix: &str,
) -> Result<(), Error> {
    let malformed = |reason| Err(Error::new(ErrorKind::Malformed, reason));
    if path == "*" {
        out.push(b'*');
        return Ok(());
    }
    if !prefix.is_empty() && escapes_prefix(path) {
        return malformed("the path leaves the prefix of the upstream");
    }
    let start = out.len();
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(path.as_bytes());
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
    // The engine rejects these bytes, but middleware may have set the path.
    if out[start..].iter().any(|&b| b <= b' ' || b == 0x7f) {
        return malformed("the target contains bytes that are not allowed in a URI");
    }
    Ok(())
}

/// Returns true if an upstream could resolve the path to one outside of the prefix, which requires
/// a `..` segment in any encoding.
fn escapes_prefix(path: &str) -> bool {
    if !path.contains("..") && !path.contains('%') {
        return false;
    }
    let decoded = weft::path::decode(path.as_bytes());
    decoded.split(|&b| b == b'/' || b == b'\\').any(|segment| {
        // Some servers strip path parameters first.
        segment.split(|&b| b == b';').next() == Some(b"..")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::testing;

    /// Returns the lines of the composed head without `Forwarded` and `X-Forwarded-*`.
    fn compose_lines(
        text: &str,
        length: Option<u64>,
        url: &str,
        host: ForwardedHost,
    ) -> Result<String, String> {
        let request = testing::request(text.to_owned());
        let settings = ProxySettings { host, ..ProxySettings::default() };
        let options = RequestOptions::new(&request, length);
        let (url, via, mut out) = (url.parse().unwrap(), Via::new("weft"), Vec::new());
        let to = Destination { upstream: &url, settings: &settings, via: via.as_ref() };
        ForwardedRequest::new(&request, to)
            .compose(&mut out, &options, length)
            .map_err(|error| error.reason().to_owned())?;
        let text = String::from_utf8(out).unwrap();
        let text = text.strip_suffix("\r\n\r\n").expect("the end of a head");
        let is_forwarded_field =
            |line: &&str| line.starts_with("forwarded:") || line.starts_with("x-forwarded-");
        let lines: Vec<&str> =
            text.split("\r\n").filter(|line| !is_forwarded_field(line)).collect();
        Ok(lines.join("\n").replacen(" HTTP/1.1\n", "\n", 1))
    }

    #[test]
    fn rebuilds_requests_field_by_field() {
        let url = "http://up:3000/";
        for (text, length, expected) in [
            (
                "GET /a%20b?c=%2f HTTP/1.1\r\nHost: h\r\n\r\n",
                Some(0),
                "GET /a%20b?c=%2f\nhost: h\nvia: 1.1 weft",
            ),
            ("GET / HTTP/1.0\r\n\r\n", Some(0), "GET /\nhost: up:3000\nvia: 1.0 weft"),
            ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", Some(0), "OPTIONS *\nhost: h\nvia: 1.1 weft"),
            (
                "GET http://t/x HTTP/1.1\r\nHost: t\r\n\r\n",
                Some(0),
                "GET /x\nhost: t\nvia: 1.1 weft",
            ),
            ("GET //x HTTP/1.1\r\nHost: h\r\n\r\n", Some(0), "GET //x\nhost: h\nvia: 1.1 weft"),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nConnection: close, X-Mine, host\r\nX-Mine: 1\r\n\
                 Keep-Alive: 5\r\nProxy-Connection: x\r\nProxy-Authorization: x\r\nProxy: x\r\n\
                 TE: gzip\r\nCookie: a=b\r\nX-Other: 1\r\nX-Other: 2\r\n\r\n",
                Some(0),
                "GET /\nhost: h\ncookie: a=b\nx-other: 1\nx-other: 2\nvia: 1.1 weft",
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nTE: gzip, trailers\r\nVia: 1.1 a\r\n\r\n",
                Some(0),
                "GET /\nhost: h\nvia: 1.1 a\nte: trailers\nconnection: te\nvia: 1.1 weft",
            ),
            // Content-Length is the length determined by the engine.
            (
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
                Some(2),
                "POST /\nhost: h\ncontent-length: 2\nexpect: 100-continue\nvia: 1.1 weft",
            ),
            (
                "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: a\r\n\r\n",
                None,
                "POST /\nhost: h\ntransfer-encoding: chunked\nvia: 1.1 weft",
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n",
                Some(0),
                "GET /\nhost: h\nvia: 1.1 weft",
            ),
            (
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
                Some(0),
                "POST /\nhost: h\ncontent-length: 0\nvia: 1.1 weft",
            ),
            // The method anticipates content.
            (
                "PUT / HTTP/1.1\r\nHost: h\r\n\r\n",
                Some(0),
                "PUT /\nhost: h\ncontent-length: 0\nvia: 1.1 weft",
            ),
            // Upgrades are forwarded, except to another version of HTTP.
            (
                "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\
                 HTTP2-Settings: x\r\n\r\n",
                Some(0),
                "GET /\nhost: h\nhttp2-settings: x\nupgrade: websocket\nconnection: upgrade\n\
                 via: 1.1 weft",
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                 Upgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
                Some(0),
                "GET /\nhost: h\nvia: 1.1 weft",
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n",
                Some(0),
                "GET /\nhost: h\nvia: 1.1 weft",
            ),
            (
                "POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Content-Length: 1\r\n\r\n",
                Some(1),
                "POST /\nhost: h\ncontent-length: 1\nvia: 1.1 weft",
            ),
            (
                "OPTIONS / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 10\r\n\r\n",
                Some(0),
                "OPTIONS /\nhost: h\nmax-forwards: 9\nvia: 1.1 weft",
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nMax-Forwards: 10\r\n\r\n",
                Some(0),
                "GET /\nhost: h\nmax-forwards: 10\nvia: 1.1 weft",
            ),
        ] {
            assert_eq!(
                compose_lines(text, length, url, ForwardedHost::Client).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
        let text = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
        let sent = compose_lines(text, Some(0), url, ForwardedHost::Upstream);
        assert_eq!(sent.as_deref(), Ok("GET /x\nhost: up:3000\nvia: 1.1 weft"));
    }

    #[test]
    fn appends_paths_to_the_upstream_prefix() {
        for (path, query, prefix, expected) in [
            ("/a", None, "", Some("/a")),
            ("/a", Some("b"), "/p", Some("/p/a?b")),
            ("/", Some(""), "/p", Some("/p/?")),
            ("/a..b/...", None, "/p", Some("/p/a..b/...")),
            ("/%", None, "/p", Some("/p/%")),
            ("/a\"{}|é", None, "/p", Some("/p/a\"{}|é")),
            ("/a b", None, "", None),
            ("/a", Some("b\r\nc: d"), "", None),
            // Without a prefix a path cannot escape it.
            ("/../a", None, "", Some("/../a")),
            ("/../a", None, "/p", None),
            ("/..", None, "/p", None),
            ("/a/%2e%2E/b", None, "/p", None),
            ("/a/.%2e", None, "/p", None),
            ("/a/..%2fb", None, "/p", None),
            ("/a/..%5Cb", None, "/p", None),
            ("/a/..;x/b", None, "/p", None),
        ] {
            let mut out = b"GET ".to_vec();
            let found = push_target(&mut out, path, query, prefix).ok();
            let found = found.and_then(|()| str::from_utf8(&out).unwrap().strip_prefix("GET "));
            assert_eq!(found, expected, "{path}");
        }
    }
}
