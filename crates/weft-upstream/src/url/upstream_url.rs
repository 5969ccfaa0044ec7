//! The URL of an upstream: its address, and the path prefix of its requests. Pure.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use http::Uri;

/// `http://host:port/path/`, `https://…`, `h2c://…`, `unix:/socket` or `unix:/socket:/path/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamUrl {
    text: String,
    pub(crate) address: UpstreamAddress,
    scheme: Scheme,
    /// The host is the name of a service (SRV), whose servers are the upstreams.
    is_service: bool,
    /// Host and port as in the URL; `localhost` for a Unix socket.
    pub(crate) authority: String,
    /// Prefix for the paths of requests, without a slash at the end.
    pub(crate) path: String,
    /// Set if the prefix was given with a slash at its end.
    has_final_slash: bool,
}

/// The address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UpstreamAddress {
    Tcp {
        /// Name or IP address, without brackets.
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

/// The security of connections to an upstream, and the version of HTTP if the URL determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scheme {
    /// No TLS. Unix sockets and protocols other than HTTP have this scheme, too.
    Http,
    /// TLS. Addresses with `tls://`, for protocols other than HTTP, have this scheme, too.
    Https,
    /// HTTP/2 by prior knowledge, without TLS.
    H2c,
}

/// Begins the URL of a service in the DNS (RFC 2782).
const SERVICE_PREFIX: &str = "srv+";

impl UpstreamUrl {
    /// Returns true if the upstream uses TLS.
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Returns true for HTTP/2 by prior knowledge, without TLS.
    pub(crate) fn is_h2c(&self) -> bool {
        self.scheme == Scheme::H2c
    }

    /// Returns true if the URL has a path other than a slash.
    pub(crate) fn has_path(&self) -> bool {
        !self.path.is_empty()
    }

    /// Parses the address of an upstream that uses FastCGI: `unix:/SOCKET` or `HOST:PORT`, or
    /// `srv+fastcgi://SERVICE` for the servers of a service in the DNS.
    ///
    /// # Errors
    /// If the text has another form. The error states the expected form.
    pub fn fastcgi(text: &str) -> Result<UpstreamUrl, String> {
        UpstreamUrl::without_path(text, "fastcgi://", "127.0.0.1:9000")
    }

    /// Parses the address of an upstream that uses SCGI: `unix:/SOCKET` or `HOST:PORT`, or
    /// `srv+scgi://SERVICE`.
    ///
    /// # Errors
    /// If the text has another form. The error states the expected form.
    pub fn scgi(text: &str) -> Result<UpstreamUrl, String> {
        UpstreamUrl::without_path(text, "scgi://", "127.0.0.1:4000")
    }

    /// Parses the address of an upstream that uses uwsgi: `unix:/SOCKET` or `HOST:PORT`, or
    /// `srv+uwsgi://SERVICE`.
    ///
    /// # Errors
    /// If the text has another form. The error states the expected form.
    pub fn uwsgi(text: &str) -> Result<UpstreamUrl, String> {
        UpstreamUrl::without_path(text, "uwsgi://", "127.0.0.1:3031")
    }

    /// Parses the address of an upstream without HTTP: `unix:/SOCKET`, `HOST:PORT`, or
    /// `tls://HOST:PORT` for connections with TLS. `srv+tcp://SERVICE` and `srv+udp://SERVICE`
    /// stand for the servers of a service: a stream of TCP sends them connections, and a stream of
    /// UDP datagrams.
    ///
    /// # Errors
    /// If the text has another form. The error states the expected form.
    pub fn tcp(text: &str) -> Result<UpstreamUrl, String> {
        if text.strip_prefix(SERVICE_PREFIX).is_some_and(|url| url.starts_with("tls://")) {
            // The DNS is not authenticated.
            let reason =
                "records of the DNS do not prove the names in certificates; use srv+tcp://";
            return Err(format!("{text}: {reason}"));
        }
        let is_tls = text.starts_with("tls://");
        let is_udp_service =
            text.strip_prefix(SERVICE_PREFIX).is_some_and(|url| url.starts_with("udp://"));
        let scheme = match (is_tls, is_udp_service) {
            (true, _) => "tls://",
            (_, true) => "udp://",
            _ => "tcp://",
        };
        let mut url = UpstreamUrl::without_path(text, scheme, "127.0.0.1:5432")?;
        if is_tls && url.is_unix() {
            return Err(format!("{text}: expected tls://HOST:PORT"));
        }
        if is_tls {
            url.scheme = Scheme::Https;
        }
        Ok(url)
    }

