//! Dispatch of requests to applications by host.

use http::StatusCode;

use crate::app::{Application, BoxApplication};
use crate::message::request::Request;
use crate::message::response::Response;

/// Selects one of several applications by the host of the request.
///
/// ```
/// use weft::middleware::VirtualHosts;
/// use weft::{Request, Response, testing};
///
/// async fn shop(_: Request) -> Response { Response::text("Shop\n") }
/// async fn blog(_: Request) -> Response { Response::text("Blog\n") }
///
/// let app = VirtualHosts::new().host("shop.example", shop).host("*.blog.example", blog);
/// let send = |host| {
///     testing::call(app.clone(), testing::request(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")))
/// };
/// send("shop.example").assert_text("Shop\n");
/// send("anna.blog.example:8080").assert_text("Blog\n");
/// assert_eq!(send("elsewhere.example").status, 421);
/// ```
///
/// The host is taken from the target if that has one, otherwise from the `Host` field (RFC 9112
/// §3.2.2). Case, port and a trailing dot are ignored. An exact name takes precedence over
/// wildcards, and longer wildcards over shorter ones.
///
/// An unknown host gets 421, Misdirected Request: RFC 9110 §15.5.20 defines it for exactly this
/// case, a target that the server is not configured for (§4.3.1), while 404 would mean that the
/// host has no such page. Caches may store a 404, but never a 421. An HTTP/1.0 request without a
/// host is treated the same.
///
/// Each call makes one small allocation, because applications may be of different types.
#[derive(Clone, Debug, Default)]
pub struct VirtualHosts {
    names: Vec<Host>,
    /// Suffixes with the leading dot, without the star.
    wildcards: Vec<Host>,
    fallback: Option<BoxApplication>,
}

/// A lowercase name, the sort key of the lists, and its application.
type Host = (Box<str>, BoxApplication);

impl VirtualHosts {
    /// Creates a dispatcher without hosts.
    pub fn new() -> VirtualHosts {
        VirtualHosts::default()
    }

    /// Adds a host: `example.org`, or `*.example.org` for all names with that suffix, but not
    /// `example.org` itself. An address is written as in a URI (`192.0.2.1`, `[2001:db8::1]`), an
    /// internationalized name as in the DNS (`xn--…`).
    ///
    /// # Panics
    /// If `name` is not of one of these forms, or was added before.
    pub fn host(
        mut self,
        name: &str,
        app: impl Application + Clone + Send + 'static,
    ) -> VirtualHosts {
        let name = name.to_ascii_lowercase();
        let suffix = name.strip_prefix("*.");
        assert!(
            is_host(suffix.unwrap_or(&name)),
            "{name:?} is neither a host name nor `*.` followed by one"
        );
        let (list, key) = match suffix {
            Some(_) => (&mut self.wildcards, &name[1..]),
            None => (&mut self.names, &*name),
        };
        match position(list, key) {
            Ok(_) => panic!("duplicate host {name:?}"),
            Err(at) => list.insert(at, (key.into(), BoxApplication::new(app))),
        }
        self
    }

    /// Sets the application for all other hosts, in place of 421.
    pub fn fallback(self, app: impl Application + Clone + Send + 'static) -> VirtualHosts {
        VirtualHosts { fallback: Some(BoxApplication::new(app)), ..self }
    }

    fn find(&self, host: &str) -> Option<&BoxApplication> {
        find_in(&self.names, host).or_else(|| {
            // The star matches at least one byte.
            let mut dots = host.match_indices('.').filter(|&(dot, _)| dot > 0);
            dots.find_map(|(dot, _)| find_in(&self.wildcards, &host[dot..]))
        })
    }
}

impl Application for VirtualHosts {
    async fn call(&self, request: Request) -> Response {
        let found = request.host().and_then(|host| self.find(host));
        match found.or(self.fallback.as_ref()) {
            Some(app) => app.call(request).await,
            None => Response::from(StatusCode::MISDIRECTED_REQUEST),
        }
    }
}

