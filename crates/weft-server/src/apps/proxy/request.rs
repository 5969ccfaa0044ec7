//! A request as an upstream gets it: built anew from what was understood, field by field. Pure.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::{Method, Request as Message, Uri};
use weft::{Error, ErrorKind, Headers, Request, Version};

use super::forwarded::{self, Client, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use super::settings::{Host, Settings};
use super::url::UpstreamUrl;

/// Fields that belong to one connection (RFC 9110 §7.6.1), and `Proxy`, which programs behind
/// CGI take for a setting of their own.
const OF_THE_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy"),
    HeaderName::from_static("proxy-connection"),
    hyper::header::PROXY_AUTHENTICATE,
    hyper::header::PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields that are said anew.
const OURS: [HeaderName; 7] =
    [HOST, CONTENT_LENGTH, EXPECT, FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO];

/// Whether a field ends with this connection: by its nature, or because `Connection` names it.
pub(super) fn is_of_the_connection(name: &HeaderName, named: &[&[u8]]) -> bool {
    OF_THE_CONNECTION.contains(name)
        || named.iter().any(|named| named.eq_ignore_ascii_case(name.as_str().as_bytes()))
}

/// What a request wants beside a response.
pub(super) struct Wants {
    /// The protocol that the connection is to go over to.
    pub(super) upgrade: Option<HeaderValue>,
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
fn protocols(headers: &Headers) -> Option<HeaderValue> {
    let refused = |name: &[u8]| {
        let name = name.to_ascii_lowercase();
        name.starts_with(b"h2") || name.starts_with(b"http") || name.starts_with(b"tls")
    };
    let kept: Vec<&[u8]> = headers.list("upgrade").filter(|name| !refused(name)).collect();
    if kept.is_empty() { None } else { HeaderValue::from_bytes(&kept.join(&b", "[..])).ok() }
}

/// The head of the request that an upstream gets. Its body is `()`; where its length is not
/// known, it is chunked.
pub(super) fn rebuild(
    request: &Request,
    wants: &Wants,
    body_length: Option<u64>,
    upstream: &UpstreamUrl,
    settings: &Settings,
) -> Result<Message<()>, Error> {
    let mut message = Message::new(());
    *message.method_mut() = request.method().clone();
    *message.uri_mut() = target(request.path(), request.query(), &upstream.path)?;
    let fields = message.headers_mut();
    fields.reserve(request.headers().len() + 6);
    let host = match settings.host {
        Host::Client => request.authority().filter(|authority| !authority.is_empty()),
        Host::Upstream => None,
    };
    let host = HeaderValue::from_str(host.unwrap_or(&upstream.authority));
    fields.insert(HOST, host.map_err(|_| Error::new(ErrorKind::Malformed, "not a valid host"))?);
    pass_on(request.headers(), fields);
    match body_length {
        // hyper would take it for none at all in a GET.
        None => drop(fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
        // RFC 9110 §8.6: some methods say so, and hyper would not.
        Some(0) if request.headers().get("content-length").is_some() => {
            fields.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        Some(_) => {}
    }
    if wants.go_ahead {
        fields.insert(EXPECT, HeaderValue::from_static("100-continue"));
    }
    say_what_is_of_the_connection(request.headers(), wants, fields);
    let peer = request.peer().address().map(|address| address.ip());
    let is_trusted =
        settings.trusted.iter().any(|network| peer.is_none_or(|peer| network.contains(peer)));
    let client = Client {
        address: peer,
        scheme: request.scheme(),
        authority: request.authority(),
        is_trusted,
        headers: request.headers(),
    };
    forwarded::set(fields, &client);
    if !settings.via.is_empty() {
        forwarded::add_via(fields, request.version(), &settings.via);
    }
    Ok(message)
}

/// Copies what is the upstream's concern.
fn pass_on(headers: &Headers, fields: &mut HeaderMap) {
    let named: Vec<&[u8]> = headers.list("connection").collect();
    for (name, value) in headers.iter() {
        // What the engine has let through is a name and a value.
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        let Ok(value) = HeaderValue::from_bytes(value) else { continue };
        if !OURS.contains(&name) && !is_of_the_connection(&name, &named) {
            fields.append(name, value);
        }
    }
}

/// What concerns the connection to the upstream: an upgrade, and whether trailers are understood
/// (RFC 9110 §10.1.4).
fn say_what_is_of_the_connection(headers: &Headers, wants: &Wants, fields: &mut HeaderMap) {
    let has_trailers = headers.list("te").any(|it| it.eq_ignore_ascii_case(b"trailers"));
    if has_trailers {
        fields.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocols) = &wants.upgrade {
        fields.insert(UPGRADE, protocols.clone());
    }
    let options = match (has_trailers, wants.upgrade.is_some()) {
        (true, true) => "te, upgrade",
        (true, false) => "te",
        (false, true) => "upgrade",
        (false, false) => return,
    };
    fields.insert(CONNECTION, HeaderValue::from_static(options));
}

/// The path behind that of the upstream, and the query.
fn target(path: &str, query: Option<&str>, prefix: &str) -> Result<Uri, Error> {
    if path == "*" {
        return Ok(Uri::from_static("*"));
    }
    if !prefix.is_empty() && leaves_its_place(path) {
        let reason = "the path leads out of what is served here";
        return Err(Error::new(ErrorKind::Malformed, reason));
    }
    let mut target = String::with_capacity(prefix.len() + path.len() + 64);
    target.push_str(prefix);
    target.push_str(path);
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
    target.try_into().map_err(|_| {
        Error::new(ErrorKind::Malformed, "the target has bytes that have no place in a URI")
    })
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

/// Whether a request may be sent once more although the first may have arrived (RFC 9110 §9.2.2).
pub(super) fn can_be_repeated(method: &Method, body_length: Option<u64>) -> bool {
    method.is_idempotent() && body_length == Some(0)
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
        let url = url.parse().unwrap();
        let message = rebuild(&request, &wants, length, &url, &settings)
            .map_err(|error| error.reason().to_owned())?;
        let mut lines = format!("{} {}", message.method(), message.uri());
        for (name, value) in message.headers() {
            if *name != FORWARDED && !name.as_str().starts_with("x-forwarded-") {
                lines += &format!("\n{name}: {}", value.to_str().unwrap());
            }
        }
        Ok(lines)
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
                "GET /\nhost: h\nvia: 1.1 a\nvia: 1.1 weft\nte: trailers\nconnection: te",
            ),
            // The length is the engine's, and the crate hyper's on the other side.
            (
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
                Some(2),
                "POST /\nhost: h\nexpect: 100-continue\nvia: 1.1 weft",
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
                "POST /\nhost: h\nvia: 1.1 weft",
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
            let found = target(path, query, prefix).ok().map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{path}");
        }
    }
}