    fn without_path(text: &str, scheme: &str, example: &str) -> Result<UpstreamUrl, String> {
        if let Some(rest) = text.strip_prefix(SERVICE_PREFIX) {
            let Some(name) = rest.strip_prefix(scheme).filter(|name| !name.contains('/')) else {
                return Err(format!("{text}: expected {SERVICE_PREFIX}{scheme}SERVICE"));
            };
            let url: UpstreamUrl = format!("http://{name}").parse()?;
            return url.into_service(text);
        }
        let expected = || format!("{text}: expected unix:/SOCKET or HOST:PORT, such as {example}");
        let address = text.strip_prefix(scheme).unwrap_or(text);
        let is_unix = address.starts_with("unix:");
        let has_port =
            address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !is_unix && (address.contains('/') || !has_port) {
            return Err(expected());
        }
        let url: UpstreamUrl =
            if is_unix { address.parse()? } else { format!("http://{address}").parse()? };
        match url.path.is_empty() {
            true => Ok(UpstreamUrl { text: text.to_owned(), ..url }),
            false => Err(expected()),
        }
    }

    /// Parses the URL of an upstream of a route, which may be `srv+http://SERVICE/`, `srv+https://`
    /// or `srv+h2c://` for the servers of a service in the DNS.
    ///
    /// # Errors
    /// If the text has another form. The error states the expected form.
    pub fn parse_member(text: &str) -> Result<UpstreamUrl, String> {
        match text.strip_prefix(SERVICE_PREFIX) {
            Some(url) => url.parse::<UpstreamUrl>()?.into_service(text),
            None => text.parse(),
        }
    }

    /// Makes this the URL of a service. `text` is the URL as it is written.
    fn into_service(self, text: &str) -> Result<UpstreamUrl, String> {
        let invalid = |reason: &str| Err(format!("{text}: {reason}"));
        match &self.address {
            UpstreamAddress::Unix(_) => return invalid("a service has a name"),
            UpstreamAddress::Tcp { host, .. } if host.parse::<IpAddr>().is_ok() => {
                return invalid("expected the name of a service, such as _http._tcp.example.org");
            }
            UpstreamAddress::Tcp { host, .. } if *host != self.authority => {
                return invalid("the records of a service have its ports");
            }
            UpstreamAddress::Tcp { .. } => {}
        }
        Ok(UpstreamUrl { text: text.to_owned(), is_service: true, ..self })
    }

    /// Returns true if the servers of a service are the upstreams.
    pub fn is_service(&self) -> bool {
        self.is_service
    }

    /// Returns the name of the host or of the service. It is empty for a Unix socket.
    pub fn host(&self) -> &str {
        match &self.address {
            UpstreamAddress::Tcp { host, .. } => host,
            UpstreamAddress::Unix(_) => "",
        }
    }

    /// Returns true if the host is a name, which is resolved.
    pub fn has_name(&self) -> bool {
        !self.is_unix() && self.host().parse::<IpAddr>().is_err()
    }

    /// Returns the URL of a server of this service.
    pub fn of_server(&self, host: &str, port: u16) -> Option<UpstreamUrl> {
        let (scheme, _) = self.text.strip_prefix(SERVICE_PREFIX)?.split_once("://")?;
        match scheme {
            "http" | "https" | "h2c" => {
                let slash = if self.has_final_slash { "/" } else { "" };
                format!("{scheme}://{host}:{port}{}{slash}", self.path).parse().ok()
            }
            _ => UpstreamUrl::tcp(&format!("{host}:{port}")).ok(),
        }
    }

    /// Returns the path of a Unix socket.
    pub fn socket_path(&self) -> Option<&Path> {
        match &self.address {
            UpstreamAddress::Unix(path) => Some(path),
            _ => None,
        }
    }

    /// Returns true for a Unix socket.
    pub fn is_unix(&self) -> bool {
        matches!(self.address, UpstreamAddress::Unix(_))
    }