fn find_in<'a>(list: &'a [Host], name: &str) -> Option<&'a BoxApplication> {
    let at = position(list, name).ok()?;
    Some(&list[at].1)
}

/// Position of a name in a list, or its insertion point, ignoring case.
fn position(list: &[Host], name: &str) -> Result<usize, usize> {
    let lowercase = || name.bytes().map(|b| b.to_ascii_lowercase());
    list.binary_search_by(|(entry, _)| entry.bytes().cmp(lowercase()))
}

fn is_host(name: &str) -> bool {
    match name.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').is_some_and(|address| address.contains(':')),
        None => {
            let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_allowed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn named(name: &'static str) -> impl Application + Clone + Send + 'static {
        async move |_: Request| Response::text(name)
    }

    fn body_text(app: VirtualHosts, head: &str) -> String {
        let reply = testing::call(app, testing::request(format!("{head}\r\n\r\n")));
        String::from_utf8(reply.body.to_vec()).unwrap()
    }

    fn hosts() -> VirtualHosts {
        VirtualHosts::new()
            .host("*.example.org", named("wildcard"))
            .host("Example.org", named("exact"))
            .host("*.b.example.org", named("longer"))
            .host("x.b.example.org", named("exact below"))
            .host("192.0.2.1", named("v4"))
            .host("[2001:db8::1]", named("v6"))
    }

    #[test]
    fn selects_the_application_by_host() {
        let unknown = "421 Misdirected Request\n";
        for (host, expected) in [
            ("example.org", "exact"),
            ("EXAMPLE.org", "exact"),
            ("example.org:8080", "exact"),
            ("example.org.", "exact"),
            ("example.org.:80", "exact"),
            ("example.org..", unknown),
            ("a.example.org", "wildcard"),
            ("A.EXAMPLE.ORG.:1", "wildcard"),
            ("a.c.example.org", "wildcard"),
            ("b.example.org", "wildcard"),
            ("a.b.example.org", "longer"),
            ("x.b.example.org", "exact below"),
            ("y.x.b.example.org", "longer"),
            (".example.org", unknown),
            ("aexample.org", unknown),
            ("example.org.evil", unknown),
            ("org", unknown),
            ("192.0.2.1:80", "v4"),
            ("[2001:DB8::1]:80", "v6"),
            ("[2001:db8::2]", unknown),
            ("", unknown),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: {host}");
            assert_eq!(body_text(hosts(), &head), expected, "{host}");
        }
    }

    #[test]
    fn target_takes_precedence_over_the_host_field() {
        let head = "GET http://example.org/ HTTP/1.1\r\nHost: a.example.org";
        assert_eq!(body_text(hosts(), head), "exact");
    }

    #[test]
    fn uses_the_fallback_for_other_hosts() {
        let app = hosts().fallback(named("other"));
        assert_eq!(body_text(app.clone(), "GET / HTTP/1.1\r\nHost: a"), "other");
        assert_eq!(body_text(app.clone(), "GET / HTTP/1.0"), "other");
        assert_eq!(body_text(app, "GET / HTTP/1.1\r\nHost: example.org"), "exact");
        assert_eq!(body_text(hosts(), "GET / HTTP/1.0"), "421 Misdirected Request\n");
    }

    #[test]
    fn panics_on_invalid_or_duplicate_hosts() {
        for name in ["", "*", "*.", "*a", "a.*", "**.a", "a:80", "a/b", "a..b", "a.", "::1", "[a]"]
        {
            let result = std::panic::catch_unwind(|| VirtualHosts::new().host(name, named("x")));
            assert!(result.is_err(), "{name:?}");
        }
        let duplicate = || VirtualHosts::new().host("a", named("x")).host("A", named("y"));
        assert!(std::panic::catch_unwind(duplicate).is_err());
    }
}
