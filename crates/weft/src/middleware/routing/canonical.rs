//! Redirects to the canonical host and to HTTPS.

use http::StatusCode;
use http::header::{FORWARDED, HeaderName};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::request_head::host;
use crate::message::response::Response;

/// Redirects requests for other hosts of a site to its canonical host, and unencrypted requests
/// to HTTPS.
///
/// ```
/// use weft::middleware::Canonical;
/// use weft::header::HeaderName;
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(_: Request) -> Response { Response::text("Hello\n") }
///
/// let app = app.wrap(
///     Canonical::new()
///         .host("example.org")
///         .https()
///         .behind_proxy(HeaderName::from_static("x-forwarded-proto")),
/// );
/// let send = |head| testing::call(app.clone(), testing::request(format!("{head}\r\n\r\n")));
/// let reply = send("GET /a?b HTTP/1.1\r\nHost: www.example.org\r\nX-Forwarded-Proto: http");
/// assert_eq!(reply.status, 308);
/// assert_eq!(reply.header("location"), Some("https://example.org/a?b"));
/// send("GET /a?b HTTP/1.1\r\nHost: example.org\r\nX-Forwarded-Proto: https").assert_text("Hello\n");
/// ```
///
/// The status is 308 (RFC 9110 §15.4.9): it preserves method and body, while after 301 a client
/// may change a POST to a GET, and all clients of the last ten years support it. Browsers cache
/// it permanently, so test with [`temporary`](Canonical::temporary) first. Path and query are
/// taken from the request as sent, the host is the configured one or, without one, the host of
/// the request; so a third party cannot make the redirect lead elsewhere.
///
/// Place this before all other middleware except [`Health`](crate::middleware::Health): health
/// checks often address a server by its IP address.
#[derive(Clone, Debug)]
pub struct Canonical {
    authority: Option<Box<str>>,
    https: bool,
    /// Field in which a proxy sends the scheme of the client's request.
    scheme_field: Option<HeaderName>,
    status: StatusCode,
}

impl Canonical {
    /// Creates the middleware without any redirect.
    pub fn new() -> Canonical {
        let status = StatusCode::PERMANENT_REDIRECT;
        Canonical { authority: None, https: false, scheme_field: None, status }
    }

    /// Sets the canonical host, with a port unless it is the default port of the scheme. The
    /// host of a request is compared without its port and without a trailing dot. Without
    /// [`https`](Canonical::https), the redirect keeps the scheme.
    ///
    /// # Panics
    /// If `authority` is not valid in a URI as `host` or `host:port`.
    pub fn host(self, authority: &str) -> Canonical {
        let is_valid = !host(authority).is_empty()
            && authority.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:[]".contains(&b));
        assert!(is_valid, "{authority:?} is not of the form host or host:port");
        Canonical { authority: Some(authority.into()), ..self }
    }

    /// Redirects unencrypted requests to HTTPS, on its default port unless
    /// [`host`](Canonical::host) has another.
    ///
    /// A request is encrypted if its connection [uses TLS](crate::Request::is_secure). If HTTPS
    /// is served by another program, all requests are redirected; with
    /// [`behind_proxy`](Canonical::behind_proxy), only the field set by the proxy is used.
    pub fn https(self) -> Canonical {
        Canonical { https: true, ..self }
    }

    /// Takes the scheme of the client's request from this field: `Forwarded` (RFC 7239), or a
    /// field with the scheme as its value, such as `X-Forwarded-Proto`. Of several members the
    /// last is used, because the nearest proxy added it.
    ///
    /// Only for a server behind a proxy: all requests must pass the proxy, and it must set exactly
    /// this field. Otherwise any client can send `https` and get the page unencrypted.
    pub fn behind_proxy(self, field: HeaderName) -> Canonical {
        Canonical { scheme_field: Some(field), ..self }
    }

    /// Redirects with 307, which clients do not cache, in place of 308.
    pub fn temporary(self) -> Canonical {
        Canonical { status: StatusCode::TEMPORARY_REDIRECT, ..self }
    }

