//! One host and one scheme, to which others are redirected.

use http::StatusCode;
use http::header::{FORWARDED, HeaderName};

use crate::app::{Application, Middleware};
use crate::message::request::{Request, host};
use crate::message::response::Response;

/// Redirects requests for other names of a site to its canonical one, and requests that came
/// without encryption to HTTPS.
///
/// ```
/// use weft::middleware::Canonical;
/// use weft::{Application, HeaderName, Request, Response, testing};
///
/// async fn app(_: Request) -> Response { Response::text("Hello\n") }
///
/// let app = app.with(
///     Canonical::new()
///         .host("example.org")
///         .https()
///         .behind_proxy(HeaderName::from_static("x-forwarded-proto")),
/// );
/// let ask = |head| testing::call(app.clone(), testing::request(format!("{head}\r\n\r\n")));
/// let reply = ask("GET /a?b HTTP/1.1\r\nHost: www.example.org\r\nX-Forwarded-Proto: http");
/// assert_eq!(reply.status, 308);
/// assert_eq!(reply.header("location"), Some("https://example.org/a?b"));
/// ask("GET /a?b HTTP/1.1\r\nHost: example.org\r\nX-Forwarded-Proto: https").assert_text("Hello\n");
/// ```
///
/// The status is 308 (RFC 9110 §15.4.9): it keeps method and body, where after 301 a client
/// may make a GET of a POST, and all clients of the last ten years know it. Browsers remember
/// it for good, so try with [`temporary`](Canonical::temporary) first. Path and query are
/// those that the client sent, and the host is one that was set here or, without that, the
/// one that was asked for; so nobody can make the redirect lead elsewhere.
///
/// To be put before everything else, except [`Health`](super::Health): who watches over a
/// server often asks it by address.
#[derive(Clone, Debug)]
pub struct Canonical {
    authority: Option<Box<str>>,
    https: bool,
    /// The field in which a proxy says by which scheme its client came.
    scheme_field: Option<HeaderName>,
    status: StatusCode,
}

impl Canonical {
    /// Redirects nothing yet.
    pub fn new() -> Canonical {
        let status = StatusCode::PERMANENT_REDIRECT;
        Canonical { authority: None, https: false, scheme_field: None, status }
    }

    /// Sets the canonical host, with a port if that is not the scheme's own. Requests are for
    /// it whatever port they name, and whether with a final dot or not. Without
    /// [`https`](Canonical::https), the redirect keeps the scheme.
    ///
    /// # Panics
    /// If it could not stand in a URI as `host` or `host:port`.
    pub fn host(self, authority: &str) -> Canonical {
        let is_sound = !host(authority).is_empty()
            && authority.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:[]".contains(&b));
        assert!(is_sound, "{authority:?} is no host or host:port");
        Canonical { authority: Some(authority.into()), ..self }
    }

    /// Redirects requests that came without encryption to HTTPS, on its own port unless
    /// [`host`](Canonical::host) names another.
    ///
    /// What comes by [TLS](crate::Request::is_secure) is encrypted. Where something else serves
    /// HTTPS, this redirects all requests; with [`behind_proxy`](Canonical::behind_proxy) the
    /// proxy's word counts, and nothing else.
    pub fn https(self) -> Canonical {
        Canonical { https: true, ..self }
    }

    /// Believes this field of the request about the scheme by which the client came:
    /// `Forwarded` (RFC 7239), or one whose value is the scheme, such as `X-Forwarded-Proto`.
    /// If there are several members, the last counts, for the nearest proxy has added that.
    ///
    /// Only for a server that all requests reach through a proxy which sets this very field.
    /// Else anybody can say `https`, and have the page without.
    pub fn behind_proxy(self, field: HeaderName) -> Canonical {
        Canonical { scheme_field: Some(field), ..self }
    }

    /// Redirects with 307, which nobody remembers, in place of 308.
    pub fn temporary(self) -> Canonical {
        Canonical { status: StatusCode::TEMPORARY_REDIRECT, ..self }
    }

