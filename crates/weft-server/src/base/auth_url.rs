//! URLs of resources that the server requests itself.

use std::fmt;

use weft_upstream::UpstreamUrl;

/// URL of a request that the server sends itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AuthUrl {
    pub(crate) text: String,
    /// The URL without its path.
    pub(crate) upstream: UpstreamUrl,
    /// Path and query.
    pub(crate) target: String,
}

impl AuthUrl {
    pub(crate) fn parse(text: &str) -> Result<AuthUrl, String> {
        let path_at = match text.split_once("://") {
            Some((scheme, rest)) => {
                let begin = scheme.len() + "://".len();
                rest.find(['/', '?']).map_or(text.len(), |at| begin + at)
            }
            None => text
                .find(":/")
                .and_then(|colon| text[colon + 1..].find(":/").map(|at| colon + 1 + at))
                .unwrap_or(text.len()),
        };
        let (upstream, target) = text.split_at(path_at);
        let target = target.strip_prefix(':').unwrap_or(target);
        let target = match target.starts_with('/') {
            true => target.to_owned(),
            false => format!("/{target}"),
        };
        if target.bytes().any(|b| b <= b' ' || b >= 0x7f || b == b'#') {
            return Err(format!("{text}: the path has a character that no URL can have"));
        }
        Ok(AuthUrl { text: text.to_owned(), upstream: upstream.parse()?, target })
    }
}

impl fmt::Display for AuthUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_urls_into_upstream_and_target() {
        for (text, expected) in [
            ("http://a", Some(("http://a", "/"))),
            ("http://a:1/b/c?d=e", Some(("http://a:1", "/b/c?d=e"))),
            ("https://a?b", Some(("https://a", "/?b"))),
            ("unix:/run/a.sock", Some(("unix:/run/a.sock", "/"))),
            ("unix:/run/a.sock:/b?c", Some(("unix:/run/a.sock", "/b?c"))),
            ("a/b", None),
            ("http:///b", None),
            ("http://a/b c", None),
            ("http://a/b#c", None),
            ("ftp://a/", None),
        ] {
            let url = AuthUrl::parse(text).ok();
            let found = url.map(|url| (url.upstream.to_string(), url.target));
            let expected = expected.map(|(url, target)| (url.to_owned(), target.to_owned()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