    /// Returns true if the client used HTTPS. The connection of a proxy does not show that: a proxy
    /// may use TLS to this server for clients that do not.
    fn is_secure(&self, request: &Request) -> bool {
        let Some(field) = &self.scheme_field else { return request.is_secure() };
        let Some(value) = request.headers().get_all(field.as_str()).last() else { return false };
        let scheme = match *field {
            FORWARDED => forwarded_proto(value),
            _ => value.rsplit(|&b| b == b',').next(),
        };
        scheme.is_some_and(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"))
    }

    /// The redirect or error response; `None` if the request is passed on.
    fn redirect(&self, request: &Request) -> Option<Response> {
        let needs_https = self.https && !self.is_secure(request);
        let requested = request.host().unwrap_or_default();
        let is_other_host = self
            .authority
            .as_ref()
            .is_some_and(|canonical| !host(canonical).eq_ignore_ascii_case(requested));
        if !needs_https && !is_other_host {
            return None;
        }
        let sent = request.original_path_and_query();
        let slash = match sent.as_bytes() {
            [b'/', ..] => "",
            [] | [b'?', ..] => "/",
            // `OPTIONS *`: there is no URI to redirect to.
            _ => return None,
        };
        let host = self.authority.as_deref().unwrap_or(requested);
        if host.is_empty() {
            return Some(StatusCode::BAD_REQUEST.into());
        }
        // RFC 3986 §4.2: a reference without a scheme keeps the scheme of the request.
        let scheme = if self.https { "https:" } else { "" };
        Some(Response::redirect(self.status, &[scheme, "//", host, slash, sent].concat()))
    }
}

impl Default for Canonical {
    fn default() -> Canonical {
        Canonical::new()
    }
}

impl Middleware for Canonical {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.redirect(&request) {
            Some(response) => response,
            None => next.call(request).await,
        }
    }
}

/// The parameter `proto` of the last element of a `Forwarded` field (RFC 7239 §4, §5.4).
fn forwarded_proto(value: &[u8]) -> Option<&[u8]> {
    let element = split_unquoted(value, b',').last()?;
    let mut pairs = split_unquoted(element, b';');
    let value = pairs.find_map(|pair| match pair.trim_ascii().split_at_checked(6)? {
        (name, value) if name.eq_ignore_ascii_case(b"proto=") => Some(value),
        _ => None,
    })?;
    Some(value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value))
}