    /// Whether a request came by HTTPS. A proxy may speak TLS to us for clients that do not.
    fn is_secure(&self, request: &Request) -> bool {
        let Some(field) = &self.scheme_field else { return request.is_secure() };
        let Some(value) = request.headers().get_all(field.as_str()).last() else { return false };
        let scheme = match *field {
            FORWARDED => forwarded_proto(value),
            _ => value.rsplit(|&b| b == b',').next(),
        };
        scheme.is_some_and(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"))
    }

    /// The answer, if the request is not to go on.
    fn refuse(&self, request: &Request) -> Option<Response> {
        let wants_https = self.https && !self.is_secure(request);
        let asked = request.host().unwrap_or_default();
        let is_other_host =
            self.authority.as_ref().is_some_and(|known| !host(known).eq_ignore_ascii_case(asked));
        if !wants_https && !is_other_host {
            return None;
        }
        let sent = request.sent();
        let slash = match sent.as_bytes() {
            [b'/', ..] => "",
            [] | [b'?', ..] => "/",
            // `OPTIONS *`: there is no URI to lead to.
            _ => return None,
        };
        let host = self.authority.as_deref().unwrap_or(asked);
        if host.is_empty() {
            return Some(StatusCode::BAD_REQUEST.into());
        }
        // RFC 3986 §4.2: a reference without a scheme keeps that of the request.
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
        match self.refuse(&request) {
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

/// Cuts at a byte wherever that is not within a quoted string (RFC 9110 §5.6.4).
fn split_unquoted(text: &[u8], at: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |&b| {
        match b {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ => return b == at && !is_quoted,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::StripPrefix;
    use crate::testing::{Reply, call, request};

    async fn hello(_: Request) -> Response {
        Response::text("Hello")
    }

    fn ask(canonical: &Canonical, head: &str) -> Reply {
        call(hello.with(canonical.clone()), request(format!("{head}\r\n\r\n")))
    }

    /// Where a request is sent to; `None` if it goes on.
    #[track_caller]
    fn location(canonical: &Canonical, head: &str) -> Option<String> {
        let reply = ask(canonical, head);
        match reply.status.as_u16() {
            200 => None,
            308 => Some(reply.header("location").unwrap().to_owned()),
            status => panic!("{status}"),
        }
    }

    #[test]
    fn hosts() {
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
    fn https() {
        let https = Canonical::new().https();
        for (head, expected) in [
            ("GET /a?b HTTP/1.1\r\nHost: a:8080", "https://a/a?b"),
            ("GET / HTTP/1.1\r\nHost: [::1]:80", "https://[::1]/"),
            ("POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https", "https://a/"),
            ("GET / HTTP/1.1\r\nHost: a\r\nForwarded: proto=https", "https://a/"),
        ] {
            assert_eq!(location(&https, head).as_deref(), Some(expected), "{head}");
        }
        assert_eq!(ask(&https, "GET / HTTP/1.0").status, 400);
        assert_eq!(ask(&https, "GET / HTTP/1.1\r\nHost:").status, 400);
        let temporary = ask(&https.temporary(), "GET / HTTP/1.1\r\nHost: a");
        assert_eq!(temporary.status, 307);
    }

    #[test]
    fn what_a_proxy_says() {
        let plain = |name| Canonical::new().https().behind_proxy(name);
        let theirs = plain(HeaderName::from_static("x-forwarded-proto"));
        let standard = plain(FORWARDED);
        for (canonical, fields, is_secure) in [
            (&theirs, "X-Forwarded-Proto: https", true),
            (&theirs, "X-Forwarded-Proto: HTTPS", true),
            (&theirs, "X-Forwarded-Proto: http", false),
            (&theirs, "X-Forwarded-Proto: httpsx", false),
            (&theirs, "X-Forwarded-Proto: http, https", true),
            (&theirs, "X-Forwarded-Proto: https, http", false),
            (&theirs, "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http", false),
            (&theirs, "X-Forwarded-Proto:", false),
            (&theirs, "Forwarded: proto=https", false),
            (&theirs, "X: y", false),
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
    fn the_path_is_the_one_that_was_sent() {
        let app = hello.with(StripPrefix::new("/app")).with(Canonical::new().host("b"));
        let reply = call(app, request("GET /app/x?q HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(reply.header("location"), Some("//b/app/x?q"));
    }

    #[test]
    fn what_is_no_host_is_refused_at_once() {
        for host in ["", ":80", "a/b", "u@a", "https://a", "a b", "a\r\n"] {
            let made = std::panic::catch_unwind(|| Canonical::new().host(host));
            assert!(made.is_err(), "{host:?}");
        }
    }
}
