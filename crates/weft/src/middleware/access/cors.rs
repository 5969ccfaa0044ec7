//! Cross-origin resource sharing (CORS).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
};
use http::{HeaderName, Method, StatusCode};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;

/// Allows scripts of pages of other origins to use the application: CORS, as defined by the
/// [Fetch standard](https://fetch.spec.whatwg.org/#http-cors-protocol).
///
/// ```
/// use std::time::Duration;
/// use weft::middleware::Cors;
/// use weft::{Application, Method, Request, Response, header, testing};
///
/// async fn api(_: Request) -> Response { Response::text("{}") }
///
/// let app = api.wrap(
///     Cors::new()
///         .allow_origin("https://app.example")
///         .allow_methods([Method::PUT, Method::DELETE])
///         .allow_headers([header::CONTENT_TYPE])
///         .allow_credentials(true)
///         .max_age(Duration::from_secs(600)),
/// );
/// let request = "GET / HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example\r\n\r\n";
/// let reply = testing::call(app, testing::request(request));
/// assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
/// assert_eq!(reply.header("access-control-allow-credentials"), Some("true"));
/// assert_eq!(reply.header("vary"), Some("origin"));
/// ```
///
/// The response to a preflight request (OPTIONS with `Access-Control-Request-Method`) is 204 and
/// is sent here. All other requests reach the application, also from origins that are not
/// allowed: it is the browser that withholds the response from the script, and a form or an
/// image of any site can still send a GET or POST. So CORS alone does not protect anything.
///
/// `Vary: origin` is set if the response depends on the origin. The fields that the application has
/// set itself are replaced, so that they agree with the response to the preflight request. Only its
/// `Access-Control-Expose-Headers` is kept, without [`expose_headers`](Cors::expose_headers).
#[derive(Clone)]
pub struct Cors {
    origins: Vec<Box<str>>,
    origin_if: Option<Arc<OriginPredicate>>,
    any_origin: bool,
    methods: String,
    headers: String,
    exposed_headers: String,
    has_credentials: bool,
    max_age: Option<Duration>,
}

type OriginPredicate = dyn Fn(&str) -> bool + Send + Sync;

impl Cors {
    /// Allows no origin, and only the safelisted methods and fields: GET, HEAD and POST;
    /// `Accept`, `Accept-Language`, and the `Content-Type` of a form.
    pub fn new() -> Cors {
        Cors {
            origins: Vec::new(),
            origin_if: None,
            any_origin: false,
            methods: String::new(),
            headers: String::new(),
            exposed_headers: String::new(),
            has_credentials: false,
            max_age: None,
        }
    }

    /// Allows an origin: `https://app.example`, with a port unless it is the scheme's default.
    ///
    /// # Panics
    /// If `origin` is not a scheme, `://` and a lowercase host without a slash at the end, the
    /// only form that browsers send.
    pub fn allow_origin(mut self, origin: &str) -> Cors {
        let host = origin.split_once("://").map(|(_, host)| host);
        let is_valid = host.is_some_and(|host| !host.is_empty() && !host.contains('/'))
            && !origin.contains(|c: char| c.is_ascii_uppercase() || c.is_whitespace() || c == '*');
        assert!(is_valid, "{origin:?} is not an origin of the form https://app.example");
        self.origins.push(origin.into());
        self
    }

    /// Allows the origins for which `allows` returns true, in addition to the listed ones. It
    /// should compare whole names: `https://app.example.evil.example` has a valid prefix too.
    pub fn allow_origin_if(self, allows: impl Fn(&str) -> bool + Send + Sync + 'static) -> Cors {
        Cors { origin_if: Some(Arc::new(allows)), ..self }
    }

    /// Allows any origin, `*`, for public content.
    ///
    /// # Panics
    /// Together with [`allow_credentials`](Cors::allow_credentials), which the standard forbids:
    /// any site could then read the private content of its visitors.
    pub fn allow_any_origin(self) -> Cors {
        Cors { any_origin: true, ..self }.validated()
    }

    /// Allows these methods, in addition to GET, HEAD and POST.
    pub fn allow_methods(self, methods: impl IntoIterator<Item = Method>) -> Cors {
        let names: Vec<_> = methods.into_iter().map(|method| method.to_string()).collect();
        Cors { methods: names.join(", "), ..self }
    }

    /// Allows requests with these fields, in addition to the safelisted ones.
    pub fn allow_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Cors {
        Cors { headers: join(names), ..self }
    }

    /// Lets scripts read these fields of responses, in addition to `Cache-Control`,
    /// `Content-Language`, `Content-Length`, `Content-Type`, `Expires`, `Last-Modified` and
    /// `Pragma`.
    pub fn expose_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Cors {
        Cors { exposed_headers: join(names), ..self }
    }

