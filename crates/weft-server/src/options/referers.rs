//! Hosts whose pages may refer to the resources of a route, as with `valid_referers` of nginx.

use std::sync::Arc;

use weft::{Application, Middleware, Request, Response, StatusCode};
use weft_config::{ConfigResult, Key, Located, ValueKind};

use super::layer::{Layer, OpenContext};
use super::{RouteOption, RouteOptions, show_list};
use crate::base::host_name::host_name;

/// Hosts that may refer to a route, besides its own. An empty list permits all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RefererOptions {
    hosts: Option<Vec<String>>,
}

impl RouteOption for RefererOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "referers",
        help: "hosts whose pages may refer to the resources, such as example.org or *.example.org, \
               besides the requested host; requests with another `Referer`: 403; [] permits all",
        kind: ValueKind::Texts(set_hosts),
        show: |options| show_list(options.hosts.as_ref()),
        ..Key::FILE_ONLY
    }];

    fn or(self, outer: &Self) -> Self {
        RefererOptions { hosts: self.hosts.or_else(|| outer.hosts.clone()) }
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let hosts = self.hosts.as_ref().filter(|hosts| !hosts.is_empty());
        let filter = hosts.map(|hosts| RefererFilter(hosts.as_slice().into()));
        Ok(filter.map(Layer::of_middleware).into_iter().collect())
    }
}

fn set_hosts(options: &mut RefererOptions, texts: Vec<Located<String>>) -> ConfigResult {
    let host = |text: Located<String>| host_name(&text.value).map_err(|it| text.problem(it));
    options.hosts = Some(texts.into_iter().map(host).collect::<ConfigResult<_>>()?);
    Ok(())
}

/// Refuses requests that pages of other hosts cause. A client may omit or forge the field, so that
/// this prevents embedding, not access.
#[derive(Clone)]
struct RefererFilter(Arc<[String]>);

impl RefererFilter {
    fn permits(&self, request: &Request) -> bool {
        let own = request.head().host().unwrap_or_default();
        let mut referers = request.headers().get_all("referer");
        referers.all(|referer| match host_of_url(referer) {
            Some(host) => host.eq_ignore_ascii_case(own) || self.lists(&host),
            // Another scheme, such as `about:blank` (RFC 9110 §10.1.3), is no page of a host.
            None => true,
        })
    }

    fn lists(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        self.0.iter().any(|listed| match listed.strip_prefix('*') {
            Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            None => listed == host,
        })
    }
}

/// Returns the host of a URL in lower case; `None` if it is not a URL of HTTP.
fn host_of_url(url: &[u8]) -> Option<String> {
    let url = String::from_utf8_lossy(url).to_ascii_lowercase();
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    let host = match host_and_port.split_once(']') {
        Some((address, _)) => &host_and_port[..address.len() + 1],
        None => host_and_port.split(':').next().unwrap_or_default(),
    };
    Some(host.to_owned())
}

impl Middleware for RefererFilter {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.permits(&request) {
            true => next.call(request).await,
            false => StatusCode::FORBIDDEN.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft::testing::{call, request};

    use super::*;

    #[test]
    fn refuses_requests_from_pages_of_other_hosts() {
        let mut options = RefererOptions::default();
        let hosts = ["Example.org", "*.example.net", "[2001:db8::1]"];
        let hosts = hosts.map(|host| Located::without_location(host.to_owned()));
        set_hosts(&mut options, hosts.into()).unwrap();
        let filter = RefererFilter(options.hosts.unwrap().into());
        for (fields, expected) in [
            ("", 200),
            ("Referer: http://own/page\r\n", 200),
            ("Referer: https://OWN:8443/\r\n", 200),
            ("Referer: http://example.org\r\n", 200),
            ("Referer: HTTPS://user@Example.ORG:443?q\r\n", 200),
            ("Referer: http://www.example.org/\r\n", 403),
            ("Referer: http://a.b.example.net/\r\n", 200),
            ("Referer: http://example.net/\r\n", 403),
            ("Referer: http://badexample.net/\r\n", 403),
            ("Referer: http://[2001:db8::1]:80/\r\n", 200),
            ("Referer: http://evil.example/?http://example.org/\r\n", 403),
            ("Referer: http://example.org@evil.example/\r\n", 403),
            ("Referer: http://own/\r\nReferer: http://evil.example/\r\n", 403),
            ("Referer: http:///\r\n", 403),
            ("Referer: about:blank\r\n", 200),
        ] {
            let request = request(format!("GET / HTTP/1.1\r\nHost: own\r\n{fields}\r\n"));
            let app = async |_: Request| Response::text("");
            let response = call(app.wrap(filter.clone()), request);
            assert_eq!(response.status.as_u16(), expected, "{fields}");
        }
    }

    #[test]
    fn refuses_invalid_hosts() {
        let set = |host: &str| {
            let hosts = vec![Located::without_location(host.to_owned())];
            set_hosts(&mut RefererOptions::default(), hosts)
        };
        assert_eq!(set("example.org"), Ok(()));
        assert!(set("https://example.org/").is_err());
    }
}
