//! Addresses and cookies of an upstream in its responses, rewritten for the client. Pure.

use weft::Response;
use weft::header::HeaderName;
use weft::header::{LOCATION, REFRESH, SET_COOKIE};
use weft_proto::http1::client::ResponseHead;

use crate::settings::proxy_settings::ProxySettings;
use crate::settings::proxy_settings::TextReplacement;
use crate::url::upstream_url::UpstreamUrl;

/// The route of a request, and the upstream that has responded to it.
pub(crate) struct Origin<'a> {
    pub(crate) upstream: &'a UpstreamUrl,
    /// Prefix of the route, without a slash at its end.
    pub(crate) mount: &'a str,
}

/// The rewritten fields of a response, each with all of its values.
#[derive(Default)]
pub(crate) struct RewrittenFields(Vec<(HeaderName, Vec<Vec<u8>>)>);

impl RewrittenFields {
    /// Rewrites the fields of a head. Most heads have none to rewrite.
    pub(crate) fn new(
        head: &ResponseHead,
        settings: &ProxySettings,
        origin: &Origin<'_>,
    ) -> RewrittenFields {
        let mut rewritten = RewrittenFields::default();
        if let Some(pairs) = &settings.rewrite_location {
            if head.status.is_redirection() || head.status.as_u16() == 201 {
                rewritten.rewrite(head, LOCATION, |url| origin.location(url, pairs));
            }
            rewritten.rewrite(head, REFRESH, |value| {
                let at = value.to_ascii_lowercase().find("url=")? + "url=".len();
                let location = origin.location(&value[at..], pairs)?;
                Some([&value[..at], &location].concat())
            });
        }
        let (paths, domains) = (&settings.cookie_path, &settings.cookie_domain);
        if !paths.is_empty() || !domains.is_empty() {
            let rewrite = |cookie: &[u8]| match str::from_utf8(cookie) {
                Ok(cookie) => rewrite_cookie(cookie, paths, domains).into_bytes(),
                Err(_) => cookie.to_vec(),
            };
            let cookies: Vec<_> = head.headers.get_all("set-cookie").map(rewrite).collect();
            if !cookies.is_empty() {
                rewritten.0.push((SET_COOKIE, cookies));
            }
        }
        rewritten
    }

    /// Rewrites the value of a field, if `change` has another one.
    fn rewrite(
        &mut self,
        head: &ResponseHead,
        name: HeaderName,
        change: impl FnOnce(&str) -> Option<String>,
    ) {
        let value = head.headers.get_bytes(name.as_str());
        let value = value.and_then(|value| str::from_utf8(value).ok());
        if let Some(changed) = value.and_then(change) {
            self.0.push((name, vec![changed.into_bytes()]));
        }
    }

    /// Replaces the fields of a response.
    pub(crate) fn apply(self, mut response: Response) -> Response {
        for (name, values) in self.0 {
            response.remove_header(&name);
            for value in values {
                response = response.with_appended_header(name.clone(), value);
            }
        }
        response
    }
}

impl Origin<'_> {
    /// Returns the URL for the client in place of a URL of the upstream. `None`: the URL stays as
    /// it is.
    fn location(&self, url: &str, pairs: &[TextReplacement]) -> Option<String> {
        let replaced = pairs.iter().find_map(|pair| replace_begin(url, pair));
        let location = replaced.or_else(|| {
            let path = self.upstream.path_within(url)?;
            Some(format!("{}/{path}", self.mount))
        })?;
        // Two slashes at the beginning would be another host. Browsers remove tabs before they look.
        let begin: String = location.chars().filter(|c| !c.is_ascii_control()).take(2).collect();
        (!matches!(&*begin, "//" | "/\\")).then_some(location)
    }
}

fn replace_begin(value: &str, (from, to): &TextReplacement) -> Option<String> {
    value.strip_prefix(&**from).map(|rest| [to, rest].concat())
}