    /// Returns host and port, or `unix:` and the path of a socket.
    pub(crate) fn location(&self) -> String {
        match &self.address {
            UpstreamAddress::Tcp { host, port, .. } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            UpstreamAddress::Tcp { host, port, .. } => format!("{host}:{port}"),
            UpstreamAddress::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Returns the path behind the prefix if the path of a request is the prefix of its route,
    /// without a slash: a route `/hook` to `http://app/hook` sends `/hook`.
    pub(crate) fn path_of_route(&self) -> &'static str {
        if self.path.is_empty() || self.has_final_slash { "/" } else { "" }
    }

    /// Returns true if both have the same address and path, however they are written:
    /// `http://app` and `http://app:80/`.
    pub fn is_same_upstream(&self, other: &UpstreamUrl) -> bool {
        self.is_service == other.is_service && self.has_address_of(other) && self.path == other.path
    }

    fn has_address_of(&self, other: &UpstreamUrl) -> bool {
        match (&self.address, &other.address) {
            (
                UpstreamAddress::Tcp { host: a, port: a_port },
                UpstreamAddress::Tcp { host: b, port: b_port },
            ) => a.eq_ignore_ascii_case(b) && (a_port, self.is_tls()) == (b_port, other.is_tls()),
            (a, b) => a == b,
        }
    }

    /// Returns the rest of a URL behind this URL and a slash: path, query and fragment. `None`: the
    /// URL has another address, or is not beneath the path of this one.
    pub(crate) fn path_within(&self, url: &str) -> Option<String> {
        let (base, behind) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
        let (scheme, rest) = base.split_once("://")?;
        let path_at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        let origin: UpstreamUrl =
            format!("{}://{authority}", scheme.to_ascii_lowercase()).parse().ok()?;
        let path = path.strip_prefix(&*self.path)?;
        let is_within = self.has_address_of(&origin) && (path.is_empty() || path.starts_with('/'));
        is_within.then(|| [path.strip_prefix('/').unwrap_or_default(), behind].concat())
    }
}

impl FromStr for UpstreamUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<UpstreamUrl, String> {
        let invalid = |reason: &str| format!("{text}: {reason}");
        if text.ends_with(',') || text.contains(",http") || text.contains(",unix:") {
            return Err(invalid("URLs are separated by spaces, without a comma"));
        }
        let (address, scheme, authority, path) = if let Some(rest) = text.strip_prefix("unix:") {
            let (socket, path) = rest.split_once(":/").unwrap_or((rest, ""));
            if !socket.starts_with('/') {
                return Err(invalid("expected the path of a socket, such as unix:/run/app.sock"));
            }
            let (address, authority) =
                (UpstreamAddress::Unix(socket.into()), "localhost".to_owned());
            (address, Scheme::Http, authority, format!("/{path}"))
        } else {
            if !text.contains("://") && has_port(text) {
                return Err(invalid(&format!("an upstream is a URL: http://{text}")));
            }
            let host = text.split_once("://").map_or("", |(_, rest)| rest);
            if text.contains('{') || host.split('/').next().is_some_and(|it| it.contains('$')) {
                return Err(invalid(
                    "the URL of an upstream has no placeholders; routes with `when` choose upstreams",
                ));
            }
            let uri: Uri =
                text.parse().map_err(|error| invalid(&format!("invalid URL: {error}")))?;
            let scheme = match uri.scheme_str() {
                Some("http") => Scheme::Http,
                Some("https") => Scheme::Https,
                Some("h2c") => Scheme::H2c,
                _ => return Err(invalid("expected http://, https://, h2c:// or unix:/")),
            };
            let authority = uri.authority().ok_or_else(|| invalid("expected a host"))?;
            if authority.as_str().contains('@') {
                return Err(invalid("the URL of an upstream must not contain user information"));
            }
            let host = authority.host();
            let port = match authority.as_str().strip_prefix(host).unwrap_or_default() {
                "" if scheme == Scheme::Https => 443,
                "" => 80,
                port => {
                    let port = port.trim_start_matches(':').parse();
                    port.map_err(|_| invalid("expected a port number after the colon"))?
                }
            };
            let host = host.trim_start_matches('[').trim_end_matches(']');
            if host.is_empty() {
                return Err(invalid("expected a host"));
            }
            let address = UpstreamAddress::Tcp { host: host.to_owned(), port };
            (address, scheme, authority.as_str().to_owned(), uri.path().to_owned())
        };
        if text.contains(['?', '#']) {
            return Err(invalid("the URL of an upstream must not have a query or a fragment"));
        }
        if path.parse::<Uri>().is_err() {
            return Err(invalid("the path contains characters that are not allowed in a request"));
        }
        let has_final_slash = path.ends_with('/');
        let path = path.trim_end_matches('/').to_owned();
        let text = text.to_owned();
        let is_service = false;
        Ok(UpstreamUrl { text, address, scheme, is_service, authority, path, has_final_slash })
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns true for an address without a scheme, such as `localhost:3000`.
fn has_port(text: &str) -> bool {
    let authority = text.split('/').next().unwrap_or_default();
    authority.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_upstream_urls() {
        use Scheme::*;
        let tcp = |host: &str, port, scheme| {
            (UpstreamAddress::Tcp { host: host.to_owned(), port }, scheme)
        };
        let unix = |path: &str| (UpstreamAddress::Unix(path.into()), Http);
        for (text, expected) in [
            ("http://127.0.0.1:3000/", Some((tcp("127.0.0.1", 3000, Http), "127.0.0.1:3000", ""))),
            ("http://app", Some((tcp("app", 80, Http), "app", ""))),
            ("https://app/a/b/", Some((tcp("app", 443, Https), "app", "/a/b"))),
            ("h2c://app", Some((tcp("app", 80, H2c), "app", ""))),
            ("https://app/a//", Some((tcp("app", 443, Https), "app", "/a"))),
            ("http://[::1]:8080/x", Some((tcp("::1", 8080, Http), "[::1]:8080", "/x"))),
            ("unix:/run/app.sock", Some((unix("/run/app.sock"), "localhost", ""))),
            ("unix:/run/app.sock:/", Some((unix("/run/app.sock"), "localhost", ""))),
            ("unix:/run/app.sock:/a/", Some((unix("/run/app.sock"), "localhost", "/a"))),
            ("", None),
            ("http://a/,", None),
            ("http://a/,http://b/", None),
            ("app:3000", None),
            ("127.0.0.1:3000", None),
            ("/path", None),
            ("ftp://app/", None),
            ("http://", None),
            ("http://:80/", None),
            ("http://app:/", None),
            ("http://app:66000/", None),
            ("http://user@app/", None),
            ("http://app/?q", None),
            ("http://app/#f", None),
            ("srv+http://app", None),
            ("unix:app.sock", None),
            ("unix:/run/app.sock:/a b", None),
        ] {
            let url = text.parse::<UpstreamUrl>().ok();
            let parts = url
                .as_ref()
                .map(|url| ((url.address.clone(), url.scheme), &*url.authority, &*url.path));
            assert_eq!(parts, expected, "{text}");
        }
    }

    #[test]
    fn parses_services() {
        for (text, expected) in [
            ("srv+http://_http._tcp.a.example", Ok("http://b:81/")),
            ("srv+https://_http._tcp.a.example/x/", Ok("https://b:81/x/")),
            ("srv+h2c://a.example/x", Ok("h2c://b:81/x")),
            ("srv+http://a.example:80/", Err("the records of a service have its ports")),
            ("srv+http://127.0.0.1/", Err("expected the name of a service")),
            ("srv+http://[::1]/", Err("expected the name of a service")),
            ("srv+unix:/run/a", Err("a service has a name")),
            ("srv+tcp://a", Err("expected http://")),
            ("srv://a", Err("expected http://")),
            ("localhost:3000", Err("an upstream is a URL: http://localhost:3000")),
            ("10.0.0.1:80/x", Err("an upstream is a URL: http://10.0.0.1:80/x")),
            ("http://{map.a}.b/", Err("the URL of an upstream has no placeholders")),
            ("http://$backend/", Err("the URL of an upstream has no placeholders")),
        ] {
            check_service(text, UpstreamUrl::parse_member, expected);
        }
        for (text, expected) in [
            ("srv+fastcgi://_fcgi._tcp.a.example", Ok("b:81")),
            ("srv+fastcgi://a:9000", Err("the records of a service have its ports")),
            ("srv+fastcgi://a/b", Err("expected srv+fastcgi://SERVICE")),
            ("srv+http://a", Err("expected srv+fastcgi://SERVICE")),
            ("srv+fastcgi://::1", Err("invalid URL")),
        ] {
            check_service(text, UpstreamUrl::fastcgi, expected);
        }
        for (text, expected) in [
            ("srv+tcp://_db._tcp.a.example", Ok("b:81")),
            ("srv+tls://a", Err("records of the DNS do not prove")),
            ("srv+udp://_dns._udp.a.example", Ok("b:81")),
            ("srv+udp://a:53", Err("the records of a service have its ports")),
            ("srv+icmp://a", Err("expected srv+tcp://SERVICE")),
            ("udp://a:53", Err("expected unix:/SOCKET or HOST:PORT")),
        ] {
            check_service(text, UpstreamUrl::tcp, expected);
        }
    }

    /// Checks the URL of the server `b:81` of a service, or the error.
    fn check_service(
        text: &str,
        parse: fn(&str) -> Result<UpstreamUrl, String>,
        expected: Result<&str, &str>,
    ) {
        let url = parse(text);
        match (&url, expected) {
            (Ok(url), Ok(expected)) => {
                assert!(url.is_service() && url.to_string() == text);
                let server = url.of_server("b", 81).unwrap();
                assert!(!server.is_service());
                assert_eq!(server.to_string(), expected, "{text}");
                assert_eq!(server.is_tls(), text.contains("https"), "{text}");
            }
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{text}: {error}"),
            _ => panic!("{text}: {url:?}"),
        }
    }
}
