//! Response fields: set, added and removed; security headers.

use http::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::{Response, field_value};

/// Changes fields of each response, in the order in which the changes are listed.
///
/// ```
/// use weft::middleware::ResponseHeaders;
/// use weft::{Application, Request, Response, header, testing};
///
/// async fn app(_: Request) -> Response {
///     Response::text("Hello\n").with_header(header::SERVER, "secret/1.2.3")
/// }
///
/// let app = app.wrap(
///     ResponseHeaders::new()
///         .set(header::SERVER, "Weft")
///         .add(header::LINK, "</style.css>; rel=preload; as=style")
///         .if_missing(header::CACHE_CONTROL, "no-cache"),
/// );
/// let reply = testing::get(app, "/");
/// assert_eq!(reply.header("server"), Some("Weft"));
/// assert_eq!(reply.header("cache-control"), Some("no-cache"));
/// ```
///
/// The engine sets `Content-Length` and `Transfer-Encoding`, and also `Date` and `Server` unless
/// they are set. The engine's error responses to malformed requests do not pass through here.
#[derive(Clone, Debug, Default)]
pub struct ResponseHeaders {
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Set(HeaderName, HeaderValue),
    Add(HeaderName, HeaderValue),
    IfMissing(HeaderName, HeaderValue),
    Remove(HeaderName),
}

impl ResponseHeaders {
    /// Creates the middleware without any change.
    pub fn new() -> ResponseHeaders {
        ResponseHeaders::default()
    }

    /// Sets a field, replacing all fields of that name. In values, here and below, a byte that is
    /// invalid in a field becomes a space.
    pub fn set(self, name: HeaderName, value: impl AsRef<[u8]>) -> ResponseHeaders {
        self.change(Change::Set(name, field_value(value.as_ref())))
    }

    /// Adds a field, keeping existing fields of that name.
    pub fn add(self, name: HeaderName, value: impl AsRef<[u8]>) -> ResponseHeaders {
        self.change(Change::Add(name, field_value(value.as_ref())))
    }

    /// Adds a field unless the response has one of that name.
    pub fn if_missing(self, name: HeaderName, value: impl AsRef<[u8]>) -> ResponseHeaders {
        self.change(Change::IfMissing(name, field_value(value.as_ref())))
    }

    /// Removes all fields of that name.
    pub fn remove(self, name: HeaderName) -> ResponseHeaders {
        self.change(Change::Remove(name))
    }

    fn change(mut self, change: Change) -> ResponseHeaders {
        self.changes.push(change);
        self
    }
}

impl Middleware for ResponseHeaders {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let mut response = next.call(request).await;
        for change in &self.changes {
            match change {
                Change::Set(name, value) => response.set_header(name, value),
                Change::Add(name, value) => add(&mut response, name, value),
                Change::IfMissing(name, value) => add_if_missing(&mut response, name, value),
                Change::Remove(name) => response.remove_header(name),
            }
        }
        response
    }
}

/// Adds fields that enable protections in browsers. Fields set by the application are kept.
///
/// ```
/// use weft::middleware::SecurityHeaders;
/// use weft::{Application, Request, Response, header, testing};
///
/// async fn app(_: Request) -> Response {
///     Response::html("<p>Hello").with_header(header::REFERRER_POLICY, "no-referrer")
/// }
///
/// let reply = testing::get(app.wrap(SecurityHeaders::new()), "/");
/// assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
/// assert_eq!(reply.header("x-frame-options"), Some("SAMEORIGIN"));
/// assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
/// ```
///
/// | field | default | effect |
/// | --- | --- | --- |
/// | `X-Content-Type-Options` | `nosniff` | browsers use `Content-Type` as sent and do not run text as a script |
/// | `Referrer-Policy` | `strict-origin-when-cross-origin` | other sites get the origin of a link, not its page; the default of current browsers |
/// | `X-Frame-Options` | `SAMEORIGIN` | other sites cannot embed a page in a frame (clickjacking); `frame-ancestors` in the application's own policy takes precedence |
/// | `Strict-Transport-Security` | none | see [`hsts`](SecurityHeaders::hsts) |
/// | `Content-Security-Policy` | none | depends on the site |
#[derive(Clone, Debug)]
pub struct SecurityHeaders {
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl SecurityHeaders {
    /// Adds the default fields.
    pub fn new() -> SecurityHeaders {
        let fields = [
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "strict-origin-when-cross-origin"),
            (X_FRAME_OPTIONS, "SAMEORIGIN"),
        ];
        let field = |(name, value)| (name, HeaderValue::from_static(value));
        SecurityHeaders { fields: fields.map(field).into() }
    }

    /// Makes browsers use only HTTPS for this many seconds after each response
    /// (`Strict-Transport-Security`, RFC 6797): a site that stops serving HTTPS is unreachable
    /// for that time. Start with 300; the usual final value is a year, 31,536,000.
    ///
    /// Browsers ignore the field in an unencrypted response (§8.1).
    pub fn hsts(self, seconds: u64) -> SecurityHeaders {
        self.with(STRICT_TRANSPORT_SECURITY, format!("max-age={seconds}"))
    }