/// Rewrites the attributes `Path` and `Domain` (RFC 6265 §4.1).
fn rewrite_cookie(cookie: &str, paths: &[TextReplacement], domains: &[TextReplacement]) -> String {
    let mut parts = cookie.split(';');
    let mut rewritten = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim();
        let changed = match name.trim() {
            name if name.eq_ignore_ascii_case("path") => {
                paths.iter().find_map(|pair| replace_begin(value, pair))
            }
            name if name.eq_ignore_ascii_case("domain") => {
                // RFC 6265 §5.2.3: a dot at the beginning is ignored.
                let domain = value.strip_prefix('.').unwrap_or(value);
                let found = domains.iter().find(|(from, _)| from.eq_ignore_ascii_case(domain));
                found.map(|(_, to)| to.clone())
            }
            _ => None,
        };
        match changed {
            // Without the attribute, the cookie is for the host of the request only.
            Some(changed) if changed.is_empty() => {}
            Some(changed) => {
                rewritten.push_str(&format!("; {}={changed}", name.trim()));
            }
            None => {
                rewritten.push(';');
                rewritten.push_str(part);
            }
        }
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<TextReplacement> {
        list.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
    }

    #[test]
    fn rewrites_locations() {
        for (upstream, mount, url, expected) in [
            ("http://up:3000/", "/app", "http://up:3000/login?a=b#c", Some("/app/login?a=b#c")),
            ("http://up:3000/", "/app", "HTTP://UP:3000/login", Some("/app/login")),
            ("http://up:3000/", "/app", "http://up:3000", Some("/app/")),
            ("http://up:3000/", "/app", "http://up:3000?a", Some("/app/?a")),
            ("http://up/", "", "http://up:80/login", Some("/login")),
            ("https://up/", "", "https://up:443/login", Some("/login")),
            ("http://up/base/", "/app", "http://up/base/x", Some("/app/x")),
            ("http://up/base/", "/app", "http://up/base", Some("/app/")),
            ("http://up/base/", "/app", "http://up/basement", None),
            ("http://up/base/", "/app", "http://up/x", None),
            ("http://up/", "/app", "https://up/x", None),
            ("http://up/", "/app", "http://up:81/x", None),
            ("http://up/", "/app", "http://up.example/x", None),
            ("http://up/", "/app", "http://up@evil.example/x", None),
            ("http://up/", "/app", "/x", None),
            ("http://up/", "", "http://up//evil.example", None),
            ("http://up/", "", "http://up/\\evil.example", None),
            ("unix:/run/a.sock", "/app", "http://localhost/x", None),
            ("http://up/", "", "http://other/x", Some("https://new/x")),
            ("http://up/", "", "/old/x", Some("/x")),
            ("http://up/", "", "/old//evil.example", None),
            ("http://up/", "", "http://up/\t/evil.example", None),
            ("http://up/", "", "/old/\t\t\\evil.example", None),
            ("http://up/", "", "http://up/\tlogin", Some("/\tlogin")),
            ("http://up/", "/app", "http://up/\t/x", Some("/app/\t/x")),
        ] {
            let upstream = upstream.parse().unwrap();
            let origin = Origin { upstream: &upstream, mount };
            let own = pairs(&[("http://other/", "https://new/"), ("/old/", "/")]);
            assert_eq!(origin.location(url, &own).as_deref(), expected, "{upstream} {url}");
        }
    }

    #[test]
    fn rewrites_cookies() {
        let paths = pairs(&[("/app/", "/"), ("/x", "/y")]);
        let domains = pairs(&[("up.local", "example.org"), ("gone.local", "")]);
        for (cookie, expected) in [
            ("a=b", "a=b"),
            ("a=b; Path=/app/x; Secure", "a=b; Path=/x; Secure"),
            ("a=b;path=/app/", "a=b; path=/"),
            ("a=b; Path=/apple", "a=b; Path=/apple"),
            ("a=b; Path=/x1", "a=b; Path=/y1"),
            ("a=b; Domain=.UP.local; HttpOnly", "a=b; Domain=example.org; HttpOnly"),
            ("a=b; Domain=gone.local; Path=/z", "a=b; Path=/z"),
            ("a=b; Domain=else.local", "a=b; Domain=else.local"),
            ("path=/app/; Path", "path=/app/; Path"),
        ] {
            assert_eq!(rewrite_cookie(cookie, &paths, &domains), expected, "{cookie}");
        }
    }
}
