//! A request as an upstream gets it: written anew from what was understood, field by field. Pure.

use weft::{Error, ErrorKind, Headers, Request, Version};

use super::fields::{Names, OfTheConnection, push_field};
use super::forwarded::{self, Client};
use super::hops::{self, Via};
use super::settings::{Host, Settings};
use super::url::UpstreamUrl;

/// Fields that are said anew.
static OURS: Names = Names::new(&[
    b"host",
    b"content-length",
    b"expect",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
]);

/// What a request wants beside a response.
pub(super) struct Wants {
    /// The protocols that the connection may go over to.
    pub(super) upgrade: Option<Vec<u8>>,
    /// To be told before it sends its body (RFC 9110 §10.1.1).
    pub(super) go_ahead: bool,
}

impl Wants {
    pub(super) fn of(request: &Request, body_length: Option<u64>) -> Wants {
        let headers = request.headers();
        let has = |name, value: &[u8]| headers.list(name).any(|it| it.eq_ignore_ascii_case(value));
        // A request with a body could not be handed over: its input is not clear.
        let may_upgrade = body_length == Some(0)
            && request.version() != Version::HTTP_10
            && has("connection", b"upgrade");
        let go_ahead = body_length != Some(0)
            && request.version() != Version::HTTP_10
            && has("expect", b"100-continue");
        Wants { upgrade: may_upgrade.then(|| protocols(headers)).flatten(), go_ahead }
    }
}

/// What may come after an upgrade. Another version of HTTP, or TLS, may not: requests could
/// then reach the upstream that nobody here has looked at.
fn protocols(headers: &Headers) -> Option<Vec<u8>> {
    let refused = |name: &[u8]| {
        let name = name.to_ascii_lowercase();
        name.starts_with(b"h2") || name.starts_with(b"http") || name.starts_with(b"tls")
    };
    let kept: Vec<&[u8]> = headers.list("upgrade").filter(|name| !refused(name)).collect();
    if kept.is_empty() { None } else { Some(kept.join(&b", "[..])) }
}