    /// Allows requests with the visitor's cookies and passwords, and access to their responses.
    ///
    /// # Panics
    /// Together with [`allow_any_origin`](Cors::allow_any_origin).
    pub fn allow_credentials(self, allow: bool) -> Cors {
        Cors { has_credentials: allow, ..self }.validated()
    }

    /// Sets the time for which a browser may cache a preflight response, in whole seconds. Default:
    /// not sent, which browsers treat as 5 seconds. Browsers cap it at two hours to a day.
    pub fn max_age(self, time: Duration) -> Cors {
        Cors { max_age: Some(time), ..self }
    }

    fn validated(self) -> Cors {
        assert!(
            !(self.any_origin && self.has_credentials),
            "credentials cannot be allowed for any origin: list the allowed origins"
        );
        self
    }

    /// Value for `Access-Control-Allow-Origin`; `None` if the origin is not allowed.
    fn allowed_origin<'a>(&self, head: &'a RequestHead) -> Option<&'a str> {
        let mut origins = head.headers().get_all("origin");
        let origin = match (origins.next(), origins.next()) {
            (Some(origin), None) => std::str::from_utf8(origin).ok()?,
            _ => return None,
        };
        if self.any_origin {
            return Some("*");
        }
        let is_allowed = self.origins.iter().any(|allowed| **allowed == *origin)
            || self.origin_if.as_ref().is_some_and(|allows| allows(origin));
        is_allowed.then_some(origin)
    }

    /// Adds the fields common to preflight responses and other responses.
    fn add_common_fields(&self, response: &mut Response, allowed: Option<&str>) {
        if !self.any_origin {
            response.add_vary("origin");
        }
        let Some(origin) = allowed else { return };
        response.set_header(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.has_credentials {
            response.set_header(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
    }

    /// Builds the response to a preflight request.
    fn preflight(&self, allowed: Option<&str>) -> Response {
        let mut response = Response::new(StatusCode::NO_CONTENT);
        self.add_common_fields(&mut response, allowed);
        if allowed.is_none() {
            return response;
        }
        if !self.methods.is_empty() {
            response.set_header(ACCESS_CONTROL_ALLOW_METHODS, &self.methods);
        }
        if !self.headers.is_empty() {
            response.set_header(ACCESS_CONTROL_ALLOW_HEADERS, &self.headers);
        }
        if let Some(time) = self.max_age {
            response.set_header(ACCESS_CONTROL_MAX_AGE, time.as_secs());
        }
        response
    }
}

/// Fields of the application that are removed.
const OF_APPLICATION: [HeaderName; 5] = [
    ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_MAX_AGE,
];

impl Default for Cors {
    fn default() -> Cors {
        Cors::new()
    }
}

impl Middleware for Cors {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let fields = request.headers();
        let is_preflight = *request.method() == Method::OPTIONS
            && fields.get_bytes("origin").is_some()
            && fields.get_bytes("access-control-request-method").is_some();
        if is_preflight {
            return self.preflight(self.allowed_origin(&request));
        }
        let head = request.head().clone();
        let mut response = next.call(request).await;
        for name in OF_APPLICATION {
            if response.header(name.as_str()).is_some() {
                response.remove_header(name);
            }
        }
        let allowed = self.allowed_origin(&head);
        self.add_common_fields(&mut response, allowed);
        if allowed.is_some() && !self.exposed_headers.is_empty() {
            response.set_header(ACCESS_CONTROL_EXPOSE_HEADERS, &self.exposed_headers);
        }
        response
    }
}

impl fmt::Debug for Cors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cors")
            .field("origins", &self.origins)
            .field("any_origin", &self.any_origin)
            .field("has_credentials", &self.has_credentials)
            .finish_non_exhaustive()
    }
}