    /// Like [`hsts`](SecurityHeaders::hsts), also for all subdomains. All of them must serve
    /// HTTPS.
    pub fn hsts_with_subdomains(self, seconds: u64) -> SecurityHeaders {
        self.with(STRICT_TRANSPORT_SECURITY, format!("max-age={seconds}; includeSubDomains"))
    }

    /// Adds `Content-Security-Policy` unless the application has set one.
    pub fn content_security_policy(self, policy: &str) -> SecurityHeaders {
        self.with(CONTENT_SECURITY_POLICY, policy)
    }

    /// Adds another field, such as `Permissions-Policy`, or sets another value for one of these.
    pub fn with(mut self, name: HeaderName, value: impl AsRef<[u8]>) -> SecurityHeaders {
        self = self.without(name.clone());
        self.fields.push((name, field_value(value.as_ref())));
        self
    }

    /// Removes one of these fields, leaving it to the application.
    pub fn without(mut self, name: HeaderName) -> SecurityHeaders {
        self.fields.retain(|(existing, _)| *existing != name);
        self
    }
}

impl Default for SecurityHeaders {
    fn default() -> SecurityHeaders {
        SecurityHeaders::new()
    }
}

impl Middleware for SecurityHeaders {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let mut response = next.call(request).await;
        for (name, value) in &self.fields {
            add_if_missing(&mut response, name, value);
        }
        response
    }
}

// These push a clone of a validated value, so that all responses share it.

fn add(response: &mut Response, name: &HeaderName, value: &HeaderValue) {
    response.headers.to_mut().push((name.clone(), value.clone()));
}

fn add_if_missing(response: &mut Response, name: &HeaderName, value: &HeaderValue) {
    if !response.headers.iter().any(|(existing, _)| existing == name) {
        add(response, name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::get;
    use http::StatusCode;
    use http::header::{CACHE_CONTROL, SERVER, VIA};

    async fn app(_: Request) -> Response {
        Response::new(StatusCode::NOT_FOUND)
            .with_header(VIA, "a")
            .with_header(SERVER, "app")
            .with_appended_header(VIA, "b")
    }

    /// The fields of the application as `name: value`.
    fn fields(middleware: impl Middleware) -> Vec<String> {
        let reply = get(app.wrap(middleware), "/");
        let line = |(name, value): &(HeaderName, HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        let added = ["date: ", "content-length: ", "server: weft"];
        let is_added = |line: &String| added.iter().any(|added| line.starts_with(added));
        reply.headers.iter().map(line).filter(|line| !is_added(line)).collect()
    }

    #[test]
    fn applies_changes_in_order() {
        let new = ResponseHeaders::new;
        for (changes, expected) in [
            (new(), vec!["via: a", "server: app", "via: b"]),
            (new().set(VIA, "c"), vec!["via: c", "server: app"]),
            (new().add(VIA, "c"), vec!["via: a", "server: app", "via: b", "via: c"]),
            (new().remove(VIA), vec!["server: app"]),
            (new().remove(CACHE_CONTROL), vec!["via: a", "server: app", "via: b"]),
            (new().if_missing(VIA, "c"), vec!["via: a", "server: app", "via: b"]),
            (new().remove(VIA).if_missing(VIA, "c"), vec!["server: app", "via: c"]),
            (new().set(VIA, "c\r\nX: y").remove(SERVER), vec!["via: c  X: y"]),
        ] {
            assert_eq!(fields(changes), expected);
        }
    }

    #[test]
    fn adds_missing_security_headers() {
        let new = SecurityHeaders::new;
        let from_app = ["via: a", "server: app", "via: b"];
        let defaults = [
            "x-content-type-options: nosniff",
            "referrer-policy: strict-origin-when-cross-origin",
            "x-frame-options: SAMEORIGIN",
        ];
        for (headers, added) in [
            (new(), defaults.to_vec()),
            (new().without(X_FRAME_OPTIONS), defaults[..2].to_vec()),
            (
                new().with(X_FRAME_OPTIONS, "DENY"),
                [&defaults[..2], &["x-frame-options: DENY"]].concat(),
            ),
            (new().with(SERVER, "mine").with(VIA, "mine"), defaults.to_vec()),
            (
                new().hsts(300),
                [&defaults[..], &["strict-transport-security: max-age=300"]].concat(),
            ),
            (
                new().hsts(1).hsts_with_subdomains(2),
                [&defaults[..], &["strict-transport-security: max-age=2; includeSubDomains"]]
                    .concat(),
            ),
            (
                new().content_security_policy("default-src 'self'"),
                [&defaults[..], &["content-security-policy: default-src 'self'"]].concat(),
            ),
        ] {
            assert_eq!(fields(headers), [&from_app[..], &added].concat());
        }
    }
}
