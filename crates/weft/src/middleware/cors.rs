//! What pages of other sites may read.

use std::fmt;
use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
};
use http::{HeaderName, Method, StatusCode};

use crate::app::{Application, Middleware};
use crate::message::request::{Head, Request};
use crate::message::response::Response;

/// Tells browsers which pages of other origins may use this application from scripts: CORS,
/// as the [Fetch standard](https://fetch.spec.whatwg.org/#http-cors-protocol) has it.
///
/// ```
/// use weft::middleware::Cors;
/// use weft::{Application, Method, Request, Response, header, testing};
///
/// async fn api(_: Request) -> Response { Response::text("{}") }
///
/// let app = api.with(
///     Cors::new()
///         .origin("https://app.example")
///         .methods([Method::PUT, Method::DELETE])
///         .headers([header::CONTENT_TYPE])
///         .credentials()
///         .max_age(600),
/// );
/// let request = "GET / HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example\r\n\r\n";
/// let reply = testing::call(app, testing::request(request));
/// assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
/// assert_eq!(reply.header("access-control-allow-credentials"), Some("true"));
/// assert_eq!(reply.header("vary"), Some("origin"));
/// ```
///
/// A browser's question beforehand (an OPTIONS with `Access-Control-Request-Method`) is
/// answered here with 204. All other requests reach the application, also from origins that
/// are not allowed: it is the browser that keeps the answer from them, and a form or an image
/// of any site may still send a GET or POST. So this guards nothing by itself.
///
/// `Vary: origin` is set wherever the answer would be another for another origin. An
/// application that sets `Access-Control-Allow-Origin` itself is left to its own rules.
#[derive(Clone)]
pub struct Cors {
    origins: Vec<Box<str>>,
    origin_if: Option<Arc<OriginIf>>,
    any_origin: bool,
    methods: String,
    headers: String,
    exposed: String,
    has_credentials: bool,
    max_age: Option<u32>,
}

type OriginIf = dyn Fn(&str) -> bool + Send + Sync;

impl Cors {
    /// Allows no origin yet, and of methods and fields those that need no permission: GET,
    /// HEAD and POST; `Accept`, `Accept-Language`, and the `Content-Type` of a form.
    pub fn new() -> Cors {
        Cors {
            origins: Vec::new(),
            origin_if: None,
            any_origin: false,
            methods: String::new(),
            headers: String::new(),
            exposed: String::new(),
            has_credentials: false,
            max_age: None,
        }
    }

    /// Allows an origin: `https://app.example`, with a port if it is not the scheme's own.
    ///
    /// # Panics
    /// If that is not a scheme, `://`, and a host in small letters, with no slash behind it:
    /// browsers send nothing else.
    pub fn origin(mut self, origin: &str) -> Cors {
        let host = origin.split_once("://").map(|(_, host)| host);
        let is_sound = host.is_some_and(|host| !host.is_empty() && !host.contains('/'))
            && !origin.contains(|c: char| c.is_ascii_uppercase() || c.is_whitespace() || c == '*');
        assert!(is_sound, "{origin:?} is no origin such as https://app.example");
        self.origins.push(origin.into());
        self
    }

    /// Allows the origins of which this function says so, beside those that are named. It
    /// should compare whole names: `https://app.example.evil.example` begins well too.
    pub fn origin_if(self, allows: impl Fn(&str) -> bool + Send + Sync + 'static) -> Cors {
        Cors { origin_if: Some(Arc::new(allows)), ..self }
    }

    /// Allows any origin, `*`: for what everybody may see.
    ///
    /// # Panics
    /// Together with [`credentials`](Cors::credentials), which the standard forbids: any site
    /// could then read what only the visitor should see.
    pub fn any_origin(self) -> Cors {
        Cors { any_origin: true, ..self }.checked()
    }