/// Writes the head of the request that an upstream gets. A body whose length is not known is
/// chunked.
pub(super) fn compose(
    out: &mut Vec<u8>,
    request: &Request,
    wants: &Wants,
    body_length: Option<u64>,
    to: &Destination<'_>,
) -> Result<(), Error> {
    let Destination { upstream, settings, via } = *to;
    let (headers, authority) = (request.headers(), request.authority());
    out.extend_from_slice(request.method().as_str().as_bytes());
    out.push(b' ');
    push_target(out, request.path(), request.query(), &upstream.path)?;
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let host = match settings.host {
        Host::Client => authority.filter(|authority| !authority.is_empty()),
        Host::Upstream => None,
    };
    push_field(out, b"host", host.unwrap_or(&upstream.authority).as_bytes());
    push_fields(out, request);
    match body_length {
        None => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        // RFC 9110 §8.6: where a body makes no sense, no field says that there is none.
        Some(0) if headers.get("content-length").is_none() => {}
        Some(length) => push_field(out, b"content-length", length.to_string().as_bytes()),
    }
    if wants.go_ahead {
        out.extend_from_slice(b"expect: 100-continue\r\n");
    }
    push_connection(out, headers, wants);
    let peer = request.peer().address().map(|address| address.ip());
    let is_trusted =
        settings.trusted.iter().any(|network| peer.is_none_or(|peer| network.contains(peer)));
    let scheme = request.scheme();
    forwarded::push(out, &Client { address: peer, scheme, authority, is_trusted, headers });
    if let Some(via) = via {
        push_field(out, b"via", via.value(request.version()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// To whom a request is passed on, and how.
#[derive(Clone, Copy)]
pub(super) struct Destination<'a> {
    pub(super) upstream: &'a UpstreamUrl,
    pub(super) settings: &'a Settings,
    pub(super) via: Option<&'a Via>,
}

/// What the client says that is the upstream's concern.
fn push_fields(out: &mut Vec<u8>, request: &Request) {
    let of_the_connection = OfTheConnection::new(request.headers());
    let hops = hops::left(request);
    for (name, value) in request.headers().iter_bytes() {
        let is_hops = || hops.is_some() && name.eq_ignore_ascii_case(hops::MAX_FORWARDS.as_bytes());
        if !OURS.has(name) && !of_the_connection.has(name) && !is_hops() {
            push_field(out, name, value);
        }
    }
    if let Some(hops) = hops {
        push_field(out, hops::MAX_FORWARDS.as_bytes(), hops.to_string().as_bytes());
    }
}

/// What concerns the connection to the upstream: an upgrade, and whether trailers are understood
/// (RFC 9110 §10.1.4).
fn push_connection(out: &mut Vec<u8>, headers: &Headers, wants: &Wants) {
    let has_trailers = headers.list("te").any(|it| it.eq_ignore_ascii_case(b"trailers"));
    if has_trailers {
        out.extend_from_slice(b"te: trailers\r\n");
    }
    if let Some(protocols) = &wants.upgrade {
        push_field(out, b"upgrade", protocols);
    }
    let options = match (has_trailers, wants.upgrade.is_some()) {
        (true, true) => "te, upgrade",
        (true, false) => "te",
        (false, true) => "upgrade",
        (false, false) => return,
    };
    push_field(out, b"connection", options.as_bytes());
}

/// The path behind that of the upstream, and the query.
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
    if !prefix.is_empty() && leaves_its_place(path) {
        return malformed("the path leads out of what is served here");
    }
    let start = out.len();
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(path.as_bytes());
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
    // The engine lets none of these through, but what stands before us may have set the path.
    if out[start..].iter().any(|&b| b <= b' ' || b == 0x7f) {
        return malformed("the target has bytes that have no place in a URI");
    }
    Ok(())
}

/// Whether an upstream could take the path for one that is not beneath the prefix: if it has a
/// segment `..`, in whichever spelling.
fn leaves_its_place(path: &str) -> bool {
    if !path.contains("..") && !path.contains('%') {
        return false;
    }
    let decoded = weft::path::decode(path.as_bytes());
    decoded.split(|&b| b == b'/' || b == b'\\').any(|segment| {
        // Some servers cut parameters off first.
        segment.split(|&b| b == b';').next() == Some(b"..")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::testing;

    /// The lines of the message, without what is told of the client.
    fn rebuilt(text: &str, length: Option<u64>, url: &str, host: Host) -> Result<String, String> {
        let request = testing::request(text.to_owned());
        let settings = Settings { host, ..Settings::default() };
        let wants = Wants::of(&request, length);
        let (url, via, mut out) = (url.parse().unwrap(), Via::new("weft"), Vec::new());
        let to = Destination { upstream: &url, settings: &settings, via: via.as_ref() };
        compose(&mut out, &request, &wants, length, &to)
            .map_err(|error| error.reason().to_owned())?;
        let text = String::from_utf8(out).unwrap();
        let text = text.strip_suffix("\r\n\r\n").expect("the end of a head");
        let told = |line: &&str| line.starts_with("forwarded:") || line.starts_with("x-forwarded-");
        let lines: Vec<&str> = text.split("\r\n").filter(|line| !told(line)).collect();
        Ok(lines.join("\n").replacen(" HTTP/1.1\n", "\n", 1))
    }

    #[test]
    fn requests_are_built_anew() {
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
            // The length is the engine's.
            (
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
                Some(2),
                "POST /\nhost: h\ncontent-length: 2\nexpect: 100-continue\nvia: 1.1 weft",
            ),
            (
                "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: a\r\n\r\n",
                None,
                "POST /\nhost: h\ntrailer: a\ntransfer-encoding: chunked\nvia: 1.1 weft",
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
            // Upgrades, but not to what nobody looks into.
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
            assert_eq!(rebuilt(text, length, url, Host::Client).as_deref(), Ok(expected), "{text}");
        }
        let text = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
        let sent = rebuilt(text, Some(0), url, Host::Upstream);
        assert_eq!(sent.as_deref(), Ok("GET /x\nhost: up:3000\nvia: 1.1 weft"));
    }

    #[test]
    fn paths_behind_that_of_the_upstream() {
        for (path, query, prefix, expected) in [
            ("/a", None, "", Some("/a")),
            ("/a", Some("b"), "/p", Some("/p/a?b")),
            ("/", Some(""), "/p", Some("/p/?")),
            ("/a..b/...", None, "/p", Some("/p/a..b/...")),
            ("/%", None, "/p", Some("/p/%")),
            ("/a\"{}|é", None, "/p", Some("/p/a\"{}|é")),
            ("/a b", None, "", None),
            ("/a", Some("b\r\nc: d"), "", None),
            // Without a prefix there is nothing to leave.
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