/// Splits at a delimiter outside of quoted strings (RFC 9110 §5.6.4).
fn split_unquoted(text: &[u8], delimiter: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |&b| {
        match b {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ => return b == delimiter && !is_quoted,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::StripPrefix;
    use crate::testing::{TestResponse, call, request};

    async fn hello(_: Request) -> Response {
        Response::text("Hello")
    }

    fn send(canonical: &Canonical, head: &str) -> TestResponse {
        call(hello.wrap(canonical.clone()), request(format!("{head}\r\n\r\n")))
    }

    /// Target of the redirect; `None` if the request is passed on.
    #[track_caller]
    fn location(canonical: &Canonical, head: &str) -> Option<String> {
        let reply = send(canonical, head);
        match reply.status.as_u16() {
            200 => None,
            308 => Some(reply.header("location").unwrap().to_owned()),
            status => panic!("{status}"),
        }
    }

    #[test]
    fn redirects_other_hosts() {
        let host = Canonical::new().host("Example.org");
        let port = Canonical::new().host("example.org:8443").https();
        for (canonical, head, expected) in [
            (&host, "GET /a HTTP/1.1\r\nHost: example.org", None),
            (&host, "GET /a HTTP/1.1\r\nHost: EXAMPLE.org.:8080", None),
            (&host, "GET /a?b HTTP/1.1\r\nHost: www.example.org", Some("//Example.org/a?b")),
            (&host, "POST /a HTTP/1.1\r\nHost: 192.0.2.1:80", Some("//Example.org/a")),
            (&host, "GET //evil/ HTTP/1.1\r\nHost: a", Some("//Example.org//evil/")),
            (&host, "GET /\\evil HTTP/1.1\r\nHost: a", Some("//Example.org/\\evil")),
            (&host, "GET http://a HTTP/1.1\r\nHost: example.org", Some("//Example.org/")),
            (&host, "GET http://a?b HTTP/1.1\r\nHost: a", Some("//Example.org/?b")),
            (&host, "GET /a HTTP/1.0", Some("//Example.org/a")),
            (&host, "OPTIONS * HTTP/1.1\r\nHost: a", None),
            (&port, "GET /a HTTP/1.1\r\nHost: b", Some("https://example.org:8443/a")),
            (&port, "GET /a HTTP/1.1\r\nHost: example.org", Some("https://example.org:8443/a")),
        ] {
            assert_eq!(location(canonical, head).as_deref(), expected, "{head}");
        }
    }

    #[test]
    fn redirects_to_https() {
        let https = Canonical::new().https();
        for (head, expected) in [
            ("GET /a?b HTTP/1.1\r\nHost: a:8080", "https://a/a?b"),
            ("GET / HTTP/1.1\r\nHost: [::1]:80", "https://[::1]/"),
            ("POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https", "https://a/"),
            ("GET / HTTP/1.1\r\nHost: a\r\nForwarded: proto=https", "https://a/"),
        ] {
            assert_eq!(location(&https, head).as_deref(), Some(expected), "{head}");
        }
        assert_eq!(send(&https, "GET / HTTP/1.0").status, 400);
        assert_eq!(send(&https, "GET / HTTP/1.1\r\nHost:").status, 400);
        let temporary = send(&https.temporary(), "GET / HTTP/1.1\r\nHost: a");
        assert_eq!(temporary.status, 307);
    }

    #[test]
    fn uses_the_last_scheme_sent_by_a_proxy() {
        let plain = |name| Canonical::new().https().behind_proxy(name);
        let x_forwarded_proto = plain(HeaderName::from_static("x-forwarded-proto"));
        let standard = plain(FORWARDED);
        for (canonical, fields, is_secure) in [
            (&x_forwarded_proto, "X-Forwarded-Proto: https", true),
            (&x_forwarded_proto, "X-Forwarded-Proto: HTTPS", true),
            (&x_forwarded_proto, "X-Forwarded-Proto: http", false),
            (&x_forwarded_proto, "X-Forwarded-Proto: httpsx", false),
            (&x_forwarded_proto, "X-Forwarded-Proto: http, https", true),
            (&x_forwarded_proto, "X-Forwarded-Proto: https, http", false),
            (&x_forwarded_proto, "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http", false),
            (&x_forwarded_proto, "X-Forwarded-Proto:", false),
            (&x_forwarded_proto, "Forwarded: proto=https", false),
            (&x_forwarded_proto, "X: y", false),
            (&standard, "Forwarded: for=1.2.3.4;proto=https;host=a", true),
            (&standard, "Forwarded: FOR=1.2.3.4; Proto=\"https\"", true),
            (&standard, "Forwarded: proto=http, proto=https", true),
            (&standard, "Forwarded: proto=https, for=1.2.3.4", false),
            (&standard, "Forwarded: proto=https\r\nForwarded: proto=http", false),
            (&standard, "Forwarded: for=\";proto=https\"", false),
            (&standard, "Forwarded: for=\"\\\";proto=https\"", false),
            (&standard, "Forwarded: for=\"\\\";proto=https;x=\"", false),
            (&standard, "Forwarded: for=\"a, proto=https", false),
            (&standard, "Forwarded: for=\"a\\\\\";proto=https", true),
            (&standard, "Forwarded: xproto=https", false),
            (&standard, "X-Forwarded-Proto: https", false),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}");
            assert_eq!(location(canonical, &head).is_none(), is_secure, "{fields}");
        }
    }

    #[test]
    fn redirects_to_the_path_that_the_client_sent() {
        let app =
            crate::stack(hello).with(StripPrefix::new("/app")).with(Canonical::new().host("b"));
        let reply = call(app, request("GET /app/x?q HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(reply.header("location"), Some("//b/app/x?q"));
    }

    #[test]
    fn panics_on_invalid_hosts() {
        for host in ["", ":80", "a/b", "u@a", "https://a", "a b", "a\r\n"] {
            let result = std::panic::catch_unwind(|| Canonical::new().host(host));
            assert!(result.is_err(), "{host:?}");
        }
    }
}
