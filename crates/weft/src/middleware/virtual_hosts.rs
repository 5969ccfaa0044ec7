//! An application for each host.

use http::StatusCode;

use crate::app::{Application, BoxApplication};
use crate::message::request::Request;
use crate::message::response::Response;

/// Several applications behind one address, told apart by the host that a request is for.
///
/// ```
/// use weft::middleware::VirtualHosts;
/// use weft::{Request, Response, testing};
///
/// async fn shop(_: Request) -> Response { Response::text("Shop\n") }
/// async fn blog(_: Request) -> Response { Response::text("Blog\n") }
///
/// let app = VirtualHosts::new().host("shop.example", shop).host("*.blog.example", blog);
/// let ask = |host| {
///     testing::call(app.clone(), testing::request(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")))
/// };
/// ask("shop.example").assert_text("Shop\n");
/// ask("anna.blog.example:8080").assert_text("Blog\n");
/// assert_eq!(ask("elsewhere.example").status, 421);
/// ```
///
/// The host is the target's if that has one, else the `Host` field's (RFC 9112 §3.2.2). Its
/// case, its port and a final dot do not matter. A name that is given exactly goes before
/// wildcards, and of those the longest is taken.
///
/// A host that nobody answers for gets 421, Misdirected Request: RFC 9110 §15.5.20 has it for
/// exactly this, a target that the server is not configured for (§4.3.1), where 404 would say
/// that the host has no such page. Caches keep a 404, but never a 421. A request of HTTP/1.0
/// that names no host is treated the same.
///
/// Each call makes one small allocation, since applications may be of different types.
#[derive(Clone, Debug, Default)]
pub struct VirtualHosts {
    names: Vec<Host>,
    /// With the dot, without the star.
    wildcards: Vec<Host>,
    others: Option<BoxApplication>,
}

/// A name in small letters, by which the lists are sorted.
type Host = (Box<str>, BoxApplication);

impl VirtualHosts {
    /// No host.
    pub fn new() -> VirtualHosts {
        VirtualHosts::default()
    }

    /// Adds a host: `example.org`, or `*.example.org` for all names that end in that, but not
    /// `example.org` itself. An address is written as in a URI (`192.0.2.1`, `[2001:db8::1]`),
    /// a name in other letters than ASCII as it is in the DNS (`xn--…`).
    ///
    /// # Panics
    /// If that is neither, or was given before.
    pub fn host(
        mut self,
        name: &str,
        app: impl Application + Clone + Send + 'static,
    ) -> VirtualHosts {
        let name = name.to_ascii_lowercase();
        let below = name.strip_prefix("*.");
        assert!(
            is_host(below.unwrap_or(&name)),
            "{name:?} is neither the name of a host nor `*.` and one"
        );
        let (list, key) = match below {
            Some(_) => (&mut self.wildcards, &name[1..]),
            None => (&mut self.names, &*name),
        };
        match position(list, key) {
            Ok(_) => panic!("the host {name:?} was given twice"),
            Err(at) => list.insert(at, (key.into(), BoxApplication::new(app))),
        }
        self
    }

    /// Sets what answers for all other hosts, in place of 421.
    pub fn otherwise(self, app: impl Application + Clone + Send + 'static) -> VirtualHosts {
        VirtualHosts { others: Some(BoxApplication::new(app)), ..self }
    }

    fn find(&self, host: &str) -> Option<&BoxApplication> {
        find_in(&self.names, host).or_else(|| {
            // What the star stands for is not empty.
            let mut dots = host.match_indices('.').filter(|&(dot, _)| dot > 0);
            dots.find_map(|(dot, _)| find_in(&self.wildcards, &host[dot..]))
        })
    }
}

impl Application for VirtualHosts {
    async fn call(&self, request: Request) -> Response {
        let found = request.host().and_then(|host| self.find(host));
        match found.or(self.others.as_ref()) {
            Some(app) => app.call(request).await,
            None => Response::from(StatusCode::MISDIRECTED_REQUEST),
        }
    }
}

fn find_in<'a>(list: &'a [Host], name: &str) -> Option<&'a BoxApplication> {
    let at = position(list, name).ok()?;
    Some(&list[at].1)
}

/// Where a name is in a list, or where it would be, without regard to its case.
fn position(list: &[Host], name: &str) -> Result<usize, usize> {
    let small = || name.bytes().map(|b| b.to_ascii_lowercase());
    list.binary_search_by(|(known, _)| known.bytes().cmp(small()))
}

fn is_host(name: &str) -> bool {
    match name.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').is_some_and(|address| address.contains(':')),
        None => {
            let is_known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_known))
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

    fn answer(app: VirtualHosts, head: &str) -> String {
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
    fn hosts_are_told_apart() {
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
            assert_eq!(answer(hosts(), &head), expected, "{host}");
        }
    }

    #[test]
    fn the_target_goes_before_the_field() {
        let head = "GET http://example.org/ HTTP/1.1\r\nHost: a.example.org";
        assert_eq!(answer(hosts(), head), "exact");
    }

    #[test]
    fn others() {
        let app = hosts().otherwise(named("other"));
        assert_eq!(answer(app.clone(), "GET / HTTP/1.1\r\nHost: a"), "other");
        assert_eq!(answer(app.clone(), "GET / HTTP/1.0"), "other");
        assert_eq!(answer(app, "GET / HTTP/1.1\r\nHost: example.org"), "exact");
        assert_eq!(answer(hosts(), "GET / HTTP/1.0"), "421 Misdirected Request\n");
    }

    #[test]
    fn what_is_no_host_is_refused_at_once() {
        for name in ["", "*", "*.", "*a", "a.*", "**.a", "a:80", "a/b", "a..b", "a.", "::1", "[a]"]
        {
            let made = std::panic::catch_unwind(|| VirtualHosts::new().host(name, named("x")));
            assert!(made.is_err(), "{name:?}");
        }
        let twice = || VirtualHosts::new().host("a", named("x")).host("A", named("y"));
        assert!(std::panic::catch_unwind(twice).is_err());
    }
}