fn join(names: impl IntoIterator<Item = HeaderName>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.to_string()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, request};
    use http::header::{CONTENT_TYPE, ETAG, RANGE, VARY};

    async fn app(request: Request) -> Response {
        let response = Response::text("app").with_header(VARY, "accept");
        match request.path() {
            "/own" => response
                .with_header(ACCESS_CONTROL_ALLOW_ORIGIN, "*")
                .with_appended_header(ACCESS_CONTROL_ALLOW_ORIGIN, "https://own")
                .with_header(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true")
                .with_header(ACCESS_CONTROL_ALLOW_METHODS, "PUT")
                .with_header(ACCESS_CONTROL_EXPOSE_HEADERS, "x-own"),
            _ => response,
        }
    }

    /// The status and the CORS fields of the response, sorted by name.
    fn send(cors: &Cors, line: &str, fields: &str) -> String {
        let head = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let reply = call(app.wrap(cors.clone()), request(head));
        let mut seen = vec![reply.status.as_str().to_owned()];
        for (name, value) in &reply.headers {
            let short = name.as_str().strip_prefix("access-control-");
            if let Some(short) = short.or((name == VARY).then_some("vary")) {
                seen.push(format!("{short}: {}", value.to_str().unwrap()));
            }
        }
        seen[1..].sort();
        seen.join(" | ")
    }

    fn all() -> Cors {
        Cors::new()
            .allow_origin("https://a.example")
            .allow_origin("http://localhost:3000")
            .allow_origin_if(|origin| origin.ends_with(".b.example"))
            .allow_methods([Method::PUT, Method::DELETE])
            .allow_headers([CONTENT_TYPE, RANGE])
            .expose_headers([ETAG])
            .allow_credentials(true)
            .max_age(Duration::from_secs(600))
    }

    #[test]
    fn adds_fields_for_allowed_origins() {
        let public = Cors::new().allow_any_origin();
        let allowed = "200 | allow-credentials: true | allow-origin: ORIGIN | \
                        expose-headers: etag | vary: accept, origin";
        let refused = "200 | vary: accept, origin";
        for (cors, line, origin, expected) in [
            (&all(), "GET /", "https://a.example", allowed),
            (&all(), "POST /", "http://localhost:3000", allowed),
            (&all(), "GET /", "https://x.b.example", allowed),
            // Without `Access-Control-Request-Method`, OPTIONS is not a preflight request.
            (&all(), "OPTIONS /", "https://a.example", allowed),
            (&all(), "GET /", "https://A.example", refused),
            (&all(), "GET /", "http://a.example", refused),
            (&all(), "GET /", "https://a.example:8443", refused),
            (&all(), "GET /", "https://a.example.evil", refused),
            (&all(), "GET /", "null", refused),
            (&all(), "GET /", "*", refused),
            (&all(), "GET /own", "https://a.example", allowed),
            (
                &all(),
                "GET /own",
                "https://evil",
                "200 | expose-headers: x-own | vary: accept, origin",
            ),
            (
                &public,
                "GET /own",
                "https://x",
                "200 | allow-origin: * | expose-headers: x-own | vary: accept",
            ),
            (&public, "GET /", "https://x", "200 | allow-origin: * | vary: accept"),
            (&public, "GET /", "null", "200 | allow-origin: * | vary: accept"),
            (&Cors::new(), "GET /", "https://x", refused),
        ] {
            let expected = expected.replace("ORIGIN", origin);
            assert_eq!(
                send(cors, line, &format!("Origin: {origin}\r\n")),
                expected,
                "{line} {origin}"
            );
        }
        assert_eq!(send(&all(), "GET /", ""), refused);
        assert_eq!(send(&public, "GET /", ""), "200 | vary: accept");
        let twice = "Origin: https://a.example\r\nOrigin: https://a.example\r\n";
        assert_eq!(send(&all(), "GET /", twice), refused);
    }

    #[test]
    fn responds_to_preflight_requests() {
        let send = |cors: &Cors, origin: &str| {
            let fields = format!("Origin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n");
            send(cors, "OPTIONS /", &fields)
        };
        assert_eq!(
            send(&all(), "https://a.example"),
            "204 | allow-credentials: true | allow-headers: content-type, range | \
             allow-methods: PUT, DELETE | allow-origin: https://a.example | max-age: 600 | \
             vary: origin"
        );
        assert_eq!(send(&all(), "https://evil.example"), "204 | vary: origin");
        assert_eq!(send(&Cors::new().allow_any_origin(), "https://x"), "204 | allow-origin: *");
        let plain = Cors::new().allow_origin("https://x");
        assert_eq!(send(&plain, "https://x"), "204 | allow-origin: https://x | vary: origin");
    }

    #[test]
    fn passes_on_options_without_an_origin() {
        let fields = "Access-Control-Request-Method: PUT\r\n";
        assert_eq!(send(&all(), "OPTIONS /", fields), "200 | vary: accept, origin");
    }

    #[test]
    fn panics_on_unsafe_settings() {
        let panics = |make: fn() -> Cors| std::panic::catch_unwind(make).is_err();
        assert!(panics(|| Cors::new().allow_any_origin().allow_credentials(true)));
        assert!(panics(|| Cors::new().allow_credentials(true).allow_any_origin()));
        for origin in
            ["*", "null", "", "a.example", "https://", "https://A", "https://a/", "https://*.a"]
        {
            let result = std::panic::catch_unwind(|| Cors::new().allow_origin(origin));
            assert!(result.is_err(), "{origin:?}");
        }
    }
}