    /// Allows these methods, beside GET, HEAD and POST.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Cors {
        let names: Vec<_> = methods.into_iter().map(|method| method.to_string()).collect();
        Cors { methods: names.join(", "), ..self }
    }

    /// Allows requests with these fields, beside those that need no permission.
    pub fn headers(self, names: impl IntoIterator<Item = HeaderName>) -> Cors {
        Cors { headers: joined(names), ..self }
    }

    /// Lets scripts read these fields of responses, beside `Cache-Control`, `Content-Language`,
    /// `Content-Length`, `Content-Type`, `Expires`, `Last-Modified` and `Pragma`.
    pub fn expose(self, names: impl IntoIterator<Item = HeaderName>) -> Cors {
        Cors { exposed: joined(names), ..self }
    }

    /// Allows requests with the visitor's cookies and passwords, and the answers to be read.
    ///
    /// # Panics
    /// Together with [`any_origin`](Cors::any_origin).
    pub fn credentials(self) -> Cors {
        Cors { has_credentials: true, ..self }.checked()
    }

    /// How many seconds a browser may remember what it was told beforehand. Default: not
    /// said, for which browsers take 5 seconds. None keeps it longer than two hours to a day.
    pub fn max_age(self, seconds: u32) -> Cors {
        Cors { max_age: Some(seconds), ..self }
    }

    fn checked(self) -> Cors {
        assert!(
            !(self.any_origin && self.has_credentials),
            "credentials are not for any origin: name those that may see them"
        );
        self
    }

    /// What to put into `Access-Control-Allow-Origin`, if anything.
    fn allowed<'a>(&self, head: &'a Head) -> Option<&'a str> {
        let mut origins = head.headers().get_all("origin");
        let origin = match (origins.next(), origins.next()) {
            (Some(origin), None) => std::str::from_utf8(origin).ok()?,
            _ => return None,
        };
        if self.any_origin {
            return Some("*");
        }
        let is_allowed = self.origins.iter().any(|known| **known == *origin)
            || self.origin_if.as_ref().is_some_and(|allows| allows(origin));
        is_allowed.then_some(origin)
    }

    /// Adds what every answer to a page of another origin needs.
    fn admit(&self, response: &mut Response, allowed: Option<&str>) {
        if !self.any_origin {
            response.vary_by("origin");
        }
        let Some(origin) = allowed else { return };
        response.set_header(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.has_credentials {
            response.set_header(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
    }

    /// The answer to a question beforehand.
    fn preflight(&self, allowed: Option<&str>) -> Response {
        let mut response = Response::new(StatusCode::NO_CONTENT);
        self.admit(&mut response, allowed);
        if allowed.is_none() {
            return response;
        }
        if !self.methods.is_empty() {
            response.set_header(ACCESS_CONTROL_ALLOW_METHODS, &self.methods);
        }
        if !self.headers.is_empty() {
            response.set_header(ACCESS_CONTROL_ALLOW_HEADERS, &self.headers);
        }
        if let Some(seconds) = self.max_age {
            response.set_header(ACCESS_CONTROL_MAX_AGE, seconds.to_string());
        }
        response
    }
}

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
            return self.preflight(self.allowed(&request));
        }
        let head = request.head().clone();
        let mut response = next.call(request).await;
        if response.header(ACCESS_CONTROL_ALLOW_ORIGIN.as_str()).is_none() {
            let allowed = self.allowed(&head);
            self.admit(&mut response, allowed);
            if allowed.is_some() && !self.exposed.is_empty() {
                response.set_header(ACCESS_CONTROL_EXPOSE_HEADERS, &self.exposed);
            }
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

fn joined(names: impl IntoIterator<Item = HeaderName>) -> String {
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
            "/own" => response.with_header(ACCESS_CONTROL_ALLOW_ORIGIN, "https://own"),
            _ => response,
        }
    }

    /// The fields that have to do with it, in the order of their names, and the status.
    fn ask(cors: &Cors, line: &str, fields: &str) -> String {
        let head = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let reply = call(app.with(cors.clone()), request(head));
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
            .origin("https://a.example")
            .origin("http://localhost:3000")
            .origin_if(|origin| origin.ends_with(".b.example"))
            .methods([Method::PUT, Method::DELETE])
            .headers([CONTENT_TYPE, RANGE])
            .expose([ETAG])
            .credentials()
            .max_age(600)
    }

    #[test]
    fn answers() {
        let public = Cors::new().any_origin();
        let admitted = "200 | allow-credentials: true | allow-origin: ORIGIN | \
                        expose-headers: etag | vary: accept, origin";
        let refused = "200 | vary: accept, origin";
        for (cors, line, origin, expected) in [
            (&all(), "GET /", "https://a.example", admitted),
            (&all(), "POST /", "http://localhost:3000", admitted),
            (&all(), "GET /", "https://x.b.example", admitted),
            // Without the field that makes it a question, OPTIONS is a request like others.
            (&all(), "OPTIONS /", "https://a.example", admitted),
            (&all(), "GET /", "https://A.example", refused),
            (&all(), "GET /", "http://a.example", refused),
            (&all(), "GET /", "https://a.example:8443", refused),
            (&all(), "GET /", "https://a.example.evil", refused),
            (&all(), "GET /", "null", refused),
            (&all(), "GET /", "*", refused),
            (
                &all(),
                "GET /own",
                "https://a.example",
                "200 | allow-origin: https://own | vary: accept",
            ),
            (&public, "GET /", "https://x", "200 | allow-origin: * | vary: accept"),
            (&public, "GET /", "null", "200 | allow-origin: * | vary: accept"),
            (&Cors::new(), "GET /", "https://x", refused),
        ] {
            let expected = expected.replace("ORIGIN", origin);
            assert_eq!(
                ask(cors, line, &format!("Origin: {origin}\r\n")),
                expected,
                "{line} {origin}"
            );
        }
        assert_eq!(ask(&all(), "GET /", ""), refused);
        assert_eq!(ask(&public, "GET /", ""), "200 | vary: accept");
        let twice = "Origin: https://a.example\r\nOrigin: https://a.example\r\n";
        assert_eq!(ask(&all(), "GET /", twice), refused);
    }

    #[test]
    fn questions_beforehand() {
        let ask = |cors: &Cors, origin: &str| {
            let fields = format!("Origin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n");
            ask(cors, "OPTIONS /", &fields)
        };
        assert_eq!(
            ask(&all(), "https://a.example"),
            "204 | allow-credentials: true | allow-headers: content-type, range | \
             allow-methods: PUT, DELETE | allow-origin: https://a.example | max-age: 600 | \
             vary: origin"
        );
        assert_eq!(ask(&all(), "https://evil.example"), "204 | vary: origin");
        assert_eq!(ask(&Cors::new().any_origin(), "https://x"), "204 | allow-origin: *");
        let plain = Cors::new().origin("https://x");
        assert_eq!(ask(&plain, "https://x"), "204 | allow-origin: https://x | vary: origin");
    }

    #[test]
    fn a_question_without_an_origin_is_the_applications() {
        let fields = "Access-Control-Request-Method: PUT\r\n";
        assert_eq!(ask(&all(), "OPTIONS /", fields), "200 | vary: accept, origin");
    }

    #[test]
    fn what_would_be_unsafe_is_refused_at_once() {
        let refused = |make: fn() -> Cors| std::panic::catch_unwind(make).is_err();
        assert!(refused(|| Cors::new().any_origin().credentials()));
        assert!(refused(|| Cors::new().credentials().any_origin()));
        for origin in
            ["*", "null", "", "a.example", "https://", "https://A", "https://a/", "https://*.a"]
        {
            let made = std::panic::catch_unwind(|| Cors::new().origin(origin));
            assert!(made.is_err(), "{origin:?}");
        }
    }
}
